/* eval: the loss on held-out text, by domain, in nats a token and bits a byte. */
#ifndef TRAIN_EVAL_H
#define TRAIN_EVAL_H

#include "base/progress.h"
#include "train/metrics.h"

typedef struct Evaluator {
    Engine *engine;
    Batch batch;                /* micro_batch sequences, in the arena of eval_make */
    int64_t *load, load_elems;  /* (MoE layers, domains, E) */
    const int32_t *token_bytes; /* (vocab) or NULL */
    EvalSum *sums;              /* (ranks, CONFIG_SOURCES_MAX) */
    /* By source and held-out document (loader_held_document), where eval_documents asked for it. */
    EvalSum *document[CONFIG_SOURCES_MAX];
    Progress *bar; /* NULL: none is shown */
} Evaluator;

Status eval_make(Evaluator *v, Engine *e, const int32_t *token_bytes, Arena *a);

/* ERR_ARG: nothing is held out, so there is nothing to evaluate; the sentence says why and what to
 * do. */
Status eval_check(const Config *c, const Loader *l);

/* Makes eval_run add up what each held-out document has, too: memory from `a`. A document's targets are
 * its tokens but for the first one of a source, which nothing precedes. For an engine that is alone. */
Status eval_documents(Evaluator *v, const Loader *l, Arena *a);

/* Up to `sequences` held-out sequences, spread over the sources by how many each has. ERR_NUMERIC:
 * a loss is not finite; the parameter that is to blame, if one is. */
Status eval_run(Evaluator *v, Loader *l, int64_t sequences, int64_t step, EvalMetrics *out);

#endif
