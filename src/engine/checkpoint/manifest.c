/* manifest: writes, reads and checks the lines of a manifest, and the elements of entries. Numbers are
 * checked on both ways (numbers.h): a bad one is neither saved nor loaded. */
#include "engine/checkpoint/manifest.h"

#include "engine/checkpoint/numbers.h"
#include "engine/step/engine_memory.h"
#include "engine/step/step_rule.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static const char FORMAT[] = "switchyard checkpoint";
enum { VERSION = 1, BUFFER_BYTES = 64 << 10, END_BYTES = 96, ROOM_ELEMS = 1 << 18 };

static BufferDesc buffer_of(const ManifestEntry *e) { return buffer_desc(e->rule, e->buffer); }

/* The buffer with this name, and its rule if it is an optimizer's state; BUF_COUNT: unknown. */
static ParamBuffer find_buffer(const char *name, const OptimizerDesc **rule)
{
    int state = 0;
    *rule = optimizer_find_state(name, &state);
    if (*rule != NULL) return (ParamBuffer)(BUF_OPTIMIZER + state);
    for (int b = 0; b < BUF_COUNT; b++) {
        if (buffer_is_optimizers((ParamBuffer)b)) continue;
        if (strcmp(name, buffer_desc(NULL, (ParamBuffer)b).name) == 0) return (ParamBuffer)b;
    }
    return BUF_COUNT;
}

/* The high half first, as xxhsum prints XXH3-128. */
static void sum_hex(XXH128_hash_t h, char out[CHECKPOINT_SUM_BYTES])
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
    sum_hex(XXH3_128bits_digest(sum), out);
    XXH3_128bits_reset(sum);
}

/* Writing. */

/* f32 is the default type and a single run the default piece, so neither is written. Old
 * checkpoints read the same. */
Status manifest_line(Text *lines, const ManifestEntry *e)
{
    TRY(text_json(lines, "{\"param\":%s,\"buffer\":%s,", e->param, buffer_of(e).name));
    if (e->dtype != DTYPE_F32) TRY(text_json(lines, "\"dtype\":%s,", dtype_name(e->dtype)));
    TRY(text_json(lines, "\"shape\":["));
    for (int i = 0; i < e->rank; i++) {
        TRY(text_append(lines, ",", i > 0));
        TRY(text_json(lines, "%lld", (long long)e->dim[i]));
    }
    TRY(text_json(lines, "],\"first\":%lld,\"count\":%lld", (long long)e->piece.first,
                  (long long)e->piece.n));
    if (e->piece.rows > 1) {
        TRY(text_json(lines, ",\"stride\":%lld,\"rows\":%lld", (long long)e->piece.stride,
                      (long long)e->piece.rows));
    }
    if (e->piece.skip != 0) TRY(text_json(lines, ",\"skip\":%lld", (long long)e->piece.skip));
    if (e->piece.lack != 0) TRY(text_json(lines, ",\"lack\":%lld", (long long)e->piece.lack));
    return text_json(lines, ",\"file\":%s,\"offset\":%lld,\"xxh3\":%s}\n", e->file,
                     (long long)e->offset, e->sum);
}

static Status write_text(Manifest *m, const char *text, size_t bytes)
{
    manifest_sum_add(m->sum, text, bytes);
    return file_write(&m->file, text, bytes);
}

static Status put_taken(Text *header, const SourcesTaken *t)
{
    if (t->n == 0) return OK;
    TRY(text_append(header, ",\"taken\":{", 10));
    for (int i = 0; i < t->n; i++) {
        TRY(text_append(header, ",", i > 0));
        TRY(text_json(header, "%s:%lld", t->name[i], (long long)t->sequences[i]));
    }
    TRY(text_append(header, "},\"data\":{", t->sum[0] == NULL ? 1 : 10));
    for (int i = 0; i < t->n && t->sum[0] != NULL; i++)
        TRY(text_json(header, i > 0 ? ",%s:%s" : "%s:%s", t->name[i], t->sum[i]));
    return text_append(header, "}", t->sum[0] != NULL);
}

