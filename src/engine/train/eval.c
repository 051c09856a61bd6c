/* eval: runs the held-out documents through the model and adds up losses by domain. */
#include "engine/train/eval.h"

#include "engine/step/agree.h"
#include "engine/step/engine_memory.h"

#include <math.h>
#include <string.h>

/* Memory for all evaluations of a run. */
Status eval_make(Evaluator *v, Engine *e, const int32_t *token_bytes, Arena *a)
{
    const Mesh *m = e->shape.mesh;
    TRY(batch_new(a, e->shape.micro_batch, e->config->data_sequence, &v->batch));
    if (m != NULL) TRY(ARENA_NEW(a, m->ranks * CONFIG_SOURCES_MAX, &v->sums));
    v->load_elems = e->spec.n_moe * e->shape.domains * e->spec.experts;
    TRY(ARENA_ZEROED(a, v->load_elems, &v->load));
    v->engine = e;
    v->token_bytes = token_bytes;
    return OK;
}

Status eval_check(const Config *c, const Loader *l)
{
    int64_t n = 0;
    for (int d = 0; d < loader_sources(l) && n == 0; d++) TRY(loader_held_sequences(l, d, &n));
    if (n > 0) return OK;
    return FAIL(ERR_ARG,
                "nothing is held out with data.validation %g: set it to the share of the text to "
                "hold out, for instance 0.02, or take more text",
                c->data_validation);
}

Status eval_documents(Evaluator *v, const Loader *l, Arena *a)
{
    for (int d = 0; d < loader_sources(l); d++)
        TRY(ARENA_ZEROED(a, loader_held_documents(l, d), &v->document[d]));
    return OK;
}

/* The position of a batch in a source's held-out stream. */
typedef struct HeldPlace {
    const Loader *loader;
    int source;
    int64_t token;    /* of the stream: the batch's first */
    int64_t document; /* the document of the last target */
} HeldPlace;

/* The sum of the document that target i of the batch belongs to. Target i is the token after token i of the
 * stream. */
static EvalSum *document_of(const Evaluator *v, HeldPlace *at, int64_t i)
{
    int64_t end = 0;
    while (loader_held_document(at->loader, at->source, at->document, &end),
           end <= at->token + i + 1)
        at->document++;
    return &v->document[at->source][at->document];
}

/* Adds a batch whose first `end` sequences count. The others become padding, so that the experts'
 * load does not count them either. */
static Status add_batch(Evaluator *v, HeldPlace *at, int64_t end, EvalSum *sum)
{
    Engine *e = v->engine;
    const float *losses = NULL; /* stays NULL on stages without the head */
    int64_t rows = e->shape.micro_batch, tokens = e->config->data_sequence;
    int32_t *given = v->batch.target.data;
    for (int64_t i = end * tokens; i < rows * tokens; i++) given[i] = -1;
    TRY(engine_losses(e, &v->batch, &losses));
    const int32_t *target = engine_host(&e->arenas, &e->io.batch.target), *load = engine_load(e);
    const Mesh *m = e->shape.mesh;
    if (m != NULL && m->at.tp > 0) losses = NULL; /* the first rank of tp counts them */
    for (int64_t i = 0; losses != NULL && i < rows * e->shape.sequence; i++) {
        if (target[i] < 0) continue;
        const EvalSum one = { .nats = (double)losses[i],
                              .targets = 1,
                              .bytes = v->token_bytes == NULL ? 0 : v->token_bytes[target[i]] };
        eval_add(sum, &one);
        if (v->document[at->source] != NULL) eval_add(document_of(v, at, i), &one);
    }
    for (int64_t i = 0; i < v->load_elems; i++) v->load[i] += load[i];
    return OK;
}

/* Adds up the sums of all ranks in the order of ranks, so that all have the same result. */
static Status add_ranks(const Evaluator *v, const Mesh *m, EvalMetrics *out)
{
    if (m == NULL) return OK;
    Comm *world = m->group[GROUP_WORLD];
    const int64_t bytes = sizeof out->domain;
    Tensor in = { out->domain, DTYPE_U8, 1, { bytes } };
    Tensor gathered = { v->sums, DTYPE_U8, 1, { bytes * world->size } };
    TRY(comm_all_gather(world, &in, &gathered));
    for (int d = 0; d < out->n_domains; d++) {
        out->domain[d] = (EvalSum){ 0 };
        for (int r = 0; r < world->size; r++) {
            eval_add(&out->domain[d], &v->sums[r * CONFIG_SOURCES_MAX + d]);
        }
    }
    return OK;
}

/* Fails if a loss is not finite. If an update left a bad parameter, the error names that instead. */
static Status check_losses(EngineParams *w, const Loader *l, int64_t step, const EvalMetrics *v)
{
    for (int d = 0; d < v->n_domains; d++) {
        if (isfinite(v->domain[d].nats)) continue;
        TRY(engine_check_numbers(w, step));
        return FAIL(ERR_NUMERIC,
                    "step %lld: the held-out loss of %s is %g, though all weights are finite: take "
                    "an earlier checkpoint, or lower optimizer.lr",
                    (long long)step, loader_source_name(l, d), v->domain[d].nats);
    }
    return OK;
}

/* Deals micro-batches to the data-parallel ranks round robin. All ranks run equally many of them, because each
 * runs collectives; past the end they run padding. */
Status eval_run(Evaluator *v, Loader *l, int64_t sequences, int64_t step, EvalMetrics *out)
{
    Engine *e = v->engine;
    *out = (EvalMetrics){ .step = step, .n_domains = loader_sources(l), .load = v->load };
    memset(v->load, 0, (size_t)v->load_elems * sizeof *v->load);
    const Mesh *m = e->shape.mesh;
    int64_t total = 0, held[CONFIG_SOURCES_MAX] = { 0 }, micro = e->shape.micro_batch;
    int64_t ranks = m == NULL ? 1 : mesh_data_ranks(&m->shape);
    int64_t mine = m == NULL ? 0 : mesh_data_rank(m) * micro;
    Comm *world = m == NULL ? NULL : m->group[GROUP_WORLD];
    for (int d = 0; d < out->n_domains; d++) {
        TRY(loader_held_sequences(l, d, &held[d]));
        total += held[d];
    }
    if (v->bar != NULL) v->bar->total = total < sequences ? total : sequences;
    for (int d = 0; d < out->n_domains; d++) {
        int64_t n = held[d];
        if (total > sequences) n = (n * sequences + total - 1) / total;
        HeldPlace at = { .loader = l, .source = d };
        for (int64_t first = 0; first < n; first += ranks * micro) {
            at.token = (first + mine) * e->config->data_sequence;
            int64_t end = n - first - mine;
            /* data that changed fails on all ranks, so that they can save what was trained */
            TRY(agree_status(world, loader_held(l, d, first + mine, micro, &v->batch)));
            TRY(add_batch(v, &at, end > 0 ? end : 0, &out->domain[d]));
            TRY(progress_add(v->bar, ranks * micro));
            heartbeat_again(v->beat);
        }
    }
    TRY(add_ranks(v, m, out));
    return check_losses(&e->params, l, step, out);
}
