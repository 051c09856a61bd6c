/*
 * Whole conversions of small models. Weights and logits are those of tests/golden/model (their array
 * names are names of Hugging Face's files), config.json is tests/golden/hf/NAME.json, both made by
 * transformers; tests/golden/hf/mixtral is a folder as transformers wrote it.
 */
#include "harness/hf_lab.h"

/* ---- tests ---- */

static const char *const models[] = {
    "deepseek_v2_lite", "deepseek_v2", "deepseek_v3", "llama",
    "qwen3_moe",        "olmoe",       "qwen2_moe",   "glm4_moe"
};
enum { MODELS = sizeof models / sizeof *models };

static void logits_are_those_of_transformers_and_tensors_come_back(void **state)
{
    for (int i = 0; i < MODELS; i++) {
        Lab *lab = fresh(state);
        Golden g = open_model(lab, models[i]);
        CHECK_OK(from_hf(lab));
        compare_logits(lab, &g, 1e-5);
        CHECK_OK(to_hf(lab, lab->back, -1, i % 2 == 0 ? 1 : INT64_MAX));
        compare_folders(lab, lab->hf, lab->back);
        golden_close(&g);
    }
}

static const char *const copies[] = { "model.layers.3.embed_tokens.weight",
                                      "model.layers.3.shared_head.head.weight",
                                      "model.layers.4.embed_tokens.weight",
                                      "model.layers.4.shared_head.head.weight" };

/* Two modules as DeepSeek-V3's files have one. */
static Golden open_modules(Lab *lab)
{
    Golden g = golden_open("tests/golden/model/deepseek_v3_mtp.golden.zst");
    write_folder_with(lab, "deepseek_v3", &g, NULL, copies);
    change_config(lab, "\"num_nextn_predict_layers\": 1", "\"num_nextn_predict_layers\": 2");
    return g;
}

static Config converted(Lab *lab)
{
    char path[FILE_PATH_MAX];
    Config c;
    CHECK_OK(infer_config(lab->checkpoint, &lab->arena, path, &c));
    return c;
}

static void modules_of_multi_token_prediction_go_there_and_back(void **state)
{
    Lab *lab = fresh(state);
    Golden g = open_modules(lab);
    CHECK_OK(from_hf(lab));
    CHECK_INT(converted(lab).mtp_layers, 2);
    compare_logits(lab, &g, 1e-5);
    CHECK_OK(to_hf(lab, lab->back, -1, 30000));
    compare_folders(lab, lab->hf, lab->back);
    golden_close(&g);
}

/* What transformers saves says that there is one, and has none. */
static void modules_that_are_only_counted_are_none(void **state)
{
    Lab *lab = fresh(state);
    Golden g = open_model(lab, "deepseek_v3");
    CHECK_OK(from_hf(lab));
    CHECK_INT(converted(lab).mtp_layers, 0);
    golden_close(&g);
}

static void a_module_that_lacks_a_tensor_is_refused(void **state)
{
    Lab *lab = fresh(state);
    Golden g = golden_open("tests/golden/model/deepseek_v3_mtp.golden.zst");
    write_folder_with(lab, "deepseek_v3", &g, "layers.3.hnorm", copies);
    CHECK_FAILS(from_hf(lab), ERR_FORMAT, "has no tensor model.layers.3.hnorm.weight (24)");
    nothing_is_left_behind(lab);
    golden_close(&g);
}

static void a_module_s_table_must_be_the_model_s(void **state)
{
    for (int i = 0; i < 4; i++) {
        Lab *lab = fresh(state);
        Weights w;
        FileMap map;
        char *bytes = NULL;
        Golden g = open_modules(lab);
        CHECK_OK(weights_open(&w, lab->hf, &lab->arena));
        const SafeTensor *t = weights_take(&w, copies[i]);
        CHECK_OK(file_map(w.file[t->file], &map));
        CHECK_OK(ARENA_NEW(&lab->arena, map.bytes, &bytes));
        size_t n = map.bytes;
        memcpy(bytes, map.data, n);
        file_unmap(&map);
        bytes[t->end - 2] ^= 1; /* of the last element */
        CHECK_OK(file_write_whole(w.file[t->file], bytes, n));
        weights_close(&w);
        CHECK_FAILS(from_hf(lab), ERR_UNSUPPORTED, copies[i]);
        nothing_is_left_behind(lab);
        golden_close(&g);
    }
}