/* Counts below 2^53 are exact in this, too. */
static double saved_number(const ScanField *f, const RuleState *s)
{
    const char *at = (const char *)s + f->offset;
    return f->type == SCAN_WHOLE ? (double)*(const int64_t *)(const void *)at
                                 : *(const double *)(const void *)at;
}

/* What a rule keeps, unless that is all 0. */
static Status put_rule(Text *t, const StepRule *rule, const RuleState *s)
{
    bool any = false;
    const ScanField *f = rule->saved;
    for (int i = 0; i < RULE_SAVED && f[i].key != NULL; i++) any |= saved_number(&f[i], s) > 0;
    for (int i = 0; i < RULE_SAVED && f[i].key != NULL && any; i++)
        TRY(text_json(t, ",%s:%.17g", f[i].key, saved_number(&f[i], s)));
    return OK;
}

/* The manifest grows under a temporary name and appears with manifest_commit. All bytes up to the
 * end line are in its sum. */
Status manifest_create(Manifest *m, const char *folder, const char *model,
                       const CheckpointInfo *info, Arena *arena)
{
    *m = (Manifest){ 0 };
    char path[FILE_PATH_MAX];
    Text header = { 0 };
    void *buffer = NULL;
    TRY(file_join(path, folder, MANIFEST_NAME));
    TRY(manifest_sum_new(arena, &m->sum));
    TRY(arena_alloc(arena, BUFFER_BYTES, &buffer));
    TRY(text_init(&header, arena));
    TRY(text_json(&header,
                  "{\"format\":%s,\"version\":%d,\"model\":%s,\"step\":%lld,"
                  "\"position\":%lld,\"config\":%s,\"products\":%s",
                  FORMAT, VERSION, model, (long long)info->step, (long long)info->position,
                  info->config, info->products));
    const int64_t *steps = info->moment_steps;
    if (steps[AGE_MODEL] > 0)
        TRY(text_json(&header, ",\"moment_steps\":%lld,\"module_moment_steps\":%lld",
                      (long long)steps[AGE_MODEL], (long long)steps[AGE_MODULES]));
    if (info->cpu[0] != '\0') TRY(text_json(&header, ",\"cpu\":%s", info->cpu));
    for (int i = 0; i < STEP_RULES; i++) TRY(put_rule(&header, step_rules[i], &info->kept));
    TRY(put_taken(&header, &info->taken));
    TRY(text_append(&header, "}\n", 2));
    TRY(file_create_temp_buffered(&m->file, path, buffer, BUFFER_BYTES));
    return write_text(m, header.data, header.used);
}

static int64_t count_lines(const char *text, size_t bytes)
{
    int64_t n = 0;
    for (size_t i = 0; i < bytes; i++) n += text[i] == '\n';
    return n;
}

Status manifest_lines(Manifest *m, const char *lines, size_t bytes)
{
    m->entries += count_lines(lines, bytes);
    return write_text(m, lines, bytes);
}

/* Writer and reader both make this line, so the reader compares bytes. */
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

/* Reading. */

/* Verifies the end line byte for byte. *body_bytes: the bytes of the lines before it. */
static Status verify_end(const char *path, const char *text, size_t bytes, size_t *body_bytes,
                         char sum[CHECKPOINT_SUM_BYTES])
{
    size_t body = bytes > 0 ? bytes - 1 : 0;
    while (body > 0 && text[body - 1] != '\n') body--;
    char want[END_BYTES];
    sum_hex(XXH3_128bits(text, body), sum);
    (void)end_line(want, count_lines(text, body) - 1, sum); /* the header is no entry */
    if (body == 0 || strcmp(text + body, want) != 0) {
        return FAIL(ERR_FORMAT, "%s is not whole: %zu bytes whose sum is not the one at its end",
                    path, bytes);
    }
    *body_bytes = body;
    return OK;
}

/* The fields of a line, header or entry. Missing ones are NULL or NONE. */
typedef struct Line {
    char *format, *config, *products, *cpu, *taken, *data, *param, *buffer, *dtype, *file, *sum,
        *shape;
    int64_t version, step, position, moment_steps, module_moment_steps;
    RuleState kept;
    Piece piece;
    int64_t offset;
} Line;

