/* sheet_ops: device time by the operator that launched it: by kind of operator, by operator, and by
 * operator with the shapes of its arguments. All three fold the same rows by different keys. Device
 * time is busy time: kernels that overlap count once. */
#include "traces/sheets/report.h"
#include "traces/table/python_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* SHORT_NAME: characters of a kernel's name in the short text, as in TraceLens. */
enum { CATEGORIES_MOST = 128, SHORT_NAME = 64 };

/* ---- rows: launchers ---- */

#define LAUNCHER_ROWS CALL_KEYS "|direct|subtree"

/* The first piece of work of a launcher that is not in the trace; it stands for the launcher. */
static uint32_t alone_of(const Report *r, const Launcher *l)
{
    return l->event == EVENT_NONE ? r->own[l->first] : EVENT_NONE;
}

/* A row for each launcher, in order, so that row i is launcher i. */
static Status fill_launchers(Report *r, FoldRows *rows)
{
    rows->whole[1] = r->total_us;
    for (int64_t i = 0; i < r->launchers; i++) {
        const Launcher *l = &r->launcher[i];
        TRY(report_put_call(r, l, alone_of(r, l), &rows->t));
        TABLE_MORE(&rows->t, cell_number(l->direct_us), cell_number(l->subtree_us));
    }
    return OK;
}

Status sheet_ops_by_category(Report *r, Table *out)
{
    static const Fold fold = { .rows = LAUNCHER_ROWS,
                               .keys = "again|loose|category",
                               .by = "direct",
                               .columns =
                                   "op category=first category|?is_recompute=first again|Count=n|"
                                   "total_direct_kernel_time_ms=ms direct|"
                                   "Percentage (%)=share0 direct|"
                                   "Cumulative Percentage (%)=upto0 direct|"
                                   "Percent of total time (%)=share1 direct" };
    return report_fold(r, &fold, fill_launchers, r, out);
}

/* Makes "['elementwise', 'other']": each category once, in the order of their first launchers. */
static Status category_list(const FoldRows *rows, const uint32_t *row, int64_t n, Arena *a,
                            Cell *out)
{
    const char *seen[CATEGORIES_MOST];
    const int column = table_column(&rows->t, "category");
    int categories = 0;
    Text t;
    TRY(text_init(&t, a));
    for (int64_t i = 0; i < n; i++) {
        const char *category = table_at(&rows->t, row[i], column)->text;
        int k = 0;
        while (k < categories && strcmp(seen[k], category) != 0) k++;
        if (k < categories || k == CATEGORIES_MOST) continue;
        seen[categories++] = category;
        TRY(text_printf(&t, i == 0 ? "[" : ", "));
        TRY(python_string(&t, category, strlen(category)));
    }
    TRY(text_printf(&t, "]"));
    *out = cell_text(t.data);
    return OK;
}

/* By name. Calls of one operator may have several categories, which are listed. */
Status sheet_ops_summary(Report *r, Table *out)
{
    static const Fold fold = { .rows = LAUNCHER_ROWS,
                               .keys = "again|name|loose",
                               .by = "direct",
                               .columns = "name=first name|?is_recompute=first again|"
                                          "total_direct_kernel_time_sum=sum direct|"
                                          "total_subtree_kernel_time_sum=sum subtree|"
                                          "total_direct_kernel_time_ms=ms direct|"
                                          "total_subtree_kernel_time_ms=ms subtree|Count=n|"
                                          "Categories=more|Percentage (%)=share0 direct|"
                                          "Cumulative Percentage (%)=upto0 direct|"
                                          "Percent of total time (%)=share1 direct",
                               .more = category_list };
    return report_fold(r, &fold, fill_launchers, r, out);
}

/* ---- kernels by their position among those of a launcher ---- */

/* The kernels at one position of all calls: the durations of one kernel per call. */
typedef struct KernelStats {
    uint32_t event; /* the first call's kernel */
    const char *name;
    Summary s;
} KernelStats;

/* The shortest total first. Ties go by name, then by position in the file. */
static int by_total(const void *a, const void *b)
{
    const KernelStats *x = a, *y = b;
    if (x->s.sum != y->s.sum) return x->s.sum < y->s.sum ? -1 : 1;
    int names = strcmp(x->name, y->name);
    return names != 0 ? names : (x->event > y->event) - (x->event < y->event);
}

