/* diff_report: where two traces differ in time, from their matched trees. */
#include "analyze/diff.h"
#include "analyze/spans.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { KEYS = 6 };

/* Device work of one side under one matched operator. */
typedef struct Work {
    uint32_t owner, event; /* node; event */
    int side;
    double ts;
} Work;

typedef struct Measure {
    double sum, busy, host;
    int64_t kernels;
} Measure;

/* A call, or all of one key: what stands in a row. */
typedef struct Entry {
    uint32_t key[KEYS];
    uint32_t node;
    int64_t calls;
    Measure of[DIFF_SIDES];
} Entry;

typedef struct Report {
    const Diff *d;
    Arena *a, *scratch;
    Work *work;
    int64_t works;
    Entry *entry;
    int64_t entries;
    Strings kernels; /* lists of names */
    double matched[DIFF_SIDES], unmatched[DIFF_SIDES];
} Report;

static const Events *events(const Report *r, int side) { return r->d->tree[side]->events; }

static bool is_op(const Report *r, int side, uint32_t event)
{
    return event != EVENT_NONE && events(r, side)->kind[event] == EVENT_CPU_OP;
}

/* ---- device work by the matched operator above it, or the matched root ---- */

static int by_owner(const void *a, const void *b)
{
    const Work *x = a, *y = b;
    if (x->owner != y->owner) return x->owner < y->owner ? -1 : 1;
    if (x->side != y->side) return x->side - y->side;
    if (x->ts != y->ts) return x->ts < y->ts ? -1 : 1;
    return (x->event > y->event) - (x->event < y->event);
}

static Status find_owners(Report *r)
{
    const Diff *d = r->d;
    uint32_t *owner = NULL;
    TRY(ARENA_NEW(r->scratch, d->nodes, &owner));
    TRY(ARENA_NEW(r->scratch, 2 * d->nodes, &r->work));
    for (int64_t id = 0; id < d->nodes; id++) {
        const DiffNode *n = &d->node[id];
        owner[id] = n->parent == EVENT_NONE ? EVENT_NONE : owner[n->parent];
        bool both = n->event[DIFF_OLD] != EVENT_NONE && n->event[DIFF_NEW] != EVENT_NONE;
        if (both && n->parent == EVENT_NONE) owner[id] = (uint32_t)id;
        if (is_op(r, DIFF_OLD, n->event[DIFF_OLD]) && is_op(r, DIFF_NEW, n->event[DIFF_NEW]))
            owner[id] = (uint32_t)id;
        for (int s = 0; s < DIFF_SIDES; s++) {
            uint32_t e = n->event[s];
            if (e == EVENT_NONE || !event_on_gpu(events(r, s)->kind[e])) continue;
            r->work[r->works++] = (Work){ owner[id], e, s, events(r, s)->ts[e] };
            if (owner[id] == EVENT_NONE) r->unmatched[s] += events(r, s)->dur[e];
        }
    }
    if (r->works > 0) qsort(r->work, (size_t)r->works, sizeof *r->work, by_owner);
    return OK;
}

/* Adds an event that starts no earlier than those before; *end: of what is busy so far. */
static void add_event(const Events *e, uint32_t event, Measure *m, double *end)
{
    double start = fmax(e->ts[event], *end), stop = event_end(e, event);
    m->kernels++;
    m->sum += e->dur[event];
    if (stop > start) m->busy += stop - start;
    *end = fmax(*end, stop);
}

/* Are the names of both sides the same, in any order? */
static Status same_kernels(Report *r, const Work *w, const int64_t n[DIFF_SIDES], bool *same)
{
    ArenaMark mark = arena_mark(r->scratch);
    uint32_t *name[DIFF_SIDES] = { NULL };
    *same = n[DIFF_OLD] == n[DIFF_NEW];
    for (int s = 0; s < DIFF_SIDES && *same; s++) {
        TRY(ARENA_NEW(r->scratch, n[s], &name[s]));
        for (int64_t i = 0; i < n[s]; i++) name[s][i] = diff_name(r->d, s, w[i].event, false);
        w += n[s];
        sort_ids(name[s], n[s]);
    }
    if (*same) *same = memcmp(name[0], name[1], (size_t)n[DIFF_OLD] * sizeof **name) == 0;
    arena_release(r->scratch, mark);
    return OK;
}

