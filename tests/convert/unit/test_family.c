/* The tables of families: config.json of published models against the presets of their dimensions,
 * what is refused and by which name, and where tensors hold parameters. */
#include "harness/arena.h"

#include "convert/family.h"
#include "convert/rotated.h"

static Status read_text(const char *text, Config *c, const Family **family)
{
    Json *json = NULL;
    size_t bad = 0;
    CHECK_OK(json_parse(text, strlen(text), &arena, &json, &bad));
    CHECK(json != NULL);
    CHECK_OK(config_default(c, &arena));
    return family_read("config.json", json, &arena, c, family);
}

#define BASE(type)                                                                                 \
    "{\"model_type\":\"" type "\",\"hidden_act\":\"silu\",\"vocab_size\":61,\"hidden_size\":24,"   \
    "\"num_hidden_layers\":3,\"intermediate_size\":40,\"num_attention_heads\":4,"                  \
    "\"rms_norm_eps\":1e-06"
#define LLAMA_JSON   BASE("llama")
#define MIXTRAL_JSON BASE("mixtral") ",\"num_local_experts\":6,\"num_experts_per_tok\":2"
#define QWEN_JSON                                                                                  \
    BASE("qwen3_moe") ",\"num_experts\":6,\"num_experts_per_tok\":2,\"moe_intermediate_size\":11"
#define OLMOE_JSON BASE("olmoe") ",\"num_experts\":6,\"num_experts_per_tok\":2"
#define QWEN2_JSON                                                                                 \
    BASE("qwen2_moe") ",\"num_experts\":6,\"num_experts_per_tok\":2,\"moe_intermediate_size\":11"
#define MLA_JSON(type)                                                                             \
    BASE(type)                                                                                     \
    ",\"kv_lora_rank\":10,\"qk_nope_head_dim\":8,\"qk_rope_head_dim\":6,\"v_head_dim\":5,"         \
    "\"n_routed_experts\":8,\"num_experts_per_tok\":3,\"moe_intermediate_size\":11"
#define GLM_JSON                                                                                   \
    BASE("glm4_moe")                                                                               \
    ",\"n_routed_experts\":8,\"num_experts_per_tok\":2,\"moe_intermediate_size\":11"

/* ---- published models ---- */

