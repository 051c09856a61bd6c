/* Foreign configuration files: every rule of the table and of what several keys say together. */
#include "harness/foreign.h"

#include "engine/base/rng.h"

/* ---- Primus: shapes ---- */

static void a_model_file_is_a_shape(void **state)
{
    (void)state;
    CHECK_OK(primus("num_layers: 27\nhidden_size: 2048\nffn_hidden_size: 10944\n"
                    "num_attention_heads: 16\nkv_channels: 128\nmulti_latent_attention: true\n"
                    "q_lora_rank: null\nkv_lora_rank: 512\nqk_head_dim: 128\n"
                    "qk_pos_emb_head_dim: 64\nv_head_dim: 96\nqk_layernorm: true\n"
                    "tokenizer_model: deepseek-ai/DeepSeek-V2-Lite\nnum_experts: 64\n"
                    "moe_layer_freq: \"([0]*1+[1]*26)\"\nmoe_router_topk: 6\n"
                    "moe_ffn_hidden_size: 1408\nmoe_shared_expert_intermediate_size: 2816\n"
                    "moe_router_pre_softmax: true\nmoe_router_score_function: softmax\n"
                    "moe_router_num_groups: 8\nmoe_router_group_topk: 3\n"
                    "moe_router_topk_scaling_factor: 16.0\nnorm_epsilon: 1.0e-06\n"
                    "moe_aux_loss_coeff: 0.002\nmoe_router_load_balancing_type: seq_aux_loss\n"
                    "moe_router_enable_expert_bias: false\nmoe_router_bias_update_rate: 1.0e-3\n"
                    "untie_embeddings_and_output_weights: true\nrotary_base: 50000\n",
                    "      seq_length: 4096\n"));
    CHECK_INT(config.model_layers, 27);
    CHECK_INT(config.model_dense_layers, 1);
    CHECK_INT(config.model_hidden, 2048);
    CHECK_INT(config.model_ffn, 10944);
    CHECK_INT(config.model_vocab, 102400);
    CHECK_NEAR(config.model_norm_eps, 1e-6, 1e-12);
    CHECK(!config.model_tied);
    CHECK_INT(config.attention_kind, ATTENTION_MLA);
    CHECK_INT(config.attention_heads, 16);
    CHECK_INT(config.attention_q_rank, 0);
    CHECK_INT(config.attention_kv_rank, 512);
    CHECK_INT(config.attention_nope_dim, 128);
    CHECK_INT(config.attention_rope_dim, 64);
    CHECK_INT(config.attention_v_dim, 96);
    CHECK_NEAR(config.attention_rope_theta, 50000, 0);
    CHECK_INT(config.attention_qk_norm, QK_NORM_NONE); /* mla normalises its latents */
    CHECK_INT(config.moe_experts, 64);
    CHECK_INT(config.moe_top_k, 6);
    CHECK_INT(config.moe_ffn, 1408);
    CHECK_INT(config.moe_shared, 2);
    CHECK(!config.moe_normalise);
    CHECK_INT(config.moe_groups, 8);
    CHECK_INT(config.moe_top_groups, 3);
    CHECK_INT(config.moe_group_score_top, 2); /* top-k over groups of a token */
    CHECK_NEAR(config.moe_scaling, 16, 0);
    CHECK_NEAR(config.moe_bias_rate, 0, 0);
    CHECK_NEAR(config.moe_aux_loss, 0.002, 1e-12);
    CHECK_INT(config.moe_aux_scope, AUX_SEQUENCE);
    CHECK_INT(config.data_sequence, 4096);
    CHECK_INT(config.train_micro_batch, 2);
    CHECK_INT(config.train_batch, 64);
    CHECK_INT(config.run_compute, COMPUTE_BF16);
    CHECK_INT(config.mesh_zero, 1);
    CHECK(more.preset == NULL && !more.per_replica && more.gpus == 0);
}

static void what_a_model_file_leaves_out_follows_from_the_rest(void **state)
{
    (void)state;
    CHECK_OK(primus(shape, ""));
    CHECK_INT(config.attention_kind, ATTENTION_GQA);
    CHECK_INT(config.attention_head_dim, 64);
    CHECK_INT(config.attention_kv_heads, 8);
    CHECK_INT(config.model_ffn, 1408); /* 8/3 of 512, up to a multiple of 64 */
    CHECK_INT(config.model_dense_layers, 12);
    CHECK_INT(config.model_vocab, 100352);
    CHECK(strstr(more.notes[more.notes_n - 1], "vocab_size") != NULL);
    CHECK_OK(primus(shape, "      num_experts: 8\n      ffn_hidden_size: 1000\n"
                           "      group_query_attention: true\n      num_query_groups: 2\n"
                           "      vocab_size: 777\n      moe_router_score_function: sigmoid\n"
                           "      moe_router_enable_expert_bias: true\n"
                           "      moe_router_bias_update_rate: 0.01\n"
                           "      moe_aux_loss_coeff: 0.5\n"
                           "      moe_router_load_balancing_type: none\n"));
    CHECK_INT(config.model_dense_layers, 0);
    CHECK_INT(config.moe_ffn, 1000);
    CHECK_INT(config.moe_shared, 0);
    CHECK_INT(config.attention_kv_heads, 2);
    CHECK_INT(config.model_vocab, 777);
    CHECK_INT(config.moe_score, SCORE_SIGMOID);
    CHECK(config.moe_normalise);
    CHECK_NEAR(config.moe_bias_rate, 0.01, 1e-12);
    CHECK_NEAR(config.moe_aux_loss, 0, 0);
    CHECK_OK(primus(shape, "      num_experts: 8\n      moe_aux_loss_coeff: 0.5\n"
                           "      moe_router_load_balancing_type: global_aux_loss\n"));
    CHECK_NEAR(config.moe_aux_loss, 0.5, 0);
    CHECK_INT(config.moe_aux_scope, AUX_GLOBAL);
}

