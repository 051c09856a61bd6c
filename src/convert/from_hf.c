/* from_hf: converts a Hugging Face folder to a checkpoint of step 0. First everything is checked: the
 * configuration, the tokenizer, and that each parameter has exactly one tensor. Then new_checkpoint writes
 * the weights. */
#include "convert/convert.h"
#include "convert/family.h"
#include "convert/folder.h"
#include "convert/new_checkpoint.h"
#include "convert/weights.h"
#include "corpus/tokenizer/tokenizer.h"
#include "engine/base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { COPY_ELEMS = 1 << 20, SEQUENCE_MOST = 4096 };

typedef struct FromHf {
    const char *dir;
    NewCheckpoint new;
    const Family *family;
    Config config;
    ModelSpec spec;
    ParamTable params;
    Weights weights;
    WeightsView *view; /* by parameter */
    bool fp8;          /* by config.json matrices have 8 bits and scales */
    Arena *arena;
} FromHf;

/* ---- the configuration ---- */

/* Settings that are not part of the model but that training needs. */
static Status set_run_settings(FromHf *f, const Json *json)
{
    Config *c = &f->config;
    const Json *length = json_get(json, "max_position_embeddings");
    const char *word = json_string(json_get(json, "dtype"));
    if (word == NULL) word = json_string(json_get(json, "torch_dtype"));
    bool full = word == NULL || strcmp(word, "float32") == 0;
    c->run_compute = full ? COMPUTE_F32 : COMPUTE_BF16;
    c->model_name = f->family->type;
    c->data_sequence = SEQUENCE_MOST;
    const bool number = json_is(length, JSON_NUMBER);
    if (number && length->number >= 2 && length->number < SEQUENCE_MOST)
        c->data_sequence = (int64_t)length->number;
    c->train_micro_batch = 1;
    if (length != NULL && !number && length->type != JSON_NULL)
        return FAIL(ERR_FORMAT,
                    "%s/config.json: max_position_embeddings is no number; it must be a whole one",
                    f->dir);
    Status s = config_check(c);
    if (s == OK) s = config_check_ops(c, 1);
    if (s == OK) return OK;
    char why[512];
    status_sentence(why, sizeof why);
    return FAIL(s, "%s/config.json: %s", f->dir, why);
}

/* family_read has checked the kind: what is no mxfp4 is fp8. */
static bool says_fp8(const Json *json)
{
    const Json *text = json_get(json, "text_config"), *q = json_get(text, "quantization_config");
    if (q == NULL) q = json_get(json, "quantization_config");
    const char *method = json_string(json_get(q, "quant_method"));
    return method != NULL && strcmp(method, "fp8") == 0;
}

static Status read_hf_config(FromHf *f)
{
    char path[FILE_PATH_MAX];
    Json *json = NULL;
    TRY(file_join(path, f->dir, "config.json"));
    if (!file_exists(path))
        return FAIL(ERR_IO,
                    "there is no %.300s: give a Hugging Face folder, as `hf download NAME "
                    "--local-dir FOLDER` makes it (nothing is downloaded here)",
                    path);
    TRY(folder_json(f->dir, "config.json", f->arena, &json));
    TRY(config_default(&f->config, f->arena));
    TRY(family_read(path, json, f->arena, &f->config, &f->family));
    f->fp8 = says_fp8(json);
    return set_run_settings(f, json);
}

/* A tokenizer of an unsupported kind is only a warning: it is copied, and the model works with ids. */
static Status check_tokenizer(FromHf *f)
{
    char path[FILE_PATH_MAX], copy[FILE_PATH_MAX], why[512];
    Tokenizer *t = NULL;
    ArenaMark mark = arena_mark(f->arena);
    TRY(file_join(path, f->dir, "tokenizer.json"));
    if (!file_exists(path)) return OK;
    Status s = tokenizer_load(path, f->arena, &t);
    if (s == ERR_UNSUPPORTED) {
        status_sentence(why, sizeof why);
        log_warn("%s; the model works, but not with text: only with tokens", why);
        return OK;
    }
    if (s != OK) return s;
    int64_t ids = tokenizer_vocab(t), rows = f->config.model_vocab;
    tokenizer_free(t);
    arena_release(f->arena, mark);
    if (ids > rows)
        return FAIL(ERR_ARG,
                    "%s has %" PRId64 " ids, but vocab_size gives the embedding %" PRId64 " rows",
                    path, ids, rows);
    TRY(file_join(copy, f->new.out.path, "tokenizer.json"));
    return arena_text(f->arena, copy, strlen(copy), &f->config.data_tokenizer);
}

