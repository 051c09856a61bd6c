/* pack: best fit, decreasing. Packs with equal room are in one list; a bit for each room that has a list
 * finds the next larger one, 64 at a time. */
#include "pack/pack.h"

#include <string.h>

enum { PIECE = 4096, WORD = 64 };

/* Documents by number; -1: none. A pack's documents are a list along `next`. */
typedef struct Packs {
    const Shard *from;
    int64_t P, n;   /* packs that hold pieces */
    int64_t *order; /* (documents): those that leave a piece, the longest first */
    int64_t *next;  /* (documents): the next document of the pack */
    int64_t *pack;  /* (documents): the pack of its piece */
    struct Pack {
        int64_t first, last, lowest; /* documents; lowest: the smallest number */
        int64_t below;               /* the next pack with the same room; -1: none */
    } * all;
    int64_t *with_room; /* (P + 1): a pack with this room, or -1 */
    uint64_t *has_room; /* (P / 64 + 1): which of them are not -1 */
} Packs;

static int64_t piece_tokens(const Packs *k, int64_t d)
{
    return (shard_start(k->from, d + 1) - shard_start(k->from, d)) % k->P;
}

/* Sorts by counting, so documents of one length stay in order. *n: how many leave a piece. */
static Status sort_pieces(Packs *k, Arena *a, int64_t *n)
{
    int64_t *at = NULL, sum = 0;
    ArenaMark mark = arena_mark(a);
    TRY(ARENA_ZEROED(a, k->P + 1, &at));
    for (int64_t d = 0; d < k->from->documents; d++) at[piece_tokens(k, d)]++;
    for (int64_t length = k->P; length >= 0; length--) {
        int64_t count = at[length];
        at[length] = sum;
        sum += count;
    }
    *n = at[0]; /* pieces of no tokens are the last */
    for (int64_t d = 0; d < k->from->documents; d++) k->order[at[piece_tokens(k, d)]++] = d;
    arena_release(a, mark);
    return OK;
}

static void list_pack(Packs *k, int64_t pack, int64_t room)
{
    k->all[pack].below = k->with_room[room];
    k->with_room[room] = pack;
    k->has_room[room / WORD] |= (uint64_t)1 << room % WORD;
}

/* Takes a pack with the least room that is enough from its list; -1: there is none. *room: what it had. */
static int64_t take_pack(Packs *k, int64_t tokens, int64_t *room)
{
    int64_t word = tokens / WORD;
    uint64_t bits = k->has_room[word] >> tokens % WORD << tokens % WORD;
    while (bits == 0 && ++word <= k->P / WORD) bits = k->has_room[word];
    if (bits == 0) return -1;
    *room = word * WORD + __builtin_ctzll(bits);
    int64_t pack = k->with_room[*room];
    k->with_room[*room] = k->all[pack].below;
    if (k->with_room[*room] < 0) k->has_room[word] &= ~((uint64_t)1 << *room % WORD);
    return pack;
}

static void place_piece(Packs *k, int64_t d)
{
    int64_t tokens = piece_tokens(k, d), room = k->P, pack = take_pack(k, tokens, &room);
    k->next[d] = -1;
    if (pack < 0) {
        pack = k->n++;
        k->all[pack].first = k->all[pack].lowest = d;
    } else {
        k->next[k->all[pack].last] = d;
        if (d < k->all[pack].lowest) k->all[pack].lowest = d;
    }
    k->all[pack].last = d;
    k->pack[d] = pack;
    list_pack(k, pack, room - tokens);
}

static Status place_pieces(Packs *k, Arena *a)
{
    int64_t n = 0;
    TRY(ARENA_NEW(a, k->from->documents, &k->order));
    TRY(ARENA_NEW(a, k->from->documents, &k->next));
    TRY(ARENA_NEW(a, k->from->documents, &k->pack));
    TRY(sort_pieces(k, a, &n));
    TRY(ARENA_NEW(a, n, &k->all));
    TRY(ARENA_NEW(a, k->P + 1, &k->with_room));
    TRY(ARENA_ZEROED(a, k->P / WORD + 1, &k->has_room));
    memset(k->with_room, 0xFF, (size_t)(k->P + 1) * sizeof *k->with_room);
    for (int64_t i = 0; i < n; i++) place_piece(k, k->order[i]);
    return OK;
}

/* Tokens [first, first + n) as one sequence. */
static Status write_range(const Packs *k, ShardWriter *w, int64_t first, int64_t n)
{
    int32_t ids[PIECE];
    for (int64_t done = 0; done < n;) {
        int64_t some = done == 0 ? 1 : n - done < PIECE ? n - done : PIECE;
        shard_read(k->from, first + done, some, ids);
        TRY(shard_append_learned(w, ids, some, done > 0));
        done += some;
    }
    return shard_end_document(w);
}

static Status write_pack(const Packs *k, ShardWriter *w, const struct Pack *pack, int32_t fill,
                         PackStats *out)
{
    for (int64_t d = pack->first; d >= 0; d = k->next[d]) {
        int64_t n = piece_tokens(k, d);
        TRY(write_range(k, w, shard_start(k->from, d + 1) - n, n));
    }
    int64_t left = (k->P - w->tokens % k->P) % k->P;
    out->padding += left;
    for (int64_t i = 0; i < left; i++) TRY(shard_append(w, &fill, 1));
    return left > 0 ? shard_end_document(w) : OK;
}

static Status write_packs(const Packs *k, ShardWriter *w, int32_t fill, PackStats *out)
{
    for (int64_t d = 0; d < k->from->documents; d++) {
        int64_t at = shard_start(k->from, d), end = shard_start(k->from, d + 1);
        out->cut += end - at > k->P;
        for (; end - at >= k->P; at += k->P) TRY(write_range(k, w, at, k->P));
        if (at < end && k->all[k->pack[d]].lowest == d)
            TRY(write_pack(k, w, &k->all[k->pack[d]], fill, out));
    }
    out->packs = w->tokens / k->P;
    return OK;
}

Status pack_best_fit(const Shard *from, ShardWriter *w, int32_t fill, Arena *a, PackStats *out)
{
    Packs k = { .from = from, .P = w->pack };
    ArenaMark mark = arena_mark(a);
    *out = (PackStats){ 0 };
    Status s = place_pieces(&k, a);
    if (s == OK) s = write_packs(&k, w, fill, out);
    arena_release(a, mark);
    return s;
}
