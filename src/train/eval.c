#include "train/eval.h"

#include <string.h>

static int64_t load_elems(const Engine *e)
{
    return e->spec.n_moe * e->shape.domains * e->spec.experts;
}

Status eval_make(Evaluator *v, const Engine *e, const int32_t *token_bytes, Arena *a)
{
    TRY(batch_new(a, e->shape.micro_batch, e->shape.sequence, &v->batch));
    TRY(ARENA_ZEROED(a, load_elems(e), &v->load));
    v->token_bytes = token_bytes;
    return OK;
}

static Status add_batch(Evaluator *v, Engine *e, int source, EvalMetrics *out)
{
    const float *losses = NULL;
    TRY(engine_losses(e, &v->batch, &losses));
    const int32_t *target = v->batch.target.data, *load = engine_load(e);
    int64_t n = losses == NULL ? 0 : tensor_elems(&v->batch.target); /* of the head's stage */
    for (int64_t i = 0; i < n; i++) {
        if (target[i] < 0) continue;
        out->nats[source] += (double)losses[i];
        out->targets[source]++;
        if (v->token_bytes != NULL) out->bytes[source] += v->token_bytes[target[i]];
    }
    for (int64_t i = 0; i < load_elems(e); i++) v->load[i] += load[i];
    return OK;
}

Status eval_run(Evaluator *v, Engine *e, Loader *l, int64_t sequences, int64_t step,
                EvalMetrics *out)
{
    *out = (EvalMetrics){ .step = step, .n_domains = loader_sources(l), .load = v->load };
    memset(v->load, 0, (size_t)load_elems(e) * sizeof *v->load);
    int64_t total = 0, held[CONFIG_SOURCES_MAX];
    for (int d = 0; d < out->n_domains; d++) {
        TRY(loader_held_sequences(l, d, &held[d]));
        total += held[d];
    }
    for (int d = 0; d < out->n_domains; d++) {
        int64_t n = held[d];
        if (total > sequences) n = (n * sequences + total - 1) / total;
        for (int64_t first = 0; first < n; first += e->shape.micro_batch) {
            TRY(loader_held(l, d, first, e->shape.micro_batch, &v->batch));
            TRY(add_batch(v, e, d, out));
        }
    }
    return OK;
}