static void a_folder_of_transformers_goes_there_and_back(void **state)
{
    Lab *lab = fresh(state);
    char path[FILE_PATH_MAX];
    copy_folder(lab, "tests/golden/hf/mixtral");
    CHECK_OK(from_hf(lab));
    Golden g = golden_open("tests/golden/hf/mixtral.golden.zst");
    compare_logits(lab, &g, 1e-5);
    golden_close(&g);
    CHECK_OK(to_hf(lab, lab->back, -1, 24000));
    compare_folders(lab, lab->hf, lab->back);
    CHECK_OK(file_join(path, lab->back, "generation_config.json"));
    CHECK(file_exists(path));
    CHECK_OK(file_join(path, lab->back, "model-00002-of-00002.safetensors"));
    CHECK(file_exists(path));
}

/* Norms that begin at 0, a convolution of three dimensions, projections that hold queries with their gates, and all
 * that a gated delta net reads. */
static void a_qwen3_next_folder_goes_there_and_back(void **state)
{
    Lab *lab = fresh(state);
    copy_folder(lab, "tests/golden/hf/qwen3_next");
    CHECK_OK(from_hf(lab));
    Golden g = golden_open("tests/golden/hf/qwen3_next.golden.zst");
    compare_logits(lab, &g, 2e-6);
    golden_close(&g);
    CHECK_OK(to_hf(lab, lab->back, -1, 1000000));
    compare_folders(lab, lab->hf, lab->back);
}

/* Experts in four bits are, bit by bit, what transformers makes of them, denormal numbers and signs of
 * zeros included; out they go in bf16. */
static void mxfp4_becomes_what_transformers_makes_of_it(void **state)
{
    Lab *lab = fresh(state);
    Weights w;
    copy_folder(lab, "tests/golden/hf/mxfp4");
    Golden g = golden_open("tests/golden/hf/mxfp4.golden.zst");
    CHECK_OK(from_hf(lab));
    CHECK_OK(to_hf(lab, lab->back, -1, INT64_MAX));
    CHECK_OK(weights_open(&w, lab->back, &lab->arena));
    CHECK_INT(g.n, 4);
    for (int i = 0; i < g.n; i++) {
        char name[100];
        float *have = NULL;
        const char *kind = strchr(g.at[i].name, '.') + 1;
        snprintf(name, sizeof name, "model.layers.%c.mlp.experts.%s", g.at[i].name[0], kind);
        const Tensor *want = &g.at[i].t;
        const SafeTensor *t = weights_take(&w, name);
        CHECK(t != NULL && t->dtype == DTYPE_BF16 && t->rank == 3);
        for (int d = 0; d < 3; d++) CHECK_INT(t->dim[d], want->dim[d]);
        int64_t n = tensor_elems(want);
        const WeightsView all = { .tensor = t, .rows = 1, .cols = n, .col_step = 1 };
        CHECK_OK(ARENA_NEW(&lab->arena, n, &have));
        CHECK_OK(weights_read(&w, &all, 0, 1, have));
        CHECK(memcmp(have, want->data, (size_t)n * sizeof *have) == 0);
    }
    weights_close(&w);
    golden_close(&g);
}

/* Letters of the header of model.safetensors, replaced by as many others. */
static void change_header(Lab *lab, const char *from, const char *to)
{
    char path[FILE_PATH_MAX], *data = NULL;
    size_t bytes = 0, n = strlen(from);
    CHECK_OK(file_join(path, lab->hf, WEIGHTS_ONE));
    CHECK_OK(file_read_all(path, &lab->arena, &data, &bytes));
    char *at = strstr(data + 8, from);
    CHECK(at != NULL && n == strlen(to));
    memcpy(at, to, n);
    CHECK_OK(file_write_whole(path, data, bytes));
}

