/* sheet_kernels: device kernels by name with the operator that launched them, and those that are
 * short. */
#include "analyze/report.h"

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
} Kernels;

static Status all_kernels(const Report *r, double below, Kernels *out)
{
    const Events *e = r->e;
    Kernels ks = { 0 };
    uint32_t *first_kernel = NULL; /* of a launcher, plus 1: its category may hang on it */
    TRY(ARENA_NEW(r->arena, r->gpus + 1, &ks.row));
    TRY(ARENA_NEW(r->arena, r->gpus + 1, &ks.dur));
    TRY(ARENA_ZEROED(r->arena, e->n + 1, &first_kernel));
    for (int64_t k = 0; k < r->gpus; k++) {
        uint32_t i = r->gpu[k];
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
    for (int64_t k = 0; k < ks.n && !r->operators; k++) ks.row[k].category = "runtime";
    *out = ks;
    return OK;
}

Status sheet_kernel_summary(Report *r, Table *out)
{
    enum { WIDTH = 3 };
    Kernels ks;
    Groups g;
    uint32_t *key = NULL;
    TRY(all_kernels(r, INFINITY, &ks));
    TRY(sheet_columns(r,
                      "Parent op category|@Parent cpu_op|Kernel name|Kernel stream|"
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
    TRY(groups_ranked(key, WIDTH, ks.dur, ks.n, r->arena, &g));
    for (int64_t k = 0; k < g.n; k++) {
        int64_t n = 0;
        const uint32_t *rows = groups_rows(&g, k, &n);
        const KernelRow *row = &ks.row[rows[0]];
        Summary s;
        TRY(summary_of(ks.dur, rows, n, r->arena, &s));
        TRY(TABLE_ROW(out, cell_text(row->category), cell_text(row->parent),
                      cell_text(event_name(r->e, row->event)),
                      cell_count(report_stream(r, row->event)), cell_number(s.sum), cell_whole(n),
                      cell_number(s.mean), cell_number(s.min), cell_number(s.max),
                      cell_number(report_percent(s.sum, ks.sum)),
                      cell_number(report_percent(s.sum, r->total_us))));
    }
    return OK;
}

/* numpy's histogram: BINS equal bins from the least to the greatest, the last one closed. */
Status sheet_short_histogram(Report *r, Table *out)
{
    Kernels ks;
    double low = INFINITY, high = -INFINITY, edge[BINS + 1];
    int64_t count[BINS] = { 0 };
    TRY(sheet_columns(r, "bin_start|bin_end|count", out));
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
    for (int b = 0; b < BINS; b++)
        TRY(TABLE_ROW(out, cell_number(edge[b]), cell_number(edge[b + 1]), cell_whole(count[b])));
    return OK;
}

Status sheet_short_summary(Report *r, Table *out)
{
    enum { WIDTH = 5 };
    static const OpArgs none = { 0 };
    Kernels ks;
    Groups g;
    uint32_t *key = NULL;
    int64_t n = 0;
    TRY(all_kernels(r, r->o->short_us, &ks));
    TRY(sheet_columns(r,
                      "@Parent cpu_op|@Input dims|@Input strides|@Concrete Inputs|Kernel name|"
                      "Short Kernel duration (µs) sum|Short Kernel count|"
                      "Short Kernel duration (µs) mean|"
                      "Short Kernel duration (µs) percent of total time",
                      out));
    TRY(ARENA_NEW(r->arena, ks.n * WIDTH + 1, &key));
    for (int64_t k = 0; k < ks.n; k++) {
        KernelRow row = ks.row[k];
        const OpArgs *args = report_args(r, row.launcher);
        if (args == NULL) args = &none;
        ks.dur[n] = ks.dur[k];
        ks.row[n] = row;
        uint32_t *at = key + WIDTH * n++;
        at[0] = row.launcher == EVENT_NONE ? UINT32_MAX : r->e->name[row.launcher];
        at[1] = args->dims, at[2] = args->strides, at[3] = args->concrete;
        at[4] = r->e->name[row.event];
    }
    TRY(groups_ranked(key, WIDTH, ks.dur, n, r->arena, &g));
    for (int64_t k = 0; k < g.n; k++) {
        const uint32_t *rows = groups_rows(&g, k, &n), *of = key + WIDTH * (size_t)rows[0];
        const KernelRow *row = &ks.row[rows[0]];
        Cell shape[3];
        for (int i = 0; i < 3; i++) TRY(report_python(r, of[1 + i], true, &shape[i]));
        TRY(TABLE_ROW(out, cell_text(row->parent), shape[0], shape[1], shape[2],
                      cell_text(event_name(r->e, row->event)), cell_number(g.sum[k]), cell_whole(n),
                      cell_number(g.sum[k] / (double)n),
                      cell_number(report_percent(g.sum[k], r->total_us))));
    }
    return OK;
}
