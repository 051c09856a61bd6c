/* Stages on ranks of their own, as threads: every schedule gives the losses and gradients of one
 * rank, the same bits twice, and takes the memory that was planned. */
#include "harness/tiny.h"

#include "base/clock.h"
#include "base/file.h"
#include "trace/trace.h"
#include "train/recording.h"
#include "viz/timeline.h"

#include <stdlib.h>

enum { RANKS_MOST = 4, STEPS = 2, SETTINGS_MOST = 24 };
static const double TIMEOUT_S = 200;

static const char *const model[] = {
    "model.layers=9", "data.sequence=12",        "train.batch=8",     "train.micro_batch=1",
    "moe.shared=1",   "model.dense_layers=1",    "run.threads=1",     "moe.experts=4",
    "model.vocab=31", "recompute.layers=[2, 5]", "moe.aux_loss=0.01",
};
enum { MODEL = sizeof model / sizeof *model };

/* What a stage found; beside it, what one rank with all layers has. */
typedef struct Found {
    double loss, aux, worst; /* worst: relative error of a parameter's gradient */
    const char *param;
    uint64_t bits;
    bool head, planned;
    double eval_error;
} Found;

typedef struct Case {
    const char *settings[SETTINGS_MOST];
    char text[4][48];
    int ranks;
    bool shared; /* some parameters are on two ranks: their sums are of two sums */
    const Tiny *whole;
    const float *losses; /* of an evaluation of the first micro-batch by the whole */
    Found found[RANKS_MOST];
} Case;

static uint64_t mix(uint64_t hash, const void *from, size_t bytes)
{
    const unsigned char *at = from;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ at[i]) * 0x100000001b3;
    return hash;
}

static void look_at_gradients(const Engine *e, const Engine *whole, Found *f)
{
    for (int i = 0; i < e->params.n; i++) {
        const Param *mine = &e->params.at[i], *p = whole->params.at;
        if (mine->first[BUF_GRAD] < 0) continue;
        while (strcmp(p->name, mine->name) != 0) p++;
        Tensor got = param_view(mine, &e->memory, BUF_GRAD);
        Tensor want = param_view(p, &whole->memory, BUF_GRAD);
        const float *x = got.data, *y = want.data;
        double square = 0, error = 0;
        for (int64_t j = 0; j < tensor_elems(&got); j++) {
            square += (double)y[j] * (double)y[j];
            error += ((double)x[j] - (double)y[j]) * ((double)x[j] - (double)y[j]);
        }
        error = sqrt(error) / (sqrt(square) + 1e-9);
        if (!(error <= f->worst)) f->worst = error, f->param = p->name;
        f->bits = mix(f->bits, x, tensor_bytes(&got));
    }
}

static Status look_at_losses(Tiny *t, const Case *c, Found *f)
{
    const float *losses = NULL;
    int64_t whole = t->batch.domain.dim[0];
    t->batch.domain.dim[0] = t->shape.micro_batch;
    TRY(engine_losses(&t->engine, &t->batch, &losses));
    t->batch.domain.dim[0] = whole;
    f->head = losses != NULL;
    for (int64_t i = 0; f->head && i < t->shape.micro_batch * t->shape.sequence; i++) {
        double d = fabs((double)losses[i] - (double)c->losses[i]);
        if (!(d <= f->eval_error)) f->eval_error = d;
    }
    return OK;
}

/* Weights stay: a rank clips by the norm of its own. */
static Status run_stage(Tiny *t, Case *c, int rank)
{
    Found *f = &c->found[rank];
    StepResult result = { 0 };
    TRY(look_at_losses(t, c, f));
    for (int64_t step = 0; step < STEPS; step++) {
        tiny_batch(t, step);
        TRY(engine_step(&t->engine, &t->batch, 0, step + 1, &result));
    }
    f->loss = result.loss, f->aux = result.aux_loss;
    look_at_gradients(&t->engine, &c->whole->engine, f);
    f->planned = true;
    for (int a = 0; a < ENGINE_ARENAS; a++) {
        f->planned &= engine_peak_bytes(&t->engine, (EngineArena)a) == t->plan.bytes[a];
    }
    return OK;
}

/* A stage of a pipeline through all ranks of the world. */
static Status with_stage(Comm *world, const char *const *settings, Case *c,
                         Status (*body)(Tiny *t, Case *c, int rank))
{
    Tiny t = { 0 };
    MeshShape shape;
    Mesh mesh = { 0 };
    Arena groups = { 0 };
    TRY(arena_init(&groups, "groups", MEM_HOST, (size_t)1 << 24));
    TRY(mesh_shape(world->size, world->size, 1, 1, 0, &shape));
    Status s = mesh_make(world, &shape, &groups, &mesh);
    if (s == OK) s = tiny_make(&t, settings, &mesh);
    if (s == OK) s = body(&t, c, world->rank);
    tiny_close(&t);
    mesh_free(&mesh);
    arena_free(&groups);
    return s;
}

