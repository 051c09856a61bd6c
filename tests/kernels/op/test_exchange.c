/* exchange: what is sent, and, over ranks that are threads, that tokens come to their experts and
 * sums back to their tokens, by a reference that looks at all ranks at once. */
#include "exchange_case.h"

#include "engine/comm/comm_private.h"

/* 8 tokens of 6 columns and 2 experts here; room for 20 rows of which 12 come, from 4 ranks. */
enum { N = 8, D = 6, K = 2, M = 20, RANKS = 4, L = 12 };
static const Rows COMING = { .bound = M, .expected = 12 };

static ExchangeDispatch dispatch_args(OpTest *t)
{
    return (ExchangeDispatch){ .x = operand_plain(optest_normal(t, DTYPE_BF16, DIMS(N, D))),
                               .index = optest_normal(t, DTYPE_I32, DIMS(N, K)),
                               .weight = optest_normal(t, DTYPE_F32, DIMS(N, K)),
                               .rows = operand_plain(optest_normal(t, DTYPE_BF16, DIMS(M, D))),
                               .rows_index = optest_normal(t, DTYPE_I32, DIMS(M, K)),
                               .rows_weight = optest_normal(t, DTYPE_F32, DIMS(M, K)),
                               .offset = optest_normal(t, DTYPE_I32, DIMS(N, K)),
                               .received = COMING,
                               .ranks = RANKS,
                               .experts = 2 * RANKS };
}

static ExchangeCombine combine_args(OpTest *t)
{
    return (ExchangeCombine){ .x = optest_normal(t, DTYPE_BF16, DIMS(M, D)),
                              .residual = optest_normal(t, DTYPE_BF16, DIMS(N, D)),
                              .y = optest_normal(t, DTYPE_BF16, DIMS(N, D)),
                              .offset = optest_normal(t, DTYPE_I32, DIMS(N, K)),
                              .received = COMING,
                              .ranks = RANKS };
}

static Collective gather_args(OpTest *t)
{
    return (Collective){ .in = optest_normal(t, DTYPE_BF16, DIMS(N, D)),
                         .out = optest_normal(t, DTYPE_BF16, DIMS(RANKS * N, D)),
                         .kind = COMM_ALL_GATHER,
                         .axis = AXIS_CP,
                         .ranks = RANKS };
}

/* A row: 6 bf16, with its routing 2 x (4 + 4) more. A quarter of the rows stay on their rank. */
static void what_is_sent_is_what_others_need(void **state)
{
    OpTest *t = *state;
    ExchangeDispatch d = dispatch_args(t);
    ExchangeCombine c = combine_args(t);
    Collective g = gather_args(t), s = g;
    OpCost dispatch = op_desc(OP_EXCHANGE_DISPATCH)->cost(&d);
    OpCost combine = op_desc(OP_EXCHANGE_COMBINE)->cost(&c);
    OpCost gather = op_desc(OP_COLLECTIVE)->cost(&g);
    CHECK_NEAR(dispatch.size, 12 + 16, 0);
    CHECK_NEAR(dispatch.comm_bytes, 12 * 28 * 0.75, 1e-9);
    CHECK_NEAR(dispatch.bytes, 8 * 12 + 2 * 12 * 28, 0);
    assert_int_equal(dispatch.axis, AXIS_EP);
    CHECK_NEAR(combine.comm_bytes, 12 * 12 * 0.75, 1e-9);
    CHECK_NEAR(combine.bytes, 2 * 8 * 12 + 2 * 12 * 12, 0);
    CHECK_NEAR(gather.comm_bytes, 3 * 8 * 12, 0);
    CHECK_NEAR(gather.size, 4 * 8 * 12, 0);
    s.in = g.out, s.out = g.in, s.kind = COMM_REDUCE_SCATTER;
    CHECK_NEAR(op_desc(OP_COLLECTIVE)->cost(&s).comm_bytes, 3 * 8 * 12, 0);
    s.out = s.in, s.kind = COMM_SHIFT;
    CHECK_NEAR(op_desc(OP_COLLECTIVE)->cost(&s).comm_bytes, 4 * 8 * 12, 0);
    s.kind = COMM_BROADCAST;
    CHECK_NEAR(op_desc(OP_COLLECTIVE)->cost(&s).comm_bytes, 4 * 8 * 12, 0);
    s.kind = COMM_ALL_REDUCE;
    CHECK_NEAR(op_desc(OP_COLLECTIVE)->cost(&s).comm_bytes, 2 * 3 * 8 * 12, 0);
}

/* Of 10 rows to pass on half come from the other host; of 12 that come from relays half are their
 * own. */
