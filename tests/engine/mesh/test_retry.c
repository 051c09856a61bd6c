/* Rows without room: the step is skipped on all ranks, runs again with room for all, and has the bits
 * of a run that had the room from the start. */
#include "harness/many.h"

#define MODEL                                                                                      \
    "moe.experts=8", "moe.top_k=1", "model.layers=4", "train.batch=8", "train.micro_batch=1"
#define STAGES MODEL, "mesh.pp=2", "mesh.ep=2"
#define HOSTS  MODEL, "mesh.ep=4", "moe.exchange=hier", "mesh.ranks_per_host=2"
#define STORES MODEL, "mesh.ep=4", "moe.exchange=direct"

/* What is short of room: the pool, blocks of tokens, and, with room for all that a rank sends to a
 * host, those of a relay. */
#define WORST "moe.buffers=worst"
static const ManyCase pooled[] = {
    { "a pool", 4, { STAGES, "moe.pool_factor=1.1" } },
    { "a pool, all to all", 4, { STAGES, "moe.pool_factor=1.1", "moe.exchange=allgather" } },
    { "a pool, hosts", 4, { HOSTS, "moe.pool_factor=1.1" } },
    { "blocks", 4, { STAGES, "moe.buffer_factor=1.6", "moe.pool_factor=9" } },
    { "blocks, hosts", 4, { HOSTS, "moe.buffer_factor=1.6", "moe.pool_factor=9" } },
    { "blocks, relays", 4, { HOSTS, "moe.buffer_factor=2", "moe.pool_factor=9" } },
    { "a pool, stores", 4, { STORES, "moe.pool_factor=1.1" } },
    { "stores", 4, { STORES, "moe.buffer_factor=1.2", "moe.pool_factor=9" } },
};
static const ManyCase worst[] = {
    { "worst", 4, { STAGES, WORST } },
    { "worst, all to all", 4, { STAGES, WORST, "moe.exchange=allgather" } },
    { "worst, hosts", 4, { HOSTS, WORST } },
    { "worst", 4, { STAGES, WORST } },
    { "worst, hosts", 4, { HOSTS, WORST } },
    { "worst, relays", 4, { HOSTS, WORST } },
    { "worst, stores", 4, { STORES, WORST } },
    { "worst, stores", 4, { STORES, WORST } },
};
enum { WAYS = sizeof pooled / sizeof *pooled };

enum { RANKS = 4, DATA_RANKS = 2, MICROS = 4 };

/* Without stages there are twice as many data ranks, of half as many micro-batches. */
typedef struct Turn {
    int way;
    int data_rank, micro; /* whose tokens of which micro-batch are all the same */
    bool again[RANKS];
} Turn;

/* One token over and over goes to one expert: so all of these rows to one rank. */
static void flood(ManyRank *r, int data_rank, int micro)
{
    int64_t seq = r->t.config.data_sequence;
    int32_t *id = r->t.batch.id.data;
    id += (data_rank * MICROS + micro) * seq;
    for (int64_t i = 0; i < seq; i++) id[i] = 5;
}

static void whole_batch(ManyRank *r, int64_t step)
{
    EngineShape local = r->t.shape;
    r->t.shape.sequence = r->t.config.data_sequence;
    tiny_batch(&r->t, step);
    r->t.shape = local;
}

static Status flooded_step(ManyRank *r, const Turn *t, int64_t step, StepResult *out)
{
    whole_batch(r, step);
    flood(r, t->data_rank, t->micro);
    r->own.targets = r->t.batch.targets;
    return engine_step(&r->t.engine, &r->own, 1e-2, step + 1, out);
}

static Status compare(Turn *t, ManyRank *a, ManyRank *b)
{
    StepResult x, y;
    for (int64_t i = 0; i < 3; i++) {
        TRY(i == 1 ? flooded_step(a, t, i, &x) : many_step(a, i, &x));
        TRY(i == 1 ? flooded_step(b, t, i, &y) : many_step(b, i, &y));
        if (i == 1) t->again[a->mesh.rank] = x.retried;
        if (y.retried) return FAIL(ERR_NUMERIC, "a run with room for all ran a step again");
        if (x.loss != y.loss || x.grad_norm != y.grad_norm || !tiny_same_state(&a->t, &b->t))
            return FAIL(ERR_NUMERIC, "step %lld: loss %.9g, with room %.9g, or other weights",
                        (long long)i, x.loss, y.loss);
    }
    return OK;
}

static Status take_turn(void *state, Comm *world)
{
    const Turn *t = state;
    ManyRank a = { 0 }, b = { 0 };
    Status s = many_open(&a, &pooled[t->way], world);
    if (s == OK) s = many_open(&b, &worst[t->way], world);
    if (s == OK) s = compare(state, &a, &b);
    many_close(&b);
    many_close(&a);
    return s;
}

static void whichever_rank_overflows_in_whichever_micro_batch_the_bits_stay(void **state)
{
    (void)state;
    for (int i = 0; i < WAYS * DATA_RANKS * MICROS; i += RUNS(1, 7)) {
        Turn t = { .way = i / (DATA_RANKS * MICROS),
                   .data_rank = i / MICROS % DATA_RANKS,
                   .micro = i % MICROS };
        int failed = -1;
        CHECK_OK(comm_threads(RANKS, 60, take_turn, &t, &failed));
        for (int r = 0; r < RANKS; r++) CHECK(t.again[r]);
    }
}

/* In the evaluation as well. */
static Status evaluate(void *state, Comm *world)
{
    ManyRank a = { 0 }, b = { 0 };
    const float *x = NULL, *y = NULL;
    Turn *t = state;
    TRY(many_open(&a, &pooled[t->way], world));
    TRY(many_open(&b, &worst[t->way], world));
    whole_batch(&a, 0);
    whole_batch(&b, 0);
    for (int micro = 0; micro < MICROS; micro++) flood(&a, 0, micro), flood(&b, 0, micro);
    int64_t seq = a.t.config.data_sequence;
    Batch one = many_rows(&a.t.batch, 0, 1, seq), two = many_rows(&b.t.batch, 0, 1, seq);
    TRY(engine_losses(&a.t.engine, &one, &x));
    TRY(engine_losses(&b.t.engine, &two, &y));
    t->again[world->rank] = x == NULL || memcmp(x, y, (size_t)seq * sizeof *x) == 0;
    many_close(&b);
    many_close(&a);
    return OK;
}

static void an_evaluation_loses_no_row_either(void **state)
{
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        Turn t = { .way = way };
        int failed = -1;
        CHECK_OK(comm_threads(RANKS, 60, evaluate, &t, &failed));
        for (int r = 0; r < RANKS; r++) CHECK(t.again[r]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(whichever_rank_overflows_in_whichever_micro_batch_the_bits_stay),
        TEST(an_evaluation_loses_no_row_either),
    };
    return TEST_RUN(tests);
}
