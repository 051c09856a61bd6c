/* Folders of TorchTitan (tests/golden/dcp, which tools/golden_dcp.py made with its own adapters) become what
 * transformers' folder of the same model becomes: weights bit by bit, moments that are known from the weights,
 * and the same logits however the configuration wants its columns rotated. Then what does not fit. */
#include "harness/place.h"

#include "convert/convert.h"
#include "dcp/from_dcp.h"
#include "engine/checkpoint/manifest.h"
#include "engine/step/engine.h"
#include "engine/train/infer.h"

#include <math.h>

enum { TOKENS = 13, VOCAB = 31, UPDATES = 5, STEP = 7 };

typedef struct Place {
    char folder[64], hf[FILE_PATH_MAX], dcp[FILE_PATH_MAX], yaml[FILE_PATH_MAX];
    Arena arena;
} Place;

static int place_open(void **state)
{
    static Place place;
    Place *p = *state = &place;
    place_make(p->folder, &p->arena);
    CHECK_OK(file_join(p->hf, p->folder, "from-hf"));
    CHECK_OK(file_join(p->dcp, p->folder, "from-dcp"));
    CHECK_OK(file_join(p->yaml, p->hf, "config.yaml"));
    return 0;
}

static int place_close(void **state)
{
    Place *p = *state;
    place_drop(p->folder, &p->arena);
    return 0;
}

static const char *golden(const char *model, const char *part)
{
    static char path[2][FILE_PATH_MAX];
    static int turn;
    char *out = path[turn++ % 2];
    snprintf(out, FILE_PATH_MAX, "tests/golden/dcp/%s/%s", model, part);
    return out;
}

static void from_hf(Place *p, const char *model)
{
    Text said;
    CHECK_OK(file_remove_tree(p->hf));
    CHECK_OK(file_remove_tree(p->dcp));
    arena_release(&p->arena, (ArenaMark){ 0 });
    Arena text = { 0 };
    CHECK_OK(arena_init(&text, "text", MEM_HOST, 1 << 20));
    CHECK_OK(text_init(&said, &text));
    CHECK_OK(convert_from_hf(golden(model, "hf"), p->hf, &p->arena, &said));
    arena_free(&text);
}

/* From a folder, with the configuration of the other checkpoint and one setting changed. */
static Status from_dcp(Place *p, const char *folder, ConvertFromDcp o, const char *setting,
                       const char *says)
{
    Config c;
    Text said;
    Arena text = { 0 };
    CHECK_OK(arena_init(&text, "text", MEM_HOST, 1 << 20));
    CHECK_OK(text_init(&said, &text));
    CHECK_OK(config_load(&c, &p->arena, p->yaml, &setting, setting != NULL));
    o.folder = folder;
    o.out = p->dcp;
    o.config = &c;
    Status s = convert_from_dcp(&o, &p->arena, &said);
    if (s == OK && strstr(said.data, says) == NULL) fail_msg("it says: %s", said.data);
    arena_free(&text);
    return s;
}

/* The elements of a parameter in a buffer. */
static float *elements(Place *p, const char *checkpoint, const char *param, ParamBuffer b,
                       int64_t *n)
{
    CheckpointInfo info;
    ManifestEntry *e = NULL;
    int64_t entries = 0;
    char path[FILE_PATH_MAX];
    float *out = NULL;
    File f = { 0 };
    CHECK_OK(manifest_read(checkpoint, &p->arena, &info, &e, &entries));
    for (int64_t i = 0; i < entries; i++) {
        if (e[i].buffer != b || strcmp(e[i].param, param) != 0) continue;
        *n = piece_elems(&e[i].piece);
        CHECK_OK(file_join(path, checkpoint, e[i].file));
        CHECK_OK(ARENA_NEW(&p->arena, *n, &out));
        CHECK_OK(file_open_read(&f, path));
        CHECK_OK(file_read(&f, e[i].offset, out, (size_t)*n * sizeof *out));
        file_close(&f);
        return out;
    }
    fail_msg("%s has no %s", checkpoint, param);
    return NULL;
}

