/* to_hf: converts a checkpoint to a Hugging Face folder. It finds the family (family_write), plans which
 * parameters form which tensors and which tensors form which file, then writes tensor by tensor. A
 * checkpoint of any mesh works, because entries name their piece of a parameter. */
#include "hf/to_hf.h"

#include "convert/family.h"
#include "convert/folder.h"
#include "convert/rotated.h"
#include "convert/weights.h"
#include "corpus/tokenizer/tokenizer.h"
#include "engine/base/log.h"
#include "engine/base/out_folder.h"
#include "engine/checkpoint/manifest.h"
#include "engine/host/progress.h"
#include "engine/train/infer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE_ELEMS = 1 << 16 }; /* elements that are converted at a time */

/* Where a parameter is in its tensor; fields as in FamilyTensor. Parts of one tensor are adjacent. */
typedef struct Part {
    int param;
    int64_t tensor, expert, rows, cols, first, row_step, col_step;
    unsigned layout;
} Part;

typedef struct ToHf {
    const ConvertToHf *o;
    char checkpoint[FILE_PATH_MAX], files[FILE_PATH_MAX]; /* files: folder of the tokenizer */
    OutFolder out;
    Progress bar;
    Config config, theirs; /* of the run; of the new config.json */
    Json *json, *types;    /* types: FOLDER_TYPES, or NULL */
    const Family *family;
    ModelSpec spec; /* of `theirs` */
    ParamTable params;
    ManifestEntry **chain; /* by parameter; NULL: zeros */
    SafeTensor *tensor;
    Part *part;
    int64_t tensors, parts;
    int shards, dtype;   /* of the weights */
    float *param, *slab; /* elements of a parameter; of a tensor, or of one expert in it */
    Arena *arena;
} ToHf;

/* ---- the configuration ---- */

/* A file that is not what its name says has nothing for us. Other failures say nothing of the file, such as a lack
 * of memory: they stay. */
static Status unless_other_file(Status s)
{
    if (s != ERR_FORMAT && s != ERR_UNSUPPORTED) return s;
    status_clear();
    return OK;
}

/* Sets the tokens that begin and end a text; without them the family's class has defaults. */
static Status put_end_tokens(ToHf *h)
{
    const char *path = h->config.data_tokenizer;
    Tokenizer *t = NULL;
    if (json_get(h->json, "eos_token_id") != NULL) return OK;
    TRY(family_put(h->arena, h->json, "bos_token_id", json_of(JSON_NULL)));
    ArenaMark mark = arena_mark(h->arena);
    if (file_exists(path)) TRY(unless_other_file(tokenizer_load(path, h->arena, &t)));
    int32_t end = t == NULL ? -1 : tokenizer_end_of_text(t);
    tokenizer_free(t);
    arena_release(h->arena, mark);
    return family_put(h->arena, h->json, "eos_token_id",
                      end < 0 ? json_of(JSON_NULL) : json_of_number(end));
}

/* The number of positions of a model whose rotary frequencies are stretched, but at least n. */
static double stretched_positions(const Json *json, double n)
{
    const Json *rope = json_get(json, "rope_scaling"), *factor = json_get(rope, "factor");
    const Json *original = json_get(rope, "original_max_position_embeddings");
    double most = factor == NULL || original == NULL ? 0 : factor->number * original->number;
    return most > n ? most : n;
}

/* Positions: what the file said, what training used, or what stretched frequencies reach; the
 * largest counts. */
static Status put_run_members(ToHf *h)
{
    const Json *length = json_get(h->json, "max_position_embeddings");
    double n = (double)h->config.data_sequence;
    if (json_is(length, JSON_NUMBER) && length->number > n) n = length->number;
    if (length == NULL) n = stretched_positions(h->json, n);
    TRY(family_put(h->arena, h->json, "max_position_embeddings", json_of_number(n)));
    TRY(family_put(h->arena, h->json, "torch_dtype",
                   json_of_text(h->dtype == DTYPE_BF16  ? "bfloat16"
                                : h->dtype == DTYPE_F16 ? "float16"
                                                        : "float32")));
    return put_end_tokens(h);
}

