/* weights: opens a folder, checks that index and files agree, and reads elements through maps of the
 * files, converted to f32. */
#include "convert/weights.h"

#include "engine/base/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the index ---- */

/* A shard must be in the folder of its index; an index must not lead to files elsewhere. */
static bool is_file_name(const char *s)
{
    return s[0] != '\0' && s[0] != '.' && strchr(s, '/') == NULL && strlen(s) < 256;
}

Status weights_parse_index(const char *path, const char *text, size_t bytes, Arena *a,
                           WeightsEntry **out, int64_t *n)
{
    Json *json = NULL;
    size_t bad = 0;
    *n = 0;
    TRY(json_parse(text, bytes, a, &json, &bad));
    const Json *map = json_get(json, "weight_map");
    bool good = json_is(json, JSON_OBJECT) && (map == NULL || map->type == JSON_OBJECT);
    TRY(ARENA_NEW(a, json_count(map), out));
    for (const Json *v = json_first(map); v != NULL && good; v = v->next) {
        good = v->type == JSON_TEXT;
        if (good && !is_file_name(v->text))
            return FAIL(ERR_FORMAT,
                        "%s: %.200s lies in \"%.200s\", which is not the name of a file", path,
                        v->name, v->text);
        if (good) (*out)[(*n)++] = (WeightsEntry){ v->name, v->text };
    }
    if (!good) return FAIL(ERR_FORMAT, "%s is not a JSON object", path);
    if (*n > 0) return OK;
    return FAIL(ERR_FORMAT, "%s has no weight_map, or an empty one", path);
}

/* ---- opening ---- */

/* The number of the file with this name; a new name is appended. */
static Status file_number(Weights *w, Names *files, const char *name, Arena *a, int *out)
{
    char path[FILE_PATH_MAX];
    int64_t known = names_add(files, name, w->n_files);
    *out = known < 0 ? w->n_files : (int)known;
    if (known >= 0) return OK;
    TRY(file_join(path, w->folder, name));
    return arena_text(a, path, strlen(path), &w->file[w->n_files++]);
}

/* Sets the paths of the files. *entry: the tensors of the index; *of: for each, the number of the file
 * that should hold it. Transformers reads a model.safetensors and not the index beside it: the two may
 * be of different models. */
static Status list_files(Weights *w, Arena *a, WeightsEntry **entry, int **of, int64_t *n)
{
    char path[FILE_PATH_MAX], *text = NULL;
    size_t bytes = 0;
    Names files;
    int one = 0;
    TRY(file_join(path, w->folder, WEIGHTS_INDEX));
    bool sharded = file_exists(path);
    if (sharded) {
        TRY(file_read_all(path, a, &text, &bytes));
        TRY(weights_parse_index(path, text, bytes, a, entry, n));
    }
    TRY(names_init(&files, *n + 1, a));
    TRY(ARENA_NEW(a, *n + 1, &w->file));
    TRY(ARENA_NEW(a, *n + 1, of));
    for (int64_t i = 0; i < *n; i++) TRY(file_number(w, &files, (*entry)[i].file, a, &(*of)[i]));
    const int named = w->n_files;
    TRY(file_number(w, &files, WEIGHTS_ONE, a, &one));
    const bool there = file_exists(w->file[one]);
    if (sharded && there && (named > 1 || one == named))
        return FAIL(ERR_FORMAT,
                    "%s has " WEIGHTS_ONE " and also " WEIGHTS_INDEX
                    ", which names other files: remove one of the two",
                    w->folder);
    if (sharded) w->n_files = named;
    if (sharded || there) return OK;
    return FAIL(ERR_IO, "%s has neither " WEIGHTS_ONE " nor " WEIGHTS_INDEX, w->folder);
}

/* Only headers are read: a folder of a terabyte opens in the time of its JSON. */
static Status read_headers(Weights *w, Arena *a)
{
    int64_t room = 0;
    for (int f = 0; f < w->n_files; f++) {
        SafeTensor *t = NULL;
        int64_t n = 0;
        if (!file_exists(w->file[f]))
            return FAIL(ERR_IO, "%s is missing, but %s names it", w->file[f], WEIGHTS_INDEX);
        TRY(safetensors_open(w->file[f], a, &t, &n));
        TRY(ARENA_GROW(a, w->n + n, &room, &w->at));
        for (int64_t i = 0; i < n; i++) {
            t[i].file = f;
            w->at[w->n++] = t[i];
        }
    }
    return OK;
}

