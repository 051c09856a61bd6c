/*
 * run_data: reads metrics.jsonl in two passes (see run_data.h): survey_lines finds sizes and the
 * last line for each step, take_line then loads the numbers of those lines.
 *
 * The file may be damaged: a crash leaves half a line, and a resumed run appends after it. Lines
 * that do not parse are counted, never an error. It draws nothing.
 */
#include "pages/run_data.h"

#include "engine/base/file.h"
#include "engine/base/order.h"
#include "engine/base/scan.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHUNK_STEPS = 1 << 16,
    CHUNKS = 1 << 15, /* steps up to 2^31, as metrics.c takes them */
    LOAD_POINTS_LEAST = 100,
    LINE_MOST_BYTES = 1 << 25,
};

static const int64_t STEP_MOST = INT32_MAX; /* 68 years at one a second */

typedef struct Build {
    RunData *d;
    Arena *a;
    FileMap map;
    char *text;        /* one line */
    uint32_t **latest; /* (CHUNKS, 2 * CHUNK_STEPS): for each step the numbers of its last step line
                        * and eval line; 0: none. Chunks are allocated when a step falls into them,
                        * so one absurd step number costs one chunk. */
    uint32_t line;     /* number of the current line, from 1; blank lines are not counted */
    RunLoad eval_load[RUN_NAMES]; /* by domain, of the last evaluation */
    double *table;                /* one line's load */
    double *rate;                 /* tokens/s of each step that counts */
    int64_t rates;
    ScanField *field; /* of a line: FIELD, then curves */
    int curves;
    RunCurve curve[RUN_CURVES];
} Build;

/* ---- lines ---- */

typedef enum LineKind { LINE_BAD, LINE_DAMAGED, LINE_START, LINE_STEP, LINE_EVAL } LineKind;

/* One line. A number that is null or missing is NaN; a missing text or raw value is NULL. Raw
 * values are JSON arrays and objects; scanning changes them, so each can be scanned only once.
 * Texts and raw values point into Build.text. */
typedef struct Line {
    LineKind kind;
    int64_t step;             /* >= 0 in a step or eval line */
    const char *word, *model; /* word: the kind */
    double params_total, params_active, sheet_flops;
    double bits_per_byte, curve[RUN_CURVES];
    char *moe_layers, *arenas_planned, *memory_bytes, *domains;
    char *expert_load, *expert_load_by_domain, *again; /* again: "true..." or NULL */
    char *list[RUN_CURVES];                            /* of figures by layer */
} Line;

const struct RunSpan run_spans[FIGURES] = {
#define FIGURE(NAME, ...) [FIGURE_##NAME] = { RUN_##NAME, RUN_##NAME##_LAST },
#include "engine/model/figure.def"
};

/* clang-format off */
#define NUMBER(key, member) { key, SCAN_NUMBER, offsetof(Line, member) }
#define RAW(member)         { #member, SCAN_RAW, offsetof(Line, member) }

/* Members of a line that are no curve. */
static const ScanField FIELD[] = {
    { "kind", SCAN_TEXT, offsetof(Line, word) }, { "model", SCAN_TEXT, offsetof(Line, model) },
    NUMBER("params_total", params_total), NUMBER("params_active", params_active),
    NUMBER("sheet_flops", sheet_flops), NUMBER("bits_per_byte", bits_per_byte),
    RAW(moe_layers), RAW(arenas_planned), RAW(memory_bytes), RAW(domains), RAW(expert_load),
    RAW(expert_load_by_domain), RAW(again),
};
/* clang-format on */

enum { FIELDS = sizeof FIELD / sizeof FIELD[0] };

