/* The simulator on steps that are worked out by hand. */
#include "engine/schedule/pipelines.h"

/* Passes take 1, a message 0.5 and a whole backward 2. Of a message the send is asked for. */
static double slow_links(void *ctx, int rank, const Action *a)
{
    (void)ctx;
    (void)rank;
    CHECK(!action_is_transfer(a->kind) || action_is_send(a->kind));
    if (action_is_transfer(a->kind)) return 0.5;
    if (a->kind == ACTION_BACKWARD) return 2;
    return a->kind >= ACTION_FORWARD && a->kind <= ACTION_BACKWARD_WEIGHT;
}

static const SimSpan *span_of(const Pipeline *p, const Simulation *sim, int rank, ActionKind kind,
                              int micro)
{
    for (int i = 0; i < p->rank[rank].n; i++) {
        const Action *a = &p->rank[rank].at[i];
        if (a->kind == kind && a->micro == micro) return &sim->rank[rank].span[i];
    }
    fail_msg("rank %d has no %s of %d", rank, action_name(kind), micro);
    return NULL;
}

/*          0   1   2   3   4   5   6   7   8   9   10
 * rank 0   F0  F1              B0----B0    B1----B1
 * rank 1         F0  B0----B0F1  B1----B1
 * The first activations arrive at 1.5, the gradients leave at 4.5 and 7.5. */
static void two_stages_with_slow_links_are_as_drawn(void **state)
{
    (void)state;
    ScheduleShape s = { 2, 1, 2, 1, 1, 1, .blocks = 0 };
    Pipeline p = pipeline_of("1f1b", &s);
    Simulation sim;
    CHECK_OK(simulate_run(&p, &(SimCost){ .duration = slow_links }, &made, &sim));
    CHECK_NEAR(span_of(&p, &sim, 1, ACTION_FORWARD, 0)->start, 1.5, 0);
    CHECK_NEAR(span_of(&p, &sim, 1, ACTION_BACKWARD, 0)->start, 2.5, 0);
    CHECK_NEAR(span_of(&p, &sim, 0, ACTION_RECV_GRADIENTS, 0)->start, 4.5, 0);
    CHECK_NEAR(span_of(&p, &sim, 0, ACTION_BACKWARD, 0)->start, 5, 0);
    CHECK_NEAR(span_of(&p, &sim, 1, ACTION_FORWARD, 1)->start, 4.5, 0);
    CHECK_NEAR(span_of(&p, &sim, 1, ACTION_BACKWARD, 1)->end, 7.5, 0);
    CHECK_NEAR(span_of(&p, &sim, 0, ACTION_BACKWARD, 1)->start, 8, 0);
    CHECK_NEAR(sim.step, 10, 0);
    for (int r = 0; r < 2; r++) {
        CHECK_NEAR(sim.rank[r].busy, 6, 0);
        CHECK_NEAR(sim.rank[r].bubble, 0.4, 1e-15);
        CHECK_NEAR(sim.rank[r].transfer, 1, 0);
    }
    static const struct {
        int rank, micro;
        ActionKind kind;
    } path[] = { { 0, -1, ACTION_ZERO_GRADS },      { 0, 0, ACTION_FORWARD },
                 { 1, 0, ACTION_RECV_ACTIVATIONS }, { 1, 0, ACTION_FORWARD },
                 { 1, 0, ACTION_BACKWARD },         { 1, 1, ACTION_FORWARD },
                 { 1, 1, ACTION_BACKWARD },         { 0, 1, ACTION_RECV_GRADIENTS },
                 { 0, 1, ACTION_BACKWARD } };
    CHECK_INT(sim.n_path, sizeof path / sizeof *path);
    for (int i = 0; i < sim.n_path; i++) {
        const Action *a = &p.rank[sim.path[i].rank].at[sim.path[i].action];
        CHECK_INT(sim.path[i].rank, path[i].rank);
        CHECK_INT(a->kind, path[i].kind);
        CHECK_INT(a->micro, path[i].micro);
    }
    pipeline_forget();
}

static SlotBytes three_parts(void *ctx, int rank, int chunk)
{
    (void)ctx;
    (void)rank;
    (void)chunk;
    return (SlotBytes){ .input = 1, .weight = 2, .gradients = 4 };
}

static void memory_is(const SimRank *r, const MemoryPoint *want, int n)
{
    CHECK_INT(r->n_memory, n);
    for (int i = 0; i < n; i++) {
        CHECK_NEAR(r->memory[i].at, want[i].at, 0);
        CHECK_NEAR(r->memory[i].bytes, want[i].bytes, 0);
    }
}