static void mxfp4_that_does_not_fit_is_named(void **state)
{
#define DOWN "model.layers.0.mlp.experts.down_proj"
    static const struct {
        const char *from, *to, *says;
    } rows[] = {
        { DOWN "_scales", DOWN "_scalez",
          DOWN "_blocks needs its scales, but the folder has no tensor " DOWN "_scales" },
        { DOWN "_blocks", DOWN "_blockz", "has " DOWN "_scales, but no tensor " DOWN "_blocks" },
        { DOWN "_scales\":{\"dtype\":\"U8\",\"shape\":[2,32,2]",
          DOWN "_scales\":{\"dtype\":\"U8\",\"shape\":[2,2,32]",
          DOWN "_scales is U8 (2, 2, 32); it must hold a U8 scale for each 16 bytes of " DOWN
               "_blocks, U8 (2, 32, 2, 16)" },
        { DOWN "_scales\":{\"dtype\":\"U8\"", DOWN "_scales\":{\"dtype\":\"I8\"",
          DOWN "_scales is I8 (2, 32, 2); it must hold a U8 scale" },
        { DOWN "_blocks\":{\"dtype\":\"U8\"", DOWN "_blocks\":{\"dtype\":\"I8\"",
          DOWN "_blocks is I8 (2, 32, 2, 16); MXFP4 blocks must be U8" },
        { DOWN "_blocks\":{\"dtype\":\"U8\",\"shape\":[2,32,2,16]",
          DOWN "_blocks\":{\"dtype\":\"U8\",\"shape\":[2,32,4, 8]",
          DOWN "_blocks is U8 (2, 32, 4, 8); by config.json it must be (2, 32, 2, 16)" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Lab *lab = fresh(state);
        copy_folder(lab, "tests/golden/hf/mxfp4");
        change_header(lab, rows[i].from, rows[i].to);
        CHECK_FAILS(from_hf(lab), ERR_FORMAT, rows[i].says);
        nothing_is_left_behind(lab);
    }
    Lab *lab = fresh(state); /* a scale of 255 is no number */
    char path[FILE_PATH_MAX], *data = NULL;
    size_t bytes = 0;
    copy_folder(lab, "tests/golden/hf/mxfp4");
    CHECK_OK(file_join(path, lab->hf, WEIGHTS_ONE));
    CHECK_OK(file_read_all(path, &lab->arena, &data, &bytes));
    SafeTensor *t = NULL;
    int64_t n = 0;
    CHECK_OK(safetensors_open(path, &lab->arena, &t, &n));
    for (int64_t i = 0; i < n; i++)
        if (strcmp(t[i].name, DOWN "_scales") == 0) data[t[i].begin] = (char)255;
    CHECK_OK(file_write_whole(path, data, bytes));
    CHECK_FAILS(from_hf(lab), ERR_FORMAT, DOWN "_blocks holds");
#undef DOWN
}

/* What to-hf wrote can be read again, in the other type, too: bf16 there and back keeps its bits. */
static void bf16_goes_there_and_back(void **state)
{
    Lab *lab = fresh(state);
    char first[FILE_PATH_MAX];
    Golden g = open_model(lab, "deepseek_v3");
    golden_close(&g);
    CHECK_OK(file_join(first, lab->folder, "first"));
    CHECK_OK(file_remove_tree(first));
    CHECK_OK(from_hf(lab));
    CHECK_OK(to_hf(lab, first, DTYPE_BF16, INT64_MAX));
    CHECK_OK(file_remove_tree(lab->checkpoint));
    snprintf(lab->hf, sizeof lab->hf, "%s", first);
    CHECK_OK(from_hf(lab));
    CHECK_OK(to_hf(lab, lab->back, -1, 1000));
    compare_folders(lab, first, lab->back);
    CHECK_OK(file_join(lab->hf, lab->folder, "hf"));
}

/* Experts in two tensors a layer, as transformers 5 holds them in memory, give the same bytes. */
static void stacked_experts_are_the_same_model(void **state)
{
    Lab *lab = fresh(state);
    char plain[FILE_PATH_MAX], stacked[FILE_PATH_MAX], *x = NULL, *y = NULL;
    size_t n = 0, m = 0;
    Golden g = open_model(lab, "qwen3_moe");
    CHECK_OK(from_hf(lab));
    CHECK_OK(file_join(plain, lab->checkpoint, "rank-00000.bin"));
    CHECK_OK(file_read_all(plain, &lab->arena, &x, &n));
    CHECK_OK(file_remove_tree(lab->checkpoint));

    enum { LAYERS = 3, EXPERTS = 6, F = 11, D = 24 };
    SafeTensor t[128];
    const void *data[128];
    static float up[LAYERS][EXPERTS][2 * F * D], down[LAYERS][EXPERTS][D * F];
    static char names[LAYERS][2][80];
    int64_t tensors = 0;
    for (int i = 0; i < g.n; i++) {
        if (!is_weight(&g.at[i]) || strstr(g.at[i].name, "experts") != NULL) continue;
        data[tensors] = g.at[i].t.data;
        t[tensors++] = tensor_of(&g.at[i]);
    }
    for (int l = 0; l < LAYERS; l++) {
        for (int e = 0; e < EXPERTS; e++) {
            const char *const parts[] = { "gate", "up", "down" };
            for (int k = 0; k < 3; k++) {
                char name[100];
                snprintf(name, sizeof name, "weight/model.layers.%d.mlp.experts.%d.%s_proj.weight",
                         l, e, parts[k]);
                memcpy(k == 2 ? down[l][e] : up[l][e] + k * F * D, golden_find(&g, name).data,
                       sizeof(float) * F * D);
            }
        }
        snprintf(names[l][0], 80, "model.layers.%d.mlp.experts.gate_up_proj", l);
        snprintf(names[l][1], 80, "model.layers.%d.mlp.experts.down_proj", l);
        data[tensors] = up[l];
        t[tensors++] = (SafeTensor){ .name = names[l][0], .rank = 3, .dim = { EXPERTS, 2 * F, D } };
        data[tensors] = down[l];
        t[tensors++] = (SafeTensor){ .name = names[l][1], .rank = 3, .dim = { EXPERTS, D, F } };
    }
    write_tensors(lab, t, data, tensors);
    CHECK_OK(from_hf(lab));
    CHECK_OK(file_join(stacked, lab->checkpoint, "rank-00000.bin"));
    CHECK_OK(file_read_all(stacked, &lab->arena, &y, &m));
    CHECK(n == m && memcmp(x, y, n) == 0);
    golden_close(&g);
}

/* The same weights under a configuration that turns pairs side by side: files of Llama have halves,
 * so rows are reordered, and the model is the same. */
static void pairs_of_rotated_columns_are_reordered(void **state)
{
    static const char *const cases[] = { "llama", "qwen3_moe", "deepseek_v2", "deepseek_v2_lite",
                                         "olmoe", "qwen2_moe", "glm4_moe" };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Lab *lab = fresh(state);
        Golden g = open_model(lab, cases[i]);
        char path[FILE_PATH_MAX], *text = NULL, *rest = NULL;
        size_t bytes = 0;
        Config c;
        Engine e = { 0 };
        CheckpointInfo info;
        Manifest m = { 0 };
        Text yaml;
        const float *logits = NULL;
        CHECK_OK(from_hf(lab));
        /* the manifest once more, with another configuration */
        CHECK_OK(infer_config(lab->checkpoint, &lab->arena, path, &c));
        c.attention_rope_interleaved = !c.attention_rope_interleaved;
        CHECK_OK(file_join(path, lab->checkpoint, MANIFEST_NAME));
        CHECK_OK(file_read_all(path, &lab->arena, &text, &bytes));
        text[bytes - 1] = '\0';
        *strrchr(text, '\n') = '\0'; /* the end line, which is written anew */
        rest = strchr(text, '\n') + 1;
        text[strlen(text)] = '\n';
        CHECK_OK(text_init(&yaml, &lab->arena));
        CHECK_OK(config_print(&c, &yaml));
        info = (CheckpointInfo){ .config = yaml.data, .products = "" };
        CHECK_OK(manifest_create(&m, lab->checkpoint, "other", &info, &lab->arena));
        *strrchr(rest, '\n') = '\0';
        CHECK_OK(manifest_lines(&m, rest, strlen(rest)));
        CHECK_OK(manifest_lines(&m, "\n", 1));
        CHECK_OK(manifest_commit(&m));
        file_close(&m.file);
        /* its logits, then those of the model that came back from files */
        Tensor id = golden_find(&g, "id"), want = golden_find(&g, "logits");
        EngineShape shape = { .batch = 1,
                              .micro_batch = 1,
                              .sequence = 17,
                              .positions = 17,
                              .domains = 1,
                              .threads = 1,
                              .cache = 1,
                              .logit_rows = 17 };
        c.run_device = DEVICE_CPU;
        CHECK_OK(infer_open(&e, &c, &shape, lab->checkpoint, false, &lab->arena, &info));
        CHECK_OK(engine_next_logits(&e, id.data, 17, &logits));
        double error, norm;
        golden_norms(e.io.logits.data, want.data, tensor_elems(&want), &error, &norm);
        CHECK(error > 0.01 * norm); /* another model, or the test sees nothing */
        memcpy(want.data, e.io.logits.data, tensor_bytes(&want));
        engine_close(&e);
        CHECK_OK(to_hf(lab, lab->back, -1, INT64_MAX));
        CHECK_OK(file_remove_tree(lab->checkpoint));
        char hf[FILE_PATH_MAX];
        memcpy(hf, lab->hf, sizeof hf);
        memcpy(lab->hf, lab->back, sizeof hf);
        CHECK_OK(from_hf(lab));
        memcpy(lab->hf, hf, sizeof hf);
        compare_logits(lab, &g, 1e-5);
        CHECK_OK(infer_config(lab->checkpoint, &lab->arena, path, &c));
        CHECK_INT(c.attention_rope_interleaved, c.attention_kind == ATTENTION_MLA);
        golden_close(&g);
    }
}

