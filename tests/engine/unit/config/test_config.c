#include "harness/arena.h"

#include "engine/base/file.h"
#include "engine/base/rng.h"
#include "engine/config/config_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static Status parse(Config *c, const char *yaml)
{
    return config_parse(c, &arena, "a.yaml", yaml, strlen(yaml));
}

static Config defaults(void)
{
    Config c;
    CHECK_OK(config_default(&c, &arena));
    return c;
}

/* ---- reading ---- */

static void every_field_has_its_fallback(void **state)
{
    (void)state;
    Config c = defaults();
    CHECK_TEXT(c.run_dir, "runs/default");
    CHECK_INT(c.run_seed, 1234);
    CHECK_INT(c.run_compute, COMPUTE_F32);
    CHECK_INT(c.run_guard, false);
    CHECK_INT(c.run_trace_steps.n, 0);
    CHECK_TEXT(c.data_tokenizer, "");
    CHECK_INT(c.data_sources.n, 0);
    CHECK_NEAR(c.model_norm_eps, 1e-6, 0);
    CHECK_INT(c.recompute_pieces.n, 1);
    CHECK_TEXT(c.recompute_pieces.at[0], "layer");
    CHECK_OK(config_check(&c));
}

static void sections_and_their_keys_are_read(void **state)
{
    (void)state;
    Config c;
    CHECK_OK(parse(&c, "run:\n"
                       "  dir: here/and there\n"
                       "  compute: bf16\n"
                       "  guard: true\n"
                       "  trace_steps: [3, 10]\n"
                       "optimizer:\n"
                       "  lr: 2.5e-4\n"
                       "data:\n"
                       "  sources:\n"
                       "    - name: web\n"
                       "      path: /data/web\n"
                       "    - {name: code, path: /data/code, weight: 0.25}\n"));
    CHECK_TEXT(c.run_dir, "here/and there");
    CHECK_INT(c.run_compute, COMPUTE_BF16);
    CHECK_INT(c.run_guard, true);
    CHECK_INT(c.run_trace_steps.n, 2);
    CHECK_INT(c.run_trace_steps.at[1], 10);
    CHECK_NEAR(c.optimizer_lr, 2.5e-4, 0);
    CHECK_INT(c.data_sources.n, 2);
    CHECK_TEXT(c.data_sources.at[0].path, "/data/web");
    CHECK_NEAR(c.data_sources.at[0].weight, 0, 0);
    CHECK_TEXT(c.data_sources.at[1].name, "code");
    CHECK_NEAR(c.data_sources.at[1].weight, 0.25, 0);
    CHECK_INT(c.train_steps, defaults().train_steps);
}

static void nothing_in_a_file_or_a_section_leaves_the_fallbacks(void **state)
{
    (void)state;
    Config c;
    CHECK_OK(parse(&c, ""));
    CHECK_INT(c.train_steps, 1000);
    CHECK_OK(parse(&c, "# a comment\ntrain:\n  # steps: 3\nrun:\n  seed: 5\n"));
    CHECK_INT(c.train_steps, 1000);
    CHECK_INT(c.run_seed, 5);
}

/* So that checkpoints of that version can be resumed and evaluated. */
static void all_settings_of_version_0_9_0_are_read(void **state)
{
    (void)state;
    Config c;
    CHECK_OK(config_load(&c, &arena, "tests/golden/settings-0.9.0.yaml", NULL, 0));
    CHECK_INT(c.model_hidden, 32);
    CHECK_INT(c.train_batch, 4);
    CHECK_TEXT(c.data_sources.at[0].name, "web");
}

static void whole_numbers_may_have_an_exponent_and_keep_every_digit(void **state)
{
    (void)state;
    Config c;
    CHECK_OK(parse(&c, "train: {steps: 2e4}\nrun: {seed: 8999999999999999}\n"));
    CHECK_INT(c.train_steps, 20000);
    CHECK_INT(c.run_seed, 8999999999999999);
}

static void a_failed_read_changes_nothing(void **state)
{
    (void)state;
    Config c = defaults();
    c.run_seed = 77;
    CHECK_FAILS(parse(&c, "run: {seed: 5}\ntrain: {steps: x}\n"), ERR_ARG, "train.steps");
    CHECK_INT(c.run_seed, 77);
    CHECK_FAILS(config_override(&c, &arena, "run.trace_steps=[1, 2, x]"), ERR_ARG, "trace_steps");
    CHECK_INT(c.run_trace_steps.n, 0);
}

/* ---- messages ---- */

