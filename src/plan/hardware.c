#include "plan/hardware.h"

#include "base/file.h"
#include "base/text.h"
#include "plan/hardware_private.h"

#include <math.h>
#include <string.h>
#include <sys/stat.h>

static const char *const dtype_names[] = { "f32", "bf16", "fp8" };
/* The sections with curves. */
static const char *const work_names[] = {
    [WORK_GEMM] = "gemm",
    [WORK_GROUPED] = "grouped",
    [WORK_ATTENTION] = "attention",
    [WORK_ATTENTION_BACKWARD] = "attention_backward",
};

enum { DTYPES = sizeof dtype_names / sizeof *dtype_names, PRESETS_MAX = 64 };
enum { WORKS = sizeof work_names / sizeof *work_names };

int hardware_preset_count(void) { return hardware_presets_n; }

const char *hardware_preset_name(int i) { return hardware_presets[i].name; }

/* ---- rates ---- */

double hardware_peak(const Hardware *h, HardwareDtype dtype)
{
    const double peak[DTYPES] = { h->peak_f32, h->peak_bf16, h->peak_fp8 };
    return peak[dtype] * 1e12;
}

const HardwareCurve *hardware_curve(const Hardware *h, OpWork work, HardwareDtype dtype)
{
    const HardwareCurve *const curve[WORKS][DTYPES] = {
        [WORK_GEMM] = { &h->gemm_f32, &h->gemm_bf16, &h->gemm_fp8 },
        [WORK_GROUPED] = { &h->grouped_f32, &h->grouped_bf16, &h->grouped_fp8 },
        [WORK_ATTENTION] = { &h->attention_f32, &h->attention_bf16, &h->attention_fp8 },
        [WORK_ATTENTION_BACKWARD] = { &h->attention_backward_f32, &h->attention_backward_bf16,
                                      &h->attention_backward_fp8 },
    };
    return curve[work][dtype];
}

static double curve_at(const HardwareCurve *c, double size)
{
    const HardwarePoint *p = c->at, *last = c->at + c->n - 1;
    if (size <= p->size) return p->tflops * size / p->size;
    if (size >= last->size) return last->tflops;
    while (p[1].size < size) p++;
    double part = log(size / p->size) / log(p[1].size / p->size);
    return p->tflops + part * (p[1].tflops - p->tflops);
}

Status hardware_rate(const Hardware *h, OpWork work, HardwareDtype dtype, double size,
                     double *flop_s)
{
    if (!(size > 0)) {
        return FAIL(ERR_ARG, "%s: no rate for %s of size %g, which must be above 0", h->name,
                    work_names[work], size);
    }
    const OpWork works[] = { work, work == WORK_GROUPED ? WORK_GEMM : work };
    const HardwareDtype dtypes[] = { dtype, HARDWARE_BF16 };
    double ratio = hardware_peak(h, dtype) / hardware_peak(h, HARDWARE_BF16);
    for (int i = 0; i < 4; i++) {
        const HardwareCurve *c = hardware_curve(h, works[i % 2], dtypes[i / 2]);
        if (c->n == 0) continue;
        if (i / 2 == 1 && !(ratio > 0)) break;
        *flop_s = 1e12 * curve_at(c, size) * (i / 2 == 1 ? ratio : 1);
        return OK;
    }
    return FAIL(ERR_ARG, "%s has no rate for %s in %s: give %s.%s or peak.%s", h->name,
                work_names[work], dtype_names[dtype], work_names[work], dtype_names[dtype],
                dtype_names[dtype]);
}

/* ---- what rows say of each other ---- */