static void a_relay_sends_twice(void **state)
{
    OpTest *t = *state;
    ExchangeDispatch d = dispatch_args(t);
    d.kind = EXCHANGE_HIER, d.relay = (ExchangeRelay){ .inside = 2, .expected = 10 };
    OpCost c = op_desc(OP_EXCHANGE_DISPATCH)->cost(&d);
    CHECK_NEAR(c.comm_bytes, (5 + 6) * 28, 1e-9);
    CHECK_NEAR(c.bytes, 8 * 12 + (3 * 10 + 2 * 12) * 28, 1e-9);
    CHECK_NEAR(c.size, 28, 0);
}

/* A row of 6 bytes and a scale. The row and both routings of a bf16 row took 28. */
static void eight_bit_rows_are_fewer_bytes(void **state)
{
    OpTest *t = *state;
    ExchangeDispatch d = dispatch_args(t);
    d.x = travelling(t, DTYPE_E4M3, N, D, false), d.rows = travelling(t, DTYPE_E4M3, M, D, true);
    OpCost c = op_desc(OP_EXCHANGE_DISPATCH)->cost(&d);
    CHECK_NEAR(c.size, 6 + 4 + 16, 0);
    CHECK_NEAR(c.comm_bytes, 12 * 26 * 0.75, 1e-9);
    CHECK_NEAR(c.bytes, 8 * 10 + 2 * 12 * 26, 1e-9);
    d.index = d.weight = (Tensor){ 0 };
    CHECK_NEAR(op_desc(OP_EXCHANGE_DISPATCH)->cost(&d).size, 6 + 4, 0);
}

static void rows_of_another_kind_are_errors_with_a_message(void **state)
{
    OpTest *t = *state;
    ExchangeDispatch d = dispatch_args(t);
    d.x = travelling(t, DTYPE_E4M3, N, D, false);
    CHECK_FAILS(exchange_dispatch(&t->ex, d), ERR_UNSUPPORTED,
                "exchange_dispatch: rows is of kind 0 (plain), the op takes: 1 x 128");
    d.rows = travelling(t, DTYPE_E4M3, M, D, true), d.rows.data.dtype = DTYPE_E5M2;
    CHECK_FAILS(exchange_dispatch(&t->ex, d), ERR_SHAPE, "exchange_dispatch: rows is");
    d.rows.transposed = true;
    CHECK_FAILS(exchange_dispatch(&t->ex, d), ERR_ARG, "must not be transposed");
    d = dispatch_args(t), d.x = travelling(t, DTYPE_E4M3, N, D, false), d.x.kind = OPERAND_128X128;
    CHECK_FAILS(exchange_dispatch(&t->ex, d), ERR_UNSUPPORTED,
                "x is of kind 4 (128 x 128), the op takes: plain, a scale a row, 1 x 128");
}

static void wrong_shapes_are_errors_with_a_message(void **state)
{
    OpTest *t = *state;
    ExchangeDispatch d = dispatch_args(t);
    ExchangeCombine c = combine_args(t);
    Collective g = gather_args(t);
    d.rows_weight = d.weight;
    CHECK_FAILS(exchange_dispatch(&t->ex, d), ERR_SHAPE, "exchange_dispatch: rows_weight");
    d.kind = EXCHANGE_ALLGATHER;
    CHECK_FAILS(exchange_dispatch(&t->ex, d), ERR_SHAPE, "20 rows for 8 tokens over 4 ranks");
    d.kind = EXCHANGE_ALLTOALL, d.count = d.index;
    CHECK_FAILS(exchange_dispatch(&t->ex, d), ERR_SHAPE, "exchange_dispatch: count");
    c.offset = (Tensor){ 0 };
    CHECK_FAILS(exchange_combine(&t->ex, c), ERR_SHAPE, "exchange_combine: offset");
    c.x = optest_normal(t, DTYPE_BF16, DIMS(M, D + 1));
    CHECK_FAILS(exchange_combine(&t->ex, c), ERR_SHAPE, "exchange_combine: x");
    d = dispatch_args(t), d.relay.offset = d.index;
    CHECK_FAILS(exchange_dispatch(&t->ex, d), ERR_ARG, "relay is set, but with alltoall nothing");
    d.kind = EXCHANGE_HIER, d.relay.inside = 3;
    CHECK_FAILS(
        exchange_dispatch(&t->ex, d), ERR_ARG,
        "exchange_dispatch: 4 ranks, 3 on each host, with 8 rows to pass on: all hosts must "
        "have equally many ranks and rows");
    c = combine_args(t), c.kind = EXCHANGE_HIER, c.relay.inside = 2;
    CHECK_FAILS(exchange_combine(&t->ex, c), ERR_SHAPE, "exchange_combine: relay");
    c = combine_args(t), c.kind = EXCHANGE_ALLGATHER;
    c.x = optest_normal(t, DTYPE_BF16, DIMS(RANKS * N, D));
    CHECK_FAILS(exchange_combine(&t->ex, c), ERR_ARG, "offset is set, but with allgather every");
    g.kind = COMM_ALL_REDUCE;
    CHECK_FAILS(exchange_collective(&t->ex, g), ERR_ARG, "in place");
    g.kind = COMM_BROADCAST;
    CHECK_FAILS(exchange_collective(&t->ex, g), ERR_ARG, "in place");
    g.kind = COMM_ALL_GATHER, g.ranks = 3;
    CHECK_FAILS(exchange_collective(&t->ex, g), ERR_SHAPE, "collective: out");
}

