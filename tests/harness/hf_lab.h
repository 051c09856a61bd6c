/* hf_lab: a folder of Hugging Face's for tests, the checkpoint that from-hf makes of it, and the folder that
 * to-hf makes of that. Weights are those of tests/golden/model. */
#ifndef TESTS_HARNESS_HF_LAB_H
#define TESTS_HARNESS_HF_LAB_H

#include "golden/golden.h"

#include "convert/convert.h"
#include "convert/weights.h"
#include "engine/checkpoint/manifest.h"
#include "engine/step/engine.h"
#include "engine/train/infer.h"
#include "hf/to_hf.h"

#include <unistd.h>

typedef struct Lab {
    char folder[64], hf[FILE_PATH_MAX], checkpoint[FILE_PATH_MAX], back[FILE_PATH_MAX];
    Arena arena;
} Lab;

static inline int lab_open(void **state)
{
    static Lab lab;
    lab = (Lab){ .folder = "/tmp/switchyard_test_XXXXXX" };
    *state = &lab;
    CHECK(mkdtemp(lab.folder) != NULL);
    CHECK_OK(file_join(lab.hf, lab.folder, "hf"));
    CHECK_OK(file_join(lab.checkpoint, lab.folder, "checkpoint"));
    CHECK_OK(file_join(lab.back, lab.folder, "back"));
    return arena_init(&lab.arena, "test", MEM_HOST, (size_t)4 << 30);
}

static inline int lab_close(void **state)
{
    Lab *lab = *state;
    CHECK_OK(file_remove_tree(lab->folder));
    arena_free(&lab->arena);
    return 0;
}

static inline Lab *fresh(void **state)
{
    Lab *lab = *state;
    CHECK_OK(file_remove_tree(lab->hf));
    CHECK_OK(file_remove_tree(lab->checkpoint));
    CHECK_OK(file_remove_tree(lab->back));
    arena_release(&lab->arena, (ArenaMark){ 0 });
    CHECK_OK(file_make_folders(lab->hf));
    return lab;
}

/* ---- folders ---- */

static inline void copy_file(Lab *lab, const char *from, const char *to, const char *name)
{
    char path[FILE_PATH_MAX], *data = NULL;
    size_t bytes = 0;
    CHECK_OK(file_read_all(from, &lab->arena, &data, &bytes));
    CHECK_OK(file_join(path, to, name));
    CHECK_OK(file_write_whole(path, data, bytes));
}

/* A tensor of a golden array, under its name in files. */
static inline SafeTensor tensor_of(const GoldenArray *a)
{
    SafeTensor t = { .name = strchr(a->name, '/') + 1, .dtype = DTYPE_F32, .rank = a->t.rank };
    for (int d = 0; d < t.rank; d++) t.dim[d] = a->t.dim[d];
    return t;
}

static inline bool is_weight(const GoldenArray *a)
{
    return strncmp(a->name, "weight/", 7) == 0 || strncmp(a->name, "state/", 6) == 0;
}

/* One file of tensors; the elements have their types. */
static inline void write_tensors(Lab *lab, SafeTensor *t, const void *const *data, int64_t n)
{
    char path[FILE_PATH_MAX];
    File f = { 0 };
    CHECK_OK(file_join(path, lab->hf, WEIGHTS_ONE));
    CHECK_OK(safetensors_create(&f, path, t, n, &lab->arena));
    for (int64_t i = 0; i < n; i++)
        CHECK_OK(file_write(&f, data[i],
                            (size_t)safetensors_elems(&t[i]) * dtype_bytes((Dtype)t[i].dtype)));
    CHECK_OK(file_commit(&f));
    file_close(&f);
}

/* One more tensor: a copy of a weight of the golden model. */
static inline void add_copy(const Golden *g, const char *name, const char *of, SafeTensor *t,
                            const void **data)
{
    Tensor from = golden_get(g, "weight", of);
    *t = (SafeTensor){
        .name = name, .dtype = DTYPE_F32, .rank = 2, .dim = { from.dim[0], from.dim[1] }
    };
    *data = from.data;
}

/* Golden files have our name for the shared expert of Qwen2-MoE. */
static inline const char *file_name(Lab *lab, const char *config, const char *name)
{
    const char *at = strstr(name, "shared_experts."), *out = NULL;
    char text[GOLDEN_NAME_MAX];
    if (at == NULL || strcmp(config, "qwen2_moe") != 0) return name;
    snprintf(text, sizeof text, "%.*sshared_expert.%s", (int)(at - name), name,
             at + strlen("shared_experts."));
    CHECK_OK(arena_text(&lab->arena, text, strlen(text), &out));
    return out;
}

/* The folder of a golden model; tensors whose name contains `without` are left out. `copies` of the
 * table and the head's weights stand beside modules of multi-token prediction. */
static inline void write_folder_with(Lab *lab, const char *config, const Golden *g,
                                     const char *without, const char *const *copies)
{
    char path[256];
    SafeTensor *t = NULL;
    const void **data = NULL;
    int64_t n = 0;
    CHECK_OK(ARENA_NEW(&lab->arena, g->n + 4, &t));
    CHECK_OK(ARENA_NEW(&lab->arena, g->n + 4, &data));
    for (int i = 0; copies != NULL && i < 4; i++, n++) {
        const char *of = i % 2 == 0 ? "model.embed_tokens.weight" : "lm_head.weight";
        add_copy(g, copies[i], of, &t[n], &data[n]);
    }
    for (int i = 0; i < g->n; i++) {
        bool out = without != NULL && strstr(g->at[i].name, without) != NULL;
        if (!is_weight(&g->at[i]) || out) continue;
        data[n] = g->at[i].t.data;
        t[n] = tensor_of(&g->at[i]);
        t[n].name = file_name(lab, config, t[n].name);
        n++;
    }
    write_tensors(lab, t, data, n);
    snprintf(path, sizeof path, "tests/golden/hf/%s.json", config);
    copy_file(lab, path, lab->hf, "config.json");
}