/* Kimi K3's rule of the bias, Megatron's kind of balancing. The rate of signs does not serve it. */
static void quantile_balancing_is_a_rule_of_the_bias(void **state)
{
    (void)state;
    static const char *const ways[] = {
        "      moe_router_enable_expert_bias: true\n      moe_router_bias_update_rate: 0.001\n"
        "      moe_router_bias_update_rule: quantile\n      moe_router_load_balancing_type: none\n",
        "      moe_router_enable_expert_bias: false\n"
        "      moe_router_load_balancing_type: quantile_balancing\n",
    };
    for (int i = 0; i < 2; i++) {
        char keys[512];
        (void)snprintf(keys, sizeof keys, "      num_experts: 8\n%s", ways[i]);
        CHECK_OK(primus(shape, keys));
        CHECK_INT(config.moe_bias_rule, BIAS_QUANTILE);
        CHECK_NEAR(config.moe_bias_rate, 0.5, 0);
        CHECK_NEAR(config.moe_aux_loss, 0, 0);
    }
    CHECK_OK(primus(shape, "      num_experts: 8\n      moe_router_enable_expert_bias: true\n"
                           "      moe_router_bias_update_rate: 0.001\n"
                           "      moe_router_bias_update_rule: sign\n"));
    CHECK_INT(config.moe_bias_rule, BIAS_SIGN);
    CHECK_NEAR(config.moe_bias_rate, 0.001, 1e-9);
}

static void dense_layers_come_first_or_not_at_all(void **state)
{
    (void)state;
    CHECK_OK(primus(shape, "      num_experts: 8\n      moe_layer_freq: 1\n"));
    CHECK_INT(config.model_dense_layers, 0);
    CHECK_OK(primus(shape, "      num_experts: 8\n      moe_layer_freq: \"[0]*3+[1]*9\"\n"));
    CHECK_INT(config.model_dense_layers, 3);
    CHECK_FAILS(primus(shape, "      num_experts: 8\n      moe_layer_freq: ([0]*3+[1]*10)\n"),
                ERR_UNSUPPORTED, "12 layers in all");
    CHECK_FAILS(primus(shape, "      num_experts: 8\n      moe_layer_freq: 2\n"), ERR_UNSUPPORTED,
                "moe_layer_freq is 2");
    CHECK_FAILS(primus(shape, "      num_experts: 8\n      moe_ffn_hidden_size: 100\n"
                              "      moe_shared_expert_intermediate_size: 150\n"),
                ERR_UNSUPPORTED, "not a multiple of moe.ffn 100");
}

/* ---- Primus: precedence ---- */

static void overrides_win_over_modules_over_models_over_what_these_extend(void **state)
{
    (void)state;
    make_folder("models/megatron");
    make_folder("primus/configs/modules/megatron");
    make_folder("e/deep");
    put("models/megatron/a.yaml", "num_layers: 1\nhidden_size: 64\nnum_attention_heads: 4\n"
                                  "kv_channels: 2\nrotary_base: 10\n");
    put("models/megatron/b.yaml", "kv_channels: 4\nrotary_base: 20\nnum_experts: 2\n");
    put("models/megatron/m.yaml",
        "extends:\n  - a.yaml\n  - b.yaml\nrotary_base: 30\nseq_length: 100\n");
    put("primus/configs/modules/megatron/base.yaml", "micro_batch_size: 3\nseq_length: 200\n");
    put("primus/configs/modules/megatron/t.yaml",
        "extends: base.yaml\nglobal_batch_size: 33\nnum_experts: 4\n");
    put("e/deep/x.yaml", "modules:\n  pre_trainer:\n    framework: megatron\n    config: t.yaml\n"
                         "    model: m.yaml\n    overrides:\n      num_layers: 7\n"
                         "      num_experts: null\n");
    CHECK_OK(plan_import("primus", at("e/deep/x.yaml"), &arena, &config, &more));
    CHECK_INT(config.model_layers, 7);              /* override over a.yaml */
    CHECK_INT(config.attention_head_dim, 4);        /* b.yaml after a.yaml */
    CHECK_NEAR(config.attention_rope_theta, 30, 0); /* m.yaml over both */
    CHECK_INT(config.data_sequence, 200);           /* the module's base over the model */
    CHECK_INT(config.train_micro_batch, 3);
    CHECK_INT(config.train_batch, 33);
    CHECK_INT(config.model_dense_layers, 7); /* null hides 4 and 2 */
    CHECK_INT(more.notes_n, 1);              /* of the vocabulary alone */
    put("models/megatron/a.yaml", "extends: a.yaml\n");
    CHECK_FAILS(plan_import("primus", at("e/deep/x.yaml"), &arena, &config, &more), ERR_FORMAT,
                "extend more than 64");
    put("models/megatron/a.yaml", "extends: [config.yaml]\n");
    CHECK_FAILS(plan_import("primus", at("e/deep/x.yaml"), &arena, &config, &more), ERR_IO,
                "no file config.yaml to extend");
}

