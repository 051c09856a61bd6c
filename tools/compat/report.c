/* compat/report: TraceLens' sheets of one trace, from ours. TraceLens looks at less device work in
 * some sheets and at more in others. So each sheet is made of a report with the work that TraceLens
 * looks at. Then columns and cells are rewritten. */
#include "compat/compat.h"
#include "traces/sheets/perf_calls.h"

#include <string.h>

/* TraceLens links by the profiler's arrows, drops calls that end after their caller, and knows fewer
 * kernels of collectives. */
void compat_options(TreeOptions *tree, ReportOptions *report, bool unlinked)
{
    tree->link = LINK_AC2G;
    tree->drop_crossing = true;
    if (report == NULL) return;
    report->linked_only = !unlinked;
    report->movers = compat_collective_rules.movers;
}

/* ---- which device work a sheet looks at ---- */

/* Does a sheet look at this device event? */
typedef bool TakesWork(const Report *r, uint32_t event);

/* Operators are measured by what they launch, without exchanges. */
static bool is_launched_work(const Report *r, uint32_t event)
{
    return tree_launcher(r->tree, event) != EVENT_NONE && report_bucket(r, event) != BUCKET_COMM;
}

static bool is_launched(const Report *r, uint32_t event)
{
    return tree_launcher(r->tree, event) != EVENT_NONE;
}

static bool takes_any(const Report *r, uint32_t event)
{
    (void)r;
    (void)event;
    return true;
}

/* A collective counts if its kernel says all about it, and has a correlation or External id. */
static bool is_whole_collective(const Report *r, uint32_t event)
{
    const Events *e = r->e;
    uint32_t detail = e->detail[event];
    uint32_t row = detail == EVENT_NONE ? EVENT_NONE : e->gpu[detail].collective;
    if (row == EVENT_NONE || (e->link[event] < 0 && e->external[event] < 0)) return false;
    const Collective *c = &e->collectives[row];
    return c->name != 0 && c->dtype != 0 && c->in_split != 0 && c->out_split != 0 &&
           c->group != 0 && c->ranks != 0 && c->in_elements >= 0 && c->out_elements >= 0 &&
           c->group_size >= 0;
}

/* Copies the report with the device work that is taken: of the work that counts, or (all) of the
 * whole trace in the order of the file. The copy shares all else with r. */
static Status take_work(const Report *r, bool all, TakesWork *takes, Report *out)
{
    const int64_t n = all ? r->e->n : r->gpus;
    uint32_t *gpu = NULL;
    int64_t taken = 0;
    TRY(ARENA_NEW(r->arena, n + 1, &gpu));
    for (int64_t k = 0; k < n; k++) {
        uint32_t i = all ? (uint32_t)k : r->gpu[k];
        if (event_on_gpu(r->e->kind[i]) && takes(r, i)) gpu[taken++] = i;
    }
    *out = *r;
    out->gpu = gpu;
    out->gpus = taken;
    return OK;
}

/* Makes launchers and the work of operators as TraceLens counts them. Without a chosen step,
 * kernels have operators only if the trace has any operator at all. */
static Status prepare_report(Report *r)
{
    static const PerfChoice how = { .rules = &compat_perf_rules, .idle = true, .mb = 1048576 };
    Report launched;
    for (int64_t i = 0; i < r->e->n && r->o->step < 0; i++) {
        if (i == 0) r->operators = false;
        r->operators |= r->e->kind[i] == EVENT_CPU_OP;
    }
    TRY(take_work(r, false, is_launched_work, &launched));
    TRY(report_launchers(r, launched.gpu, launched.gpus));
    return perf_calls_make(r, &how);
}

/* ---- rewriting ---- */

/* An operator that launches exchanges gets the category that its name says. */
static void rewrite_categories(Table *t, const char *category, const char *name)
{
    int at = table_column(t, category), from = table_column(t, name);
    for (int64_t i = 0; i < t->rows && at >= 0 && from >= 0; i++) {
        Cell *c = table_at(t, i, at);
        const Cell *op = table_at(t, i, from);
        bool exchange = c->type == CELL_TEXT && strcmp(c->text, "record_param_comms") == 0;
        if (exchange && op->type == CELL_TEXT) *c = cell_text(perf_category(op->text, NULL));
    }
}

static Status rewrite_kernels(const Report *r, Table *t)
{
    (void)r;
    rewrite_categories(t, "Parent op category", "Parent cpu_op");
    return OK;
}

