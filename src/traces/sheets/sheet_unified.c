/*
 * sheet_unified: all device time except exchanges, each piece once.
 *
 * A piece of work belongs to the outermost operator whose work is known (perf.h), because that
 * tells most about it. If there is none, it belongs to the operator that launched it. From the
 * roots down (visit_call), an operator that is listed gets all device work below it.
 *
 * Times of exchanges are in coll_analysis (sheet_collectives.c).
 */
#include "traces/sheets/perf_calls.h"
#include "traces/sheets/report.h"

#include <math.h>

/* An entry is an operator with all work below it, or a kernel that no listed operator has, with its
 * launcher. */
typedef struct Entry {
    uint32_t event;  /* the operator or launcher; EVENT_NONE: the launch is not in the trace */
    uint32_t kernel; /* EVENT_NONE: the entry is an operator */
    const PerfGradient *gradient;
    Work work;
} Entry;

/* The entries, and what is known of each event. */
typedef struct Unified {
    Report *r;
    const PerfCalls *p;
    Entry *entry;
    int64_t n, operators; /* entries; those that are operators come first */
    uint8_t *mark;        /* mark[event]: the bits below */
    uint32_t *gradient;   /* gradient[event]: its row of p->gradient + 1; 0: it is no gradient */
} Unified;

enum {
    MODEL = 1,       /* its work is known */
    MODEL_BELOW = 2, /* the work of a call below it is known */
    LAUNCHES = 4,    /* launches computation or copies itself */
    COVERED = 8,     /* device work that belongs to a listed operator */
    EXCHANGES = 16   /* launches exchanges itself */
};

/* Marks operators whose work is known, the calls above them, and who launches what. The walk upward
 * stops at a mark, so it is linear in all. */
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

/* Adds an operator, and marks the device work below it as covered. */
static void list_operator(Unified *u, uint32_t event, const PerfGradient *gradient)
{
    const Work w = perf_work_below(u->r, event);
    u->entry[u->n++] = (Entry){ event, EVENT_NONE, gradient, w };
    for (uint32_t i = 0; i < w.n; i++) u->mark[w.gpu[i]] |= COVERED;
}

/* Returns the gradient that autograd runs in this event, if the other gradients of the same call
 * have no device work. Otherwise the work of the model would be counted for a part of it. */
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

/* Lists the operator, or visits what it calls. Device work below a listed operator is covered. */
static void visit_call(Unified *u, uint32_t i)
{
    const Tree *t = u->r->tree;
    const uint8_t mark = u->mark[i];
    if (perf_work_below(u->r, i).n == 0) return;
    bool op = u->r->e->kind[i] == EVENT_CPU_OP;
    if (op && (mark & MODEL)) {
        list_operator(u, i, NULL);
        return;
    }
    if (op && !(mark & MODEL_BELOW)) {
        const PerfGradient *g = sole_gradient(u, i);
        if (g != NULL || ((mark & LAUNCHES) && !(mark & EXCHANGES))) {
            list_operator(u, i, g);
            return;
        }
    }
    for (uint32_t k = t->first[i]; k < t->first[i + 1]; k++)
        if (!event_on_gpu(u->r->e->kind[t->child[k]])) visit_call(u, t->child[k]);
}

/* Walks all threads, then lists the kernels that no operator covers. Exchanges are not listed,
 * since their time is waiting as much as work. */
static Status collect_entries(Unified *u)
{
    Report *r = u->r;
    int64_t hosts = 0;
    for (int64_t i = 0; i < r->e->n; i++) hosts += r->e->kind[i] == EVENT_CPU_OP;
    TRY(ARENA_NEW(r->arena, hosts + r->gpus + 1, &u->entry));
    TRY(ARENA_ZEROED(r->arena, r->e->n + 1, &u->mark));
    if (u->p->gradients > 0) TRY(ARENA_ZEROED(r->arena, r->e->n + 1, &u->gradient));
    for (uint32_t i = 0; i < u->p->gradients; i++) u->gradient[u->p->gradient[i].backward] = i + 1;
    mark_all(u);
    for (int64_t k = 0; k < r->tree->roots; k++) visit_call(u, r->tree->root[k]);
    u->operators = u->n;
    for (int64_t k = 0; k < r->gpus; k++) {
        uint32_t i = r->gpu[k], launcher = tree_launcher(r->tree, i);
        if ((u->mark[i] & COVERED) || report_bucket(r, i) == BUCKET_COMM) continue;
        u->entry[u->n++] = (Entry){ launcher, i, NULL, { &r->gpu[k], 1 } };
    }
    return OK;
}

