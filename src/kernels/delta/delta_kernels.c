/*
 * delta_kernels: which kernel runs the gated delta rule on a GPU. `chunk` makes matrix products of chunks of 64 tokens
 * (nv/delta_chunk.cuh); `plain` walks the recurrence token by token, for all GPUs and types (delta_plain.cu).
 */
#include "kernels/core/kernels.h"
#include "kernels/delta/delta.h"

#include <stdio.h>

enum { CHUNK_WIDTH = 128, CHUNK_STEP = 8, CHUNK_TOKENS = 16 };

static bool chunk_fits(const DeltaRuleFwd *a, KernelWhy *why)
{
    const DeltaDims *d = &a->dims;
    if (a->x.dtype != DTYPE_BF16)
        return kernel_refuses(why, true, "tensors are %s, it takes bf16", dtype_name(a->x.dtype));
    if (a->sequence < CHUNK_TOKENS)
        return kernel_refuses(why, true, "%lld tokens: it is used from %d on",
                              (long long)a->sequence, CHUNK_TOKENS);
    if (d->key <= CHUNK_WIDTH && d->value <= CHUNK_WIDTH && d->key % CHUNK_STEP == 0 &&
        d->value % CHUNK_STEP == 0)
        return true;
    return kernel_refuses(why, false,
                          "heads are %lld and %lld wide, it takes multiples of %d up to %d",
                          (long long)d->key, (long long)d->value, CHUNK_STEP, CHUNK_WIDTH);
}

static bool chunk_fwd_can(const void *call, KernelWhy *why) { return chunk_fits(call, why); }

static bool chunk_bwd_can(const void *call, KernelWhy *why)
{
    return chunk_fits(&((const DeltaRuleBwd *)call)->of, why);
}

static void chunk_needs(char out[KERNEL_NEEDS_MAX])
{
    (void)snprintf(out, KERNEL_NEEDS_MAX,
                   "bf16; heads multiples of %d up to %d wide; %d tokens or more", CHUNK_STEP,
                   CHUNK_WIDTH, CHUNK_TOKENS);
}

size_t delta_chunk_fwd_workspace(const void *call), delta_chunk_bwd_workspace(const void *call);
size_t delta_plain_fwd_workspace(const void *call), delta_plain_bwd_workspace(const void *call);
OpRun delta_chunk_fwd, delta_chunk_bwd, delta_plain_fwd, delta_plain_bwd;

#define ROW_PAIR(way)                                                                              \
    {                                                                                              \
        { .name = "chunk",                                                                         \
          .vendor = VENDOR_NVIDIA,                                                                 \
          .capability_least = 80,                                                                  \
          .needs = chunk_needs,                                                                    \
          .can = chunk_##way##_can,                                                                \
          .workspace = VENDOR_NVIDIA_OP(delta_chunk_##way##_workspace),                            \
          .run = VENDOR_NVIDIA_OP(delta_chunk_##way),                                              \
          .work = WORK_GEMM },                                                                     \
        {                                                                                          \
            .name = "plain", .vendor = VENDOR_ANY,                                                 \
            .workspace = GPU_OP(delta_plain_##way##_workspace), .run = GPU_OP(delta_plain_##way),  \
            .work = WORK_GEMM                                                                      \
        }                                                                                          \
    }
static const KernelDesc fwd_rows[] = ROW_PAIR(fwd);
static const KernelDesc bwd_rows[] = ROW_PAIR(bwd);

static const KernelTable fwd_kernels = { NULL, fwd_rows, 2 }, bwd_kernels = { NULL, bwd_rows, 2 };

Status delta_rule_fwd_gpu(Exec *ex, const void *args)
{
    return kernels_run(ex, &fwd_kernels, "delta_rule_fwd", 0, args);
}

Status delta_rule_bwd_gpu(Exec *ex, const void *args)
{
    return kernels_run(ex, &bwd_kernels, "delta_rule_bwd", 0, args);
}

size_t delta_rule_fwd_gpu_workspace(const Exec *ex, const void *args)
{
    (void)ex;
    return kernels_workspace(&fwd_kernels, 0, args);
}

size_t delta_rule_bwd_gpu_workspace(const Exec *ex, const void *args)
{
    (void)ex;
    return kernels_workspace(&bwd_kernels, 0, args);
}
