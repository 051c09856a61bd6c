/* plan_host: is the memory there that a plan takes of its host? */
#ifndef TRAIN_PLAN_HOST_H
#define TRAIN_PLAN_HOST_H

#include "base/host_memory.h"
#include "train/train.h"

/* A row of a plan's table. */
Status train_print_bytes(Text *out, const char *name, size_t bytes, const char *what);

/* What an engine takes of the host. */
size_t train_host_bytes(const EnginePlan *p);

/* Are so many bytes there now, and a few more? */
bool train_host_has(uint64_t bytes);

/* ERR_ARG if there is not so much: "WHAT 5 GiB of memory, 3 GiB are available (...): HINT". */
Status train_check_bytes(const char *what, size_t bytes, const HostMemory *m, const char *hint);

/* The same for the ranks of each host together, with the nearest setting that fits. `m` is what
 * this rank sees of its host, read before any rank takes memory. Collective over `world` (NULL:
 * alone); all ranks give the same answer. */
Status train_check_host(const Config *c, const TrainPlan *p, Comm *world, const HostMemory *m,
                        Arena *a);

/* Would a GPU have room for other arenas beside the rest of its plan? */
bool train_gpu_has(const GpuPlan *p, const EnginePlan *plan);

/* Would a plan fit, and what would be taken in all? */
typedef bool TrainFits(const void *state, const EnginePlan *plan, size_t *bytes);

/* "train.micro_batch=2 fits with 3 GiB": the nearest setting of smaller micro-batches, then of
 * recompute, that fits; if there is none, that `larger` is to be taken. */
enum { TRAIN_HINT_BYTES = 192 };
Status train_nearest(const Config *c, const EngineShape *shape, TrainFits *fits, const void *state,
                     const char *larger, char out[TRAIN_HINT_BYTES]);

#endif