static Status list_kernels(Report *r, const Work *w, int64_t n, uint32_t *out)
{
    ArenaMark mark = arena_mark(r->scratch);
    Text t = { 0 };
    TRY(text_init(&t, r->scratch));
    TRY(text_append(&t, "", 0));
    for (int64_t i = 0; i < n; i++)
        TRY(text_printf(&t, "%s%s", i > 0 ? "; " : "", event_name(events(r, w->side), w[i].event)));
    TRY(strings_id(&r->kernels, t.data, t.used, out));
    arena_release(r->scratch, mark);
    return OK;
}

static Status measure_owner(Report *r, const Work *w, const int64_t n[DIFF_SIDES])
{
    Entry *x = &r->entry[r->entries++];
    const Work *first[DIFF_SIDES] = { w, w + n[DIFF_OLD] };
    bool same = true;
    *x = (Entry){ .node = w->owner, .calls = 1 };
    for (int s = 0; s < DIFF_SIDES; s++) {
        uint32_t op = r->d->node[w->owner].event[s];
        double end = -INFINITY;
        for (int64_t i = 0; i < n[s]; i++)
            add_event(events(r, s), first[s][i].event, &x->of[s], &end);
        x->of[s].host = events(r, s)->dur[op];
        x->key[s] = events(r, s)->name[op];
        x->key[2 + s] = event_args(events(r, s), op);
        r->matched[s] += x->of[s].sum;
    }
    TRY(same_kernels(r, w, n, &same));
    for (int s = 0; s < DIFF_SIDES && !same; s++)
        TRY(list_kernels(r, first[s], n[s], &x->key[4 + s]));
    return OK;
}

static Status measure_owners(Report *r)
{
    TRY(ARENA_NEW(r->scratch, r->works, &r->entry));
    for (int64_t i = 0, end; i < r->works && r->work[i].owner != EVENT_NONE; i = end) {
        int64_t n[DIFF_SIDES] = { 0 };
        for (end = i; end < r->works && r->work[end].owner == r->work[i].owner; end++)
            n[r->work[end].side]++;
        TRY(measure_owner(r, r->work + i, n));
    }
    return OK;
}

/* ---- rows ---- */

static int by_key(const void *a, const void *b)
{
    const Entry *x = a, *y = b;
    for (int i = 0; i < KEYS; i++) {
        if (x->key[i] != y->key[i]) return x->key[i] < y->key[i] ? -1 : 1;
    }
    return (x->node > y->node) - (x->node < y->node);
}

static double change(const Entry *x) { return x->of[DIFF_NEW].busy - x->of[DIFF_OLD].busy; }

static int by_change(const void *a, const void *b)
{
    const Entry *x = a, *y = b;
    double i = fabs(change(x)), j = fabs(change(y));
    if (i != j) return i > j ? -1 : 1;
    return (x->node > y->node) - (x->node < y->node);
}

/* Entries with the same keys, of those in use, become one, the largest change first. */
static void merge_entries(Entry *x, int64_t *n, const bool use[KEYS])
{
    int64_t groups = 0;
    for (int64_t i = 0; i < *n; i++) {
        for (int k = 0; k < KEYS; k++) x[i].key[k] = use[k] ? x[i].key[k] : 0;
    }
    if (*n > 0) qsort(x, (size_t)*n, sizeof *x, by_key);
    for (int64_t i = 0; i < *n; i++) {
        Entry *to = &x[groups - 1];
        if (groups == 0 || memcmp(to->key, x[i].key, sizeof to->key) != 0) {
            x[groups++] = x[i];
            continue;
        }
        to->calls += x[i].calls;
        for (int s = 0; s < DIFF_SIDES; s++) {
            to->of[s].sum += x[i].of[s].sum;
            to->of[s].busy += x[i].of[s].busy;
            to->of[s].host += x[i].of[s].host;
            to->of[s].kernels += x[i].of[s].kernels;
        }
    }
    *n = groups;
    if (groups > 0) qsort(x, (size_t)groups, sizeof *x, by_change);
}

static Cell ratio(double old, double new)
{
    return old > 0 && new > 0 ? cell_number(old / new) : cell_none();
}

/* What time columns say, in all three sheets. */
#define TIMES                                                                                      \
    "|calls|kernels_old|kernels_new|kernel_time_old|kernel_time_new|busy_time_old|busy_time_new|"  \
    "delta_us (new - old)|speedup (old/new)|host_time_old|host_time_new"

