#include "schedule/graph.h"

#include "schedule/lower.h"
#include "schedule/order.h"

#include <string.h>

enum { ABSENT = -2, UNKNOWN = -1 };

/* What a node waits for. A pass: the one before on its lane; by payload its input and the last
 * output in the same entry. A transfer: the one before on its way, who writes, who read before. */
enum { LANE, IN, OUT = IN + 2, WAITS = OUT + 2, WRITER = 1, READER };

/* A node before it has its time. Transfers are numbered by where they go, then passes. */
typedef struct Raw {
    int wait[WAITS];    /* -1: nothing */
    int level, time;    /* level: longest way of nodes from the start */
    int rank, cost;     /* of a pass */
    GraphPairing pairs; /* of phases */
} Raw;

typedef struct Build {
    Graph *g;
    const Pipeline *p;
    Arena *a, *scratch;
    Raw *raw;
    int *pair; /* by number of a pass: whose node it is in; phases only */
    int transfers, raws;
} Build;

static bool is_forward(const Action *a)
{
    return a->kind == ACTION_FORWARD || a->kind == ACTION_SEND_ACTIVATIONS ||
           a->kind == ACTION_RECV_ACTIVATIONS;
}

static bool is_send(const Action *a)
{
    return a->kind == ACTION_SEND_ACTIVATIONS || a->kind == ACTION_SEND_GRADIENTS;
}

static int transfer_number(const Program *p, const Action *a)
{
    Place to = { p->rank, a->chunk };
    int by = is_forward(a) ? 1 : -1;
    if (is_send(a)) to = place_at(p, a->micro, place_hop(p, a->chunk, a->micro) + by);
    return 2 * order_index(p, to, a->micro) + !is_forward(a);
}

static int pass_number(const Build *b, const Program *p, const Action *a)
{
    int kind = is_forward(a) ? 0 : a->kind == ACTION_BACKWARD_WEIGHT ? 2 : 1;
    int at = 3 * order_index(p, (Place){ p->rank, a->chunk }, a->micro) + kind;
    return b->transfers + (p->phased ? b->pair[at] : at);
}

static Raw *number(Build *b, int i)
{
    if (b->raw[i].level == ABSENT) b->raw[i].level = UNKNOWN;
    return &b->raw[i];
}

/* The actions of one rank in turn. */
typedef struct Walk {
    const Program *p;
    int *of_event, *way; /* way: by queue, the last transfer */
    int first, lane;     /* the first and the last pass */
    int last;            /* the action before that is no transfer */
} Walk;

static void take_wait(Build *b, const Walk *w, const Action *a, int event, Raw *r)
{
    const Action *x = &w->p->at[w->of_event[event]];
    if (action_is_transfer(x->kind))
        r->wait[(is_send(x) ? OUT : IN) + !is_forward(x)] = transfer_number(w->p, x);
    else if (action_is_transfer(a->kind))
        r->wait[is_send(a) ? WRITER : READER] = pass_number(b, w->p, x);
}

static int part_of(const Program *p, const Action *a)
{
    return action_row(p, a)->at[a->first].part;
}

/* A pair begins with the backward's combine or the forward's attention, whichever is first. */
static void begin_phases(Build *b, Walk *w, const Action *a)
{
    int place = w->p->rank * w->p->chunks + a->chunk;
    int at = 3 * order_index(w->p, (Place){ w->p->rank, a->chunk }, a->micro) + !is_forward(a);
    const Action *before = &w->p->at[w->last];
    if (is_forward(a) && part_of(w->p, a) != PHASE_ATTENTION) return;
    if (!is_forward(a) && part_of(w->p, a) != PHASE_COMBINE) return;
    bool joins =
        is_forward(a) && before->kind == ACTION_BACKWARD_INPUT &&
        part_of(w->p, before) == PHASE_COMBINE;
    b->pair[at] = joins ? w->lane - b->transfers : at;
    Raw *r = number(b, b->transfers + b->pair[at]);
    if (!joins) r->wait[LANE] = w->lane;
    r->pairs.place[!is_forward(a)] = place;
    r->rank = w->p->rank;
    w->lane = b->transfers + b->pair[at];
}

