/*
 * exchange_case: ranks as threads, each with a place to run ops on, and tokens with experts to go
 * to. A body that fails returns its status: only the main thread checks.
 */
#ifndef KERNELS_OP_EXCHANGE_CASE_H
#define KERNELS_OP_EXCHANGE_CASE_H

#include "harness/optest.h"
#include "kernels/exchange/exchange.h"

enum { TOKENS = 23 }; /* of each rank, on their way there and back */
enum { RANKS_MAX = 8, BOARD_MOST = 1 << 16, WINDOW = 1 << 28 };

/* How tokens choose: any experts; all the same few; experts of one rank. */
typedef enum Deal { DEAL_RANDOM, DEAL_SAME, DEAL_ONE_RANK, DEALS } Deal;

/* inside: ranks on each host, which matters to kinds that relay. */
typedef struct Sizes {
    int64_t n, k, experts, d, ranks, inside;
} Sizes;

/* Tokens of one rank on their way. */
typedef struct Traveller {
    ExchangeKind kind;
    int64_t experts, inside;
    Tensor relay;
    Operand x, rows;
    Tensor index, weight, offset, overflow, count, first, shared, residual;
    Tensor rows_index, rows_weight, sums, dweight;
    Tensor y, home;
} Traveller;

typedef struct Collect {
    Tensor mine, all, part, next, count, sent;
} Collect;

typedef struct Rank {
    OpTest t;
    void *front; /* of the memory that it opens to the others */
    Mesh mesh;
    Traveller traveller;
    Collect collect;
} Rank;

typedef struct World {
    int ranks;
    MeshShape shape;
    Status (*run)(Rank *r);
    Rank rank[RANKS_MAX];
} World;

/* The mirror's calls of comm would be the CPU's, with memory of the GPU: it is taken away. */
static inline void world_open(World *w)
{
    for (int i = 0; i < w->ranks; i++) {
        OpTest *t = &w->rank[i].t;
        optest_open(t, 1);
        t->drawn = (uint64_t)i << 32; /* other numbers on each */
        CHECK_OK(arena_alloc(&t->arena, BOARD_MOST + (size_t)i * 512, &w->rank[i].front));
        for (int l = 0; l < t->ex.depth; l++) {
            if (t->ex.front[l] == &backend_mirror) t->ex.front[l] = &backend_guard;
        }
    }
}

static inline Status world_body(void *state, Comm *world)
{
    World *w = state;
    Rank *r = &w->rank[world->rank];
    TRY(mesh_make(world, &w->shape, false, &r->t.arena, &r->mesh));
    r->t.ex.mesh = &r->mesh;
    TRY(w->run(r));
    mesh_free(&r->mesh);
    return OK;
}

static inline void world_run(World *w)
{
    int failed = -1;
    CHECK_OK(comm_threads(w->ranks, 20, world_body, w, &failed));
}

static inline void world_close(World *w)
{
    for (int i = 0; i < w->ranks; i++) optest_close(&w->rank[i].t);
}

/* Different experts for each token. */
static inline Tensor deal(OpTest *t, Deal how, int64_t n, int64_t k, int64_t experts, int64_t ranks)
{
    Tensor index = optest_poisoned(t, DTYPE_I32, DIMS(n, k));
    uint64_t stream = t->drawn++;
    int64_t here = experts / ranks;
    for (int64_t i = 0; i < n * k; i++) {
        uint64_t token = (uint64_t)(i / k), rank = rng_below(3, stream, token, (uint64_t)ranks);
        uint64_t e = rng_permute(stream + 7, token, (uint64_t)(i % k), (uint64_t)experts);
        if (how == DEAL_SAME) e = (uint64_t)(experts - 1 - i % k);
        if (how == DEAL_ONE_RANK) {
            e = rng_permute(stream + 7, token, (uint64_t)(i % k), (uint64_t)here);
            e += rank * (uint64_t)here;
        }
        optest_set(&index, i, (double)e);
    }
    return index;
}

/* Does the token have an expert on the rank? */
static inline bool wants(const Tensor *index, int64_t token, int64_t rank, int64_t here)
{
    int64_t k = tensor_cols(index);
    for (int64_t i = token * k; i < (token + 1) * k; i++) {
        if ((int64_t)optest_get(index, i) / here == rank) return true;
    }
    return false;
}