/* Of the 6 choices of 2 among 4 experts, 2 lie on one of 2 ranks and 4 on both. */
static void a_kind_knows_how_many_rows_come(void **state)
{
    (void)state;
    CHECK_NEAR(exchange_kinds[EXCHANGE_ALLTOALL]->rows(4, 2, 2), 1 * 2.0 / 6 + 2 * 4.0 / 6, 1e-12);
    CHECK_NEAR(exchange_kinds[EXCHANGE_ALLGATHER]->rows(4, 2, 2), 2, 0);
}

static void check_volume(ExchangeKind kind, const ExchangeShape *s, double between, double inside)
{
    const ExchangeVolume v = exchange_kinds[kind]->volume(s);
    CHECK_NEAR(v.between, between, 1e-12);
    CHECK_NEAR(v.inside, inside, 1e-12);
}

/* 4 experts on 2 x 2 ranks, of which a token takes 2: so it goes to 2 ranks and, as above, to 5/3 of
 * 2 hosts. */
static void a_kind_knows_what_goes_between_hosts(void **state)
{
    (void)state;
    const ExchangeShape s = { .experts = 4, .top_k = 2, .ranks = 4, .inside = 2 };
    check_volume(EXCHANGE_ALLTOALL, &s, 2 * 2.0 / 4, 2 * 1.0 / 4);
    check_volume(EXCHANGE_ALLGATHER, &s, 2, 1);
    check_volume(EXCHANGE_HIER, &s, 5.0 / 6, 1);
}

/* Many experts a token on few hosts: hier. On one host, or with all ranks on hosts of their own, it
 * only passes on; where hosts are uneven it cannot. Where all go to all, so do all tokens. */