/* The folder of a file. */
static void folder_of(const char *path, char out[FILE_PATH_MAX])
{
    const char *last = strrchr(path, '/');
    if (last == NULL)
        (void)snprintf(out, FILE_PATH_MAX, ".");
    else
        (void)snprintf(out, FILE_PATH_MAX, "%.*s", last == path ? 1 : (int)(last - path), path);
}

/* Reads a JSON file in the tokenizer's folder. *out NULL: it does not exist, or is not a JSON object. */
static Status read_beside(ToHf *h, const char *name, Json **out)
{
    char path[FILE_PATH_MAX];
    *out = NULL;
    TRY(file_join(path, h->files, name));
    if (!file_is_file(path)) return OK;
    return unless_other_file(folder_json(h->files, name, h->arena, out));
}

/* What to-hf can write but transformers cannot run or does not have. */
static void warn_of_limits(const ToHf *h)
{
    const char *type = h->family->type;
    if (h->theirs.mtp_layers < h->config.mtp_layers)
        log_warn("%s has no modules of multi-token prediction: they are left out", type);
    if (h->family->bit == DEEPSEEK_V2 && h->theirs.moe_bias_rate > 0)
        log_warn("softmax scores with a router bias (topk_method noaux_tc): the %s class of "
                 "transformers cannot run this model; moe.score=sigmoid trains one that it can run",
                 type);
}

/* Without a tokenizer the checkpoint's own folder takes its place: from-hf puts config.json
 * there. */
static Status read_run_config(ToHf *h)
{
    TRY(infer_config(h->o->checkpoint, h->arena, h->checkpoint, &h->config));
    (void)snprintf(h->files, sizeof h->files, "%s", h->checkpoint);
    if (h->config.data_tokenizer[0] != '\0') {
        if (!file_exists(h->config.data_tokenizer))
            log_warn("%s does not exist: OUT has no tokenizer", h->config.data_tokenizer);
        folder_of(h->config.data_tokenizer, h->files);
    }
    Json *like = NULL;
    TRY(read_beside(h, "config.json", &like));
    if (h->o->dtype < 0) TRY(read_beside(h, FOLDER_TYPES, &h->types));
    TRY(family_write(&h->config, like, h->arena, &h->json, &h->family, &h->theirs));
    warn_of_limits(h);
    return OK;
}

/* ---- what is in the checkpoint ---- */

/* All elements must be in some entry, each in one, before anything is written. */
static Status check_chain(const ToHf *h, int i)
{
    const Param *p = &h->params.at[i];
    const ManifestEntry *e = h->chain[i];
    if (e == NULL && p->role == ROLE_ROUTER_BIAS) return OK; /* a bias of zeros changes nothing */
    if (e == NULL) return FAIL(ERR_FORMAT, "%s has no %s", h->checkpoint, p->name);
    return manifest_check_cover(h->checkpoint, e, param_elems(p));
}

/* Does the parameter belong to a module of multi-token prediction that the family does not have? */
static bool is_left_out(const ToHf *h, const char *name)
{
    return h->theirs.mtp_layers < h->config.mtp_layers &&
           param_block(name) >= h->config.model_layers;
}

/* Entries of the optimizer's state are skipped. Those of one parameter form a chain, in any
 * order. */
static Status add_entry(ToHf *h, const Names *names, ManifestEntry *e)
{
    int64_t i = names_find(names, e->param);
    if (e->buffer != BUF_MAIN && e->buffer != BUF_STATE) return OK;
    if (i < 0 && is_left_out(h, e->param)) return OK;
    if (i < 0)
        return FAIL(ERR_FORMAT, "%s: the model of its configuration has no parameter %s",
                    h->checkpoint, e->param);
    const Param *p = &h->params.at[i];
    bool fits = e->rank == p->rank && e->dim[0] == p->dim[0] &&
                (p->rank == 1 || e->dim[1] == p->dim[1]) && piece_fits(&e->piece, param_elems(p));
    if (!fits)
        return FAIL(ERR_FORMAT, "%s: %s has another shape than its configuration says",
                    h->checkpoint, e->param);
    e->other = h->chain[i];
    h->chain[i] = e;
    return OK;
}

