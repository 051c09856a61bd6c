#include "viz/run_load.h"

#include "trace/scan.h"

#include <math.h>
#include <string.h>

bool load_shape(char *raw, int *out_layers, int *out_experts)
{
    Scan s = scan_begin(raw);
    int layers = 0, experts = 0;
    scan_array(&s);
    while (scan_item(&s)) {
        int n = 0;
        scan_array(&s);
        for (; scan_item(&s); n++) (void)scan_number(&s);
        if (layers > 0 && n != experts) return false;
        experts = n;
        layers++;
    }
    if (s.bad || layers == 0 || experts == 0) return false;
    *out_layers = layers;
    *out_experts = experts;
    return true;
}

bool load_read(const RunData *d, char *raw, double *table)
{
    Scan s = scan_begin(raw);
    int rows = 0;
    scan_array(&s);
    for (; scan_item(&s); rows++) {
        if (rows == d->moe_layers) return false;
        double *row = table + (int64_t)rows * d->experts;
        int n = 0;
        scan_array(&s);
        for (; scan_item(&s); n++) {
            double v = scan_number(&s);
            if (!(v >= 0) || n == d->experts) return false;
            row[n] = v;
        }
        if (n != d->experts) return false;
    }
    return !s.bad && rows == d->moe_layers;
}

Status load_init(RunLoad *l, const RunData *d, Arena *a)
{
    void *at = NULL;
    TRY(arena_alloc(a, (size_t)d->moe_layers * (size_t)d->experts * sizeof(double), &at));
    l->sum = at;
    load_clear(l, d);
    return OK;
}

void load_clear(RunLoad *l, const RunData *d)
{
    size_t n = (size_t)d->moe_layers * (size_t)d->experts;
    memset(l->sum, 0, n * sizeof(double));
    *l = (RunLoad){ .sum = l->sum, .first_step = -1, .last_step = -1 };
}

void load_add(RunLoad *l, const RunData *d, const double *table, int64_t step)
{
    int64_t n = (int64_t)d->moe_layers * d->experts;
    for (int64_t i = 0; i < n; i++) l->sum[i] += table[i];
    l->lines++;
    if (l->first_step < 0 || step < l->first_step) l->first_step = step;
    if (step > l->last_step) l->last_step = step;
}

void load_extremes(const double *layer, int experts, double *least, double *most)
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
