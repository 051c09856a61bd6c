/* layer_count: runs the phases of one layer on a backend that only adds up costs, over arenas that only
 * count bytes. The order of phases, and what is released between them, are those of run_layers.c: a
 * test holds both equal (test_chunk_count). */
#include "engine/count/layer_count.h"

#include "engine/backend/backend.h"
#include "engine/model/recipe.h"

#include <string.h>

/* Of address space only: these arenas count and are never touched. */
static const size_t COUNT_BYTES = (size_t)1 << 60;

/* The Exec comes first: count_op gets from it to the rest by a cast. */
typedef struct Counter {
    Exec ex;
    const LayerCountObserver *observer;
    LayerPass pass;
    int phase;
    LayerCount *out;
    Arena keep, ring, scratch;
    RowPool pool;
    bool pooled;
    LayerRun run;
} Counter;

/* Stands in for the backend's run: no op computes anything here. cost() is asked, and the observer
 * sees the op. */
static Status count_op(Exec *ex, const OpDesc *op, const void *args)
{
    Counter *c = (Counter *)ex;
    OpCost cost = op->cost(args);
    OpTotals *t = &c->out->pass[c->pass];
    t->flops += cost.flops;
    t->bytes += cost.bytes;
    t->comm_bytes += cost.comm_bytes;
    t->ops++;
    if (c->observer == NULL) return OK;
    return c->observer->op(c->observer->self, c->pass, c->phase, op, args, &cost);
}

/* Scratch lives for one phase function, as in the engine. So its peak is that of the hungriest
 * phase. */
static Status count_phase(Counter *c, LayerPass pass, int phase, PhaseFn *fn)
{
    if (fn == NULL) return OK;
    c->pass = pass;
    c->phase = phase;
    TRY(fn(&c->run));
    arena_release(&c->scratch, (ArenaMark){ 0 });
    return OK;
}

static Status count_forward(Counter *c, LayerPass pass)
{
    const LayerDesc *desc = layer_desc(c->run.layer->kind);
    for (int i = 0; i < desc->n_phases; i++) {
        if (phase_runs(c->run.spec, &desc->phases[i]))
            TRY(count_phase(c, pass, i, desc->phases[i].forward));
    }
    arena_release(&c->ring, (ArenaMark){ 0 });
    return OK;
}

/* Each phase's input and weight gradients run together, as in a whole backward. The ring is not
 * released between phases, because results pass from phase to phase in it. */
static Status count_backward(Counter *c)
{
    const LayerDesc *desc = layer_desc(c->run.layer->kind);
    for (int i = 0; i < desc->n_phases; i++) {
        int phase = layer_backward(desc, i);
        if (!phase_runs(c->run.spec, &desc->phases[phase])) continue;
        TRY(count_phase(c, PASS_INPUT, phase, desc->phases[phase].backward_input));
        TRY(count_phase(c, PASS_WEIGHT, phase, desc->phases[phase].backward_weight));
    }
    return OK;
}

/* An evaluation comes first, because its memory is of interest but its cost is no part of a step's. It
 * leaves the arenas and the totals as they were. */
static Status count_evaluation(Counter *c)
{
    LayerRun *r = &c->run;
    const LayerDesc *desc = layer_desc(r->layer->kind);
    const LayerCountObserver *observer = c->observer;
    r->training = false, c->observer = NULL;
    if (desc->prepare != NULL) TRY(desc->prepare(r));
    if (!r->layer->trains) TRY(count_forward(c, PASS_FORWARD));
    r->training = true, c->observer = observer;
    r->pool = c->pooled ? &c->pool : NULL;
    c->out->keep_eval = c->keep.peak_bytes;
    c->out->pass[PASS_FORWARD] = (OpTotals){ 0 };
    arena_release(&c->keep, (ArenaMark){ 0 });
    c->keep.peak_bytes = c->ring.peak_bytes = 0;
    if (desc->state_bytes > 0) memset(r->state, 0, desc->state_bytes);
    return OK;
}

