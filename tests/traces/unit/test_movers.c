/* Which kernels are communication. Names are those of the libraries' own sources and of traces that
 * people publish. */
#include "harness/test.h"

#include "traces/read/movers.h"
#include "traces/sheets/perf.h"

static void a_kernel_of_each_library_is_known_with_its_library(void **state)
{
    (void)state;
    static const struct {
        const char *kernel, *library;
    } row[] = {
        { "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*, unsigned long, ncclWork*)",
          "NCCL" },
        { "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)", "NCCL" },
        { "void rcclGenericKernel<1, false>(ncclDevComm*)", "RCCL" },
        { "mscclKernel_Sum_half_LL", "RCCL" },
        { "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*)", "DeepEP" },
        { "void deep_ep::internode_ll::combine<true, 7168, 9>(void*)", "DeepEP" },
        { "void dpsk::ep::internode::cached_notify<false>(int, int)", "DeepEP" },
        { "_ZN7deep_ep9intranode8dispatchILi8EEEvP4int4", "DeepEP" },
        { "void ep::internode::dispatch<false>(int4*)", "DeepEP" },
        { "void hybrid_ep::dispatch_kernel<hybrid_ep::Config, 4>(hybrid_ep::Params)", "HybridEP" },
        { "void mori::moe::EpDispatchIntraNodeKernel<hip_bfloat16>(mori::moe::Args)", "MORI" },
        { "EpDispatchIntraNodeKernel_bf16", "MORI" },
        { "void mori::moe::EpCombineInterNodeV1Kernel<__hip_bfloat16>()", "MORI" },
        { "void uccl::ep::internode_ll::dispatch<false>(void*)", "UCCL" },
        { "nvshmemi_proxy_barrier_kernel", "NVSHMEM" },
        { "void barrier_on_stream_kernel_threadgroup<(threadgroup_t)1>(int, int)", "NVSHMEM" },
        { "rocshmem_putmem", "rocSHMEM" },
        { "a2a_dispatch_send_kernel", "pplx" },
        { "void pplx::dispatchKernel<1>(int)", "pplx" },
        { "void mscclpp::collective::allreduceAllPairs<__half>(__half*)", "MSCCL++" },
        { "void userbuffers_fp16_sum_inplace_gpu_rr_rs_oop<4>(int, int)", "Transformer Engine" },
        { "kuserbuffers_pushsend(int*, int*)", "Transformer Engine" },
        { "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)",
          "vLLM custom all-reduce" },
        { "void aiter::cross_device_reduce_2stage<opus::bf16, 8>()", "vLLM custom all-reduce" },
        { "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<"
          "(flashinfer::Pattern)1, __nv_bfloat16, 8>(flashinfer::Params)",
          "FlashInfer" },
        { "void tensorrt_llm::kernels::ar_fusion::allreduce_fusion_kernel_oneshot_lamport<1>(int)",
          "TensorRT-LLM" },
        { "void tensorrt_llm::kernels::oneShotAllReduceKernel<__half, 8>(int)", "TensorRT-LLM" },
        { "void tensorrt_llm::kernels::moe_alltoall::moeA2ADispatchKernel<8>(int)",
          "TensorRT-LLM" },
        { "quickreduce::allreduce_prototype_twoshot<AllReduceTwoshot<__half, CodecQ4>, __half>",
          "quick_reduce" },
        { "void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 2>"
          "(c10::BFloat16**)",
          "PyTorch symmetric memory" },
        { "multimem_all_gather_kernel<16>", "PyTorch symmetric memory" },
        { "nvshmem_all_to_all_vdev", "PyTorch symmetric memory" },
        { "comm: all_reduce", "our own recorder" },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const char *library = mover_library(row[i].kernel);
        CHECK_TEXT(library == NULL ? row[i].kernel : library, row[i].library);
        CHECK(!mover_maybe(row[i].kernel));
    }
}