/* ---- bad input ---- */

static void a_config_that_contradicts_the_weights_is_refused(void **state)
{
    static const struct {
        const char *from, *to, *says;
        Status status;
    } rows[] = {
        { "\"vocab_size\": 61", "\"vocab_size\": 64",
          "model.embed_tokens.weight is F32 (61, 24); by config.json it must be (64, 24)",
          ERR_FORMAT },
        { "\"hidden_size\": 24", "\"hidden_size\": \"24\"",
          "hf/config.json: hidden_size is \"24\"; it must be a whole number", ERR_FORMAT },
        { "\"max_position_embeddings\": 64", "\"max_position_embeddings\": \"64\"",
          "hf/config.json: max_position_embeddings is no number; it must be a whole one",
          ERR_FORMAT },
        { "\"num_hidden_layers\": 3", "\"num_hidden_layers\": 2",
          "the qwen3_moe model of config.json has no tensor model.layers.2.", ERR_FORMAT },
        { "\"num_hidden_layers\": 3", "\"num_hidden_layers\": 4",
          "has no tensor model.layers.3.input_layernorm.weight (24), which this qwen3_moe model",
          ERR_FORMAT },
        { "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 1",
          "model.layers.0.self_attn.k_proj.weight is F32 (12, 24); by config.json it must be (6, "
          "24)",
          ERR_FORMAT },
        { "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3", "attention.kv_heads 3",
          ERR_ARG },
        { "\"num_local_experts\": 6", "\"num_local_experts\": 7", "mlp.gate.weight is F32 (6, 24)",
          ERR_FORMAT },
        { "\"num_local_experts\": 6", "\"num_local_experts\": 99999",
          "the tensors have 23004 elements, but by config.json the norms and experts alone have "
          "237597768",
          ERR_FORMAT },
        { "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true",
          "lm_head.weight differs from model.embed_tokens.weight: the classes of transformers then "
          "do not follow tie_word_embeddings",
          ERR_UNSUPPORTED },
        { "\"model_type\": \"qwen3_moe\"", "\"model_type\": \"gpt9\"", "gpt9 is not supported",
          ERR_UNSUPPORTED },
        { "{", "", "config.json is not a JSON object", ERR_FORMAT },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Lab *lab = fresh(state);
        Golden g = open_model(lab, "qwen3_moe");
        change_config(lab, rows[i].from, rows[i].to);
        CHECK_FAILS(from_hf(lab), rows[i].status, rows[i].says);
        nothing_is_left_behind(lab);
        golden_close(&g);
    }
}