static void the_environment_stands_in_for_variables(void **state)
{
    (void)state;
    CHECK_INT(unsetenv("IMPORT_TEST_A"), 0);
    CHECK_OK(primus(shape, "      seq_length: ${IMPORT_TEST_A:4096}\n"
                           "      pipeline_model_parallel_layout: ${IMPORT_TEST_A:null}\n"
                           "      some_path: ${IMPORT_TEST_A}/x\n"));
    CHECK_INT(config.data_sequence, 4096);
    CHECK_TEXT(config.mesh_layout, "");
    CHECK_FAILS(primus(shape, "      seq_length: ${IMPORT_TEST_A}\n"), ERR_ARG, "${IMPORT_TEST_A}");
    CHECK_INT(setenv("IMPORT_TEST_A", "81", 1), 0);
    CHECK_OK(primus(shape, "      seq_length: ${IMPORT_TEST_A:4096}92\n"));
    CHECK_INT(config.data_sequence, 8192);
    CHECK_INT(unsetenv("IMPORT_TEST_A"), 0);
}

/* ---- Primus: layouts ---- */

static void pipelines_come_as_sizes_layers_or_layouts(void **state)
{
    (void)state;
    CHECK_OK(primus(shape, "      pipeline_model_parallel_size: 2\n"
                           "      virtual_pipeline_model_parallel_size: 3\n"
                           "      expert_model_parallel_size: 1\n"
                           "      context_parallel_size: 2\n"
                           "      tensor_model_parallel_size: 2\n"
                           "      optimizer: dist_muon\n"
                           "      optimizer_cpu_offload: true\n"));
    CHECK_INT(config.optimizer_kind, OPTIMIZER_MUON);
    CHECK(config.optimizer_offload);
    CHECK_INT(config.mesh_tp, 2);
    CHECK_INT(config.mesh_pp, 2);
    CHECK_INT(config.mesh_vpp, 3);
    CHECK_INT(config.mesh_cp, 2);
    CHECK_TEXT(config.mesh_schedule, "interleaved");
    CHECK_OK(primus(shape, "      pipeline_model_parallel_size: 2\n"
                           "      num_layers_per_virtual_pipeline_stage: 3\n"));
    CHECK_INT(config.mesh_vpp, 2);
    CHECK_OK(primus(shape, "      pipeline_model_parallel_size: 2\n"
                           "      pipeline_model_parallel_layout: \"Et*2|t*4|t*4|t*2,L\"\n"));
    CHECK_INT(config.mesh_vpp, 2);
    CHECK_TEXT(config.mesh_layout, "Et*2|t*4|t*4|t*2,L");
    CHECK_FAILS(primus(shape, "      pipeline_model_parallel_size: 3\n"
                              "      pipeline_model_parallel_layout: Et*6|t*6L\n"),
                ERR_ARG, "mesh.vpp is 0");
    CHECK_FAILS(primus(shape, "      pipeline_model_parallel_size: 2\n"
                              "      pipeline_model_parallel_layout: Et*6|t*7L\n"),
                ERR_ARG, "pipeline_model_parallel_layout is Et*6|t*7L: layout: 13 or more layers");
}

