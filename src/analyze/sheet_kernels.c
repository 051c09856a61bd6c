/* sheet_kernels: device kernels by name with the operator that launched them, and those that are
 * short. */
#include "analyze/report_sheets.h"

#include <math.h>
#include <string.h>

enum { BINS = 100 };

/* A kernel and who launched it. */
typedef struct KernelRow {
    uint32_t event, launcher;
    const char *parent, *category; /* NULL: not linked */
} KernelRow;

typedef struct Kernels {
    KernelRow *row;
    double *dur;
    int64_t n;
    double sum;
    bool host; /* the trace has operators */
} Kernels;

/* Kernels are counted whether their launch is in the trace or not, so all of the trace are taken,
 * in compat those that `gpu` does not have, too. */
static Status all_kernels(const Report *r, double below, Kernels *out)
{
    const Events *e = r->e;
    Kernels ks = { 0 };
    uint32_t *first_kernel = NULL; /* of a launcher, plus 1: its category may hang on it */
    int64_t n = r->o->compat && r->o->step < 0 ? e->n : r->gpus;
    TRY(ARENA_NEW(r->arena, n + 1, &ks.row));
    TRY(ARENA_NEW(r->arena, n + 1, &ks.dur));
    TRY(ARENA_ZEROED(r->arena, e->n + 1, &first_kernel));
    for (int64_t k = 0; k < n; k++) {
        uint32_t i = n == e->n ? (uint32_t)k : r->gpu[k];
        ks.host |= n != e->n || e->kind[i] == EVENT_CPU_OP;
        if (!event_on_gpu(e->kind[i])) continue;
        uint32_t launcher = tree_launcher(r->tree, i);
        KernelRow row = { .event = i, .launcher = launcher };
        if (launcher != EVENT_NONE) {
            if (first_kernel[launcher] == 0) first_kernel[launcher] = i + 1;
            row.parent = event_name(e, launcher);
            row.category = report_category(r, launcher, first_kernel[launcher] - 1);
            if (e->kind[launcher] != EVENT_CPU_OP) {
                bool graph = strcasestr(row.parent, "cudagraph") != NULL ||
                             strcasestr(row.parent, "graphlaunch") != NULL;
                row.category = graph ? "graph" : "runtime";
            }
        }
        if (e->kind[i] != EVENT_KERNEL) continue;
        ks.sum += e->dur[i];
        if (e->dur[i] >= below) continue;
        ks.dur[ks.n] = e->dur[i];
        ks.row[ks.n++] = row;
    }
    for (int64_t k = 0; k < ks.n && !ks.host; k++) ks.row[k].category = "runtime";
    *out = ks;
    return OK;
}

static Cell text_or_none(const char *s) { return s == NULL ? (Cell){ 0 } : cell_text(s); }

/* The times of a group of kernels as its last cells: sum, count, mean. */
static Status group_kernels(const Report *r, const Kernels *ks, const uint32_t *key, int width,
                            Groups *g, Summary **s, uint32_t **order)
{
    double *sum = NULL;
    TRY(groups_make(key, width, ks->n, r->arena, g));
    TRY(ARENA_NEW(r->arena, g->n + 1, s));
    TRY(ARENA_NEW(r->arena, g->n + 1, &sum));
    for (int64_t i = 0; i < g->n; i++) {
        int64_t n = g->first[i + 1] - g->first[i];
        TRY(summary_of(ks->dur, g->row + g->first[i], n, r->arena, &(*s)[i]));
        sum[i] = (*s)[i].sum;
    }
    return groups_by(sum, g->n, r->arena, order);
}

Status sheet_kernel_summary(Report *r, Table *out)
{
    enum { WIDTH = 3 };
    Kernels ks;
    Groups g;
    Summary *s = NULL;
    uint32_t *key = NULL, *order = NULL;
    TRY(all_kernels(r, INFINITY, &ks));
    TRY(sheet_columns(r, "kernel_summary",
                      ks.host ? "Parent op category|Parent cpu_op|Kernel name|Kernel stream|"
                                "Kernel duration (µs)_sum|Kernel duration (µs)_count|"
                                "Kernel duration (µs)_mean|Kernel duration (µs)_min|"
                                "Kernel duration (µs)_max|Percent of kernels time (%)|"
                                "Percent of total time (%)"
                              : "Parent op category|Kernel name|Kernel stream|"
                                "Kernel duration (µs)_sum|Kernel duration (µs)_count|"
                                "Kernel duration (µs)_mean|Kernel duration (µs)_min|"
                                "Kernel duration (µs)_max|Percent of kernels time (%)|"
                                "Percent of total time (%)",
                      out));
    TRY(ARENA_NEW(r->arena, ks.n * WIDTH + 1, &key));
    for (int64_t k = 0; k < ks.n; k++) {
        const KernelRow *row = &ks.row[k];
        key[k * WIDTH] = row->launcher == EVENT_NONE ? UINT32_MAX : r->e->name[row->launcher];
        key[k * WIDTH + 1] = r->e->name[row->event];
        key[k * WIDTH + 2] = (uint32_t)report_stream(r, row->event);
    }
    TRY(group_kernels(r, &ks, key, WIDTH, &g, &s, &order));
    for (int64_t k = 0; k < g.n; k++) {
        uint32_t at = order[k];
        const KernelRow *row = &ks.row[g.row[g.first[at]]];
        int32_t stream = report_stream(r, row->event);
        Cell *c = NULL;
        TRY(table_row(out, &c));
        *c++ = text_or_none(row->category);
        if (ks.host) *c++ = text_or_none(row->parent);
        *c++ = cell_text(event_name(r->e, row->event));
        *c++ = stream < 0 ? (Cell){ 0 } : cell_whole(stream);
        *c++ = cell_number(s[at].sum);
        *c++ = cell_whole(s[at].n);
        *c++ = cell_number(s[at].mean);
        *c++ = cell_number(s[at].min);
        *c++ = cell_number(s[at].max);
        *c++ = cell_number(report_percent(s[at].sum, ks.sum));
        *c = cell_number(report_percent(s[at].sum, r->total_us));
    }
    return OK;
}

