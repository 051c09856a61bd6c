/* fits: checks whether a plan fits into the memory of its host and its GPU.
 * The bytes of a plan are counted elsewhere (engine.h, plan_run.c). */
#ifndef ENGINE_TRAIN_FITS_H
#define ENGINE_TRAIN_FITS_H

#include "engine/host/host_memory.h"
#include "engine/train/train.h"

/* Bytes of host memory that an engine takes: all of it on the CPU, tables and pinned memory on a GPU. */
size_t train_host_bytes(const EnginePlan *p);

/* Are these bytes, and a margin, available now? */
bool train_host_has(uint64_t bytes);
/* Does the GPU hold this plan's arenas together with the other bytes of `p`, with this share of it left free? */
bool train_gpu_has(const GpuPlan *p, const EnginePlan *plan, double margin);

/* ERR_ARG if fewer bytes are available: "WHAT 5 GiB of memory, 3 GiB are available (...): HINT". */
Status train_check_bytes(const char *what, size_t bytes, const HostMemory *m, const char *hint);

/* Checks the ranks of each host together; the error has the nearest setting that fits. `m` is what this
 * rank sees of its host, read before any rank takes memory. Collective over `world` (NULL: alone). All
 * ranks return the same status. */
Status train_check_host(const Config *c, const TrainPlan *p, Comm *world, const HostMemory *m,
                        Arena *a);

#endif
