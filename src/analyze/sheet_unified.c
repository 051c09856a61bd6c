/* sheet_unified: all device time once, each by the operator that says most about it: the outermost
 * one whose work is known, else the one that launched it. */
#include "analyze/perf_calls.h"
#include "analyze/report.h"

#include <math.h>
#include <string.h>

/* Something that is listed: an operator with all work below it, or one kernel that no operator that
 * is listed has (`kernel`), by its launcher. */
typedef struct Entry {
    uint32_t event, kernel; /* EVENT_NONE: none */
    const PerfGradient *gradient;
    Work work;
} Entry;

typedef struct Unified {
    Report *r;
    const PerfCalls *p;
    Entry *entry;
    int64_t n, operators; /* entries; those that are operators stand first */
    uint8_t *mark;        /* by event: the bits below */
    uint32_t *gradient;   /* by event: 1 + its row of p->gradient */
    double *host_us, *us, *rate[3];
    double total, before; /* us of all entries; percent of it that has rows */
} Unified;

enum { MODEL = 1, MODEL_BELOW = 2, LAUNCHES = 4, COVERED = 8, EXCHANGES = 16 };

static void mark_all(Unified *u)
{
    const Report *r = u->r;
    for (int64_t i = 0; i < u->p->calls; i++) {
        uint32_t at = u->p->call[i].event;
        u->mark[at] |= MODEL;
        if (perf_work_below(r, at).n == 0) continue;
        for (at = r->tree->parent[at]; at != EVENT_NONE && !(u->mark[at] & MODEL_BELOW);) {
            u->mark[at] |= MODEL_BELOW;
            at = r->tree->parent[at];
        }
    }
    for (int64_t k = 0; k < r->gpus; k++) {
        uint32_t launcher = tree_launcher(r->tree, r->gpu[k]);
        if (launcher == EVENT_NONE) continue;
        bool comm = report_bucket(r, r->gpu[k]) == BUCKET_COMM;
        u->mark[launcher] |= comm ? EXCHANGES : LAUNCHES;
    }
}

static void add(Unified *u, uint32_t event, const PerfGradient *gradient)
{
    const Work w = perf_work_below(u->r, event);
    u->entry[u->n++] = (Entry){ event, EVENT_NONE, gradient, w };
    for (uint32_t i = 0; i < w.n; i++) u->mark[w.gpu[i]] |= COVERED;
}

/* The gradient of a call, if all its device work is below this event. */
static const PerfGradient *sole_gradient(const Unified *u, uint32_t event)
{
    const PerfGradient *all = u->p->gradient, *end = all + u->p->gradients;
    if (u->p->gradients == 0 || u->gradient[event] == 0) return NULL;
    const PerfGradient *g = &all[u->gradient[event] - 1], *at = g;
    while (at > all && at[-1].call == g->call) at--;
    for (; at < end && at->call == g->call; at++)
        if (at != g && perf_work_below(u->r, at->backward).n > 0) return NULL;
    return g;
}

static void visit(Unified *u, uint32_t i)
{
    const Tree *t = u->r->tree;
    const uint8_t mark = u->mark[i];
    if (perf_work_below(u->r, i).n == 0) return;
    bool op = u->r->e->kind[i] == EVENT_CPU_OP;
    if (op && (mark & MODEL)) {
        add(u, i, NULL);
        return;
    }
    if (op && !(mark & MODEL_BELOW)) {
        const PerfGradient *g = sole_gradient(u, i);
        if (g != NULL || ((mark & LAUNCHES) && !(mark & EXCHANGES))) {
            add(u, i, g);
            return;
        }
    }
    for (uint32_t k = t->first[i]; k < t->first[i + 1]; k++)
        if (!event_on_gpu(u->r->e->kind[t->child[k]])) visit(u, t->child[k]);
}

static Status collect(Unified *u)
{
    Report *r = u->r;
    int64_t hosts = 0;
    for (int64_t i = 0; i < r->e->n; i++) hosts += r->e->kind[i] == EVENT_CPU_OP;
    TRY(ARENA_NEW(r->arena, hosts + r->gpus + 1, &u->entry));
    TRY(ARENA_ZEROED(r->arena, r->e->n + 1, &u->mark));
    if (u->p->gradients > 0) TRY(ARENA_ZEROED(r->arena, r->e->n + 1, &u->gradient));
    for (uint32_t i = 0; i < u->p->gradients; i++) u->gradient[u->p->gradient[i].backward] = i + 1;
    mark_all(u);
    for (int64_t k = 0; k < r->tree->roots; k++) visit(u, r->tree->root[k]);
    u->operators = u->n;
    for (int64_t k = 0; k < r->gpus; k++) {
        uint32_t i = r->gpu[k], launcher = tree_launcher(r->tree, i);
        if ((u->mark[i] & COVERED) || report_bucket(r, i) == BUCKET_COMM) continue;
        u->entry[u->n++] = (Entry){ launcher, i, NULL, { &r->gpu[k], 1 } };
    }
    return OK;
}

