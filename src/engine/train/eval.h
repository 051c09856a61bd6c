/* eval: the loss on held-out text, by domain, in nats a token and bits a byte. Which text is held out is
 * decided in corpus/shard/loader.h. */
#ifndef ENGINE_TRAIN_EVAL_H
#define ENGINE_TRAIN_EVAL_H

#include "engine/checkpoint/checkpoint.h"
#include "engine/host/progress.h"
#include "engine/train/heartbeat.h"
#include "engine/train/metrics.h"

/* Memory of evaluations of one engine, made once: a batch, sums and loads. Arrays lie in the arena
 * of eval_make. */
typedef struct Evaluator {
    Engine *engine;
    Batch batch;                /* micro_batch sequences, in the arena of eval_make */
    int64_t *load, load_elems;  /* (MoE layers, domains, E) */
    const int32_t *token_bytes; /* (vocab) or NULL */
    EvalSum *sums;              /* (ranks, CONFIG_SOURCES_MAX) */
    /* By source and held-out document (loader_held_document), where eval_documents asked for it. */
    EvalSum *document[CONFIG_SOURCES_MAX];
    struct Questions *questions; /* of eval.choices (eval_choices.h); NULL: none */
    Progress *bar;               /* NULL: none is shown */
    Heartbeat *beat;             /* NULL: none */
} Evaluator;

/* token_bytes NULL: there are no bits a byte. It must outlive the Evaluator. */
Status eval_make(Evaluator *v, Engine *e, const int32_t *token_bytes, Arena *a);

/* ERR_ARG: nothing is held out. The sentence says which setting changes that. */
Status eval_check(const Config *c, const Loader *l);

/* Makes eval_run also add up each held-out document, with memory from `a`. A document's targets are its
 * tokens, except the first token of a source, which nothing precedes. For an engine on one rank. */
Status eval_documents(Evaluator *v, const Loader *l, Arena *a);

/* Evaluates up to `sequences` held-out sequences, from each source in proportion to its length.
 * ERR_NUMERIC: a loss is not finite. The sentence names the bad parameter, if there is one. ERR_CHANGED: the data
 * changed under a rank, and all ranks return it. Collective. */
Status eval_run(Evaluator *v, Loader *l, int64_t sequences, int64_t step, EvalMetrics *out);

#endif