/* numpy's histogram: BINS equal bins from the least to the greatest, the last one closed. */
Status sheet_short_histogram(Report *r, Table *out)
{
    Kernels ks;
    double low = INFINITY, high = -INFINITY, edge[BINS + 1];
    int64_t count[BINS] = { 0 };
    TRY(sheet_columns(r, "short_kernel_histogram", "bin_start|bin_end|count", out));
    TRY(all_kernels(r, r->o->short_us, &ks));
    for (int64_t k = 0; k < ks.n; k++) {
        low = fmin(low, ks.dur[k]);
        high = fmax(high, ks.dur[k]);
    }
    if (ks.n == 0) return OK;
    if (low == high) low -= 0.5, high += 0.5;
    for (int b = 0; b <= BINS; b++) {
        volatile double from_low =
            b * ((high - low) / BINS); /* rounded, as numpy does, not fused */
        edge[b] = from_low + low;
    }
    edge[BINS] = high;
    for (int64_t k = 0; k < ks.n; k++) {
        int b = (int)((ks.dur[k] - low) / (high - low) * BINS);
        if (b == BINS) b--;
        if (ks.dur[k] < edge[b])
            b--;
        else if (b + 1 < BINS && ks.dur[k] >= edge[b + 1])
            b++;
        count[b]++;
    }
    for (int b = 0; b < BINS; b++) {
        Cell *c = NULL;
        TRY(table_row(out, &c));
        c[0] = cell_number(edge[b]);
        c[1] = cell_number(edge[b + 1]);
        c[2] = cell_whole(count[b]);
    }
    return OK;
}

/* In compat kernels without an operator have no row where others have one: their keys are empty. */
Status sheet_short_summary(Report *r, Table *out)
{
    enum { WIDTH = 5 };
    Kernels ks;
    Groups g;
    Summary *s = NULL;
    uint32_t *key = NULL, *order = NULL;
    int64_t n = 0;
    TRY(all_kernels(r, r->o->short_us, &ks));
    TRY(sheet_columns(r, "short_kernels_summary",
                      ks.host
                          ? "Parent cpu_op|Input dims|Input strides|Concrete Inputs|Kernel name|"
                            "Short Kernel duration (µs) sum|Short Kernel count|"
                            "Short Kernel duration (µs) mean|"
                            "Short Kernel duration (µs) percent of total time"
                          : "Kernel name|Short Kernel duration (µs) sum|Short Kernel count|"
                            "Short Kernel duration (µs) mean|"
                            "Short Kernel duration (µs) percent of total time",
                      out));
    TRY(ARENA_NEW(r->arena, ks.n * WIDTH + 1, &key));
    for (int64_t k = 0; k < ks.n; k++) {
        KernelRow row = ks.row[k];
        const OpArgs *args = report_args(r, row.launcher);
        if (ks.host && r->o->compat && args == NULL) continue;
        ks.dur[n] = ks.dur[k];
        ks.row[n] = row;
        uint32_t *at = key + WIDTH * n++;
        at[0] = row.launcher == EVENT_NONE ? UINT32_MAX : r->e->name[row.launcher];
        at[1] = args == NULL ? 0 : args->dims;
        at[2] = args == NULL ? 0 : args->strides;
        at[3] = args == NULL ? 0 : args->concrete;
        at[4] = r->e->name[row.event];
    }
    ks.n = n;
    TRY(group_kernels(r, &ks, key, WIDTH, &g, &s, &order));
    for (int64_t k = 0; k < g.n; k++) {
        uint32_t at = order[k];
        const KernelRow *row = &ks.row[g.row[g.first[at]]];
        const OpArgs *args = report_args(r, row->launcher);
        const uint32_t text[] = { args == NULL ? 0 : args->dims, args == NULL ? 0 : args->strides,
                                  args == NULL ? 0 : args->concrete };
        Cell *c = NULL, shape[3] = { { 0 } };
        for (int i = 0; i < 3; i++) TRY(report_python(r, text[i], true, &shape[i]));
        TRY(table_row(out, &c));
        if (ks.host) {
            *c++ = text_or_none(row->parent);
            for (int i = 0; i < 3; i++) *c++ = shape[i];
        }
        *c++ = cell_text(event_name(r->e, row->event));
        *c++ = cell_number(s[at].sum);
        *c++ = cell_whole(s[at].n);
        *c++ = cell_number(s[at].mean);
        *c = cell_number(report_percent(s[at].sum, r->total_us));
    }
    return OK;
}