static const PerfRow *row_of(const Unified *u, const Entry *x, double *flops, double *bytes)
{
    const PerfRow *row =
        x->kernel != EVENT_NONE || x->event == EVENT_NONE ? NULL : perf_calls_find(u->p, x->event);
    if (x->gradient != NULL) row = &u->p->row[u->p->call[x->gradient->call].row];
    *flops = *bytes = NAN;
    if (row == NULL || row->p.sheet == NULL) return NULL;
    *flops = x->gradient == NULL ? row->p.flops : row->p.backward_flops;
    *bytes = x->gradient == NULL ? row->p.bytes : row->p.backward_bytes;
    return row;
}

static Status measure(Unified *u)
{
    Report *r = u->r;
    TRY(ARENA_NEW(r->arena, u->n + 1, &u->host_us));
    TRY(ARENA_NEW(r->arena, u->n + 1, &u->us));
    for (int k = 0; k < 3; k++) TRY(ARENA_NEW(r->arena, u->n + 1, &u->rate[k]));
    for (int64_t i = 0; i < u->n; i++) {
        const Entry *x = &u->entry[i];
        double flops, bytes;
        const PerfRow *p = row_of(u, x, &flops, &bytes);
        PerfRates rate;
        TRY(report_busy(r, x->work.gpu, x->work.n, &u->us[i]));
        u->total += u->us[i];
        u->host_us[i] = x->event == EVENT_NONE ? (double)NAN : r->e->dur[x->event];
        perf_rates(u->p, flops, bytes, p == NULL ? NULL : p->p.spec, u->us[i], &rate);
        u->rate[0][i] = rate.tb_s;
        u->rate[1][i] = rate.tflops;
        u->rate[2][i] = rate.roofline_percent;
    }
    return OK;
}

/* An operator's kind is told by the first kernel that it launched itself, if it did. */
static uint32_t first_kernel(const Unified *u, const Entry *x)
{
    for (uint32_t i = 0; i < x->work.n && (u->mark[x->event] & LAUNCHES); i++)
        if (tree_launcher(u->r->tree, x->work.gpu[i]) == x->event) return x->work.gpu[i];
    return x->work.gpu[0];
}

static Launcher launcher_of(const Unified *u, const Entry *x)
{
    uint32_t first = x->event == EVENT_NONE ? x->kernel : first_kernel(u, x);
    return report_launcher(u->r, x->event, first);
}

static Status group(const Unified *u, Groups *g)
{
    enum { KEYS = 9 };
    const Report *r = u->r;
    uint32_t *key = NULL;
    TRY(ARENA_ZEROED(r->arena, u->n * KEYS + 1, &key));
    for (int64_t i = 0; i < u->n; i++) {
        const Entry *x = &u->entry[i];
        const Launcher l = launcher_of(u, x);
        uint32_t *k = key + i * KEYS;
        uint64_t category = (uintptr_t)l.category; /* a text of the table of categories */
        k[0] = x->event == EVENT_NONE ? EVENT_NONE : r->e->name[x->event];
        k[1] = x->kernel == EVENT_NONE ? EVENT_NONE : r->e->name[x->kernel];
        k[2] = l.args;
        k[3] = (uint32_t)category;
        k[4] = (uint32_t)(category >> 32);
        k[5] = l.recompute && r->o->recompute;
        if (x->event == EVENT_NONE) continue;
        const Track *t = &r->e->tracks[r->e->track[x->event]];
        k[6] = t->process_name;
        k[7] = t->process_label;
        k[8] = t->thread_name;
    }
    return groups_ranked(key, KEYS, u->us, u->n, r->arena, g);
}

/* ---- the sheet ---- */

static Status entry_name(const Unified *u, const Entry *x, Cell *out)
{
    Text t;
    const Events *e = u->r->e;
    const char *op = x->event == EVENT_NONE ? "(unlinked)" : event_name(e, x->event);
    if (x->kernel == EVENT_NONE) {
        *out = cell_text(op);
        return OK;
    }
    TRY(text_init(&t, u->r->arena));
    TRY(text_printf(&t, "%s->%s (Synthetic Op)", op, event_name(e, x->kernel)));
    *out = cell_text(t.data);
    return OK;
}