/* Adds the members of a line that are curves: by their keys, those of groups by key and group. */
static Status make_fields(Build *b)
{
    char key[64];
    TRY(ARENA_NEW(b->a, FIELDS + RUN_CURVES, &b->field));
    memcpy(b->field, FIELD, sizeof FIELD);
    for (int f = 0; f < FIGURES; f++) {
        const FigureRow *row = &figure_rows[f];
        const bool group = row->each == EACH_GROUP, list = row->member == MEMBER_LIST;
        if (row->key == NULL || !(row->member <= MEMBER_COUNT || list)) continue;
        for (int c = run_spans[f].first; c <= (int)run_spans[f].last; c++) {
            const char *of = group ? grad_group_names[c - run_spans[f].first] : "";
            int n = snprintf(key, sizeof key, "%s%s", row->key, of);
            ScanField *field = &b->field[FIELDS + b->curves];
            field->type = list ? SCAN_RAW : SCAN_NUMBER;
            field->offset = list ? offsetof(Line, list[c]) : offsetof(Line, curve[c]);
            TRY(arena_text(b->a, key, (size_t)n, &field->key));
            b->curve[b->curves++] = (RunCurve)c;
        }
    }
    return OK;
}

/* Unknown kinds count as bad lines: a newer program may have written them. */
static LineKind kind_of(const char *word)
{
    if (strcmp(word, "start") == 0) return LINE_START;
    if (strcmp(word, "step") == 0) return LINE_STEP;
    return strcmp(word, "eval") == 0 ? LINE_EVAL : LINE_BAD;
}

/* A killed run leaves the first part of an object: its text ends too early. All else is damage. */
static LineKind broken_kind(const char *text, size_t n, char first, char last, const Scan *s)
{
    bool half = first == '{' && (s->at == text + n || last != '}');
    return half ? LINE_BAD : LINE_DAMAGED;
}

/* A line counts completely or not at all: a crash may leave half a line, at the end or (after a
 * resume) in the middle of the file. */
static Line parse_line(const Build *b, char *text, size_t n)
{
    Line line = { .word = "" };
    const char first = text[0], last = text[n - 1]; /* scanning changes the text */
    for (int i = 0; i < FIELDS + b->curves; i++) {
        if (b->field[i].type != SCAN_NUMBER) continue;
        *(double *)(void *)((char *)&line + b->field[i].offset) = (double)NAN;
    }
    Scan s = scan_begin(text);
    scan_fields(&s, b->field, FIELDS + b->curves, &line);
    double step = line.curve[RUN_STEP];
    bool stepped = step >= 0 && step <= (double)STEP_MOST && step == floor(step);
    line.step = stepped ? (int64_t)step : -1;
    line.kind = kind_of(line.word);
    if (!scan_end(&s))
        line.kind = broken_kind(text, n, first, last, &s);
    else if (!stepped && line.kind > LINE_START)
        line.kind = LINE_DAMAGED;
    return line;
}

/* Copies each line into b->text, where scanning may write, and hands it to `take`. */
static Status for_each_line(Build *b, Status (*take)(Build *, const Line *))
{
    b->line = 0;
    for (size_t at = 0, n = 0; at < b->map.bytes; at += n + 1) {
        const char *from = (const char *)b->map.data + at;
        const char *end = memchr(from, '\n', b->map.bytes - at);
        n = end != NULL ? (size_t)(end - from) : b->map.bytes - at;
        if (n > LINE_MOST_BYTES)
            return FAIL(ERR_FORMAT,
                        "metrics.jsonl has a line of %zu bytes at byte %zu, at most %d "
                        "are read",
                        n, at, (int)LINE_MOST_BYTES);
        memcpy(b->text, from, n);
        b->text[n] = '\0';
        if (b->text[strspn(b->text, " \t\r")] == '\0') continue;
        b->line++;
        Line line = parse_line(b, b->text, n);
        TRY(take(b, &line));
    }
    return OK;
}

/* ---- names ---- */

/* Sets *out to the index of `name`, which is added if there is room; -1: there is none. */
static Status run_name_index(RunNames *names, Arena *a, const char *name, int *out)
{
    *out = -1;
    for (int i = 0; i < names->n; i++) {
        if (strcmp(names->name[i], name) == 0) *out = i;
    }
    if (*out >= 0 || names->n == RUN_NAMES) return OK;
    TRY(arena_text(a, name, strlen(name), &names->name[names->n]));
    *out = names->n++;
    return OK;
}

/* ---- tables of expert load ---- */

/* Reads [[...], ...]: rows of equal length, none empty. With `table` NULL it finds the numbers of
 * rows and columns; else it fills `table`, which has these sizes. False: the sizes do not fit, and
 * `table` is undefined. */