/* Parameters are those of the new config.json, so modules that the family lacks have none. */
static Status find_entries(ToHf *h)
{
    CheckpointInfo info;
    ManifestEntry *entry = NULL;
    Names names;
    int64_t n = 0;
    TRY(spec_build(&h->theirs, h->arena, &h->spec));
    TRY(params_build(&h->spec, 0, NULL, h->arena, &h->params));
    TRY(names_init(&names, h->params.n, h->arena));
    for (int i = 0; i < h->params.n; i++) (void)names_add(&names, h->params.at[i].name, i);
    TRY(ARENA_ZEROED(h->arena, h->params.n, &h->chain));
    TRY(manifest_read(h->checkpoint, h->arena, &info, &entry, &n));
    if (h->o->average) TRY(manifest_take_average(h->checkpoint, entry, &n, h->arena));
    for (int64_t i = 0; i < n; i++) TRY(add_entry(h, &names, &entry[i]));
    for (int i = 0; i < h->params.n; i++) TRY(check_chain(h, i));
    return OK;
}

/* ---- tensors ---- */

/* The type that the tensor had in the folder from which the checkpoint came (FOLDER_TYPES). Otherwise
 * f32 for the router's bias, as in published files, and h->dtype for the others. */
static int tensor_type(const ToHf *h, const char *name, const Param *p)
{
    const char *word = json_string(json_get(h->types, name));
    if (word != NULL)
        return strcmp(word, safetensors_type(DTYPE_BF16)) == 0 ? DTYPE_BF16 : DTYPE_F32;
    return p->first[BUF_STATE] >= 0 ? DTYPE_F32 : h->dtype;
}

/* copy: the name of a tensor that repeats the parameter; NULL: the parameter's own tensor. */
static Status add_part(ToHf *h, Names *names, int i, const char *copy)
{
    FamilyTensor t;
    const Param *p = &h->params.at[i];
    const char *name = NULL;
    (void)family_tensor(h->family->bit, p, h->spec.experts, 0, &t);
    if (copy == NULL) copy = t.name;
    TRY(arena_text(h->arena, copy, strlen(copy), &name));
    int64_t known = names_add(names, name, h->tensors), at = known < 0 ? h->tensors++ : known;
    if (known < 0) {
        SafeTensor *s = &h->tensor[at];
        *s = (SafeTensor){ .name = name, .dtype = tensor_type(h, name, p), .rank = t.rank };
        for (int d = 0; d < t.rank; d++) s->dim[d] = t.dim[d];
    }
    h->part[h->parts++] =
        (Part){ i, at, t.expert, t.rows, t.cols, t.first, t.row_step, t.col_step, t.layout };
    return OK;
}

/* Adds the tensors that repeat a parameter (family_copy). */
static Status add_copies(ToHf *h, Names *names)
{
    char name[PARAM_NAME_MAX];
    const char *of = NULL;
    for (int i = 0; family_copy(&h->theirs, i, name, &of); i++) {
        int p = 0;
        while (strcmp(h->params.at[p].name, of) != 0) p++;
        TRY(add_part(h, names, p, name));
    }
    return OK;
}

/* Counting sort of the parts by tensor. It is stable: within a tensor parts stay in the order of
 * parameters, which is that of experts. */
static Status sort_parts(ToHf *h)
{
    int64_t *first = NULL;
    Part *sorted = NULL;
    TRY(ARENA_ZEROED(h->arena, h->tensors + 1, &first));
    TRY(ARENA_NEW(h->arena, h->parts, &sorted));
    for (int64_t i = 0; i < h->parts; i++) first[h->part[i].tensor + 1]++;
    for (int64_t i = 0; i < h->tensors; i++) first[i + 1] += first[i];
    for (int64_t i = 0; i < h->parts; i++) sorted[first[h->part[i].tensor]++] = h->part[i];
    h->part = sorted;
    return OK;
}

/* Bytes in the file, after conversion to the tensor's type. */
static int64_t tensor_size(const SafeTensor *t)
{
    return safetensors_elems(t) * (int64_t)dtype_bytes((Dtype)t->dtype);
}