static void auto_takes_the_kind_with_the_fewest_rows_between_hosts(void **state)
{
    (void)state;
    const struct {
        ExchangeShape shape;
        ExchangeKind want;
    } cases[] = {
        { { 256, 8, 32, 8, false }, EXCHANGE_HIER },
        { { 256, 8, 32, 1, true }, EXCHANGE_ALLTOALL },
        { { 256, 8, 8, 8, false }, EXCHANGE_ALLTOALL },
        { { 256, 8, 8, 1, false }, EXCHANGE_ALLTOALL },
        { { 256, 1, 16, 8, false }, EXCHANGE_ALLTOALL },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_INT(exchange_choose(&cases[i].shape), cases[i].want);
    for (int64_t ranks = 2; ranks <= 64; ranks *= 2) { /* however sums are rounded */
        for (int64_t k = 1; k <= 8; k++) {
            CHECK(exchange_choose(&(ExchangeShape){ 192, k, ranks, 1, false }) != EXCHANGE_HIER);
            CHECK(exchange_choose(&(ExchangeShape){ 192, k, 3 * ranks, 1, true }) != EXCHANGE_HIER);
        }
    }
}

static void a_rank_without_peers_says_so(void **state)
{
    OpTest *t = *state;
    CHECK_FAILS(exchange_dispatch_cpu(&t->ex, &(ExchangeDispatch){ .ranks = 4 }), ERR_ARG,
                "exchange_dispatch: 4 ranks, but rank 0 of the mesh has 0 here");
    CHECK_FAILS(exchange_combine_cpu(&t->ex, &(ExchangeCombine){ .ranks = 4 }), ERR_ARG, "4 ranks");
    CHECK_FAILS(exchange_collective_cpu(&t->ex, &(Collective){ .ranks = 4 }), ERR_ARG, "4 ranks");
}

/* 4 experts on 2 ranks, room for 2 rows each. The third token that wants rank 1 finds none. */
static void a_token_has_one_place_for_each_rank_in_order(void **state)
{
    OpTest *t = *state;
    static const int32_t index[] = { 3, 0, 2, 3, 1, 0, 2, 1 };
    static const int32_t want[] = { 0, 2, 3, -1, 1, -1, -1, -1 };
    ExchangePlace a = { .index = optest_poisoned(t, DTYPE_I32, DIMS(4, 2)),
                        .offset = optest_poisoned(t, DTYPE_I32, DIMS(4, 2)),
                        .overflow = optest_poisoned(t, DTYPE_F32, DIMS(1)),
                        .count = optest_poisoned(t, DTYPE_I32, DIMS(1, 2)),
                        .experts = 4,
                        .ranks = 2,
                        .room = 3 };
    memcpy(a.index.data, index, sizeof index);
    optest_set(&a.overflow, 0, 0);
    CHECK_OK(exchange_place(&t->ex, a)); /* the last token has an offset with both */
    CHECK_NEAR(optest_get(&a.overflow, 0), 0, 0);
    CHECK_INT(optest_get(&a.offset, 6), 2);
    CHECK_INT(optest_get(&a.offset, 7), 5);
    for (int i = 0; i < 2; i++) CHECK_INT(optest_get(&a.count, i), 3);
    a.room = 2;
    CHECK_OK(exchange_place(&t->ex, a));
    CHECK_NEAR(optest_get(&a.overflow, 0), 1, 0);
    for (int i = 0; i < 8; i++) CHECK_INT(optest_get(&a.offset, i), want[i]);
    for (int i = 0; i < 2; i++) CHECK_INT(optest_get(&a.count, i), 2);
    optest_set(&a.index, 5, 4);
    CHECK_FAILS(exchange_place(&t->ex, a), ERR_ARG, "element 5 of index is 4, outside 0 .. 3");
    a.experts = 5;
    CHECK_FAILS(exchange_place(&t->ex, a), ERR_ARG, "5 experts over 2 ranks");
}

/* Many tokens, so that a GPU's block walks on; the reference counts. */
static void places_count_the_tokens_before(void **state)
{
    OpTest *t = *state;
    enum { MANY = 2500, TOP = 5, EXPERTS = 30, PEERS = 6 };
    Tensor index = deal(t, DEAL_RANDOM, MANY, TOP, EXPERTS, PEERS);
    for (int64_t room = 900; room <= MANY; room += 1600) {
        ExchangePlace a = { .index = index,
                            .offset = optest_poisoned(t, DTYPE_I32, DIMS(MANY, TOP)),
                            .experts = EXPERTS,
                            .ranks = PEERS,
                            .room = room };
        CHECK_OK(exchange_place(&t->ex, a));
        int64_t used[PEERS] = { 0 };
        for (int64_t n = 0; n < MANY; n++) {
            int64_t i = n * TOP;
            for (int64_t r = 0; r < PEERS; r++) {
                if (!wants(&index, n, r, EXPERTS / PEERS)) continue;
                CHECK_INT(optest_get(&a.offset, i), used[r] < room ? r * room + used[r] : -1);
                i++, used[r]++;
            }
            for (; i < (n + 1) * TOP; i++) CHECK_INT(optest_get(&a.offset, i), -1);
        }
    }
}

/* There and back */

/* As gradients go: without routing, to the same rows. What experts make of them does not change. */
static Status there_alone(Rank *r)
{
    const Traveller *v = &r->traveller;
    ExchangeDispatch d = going_there(v, r->mesh.ranks);
    const Tensor sums = optest_copy(&r->t, &v->sums);
    d.index = d.weight = d.rows_index = d.rows_weight = d.overflow = (Tensor){ 0 };
    memset(d.rows.data.data, 0xFF, tensor_bytes(&d.rows.data));
    if (d.rows.scale.data != NULL) memset(d.rows.scale.data, 0xFF, tensor_bytes(&d.rows.scale));
    TRY(exchange_dispatch(&r->t.ex, d));
    act_as_experts(v, r->mesh.rank * v->experts / r->mesh.ranks);
    return optest_first_difference(&v->sums, &sums) < 0 ? OK
                                                        : FAIL(ERR_NUMERIC, "rows alone differ");
}

static Status there_and_back(Rank *r)
{
    const Traveller *v = &r->traveller;
    int64_t ranks = r->mesh.ranks;
    TRY(exchange_open(&r->t.ex, v->kind, r->front, WINDOW, &r->t.scratch));
    if (exchange_kinds[v->kind]->offsets) TRY(exchange_place(&r->t.ex, to_offsets(v, ranks)));
    TRY(exchange_dispatch(&r->t.ex, going_there(v, ranks)));
    act_as_experts(v, r->mesh.rank * v->experts / ranks);
    TRY(exchange_combine(&r->t.ex, coming_back(v, ranks)));
    TRY(there_alone(r));
    exchange_close(&r->t.ex);
    return OK;
}

/* Which tokens of which rank come to which rank, and who has seen one that did not. */
typedef struct Routes {
    bool goes[RANKS_MAX][TOKENS][RANKS_MAX], full[RANKS_MAX];
} Routes;

static bool fits(int64_t *used, int64_t room, bool *full)
{
    *full |= *used >= room;
    return (*used)++ < room;
}

static void routes_by_pair(const World *w, int64_t room, Routes *out)
{
    for (int from = 0; from < w->ranks; from++) {
        const Traveller *v = &w->rank[from].traveller;
        int64_t used[RANKS_MAX] = { 0 };
        if (!exchange_kinds[v->kind]->offsets) room = TOKENS;
        for (int64_t n = 0; n < TOKENS; n++) {
            for (int to = 0; to < w->ranks; to++)
                out->goes[from][n][to] = wants(&v->index, n, to, v->experts / w->ranks) &&
                                         fits(&used[to], room, &out->full[from]);
        }
    }
}

/* Without gaps a rank has room for all that come to it, in the order of their ranks. */
static void routes_by_sum(const World *w, int64_t room, Routes *out)
{
    int64_t used[RANKS_MAX] = { 0 };
    for (int from = 0; from < w->ranks; from++) {
        const Traveller *v = &w->rank[from].traveller;
        for (int64_t n = 0; n < TOKENS; n++) {
            for (int to = 0; to < w->ranks; to++)
                out->goes[from][n][to] = wants(&v->index, n, to, v->experts / w->ranks) &&
                                         fits(&used[to], room * w->ranks, &out->full[to]);
        }
    }
}

/* Relay i of a host gets rows of rank i of each host, in order, and has room for as many in all as
 * they would have apart. */
static void relayed_routes(const World *w, int64_t room, Routes *out)
{
    int64_t inside = w->rank[0].traveller.inside, used[RANKS_MAX][RANKS_MAX] = { { 0 } };
    for (int from = 0; from < w->ranks; from++) {
        const Traveller *v = &w->rank[from].traveller;
        int64_t each = v->experts / w->ranks, hosts = w->ranks / inside, sent[RANKS_MAX] = { 0 };
        for (int64_t n = 0; n < TOKENS; n++) {
            for (int64_t h = 0; h < hosts; h++) {
                int64_t relay = h * inside + from % inside;
                if (!wants(&v->index, n, h, each * inside)) continue;
                if (!fits(&sent[h], host_room(TOKENS, room), &out->full[from])) continue;
                for (int64_t to = h * inside; to < (h + 1) * inside; to++)
                    out->goes[from][n][to] =
                        wants(&v->index, n, to, each) &&
                        fits(&used[relay][to], hosts * room, &out->full[relay]);
            }
        }
    }
}

/* Token by token, in double: what fits takes part. */
static void check_home(World *w, int rank, const Routes *routes)
{
    Rank *r = &w->rank[rank];
    const Traveller *v = &r->traveller;
    int64_t n = v->x.data.dim[0], d = tensor_cols(&v->x.data), k = tensor_cols(&v->index);
    int64_t here = v->experts / w->ranks;
    double *y = optest_doubles(&r->t, n * d);
    for (int64_t token = 0; token < n; token++) {
        const bool *goes = routes->goes[rank][token];
        double sum = 0;
        for (int64_t i = token * k; i < (token + 1) * k; i++) {
            int64_t e = (int64_t)optest_get(&v->index, i);
            double p = goes[e / here] ? optest_get(&v->weight, i) : 0;
            sum += p * (double)(e + 1);
            /* from one rank, so whichever way it went it is what that one gave, to the bit */
            CHECK_NEAR(optest_get(&v->home, i), (double)(float)(10 * p * (double)(e + 1)), 0);
        }
        for (int64_t i = token * d; i < (token + 1) * d; i++) {
            y[i] = sum * travelling_get(&v->x, i);
            if (v->shared.data != NULL) y[i] += optest_get(&v->shared, i);
            if (v->residual.data != NULL) y[i] += optest_get(&v->residual, i);
        }
    }
    CHECK_TENSOR_WITHIN(&v->y, y, v->y.dtype == DTYPE_F32 ? 1e-5 : 1e-2); /* rounded thrice */
    CHECK_NEAR(optest_get(&v->overflow, 0), routes->full[rank] ? 1 : 0, 0);
    CHECK(border_is_whole(&v->rows.data) && border_is_whole(&v->rows_index));
    CHECK(v->rows.kind == OPERAND_PLAIN || border_is_whole(&v->rows.scale));
    CHECK(border_is_whole(&v->rows_weight));
}

/* inside 0: all on one host. */
static void travel(ExchangeKind kind, Dtype row, Deal how, int ranks, int inside, int64_t room)
{
    World w = { .ranks = ranks,
                .run = there_and_back,
                .shape = { 1, 1, ranks, ranks, 1, .inside = inside } };
    static Routes routes;
    memset(&routes, 0, sizeof routes);
    open_travel(&w, kind, row, how, room);
    world_run(&w);
    (exchange_kinds[kind]->hierarchical ? relayed_routes
     : exchange_kinds[kind]->compact    ? routes_by_sum
                                        : routes_by_pair)(&w, room, &routes);
    for (int i = 0; i < ranks; i++) check_home(&w, i, &routes);
    world_close(&w);
}

/* Ranks on hosts. */
static const struct {
    int ranks, inside;
} on_hosts[] = { { 2, 1 }, { 3, 3 }, { 4, 2 }, { 4, 1 }, { 6, 2 }, { 6, 3 } };
enum { ON_HOSTS = sizeof on_hosts / sizeof *on_hosts };

static void tokens_go_to_their_experts_and_sums_come_home(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 4; ranks++) {
        for (int i = 0; i < DEALS * EXCHANGE_KINDS; i++)
            travel((ExchangeKind)(i / DEALS), DTYPE_F32, (Deal)(i % DEALS), ranks, 0, TOKENS);
    }
    for (int i = 0; i < DEALS * ON_HOSTS; i++)
        travel(EXCHANGE_HIER, DTYPE_F32, (Deal)(i % DEALS), on_hosts[i / DEALS].ranks,
               on_hosts[i / DEALS].inside, TOKENS);
    for (int kind = 0; kind < EXCHANGE_KINDS; kind++)
        travel((ExchangeKind)kind, DTYPE_BF16, DEAL_RANDOM, 4, 2, TOKENS);
    for (int i = 0; i < DEALS; i++) travel(EXCHANGE_DIRECT, DTYPE_BF16, (Deal)i, 8, 0, TOKENS);
}

