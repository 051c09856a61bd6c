#include "viz/metrics_reader.h"

#include "base/file.h"
#include "trace/scan.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

enum { PIECE_BYTES = 1 << 20, LINE_MOST_BYTES = 1 << 25 };

static const int64_t STEP_MOST = INT32_MAX; /* 68 years at one a second */

/* clang-format off */
#define FIELD_OF(member) offsetof(MetricsLine, member)
#define NUMBER(member)   { #member, SCAN_NUMBER, FIELD_OF(member) }
#define RAW(member)      { #member, SCAN_RAW, FIELD_OF(member) }

static const ScanField FIELD[] = {
    { "kind", SCAN_TEXT, FIELD_OF(word) }, { "step", SCAN_NUMBER, FIELD_OF(given_step) },
    { "model", SCAN_TEXT, FIELD_OF(model) }, NUMBER(params_total), NUMBER(params_active),
    NUMBER(roof_flops), NUMBER(sheet_flops), NUMBER(experts), NUMBER(loss), NUMBER(aux_loss), NUMBER(lr),
    NUMBER(grad_norm), NUMBER(tokens), NUMBER(step_s), NUMBER(tokens_per_s), NUMBER(mfu), NUMBER(roof_share),
    NUMBER(clock_mhz), NUMBER(power_w), NUMBER(bits_per_byte), RAW(moe_layers),
    RAW(arenas_planned), RAW(memory_bytes), RAW(domains), RAW(expert_load),
    RAW(expert_load_by_domain), RAW(again),
};
/* clang-format on */

enum { FIELDS = sizeof FIELD / sizeof FIELD[0] };

Status metrics_reader_open(MetricsReader *r, const char *path, Arena *a)
{
    *r = (MetricsReader){ .path = path };
    TRY(file_size(path, &r->bytes));
    /* pages that no line reaches are never touched */
    r->cap = r->bytes < LINE_MOST_BYTES ? (size_t)r->bytes : LINE_MOST_BYTES;
    return ARENA_NEW(a, r->cap + 1, &r->buffer);
}

void metrics_reader_rewind(MetricsReader *r) { r->offset = r->used = r->taken = 0; }

/* ---- lines ---- */

static Status read_piece(MetricsReader *r)
{
    memmove(r->buffer, r->buffer + r->taken, r->used - r->taken);
    r->used -= r->taken;
    r->taken = 0;
    uint64_t left = r->bytes - r->offset;
    size_t want = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
    if (want > r->cap - r->used)
        return FAIL(ERR_FORMAT, "%s has a line of more than %d bytes before byte %llu", r->path,
                    (int)LINE_MOST_BYTES, (unsigned long long)r->offset);
    TRY(file_read_at(r->path, r->offset, r->buffer + r->used, want));
    r->offset += want;
    r->used += want;
    return OK;
}

/* The next line without its end, NUL-terminated; NULL behind the last one, which may lack a line
 * end. */
static Status next_line(MetricsReader *r, char **out)
{
    size_t searched = 0;
    char *end = NULL;
    *out = NULL;
    for (;;) {
        char *from = r->buffer + r->taken + searched;
        end = memchr(from, '\n', r->used - r->taken - searched);
        if (end != NULL || r->offset == r->bytes) break;
        searched = r->used - r->taken;
        TRY(read_piece(r));
    }
    if (end == NULL && r->taken == r->used) return OK;
    char *line = r->buffer + r->taken;
    r->taken = end != NULL ? (size_t)(end - r->buffer) + 1 : r->used;
    *(end != NULL ? end : r->buffer + r->used) = '\0';
    *out = line;
    return OK;
}

static bool is_blank(const char *line) { return line[strspn(line, " \t\r")] == '\0'; }

/* ---- one line ---- */

static MetricsKind kind_of(const char *word)
{
    if (strcmp(word, "start") == 0) return METRICS_START;
    if (strcmp(word, "step") == 0) return METRICS_STEP;
    return strcmp(word, "eval") == 0 ? METRICS_EVAL : METRICS_BAD;
}

static MetricsLine parse(char *text)
{
    MetricsLine line = { .word = "" };
    for (int i = 0; i < FIELDS; i++) {
        if (FIELD[i].type != SCAN_NUMBER) continue;
        *(double *)(void *)((char *)&line + FIELD[i].offset) = (double)NAN;
    }
    Scan s = scan_begin(text);
    scan_fields(&s, FIELD, FIELDS, &line);
    double step = line.given_step;
    bool stepped = step >= 0 && step <= (double)STEP_MOST && step == floor(step);
    line.step = stepped ? (int64_t)step : -1;
    line.kind = kind_of(line.word);
    if (!scan_end(&s) || (!stepped && line.kind != METRICS_START)) line.kind = METRICS_BAD;
    return line;
}

Status metrics_reader_next(MetricsReader *r, MetricsLine *out, bool *more)
{
    char *text = NULL;
    do {
        TRY(next_line(r, &text));
    } while (text != NULL && is_blank(text));
    *more = text != NULL;
    if (text != NULL) *out = parse(text);
    return OK;
}