/* Input gradients done apart keep the gradients of outputs until the weights' turn, and give back
 * what only they need. By phases it is the same: the first phase of all fills the slot, the last
 * empties it. */
static void memory_follows_the_parts_of_a_slot(void **state)
{
    (void)state;
    SimCost cost = { .duration = slow_links, .slot = three_parts };
    ScheduleShape s = { 1, 1, 1, 1, 1, 1, .blocks = 1 };
    Simulation sim;
    Pipeline p = pipeline_of("1f1b", &s);
    CHECK_OK(simulate_run(&p, &cost, &made, &sim));
    memory_is(&sim.rank[0], (MemoryPoint[]){ { 0, 0 }, { 0, 3 }, { 3, 0 } }, 3);
    p = pipeline_of("zb-h1", &s);
    CHECK_OK(simulate_run(&p, &cost, &made, &sim));
    memory_is(&sim.rank[0], (MemoryPoint[]){ { 0, 0 }, { 0, 3 }, { 1, 7 }, { 2, 6 }, { 3, 0 } }, 5);
    CHECK_NEAR(sim.rank[0].peak_bytes, 7, 0);
    CHECK_NEAR(sim.rank[0].peak_at, 1, 0);
    /* forward 0 to 4; combine 4, experts 5, W experts beside dispatch 6, attention 7, W attention 8
     */
    p = pipeline_of("1f1b-overlap", &s);
    CHECK_OK(simulate_run(&p, &cost, &made, &sim));
    memory_is(&sim.rank[0], (MemoryPoint[]){ { 0, 0 }, { 0, 3 }, { 4, 7 }, { 8, 6 }, { 9, 0 } }, 5);
    pipeline_forget();
}

static void entries_are_memory_from_the_start(void **state)
{
    (void)state;
    SimCost cost = { .duration = slow_links, .slot = three_parts, .entry_bytes = 10 };
    ScheduleShape s = { 2, 1, 2, 1, 1, 1, .blocks = 0 };
    Pipeline p = pipeline_of("1f1b", &s);
    Simulation sim;
    CHECK_OK(simulate_run(&p, &cost, &made, &sim));
    for (int r = 0; r < 2; r++) {
        CHECK_NEAR(sim.rank[r].memory[0].bytes, 10 * p.rank[r].entries, 0);
        CHECK_NEAR(sim.rank[r].peak_bytes, 10 * p.rank[r].entries + 3 * p.rank[r].slots, 0);
    }
    pipeline_forget();
}

/* One slow rank sets the pace: the others wait, and it alone has no bubble but the fill. */
static double slow_rank(void *ctx, int rank, const Action *a)
{
    return rank == *(int *)ctx ? 2 * slow_links(NULL, rank, a) : slow_links(NULL, rank, a);
}

static void the_slowest_rank_sets_the_pace(void **state)
{
    (void)state;
    int slow = 2;
    ScheduleShape s = { 4, 1, 200, 1, 1, 1, .blocks = 0 };
    Pipeline p = pipeline_of("1f1b", &s);
    Simulation sim;
    CHECK_OK(simulate_run(&p, &(SimCost){ .ctx = &slow, .duration = slow_rank }, &made, &sim));
    CHECK(sim.rank[slow].bubble < 0.05);
    for (int r = 0; r < 4; r++) {
        if (r != slow) CHECK(sim.rank[r].bubble > 0.5);
    }
    pipeline_forget();
}

/* An end of a transfer holds a quarter of its rank's multiprocessors from when it is posted, all of a
 * pass needs them: a second of it takes 4/3 beside one, 2 beside two. In 24ths of a second:
 *
 *          0    32   44     68  76 80     125 137 152    200/201 212    260
 * rank 0   F0---F1---------->                 B0------------->   B1---->
 * rank 1             F0-------->B0------->F1------>B1---->
 * A receive waits from the start at either rank: the gradients of micro-batch 0 come at 137, when the
 * next ones are posted, that end at 212; activations come at 44 and at 80. Sends begin at once: at 32 and
 * 68, 125 and 200, for 12. F1 of rank 0 does 1/4 beside the first until 44, the rest in 24. B0 of rank 1
 * has done 1/8 when the last activations are there, after which nothing holds it up. */
static SimUse quarter(void *ctx, int rank, const Action *a)
{
    (void)ctx;
    (void)rank;
    return action_is_transfer(a->kind) ? (SimUse){ .blocks = 0.25 } : (SimUse){ .bound = 1 };
}

