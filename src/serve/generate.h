/* generate: how `switchyard generate` and `switchyard serve` draw tokens. */
#ifndef SERVE_GENERATE_H
#define SERVE_GENERATE_H

#include <stdint.h>

/* How the next token is drawn. Temperature comes first, then top_k, then top_p. */
typedef struct GenerateOptions {
    const char *prompt;
    int64_t tokens;     /* most new tokens */
    double temperature; /* 0: always the likeliest token */
    int64_t top_k;      /* draw among the k likeliest; 0: among all */
    double top_p;       /* draw among the likeliest of these that have this probability; 1: all */
    uint64_t seed;
} GenerateOptions;

/* Draws an index from logits (n) by temperature, top-k and top-p, with the uniform number u. Overwrites both
 * scratch arrays (n). */
int32_t generate_sample(const float *logits, int64_t n, const GenerateOptions *o, double u,
                        int32_t *scratch_ids, float *scratch_p);

#endif