static void schedules_have_names_of_ours(void **state)
{
    (void)state;
    static const struct {
        const char *overrides, *schedule;
        int vpp;
    } cases[] = {
        { "", "1f1b", 1 },
        { "pp_algorithm: zero-bubble", "zb-h1", 1 },
        { "pp_algorithm: zbv-formatted", "zbv", 2 },
        { "pp_algorithm: 1f1b-interleaved", "interleaved", 2 },
        { "pp_algorithm: v-min\n      patch_primus_pipeline: false", "1f1b", 1 },
        { "patch_zero_bubble: true", "zb-h1", 1 },
        { "overlap_moe_expert_parallel_comm: true", "1f1b-overlap", 1 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        (void)snprintf(text, sizeof text, "      pipeline_model_parallel_size: 2\n      %s\n",
                       cases[i].overrides);
        CHECK_OK(primus(shape, text));
        CHECK_TEXT(config.mesh_schedule, cases[i].schedule);
        CHECK_INT(config.mesh_vpp, cases[i].vpp);
    }
    CHECK_FAILS(primus(shape, "      pp_algorithm: v-half\n"), ERR_ARG,
                "exp.yaml:10:7: pp_algorithm is v-half: schedule v-half was removed after 0.9.0: "
                "take zb-h1");
    CHECK_OK(primus(shape, "      pp_algorithm: zbv-formatted\n")); /* one pipeline rank */
    CHECK_TEXT(config.mesh_schedule, "1f1b");
    CHECK_INT(config.mesh_vpp, 1);
}

static void sharding_has_stages_of_zero(void **state)
{
    (void)state;
    CHECK_OK(primus(shape, "      use_distributed_optimizer: false\n"));
    CHECK_INT(config.mesh_zero, 0);
    CHECK_OK(primus(shape, "      use_distributed_optimizer: true\n      use_torch_fsdp2: true\n"));
    CHECK_INT(config.mesh_zero, 3);
    CHECK_OK(primus(shape, "      use_megatron_fsdp: true\n"
                           "      data_parallel_sharding_strategy: optim_grads\n"));
    CHECK_INT(config.mesh_zero, 2);
}

static void recomputing_is_a_list_of_layers(void **state)
{
    (void)state;
    CHECK_OK(primus(shape, "      recompute_granularity: null\n      recompute_method: block\n"));
    check_layers("");
    CHECK_OK(primus(shape, "      recompute_granularity: full\n"
                           "      recompute_layer_ids: [0, 2, 11]\n"));
    check_layers("0 2 11");
    CHECK_TEXT(config.recompute_pieces.at[0], "layer");
    CHECK_OK(primus(shape, "      recompute_granularity: full\n      recompute_method: uniform\n"
                           "      recompute_num_layers: 1\n"));
    check_layers("0 1 2 3 4 5 6 7 8 9 10 11");
    CHECK_OK(primus(shape, "      recompute_granularity: full\n      recompute_method: block\n"
                           "      recompute_num_layers: 1\n"
                           "      pipeline_model_parallel_size: 2\n"
                           "      virtual_pipeline_model_parallel_size: 2\n"));
    check_layers("0 3 6 9");
    CHECK_OK(primus(shape, "      recompute_granularity: full\n      recompute_method: block\n"
                           "      recompute_num_layers: 2\n"
                           "      pipeline_model_parallel_size: 2\n"
                           "      pipeline_model_parallel_layout: Et*5|t*7L\n"));
    check_layers("0 1 5 6");
}

/* Megatron adds the mean of the modules' losses times a factor, as we do; recomputing by `block` leaves
 * modules out. */
static void modules_of_multi_token_prediction_are_read(void **state)
{
    (void)state;
    CHECK_OK(primus(shape, "      mtp_num_layers: 2\n      mtp_loss_scaling_factor: 0.25\n"
                           "      recompute_granularity: full\n      recompute_method: uniform\n"
                           "      recompute_num_layers: 1\n"));
    CHECK_INT(config.mtp_layers, 2);
    CHECK_NEAR(config.mtp_loss, 0.25, 0);
    check_layers("0 1 2 3 4 5 6 7 8 9 10 11 12 13");
    CHECK_INT(more.options.n + more.unknown.n, 0);
    CHECK_OK(primus(shape, "      mtp_num_layers: 1\n      recompute_granularity: full\n"
                           "      recompute_method: block\n      recompute_num_layers: 12\n"
                           "      pipeline_model_parallel_size: 2\n"
                           "      pipeline_model_parallel_layout: Et*6|t*6mL\n"));
    CHECK_INT(config.mtp_layers, 1);
    CHECK_NEAR(config.mtp_loss, 0.1, 0);
    CHECK_TEXT(config.mesh_layout, "Et*6|t*6mL");
    check_layers("0 1 2 3 4 5 6 7 8 9 10 11");
    CHECK_OK(primus("mtp_num_layers: 1\nnum_layers: 2\nhidden_size: 64\n"
                    "num_attention_heads: 4\n",
                    "      mtp_num_layers: null\n"));
    CHECK_INT(config.mtp_layers, 0);
    CHECK_FAILS(primus(shape, "      mtp_num_layers: 9\n"), ERR_ARG,
                "mtp_num_layers is 9: mtp.layers is 9, must be from 0 to 4");
}

/* ---- Primus: the rest ---- */

static void options_of_the_stack_and_unknown_keys_are_listed(void **state)
{
    (void)state;
    CHECK_OK(primus(shape, "      turbo_sync_free_moe_stage: 2\n      use_turbo_deepep: true\n"
                           "      cross_entropy_loss_fusion: False\n      fp8: hybrid\n"
                           "      wandb_project: x\n      lr: 1.0e-5\n      strange_key: 5\n"));
    CHECK_TEXT(option("sync_free"), "2");
    CHECK_TEXT(option("deepep"), "1");
    CHECK_TEXT(option("loss_fusion"), "0");
    CHECK_TEXT(option("fp8"), "hybrid");
    CHECK_INT(config.moe_buffers, BUFFERS_WORST);
    CHECK(!config.plan_counted_rows); /* stage 2 has memory for all rows */
    CHECK_INT(more.unknown.n, 1);
    CHECK(is_unknown("strange_key"));
    CHECK(strstr(more.unknown.at[0].value, "exp.yaml:") != NULL);
    CHECK(strstr(more.notes[0], "pre_trainer.yaml") != NULL); /* which is not there */
    CHECK_OK(primus(shape, "      turbo_sync_free_moe_stage: 1\n"));
    CHECK(config.plan_counted_rows);
}

static void options_of_a_file_join_the_stack_s_name(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        { "", "primus", "primus" },
        { "use_turbo_deepep: false", "primus", "primus,deepep=0" },
        { "use_turbo_deepep: false\n      turbo_sync_free_moe_stage: 2", "primus",
          "primus,deepep=1,sync_free=2" },
        { "use_turbo_deepep: false\n      moe_enable_deepep: true", "primus", "primus,deepep=1" },
        { "enable_primus_turbo: false\n      use_turbo_deepep: true", "primus",
          "primus,deepep=0,sync_free=0" },
        { "cross_entropy_loss_fusion: false", "primus,loss_fusion=1", "primus,loss_fusion=1" },
        { "use_turbo_deepep: false", "switchyard", "switchyard" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        const char *stack = NULL;
        (void)snprintf(text, sizeof text, "      %s\n", cases[i][0]);
        CHECK_OK(primus(shape, text));
        CHECK_OK(plan_import_stack(&more, cases[i][1], &arena, &stack));
        CHECK_TEXT(stack, cases[i][2]);
    }
    const char *stack = NULL;
    CHECK_FAILS(plan_import_stack(&more, "primos", &arena, &stack), ERR_ARG, "there is no stack");
}

static void what_a_plan_does_not_follow_is_said(void **state)
{
    (void)state;
    Text t;
    CHECK_OK(primus(shape, "      vocab_size: 1000\n      fp8: null\n      fp4: mxfp4\n"
                           "      optimizer: adam\n      manual_gc: true\n"
                           "      overlap_grad_reduce: false\n      strange_key: 5\n"
                           "      odd_key: 6\n"));
    CHECK_OK(text_init(&t, &arena));
    CHECK_OK(plan_import_notes(&more, &t));
    CHECK(strstr(t.data,
                 "note: fp4 mxfp4 is planned as bf16\n"
                 "note: options that a plan does not follow: manual_gc 1\n"
                 "note: 2 keys are not understood and not followed, the first in ") != NULL);
    CHECK(strstr(t.data, ": strange_key odd_key\n") != NULL);
    CHECK_OK(primus(shape, "      vocab_size: 1000\n"));
    more.notes_n = 0;
    CHECK_OK(text_init(&t, &arena));
    CHECK_OK(plan_import_notes(&more, &t));
    CHECK_TEXT(t.data, "");
}

static void presets_stand_in_for_models_that_are_not_there(void **state)
{
    (void)state;
    static const char *const names[][2] = {
        { "deepseek_v2_lite.yaml", "deepseek-v2-lite" },
        { "deepseek_v3.yaml", "deepseek-v3" },
        { "moe_1T.yaml", "moe-1t" },
        { "mixtral_8x7B_v0.1.yaml", "mixtral-8x7b" },
        { "llama4_17B16E.yaml", "llama4-scout" },
        { "gpt_oss_20B.yaml", "gpt-oss-20b" },
        { "qwen3_30B_A3B.yaml", "qwen3-30b-a3b" },
        { "llama3.1_8B.yaml", "llama3-8b" },
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        Config preset;
        CHECK_OK(named(names[i][0], "megatron"));
        CHECK_TEXT(more.preset, names[i][1]);
        CHECK_OK(config_load(&preset, &arena, names[i][1], NULL, 0));
        CHECK_INT(config.model_layers, preset.model_layers);
        CHECK_INT(config.model_dense_layers, preset.model_dense_layers);
        CHECK_INT(config.attention_head_dim, preset.attention_head_dim);
        CHECK_INT(config.moe_shared, preset.moe_shared);
        CHECK(config.moe_normalise == preset.moe_normalise);
        CHECK_INT(config.train_batch, 8);
        CHECK(strstr(more.notes[0], names[i][1]) != NULL);
    }
    CHECK_FAILS(named("deepseek_v9.yaml", "megatron"), ERR_ARG, "did you mean deepseek-v");
    CHECK_FAILS(named("grok_1.yaml", "megatron"), ERR_ARG, "nor a preset");
    CHECK_OK(named("deepseek_v3_16b.yaml", "torchtitan"));
    CHECK_TEXT(more.preset, "deepseek-v2-lite");
}

/* Stock experiments switch latent attention off: 16 heads of 128. */
static void a_preset_without_its_latent_attention_keeps_its_heads(void **state)
{
    (void)state;
    put("exp.yaml", "modules: {pre_trainer: {framework: megatron, model: deepseek_v2_lite.yaml, "
                    "overrides: {multi_latent_attention: false, micro_batch_size: 4}}}");
    CHECK_OK(plan_import("primus", at("exp.yaml"), &arena, &config, &more));
    CHECK_INT(config.attention_kind, ATTENTION_GQA);
    CHECK_INT(config.attention_head_dim, 128);
    CHECK_INT(config.attention_kv_heads, 16);
    CHECK_INT(config.attention_qk_norm, QK_NORM_RMS);
    CHECK(more.per_replica);
    CHECK_INT(config.train_batch, 4);
}

static void bad_experiments_are_one_sentence(void **state)
{
    (void)state;
    CHECK_FAILS(plan_import("primus", at("none.yaml"), &arena, &config, &more), ERR_IO,
                "none.yaml");
    CHECK_FAILS(plan_import("primsu", at("none.yaml"), &arena, &config, &more), ERR_ARG,
                "did you mean primus?");
    put("exp.yaml", "modules: {pre_trainer: {framework: megatorn}}");
    CHECK_FAILS(plan_import("primus", at("exp.yaml"), &arena, &config, &more), ERR_ARG,
                "did you mean megatron?");
    put("exp.yaml", "model: 5");
    CHECK_FAILS(plan_import("primus", at("exp.yaml"), &arena, &config, &more), ERR_FORMAT,
                "modules.pre_trainer.framework");
    put("exp.yaml", "a: 1\nb: [1\n");
    CHECK_FAILS(plan_import("primus", at("exp.yaml"), &arena, &config, &more), ERR_FORMAT,
                "exp.yaml:3:");
    CHECK_FAILS(primus("num_layers: 3\n", ""), ERR_ARG, "has hidden_size");
    CHECK_FAILS(primus(shape, "      pipeline_model_parallel_size: 0\n"), ERR_ARG,
                "exp.yaml:10:7: pipeline_model_parallel_size is 0: mesh.pp is 0, must be from 1");
    CHECK_FAILS(primus(shape, "      pp_algorithm: gpipe9\n"), ERR_ARG, "zero-bubble=zb-h1");
    CHECK_FAILS(primus(shape, "      expert_tensor_parallel_size: 8\n"), ERR_UNSUPPORTED,
                "expert_tensor_parallel_size is 8: no setting of ours has tensor parallelism of "
                "experts of another stack");
    CHECK_FAILS(primus(shape, "      is_hybrid_model: true\n"), ERR_UNSUPPORTED,
                "no setting of ours has layers without attention");
    CHECK_FAILS(primus(shape, "      fp8: hybrid\n      fp8_recipe: odd\n"), ERR_UNSUPPORTED,
                "fp8_recipe is odd: understood are (theirs=fp8.recipe) delayed=tensor");
    CHECK_FAILS(primus(shape, "      pipeline_model_parallel_size: 4\n"
                              "      decoder_last_pipeline_num_layers: 4\n"),
                ERR_ARG, "12 layers do not spread evenly over 1 chunks of each of 4 ranks");
    CHECK_FAILS(primus(shape, "      recompute_granularity: full\n"
                              "      recompute_num_layers: many\n"),
                ERR_ARG, "recompute_num_layers is many: a whole number");
    CHECK_FAILS(primus(shape, "      global_batch_size: 5\n"), ERR_ARG, "a second time");
    CHECK_FAILS(primus(shape, "      num_query_groups: 3\n"), ERR_ARG,
                "attention.kv_heads 3 does not divide");
}

/* ---- torchtitan ---- */

#define MODEL "[model]\nname = \"deepseek_v3\"\nflavor = \"16B\"\n"

static void a_job_file_is_a_training(void **state)
{
    (void)state;
    CHECK_OK(titan("# a job\n[job]\ndescription = \"a # in a text\"\n" MODEL
                   "converters = [\n  'float8', # one\n  \"mx\"\n]\n[training]\n"
                   "local_batch_size = 4 # sequences\nseq_len = 4096\nsteps = 10\n"
                   "mixed_precision_reduce = \"bfloat16\"\n[parallelism]\n"
                   "data_parallel_shard_degree = 8\ndata_parallel_replicate_degree = 2\n"
                   "context_parallel_degree = 2\nexpert_parallel_degree = 8\n"
                   "tensor_parallel_degree = 4\n"
                   "[activation_checkpoint]\nmode = \"none\"\n[compile]\nenable=true\n[odd.one]\n"
                   "x = [ ]\n"));
    CHECK_TEXT(more.preset, "deepseek-v2-lite");
    CHECK_INT(config.model_layers, 27);
    CHECK_INT(config.train_micro_batch, 4);
    CHECK_INT(config.train_batch, 64);
    CHECK_INT(config.data_sequence, 4096);
    CHECK_INT(config.mesh_cp, 2);
    CHECK_INT(config.mesh_ep, 8);
    CHECK_INT(config.mesh_tp, 4);
    CHECK_INT(config.mesh_shard, 8);
    CHECK_INT(config.mesh_zero, 3);
    CHECK_INT(config.mesh_reduce, REDUCE_BF16);
    CHECK_INT(config.run_compute, COMPUTE_BF16);
    CHECK_INT(more.gpus, 128);
    CHECK(!more.per_replica);
    CHECK_TEXT(option("compile"), "1");
    CHECK_TEXT(option("converters"), "[float8, mx]");
    CHECK_INT(more.unknown.n, 1);
    CHECK(is_unknown("odd.one.x"));
    CHECK(strstr(more.unknown.at[0].value, "job.toml:27") != NULL);
    check_layers("");
}

static void a_job_file_may_leave_all_but_the_model_out(void **state)
{
    (void)state;
    CHECK_OK(titan(MODEL));
    CHECK_INT(config.train_micro_batch, 8);
    CHECK_INT(config.train_batch, 8);
    CHECK_INT(config.data_sequence, 2048);
    CHECK_INT(more.gpus, 0);
    CHECK(more.per_replica);
    CHECK_OK(titan(MODEL "[parallelism]\ndata_parallel_shard_degree = 1\n"));
    CHECK_INT(config.mesh_zero, 0);
    CHECK_OK(titan(MODEL "[parallelism]\nfsdp_reshard_after_forward = \"never\"\n"));
    CHECK_INT(config.mesh_zero, 2);
}

static void pipelines_of_job_files_split_the_local_batch(void **state)
{
    (void)state;
    CHECK_OK(titan(MODEL "[training]\nlocal_batch_size = 16\n[parallelism]\n"
                         "pipeline_parallel_degree = 4\ndata_parallel_shard_degree = 2\n"
                         "pipeline_parallel_schedule = \"Interleaved1F1B\"\n"
                         "pipeline_parallel_microbatch_size = 2\n"));
    CHECK_INT(config.train_micro_batch, 2);
    CHECK_INT(config.train_batch, 32);
    CHECK_INT(config.mesh_vpp, 2);
    CHECK_INT(config.mesh_zero, 2); /* weights stay gathered between micro-batches */
    CHECK_TEXT(config.mesh_schedule, "interleaved");
    CHECK_OK(titan(MODEL "[parallelism]\npipeline_parallel_degree = 3\n"
                         "pipeline_parallel_layers_per_stage = 3\n"));
    CHECK_INT(config.mesh_vpp, 3);
    CHECK_OK(titan(MODEL "[parallelism]\npipeline_parallel_schedule = \"ZBVZeroBubble\"\n"));
    CHECK_TEXT(config.mesh_schedule, "1f1b");
    CHECK_INT(config.mesh_vpp, 1);
}

static void checkpointed_activations_are_recomputed(void **state)
{
    (void)state;
    CHECK_OK(titan(MODEL "[activation_checkpoint]\nmode = \"full\"\n"));
    CHECK_INT(config.recompute_layers.n, 27);
    CHECK_TEXT(config.recompute_pieces.at[0], "layer");
    CHECK_OK(titan(MODEL "[activation_checkpoint]\nmode = \"selective\"\n"
                         "selective_ac_option = '9'\n"));
    check_layers("8 17 26");
    CHECK_OK(titan(MODEL "[activation_checkpoint]\nmode = \"selective\"\n"
                         "selective_ac_option = \"op\"\n"));
    CHECK_INT(config.recompute_layers.n, 27);
    CHECK_TEXT(config.recompute_pieces.at[0], "layer");
    CHECK_TEXT(option("op_ac"), "2");
}

static Status overridden(const char *model, const char *overrides)
{
    char text[1024];
    snprintf(text, sizeof text,
             "modules: {pre_trainer: {framework: megatron, model: %s, overrides: {%s}}}", model,
             overrides);
    put("exp.yaml", text);
    return plan_import("primus", at("exp.yaml"), &arena, &config, &more);
}

static void rotary_positions_and_biases_are_read(void **state)
{
    (void)state;
    CHECK_OK(overridden("deepseek_v2_lite.yaml",
                        "rope_type: yarn, rotary_scaling_factor: 30, beta_fast: 16, mscale: 0.5, "
                        "mscale_all_dim: 0.25, original_max_position_embeddings: 2048"));
    CHECK_INT(config.rope_scaling, SCALING_YARN);
    CHECK_NEAR(config.rope_factor, 30, 0);
    CHECK_INT(config.rope_original, 2048);
    CHECK_NEAR(config.rope_beta_fast, 16, 0);
    CHECK_NEAR(config.rope_mscale, 0.5, 0);
    CHECK_NEAR(config.rope_mscale_all_dim, 0.25, 0);
    CHECK_OK(overridden("deepseek_v2_lite.yaml", "rope_type: yarn"));
    CHECK_NEAR(config.rope_factor, 40, 0);
    CHECK_INT(config.rope_original, 4096);
    CHECK_OK(overridden("deepseek_v2_lite.yaml", "rope_type: rope, rotary_scaling_factor: 40"));
    CHECK_INT(config.rope_scaling, SCALING_NONE);
    CHECK(!config.attention_bias);
    /* what latent attention goes by says nothing of other attention */
    CHECK_OK(overridden("qwen3_30B_A3B.yaml", "rope_type: yarn, rotary_scaling_factor: 40"));
    CHECK_INT(config.rope_scaling, SCALING_NONE);
    CHECK_OK(overridden("qwen3_30B_A3B.yaml",
                        "position_embedding_type: yarn, yarn_rotary_scaling_factor: 4, "
                        "original_max_position_embeddings: 32768"));
    CHECK_INT(config.rope_scaling, SCALING_YARN);
    CHECK_NEAR(config.rope_factor, 4, 0);
    CHECK_INT(config.rope_original, 32768);
    CHECK_OK(overridden("qwen3_30B_A3B.yaml", "use_rope_scaling: true, rope_scaling_factor: 16, "
                                              "rotary_percent: 0.5, add_qkv_bias: true"));
    CHECK_INT(config.rope_scaling, SCALING_LLAMA3);
    CHECK_NEAR(config.rope_factor, 16, 0);
    CHECK_INT(config.rope_original, 8192);
    CHECK_NEAR(config.attention_rotary, 0.5, 0);
    CHECK(config.attention_bias && !config.attention_out_bias && !config.moe_expert_bias);
    CHECK_INT(more.unknown.n, 0);
    CHECK_OK(overridden("qwen3_30B_A3B.yaml", "add_bias_linear: true"));
    CHECK(config.attention_bias && config.attention_out_bias && config.moe_expert_bias);
    CHECK_OK(overridden("deepseek_v2_lite.yaml", "add_bias_linear: true"));
    CHECK(strstr(more.notes[1], "add_bias_linear") != NULL);
}

static void flavours_are_shapes(void **state)
{
    (void)state;
    CHECK_OK(titan("[model]\nname = \"qwen3\"\nflavor = \"0.6B\"\n"));
    CHECK_INT(config.model_layers, 28);
    CHECK_INT(config.model_dense_layers, 28);
    CHECK_INT(config.model_hidden, 1024);
    CHECK(config.model_tied);
    CHECK_OK(titan("[model]\nname = \"gpt_oss\"\nflavor = \"120b\"\n"));
    CHECK_INT(config.moe_experts, 128);
    CHECK_INT(config.attention_head_dim, 64);
    CHECK(config.attention_sinks && config.moe_expert_bias);
    CHECK_OK(titan("[model]\nname = \"llama4\"\nflavor = \"17bx16e\"\n"));
    CHECK_TEXT(more.preset, "llama4-scout");
    CHECK_FAILS(titan("[model]\nname = \"deepseek_v3\"\nflavor = \"17B\"\n"), ERR_ARG,
                "nor a preset deepseek-v3-17b");
}

static void bad_job_files_name_their_line(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "[model\n",      "[]\n",        "[[model]]\n",   "name\n",
        "x = full\n",    "x = \"a\n",   "x = {a = 1}\n", "x = [1 2]\n",
        "x = [1,, 2]\n", "x = [[1]]\n", "x = 5 6\n",     "x = \"\"\"a\n",
        "= 5\n",         "x =\n",       "x = [1\n",      "x = 'a\\'b'\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[256];
        (void)snprintf(text, sizeof text, MODEL "%s", bad[i]);
        CHECK_FAILS(titan(text), ERR_FORMAT, "job.toml:");
    }
    CHECK_FAILS(titan("a = 1\n\nb = full"), ERR_FORMAT, "job.toml:3:");
    CHECK_FAILS(titan("a = 1\na = 2\n"), ERR_ARG, "a second time, first in line 1");
    CHECK_FAILS(titan(""), ERR_ARG, "model.name and model.flavor are missing");
    CHECK_FAILS(titan(MODEL "[parallelism]\nexpert_tensor_parallel_degree = 2\n"), ERR_UNSUPPORTED,
                "expert_tensor_parallel_degree is 2");
    CHECK_FAILS(titan(MODEL "[parallelism]\nexpert_parallel_degree = 0\n"), ERR_ARG,
                "job.toml:5:1: parallelism.expert_parallel_degree is 0: mesh.ep is 0");
}

