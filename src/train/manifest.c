#include "train/manifest.h"

#include "trace/scan.h"
#include "train/numbers.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { VERSION = 1, BUFFER_BYTES = 64 << 10, END_BYTES = 96 };

static const char *const buffer_names[BUF_COUNT] = {
    [BUF_WEIGHT] = "weight",   [BUF_GRAD] = "grad",       [BUF_MAIN] = "main",
    [BUF_MOMENT1] = "moment1", [BUF_MOMENT2] = "moment2", [BUF_STATE] = "state",
};

const char *manifest_buffer_name(ParamBuffer b) { return buffer_names[b]; }

static void hex(XXH128_hash_t h, char out[CHECKPOINT_SUM_BYTES])
{
    (void)snprintf(out, CHECKPOINT_SUM_BYTES, "%016" PRIx64 "%016" PRIx64, (uint64_t)h.high64,
                   (uint64_t)h.low64);
}

Status manifest_sum_new(Arena *a, void **out)
{
    TRY(arena_alloc(a, sizeof(XXH3_state_t), out));
    XXH3_128bits_reset(*out);
    return OK;
}

void manifest_sum_add(void *sum, const void *bytes, size_t n)
{
    XXH3_128bits_update(sum, bytes, n);
}

void manifest_sum_take(void *sum, char out[CHECKPOINT_SUM_BYTES])
{
    hex(XXH3_128bits_digest(sum), out);
    XXH3_128bits_reset(sum);
}

/* Writing. */

Status manifest_line(Text *lines, const ManifestEntry *e)
{
    TRY(text_json(lines, "{\"param\":%s,\"buffer\":%s,\"shape\":[", e->param,
                  buffer_names[e->buffer]));
    for (int i = 0; i < e->rank; i++) {
        TRY(text_append(lines, ",", i > 0));
        TRY(text_json(lines, "%lld", (long long)e->dim[i]));
    }
    return text_json(
        lines, "],\"first\":%lld,\"count\":%lld,\"file\":%s,\"offset\":%lld,\"xxh3\":%s}\n",
        (long long)e->first, (long long)e->count, e->file, (long long)e->offset, e->sum);
}

static Status write_text(Manifest *m, const char *text, size_t bytes)
{
    manifest_sum_add(m->sum, text, bytes);
    return file_write(&m->file, text, bytes);
}

Status manifest_create(Manifest *m, const char *folder, const char *model,
                       const CheckpointInfo *info, Arena *arena)
{
    *m = (Manifest){ .arena = arena };
    char path[FILE_PATH_MAX];
    Text header = { 0 };
    void *buffer = NULL;
    TRY(file_join(path, folder, MANIFEST_NAME));
    TRY(manifest_sum_new(arena, &m->sum));
    TRY(arena_alloc(arena, BUFFER_BYTES, &buffer));
    TRY(text_init(&header, arena));
    TRY(text_json(&header,
                  "{\"format\":\"switchyard checkpoint\",\"version\":%d,\"model\":%s,\"step\":%lld,"
                  "\"position\":%lld,\"config\":%s,\"products\":%s}\n",
                  VERSION, model, (long long)info->step, (long long)info->position, info->config,
                  info->products));
    TRY(file_create_temp_buffered(&m->file, path, buffer, BUFFER_BYTES));
    return write_text(m, header.data, header.used);
}

Status manifest_lines(Manifest *m, const char *lines, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) m->entries += lines[i] == '\n';
    return write_text(m, lines, bytes);
}

static int end_line(char out[END_BYTES], int64_t entries, const char *sum)
{
    return snprintf(out, END_BYTES, "{\"entries\":%" PRId64 ",\"xxh3\":\"%s\"}\n", entries, sum);
}

Status manifest_commit(Manifest *m)
{
    char sum[CHECKPOINT_SUM_BYTES], end[END_BYTES];
    manifest_sum_take(m->sum, sum);
    TRY(file_write(&m->file, end, (size_t)end_line(end, m->entries, sum)));
    return file_commit(&m->file);
}