static void a_wrong_file_is_told_with_its_place(void **state)
{
    (void)state;
    static const struct {
        const char *yaml;
        Status code;
        const char *part;
    } cases[] = {
        { "train:\n  stepz: 5\n", ERR_ARG,
          "a.yaml:2:3: there is no setting train.stepz, did you mean train.steps?" },
        { "train:\n  lr: 5\n", ERR_ARG, "no setting train.lr: it is optimizer.lr here" },
        { "train:\n  wholly_else: 5\n", ERR_ARG,
          "no setting train.wholly_else (`switchyard train --settings`" },
        { "\nmodle:\n  layers: 5\n", ERR_ARG,
          "a.yaml:2:1: there is no section modle, did you mean model?" },
        { "lr: 5\n", ERR_ARG, "a.yaml:1:1: there is no setting lr: it is optimizer.lr here" },
        { "train:\n  steps: lots\n", ERR_ARG,
          "a.yaml:2:10: train.steps is the text \"lots\", must be a whole number from 0 to 9e+15" },
        { "train:\n  steps: 2.5\n", ERR_ARG, "train.steps is 2.5, must be a whole number" },
        { "train:\n  steps: \"5\"\n", ERR_ARG, "train.steps is the text \"5\"" },
        { "train:\n  steps: [5]\n", ERR_ARG, "train.steps is a list, must be a whole number" },
        { "train:\n  steps: {a: 5}\n", ERR_ARG, "train.steps is a mapping" },
        { "train:\n  steps:\n", ERR_ARG, "train.steps is empty" },
        { "train:\n  steps: true\n", ERR_ARG, "train.steps is true" },
        { "train:\n  steps: 0x10\n", ERR_ARG, "train.steps is the text \"0x10\"" },
        { "train:\n  steps: -1\n", ERR_ARG, "train.steps is -1, must be from 0 to 9e+15" },
        { "model:\n  layers: 10001\n", ERR_ARG, "is 10001, must be from 1 to 10000" },
        { "optimizer:\n  lr: nan\n", ERR_ARG,
          "optimizer.lr is the text \"nan\", must be a number" },
        { "optimizer:\n  lr: 1e999\n", ERR_ARG, "optimizer.lr is the text \"1e999\"" },
        { "optimizer:\n  beta1: 1\n", ERR_ARG, "optimizer.beta1 is 1, must be from 0 to 0.999999" },
        { "optimizer:\n  eps: 0\n", ERR_ARG, "optimizer.eps is 0, must be from 1e-20 to 1" },
        { "run:\n  guard: yes\n", ERR_ARG, "run.guard is the text \"yes\", must be true or false" },
        { "run:\n  compute: fp8\n", ERR_ARG, "is the text \"fp8\", must be one of f32|bf16" },
        { "run:\n  compute: f\n", ERR_ARG, "is the text \"f\", must be one of f32|bf16" },
        { "run:\n  dir:\n", ERR_ARG, "run.dir is empty, must be a text" },
        { "run:\n  dir: \"a\\0b\"\n", ERR_ARG, "run.dir is a text with a NUL in it" },
        { "run:\n  trace_steps: 5\n", ERR_ARG, "run.trace_steps is 5, must be a list" },
        { "run:\n  trace_steps: [5, x]\n", ERR_ARG, "a.yaml:2:20: run.trace_steps is the text" },
        { "recompute:\n  pieces: [norms]\n", ERR_ARG, "\"norms\", must be one of norm|attn_up" },
        { "moe:\n  buffers: exact\n", ERR_ARG,
          "moe.buffers=exact was removed after 0.9.0: take pooled" },
        { "search:\n  buffers: [exact]\n", ERR_ARG, "search.buffers=exact was removed" },
        { "attention:\n  kernel: cudnn\n", ERR_ARG,
          "attention.kernel=cudnn was removed after 0.9.0: take auto: Hopper's GPUs have" },
        { "run: 5\n", ERR_ARG, "a.yaml:1:6: run must be a mapping of names to values" },
        { "- 5\n", ERR_ARG, "a.yaml:1:1: the configuration must be a mapping" },
        { "[run]: 5\n", ERR_ARG, "a.yaml:1:1: a name of a setting is expected here" },
        { "run: {seed: 1}\nrun: {dir: a}\n", ERR_ARG,
          "a.yaml:2:1: run is here a second time, first in line 1" },
        { "run:\n  seed: 1\n  seed: 2\n", ERR_ARG, "a.yaml:3:3: seed is here a second time" },
        { "run: {seed: 1}\n---\nrun: {seed: 2}\n", ERR_FORMAT,
          "a.yaml:3:1: a second YAML document" },
        { "run:\n  trace_steps: [1, 2\n", ERR_FORMAT, "a.yaml:3:1: not YAML: did not find" },
        { "run:\n\tseed: 2\n", ERR_FORMAT, "a.yaml:2:1: not YAML: found character" },
        { "run: {dir: \"\xff\"}\n", ERR_FORMAT, "a.yaml: not YAML at byte 12" },
        { "preset: quickstrat\n", ERR_ARG,
          "a.yaml:1:9: there is no preset quickstrat, did you mean quickstart?" },
        { "preset: [quickstart]\n", ERR_ARG, "a.yaml:1:9: preset must be a preset's name" },
    };
    Config c;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_FAILS(parse(&c, cases[i].yaml), cases[i].code, cases[i].part);
    }
}