static bool load_table_read(char *raw, int *rows, int *columns, double *table)
{
    Scan s = scan_inside(raw);
    int row = 0;
    for (; scan_item(&s); row++) {
        int n = 0;
        if (table != NULL && row == *rows) return false;
        scan_array(&s);
        for (; scan_item(&s); n++) {
            double v = scan_number(&s);
            if (table == NULL) continue;
            if (!(v >= 0) || n == *columns) return false;
            table[(int64_t)row * *columns + n] = v;
        }
        if (table == NULL && row == 0) *columns = n;
        if (n != *columns) return false;
    }
    if (table == NULL) *rows = row;
    return !s.bad && row == *rows && row > 0 && *columns > 0;
}

static void load_clear(RunLoad *l, const RunData *d)
{
    size_t n = (size_t)d->moe_layers * (size_t)d->experts;
    memset(l->sum, 0, n * sizeof(double));
    *l = (RunLoad){ .sum = l->sum, .first_step = -1, .last_step = -1 };
}

static Status load_init(RunLoad *l, const RunData *d, Arena *a)
{
    TRY(ARENA_NEW(a, d->moe_layers * d->experts, &l->sum));
    load_clear(l, d);
    return OK;
}

static void load_add(RunLoad *l, const RunData *d, const double *table, int64_t step)
{
    int64_t n = (int64_t)d->moe_layers * d->experts;
    for (int64_t i = 0; i < n; i++) l->sum[i] += table[i];
    l->lines++;
    if (l->first_step < 0 || step < l->first_step) l->first_step = step;
    if (step > l->last_step) l->last_step = step;
}

/* The load of the least and of the most loaded expert of a layer, relative to the layer's mean; NaN
 * if the layer has no load. */
static void load_extremes(const double *layer, int experts, double *least, double *most)
{
    double sum = 0, lo = layer[0], hi = layer[0];
    for (int e = 0; e < experts; e++) {
        sum += layer[e];
        lo = fmin(lo, layer[e]);
        hi = fmax(hi, layer[e]);
    }
    bool any = sum > 0;
    *least = any ? lo * experts / sum : (double)NAN;
    *most = any ? hi * experts / sum : (double)NAN;
}

/* ---- first pass: which lines count, and how large everything is ---- */

/* The entry of Build.latest for the step of a step or eval line. */
static Status latest_line_of(Build *b, const Line *line, uint32_t **out)
{
    uint32_t **chunk = &b->latest[line->step / CHUNK_STEPS];
    if (*chunk == NULL) TRY(ARENA_ZEROED(b->a, 2 * CHUNK_STEPS, chunk));
    *out = *chunk + 2 * (line->step % CHUNK_STEPS) + (line->kind == LINE_EVAL);
    return OK;
}

/* First pass: counts lines, notes the last line of each step, and learns the table's size from the
 * first load that is there. */
static Status survey_line(Build *b, const Line *line)
{
    RunData *d = b->d;
    if (line->kind == LINE_DAMAGED && d->damaged == 0) d->damaged = b->line;
    if (line->kind < LINE_START) d->bad_lines++;
    if (line->kind == LINE_START) d->starts++;
    b->rates += line->kind == LINE_STEP;
    if (line->kind != LINE_STEP && line->kind != LINE_EVAL) return OK;
    uint32_t *latest = NULL;
    TRY(latest_line_of(b, line, &latest));
    *latest = b->line;
    if (d->first_step < 0 || line->step < d->first_step) d->first_step = line->step;
    if (line->step > d->last_step) d->last_step = line->step;
    if (line->kind == LINE_STEP && line->step > d->final_step) d->final_step = line->step;
    if (line->expert_load == NULL || d->moe_layers > 0) return OK;
    int layers = 0, experts = 0; /* a start line may be missing */
    if (load_table_read(line->expert_load, &layers, &experts, NULL)) {
        d->moe_layers = layers;
        d->experts = experts;
    }
    return OK;
}

static Status survey_lines(Build *b, const char *path)
{
    TRY(ARENA_ZEROED(b->a, CHUNKS, &b->latest));
    b->d->first_step = b->d->last_step = b->d->final_step = -1;
    TRY(for_each_line(b, survey_line));
    if (b->d->last_step >= 0) return OK;
    return FAIL(ERR_FORMAT, "%s has no step and no evaluation yet (%lld lines, %lld broken)", path,
                (long long)b->line, (long long)b->d->bad_lines);
}