static void begin_pass(Build *b, Walk *w, const Action *a)
{
    static const int costs[ACTION_KIND_COUNT] = { [ACTION_FORWARD] = COST_FORWARD,
                                                  [ACTION_BACKWARD] = COST_BACKWARD,
                                                  [ACTION_BACKWARD_INPUT] = COST_INPUT,
                                                  [ACTION_BACKWARD_WEIGHT] = COST_WEIGHT };
    int at = pass_number(b, w->p, a);
    Raw *r = number(b, at);
    r->wait[LANE] = w->lane;
    r->cost = COSTS * (w->p->rank * w->p->chunks + a->chunk) + costs[a->kind];
    w->lane = at;
    if (w->first < 0) w->first = at;
}

static void begin_transfer(Build *b, Walk *w, const Action *a)
{
    int at = transfer_number(w->p, a), *way = &w->way[queue_of(w->p, a)];
    Raw *r = number(b, at);
    r->cost = COSTS * w->p->stages * w->p->chunks;
    if (is_send(a)) return;
    r->wait[LANE] = *way;
    *way = at;
}

static void add_action(Build *b, Walk *w, int i)
{
    const Action *a = &w->p->at[i];
    if (a->signal >= 0) w->of_event[a->signal] = i;
    if (a->micro < 0) return;
    bool transfer = action_is_transfer(a->kind), weight = a->kind == ACTION_BACKWARD_WEIGHT;
    if (transfer) {
        begin_transfer(b, w, a);
    } else if (w->p->phased) {
        if (weight) return;
        begin_phases(b, w, a);
        w->last = i;
    } else {
        begin_pass(b, w, a);
    }
    int at = transfer ? transfer_number(w->p, a) : w->lane;
    for (int k = 0; k < ACTION_WAITS; k++) {
        if (a->wait[k] >= 0) take_wait(b, w, a, a->wait[k], &b->raw[at]);
    }
}

static Status add_rank(Build *b, const Program *p)
{
    void *memory = NULL;
    Walk w = { .p = p, .first = -1, .lane = -1 };
    TRY(arena_alloc(b->scratch, (size_t)p->events * sizeof(int), &memory));
    w.of_event = memory;
    TRY(arena_alloc(b->scratch, (size_t)queue_count(p) * sizeof(int), &memory));
    w.way = memory;
    for (int q = 0; q < queue_count(p); q++) w.way[q] = -1;
    for (int i = 0; i < p->n; i++) add_action(b, &w, i);
    b->g->rank[p->rank].last = w.lane; /* their numbers until they have times */
    b->g->rank[p->rank].first = w.first;
    return OK;
}

/* One more than the highest level of what a node waits for, by walking back from it. */
static Status find_level(Build *b, int at, int *stack)
{
    int depth = 0;
    stack[depth++] = at;
    while (depth > 0) {
        Raw *r = &b->raw[stack[depth - 1]];
        int level = 0, open = -1;
        for (int i = 0; i < WAITS; i++) {
            const Raw *x = r->wait[i] < 0 ? NULL : &b->raw[r->wait[i]];
            if (x == NULL) continue;
            if (x->level < 0) open = r->wait[i];
            if (x->level >= level) level = x->level + 1;
        }
        if (open < 0) {
            r->level = level;
            depth--;
        } else if (depth < b->raws) {
            stack[depth++] = open;
        } else {
            return FAIL(ERR_ARG, "graph: the Programs of %s wait for each other for ever",
                        b->g->schedule->name);
        }
    }
    return OK;
}