/* Codes and scales come as they are, also to ranks to which nothing comes. */
static void eight_bit_rows_travel_with_their_scales(void **state)
{
    (void)state;
    for (int i = 0; i < DEALS * EXCHANGE_KINDS; i++) {
        const Dtype type = i % 2 == 0 ? DTYPE_E4M3 : DTYPE_E5M2;
        travel((ExchangeKind)(i / DEALS), type, (Deal)(i % DEALS), 2, 0, TOKENS);
        travel((ExchangeKind)(i / DEALS), type, (Deal)(i % DEALS), 4, 2, 9);
    }
}

static void what_has_no_room_is_absent_and_flagged(void **state)
{
    (void)state;
    for (int i = 0; i < DEALS * EXCHANGE_KINDS; i++) {
        const ExchangeKind kind = (ExchangeKind)(i / DEALS);
        for (int64_t room = 1; exchange_kinds[kind]->offsets && room <= 22; room += 7) {
            travel(kind, DTYPE_F32, (Deal)(i % DEALS), 2, 0, room);
            travel(kind, DTYPE_F32, (Deal)(i % DEALS), 3, 0, room);
        }
    }
    for (int i = 0; i < DEALS * ON_HOSTS; i++) {
        for (int64_t room = 1; room <= 22; room += 3)
            travel(EXCHANGE_HIER, DTYPE_F32, (Deal)(i % DEALS), on_hosts[i / DEALS].ranks,
                   on_hosts[i / DEALS].inside, room);
    }
}