/* ---- memory for the second pass, whose sizes the survey found ---- */

/* Many layers share RUN_LOAD_POINTS, two curves each, so that the page's size has a limit. */
static Status alloc_load(Build *b)
{
    RunData *d = b->d;
    int points = RUN_LOAD_POINTS / 2 / d->moe_layers;
    if (points > RUN_POINTS) points = RUN_POINTS;
    if (points < LOAD_POINTS_LEAST) points = LOAD_POINTS_LEAST;
    size_t layers = (size_t)d->moe_layers;
    TRY(ARENA_NEW(b->a, layers * d->experts, &b->table));
    TRY(ARENA_ZEROED(b->a, 2 * layers, &d->least));
    d->most = d->least + layers;
    for (size_t i = 0; i < 2 * layers; i++)
        TRY(curve_init(&d->least[i], b->a, d->first_step, d->last_step, points));
    TRY(ARENA_NEW(b->a, layers, &d->layer_name));
    for (int i = 0; i < d->moe_layers; i++) d->layer_name[i] = i;
    return load_init(&d->load, d, b->a);
}

static Status alloc_data(Build *b)
{
    RunData *d = b->d;
    for (int c = 0; c < RUN_CURVES; c++)
        TRY(curve_init(&d->curve[c], b->a, d->first_step, d->last_step,
                       run_curve_held_out((RunCurve)c) ? RUN_EVAL_POINTS : RUN_POINTS));
    TRY(ARENA_NEW(b->a, b->rates, &b->rate));
    b->rates = 0;
    for (int i = 0; i < RUN_NAMES; i++) d->planned_bytes[i] = d->used_bytes[i] = (double)NAN;
    d->first_eval.step = d->last_eval.step = -1;
    d->sum.final_loss = d->sum.best_loss = d->sum.tokens_per_s = d->params_total =
        d->params_active = (double)NAN;
    d->roof_flops = d->sheet_flops = (double)NAN;
    d->model = "";
    return d->moe_layers > 0 ? alloc_load(b) : OK;
}

/* ---- second pass ---- */

/* Sets *out to the index of a domain, and makes its curves when it is seen for the first time. */
static Status domain_index(Build *b, const char *name, int *out)
{
    int before = b->d->domains.n;
    TRY(run_name_index(&b->d->domains, b->a, name, out));
    if (b->d->domains.n == before) return OK;
    TRY(curve_init(&b->d->domain_bits[*out], b->a, b->d->first_step, b->d->last_step,
                   RUN_EVAL_POINTS));
    if (b->d->moe_layers == 0) return OK;
    TRY(load_init(&b->d->domain_load[*out], b->d, b->a));
    return load_init(&b->eval_load[*out], b->d, b->a);
}

static Status take_domain_names(Build *b, char *raw)
{
    Scan s = scan_inside(raw);
    int index = 0;
    while (scan_item(&s)) TRY(domain_index(b, scan_string(&s), &index));
    return OK;
}

static void take_layer_names(RunData *d, char *raw)
{
    Scan s = scan_inside(raw);
    for (int i = 0; scan_item(&s); i++) {
        double layer = scan_number(&s);
        if (i < d->moe_layers && fabs(layer) < 1e9) d->layer_name[i] = (int64_t)layer;
    }
}

/* Reads {"arena": bytes}. Keeps the largest value of all lines, or with `replace` the last one. */
static Status take_bytes(Build *b, char *raw, double *bytes, bool replace)
{
    Scan s = scan_inside(raw);
    for (char *key = scan_key(&s); key != NULL; key = scan_key(&s)) {
        int i = 0;
        TRY(run_name_index(&b->d->arenas, b->a, key, &i));
        double v = scan_number(&s);
        if (i < 0 || s.bad) continue;
        bytes[i] = replace ? v : fmax(bytes[i], v); /* fmax passes over NaN */
    }
    return OK;
}

