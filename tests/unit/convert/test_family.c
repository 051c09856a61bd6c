/* The tables of families: config.json of published models against the presets of their dimensions,
 * what is refused and by which name, which family a configuration is written as, and where tensors
 * hold parameters. */
#include "harness/arena.h"

#include "convert/family.h"

static Status read_text(const char *text, Config *c, const Family **family)
{
    cJSON *json = cJSON_Parse(text);
    CHECK(json != NULL);
    CHECK_OK(config_default(c, &arena));
    Status s = family_read("config.json", json, &arena, c, family);
    cJSON_Delete(json);
    return s;
}

#define BASE(type)                                                                                 \
    "{\"model_type\":\"" type "\",\"hidden_act\":\"silu\",\"vocab_size\":61,\"hidden_size\":24,"   \
    "\"num_hidden_layers\":3,\"intermediate_size\":40,\"num_attention_heads\":4,"                  \
    "\"rms_norm_eps\":1e-06"
#define LLAMA_JSON   BASE("llama")
#define MIXTRAL_JSON BASE("mixtral") ",\"num_local_experts\":6,\"num_experts_per_tok\":2"
#define QWEN_JSON                                                                                  \
    BASE("qwen3_moe") ",\"num_experts\":6,\"num_experts_per_tok\":2,\"moe_intermediate_size\":11"
#define MLA_JSON(type)                                                                             \
    BASE(type)                                                                                     \
    ",\"kv_lora_rank\":10,\"qk_nope_head_dim\":8,\"qk_rope_head_dim\":6,\"v_head_dim\":5,"         \
    "\"n_routed_experts\":8,\"num_experts_per_tok\":3,\"moe_intermediate_size\":11"
#define GLM_JSON                                                                                   \
    BASE("glm4_moe")                                                                               \
    ",\"n_routed_experts\":8,\"num_experts_per_tok\":2,\"moe_intermediate_size\":11"

/* ---- published models ---- */

