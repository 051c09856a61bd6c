/* calibrate: turns the tables that `switchyard bench ops` and `bench contention` print into measured rates of a GPU
 * (hardware.h). It reads the words of a table by position from the right, so names may have blanks. */
#include "calibrate/calibrate.h"

#include "kernels/core/op.h"
#include "planner/price/collective.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS_MAX = 32, LINE_MAX = 512, LAST_WORDS = 6, CONTENTION_WORDS = 5 };

/* FLOPs and seconds of one kind of work, type and size, added up over ops. */
typedef struct Measured {
    double size, flops, s;
} Measured;

typedef struct Calibration {
    const char *name;
    HardwareDtype dtype; /* of the line that is read */
    Measured at[WORK_COUNT][HARDWARE_FP8 + 1][HARDWARE_POINTS_MAX];
    int n[WORK_COUNT][HARDWARE_FP8 + 1];
    double gb_s;
    int rows, contended;
    double blocks;          /* that the collective of bench contention holds */
    bool in_contention;     /* which table is read */
    Hardware longer, alone; /* us beside the collective and without it, in the fields of factors */
} Calibration;

/* Adds to the point of this size; points are sorted by size. */
static Status add_rate(Calibration *c, OpWork work, double size, double flops, double s)
{
    Measured *m = c->at[work][c->dtype];
    int *n = &c->n[work][c->dtype], i = 0;
    while (i < *n && m[i].size < size) i++;
    if (i == *n || m[i].size != size) {
        if (*n == HARDWARE_POINTS_MAX)
            return FAIL(ERR_FORMAT, "%s: more than %d sizes of %s", c->name, HARDWARE_POINTS_MAX,
                        op_work_names[work]);
        memmove(&m[i + 1], &m[i], (size_t)(*n - i) * sizeof *m);
        m[i] = (Measured){ .size = size };
        ++*n;
    }
    m[i].flops += flops;
    m[i].s += s;
    return OK;
}

/* "NVIDIA H200, bf16, 16384 tokens; measured peak: 750.1 TFLOP/s (large product), 4100 GB/s (copy, ..."
 * (older files: "roof: 750.1 ...") */
static bool read_head(Calibration *c, const char *line)
{
    static const char before[] = " (large product), ", after[] = " GB/s (copy";
    const char *rate = strstr(line, before);
    if (rate == NULL) return false;
    char *end = NULL;
    double gb_s = strtod(rate + strlen(before), &end);
    if (!text_starts(end, after)) return false;
    if (gb_s > c->gb_s) c->gb_s = gb_s;
    return true;
}

/* The value of a word that is a number above 0; else 0. */
static double number_of(const char *word)
{
    char *end = NULL;
    double v = strtod(word, &end);
    return end != word && *end == '\0' && v > 0 && isfinite(v) ? v : 0;
}

static int split_words(char *line, char *word[WORDS_MAX])
{
    char *rest = NULL;
    int n = 0;
    for (char *w = strtok_r(line, " \t\r", &rest); w != NULL && n < WORDS_MAX;
         w = strtok_r(NULL, " \t\r", &rest)) {
        word[n++] = w;
    }
    return n;
}

/* The line of an op ends in: calls us/call TFLOP/s GB/s peak% work size. Other lines are skipped. */
static Status read_row(Calibration *c, char **word, int n, int number)
{
    if (n < LAST_WORDS + 2) return OK;
    double calls = 0, us = 0, tflops = 0, size = 0;
    char *dtype = strchr(word[n - 2], '.');
    if (dtype == NULL) return OK;
    *dtype++ = '\0';
    int type = text_word_index("f32|bf16|e4m3|e5m2", dtype);
    c->dtype = type <= 0 ? HARDWARE_F32 : type == 1 ? HARDWARE_BF16 : HARDWARE_FP8;
    for (int work = 0; work < WORK_COUNT; work++) {
        if (!work_has_rate((OpWork)work) || strcmp(word[n - 2], op_work_names[work]) != 0) continue;
        calls = number_of(word[n - 7]);
        us = number_of(word[n - 6]);
        tflops = number_of(word[n - 5]);
        size = number_of(word[n - 1]);
        if (calls * us * tflops * size == 0)
            return FAIL(ERR_FORMAT,
                        "%s:%d: not a line of an op: calls us/call TFLOP/s GB/s peak%% "
                        "work size are its last numbers",
                        c->name, number);
        c->rows++;
        double s = calls * us * 1e-6;
        return add_rate(c, (OpWork)work, size, tflops * 1e12 * s, s);
    }
    return OK;
}

/* "2 ranks, NVIDIA H200; a collective holds 24 of 132 multiprocessors, a transfer 4". A CPU's line has no
 * multiprocessors, so that its rows are skipped. */