static Status take_start(Build *b, const Line *line)
{
    RunData *d = b->d;
    if (line->model != NULL) TRY(arena_text(b->a, line->model, strlen(line->model), &d->model));
    d->params_total = line->params_total;
    d->params_active = line->params_active;
    d->roof_flops = line->curve[RUN_ROOF_FLOPS];
    d->sheet_flops = line->sheet_flops;
    if (line->domains != NULL) TRY(take_domain_names(b, line->domains));
    if (line->moe_layers != NULL) take_layer_names(d, line->moe_layers);
    if (line->arenas_planned == NULL) return OK;
    return take_bytes(b, line->arenas_planned, d->planned_bytes, true);
}

/* Reads {"domain": [[...]]} into one RunLoad a domain. */
static Status take_domain_load(Build *b, char *raw, RunLoad *load, int64_t step)
{
    Scan s = scan_inside(raw);
    for (char *key = scan_key(&s); key != NULL; key = scan_key(&s)) {
        int i = 0;
        TRY(domain_index(b, key, &i));
        char *table = scan_skip(&s);
        if (i < 0 || s.bad || !load_table_read(table, &b->d->moe_layers, &b->d->experts, b->table))
            continue;
        load_add(&load[i], b->d, b->table, step);
    }
    return OK;
}

static void take_load(Build *b, char *raw, int64_t step)
{
    RunData *d = b->d;
    if (!load_table_read(raw, &d->moe_layers, &d->experts, b->table)) return;
    if (step > d->final_step - RUN_RECENT_STEPS) load_add(&d->load, d, b->table, step);
    double busiest = (double)NAN;
    for (int l = 0; l < d->moe_layers; l++) {
        double least = 0, most = 0;
        load_extremes(b->table + (int64_t)l * d->experts, d->experts, &least, &most);
        curve_put(&d->least[l], step, least);
        curve_put(&d->most[l], step, most);
        busiest = fmax(busiest, most); /* fmax passes over NaN */
    }
    curve_put(&d->curve[RUN_LOAD_MAX], step, busiest);
}

/* The mean of a list of numbers. */
static double mean_of(char *raw)
{
    Scan s = scan_inside(raw);
    double sum = 0;
    int n = 0;
    for (; scan_item(&s); n++) sum += scan_number(&s);
    return s.bad ? (double)NAN : sum / n;
}

/* Lines with load by domain are rare, so all those of the last tenth of the run count as recent. */
static bool is_recent_for_domains(const RunData *d, int64_t step)
{
    int64_t tenth = (d->final_step - d->first_step) / 10;
    return step > d->final_step - (tenth > RUN_RECENT_STEPS ? tenth : RUN_RECENT_STEPS);
}

static Status take_step(Build *b, const Line *line)
{
    RunData *d = b->d;
    if (line->curve[RUN_ROOF_FLOPS] > 0)
        d->roof_flops = line->curve[RUN_ROOF_FLOPS]; /* older lines have none */
    for (int i = 0; i < b->curves; i++) {
        const RunCurve c = b->curve[i];
        if (c == RUN_MFU && !(d->sheet_flops > 0)) continue;
        if (b->field[FIELDS + i].type == SCAN_NUMBER)
            curve_put(&d->curve[c], line->step, line->curve[c]);
        else if (line->list[c] != NULL)
            curve_put(&d->curve[c], line->step, mean_of(line->list[c]));
    }
    if (isfinite(line->curve[RUN_TOKENS_PER_S]))
        b->rate[b->rates++] = line->curve[RUN_TOKENS_PER_S];
    if (line->curve[RUN_LOSS] < d->sum.best_loss || isnan(d->sum.best_loss)) {
        d->sum.best_loss = line->curve[RUN_LOSS];
        d->sum.best_step = line->step;
    }
    d->sum.steps++;
    d->bad_losses += !isfinite(line->curve[RUN_LOSS]);
    d->sum.twice += line->again != NULL && *line->again == 't';
    double tokens = line->curve[RUN_TOKENS];
    if (fabs(tokens) < 1e15) d->sum.tokens += (int64_t)tokens;
    if (isfinite(line->curve[RUN_STEP_S])) d->sum.wall_s += line->curve[RUN_STEP_S];
    if (isfinite(line->curve[RUN_AGAIN_S])) d->sum.again_s += line->curve[RUN_AGAIN_S];
    if (isfinite(line->curve[RUN_CAPTURE_S])) d->sum.capture_s += line->curve[RUN_CAPTURE_S];
    if (isfinite(line->curve[RUN_SAVE_STALL_S]))
        d->sum.save_stall_s += line->curve[RUN_SAVE_STALL_S];
    if (isfinite(line->curve[RUN_SAVE_SHARE])) {
        d->sum.saves++;
        d->sum.save_share = fmax(d->sum.save_share, line->curve[RUN_SAVE_SHARE]);
    }
    if (line->step == d->final_step) d->sum.final_loss = line->curve[RUN_LOSS];
    if (line->memory_bytes != NULL) TRY(take_bytes(b, line->memory_bytes, d->used_bytes, false));
    if (d->moe_layers > 0 && line->expert_load != NULL) take_load(b, line->expert_load, line->step);
    bool by_domain = d->moe_layers > 0 && line->expert_load_by_domain != NULL;
    if (!by_domain || !is_recent_for_domains(d, line->step)) return OK;
    return take_domain_load(b, line->expert_load_by_domain, d->domain_load, line->step);
}

