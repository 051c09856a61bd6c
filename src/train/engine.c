#include "train/engine.h"

#include "backend/backend.h"
#include "train/run_layers.h"
#include "train/update.h"

#include <math.h>
#include <string.h>

const char *const engine_arena_names[ENGINE_ARENAS] = {
    [ENGINE_RUN] = "run",   [ENGINE_SLOT] = "slot",       [ENGINE_RING] = "ring",
    [ENGINE_STEP] = "step", [ENGINE_SCRATCH] = "scratch",
};

static const size_t TABLES_BYTES = (size_t)4 << 30; /* reserved; only what is written counts */
static const size_t COUNT_BYTES = (size_t)1 << 60;

/* Set-up. */

static Status slot_init(Engine *e, SlotState *s, MemKind kind, size_t bytes)
{
    int n = e->spec.n_layers;
    void *memory = NULL;
    TRY(arena_init(&s->arena, "slot", kind, bytes));
    TRY(arena_alloc_zero(&e->tables, (size_t)n * sizeof *s->before, &memory));
    s->before = memory;
    TRY(arena_alloc_zero(&e->tables, (size_t)n * sizeof *s->kept, &memory));
    s->kept = memory;
    TRY(arena_alloc_zero(&e->tables, (size_t)n * sizeof *s->h, &memory));
    s->h = memory;
    TRY(arena_alloc_zero(&e->tables, (size_t)n * sizeof *s->state, &memory));
    s->state = memory;
    for (int i = 0; i < n; i++) {
        size_t state_bytes = layer_desc(e->spec.layers[i].kind)->state_bytes;
        if (state_bytes > 0) TRY(arena_alloc(&e->tables, state_bytes, &s->state[i]));
    }
    return OK;
}

static Status make_arenas(Engine *e, MemKind kind, const EnginePlan *plan)
{
    for (int i = 0; i < ENGINE_ARENAS; i++) {
        if (i == ENGINE_SLOT) continue;
        TRY(arena_init(&e->arena[i], engine_arena_names[i], kind,
                       plan == NULL ? COUNT_BYTES : plan->bytes[i]));
    }
    e->n_slots = e->program.slots;
    void *memory = NULL;
    TRY(arena_alloc_zero(&e->tables, (size_t)e->n_slots * sizeof *e->slots, &memory));
    e->slots = memory;
    size_t slot_bytes = plan == NULL ? COUNT_BYTES : plan->bytes[ENGINE_SLOT] / (size_t)e->n_slots;
    for (int i = 0; i < e->n_slots; i++) TRY(slot_init(e, &e->slots[i], kind, slot_bytes));
    for (int i = 0; i < ENGINE_ARENAS; i++) arena_huge_pages(&e->arena[i]);
    for (int i = 0; i < e->n_slots; i++) arena_huge_pages(&e->slots[i].arena);
    return OK;
}

static Status make_batch(Engine *e)
{
    const EngineShape *s = &e->shape;
    Arena *a = &e->arena[ENGINE_STEP];
    int64_t n = s->batch * s->sequence;
    e->batch = (MicroBatch){ .b = s->batch, .t = s->sequence };
    TRY(tensor_new1(a, DTYPE_I32, n, &e->batch.id));
    TRY(tensor_new1(a, DTYPE_I32, n, &e->batch.target));
    TRY(tensor_new1(a, DTYPE_I32, n, &e->batch.pos));
    TRY(tensor_new2(a, DTYPE_I32, s->batch, s->sequence, &e->batch.doc));
    return tensor_new1(a, DTYPE_I32, s->batch, &e->batch.domain);
}

static Status make_record(Engine *e)
{
    Arena *a = &e->arena[ENGINE_STEP];
    Record *r = &e->record;
    Tensor *scalars[] = {
        &r->loss, &r->aux_loss, &r->square_sum, &r->norm, &r->clip, &e->loss_scale
    };
    for (size_t i = 0; i < sizeof scalars / sizeof *scalars; i++) {
        TRY(tensor_new1(a, DTYPE_F32, 1, scalars[i]));
    }
    TRY(tensor_new1(a, DTYPE_F32, 3, &e->hyper));
    if (e->spec.n_moe == 0) return OK;
    int64_t dims[] = { e->spec.n_moe, e->shape.domains, e->spec.experts };
    TRY(tensor_new(a, DTYPE_I32, 3, dims, &r->load));
    return tensor_new(&e->tables, DTYPE_I32, 3, dims, &e->load_host);
}

static Status make_rope(Engine *e)
{
    int64_t p = e->shape.positions, half = e->spec.rope_dim / 2;
    Arena *run = &e->arena[ENGINE_RUN];
    TRY(tensor_new2(run, DTYPE_F32, p, half, &e->rope_cos));
    TRY(tensor_new2(run, DTYPE_F32, p, half, &e->rope_sin));
    if (!e->counting) {
        layer_rope_table(e->spec.rope_theta, p, e->spec.rope_dim, e->rope_cos.data,
                         e->rope_sin.data);
    }
    return OK;
}