static Status stage(void *state, Comm *world)
{
    Case *c = state;
    return with_stage(world, c->settings, c, run_stage);
}

/* The model, `more`, and the schedule. */
static void settings_of(Case *c, const ScheduleDesc *d, int stages, int chunks, const char *more)
{
    int n = 0;
    for (; n < MODEL; n++) c->settings[n] = model[n];
    c->settings[n++] = more;
    (void)snprintf(c->text[0], sizeof c->text[0], "mesh.schedule=%s", d->name);
    (void)snprintf(c->text[1], sizeof c->text[1], "mesh.pp=%d", stages);
    (void)snprintf(c->text[2], sizeof c->text[2], "mesh.vpp=%d", chunks);
    for (int i = 0; i < 3; i++) c->settings[n++] = c->text[i];
    c->settings[n] = NULL;
    c->ranks = stages;
    c->shared = d->placement == PLACE_BOTH || strcmp(more, "model.tied=true") == 0;
}

static void run(Case *c)
{
    int failed = -1;
    memset(c->found, 0, sizeof c->found);
    Status s = comm_threads(c->ranks, TIMEOUT_S, stage, c, &failed);
    if (s != OK) fail_msg("%s, rank %d: %s", c->text[0], failed, status_message());
}

static void check_found(const Case *c, const StepResult *want)
{
    double loss = 0, aux = 0;
    int heads = 0;
    for (int r = 0; r < c->ranks; r++) {
        const Found *f = &c->found[r];
        loss += f->loss, aux += f->aux, heads += f->head;
        if (!(f->worst <= (c->shared ? 1e-6 : 0)))
            fail_msg("%s, %s, rank %d: %s is off by %g", c->text[0], c->text[1], r, f->param,
                     f->worst);
        if (!f->planned) fail_msg("%s, %s, rank %d: not as planned", c->text[0], c->text[1], r);
        CHECK_NEAR(f->eval_error, 0, 1e-6);
    }
    CHECK_INT(heads, 1);
    CHECK_NEAR(loss, want->loss, 1e-6 * want->loss);
    CHECK_NEAR(aux, want->aux_loss, 1e-6);
}

static void check_same_bits(const Case *c, const Found *before)
{
    for (int r = 0; r < c->ranks; r++) {
        CHECK(c->found[r].bits == before[r].bits);
        CHECK(c->found[r].loss == before[r].loss);
    }
}

/* One rank with all layers, beside which the stages are held. */
typedef struct Whole {
    Tiny tiny;
    float losses[64];
    StepResult result;
} Whole;

static void whole_open(Whole *w, const char *more)
{
    const char *settings[MODEL + 2] = { 0 };
    const float *losses = NULL;
    for (int i = 0; i < MODEL; i++) settings[i] = model[i];
    settings[MODEL] = more;
    tiny_open(&w->tiny, settings);
    int64_t whole = w->tiny.batch.domain.dim[0];
    w->tiny.batch.domain.dim[0] = 1;
    CHECK_OK(engine_losses(&w->tiny.engine, &w->tiny.batch, &losses));
    w->tiny.batch.domain.dim[0] = whole;
    memcpy(w->losses, losses, (size_t)w->tiny.shape.sequence * sizeof *losses);
    for (int64_t step = 0; step < STEPS; step++) {
        tiny_batch(&w->tiny, step);
        CHECK_OK(engine_step(&w->tiny.engine, &w->tiny.batch, 0, step + 1, &w->result));
    }
}

static void check_schedule(const Whole *w, const ScheduleDesc *d, int stages, const char *more)
{
    int most = d->chunks_most < 2 ? d->chunks_most : 2;
    for (int chunks = d->chunks_least; chunks <= most; chunks++) {
        Case c = { .whole = &w->tiny, .losses = w->losses };
        Found before[RANKS_MOST];
        settings_of(&c, d, stages, chunks, more);
        run(&c);
        check_found(&c, &w->result);
        memcpy(before, c.found, sizeof before);
        run(&c);
        check_same_bits(&c, before);
    }
}

static void check_all(int stages, const char *more)
{
    Whole w = { 0 };
    whole_open(&w, more);
    for (int i = 0; i < schedule_table_n; i++) check_schedule(&w, &schedule_table[i], stages, more);
    tiny_close(&w.tiny);
}

static void two_stages_train_as_one_rank_does(void **state)
{
    (void)state;
    check_all(2, "attention.q_rank=9");
}

static void four_stages_train_as_one_rank_does(void **state)
{
    (void)state;
    check_all(4, "attention.kind=gqa");
}