/* Counts rows with an offset, in blocks of rank `from`: one for each `step`-th rank, from `first`
 * on. */
static void count_offset_rows(const Tensor *offset, int64_t room, int from, int first, int step,
                              int inside, double *between, double *near)
{
    for (int64_t i = 0; i < tensor_elems(offset); i++) {
        int64_t row = (int64_t)optest_get(offset, i), to = first + row / room * step;
        if (row < 0 || to == from) continue;
        *(to / inside != from / inside ? between : near) += 1;
    }
}

/* What goes between hosts and inside them, in rows. Tokens go to ranks, or to the relays of hosts,
 * which have this rank's number there and pass rows on inside. */
static void measure(ExchangeKind kind, int ranks, int inside, double *between, double *near,
                    World *w)
{
    bool hierarchical = exchange_kinds[kind]->hierarchical;
    *w = (World){ .ranks = ranks,
                  .run = there_and_back,
                  .shape = { 1, 1, ranks, ranks, 1, .inside = inside } };
    open_travel(w, kind, DTYPE_F32, DEAL_RANDOM, TOKENS);
    world_run(w);
    *between = *near = 0;
    for (int i = 0; i < ranks; i++) {
        const Traveller *v = &w->rank[i].traveller;
        int64_t rows = v->rows.data.dim[0];
        int64_t room = hierarchical ? v->relay.dim[0] / (ranks / inside) : rows / ranks;
        count_offset_rows(&v->offset, room, i, hierarchical ? i % inside : 0,
                          hierarchical ? inside : 1, inside, between, near);
        if (hierarchical)
            count_offset_rows(&v->relay, rows / inside, i, i / inside * inside, 1, inside, between,
                              near);
    }
}

/* One row for each token and each other host that it needs; alltoall takes one for each rank there.
 * Inside, a relay keeps what its own experts need. */