/* Rows that each host has room for from each rank: more than ranks have, so that both stages can be
 * short of it. */
static inline int64_t host_room(int64_t n, int64_t room) { return 2 * room < n ? 2 * room : n; }

/* m poisoned rows, and one behind them that is not theirs. */
static inline Tensor bordered(OpTest *t, Dtype dtype, int64_t m, int64_t cols)
{
    const Tensor all = optest_poisoned(t, dtype, DIMS(m + 1, cols));
    return tensor_rows(&all, 0, m);
}

/* Is the row behind as it was made? */
static inline bool border_is_whole(const Tensor *t)
{
    const unsigned char *at = tensor_at(t, tensor_elems(t));
    size_t bytes = (size_t)tensor_cols(t) * dtype_bytes(t->dtype), whole = 0;
    while (whole < bytes && at[whole] == 0xFF) whole++;
    return whole == bytes;
}

/* Rows of act; or of e4m3 with 1 x 128 scales, or of e5m2 with a scale a row. Poisoned ones have a
 * row behind them. */
static inline Operand travelling(OpTest *t, Dtype type, int64_t n, int64_t d, bool poisoned)
{
    bool scaled = type == DTYPE_E4M3 || type == DTYPE_E5M2;
    Operand q = { .kind = type == DTYPE_E4M3 ? OPERAND_1X128 : OPERAND_ROW };
    int64_t scales = operand_grid(q.kind, n, d).cols;
    if (!scaled)
        return operand_plain(poisoned ? bordered(t, type, n, d)
                                      : optest_normal(t, type, DIMS(n, d)));
    q.data = bordered(t, type, n, d);
    q.scale = bordered(t, DTYPE_F32, n, scales);
    if (poisoned) return q;
    const Tensor from = optest_normal(t, DTYPE_F32, DIMS(n, d));
    dtype_from_f32(q.data.data, type, from.data, n * d);
    for (int64_t i = 0; i < n * scales; i++)
        optest_set(&q.scale, i, ldexp(1, (int)(i * 5 % 7) - 3));
    return q;
}

/* Element i as a value. */
static inline double travelling_get(const Operand *q, int64_t i)
{
    float value;
    if (q->kind == OPERAND_PLAIN) return optest_get(&q->data, i);
    const OperandGrid g = operand_grid_of(q);
    dtype_to_f32(&value, tensor_at(&q->data, i), q->data.dtype, 1);
    return (double)value * optest_get(&q->scale, i / g.d * g.cols + i % g.d / g.width);
}

/* The type of `row` is that of the rows that go there. */
static inline Traveller traveller(OpTest *t, ExchangeKind kind, Dtype row, Deal how, Sizes s,
                                  int64_t room)
{
    Dtype act = row == DTYPE_BF16 ? row : DTYPE_F32;
    bool compact = exchange_kinds[kind]->compact;
    int64_t m = s.ranks * (exchange_kinds[kind]->offsets ? room : s.n);
    Traveller v = { .kind = kind, .experts = s.experts, .inside = s.inside };
    if (exchange_kinds[kind]->hierarchical)
        v.relay =
            optest_poisoned(t, DTYPE_I32, DIMS(s.ranks / s.inside * host_room(s.n, room), s.k));
    v.x = travelling(t, row, s.n, s.d, false);
    v.index = deal(t, how, s.n, s.k, s.experts, s.ranks);
    v.weight = optest_normal(t, DTYPE_F32, DIMS(s.n, s.k));
    for (int64_t i = 0; i < s.n * s.k; i++) /* nothing cancels */
        optest_set(&v.weight, i, 0.1 + fabs(optest_get(&v.weight, i)));
    if (exchange_kinds[kind]->offsets) v.offset = optest_poisoned(t, DTYPE_I32, DIMS(s.n, s.k));
    if (compact) v.count = optest_poisoned(t, DTYPE_I32, DIMS(1, s.ranks));
    if (compact) v.first = optest_poisoned(t, DTYPE_I32, DIMS(1, s.ranks + 1));
    v.overflow = optest_poisoned(t, DTYPE_F32, DIMS(1));
    optest_set(&v.overflow, 0, 0);
    if (how != DEAL_SAME) v.residual = optest_normal(t, act, DIMS(s.n, s.d));
    if (how == DEAL_RANDOM) v.shared = optest_normal(t, act, DIMS(s.n, s.d));
    v.rows = travelling(t, row, m, s.d, true);
    v.rows_index = bordered(t, DTYPE_I32, m, s.k);
    v.rows_weight = bordered(t, DTYPE_F32, m, s.k);
    v.sums = bordered(t, act, m, s.d);
    v.dweight = bordered(t, DTYPE_F32, m, s.k);
    v.y = optest_poisoned(t, act, DIMS(s.n, s.d));
    v.home = optest_poisoned(t, DTYPE_F32, DIMS(s.n, s.k));
    return v;
}