static Status make_cache(Engine *e)
{
    if (!e->shape.cache) return OK;
    void *memory = NULL;
    TRY(arena_alloc_zero(&e->tables, (size_t)(2 * e->spec.blocks) * sizeof(Tensor), &memory));
    e->kv = (KvCache){ .k = memory, .v = (Tensor *)memory + e->spec.blocks };
    for (int i = 0; i < e->spec.n_layers; i++) {
        const LayerSpec *l = &e->spec.layers[i];
        if (l->kind != LAYER_ATTENTION) continue;
        const AttentionSpec *a = &l->as.attention;
        int64_t rows = e->shape.positions, heads = a->kv_heads;
        TRY(tensor_new2(&e->arena[ENGINE_RUN], e->spec.act, rows, heads * attention_qk_dim(a),
                        &e->kv.k[l->block]));
        TRY(tensor_new2(&e->arena[ENGINE_RUN], e->spec.act, rows, heads * attention_v_dim(a),
                        &e->kv.v[l->block]));
    }
    return OK;
}

static Status setup(Engine *e, MemKind kind, const EnginePlan *plan)
{
    e->counting = kind == MEM_COUNT;
    TRY(arena_init(&e->tables, "tables", MEM_HOST, TABLES_BYTES));
    TRY(spec_build(e->config, &e->tables, &e->spec));
    TRY(params_build(&e->spec, &e->tables, &e->params));
    int micros = (int)(e->shape.batch / e->shape.micro_batch);
    TRY(schedule_accumulate(micros, &e->tables, &e->program));
    ArenaMark mark = arena_mark(&e->tables);
    TRY(schedule_check(&e->program, &e->tables));
    arena_release(&e->tables, mark);
    TRY(make_arenas(e, kind, plan));
    TRY(exec_init(&e->ex, &e->tables, &e->arena[ENGINE_SCRATCH], e->shape.threads));
    if (e->counting) e->ex.stack[0] = &backend_count;
    bool training = e->use == ENGINE_TRAIN;
    TRY(params_alloc(&e->spec, &e->params, &e->arena[ENGINE_RUN], training, &e->memory));
    TRY(params_bind(&e->spec, &e->params, &e->memory, &e->tables, &e->weights));
    TRY(update_make_ranges(e));
    TRY(make_rope(e));
    TRY(make_cache(e));
    TRY(make_batch(e));
    TRY(make_record(e));
    if (e->shape.logit_rows > 0) {
        TRY(tensor_new2(&e->arena[ENGINE_STEP], DTYPE_F32, e->shape.logit_rows, e->spec.vocab,
                        &e->logits));
    }
    int64_t micro_tokens = e->shape.micro_batch * e->shape.sequence;
    return tensor_new1(&e->arena[ENGINE_STEP], DTYPE_F32, micro_tokens, &e->token_loss);
}

Status engine_open(Engine *e, const Config *c, EngineUse use, const EngineShape *shape,
                   const EnginePlan *plan)
{
    *e = (Engine){ .config = c, .use = use, .shape = *shape };
    Status s = setup(e, MEM_HOST, plan);
    if (s != OK) engine_close(e);
    return s;
}

void engine_close(Engine *e)
{
    exec_free(&e->ex);
    for (int i = 0; i < e->n_slots && e->slots != NULL; i++) arena_free(&e->slots[i].arena);
    for (int i = 0; i < ENGINE_ARENAS; i++) arena_free(&e->arena[i]);
    arena_free(&e->tables);
    *e = (Engine){ 0 };
}

size_t engine_peak_bytes(const Engine *e, EngineArena which)
{
    if (which != ENGINE_SLOT) return e->arena[which].peak_bytes;
    size_t sum = 0;
    for (int i = 0; i < e->n_slots; i++) sum += e->slots[i].arena.peak_bytes;
    return sum;
}

/* Planning: everything the real engine will do, over arenas that only count. */

static Status count_run(Engine *e, EnginePlan *out)
{
    TRY(setup(e, MEM_COUNT, NULL));
    if (e->use == ENGINE_TRAIN) {
        TRY(run_program(e));
        out->step = e->ex.totals;
        TRY(run_losses(e, e->shape.micro_batch));
    } else if (e->shape.cache) {
        /* The longest prompt; then one token at the end of a full cache. */
        TRY(run_next_logits(e, e->shape.sequence));
        e->kv.used = e->shape.positions - 1;
        TRY(run_next_logits(e, 1));
    } else {
        TRY(run_losses(e, e->shape.micro_batch));
    }
    for (int i = 0; i < ENGINE_ARENAS; i++) out->bytes[i] = engine_peak_bytes(e, (EngineArena)i);
    out->tables_bytes = e->tables.peak_bytes;
    out->params_total = e->params.total;
    out->params_active = e->params.active;
    return OK;
}