/* An evaluation writes null for what it cannot know: a loss without targets, bits of unknown bytes.
 * Older files have 0 there. */
static double known_or_nan(double v) { return v > 0 ? v : (double)NAN; }

static Status take_eval_domains(Build *b, char *raw, RunEval *eval)
{
    Scan s = scan_inside(raw);
    for (char *name = scan_key(&s); name != NULL; name = scan_key(&s)) {
        static const ScanField fields[] = { { "loss", SCAN_NUMBER, 0 },
                                            { "bits_per_byte", SCAN_NUMBER, sizeof(double) } };
        double figure[2] = { 0 };
        int i = 0;
        scan_fields(&s, fields, 2, figure);
        TRY(domain_index(b, name, &i));
        if (i < 0 || s.bad) continue;
        eval->domain_loss[i] = known_or_nan(figure[0]);
        eval->domain_bits[i] = known_or_nan(figure[1]);
        curve_put(&b->d->domain_bits[i], eval->step, known_or_nan(figure[1]));
    }
    return OK;
}

/* The first and the last evaluation are kept whole, for the report's table. */
static Status take_eval(Build *b, const Line *line)
{
    RunData *d = b->d;
    RunEval eval = { .step = line->step,
                     .loss = known_or_nan(line->curve[RUN_LOSS]),
                     .bits_per_byte = known_or_nan(line->bits_per_byte) };
    for (int i = 0; i < RUN_NAMES; i++) eval.domain_loss[i] = eval.domain_bits[i] = (double)NAN;
    d->evals++;
    curve_put(&d->curve[RUN_EVAL_LOSS], line->step, eval.loss);
    curve_put(&d->curve[RUN_EVAL_BITS], line->step, eval.bits_per_byte);
    for (int c = RUN_CHOICES_ACC; c <= RUN_CHOICES_BYTES; c++)
        curve_put(&d->curve[c], line->step, line->curve[c]);
    if (line->domains != NULL) TRY(take_eval_domains(b, line->domains, &eval));
    if (d->first_eval.step < 0 || eval.step < d->first_eval.step) d->first_eval = eval;
    if (eval.step < d->last_eval.step) return OK;
    d->last_eval = eval;
    if (d->moe_layers == 0 || line->expert_load_by_domain == NULL) return OK;
    for (int i = 0; i < d->domains.n; i++) load_clear(&b->eval_load[i], d);
    return take_domain_load(b, line->expert_load_by_domain, b->eval_load, line->step);
}

/* Second pass: takes a line only if it is the last one for its step. */
static Status take_line(Build *b, const Line *line)
{
    if (line->kind < LINE_START) return OK;
    if (line->kind == LINE_START) return take_start(b, line);
    uint32_t *latest = NULL;
    TRY(latest_line_of(b, line, &latest));
    if (*latest != b->line) return OK;
    return line->kind == LINE_STEP ? take_step(b, line) : take_eval(b, line);
}

/* ---- end ---- */

/* Without load by domain in training lines, that of the last evaluation is shown. */
static void finish_load(Build *b)
{
    RunData *d = b->d;
    for (int i = 0; i < 2 * d->moe_layers; i++) curve_finish(&d->least[i]);
    int64_t lines = 0;
    for (int i = 0; i < d->domains.n; i++) lines += d->domain_load[i].lines;
    d->domain_load_held_out = lines == 0;
    if (lines == 0) memcpy(d->domain_load, b->eval_load, sizeof d->domain_load);
}