/* Weights have the bits of the other checkpoint; moments are what golden_dcp.py made of them. */
static void compare_checkpoints(Place *p, bool moments, int64_t step)
{
    CheckpointInfo info;
    ManifestEntry *e = NULL;
    int64_t entries = 0, of = 0;
    CHECK_OK(manifest_read(p->hf, &p->arena, &info, &e, &entries));
    for (int64_t i = 0; i < entries; i++) {
        ArenaMark mark = arena_mark(&p->arena);
        int64_t n = 0, m = 0;
        const float *want = elements(p, p->hf, e[i].param, e[i].buffer, &n);
        const float *have = elements(p, p->dcp, e[i].param, e[i].buffer, &m);
        CHECK_INT(m, n);
        if (memcmp(have, want, (size_t)n * sizeof *want) != 0) fail_msg("%s differs", e[i].param);
        for (int k = 0; moments && e[i].buffer == BUF_MAIN && k < 2; k++) {
            have = elements(p, p->dcp, e[i].param, (ParamBuffer)(BUF_OPTIMIZER + k), &m);
            CHECK_INT(m, n);
            for (int64_t j = 0; j < n; j++)
                CHECK_NEAR(have[j], k == 0 ? want[j] * 0.5F : want[j] * want[j], 0);
            of++;
        }
        of++;
        arena_release(&p->arena, mark);
    }
    CHECK_OK(manifest_read(p->dcp, &p->arena, &info, &e, &entries));
    CHECK_INT(entries, of);
    CHECK_INT(info.step, step);
    CHECK_INT(info.moment_steps[AGE_MODEL], moments ? UPDATES : 0);
}

enum { MEGATRON_VOCAB = 64 };

/* In `n` columns. */
static float *logits(Place *p, const char *checkpoint, int n)
{
    char path[FILE_PATH_MAX];
    Config c;
    Engine e = { 0 };
    CheckpointInfo info;
    const float *from = NULL;
    float *out = NULL;
    int32_t id[TOKENS];
    for (int i = 0; i < TOKENS; i++) id[i] = (7 * i * i + 3) % VOCAB;
    CHECK_OK(infer_config(checkpoint, &p->arena, path, &c));
    c.run_device = DEVICE_CPU;
    const EngineShape shape = { .batch = 1,
                                .micro_batch = 1,
                                .sequence = TOKENS,
                                .positions = TOKENS,
                                .domains = 1,
                                .threads = 1,
                                .cache = true,
                                .logit_rows = TOKENS };
    CHECK_OK(infer_open(&e, &c, &shape, path, false, &p->arena, &info));
    CHECK_OK(engine_next_logits(&e, id, TOKENS, &from));
    CHECK_OK(ARENA_NEW(&p->arena, TOKENS * n, &out));
    memcpy(out, e.io.logits.data, sizeof *out * (size_t)(TOKENS * n));
    engine_close(&e);
    return out;
}

static const char *const models[] = { "llama", "qwen3_moe", "deepseek_v3" };
enum { MODELS = sizeof models / sizeof *models };

/* One process or two that share each tensor; float32 or bfloat16; dense, experts, latent attention. */
static void folders_of_torchtitan_hold_the_same_model_as_those_of_transformers(void **state)
{
    Place *p = *state;
    for (int i = 0; i < MODELS; i++) {
        from_hf(p, models[i]);
        CHECK_OK(from_dcp(p, golden(models[i], "titan"), (ConvertFromDcp){ 0 }, NULL,
                          "TorchTitan, step 7, "));
        compare_checkpoints(p, true, STEP);
        CHECK_OK(file_remove_tree(p->dcp));
        CHECK_OK(from_dcp(p, golden(models[i], "titan"), (ConvertFromDcp){ .weights = true }, NULL,
                          " tensors\n"));
        compare_checkpoints(p, false, STEP);
    }
}

/* The names of transformers, whose class holds experts stacked, behind a prefix. */
static void a_state_dict_of_transformers_is_its_model(void **state)
{
    Place *p = *state;
    from_hf(p, "qwen3_moe");
    CHECK_OK(from_dcp(p, golden("qwen3_moe", "plain"), (ConvertFromDcp){ 0 }, NULL,
                      "transformers, step 0, "));
    compare_checkpoints(p, false, 0);
}