/* What a published config.json says of the model, and the preset of it (docs/reference/config.md). */
static const struct {
    const char *preset, *json;
} published[] = {
    { "llama2-7b",
      "{\"model_type\":\"llama\",\"hidden_act\":\"silu\",\"hidden_size\":4096,"
      "\"intermediate_size\":11008,\"num_attention_heads\":32,\"num_hidden_layers\":32,"
      "\"num_key_value_heads\":32,\"rms_norm_eps\":1e-05,\"rope_scaling\":null,"
      "\"tie_word_embeddings\":false,\"vocab_size\":32000,\"torch_dtype\":\"float16\"}" },
    { "mixtral-8x7b",
      "{\"model_type\":\"mixtral\",\"hidden_act\":\"silu\",\"hidden_size\":4096,"
      "\"intermediate_size\":14336,\"num_attention_heads\":32,\"num_hidden_layers\":32,"
      "\"num_key_value_heads\":8,\"num_local_experts\":8,\"num_experts_per_tok\":2,"
      "\"rms_norm_eps\":1e-05,\"rope_theta\":1000000.0,\"router_aux_loss_coef\":0.02,"
      "\"sliding_window\":null,\"tie_word_embeddings\":false,\"vocab_size\":32000}" },
    { "qwen3-30b-a3b",
      "{\"model_type\":\"qwen3_moe\",\"hidden_act\":\"silu\",\"hidden_size\":2048,"
      "\"intermediate_size\":6144,\"num_attention_heads\":32,\"num_hidden_layers\":48,"
      "\"num_key_value_heads\":4,\"head_dim\":128,\"num_experts\":128,"
      "\"num_experts_per_tok\":8,\"moe_intermediate_size\":768,\"norm_topk_prob\":true,"
      "\"decoder_sparse_step\":1,\"mlp_only_layers\":[],\"rms_norm_eps\":1e-06,"
      "\"rope_scaling\":null,\"rope_theta\":1000000.0,\"attention_bias\":false,"
      "\"use_sliding_window\":false,\"sliding_window\":null,\"vocab_size\":151936}" },
    { "olmoe-1b-7b",
      "{\"model_type\":\"olmoe\",\"attention_bias\":false,\"clip_qkv\":null,"
      "\"hidden_act\":\"silu\",\"hidden_size\":2048,\"intermediate_size\":1024,"
      "\"norm_topk_prob\":false,\"num_attention_heads\":16,\"num_experts\":64,"
      "\"num_experts_per_tok\":8,\"num_hidden_layers\":16,\"num_key_value_heads\":16,"
      "\"rope_scaling\":null,\"rope_theta\":10000.0,\"router_aux_loss_coef\":0.01,"
      "\"tie_word_embeddings\":false,\"vocab_size\":50304}" },
    { "qwen1.5-moe-a2.7b",
      "{\"model_type\":\"qwen2_moe\",\"decoder_sparse_step\":1,\"hidden_act\":\"silu\","
      "\"hidden_size\":2048,\"intermediate_size\":5632,\"max_window_layers\":21,"
      "\"moe_intermediate_size\":1408,\"norm_topk_prob\":false,\"num_attention_heads\":16,"
      "\"num_experts\":60,\"num_experts_per_tok\":4,\"num_hidden_layers\":24,"
      "\"num_key_value_heads\":16,\"rms_norm_eps\":1e-06,\"rope_theta\":1000000.0,"
      "\"router_aux_loss_coef\":0.001,\"shared_expert_intermediate_size\":5632,"
      "\"sliding_window\":32768,\"tie_word_embeddings\":false,"
      "\"use_sliding_window\":false,\"vocab_size\":151936}" },
    { "qwen3-next-80b-a3b",
      "{\"model_type\":\"qwen3_next\",\"decoder_sparse_step\":1,\"full_attention_interval\":4,"
      "\"head_dim\":256,\"hidden_act\":\"silu\",\"hidden_size\":2048,\"intermediate_size\":5120,"
      "\"linear_conv_kernel_dim\":4,\"linear_key_head_dim\":128,\"linear_num_key_heads\":16,"
      "\"linear_num_value_heads\":32,\"linear_value_head_dim\":128,\"mlp_only_layers\":[],"
      "\"moe_intermediate_size\":512,\"norm_topk_prob\":true,\"num_attention_heads\":16,"
      "\"num_experts\":512,\"num_experts_per_tok\":10,\"num_hidden_layers\":48,"
      "\"num_key_value_heads\":2,\"partial_rotary_factor\":0.25,\"rms_norm_eps\":1e-06,"
      "\"rope_scaling\":null,\"rope_theta\":10000000,\"router_aux_loss_coef\":0.001,"
      "\"shared_expert_intermediate_size\":512,\"tie_word_embeddings\":false,"
      "\"use_sliding_window\":false,\"vocab_size\":151936}" },
    { "qwen2-57b-a14b",
      "{\"model_type\":\"qwen2_moe\",\"decoder_sparse_step\":1,\"hidden_act\":\"silu\","
      "\"hidden_size\":3584,\"intermediate_size\":18944,\"max_window_layers\":28,"
      "\"mlp_only_layers\":[],\"moe_intermediate_size\":2560,\"norm_topk_prob\":false,"
      "\"num_attention_heads\":28,\"num_experts\":64,\"num_experts_per_tok\":8,"
      "\"num_hidden_layers\":28,\"num_key_value_heads\":4,\"rms_norm_eps\":1e-06,"
      "\"rope_theta\":1000000.0,\"shared_expert_intermediate_size\":20480,"
      "\"sliding_window\":131072,\"tie_word_embeddings\":false,"
      "\"use_sliding_window\":false,\"vocab_size\":151936}" },
    { "deepseek-v2-lite",
      "{\"model_type\":\"deepseek_v2\",\"hidden_act\":\"silu\",\"hidden_size\":2048,"
      "\"intermediate_size\":10944,\"num_attention_heads\":16,\"num_hidden_layers\":27,"
      "\"first_k_dense_replace\":1,\"kv_lora_rank\":512,\"q_lora_rank\":null,"
      "\"qk_nope_head_dim\":128,\"qk_rope_head_dim\":64,\"v_head_dim\":128,"
      "\"n_routed_experts\":64,\"n_shared_experts\":2,\"num_experts_per_tok\":6,"
      "\"moe_intermediate_size\":1408,\"topk_method\":\"greedy\",\"n_group\":1,"
      "\"topk_group\":1,\"norm_topk_prob\":false,\"scoring_func\":\"softmax\","
      "\"routed_scaling_factor\":1.0,\"moe_layer_freq\":1,\"rms_norm_eps\":1e-06,"
      "\"rope_theta\":10000,\"attention_bias\":false,\"vocab_size\":102400}" },
    { "deepseek-v3",
      "{\"model_type\":\"deepseek_v3\",\"hidden_act\":\"silu\",\"hidden_size\":7168,"
      "\"intermediate_size\":18432,\"num_attention_heads\":128,\"num_hidden_layers\":61,"
      "\"first_k_dense_replace\":3,\"kv_lora_rank\":512,\"q_lora_rank\":1536,"
      "\"qk_nope_head_dim\":128,\"qk_rope_head_dim\":64,\"v_head_dim\":128,"
      "\"n_routed_experts\":256,\"n_shared_experts\":1,\"num_experts_per_tok\":8,"
      "\"moe_intermediate_size\":2048,\"topk_method\":\"noaux_tc\",\"n_group\":8,"
      "\"topk_group\":4,\"norm_topk_prob\":true,\"scoring_func\":\"sigmoid\","
      "\"routed_scaling_factor\":2.5,\"moe_layer_freq\":1,\"rms_norm_eps\":1e-06,"
      "\"num_nextn_predict_layers\":1,\"rope_theta\":10000,\"vocab_size\":129280,"
      "\"quantization_config\":{\"quant_method\":\"fp8\",\"fmt\":\"e4m3\","
      "\"weight_block_size\":[128,128],\"activation_scheme\":\"dynamic\"}}" },
};

