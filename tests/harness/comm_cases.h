/* comm_cases: what every transport must do, told as bodies that all ranks of a world run. Values
 * are drawn from (seed, rank, element), so every rank can compute what the others have. They fail
 * with a status, for a rank is no place for cmocka. */
#ifndef TESTS_HARNESS_COMM_CASES_H
#define TESTS_HARNESS_COMM_CASES_H

#include "engine/comm/comm.h"

#include <string.h>

#define EXPECT(cond)                                                                               \
    do {                                                                                           \
        if (!(cond)) return FAIL(ERR_NUMERIC, "rank %d: %s", c->rank, #cond);                      \
    } while (0)

typedef struct CommCase {
    Dtype dtype;
    int64_t n; /* of a part */
    ReduceOp op;
} CommCase;

/* In [-0.5, 0.5): a cheap mix of both numbers, for every rank computes what all have. */
static inline double case_draw(uint64_t stream, uint64_t i)
{
    uint64_t x = (stream << 40) + i + 1;
    x *= 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 29)) * 0xBF58476D1CE4E5B9u;
    return (double)(x >> 40) / (1 << 24) - 0.5;
}

static inline float case_value(const Comm *c, int member, Dtype dtype, int64_t i)
{
    double u = case_draw((uint64_t)c->member[member], (uint64_t)i);
    if (dtype == DTYPE_I32) return (float)(int)(200 * u);
    float v = (float)(u * (i % 3 == 0 ? 1e4 : 1));
    return dtype == DTYPE_BF16 ? f32_from_bf16(bf16_from_f32(v)) : v;
}

static inline void case_put(const Tensor *t, int64_t i, float v)
{
    if (t->dtype == DTYPE_I32)
        ((int32_t *)t->data)[i] = (int32_t)v;
    else
        dtype_from_f32(tensor_at(t, i), t->dtype, &v, 1);
}

static inline float case_get(const Tensor *t, int64_t i)
{
    float v;
    if (t->dtype == DTYPE_I32) return (float)((int32_t *)t->data)[i];
    dtype_to_f32(&v, tensor_at(t, i), t->dtype, 1);
    return v;
}

static inline void case_fill(const Comm *c, const Tensor *t)
{
    for (int64_t i = 0; i < tensor_elems(t); i++) {
        case_put(t, i, case_value(c, c->rank, t->dtype, i));
    }
}

/* The definition: from rank 0 on, in f32, rounded once. */
static inline float case_reduced(const Comm *c, const CommCase *k, int64_t i)
{
    volatile float acc = case_value(c, 0, k->dtype, i);
    for (int r = 1; r < c->size; r++) {
        float v = case_value(c, r, k->dtype, i);
        acc = k->op == REDUCE_SUM ? acc + v : v > acc ? v : acc;
    }
    return k->dtype == DTYPE_BF16 ? f32_from_bf16(bf16_from_f32(acc)) : acc;
}

static inline Status case_all_reduce(Comm *c, const CommCase *k, Arena *a)
{
    Tensor t;
    TRY(tensor_new1(a, k->dtype, k->n, &t));
    case_fill(c, &t);
    TRY(comm_all_reduce(c, &t, k->op));
    for (int64_t i = 0; i < k->n; i++) EXPECT(case_get(&t, i) == case_reduced(c, k, i));
    return OK;
}

static inline Status case_reduce_scatter(Comm *c, const CommCase *k, Arena *a, bool in_place)
{
    Tensor in, out;
    int64_t first = c->rank * k->n;
    TRY(tensor_new2(a, k->dtype, c->size, k->n, &in));
    TRY(tensor_new1(a, k->dtype, k->n, &out));
    case_fill(c, &in);
    if (in_place) out = tensor_rows(&in, c->rank, 1);
    TRY(comm_reduce_scatter(c, &in, &out));
    for (int64_t i = 0; i < k->n; i++) EXPECT(case_get(&out, i) == case_reduced(c, k, first + i));
    return OK;
}

