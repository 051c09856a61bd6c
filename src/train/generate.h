/* generate: a checkpoint's model on one rank that only reads it, and text from it, token by token,
 * with a key/value cache. */
#ifndef TRAIN_GENERATE_H
#define TRAIN_GENERATE_H

#include "train/checkpoint.h"

/* `checkpoint` is a run's folder or a checkpoint's: the latter into `path`, and its configuration
 * for one rank. */
Status infer_config(const char *checkpoint, Arena *a, char path[], Config *out);

/* Opens an engine with the weights of the checkpoint `path`. ERR_ARG: the host has too little
 * memory. */
Status infer_open(Engine *e, const Config *c, const EngineShape *shape, const char *path, Arena *a,
                  CheckpointInfo *info);

typedef struct GenerateOptions {
    const char *prompt;
    int64_t tokens;     /* most new tokens */
    double temperature; /* 0: always the likeliest token */
    int64_t top_k;      /* draw among the k likeliest; 0: among all */
    double top_p;       /* draw among the likeliest of these that have this probability; 1: all */
    uint64_t seed;
} GenerateOptions;

/* The prompt and what follows it, until `tokens` or the end-of-text token. `each` gets every piece
 * of bytes as soon as it is known; if it fails, so does the call. The checkpoint's own configuration
 * says which model and tokenizer. */
typedef Status GenerateEach(const char *bytes, int n);
Status generate_text(const char *checkpoint, const GenerateOptions *o, GenerateEach *each);

/* The index drawn from logits (n) by temperature, top-k and top-p with the uniform number u. The
 * scratch array (n) is overwritten. */
int32_t generate_sample(const float *logits, int64_t n, const GenerateOptions *o, double u,
                        int32_t *scratch_ids, float *scratch_p);

#endif