static void published_models_have_the_dimensions_of_their_presets(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        Config want, got;
        const Family *family = NULL;
        ModelSpec a, b;
        ParamTable x, y;
        CHECK_OK(config_load(&want, &arena, published[i].preset, NULL, 0));
        CHECK_OK(read_text(published[i].json, &got, &family));
        /* the presets are without multi-token prediction */
        CHECK_INT(got.mtp_layers, strcmp(published[i].preset, "deepseek-v3") == 0);
        got.mtp_layers = 0;
        /* the presets are trained with the loss of their publication, which says nothing here */
        CHECK_OK(spec_build(&want, &arena, &a));
        CHECK_OK(params_build(&a, 0, NULL, &arena, &x));
        CHECK_OK(spec_build(&got, &arena, &b));
        CHECK_OK(params_build(&b, 0, NULL, &arena, &y));
        CHECK_INT(x.n, y.n);
        CHECK_INT(x.total, y.total);
        CHECK_INT(x.active, y.active);
        CHECK_NEAR(got.attention_rope_theta, want.attention_rope_theta, 0);
        CHECK_NEAR(got.model_norm_eps, want.model_norm_eps, 0);
        CHECK_INT(got.attention_rope_interleaved, want.attention_rope_interleaved);
        CHECK_INT(got.moe_normalise, want.moe_normalise);
        CHECK_NEAR(got.moe_scaling, want.moe_scaling, 0);
        if (want.model_dense_layers == want.model_layers) continue;
        CHECK_INT(got.moe_score, want.moe_score);
        CHECK_INT(got.moe_groups, want.moe_groups);
        CHECK_INT(got.moe_top_groups, want.moe_top_groups);
        CHECK_INT(got.moe_group_score_top, want.moe_group_score_top);
    }
}

/* 671 G and 14 G are DeepSeek's own figures, the second with copies of the table and of the head. */
static void a_module_of_multi_token_prediction_has_the_published_parameters(void **state)
{
    static const char *const set[] = { "mtp.layers=0", "mtp.layers=1" };
    int64_t total[2], active[2];
    Config c;
    (void)state;
    for (int i = 0; i < 2; i++) {
        ModelSpec s;
        ParamTable t;
        CHECK_OK(config_load(&c, &arena, "deepseek-v3", &set[i], 1));
        CHECK_OK(spec_build(&c, &arena, &s));
        CHECK_OK(params_build(&s, 0, NULL, &arena, &t));
        total[i] = t.total, active[i] = t.active;
    }
    int64_t copies = 2 * c.model_vocab * c.model_hidden, experts = 3 * c.moe_ffn * c.model_hidden;
    CHECK_NEAR((double)total[0], 671e9, 0.5e9);
    CHECK_INT(total[1] - total[0], 11610067968);
    CHECK_NEAR((double)(total[1] - total[0] + copies), 14e9, 0.6e9);
    CHECK_NEAR((double)(total[1] + copies), 685e9, 0.6e9);
    CHECK_INT(active[1] - active[0], total[1] - total[0] - (256 - 8) * experts);
}

/* ---- members ---- */

static void members_that_are_absent_have_the_values_of_their_class(void **state)
{
    Config c;
    const Family *family = NULL;
    (void)state;
    CHECK_OK(read_text(LLAMA_JSON "}", &c, &family));
    CHECK_TEXT(family->type, "llama");
    CHECK_INT(c.attention_head_dim, 6);
    CHECK_INT(c.attention_kv_heads, 4);
    CHECK_NEAR(c.attention_rope_theta, 1e4, 0);
    CHECK(!c.attention_rope_interleaved && !c.model_tied);
    CHECK_INT(c.model_dense_layers, 3);
    CHECK_OK(read_text(MIXTRAL_JSON ",\"head_dim\":null,\"num_key_value_heads\":2}", &c, &family));
    CHECK_INT(c.attention_head_dim, 6);
    CHECK_INT(c.attention_kv_heads, 2);
    CHECK_INT(c.model_dense_layers, 0);
    CHECK_INT(c.moe_ffn, 40);
    CHECK_NEAR(c.attention_rope_theta, 1e6, 0);
    CHECK(c.moe_normalise);
    CHECK_OK(read_text(MLA_JSON("deepseek_v3") ",\"q_lora_rank\":null,\"n_shared_experts\":1}", &c,
                       &family));
    CHECK_INT(c.attention_q_rank, 0);
    CHECK(c.moe_bias_rate > 0 && c.attention_rope_interleaved);
}