static inline void write_folder(Lab *lab, const char *name, const Golden *g, const char *without)
{
    write_folder_with(lab, name, g, without, NULL);
}

static inline void write_config(Lab *lab, const char *text)
{
    char path[FILE_PATH_MAX];
    CHECK_OK(file_join(path, lab->hf, "config.json"));
    CHECK_OK(file_write_whole(path, text, strlen(text)));
}

/* The config.json of the folder with one text in it replaced. */
static inline void change_config(Lab *lab, const char *from, const char *to)
{
    char path[FILE_PATH_MAX], *text = NULL, changed[4096];
    size_t bytes = 0;
    CHECK_OK(file_join(path, lab->hf, "config.json"));
    CHECK_OK(file_read_all(path, &lab->arena, &text, &bytes));
    const char *at = strstr(text, from);
    CHECK(at != NULL && bytes + strlen(to) < sizeof changed);
    snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    write_config(lab, changed);
}

static inline void copy_folder(Lab *lab, const char *folder)
{
    const char *const *names = NULL;
    int n = 0;
    CHECK_OK(file_list(folder, &lab->arena, &names, &n));
    for (int i = 0; i < n; i++) {
        char path[FILE_PATH_MAX];
        CHECK_OK(file_join(path, folder, names[i]));
        copy_file(lab, path, lab->hf, names[i]);
    }
}

static inline Status from_hf(Lab *lab)
{
    Text said;
    Arena text = { 0 };
    CHECK_OK(arena_init(&text, "text", MEM_HOST, 1 << 20));
    CHECK_OK(text_init(&said, &text));
    Status s = convert_from_hf(lab->hf, lab->checkpoint, &lab->arena, &said);
    arena_free(&text);
    return s;
}

static inline Status to_hf(Lab *lab, const char *out, int dtype, int64_t shard_bytes)
{
    Text said;
    Arena text = { 0 };
    CHECK_OK(arena_init(&text, "text", MEM_HOST, 1 << 20));
    CHECK_OK(text_init(&said, &text));
    const ConvertToHf o = { lab->checkpoint, out, dtype, false, shard_bytes };
    Status s = convert_to_hf(&o, &lab->arena, &said);
    arena_free(&text);
    return s;
}

/* ---- comparisons ---- */

/* Logits of the checkpoint for the golden's first sequence. */
static inline void compare_logits(Lab *lab, const Golden *g, double limit)
{
    char path[FILE_PATH_MAX];
    Config c;
    Engine e = { 0 };
    CheckpointInfo info;
    const float *logits = NULL;
    Tensor id = golden_find(g, "id"), want = golden_find(g, "logits");
    int64_t n = tensor_cols(&id);
    CHECK_OK(infer_config(lab->checkpoint, &lab->arena, path, &c));
    c.run_device = DEVICE_CPU;
    EngineShape shape = { .batch = 1,
                          .micro_batch = 1,
                          .sequence = n,
                          .positions = n,
                          .domains = 1,
                          .threads = 1,
                          .cache = 1,
                          .logit_rows = n };
    CHECK_OK(infer_open(&e, &c, &shape, path, false, &lab->arena, &info));
    CHECK_OK(engine_next_logits(&e, id.data, n, &logits));
    golden_compare("logits", &e.io.logits, &want, limit);
    engine_close(&e);
}

/* Every tensor of folder a is in b with the same bytes, and none more. */
static inline void compare_folders(Lab *lab, const char *a, const char *b)
{
    Weights x, y;
    CHECK_OK(weights_open(&x, a, &lab->arena));
    CHECK_OK(weights_open(&y, b, &lab->arena));
    CHECK_INT(x.n, y.n);
    for (int64_t i = 0; i < x.n; i++) {
        const SafeTensor *t = &x.at[i], *u = weights_take(&y, t->name);
        FileMap p, q;
        if (u == NULL) fail_msg("%s is missing", t->name);
        CHECK_TEXT(u->type, t->type);
        CHECK_INT(u->rank, t->rank);
        for (int d = 0; d < t->rank; d++) CHECK_INT(u->dim[d], t->dim[d]);
        CHECK_OK(file_map(x.file[t->file], &p));
        CHECK_OK(file_map(y.file[u->file], &q));
        if (memcmp(p.data + t->begin, q.data + u->begin, (size_t)(t->end - t->begin)) != 0)
            fail_msg("%s has other bytes", t->name);
        file_unmap(&p);
        file_unmap(&q);
    }
    weights_close(&x);
    weights_close(&y);
}

static inline void nothing_is_left_behind(Lab *lab)
{
    char temp[FILE_PATH_MAX];
    CHECK(!file_exists(lab->checkpoint));
    CHECK(snprintf(temp, sizeof temp, "%s.tmp", lab->checkpoint) < (int)sizeof temp);
    CHECK(!file_exists(temp));
}

static inline Golden open_model(Lab *lab, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "tests/golden/model/%s.golden.zst", name);
    Golden g = golden_open(path);
    write_folder(lab, name, &g, NULL);
    return g;
}

#endif