/* Turns loads into shares relative to uniform load, in place; NaN in a layer without load. */
static void make_relative(const RunData *d, RunLoad *load)
{
    for (int l = 0; l < d->moe_layers && load->lines > 0; l++) {
        double *row = load->sum + (int64_t)l * d->experts, sum = 0;
        for (int e = 0; e < d->experts; e++) sum += row[e];
        for (int e = 0; e < d->experts; e++)
            row[e] = sum > 0 ? row[e] * d->experts / sum : (double)NAN;
    }
}

/* Finds the smallest share over all layers and experts, and its layer and expert. */
static void find_least(RunData *d)
{
    d->sum.least_share = (double)NAN;
    d->sum.least_layer = d->sum.least_expert = -1;
    for (int64_t i = 0; i < (int64_t)d->moe_layers * d->experts && d->load.lines > 0; i++) {
        double share = d->load.sum[i];
        if (isnan(share) || share >= d->sum.least_share) continue; /* the first: none is there */
        d->sum.least_share = share;
        d->sum.least_layer = d->layer_name[i / d->experts];
        d->sum.least_expert = i % d->experts;
    }
}

const char *run_held_out_text(char out[RUN_HELD_OUT_BYTES], const RunSummary *s)
{
    const double first = s->first_bits_per_byte, last = s->last_bits_per_byte;
    const long long from = s->first_eval, to = s->last_eval;
    if (from == to)
        (void)snprintf(out, RUN_HELD_OUT_BYTES, "%.3f at step %lld%s", last, to, s->since);
    else if (from > 0 || *s->since != '\0')
        (void)snprintf(out, RUN_HELD_OUT_BYTES, "%.3f at step %lld, %.3f at step %lld%s", first,
                       from, last, to, s->since);
    else
        (void)snprintf(out, RUN_HELD_OUT_BYTES, "%.3f before, %.3f after", first, last);
    return out;
}

static Status finish_data(Build *b)
{
    RunData *d = b->d;
    sort_doubles(b->rate, b->rates);
    if (b->rates > 0) d->sum.tokens_per_s = b->rate[(b->rates - 1) / 2];
    for (int i = 0; i < RUN_CURVES; i++) curve_finish(&d->curve[i]);
    for (int i = 0; i < d->domains.n; i++) curve_finish(&d->domain_bits[i]);
    if (d->moe_layers > 0) finish_load(b);
    make_relative(d, &d->load);
    for (int i = 0; i < d->domains.n; i++) make_relative(d, &d->domain_load[i]);
    find_least(d);
    d->sum.first_bits_per_byte = d->evals > 0 ? d->first_eval.bits_per_byte : (double)NAN;
    d->sum.last_bits_per_byte = d->evals > 0 ? d->last_eval.bits_per_byte : (double)NAN;
    d->sum.first_eval = d->first_eval.step;
    d->sum.last_eval = d->last_eval.step;
    d->sum.since = d->last_eval.step < d->final_step ? "; not measured since" : "";
    return curve_smooth(&d->curve[RUN_LOSS], b->a, &d->smooth_loss);
}

/* Both passes. One buffer of the longest possible line serves all lines. */
static Status load_lines(Build *b, const char *path)
{
    size_t most = b->map.bytes < LINE_MOST_BYTES ? b->map.bytes : LINE_MOST_BYTES;
    TRY(ARENA_NEW(b->a, most + 1, &b->text));
    TRY(make_fields(b));
    TRY(survey_lines(b, path));
    TRY(alloc_data(b));
    TRY(for_each_line(b, take_line));
    return finish_data(b);
}

Status run_data_load(const char *path, Arena *a, RunData *out)
{
    *out = (RunData){ 0 };
    Build *b = NULL;
    TRY(ARENA_ZEROED(a, 1, &b)); /* too large for a stack */
    b->d = out;
    b->a = a;
    TRY(file_map(path, &b->map));
    Status s = load_lines(b, path);
    file_unmap(&b->map);
    return s;
}