static void hosts_get_one_row_of_a_token(void **state)
{
    (void)state;
    static World w;
    for (int i = 0; i < ON_HOSTS; i++) {
        int ranks = on_hosts[i].ranks, inside = on_hosts[i].inside;
        double want[EXCHANGE_KINDS][2] = { { 0 } }, between, near;
        measure(EXCHANGE_HIER, ranks, inside, &between, &near, &w);
        for (int64_t at = 0; at < ranks * TOKENS * ranks; at++) {
            int64_t from = at / ranks / TOKENS, n = at / ranks % TOKENS, to = at % ranks;
            const Tensor *index = &w.rank[from].traveller.index;
            bool far = to / inside != from / inside;
            if (to % inside == 0 && far)
                want[EXCHANGE_HIER][0] += wants(index, n, to / inside, 24 / ranks * inside);
            if (!wants(index, n, to, 24 / ranks)) continue;
            want[EXCHANGE_ALLTOALL][far ? 0 : 1] += to != from;
            want[EXCHANGE_HIER][1] += to % inside != from % inside;
        }
        CHECK_NEAR(between, want[EXCHANGE_HIER][0], 0);
        CHECK_NEAR(near, want[EXCHANGE_HIER][1], 0);
        world_close(&w);
        measure(EXCHANGE_ALLTOALL, ranks, inside, &between, &near, &w);
        CHECK_NEAR(between, want[EXCHANGE_ALLTOALL][0], 0);
        CHECK_NEAR(near, want[EXCHANGE_ALLTOALL][1], 0);
        CHECK(inside == 1 || inside == ranks ||
              want[EXCHANGE_HIER][0] < want[EXCHANGE_ALLTOALL][0]);
        world_close(&w);
    }
}

/* A group that hands back what it is given, on the CPU and, where there is one, on the GPU, whose
 * kernels the mirror then compares. All tokens go to all ranks, so that no row is a gap. */

static Status echo(Comm *c, const Tensor *in, const Tensor *out)
{
    Exec *ex = c->own;
    size_t part = tensor_bytes(in) > tensor_bytes(out) ? tensor_bytes(out) : tensor_bytes(in);
    for (size_t at = 0; at < tensor_bytes(out); at += part)
        TRY(ex->backend->copy(ex, (char *)out->data + at, in->data, part));
    return OK;
}

static Status echo_all(Comm *c, const Tensor *in, const Tensor *out)
{
    Exec *ex = c->own;
    return ex->backend->copy(ex, out->data, in->data, tensor_bytes(out));
}

static const CommTable echoing = { .all_to_all = echo_all,
                                   .all_gather = echo,
                                   .reduce_scatter = echo };

/* The ranks of hier are 2 x 2. */
static void check_echo(OpTest *t, ExchangeKind kind, Dtype row, int64_t d, int64_t room)
{
    enum { ROWS = 70 };
    static const MeshGroup groups[] = { GROUP_EP, GROUP_EP_INSIDE, GROUP_EP_ACROSS };
    bool hierarchical = exchange_kinds[kind]->hierarchical;
    int64_t peers = hierarchical ? 4 : 3, here = 12 / peers;
    Mesh cpu = { .ranks = (int)peers }, gpu = cpu;
    Comm on_cpu[3], on_gpu[3];
    Rank r;
    for (int i = 0; i < 3; i++) {
        on_cpu[i] = (Comm){
            .table = &echoing, .name = "echo", .size = i == 0 ? (int)peers : 2, .own = &r.t.ex
        };
        on_gpu[i] = on_cpu[i];
        on_gpu[i].own = &mirror.gpu;
        cpu.group[groups[i]] = &on_cpu[i], gpu.group[groups[i]] = &on_gpu[i];
    }
    t->ex.mesh = &cpu, mirror.gpu.mesh = &gpu;
    Traveller v = traveller(t, kind, row, DEAL_RANDOM,
                            (Sizes){ ROWS, peers, 12, d, peers, hierarchical ? 2 : peers }, room);
    for (int64_t i = 0; i < ROWS * peers; i++)
        optest_set(&v.index, i, (double)((i + i / peers) % peers * here + i % here));
    r = (Rank){ .t = *t, .mesh = cpu, .traveller = v };
    CHECK_OK(there_and_back(&r));
    CHECK_NEAR(optest_get(&v.overflow, 0), exchange_kinds[kind]->offsets && room < ROWS, 0);
}