/* ---- tensors ---- */

/* Models of images and text put this before the names of the text model's tensors. */
#define TEXT_PREFIX "language_model."

/* The plain name first, then the one of a model of images and text. Both are marked as taken. */
static const SafeTensor *take_tensor(FromHf *f, const char *name)
{
    char longer[PARAM_NAME_MAX + sizeof TEXT_PREFIX];
    const SafeTensor *t = weights_take(&f->weights, name);
    if (t != NULL) return t;
    (void)snprintf(longer, sizeof longer, TEXT_PREFIX "%s", name);
    return weights_take(&f->weights, longer);
}

/* Shapes must match exactly. Any floating type is converted; MXFP4 is stored as bytes, so it has
 * type U8. */
static Status check_tensor(const FromHf *f, const FamilyTensor *want, const SafeTensor *t)
{
    char found[SAFETENSORS_TEXT_BYTES], expected[SAFETENSORS_TEXT_BYTES];
    SafeTensor w = { .type = "", .rank = want->rank };
    for (int i = 0; i < w.rank; i++) w.dim[i] = want->dim[i];
    bool same = t->rank == w.rank;
    for (int i = 0; same && i < w.rank; i++) same = t->dim[i] == w.dim[i];
    const char *file = f->weights.file[t->file];
    if (!same)
        return FAIL(ERR_FORMAT, "%s: %s is %s; by config.json it must be%s", file, t->name,
                    safetensors_text(found, t), safetensors_text(expected, &w));
    bool mxfp4 = (want->layout & LAYOUT_MXFP4) != 0;
    if (mxfp4 ? strcmp(t->type, "U8") == 0 : t->dtype >= 0) return OK;
    if (mxfp4)
        return FAIL(ERR_FORMAT, "%s: %s is %s; MXFP4 blocks must be U8", file, t->name,
                    safetensors_text(found, t));
    return FAIL(ERR_FORMAT, "%s: %s is %s; its type must be F32, BF16, F16, F8_E4M3 or F8_E5M2",
                file, t->name, safetensors_text(found, t));
}

/* The error names the tensor in the family's first layout, which published files have. Scales
 * without their blocks are a download that is not complete. */
static Status fail_without_tensor(FromHf *f, const FamilyTensor *first, const FamilyTensor *last)
{
    char expected[SAFETENSORS_TEXT_BYTES], scales[PARAM_NAME_MAX];
    SafeTensor w = { .type = "", .rank = first->rank };
    for (int i = 0; i < w.rank; i++) w.dim[i] = first->dim[i];
    if (last->layout & LAYOUT_MXFP4) weights_scales_name(scales, sizeof scales, last->name);
    if (last->layout & LAYOUT_MXFP4 && take_tensor(f, scales) != NULL)
        return FAIL(ERR_FORMAT, "%s has %s, but no tensor %s", f->dir, scales, last->name);
    return FAIL(ERR_FORMAT, "%s has no tensor %s%s, which this %s model needs", f->dir, first->name,
                safetensors_text(expected, &w), f->family->type);
}

/* A matrix of 8 bits means nothing without its scales, nor scales without quantization_config: the
 * classes of transformers then read other numbers. */
static Status find_scale(FromHf *f, const FamilyTensor *want, const SafeTensor *t,
                         const SafeTensor **scale)
{
    if (want->layout & LAYOUT_MXFP4) return weights_mxfp4_scales(&f->weights, t, scale);
    const bool eight = f->fp8 && dtype_is_narrow((Dtype)t->dtype);
    const char *file = f->weights.file[t->file];
    TRY(weights_scale(&f->weights, t, scale));
    if (eight && *scale == NULL)
        return FAIL(ERR_FORMAT,
                    "%s: %s needs its scales, but the folder has no tensor %s_scale_inv", file,
                    t->name, t->name);
    if (eight || *scale == NULL) return OK;
    return FAIL(ERR_FORMAT, "%s: %s has scales, but %s", file, t->name,
                f->fp8 ? "its type is not one of 8 bits"
                       : "config.json has no quantization_config with quant_method fp8");
}

/* Finds the tensor that holds a parameter, trying the family's layouts in order, and where in it the
 * elements are. MXFP4 stores two elements per byte, so a part has twice as many. */