/* Runs forward, the second forward of a recomputed layer, and backward, and notes the peaks between them. */
static Status count_training(Counter *c)
{
    LayerRun *r = &c->run;
    const LayerDesc *desc = layer_desc(r->layer->kind);
    LayerCount *out = c->out;
    bool recompute = (r->layer->recompute & RECOMPUTE_LAYER) != 0, back = !r->layer->no_backward;
    TRY(count_evaluation(c));
    if (desc->prepare != NULL) TRY(desc->prepare(r));
    ArenaMark kept = arena_mark(&c->keep);
    TRY(count_forward(c, PASS_FORWARD));
    out->keep_peak = c->keep.peak_bytes;
    out->ring_forward = c->ring.peak_bytes;
    if (recompute) arena_release(&c->keep, kept);
    out->keep = c->keep.used_bytes;
    c->keep.peak_bytes = c->keep.used_bytes, c->ring.peak_bytes = 0;
    r->recomputing = recompute;
    if (recompute && back) TRY(count_forward(c, PASS_RECOMPUTE));
    r->recomputing = false;
    size_t ring_recompute = c->ring.peak_bytes;
    c->ring.peak_bytes = 0;
    out->recompute_bytes = c->keep.used_bytes - out->keep;
    if (back) TRY(count_backward(c));
    out->recompute_peak = c->keep.peak_bytes;
    out->ring_gradients = c->ring.peak_bytes;
    out->ring_backward =
        ring_recompute > out->ring_gradients ? ring_recompute : out->ring_gradients;
    out->scratch = c->scratch.peak_bytes;
    return OK;
}

/* A batch, a record and tables of cosines. Only their shapes are used. */
static Status make_inputs(Counter *c, const ModelSpec *s, Arena *count, MicroBatch *m, Record *rec)
{
    LayerRun *r = &c->run;
    int64_t n = m->b * m->t, rows = n / s->ranks.tp;
    TRY(batch_make(count, s, m->b, m->t, m));
    TRY(record_make(count, s, 1, rec));
    TRY(tensor_new1(count, DTYPE_F32, 1 + s->depths, &r->head.scale));
    TRY(tensor_new2(count, DTYPE_F32, m->t * s->ranks.cp, s->rotary.dim / 2, &r->rope.cos));
    r->rope.sin = r->rope.cos;
    TRY(tensor_new1(count, DTYPE_F32, n, &r->head.loss));
    if (!c->out->begins) TRY(tensor_new2(count, s->act, rows, s->hidden, &r->h));
    if (!c->out->ends) TRY(tensor_new2(count, s->act, rows, s->hidden, &r->h_out));
    r->dh = r->h, r->dh_out = r->h_out;
    c->out->stream = arena_rounded((size_t)(rows * s->hidden) * dtype_bytes(s->act));
    c->out->streams = (size_t)s->block_layers * c->out->stream;
    c->out->tensor = s->ranks.tp > 1;
    return OK;
}

/* Gives a layer the weights that it reads but does not own: the table or the head's matrix. Their memory is
 * counted in the layer that owns them, so they lie in an arena that is not counted. */
static Status borrow_weights(const ModelSpec *s, const LayerSpec *layer, Arena *nowhere,
                             LayerWeights *w)
{
    static const ParamRole roles[] = { [WEIGHTS_TABLE] = ROLE_TABLE, [WEIGHTS_HEAD] = ROLE_HEAD };
    const LayerDesc *desc = layer_desc(layer->kind);
    for (int i = 0; i < desc->n_phases; i++) {
        ParamRole role = roles[desc->phases[i].weights];
        int of = layer_weights_of(s, (int)(layer - s->layers), i);
        if (desc->phases[i].weights == WEIGHTS_OWN || w->w[role].data.data != NULL) continue;
        TRY(tensor_new2(nowhere, copies_type(&s->weights), spec_vocab_rows(s), s->hidden,
                        &w->w[role].data));
        if (role_frozen(&s->layers[of], of == 0 ? ROLE_TABLE : ROLE_HEAD)) continue;
        TRY(tensor_new2(nowhere, DTYPE_F32, spec_vocab_rows(s), s->hidden, &w->dw[role]));
    }
    return OK;
}

