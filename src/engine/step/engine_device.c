/* engine_device: see the header. */
#include "engine/step/engine_device.h"

#include "engine/gpu/gpu.h"
#include "engine/step/engine_memory.h"
#include "kernels/attention/attention_kernels.h"
#include "kernels/core/libraries.h"

static const char *const vendors[] = { "no GPU", "NVIDIA's GPUs", "AMD's GPUs" }; /* GpuRuntime */

/* run.device=cuda or hip in a build for the other. A build without any GPU says so by itself. */
static Status check_word(const Config *c)
{
    bool hip = c->run_device == DEVICE_HIP;
    if (gpu_runtime == GPU_RUNTIME_NONE || (!hip && c->run_device != DEVICE_CUDA)) return OK;
    if (hip == (gpu_runtime == GPU_RUNTIME_HIP)) return OK;
    return FAIL(ERR_DEVICE,
                "run.device=%s asks for %s, and this program was built for %s: build it with "
                "`make %s=1`, or set run.device=gpu",
                hip ? "hip" : "cuda", vendors[hip ? GPU_RUNTIME_HIP : GPU_RUNTIME_CUDA],
                vendors[gpu_runtime], hip ? "HIP" : "CUDA");
}

static Status check_attention_kernel(const Config *c)
{
    AttentionKernel kernel = (AttentionKernel)c->attention_kernel;
    const char *name = attention_words[kernel].name;
    if (!attention_kernel_wants_gpu(kernel)) return OK;
    if (!engine_wants_gpu(c))
        return FAIL(ERR_ARG, "attention.kernel=%s needs a GPU, and run.device=auto found none",
                    name);
    if (kernel == ATTENTION_AUTO) return OK;
    GpuVendor vendor = attention_fwd_kernels.row[kernel - 1].vendor;
    if (vendor == VENDOR_ANY || op_vendor == VENDOR_ANY || vendor == op_vendor) return OK;
    return FAIL(ERR_DEVICE,
                "attention.kernel=%s is for %s, and this program was built for %s: leave it auto",
                name, vendors[vendor == VENDOR_AMD ? GPU_RUNTIME_HIP : GPU_RUNTIME_CUDA],
                vendors[gpu_runtime]);
}

/* Ranks store into each other's memory and wait for flags there. On AMD this takes memory of another kind
 * than ours, and nothing here could test it. */
static Status check_exchange(const Config *c)
{
    if (c->moe_exchange != EXCHANGE_DIRECT || gpu_runtime != GPU_RUNTIME_HIP) return OK;
    if (!engine_wants_gpu(c)) return OK;
    return FAIL(ERR_DEVICE,
                "moe.exchange=direct is for NVIDIA's GPUs, and this program was built for AMD's: "
                "leave it auto");
}

Status engine_check_device(const Config *c)
{
    TRY(check_attention_kernel(c));
    if (!engine_wants_gpu(c)) return OK;
    TRY(check_word(c));
    TRY(check_exchange(c));
    if (c->run_compute != COMPUTE_F16) return OK;
    return FAIL(ERR_UNSUPPORTED, "run.compute=f16 has no kernels on a GPU: set run.compute=bf16, "
                                 "whose range needs no scale of the loss, or run.device=cpu");
}
