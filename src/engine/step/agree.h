/* agree: small agreements between all ranks: a status, a maximum, rank 0's bytes, every rank's text.
 * `host` is the group of all ranks over host memory; NULL: this rank is alone. All functions are
 * collective: a rank that failed must still call them, or the others wait for it until the timeout.
 * Not for tensors of a step: those go through ops (kernels/exchange/exchange.h). */
#ifndef ENGINE_STEP_AGREE_H
#define ENGINE_STEP_AGREE_H

#include "engine/comm/comm.h"

/* OK if the status is OK on all ranks. Otherwise all ranks get the failure of the lowest rank that
 * failed, with its sentence. */
Status agree_status(Comm *host, Status mine);

/* Each value becomes the maximum over the ranks. */
Status agree_most(Comm *host, int32_t *value, int64_t n);

/* Gathers the texts of all ranks, in the order of ranks, in `a`. */
Status agree_texts(Comm *host, const char *mine, Arena *a, const char *const **out);

/* Copies rank 0's bytes to all ranks. */
Status agree_first(Comm *host, void *data, size_t bytes);

#endif