static const int64_t NONE = INT64_MIN;

static const ScanField HEADER[] = {
    { "format", SCAN_TEXT, offsetof(Line, format) },
    { "version", SCAN_WHOLE, offsetof(Line, version) },
    { "step", SCAN_WHOLE, offsetof(Line, step) },
    { "position", SCAN_WHOLE, offsetof(Line, position) },
    { "config", SCAN_TEXT, offsetof(Line, config) },
    { "products", SCAN_TEXT, offsetof(Line, products) },
    { "moment_steps", SCAN_WHOLE, offsetof(Line, moment_steps) },               /* missing: 0 */
    { "module_moment_steps", SCAN_WHOLE, offsetof(Line, module_moment_steps) }, /* these */
    { "cpu", SCAN_TEXT, offsetof(Line, cpu) },    /* may be missing, */
    { "taken", SCAN_RAW, offsetof(Line, taken) }, /* like this */
    { "data", SCAN_RAW, offsetof(Line, data) },   /* and this */
};

static const ScanField ENTRY[] = {
    { "param", SCAN_TEXT, offsetof(Line, param) },
    { "buffer", SCAN_TEXT, offsetof(Line, buffer) },
    { "file", SCAN_TEXT, offsetof(Line, file) },
    { "xxh3", SCAN_TEXT, offsetof(Line, sum) },
    { "first", SCAN_WHOLE, offsetof(Line, piece.first) },
    { "count", SCAN_WHOLE, offsetof(Line, piece.n) },
    { "offset", SCAN_WHOLE, offsetof(Line, offset) },
    { "shape", SCAN_RAW, offsetof(Line, shape) },
    { "stride", SCAN_WHOLE, offsetof(Line, piece.stride) },
    { "rows", SCAN_WHOLE, offsetof(Line, piece.rows) },
    { "skip", SCAN_WHOLE, offsetof(Line, piece.skip) },
    { "lack", SCAN_WHOLE, offsetof(Line, piece.lack) },
    { "dtype", SCAN_TEXT, offsetof(Line, dtype) },
};

enum {
    HEADERS = sizeof HEADER / sizeof *HEADER,
    ENTRIES = sizeof ENTRY / sizeof *ENTRY,
    NEEDED = ENTRIES - 5 /* from stride on: they exist if they are not the default */
};

/* Numbers are preset to NONE, because 0 is a legal value and must differ from a missing one. */
static Status scan_line(const char *path, char *text, const ScanField *field, int n, Line *out)
{
    char shown[61];
    (void)snprintf(shown, sizeof shown, "%s", text); /* a scan consumes its text */
    *out = (Line){ 0 };
    for (int i = 0; i < n; i++) {
        void *at = (char *)out + field[i].offset;
        if (field[i].type == SCAN_WHOLE) *(int64_t *)at = NONE;
    }
    Scan s = scan_begin(text);
    scan_fields(&s, field, n, out);
    return scan_end(&s) ? OK : FAIL(ERR_FORMAT, "%s: \"%s\" is not a JSON object", path, shown);
}

/* A scan leaves a field of the wrong type unset, so one question finds missing and wrong ones. */
static Status check_fields(const char *path, const ScanField *field, int n, const Line *l)
{
    for (int i = 0; i < n; i++) {
        const void *at = (const char *)l + field[i].offset;
        bool whole = field[i].type == SCAN_WHOLE;
        bool there = whole ? *(const int64_t *)at != NONE : *(char *const *)at != NULL;
        if (there) continue;
        return FAIL(ERR_FORMAT, "%s: \"%s\" is missing or not a %s", path, field[i].key,
                    whole ? "whole number" : "text");
    }
    return OK;
}

static Status read_taken(const char *path, char *object, SourcesTaken *out)
{
    Scan s = scan_inside(object);
    for (char *key = scan_key(&s); key != NULL && out->n < CONFIG_SOURCES_MAX; key = scan_key(&s)) {
        double v = scan_number(&s);
        out->name[out->n] = key;
        out->sequences[out->n++] = v >= 0 && v < 9e15 ? (int64_t)v : -1;
        if (out->sequences[out->n - 1] < 0) s.bad = true;
    }
    return s.bad ? FAIL(ERR_FORMAT, "%s: \"taken\" is not an object of whole numbers", path) : OK;
}