static Status find_view(FromHf *f, const Param *p, WeightsView *out)
{
    FamilyTensor want = { 0 }, next, first = { 0 };
    const SafeTensor *t = NULL, *scale = NULL;
    for (int i = 0; t == NULL && family_tensor(f->family->bit, p, f->spec.experts, i, &next); i++) {
        want = next;
        if (i == 0) first = want;
        t = take_tensor(f, want.name);
    }
    if (t == NULL) return fail_without_tensor(f, &first, &want);
    TRY(check_tensor(f, &want, t));
    TRY(find_scale(f, &want, t, &scale));
    int64_t part = want.layout & LAYOUT_STACKED ? safetensors_elems(t) / want.dim[0] : 0;
    if (want.layout & LAYOUT_MXFP4) part *= 2;
    *out = (WeightsView){ .tensor = t,
                          .scale = scale,
                          .rows = want.rows,
                          .cols = want.cols,
                          .first = want.first + want.expert * part,
                          .row_step = want.row_step,
                          .col_step = want.col_step,
                          .added = want.layout & LAYOUT_CENTRED ? 1 : 0 };
    return OK;
}

#define HEAD "lm_head.weight"

/* Compares rows [row, row + n) of two tensors, which must be equal. */
static Status compare_rows(FromHf *f, const WeightsView *copy, const WeightsView *of, int64_t row,
                           int64_t n, float *room[2])
{
    TRY(weights_read(&f->weights, copy, row, n, room[0]));
    TRY(weights_read(&f->weights, of, row, n, room[1]));
    if (memcmp(room[0], room[1], (size_t)(n * of->cols) * sizeof(float)) == 0) return OK;
    const char *name = copy->tensor->name;
    return FAIL(
        ERR_UNSUPPORTED, "%s: %s differs from %s: %s", f->weights.file[copy->tensor->file], name,
        of->tensor->name,
        text_ends(name, HEAD)
            ? "the classes of transformers then do not follow tie_word_embeddings, which is true; "
              "set it to false in config.json"
            : "a module of multi-token prediction with its own embedding or head is not supported; "
              "set num_nextn_predict_layers to 0 in config.json to leave it out");
}

/* A copy must have the bits of the parameter that it repeats, because the model shares one of
 * them. */
static Status check_copy(FromHf *f, const char *name, const char *of)
{
    int i = 0;
    float *room[2];
    const SafeTensor *t = take_tensor(f, name);
    if (t == NULL) return OK;
    while (strcmp(f->params.at[i].name, of) != 0) i++;
    const Param *p = &f->params.at[i];
    FamilyTensor want = { .rank = 2, .dim = { p->dim[0], p->dim[1] } };
    TRY(check_tensor(f, &want, t));
    const WeightsView *view = &f->view[i];
    WeightsView copy = { t, NULL, view->rows, view->cols, 0, view->cols, 1, 0 };
    ArenaMark mark = arena_mark(f->arena);
    int64_t most = view->cols < COPY_ELEMS ? COPY_ELEMS / view->cols : 1;
    for (int k = 0; k < 2; k++) TRY(ARENA_NEW(f->arena, most * view->cols, &room[k]));
    for (int64_t row = 0, n = 0; row < view->rows; row += n) {
        n = view->rows - row < most ? view->rows - row : most;
        TRY(compare_rows(f, &copy, view, row, n, room));
    }
    arena_release(f->arena, mark);
    return OK;
}

/* A file may leave these copies out. Where it has them they must agree. */
static Status check_copies(FromHf *f)
{
    char name[PARAM_NAME_MAX];
    const char *of = NULL;
    for (int i = 0; family_copy(&f->config, i, name, &of); i++) TRY(check_copy(f, name, of));
    return f->config.model_tied ? check_copy(f, HEAD, "model.embed_tokens.weight") : OK;
}

/* transformers writes a config.json that counts modules whose tensors it does not write. */
static void drop_missing_modules(FromHf *f)
{
    char name[PARAM_NAME_MAX];
    Config *c = &f->config;
    (void)snprintf(name, sizeof name, "model.layers.%" PRId64 ".eh_proj.weight", c->model_layers);
    if (c->mtp_layers == 0 || names_find(&f->weights.names, name) >= 0) return;
    log_info("%s: config.json counts %" PRId64
             " modules of multi-token prediction, but the folder has no tensors of them",
             f->dir, c->mtp_layers);
    c->mtp_layers = 0;
}

/* Each tensor of the folder must belong to a parameter, or be ignored on purpose. A tensor that nobody
 * uses means that the model would be computed wrongly. */
