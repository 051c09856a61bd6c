/* calibrate: turns the table that `switchyard bench ops` prints into measured rates of a GPU (hardware.h). It
 * reads the words of that table by position from the right, so names may have blanks. */
#include "plan/hardware.h"

#include "op/op.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS_MAX = 32, LINE_MAX = 512, LAST_WORDS = 6 };

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
    int rows;
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

/* The line of an op ends in: calls us/call TFLOP/s GB/s peak% work size. Other lines are skipped. */
static Status read_row(Calibration *c, char *line, int number)
{
    char *word[WORDS_MAX], *rest = NULL;
    int n = 0;
    for (char *w = strtok_r(line, " \t\r", &rest); w != NULL && n < WORDS_MAX;
         w = strtok_r(NULL, " \t\r", &rest)) {
        word[n++] = w;
    }
    if (n < LAST_WORDS + 2) return OK;
    double calls = 0, us = 0, tflops = 0, size = 0;
    char *dtype = strchr(word[n - 2], '.');
    if (dtype == NULL) return OK;
    *dtype++ = '\0';
    c->dtype = strcmp(dtype, "bf16") == 0 ? HARDWARE_BF16 : HARDWARE_F32;
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

/* Replaces the curves of the base GPU by the measured ones. */
static Status set_rates(const Calibration *c, Arena *a, Hardware *h)
{
    const char *text = NULL;
    char said[160];
    (void)snprintf(said, sizeof said, "measured: switchyard bench ops, %.100s", c->name);
    TRY(arena_text(a, said, strlen(said), &text));
    for (int w = 0; w < WORK_COUNT; w++) {
        for (int d = HARDWARE_F32; d <= HARDWARE_BF16; d++) {
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
    h->memory_achieved_gb_s = c->gb_s < h->memory_gb_s ? c->gb_s : h->memory_gb_s;
    h->memory_source = text;
    h->gpu_measured = true;
    return OK;
}

/* Rows count after the first head only. A line longer than LINE_MAX is cut; rows of bench ops are
 * shorter. */
Status calibrate(const char *name, const char *bench, Arena *a, Hardware *h)
{
    Calibration c = { .name = name };
    int number = 0;
    for (const char *at = bench; *at != '\0'; at += *at == '\n') {
        char line[LINE_MAX];
        size_t n = strcspn(at, "\n"), kept = n < sizeof line - 1 ? n : sizeof line - 1;
        memcpy(line, at, kept);
        line[kept] = '\0';
        at += n;
        number++;
        if (!read_head(&c, line) && c.gb_s > 0) TRY(read_row(&c, line, number));
    }
    if (c.rows > 0) return set_rates(&c, a, h);
    return FAIL(ERR_FORMAT, "%s: no op of `switchyard bench ops` on a GPU stands there", name);
}