static void a_wrong_source_is_told_with_its_number(void **state)
{
    (void)state;
    static const struct {
        const char *value, *part;
    } cases[] = {
        { "a", "data.sources is the text \"a\", must be a list of shards: [{name: web, path: " },
        { "[a]", "data.sources[0] is the text \"a\", must be {name: NAME, path: PATH}" },
        { "[{name: a, path: b}, {name: b}]", "data.sources[1] has no path" },
        { "[{path: b}]", "data.sources[0] has no name" },
        { "[{name: [], path: b}]", "data.sources[0].name is a list, must be a text" },
        { "[{name: a, path: b, wieght: 1}]", "not wieght, did you mean weight?" },
        { "[{name: a, path: b, weight: -1}]", "weight is -1, must be from 0 to 1000000000" },
        { "[{name: a, path: b}, {name: a, path: c}]",
          "data.sources[1] and data.sources[0] are both called a" },
    };
    Config c = defaults();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char assignment[128];
        snprintf(assignment, sizeof assignment, "data.sources=%s", cases[i].value);
        CHECK_FAILS(config_override(&c, &arena, assignment), ERR_ARG, cases[i].part);
    }
}

static void a_list_that_is_too_long_is_refused(void **state)
{
    (void)state;
    char yaml[4096];
    int used = snprintf(yaml, sizeof yaml, "run:\n  trace_steps: [1");
    for (int i = 0; i < CONFIG_LIST_MAX; i++) {
        used += snprintf(yaml + used, sizeof yaml - (size_t)used, ", 1");
    }
    snprintf(yaml + used, sizeof yaml - (size_t)used, "]\n");
    Config c;
    CHECK_FAILS(parse(&c, yaml), ERR_ARG, "run.trace_steps has 257 entries, at most 256 fit");
}

/* ---- overrides ---- */

static void ranges_stand_for_their_numbers(void **state)
{
    (void)state;
    Config c = defaults();
    CHECK_OK(config_override(&c, &arena, "recompute.layers=[0..60, 7, 9-9]"));
    CHECK_INT(c.recompute_layers.n, 63);
    CHECK(c.recompute_layers.at[60] == 60 && c.recompute_layers.at[62] == 9);
    CHECK_FAILS(config_override(&c, &arena, "recompute.layers=[5-2]"), ERR_ARG, "0-60");
    CHECK_FAILS(config_override(&c, &arena, "recompute.layers=[0.5]"), ERR_ARG, "whole number");
    CHECK_FAILS(config_override(&c, &arena, "recompute.layers=[0-255, 7]"), ERR_ARG, "at most 256");
}

static void an_override_changes_its_row_alone(void **state)
{
    (void)state;
    Config c = defaults(), before = c;
    CHECK_OK(config_override(&c, &arena, "train.steps=7"));
    CHECK_INT(c.train_steps, 7);
    c.train_steps = before.train_steps;
    CHECK(memcmp(&c, &before, sizeof c) == 0);
}

static void an_override_takes_lists_as_yaml(void **state)
{
    (void)state;
    Config c = defaults();
    CHECK_OK(config_override(&c, &arena, "data.sources=[{name: a, path: b}]"));
    CHECK_INT(c.data_sources.n, 1);
    CHECK_TEXT(c.data_sources.at[0].path, "b");
    CHECK_OK(config_override(&c, &arena, "recompute.pieces=[norm, act]"));
    CHECK_INT(c.recompute_pieces.n, 2);
    CHECK_TEXT(c.recompute_pieces.at[1], "act");
}

static void an_override_takes_a_text_as_it_stands(void **state)
{
    (void)state;
    Config c = defaults();
    CHECK_OK(config_override(&c, &arena, "run.dir=a: [b] # c = d"));
    CHECK_TEXT(c.run_dir, "a: [b] # c = d");
    CHECK_OK(config_override(&c, &arena, "data.tokenizer="));
    CHECK_TEXT(c.data_tokenizer, "");
}

static void a_wrong_override_is_told_as_it_was_typed(void **state)
{
    (void)state;
    Config c = defaults();
    CHECK_FAILS(config_override(&c, &arena, "train.steps"), ERR_ARG,
                "override train.steps: must be section.key=value");
    CHECK_FAILS(config_override(&c, &arena, "=5"), ERR_ARG, "must be section.key=value");
    CHECK_FAILS(config_override(&c, &arena, "train.stepz=5"), ERR_ARG,
                "override train.stepz=5: there is no setting train.stepz, did you mean");
    CHECK_FAILS(config_override(&c, &arena, "steps=5"), ERR_ARG, "write train.steps=5");
    CHECK_FAILS(config_override(&c, &arena, "train.steps=five"), ERR_ARG,
                "train.steps is the text \"five\"");
    CHECK_FAILS(config_override(&c, &arena, "train.steps="), ERR_ARG, "train.steps is empty");
    CHECK_FAILS(config_override(&c, &arena, "run.dir=\xff"), ERR_ARG, "not UTF-8");
    CHECK_FAILS(config_override(&c, &arena, "run.trace_steps=[1"), ERR_FORMAT, "not YAML");
}

