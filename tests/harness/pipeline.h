/*
 * pipeline: stages on ranks of their own, as threads, held against one rank with all layers.
 */
#ifndef TESTS_HARNESS_PIPELINE_H
#define TESTS_HARNESS_PIPELINE_H

#include "harness/param_view.h"
#include "harness/tiny.h"

enum { RANKS_MOST = 4, STEPS = 2, SETTINGS_MOST = 24, STAGES_MOST = 8 };
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

/* One rank with all layers, beside which the stages are held. */
typedef struct Whole {
    Tiny tiny;
    const float *grads, *losses; /* in its arena; losses: of the first micro-batch, evaluated */
    StepResult result;
} Whole;

typedef struct Case {
    const char *settings[SETTINGS_MOST];
    char text[4][48];
    int ranks;
    double limit; /* of relative errors of gradients */
    const Whole *whole;
    Found found[RANKS_MOST];
} Case;

static inline uint64_t mix(uint64_t hash, const void *from, size_t bytes)
{
    const unsigned char *at = from;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ at[i]) * 0x100000001b3;
    return hash;
}

static inline double distance(const float *x, const float *y, int64_t n)
{
    double square = 0, error = 0;
    for (int64_t j = 0; j < n; j++) {
        square += (double)y[j] * (double)y[j];
        error += ((double)x[j] - (double)y[j]) * ((double)x[j] - (double)y[j]);
    }
    return sqrt(error) / (sqrt(square) + 1e-9);
}

static inline Status look_at_gradients(Engine *e, const Whole *w, Found *f)
{
    for (int i = 0; i < e->params.table.n; i++) {
        const Param *mine = &e->params.table.at[i], *p = w->tiny.engine.params.table.at;
        const void *got = NULL;
        if (mine->first[BUF_GRAD] < 0) continue;
        while (strcmp(p->name, mine->name) != 0) p++;
        Tensor grad = param_view(mine, &e->params.memory, BUF_GRAD);
        TRY(engine_get(&e->arenas, grad.data, tensor_bytes(&grad), &got));
        double error = distance(got, w->grads + p->first[BUF_GRAD], tensor_elems(&grad));
        if (!(error <= f->worst)) f->worst = error, f->param = p->name;
        f->bits = mix(f->bits, got, tensor_bytes(&grad));
    }
    return OK;
}

static inline Status look_at_losses(Tiny *t, const Case *c, Found *f)
{
    const float *losses = NULL;
    int64_t whole = t->batch.domain.dim[0];
    t->batch.domain.dim[0] = t->shape.micro_batch;
    TRY(engine_losses(&t->engine, &t->batch, &losses));
    t->batch.domain.dim[0] = whole;
    f->head = losses != NULL;
    for (int64_t i = 0; f->head && i < t->shape.micro_batch * t->shape.sequence; i++) {
        double d = fabs((double)losses[i] - (double)c->whole->losses[i]);
        if (!(d <= f->eval_error)) f->eval_error = d;
    }
    return OK;
}

/* Weights stay: a rank clips by the norm of its own. */
static inline Status run_stage(Tiny *t, Case *c, int rank)
{
    Found *f = &c->found[rank];
    StepResult result = { 0 };
    TRY(look_at_losses(t, c, f));
    for (int64_t step = 0; step < STEPS; step++) {
        tiny_batch(t, step);
        TRY(engine_step(&t->engine, &t->batch, 0, step + 1, &result));
    }
    f->loss = result.loss, f->aux = result.aux_loss;
    TRY(look_at_gradients(&t->engine, c->whole, f));
    f->planned = true;
    for (int a = 0; a < ENGINE_ARENAS; a++) {
        /* pinned memory is taken as one block */
        f->planned &=
            a == ENGINE_PINNED || engine_peak_bytes(&t->engine, (EngineArena)a) == t->plan.bytes[a];
    }
    return OK;
}

/* A stage of a pipeline through all ranks of the world. */
static inline Status with_stage(Comm *world, const char *const *settings, Case *c,
                                Status (*body)(Tiny *t, Case *c, int rank))
{
    Tiny t = { 0 };
    MeshShape shape;
    Mesh mesh = { 0 };
    Arena groups = { 0 };
    TRY(arena_init(&groups, "groups", MEM_HOST, (size_t)1 << 24));
    TRY(mesh_shape(world->size, world->size, 1, 1, 1, 0, &shape));
    Status s = mesh_make(world, &shape, false, &groups, &mesh);
    if (s == OK) s = tiny_make(&t, settings, &mesh);
    if (s == OK) s = body(&t, c, world->rank);
    tiny_close(&t);
    mesh_free(&mesh);
    arena_free(&groups);
    return s;
}

static inline Status stage(void *state, Comm *world)
{
    Case *c = state;
    return with_stage(world, c->settings, c, run_stage);
}