/* Kernels without arguments of an operator have no row where others have one. */
static Status rewrite_short(const Report *r, Table *t)
{
    static const char *const SHAPES[] = { "Input dims", "Input strides", "Concrete Inputs" };
    bool *keep = NULL;
    if (!r->operators || t->rows == 0) return OK;
    TRY(ARENA_ZEROED(r->arena, t->rows, &keep));
    for (int64_t i = 0; i < t->rows; i++) {
        for (int k = 0; k < 3; k++)
            keep[i] |= table_at(t, i, table_column(t, SHAPES[k]))->type != CELL_NONE;
    }
    table_filter(t, keep);
    return OK;
}

/* TraceLens reads one trace at a time and calls it rank 0. */
static Status rewrite_collectives(const Report *r, Table *t)
{
    (void)r;
    int rank = table_column(t, "rank");
    for (int64_t i = 0; i < t->rows; i++) *table_at(t, i, rank) = cell_whole(0);
    return table_drop(t, "Library");
}

static Status rewrite_ops(const Report *r, Table *t)
{
    (void)r;
    return table_drop(t, "Percent of total time (%)");
}

/* A shape that another operator of the sheet has, and this one lacks, is printed as "nan" by
 * pandas. */
static Status rewrite_perf(const Report *r, Table *t)
{
    (void)r;
    for (int k = 0; k < t->columns; k++) {
        bool shape = text_ends(t->column[k], "put_shape"); /* of input and output */
        for (int64_t i = 0; i < t->rows && shape; i++) {
            Cell *c = table_at(t, i, k);
            if (c->type == CELL_NONE) *c = cell_text("nan");
        }
    }
    return table_drop(t, "Roofline Time (µs)_first|Roofline Bound_first|Pct Roofline_mean|"
                         "Pct Roofline_median|Pct Roofline_std|Pct Roofline_min|Pct Roofline_max");
}

/* Kernels that stand alone get numbers after those of the trace's events. */
static Status rewrite_unified(const Report *r, Table *t)
{
    int uid = table_column(t, "ex_UID"), kernel = table_column(t, REPORT_HIDDEN);
    rewrite_categories(t, "op category", "name");
    for (int64_t i = 0; i < t->rows; i++) {
        const Cell *nth = table_at(t, i, kernel);
        if (nth->type == CELL_WHOLE)
            *table_at(t, i, uid) = cell_whole(r->e->counts.seen + nth->whole);
    }
    return table_drop(
        t, "Roofline Bound|Roofline Time (µs)_first|Pct Roofline_mean|"
           "Pct Roofline_median|Pct Roofline_std|Pct Roofline_min|Pct Roofline_max|" REPORT_HIDDEN);
}

/* ---- sheets ---- */

/* How a sheet differs. takes: the device work that it looks at; NULL: what counts in the report.
 * all: it chooses from the whole trace. */
typedef struct Difference {
    MakeSheet *make;
    TakesWork *takes;
    bool all;
    Status (*rewrite)(const Report *r, Table *t);
} Difference;

static const Difference DIFFERENCES[] = {
    { sheet_ops_by_category, NULL, false, rewrite_ops },
    { sheet_ops_summary, NULL, false, rewrite_ops },
    { sheet_ops_unique_args, NULL, false, rewrite_ops },
    { sheet_kernel_summary, takes_any, true, rewrite_kernels },
    { sheet_short_histogram, takes_any, true, NULL },
    { sheet_short_summary, takes_any, true, rewrite_short },
    { sheet_coll_analysis, is_whole_collective, true, rewrite_collectives },
    { sheet_perf, NULL, false, rewrite_perf },
    { sheet_unified, is_launched, false, rewrite_unified },
};

/* Sheets that TraceLens does not have. */
static const char NOT_THEIRS[] =
    "gpu_timeline_by_step|idle_by_cause|idle_by_operator|idle_gaps|launch_delays|sync_delays|"
    "memory_summary|not_known_as_communication";

static Status make_sheet(const Sheet *s, Report *r, Table *t)
{
    static const Difference none = { 0 };
    const Difference *d = &none;
    Report other;
    if (text_word_index(NOT_THEIRS, s->name) >= 0) return OK;
    for (size_t i = 0; i < sizeof DIFFERENCES / sizeof *DIFFERENCES; i++)
        if (DIFFERENCES[i].make == s->make) d = &DIFFERENCES[i];
    if (d->takes != NULL) TRY(take_work(r, d->all && r->o->step < 0, d->takes, &other));
    TRY(s->make(d->takes == NULL ? r : &other, t));
    return t->columns == 0 || d->rewrite == NULL ? OK : d->rewrite(r, t);
}

Status compat_tables(Report *r, Table *out, int *n)
{
    TRY(prepare_report(r));
    return report_sheets_by(r, make_sheet, out, n);
}
