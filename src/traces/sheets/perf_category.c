/* perf_category: the kind of an operator by its name. The table of names comes first, then how the
 * name begins. Last comes the first kernel that the operator launched, if that is one of PyTorch's
 * own. The names of categories are TraceLens', so that reports can be compared. */
#include "traces/sheets/perf.h"

#include <string.h>

/* A category and the operators that are in it by name, or words of their names. */
typedef struct Category {
    const char *name, *operators; /* with | between */
} Category;

/* Words in names of operators and kernels, in this order: of aiter, SGLang, vLLM, FlashInfer,
 * flash_attn_3, DeepGEMM and cuBLAS. TraceLens does not look at them. */
static const Category WORDS[] = {
    { "GroupedGEMM_fwd", "groupedlinear" },
    { "GEMM", "layernormlinear|layernormmlp|linearwithgrad|::linear|_linear" },
    { "SDPA_bwd",
      "flash_bwd|fmha_bwd|mha_bwd|attn_bwd|flashattnbwd|bwd_kernel_fuse|"
      "attention_backward|attn_backward|flashattnvarlenfuncbackward|flashattnfuncbackward" },
    { "InferenceAttention", "paged_attention|pagedattention|decode_attention|batchdecode|"
                            "batchprefill|batch_decode|batch_prefill|unified_attention|mla_decode|"
                            "mla_prefill|flash_mla|flashmla|fmhasm100|pa_fwd|pa_decode|splitkv|"
                            "reshape_and_cache|set_kv_buffer|store_kv|extend_attention" },
    { "SDPA_fwd", "flash_fwd|fmha_fwd|fmha_v3|mha_fwd|attn_fwd|flashattnfwd|compute_attn|"
                  "flash_attn|flashattn|attention_forward|attn_forward|flash::" },
    { "MoE_aux", "moe_align|moe_sort|moesort|topk_gating|topkgating|topk_softmax|moe_fused_gate|"
                 "moe_sum|expandinputrows|finalizemoe|moe_permute|moe_unpermute|grouped_topk" },
    { "MoE_fused", "fused_moe|fusedmoe|moe_gemm|moegemm|moe_stage|moe_ck|ck_moe|moe_mlp|fmoe" },
    { "GroupedGEMM_fwd", "grouped_gemm|groupgemm|group_gemm|groupedgemm|m_grouped|grouped_mm" },
    { "RoPE_fwd", "rotary|_rope|rope_|::rope|applyrope|mlarope" },
    { "RMSNorm", "rmsnorm|rms_norm" },
    { "NORM_bwd", "ln_bwd|layernorm_backward|layernorm_bwd" },
    { "NORM_fwd", "ln_fwd|layernorm|layer_norm|groupnorm|group_norm" },
    { "CrossEntropy_fwd", "cross_entropy|crossentropy" },
    { "GEMM", "gemm|nvjet|cublas|cijk_|xmma|scaled_mm|matmul|splitkreduce|hipblaslt" },
    { "elementwise", "silu|gelu|swiglu|act_and_mul|elementwise|per_token_quant|quant_fp8|"
                     "per_token_cast|per_token_group_quant|scaled_quant" },
    { "triton", "triton_" },
};

static const Category TABLE[] = {
    { "GEMM", "aten::mm|aten::addmm|aten::bmm|aten::baddbmm|aten::_scaled_mm|aten::linear|"
              "trtllm::cublas_scaled_mm|bitsandbytes::int8_linear_matmul|tex_ts::te_gemm_ts" },
    { "CONV_fwd", "aten::convolution|aten::miopen_convolution|aten::cudnn_convolution|"
                  "aten::_convolution|ConvBias_|ConvBiasReLU_" },
    { "CONV_bwd", "aten::convolution_backward|ConvBias_Backward|ConvBiasReLU_Backward" },
    { "NORM_fwd", "aten::native_batch_norm|aten::native_layer_norm|aten::native_group_norm|"
                  "aten::miopen_batch_norm|aten::cudnn_batch_norm|aten::_fused_rms_norm|"
                  "aten::batch_norm|aten::layer_norm|aten::group_norm|aten::instance_norm" },
    { "NORM_bwd", "aten::native_batch_norm_backward|aten::native_layer_norm_backward|"
                  "aten::native_group_norm_backward|aten::miopen_batch_norm_backward|"
                  "aten::cudnn_batch_norm_backward|aten::_fused_rms_norm_backward" },
    { "SDPA_fwd", "FlashAttnFunc|flash_attn::_flash_attn_forward|"
                  "aten::_scaled_dot_product_cudnn_attention|"
                  "aten::_scaled_dot_product_efficient_attention|"
                  "aten::_scaled_dot_product_flash_attention|aten::scaled_dot_product_attention|"
                  "flash_attn_3::fwd" },
    { "SDPA_bwd", "FlashAttnFuncBackward|flash_attn::_flash_attn_backward|"
                  "aten::_scaled_dot_product_cudnn_attention_backward|"
                  "aten::_scaled_dot_product_efficient_attention_backward|"
                  "aten::_scaled_dot_product_flash_attention_backward|flash_attn_3::bwd" },
    { "InferenceAttention", "vllm::unified_attention_with_output|"
                            "_C_cache_ops::reshape_and_cache_flash" },
    { "elementwise",
      "aten::copy_|aten::clamp_min_|aten::sigmoid|aten::add|aten::add_|aten::mul|"
      "aten::mul_|aten::div|aten::div_|aten::sub|aten::sub_|aten::upsample_nearest1d" },
    { "RMSNorm", "aiter::rms_norm|aiter::rmsnorm2d_fwd_with_add_ck" },
};

const char *perf_category(const char *name, const char *first_kernel)
{
    for (size_t i = 0; i < sizeof TABLE / sizeof *TABLE; i++) {
        if (text_word_index(TABLE[i].operators, name) >= 0) return TABLE[i].name;
    }
    if (text_starts(name, "triton")) return "triton";
    if (strcmp(name, "record_param_comms") == 0) return "record_param_comms";
    if (first_kernel == NULL || !text_starts(first_kernel, "void at::native")) return "other";
    if (strstr(first_kernel, "elementwise") != NULL) return "elementwise";
    if (strstr(first_kernel, "reduce") != NULL) return "reduce";
    return strstr(first_kernel, "multi_tensor_apply") != NULL ? "multi_tensor_apply" : "other";
}

/* The first row of WORDS with a word in the name; NULL: none. */
static const char *by_words(const char *name)
{
    for (size_t i = 0; i < sizeof WORDS / sizeof *WORDS; i++)
        if (strings_has_word(name, WORDS[i].operators)) return WORDS[i].name;
    return NULL;
}

/* An operator's own name says more than its first kernel. Of a graph, kernels are of all kinds. */
const char *perf_category_by_words(const char *name, const char *first_kernel)
{
    const char *known = perf_category(name, NULL), *words = NULL;
    const bool calls = text_starts(name, "cuda") || text_starts(name, "hip");
    if (strcmp(known, "other") != 0) return known;
    if (!text_starts(name, "aten::") && !calls) words = by_words(name);
    if (words != NULL) return words;
    known = perf_category(name, first_kernel);
    if (strcmp(known, "other") == 0 && strstr(first_kernel, "at::native") == NULL &&
        strstr(name, "GraphLaunch") == NULL)
        words = by_words(first_kernel);
    return words == NULL ? known : words;
}