/* ---- modules ---- */

static void selective_recomputing_names_modules(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        { "[core_attn, moe_act]", "core_attn act" },
        { "\"layernorm mla_up_proj\"", "norm attn_up" },
        { "[mlp, moe, shared_experts]", "mlp moe shared" },
    };
    for (int i = 0; i < 3; i++) {
        char text[256], got[64] = "";
        (void)snprintf(text, sizeof text,
                       "      recompute_granularity: selective\n      recompute_modules: %s\n",
                       cases[i][0]);
        CHECK_OK(primus(shape, text));
        for (int k = 0; k < config.recompute_pieces.n; k++) {
            (void)snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s", k > 0 ? " " : "",
                           config.recompute_pieces.at[k]);
        }
        CHECK_TEXT(got, cases[i][1]);
        CHECK_INT(config.recompute_layers.n, config.model_layers);
    }
    CHECK_OK(primus(shape, "      recompute_granularity: selective\n"));
    CHECK_TEXT(config.recompute_pieces.at[0], "core_attn");
    CHECK_OK(
        primus(shape, "      recompute_granularity: selective\n      recompute_modules: []\n"));
    CHECK_INT(config.recompute_layers.n, 0);
    CHECK_FAILS(primus(shape, "      recompute_granularity: selective\n"
                              "      recompute_modules: [gdn]\n"),
                ERR_UNSUPPORTED, "gdn: understood are core_attn=core_attn|moe_act=act");
}