static void members_of_both_generations_of_files_are_read(void **state)
{
    Config c;
    const Family *family = NULL;
    (void)state;
    CHECK_OK(read_text(LLAMA_JSON
                       ",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":5e5}}",
                       &c, &family));
    CHECK_NEAR(c.attention_rope_theta, 5e5, 0);
    CHECK_OK(
        read_text(QWEN_JSON ",\"mlp_only_layers\":[0,1],\"norm_topk_prob\":true}", &c, &family));
    CHECK_INT(c.model_dense_layers, 2);
    CHECK(c.moe_normalise);
    CHECK_INT(c.attention_qk_norm, QK_NORM_RMS);
    CHECK_OK(read_text("{\"model_type\":\"x\",\"text_config\":" LLAMA_JSON "}}", &c, &family));
    CHECK_INT(c.model_vocab, 61);
    CHECK_OK(read_text(MLA_JSON("deepseek_v2") ",\"topk_method\":\"greedy\",\"n_group\":4,"
                                               "\"topk_group\":2}",
                       &c, &family));
    CHECK_INT(c.moe_groups, 1);
    CHECK_OK(read_text(MLA_JSON("deepseek_v2") ",\"topk_method\":\"group_limited_greedy\","
                                               "\"n_group\":4,\"topk_group\":2}",
                       &c, &family));
    CHECK_INT(c.moe_groups, 4);
    CHECK_INT(c.moe_top_groups, 2);
}

#define LLAMA4_JSON                                                                                \
    "{\"model_type\":\"llama4_text\",\"vocab_size\":61,\"hidden_size\":24,\"num_hidden_layers\":"  \
    "6,"                                                                                           \
    "\"intermediate_size\":11,\"intermediate_size_mlp\":40,\"num_attention_heads\":4,"             \
    "\"num_key_value_heads\":2,\"head_dim\":6,\"rms_norm_eps\":1e-06,\"num_local_experts\":5,"     \
    "\"num_experts_per_tok\":1"

