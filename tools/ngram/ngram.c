/* ngram: all n-grams are one trie, stored as a hash table of its edges. The edge (node of h, byte c) has
 * n(hc) and the node of hc. A walk holds the nodes of the contexts of the last 0 .. order - 1 bytes.
 * For each byte it looks up one edge per context, which also gives the nodes for the next byte. Grams
 * of the full length need no node. */
#include "ngram/ngram.h"

#include <math.h>
#include <stdbool.h>

enum { ORDER_MAX = 8, FIRST_ROOM = 1 << 16 };

static const uint32_t NO_NODE = UINT32_MAX, EMPTY = 0; /* node 0 is the empty context */

typedef struct NgramEdge {
    uint32_t from;  /* node of the context h */
    uint32_t count; /* n(hc); EMPTY: no edge */
    uint32_t to;    /* node of hc, or NO_NODE at full length */
    uint32_t byte;
} NgramEdge;

typedef struct NgramNode {
    uint32_t followed; /* n(h): bytes that came after it */
    uint32_t kinds;    /* t(h): how many different ones */
} NgramNode;

struct Ngram { /* in the arena of ngram_make */
    Arena *arena;
    int order;
    NgramEdge *edge;
    NgramNode *node;
    uint64_t edge_room, n_edges, bytes; /* the room is a power of two */
    int64_t node_room, n_nodes;
};

/* The nodes of the last 0, 1, .. known-1 bytes. */
typedef struct NgramWalk {
    uint32_t node[ORDER_MAX];
    int known;
} NgramWalk;

/* The edge, or the empty slot where it belongs. */
static NgramEdge *find_edge(const Ngram *g, uint32_t from, uint8_t byte)
{
    uint64_t h = ((uint64_t)from << 8 | byte) * 0x9E3779B97F4A7C15u; /* 2^64 / golden ratio */
    uint64_t mask = g->edge_room - 1, i = (h ^ h >> 32) & mask;
    while (g->edge[i].count != EMPTY && (g->edge[i].from != from || g->edge[i].byte != byte))
        i = (i + 1) & mask;
    return &g->edge[i];
}

/* Called before the walk looks up its edges, because growing moves every edge. */
static Status grow_edges(Ngram *g)
{
    const NgramEdge *old = g->edge;
    uint64_t n = g->edge_room;
    TRY(ARENA_ZEROED(g->arena, 2 * n, &g->edge));
    g->edge_room = 2 * n;
    for (uint64_t i = 0; i < n; i++) {
        if (old[i].count != EMPTY) *find_edge(g, old[i].from, (uint8_t)old[i].byte) = old[i];
    }
    return OK;
}

static Status new_node(Ngram *g)
{
    TRY(ARENA_GROW(g->arena, g->n_nodes + 1, &g->node_room, &g->node));
    g->node[g->n_nodes++] = (NgramNode){ 0 };
    return OK;
}

Status ngram_make(Arena *a, int order, Ngram **out)
{
    if (order < 1 || order > ORDER_MAX)
        return FAIL(ERR_ARG, "ngram: order %d; it can be 1 to %d", order, ORDER_MAX);
    Ngram *g = NULL;
    TRY(ARENA_NEW(a, 1, &g));
    *g = (Ngram){ .arena = a, .order = order, .edge_room = FIRST_ROOM };
    TRY(ARENA_ZEROED(a, g->edge_room, &g->edge));
    TRY(new_node(g));
    *out = g;
    return OK;
}

/* The node is made with its edge: a context gets one when it first occurs. */
static Status new_edge(Ngram *g, NgramEdge *edge, uint32_t from, uint8_t byte, bool with_node)
{
    *edge = (NgramEdge){ .from = from, .count = 1, .to = NO_NODE, .byte = byte };
    g->n_edges++;
    if (!with_node) return OK;
    edge->to = (uint32_t)g->n_nodes;
    return new_node(g);
}

/* Counts `byte` after every context of the walk, and advances the walk. */
static Status count_byte(Ngram *g, NgramWalk *w, uint8_t byte)
{
    NgramWalk next = { .known = 1 };
    for (int k = 0; k < w->known; k++) {
        uint32_t from = w->node[k];
        bool with_node = k + 1 < g->order;
        NgramEdge *edge = find_edge(g, from, byte);
        bool is_new = edge->count == EMPTY;
        if (is_new)
            TRY(new_edge(g, edge, from, byte, with_node));
        else
            edge->count++;
        g->node[from].followed++;
        g->node[from].kinds += is_new;
        if (with_node) next.node[next.known++] = edge->to;
    }
    *w = next;
    return OK;
}

Status ngram_add(Ngram *g, const uint8_t *text, size_t bytes)
{
    if (bytes > UINT32_MAX - g->bytes)
        return FAIL(ERR_UNSUPPORTED, "ngram: %zu bytes after %llu; it counts up to %u", bytes,
                    (unsigned long long)g->bytes, UINT32_MAX);
    NgramWalk w = { .known = 1 }; /* the empty context is node 0 */
    for (size_t i = 0; i < bytes; i++) {
        /* a byte adds at most `order` edges: keep the table under two thirds full */
        if (3 * (g->n_edges + ORDER_MAX) > 2 * g->edge_room) TRY(grow_edges(g));
        TRY(count_byte(g, &w, text[i]));
    }
    g->bytes += bytes;
    return OK;
}

/* P(byte | the longest context of the walk), computed from the shortest context up; advances the walk. */
static double probability(const Ngram *g, NgramWalk *w, uint8_t byte)
{
    NgramWalk next = { .known = 1 };
    double p = 1.0 / 256;
    for (int k = 0; k < w->known; k++) {
        NgramNode h = g->node[w->node[k]];
        if (h.followed == 0) break; /* so are all longer ones */
        const NgramEdge *edge = find_edge(g, w->node[k], byte);
        p = (edge->count + h.kinds * p) / ((double)h.followed + h.kinds);
        bool goes_on = edge->count != EMPTY && edge->to != NO_NODE;
        /* A longer context can have a node only if every shorter one has. So the next walk ends
         * before the first that is missing. */
        if (goes_on && next.known == k + 1) next.node[next.known++] = edge->to;
    }
    *w = next;
    return p;
}

double ngram_bits(const Ngram *g, const uint8_t *text, size_t bytes)
{
    NgramWalk w = { .known = 1 };
    double bits = 0;
    for (size_t i = 0; i < bytes; i++) bits -= log2(probability(g, &w, text[i]));
    return bits;
}
