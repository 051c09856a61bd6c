/* fits: does a plan fit into the memory of its host and its GPU, and what takes how much? What a plan
 * takes is counted elsewhere (engine.h, plan_run.c). */
#ifndef TRAIN_FITS_H
#define TRAIN_FITS_H

#include "base/host_memory.h"
#include "train/train.h"

/* What an engine takes of the host. */
size_t train_host_bytes(const EnginePlan *p);

/* Are these bytes, and a margin, available now? */
bool train_host_has(uint64_t bytes);
/* Would a GPU hold this plan's arenas together with the rest of `p`? */
bool train_gpu_has(const GpuPlan *p, const EnginePlan *plan);

/* ERR_ARG if there is not so much: "WHAT 5 GiB of memory, 3 GiB are available (...): HINT". */
Status train_check_bytes(const char *what, size_t bytes, const HostMemory *m, const char *hint);

/* The same for the ranks of each host together, with the nearest setting that fits. `m` is what
 * this rank sees of its host, read before any rank takes memory. Collective over `world` (NULL:
 * alone); all ranks give the same answer. */
Status train_check_host(const Config *c, const TrainPlan *p, Comm *world, const HostMemory *m,
                        Arena *a);

/* The table of a plan's memory, for people. */
Status train_print_memory(const TrainPlan *p, Text *out);

#endif
