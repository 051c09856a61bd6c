#include "train/manifest.h"

#include "base/json_in.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { VERSION = 1, BUFFER_BYTES = 64 << 10 };

static const char *const buffer_names[BUF_COUNT] = {
    [BUF_WEIGHT] = "weight",   [BUF_GRAD] = "grad",       [BUF_MAIN] = "main",
    [BUF_MOMENT1] = "moment1", [BUF_MOMENT2] = "moment2", [BUF_STATE] = "state",
};

const char *manifest_buffer_name(ParamBuffer b) { return buffer_names[b]; }

static void hex(XXH128_hash_t h, char out[33])
{
    (void)snprintf(out, 33, "%016" PRIx64 "%016" PRIx64, (uint64_t)h.high64, (uint64_t)h.low64);
}

/* Writing. */

Status manifest_create(Manifest *m, const char *folder, Arena *arena)
{
    *m = (Manifest){ .arena = arena };
    char path[FILE_PATH_MAX];
    TRY(file_join(path, folder, MANIFEST_NAME));
    void *buffer = NULL;
    TRY(arena_alloc(arena, sizeof(XXH3_state_t), &m->sum));
    XXH3_128bits_reset(m->sum);
    TRY(arena_alloc(arena, sizeof(XXH3_state_t), &m->elements));
    XXH3_128bits_reset(m->elements);
    TRY(arena_alloc(arena, BUFFER_BYTES, &buffer));
    TRY(file_create_temp_buffered(&m->file, path, buffer, BUFFER_BYTES));
    return text_init(&m->line, arena);
}

static Status end_line(Manifest *m, Json *j)
{
    TRY(json_object_end(j));
    TRY(text_append(&m->line, "\n", 1));
    XXH3_128bits_update(m->sum, m->line.data, m->line.used);
    TRY(file_write(&m->file, m->line.data, m->line.used));
    m->line.used = 0;
    return OK;
}

Status manifest_header(Manifest *m, const char *model, const CheckpointInfo *info)
{
    Json j = json_begin(&m->line);
    TRY(json_object(&j));
    TRY(json_key(&j, "format"));
    TRY(json_string(&j, "switchyard checkpoint"));
    TRY(json_key(&j, "version"));
    TRY(json_int(&j, VERSION));
    TRY(json_key(&j, "model"));
    TRY(json_string(&j, model));
    TRY(json_key(&j, "step"));
    TRY(json_int(&j, info->step));
    TRY(json_key(&j, "position"));
    TRY(json_int(&j, (int64_t)info->position));
    TRY(json_key(&j, "config"));
    TRY(json_string(&j, info->config));
    TRY(json_key(&j, "products"));
    TRY(json_string(&j, info->products));
    return end_line(m, &j);
}

void manifest_elements(Manifest *m, const void *bytes, size_t n)
{
    XXH3_128bits_update(m->elements, bytes, n);
}

Status manifest_entry(Manifest *m, const Param *p, ParamBuffer b, uint64_t offset)
{
    char sum[33];
    hex(XXH3_128bits_digest(m->elements), sum);
    XXH3_128bits_reset(m->elements);
    Json j = json_begin(&m->line);
    TRY(json_object(&j));
    TRY(json_key(&j, "param"));
    TRY(json_string(&j, p->name));
    TRY(json_key(&j, "buffer"));
    TRY(json_string(&j, buffer_names[b]));
    TRY(json_key(&j, "shape"));
    TRY(json_array(&j));
    for (int i = 0; i < p->rank; i++) TRY(json_int(&j, p->dim[i]));
    TRY(json_array_end(&j));
    TRY(json_key(&j, "first"));
    TRY(json_int(&j, 0));
    TRY(json_key(&j, "count"));
    TRY(json_int(&j, param_elems(p)));
    TRY(json_key(&j, "file"));
    TRY(json_string(&j, "rank-00000.bin"));
    TRY(json_key(&j, "offset"));
    TRY(json_int(&j, (int64_t)offset));
    TRY(json_key(&j, "xxh3"));
    TRY(json_string(&j, sum));
    m->entries++;
    return end_line(m, &j);
}

Status manifest_commit(Manifest *m)
{
    char sum[33];
    hex(XXH3_128bits_digest(m->sum), sum);
    Json j = json_begin(&m->line);
    TRY(json_object(&j));
    TRY(json_key(&j, "entries"));
    TRY(json_int(&j, m->entries));
    TRY(json_key(&j, "xxh3"));
    TRY(json_string(&j, sum));
    TRY(end_line(m, &j));
    return file_commit(&m->file);
}

void manifest_close(Manifest *m) { file_close(&m->file); }

/* Reading. */

/* The lines before the end line, after the end line has been found right to the byte. */
static Status verify(const char *path, const char *text, size_t bytes, size_t *body_bytes)
{
    size_t body = bytes > 0 ? bytes - 1 : 0;
    while (body > 0 && text[body - 1] != '\n') body--;
    char sum[33], want[96];
    int64_t entries = -1; /* the header is no entry */
    for (size_t i = 0; i < body; i++) entries += text[i] == '\n';
    hex(XXH3_128bits(text, body), sum);
    (void)snprintf(want, sizeof want, "{\"entries\":%" PRId64 ",\"xxh3\":\"%s\"}\n", entries, sum);
    if (body == 0 || strcmp(text + body, want) != 0) {
        return FAIL(ERR_FORMAT, "%s is not whole: %zu bytes whose sum is not the one at its end",
                    path, bytes);
    }
    *body_bytes = body;
    return OK;
}