/* Numbers of all nodes that are there, lowest level first. Gives them their times. */
static Status sort_nodes(Build *b, int **order, int *n)
{
    void *memory = NULL;
    int levels = 0;
    TRY(arena_alloc(b->scratch, (size_t)b->raws * sizeof(int), &memory));
    *order = memory;
    for (int i = 0; i < b->raws; i++) {
        if (b->raw[i].level == UNKNOWN) TRY(find_level(b, i, *order));
        if (b->raw[i].level >= levels) levels = b->raw[i].level + 1;
    }
    TRY(arena_alloc_zero(b->scratch, ((size_t)levels + 1) * sizeof(int), &memory));
    int *first = memory;
    for (int i = 0; i < b->raws; i++) {
        if (b->raw[i].level >= 0) first[b->raw[i].level + 1]++;
    }
    for (int l = 0; l < levels; l++) first[l + 1] += first[l];
    *n = first[levels];
    for (int i = 0; i < b->raws; i++) {
        if (b->raw[i].level >= 0) (*order)[first[b->raw[i].level]++] = i;
    }
    b->g->times = 1;
    for (int i = 0; i < *n; i++) {
        bool pair = (*order)[i] >= b->transfers && b->g->schedule->phases;
        b->raw[(*order)[i]].time = b->g->times;
        b->g->times += pair ? PAIR_TIMES : 1;
        b->g->pairs += pair;
    }
    b->g->nodes = *n - b->g->pairs;
    return OK;
}

/* Of a pair: one of its times. */
static int time_of(const Build *b, int at, int offset)
{
    if (at < 0) return 0;
    return b->raw[at].time + (at >= b->transfers && b->g->schedule->phases ? offset : 0);
}

static int pairing_of(Graph *g, const GraphPairing *want)
{
    int i = 0;
    while (i < g->pairings && memcmp(&g->pairing[i], want, sizeof *want) != 0) i++;
    if (i == g->pairings) g->pairing[g->pairings++] = *want;
    return i;
}

static void emit_node(const Build *b, int at, GraphNode *out)
{
    const Raw *r = &b->raw[at];
    int payload = at % 2, in = r->wait[IN], last = r->wait[OUT];
    *out = (GraphNode){ { time_of(b, r->wait[LANE], 0) }, r->cost };
    if (at >= b->transfers) { /* a pass has one input and one output */
        out->before[1] = time_of(b, in < 0 ? r->wait[IN + 1] : in, 0);
        out->before[2] = time_of(b, last < 0 ? r->wait[OUT + 1] : last, 0);
    } else {
        out->before[1] = time_of(b, r->wait[WRITER], PAIR_FORWARD + payload);
        out->before[2] = time_of(b, r->wait[READER], PAIR_READ + payload);
    }
}

static void emit_pair(const Build *b, int at, GraphPair *out)
{
    const Raw *r = &b->raw[at];
    *out = (GraphPair){ .lane = time_of(b, r->wait[LANE], 0),
                        .rank = r->rank,
                        .pairing = pairing_of(b->g, &r->pairs) };
    for (int i = 0; i < 2; i++) {
        out->in[i] = time_of(b, r->wait[IN + i], 0);
        out->out[i] = time_of(b, r->wait[OUT + i], 0);
    }
}

static Status emit_graph(Build *b)
{
    void *memory = NULL;
    int *order = NULL, n = 0;
    Graph *g = b->g;
    TRY(sort_nodes(b, &order, &n));
    TRY(arena_alloc(b->a, (size_t)g->nodes * sizeof(GraphNode), &memory));
    g->node = memory;
    TRY(arena_alloc(b->a, (size_t)g->pairs * sizeof(GraphPair), &memory));
    g->pair = memory;
    TRY(arena_alloc(b->a, (size_t)g->pairs * sizeof(GraphPairing), &memory));
    g->pairing = memory;
    int nodes = 0, pairs = 0, before = 0;
    for (int i = 0; i < n; i++) {
        if (order[i] >= b->transfers && g->schedule->phases) {
            emit_pair(b, order[i], &g->pair[pairs]);
            if (g->pair[pairs].lane == 0) g->rank[g->pair[pairs].rank].first = pairs;
            g->pair[pairs++].nodes = nodes - before;
            before = nodes;
        } else {
            emit_node(b, order[i], &g->node[nodes++]);
        }
    }
    for (int r = 0; r < g->shape.stages; r++) {
        GraphRank *x = &g->rank[r];
        x->last = time_of(b, x->last, 0);
        if (!g->schedule->phases) x->first = time_of(b, x->first, 0);
    }
    return OK;
}

static bool at_most(const int *x, const int *y, int n)
{
    for (int i = 0; i < n; i++) {
        if (x[i] > y[i]) return false;
    }
    return true;
}