/* The model, `more`, and the schedule. */
static inline void settings_of(Case *c, const ScheduleDesc *d, int stages, int chunks,
                               const char *const *more)
{
    int n = 0;
    for (; n < MODEL; n++) c->settings[n] = model[n];
    for (; *more != NULL; more++) c->settings[n++] = *more;
    (void)snprintf(c->text[0], sizeof c->text[0], "mesh.schedule=%s", d->name);
    (void)snprintf(c->text[1], sizeof c->text[1], "mesh.pp=%d", stages);
    (void)snprintf(c->text[2], sizeof c->text[2], "mesh.vpp=%d", chunks);
    for (int i = 0; i < 3; i++) c->settings[n++] = c->text[i];
    c->settings[n] = NULL;
    c->ranks = stages;
    /* parameters on two ranks: their sums are of two sums */
    c->limit = d->placement == PLACE_BOTH || c->whole->tiny.engine.spec.tied ? 1e-6 : 0;
}

static inline void run_case(Case *c)
{
    int failed = -1;
    memset(c->found, 0, sizeof c->found);
    Status s = comm_threads(c->ranks, TIMEOUT_S, stage, c, &failed);
    if (s != OK) fail_msg("%s, rank %d: %s", c->text[0], failed, status_message());
}

static inline void check_stage(const Case *c, int r)
{
    const Found *f = &c->found[r];
    if (!(f->worst <= c->limit))
        fail_msg("%s, %s, rank %d: %s is off by %g", c->text[0], c->text[1], r, f->param, f->worst);
    if (!f->planned) fail_msg("%s, %s, rank %d: not as planned", c->text[0], c->text[1], r);
    CHECK_NEAR(f->eval_error, 0, 1e-6);
}

static inline void check_found(const Case *c, const StepResult *want)
{
    int heads = 0;
    for (int r = 0; r < c->ranks; r++) {
        const Found *f = &c->found[r];
        check_stage(c, r);
        heads += f->head;
        CHECK_NEAR(f->loss, want->loss, 1e-6 * want->loss);
        CHECK_NEAR(f->aux, want->aux_loss, 1e-6);
    }
    CHECK_INT(heads, 1);
}

static inline void check_same_bits(const Case *c, const Found *before)
{
    for (int r = 0; r < c->ranks; r++) {
        CHECK(c->found[r].bits == before[r].bits);
        CHECK(c->found[r].loss == before[r].loss);
    }
}

static inline void whole_open(Whole *w, const char *const *more)
{
    const char *settings[SETTINGS_MOST] = { 0 };
    const float *losses = NULL;
    const void *grads = NULL;
    float *keep = NULL;
    Tiny *t = &w->tiny;
    int n = 0;
    for (; n < MODEL; n++) settings[n] = model[n];
    for (; *more != NULL; more++) settings[n++] = *more;
    tiny_open(t, settings);
    int64_t whole = t->batch.domain.dim[0];
    t->batch.domain.dim[0] = t->shape.micro_batch;
    CHECK_OK(engine_losses(&t->engine, &t->batch, &losses));
    t->batch.domain.dim[0] = whole;
    CHECK_OK(ARENA_NEW(&t->arena, t->shape.sequence, &keep));
    w->losses = memcpy(keep, losses, (size_t)t->shape.sequence * sizeof *keep);
    for (int64_t step = 0; step < STEPS; step++) {
        tiny_batch(t, step);
        CHECK_OK(engine_step(&t->engine, &t->batch, 0, step + 1, &w->result));
    }
    const Tensor *grad = &t->engine.params.memory.buffer[BUF_GRAD];
    CHECK_OK(engine_get(&t->engine.arenas, grad->data, tensor_bytes(grad), &grads));
    CHECK_OK(ARENA_NEW(&t->arena, tensor_elems(grad), &keep));
    w->grads = memcpy(keep, grads, tensor_bytes(grad));
}

/* Twice, with each number of chunks that it takes up to STAGES_MOST stages of the model. */
static inline void check_schedule(const Whole *w, const ScheduleDesc *d, int stages,
                                  const char *const *more)
{
    int most = d->chunks_most < STAGES_MOST / stages ? d->chunks_most : STAGES_MOST / stages;
    for (int chunks = d->chunks_least; chunks <= most; chunks++) {
        Case c = { .whole = w };
        Found before[RANKS_MOST];
        settings_of(&c, d, stages, chunks, more);
        run_case(&c);
        check_found(&c, &w->result);
        memcpy(before, c.found, sizeof before);
        run_case(&c);
        check_same_bits(&c, before);
    }
}

static inline void check_schedules(int stages, const char *const *more)
{
    Whole w = { 0 };
    whole_open(&w, more);
    for (int i = RUNS(0, stages / 2 - 1); i < schedule_table_n; i += RUNS(1, 2))
        check_schedule(&w, &schedule_table[i], stages, more);
    tiny_close(&w.tiny);
}

#endif