/* Elements of one expert in a stacked tensor; of the whole tensor if it is not stacked. */
static int64_t slab_elems(const ToHf *h, const Part *p)
{
    const SafeTensor *t = &h->tensor[p->tensor];
    return safetensors_elems(t) / ((p->layout & LAYOUT_STACKED) != 0 ? t->dim[0] : 1);
}

/* Files are filled in order. A tensor begins the next file if the current one would grow over
 * shard_bytes. Buffers are as large as the largest parameter and the largest slab. */
static Status plan_tensors(ToHf *h)
{
    Names names;
    int64_t bytes = 0, param = 0, slab = 0;
    int64_t most = h->params.n + 2 * h->spec.depths;
    TRY(names_init(&names, most, h->arena));
    TRY(ARENA_NEW(h->arena, most, &h->tensor));
    TRY(ARENA_NEW(h->arena, most, &h->part));
    for (int i = 0; i < h->params.n; i++) TRY(add_part(h, &names, i, NULL));
    TRY(add_copies(h, &names));
    TRY(sort_parts(h));
    for (int64_t i = 0; i < h->tensors; i++) {
        int64_t size = tensor_size(&h->tensor[i]);
        bool next = i == 0 || bytes + size > h->o->shard_bytes;
        bytes = next ? size : bytes + size;
        h->shards += next;
        h->tensor[i].file = h->shards - 1;
    }
    for (int64_t i = 0; i < h->parts; i++) {
        int64_t elems = h->part[i].rows * h->part[i].cols, whole = slab_elems(h, &h->part[i]);
        param = elems > param ? elems : param;
        slab = whole > slab ? whole : slab;
    }
    TRY(ARENA_NEW(h->arena, param, &h->param));
    return ARENA_NEW(h->arena, slab, &h->slab);
}

/* ---- elements ---- */

/* A parameter without entries is a router bias of zeros (check_chain). */
static Status read_param(ToHf *h, const Part *p)
{
    int64_t n = p->rows * p->cols;
    const Tensor to = { h->param, DTYPE_F32, 1, { n } };
    const ParamPiece piece = { piece_range(0, n), to };
    const ManifestEntry *e = h->chain[p->param];
    if (e == NULL) memset(h->param, 0, (size_t)n * sizeof *h->param);
    for (; e != NULL; e = e->other)
        TRY(manifest_read_entry(NULL, h->checkpoint, e, &piece, h->arena));
    return OK;
}

/* Copies the parameter to its elements of the slab, with rotated rows reordered if needed. A norm that begins at 0
 * there begins at 1 here. */
static void place_param(ToHf *h, const Part *p)
{
    bool ours = h->config.attention_rope_interleaved;
    const Rotated k =
        rotated_rows(&h->config, h->params.at[p->param].name, h->theirs.attention_rope_interleaved);
    const bool centred = (p->layout & LAYOUT_CENTRED) != 0;
    for (int64_t i = 0; centred && i < p->rows * p->cols; i++) h->param[i] -= 1;
    for (int64_t r = 0; r < p->rows; r++) {
        const float *from = h->param + r * p->cols;
        float *to = h->slab + p->first + rotated_row(k, ours, r) * p->row_step;
        if (p->col_step == 1)
            memcpy(to, from, (size_t)p->cols * sizeof *to);
        else
            for (int64_t c = 0; c < p->cols; c++) to[c * p->col_step] = from[c];
    }
}

static Status write_slab(const ToHf *h, File *f, Dtype type, int64_t n)
{
    float room[PIECE_ELEMS / sizeof(float)];
    const int64_t most = PIECE_ELEMS / (int64_t)sizeof(float);
    for (int64_t i = 0, k = 0; i < n; i += k) {
        k = n - i < most ? n - i : most;
        dtype_from_f32(room, type, h->slab + i, k);
        TRY(file_write(f, room, (size_t)k * dtype_bytes(type)));
    }
    return OK;
}

/* Writes the parts [first, end) of a tensor, expert by expert. */
static Status write_parts(ToHf *h, File *f, int64_t first, int64_t end)
{
    for (int64_t i = first; i < end; i++) {
        TRY(progress_add(&h->bar, 1));
        const Part *p = &h->part[i];
        TRY(read_param(h, p));
        place_param(h, p);
        if (i + 1 < end && h->part[i + 1].expert == p->expert) continue;
        TRY(write_slab(h, f, (Dtype)h->tensor[p->tensor].dtype, slab_elems(h, p)));
    }
    return OK;
}

