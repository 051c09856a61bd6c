/* sheet_kernels: device kernels by name and by the operator that launched them, and short kernels,
 * whose launches often cost more than their work. Copies and fills are not kernels. */
#include "traces/sheets/report.h"

#include <math.h>
#include <string.h>

enum { BINS = 100 };

#define KERNEL_ROWS "category|parent|dims|strides|concrete|kernel|stream|us"

/* The category of a launcher that is a runtime call. */
static const char *call_category(const char *name)
{
    bool graph = strcasestr(name, "cudagraph") != NULL || strcasestr(name, "graphlaunch") != NULL;
    return graph ? "graph" : "runtime";
}

/* Makes a row for each kernel shorter than *rows->state us. whole[0] is the time of all kernels,
 * whole[1] the length of the report. */
static Status fill_kernels(Report *r, FoldRows *rows)
{
    const Events *e = r->e;
    const double below = *(const double *)rows->state;
    uint32_t *first_kernel = NULL; /* first_kernel[launcher]: event + 1; it decides the category */
    rows->whole[0] = 0;
    rows->whole[1] = r->total_us;
    TRY(ARENA_ZEROED(r->arena, e->n + 1, &first_kernel));
    for (int64_t k = 0; k < r->gpus; k++) {
        static const OpArgs none = { 0 };
        const uint32_t i = r->gpu[k], launcher = tree_launcher(r->tree, i);
        const char *parent = NULL, *category = NULL;
        const OpArgs *args = report_args(r, launcher);
        if (launcher != EVENT_NONE) {
            /* Also kernels that are not listed decide the category, so this comes before the
             * filters. */
            if (first_kernel[launcher] == 0) first_kernel[launcher] = i + 1;
            parent = event_name(e, launcher);
            category = e->kind[launcher] != EVENT_CPU_OP
                           ? call_category(parent)
                           : report_category(r, launcher, first_kernel[launcher] - 1);
        }
        if (e->kind[i] != EVENT_KERNEL) continue;
        rows->whole[0] += e->dur[i];
        if (e->dur[i] >= below) continue;
        if (args == NULL) args = &none;
        TRY(TABLE_ROW(&rows->t, cell_text(r->operators ? category : "runtime"), cell_text(parent),
                      cell_text(strings_text(&e->strings, args->dims)),
                      cell_text(strings_text(&e->strings, args->strides)),
                      cell_text(strings_text(&e->strings, args->concrete)),
                      cell_text(event_name(e, i)), cell_count(report_stream(r, i)),
                      cell_number(e->dur[i])));
    }
    return OK;
}

/* By launcher, kernel and stream. Without a limit, all kernels count. */
Status sheet_kernel_summary(Report *r, Table *out)
{
    static const Fold fold = { .rows = KERNEL_ROWS,
                               .keys = "parent|kernel|stream",
                               .by = "us",
                               .columns =
                                   "Parent op category=first category|@Parent cpu_op=first parent|"
                                   "Kernel name=first kernel|Kernel stream=first stream|"
                                   "Kernel duration (µs)_sum=sum us|"
                                   "Kernel duration (µs)_count=n|"
                                   "Kernel duration (µs)_*=mean,min,max us|"
                                   "Percent of kernels time (%)=share0 us|"
                                   "Percent of total time (%)=share1 us" };
    double all = INFINITY;
    return report_fold(r, &fold, fill_kernels, &all, out);
}

/* By launcher with arguments, because short kernels are worth fusing where shapes are the same. */
Status sheet_short_summary(Report *r, Table *out)
{
    static const Fold fold = {
        .rows = KERNEL_ROWS,
        .keys = "parent|dims|strides|concrete|kernel",
        .by = "us",
        .columns =
            "@Parent cpu_op=first parent|@Input dims=tuple dims|@Input strides=tuple strides|"
            "@Concrete Inputs=tuple concrete|Kernel name=first kernel|"
            "Short Kernel duration (µs) sum=sum us|Short Kernel count=n|"
            "Short Kernel duration (µs) mean=mean us|"
            "Short Kernel duration (µs) percent of total time=share1 us"
    };
    double below = r->o->short_us;
    return report_fold(r, &fold, fill_kernels, &below, out);
}

/* numpy's histogram: BINS equal bins from the least to the greatest value, the last one closed.
 * Equal values get a bin of width 1 around them. Edges are rounded as numpy does, and a value is
 * moved if its bin's rounded edge says so. */
Status sheet_short_histogram(Report *r, Table *out)
{
    double low = INFINITY, high = -INFINITY, edge[BINS + 1], *us = NULL;
    int64_t count[BINS] = { 0 }, n = 0;
    TRY(sheet_columns(r, "bin_start|bin_end|count", out));
    TRY(ARENA_NEW(r->arena, r->gpus + 1, &us));
    for (int64_t k = 0; k < r->gpus; k++) {
        const uint32_t i = r->gpu[k];
        if (r->e->kind[i] == EVENT_KERNEL && r->e->dur[i] < r->o->short_us) us[n++] = r->e->dur[i];
    }
    for (int64_t k = 0; k < n; k++) {
        low = fmin(low, us[k]);
        high = fmax(high, us[k]);
    }
    if (n == 0) return OK;
    /* as numpy does for equal values */
    if (low == high) low -= 0.5, high += 0.5;
    for (int b = 0; b <= BINS; b++) {
        /* volatile: the product is rounded before the sum, as in numpy, and not fused with it */
        volatile double from_low = b * ((high - low) / BINS);
        edge[b] = from_low + low;
    }
    edge[BINS] = high;
    for (int64_t k = 0; k < n; k++) {
        int b = (int)((us[k] - low) / (high - low) * BINS);
        if (b == BINS) b--;
        if (us[k] < edge[b])
            b--;
        else if (b + 1 < BINS && us[k] >= edge[b + 1])
            b++;
        count[b]++;
    }
    for (int b = 0; b < BINS; b++)
        TRY(TABLE_ROW(out, cell_number(edge[b]), cell_number(edge[b + 1]), cell_whole(count[b])));
    return OK;
}