static void a_table_on_both_ends_gets_the_gradients_of_both(void **state)
{
    (void)state;
    check_all(2, "model.tied=true");
}

/* An id that is none comes to the first stage alone, in the third micro-batch. */
static Status fail_step(Tiny *t, Case *c, int rank)
{
    (void)c;
    StepResult result;
    if (rank == 0) ((int32_t *)t->batch.id.data)[2 * t->shape.sequence] = 1000;
    return engine_step(&t->engine, &t->batch, 0, 1, &result);
}

static Status failing_stage(void *state, Comm *world)
{
    (void)state;
    return with_stage(world, TINY("mesh.pp=2", "train.micro_batch=1", "run.threads=1"), NULL,
                      fail_step);
}

static void a_stage_that_fails_within_a_step_ends_all(void **state)
{
    (void)state;
    int failed = -1;
    double start = clock_s();
    CHECK_FAILS(comm_threads(2, TIMEOUT_S, failing_stage, NULL, &failed), ERR_ARG, "id is 1000");
    CHECK_INT(failed, 0);
    CHECK(clock_s() - start < TIMEOUT_S / 2);
}

/* Written by the stages, read as a page of pipelines reads it. */

enum { EVENTS = 4096 };
static char folder[] = "/tmp/switchyard-pipeline-XXXXXX";

static Status record_step(Tiny *t, Case *c, int rank)
{
    (void)c, (void)rank;
    Trace trace;
    StepResult result;
    TRY(trace_init(&trace, &t->arena, EVENTS));
    engine_trace(&t->engine, &trace);
    TRY(engine_step(&t->engine, &t->batch, 0, 7, &result));
    engine_trace(&t->engine, NULL);
    return recording_write(&t->engine, folder, &t->arena);
}

static Status recorded_stage(void *state, Comm *world)
{
    (void)state;
    return with_stage(world,
                      TINY("mesh.pp=2", "mesh.vpp=2", "mesh.schedule=zbv", "model.layers=4",
                           "train.micro_batch=1", "run.threads=1"),
                      NULL, record_step);
}

static void a_recorded_step_is_drawn_with_every_pass(void **state)
{
    (void)state;
    enum { MICROS = 4, CHUNKS = 2 };
    int failed = -1;
    Arena a = { 0 };
    Timeline t;
    CHECK(mkdtemp(folder) != NULL);
    CHECK_OK(comm_threads(2, TIMEOUT_S, recorded_stage, NULL, &failed));
    CHECK_OK(arena_init(&a, "timeline", MEM_HOST, (size_t)1 << 30));
    CHECK_OK(timeline_read(folder, -1, &a, &t));
    CHECK_OK(file_remove_tree(folder));
    CHECK_INT(t.iteration, 7);
    CHECK_TEXT(t.title, "zbv, step 7");
    CHECK_INT(t.ranks, 2);
    CHECK_INT(t.chunks, CHUNKS);
    CHECK_INT(t.micros, MICROS);
    for (int r = 0; r < t.ranks; r++) {
        int n[TIMELINE_KINDS] = { 0 };
        for (int i = 0; i < t.rank[r].spans; i++) {
            const TimelineSpan *s = &t.rank[r].span[i];
            n[s->kind]++;
            CHECK(s->end_s >= s->start_s && s->end_s <= t.rank[r].total_s);
        }
        CHECK_INT(n[TIMELINE_FORWARD], MICROS * CHUNKS);
        CHECK_INT(n[TIMELINE_BACKWARD] + n[TIMELINE_INPUT], MICROS * CHUNKS);
        CHECK_INT(n[TIMELINE_INPUT], n[TIMELINE_WEIGHT]);
        CHECK(n[TIMELINE_INPUT] > 0);
        CHECK_INT(n[TIMELINE_OTHER], 3); /* zero, reduce, update */
        CHECK_INT(n[TIMELINE_SEND], 2 * MICROS);
    }
    arena_free(&a);
}

static void a_pipeline_without_its_ranks_is_refused(void **state)
{
    (void)state;
    Tiny t;
    CHECK_FAILS(tiny_make(&t, TINY("mesh.pp=2"), NULL), ERR_UNSUPPORTED,
                "mesh.pp is 2, ranks are 1: start 2");
    tiny_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(two_stages_train_as_one_rank_does),
        TEST(four_stages_train_as_one_rank_does),
        TEST(a_table_on_both_ends_gets_the_gradients_of_both),
        TEST(a_stage_that_fails_within_a_step_ends_all),
        TEST(a_recorded_step_is_drawn_with_every_pass),
        TEST(a_pipeline_without_its_ranks_is_refused),
    };
    return TEST_RUN(tests);
}