static void a_missing_tensor_is_named(void **state)
{
    Lab *lab = fresh(state);
    Golden g = golden_open("tests/golden/model/deepseek_v3.golden.zst");
    write_folder(lab, "deepseek_v3", &g, "layers.1.mlp.experts.5.up_proj");
    CHECK_FAILS(from_hf(lab), ERR_FORMAT,
                "has no tensor model.layers.1.mlp.experts.5.up_proj.weight (11, 24)");
    nothing_is_left_behind(lab);
    write_folder(lab, "deepseek_v3", &g, "e_score_correction_bias");
    CHECK_FAILS(from_hf(lab), ERR_FORMAT, "mlp.gate.e_score_correction_bias (8)");
    golden_close(&g);
}

static void wrong_types_and_numbers_are_named(void **state)
{
    Lab *lab = fresh(state);
    Golden g = open_model(lab, "llama");
    float *norm = golden_get(&g, "weight", "model.norm.weight").data;
    char path[FILE_PATH_MAX], *data = NULL;
    size_t bytes = 0;
    norm[3] = NAN;
    write_folder(lab, "llama", &g, NULL);
    CHECK_FAILS(from_hf(lab), ERR_FORMAT, "model.norm.weight holds nan");
    nothing_is_left_behind(lab);
    norm[3] = 1;
    write_folder(lab, "llama", &g, NULL);
    CHECK_OK(file_join(path, lab->hf, WEIGHTS_ONE));
    CHECK_OK(file_read_all(path, &lab->arena, &data, &bytes));
    char *type = strstr(strstr(data + 8, "\"model.norm.weight\""), "F32");
    *type = 'I';
    CHECK_OK(file_write_whole(path, data, bytes));
    CHECK_FAILS(
        from_hf(lab), ERR_FORMAT,
        "model.norm.weight is I32 (24); its type must be F32, BF16, F16, F8_E4M3 or F8_E5M2");
    golden_close(&g);
}