static void put_times(Table *t, const Entry *x)
{
    const Measure *old = &x->of[DIFF_OLD], *new = &x->of[DIFF_NEW];
    TABLE_MORE(t, cell_whole(x->calls), cell_whole(old->kernels), cell_whole(new->kernels),
               cell_number(old->sum), cell_number(new->sum), cell_number(old->busy),
               cell_number(new->busy), cell_number(change(x)), ratio(old->busy, new->busy),
               cell_number(old->host), cell_number(new->host));
}

/* Sizes, types and values of both sides' arguments; values of the old one are enough. */
static void put_args(const Report *r, const Entry *x, Table *t)
{
    Cell text[DIFF_SIDES][3] = { { { 0 } } };
    for (int s = 0; s < DIFF_SIDES; s++) {
        const Events *e = events(r, s);
        uint32_t row = event_args(e, r->d->node[x->node].event[s]);
        if (row == EVENT_NONE) continue;
        const uint32_t id[] = { e->args[row].dims, e->args[row].types, e->args[row].concrete };
        for (int i = 0; i < 3; i++) text[s][i] = cell_text(strings_text(&e->strings, id[i]));
    }
    TABLE_MORE(t, text[DIFF_OLD][0], text[DIFF_NEW][0], text[DIFF_OLD][1], text[DIFF_NEW][1],
               text[DIFF_OLD][2]);
}

static Status put_kernels(const Report *r, const Entry *x, Table *t)
{
    for (int s = 0; s < DIFF_SIDES; s++) {
        const char *names = strings_text(&r->kernels, x->key[4 + s]);
        TRY(arena_text(r->a, names, strlen(names), &names));
        TABLE_MORE(t, cell_text(names));
    }
    return OK;
}

/* DIFF_OPS, DIFF_ARGS and DIFF_KERNELS are the same calls by other keys. */
static Status ops_sheet(Report *r, DiffSheet sheet, Table *t)
{
    static const struct {
        const char *name, *columns;
        bool use[KEYS];
    } form[] = {
        [DIFF_OPS] = { "diff_ops", "name_old|name_new" TIMES, { 1, 1 } },
        [DIFF_ARGS] = { "diff_unique_args",
                        "name_old|name_new|Input Dims_old|Input Dims_new|Input type_old|"
                        "Input type_new|Concrete Inputs" TIMES,
                        { 1, 1, 1, 1 } },
        [DIFF_KERNELS] = { "diff_kernels",
                           "name_old|name_new|kernel_names_old|kernel_names_new" TIMES,
                           { 1, 1, 0, 0, 1, 1 } },
    };
    ArenaMark mark = arena_mark(r->scratch);
    Entry *x = NULL;
    int64_t n = 0;
    TRY(table_init(t, form[sheet].name, form[sheet].columns, "", r->a));
    TRY(ARENA_NEW(r->scratch, r->entries, &x));
    for (int64_t i = 0; i < r->entries; i++) {
        bool changed = r->entry[i].key[4] != r->entry[i].key[5];
        if (sheet != DIFF_KERNELS || changed) x[n++] = r->entry[i];
    }
    merge_entries(x, &n, form[sheet].use);
    for (int64_t i = 0; i < n; i++) {
        const uint32_t *event = r->d->node[x[i].node].event;
        TRY(TABLE_ROW(t, cell_text(event_name(events(r, DIFF_OLD), event[DIFF_OLD])),
                      cell_text(event_name(events(r, DIFF_NEW), event[DIFF_NEW]))));
        if (sheet == DIFF_ARGS) put_args(r, &x[i], t);
        if (sheet == DIFF_KERNELS) TRY(put_kernels(r, &x[i], t));
        put_times(t, &x[i]);
    }
    arena_release(r->scratch, mark);
    return OK;
}

/* ---- what is in one trace only ---- */