static Status read_sums(const char *path, char *object, SourcesTaken *out)
{
    Scan s = scan_inside(object);
    for (const char *key = scan_key(&s); key != NULL; key = scan_key(&s)) {
        const char *sum = scan_string(&s);
        for (int i = 0; i < out->n; i++)
            if (strcmp(out->name[i], key) == 0) out->sum[i] = sum;
    }
    return s.bad ? FAIL(ERR_FORMAT, "%s: \"data\" is not an object of texts", path) : OK;
}

/* Appends the fields of rules' states, and returns how many. */
static int add_saved(ScanField *out)
{
    int n = 0;
    for (int i = 0; i < STEP_RULES * RULE_SAVED; i++) {
        out[n] = step_rules[i / RULE_SAVED]->saved[i % RULE_SAVED];
        out[n].offset += offsetof(Line, kept);
        n += out[n].key != NULL;
    }
    return n;
}

/* A count that is missing is 0. A number that is wrong makes the whole rule begin anew. */
static void clean_saved(const StepRule *rule, RuleState *s)
{
    bool good = true;
    for (int i = 0; i < 2 * RULE_SAVED; i++) {
        const ScanField *f = &rule->saved[i % RULE_SAVED];
        if (f->key == NULL) continue;
        const double v = saved_number(f, s);
        const bool valid = v >= 0 && isfinite(v);
        good &= valid || f->type == SCAN_WHOLE;
        if (!valid || !good) memset((char *)s + f->offset, 0, sizeof(int64_t));
    }
}

/* The version is checked before the other fields: another version may have other fields. */
static Status read_header(const char *path, char *text, CheckpointInfo *out)
{
    Line l;
    ScanField field[HEADERS + STEP_RULES * RULE_SAVED];
    memcpy(field, HEADER, sizeof HEADER);
    TRY(scan_line(path, text, field, HEADERS + add_saved(field + HEADERS), &l));
    if (l.version != NONE && l.version != VERSION) {
        return FAIL(ERR_UNSUPPORTED, "%s has version %" PRId64 ", this program reads %d", path,
                    l.version, VERSION);
    }
    TRY(check_fields(path, HEADER, HEADERS - 5, &l));
    if (strcmp(l.format, FORMAT) != 0)
        return FAIL(ERR_FORMAT, "%s: its format is \"%.40s\", not \"%s\"", path, l.format, FORMAT);
    if (l.step < 0 || l.position < 0)
        return FAIL(ERR_FORMAT, "%s: step %" PRId64 " at position %" PRId64 ": both begin at 0",
                    path, l.step, l.position);
    out->step = l.step;
    out->position = (uint64_t)l.position;
    int64_t *steps = out->moment_steps;
    steps[AGE_MODEL] = l.moment_steps > 0 ? l.moment_steps : 0;
    steps[AGE_MODULES] = l.module_moment_steps >= 0 ? l.module_moment_steps : steps[AGE_MODEL];
    out->kept = l.kept;
    for (int i = 0; i < STEP_RULES; i++) clean_saved(step_rules[i], &out->kept);
    out->config = l.config;
    out->products = l.products;
    out->taken = (SourcesTaken){ 0 };
    if (l.taken != NULL) TRY(read_taken(path, l.taken, &out->taken));
    if (l.data != NULL) TRY(read_sums(path, l.data, &out->taken));
    (void)snprintf(out->cpu, sizeof out->cpu, "%s", l.cpu != NULL ? l.cpu : "");
    return OK;
}