/* ---- precedence and presets ---- */

static void write_file(const char *path, const char *text)
{
    File f = { 0 };
    CHECK_OK(file_create_temp(&f, path, &arena));
    CHECK_OK(file_write(&f, text, strlen(text)));
    CHECK_OK(file_commit(&f));
}

/* Not the defaults of what could not be read. */
static void a_configuration_may_be_a_pipe_and_must_hold_something(void **state)
{
    (void)state;
    static const char YAML[] = "model: {layers: 5}\n";
    Config c;
    int end[2];
    char path[64];
    CHECK_INT(pipe(end), 0);
    CHECK_INT(write(end[1], YAML, strlen(YAML)), strlen(YAML));
    close(end[1]);
    snprintf(path, sizeof path, "/dev/fd/%d", end[0]);
    CHECK_OK(config_load(&c, &arena, path, NULL, 0));
    CHECK_INT(c.model_layers, 5);
    CHECK_FAILS(config_load(&c, &arena, path, NULL, 0), ERR_IO, "is a pipe and holds nothing");
    close(end[0]);
    CHECK_FAILS(config_load(&c, &arena, "/dev/null", NULL, 0), ERR_IO, "/dev/null is a device");
    snprintf(path, sizeof path, "/tmp/switchyard_config_%ld.yaml", (long)getpid());
    write_file(path, "");
    CHECK_FAILS(config_load(&c, &arena, path, NULL, 0), ERR_FORMAT, "is empty");
    unlink(path);
}

static void later_wins_fallback_preset_file_override(void **state)
{
    (void)state;
    char path[64];
    snprintf(path, sizeof path, "/tmp/switchyard_config_%ld.yaml", (long)getpid());
    write_file(path, "preset: quickstart\nmodel: {layers: 5}\ntrain: {batch: 64}\n");
    const char *overrides[] = { "train.batch=48", "train.batch=32" };
    Config c;
    CHECK_OK(config_load(&c, &arena, path, overrides, 2));
    remove(path);
    CHECK_INT(c.run_seed, 1234);
    CHECK_TEXT(c.run_dir, "runs/quickstart");
    CHECK_INT(c.model_layers, 5);
    CHECK_INT(c.train_batch, 32);
}

static void a_preset_loads_by_its_name(void **state)
{
    (void)state;
    Config c;
    CHECK(config_presets_n >= 2);
    for (int i = 0; i < config_presets_n; i++) {
        CHECK_OK(config_load(&c, &arena, config_presets[i].name, NULL, 0));
        CHECK_TEXT(c.model_name, config_presets[i].name);
    }
}

/* A plan of a large model must not take f32 in silence; the quickstart is for CPUs. */
static void all_presets_but_the_quickstart_compute_in_bf16(void **state)
{
    (void)state;
    Config c;
    for (int i = 0; i < config_presets_n; i++) {
        bool small = strcmp(config_presets[i].name, "quickstart") == 0;
        CHECK_OK(config_load(&c, &arena, config_presets[i].name, NULL, 0));
        if ((c.run_compute == COMPUTE_BF16) == small) fail_msg("%s", config_presets[i].name);
    }
}

/* Qwen3 balances over the global batch (arXiv:2505.09388, section 2), DeepSeek over a sequence. */
static void presets_balance_over_what_their_models_did(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t scope;
    } cases[] = { { "mixtral-8x7b", AUX_BATCH },     { "mixtral-8x22b", AUX_BATCH },
                  { "llama4-scout", AUX_BATCH },     { "qwen3-30b-a3b", AUX_GLOBAL },
                  { "qwen3-235b-a22b", AUX_GLOBAL }, { "deepseek-v3", AUX_SEQUENCE } };
    Config c;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_OK(config_load(&c, &arena, cases[i].name, NULL, 0));
        CHECK_INT(c.moe_aux_scope, cases[i].scope);
    }
}

static void a_source_that_is_neither_names_the_nearest_preset(void **state)
{
    (void)state;
    Config c;
    CHECK_FAILS(config_load(&c, &arena, "quikstart", NULL, 0), ERR_ARG,
                "there is neither a file nor a preset quikstart, did you mean quickstart?");
    CHECK_FAILS(config_load(&c, &arena, "deepseek-ai/DeepSeek-V2-Lite", NULL, 0), ERR_ARG,
                "preset deepseek-ai/DeepSeek-V2-Lite, did you mean deepseek-v2-lite?");
    CHECK_FAILS(config_load(&c, &arena, "/no/such/file.yaml", NULL, 0), ERR_ARG,
                "/no/such/file.yaml (`switchyard train --settings`");
    CHECK_FAILS(config_load(&c, &arena, "src", NULL, 0), ERR_ARG,
                "CONFIG is a folder: give a YAML file, such as config.yaml in it; and there is no "
                "preset src");
}