/* A list stands above the interval, which stays where both say the same. */
static void lists_of_layers_that_are_intervals_are_read(void **state)
{
    static const struct {
        const char *members;
        int64_t nope, moe, dense;
    } rows[] = {
        { "", 4, 1, 0 },
        { ",\"no_rope_layers\":null,\"moe_layers\":null", 4, 1, 0 },
        { ",\"no_rope_layers\":[]", 4, 1, 0 },
        { ",\"no_rope_layers\":[1,1,1,0,1,1]", 4, 1, 0 },
        { ",\"no_rope_layers\":[1,1,0,1,1,0]", 3, 1, 0 },
        { ",\"no_rope_layers\":[1,1,0,1,1,0,0,0]", 3, 1, 0 },
        { ",\"no_rope_layers\":[0,0,0,0,0,0]", 1, 1, 0 },
        { ",\"no_rope_layers\":[1,1,1,1,1,1]", 7, 1, 0 },
        { ",\"no_rope_layer_interval\":9,\"no_rope_layers\":[1,1,1,1,1,1]", 9, 1, 0 },
        { ",\"moe_layers\":[1,3,5]", 4, 2, 0 },
        { ",\"moe_layers\":[5,3,1,9]", 4, 2, 0 },
        { ",\"moe_layers\":[0,1,2,3,4,5],\"interleave_moe_layer_step\":2", 4, 1, 0 },
        { ",\"moe_layers\":[5],\"interleave_moe_layer_step\":6", 4, 6, 0 },
        { ",\"moe_layers\":[2,3,4,5]", 4, 1, 2 },
        { ",\"moe_layers\":[3,5]", 4, 2, 3 },
        { ",\"moe_layers\":[]", 4, 7, 0 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Config c, theirs;
        const Family *family = NULL;
        char text[1024];
        snprintf(text, sizeof text, "%s%s}", LLAMA4_JSON, rows[i].members);
        Json *json = NULL;
        CHECK_OK(read_text(text, &c, &family));
        CHECK_INT(c.attention_nope_every, rows[i].nope);
        CHECK_INT(c.attention_full_every, rows[i].nope);
        CHECK_INT(c.moe_every, rows[i].moe);
        CHECK_INT(c.model_dense_layers, rows[i].dense);
        /* and back */
        CHECK_OK(family_write(&c, NULL, &arena, &json, &family, &theirs));
        CHECK_TEXT(family->type, "llama4_text");
        CHECK_INT(theirs.attention_nope_every, rows[i].nope);
        for (int64_t layer = 0; layer < 6; layer++)
            CHECK_INT(config_has_experts(&theirs, layer), config_has_experts(&c, layer));
    }
}

static void what_is_not_there_is_refused_by_its_name(void **state)
{
    static const struct {
        const char *json, *says;
        Status status;
    } rows[] = {
        { "{\"vocab_size\":3}", "has no model_type", ERR_FORMAT },
        { "{\"model_type\":3}", "has no model_type", ERR_FORMAT },
        { "{\"model_type\":\"mistrall\"}", "mistrall is not supported, did you mean mixtral?",
          ERR_UNSUPPORTED },
        { "{\"model_type\":\"llama\"}", "has no vocab_size, which llama models need", ERR_FORMAT },
        { LLAMA_JSON ",\"num_key_value_heads\":\"x\"}",
          "num_key_value_heads is \"x\"; it must be a whole number", ERR_FORMAT },
        { LLAMA_JSON ",\"num_key_value_heads\":[2]}",
          "num_key_value_heads is [2]; it must be a whole number", ERR_FORMAT },
        { LLAMA_JSON ",\"num_key_value_heads\":2.5}",
          "num_key_value_heads is 2.5; it must be a whole number", ERR_FORMAT },
        { LLAMA_JSON ",\"num_key_value_heads\":0}",
          "num_key_value_heads is 0: attention.kv_heads is 0, must be from 1 to", ERR_ARG },
        { LLAMA_JSON ",\"rope_scaling\":{\"type\":\"dynamic\"}}",
          "config.json: type is \"dynamic\": rope.scaling is the text \"dynamic\", must be one of",
          ERR_ARG },
        { LLAMA_JSON ",\"text_config\":" MIXTRAL_JSON "}}",
          "text_config is in the file of a llama model", ERR_FORMAT },
        { BASE("qwen3") ",\"rope_parameters\":{\"full_attention\":{\"rope_theta\":7.0}}}",
          "rope_parameters.full_attention is an object", ERR_UNSUPPORTED },
        { LLAMA_JSON ",\"mlp_bias\":true}",
          "mlp_bias is true; llama models are supported with false", ERR_UNSUPPORTED },
        { QWEN_JSON ",\"use_sliding_window\":true}", "use_sliding_window is true",
          ERR_UNSUPPORTED },
        { QWEN_JSON ",\"mlp_only_layers\":[1]}", "mlp_only_layers must list the first layers",
          ERR_UNSUPPORTED },
        { QWEN_JSON ",\"quantization_config\":{\"quant_method\":\"gptq\"}}", "quant_method gptq",
          ERR_UNSUPPORTED },
        { QWEN_JSON ",\"quantization_config\":{\"quant_method\":\"fp8\","
                    "\"weight_block_size\":[64,128]}}",
          "weight_block_size is [64,128]; it must be [128, 128]", ERR_UNSUPPORTED },
        { MLA_JSON("deepseek_v2") ",\"topk_method\":\"other\"}",
          "topk_method is \"other\"; it must be greedy, group_limited_greedy or noaux_tc",
          ERR_UNSUPPORTED },
        { MLA_JSON("deepseek_v2") ",\"norm_topk_prob\":true}", "norm_topk_prob is true",
          ERR_UNSUPPORTED },
        { BASE("qwen3") ",\"layer_types\":[\"full_attention\",\"sliding_attention\"]}",
          "layer_types gives layer 1 the type sliding_attention", ERR_UNSUPPORTED },
        { LLAMA4_JSON ",\"moe_layers\":[1,2,5]}",
          "moe_layers is not supported: its layers do not follow at one interval",
          ERR_UNSUPPORTED },
        { LLAMA4_JSON ",\"moe_layers\":[0,2,4]}",
          "moe_layers is not supported: its layers do not follow at one interval",
          ERR_UNSUPPORTED },
        { LLAMA4_JSON ",\"no_rope_layer_interval\":0}", "no_rope_layer_interval is 0",
          ERR_UNSUPPORTED },
        { LLAMA4_JSON ",\"moe_layers\":[0.5]}", "moe_layers must be a list of layer numbers",
          ERR_FORMAT },
        { LLAMA4_JSON ",\"moe_layers\":3}", "moe_layers must be a list", ERR_FORMAT },
        { LLAMA4_JSON ",\"no_rope_layers\":[0,1,1,0,1,1]}", "no_rope_layers is not supported",
          ERR_UNSUPPORTED },
        { LLAMA4_JSON ",\"no_rope_layers\":[1,1,1,0]}", "no_rope_layers has 4 entries for 6 layers",
          ERR_FORMAT },
        { LLAMA4_JSON ",\"no_rope_layers\":[1,1,1,2,1,1]}",
          "no_rope_layers must be a list of 0 and 1", ERR_FORMAT },
        { QWEN_JSON ",\"quantization_config\":{\"quant_method\":\"mxfp4\"}}", "quant_method mxfp4",
          ERR_UNSUPPORTED },
        { "{\"model_type\":\"llama\",\"hidden_act\":\"gelu\"}",
          "hidden_act is \"gelu\"; llama models are supported with silu alone", ERR_UNSUPPORTED },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Config c;
        const Family *family = NULL;
        CHECK_FAILS(read_text(rows[i].json, &c, &family), rows[i].status, rows[i].says);
    }
}

/* The class gets what Python's json reads. */
static void of_a_member_that_stands_twice_the_last_counts(void **state)
{
    char many[2048] = LLAMA_JSON ",\"rope_scaling\":{\"rope_theta\":1,\"rope_theta\":2}";
    const Family *family = NULL;
    Config c;
    (void)state;
    CHECK_OK(read_text(LLAMA_JSON ",\"vocab_size\":62,\"vocab_size\":63}", &c, &family));
    CHECK_INT(c.model_vocab, 63);
    CHECK_FAILS(read_text(LLAMA_JSON ",\"hidden_act\":\"gelu\"}", &c, &family), ERR_UNSUPPORTED,
                "hidden_act is \"gelu\"");
    for (int i = 0; i < 90; i++) {
        const size_t used = strlen(many);
        (void)snprintf(many + used, sizeof many - used, ",\"other%d\":%d", i, i);
    }
    strcat(many, ",\"vocab_size\":65,\"rope_scaling\":{\"rope_theta\":3.0}}");
    CHECK_OK(read_text(many, &c, &family));
    CHECK_INT(c.model_vocab, 65);
    CHECK(c.attention_rope_theta == 3.0);
}

/* The object with a member, "name":value, in the place of its own of that name. */
static void put_member(char *out, size_t bytes, const char *json, const char *member)
{
    char name[64];
    snprintf(name, sizeof name, ",%.*s:", (int)(strchr(member + 1, '"') + 1 - member), member);
    const char *at = strstr(json, name);
    const char *end = at == NULL ? json + strlen(json) - 1 : at + 1 + strcspn(at + 1, ",}");
    if (at == NULL) at = end;
    snprintf(out, bytes, "%.*s,%s%s", (int)(at - json), json, member, end);
}

/* A text for a number, a fraction for a whole number and null for either are not the value. */
static void members_of_a_wrong_type_are_refused_with_their_value(void **state)
{
    static const struct {
        const char *json, *says;
    } rows[] = {
        { ",\"hidden_size\":\"64\"", "hidden_size is \"64\"; it must be a whole number" },
        { ",\"hidden_size\":64.5", "hidden_size is 64.5; it must be a whole number" },
        { ",\"hidden_size\":null", "hidden_size is null; it must be a whole number" },
        { ",\"hidden_size\":true", "hidden_size is true; it must be a whole number" },
        { ",\"hidden_size\":{}", "hidden_size is {}; it must be a whole number" },
        { ",\"rms_norm_eps\":\"1e-6\"", "rms_norm_eps is \"1e-6\"; it must be a number" },
        { ",\"rms_norm_eps\":1e999", "it must be a number" },
        { ",\"rope_theta\":null", "rope_theta is null; it must be a number" },
        { ",\"rope_parameters\":{\"rope_theta\":\"1e4\"}",
          "rope_theta is \"1e4\"; it must be a number" },
        { ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":\"2\"}",
          "factor is \"2\"; it must be a number" },
        { ",\"rope_scaling\":{\"type\":3}", "type is 3; it must be a text" },
        { ",\"rope_scaling\":{\"rope_type\":null}", "rope_type is null; it must be a text" },
        { ",\"rope_scaling\":true", "rope_scaling is true; it must be an object" },
        { ",\"num_key_value_heads\":null",
          "num_key_value_heads is null; it must be a whole number" },
        { ",\"tie_word_embeddings\":\"false\"",
          "tie_word_embeddings is \"false\"; it must be true or false" },
        { ",\"tie_word_embeddings\":0", "tie_word_embeddings is 0; it must be true or false" },
        { ",\"router_aux_loss_coef\":\"0.1\"",
          "router_aux_loss_coef is \"0.1\"; it must be a number" },
        { ",\"num_experts\":\"6\"", "num_experts is \"6\"; it must be a whole number" },
        { ",\"head_dim\":\"8\"", "head_dim is \"8\"; it must be a whole number" },
    };
    char text[1024];
    Config c;
    const Family *family = NULL;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        put_member(text, sizeof text, QWEN_JSON "}", rows[i].json + 1);
        CHECK_FAILS(read_text(text, &c, &family), ERR_FORMAT, rows[i].says);
    }
    CHECK_FAILS(read_text(QWEN_JSON ",\"use_sliding_window\":\"false\"}", &c, &family),
                ERR_UNSUPPORTED, "use_sliding_window is \"false\"; qwen3_moe models are");
    CHECK_FAILS(read_text(GLM_JSON ",\"use_qk_norm\":\"true\"}", &c, &family), ERR_FORMAT,
                "use_qk_norm is \"true\"; it must be true or false");
    CHECK_FAILS(read_text(MIXTRAL_JSON ",\"sliding_window\":\"null\"}", &c, &family), ERR_FORMAT,
                "sliding_window is \"null\"; it must be a whole number");
    /* null where the family's class has it */
    CHECK_OK(read_text(QWEN_JSON ",\"head_dim\":null,"
                                 "\"rope_scaling\":null,\"router_aux_loss_coef\":null}",
                       &c, &family));
    CHECK_INT(c.attention_head_dim, 6);
    CHECK_INT(c.attention_kv_heads, 4);
}