static Status work_sheet(Report *r, Table *t)
{
    const Diff *d = r->d;
    Entry *x = NULL;
    int64_t n = 0;
    ArenaMark mark = arena_mark(r->scratch);
    TRY(table_init(t, "diff_new_and_vanished",
                   "change|name|parent|calls|kernels|kernel_time|busy_time|host_time", "", r->a));
    TRY(ARENA_NEW(r->scratch, d->nodes, &x));
    for (int64_t id = 0; id < d->nodes; id++) {
        const DiffNode *node = &d->node[id];
        int s = node->event[DIFF_OLD] == EVENT_NONE ? DIFF_NEW : DIFF_OLD;
        uint32_t event = node->event[s], up = node->parent;
        bool alone = node->event[!s] == EVENT_NONE, root = up == EVENT_NONE;
        if (!alone || !(root || d->node[up].event[!s] != EVENT_NONE)) continue;
        if (!root && !is_op(r, s, event)) continue;
        const Tree *tree = d->tree[s];
        double end = -INFINITY;
        x[n] = (Entry){ .key = { (uint32_t)s, events(r, s)->name[event],
                                 root ? 0 : 1 + events(r, s)->name[d->node[up].event[s]] },
                        .node = (uint32_t)id,
                        .calls = 1 };
        for (uint32_t g = tree->gpu_first[event]; g < tree->gpu_first[event + 1]; g++)
            add_event(tree->events, tree->gpu[g], &x[n].of[s], &end);
        x[n++].of[s].host = tree->events->dur[event];
    }
    merge_entries(x, &n, (const bool[KEYS]){ 1, 1, 1 });
    for (int64_t i = 0; i < n; i++) {
        int s = (int)x[i].key[0];
        const Measure *m = &x[i].of[s];
        const DiffNode *node = &d->node[x[i].node];
        const char *parent = NULL;
        if (node->parent != EVENT_NONE)
            parent = event_name(events(r, s), d->node[node->parent].event[s]);
        TRY(TABLE_ROW(t, cell_text(s == DIFF_NEW ? "new" : "vanished"),
                      cell_text(event_name(events(r, s), node->event[s])), cell_text(parent),
                      cell_whole(x[i].calls), cell_whole(m->kernels), cell_number(m->sum),
                      cell_number(m->busy), cell_number(m->host)));
    }
    arena_release(r->scratch, mark);
    return OK;
}

/* ---- the host ---- */

/* By name: in `busy` the time of its own, without calls below; in `host` the whole. */
static Status host_sheet(Report *r, Table *t)
{
    const Diff *d = r->d;
    int64_t names = d->names.text.n, n = 0;
    Entry *x = NULL;
    ArenaMark mark = arena_mark(r->scratch);
    TRY(table_init(t, "diff_host",
                   "name|calls_old|calls_new|host_time_old|host_time_new|self_time_old|"
                   "self_time_new|delta_us (new - old)|speedup (old/new)",
                   "", r->a));
    TRY(ARENA_ZEROED(r->scratch, names, &x));
    for (int s = 0; s < DIFF_SIDES; s++) {
        const Events *e = events(r, s);
        for (uint32_t i = 0; i < e->n; i++) {
            uint32_t up = d->tree[s]->parent[i];
            bool host = e->kind[i] == EVENT_CPU_OP || e->kind[i] == EVENT_RUNTIME ||
                        e->kind[i] == EVENT_DRIVER;
            if (!host) continue;
            Measure *m = &x[diff_name(d, s, i, false)].of[s];
            m->kernels++;
            m->host += e->dur[i];
            m->busy += e->dur[i];
            if (up != EVENT_NONE) x[diff_name(d, s, up, false)].of[s].busy -= e->dur[i];
        }
    }
    for (int64_t i = 0; i < names; i++) {
        if (x[i].of[DIFF_OLD].kernels + x[i].of[DIFF_NEW].kernels == 0) continue;
        x[n] = x[i];
        x[n++].node = (uint32_t)i;
    }
    if (n > 0) qsort(x, (size_t)n, sizeof *x, by_change);
    for (int64_t i = 0; i < n; i++) {
        const Measure *old = &x[i].of[DIFF_OLD], *new = &x[i].of[DIFF_NEW];
        const char *name = strings_text(&d->names.text, x[i].node);
        TRY(arena_text(r->a, name, strlen(name), &name));
        TRY(TABLE_ROW(t, cell_text(name), cell_whole(old->kernels), cell_whole(new->kernels),
                      cell_number(old->host), cell_number(new->host), cell_number(old->busy),
                      cell_number(new->busy), cell_number(change(&x[i])),
                      ratio(old->busy, new->busy)));
    }
    arena_release(r->scratch, mark);
    return OK;
}

/* ---- totals ---- */

enum {
    T_SPAN,
    T_BUSY,
    T_SUM,
    T_MATCHED,
    T_UNMATCHED,
    T_UNLINKED,
    T_HOST,
    T_TIMES,
    T_EVENTS = T_TIMES,
    T_LOOSE,
    T_CALLS,
    T_SAME,
    T_ALONE,
    T_ROWS
};