/* Columns in the other order, and a product that knows it. */
static void logits_do_not_depend_on_how_columns_are_rotated(void **state)
{
    static const char *const other[] = { "attention.rope_interleaved=true",
                                         "attention.rope_interleaved=true",
                                         "attention.rope_interleaved=false" };
    Place *p = *state;
    for (int i = 0; i < MODELS; i++) {
        from_hf(p, models[i]);
        CHECK_OK(
            from_dcp(p, golden(models[i], "titan"), (ConvertFromDcp){ 0 }, other[i], "step 7"));
        const float *want = logits(p, p->hf, VOCAB), *have = logits(p, p->dcp, VOCAB);
        for (int k = 0; k < TOKENS * VOCAB; k++) CHECK_NEAR(have[k], want[k], 2e-5);
        /* a folder that is said to be rotated otherwise is another model */
        CHECK_OK(file_remove_tree(p->dcp));
        const int rope = i == 1 ? DCP_ROPE_PAIRS : DCP_ROPE_HALVES;
        CHECK_OK(from_dcp(p, golden(models[i], "titan"), (ConvertFromDcp){ .rope = rope }, other[i],
                          "step 7"));
        double far = 0;
        have = logits(p, p->dcp, VOCAB);
        for (int k = 0; k < TOKENS * VOCAB; k++)
            far = fmax(far, fabs((double)have[k] - (double)want[k]));
        CHECK(far > 1e-3);
    }
}

static void what_does_not_fit_the_configuration_is_refused_by_its_key(void **state)
{
    static const struct {
        int model;
        const char *setting, *says;
    } rows[] = {
        { 0, "model.ffn=15",
          "layers.0.feed_forward.w1.weight is torch.float32 (14, 12); by the configuration it must "
          "be "
          "torch.float32 (15, 12)" },
        { 0, "model.vocab=32", "tok_embeddings.weight is torch.float32 (31, 12)" },
        { 0, "model.layers=2", "has no tensor layers.1.attention_norm.weight, which" },
        { 0, "attention.qk_norm=rms", "has no tensor layers.0.attention.q_norm.weight" },
        { 0, "attention.bias=true",
          "the layout of TorchTitan has no place for model.layers.0.self_attn.q_" },
        { 0, "model.tied=true", "lm_head.weight differs from tok_embeddings.weight" },
        { 1, "moe.ffn=8", "inner_experts.w1_EFD is torch.float32 (5, 7, 12)" },
        { 1, "attention.qk_norm=none",
          "has no tensor layers.0.attention.k_norm.weight, which is torch.float32 (6)" },
        { 2, "moe.bias_rate=0", "has no tensor layers.1.moe.expert_bias_E" },
    };
    Place *p = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        from_hf(p, models[rows[i].model]);
        const bool no_place = strstr(rows[i].says, "no place") != NULL;
        CHECK_FAILS(from_dcp(p, golden(models[rows[i].model], "titan"), (ConvertFromDcp){ 0 },
                             rows[i].setting, ""),
                    no_place ? ERR_UNSUPPORTED : ERR_FORMAT, rows[i].says);
        CHECK(!file_exists(p->dcp));
    }
}

/* Models of Megatron-Core, and the logits that it computed itself: all layers in one tensor, or one by one; experts
 * joined, queries, keys and values too. A vocabulary that is smaller than the padded table. */
static void folders_of_megatron_hold_the_models_that_it_computed_with(void **state)
{
    static const char *const kinds[] = { "alike", "mixed" };
    Place *p = *state;
    for (int i = 0; i < 4; i++) {
        const int vocab = i < 2 ? MEGATRON_VOCAB : 40;
        char file[64], *data = NULL;
        size_t bytes = 0;
        CHECK_OK(file_remove_tree(p->dcp));
        snprintf(p->yaml, sizeof p->yaml, "tests/golden/dcp/megatron/%s.yaml", kinds[i % 2]);
        CHECK_OK(from_dcp(p, golden("megatron", kinds[i % 2]), (ConvertFromDcp){ 0 },
                          i < 2 ? NULL : "model.vocab=40", "Megatron-Core, step 0, "));
        snprintf(file, sizeof file, "tests/golden/dcp/megatron/%s.f32", kinds[i % 2]);
        CHECK_OK(file_read_all(file, &p->arena, &data, &bytes));
        CHECK_INT(bytes, sizeof(float) * TOKENS * MEGATRON_VOCAB);
        const float *want = (const float *)(const void *)data, *have = logits(p, p->dcp, vocab);
        for (int k = 0; k < TOKENS * vocab; k++)
            CHECK_NEAR(have[k], want[k / vocab * MEGATRON_VOCAB + k % vocab], 2e-6);
    }
}

/* A setting of the optimizer decides whether moments mean anything. */
static void moments_are_only_taken_by_adamw(void **state)
{
    Place *p = *state;
    from_hf(p, "llama");
    CHECK_OK(from_dcp(p, golden("llama", "titan"), (ConvertFromDcp){ 0 }, "optimizer.kind=muon",
                      " tensors\n"));
    compare_checkpoints(p, false, STEP);
}