static void broken_shards_are_named(void **state)
{
    Lab *lab = fresh(state);
    char shard[FILE_PATH_MAX], index[FILE_PATH_MAX], config[FILE_PATH_MAX], *data = NULL;
    size_t bytes = 0;
    copy_folder(lab, "tests/golden/hf/mixtral");
    CHECK_OK(file_join(shard, lab->hf, "model-00002-of-00002.safetensors"));
    CHECK_OK(file_join(index, lab->hf, WEIGHTS_INDEX));
    CHECK_OK(file_join(config, lab->hf, "config.json"));
    CHECK_OK(file_read_all(shard, &lab->arena, &data, &bytes));
    CHECK_OK(file_write_whole(shard, data, bytes - 1));
    CHECK_FAILS(from_hf(lab), ERR_FORMAT, "model-00002-of-00002.safetensors is truncated");
    CHECK(unlink(shard) == 0);
    CHECK_FAILS(from_hf(lab), ERR_IO, "model-00002-of-00002.safetensors is missing");
    CHECK(unlink(index) == 0);
    CHECK_FAILS(from_hf(lab), ERR_IO, "has neither model.safetensors nor model.safetensors.index");
    CHECK(unlink(config) == 0);
    CHECK_FAILS(from_hf(lab), ERR_IO, "config.json: give a Hugging Face folder, as `hf download");
    nothing_is_left_behind(lab);
}

static void what_is_there_is_not_overwritten(void **state)
{
    Lab *lab = fresh(state);
    copy_folder(lab, "tests/golden/hf/mixtral");
    CHECK_OK(file_make_folders(lab->checkpoint));
    CHECK_OK(from_hf(lab));
    CHECK_FAILS(from_hf(lab), ERR_ARG, "checkpoint exists already");
    CHECK_FAILS(to_hf(lab, lab->hf, -1, INT64_MAX), ERR_ARG, "hf exists already");
}

/* A damaged checkpoint gives no folder. */
static void a_damaged_checkpoint_is_refused(void **state)
{
    Lab *lab = fresh(state);
    char path[FILE_PATH_MAX], temp[FILE_PATH_MAX + 8], *data = NULL;
    size_t bytes = 0;
    copy_folder(lab, "tests/golden/hf/mixtral");
    CHECK_OK(from_hf(lab));
    CHECK_OK(file_join(path, lab->checkpoint, "rank-00000.bin"));
    CHECK_OK(file_read_all(path, &lab->arena, &data, &bytes));
    data[bytes / 2] ^= 1;
    CHECK_OK(file_write_whole(path, data, bytes));
    CHECK_FAILS(to_hf(lab, lab->back, -1, INT64_MAX), ERR_FORMAT, "have sum");
    snprintf(temp, sizeof temp, "%s.tmp", lab->back);
    CHECK(!file_exists(lab->back) && !file_exists(temp));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(logits_are_those_of_transformers_and_tensors_come_back),
        TEST(a_folder_of_transformers_goes_there_and_back),
        TEST(a_qwen3_next_folder_goes_there_and_back),
        TEST(modules_of_multi_token_prediction_go_there_and_back),
        TEST(modules_that_are_only_counted_are_none),
        TEST(a_module_that_lacks_a_tensor_is_refused),
        TEST(a_module_s_table_must_be_the_model_s),
        TEST(bf16_goes_there_and_back),
        TEST(mxfp4_becomes_what_transformers_makes_of_it),
        TEST(mxfp4_that_does_not_fit_is_named),
        TEST(stacked_experts_are_the_same_model),
        TEST(pairs_of_rotated_columns_are_reordered),
        TEST(a_config_that_contradicts_the_weights_is_refused),
        TEST(a_missing_tensor_is_named),
        TEST(wrong_types_and_numbers_are_named),
        TEST(broken_shards_are_named),
        TEST(what_is_there_is_not_overwritten),
        TEST(a_damaged_checkpoint_is_refused),
    };
    return cmocka_run_group_tests(tests, lab_open, lab_close);
}