/* Counted from the published dimensions: embedding and head, then attention, norms and MLPs. */
static void deepseek_v2_lite_has_its_published_number_of_parameters(void **state)
{
    (void)state;
    Config c;
    CHECK_OK(config_load(&c, &arena, "deepseek-v2-lite", NULL, 0));
    int64_t d = c.model_hidden, head = c.attention_nope_dim + c.attention_rope_dim;
    int64_t kv = c.attention_heads * (c.attention_nope_dim + c.attention_v_dim);
    int64_t attention = c.attention_heads * head * d + c.attention_kv_rank * (kv + 1) +
                        (c.attention_kv_rank + c.attention_rope_dim) * d +
                        c.attention_heads * c.attention_v_dim * d;
    int64_t moe = c.moe_experts * d + (c.moe_experts + c.moe_shared) * 3 * c.moe_ffn * d;
    int64_t total = 2 * c.model_vocab * d + d + c.model_layers * (attention + 2 * d) +
                    c.model_dense_layers * 3 * c.model_ffn * d +
                    (c.model_layers - c.model_dense_layers) * moe;
    CHECK(!c.model_tied);
    CHECK_INT(c.attention_q_rank, 0);
    CHECK_INT(c.moe_top_k, 6);
    CHECK_INT(total, 15706484224);
}

/* ---- checks over rows ---- */

static void settings_that_do_not_fit_each_other_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *overrides[4], *part;
    } cases[] = {
        { { "train.batch=10", "train.micro_batch=4" },
          "train.micro_batch 4 does not divide train.batch 10" },
        { { "model.dense_layers=7" }, "model.dense_layers 7 is more than model.layers 6" },
        { { "attention.rope_dim=15" }, "attention.rope_dim 15 is odd" },
        { { "attention.kind=gqa", "attention.head_dim=31" }, "attention.head_dim 31 is odd" },
        { { "attention.kind=gqa", "attention.kv_heads=3" },
          "attention.kv_heads 3 does not divide attention.heads 8" },
        { { "attention.qk_norm=rms" }, "attention.qk_norm is for attention.kind gqa" },
        { { "attention.rotary=0.5" }, "attention.rotary 0.5 is for attention.kind gqa" },
        { { "attention.nope_every=4" }, "attention.nope_every 4 is for attention.kind gqa" },
        { { "attention.kind=gqa", "attention.rotary=0.1" },
          "attention.rotary 0.1 of attention.head_dim 32 is 3 columns" },
        { { "attention.kind=gqa", "attention.rotary=0" }, "attention.head_dim 32 is 0 columns" },
        { { "attention.kind=gqa", "attention.temper_floor=8" },
          "attention.temper_floor 8 is for layers without positions" },
        { { "rope.factor=2" }, "rope.factor 2 stretches nothing with rope.scaling=none" },
        { { "rope.scaling=yarn" }, "rope.scaling=yarn needs rope.original above 0" },
        { { "rope.scaling=llama3" }, "rope.scaling=llama3 needs rope.original above 0" },
        { { "rope.scaling=yarn", "rope.original=8", "rope.beta_slow=32" },
          "rope.beta_fast 32 must be above rope.beta_slow 32" },
        { { "rope.scaling=yarn", "rope.original=8", "attention.rope_theta=1" },
          "attention.rope_theta 1 makes all the same" },
        { { "rope.scaling=llama3", "rope.original=8", "rope.high_freq=0.5" },
          "rope.high_freq 0.5 must be above rope.low_freq 1" },
        { { "attention.full_every=4" }, "attention.full_every 4 needs an attention.window or" },
        { { "moe.groups=3" }, "moe.groups 3 does not divide moe.experts 8" },
        { { "moe.score_input=true", "moe.top_k=2" }, "moe.top_k 2 must be 1" },
        { { "moe.score_input=true", "moe.top_k=1", "moe.capacity=2" }, "moe.capacity 2 drops" },
        { { "moe.shared_gate=true", "moe.shared=0" }, "moe.shared_gate needs a shared expert" },
        { { "moe.groups=4", "moe.top_groups=5" }, "moe.top_groups 5 is more than moe.groups 4" },
        { { "moe.groups=4", "moe.group_score_top=3" }, "moe.group_score_top 3 is more than" },
        { { "moe.groups=4", "moe.top_groups=2", "moe.top_k=5" },
          "moe.top_k 5 is more than the 4 experts" },
        { { "moe.top_k=9" }, "moe.top_k 9 is more than the 8 experts" },
        { { "recompute.layers=[0, 6]" }, "recompute.layers names layer 6, model.layers is 6" },
        { { "fp8.recipe=row", "fp8.layers=[0, 6]" },
          "fp8.layers names layer 6, model.layers is 6" },
        { { "fp8.recipe=row", "fp8.layers=[8]", "mtp.layers=2" },
          "fp8.layers names layer 8, model.layers + mtp.layers is 8" },
        { { "fp8.layers=[0]" }, "fp8.layers is a detail of 8-bit products, and fp8.recipe=none" },
        { { "fp8.wgrad=bf16" }, "fp8.wgrad is a detail of 8-bit products" },
        { { "fp8.dispatch=bf16" }, "fp8.dispatch is a detail of 8-bit products" },
        { { "fp8.recipe=row", "fp8.dispatch=fp8" },
          "fp8.dispatch=fp8 makes columns from rows that are already 8-bit" },
        { { "fp8.recipe=block", "fp8.dispatch=fp8", "fp8.scales=exact" },
          "set fp8.recipe=block with fp8.scales=auto" },
        { { "fp8.recipe=block", "fp8.dispatch=fp8", "fp8.products=dense" },
          "fp8.products=all (or grouped)" },
        { { "fp8.format=hybrid" }, "fp8.format is a detail of 8-bit products" },
        { { "fp8.scales=exact" }, "fp8.scales is a detail of 8-bit products" },
        { { "fp8.format=e2m1", "fp8.recipe=block" },
          "fp8.format: 4 and 6 bits need scales of 1 x 32" },
        { { "fp8.scales=exact", "fp8.recipe=mx" },
          "fp8.scales=exact: scales of fp8.recipe=mx are" },
        { { "run.compute=f16", "fp8.recipe=block" },
          "run.compute=f16 skips steps by the infinities" },
        { { "fp8.attention=true", "mesh.cp=2" },
          "fp8.attention works on whole sequences, and mesh.cp 2 cuts them" },
        { { "attention.kernel=hopper", "run.compute=bf16", "run.device=cpu" },
          "attention.kernel=hopper needs a GPU, run.device is cpu" },
        { { "attention.kernel=hopper" }, "attention.kernel=hopper takes bf16, run.compute is f32" },
        { { "optimizer.moments=bf16", "optimizer.beta2=0.991" },
          "optimizer.beta2 0.991 is more than 0.99" },
        { { "optimizer.lr=1e-5" }, "optimizer.min_lr 0.0001 is more than optimizer.lr 1e-05" },
    };
    Config c;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int n = 0;
        while (n < 4 && cases[i].overrides[n] != NULL) n++;
        CHECK_FAILS(config_load(&c, &arena, NULL, cases[i].overrides, n), ERR_ARG, cases[i].part);
    }
}