static bool same_elements(Place *p, const char *a, const char *b, const char *checkpoint)
{
    int64_t n = 0, m = 0;
    const float *x = elements(p, checkpoint, a, BUF_MAIN, &n);
    const float *y = elements(p, checkpoint, b, BUF_MAIN, &m);
    return n == m && memcmp(x, y, (size_t)n * sizeof *x) == 0;
}

/* All elements are `value` but for what three steps have changed. */
static void check_norm(Place *p, const char *param, float value)
{
    int64_t n = 0;
    const float *x = elements(p, p->dcp, param, BUF_MAIN, &n);
    CHECK_INT(n, 24);
    for (int64_t i = 0; i < n; i++) CHECK_NEAR(x[i], value, 0.02);
}

/* As golden_megatron.py made it: the module's layer is the last one of the model. */
static void check_module(Place *p)
{
    static const char last[] = "model.layers.1.", module[] = "model.layers.2.";
    CheckpointInfo info;
    ManifestEntry *e = NULL;
    int64_t entries = 0, same = 0, n = 0;
    char twin[PARAM_NAME_MAX];
    CHECK_OK(manifest_read(p->dcp, &p->arena, &info, &e, &entries));
    for (int64_t i = 0; i < entries; i++) {
        if (e[i].buffer != BUF_MAIN || !text_starts(e[i].param, last)) continue;
        snprintf(twin, sizeof twin, "%s%s", module, e[i].param + strlen(last));
        if (!same_elements(p, e[i].param, twin, p->dcp)) fail_msg("%s differs", twin);
        same++;
    }
    CHECK_INT(same, 18);
    check_norm(p, "model.layers.2.enorm.weight", 2);
    check_norm(p, "model.layers.2.hnorm.weight", 3);
    check_norm(p, "model.layers.2.shared_head.norm.weight", 4);
    (void)elements(p, p->dcp, "model.layers.2.eh_proj.weight", BUF_MAIN, &n);
    CHECK_INT(n, 24 * 48);
}

/* A model in bfloat16: with moments the weights are the optimizer's own, without them their rounded copies. */
static void moments_of_megatron_come_with_the_weights_that_they_belong_to(void **state)
{
    Place *p = *state;
    CheckpointInfo info;
    ManifestEntry *e = NULL;
    int64_t entries = 0, rounded = 0, n = 0;
    snprintf(p->yaml, sizeof p->yaml, "tests/golden/dcp/megatron/alike.yaml");
    CHECK_OK(file_remove_tree(p->dcp));
    CHECK_OK(from_dcp(p, golden("megatron", "trained"), (ConvertFromDcp){ 0 }, "mtp.layers=1",
                      "Megatron-Core, step 7, 17028 parameters in 61 tensors, with moments after 3 "
                      "updates\n"));
    check_module(p);
    CHECK_OK(manifest_read(p->dcp, &p->arena, &info, &e, &entries));
    CHECK_INT(entries, 3 * 61);
    CHECK_INT(info.step, STEP);
    CHECK_INT(info.moment_steps[AGE_MODEL], 3);
    CHECK_OK(file_remove_tree(p->hf));
    CHECK_OK(file_rename(p->dcp, p->hf));
    CHECK_OK(from_dcp(p, golden("megatron", "trained"), (ConvertFromDcp){ .weights = true },
                      "mtp.layers=1", "step 7, 17028 parameters in 61 tensors\n"));
    for (int64_t i = 0; i < entries; i++) {
        const float *x = elements(p, p->hf, e[i].param, e[i].buffer, &n);
        const float *w = elements(p, p->hf, e[i].param, BUF_MAIN, &n);
        const float *bf16 = elements(p, p->dcp, e[i].param, BUF_MAIN, &n);
        for (int64_t j = 0; j < n; j++) {
            if (e[i].buffer == BUF_OPTIMIZER) CHECK_NEAR(x[j], w[j] * 0.5F, 0);
            if (e[i].buffer == BUF_OPTIMIZER + 1) CHECK_NEAR(x[j], w[j] * w[j], 0);
            CHECK_NEAR(bf16[j], w[j], fabs((double)w[j]) / 256);
            rounded += bf16[j] != w[j];
        }
    }
    CHECK(rounded > 10000);
}

