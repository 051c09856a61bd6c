/* A batch that grows (train.batch_ramp): a smaller step is to the bit that of an engine whose batch it is, on
 * meshes and schedules of every kind, and so is the step after it. */
#include "harness/mesh_cases.h"

enum { SMALL = 8, LARGE = 16 };

/* A step of the first n sequences of a global batch, which all ranks have whole. */
static Status step_of(ManyRank *r, const Tiny *from, int64_t step, int64_t n, StepResult *out)
{
    Tiny *t = &r->t;
    const int64_t seq = t->config.data_sequence, own = n * t->shape.batch / t->config.train_batch;
    const int64_t rank = t->shape.mesh == NULL ? 0 : mesh_data_rank(t->shape.mesh);
    Batch b = many_rows(&from->batch, rank * own, own, seq);
    b.targets = b.next[0].targets = 0;
    for (int64_t i = 0; i < n * seq; i++) {
        b.targets += ((const int32_t *)from->batch.target.data)[i] >= 0;
        if (b.depths > 0)
            b.next[0].targets += ((const int32_t *)from->batch.next[0].target.data)[i] >= 0;
    }
    return engine_step(&t->engine, &b, 1e-2, step + 1, out);
}

/* Weights and moments of an engine of the same mesh. */
static Status take_over(const Engine *from, Engine *e)
{
    static const ParamBuffer buffers[] = { BUF_MAIN, BUF_OPTIMIZER, BUF_OPTIMIZER + 1, BUF_STATE };
    for (int i = 0; i < 4; i++) {
        const Tensor *to = &e->params.memory.buffer[buffers[i]];
        if (to->data != NULL)
            memcpy(to->data, from->params.memory.buffer[buffers[i]].data, tensor_bytes(to));
    }
    TRY(copies_refresh(&e->params));
    return shards_gather_all(&e->params);
}

static Status same_step(const ManyRank *a, const ManyRank *b, const StepResult *have,
                        const StepResult *want)
{
    if (have->loss != want->loss || have->aux_loss != want->aux_loss ||
        have->grad_norm != want->grad_norm)
        return FAIL(ERR_NUMERIC, "loss %.9g, auxiliary %.9g, norm %.9g; alone %.9g, %.9g, %.9g",
                    have->loss, have->aux_loss, have->grad_norm, want->loss, want->aux_loss,
                    want->grad_norm);
    return tiny_same_state(&a->t, &b->t) ? OK : FAIL(ERR_NUMERIC, "weights or moments differ");
}

/* No arena is planned smaller than for either size. */
static Status enough_is_planned(const ManyRank r[3])
{
    for (int i = 0; i < 3 * ENGINE_ARENAS; i++) {
        size_t all = r[0].t.plan.bytes[i / 3], one = r[i % 3].t.plan.bytes[i / 3];
        if (all < one)
            return FAIL(ERR_NUMERIC, "%s: %zu bytes, %zu for one size", engine_arena_names[i / 3],
                        all, one);
    }
    return OK;
}

/* Two steps of 8 sequences and two of 16, beside engines of one size. */
static Status compare_in(const ManyCase *c, ManyRank r[3], Comm *world)
{
    static const char *const also[3][4] = {
        { "train.batch=16", "moe.z_loss=0.01", "train.batch_ramp=[\"2: 8\"]", NULL },
        { "train.batch=8", "moe.z_loss=0.01", NULL },
        { "train.batch=16", "moe.z_loss=0.01", NULL },
    };
    for (int i = 0; i < 3; i++) {
        r[i].also = also[i];
        r[i].device = world->rank;
        TRY(many_open(&r[i], c, world));
    }
    TRY(enough_is_planned(r));
    for (int64_t step = 0; step < 4; step++) {
        ManyRank *like = &r[step < 2 ? 1 : 2];
        StepResult have, want;
        const int64_t n = step < 2 ? SMALL : LARGE;
        if (step == 2) TRY(take_over(&r[1].t.engine, &like->t.engine));
        many_batch(&r[0], step);
        TRY(step_of(&r[0], &r[0].t, step, n, &have));
        TRY(step_of(like, &r[0].t, step, n, &want));
        TRY(same_step(&r[0], like, &have, &want));
    }
    return OK;
}

static Status compare(void *state, Comm *world)
{
    ManyRank r[3];
    memset(r, 0, sizeof r);
    Status s = compare_in(state, r, world);
    for (int i = 0; i < 3; i++) many_close(&r[i]);
    return s;
}

static void a_smaller_step_is_one_of_that_size_on_every_mesh(void **state)
{
    (void)state;
    static const ManyCase cases[] = {
        { "zero 0", 2, { MLA, BATCH, "mesh.zero=0", "moe.aux_scope=batch" } },
        { "zero 1, muon", 2, { GQA, BATCH, "mesh.zero=1", "optimizer.kind=muon" } },
        { "zero 2, global", 2, { MLA, BATCH, "mesh.zero=2", "moe.aux_scope=global" } },
        { "zero 3, bf16", 4, { GQA, BATCH, "mesh.zero=3", "run.compute=bf16" } },
        { "cp 2", 2, { GQA, BATCH, "mesh.cp=2" } },
        { "tp 2, global", 2, { MLA, BATCH, TP2, "moe.aux_scope=global" } },
        { "ep 2, a pool", 2, { MLA, BATCH, POOLED, "mesh.ep=2" } },
        { "ep 2, mtp", 2, { MLA, BATCH, WORST, "mesh.ep=2", "mtp.layers=1" } },
    };
    int n = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i += MANY_EVERY)
        n += case_wrong(&cases[i], compare);
    CHECK_INT(n, 0);
}

static void a_smaller_step_is_one_of_that_size_on_every_schedule(void **state)
{
    (void)state;
    CHECK_INT(schedules_wrong(compare), 0);
}

/* Of no size that the ramp has. */
static void another_number_of_sequences_is_an_error(void **state)
{
    (void)state;
    Tiny t;
    StepResult r;
    tiny_open(&t, TINY("train.micro_batch=1", "train.batch_ramp=[\"2: 2\"]"));
    Batch b = many_rows(&t.batch, 0, 3, t.config.data_sequence);
    CHECK_FAILS(engine_step(&t.engine, &b, 1e-2, 1, &r), ERR_ARG, "a step of 3 sequences");
    tiny_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_smaller_step_is_one_of_that_size_on_every_mesh),
        TEST(a_smaller_step_is_one_of_that_size_on_every_schedule),
        TEST(another_number_of_sequences_is_an_error),
    };
    return TEST_RUN(tests);
}
