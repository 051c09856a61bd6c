/* generate: opens the model of a checkpoint on one rank without training it, and generates text token by
 * token with a key/value cache. Evaluation opens models with it, too (infer_open). Not for serving: one
 * sequence at a time, on one rank. */
#ifndef ENGINE_TRAIN_GENERATE_H
#define ENGINE_TRAIN_GENERATE_H

#include "engine/checkpoint/checkpoint.h"

/* `checkpoint` is a run's folder or a checkpoint's. Sets `path` to the checkpoint's folder, and *out to its
 * configuration, changed to one rank. */
Status infer_config(const char *checkpoint, Arena *a, char path[], Config *out);

/* Opens an engine with the weights of the checkpoint `path`, or with their average. ERR_ARG: the host
 * has too little memory, or the checkpoint no average. */
Status infer_open(Engine *e, const Config *c, const EngineShape *shape, const char *path,
                  bool average, Arena *a, CheckpointInfo *info);

/* How the next token is drawn. Temperature comes first, then top_k, then top_p. */
typedef struct GenerateOptions {
    const char *prompt;
    int64_t tokens;     /* most new tokens */
    double temperature; /* 0: always the likeliest token */
    int64_t top_k;      /* draw among the k likeliest; 0: among all */
    double top_p;       /* draw among the likeliest of these that have this probability; 1: all */
    uint64_t seed;
} GenerateOptions;

/* Writes the prompt and its continuation, until `tokens` new tokens or the end-of-text token. `each` gets
 * every piece of bytes as soon as it is known; its failure ends the call. Model and tokenizer are those
 * of the checkpoint's configuration. */
typedef Status GenerateEach(const char *bytes, int n);
Status generate_text(const char *checkpoint, const GenerateOptions *o, GenerateEach *each);

/* Draws an index from logits (n) by temperature, top-k and top-p, with the uniform number u. Overwrites both
 * scratch arrays (n). */
int32_t generate_sample(const float *logits, int64_t n, const GenerateOptions *o, double u,
                        int32_t *scratch_ids, float *scratch_p);

#endif