static void a_sequence_has_two_pieces_for_each_rank_that_shares_it(void **state)
{
    (void)state;
    const char *fits[] = { "mesh.cp=3", "data.sequence=48" };
    const char *one[] = { "mesh.cp=1", "data.sequence=47" };
    const char *odd[] = { "mesh.cp=4", "data.sequence=44" },
               *few[] = { "mesh.cp=4", "data.sequence=4" };
    Config c;
    CHECK_OK(config_load(&c, &arena, NULL, fits, 2));
    CHECK_OK(config_load(&c, &arena, NULL, one, 2));
    CHECK_FAILS(
        config_load(&c, &arena, NULL, odd, 2), ERR_ARG,
        "data.sequence 44 is not a multiple of 8, two pieces for each rank of mesh.cp 4; 40");
    CHECK_FAILS(config_load(&c, &arena, NULL, few, 2), ERR_ARG, "mesh.cp 4; 8 is the nearest");
}

static void masks_of_attention_can_be_run(void **state)
{
    (void)state;
    const char *norm[] = { "attention.kind=gqa", "attention.qk_norm=l2" };
    const char *chunk[] = { "attention.chunk=64", "attention.full_every=4" };
    const char *window[] = { "attention.window=64", "attention.full_every=2",
                             "attention.sinks=true" };
    Config c;
    CHECK_OK(config_load(&c, &arena, NULL, norm, 2));
    CHECK_OK(config_check_ops(&c, 1));
    CHECK_OK(config_load(&c, &arena, NULL, chunk, 2));
    CHECK_OK(config_check_ops(&c, 1));
    CHECK_OK(config_load(&c, &arena, NULL, window, 3));
    CHECK_OK(config_check_ops(&c, 1));
}

static void limits_that_are_met_exactly_pass(void **state)
{
    (void)state;
    const char *overrides[] = { "moe.groups=4",          "moe.top_groups=2",
                                "moe.top_k=4",           "optimizer.lr=1",
                                "optimizer.min_lr=1",    "model.dense_layers=5",
                                "moe.group_score_top=2", "recompute.layers=[5]",
                                "fp8.recipe=tensor",     "fp8.layers=[5]" };
    Config c;
    CHECK_OK(config_load(&c, &arena, NULL, overrides, sizeof overrides / sizeof *overrides));
}

static void a_model_without_experts_may_leave_their_settings_unfit(void **state)
{
    (void)state;
    const char *overrides[] = { "model.dense_layers=6", "moe.top_k=9" };
    Config c;
    CHECK_OK(config_load(&c, &arena, NULL, overrides, 2));
}

/* ---- printing ---- */

enum { SEED = 20, TRIALS = 300 };

static uint64_t draw(uint64_t n)
{
    static uint64_t index;
    return rng_below(SEED, 1, index++, n);
}