static bool read_contention_head(Calibration *c, const char *line)
{
    static const char before[] = "; a collective holds ";
    const char *at = strstr(line, before);
    if (at == NULL) return false;
    c->blocks = strtod(at + strlen(before), NULL);
    return c->blocks > 0;
}

/* The line of an op ends in: us alone, times as long beside an all-gather, held, recv, work. */
static void read_contention_row(Calibration *c, char **word, int n)
{
    char *dtype = n < CONTENTION_WORDS + 1 ? NULL : strchr(word[n - 1], '.');
    if (dtype == NULL) return;
    *dtype = '\0';
    for (int work = WORK_MEMORY; work < WORK_COMM; work++) {
        double us = number_of(word[n - 5]), times = number_of(word[n - 4]);
        if (strcmp(word[n - 1], op_work_names[work]) != 0) continue;
        *hardware_contention_times(&c->longer, (OpWork)work) += us * times;
        *hardware_contention_times(&c->alone, (OpWork)work) += us;
        c->contended++;
    }
}

/* Noise may make a factor smaller than 1. Kinds of work without a line keep the base's. */
static void set_contention(Calibration *c, const char *text, Hardware *h)
{
    for (int work = WORK_MEMORY; work < WORK_COMM; work++) {
        double *times = hardware_contention_times(h, (OpWork)work);
        double us = *hardware_contention_times(&c->alone, (OpWork)work);
        if (us > 0) *times = fmax(1, *hardware_contention_times(&c->longer, (OpWork)work) / us);
        if (*times == 0) *times = 1;
    }
    h->contention_blocks = c->blocks;
    h->contention_source = text;
}

/* Replaces the curves of the base GPU by the measured ones. */
static void set_rates(const Calibration *c, const char *text, Hardware *h)
{
    const Hardware base = *h;
    for (int w = 0; w < WORK_COUNT; w++) {
        for (int d = HARDWARE_F32; d <= HARDWARE_FP8; d++) {
            int n = c->n[w][d];
            if (n == 0) continue;
            HardwareCurve *curve = hardware_curve(h, (OpWork)w, (HardwareDtype)d);
            curve->n = n;
            for (int i = 0; i < n; i++) {
                const Measured *m = &c->at[w][d][i];
                curve->at[i] = (HardwarePoint){ m->size, m->flops / m->s / 1e12 };
            }
            *hardware_source(h, (OpWork)w) = text;
        }
    }
    hardware_drop_steps(h, &base);
    h->memory_achieved_gb_s = c->gb_s < h->memory_gb_s ? c->gb_s : h->memory_gb_s;
    h->memory_source = text;
    h->gpu_measured = true;
}

/* The source of sections that a bench gave. */
static Status source_text(const Calibration *c, const char *bench, Arena *a, const char **out)
{
    char said[160];
    (void)snprintf(said, sizeof said, "measured: switchyard bench %s, %.100s", bench, c->name);
    return arena_text(a, said, strlen(said), out);
}

/* A line after the head of its table. */
static Status read_line(Calibration *c, char *line, int number)
{
    char *word[WORDS_MAX];
    if (read_contention_head(c, line)) return c->in_contention = true, OK;
    if (read_head(c, line)) return c->in_contention = false, OK;
    int n = split_words(line, word);
    if (c->in_contention) return read_contention_row(c, word, n), OK;
    return c->gb_s > 0 ? read_row(c, word, n, number) : OK;
}

/* Numbers of a table may be none of a GPU. The file's own reader says so, before the file is written. */
static Status check_result(const char *name, const Hardware *h, Arena *a)
{
    Hardware back;
    Text text = { 0 };
    TRY(text_init(&text, a));
    TRY(hardware_print(h, &text));
    return hardware_parse(&back, a, name, text.data, text.used);
}

/* A line longer than LINE_MAX is cut; rows of these benches are shorter. */
Status calibrate(const char *name, const char *bench, Arena *a, Hardware *h)
{
    Calibration c = { .name = name };
    const char *ops = NULL, *contention = NULL;
    int number = 0;
    for (const char *at = bench; *at != '\0'; at += *at == '\n') {
        char line[LINE_MAX];
        size_t n = strcspn(at, "\n"), kept = n < sizeof line - 1 ? n : sizeof line - 1;
        memcpy(line, at, kept);
        line[kept] = '\0';
        at += n;
        TRY(read_line(&c, line, ++number));
    }
    TRY(source_text(&c, "ops", a, &ops));
    TRY(source_text(&c, "contention", a, &contention));
    if (c.rows > 0) set_rates(&c, ops, h);
    if (c.contended > 0) set_contention(&c, contention, h);
    if (c.rows + c.contended > 0) return check_result(name, h, a);
    return FAIL(ERR_FORMAT,
                "%s: no op of `switchyard bench ops` or `bench contention` on a GPU is there",
                name);
}