/* What stands for the experts: expert e multiplies a row by e + 1, and gives 10 (e + 1) weight for
 * the weight's gradient. Rows that did not come stay NaN. */
static inline void act_as_experts(const Traveller *v, int64_t first)
{
    int64_t m = v->rows.data.dim[0], d = tensor_cols(&v->rows.data),
            k = tensor_cols(&v->rows_index);
    for (int64_t r = 0; r < m; r++) {
        double sum = 0;
        bool came = !exchange_kinds[v->kind]->offsets;
        for (int64_t i = r * k; i < (r + 1) * k; i++) {
            double e = optest_get(&v->rows_index, i), w = optest_get(&v->rows_weight, i);
            if (e >= 0) came = true, sum += w * (e + (double)first + 1);
            optest_set(&v->dweight, i, e >= 0 ? 10 * w * (e + (double)first + 1) : 0);
        }
        for (int64_t i = r * d; i < (r + 1) * d; i++)
            optest_set(&v->sums, i, came ? sum * travelling_get(&v->rows, i) : (double)NAN);
        for (int64_t i = r * k; !came && i < (r + 1) * k; i++)
            optest_set(&v->dweight, i, (double)NAN);
    }
}

static inline ExchangeRelay relay_of(const Traveller *v)
{
    return (ExchangeRelay){ v->relay, v->inside, 0 };
}

static inline ExchangePlace to_offsets(const Traveller *v, int64_t ranks)
{
    const ExchangeDesc *kind = exchange_kinds[v->kind];
    int64_t blocks = kind->hierarchical ? ranks / v->inside : ranks;
    int64_t rows = kind->hierarchical ? v->relay.dim[0] : v->rows.data.dim[0];
    return (ExchangePlace){ .index = v->index,
                            .offset = v->offset,
                            .overflow = v->overflow,
                            .count = v->count,
                            .experts = v->experts,
                            .ranks = blocks,
                            .room = kind->compact ? v->x.data.dim[0] : rows / blocks };
}

static inline ExchangeDispatch going_there(const Traveller *v, int64_t ranks)
{
    const ExchangeDesc *kind = exchange_kinds[v->kind];
    return (ExchangeDispatch){ .x = v->x,
                               .index = v->index,
                               .weight = v->weight,
                               .offset = v->offset,
                               .count = v->count,
                               .first = v->first,
                               .relay = relay_of(v),
                               .overflow = kind->hierarchical || kind->compact ? v->overflow
                                                                               : (Tensor){ 0 },
                               .rows = v->rows,
                               .rows_index = v->rows_index,
                               .rows_weight = v->rows_weight,
                               .ranks = ranks,
                               .experts = v->experts,
                               .kind = v->kind };
}

static inline ExchangeCombine coming_back(const Traveller *v, int64_t ranks)
{
    return (ExchangeCombine){ .x = v->sums,
                              .rows_weight = v->dweight,
                              .offset = v->offset,
                              .first = v->first,
                              .relay = relay_of(v),
                              .shared = v->shared,
                              .residual = v->residual,
                              .y = v->y,
                              .weight = v->home,
                              .ranks = ranks,
                              .kind = v->kind };
}

static inline void open_travel(World *w, ExchangeKind kind, Dtype row, Deal how, int64_t room)
{
    int64_t width = dtype_bytes(row) == 1 ? 140 : 9; /* two scales of 1 x 128 */
    int64_t inside = w->shape.inside > 0 ? w->shape.inside : w->ranks;
    world_open(w);
    for (int i = 0; i < w->ranks; i++) {
        w->rank[i].traveller = traveller(&w->rank[i].t, kind, row, how,
                                         (Sizes){ TOKENS, 3, 24, width, w->ranks, inside }, room);
    }
}

#endif