Status engine_plan(const Config *c, EngineUse use, const EngineShape *shape, EnginePlan *out)
{
    Engine e = { .config = c, .use = use, .shape = *shape };
    EnginePlan plan = { 0 };
    Status s = count_run(&e, &plan);
    engine_close(&e);
    if (s == OK) *out = plan;
    return s;
}

/* Running. */

static Status put(Engine *e, Tensor *t, const void *from)
{
    return e->ex.stack[e->ex.depth - 1]->copy(&e->ex, t->data, from, tensor_bytes(t));
}

static Status put_batch(Engine *e, const Batch *b)
{
    int64_t n = b->domain.dim[0];
    Tensor id = tensor_rows(&e->batch.id, 0, n * e->shape.sequence);
    Tensor target = tensor_rows(&e->batch.target, 0, n * e->shape.sequence);
    Tensor pos = tensor_rows(&e->batch.pos, 0, n * e->shape.sequence);
    Tensor doc = tensor_rows(&e->batch.doc, 0, n);
    Tensor domain = tensor_rows(&e->batch.domain, 0, n);
    TRY(put(e, &id, b->id.data));
    TRY(put(e, &target, b->target.data));
    TRY(put(e, &pos, b->pos.data));
    TRY(put(e, &doc, b->doc.data));
    TRY(put(e, &domain, b->domain.data));
    float scale = b->targets > 0 ? 1 / (float)b->targets : 0;
    return put(e, &e->loss_scale, &scale);
}

Status engine_refresh_weights(Engine *e)
{
    if (e->spec.act == DTYPE_F32) return OK;
    return cast(&e->ex, (Cast){ e->memory.buffer[BUF_MAIN], e->memory.buffer[BUF_WEIGHT] });
}

Status engine_step(Engine *e, const Batch *batch, double lr, int64_t step, StepResult *out)
{
    const Config *c = e->config;
    e->step = e->ex.step = step;
    float hyper[3] = { (float)lr, (float)(1 / (1 - pow(c->optimizer_beta1, (double)step))),
                       (float)(1 / (1 - pow(c->optimizer_beta2, (double)step))) };
    TRY(put(e, &e->hyper, hyper));
    TRY(put_batch(e, batch));
    TRY(run_program(e));
    TRY(e->ex.stack[e->ex.depth - 1]->sync(&e->ex));

    const float *loss = e->record.loss.data, *aux = e->record.aux_loss.data;
    const float *norm = e->record.norm.data;
    if (e->spec.n_moe > 0) {
        memcpy(e->load_host.data, e->record.load.data, tensor_bytes(&e->load_host));
    }
    *out = (StepResult){ .loss = (double)*loss,
                         .aux_loss = (double)*aux,
                         .grad_norm = (double)*norm,
                         .finite = isfinite(*loss) && isfinite(*norm),
                         .load = e->load_host.data };
    return OK;
}

Status engine_explain_nan(Engine *e, const Batch *batch, int64_t step)
{
    e->step = e->ex.step = step;
    TRY(put_batch(e, batch));
    exec_push(&e->ex, &backend_guard);
    Status s = run_program(e);
    exec_pop(&e->ex);
    TRY(s);
    return FAIL(ERR_NUMERIC,
                "step %lld: loss or gradient norm is not finite, though every op's "
                "outputs are",
                (long long)step);
}

Status engine_losses(Engine *e, const Batch *batch, const float **losses)
{
    int64_t n = batch->domain.dim[0];
    if (n > e->shape.micro_batch) {
        return FAIL(ERR_ARG, "engine_losses: %lld sequences, at most %lld fit", (long long)n,
                    (long long)e->shape.micro_batch);
    }
    TRY(put_batch(e, batch));
    TRY(run_losses(e, n));
    TRY(e->ex.stack[e->ex.depth - 1]->sync(&e->ex));
    *losses = e->token_loss.data;
    return OK;
}

Status engine_next_logits(Engine *e, const int32_t *id, int64_t n, const float **logits)
{
    if (n > e->shape.sequence || e->kv.used + n > e->shape.positions) {
        return FAIL(ERR_ARG,
                    "generate: %lld tokens after %lld, room for %lld at a time, %lld in all",
                    (long long)n, (long long)e->kv.used, (long long)e->shape.sequence,
                    (long long)e->shape.positions);
    }
    int32_t *at = e->batch.id.data, *pos = e->batch.pos.data;
    for (int64_t i = 0; i < n; i++) {
        at[i] = id[i];
        pos[i] = (int32_t)(e->kv.used + i);
    }
    *(int32_t *)e->batch.domain.data = 0;
    TRY(run_next_logits(e, n));
    e->kv.used += n;
    *logits = e->logits.data;
    return OK;
}

void engine_trace(Engine *e, struct Trace *trace)
{
    if (trace != NULL)
        exec_push(&e->ex, &backend_trace);
    else
        exec_pop(&e->ex);
    e->ex.trace = trace;
}

void engine_guard(Engine *e) { exec_push(&e->ex, &backend_guard); }