static Status check_rest(const FromHf *f)
{
    char shown[SAFETENSORS_TEXT_BYTES];
    const SafeTensor *left = NULL;
    int64_t n = 0;
    for (int64_t i = 0; i < f->weights.n; i++) {
        const SafeTensor *t = &f->weights.at[i];
        const char *name = t->name;
        if (f->weights.taken[i]) continue;
        if (text_starts(name, TEXT_PREFIX)) name += sizeof TEXT_PREFIX - 1;
        if (!family_leaves_out(f->family->bit, &f->config, name))
            return FAIL(ERR_FORMAT, "%s: the %s model of config.json has no tensor %s, which is %s",
                        f->weights.file[t->file], f->family->type, t->name,
                        safetensors_text(shown, t));
        if (n++ == 0) left = t;
    }
    if (n > 0) log_info("tensors left out: %" PRId64 ", the first is %s", n, left->name);
    return OK;
}

/* Compares sizes first, because config.json alone determines the size of the table of parameters. A
 * wrong number there must not make the program allocate without bound. */
static Status check_elements(const FromHf *f)
{
    const Config *c = &f->config;
    double have = 0, layers = (double)c->model_layers, moe = (double)config_moe_layers(c);
    double expert = 3.0 * (double)c->moe_ffn * (double)c->model_hidden;
    double need = 2 * layers * (double)c->model_hidden + moe * (double)c->moe_experts * expert;
    for (int64_t i = 0; i < f->weights.n; i++) {
        const SafeTensor *t = &f->weights.at[i];
        have += (double)safetensors_elems(t) * (t->dtype < 0 ? 2 : 1); /* MXFP4 has two a byte */
    }
    if (need <= have) return OK;
    return FAIL(ERR_FORMAT,
                "%s: the tensors have %.0f elements, but by config.json the norms and experts "
                "alone have %.0f",
                f->dir, have, need);
}

/* Everything is checked here, before the output folder is begun. */
static Status find_tensors(FromHf *f)
{
    TRY(weights_open(&f->weights, f->dir, f->arena));
    drop_missing_modules(f);
    TRY(check_elements(f));
    TRY(spec_build(&f->config, f->arena, &f->spec));
    TRY(params_build(&f->spec, 0, NULL, f->arena, &f->params));
    TRY(ARENA_NEW(f->arena, f->params.n, &f->view));
    for (int i = 0; i < f->params.n; i++) TRY(find_view(f, &f->params.at[i], &f->view[i]));
    TRY(check_copies(f));
    return check_rest(f);
}

/* ---- writing ---- */

/* An error names the tensor of the folder, not our parameter: that is what the user has. */
static Status read_rows(void *self, const NewPart *part, float *out)
{
    FromHf *f = self;
    const WeightsView *v = &f->view[part->param];
    TRY(weights_read(&f->weights, v, part->row, part->rows, out));
    return new_checkpoint_numbers(f->weights.file[v->tensor->file], v->tensor->name, part, out);
}

/* Writes FOLDER_TYPES: the tensors that to-hf would otherwise write in another type. Experts of one
 * stacked tensor are adjacent, so comparing with the last tensor avoids duplicates. */
static Status write_types(const FromHf *f)
{
    Json types = json_of(JSON_OBJECT);
    const SafeTensor *last = NULL;
    const int most = f->config.run_compute == COMPUTE_BF16 ? DTYPE_BF16 : DTYPE_F32;
    for (int i = 0; i < f->params.n; i++) {
        const SafeTensor *t = f->view[i].tensor;
        bool plain = t->dtype == (f->params.at[i].first[BUF_STATE] < 0 ? most : DTYPE_F32);
        bool kept = t->dtype == DTYPE_F32 || t->dtype == DTYPE_BF16;
        if (!plain && kept && t != last)
            TRY(json_add(f->arena, &types, t->name, json_of_text(t->type)));
        last = t;
    }
    if (types.child == NULL) return OK;
    return folder_put_json(f->new.out.temp, FOLDER_TYPES, &types, f->arena);
}

static Status write_files(void *self)
{
    const FromHf *f = self;
    TRY(write_types(f));
    return folder_copy_files(f->dir, f->new.out.temp, true);
}

Status convert_from_hf(const char *dir, const char *out, Arena *a, Text *said)
{
    FromHf f = { .dir = dir, .arena = a };
    f.new = (NewCheckpoint){ .from = dir,
                             .config = &f.config,
                             .params = &f.params,
                             .read = read_rows,
                             .files = write_files,
                             .self = &f,
                             .arena = a };
    TRY(out_folder(&f.new.out, out));
    TRY(read_hf_config(&f));
    TRY(check_tokenizer(&f));
    Status s = find_tensors(&f);
    if (s == OK) s = new_checkpoint_write(&f.new);
    weights_close(&f.weights);
    if (s != OK) return s;
    return text_printf(said, "%s: %s, %" PRId64 " parameters in %d tensors\n", out, f.family->type,
                       f.params.total, f.params.n);
}