/* Without moments the model is read all the same. */
static void states_that_are_not_by_parameter_are_refused_by_name(void **state)
{
    static const char *const rows[][3] = {
        { "buckets", "megatron/buckets.yaml", "optimizer.distributed.dp_group_idx_0" },
        { "flat", "megatron/alike.yaml",
          "exp_avg.embedding.word_embeddings.weight is torch.float32 (1, 1, 1536)" },
    };
    Place *p = *state;
    for (int i = 0; i < 2; i++) {
        CHECK_OK(file_remove_tree(p->dcp));
        snprintf(p->yaml, sizeof p->yaml, "tests/golden/dcp/%s", rows[i][1]);
        CHECK_FAILS(from_dcp(p, golden("megatron", rows[i][0]), (ConvertFromDcp){ 0 }, NULL, ""),
                    ERR_UNSUPPORTED, rows[i][2]);
        CHECK_FAILS(from_dcp(p, golden("megatron", rows[i][0]), (ConvertFromDcp){ 0 }, NULL, ""),
                    ERR_UNSUPPORTED, "--dist-ckpt-optim-fully-reshardable");
        CHECK(!file_exists(p->dcp));
        CHECK_OK(from_dcp(p, golden("megatron", rows[i][0]), (ConvertFromDcp){ .weights = true },
                          NULL, "Megatron-Core, step "));
    }
}

/* A copy of `trained` whose common.pt has `was` in place of `is`, which are equally long; is NULL: it has none. */
static void change_common(Place *p, char copy[FILE_PATH_MAX], const char *is, const char *was)
{
    static const char *const files[] = { ".metadata", "__0_0.distcp", "__0_1.distcp", "common.pt" };
    CHECK_OK(file_join(copy, p->folder, "changed"));
    CHECK_OK(file_remove_tree(copy));
    CHECK_OK(file_make_folders(copy));
    for (int i = 0; i < (is == NULL ? 3 : 4); i++) {
        char from[FILE_PATH_MAX], to[FILE_PATH_MAX], *data = NULL;
        size_t n = 0;
        CHECK_OK(file_join(from, golden("megatron", "trained"), files[i]));
        CHECK_OK(file_join(to, copy, files[i]));
        CHECK_OK(file_read_all(from, &p->arena, &data, &n));
        if (i == 3) {
            char *at = memmem(data, n, is, strlen(is));
            CHECK(at != NULL);
            memcpy(at, was, strlen(is));
        }
        CHECK_OK(file_write_whole(to, data, n));
    }
}

/* Nothing of a pickle is run: a name that no such file needs is refused. */
static void the_count_of_updates_must_be_there_once(void **state)
{
    static const struct {
        const char *is, *was, *says;
    } rows[] = {
        { NULL, NULL, "common.pt does not have one count of updates" },
        { "step", "stop", "common.pt does not have one count of updates" },
        { "cargparse\nNamespace", "cposix__\nsystem___", "names posix__.system___" },
        { "iteration", "iterating", NULL },
    };
    Place *p = *state;
    char copy[FILE_PATH_MAX];
    snprintf(p->yaml, sizeof p->yaml, "tests/golden/dcp/megatron/alike.yaml");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        CHECK_OK(file_remove_tree(p->dcp));
        change_common(p, copy, rows[i].is, rows[i].was);
        if (rows[i].says == NULL) { /* the step is then the count of updates */
            CHECK_OK(from_dcp(p, copy, (ConvertFromDcp){ 0 }, "mtp.layers=1", "step 3, "));
            continue;
        }
        CHECK_FAILS(from_dcp(p, copy, (ConvertFromDcp){ 0 }, "mtp.layers=1", ""), ERR_FORMAT,
                    rows[i].says);
        CHECK_OK(from_dcp(p, copy, (ConvertFromDcp){ .weights = true }, "mtp.layers=1",
                          "Megatron-Core, step "));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLACE_TEST(folders_of_torchtitan_hold_the_same_model_as_those_of_transformers),
        PLACE_TEST(a_state_dict_of_transformers_is_its_model),
        PLACE_TEST(logits_do_not_depend_on_how_columns_are_rotated),
        PLACE_TEST(what_does_not_fit_the_configuration_is_refused_by_its_key),
        PLACE_TEST(folders_of_megatron_hold_the_models_that_it_computed_with),
        PLACE_TEST(moments_of_megatron_come_with_the_weights_that_they_belong_to),
        PLACE_TEST(states_that_are_not_by_parameter_are_refused_by_name),
        PLACE_TEST(the_count_of_updates_must_be_there_once),
        PLACE_TEST(moments_are_only_taken_by_adamw),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
