/* perf_category: the kind of an operator by its name. The table of names comes first, then how the
 * name begins. Last comes the first kernel that the operator launched, if that is one of PyTorch's
 * own. The names of categories are TraceLens', so that reports can be compared. */
#include "analyze/perf.h"

#include <string.h>

/* A category and the operators that are in it by name. */
typedef struct Category {
    const char *name, *operators; /* whole names with | between */
} Category;

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
                  "aten::_scaled_dot_product_flash_attention|aten::scaled_dot_product_attention" },
    { "SDPA_bwd", "FlashAttnFuncBackward|flash_attn::_flash_attn_backward|"
                  "aten::_scaled_dot_product_cudnn_attention_backward|"
                  "aten::_scaled_dot_product_efficient_attention_backward|"
                  "aten::_scaled_dot_product_flash_attention_backward" },
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