static const char *random_text(void)
{
    static const char *const pieces[] = {
        "a",
        "B",
        "7",
        " ",
        ": ",
        "#",
        "\"",
        "\\",
        "'",
        "\n",
        "\t",
        "\x01",
        "\x7f",
        "{",
        "]",
        ",",
        "-",
        "?",
        "/",
        ".",
        "&",
        "*",
        "!",
        "|",
        "%",
        "\xc3\xa9",
        "\xc2\x85",
        "null",
        "true",
        "~",
        "1e5",
        "\r\n",
        "\xc2\xa0",
        "\xe2\x80\xa8",
        "\xef\xbb\xbf",
        "\xef\xbf\xbe",
        "\xf0\x9f\x9a\x82",
    };
    char text[256] = "";
    for (uint64_t n = draw(12); n > 0; n--) {
        strcat(text, pieces[draw(sizeof pieces / sizeof *pieces)]);
    }
    const char *out = NULL;
    CHECK_OK(arena_text(&arena, text, strlen(text), &out));
    return out;
}

static const char *random_word(const char *choices)
{
    char words[128], *word = words;
    int n = 1;
    snprintf(words, sizeof words, "%s", choices);
    for (const char *c = choices; *c != '\0'; c++) n += *c == '|';
    for (uint64_t skip = draw((uint64_t)n); skip > 0; skip--) word = strchr(word, '|') + 1;
    word[strcspn(word, "|")] = '\0';
    const char *out = NULL;
    CHECK_OK(arena_text(&arena, word, strlen(word), &out));
    return out;
}

static double random_real(const ConfigRow *row)
{
    double t = (double)draw(1u << 30) / (double)(1u << 30);
    double v = draw(2) == 0 ? row->min + t * (row->max - row->min) : t * pow(10, -(double)draw(20));
    return fmin(fmax(v, row->min), row->max);
}

static int64_t random_int(const ConfigRow *row) { return (int64_t)nearbyint(random_real(row)); }

static void random_sources(ConfigSources *s)
{
    static const ConfigRow weight = { .min = 0, .max = 1e9 };
    s->n = (int)draw(CONFIG_SOURCES_MAX + 1);
    for (int i = 0; i < s->n; i++) {
        char name[300];
        snprintf(name, sizeof name, "%d_%s", i, random_text());
        CHECK_OK(arena_text(&arena, name, strlen(name), &s->at[i].name));
        s->at[i].path = random_text();
        s->at[i].weight = random_real(&weight);
    }
}

static void randomise(const ConfigRow *row, void *field)
{
    ConfigInts *ints = field;
    ConfigTexts *texts = field;
    switch (row->type) {
    case CONFIG_INT: *(int64_t *)field = random_int(row); break;
    case CONFIG_REAL: *(double *)field = random_real(row); break;
    case CONFIG_BOOL: *(bool *)field = draw(2) == 1; break;
    case CONFIG_TEXT: *(const char **)field = random_text(); break;
    case CONFIG_CHOICE: *(int *)field = (int)draw(strchr(row->choices, '|') == NULL ? 1 : 2); break;
    case CONFIG_INTS:
        ints->n = (int)draw(CONFIG_LIST_MAX + 1);
        for (int i = 0; i < ints->n; i++) ints->at[i] = random_int(row);
        break;
    case CONFIG_TEXTS:
        texts->n = (int)draw(33);
        for (int i = 0; i < texts->n; i++)
            texts->at[i] = row->choices != NULL ? random_word(row->choices) : "any";
        break;
    case CONFIG_SOURCES: random_sources(field); break;
    }
}

static bool same_texts(const ConfigTexts *a, const ConfigTexts *b)
{
    bool same = a->n == b->n;
    for (int i = 0; same && i < a->n; i++) same = strcmp(a->at[i], b->at[i]) == 0;
    return same;
}

static bool same_sources(const ConfigSources *a, const ConfigSources *b)
{
    bool same = a->n == b->n;
    for (int i = 0; same && i < a->n; i++) {
        same = strcmp(a->at[i].name, b->at[i].name) == 0 &&
               strcmp(a->at[i].path, b->at[i].path) == 0 && a->at[i].weight == b->at[i].weight;
    }
    return same;
}

static bool same_field(const ConfigRow *row, const Config *x, const Config *y)
{
    const void *a = (const char *)x + row->offset, *b = (const char *)y + row->offset;
    const ConfigInts *ia = a, *ib = b;
    switch (row->type) {
    case CONFIG_INT: return *(const int64_t *)a == *(const int64_t *)b;
    case CONFIG_REAL: return *(const double *)a == *(const double *)b;
    case CONFIG_BOOL: return *(const bool *)a == *(const bool *)b;
    case CONFIG_TEXT: return strcmp(*(const char *const *)a, *(const char *const *)b) == 0;
    case CONFIG_CHOICE: return *(const int *)a == *(const int *)b;
    case CONFIG_INTS:
        return ia->n == ib->n && memcmp(ia->at, ib->at, (size_t)ia->n * sizeof ia->at[0]) == 0;
    case CONFIG_TEXTS: return same_texts(a, b);
    case CONFIG_SOURCES: return same_sources(a, b);
    }
    return false;
}