static Status check_curve(const Hardware *h, OpWork work, HardwareDtype dtype)
{
    const HardwareCurve *c = hardware_curve(h, work, dtype);
    double peak = hardware_peak(h, dtype) / 1e12;
    for (int i = 0; i < c->n; i++) {
        if (i > 0 && c->at[i].size <= c->at[i - 1].size) {
            return FAIL(ERR_ARG, "%s: sizes of %s.%s must rise, %g stands behind %g", h->name,
                        work_names[work], dtype_names[dtype], c->at[i].size, c->at[i - 1].size);
        }
        if (c->at[i].tflops <= peak) continue;
        if (peak <= 0) {
            return FAIL(ERR_ARG, "%s: there is %s.%s, but peak.%s is missing", h->name,
                        work_names[work], dtype_names[dtype], dtype_names[dtype]);
        }
        return FAIL(ERR_ARG, "%s: %s.%s reaches %g TFLOP/s at %g, more than peak.%s %g", h->name,
                    work_names[work], dtype_names[dtype], c->at[i].tflops, c->at[i].size,
                    dtype_names[dtype], peak);
    }
    return OK;
}

static Status check_tiers(const Hardware *h)
{
    const HardwareTiers *t = &h->scale_out_tiers;
    for (int i = 0; i < t->n; i++) {
        if (t->at[i].share > 1) {
            return FAIL(ERR_ARG,
                        "%s: a tier of scale_out.tiers lets through a share of %g, at most 1",
                        h->name, t->at[i].share);
        }
        if (i > 0 && t->at[i].gpus <= t->at[i - 1].gpus) {
            return FAIL(ERR_ARG, "%s: GPUs of scale_out.tiers must rise, %g stands behind %g",
                        h->name, t->at[i].gpus, t->at[i - 1].gpus);
        }
    }
    return OK;
}

static Status check(const Hardware *h)
{
    const struct {
        const char *link;
        double achieved, sheet;
    } rate[] = { { "memory", h->memory_achieved_gb_s, h->memory_gb_s },
                 { "scale_up", h->scale_up_achieved_gb_s, h->scale_up_gb_s },
                 { "scale_out", h->scale_out_achieved_gb_s, h->scale_out_gb_s } };
    for (int i = 0; i < 3; i++) {
        if (rate[i].achieved <= rate[i].sheet) continue;
        return FAIL(ERR_ARG, "%s: %s.achieved_gb_s is %g GB/s, more than %s.gb_s %g", h->name,
                    rate[i].link, rate[i].achieved, rate[i].link, rate[i].sheet);
    }
    for (int i = WORK_GEMM * DTYPES; i < WORKS * DTYPES; i++)
        TRY(check_curve(h, (OpWork)(i / DTYPES), (HardwareDtype)(i % DTYPES)));
    return check_tiers(h);
}

/* ---- files and presets ---- */

Status hardware_parse(Hardware *h, Arena *a, const char *name, const char *yaml, size_t yaml_bytes)
{
    Hardware next;
    TRY(hardware_read(&next, a, name, yaml, yaml_bytes));
    TRY(check(&next));
    *h = next;
    return OK;
}

static Status unknown(const char *source)
{
    const char *names[PRESETS_MAX];
    char hint[TEXT_HINT_BYTES];
    int n = hardware_presets_n < PRESETS_MAX ? hardware_presets_n : PRESETS_MAX;
    for (int i = 0; i < n; i++) names[i] = hardware_presets[i].name;
    return FAIL(ERR_ARG, "there is neither a hardware file nor a GPU %s%s", source,
                text_hint(hint, source, names, n,
                          " (docs/formats.md describes the file and lists the GPUs)"));
}

static bool is_file(const char *path)
{
    struct stat info = { 0 };
    return stat(path, &info) == 0 && !S_ISDIR(info.st_mode);
}

Status hardware_load(Hardware *h, Arena *a, const char *source)
{
    if (is_file(source)) {
        FileMap map = { 0 };
        TRY(file_map(source, &map));
        const char *yaml = map.bytes == 0 ? "" : (const char *)map.data;
        Status s = hardware_parse(h, a, source, yaml, map.bytes);
        file_unmap(&map);
        return s;
    }
    for (int i = 0; i < hardware_presets_n; i++) {
        const ConfigPreset *p = &hardware_presets[i];
        if (strcasecmp(p->name, source) == 0)
            return hardware_parse(h, a, p->name, p->yaml, strlen(p->yaml));
    }
    return unknown(source);
}