/* The operations and bytes of an entry; NULL: they are not known. */
static const PerfRow *work_of(const Unified *u, const Entry *x, double *flops, double *bytes)
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

/* The kernel that decides an operator's category: the first that it launched itself, else the first
 * below it. */
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

/* whole[0] is the sum over entries, so percentages add up to 100. */
static Status fill_entries(Report *r, FoldRows *rows)
{
    const Unified *u = rows->state;
    rows->whole[0] = 0;
    for (int64_t i = 0; i < u->n; i++) {
        const Entry *x = &u->entry[i];
        const Launcher l = launcher_of(u, x);
        double flops, bytes, us = 0;
        const PerfRow *p = work_of(u, x, &flops, &bytes);
        TRY(report_busy(r, x->work.gpu, x->work.n, &us));
        rows->whole[0] += us;
        TRY(report_put_call(r, &l, x->kernel, &rows->t));
        TABLE_MORE(&rows->t,
                   cell_number(x->event == EVENT_NONE ? (double)NAN : r->e->dur[x->event]));
        perf_put_rates(u->p, flops, bytes, p == NULL ? NULL : p->p.spec, us, &rows->t);
    }
    return OK;
}

/* The cells with `more`: the entry's name, and its kernels by position, in full and short. */
static Status name_entry(const FoldRows *rows, const uint32_t *row, int64_t n, Arena *a, Cell *out)
{
    const Unified *u = rows->state;
    const Entry *x = &u->entry[row[0]];
    Work *work = NULL;
    Text t;
    out[0] = *table_at(&rows->t, row[0], 0);
    if (x->kernel != EVENT_NONE) {
        TRY(text_init(&t, a));
        TRY(text_printf(&t, "%s->%s (Synthetic Op)", out[0].text, event_name(u->r->e, x->kernel)));
        out[0] = cell_text(t.data);
    }
    TRY(ARENA_NEW(a, n, &work));
    for (int64_t i = 0; i < n; i++) work[i] = u->entry[row[i]].work;
    return report_details(u->r, work, n, &out[1], &out[2]);
}

static Status describe_entry(const FoldRows *rows, uint32_t row, Table *out)
{
    const Unified *u = rows->state;
    const Entry *x = &u->entry[row];
    const Launcher l = launcher_of(u, x);
    double flops, bytes;
    const PerfRow *p = work_of(u, x, &flops, &bytes);
    TRY(report_put_rest(u->r, &l, x->kernel, out));
    TABLE_MORE(out, x->kernel == EVENT_NONE ? cell_none() : cell_whole((int64_t)row - u->operators),
               cell_text(p == NULL ? NULL : p->text), cell_bool(p != NULL));
    perf_put_work(u->p, flops, bytes, p == NULL ? NULL : p->p.spec, out);
    return OK;
}

/* Columns marked `more` come from name_entry, in their order: name, details, short details. */
Status sheet_unified(Report *r, Table *out)
{
    static const Fold fold = {
        .rows = CALL_KEYS "|host|" PERF_RATE_ROWS,
        .keys = CALL_KEYS,
        .by = "us",
        .columns =
            "name=more|" CALL_COLUMNS "|ex_UID=first uid|operation_count=n|"
            "total_duration_us=sum host|mean_duration_us=mean host|std_duration_us=std host|"
            "GFLOPS=first gflops|Data Moved (MB)=first mb|FLOPS/Byte=first intensity|"
            "Compute Spec=first spec|Roofline Bound=first bound|TB/s_*=mean,std tb|"
            "TFLOPS/s_*=mean,std tflops|Kernel Time (µs)_*=mean,std,sum us|"
            "duration_us_*=median,min,max host|TB/s_*=median,min,max tb|"
            "TFLOPS/s_*=median,min,max tflops|Kernel Time (µs)_*=median,min,max us|"
            "Roofline Time (µs)_first=first roofline|"
            "Pct Roofline_*=mean,median,std,min,max percent|kernel_details_summary=more|"
            "trunc_kernel_details=more|perf_params=first params|has_perf_model=first model|"
            "Percentage (%)=share0 us|Cumulative Percentage (%)=upto0 us|.kernel=first nth kernel",
        .more = name_entry,
        .described = CALL_REST "|nth kernel|params|model|" PERF_WORK_ROWS,
        .describe = describe_entry
    };
    Unified u = { .r = r };
    TRY(perf_calls(r, &u.p));
    TRY(collect_entries(&u));
    return report_fold(r, &fold, fill_entries, &u, out);
}
