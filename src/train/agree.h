/* agree: what the ranks of a run settle together, on their hosts. `host` is the group of all of
 * them for the host's memory; NULL: this rank is alone, and everything holds at once. Collective.
 */
#ifndef TRAIN_AGREE_H
#define TRAIN_AGREE_H

#include "comm/comm.h"

/* OK if it is on all ranks; else, on all of them, the failure of the first that has one. */
Status agree_status(Comm *host, Status mine);

/* Each value becomes the largest that a rank has. */
Status agree_most(Comm *host, int32_t *value, int64_t n);

/* The ranks' texts, in order, in `a`. */
Status agree_texts(Comm *host, const char *mine, Arena *a, const char *const **out);

/* Rank 0's bytes become everyone's. */
Status agree_first(Comm *host, void *data, size_t bytes);

#endif
