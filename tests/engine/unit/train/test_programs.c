/* The engine runs every Program: on one rank all schedules give what accumulation gives, and take
 * the memory that was planned. */
#include "engine/train/train.h"
#include "harness/tiny.h"

static const char *const models[][6] = {
    { "moe.shared=1", "attention.q_rank=9", "moe.score=sigmoid", "moe.bias_rate=0.01" },
    { "attention.kind=gqa", "moe.shared=0", "moe.groups=3", "moe.top_groups=2" },
    { "model.tied=true", "run.compute=bf16" },
    { "mtp.layers=2", "moe.bias_rate=0.01" },
};
enum { MODELS = sizeof models / sizeof *models, TIED = 2 };

/* Those of several chunks run each micro-batch's passes in another order; sums of gradients are in
 * the order of micro-batches all the same but for a table and head that several layers read, whose two
 * ends are two passes. */
static const char *const schedules[][3] = {
    { "mesh.schedule=1f1b", "mesh.vpp=1" },
    { "mesh.schedule=gpipe", "mesh.vpp=1" },
    { "mesh.schedule=1f1b-overlap", "mesh.vpp=1" },
    { "mesh.schedule=zb-h1", "mesh.vpp=1" },
    { "mesh.schedule=interleaved", "mesh.vpp=2" },
    { "mesh.schedule=interleaved", "mesh.vpp=3" },
    { "mesh.schedule=interleaved", "mesh.vpp=3", "mesh.layout=E|ttt|L" },
    { "mesh.schedule=interleaved", "mesh.vpp=4", "mesh.layout=Et||t|tL" },
    { "mesh.schedule=zbv", "mesh.vpp=2" },
    { "mesh.schedule=dualpipe-v", "mesh.vpp=2" },
    { "mesh.schedule=dualpipe-v", "mesh.vpp=2", "mesh.layout=Et*3|L" },
};
enum { SCHEDULES = sizeof schedules / sizeof *schedules };

static void open_with(Tiny *t, int model, const char *const *schedule, const char *more)
{
    const char *all[16] = { 0 };
    int n = 0;
    for (int i = 0; i < 6 && models[model][i] != NULL; i++) all[n++] = models[model][i];
    for (int i = 0; i < 3 && schedule[i] != NULL; i++) all[n++] = schedule[i];
    all[n++] = "train.micro_batch=1";
    all[n++] = more;
    tiny_open(t, all);
}

static double furthest(const Tiny *a, const Tiny *b)
{
    const float *x = a->engine.params.memory.buffer[BUF_MAIN].data;
    const float *y = b->engine.params.memory.buffer[BUF_MAIN].data;
    double most = 0;
    for (int64_t i = 0; i < a->engine.params.table.elems[BUF_MAIN]; i++) {
        double d = fabs((double)x[i] - (double)y[i]);
        if (!(d <= most)) most = d;
    }
    return most;
}

static void all_schedules_train_alike(const char *more)
{
    for (int m = 0; m < MODELS; m++) {
        Tiny plain;
        open_with(&plain, m, schedules[0], more);
        StepResult want = tiny_steps(&plain, 0, RUNS(3, 2));
        for (int i = 1; i < SCHEDULES; i += MANY_EVERY) {
            Tiny t;
            open_with(&t, m, schedules[i], more);
            StepResult got = tiny_steps(&t, 0, RUNS(3, 2));
            double limit = m >= TIED ? 1e-6 : 0;
            CHECK_NEAR(got.loss, want.loss, limit);
            CHECK_NEAR(got.grad_norm / want.grad_norm, 1, limit);
            CHECK_NEAR(furthest(&plain, &t), 0, limit);
            if (m < TIED) CHECK(tiny_same_state(&plain, &t));
            CHECK_INT(t.plan.step.ops, plain.plan.step.ops);
            tiny_check_planned(&t);
            tiny_close(&t);
        }
        tiny_close(&plain);
    }
}

static void every_schedule_trains_as_accumulation_does(void **state)
{
    (void)state;
    all_schedules_train_alike("recompute.layers=[]");
    all_schedules_train_alike("recompute.layers=[0, 2]");
}