/* What a published config.json says of the model, and the preset of it (docs/reference/config.md). */
static void published_models_have_the_dimensions_of_their_presets(void **state)
{
    static const struct {
        const char *preset, *json;
    } rows[] = {
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
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Config want, got;
        const Family *family = NULL;
        ModelSpec a, b;
        ParamTable x, y;
        CHECK_OK(config_load(&want, &arena, rows[i].preset, NULL, 0));
        CHECK_OK(read_text(rows[i].json, &got, &family));
        /* the presets are without multi-token prediction */
        CHECK_INT(got.mtp_layers, strcmp(rows[i].preset, "deepseek-v3") == 0);
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
        cJSON *json = NULL;
        CHECK_OK(read_text(text, &c, &family));
        CHECK_INT(c.attention_nope_every, rows[i].nope);
        CHECK_INT(c.attention_full_every, rows[i].nope);
        CHECK_INT(c.moe_every, rows[i].moe);
        CHECK_INT(c.model_dense_layers, rows[i].dense);
        /* and back */
        CHECK_OK(family_write(&c, NULL, &arena, &json, &family, &theirs));
        CHECK_TEXT(family->type, "llama4_text");
        cJSON_Delete(json);
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
        { "{\"model_type\":\"mistrall\"}",
          "mistrall is no family that is known, did you mean mixtral?", ERR_UNSUPPORTED },
        { "{\"model_type\":\"llama\"}", "has no vocab_size, which llama models need", ERR_FORMAT },
        { LLAMA_JSON ",\"vocab_size\":61,\"num_key_value_heads\":\"x\"}",
          "num_key_value_heads: override attention.kv_heads=x", ERR_ARG },
        { LLAMA_JSON ",\"num_key_value_heads\":[2]}", "num_key_value_heads is no number",
          ERR_FORMAT },
        { LLAMA_JSON ",\"num_key_value_heads\":2.5}",
          "num_key_value_heads: override attention.kv_heads=2.5", ERR_ARG },
        { LLAMA_JSON ",\"mlp_bias\":true}",
          "mlp_bias is true; llama models are supported with false", ERR_UNSUPPORTED },
        { QWEN_JSON ",\"use_sliding_window\":true}", "use_sliding_window is true",
          ERR_UNSUPPORTED },
        { QWEN_JSON ",\"mlp_only_layers\":[1]}", "mlp_only_layers is no list of the first layers",
          ERR_UNSUPPORTED },
        { QWEN_JSON ",\"quantization_config\":{\"quant_method\":\"gptq\"}}", "quant_method gptq",
          ERR_UNSUPPORTED },
        { QWEN_JSON ",\"quantization_config\":{\"quant_method\":\"fp8\","
                    "\"weight_block_size\":[64,128]}}",
          "weight_block_size is not 128 x 128", ERR_UNSUPPORTED },
        { MLA_JSON("deepseek_v2") ",\"topk_method\":\"other\"}",
          "topk_method is neither greedy nor group_limited_greedy", ERR_UNSUPPORTED },
        { MLA_JSON("deepseek_v2") ",\"norm_topk_prob\":true}", "norm_topk_prob is true",
          ERR_UNSUPPORTED },
        { BASE("qwen3") ",\"layer_types\":[\"full_attention\",\"sliding_attention\"]}",
          "layer_types says that layer 1 has sliding_attention", ERR_UNSUPPORTED },
        { LLAMA4_JSON ",\"moe_layers\":[1,2,5]}", "moe_layers is not every so many layers",
          ERR_UNSUPPORTED },
        { LLAMA4_JSON ",\"moe_layers\":[0,2,4]}", "moe_layers is not every so many layers",
          ERR_UNSUPPORTED },
        { LLAMA4_JSON ",\"no_rope_layer_interval\":0}", "no_rope_layer_interval is 0",
          ERR_UNSUPPORTED },
        { LLAMA4_JSON ",\"moe_layers\":[0.5]}", "moe_layers is no list of layers", ERR_FORMAT },
        { LLAMA4_JSON ",\"moe_layers\":3}", "moe_layers is no list", ERR_FORMAT },
        { LLAMA4_JSON ",\"no_rope_layers\":[0,1,1,0,1,1]}",
          "no_rope_layers is not every so many layers", ERR_UNSUPPORTED },
        { LLAMA4_JSON ",\"no_rope_layers\":[1,1,1,0]}", "no_rope_layers has 4 entries for 6 layers",
          ERR_FORMAT },
        { LLAMA4_JSON ",\"no_rope_layers\":[1,1,1,2,1,1]}", "no_rope_layers is no list of 0 and 1",
          ERR_FORMAT },
        { QWEN_JSON ",\"quantization_config\":{\"quant_method\":\"mxfp4\"}}", "quant_method mxfp4",
          ERR_UNSUPPORTED },
        { "{\"model_type\":\"llama\",\"hidden_act\":\"gelu\"}", "hidden_act is gelu",
          ERR_UNSUPPORTED },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Config c;
        const Family *family = NULL;
        CHECK_FAILS(read_text(rows[i].json, &c, &family), rows[i].status, rows[i].says);
    }
}

static bool has_setting(const char *name)
{
    for (int i = 0; i < config_row_count; i++) {
        if (strcmp(config_rows[i].name, name) == 0) return true;
    }
    return false;
}

/* A member needs a setting: while rows.def has none, it is refused by its name. */
static void members_wait_for_their_settings(void **state)
{
    static const struct {
        const char *json, *setting, *says;
    } rows[] = {
        { LLAMA_JSON ",\"attention_bias\":true}", "attention.bias",
          "attention_bias is true: it needs attention.bias" },
        { MLA_JSON("deepseek_v3") ",\"attention_bias\":true}", "attention.bias",
          "attention_bias is true: it needs attention.bias" },
        { MIXTRAL_JSON ",\"sliding_window\":7}", "attention.window",
          "sliding_window is 7: it needs attention.window" },
        { GLM_JSON ",\"partial_rotary_factor\":0.5}", "attention.rotary",
          "it needs attention.rotary" },
        { GLM_JSON "}", "attention.rotary", "it needs attention.rotary" },
        { LLAMA_JSON ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.0}}", "rope.scaling",
          "is linear: it needs rope.scaling" },
        { QWEN_JSON ",\"decoder_sparse_step\":2}", "moe.every", "decoder_sparse_step is 2" },
        { BASE("gpt_oss") ",\"num_local_experts\":4,\"num_experts_per_tok\":2}", "attention.sinks",
          "this program does not have yet" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Config c;
        const Family *family = NULL;
        if (has_setting(rows[i].setting)) {
            Status s = read_text(rows[i].json, &c, &family);
            if (s == ERR_UNSUPPORTED) CHECK(strstr(status_message(), rows[i].setting) == NULL);
            status_clear();
        } else {
            CHECK_FAILS(read_text(rows[i].json, &c, &family), ERR_UNSUPPORTED, rows[i].says);
        }
    }
}