/* Whether the piece fits its tensor is checked later: here the shape is not yet trusted. */
static Status read_entry(const char *path, char *text, ManifestEntry *out)
{
    Line l;
    const Piece *in = &l.piece;
    TRY(scan_line(path, text, ENTRY, ENTRIES, &l));
    TRY(check_fields(path, ENTRY, NEEDED, &l));
    *out = (ManifestEntry){ .param = l.param,
                            .file = l.file,
                            .buffer = BUF_COUNT,
                            .piece = { .first = in->first,
                                       .n = in->n,
                                       .stride = in->stride == NONE ? in->n : in->stride,
                                       .rows = in->rows == NONE ? 1 : in->rows,
                                       .skip = in->skip == NONE ? 0 : in->skip,
                                       .lack = in->lack == NONE ? 0 : in->lack },
                            .offset = (uint64_t)l.offset };
    (void)snprintf(out->sum, sizeof out->sum, "%s", l.sum);
    if (strchr(l.file, '/') != NULL || l.file[0] == '.' || l.file[0] == '\0')
        return FAIL(ERR_FORMAT, "%s: \"%.80s\" is not the name of a file in this folder", path,
                    l.file);
    Scan shape = scan_begin(l.shape);
    scan_array(&shape);
    while (scan_item(&shape)) {
        double v = scan_number(&shape);
        if (out->rank == 2) return FAIL(ERR_FORMAT, "%s: \"shape\" has more than 2", path);
        out->dim[out->rank++] = v >= 0 && v < 9e15 ? (int64_t)v : -1;
    }
    out->buffer = find_buffer(l.buffer, &out->rule);
    if (shape.bad || out->rank == 0) {
        return FAIL(ERR_FORMAT, "%s: \"shape\" is missing or not a list of numbers", path);
    }
    if (out->buffer == BUF_COUNT) {
        return FAIL(ERR_FORMAT, "%s: %s has an unknown buffer %s", path, out->param, l.buffer);
    }
    bool state = buffer_is_optimizers(out->buffer);
    if (l.dtype == NULL || strcmp(l.dtype, "f32") == 0) return OK;
    out->dtype = DTYPE_BF16;
    if (state && strcmp(l.dtype, "bf16") == 0) return OK;
    return FAIL(ERR_FORMAT, "%s: %s (%s) has elements of type %s, not %s", path, out->param,
                l.buffer, l.dtype, state ? "f32 or bf16" : "f32");
}

Status manifest_read(const char *folder, Arena *a, CheckpointInfo *info, ManifestEntry **entries,
                     int64_t *n)
{
    char path[FILE_PATH_MAX], *text = NULL;
    size_t bytes = 0;
    TRY(file_join(path, folder, MANIFEST_NAME));
    TRY(file_read_all(path, a, &text, &bytes));
    return manifest_parse(path, text, bytes, a, info, entries, n);
}

/* entries NULL: reads the header only. Lines are cut in place, so texts of entries point into
 * `text`. */
