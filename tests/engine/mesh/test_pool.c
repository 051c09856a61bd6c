/* Rows in one pool a slot: whatever schedule runs and whoever's layer overflows, the bits are those
 * of a run in which every layer has room for all that can come. */
#include "harness/many.h"
#include "kernels/moe/moe.h"

#define MODEL                                                                                      \
    "moe.experts=8", "moe.top_k=2", "model.layers=4", "model.dense_layers=1", "train.batch=8",     \
        "train.micro_batch=1"
#define STAGES MODEL, "mesh.pp=2", "mesh.ep=2"
#define CHUNKS STAGES, "mesh.vpp=2"
#define HIER   MODEL, "mesh.ep=4", "moe.exchange=hier", "mesh.ranks_per_host=2"
#define AGAIN  "recompute.layers=[1,2,3]", "recompute.pieces=[exchange,norm,act]"

enum { RANKS = 4, LAYERS = 4, PLAIN_STEPS = 2, STEPS = PLAIN_STEPS + RANKS * LAYERS };

static const ManyCase cases[] = {
    { "1f1b", RANKS, { STAGES } },
    { "1f1b, allgather", RANKS, { STAGES, "moe.exchange=allgather", "mesh.zero=2" } },
    { "1f1b-overlap", RANKS, { CHUNKS, "mesh.schedule=1f1b-overlap" } },
    { "1f1b-overlap, allgather, recompute",
      RANKS,
      { CHUNKS, "mesh.schedule=1f1b-overlap", "moe.exchange=allgather", AGAIN } },
    { "interleaved", RANKS, { CHUNKS, "mesh.schedule=interleaved", AGAIN } },
    { "zb-h1", RANKS, { STAGES, "mesh.schedule=zb-h1", "recompute.layers=[2]" } },
    { "zbv, allgather", RANKS, { CHUNKS, "mesh.schedule=zbv", "moe.exchange=allgather" } },
    { "dualpipe", RANKS, { CHUNKS, "mesh.schedule=dualpipe" } },
    { "hier", RANKS, { HIER } },
    { "hier, recompute", RANKS, { HIER, AGAIN } },
    { "hier, layers again", RANKS, { HIER, "recompute.layers=[1,3]", "mesh.zero=3" } },
    { "direct", RANKS, { MODEL, "mesh.ep=4", "moe.exchange=direct" } },
    { "direct, recompute", RANKS, { STAGES, "moe.exchange=direct", AGAIN } },
    { "context", RANKS, { MODEL, "mesh.ep=4", "mesh.cp=2", "mesh.zero=3", AGAIN } },
    { "parts", RANKS, { MODEL, "model.vocab=64", "mesh.ep=4", "mesh.tp=2", "mesh.zero=3", AGAIN } },
    { "bf16", RANKS, { MODEL, "mesh.ep=4", "run.compute=bf16" } },
};
enum { CASES = sizeof cases / sizeof *cases };

/* Which layer on which rank finds the pool full, but for a few rows. */
typedef struct Squeeze {
    int rank, layer; /* -1: nobody's */
    bool met;        /* it wanted rows */
} Squeeze;

/* A decorator's object is the Exec's; there is one a thread. */
static _Thread_local Squeeze squeeze;

static Status shorten(Exec *ex, int level, const OpDesc *op, const void *args)
{
    const MoeSort *sort = args;
    if (op != op_desc(OP_MOE_SORT) || sort->top.data == NULL || ex->layer != squeeze.layer)
        return op_next(ex, level, op, args);
    MoeSort less = *sort;
    int32_t top = *(const int32_t *)sort->top.data;
    const int32_t *index = sort->index.data;
    int64_t rows = 0;
    for (int64_t i = 0; i < tensor_elems(&sort->index); i++) rows += index[i] >= 0;
    less.pool = top + (rows > 3 ? 3 : 0);
    if (rows > 0) squeeze.met = true;
    return op_next(ex, level, op, &less);
}

static const Decorator shortens = { .run = shorten };

typedef struct Turn {
    const ManyCase *what;
    bool met[STEPS], again[RANKS][STEPS];
} Turn;

static Status same_step(ManyRank *a, ManyRank *b, int i, StepResult *x)
{
    StepResult y;
    TRY(many_step(a, i, x));
    TRY(many_step(b, i, &y));
    if (y.retried) return FAIL(ERR_NUMERIC, "a run with room for all ran a step again");
    if (x->loss == y.loss && x->grad_norm == y.grad_norm && tiny_same_state(&a->t, &b->t))
        return OK;
    return FAIL(ERR_NUMERIC, "step %d: loss %.9g, with room %.9g, or other weights", i, x->loss,
                y.loss);
}