/* The weights of a layer, and those that it borrows. Builds a model of this layer alone, so that its parameters
 * are counted once and nobody else's are. Scratch keeps the tables until layer_count releases it. */
static Status make_weights(const ModelSpec *s, const LayerSpec *layer, Arena *nowhere,
                           Arena *scratch, ParamTable *table, LayerWeights **out)
{
    ModelSpec one = *s;
    LayerSpec alone = *layer;
    ParamMemory memory;
    one.layers = &alone, one.n_layers = 1;
    TRY(params_build(&one, alone.rank, NULL, scratch, table));
    TRY(params_alloc(&one, table, nowhere, nowhere, true, &memory));
    TRY(params_bind(&one, table, &memory, scratch, out));
    TRY(borrow_weights(s, layer, nowhere, *out));
    return s->recipe.per_use ? OK : recipe_alloc(&one, &alone, nowhere, *out);
}

static Status count_layer(Counter *c, const ModelSpec *s, const LayerSpec *layer, int64_t b,
                          int64_t t, Arena *scratch)
{
    ParamTable table;
    LayerWeights *weights;
    Arena nowhere = { 0 };
    MicroBatch m = { .b = b, .t = t };
    Record record = { 0 };
    TRY(arena_init(&nowhere, "count", MEM_COUNT, COUNT_BYTES));
    TRY(make_weights(s, layer, &nowhere, scratch, &table, &weights));
    const LayerDesc *desc = layer_desc(layer->kind);
    void *state = NULL;
    if (desc->state_bytes > 0) TRY(arena_array_zero(scratch, desc->state_bytes, 1, &state));
    c->run = (LayerRun){ .ex = &c->ex,
                         .spec = s,
                         .layer = layer,
                         .weights = weights,
                         .batch = &m,
                         .tokens = b * t,
                         .rows = b * t / s->ranks.tp,
                         .record = &record,
                         .keep = &c->keep,
                         .ring = &c->ring,
                         .scratch = &c->scratch,
                         .state = state,
                         .training = true };
    c->pooled = desc->pooled != NULL && s->capacity.pool > 0;
    if (c->pooled) {
        c->out->pool = desc->pooled(s, layer, b * t / s->ranks.tp);
        TRY(pool_make(&c->ex, &nowhere, &c->out->pool, 1, &c->pool));
    }
    c->out->params = table.spaces;
    c->out->state_elems = table.elems[BUF_STATE];
    TRY(make_inputs(c, s, &nowhere, &m, &record));
    return count_training(c);
}

/* The backend is a copy of backend_count with another run, because backends are constant tables. */
Status layer_count(const ModelSpec *s, int i, int64_t b, int64_t t,
                   const LayerCountObserver *observer, Arena *scratch, LayerCount *out)
{
    const LayerSpec *l = &s->layers[i];
    const LayerDesc *desc = layer_desc(l->kind);
    *out = (LayerCount){ .begins = desc->begins, .ends = desc->ends, .opens = spec_opens(s, i) };
    Backend counts = backend_count;
    counts.run = count_op;
    Counter c = { .observer = observer, .out = out };
    ArenaMark mark = arena_mark(scratch);
    TRY(arena_init(&c.keep, "keep", MEM_COUNT, COUNT_BYTES));
    TRY(arena_init(&c.ring, "ring", MEM_COUNT, COUNT_BYTES));
    TRY(arena_init(&c.scratch, "scratch", MEM_COUNT, COUNT_BYTES));
    const bool own = observer == NULL || observer->exec == NULL;
    if (own)
        TRY(exec_init(&c.ex, scratch, &c.scratch, 1, CPU_AUTO));
    else
        c.ex = *observer->exec, c.ex.scratch = &c.scratch;
    c.ex.backend = &counts;
    Status status = count_layer(&c, s, l, b, t, scratch);
    if (own) exec_free(&c.ex);
    arena_release(scratch, mark);
    return status;
}