/* ---- an exchange ---- */

/* Each of `gpus` sends `bytes` to all, itself included. */
typedef struct Exchange {
    double gpus, bytes, s;
} Exchange;

/* Reads "64 MiB" up to a comma or the end. 0: the unit is none of these, or it is not above 0. */
static double read_quantity(const char **at, const char *units, const double *times)
{
    char *end = NULL, name[8];
    const double value = strtod(*at, &end);
    const char *unit = end + strspn(end, " ");
    const size_t n = strcspn(unit, " ,");
    (void)snprintf(name, sizeof name, "%.*s", (int)n, unit);
    *at = unit + n + strspn(unit + n, " ");
    const int i = text_word_index(units, name);
    return i >= 0 && value > 0 && isfinite(value) ? value * times[i] : 0;
}

/* A line's columns: size count type redop root time algbw busbw. Its rates have two decimals. */
static Status read_exchange(const char *text, Exchange *e)
{
    static const double bytes[] = { 1, 1e3, 1e6, 1e9, 1024, 1048576, 1073741824 };
    static const double times[] = { 1, 1e-3, 1e-6 };
    const char *at = text;
    double us = 0, rate = 0, bus = 0;
    e->gpus = read_quantity(&at, "GPUs", times);
    bool good = e->gpus >= 2 && e->gpus <= 1e8 && e->gpus == floor(e->gpus) && *at == ',';
    if (good && strchr(++at, ',') == NULL) {
        good = sscanf(at, "%lf %*s %*s %*s %*s %lf %lf %lf", &e->bytes, &us, &rate, &bus) == 4;
        const double reached = e->bytes / us / 1e3, off = 0.01 + 0.02 * reached;
        e->s = us * 1e-6;
        good &= fabs(rate - reached) <= off && fabs(bus - reached * (1 - 1 / e->gpus)) <= off;
    } else if (good) {
        e->bytes = read_quantity(&at, "B|KB|MB|GB|KiB|MiB|GiB", bytes);
        good = *at == ',';
        if (good) at++, e->s = read_quantity(&at, "s|ms|us", times);
        good &= *at == '\0';
    }
    if (good && e->bytes > 0 && e->s > 0 && isfinite(e->bytes / e->s)) return OK;
    return FAIL(ERR_ARG,
                "--exchange %.80s: write 2 GPUs or more, bytes (B to GiB) and a time (us, ms, s), "
                "as in \"16 GPUs, 64 MiB, 3.1 ms\", or the GPUs and a line of alltoall_perf, whose "
                "rates are those of that many GPUs",
                text);
}

/* The price falls as the rate rises, so bisection finds it. */
Status calibrate_exchange(const char *text, Arena *a, Hardware *h)
{
    Exchange e = { 0 };
    CollectiveCost cost;
    char said[160], bytes[32];
    TRY(read_exchange(text, &e));
    const bool far = e.gpus > h->scale_up_gpus;
    const CollectiveGroup group = { (int64_t)e.gpus, (int64_t)fmin(e.gpus, h->scale_up_gpus), 0 };
    double *rate = far ? &h->scale_out_achieved_gb_s : &h->scale_up_achieved_gb_s;
    const double before = *rate, sheet = far ? h->scale_out_gb_s : h->scale_up_gb_s;
    double least = 0, most = *rate = sheet;
    TRY(collective_cost(h, COLLECTIVE_ALL_TO_ALL, &group, e.bytes, &cost));
    if (cost.s > e.s) h->scale_out_crowd.n = 0; /* the exchange contradicts it */
    TRY(collective_cost(h, COLLECTIVE_ALL_TO_ALL, &group, e.bytes, &cost));
    if (cost.s > e.s)
        return FAIL(ERR_ARG,
                    "--exchange %.80s: faster than the data sheet of %s, whose %s.gb_s %g takes "
                    "%.4g ms: give the GPU that ran it as --base",
                    text, h->name, far ? "scale_out" : "scale_up", sheet, 1e3 * cost.s);
    for (int i = 0; i < 60; i++) {
        *rate = (least + most) / 2;
        TRY(collective_cost(h, COLLECTIVE_ALL_TO_ALL, &group, e.bytes, &cost));
        *(cost.s > e.s ? &least : &most) = *rate;
    }
    if (!far) h->scale_up_shard_gb_s *= *rate / before; /* 0: the file has none */
    if (!far) h->scale_up_pair_gb_s *= *rate / before;
    (void)snprintf(said, sizeof said, "measured: an all-to-all of %g GPUs, %s of each in %.4g ms",
                   e.gpus, text_bytes(bytes, e.bytes), 1e3 * e.s);
    return arena_text(a, said, strlen(said), far ? &h->scale_out_source : &h->scale_up_source);
}