/* OLMoE's class has one width of heads and can clip; Qwen2-MoE's has one width of shared experts. */
static void members_of_olmoe_and_qwen2_moe_are_read(void **state)
{
    static const struct {
        const char *json, *says;
    } rows[] = {
        { OLMOE_JSON ",\"clip_qkv\":8.0}", "clip_qkv is 8; olmoe models are supported with null" },
        { OLMOE_JSON ",\"head_dim\":8}", "head_dim is 8; olmoe models are supported with 6 alone" },
        { QWEN2_JSON ",\"shared_expert_intermediate_size\":23}",
          "shared_expert_intermediate_size is 23; it must be a multiple of moe_intermediate_size, "
          "11" },
        { QWEN2_JSON ",\"shared_expert_intermediate_size\":0}", "it must be a multiple" },
        { QWEN2_JSON ",\"shared_expert_intermediate_size\":22,\"use_sliding_window\":true}",
          "use_sliding_window is true" },
    };
    Config c;
    const Family *family = NULL;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        CHECK_FAILS(read_text(rows[i].json, &c, &family), ERR_UNSUPPORTED, rows[i].says);
    CHECK_OK(read_text(OLMOE_JSON ",\"clip_qkv\":null,\"head_dim\":6}", &c, &family));
    CHECK(c.attention_qk_norm == QK_NORM_WIDTH && c.moe_ffn == 40 && c.model_dense_layers == 0);
    CHECK_OK(read_text(QWEN2_JSON ",\"shared_expert_intermediate_size\":33}", &c, &family));
    CHECK(c.moe_shared == 3 && c.moe_shared_gate && c.attention_bias && !c.attention_out_bias);
    CHECK_OK(read_text(QWEN2_JSON ",\"shared_expert_intermediate_size\":11,\"qkv_bias\":false,"
                                  "\"mlp_only_layers\":[0],\"decoder_sparse_step\":2}",
                       &c, &family));
    CHECK(!c.attention_bias && c.model_dense_layers == 1 && c.moe_every == 2);
}

