/* yardstick: a baseline for a trained model's bits per byte. It trains byte n-gram models on the training
 * documents of some sources and measures them on the held-out ones. The texts are decoded from the ids.
 * The hold-out rule is the loader's, so the sources must have the names that training uses. */
#ifndef NGRAM_YARDSTICK_H
#define NGRAM_YARDSTICK_H

#include "corpus/shard/loader.h"
#include "corpus/tokenizer/tokenizer.h"
#include "engine/base/arena.h"

enum { YARDSTICK_ORDERS = 8 };

/* The caller owns everything that a configuration points to, until yardstick_run returns. */
typedef struct YardstickConfig {
    const LoaderSource *sources; /* weight is not used */
    int n_sources;
    const Tokenizer *tokenizer;
    /* Share of the documents that is held out, as in LoaderConfig. */
    double validation;
    /* Lengths of n-grams in bytes, 1 to 8 each. Every order is a model of its own. */
    const int64_t *orders;
    int n_orders;
} YardstickConfig;

typedef struct YardstickRow {       /* one a source, and one over all behind them */
    int64_t documents[2], bytes[2]; /* of training, held out */
    double bits[YARDSTICK_ORDERS];  /* of the held-out text */
} YardstickRow;

/* rows: n_sources + 1. ERR_ARG: a source has no document. Speaks on the progress line. */
Status yardstick_run(const YardstickConfig *c, YardstickRow *rows);

#endif