/* Adds what is live unless something known is always as much; drops what never is more. */
static void add_peak(const int *live, int n, int *peak, int *peaks)
{
    int *end = peak + (ptrdiff_t)*peaks * n, *kept = peak;
    size_t bytes = (size_t)n * sizeof(int);
    for (const int *x = peak; x < end; x += n) {
        if (at_most(live, x, n)) return;
    }
    for (const int *x = peak; x < end; x += n) {
        if (at_most(x, live, n)) continue;
        if (kept < x) memcpy(kept, x, bytes);
        kept += n;
    }
    memcpy(kept, live, bytes);
    *peaks = (int)((kept - peak) / n) + 1;
}

/* On one lane the order of passes is that of the list, so what is live is known without times. */
static Status live_peaks(Build *b, const Program *p, GraphRank *out)
{
    void *memory = NULL;
    int n = p->chunks * LIVE_PARTS;
    size_t row = (size_t)n * sizeof(int);
    TRY(arena_alloc_zero(b->scratch, row, &memory));
    int *live = memory;
    TRY(arena_alloc(b->scratch, row * (size_t)p->n, &memory));
    int *peak = memory;
    for (int i = 0; i < p->n; i++) {
        const Action *x = &p->at[i];
        if (x->slot < 0) continue;
        int *of = live + (ptrdiff_t)x->chunk * LIVE_PARTS;
        bool forward = x->kind == ACTION_FORWARD, input = x->kind == ACTION_BACKWARD_INPUT;
        of[LIVE_GRADIENTS] += input;
        if (!forward) add_peak(live, n, peak, &out->peaks);
        of[LIVE_INPUT] += forward - (input || x->kind == ACTION_BACKWARD);
        of[LIVE_WEIGHT] += forward - (!forward && !input);
        of[LIVE_GRADIENTS] -= x->kind == ACTION_BACKWARD_WEIGHT;
    }
    TRY(arena_alloc(b->a, row * (size_t)out->peaks, &memory));
    out->peak = memcpy(memory, peak, row * (size_t)out->peaks);
    return OK;
}

static Status build(Build *b)
{
    void *memory = NULL;
    const ScheduleShape *s = &b->g->shape;
    int places = s->stages * s->chunks * s->micros;
    b->transfers = 2 * places;
    b->raws = b->transfers + 3 * places;
    TRY(arena_alloc(b->scratch, (size_t)b->raws * sizeof(Raw), &memory));
    b->raw = memory;
    for (int i = 0; i < b->raws; i++) {
        b->raw[i] = (Raw){ { -1, -1, -1, -1, -1 }, ABSENT, 0, 0, 0, { { -1, -1 } } };
    }
    TRY(arena_alloc(b->scratch, 3 * (size_t)places * sizeof(int), &memory));
    b->pair = memory;
    for (int r = 0; r < s->stages; r++) {
        const Program *p = &b->p->rank[r];
        GraphRank *out = &b->g->rank[r];
        ArenaMark mark = arena_mark(b->scratch);
        out->entries = p->entries;
        TRY(add_rank(b, p));
        if (!p->phased) TRY(live_peaks(b, p, out));
        arena_release(b->scratch, mark);
    }
    return emit_graph(b);
}

/* A slot and which arena of gradients it has, and such an arena: of both as many. */
typedef struct SlotState {
    uint64_t chunks, gradient_chunks;
    int mine;
    bool taken;
} SlotState;

static void use_slot(Graph *g, SlotState *of, const Pass *x, int slot, GraphRank *out)
{
    uint64_t chunk = 1ULL << x->chunk;
    unsigned char *passes = &out->passes[x->chunk];
    of[slot].chunks |= chunk;
    if (g->schedule->phases) {
        *passes = CHUNK_PHASED;
    } else if (x->kind == ACTION_BACKWARD) {
        *passes |= CHUNK_WHOLE;
    } else if (x->kind == ACTION_BACKWARD_WEIGHT) {
        of[of[slot].mine].taken = false;
    } else if (x->kind == ACTION_BACKWARD_INPUT) {
        int i = 0;
        while (of[i].taken) i++;
        of[i].taken = g->apart = true;
        of[i].gradient_chunks |= chunk;
        of[slot].mine = i;
        *passes |= CHUNK_SPLIT;
    }
}