void manifest_close(Manifest *m) { file_close(&m->file); }

/* Reading. */

/* The lines before the end line, after the end line has been found right to the byte. */
static Status verify(const char *path, const char *text, size_t bytes, size_t *body_bytes,
                     char sum[CHECKPOINT_SUM_BYTES])
{
    size_t body = bytes > 0 ? bytes - 1 : 0;
    while (body > 0 && text[body - 1] != '\n') body--;
    char want[END_BYTES];
    int64_t entries = -1; /* the header is no entry */
    for (size_t i = 0; i < body; i++) entries += text[i] == '\n';
    hex(XXH3_128bits(text, body), sum);
    (void)end_line(want, entries, sum);
    if (body == 0 || strcmp(text + body, want) != 0) {
        return FAIL(ERR_FORMAT, "%s is not whole: %zu bytes whose sum is not the one at its end",
                    path, bytes);
    }
    *body_bytes = body;
    return OK;
}

/* A line as it stands in the file: header or entry. What is missing stays NULL or NONE. */
typedef struct Line {
    char *config, *products, *param, *buffer, *file, *sum, *shape;
    int64_t version, step, position, first, count, offset;
} Line;

static const int64_t NONE = INT64_MIN;

#define TEXT(key, member)                                                                          \
    {                                                                                              \
        key, SCAN_TEXT, offsetof(Line, member)                                                     \
    }
#define WHOLE(key, member)                                                                         \
    {                                                                                              \
        key, SCAN_WHOLE, offsetof(Line, member)                                                    \
    }

static const ScanField HEADER[] = {
    WHOLE("version", version), WHOLE("step", step),        WHOLE("position", position),
    TEXT("config", config),    TEXT("products", products),
};

static const ScanField ENTRY[] = {
    TEXT("param", param),    TEXT("buffer", buffer),
    TEXT("file", file),      TEXT("xxh3", sum),
    WHOLE("first", first),   WHOLE("count", count),
    WHOLE("offset", offset), { "shape", SCAN_RAW, offsetof(Line, shape) },
};

enum { HEADERS = sizeof HEADER / sizeof *HEADER, ENTRIES = sizeof ENTRY / sizeof *ENTRY };

static Status take_fields(const char *path, char *text, const ScanField *field, int n, Line *out)
{
    char shown[61];
    (void)snprintf(shown, sizeof shown, "%s", text); /* a scan consumes its text */
    *out = (Line){ 0 };
    out->version = out->step = out->position = out->first = out->count = out->offset = NONE;
    Scan s = scan_begin(text);
    scan_fields(&s, field, n, out);
    return scan_end(&s) ? OK : FAIL(ERR_FORMAT, "%s: \"%s\" is no JSON object", path, shown);
}

static Status need_fields(const char *path, const ScanField *field, int n, const Line *l)
{
    for (int i = 0; i < n; i++) {
        const void *at = (const char *)l + field[i].offset;
        bool whole = field[i].type == SCAN_WHOLE;
        bool there = whole ? *(const int64_t *)at != NONE : *(char *const *)at != NULL;
        if (there) continue;
        return FAIL(ERR_FORMAT, "%s: \"%s\" is missing or no %s", path, field[i].key,
                    whole ? "whole number" : "text");
    }
    return OK;
}

static Status read_header(const char *path, char *text, CheckpointInfo *out)
{
    Line l;
    TRY(take_fields(path, text, HEADER, HEADERS, &l));
    if (l.version != NONE && l.version != VERSION) {
        return FAIL(ERR_UNSUPPORTED, "%s has version %" PRId64 ", this program reads %d", path,
                    l.version, VERSION);
    }
    TRY(need_fields(path, HEADER, HEADERS, &l));
    out->step = l.step;
    out->position = (uint64_t)l.position;
    out->config = l.config;
    out->products = l.products;
    return OK;
}