/* ---- writing ---- */

static void a_model_of_no_family_is_refused_with_what_differs(void **state)
{
    const char *const set[] = { "moe.score=softmax", "moe.bias_rate=0.001" };
    Config c, theirs;
    const Family *family = NULL;
    cJSON *json = NULL;
    (void)state;
    CHECK_OK(config_load(&c, &arena, NULL, set, 2));
    CHECK_FAILS(family_write(&c, NULL, &arena, &json, &family, &theirs), ERR_UNSUPPORTED,
                "the nearest is deepseek_v2, but moe.bias_rate is 0.001");
    CHECK(json == NULL);
}

/* Settings of training say nothing, nor do those of the other kind of attention or of experts that
 * are not there. */
static void what_does_not_matter_does_not_choose_the_family(void **state)
{
    static const struct {
        const char *set[8], *type;
    } rows[] = {
        { { "attention.kind=gqa", "model.dense_layers=6", "moe.groups=2", "moe.scaling=3",
            "moe.aux_loss=0.5", "attention.kv_rank=7", "attention.document_mask=false" },
          "llama" },
        { { "attention.kind=gqa", "model.dense_layers=6", "attention.qk_norm=rms" }, "qwen3" },
        { { "attention.kind=gqa", "model.dense_layers=0", "moe.shared=0", "moe.normalise=true",
            "moe.ffn=1024", "attention.rope_interleaved=true" },
          "mixtral" },
        { { "attention.kind=gqa", "moe.shared=0", "attention.qk_norm=rms" }, "qwen3_moe" },
        { { "attention.head_dim=7", "attention.kv_heads=3" }, "deepseek_v2" },
        { { "moe.score=sigmoid", "moe.normalise=true", "moe.bias_rate=0.01" }, "deepseek_v3" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Config c, theirs;
        const Family *family = NULL;
        cJSON *json = NULL;
        int n = 0;
        while (n < 8 && rows[i].set[n] != NULL) n++;
        CHECK_OK(config_default(&c, &arena));
        for (int k = 0; k < n; k++) CHECK_OK(config_override(&c, &arena, rows[i].set[k]));
        CHECK_OK(family_write(&c, NULL, &arena, &json, &family, &theirs));
        CHECK_TEXT(family->type, rows[i].type);
        CHECK_TEXT(cJSON_GetStringValue(cJSON_GetObjectItem(json, "model_type")), rows[i].type);
        CHECK_INT(theirs.model_hidden, c.model_hidden);
        cJSON_Delete(json);
    }
}

/* Classes with typed members take 1.0 and not 1 for a real number. */
static void real_numbers_are_written_with_a_point(void **state)
{
    Config c, theirs;
    const Family *family = NULL;
    cJSON *json = NULL;
    (void)state;
    CHECK_OK(config_default(&c, &arena));
    CHECK_OK(family_write(&c, NULL, &arena, &json, &family, &theirs));
    char *text = cJSON_PrintUnformatted(json);
    CHECK(strstr(text, "\"routed_scaling_factor\":1.0,") != NULL);
    CHECK(strstr(text, "\"rope_theta\":10000.0,") != NULL);
    CHECK(strstr(text, "\"rms_norm_eps\":1e-06,") != NULL);
    CHECK(strstr(text, "\"q_lora_rank\":null") != NULL);
    CHECK(strstr(text, "rope_scaling") == NULL);
    cJSON_free(text);
    cJSON_Delete(json);
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
    c.model_tied = true;
    CHECK(family_leaves_out(LLAMA, &c, "lm_head.weight"));
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
        TEST(members_wait_for_their_settings),
        TEST(a_model_of_no_family_is_refused_with_what_differs),
        TEST(what_does_not_matter_does_not_choose_the_family),
        TEST(real_numbers_are_written_with_a_point),
        TEST(layouts_put_elements_where_files_have_them),
        TEST(tensors_are_left_out_by_name),
    };
    return ARENA_RUN(tests);
}