/* ---- files ---- */

static void shard_name(const ToHf *h, int shard, char out[64])
{
    if (h->shards == 1)
        (void)snprintf(out, 64, WEIGHTS_ONE);
    else
        (void)snprintf(out, 64, "model-%05d-of-%05d.safetensors", shard + 1, h->shards);
}

/* Writes tensors [first, end) into one file. *part: their first part; on return, the one after their
 * last.
 * The header is written first, so elements follow in exactly its order of tensors. */
static Status write_hf_shard(ToHf *h, File *f, int64_t first, int64_t end, int64_t *part)
{
    char name[64], path[FILE_PATH_MAX];
    shard_name(h, h->tensor[first].file, name);
    TRY(file_join(path, h->out.temp, name));
    TRY(safetensors_create(f, path, h->tensor + first, end - first, h->arena));
    for (int64_t i = first; i < end; i++) {
        int64_t begin = *part;
        while (*part < h->parts && h->part[*part].tensor == i) (*part)++;
        TRY(write_parts(h, f, begin, *part));
    }
    return file_commit(f);
}

static Status write_hf_shards(ToHf *h)
{
    int64_t part = 0;
    h->bar = (Progress){ .what = "convert",
                         .name = h->checkpoint,
                         .unit = "parameters' parts",
                         .total = h->parts,
                         .left = "nothing was written" };
    progress_begin(&h->bar);
    for (int64_t first = 0, end = 0; first < h->tensors; first = end) {
        File f = { 0 };
        ArenaMark mark = arena_mark(h->arena);
        while (end < h->tensors && h->tensor[end].file == h->tensor[first].file) end++;
        Status s = write_hf_shard(h, &f, first, end, &part);
        file_close(&f);
        arena_release(h->arena, mark);
        if (s != OK) return s;
    }
    progress_end(&h->bar);
    return OK;
}

/* A single file needs no index: transformers looks for model.safetensors first. */
static Status write_index(ToHf *h)
{
    char path[FILE_PATH_MAX], name[64];
    int64_t bytes = 0;
    Text text = { 0 };
    if (h->shards == 1) return OK;
    for (int64_t i = 0; i < h->tensors; i++) bytes += tensor_size(&h->tensor[i]);
    TRY(text_init(&text, h->arena));
    TRY(text_json(&text, "{\"metadata\":{\"total_size\":%lld},\"weight_map\":{\n",
                  (long long)bytes));
    for (int64_t i = 0; i < h->tensors; i++) {
        shard_name(h, h->tensor[i].file, name);
        TRY(text_json(&text, "%s:%s", h->tensor[i].name, name));
        TRY(text_printf(&text, i + 1 < h->tensors ? ",\n" : "\n"));
    }
    TRY(text_printf(&text, "}}\n"));
    TRY(file_join(path, h->out.temp, WEIGHTS_INDEX));
    return file_write_whole(path, text.data, text.used);
}

/* Writes a file that transformers needs, unless it was copied. */
static Status put_missing(const ToHf *h, const char *name, const Json *json)
{
    char path[FILE_PATH_MAX];
    TRY(file_join(path, h->out.temp, name));
    return file_exists(path) ? OK : folder_put_json(h->out.temp, name, json, h->arena);
}

/* The id of a token that config.json names, the first of a list; -1: it names none. */
static double token_id(const ToHf *h, const char *name)
{
    const Json *v = json_get(h->json, name);
    if (json_is(v, JSON_ARRAY)) v = json_first(v);
    return json_is(v, JSON_NUMBER) ? v->number : -1;
}

/* Names only the tokens that begin, end and fill a text. Everything else is left to transformers'
 * defaults. Without a token of its own the one that ends a text fills it. */