static void transfers_slow_what_computes_beside_them(void **state)
{
    (void)state;
    static const struct {
        int rank, micro, end, slowed;
        ActionKind kind;
    } told[] = {
        { 0, 0, 32, 8, ACTION_FORWARD },          { 0, 1, 68, 12, ACTION_FORWARD },
        { 1, 0, 76, 8, ACTION_FORWARD },          { 1, 0, 125, 1, ACTION_BACKWARD },
        { 1, 1, 152, 3, ACTION_FORWARD },         { 0, 0, 201, 16, ACTION_BACKWARD },
        { 1, 1, 200, 0, ACTION_BACKWARD },        { 0, 1, 260, 0, ACTION_BACKWARD },
        { 0, 0, 44, 0, ACTION_SEND_ACTIVATIONS }, { 0, 0, 137, 0, ACTION_RECV_GRADIENTS },
        { 0, 1, 212, 0, ACTION_RECV_GRADIENTS },
    };
    ScheduleShape s = { 2, 1, 2, 1, 1, 1, .blocks = 0 };
    Pipeline p = pipeline_of("1f1b", &s);
    Simulation sim;
    CHECK_OK(simulate_run(&p, &(SimCost){ .duration = slow_links, .use = quarter }, &made, &sim));
    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        const SimSpan *x = span_of(&p, &sim, told[i].rank, told[i].kind, told[i].micro);
        CHECK_NEAR(24 * x->end, told[i].end, 1e-12 * told[i].end);
        CHECK_NEAR(24 * x->slowed, told[i].slowed, 1e-12);
    }
    CHECK_NEAR(24 * sim.step, 260, 1e-9);
    CHECK_NEAR(24 * sim.rank[0].slowed, 36, 1e-9);
    CHECK_NEAR(24 * sim.rank[1].slowed, 12, 1e-9);
    CHECK_NEAR(24 * sim.rank[1].busy, 144 + 12, 1e-9);
    pipeline_forget();
}

/* Actions of one rank, by hand: `layer` says which. After 0 come a gather, 1, and compute, 2, and 3 after
 * both; 4 is gathered after 1. The gathers hold a quarter, three fifths of 2 need multiprocessors. */
static double by_hand_s(void *ctx, int rank, const Action *a)
{
    static const double s[] = { 1, 2, 4, 1, 0.5 };
    (void)ctx;
    (void)rank;
    return s[a->layer];
}

static SimUse by_hand_use(void *ctx, int rank, const Action *a)
{
    static const SimUse use[] = {
        { .bound = 1 }, { .blocks = 0.25 }, { .bound = 0.6 }, { .bound = 1 }, { .blocks = 0.25 }
    };
    (void)ctx;
    (void)rank;
    return use[a->layer];
}

static Action by_hand(ActionKind kind, int layer, int wait, int other, int signal)
{
    Action a = action_make(kind);
    a.layer = (short)layer, a.wait[0] = wait, a.wait[1] = other, a.signal = signal;
    return a;
}

/* 2 begins at 1 with the gather, which ends at 3, and 4 at 3.5. For 2.5 s a second of work takes 0.4 + 0.6
 * x 4/3 = 1.2 s: 25/12 are done, the rest takes 23/12. */
static void a_share_of_compute_is_slowed(void **state)
{
    (void)state;
    Action at[] = { by_hand(ACTION_ZERO_GRADS, 0, -1, -1, 0),
                    by_hand(ACTION_GATHER_WEIGHTS, 1, 0, -1, 1),
                    by_hand(ACTION_ZERO_GRADS, 2, 0, -1, 2),
                    by_hand(ACTION_GATHER_WEIGHTS, 4, 1, -1, 3),
                    by_hand(ACTION_ZERO_GRADS, 3, 1, 3, -1) };
    Program rank = { .at = at, .n = 5, .micros = 1, .stages = 1, .events = 4 };
    Pipeline p = { .stages = 1, .rank = &rank };
    Simulation sim;
    SimCost cost = { .duration = by_hand_s, .use = by_hand_use };
    CHECK_OK(simulate_run(&p, &cost, &made, &sim));
    const SimSpan *x = sim.rank[0].span;
    CHECK_NEAR(x[0].end, 1, 0);
    CHECK_NEAR(x[1].end, 3, 0);
    CHECK_NEAR(x[2].start, 1, 0);
    CHECK_NEAR(x[2].end, 3.5 + 23.0 / 12, 1e-12);
    CHECK_NEAR(x[2].slowed, 2.5 - 25.0 / 12, 1e-12);
    CHECK_NEAR(x[3].end, 3.5, 0);
    CHECK_NEAR(x[4].slowed, 0, 0);
    CHECK_NEAR(sim.step, 3.5 + 23.0 / 12 + 1, 1e-12);
    cost.use = NULL;
    CHECK_OK(simulate_run(&p, &cost, &made, &sim));
    CHECK_NEAR(sim.step, 6, 0);
    CHECK_NEAR(sim.rank[0].slowed, 0, 0);
    pipeline_forget();
}