static Status totals_of(Report *r, int side, double v[T_ROWS])
{
    const Tree *t = r->d->tree[side];
    const Events *e = t->events;
    ArenaMark mark = arena_mark(r->scratch);
    Spans busy = { 0 };
    double first = INFINITY, last = -INFINITY;
    TRY(ARENA_NEW(r->scratch, e->n, &busy.at));
    for (int64_t i = 0; i < e->n; i++) {
        bool host =
            e->kind[i] == EVENT_CPU_OP || e->kind[i] == EVENT_RUNTIME || e->kind[i] == EVENT_DRIVER;
        if (host) v[T_CALLS]++;
        if (host && t->parent[i] == EVENT_NONE) v[T_HOST] += e->dur[i];
        if (!event_on_gpu(e->kind[i])) continue;
        busy.at[busy.n++] = (Span){ e->ts[i], event_end(e, i) };
        first = fmin(first, e->ts[i]);
        last = fmax(last, event_end(e, i));
        v[T_EVENTS]++;
        v[T_SUM] += e->dur[i];
        if (t->parent[i] == EVENT_NONE) v[T_UNLINKED] += e->dur[i];
    }
    v[T_LOOSE] = (double)t->unlinked;
    v[T_MATCHED] = r->matched[side];
    v[T_UNMATCHED] = r->unmatched[side];
    v[T_SPAN] = busy.n > 0 ? last - first : 0;
    spans_merge(&busy);
    v[T_BUSY] = spans_length(&busy);
    for (int64_t i = 0; i < r->d->nodes; i++) {
        const DiffNode *n = &r->d->node[i];
        if (n->event[side] == EVENT_NONE || event_on_gpu(e->kind[n->event[side]])) continue;
        v[n->event[!side] == EVENT_NONE ? T_ALONE : T_SAME]++;
    }
    arena_release(r->scratch, mark);
    return OK;
}

static Status totals_sheet(Report *r, Table *t)
{
    static const char *const name[T_ROWS] = {
        [T_SPAN] = "device, first to last (us)",
        [T_BUSY] = "device busy (us)",
        [T_SUM] = "device work (us)",
        [T_MATCHED] = "of it under matched calls (us)",
        [T_UNMATCHED] = "of it under others (us)",
        [T_UNLINKED] = "of it without a launch in the trace (us)",
        [T_HOST] = "host calls (us)",
        [T_EVENTS] = "device events",
        [T_LOOSE] = "of them without a launch in the trace",
        [T_CALLS] = "host calls",
        [T_SAME] = "calls on the way to device work, in both",
        [T_ALONE] = "calls on the way to device work, in one",
    };
    double v[DIFF_SIDES][T_ROWS] = { { 0 } };
    TRY(table_init(t, "diff_totals", "type|old|new|delta (new - old)|speedup (old/new)", "", r->a));
    for (int s = 0; s < DIFF_SIDES; s++) TRY(totals_of(r, s, v[s]));
    for (int i = 0; i < T_ROWS; i++) {
        double old = v[DIFF_OLD][i], new = v[DIFF_NEW][i], say[] = { old, new, new - old };
        TRY(TABLE_ROW(t, cell_text(name[i])));
        for (int k = 0; k < 3; k++)
            TABLE_MORE(t, i < T_TIMES ? cell_number(say[k]) : cell_whole((int64_t)say[k]));
        if (i < T_TIMES) TABLE_MORE(t, ratio(old, new));
    }
    return OK;
}

Status diff_report(const Diff *d, Arena *a, Arena *scratch, Table out[DIFF_SHEETS])
{
    Report r = { .d = d, .a = a, .scratch = scratch };
    ArenaMark mark = arena_mark(scratch);
    TRY(strings_init(&r.kernels));
    Status s = find_owners(&r);
    if (s == OK) s = measure_owners(&r);
    if (s == OK) s = totals_sheet(&r, &out[DIFF_TOTALS]);
    for (DiffSheet i = DIFF_OPS; i <= DIFF_KERNELS && s == OK; i++) s = ops_sheet(&r, i, &out[i]);
    if (s == OK) s = work_sheet(&r, &out[DIFF_WORK]);
    if (s == OK) s = host_sheet(&r, &out[DIFF_HOST]);
    strings_free(&r.kernels);
    arena_release(scratch, mark);
    return s;
}
