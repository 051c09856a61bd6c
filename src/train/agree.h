/* agree: small agreements between the hosts of all ranks. `host` is the group of all ranks over
 * host memory; NULL: this rank is alone. All functions are collective. */
#ifndef TRAIN_AGREE_H
#define TRAIN_AGREE_H

#include "comm/comm.h"

/* OK if the status is OK on all ranks; else all get the failure of the first that has one. */
Status agree_status(Comm *host, Status mine);

/* Each value becomes the largest that a rank has. */
Status agree_most(Comm *host, int32_t *value, int64_t n);

/* The ranks' texts, in order, in `a`. */
Status agree_texts(Comm *host, const char *mine, Arena *a, const char *const **out);

/* Rank 0's bytes become everyone's. */
Status agree_first(Comm *host, void *data, size_t bytes);

#endif