static Status put_generation(const ToHf *h)
{
    static const char *const ends[] = { "bos_token_id", "eos_token_id", "pad_token_id" };
    Json json = json_of(JSON_OBJECT);
    for (int i = 0; i < 3; i++) {
        const Json *v = json_get(h->json, ends[i]);
        const Json fill = json_of_number(token_id(h, "eos_token_id"));
        if (i == 2 && token_id(h, ends[i]) < 0 && fill.number >= 0) v = &fill;
        if (v != NULL && v->type != JSON_NULL) TRY(json_add(h->arena, &json, ends[i], *v));
    }
    TRY(json_add(h->arena, &json, "_from_model_config", json_of_bool(true)));
    return put_missing(h, "generation_config.json", &json);
}

/* The text of a special token of tokenizer.json; NULL: it has none of this id. */
static const char *token_text(const Json *tokens, double id)
{
    for (const Json *at = json_first(tokens); at != NULL; at = at->next) {
        const Json *own = json_get(at, "id");
        if (json_is(own, JSON_NUMBER) && own->number == id)
            return json_string(json_get(at, "content"));
    }
    return NULL;
}

/* The texts of those tokens, without which AutoTokenizer has none. */
static Status add_tokens(const ToHf *h, Json *out)
{
    static const char *const roles[] = { "bos", "eos", "pad" };
    Json *json = NULL;
    TRY(folder_json(h->out.temp, "tokenizer.json", h->arena, &json));
    for (int i = 0; i < 3; i++) {
        char key[32];
        (void)snprintf(key, sizeof key, "%s_token_id", roles[i]);
        double id = token_id(h, key);
        if (id < 0 && i == 2) id = token_id(h, "eos_token_id");
        const char *text = token_text(json_get(json, "added_tokens"), id);
        (void)snprintf(key, sizeof key, "%s_token", roles[i]);
        if (text != NULL) TRY(json_add(h->arena, out, key, json_of_text(text)));
    }
    return OK;
}

/* data.tokenizer becomes tokenizer.json, whatever its name. Without one it may be beside the
 * checkpoint. Texts are decoded as they are: older versions of transformers take spaces out. */
static Status put_tokenizer(const ToHf *h)
{
    char from[FILE_PATH_MAX], path[FILE_PATH_MAX];
    const char *set = h->config.data_tokenizer;
    Json json = json_of(JSON_OBJECT);
    TRY(file_join(from, h->files, "tokenizer.json"));
    TRY(file_join(path, h->out.temp, "tokenizer.json"));
    if (!file_exists(set[0] != '\0' ? set : from)) return OK;
    TRY(folder_copy_file(set[0] != '\0' ? set : from, path));
    TRY(json_add(h->arena, &json, "tokenizer_class", json_of_text("PreTrainedTokenizerFast")));
    TRY(json_add(h->arena, &json, "clean_up_tokenization_spaces", json_of_bool(false)));
    TRY(add_tokens(h, &json));
    return put_missing(h, "tokenizer_config.json", &json);
}

/* Copied files come first, so that put_missing sees them. */
static Status write_hf_files(ToHf *h)
{
    TRY(folder_copy_files(h->files, h->out.temp, false));
    TRY(put_generation(h));
    TRY(put_tokenizer(h));
    TRY(folder_put_json(h->out.temp, "config.json", h->json, h->arena));
    TRY(write_hf_shards(h));
    return write_index(h);
}

static Status write_hf_folder(ToHf *h)
{
    TRY(put_run_members(h));
    TRY(find_entries(h));
    TRY(plan_tensors(h));
    Status s = out_folder_begin(&h->out);
    if (s == OK) s = write_hf_files(h);
    return out_folder_end(&h->out, s);
}

Status convert_to_hf(const ConvertToHf *o, Arena *a, Text *said)
{
    ToHf h = { .o = o, .arena = a, .dtype = o->dtype };
    TRY(out_folder(&h.out, o->out));
    Status s = read_run_config(&h);
    if (o->dtype < 0) h.dtype = config_type(&h.config);
    if (s == OK) s = write_hf_folder(&h);
    if (s != OK) return s;
    TRY(text_printf(said, "%s: %s, %" PRId64 " tensors in %d files\n", o->out, h.family->type,
                    h.tensors, h.shards));
    return family_not_carried(&h.config, h.family, a, said);
}