static inline Status case_all_gather(Comm *c, const CommCase *k, Arena *a, bool in_place)
{
    Tensor in, out;
    TRY(tensor_new1(a, k->dtype, k->n, &in));
    TRY(tensor_new2(a, k->dtype, c->size, k->n, &out));
    if (in_place) in = tensor_rows(&out, c->rank, 1);
    case_fill(c, &in);
    TRY(comm_all_gather(c, &in, &out));
    for (int64_t i = 0; i < c->size * k->n; i++) {
        EXPECT(case_get(&out, i) == case_value(c, (int)(i / k->n), k->dtype, i % k->n));
    }
    return OK;
}

static inline Status case_all_to_all(Comm *c, const CommCase *k, Arena *a)
{
    Tensor in, out;
    TRY(tensor_new2(a, k->dtype, c->size, k->n, &in));
    TRY(tensor_new2(a, k->dtype, c->size, k->n, &out));
    case_fill(c, &in);
    TRY(comm_all_to_all(c, &in, &out));
    for (int64_t i = 0; i < c->size * k->n; i++) {
        int64_t theirs = c->rank * k->n + i % k->n;
        EXPECT(case_get(&out, i) == case_value(c, (int)(i / k->n), k->dtype, theirs));
    }
    return OK;
}

static inline Status case_broadcast(Comm *c, const CommCase *k, Arena *a)
{
    Tensor t;
    TRY(tensor_new1(a, k->dtype, k->n, &t));
    for (int root = 0; root < c->size; root++) {
        case_fill(c, &t);
        TRY(comm_broadcast(c, &t, root));
        for (int64_t i = 0; i < k->n; i++) {
            EXPECT(case_get(&t, i) == case_value(c, root, k->dtype, i));
        }
    }
    return OK;
}

static inline Status case_all(Comm *c, const CommCase *k, Arena *a)
{
    ArenaMark mark = arena_mark(a);
    TRY(case_all_reduce(c, k, a));
    if (k->op == REDUCE_SUM) TRY(case_reduce_scatter(c, k, a, false));
    if (k->op == REDUCE_SUM) TRY(case_reduce_scatter(c, k, a, true));
    TRY(case_all_gather(c, k, a, false));
    TRY(case_all_gather(c, k, a, true));
    TRY(case_all_to_all(c, k, a));
    TRY(case_broadcast(c, k, a));
    TRY(comm_barrier(c));
    arena_release(a, mark);
    return OK;
}

/* Every collective in every type, for none, one, odd and many elements, and with parts that do not
 * fit into the staging buffer. */
static inline Status case_collectives(Comm *c, Arena *a)
{
    static const Dtype dtypes[] = { DTYPE_F32, DTYPE_BF16, DTYPE_I32 };
    static const int64_t lengths[] = { 0, 1, 7, 1031 };
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
            TRY(case_all(c, &(CommCase){ dtypes[d], lengths[l], REDUCE_SUM }, a));
            TRY(case_all(c, &(CommCase){ dtypes[d], lengths[l], REDUCE_MAX }, a));
        }
    }
    TRY(case_all(c, &(CommCase){ DTYPE_F32, 300007 / c->size, REDUCE_SUM }, a));
    return case_all_reduce(c, &(CommCase){ DTYPE_F32, 600011, REDUCE_SUM }, a);
}

enum { CASE_EACH = 2, CASE_LENGTH = 700, CASE_RANKS = 8 };

/* Twice: every member stores a word into its place of each other's window, and after a barrier finds
 * what all have stored in its own, and what another has in its own. */
static inline Status case_window(Comm *c, Arena *a)
{
    int32_t *mine = NULL;
    CommWindow w = { 0 };
    TRY(ARENA_ZEROED(a, c->size, &mine));
    TRY(comm_window(c, mine, (size_t)c->size * sizeof *mine, a, &w));
    EXPECT(w.peer[c->rank] == mine && w.bytes == (size_t)c->size * sizeof *mine);
    for (int32_t round = 1; round <= 2; round++) {
        for (int r = 0; r < c->size; r++)
            ((int32_t *)w.peer[r])[c->rank] = 1000 * round + 10 * c->member[c->rank] + r;
        TRY(comm_barrier(c));
        const int32_t *next = w.peer[(c->rank + 1) % c->size];
        for (int r = 0; r < c->size; r++) {
            EXPECT(mine[r] == 1000 * round + 10 * c->member[r] + c->rank);
            EXPECT(next[r] == 1000 * round + 10 * c->member[r] + (c->rank + 1) % c->size);
        }
        TRY(comm_barrier(c));
    }
    comm_window_close(c, &w);
    EXPECT(w.peer == NULL);
    comm_window_close(c, &w); /* which is closed */
    return OK;
}

