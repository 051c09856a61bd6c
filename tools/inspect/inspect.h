/* inspect: statistics of a shard, as text for a terminal. pages/charts/page.h shows the same as a web page. */
#ifndef INSPECT_INSPECT_H
#define INSPECT_INSPECT_H

#include "corpus/tokenizer/tokenizer.h"
#include "engine/base/text.h"

/* The last bin has no upper end: documents of 2^32 tokens and more. */
enum { INSPECT_TOP = 20, INSPECT_BINS = 33, INSPECT_QUANTILES = 5, INSPECT_SAMPLES = 4 };

typedef struct InspectToken {
    int32_t id;
    int64_t count;
} InspectToken;

/* How a document begins. */
typedef struct InspectSample {
    int64_t document;
    int32_t id[256];
    int n;
    bool cut;
} InspectSample;

typedef struct Inspect {
    const char *prefix; /* the caller's */
    int id_bytes;
    int64_t documents, tokens, bytes; /* bytes: size of both files */
    int64_t shortest, longest;        /* tokens of a document */
    double mean;
    int64_t sequence; /* the keys are of sequences as long as this ... */
    double keys;      /* ... the mean number that a query sees, of its own document */
    int64_t quantile[INSPECT_QUANTILES]; /* at inspect_quantiles */
    int64_t bin[INSPECT_BINS];           /* documents of 2^b .. 2^(b+1)-1 tokens; 0 is in bin 0 */
    int32_t largest_id;
    int64_t distinct;              /* ids that occur */
    InspectToken top[INSPECT_TOP]; /* the most frequent ids, most first; equal ones by id */
    int n_top;
    /* The first document, and others evenly between it and the end. */
    InspectSample sample[INSPECT_SAMPLES];
    int n_samples;
} Inspect;

extern const double inspect_quantiles[INSPECT_QUANTILES];

/* Takes memory for the length of each document and the count of each id. sequence: tokens of a training sequence. */
Status inspect_scan(const char *prefix, int64_t sequence, Arena *a, Inspect *out);

/* With a tokenizer (or NULL), ids are shown with their text. */
Status inspect_text(const Inspect *r, const Tokenizer *t, Text *out);

/* The range [first, last] of bins that are not empty. */
void inspect_bins(const Inspect *r, int *first, int *last);

/* The text of an id in quotes; the name of an id without text in brackets. */
Status inspect_token_text(const Tokenizer *t, int32_t id, Text *out);

/* How a document begins: its text, or without a tokenizer its ids. */
Status inspect_sample(const InspectSample *s, const Tokenizer *t, Text *out);

/* inspect_page.c: a page of what a shard holds: figures, lengths, most frequent ids, first
 * document. With a tokenizer ids are shown with their text; NULL: ids alone. */
Status inspect_html(const Inspect *r, const Tokenizer *t, Text *out);

#endif