/* Writes a Python dict, as TraceLens does. Short: the name is cut, and only the mean is given. */
static Status put_kernel_stats(const Report *r, Text *t, const KernelStats *p, bool full)
{
    static const char *const NAME[] = { "total", "mean", "median", "std_dev", "min", "max" };
    const double value[] = { p->s.sum, p->s.mean, p->s.median, summary_std_all(&p->s),
                             p->s.min, p->s.max };
    size_t n = strlen(p->name);
    int32_t stream = report_stream(r, p->event);
    TRY(text_printf(t, "{'name': "));
    if (full || n <= SHORT_NAME) {
        TRY(python_string(t, p->name, n));
    } else {
        char brief[SHORT_NAME + 4];
        (void)snprintf(brief, sizeof brief, "%.*s...", SHORT_NAME, p->name);
        TRY(python_string(t, brief, strlen(brief)));
    }
    TRY(stream < 0 ? text_printf(t, ", 'stream': None") : text_printf(t, ", 'stream': %d", stream));
    if (!full) {
        TRY(text_printf(t, ", 'mean_duration_us': "));
        TRY(python_float64(t, nearbyint(p->s.mean * 100) / 100));
        return text_printf(t, "}");
    }
    TRY(text_printf(t, ", 'count': %lld", (long long)p->s.n));
    for (int i = 0; i < 6; i++) {
        TRY(text_printf(t, ", '%s_duration_us': ", NAME[i]));
        TRY(python_float64(t, value[i]));
    }
    return text_printf(t, "}");
}

/* Writes a Python list of the kernels, in the order of their totals. */
static Status put_kernel_list(const Report *r, const KernelStats *stats, int64_t n, bool full,
                              Cell *out)
{
    Text t;
    TRY(text_init(&t, r->arena));
    TRY(text_printf(&t, "["));
    for (int64_t i = 0; i < n; i++) {
        if (i > 0) TRY(text_printf(&t, ", "));
        TRY(put_kernel_stats(r, &t, &stats[i], full));
    }
    TRY(text_printf(&t, "]"));
    *out = cell_text(t.data);
    return OK;
}

/* Kernels at one position of all calls are one entry, even if their names differ. The first call's
 * name stands for all. */
Status report_details(const Report *r, const Work *call, int64_t n, Cell *full, Cell *brief)
{
    const uint32_t positions = call[0].n;
    KernelStats *stats = NULL;
    double *dur = NULL;
    TRY(ARENA_NEW(r->arena, positions + 1, &stats));
    TRY(ARENA_NEW(r->arena, n + 1, &dur));
    int64_t m = 0, *alike = NULL;
    TRY(ARENA_NEW(r->arena, n + 1, &alike));
    /* Calls with another number of kernels took another path, and positions would not
     * correspond. */
    for (int64_t i = 0; i < n; i++)
        if (call[i].n == positions) alike[m++] = i;
    for (uint32_t k = 0; k < positions; k++) {
        stats[k].event = call[0].gpu[k];
        stats[k].name = event_name(r->e, stats[k].event);
        for (int64_t i = 0; i < m; i++) dur[i] = r->e->dur[call[alike[i]].gpu[k]];
        TRY(summary_of(dur, NULL, m, r->arena, &stats[k].s));
    }
    qsort(stats, positions, sizeof *stats, by_total);
    TRY(put_kernel_list(r, stats, positions, true, full));
    return put_kernel_list(r, stats, positions, false, brief);
}

/* ---- operators with their arguments ---- */

/* Row i is launcher i: fill_launchers adds them in order. */
static Status launcher_details(const FoldRows *rows, const uint32_t *row, int64_t n, Arena *a,
                               Cell *out)
{
    const Report *r = rows->state;
    Work *call = NULL;
    TRY(ARENA_NEW(a, n, &call));
    for (int64_t i = 0; i < n; i++) {
        const Launcher *l = &r->launcher[row[i]];
        call[i] = (Work){ r->own + l->first, l->n };
    }
    return report_details(r, call, n, &out[0], &out[1]);
}

static Status describe_launcher(const FoldRows *rows, uint32_t row, Table *out)
{
    const Report *r = rows->state;
    const Launcher *l = &r->launcher[row];
    return report_put_rest(r, l, alone_of(r, l), out);
}

/* A statistic of direct and of subtree time. */
#define BOTH(way)                                                                                  \
    "total_direct_kernel_time_" way "=" way " direct|total_subtree_kernel_time_" way "=" way       \
    " subtree|"

/* By name, arguments and thread. Arguments are described once for each group. */
Status sheet_ops_unique_args(Report *r, Table *out)
{
    static const Fold fold = { .rows = LAUNCHER_ROWS,
                               .keys = CALL_KEYS,
                               .by = "direct",
                               .columns =
                                   "name=first name|" CALL_COLUMNS "|operation_count=n|" BOTH(
                                       "mean") BOTH("median") BOTH("std") BOTH("min") BOTH("max")
                                       BOTH("sum") "ex_UID=first uid|"
                                                   "kernel_details_summary=more|trunc_kernel_"
                                                   "details=more|Percentage (%)=share0 direct|"
                                                   "Cumulative Percentage (%)=upto0 direct|Percent "
                                                   "of total time (%)=share1 direct",
                               .more = launcher_details,
                               .described = CALL_REST,
                               .describe = describe_launcher };
    return report_fold(r, &fold, fill_launchers, r, out);
}