/* ---- any bytes ---- */

static void mutate(uint64_t seed, char *text, size_t n)
{
    static const char some[] = "0123456789:[]{}*&|,'\"$-=# \nabtEL";
    for (uint64_t i = 0; i < 1 + seed % 4; i++) {
        text[rng_below(seed, 0, i, n)] = some[rng_below(seed, 1, i, sizeof some - 1)];
    }
}

static void mutated_files_fail_with_a_sentence_or_pass_the_checks(void **state)
{
    (void)state;
    static const char exp[] =
        "modules:\n  pre_trainer:\n    framework: megatron\n    model: &a moe_1T.yaml\n"
        "    overrides: {num_layers: 12, micro_batch_size: 1, global_batch_size: 8, "
        "pipeline_model_parallel_size: 2, recompute_granularity: full, moe_layer_freq: "
        "'([0]*2+[1]*10)', recompute_method: block, recompute_num_layers: 1, "
        "pipeline_model_parallel_layout: Et*6|t*6L, seq_length: '${A:16}', fp8: null}\n";
    static const char job[] =
        MODEL "x = [1, 'a']\n[training]\nlocal_batch_size = 4\nseq_len = 64\n[parallelism]\n"
              "data_parallel_shard_degree = 8\npipeline_parallel_degree = 2\n"
              "[activation_checkpoint]\nmode = \"selective\"\nselective_ac_option = '3'\n";
    const char *const texts[] = { exp, job };
    int good = 0, bad = 0;
    for (int i = 0; i < RUNS(4000, 800); i++) {
        char text[1024];
        ArenaMark mark = arena_mark(&arena);
        (void)snprintf(text, sizeof text, "%s", texts[i % 2]);
        mutate((uint64_t)i / 2, text, strlen(text));
        Status s = OK;
        if (i % 2 == 1)
            s = titan(text);
        else {
            put("exp.yaml", text);
            s = plan_import("primus", at("exp.yaml"), &arena, &config, &more);
        }
        if (s == OK) CHECK_OK(config_check(&config));
        good += s == OK;
        bad += s != OK;
        CHECK(s == OK || strlen(status_message()) > 20);
        status_clear();
        arena_release(&arena, mark);
    }
    CHECK(good > RUNS(200, 40) && bad > RUNS(200, 40));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_model_file_is_a_shape),
        TEST(what_a_model_file_leaves_out_follows_from_the_rest),
        TEST(quantile_balancing_is_a_rule_of_the_bias),
        TEST(dense_layers_come_first_or_not_at_all),
        TEST(overrides_win_over_modules_over_models_over_what_these_extend),
        TEST(the_environment_stands_in_for_variables),
        TEST(pipelines_come_as_sizes_layers_or_layouts),
        TEST(schedules_have_names_of_ours),
        TEST(sharding_has_stages_of_zero),
        TEST(recomputing_is_a_list_of_layers),
        TEST(modules_of_multi_token_prediction_are_read),
        TEST(options_of_the_stack_and_unknown_keys_are_listed),
        TEST(options_of_a_file_join_the_stack_s_name),
        TEST(what_a_plan_does_not_follow_is_said),
        TEST(presets_stand_in_for_models_that_are_not_there),
        TEST(a_preset_without_its_latent_attention_keeps_its_heads),
        TEST(bad_experiments_are_one_sentence),
        TEST(a_job_file_is_a_training),
        TEST(a_job_file_may_leave_all_but_the_model_out),
        TEST(pipelines_of_job_files_split_the_local_batch),
        TEST(checkpointed_activations_are_recomputed),
        TEST(selective_recomputing_names_modules),
        TEST(rotary_positions_and_biases_are_read),
        TEST(flavours_are_shapes),
        TEST(bad_job_files_name_their_line),
        TEST(mutated_files_fail_with_a_sentence_or_pass_the_checks),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