Status manifest_parse(const char *path, char *text, size_t bytes, Arena *a, CheckpointInfo *info,
                      ManifestEntry **entries, int64_t *n)
{
    size_t body = 0;
    TRY(verify_end(path, text, bytes, &body, info->sum));
    if (entries != NULL) {
        *n = 0;
        TRY(ARENA_NEW(a, count_lines(text, body), entries));
    }
    for (char *line = text, *end = NULL; line < text + body; line = end + 1) {
        end = memchr(line, '\n', (size_t)(text + body - line));
        *end = '\0';
        if (line == text) TRY(read_header(path, line, info));
        if (entries == NULL) return OK;
        if (line != text) TRY(read_entry(path, line, &(*entries)[(*n)++]));
    }
    return OK;
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

Status manifest_take_average(const char *folder, ManifestEntry *entries, int64_t *n, Arena *a)
{
    const char **averaged = NULL;
    int64_t found = 0, kept = 0;
    TRY(ARENA_NEW(a, *n, &averaged));
    for (int64_t i = 0; i < *n; i++) {
        if (entries[i].buffer == BUF_AVERAGE) averaged[found++] = entries[i].param;
    }
    if (found == 0)
        return FAIL(ERR_ARG,
                    "%s has no average of weights, because its optimizer.ema is 0: leave out "
                    "--average",
                    folder);
    qsort(averaged, (size_t)found, sizeof *averaged, compare_texts);
    for (int64_t i = 0; i < *n; i++) {
        ManifestEntry e = entries[i];
        bool has = bsearch(&e.param, averaged, (size_t)found, sizeof *averaged, compare_texts);
        if (e.buffer == BUF_MAIN && has) continue;
        if (e.buffer == BUF_AVERAGE) e.buffer = BUF_MAIN;
        entries[kept++] = e;
    }
    *n = kept;
    return OK;
}

static Status fail_overlap(const char *path, const ManifestEntry *a, const ManifestEntry *b,
                           int64_t first)
{
    int64_t n = piece_run(&a->piece, piece_seek(&a->piece, first));
    int64_t m = piece_run(&b->piece, piece_seek(&b->piece, first));
    return FAIL(ERR_FORMAT,
                "%s: elements %" PRId64 " to %" PRId64 " of %s (%s) are in two entries, of %s at "
                "%" PRIu64 " and of %s at %" PRIu64,
                path, first, first + (n < m ? n : m) - 1, a->param, buffer_of(a).name, a->file,
                a->offset, b->file, b->offset);
}

/* Walks over the elements at which the run of some entry begins or ends. Between two of them nothing
 * changes, so it is enough that exactly one entry holds each of them. */
Status manifest_check_cover(const char *folder, const ManifestEntry *chain, int64_t elems)
{
    char path[FILE_PATH_MAX];
    assert(chain != NULL);
    TRY(file_join(path, folder, MANIFEST_NAME));
    for (int64_t at = 0, next = 0; at < elems; at = next) {
        const ManifestEntry *holder = NULL;
        next = elems;
        for (const ManifestEntry *e = chain; e != NULL; e = e->other) {
            int64_t i = piece_seek(&e->piece, at);
            if (i == piece_elems(&e->piece)) continue;
            int64_t change = piece_element(&e->piece, i);
            bool holds = change == at;
            if (holds) change += piece_run(&e->piece, i);
            if (holds && holder != NULL) return fail_overlap(path, holder, e, at);
            if (holds) holder = e;
            if (change < next) next = change;
        }
        if (holder != NULL) continue;
        return FAIL(ERR_FORMAT,
                    "%s: elements %" PRId64 " to %" PRId64 " of %s (%s) are in no entry", path, at,
                    next - 1, chain->param, buffer_of(chain).name);
    }
    return OK;
}

/* Elements. */

/* Without a file only offsets and sums are made. */
static Status put_bytes(ManifestShard *w, const void *at, size_t n)
{
    if (w->file.fd > 0) return file_write(&w->file, at, n);
    w->file.written_bytes += n;
    return OK;
}

/* The padding before an entry is not a part of its sum. */
Status manifest_write_entry(ManifestShard *w, ManifestEntry *entry, const void *at)
{
    static const char zeros[CHECKPOINT_ALIGN];
    char who[NUMBERS_WHO_BYTES];
    const size_t each = dtype_bytes(entry->dtype), all = (size_t)piece_elems(&entry->piece) * each;
    const size_t most = w->arenas == NULL ? all : engine_piece_bytes(w->arenas);
    numbers_writer(who, entry->rule, entry->buffer, w->step);
    entry->offset = manifest_offset(w->file.written_bytes);
    TRY(put_bytes(w, zeros, entry->offset - w->file.written_bytes));
    for (size_t done = 0, n = 0; done < all; done += n) {
        const void *x = (const char *)at + done;
        n = all - done < most ? all - done : most;
        if (w->arenas != NULL) TRY(engine_get(w->arenas, x, n, &x));
        const Numbers part = { x, entry->dtype, (int64_t)(n / each) };
        TRY(numbers_check(who, entry->param, buffer_of(entry), &entry->piece,
                          (int64_t)(done / each), part));
        manifest_sum_add(w->sum, x, n);
        TRY(put_bytes(w, x, n));
    }
    manifest_sum_take(w->sum, entry->sum);
    return manifest_line(w->lines, entry);
}

typedef struct Reading {
    EngineArenas *arenas; /* NULL: `to` is in host memory */
    const ManifestEntry *entry;
    File file;
    Tensor to;      /* the piece's memory; data NULL: only check */
    void *room;     /* buffer for elements that are only checked, or that are converted */
    int64_t most;   /* elements at a time */
    void *sum;      /* of the bytes so far */
    Status numbers; /* the first bad number; reported after the sum, which explains more */
    char who[FILE_PATH_MAX + 32];
} Reading;

/* Converts elements from the type in the file to the type in memory. One of the two is f32. */
static Numbers converted(Numbers x, Dtype type, void *to)
{
    if (x.type == type) return x;
    if (x.type == DTYPE_F32)
        dtype_from_f32(to, type, x.at, x.n);
    else
        dtype_to_f32(to, x.at, x.type, x.n);
    return (Numbers){ to, type, x.n };
}

/* Reads a contiguous run into the engine's staging block, into the tensor, or (only to check) into
 * `room`. All bytes enter the sum as they are in the file, before any conversion. */
static Status read_span(Reading *r, const PieceSpan *span)
{
    const ManifestEntry *e = r->entry;
    for (int64_t i = 0, n = 0; i < span->n; i += n) {
        n = span->n - i < r->most ? span->n - i : r->most;
        const size_t each = dtype_bytes(e->dtype), bytes = (size_t)n * each;
        void *at = r->to.data == NULL ? NULL : tensor_at(&r->to, span->b + i);
        bool staged = at != NULL && r->arenas != NULL;
        void *to = staged ? engine_staging(r->arenas, at) : at;
        void *room = r->room == NULL ? to : r->room;
        TRY(file_read(&r->file, e->offset + (uint64_t)(span->a + i) * each, room, bytes));
        manifest_sum_add(r->sum, room, bytes);
        Numbers part = { room, e->dtype, n };
        if (at != NULL) part = converted(part, r->to.dtype, to);
        if (r->numbers == OK) {
            r->numbers =
                numbers_check(r->who, e->param, buffer_of(e), &e->piece, span->a + i, part);
        }
        if (staged) TRY(engine_put(r->arenas, at, (size_t)n * dtype_bytes(part.type)));
    }
    return OK;
}

/* A rank that reads an entry in part cannot verify its sum. manifest.h says who reads it whole. */
static Status read_spans(Reading *r, const Piece *to)
{
    int64_t n = 0;
    char got[CHECKPOINT_SUM_BYTES];
    for (PieceSpan span = { 0 }; piece_meet(&r->entry->piece, to, &span); n += span.n) {
        TRY(read_span(r, &span));
    }
    manifest_sum_take(r->sum, got);
    bool whole = n == piece_elems(&r->entry->piece);
    if (!whole || strcmp(got, r->entry->sum) == 0) return r->numbers;
    return FAIL(ERR_FORMAT,
                "%s: the bytes of %s (%s) at %" PRIu64 " have sum %s, the manifest says %s",
                r->file.path, r->entry->param, buffer_of(r->entry).name, r->entry->offset, got,
                r->entry->sum);
}

/* An entry that does not meet this rank's piece is not opened. Without a tensor, elements go
 * through a small room. */
Status manifest_read_entry(EngineArenas *m, const char *folder, const ManifestEntry *entry,
                           const ParamPiece *to, Arena *scratch)
{
    char path[FILE_PATH_MAX];
    Reading r = { .arenas = m, .entry = entry, .to = to->at, .most = INT64_MAX };
    if (!piece_meet(&entry->piece, &to->in, &(PieceSpan){ 0 })) return OK;
    ArenaMark mark = arena_mark(scratch);
    TRY(file_join(path, folder, entry->file));
    TRY(manifest_sum_new(scratch, &r.sum));
    bool converts = r.to.data != NULL && r.to.dtype != entry->dtype;
    if (m != NULL) r.most = (int64_t)(engine_piece_bytes(m) / sizeof(float));
    if (r.to.data == NULL || converts) {
        r.most = ROOM_ELEMS;
        TRY(arena_alloc(scratch, ROOM_ELEMS * sizeof(float), &r.room));
    }
    (void)snprintf(r.who, sizeof r.who, "%s%s%s holds", folder, converts ? ", read as " : "",
                   converts ? dtype_name(r.to.dtype) : "");
    TRY(file_open_read(&r.file, path));
    Status s = read_spans(&r, &to->in);
    file_close(&r.file);
    arena_release(scratch, mark);
    return s;
}