static void count_use(GraphRank *out, uint64_t chunks, bool gradients)
{
    SlotUse *x = out->use, *end = x + out->uses;
    while (x < end && (x->chunks != chunks || x->gradients != gradients)) x++;
    if (x == end) out->use[out->uses++] = (SlotUse){ chunks, gradients, 0 };
    x->count++;
}

/* Arenas of the same use are counted. of: by slot. */
static Status slot_uses(const SlotState *of, int slots, Arena *a, Arena *scratch, GraphRank *out)
{
    void *memory = NULL;
    TRY(arena_alloc(scratch, 2 * (size_t)slots * sizeof(SlotUse), &memory));
    out->use = memory;
    out->slots = slots;
    for (int i = 0; i < slots; i++) count_use(out, of[i].chunks, false);
    for (int i = 0; i < slots && of[i].gradient_chunks != 0; i++) {
        count_use(out, of[i].gradient_chunks, true);
    }
    size_t bytes = (size_t)out->uses * sizeof(SlotUse);
    TRY(arena_alloc(a, bytes, &memory));
    out->use = memcpy(memory, out->use, bytes);
    return OK;
}

/* From the orders, which stay in scratch. */
static Status use_slots(Graph *g, Arena *a, Arena *scratch, Order **ranks)
{
    void *memory = NULL;
    const ScheduleShape *s = &g->shape;
    TRY(arena_alloc_zero(a, (size_t)s->stages * sizeof(GraphRank), &memory));
    g->rank = memory;
    TRY(schedule_orders(g->schedule, s, scratch, ranks));
    for (int r = 0; r < s->stages; r++) {
        const Order *o = &(*ranks)[r];
        SlotTable slots;
        ArenaMark mark = arena_mark(scratch);
        TRY(slots_make(s, scratch, &slots));
        TRY(arena_alloc_zero(scratch, (size_t)slots.most * sizeof(SlotState), &memory));
        for (int i = 0; i < o->n; i++) {
            use_slot(g, memory, &o->at[i], slots_pass(&slots, &o->at[i]), &g->rank[r]);
        }
        TRY(slot_uses(memory, slots.n, a, scratch, &g->rank[r]));
        arena_release(scratch, mark);
    }
    return OK;
}

static Status make_nodes(Graph *g, const Order *ranks, Arena *a, Arena *scratch)
{
    Pipeline p;
    ScheduleShape s = g->shape;
    if (g->schedule->phases) s.blocks = 1; /* how many are in a matrix */
    ArenaMark mark = arena_mark(a);
    TRY(schedule_lower(g->schedule, &s, ranks, scratch, a, &p));
    arena_release(a, mark);
    Build b = { .g = g, .p = &p, .a = a, .scratch = scratch };
    return build(&b);
}

static Status new_graph(const ScheduleDesc *d, const ScheduleShape *s, Arena *a, Arena *scratch,
                        bool nodes, Graph **out)
{
    void *memory = NULL;
    Order *ranks = NULL;
    ArenaMark kept = arena_mark(a), mark = arena_mark(scratch);
    TRY(arena_alloc_zero(a, sizeof(Graph), &memory));
    Graph *g = memory;
    g->schedule = d;
    g->shape = *s;
    Status status = use_slots(g, a, scratch, &ranks);
    if (status == OK && nodes) status = make_nodes(g, ranks, a, scratch);
    arena_release(scratch, mark);
    if (status != OK) arena_release(a, kept);
    if (status == OK) *out = g;
    return status;
}

Status graph_make(const ScheduleDesc *d, const ScheduleShape *s, Arena *a, Arena *scratch,
                  Graph **out)
{
    return new_graph(d, s, a, scratch, true, out);
}

Status graph_slots(const ScheduleDesc *d, const ScheduleShape *s, Arena *a, Arena *scratch,
                   Graph **out)
{
    return new_graph(d, s, a, scratch, false, out);
}