static void what_is_printed_reads_back_to_the_same_values(void **state)
{
    (void)state;
    for (int trial = 0; trial < TRIALS; trial++) {
        ArenaMark mark = arena_mark(&arena);
        Config c = defaults(), fallbacks = c, back;
        for (int i = 0; i < config_row_count; i++) {
            randomise(&config_rows[i], (char *)&c + config_rows[i].offset);
        }
        Text yaml;
        CHECK_OK(text_init(&yaml, &arena));
        CHECK_OK(config_print(&c, &yaml));
        CHECK_OK(config_parse(&back, &arena, "printed", yaml.data, yaml.used));
        for (int i = 0; i < config_row_count; i++) {
            const ConfigRow *row = &config_rows[i];
            const Config *want = row->level == CONFIG_PLAN ? &fallbacks : &c;
            if (!same_field(row, want, &back)) fail_msg("%s", row->name);
        }
        arena_release(&arena, mark);
    }
}

static void numbers_print_with_the_fewest_digits_and_safe_texts_bare(void **state)
{
    (void)state;
    Config c = defaults();
    Text t;
    c.optimizer_lr = 0.1;
    c.optimizer_min_lr = 1.0 / 3;
    CHECK_OK(text_init(&t, &arena));
    CHECK_OK(config_print(&c, &t));
    CHECK(strstr(t.data, "\n  lr: 0.1\n") != NULL);
    CHECK(strstr(t.data, "\n  min_lr: 0.3333333333333333\n") != NULL);
    CHECK(strstr(t.data, "\n  dir: runs/default\n") != NULL);
    CHECK(strstr(t.data, "\n  tokenizer: \"\"\n") != NULL);
    CHECK(strstr(t.data, "\n  pieces: [layer]\n") != NULL);
    CHECK(text_starts(t.data, "run:\n"));
}

static void words_of_choices_stand_in_the_order_of_their_enums(void **state)
{
    (void)state;
    static const struct {
        const char *assignment;
        size_t offset;
        int want;
    } cases[] = {
        { "run.compute=bf16", offsetof(Config, run_compute), COMPUTE_BF16 },
        { "attention.kind=gqa", offsetof(Config, attention_kind), ATTENTION_GQA },
        { "moe.score=sigmoid", offsetof(Config, moe_score), SCORE_SIGMOID },
        { "moe.aux_scope=batch", offsetof(Config, moe_aux_scope), AUX_BATCH },
        { "moe.aux_scope=global", offsetof(Config, moe_aux_scope), AUX_GLOBAL },
        { "optimizer.moments=bf16", offsetof(Config, optimizer_moments), MOMENTS_BF16 },
    };
    Config c = defaults();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_OK(config_override(&c, &arena, cases[i].assignment));
        CHECK_INT(*(const int *)(const void *)((const char *)&c + cases[i].offset), cases[i].want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_field_has_its_fallback),
        TEST(sections_and_their_keys_are_read),
        TEST(nothing_in_a_file_or_a_section_leaves_the_fallbacks),
        TEST(all_settings_of_version_0_9_0_are_read),
        TEST(whole_numbers_may_have_an_exponent_and_keep_every_digit),
        TEST(a_failed_read_changes_nothing),
        TEST(a_wrong_file_is_told_with_its_place),
        TEST(a_wrong_source_is_told_with_its_number),
        TEST(a_list_that_is_too_long_is_refused),
        TEST(ranges_stand_for_their_numbers),
        TEST(an_override_changes_its_row_alone),
        TEST(an_override_takes_lists_as_yaml),
        TEST(an_override_takes_a_text_as_it_stands),
        TEST(a_wrong_override_is_told_as_it_was_typed),
        TEST(a_configuration_may_be_a_pipe_and_must_hold_something),
        TEST(later_wins_fallback_preset_file_override),
        TEST(a_preset_loads_by_its_name),
        TEST(all_presets_but_the_quickstart_compute_in_bf16),
        TEST(presets_balance_over_what_their_models_did),
        TEST(a_source_that_is_neither_names_the_nearest_preset),
        TEST(deepseek_v2_lite_has_its_published_number_of_parameters),
        TEST(settings_that_do_not_fit_each_other_are_refused),
        TEST(a_sequence_has_two_pieces_for_each_rank_that_shares_it),
        TEST(masks_of_attention_can_be_run),
        TEST(limits_that_are_met_exactly_pass),
        TEST(a_model_without_experts_may_leave_their_settings_unfit),
        TEST(what_is_printed_reads_back_to_the_same_values),
        TEST(numbers_print_with_the_fewest_digits_and_safe_texts_bare),
        TEST(words_of_choices_stand_in_the_order_of_their_enums),
    };
    return ARENA_RUN(tests);
}