static void what_comes_back_at_once_is_the_same_on_a_gpu(void **state)
{
    OpTest *t = *state;
    const Dtype types[] = { DTYPE_F32, DTYPE_BF16, DTYPE_E4M3, DTYPE_E5M2 };
    const int64_t widths[] = { 9, 1032, 8, 2064 }; /* 8: a row has fewer packs than slots */
    for (int i = 0; i < 32; i++) {
        const Dtype type = types[i % 4];
        const int64_t width = widths[i / 4 % 4], room = i < 16 ? 70 : 61;
        check_echo(t, EXCHANGE_ALLTOALL, type, width, room);
        check_echo(t, EXCHANGE_ALLGATHER, type, width, 70);
        check_echo(t, EXCHANGE_HIER, type, width, room);
    }
}

/* Collectives */

static Status collect_all(Rank *r)
{
    Collect *c = &r->collect;
    int64_t n = r->mesh.ranks;
    Collective a = { .in = c->mine, .out = c->all, .axis = AXIS_CP, .ranks = n };
    a.kind = COMM_ALL_GATHER;
    TRY(exchange_collective(&r->t.ex, a));
    a.in = c->all, a.out = c->part, a.kind = COMM_REDUCE_SCATTER;
    TRY(exchange_collective(&r->t.ex, a));
    a.in = c->mine, a.out = c->next, a.kind = COMM_SHIFT;
    TRY(exchange_collective(&r->t.ex, a));
    a.in = a.out = c->count, a.kind = COMM_ALL_REDUCE, a.group = GROUP_STAGE;
    TRY(exchange_collective(&r->t.ex, a));
    a.in = a.out = c->sent, a.kind = COMM_BROADCAST, a.root = (int)n - 1;
    return exchange_collective(&r->t.ex, a);
}

static void collectives_are_those_of_their_names(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= RANKS_MAX; ranks++) {
        World w = { .ranks = ranks,
                    .run = collect_all,
                    .shape = { 1, 1, 1, 1, ranks, .inside = 0 } };
        world_open(&w);
        for (int i = 0; i < ranks; i++) {
            OpTest *t = &w.rank[i].t;
            w.rank[i].collect = (Collect){ .mine = optest_poisoned(t, DTYPE_F32, DIMS(2, 3)),
                                           .all = optest_poisoned(t, DTYPE_F32, DIMS(2 * ranks, 3)),
                                           .part = optest_poisoned(t, DTYPE_F32, DIMS(2, 3)),
                                           .next = optest_poisoned(t, DTYPE_F32, DIMS(2, 3)),
                                           .count = optest_poisoned(t, DTYPE_I32, DIMS(1, 2)),
                                           .sent = optest_poisoned(t, DTYPE_F32, DIMS(2, 3)) };
            for (int j = 0; j < 6; j++) {
                optest_set(&w.rank[i].collect.mine, j, 10 * i + j);
                optest_set(&w.rank[i].collect.sent, j, 20 * i + j);
            }
            for (int j = 0; j < 2; j++) optest_set(&w.rank[i].collect.count, j, i + j);
        }
        world_run(&w);
        for (int i = 0; i < ranks; i++) {
            const Collect *c = &w.rank[i].collect;
            for (int j = 0; j < 6 * ranks; j++) {
                int from = j / 6;
                CHECK_NEAR(optest_get(&c->all, j), 10 * from + j % 6, 0);
                CHECK_NEAR(optest_get(&c->part, j % 6), ranks * (10 * i + j % 6), 0);
                CHECK_NEAR(optest_get(&c->next, j % 6), 10 * ((i + 1) % ranks) + j % 6, 0);
            }
            for (int j = 0; j < 6; j++)
                CHECK_NEAR(optest_get(&c->sent, j), 20 * (ranks - 1) + j, 0);
            for (int j = 0; j < 2; j++)
                CHECK_INT(optest_get(&c->count, j), ranks * (ranks - 1) / 2 + ranks * j);
        }
        world_close(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(what_is_sent_is_what_others_need, 1),
        OP_TEST(a_relay_sends_twice, 1),
        OP_TEST(eight_bit_rows_are_fewer_bytes, 1),
        OP_TEST(rows_of_another_kind_are_errors_with_a_message, 1),
        OP_TEST(wrong_shapes_are_errors_with_a_message, 1),
        TEST(a_kind_knows_how_many_rows_come),
        TEST(a_kind_knows_what_goes_between_hosts),
        TEST(auto_takes_the_kind_with_the_fewest_rows_between_hosts),
        OP_TEST(a_rank_without_peers_says_so, 1),
        OP_TEST(a_token_has_one_place_for_each_rank_in_order, 1),
        OP_TEST(places_count_the_tokens_before, 1),
        TEST(tokens_go_to_their_experts_and_sums_come_home),
        TEST(eight_bit_rows_travel_with_their_scales),
        TEST(what_has_no_room_is_absent_and_flagged),
        TEST(hosts_get_one_row_of_a_token),
        OP_TEST(what_comes_back_at_once_is_the_same_on_a_gpu, 2),
        TEST(collectives_are_those_of_their_names),
    };
    return TEST_RUN(tests);
}