/* Their losses are the same bits, and memory behind them is not read, whatever the chunks. */
static void an_evaluation_may_have_fewer_sequences(void **state)
{
    (void)state;
    for (int i = 0; i < SCHEDULES; i++) {
        Tiny t;
        const float *losses = NULL;
        float both[256];
        open_with(&t, 0, schedules[i], "train.micro_batch=2");
        int64_t n = t.shape.sequence;
        for (int64_t few = 2; few > 0; few--) {
            t.batch.domain.dim[0] = few;
            CHECK_OK(engine_losses(&t.engine, &t.batch, &losses));
            if (few > 1) memcpy(both, losses, (size_t)n * sizeof *both);
        }
        CHECK(n <= 256 && memcmp(both, losses, (size_t)n * sizeof *both) == 0);
        tiny_close(&t);
    }
}

/* Routes, and what is counted of them, are those of the first forward. */
static void a_layer_that_goes_forward_again_is_counted_once(void **state)
{
    (void)state;
    Tiny once, twice;
    open_with(&once, 0, schedules[0], "recompute.layers=[]");
    open_with(&twice, 0, schedules[0], "recompute.layers=[0, 1, 2]");
    StepResult a = tiny_steps(&once, 0, 2), b = tiny_steps(&twice, 0, 2);
    CHECK_NEAR(b.loss, a.loss, 0);
    CHECK_NEAR(b.aux_loss, a.aux_loss, 0);
    CHECK(memcmp(b.load, a.load, tensor_bytes(&once.engine.io.record.load)) == 0);
    CHECK(tiny_same_state(&once, &twice));
    tiny_close(&twice);
    tiny_close(&once);
}

static void pieces_are_recomputed_under_every_schedule(void **state)
{
    (void)state;
    const char *const more[] = { "recompute.pieces=[norm, attn_up, act, shared]",
                                 "recompute.layers=[0, 1, 2]", "train.micro_batch=2", NULL };
    for (int i = 0; i < SCHEDULES; i++) {
        Tiny plain, t;
        const char *all[] = { schedules[i][0], schedules[i][1], more[0], more[1],
                              more[2],         schedules[i][2], NULL };
        tiny_open(&plain, more + 2);
        tiny_open(&t, all);
        tiny_steps(&plain, 0, 2);
        tiny_steps(&t, 0, 2);
        CHECK(tiny_same_state(&plain, &t));
        tiny_check_planned(&t);
        tiny_close(&t);
        tiny_close(&plain);
    }
}

/* Plans of ranks that are not here. */

typedef struct Ranks {
    Arena arena;
    Config config;
    EngineShape shape;
} Ranks;

static Ranks ranks_of(const char *const *settings)
{
    Ranks r = { 0 };
    CHECK_OK(arena_init(&r.arena, "ranks", MEM_HOST, (size_t)1 << 30));
    CHECK_OK(config_default(&r.config, &r.arena));
    for (size_t i = 0; i < sizeof tiny_base / sizeof *tiny_base; i++) {
        CHECK_OK(config_override(&r.config, &r.arena, tiny_base[i]));
    }
    for (; *settings != NULL; settings++) {
        CHECK_OK(config_override(&r.config, &r.arena, *settings));
    }
    r.shape = (EngineShape){ .batch = r.config.train_batch,
                             .micro_batch = r.config.train_micro_batch,
                             .sequence = 24,
                             .positions = 24,
                             .domains = 2,
                             .threads = 2 };
    return r;
}

static EnginePlan plan_rank(Ranks *r, int rank)
{
    EnginePlan p;
    r->shape.pp_rank = rank;
    CHECK_OK(engine_plan(&r->config, ENGINE_TRAIN, &r->shape, &p));
    return p;
}

#define FOUR                                                                                       \
    "model.layers=7", "train.batch=8", "train.micro_batch=1", "mesh.layout=Et|ttt|t*2|tL",         \
        "recompute.layers=[2]"

