/* words: values of options of `switchyard plan` that are more than a number. */
#ifndef APP_OPTIONS_WORDS_H
#define APP_OPTIONS_WORDS_H

#include "engine/base/arena.h"

/* All are ERR_ARG with the option and its value for what they do not take. */

/* Reads a number of tokens, at least 1: 15T, 3e12, 500B. */
Status words_tokens(const char *text, double *out);
/* Reads --cluster NAME:GPUS. The name lies in `a`. Without a colon *gpus stays as it was, and must not be 0. */
Status words_cluster(const char *text, Arena *a, const char **name, int64_t *gpus);
/* Reads --scale N,N...: at most `most` numbers of GPUs. */
Status words_scale(const char *text, int most, int64_t *gpus, int *n);

#endif