static Status read_entry(const char *path, char *text, ManifestEntry *out)
{
    Line l;
    TRY(take_fields(path, text, ENTRY, ENTRIES, &l));
    TRY(need_fields(path, ENTRY, ENTRIES, &l));
    *out = (ManifestEntry){ .param = l.param,
                            .file = l.file,
                            .buffer = BUF_COUNT,
                            .first = l.first,
                            .count = l.count,
                            .offset = (uint64_t)l.offset };
    (void)snprintf(out->sum, sizeof out->sum, "%s", l.sum);
    Scan shape = scan_begin(l.shape);
    scan_array(&shape);
    while (scan_item(&shape)) {
        double v = scan_number(&shape);
        if (out->rank == 2) return FAIL(ERR_FORMAT, "%s: \"shape\" has more than 2", path);
        out->dim[out->rank++] = v >= 0 && v < 9e15 ? (int64_t)v : -1;
    }
    for (int b = 0; b < BUF_COUNT; b++) {
        if (strcmp(l.buffer, buffer_names[b]) == 0) out->buffer = (ParamBuffer)b;
    }
    if (shape.bad) {
        return FAIL(ERR_FORMAT, "%s: \"shape\" is missing or no list of numbers", path);
    }
    if (out->buffer < BUF_COUNT) return OK;
    return FAIL(ERR_FORMAT, "%s: %s has an unknown buffer %s", path, out->param, l.buffer);
}

Status manifest_read(const char *folder, Arena *a, CheckpointInfo *info,
                     Status (*each)(void *state, const ManifestEntry *entry), void *state)
{
    char path[FILE_PATH_MAX], *text = NULL;
    size_t bytes = 0, body = 0;
    TRY(file_join(path, folder, MANIFEST_NAME));
    TRY(file_read_all(path, a, &text, &bytes));
    TRY(verify(path, text, bytes, &body, info->sum));
    for (char *line = text, *end = NULL; line < text + body; line = end + 1) {
        ManifestEntry entry;
        end = memchr(line, '\n', (size_t)(text + body - line));
        *end = '\0';
        if (line == text) {
            TRY(read_header(path, line, info));
            if (each == NULL) return OK;
            continue;
        }
        TRY(read_entry(path, line, &entry));
        TRY(each(state, &entry));
    }
    return OK;
}

Status manifest_read_elements(const char *folder, const ManifestEntry *entry, int64_t first,
                              int64_t end, const ManifestSink *sink, Arena *scratch)
{
    char path[FILE_PATH_MAX], got[CHECKPOINT_SUM_BYTES], who[FILE_PATH_MAX];
    void *sum = NULL;
    Status numbers = OK;
    ArenaMark mark = arena_mark(scratch);
    TRY(manifest_sum_new(scratch, &sum));
    TRY(file_join(path, folder, entry->file));
    (void)snprintf(who, sizeof who, "%s holds", folder);
    int64_t most = (int64_t)(sink->piece_bytes / sizeof(float));
    for (int64_t at = first, n = 0; at < end; at += n) {
        n = end - at < most ? end - at : most;
        size_t bytes = (size_t)n * sizeof(float);
        void *room = sink->room(sink->state, at, n);
        uint64_t place = entry->offset + (uint64_t)(at - entry->first) * sizeof(float);
        TRY(file_read_at(path, place, room, bytes));
        manifest_sum_add(sum, room, bytes);
        if (numbers == OK) {
            numbers = numbers_check(who, entry->param, entry->buffer, at, room, n);
        }
        if (sink->put != NULL) TRY(sink->put(sink->state, at, n));
    }
    manifest_sum_take(sum, got);
    arena_release(scratch, mark);
    if (end - first < entry->count || strcmp(got, entry->sum) == 0) return numbers;
    return FAIL(ERR_FORMAT,
                "%s: the bytes of %s (%s) at %" PRIu64 " have sum %s, the manifest says %s", path,
                entry->param, buffer_names[entry->buffer], entry->offset, got, entry->sum);
}
