/* ladder: what each feature or each further rank brings to a training step. */
#ifndef LADDER_LADDER_H
#define LADDER_LADDER_H

#include "engine/config/config.h"

/* The model in its plainest form with micro-batches of 1, 2, 4 ... up to the configured one, then
 * with one more feature in each row: tokens a second, memory, launches and waits a step. Texts of
 * settings lie in `a`. */
Status bench_ladder(const Config *config, int64_t steps, Arena *a, Text *out);
/* The model on 1, 2, 4 ... and `ranks` threads of this process, a row each: tokens a second in all
 * and per rank, and the latter over the first row's. `config` is for all ranks. Fewer ranks keep
 * the sequences and threads per rank, and the axes of the mesh as far as they divide. */
Status bench_scale(const Config *config, int ranks, int64_t steps, Text *out);

#endif
