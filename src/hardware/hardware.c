/* hardware: reads, checks and prints hardware files by the rows of hardware.def, and looks up rates. */
#include "hardware/hardware.h"

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "hardware/presets.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const dtype_names[] = { "f32", "bf16", "fp8", "fp6", "fp4" };

enum { DTYPES = sizeof dtype_names / sizeof *dtype_names, CURVES = HARDWARE_FP8 + 1 };

/* ---- rates ---- */

double hardware_peak(const Hardware *h, HardwareDtype dtype)
{
    const double peak[DTYPES] = { h->peak_f32, h->peak_bf16, h->peak_fp8, h->peak_fp6,
                                  h->peak_fp4 };
    return peak[dtype] * 1e12;
}

/* Where each kind of work has its three curves in Hardware, so that lookups need no switch. */
static const size_t curves[WORK_COUNT][CURVES] = {
#define RATE(ID, name)                                                                             \
    [WORK_##ID] = { offsetof(Hardware, name##_f32), offsetof(Hardware, name##_bf16),               \
                    offsetof(Hardware, name##_fp8) },
    OP_RATES(RATE)
#undef RATE
};

static const size_t sources[WORK_COUNT] = {
#define RATE(ID, name) [WORK_##ID] = offsetof(Hardware, name##_source),
    OP_RATES(RATE)
#undef RATE
};

HardwareCurve *hardware_curve(Hardware *h, OpWork work, HardwareDtype dtype)
{
    return (HardwareCurve *)(void *)((char *)h + curves[work][dtype]);
}

static const HardwareCurve *curve_of(const Hardware *h, OpWork work, HardwareDtype dtype)
{
    static const HardwareCurve none;
    if ((int)dtype >= CURVES) return &none;
    return (const HardwareCurve *)(const void *)((const char *)h + curves[work][dtype]);
}

const char **hardware_source(Hardware *h, OpWork work)
{
    return (const char **)(void *)((char *)h + sources[work]);
}

/* Kinds of work whose rates were measured within steps of this program, each with the one that the GPU's file must have. */
static const OpWork within_steps[][2] = {
    { WORK_OWN_GEMM, WORK_GEMM },           { WORK_HEAD, WORK_GEMM },
    { WORK_GEMM_MIXED, WORK_GEMM },         { WORK_OWN_GROUPED, WORK_GROUPED },
    { WORK_GROUPED_INPUT, WORK_GROUPED },   { WORK_GROUPED_WEIGHT, WORK_GROUPED },
    { WORK_OWN_ATTENTION, WORK_ATTENTION }, { WORK_ATTENTION_ORDERED, WORK_ATTENTION_BACKWARD },
};

static void drop_kernels(Hardware *h, const Hardware *base);

void hardware_drop_steps(Hardware *h, const Hardware *base)
{
    enum { KINDS = sizeof within_steps / sizeof *within_steps };
    const size_t bytes = CURVES * sizeof(HardwareCurve);
    for (int i = 0; i < KINDS; i++) {
        const size_t own = curves[within_steps[i][0]][0], of = curves[within_steps[i][1]][0];
        if (memcmp((char *)h + of, (const char *)base + of, bytes) == 0) continue;
        if (memcmp((char *)h + own, (const char *)base + own, bytes) != 0) continue;
        memset((char *)h + own, 0, bytes);
        *hardware_source(h, within_steps[i][0]) = NULL;
    }
    drop_kernels(h, base);
}

/* The kind of work whose rates stand in for a kind without curves; the kind itself: none. */
static OpWork rated_as(OpWork work)
{
    if (work == WORK_ATTENTION_PLAIN) return WORK_ATTENTION;
    if (work == WORK_ATTENTION_PLAIN_BACKWARD || work == WORK_ATTENTION_ORDERED)
        return WORK_ATTENTION_BACKWARD;
    if (work == WORK_OWN_GROUPED) return WORK_GROUPED;
    if (work == WORK_OWN_ATTENTION) return WORK_ATTENTION;
    if (work == WORK_OWN_GEMM) return WORK_GEMM;
    if (work == WORK_GROUPED_INPUT || work == WORK_GROUPED_WEIGHT) return WORK_GROUPED;
    return work == WORK_HEAD || work == WORK_GROUPED ? WORK_GEMM : work;
}

/* The curve of a kind of work, or the first of its stand-ins that has one; n 0: none has. */
static const HardwareCurve *curve_for(const Hardware *h, OpWork work, HardwareDtype dtype)
{
    const HardwareCurve *c = curve_of(h, work, dtype);
    for (OpWork next = rated_as(work); c->n == 0 && next != work; next = rated_as(work))
        c = curve_of(h, work = next, dtype);
    return c;
}

/* Linear over the logarithm of the size; proportional below the first point, constant above the last. */
static double curve_at(const HardwareCurve *c, double size)
{
    const HardwarePoint *p = c->at, *last = c->at + c->n - 1;
    if (size <= p->size) return p->tflops * size / p->size;
    if (size >= last->size) return last->tflops;
    while (p[1].size < size) p++;
    double part = log(size / p->size) / log(p[1].size / p->size);
    return p->tflops + part * (p[1].tflops - p->tflops);
}

/* One domain is the point (1, 1) of the curve. */
double hardware_crowd(const Hardware *h, double domains)
{
    HardwareCurve c = { .n = 1, .at = { { 1, 1 } } };
    for (int i = 0; i < h->scale_out_crowd.n && c.n < HARDWARE_POINTS_MAX; i++)
        c.at[c.n++] = h->scale_out_crowd.at[i];
    return domains <= 1 ? 1 : curve_at(&c, domains);
}

/* Kernels of the gated delta rule make about four times the FLOPs of its formula, in products of chunks of 64 tokens, at
 * about a fifth of the peak. */
static const double DELTA_SHARE = 0.05;

/* Order of stand-ins: mixed products take f32's rate, delta rules a share of the peak; then other kinds of work; then bf16's curve,
 * scaled by the ratio of peaks. */
Status hardware_rate(const Hardware *h, OpWork work, HardwareDtype dtype, double size,
                     double *flop_s)
{
    if (!(size > 0))
        return FAIL(ERR_ARG, "%s: no rate for %s of size %g, which must be above 0", h->name,
                    op_work_names[work], size);
    if (work == WORK_GEMM_MIXED && curve_of(h, work, dtype)->n == 0)
        work = WORK_GEMM, dtype = HARDWARE_F32;
    double ratio = 1;
    const HardwareCurve *c = curve_for(h, work, dtype);
    if (work == WORK_DELTA && c->n == 0 && hardware_peak(h, dtype) > 0) {
        *flop_s = DELTA_SHARE * hardware_peak(h, dtype);
        return OK;
    }
    if (c->n == 0) {
        c = curve_for(h, work, HARDWARE_BF16);
        ratio = hardware_peak(h, dtype) / hardware_peak(h, HARDWARE_BF16);
    }
    if (c->n > 0 && ratio > 0) {
        *flop_s = 1e12 * curve_at(c, size) * ratio;
        return OK;
    }
    if ((int)dtype >= CURVES)
        return FAIL(ERR_ARG, "%s has no rate for %s in %s: give peak.%s", h->name,
                    op_work_names[work], dtype_names[dtype], dtype_names[dtype]);
    return FAIL(ERR_ARG, "%s has no rate for %s in %s: give %s.%s or peak.%s", h->name,
                op_work_names[work], dtype_names[dtype], op_work_names[work], dtype_names[dtype],
                dtype_names[dtype]);
}

static size_t contention_at(OpWork work)
{
    if (work == WORK_MEMORY) return offsetof(Hardware, contention_memory);
    if (work >= WORK_ATTENTION) return offsetof(Hardware, contention_attention);
    return work_is_grouped(work) ? offsetof(Hardware, contention_grouped)
                                 : offsetof(Hardware, contention_gemm);
}

double *hardware_contention_times(Hardware *h, OpWork work)
{
    return (double *)(void *)((char *)h + contention_at(work));
}

/* The times were measured beside b of m multiprocessors, where x / (1 - x) is b / (m - b). */
double hardware_contention(const Hardware *h, OpWork work)
{
    double b = h->contention_blocks, times = 0;
    if (b == 0) return work == WORK_MEMORY ? 0 : 1;
    memcpy(&times, (const char *)h + contention_at(work), sizeof times);
    return (times - 1) * (h->gpu_multiprocessors - b) / b;
}

/* ---- where rates are from ---- */

/* The words of a source that say what it is. The first of them in the text counts. */
static const struct {
    const char *word;
    HardwareBasis basis;
} basis_words[] = {
    { "measured", BASIS_MEASURED },     { "published", BASIS_PUBLISHED },
    { "benchmarked", BASIS_PUBLISHED }, { "assumed", BASIS_ASSUMED },
    { "as of", BASIS_ASSUMED },
};

const char *const hardware_basis_names[BASES] = {
    [BASIS_MEASURED] = "measured", [BASIS_PUBLISHED] = "published", [BASIS_ASSUMED] = "assumed"
};

static HardwareBasis basis_of(const char *source)
{
    const char *first = source + strlen(source);
    HardwareBasis basis = BASIS_ASSUMED;
    for (size_t i = 0; i < sizeof basis_words / sizeof *basis_words; i++) {
        const char *at = strstr(source, basis_words[i].word);
        if (at == NULL || at >= first) continue;
        first = at;
        basis = basis_words[i].basis;
    }
    return basis;
}

/* ---- checks between rows ---- */

/* A measured rate above the peak means a wrong unit. The curve is section.name. */
static Status check_curve(const Hardware *h, const HardwareCurve *c, const char *section,
                          const char *name, HardwareDtype dtype)
{
    double peak = hardware_peak(h, dtype) / 1e12;
    for (int i = 0; i < c->n; i++) {
        if (i > 0 && c->at[i].size <= c->at[i - 1].size)
            return FAIL(ERR_ARG, "%s: sizes of %s.%s must rise, %g comes after %g", h->name,
                        section, name, c->at[i].size, c->at[i - 1].size);
        if (c->at[i].tflops <= peak) continue;
        if (peak <= 0)
            return FAIL(ERR_ARG, "%s: there is %s.%s, but peak.%s is missing", h->name, section,
                        name, dtype_names[dtype]);
        return FAIL(ERR_ARG, "%s: %s.%s reaches %g TFLOP/s at %g, more than peak.%s %g", h->name,
                    section, name, c->at[i].tflops, c->at[i].size, dtype_names[dtype], peak);
    }
    return OK;
}

static Status check_tiers(const Hardware *h)
{
    const HardwareTiers *t = &h->scale_out_tiers;
    for (int i = 0; i < t->n; i++) {
        if (t->at[i].share > 1)
            return FAIL(ERR_ARG,
                        "%s: a tier of scale_out.tiers lets through a share of %g, at most 1",
                        h->name, t->at[i].share);
        if (i > 0 && t->at[i].gpus <= t->at[i - 1].gpus)
            return FAIL(ERR_ARG, "%s: GPUs of scale_out.tiers must rise, %g comes after %g",
                        h->name, t->at[i].gpus, t->at[i - 1].gpus);
    }
    return OK;
}

/* More domains never send faster: a price would fall with the size of a group. */
static Status check_crowd(const Hardware *h)
{
    HardwarePoint before = { 1, 1 };
    for (int i = 0; i < h->scale_out_crowd.n; i++) {
        HardwarePoint p = h->scale_out_crowd.at[i];
        if (p.size > before.size && p.tflops <= before.tflops) {
            before = p;
            continue;
        }
        return FAIL(ERR_ARG,
                    "%s: scale_out.crowd has %g domains with a share of %g after %g with %g; "
                    "domains must rise from 2 and shares fall from 1",
                    h->name, p.size, p.tflops, before.size, before.tflops);
    }
    return OK;
}

/* Nothing is faster beside others, and a collective leaves multiprocessors. */
static Status check_contention(const Hardware *h)
{
    double b = h->contention_blocks, all = h->gpu_multiprocessors;
    double least = fmin(fmin(h->contention_gemm, h->contention_grouped),
                        fmin(h->contention_attention, h->contention_memory));
    if (b > 0 && least < 1)
        return FAIL(ERR_ARG, "%s: a factor of contention is %g: give times as long, from 1",
                    h->name, least);
    if (b == 0 || b < all) return OK;
    return FAIL(ERR_ARG, "%s: contention.blocks %g must be below gpu.multiprocessors %g", h->name,
                b, all);
}

static Status check_kernels(const Hardware *h);

/* Rules between rows: achieved rates are at most those of the data sheet. */
static Status check_hardware(const Hardware *h)
{
    const struct {
        const char *name, *link;
        double achieved, sheet;
    } rate[] = { { "achieved_gb_s", "memory", h->memory_achieved_gb_s, h->memory_gb_s },
                 { "achieved_gb_s", "scale_up", h->scale_up_achieved_gb_s, h->scale_up_gb_s },
                 { "shard_gb_s", "scale_up", h->scale_up_shard_gb_s, h->scale_up_gb_s },
                 { "pair_gb_s", "scale_up", h->scale_up_pair_gb_s, h->scale_up_gb_s },
                 { "achieved_gb_s", "scale_out", h->scale_out_achieved_gb_s, h->scale_out_gb_s } };
    for (size_t i = 0; i < sizeof rate / sizeof *rate; i++) {
        if (rate[i].achieved <= rate[i].sheet) continue;
        return FAIL(ERR_ARG, "%s: %s.%s is %g GB/s, more than %s.gb_s %g", h->name, rate[i].link,
                    rate[i].name, rate[i].achieved, rate[i].link, rate[i].sheet);
    }
    TRY(check_contention(h));
    for (int w = 0; w < WORK_COUNT; w++) {
        for (int d = 0; d < CURVES && work_has_rate((OpWork)w); d++)
            TRY(check_curve(h, curve_of(h, (OpWork)w, (HardwareDtype)d), op_work_names[w],
                            dtype_names[d], (HardwareDtype)d));
    }
    TRY(check_kernels(h));
    TRY(check_crowd(h));
    return check_tiers(h);
}

/* ---- a YAML text, row by row of hardware.def ---- */

typedef enum RowType { TEXT, FLAG, RATE, COUNT, TIME, FABRIC, CURVE, TIERS } RowType;
typedef enum RowNeed { NEED, GIVEN, MAY } RowNeed;

typedef struct Row {
    const char *section, *name, *help;
    RowType type;
    RowNeed need;
    size_t offset;
} Row;

static const Row rows[] = {
#define HW(section, name, TYPE, need, help)                                                        \
    { #section, #name, help, TYPE, need, offsetof(Hardware, section##_##name) },
#include "hardware/hardware.def"
#undef HW
};

enum { ROWS = sizeof rows / sizeof *rows, WHAT_BYTES = 128 };

/* The state of reading a text. seen: the rows that it has given. */
typedef struct Reader {
    ConfigDoc doc;
    Hardware *h;
    bool seen[ROWS];
} Reader;

/* The row that a value is for, and its name in messages. */
typedef struct Target {
    Reader *reader;
    const Row *row;
    char name[WHAT_BYTES]; /* "gemm.bf16[2]" */
} Target;

static Status wrong_value(const Target *t, const yaml_node_t *n, const char *wanted)
{
    char more[512];
    (void)snprintf(more, sizeof more, "%s: %s", wanted, t->row->help);
    return config_wrong(&t->reader->doc, n, t->name, more);
}

static void *field_of(const Target *t) { return (char *)t->reader->h + t->row->offset; }

/* ---- values ---- */

static Status read_text_value(const Target *t, const yaml_node_t *n)
{
    const char *text = config_scalar_text(n);
    if (text == NULL || *text == '\0') return wrong_value(t, n, "a text");
    return arena_text(t->reader->doc.arena, text, strlen(text), (const char **)field_of(t));
}

/* 1 for the word `yes`, 0 for `no`; other words are errors. */
static Status read_word(const Target *t, const yaml_node_t *n, const char *yes, const char *no,
                        int *out)
{
    char wanted[WHAT_BYTES];
    const char *text = config_scalar_text(n);
    (void)snprintf(wanted, sizeof wanted, "%s or %s", yes, no);
    *out = text != NULL && strcmp(text, yes) == 0;
    return *out || (text != NULL && strcmp(text, no) == 0) ? OK : wrong_value(t, n, wanted);
}

/* Numbers have an upper limit, so that no sum or product of them overflows a double. */
static Status read_number(const Target *t, const yaml_node_t *n, RowType type, double *out)
{
    double v = 0;
    bool number = config_scalar_number(n, &v) && v <= 1e15;
    if (type == TIME && !(number && v >= 0)) return wrong_value(t, n, "a number from 0");
    if (type == RATE && !(number && v > 1e-15)) return wrong_value(t, n, "a number above 0");
    if (type == COUNT && !(number && v >= 1 && v == nearbyint(v)))
        return wrong_value(t, n, "a whole number from 1");
    *out = v;
    return OK;
}

/* Reads [[a, b, ...], ...] into `out`, one number after the other; types: of the numbers of an inner list. */
static Status read_table(const Target *t, const yaml_node_t *list, const RowType *types, int max,
                         int *n, double *out)
{
    char wanted[WHAT_BYTES];
    int width = t->row->type == CURVE ? 2 : 3;
    (void)snprintf(wanted, sizeof wanted, "a list of 1 to %d lists of %d numbers", max, width);
    if (list->type != YAML_SEQUENCE_NODE) return wrong_value(t, list, wanted);
    const yaml_node_item_t *first = list->data.sequence.items.start;
    *n = (int)(list->data.sequence.items.top - first);
    if (*n < 1 || *n > max) return wrong_value(t, list, wanted);
    for (int i = 0; i < *n; i++) {
        const yaml_node_t *entry = config_node(&t->reader->doc, first[i]);
        Target at = *t;
        (void)snprintf(at.name, sizeof at.name, "%.64s[%d]", t->name, i);
        if (entry->type != YAML_SEQUENCE_NODE ||
            entry->data.sequence.items.top - entry->data.sequence.items.start != width) {
            return wrong_value(&at, entry, wanted);
        }
        for (int k = 0; k < width; k++) {
            int value = entry->data.sequence.items.start[k];
            TRY(read_number(&at, config_node(&t->reader->doc, value), types[k], out++));
        }
    }
    return OK;
}

static Status read_value(const Target *t, const yaml_node_t *n)
{
    static const RowType point[] = { RATE, RATE }, tier[] = { COUNT, RATE, TIME };
    HardwareCurve *curve = field_of(t);
    HardwareTiers *tiers = field_of(t);
    int first = 0;
    switch (t->row->type) {
    case TEXT: return read_text_value(t, n);
    case FLAG:
        TRY(read_word(t, n, "true", "false", &first));
        *(bool *)field_of(t) = first;
        return OK;
    case FABRIC:
        TRY(read_word(t, n, "mesh", "switch", &first));
        *(HardwareFabric *)field_of(t) = first ? FABRIC_MESH : FABRIC_SWITCH;
        return OK;
    case CURVE: return read_table(t, n, point, HARDWARE_POINTS_MAX, &curve->n, &curve->at->size);
    case TIERS: return read_table(t, n, tier, HARDWARE_TIERS_MAX, &tiers->n, &tiers->at->gpus);
    case RATE:
    case COUNT:
    case TIME: break;
    }
    return read_number(t, n, t->row->type, field_of(t));
}

static int find_row(const char *section, const char *name)
{
    for (int i = 0; i < ROWS; i++) {
        if (strcmp(rows[i].section, section) != 0) continue;
        if (name == NULL || strcmp(rows[i].name, name) == 0) return i;
    }
    return -1;
}

/* ---- kernels for attention: rows that kernels/attention/attention.def makes ---- */

static const char KERNELS[] = "attention_kernels";

static const HardwareCurve *kernel_curve(const Hardware *h, int row)
{
    const bool kernel = rows[row].type == CURVE && strcmp(rows[row].section, KERNELS) == 0;
    return kernel ? (const void *)((const char *)h + rows[row].offset) : NULL;
}

static bool same_curve(const HardwareCurve *a, const HardwareCurve *b)
{
    bool same = a->n == b->n;
    for (int i = 0; i < a->n && same; i++)
        same = a->at[i].size == b->at[i].size && a->at[i].tflops == b->at[i].tflops;
    return same;
}

bool hardware_kernel_rate(const Hardware *h, const char *kernel, bool backward, double size,
                          double *flop_s)
{
    char name[WHAT_BYTES];
    (void)snprintf(name, sizeof name, "%s%s", kernel, backward ? "_backward" : "");
    const int row = find_row(KERNELS, name);
    const HardwareCurve *c = row < 0 ? NULL : kernel_curve(h, row);
    if (c == NULL || c->n == 0) return false;
    *flop_s = 1e12 * curve_at(c, size);
    return true;
}

static Status check_kernels(const Hardware *h)
{
    for (int i = 0; i < ROWS; i++) {
        const HardwareCurve *c = kernel_curve(h, i);
        if (c != NULL) TRY(check_curve(h, c, KERNELS, rows[i].name, HARDWARE_BF16));
    }
    return OK;
}

/* Another chip's, as its rates of attention say: the base's rows are none of its own, unless its file names a source. */
static void drop_kernels(Hardware *h, const Hardware *base)
{
    const size_t of = curves[WORK_ATTENTION][0], bytes = CURVES * sizeof(HardwareCurve);
    const bool own = h->attention_kernels_source != base->attention_kernels_source;
    if (own || memcmp((char *)h + of, (const char *)base + of, bytes) == 0) return;
    for (int i = 0; i < ROWS; i++) {
        const HardwareCurve *of_base = kernel_curve(base, i);
        if (of_base == NULL || !same_curve(kernel_curve(h, i), of_base)) continue;
        ((HardwareCurve *)(void *)((char *)h + rows[i].offset))->n = 0;
    }
}

/* ---- sections ---- */

/* ERR_ARG with the nearest name: there is no such row, or (name NULL) no such section. */
static Status unknown_row(const Reader *r, const yaml_node_t *key, const char *section,
                          const char *name)
{
    const char *names[ROWS], *word = name == NULL ? section : name;
    char place[CONFIG_PLACE_BYTES], hint[TEXT_HINT_BYTES];
    int n = 0;
    for (int i = 0; i < ROWS; i++) {
        if (name == NULL)
            names[n++] = rows[i].section;
        else if (strcmp(rows[i].section, section) == 0)
            names[n++] = rows[i].name;
    }
    return FAIL(ERR_ARG, "%s: %.*s is not a %s%s", config_place(place, &r->doc, key->start_mark),
                CONFIG_SHOWN_CHARS, word, name == NULL ? "section" : "number of this section",
                text_hint(hint, word, names, n, " (docs/reference/formats.md lists them)"));
}

static Status read_section(Reader *r, const char *section, const yaml_node_t *map)
{
    if (config_is_nothing(map)) return OK;
    TRY(config_need_mapping(&r->doc, map, section));
    const yaml_node_pair_t *p = map->data.mapping.pairs.start;
    for (; p < map->data.mapping.pairs.top; p++) {
        const char *key = NULL;
        TRY(config_key_text(&r->doc, map, p, &key));
        int row = find_row(section, key);
        if (row < 0) return unknown_row(r, config_node(&r->doc, p->key), section, key);
        Target t = { .reader = r, .row = &rows[row] };
        (void)snprintf(t.name, sizeof t.name, "%s.%s", section, rows[row].name);
        TRY(read_value(&t, config_node(&r->doc, p->value)));
        r->seen[row] = true;
    }
    return OK;
}

static bool is_given(const Row *r, const Hardware *h);
static Status load_preset(Hardware *h, Arena *a, const char *name, const char *what);

/* `extends: GPU` names a preset: rows that the file does not give have that GPU's values. Rows of the preset count as
 * given, so a file that extends one need not give any row itself. Its name stays. */
static Status extend_preset(Reader *r, const yaml_node_t *preset)
{
    const char *name = config_scalar_text(preset), *own = r->h->name;
    TRY(load_preset(r->h, r->doc.arena, name == NULL ? "" : name, "there is no GPU to extend:"));
    r->h->name = own;
    for (int i = 0; i < ROWS; i++) r->seen[i] = is_given(&rows[i], r->h);
    return OK;
}

/* `extends` must come first: rows before it would be overwritten. */
static Status read_sections(Reader *r)
{
    const yaml_node_t *root = yaml_document_get_root_node(&r->doc.yaml);
    if (config_is_nothing(root)) return OK;
    TRY(config_need_mapping(&r->doc, root, "the hardware"));
    const yaml_node_pair_t *first = root->data.mapping.pairs.start, *p = first;
    Hardware base = *r->h;
    for (; p < root->data.mapping.pairs.top; p++) {
        const char *key = NULL;
        TRY(config_key_text(&r->doc, root, p, &key));
        if (p == first && strcmp(key, "extends") == 0) {
            TRY(extend_preset(r, config_node(&r->doc, p->value)));
            base = *r->h;
            continue;
        }
        if (find_row(key, NULL) < 0) return unknown_row(r, config_node(&r->doc, p->key), key, NULL);
        TRY(read_section(r, key, config_node(&r->doc, p->value)));
    }
    hardware_drop_steps(r->h, &base);
    return OK;
}

/* Refuses a file that lacks a row it must have. */
static Status check_missing(const Reader *r)
{
    for (int i = 0; i < ROWS; i++) {
        bool given = false;
        for (int k = 0; k < ROWS; k++)
            given |= r->seen[k] && strcmp(rows[k].section, rows[i].section) == 0;
        if (r->seen[i] || rows[i].need == MAY || (rows[i].need == GIVEN && !given)) continue;
        return FAIL(ERR_ARG, "%.120s: %s.%s is missing: %s", r->doc.name, rows[i].section,
                    rows[i].name, rows[i].help);
    }
    return OK;
}

static Status read_hardware(Hardware *h, Arena *a, const char *name, const char *yaml,
                            size_t yaml_bytes)
{
    *h = (Hardware){ 0 };
    Reader r = { .doc = { .name = name, .arena = a }, .h = h };
    TRY(arena_text(a, name, strlen(name), &h->name));
    Status s = config_doc_open(&r.doc, yaml, yaml_bytes);
    if (s == OK) s = read_sections(&r);
    if (s == OK) s = check_missing(&r);
    config_doc_close(&r.doc);
    return s;
}

/* ---- files and presets ---- */

Status hardware_parse(Hardware *h, Arena *a, const char *name, const char *yaml, size_t yaml_bytes)
{
    Hardware next;
    TRY(read_hardware(&next, a, name, yaml, yaml_bytes));
    TRY(check_hardware(&next));
    *h = next;
    return OK;
}

/* `what` begins the sentence if there is no such preset. */
static Status load_preset(Hardware *h, Arena *a, const char *name, const char *what)
{
    const ConfigPreset *p = NULL;
    char list[256] = "; the GPUs are";
    for (int i = 0; i < hardware_presets_n; i++) {
        size_t at = strlen(list);
        (void)snprintf(list + at, sizeof list - at, "%s %s", i == 0 ? "" : ",",
                       hardware_presets[i].name);
    }
    TRY(config_preset_find(hardware_presets, hardware_presets_n, name, what, list, &p));
    return hardware_parse(h, a, p->name, p->yaml, strlen(p->yaml));
}

/* A file wins over a preset of the same name. */
Status hardware_load(Hardware *h, Arena *a, const char *source)
{
    if (file_is_file(source)) {
        FileMap map = { 0 };
        TRY(file_map_input(source, &map));
        const char *yaml = map.bytes == 0 ? "" : (const char *)map.data;
        Status s = hardware_parse(h, a, source, yaml, map.bytes);
        file_unmap(&map);
        return s;
    }
    return load_preset(h, a, source, "there is neither a hardware file nor a GPU");
}

/* ---- by the driver's name ---- */

/* Only their texts have the driver's names, so a preset that lacks the name need not be parsed. */
Status hardware_of_driver(const char *gpu, Hardware *out)
{
    Arena a = { 0 };
    Hardware h = { 0 };
    *out = h;
    TRY(arena_init(&a, "data sheets", MEM_HOST, (size_t)64 << 20));
    Status s = OK;
    for (int i = 0; i < hardware_presets_n && s == OK; i++) {
        const ConfigPreset *p = &hardware_presets[i];
        if (*gpu == '\0' || strstr(p->yaml, gpu) == NULL) continue;
        s = hardware_parse(&h, &a, p->name, p->yaml, strlen(p->yaml));
        if (s == OK && h.gpu_driver != NULL && strcmp(h.gpu_driver, gpu) == 0) *out = h;
    }
    arena_free(&a);
    return s;
}

Status hardware_sheet_flops(const char *gpu, Dtype type, double *out)
{
    Hardware h;
    TRY(hardware_of_driver(gpu, &h));
    return *out = hardware_peak(&h, hardware_dtype(type)), OK;
}

Status hardware_sheet_link(const char *gpu, int64_t ranks, double *out)
{
    Hardware h;
    TRY(hardware_of_driver(gpu, &h));
    *out = (double)ranks <= h.scale_up_gpus ? h.scale_up_gb_s * 1e9 : 0;
    return OK;
}

/* ---- printing ---- */

/* Peaks are the data sheet's, and the section bound is no rate of a plan without bound=1. */
int hardware_bases(const Hardware *h, HardwareRates out[HARDWARE_SECTIONS_MAX])
{
    int n = 0;
    for (int i = 0; i < ROWS && n < HARDWARE_SECTIONS_MAX; i++) {
        if (strcmp(rows[i].name, "source") != 0 || !is_given(&rows[i], h)) continue;
        if (text_word_index("peak|bound", rows[i].section) >= 0) continue;
        const void *text = (const char *)h + rows[i].offset;
        out[n++] = (HardwareRates){ rows[i].section, basis_of(*(const char *const *)text) };
    }
    return n;
}

void hardware_slow(Hardware *h, const char *section, double times)
{
    for (int i = 0; i < ROWS; i++) {
        void *at = (char *)h + rows[i].offset;
        if (strcmp(rows[i].section, section) != 0) continue;
        if (rows[i].type == TIME) *(double *)at *= times;
        if (rows[i].type == RATE &&
            text_word_index("achieved_gb_s|shard_gb_s|pair_gb_s", rows[i].name) >= 0)
            *(double *)at /= times;
        HardwareCurve *curve = at;
        for (int k = 0; rows[i].type == CURVE && k < curve->n; k++) curve->at[k].tflops /= times;
    }
}

static Status print_points(Text *out, const double *at, int n, int each)
{
    TRY(text_printf(out, "["));
    for (int i = 0; i < n * each; i++) {
        const char *before = i % each != 0 ? ", " : i > 0 ? ", [" : "[";
        TRY(text_printf(out, "%s%.10g%s", before, at[i], i % each == each - 1 ? "]" : ""));
    }
    return text_printf(out, "]\n");
}

static Status print_field(Text *out, const Row *r, const Hardware *h)
{
    const void *at = (const char *)h + r->offset;
    const HardwareCurve *curve = at;
    const HardwareTiers *tiers = at;
    TRY(text_printf(out, "  %s: ", r->name));
    switch (r->type) {
    case TEXT: return text_json(out, "%s\n", *(const char *const *)at);
    case FLAG: return text_printf(out, "%s\n", *(const bool *)at ? "true" : "false");
    case FABRIC:
        return text_printf(out, "%s\n",
                           *(const HardwareFabric *)at == FABRIC_MESH ? "mesh" : "switch");
    case CURVE: return print_points(out, &curve->at[0].size, curve->n, 2);
    case TIERS: return print_points(out, &tiers->at[0].gpus, tiers->n, 3);
    case RATE:
    case COUNT:
    case TIME: break;
    }
    return text_printf(out, "%.10g\n", *(const double *)at);
}

/* Rates that a GPU does not give are 0, texts NULL: these are left out. */
static bool is_given(const Row *r, const Hardware *h)
{
    const void *at = (const char *)h + r->offset;
    if (r->type == TEXT) return *(const char *const *)at != NULL;
    if (r->type == CURVE) return ((const HardwareCurve *)at)->n > 0;
    return (r->type != RATE && r->type != COUNT) || *(const double *)at > 0;
}

Status hardware_print(const Hardware *h, Text *out)
{
    const char *section = "";
    for (int i = 0; i < ROWS; i++) {
        if (!is_given(&rows[i], h)) continue;
        if (strcmp(section, rows[i].section) != 0) {
            section = rows[i].section;
            TRY(text_printf(out, "%s:\n", section));
        }
        TRY(print_field(out, &rows[i], h));
    }
    return OK;
}