static void put_numbers(Table *out, const double *x, int n)
{
    for (int i = 0; i < n; i++) TABLE_MORE(out, cell_number(x[i]));
}
#define NUMBERS(out, ...)                                                                          \
    put_numbers((out), (const double[]){ __VA_ARGS__ },                                            \
                (int)(sizeof((const double[]){ __VA_ARGS__ }) / sizeof(double)))

static Status put_group(Unified *u, const uint32_t *row, int64_t n, Table *out)
{
    Report *r = u->r;
    const Entry *x = &u->entry[row[0]];
    const Launcher l = launcher_of(u, x);
    double flops, bytes;
    const PerfRow *p = row_of(u, x, &flops, &bytes);
    PerfRates rate;
    Summary host, us, s[3];
    Cell full, brief, name;
    Work *work = NULL;
    TRY(ARENA_NEW(r->arena, n, &work));
    for (int64_t i = 0; i < n; i++) work[i] = u->entry[row[i]].work;
    TRY(report_details(r, work, n, &full, &brief));
    TRY(perf_known(r, u->host_us, row, n, &host));
    TRY(summary_of(u->us, row, n, r->arena, &us));
    for (int k = 0; k < 3; k++) TRY(perf_known(r, u->rate[k], row, n, &s[k]));
    perf_rates(u->p, flops, bytes, p == NULL ? NULL : p->p.spec, u->us[row[0]], &rate);
    TRY(entry_name(u, x, &name));
    TRY(report_put_op(r, name, &l, out));
    uint32_t event = x->kernel == EVENT_NONE ? x->event : x->kernel;
    TABLE_MORE(out, cell_whole(r->e->index[event]), cell_whole(n));
    NUMBERS(out, host.sum, host.mean, host.std, rate.gflops, rate.mb, rate.intensity);
    TABLE_MORE(out, cell_text(p == NULL ? NULL : p->p.spec), cell_text(rate.bound));
    NUMBERS(out, s[0].mean, s[0].std, s[1].mean, s[1].std, us.mean, us.std, us.sum);
    NUMBERS(out, host.median, host.min, host.max, s[0].median, s[0].min, s[0].max);
    NUMBERS(out, s[1].median, s[1].min, s[1].max, us.median, us.min, us.max);
    NUMBERS(out, rate.roofline_us, s[2].mean, s[2].median, s[2].std, s[2].min, s[2].max);
    u->before += report_percent(us.sum, u->total);
    TABLE_MORE(out, full, brief, cell_text(p == NULL ? NULL : p->text), cell_bool(p != NULL),
               cell_number(report_percent(us.sum, u->total)), cell_number(u->before),
               x->kernel == EVENT_NONE ? cell_none() : cell_whole(x - u->entry - u->operators));
    return OK;
}

Status sheet_unified(Report *r, Table *out)
{
    Unified u = { .r = r };
    Groups g;
    TRY(perf_calls(r, &u.p));
    TRY(collect(&u));
    TRY(measure(&u));
    TRY(group(&u, &g));
    TRY(sheet_columns(
        r,
        "name|op category|process_name|process_label|thread_name|Input Dims|Input type|"
        "Input Strides|Concrete Inputs|?is_recompute|ex_UID|operation_count|total_duration_us|"
        "mean_duration_us|std_duration_us|GFLOPS|Data Moved (MB)|FLOPS/Byte|Compute Spec|"
        "Roofline Bound|TB/s_mean|TB/s_std|TFLOPS/s_mean|TFLOPS/s_std|Kernel Time (µs)_mean|"
        "Kernel Time (µs)_std|Kernel Time (µs)_sum|duration_us_median|duration_us_min|"
        "duration_us_max|TB/s_median|TB/s_min|TB/s_max|TFLOPS/s_median|TFLOPS/s_min|TFLOPS/s_max|"
        "Kernel Time (µs)_median|Kernel Time (µs)_min|Kernel Time (µs)_max|"
        "Roofline Time (µs)_first|Pct Roofline_mean|Pct Roofline_median|Pct Roofline_std|"
        "Pct Roofline_min|Pct Roofline_max|kernel_details_summary|trunc_kernel_details|"
        "perf_params|has_perf_model|Percentage (%)|Cumulative Percentage (%)|.kernel",
        out));
    for (int64_t k = 0; k < g.n; k++) {
        int64_t n = 0;
        const uint32_t *row = groups_rows(&g, k, &n);
        TRY(put_group(&u, row, n, out));
    }
    return OK;
}