/* Names that have such words, or that have them in arguments of templates alone. */
static void kernels_that_compute_are_neither_communication_nor_listed(void **state)
{
    (void)state;
    static const char *const kernel[] = {
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(float)",
        "void at::native::_scatter_gather_elementwise_kernel<128, 4>(int)",
        "void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(int)",
        "void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<192>>(int)",
        "void cutlass::device_kernel<flash::FlashAttnFwdCombine<cute::tuple<int>>>(int)",
        "void cutlass::device_kernel<dpsk::grouped_gemm::Kernel<nccl_like::Tag>>(int)",
        "_combined_routing_compute",
        "nvjet_tst_192x128_64x4_1x2_h_bz_coopA_TNN",
        "void (anonymous namespace)::softmax_warp_forward<float>(float*)",
        "Memcpy PtoP (Device -> Device)",
        "triton_poi_fused_add_0",
        "moe_sum_reduce_kernel",
        "multi_tensor_apply_kernel",
        "deepep_permute_triton_kernel",
        "deepep_post_reorder_triton_kernel",
        "triton_poi_fused_symm_mem_one_shot_all_reduce_2",
        "triton_red_fused__to_copy_all_reduce_mean_0",
        "triton_poi_fused_all_gather_into_tensor_wait_tensor_3",
    };
    for (size_t i = 0; i < sizeof kernel / sizeof *kernel; i++) {
        if (mover_library(kernel[i]) != NULL || mover_maybe(kernel[i])) fail_msg("%s", kernel[i]);
    }
}

static void unknown_names_that_sound_like_moving_data_are_listed(void **state)
{
    (void)state;
    static const char *const kernel[] = {
        "void acme::token_dispatch<8>(int)",
        "my_all_to_all_kernel",
        "void (anonymous namespace)::combineKernel<bf16>(int)",
        "_allgather_push_kernel",
        "acme_putmem_warp",
        "ring_reduce_scatter",
        "moe_dispatch_gemm",
    };
    for (size_t i = 0; i < sizeof kernel / sizeof *kernel; i++) {
        CHECK(mover_library(kernel[i]) == NULL);
        if (!mover_maybe(kernel[i])) fail_msg("%s", kernel[i]);
    }
}

/* By the operator's name where that says something, else by its first kernel. */
static void kernels_of_inference_libraries_have_their_category(void **state)
{
    (void)state;
    static const struct {
        const char *op, *kernel, *category;
    } row[] = {
        { "flash_attn_3::fwd", "void cutlass::device_kernel<flash::enable_sm90>()", "SDPA_fwd" },
        { "flash_attn_3::bwd", "void cutlass::device_kernel<flash::x>()", "SDPA_bwd" },
        { "aiter::gemm_a16w16", "Cijk_Alik_Bljk_BBS_BH", "GEMM" },
        { "aiter::rmsnorm2d_fwd", "void aiter::rmsnorm2d<bf16>()", "RMSNorm" },
        { "aiter::fmha_v3_varlen_fwd", "fmha_fwd_hd128_bf16_causal", "SDPA_fwd" },
        { "aiter::fused_moe_", "ck_moe_stage1", "MoE_fused" },
        { "sgl_kernel::silu_and_mul", "void act_and_mul_kernel<bf16>()", "elementwise" },
        { "sgl_kernel::fp8_scaled_mm", "void cutlass::device_kernel<x>()", "GEMM" },
        { "sgl_kernel::moe_align_block_size", "moe_align_block_size_kernel", "MoE_aux" },
        { "_C::rotary_embedding", "void vllm::rotary_embedding_kernel<bf16>()", "RoPE_fwd" },
        { "_vllm_fa3_C::fwd", "void cutlass::device_kernel<flash::FlashAttnFwdSm90<x>>()",
          "SDPA_fwd" },
        { "cudaLaunchKernelExC", "void flashinfer::BatchDecodeWithPagedKVCacheKernel<1>()",
          "InferenceAttention" },
        { "cuLaunchKernelEx", "void deep_gemm::sm90_fp8_gemm_1d2d_impl<1>()", "GEMM" },
        { "cuLaunchKernelEx", "triton_poi_fused_add_0", "triton" },
        { "cudaLaunchKernel", "nvjet_tst_192x128_64x4_1x2_h_bz_coopA_TNN", "GEMM" },
        { "hipGraphLaunch", "triton_poi_fused_add_0", "other" },
        { "aten::cat", "void at::native::(anonymous namespace)::CatArrayBatchedCopy<1>()",
          "other" },
        { "aten::mul", "void at::native::elementwise_kernel<128>()", "elementwise" },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        CHECK_TEXT(perf_category_by_words(row[i].op, row[i].kernel), row[i].category);
    CHECK_TEXT(perf_category("aiter::gemm_a16w16", "Cijk_Alik_Bljk_BBS_BH"), "other");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_kernel_of_each_library_is_known_with_its_library),
        TEST(kernels_that_compute_are_neither_communication_nor_listed),
        TEST(unknown_names_that_sound_like_moving_data_are_listed),
        TEST(kernels_of_inference_libraries_have_their_category),
    };
    return TEST_RUN(tests);
}