/* A gather of 2 s beside 4 s of compute, both from 1 on. What each uses, and when each ends. */
static const struct Shared {
    SimUse gather, compute;
    double gather_ends, compute_ends;
} shared[] = {
    /* for half of its time it uses the gather's link: both 1.5 times as long */
    { { .out = { 1 } }, { .out = { 0.5 } }, 4, 6 },
    /* the other kind of link, and the other direction */
    { { .out = { 1 } }, { .out = { 0, 1 } }, 3, 5 },
    { { .out = { 1 } }, { .into = { 1 } }, 3, 5 },
};

static SimUse shared_use(void *ctx, int rank, const Action *a)
{
    const struct Shared *x = ctx;
    (void)rank;
    return a->layer == 1 ? x->gather : a->layer == 2 ? x->compute : (SimUse){ 0 };
}

static void transfers_share_a_link(void **state)
{
    (void)state;
    Action at[] = { by_hand(ACTION_ZERO_GRADS, 0, -1, -1, 0),
                    by_hand(ACTION_GATHER_WEIGHTS, 1, 0, -1, -1),
                    by_hand(ACTION_ZERO_GRADS, 2, 0, -1, -1) };
    Program rank = { .at = at, .n = 3, .micros = 1, .stages = 1, .events = 1 };
    Pipeline p = { .stages = 1, .rank = &rank };
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) {
        struct Shared x = shared[i];
        Simulation sim;
        SimCost cost = { .ctx = &x, .duration = by_hand_s, .use = shared_use };
        CHECK_OK(simulate_run(&p, &cost, &made, &sim));
        CHECK_NEAR(sim.rank[0].span[1].end, x.gather_ends, 1e-12);
        CHECK_NEAR(sim.rank[0].span[2].end, x.compute_ends, 1e-12);
        CHECK_NEAR(sim.rank[0].slowed, x.compute_ends - 5, 1e-12);
    }
    pipeline_forget();
}

/* Passes of rank 1 use the link into it all the time. In 24ths: it starts F0 at 36, and has done 12 of 24
 * when the next activations are sent, at 48. From then on both take twice as long. Rank 0, which only
 * sends, does not notice: but its send ends with the receive. */
static SimUse into_last(void *ctx, int rank, const Action *a)
{
    (void)ctx;
    if (action_is_send(a->kind)) return (SimUse){ .out = { 1 } };
    if (action_is_transfer(a->kind)) return (SimUse){ .into = { 1 } };
    return rank == 1 ? (SimUse){ .into = { 1 } } : (SimUse){ 0 };
}

static void the_busier_end_of_a_transfer_decides(void **state)
{
    (void)state;
    ScheduleShape s = { 2, 1, 2, 1, 1, 1, .blocks = 0 };
    Pipeline p = pipeline_of("1f1b", &s);
    Simulation sim;
    CHECK_OK(simulate_run(&p, &(SimCost){ .duration = slow_links, .use = into_last }, &made, &sim));
    CHECK_NEAR(24 * span_of(&p, &sim, 0, ACTION_SEND_ACTIVATIONS, 0)->end, 36, 1e-9);
    for (int r = 0; r < 2; r++) {
        ActionKind kind = r == 0 ? ACTION_SEND_ACTIVATIONS : ACTION_RECV_ACTIVATIONS;
        CHECK_NEAR(24 * span_of(&p, &sim, r, kind, 1)->start, 48, 1e-9);
        CHECK_NEAR(24 * span_of(&p, &sim, r, kind, 1)->end, 72, 1e-9);
    }
    CHECK_NEAR(24 * span_of(&p, &sim, 1, ACTION_FORWARD, 0)->end, 72, 1e-9);
    CHECK_NEAR(24 * span_of(&p, &sim, 0, ACTION_FORWARD, 1)->end, 48, 1e-9);
    pipeline_forget();
}

static const struct CMUnitTest tests[] = {
    TEST(two_stages_with_slow_links_are_as_drawn),
    TEST(memory_follows_the_parts_of_a_slot),
    TEST(entries_are_memory_from_the_start),
    TEST(the_slowest_rank_sets_the_pace),
    TEST(transfers_slow_what_computes_beside_them),
    TEST(a_share_of_compute_is_slowed),
    TEST(transfers_share_a_link),
    TEST(the_busier_end_of_a_transfer_decides),
};
PIPELINE_TESTS(tests)