/* Four chunks of one rank, whose bytes are known to be those it uses; then each on its own rank. */
static void a_chunk_takes_the_same_wherever_it_lies(void **state)
{
    (void)state;
    Ranks one = ranks_of(TINY(FOUR, "mesh.vpp=4", "mesh.schedule=interleaved"));
    Ranks four = ranks_of(TINY(FOUR, "mesh.pp=4"));
    EnginePlan all = plan_rank(&one, 0);
    size_t stream = arena_rounded((size_t)24 * 32 * 4);
    int64_t params = 0;
    double flops = 0;
    for (int r = 0; r < 4; r++) {
        EnginePlan p = plan_rank(&four, r);
        CHECK_INT(p.chunk_bytes[SLOT_KEEP][0], all.chunk_bytes[SLOT_KEEP][r]);
        /* 1F1B: 4 - r micro-batches under way; sent in 2 entries, received in one more than wait */
        size_t each = p.chunk_bytes[SLOT_KEEP][0];
        size_t first = p.eval_bytes > each ? p.eval_bytes : each;
        CHECK_INT(p.bytes[ENGINE_SLOT], first + (size_t)(3 - r) * each);
        int entries = 2 * (2 * (r > 0) + 2 * (r < 3));
        CHECK_INT(p.bytes[ENGINE_RING] - p.ring_bytes[RING_FORWARD], (size_t)entries * stream);
        params += p.params_total;
        flops += p.step.flops;
    }
    CHECK_INT(params, all.params_total);
    /* the update's few operations a rank */
    CHECK_NEAR(flops / all.step.flops, 1, 1e-6);
    arena_free(&one.arena);
    arena_free(&four.arena);
}

/* 8 blocks, 4 stages of 2: rank 0 has the first and the last stage, rank 1 the second and third. */
static void dualpipe_holds_two_stages_parameters(void **state)
{
    (void)state;
    Ranks dual = ranks_of(TINY("model.layers=8", "train.batch=8", "train.micro_batch=1",
                               "mesh.pp=4", "mesh.vpp=2", "mesh.schedule=dualpipe"));
    Ranks plain =
        ranks_of(TINY("model.layers=8", "train.batch=8", "train.micro_batch=1", "mesh.pp=4"));
    for (int r = 0; r < 4; r++) {
        int64_t both = plan_rank(&plain, r).params_total + plan_rank(&plain, 3 - r).params_total;
        CHECK_INT(plan_rank(&dual, r).params_total, both);
    }
    arena_free(&dual.arena);
    arena_free(&plain.arena);
}

/* The table of 61 rows of 32 is on both ends. */
static void a_tied_table_is_on_both_ends(void **state)
{
    (void)state;
    Ranks r = ranks_of(TINY("mesh.pp=3", "train.micro_batch=1"));
    int64_t first = plan_rank(&r, 0).params_total, last = plan_rank(&r, 2).params_total;
    int64_t middle = plan_rank(&r, 1).params_total;
    CHECK_OK(config_override(&r.config, &r.arena, "model.tied=true"));
    CHECK_INT(plan_rank(&r, 0).params_total, first);
    CHECK_INT(plan_rank(&r, 1).params_total, middle);
    CHECK_INT(plan_rank(&r, 2).params_total, last);
    CHECK_INT(last - middle, 61 * 32 + 32);
    arena_free(&r.arena);
}