/* The index and the headers both say where a tensor is. If they differ, files of two versions lie
 * together. */
static Status check_index(const Weights *w, const WeightsEntry *entry, const int *of, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t at = names_find(&w->names, entry[i].tensor);
        if (at >= 0 && w->at[at].file == of[i]) continue;
        return FAIL(ERR_FORMAT, "%s/" WEIGHTS_INDEX " says that %.200s is in %s, but it is not",
                    w->folder, entry[i].tensor, entry[i].file);
    }
    return OK;
}

/* Names are unique over all shards, so one table finds any tensor. */
Status weights_open(Weights *w, const char *folder, Arena *a)
{
    WeightsEntry *entry = NULL;
    int *of = NULL;
    int64_t n = 0;
    *w = (Weights){ .folder = folder, .mapped = { -1, -1 } };
    TRY(list_files(w, a, &entry, &of, &n));
    TRY(read_headers(w, a));
    TRY(names_init(&w->names, w->n, a));
    TRY(ARENA_ZEROED(a, w->n + 1, &w->taken));
    for (int64_t i = 0; i < w->n; i++) {
        int64_t other = names_add(&w->names, w->at[i].name, i);
        if (other < 0) continue;
        return FAIL(ERR_FORMAT, "the tensor %.200s is in %s and also in %s", w->at[i].name,
                    w->file[w->at[other].file], w->file[w->at[i].file]);
    }
    return check_index(w, entry, of, n);
}

void weights_close(Weights *w)
{
    for (int i = 0; i < WEIGHTS_MAPS; i++) file_unmap(&w->map[i]);
}

const SafeTensor *weights_take(Weights *w, const char *name)
{
    int64_t at = names_find(&w->names, name);
    if (at < 0) return NULL;
    w->taken[at] = true;
    return &w->at[at];
}

/* Blocks of 128 that n elements begin: the last one may be shorter. */
static int64_t scale_blocks(int64_t n) { return n / WEIGHTS_BLOCK + (n % WEIGHTS_BLOCK != 0); }

Status weights_scale(Weights *w, const SafeTensor *t, const SafeTensor **out)
{
    char name[256], found[SAFETENSORS_TEXT_BYTES];
    (void)snprintf(name, sizeof name, "%s_scale_inv", t->name);
    const SafeTensor *s = weights_take(w, name);
    *out = s;
    if (s == NULL) return OK;
    bool fits = t->rank == 2 && s->rank == 2 && s->dtype == DTYPE_F32 &&
                s->dim[0] == scale_blocks(t->dim[0]) && s->dim[1] == scale_blocks(t->dim[1]);
    if (fits) return OK;
    return FAIL(ERR_FORMAT,
                "%s: %s is %s; it must hold an F32 scale for each block of %d x %d of %s (%" PRId64
                ", %" PRId64 ")",
                w->file[s->file], name, safetensors_text(found, s), WEIGHTS_BLOCK, WEIGHTS_BLOCK,
                t->name, t->dim[0], t->rank == 2 ? t->dim[1] : 1);
}

void weights_scales_name(char *out, size_t bytes, const char *blocks)
{
    (void)snprintf(out, bytes, "%.*sscales", (int)(strlen(blocks) - strlen("blocks")), blocks);
}

Status weights_mxfp4_scales(Weights *w, const SafeTensor *t, const SafeTensor **out)
{
    char name[256], found[SAFETENSORS_TEXT_BYTES], blocks[SAFETENSORS_TEXT_BYTES];
    weights_scales_name(name, sizeof name, t->name);
    const SafeTensor *s = weights_take(w, name);
    if (s == NULL)
        return FAIL(ERR_FORMAT, "%s: %s needs its scales, but the folder has no tensor %s",
                    w->file[t->file], t->name, name);
    bool fits = s->rank == t->rank - 1 && strcmp(s->type, t->type) == 0;
    for (int i = 0; fits && i < s->rank; i++) fits = s->dim[i] == t->dim[i];
    *out = s;
    if (fits) return OK;
    return FAIL(ERR_FORMAT, "%s: %s is %s; it must hold a U8 scale for each 16 bytes of %s, %s",
                w->file[s->file], name, safetensors_text(found, s), t->name,
                safetensors_text(blocks, t));
}

/* ---- elements ---- */

/* Finds the first byte of a tensor. If its file is not mapped, maps it in place of the least recently
 * used one. map[0] is the most recently used. */