/* What rank `from` sends to rank `to` in a round. */
static inline void case_letter(int from, int to, int round, Tensor *t)
{
    int pair = from * CASE_RANKS + to;
    t->dim[0] = (int64_t)((case_draw(1000 + (uint64_t)pair, (uint64_t)round) + 0.5) * CASE_LENGTH);
}

static inline int32_t case_word(int from, int to, int round, int nth)
{
    return ((from * CASE_RANKS + to) * 64 + round) * CASE_EACH + nth;
}

static inline Status case_round(Comm *c, Tensor *in, Tensor *out, int round)
{
    CommRequest going[CASE_RANKS * CASE_EACH], coming[CASE_RANKS * CASE_EACH];
    int n = c->size * CASE_EACH;
    for (int i = 0; i < n; i++) {
        int peer = (c->rank + i) % c->size;
        case_letter(c->rank, peer, round, &out[i]);
        for (int64_t j = 0; j < out[i].dim[0]; j++) {
            ((int32_t *)out[i].data)[j] = case_word(c->rank, peer, round, i / c->size);
        }
        TRY(comm_send(c, &out[i], peer, round % 3, &going[i]));
    }
    for (int i = 0; i < n; i++) {
        int peer = (c->rank + i) % c->size;
        case_letter(peer, c->rank, round, &in[i]);
        TRY(comm_recv(c, &in[i], peer, round % 3, &coming[i]));
    }
    for (int i = n - 1; i >= 0; i--) {
        int peer = (c->rank + i) % c->size;
        TRY(comm_wait(c, &coming[i]));
        for (int64_t j = 0; j < in[i].dim[0]; j++) {
            EXPECT(((int32_t *)in[i].data)[j] == case_word(peer, c->rank, round, i / c->size));
        }
    }
    for (int i = 0; i < n; i++) {
        bool done = false;
        TRY(comm_test(c, &going[i], &done));
        if (!done) TRY(comm_wait(c, &going[i]));
        EXPECT(going[i].slot == 0);
    }
    return OK;
}

/* All exchange messages of random lengths at once, with themselves, too, two of each tag; waits
 * come in another order than posts. */
static inline Status case_transfers(Comm *c, Arena *a)
{
    Tensor in[CASE_RANKS * CASE_EACH], out[CASE_RANKS * CASE_EACH];
    for (int i = 0; i < CASE_RANKS * CASE_EACH; i++) {
        TRY(tensor_new1(a, DTYPE_I32, CASE_LENGTH, &in[i]));
        TRY(tensor_new1(a, DTYPE_I32, CASE_LENGTH, &out[i]));
    }
    for (int round = 0; round < 40; round++) TRY(case_round(c, in, out, round));
    return OK;
}

/* Odd and even ranks part, each side in falling order, the last rank in neither; then both parts
 * and the world talk in turn. */
static inline Status case_split(Comm *c, Arena *a)
{
    Comm *side = NULL, *again = NULL, *none = c;
    const CommCase k = { DTYPE_F32, 33, REDUCE_SUM };
    bool last = c->size > 1 && c->rank == c->size - 1;
    TRY(comm_split(c, last ? -1 : c->rank % 2, -c->rank, "side", a, &side));
    TRY(comm_duplicate(c, NULL, "again", a, &again));
    TRY(comm_split(c, -1, 0, "none", a, &none));
    EXPECT(none == NULL && (side == NULL) == last);
    EXPECT(again->size == c->size && again->rank == c->rank && again->number != c->number);
    for (int i = 0; i < 3; i++) {
        if (side != NULL) TRY(case_all(side, &k, a));
        TRY(case_all(again, &k, a));
        TRY(case_all(c, &k, a));
    }
    if (side == NULL) return OK;
    EXPECT(side->number != again->number && side->number != c->number);
    EXPECT(side->member[side->rank] == c->member[c->rank]);
    for (int i = 1; i < side->size; i++) EXPECT(side->member[i - 1] == side->member[i] + 2);
    comm_free(side);
    comm_free(again);
    return OK;
}

#endif