/* ---- layouts ---- */

static FamilyTensor tensor_of(unsigned family, const char *name, int64_t rows, int64_t cols,
                              int choice)
{
    Param p = { .rank = cols == 0 ? 1 : 2, .dim = { rows, cols } };
    FamilyTensor t;
    snprintf(p.name, sizeof p.name, "%s", name);
    CHECK(family_tensor(family, &p, 7, choice, &t));
    return t;
}

/* Place of the parameter's element (r, c) in the tensor. */
static int64_t place(const FamilyTensor *t, int64_t r, int64_t c)
{
    int64_t part = 1;
    for (int d = t->layout & LAYOUT_STACKED ? 1 : 0; d < t->rank; d++) part *= t->dim[d];
    return t->expert * part + t->first + r * t->row_step + c * t->col_step;
}

static void layouts_put_elements_where_files_have_them(void **state)
{
    (void)state;
    /* Llama 4: (experts, in, 2 x out), gate before up; here out 5, in 3 */
    FamilyTensor t = tensor_of(LLAMA4, "model.layers.2.mlp.experts.4.up_proj.weight", 5, 3, 0);
    CHECK_TEXT(t.name, "model.layers.2.feed_forward.experts.gate_up_proj");
    CHECK(t.rank == 3 && t.dim[0] == 7 && t.dim[1] == 3 && t.dim[2] == 10);
    CHECK_INT(place(&t, 1, 2), (4 * 3 + 2) * 10 + 5 + 1);
    t = tensor_of(LLAMA4, "model.layers.2.mlp.experts.4.down_proj.weight", 3, 5, 0);
    CHECK(t.dim[1] == 5 && t.dim[2] == 3);
    CHECK_INT(place(&t, 2, 4), (4 * 5 + 4) * 3 + 2);
    /* gpt-oss: even outputs are gate's, odd ones up's; biases, too */
    t = tensor_of(GPT_OSS, "model.layers.0.mlp.experts.6.up_proj.weight", 5, 3, 0);
    CHECK_TEXT(t.name, "model.layers.0.mlp.experts.gate_up_proj");
    CHECK_INT(place(&t, 1, 2), (6 * 3 + 2) * 10 + 2 * 1 + 1);
    t = tensor_of(GPT_OSS, "model.layers.0.mlp.experts.6.gate_proj.bias", 5, 0, 0);
    CHECK_TEXT(t.name, "model.layers.0.mlp.experts.gate_up_proj_bias");
    CHECK(t.rank == 2 && t.dim[0] == 7 && t.dim[1] == 10);
    CHECK_INT(place(&t, 3, 0), 6 * 10 + 2 * 3);
    /* in four bits, (experts, 2 x out, in / 32, 16): places count halves of bytes */
    t = tensor_of(GPT_OSS, "model.layers.0.mlp.experts.6.up_proj.weight", 5, 64, 1);
    CHECK_TEXT(t.name, "model.layers.0.mlp.experts.gate_up_proj_blocks");
    CHECK(t.rank == 4 && t.dim[0] == 7 && t.dim[1] == 10 && t.dim[2] == 2 && t.dim[3] == 16);
    CHECK_INT(t.first + 2 * t.row_step + 33 * t.col_step, (2 * 2 + 1) * 64 + 33);
    Param narrow = { .name = "model.layers.0.mlp.experts.6.up_proj.weight",
                     .rank = 2,
                     .dim = { 5, 40 } };
    CHECK(!family_tensor(GPT_OSS, &narrow, 7, 1, &t));
    /* in memory of transformers 5: (experts, 2 x out, in) */
    t = tensor_of(QWEN3_MOE, "model.layers.0.mlp.experts.6.up_proj.weight", 5, 3, 1);
    CHECK_TEXT(t.name, "model.layers.0.mlp.experts.gate_up_proj");
    CHECK_INT(place(&t, 1, 2), (6 * 10 + 5 + 1) * 3 + 2);
    t = tensor_of(MIXTRAL, "model.layers.11.mlp.experts.6.down_proj.weight", 3, 5, 0);
    CHECK_TEXT(t.name, "model.layers.11.block_sparse_moe.experts.6.w2.weight");
    CHECK_INT(place(&t, 2, 4), 14);
    t = tensor_of(LLAMA, "model.layers.1.self_attn.q_proj.weight", 3, 5, 0);
    CHECK_TEXT(t.name, "model.layers.1.self_attn.q_proj.weight");
    Param p = { .name = "model.norm.weight", .rank = 1, .dim = { 3 } };
    CHECK(!family_tensor(LLAMA, &p, 7, 1, &t));
}