static Status read_header(const JsonIn *line, Arena *a, CheckpointInfo *out)
{
    int64_t version = 0, step = 0, position = 0;
    const char *config = NULL, *products = NULL;
    TRY(json_in_int(line, "version", &version));
    if (version != VERSION) {
        return FAIL(ERR_UNSUPPORTED, "%s has version %" PRId64 ", this program reads %d",
                    line->path, version, VERSION);
    }
    TRY(json_in_int(line, "step", &step));
    TRY(json_in_int(line, "position", &position));
    TRY(json_in_text(line, "config", &config));
    TRY(json_in_text(line, "products", &products));
    TRY(arena_text(a, config, strlen(config), &out->config));
    TRY(arena_text(a, products, strlen(products), &out->products));
    out->step = step;
    out->position = (uint64_t)position;
    return OK;
}

static Status read_entry(const JsonIn *line, ManifestEntry *out)
{
    const char *buffer = NULL, *sum = NULL;
    int64_t offset = 0;
    *out = (ManifestEntry){ .buffer = BUF_COUNT };
    TRY(json_in_text(line, "param", &out->param));
    TRY(json_in_text(line, "buffer", &buffer));
    TRY(json_in_text(line, "file", &out->file));
    TRY(json_in_text(line, "xxh3", &sum));
    TRY(json_in_int(line, "first", &out->first));
    TRY(json_in_int(line, "count", &out->count));
    TRY(json_in_int(line, "offset", &offset));
    TRY(json_in_ints(line, "shape", out->dim, 2, &out->rank));
    (void)snprintf(out->sum, sizeof out->sum, "%s", sum);
    out->offset = (uint64_t)offset;
    for (int b = 0; b < BUF_COUNT; b++) {
        if (strcmp(buffer, buffer_names[b]) == 0) out->buffer = (ParamBuffer)b;
    }
    if (out->buffer == BUF_COUNT) {
        return FAIL(ERR_FORMAT, "%s: %s has an unknown buffer %s", line->path, out->param, buffer);
    }
    return OK;
}

typedef struct Reading {
    CheckpointInfo *info;
    Arena *arena;
    Status (*each)(void *state, const ManifestEntry *entry);
    void *state;
    int64_t line; /* 0: the header */
} Reading;

static Status read_line(Reading *r, const char *path, const char *text, size_t n)
{
    JsonIn line = { 0 };
    Status s = json_in_parse(&line, path, text, n);
    ManifestEntry entry;
    if (s == OK && r->line == 0) s = read_header(&line, r->arena, r->info);
    if (s == OK && r->line > 0) s = read_entry(&line, &entry);
    if (s == OK && r->line > 0) s = r->each(r->state, &entry);
    json_in_free(&line);
    r->line++;
    return s;
}

Status manifest_read(const char *folder, Arena *a, CheckpointInfo *info,
                     Status (*each)(void *state, const ManifestEntry *entry), void *state)
{
    char path[FILE_PATH_MAX];
    TRY(file_join(path, folder, MANIFEST_NAME));
    char *text = NULL;
    size_t bytes = 0, body = 0;
    TRY(file_read_all(path, a, &text, &bytes));
    TRY(verify(path, text, bytes, &body));
    Reading r = { info, a, each, state, 0 };
    for (size_t at = 0; at < body && (each != NULL || r.line == 0);) {
        const char *newline = memchr(text + at, '\n', body - at);
        TRY(read_line(&r, path, text + at, (size_t)(newline - text) - at));
        at = (size_t)(newline - text) + 1;
    }
    return OK;
}

Status manifest_read_elements(const char *folder, const ManifestEntry *entry, ManifestSink *sink,
                              Arena *scratch)
{
    char path[FILE_PATH_MAX], sum[33];
    void *state = NULL;
    ArenaMark mark = arena_mark(scratch);
    TRY(arena_alloc(scratch, sizeof(XXH3_state_t), &state));
    TRY(file_join(path, folder, entry->file));
    XXH3_128bits_reset(state);
    int64_t most = (int64_t)(sink->piece_bytes / sizeof(float));
    for (int64_t first = 0; first < entry->count; first += most) {
        int64_t n = entry->count - first < most ? entry->count - first : most;
        size_t bytes = (size_t)n * sizeof(float);
        void *at = sink->room(sink->state, entry->first + first, n);
        TRY(file_read_at(path, entry->offset + (uint64_t)first * sizeof(float), at, bytes));
        XXH3_128bits_update(state, at, bytes);
        TRY(sink->put(sink->state, entry->first + first, n));
    }
    hex(XXH3_128bits_digest(state), sum);
    arena_release(scratch, mark);
    if (strcmp(sum, entry->sum) != 0) {
        return FAIL(ERR_FORMAT,
                    "%s: the bytes of %s (%s) at %" PRIu64 " have sum %s, the manifest "
                    "says %s",
                    path, entry->param, buffer_names[entry->buffer], entry->offset, sum,
                    entry->sum);
    }
    return OK;
}
