/* delta_kernels: which kernel runs the gated delta rule on a GPU: `chunk`, products of chunks of 64 tokens, whose
 * gradients take 181 KB of shared memory (nv/delta_chunk.cuh); or `plain`, token by token, for all (delta_plain.cu). */
#include "kernels/delta/delta_kernels.h"

#include "kernels/delta/delta.h"

#include <stdio.h>

enum { CHUNK_WIDTH = 128, CHUNK_STEP = 8, CHUNK_TOKENS = 16 };

/* All four ops begin with the arguments of forward. */
static bool chunk_can(const void *call, KernelWhy *why)
{
    const DeltaRuleFwd *a = call;
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

static void chunk_needs(char out[KERNEL_NEEDS_MAX])
{
    (void)snprintf(out, KERNEL_NEEDS_MAX,
                   "bf16; heads multiples of %d up to %d wide; from %d tokens on; 181 KB shared",
                   CHUNK_STEP, CHUNK_WIDTH, CHUNK_TOKENS);
}

/* Of an op: both rows, the table, and what the table of ops names. */
#define OP_KERNELS(op, way, plain_workspace)                                                       \
    size_t delta_chunk_##way##_workspace(const void *call);                                        \
    size_t delta_plain_##way##_workspace(const void *call);                                        \
    OpRun delta_chunk_##way, delta_plain_##way;                                                    \
    static const KernelDesc way##_rows[] = {                                                       \
        { .name = "chunk",                                                                         \
          .vendor = VENDOR_NVIDIA,                                                                 \
          .capability_least = 90,                                                                  \
          .capability_most = 109,                                                                  \
          .needs = chunk_needs,                                                                    \
          .can = chunk_can,                                                                        \
          .workspace = VENDOR_NVIDIA_OP(delta_chunk_##way##_workspace),                            \
          .run = VENDOR_NVIDIA_OP(delta_chunk_##way),                                              \
          .work = WORK_DELTA },                                                                    \
        { .name = "plain",                                                                         \
          .vendor = VENDOR_ANY,                                                                    \
          .workspace = (plain_workspace),                                                          \
          .run = GPU_OP(delta_plain_##way),                                                        \
          .work = WORK_DELTA },                                                                    \
    };                                                                                             \
    const KernelTable op##_kernels = { NULL, way##_rows, 2 };                                      \
    Status op##_gpu(Exec *ex, const void *args)                                                    \
    {                                                                                              \
        return kernels_run(ex, &op##_kernels, #op, 0, args);                                       \
    }                                                                                              \
    size_t op##_gpu_workspace(const Exec *ex, const void *args)                                    \
    {                                                                                              \
        (void)ex;                                                                                  \
        return kernels_workspace(&op##_kernels, 0, args);                                          \
    }
OP_KERNELS(delta_rule_fwd, fwd, NULL)
OP_KERNELS(delta_rule_bwd, bwd, GPU_OP(delta_plain_bwd_workspace))
OP_KERNELS(delta_span_fwd, span_fwd, NULL)
OP_KERNELS(delta_span_bwd, span_bwd, NULL)