static Status compare(Turn *t, ManyRank *a, ManyRank *b, int rank)
{
    for (int i = 0; i < STEPS; i++) {
        StepResult x;
        int turn = i - PLAIN_STEPS;
        squeeze = (Squeeze){ .layer = turn < 0 || turn / LAYERS != rank ? -2 : turn % LAYERS };
        TRY(same_step(a, b, i, &x));
        t->again[rank][i] = x.retried;
        if (squeeze.met) t->met[i] = true;
    }
    return OK;
}

/* After an evaluation, which may take the most of the first slot. */
static Status same_peaks(ManyRank *a)
{
    const float *losses = NULL;
    Batch one = many_rows(&a->t.batch, 0, 1, a->t.config.data_sequence);
    TRY(engine_losses(&a->t.engine, &one, &losses));
    for (EngineArena i = ENGINE_SLOT; i <= ENGINE_RING; i++) {
        size_t used = engine_peak_bytes(&a->t.engine, i), planned = a->t.plan.bytes[i];
        if (used != planned)
            return FAIL(ERR_NUMERIC, "%s: %zu bytes used, %zu planned", engine_arena_names[i], used,
                        planned);
    }
    return OK;
}

static Status take_turn(void *state, Comm *world)
{
    static const char *const roomy[] = { "moe.pool_factor=3", "moe.buffer_factor=4", NULL },
                             *const all[] = { "moe.buffers=worst", NULL };
    Turn *t = state;
    ManyRank a = { .also = roomy }, b = { .also = all };
    Status s = many_open(&a, t->what, world);
    if (s == OK) s = many_open(&b, t->what, world);
    if (s == OK) exec_push(&a.t.engine.ex, &shortens);
    if (s == OK) s = compare(t, &a, &b, world->rank);
    if (s == OK) s = same_peaks(&a);
    many_close(&b);
    many_close(&a);
    return s;
}

/* Too little room for some steps, then more. */
static Status grow(void *state, Comm *world)
{
    static const char *const scarce[] = { "moe.pool_factor=0.3", "moe.buffer_factor=4", NULL },
                             *const all[] = { "moe.buffers=worst", NULL };
    static const RowCapacity rooms[] = { { .pool = 0.4 },
                                         { .pool = 4, .fetching = 2 },
                                         { .pool = 4, .rows = 4, .blocks = 4, .fetching = 2 } };
    Turn *t = state;
    ManyRank a = { .also = scarce }, b = { .also = all };
    StepResult x;
    TRY(many_open(&a, t->what, world));
    TRY(many_open(&b, t->what, world));
    for (int i = 0; i < 8; i++) {
        if (i > 0 && i % 2 == 0) TRY(many_resize(&a, &rooms[i / 2 - 1]));
        TRY(same_step(&a, &b, i, &x));
        t->again[world->rank][i] = x.retried;
        if (x.retried && (!x.short_of.rows || x.short_of.blocks))
            return FAIL(ERR_NUMERIC, "step %d: pools were short, blocks were said to be", i);
        if (i > 3) TRY(same_peaks(&a));
    }
    many_close(&b);
    many_close(&a);
    return OK;
}

static void more_room_between_two_steps_changes_no_bit(void **state)
{
    (void)state;
    for (int c = 0; c < CASES; c += RUNS(1, 4)) {
        static Turn t;
        int failed = -1;
        t = (Turn){ .what = &cases[c] };
        if (comm_threads(RANKS, 60, grow, &t, &failed) != OK)
            fail_msg("%s, rank %d: %s", t.what->name, failed, status_message());
        for (int i = 0; i < 8; i++) CHECK_INT(t.again[0][i], i < 4);
    }
}

static void whosever_layer_overflows_the_bits_are_those_of_room_for_all(void **state)
{
    (void)state;
    for (int c = 0; c < CASES; c += RUNS(1, 4)) {
        static Turn t;
        int failed = -1, forced = 0;
        t = (Turn){ .what = &cases[c] };
        if (comm_threads(RANKS, 60, take_turn, &t, &failed) != OK)
            fail_msg("%s, rank %d: %s", t.what->name, failed, status_message());
        for (int i = 0; i < STEPS; i++) {
            for (int r = 0; r < RANKS; r++) {
                if (t.again[r][i] != t.met[i])
                    fail_msg("%s: step %d, rank %d ran %s", t.what->name, i, r,
                             t.again[r][i] ? "twice" : "once");
            }
            forced += t.met[i];
        }
        CHECK(forced >= 4); /* a MoE layer of each rank at least */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(whosever_layer_overflows_the_bits_are_those_of_room_for_all),
        TEST(more_room_between_two_steps_changes_no_bit),
    };
    return TEST_RUN(tests);
}