/* Over 5 ranks of 1 sequence at a time 12 lies between 10 and 15; over 4 of 2 between 8 and 16. */
static void a_batch_that_does_not_divide_is_refused_with_the_nearest(void **state)
{
    (void)state;
    static const struct {
        int64_t batch, micro;
        int ranks;
        const char *says;
    } bad[] = {
        { 12, 1, 5,
          "train.batch 12 does not divide over 5 data-parallel ranks with "
          "train.micro_batch 1: 10 would" },
        { 13, 1, 5, "micro_batch 1: 15 would" },
        { 12, 2, 4, "over 4 data-parallel ranks with train.micro_batch 2: 8 or 16 would" },
        { 2, 1, 5, "micro_batch 1: 5 would" },
        { 2, 1, 4, "micro_batch 1: 4 would" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        MeshShape shape;
        Ranks r = ranks_of(TINY("mesh.pp=1"));
        r.config.train_batch = bad[i].batch, r.config.train_micro_batch = bad[i].micro;
        CHECK_FAILS(train_mesh(&r.config, bad[i].ranks, &shape), ERR_ARG, bad[i].says);
        r.config.train_batch = 4 * bad[i].ranks, r.config.train_micro_batch = 2;
        r.config.train_batch_ramp = (ConfigTexts){ .n = 1, .at = { "9: 2" } };
        CHECK_FAILS(train_mesh(&r.config, bad[i].ranks, &shape), ERR_ARG,
                    "train.batch_ramp[0], sequences 2 does not divide over");
        arena_free(&r.arena);
    }
}

static void meshes_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    static const char *const bad[][3] = {
        { "mesh.pp=4", "mesh.vpp=1", "4 stages (mesh.pp x mesh.vpp) and model.layers 3" },
        { "mesh.pp=2", "mesh.schedule=zbv", "this one takes 2" },
        { "mesh.pp=2", "mesh.layout=Et*3L", "layout: 1 stages, expected 2" },
        { "mesh.pp=2", "mesh.layout=Et*3|mL", "has 1 layers of multi-token prediction" },
        { "mesh.pp=2", "mesh.schedule=1f2b", "did you mean 1f1b" },
        { "mesh.pp=3", "mesh.layout=Et||t*2L", "pipeline rank 1 without a layer" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        EnginePlan p;
        Ranks r = ranks_of(TINY(bad[i][0], bad[i][1]));
        r.shape.pp_rank = 1;
        CHECK_FAILS(engine_plan(&r.config, ENGINE_TRAIN, &r.shape, &p), ERR_ARG, bad[i][2]);
        arena_free(&r.arena);
    }
    EnginePlan p;
    Ranks early = ranks_of(TINY("mesh.pp=2", "mtp.layers=1", "mesh.layout=Et*3m|L"));
    CHECK_FAILS(engine_plan(&early.config, ENGINE_TRAIN, &early.shape, &p), ERR_ARG,
                "(m), 0 of them on the loss\'s stage; mtp.layers is 1");
    arena_free(&early.arena);
    Ranks r = ranks_of(TINY("mesh.pp=2"));
    r.shape.pp_rank = 2;
    CHECK_FAILS(engine_plan(&r.config, ENGINE_TRAIN, &r.shape, &p), ERR_ARG,
                "pipeline rank 2 of mesh.pp 2");
    arena_free(&r.arena);
}

static int count_of(const Program *p, ActionKind kind)
{
    int n = 0;
    for (int i = 0; i < p->n; i++) n += p->at[i].kind == kind;
    return n;
}

/* Four micro-batches: gpipe holds all of them, zb-h1 puts weights' gradients off, and a layout may
 * leave a chunk to the embedding. */
static void the_program_is_the_one_asked_for(void **state)
{
    (void)state;
    static const struct {
        const char *schedule[3];
        int slots, chunks, weights;
    } c[] = {
        { { "mesh.schedule=1f1b", "mesh.vpp=1" }, 1, 1, 0 },
        { { "mesh.schedule=gpipe", "mesh.vpp=1" }, 4, 1, 0 },
        { { "mesh.schedule=zb-h1", "mesh.vpp=1" }, 1, 1, 4 },
        { { "mesh.schedule=interleaved", "mesh.vpp=3", "mesh.layout=E|ttt|L" }, 3, 3, 0 },
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        Tiny t;
        open_with(&t, 0, c[i].schedule, "train.micro_batch=1");
        const Program *p = &t.engine.mode->step->program;
        CHECK_INT(p->slots, c[i].slots);
        CHECK_INT(p->chunks, c[i].chunks);
        CHECK_INT(count_of(p, ACTION_BACKWARD_WEIGHT), c[i].weights);
        if (c[i].schedule[2] != NULL) CHECK_INT(t.engine.spec.layers[6].chunk, 1);
        tiny_close(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_chunk_takes_the_same_wherever_it_lies),
        TEST(dualpipe_holds_two_stages_parameters),
        TEST(a_tied_table_is_on_both_ends),
        TEST(a_batch_that_does_not_divide_is_refused_with_the_nearest),
        TEST(meshes_that_do_not_fit_are_refused),
        TEST(every_schedule_trains_as_accumulation_does),
        TEST(an_evaluation_may_have_fewer_sequences),
        TEST(a_layer_that_goes_forward_again_is_counted_once),
        TEST(pieces_are_recomputed_under_every_schedule),
        TEST(the_program_is_the_one_asked_for),
    };
    return TEST_RUN(tests);
}
