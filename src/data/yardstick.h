/* yardstick: bits per byte of byte n-gram models on the held-out documents of some sources, trained
 * on all their other documents: what a trained model's are held against. The texts are what the ids
 * stand for. The hold-out rule is the loader's, so names must be those that training uses. */
#ifndef DATA_YARDSTICK_H
#define DATA_YARDSTICK_H

#include "base/arena.h"
#include "data/loader.h"
#include "data/tokenizer.h"

enum { YARDSTICK_ORDERS = 8 };

typedef struct YardstickConfig {
    const LoaderSource *sources; /* weight is not used */
    int n_sources;
    const Tokenizer *tokenizer;
    double validation;
    const int64_t *orders;
    int n_orders;
} YardstickConfig;

typedef struct YardstickRow {       /* one a source, and one over all behind them */
    int64_t documents[2], bytes[2]; /* of training, held out */
    double bits[YARDSTICK_ORDERS];  /* of the held-out text */
} YardstickRow;

/* rows: n_sources + 1. Speaks on the progress line. */
Status yardstick_run(const YardstickConfig *c, YardstickRow *rows);

#endif