static Status map_tensor(Weights *w, const SafeTensor *t, const uint8_t **out)
{
    int last = 0;
    while (last < WEIGHTS_MAPS - 1 && w->mapped[last] != t->file) last++;
    FileMap map = w->map[last];
    if (w->mapped[last] != t->file) {
        file_unmap(&map);
        w->map[last] = map;
        w->mapped[last] = -1;
        TRY(file_map(w->file[t->file], &map));
    }
    for (int i = last; i > 0; i--) {
        w->map[i] = w->map[i - 1];
        w->mapped[i] = w->mapped[i - 1];
    }
    w->map[0] = map;
    w->mapped[0] = t->file;
    if ((int64_t)map.bytes < t->end)
        return FAIL(ERR_IO, "%s has become shorter while it was read: it has %zu bytes now",
                    w->file[t->file], map.bytes);
    *out = map.data + t->begin;
    return OK;
}

/* Closes the least recently used map. */
static void close_old_map(Weights *w)
{
    file_unmap(&w->map[WEIGHTS_MAPS - 1]);
    w->mapped[WEIGHTS_MAPS - 1] = -1;
}

enum { GATHER = 512 }; /* elements of a row that are copied at a time */

/* Converts n elements that are `step` elements apart, through a small buffer, because elements in a file
 * may be unaligned. */
static void gather_row(const uint8_t *from, Dtype type, int64_t step, int64_t n, float *out)
{
    _Alignas(float) uint8_t part[GATHER * sizeof(float)];
    const int64_t each = (int64_t)dtype_bytes(type);
    for (int64_t i = 0, k = 0; i < n; i += k) {
        k = n - i < GATHER ? n - i : GATHER;
        if (step == 1) memcpy(part, from + i * each, (size_t)(k * each));
        for (int64_t j = 0; j < k && step != 1; j++)
            memcpy(part + j * each, from + (i + j) * step * each, (size_t)each);
        dtype_to_f32(out + i, part, type, k);
    }
}

/* Multiplies a row by its block scales. Scales in a file may be unaligned, so each is copied. */
static void scale_row(const uint8_t *scale, int64_t row, int64_t cols, float *x)
{
    const int64_t per_row = scale_blocks(cols);
    for (int64_t b = 0; b < per_row; b++) {
        float s;
        int64_t first = b * WEIGHTS_BLOCK, end = first + WEIGHTS_BLOCK;
        memcpy(&s, scale + (row / WEIGHTS_BLOCK * per_row + b) * (int64_t)sizeof s, sizeof s);
        for (int64_t c = first; c < cols && c < end; c++) x[c] *= s;
    }
}

/* Reads n MXFP4 elements from element `first` on, which begins a block of 32. */
static void read_mxfp4(const uint8_t *blocks, const uint8_t *scales, int64_t first, int64_t n,
                       float *out)
{
    static const float value[] = { 0, 0.5F, 1, 1.5F, 2, 3, 4, 6 };
    float scale = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = first + i;
        const int bits = blocks[at / 2] >> (at % 2 * 4) & 15;
        if (at % WEIGHTS_GROUP == 0) scale = ldexpf(1, scales[at / WEIGHTS_GROUP] - 127);
        out[i] = (bits & 8 ? -value[bits & 7] : value[bits]) * scale;
    }
}

/* A row is read, converted to f32, then scaled. MXFP4 has its scale inside the conversion. */
Status weights_read(Weights *w, const WeightsView *v, int64_t row, int64_t n, float *out)
{
    const uint8_t *data = NULL, *scale = NULL;
    const Dtype type = (Dtype)v->tensor->dtype;
    if (v->scale != NULL)
        TRY(map_tensor(w, v->scale, &scale));
    else
        close_old_map(w); /* one shard in memory is enough */
    TRY(map_tensor(w, v->tensor, &data));
    for (int64_t r = row; r < row + n; r++) {
        float *to = out + (r - row) * v->cols;
        if (v->tensor->dtype < 0 && scale != NULL) {
            read_mxfp4(data, scale, v->first + r * v->row_step, v->cols, to);
            continue;
        }
        const uint8_t *from = data + (v->first + r * v->row_step) * (int64_t)dtype_bytes(type);
        gather_row(from, type, v->col_step, v->cols, to);
        if (scale != NULL) scale_row(scale, r, v->cols, to);
        for (int64_t c = 0; v->added != 0 && c < v->cols; c++) to[c] += v->added;
    }
    return OK;
}