/* Where pairs change places, gates between queries stay. */
static void gates_are_not_rotated(void **state)
{
    static const char *const set[] = { "attention.rope_interleaved=true", "attention.head_dim=12",
                                       "attention.rotary=0.5" };
    Config c;
    (void)state;
    CHECK_OK(config_load(&c, &arena, "qwen3-next-80b-a3b", set, 3));
    const Rotated q = rotated_rows(&c, "model.layers.3.self_attn.q_proj.weight", false);
    const Rotated k = rotated_rows(&c, "model.layers.3.self_attn.k_proj.weight", false);
    CHECK(q.group == 24 && q.first == 0 && q.rope == config_rotated(&c));
    CHECK(k.group == 12 && k.first == 0 && k.rope == q.rope);
}

static void tensors_are_left_out_by_name(void **state)
{
    Config c;
    (void)state;
    CHECK_OK(config_default(&c, &arena));
    c.model_layers = 3;
    CHECK(family_leaves_out(DEEPSEEK_V3, &c, "model.layers.3.eh_proj.weight"));
    CHECK(!family_leaves_out(DEEPSEEK_V3, &c, "model.layers.2.eh_proj.weight"));
    CHECK(!family_leaves_out(LLAMA, &c, "model.layers.3.mlp.up_proj.weight"));
    CHECK(family_leaves_out(LLAMA, &c, "model.layers.1.self_attn.rotary_emb.inv_freq"));
    CHECK(!family_leaves_out(LLAMA, &c, "lm_head.weight"));
    CHECK(family_leaves_out(LLAMA4, &c, "vision_model.x.weight"));
    CHECK(!family_leaves_out(LLAMA, &c, "vision_model.x.weight"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(published_models_have_the_dimensions_of_their_presets),
        TEST(a_module_of_multi_token_prediction_has_the_published_parameters),
        TEST(members_that_are_absent_have_the_values_of_their_class),
        TEST(members_of_both_generations_of_files_are_read),
        TEST(lists_of_layers_that_are_intervals_are_read),
        TEST(what_is_not_there_is_refused_by_its_name),
        TEST(of_a_member_that_stands_twice_the_last_counts),
        TEST(members_of_a_wrong_type_are_refused_with_their_value),
        TEST(members_of_olmoe_and_qwen2_moe_are_read),
        TEST(layouts_put_elements_where_files_have_them),
        TEST(gates_are_not_rotated),
        TEST(tensors_are_left_out_by_name),
    };
    return ARENA_RUN(tests);
}
