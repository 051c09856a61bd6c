/*
 * diff_report: where two traces differ in time, from their matched trees.
 *
 * Each piece of device work belongs to one matched operator (find_owners). So the rows of the
 * sheets by operator add up to all of it. Two measures are shown: `busy` is the time that an
 * operator's work covers, `sum` the time of its kernels. Kernels that overlap make the sum larger.
 * Times are microseconds. Nothing is matched here: see diff.c.
 */
#include "diff/diff.h"
#include "traces/table/fold.h"
#include "traces/table/spans.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A piece of device work of one side, and the matched operator that it belongs to. */
typedef struct OwnedWork {
    uint32_t owner; /* node */
    uint32_t event;
    int side;
    double ts;
} OwnedWork;

/* Times of one side. host: of the call itself, on the host. */
typedef struct Measure {
    double sum, busy, host;
    int64_t kernels;
} Measure;

/* What all sheets are made of. */
typedef struct Comparison {
    const Diff *d;
    Arena *a, *scratch; /* a: the sheets; scratch: all else */
    OwnedWork *work;
    int64_t works;
    double matched[DIFF_SIDES], unmatched[DIFF_SIDES]; /* sums of device work, us */
} Comparison;

static const Events *events_of(const Comparison *r, int side) { return r->d->tree[side]->events; }

static bool is_op(const Comparison *r, int side, uint32_t event)
{
    return event != EVENT_NONE && events_of(r, side)->kind[event] == EVENT_CPU_OP;
}

static bool is_host(const Events *e, uint32_t i)
{
    return e->kind[i] == EVENT_CPU_OP || e->kind[i] == EVENT_RUNTIME || e->kind[i] == EVENT_DRIVER;
}

/* ---- device work by the matched operator above it, or the matched root ---- */

static int by_owner(const void *a, const void *b)
{
    const OwnedWork *x = a, *y = b;
    if (x->owner != y->owner) return x->owner < y->owner ? -1 : 1;
    if (x->side != y->side) return x->side - y->side;
    if (x->ts != y->ts) return x->ts < y->ts ? -1 : 1;
    return (x->event > y->event) - (x->event < y->event);
}

/* Gives each piece of device work its owner. Nodes come before their children, so a parent's owner
 * is known first. A matched root owns what no matched operator below it owns. */
static Status find_owners(Comparison *r)
{
    const Diff *d = r->d;
    uint32_t *owner = NULL;
    TRY(ARENA_NEW(r->scratch, d->nodes, &owner));
    TRY(ARENA_NEW(r->scratch, 2 * d->nodes, &r->work));
    for (int64_t id = 0; id < d->nodes; id++) {
        const DiffNode *n = &d->node[id];
        owner[id] = n->parent == EVENT_NONE ? EVENT_NONE : owner[n->parent];
        /* Operators own work, and so do matched roots of any kind. */
        bool both = n->event[DIFF_OLD] != EVENT_NONE && n->event[DIFF_NEW] != EVENT_NONE;
        if (both && n->parent == EVENT_NONE) owner[id] = (uint32_t)id;
        if (is_op(r, DIFF_OLD, n->event[DIFF_OLD]) && is_op(r, DIFF_NEW, n->event[DIFF_NEW]))
            owner[id] = (uint32_t)id;
        for (int s = 0; s < DIFF_SIDES; s++) {
            uint32_t e = n->event[s];
            if (e == EVENT_NONE || !event_on_gpu(events_of(r, s)->kind[e])) continue;
            r->work[r->works++] = (OwnedWork){ owner[id], e, s, events_of(r, s)->ts[e] };
            if (owner[id] == EVENT_NONE) r->unmatched[s] += events_of(r, s)->dur[e];
        }
    }
    if (r->works > 0) qsort(r->work, (size_t)r->works, sizeof *r->work, by_owner);
    return OK;
}

/* Adds an event, which starts no earlier than those before it. *end: the end of the busy time so
 * far. */
static void add_event(const Events *e, uint32_t event, Measure *m, double *end)
{
    double start = fmax(e->ts[event], *end), stop = event_end(e, event);
    m->kernels++;
    m->sum += e->dur[event];
    if (stop > start) m->busy += stop - start;
    *end = fmax(*end, stop);
}

/* Do both sides run kernels of the same names, in any order? */
static Status same_kernels(Comparison *r, const OwnedWork *w, const int64_t n[DIFF_SIDES],
                           bool *same)
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

/* The names of the kernels, with semicolons between. */
static Status list_kernels(const Comparison *r, const OwnedWork *w, int64_t n, Cell *out)
{
    Text t = { 0 };
    TRY(text_init(&t, r->a));
    TRY(text_append(&t, "", 0));
    for (int64_t i = 0; i < n; i++)
        TRY(text_printf(&t, "%s%s", i > 0 ? "; " : "",
                        event_name(events_of(r, w->side), w[i].event)));
    *out = cell_text(t.data);
    return OK;
}

/* ---- rows: a matched operator with its device work ---- */

#define TIME_ROWS                                                                                  \
    "kernels_old|kernels_new|sum_old|sum_new|busy_old|busy_new|host_old|host_new|delta"
#define OP_ROWS                                                                                    \
    "name_old|name_new|args_old|args_new|dims_old|dims_new|types_old|types_new|concrete|"          \
    "list_old|list_new|" TIME_ROWS

/* The cells of TIME_ROWS. A row's delta is in busy time. */
static void put_times(const Measure of[DIFF_SIDES], Table *t)
{
    const Measure *old = &of[DIFF_OLD], *new = &of[DIFF_NEW];
    TABLE_MORE(t, cell_whole(old->kernels), cell_whole(new->kernels), cell_number(old->sum),
               cell_number(new->sum), cell_number(old->busy), cell_number(new->busy),
               cell_number(old->host), cell_number(new->host), cell_number(new->busy - old->busy));
}

/* Puts the row of a matched operator with its arguments on both sides. `list` is empty where both
 * run the same kernels. */
static Status put_op(const Comparison *r, uint32_t node, const Cell list[DIFF_SIDES],
                     const Measure of[DIFF_SIDES], Table *t)
{
    static const OpArgs none = { 0 };
    Cell name[DIFF_SIDES], args[DIFF_SIDES], text[DIFF_SIDES][3];
    for (int s = 0; s < DIFF_SIDES; s++) {
        const Events *e = events_of(r, s);
        const uint32_t event = r->d->node[node].event[s], row = event_args(e, event);
        const OpArgs *from = row == EVENT_NONE ? &none : &e->args[row];
        const uint32_t id[] = { from->dims, from->types, from->concrete };
        name[s] = cell_text(event_name(e, event));
        args[s] = cell_count(row == EVENT_NONE ? -1 : (int64_t)row);
        for (int i = 0; i < 3; i++)
            text[s][i] = cell_text(row == EVENT_NONE ? NULL : strings_text(&e->strings, id[i]));
    }
    TRY(TABLE_ROW(t, name[DIFF_OLD], name[DIFF_NEW], args[DIFF_OLD], args[DIFF_NEW],
                  text[DIFF_OLD][0], text[DIFF_NEW][0], text[DIFF_OLD][1], text[DIFF_NEW][1],
                  text[DIFF_OLD][2], list[DIFF_OLD], list[DIFF_NEW]));
    put_times(of, t);
    return OK;
}

/* Puts the row of one owner. Its work starts at w: n[DIFF_OLD] pieces of the old trace, then
 * n[DIFF_NEW] pieces of the new one. */
static Status put_owner(Comparison *r, const OwnedWork *w, const int64_t n[DIFF_SIDES], Table *t)
{
    const OwnedWork *first[DIFF_SIDES] = { w, w + n[DIFF_OLD] };
    Measure of[DIFF_SIDES] = { { 0 } };
    Cell list[DIFF_SIDES] = { { 0 } };
    bool same = true;
    for (int s = 0; s < DIFF_SIDES; s++) {
        double end = -INFINITY;
        for (int64_t i = 0; i < n[s]; i++)
            add_event(events_of(r, s), first[s][i].event, &of[s], &end);
        of[s].host = events_of(r, s)->dur[r->d->node[w->owner].event[s]];
        r->matched[s] += of[s].sum;
    }
    /* Lists of names can be long, so only rows that need them have them. */
    TRY(same_kernels(r, w, n, &same));
    for (int s = 0; s < DIFF_SIDES && !same; s++) TRY(list_kernels(r, first[s], n[s], &list[s]));
    return put_op(r, w->owner, list, of, t);
}

static Status put_owners(Comparison *r, Table *t)
{
    for (int64_t i = 0, end; i < r->works && r->work[i].owner != EVENT_NONE; i = end) {
        int64_t n[DIFF_SIDES] = { 0 };
        for (end = i; end < r->works && r->work[end].owner == r->work[i].owner; end++)
            n[r->work[end].side]++;
        TRY(put_owner(r, r->work + i, n, t));
    }
    return OK;
}

/* Keeps the operators that run different kernels in the new trace. Only these have lists of
 * names. */
static Status keep_changed(Table *t)
{
    const int column = table_column(t, "list_old");
    bool *keep = NULL;
    TRY(ARENA_NEW(t->arena, t->rows + 1, &keep));
    for (int64_t i = 0; i < t->rows; i++) keep[i] = table_at(t, i, column)->type != CELL_NONE;
    table_filter(t, keep);
    return OK;
}

/* ---- sheets of operators: the same rows by other keys ---- */

static Cell speedup_cell(double old, double new)
{
    return old > 0 && new > 0 ? cell_number(old / new) : cell_none();
}

/* The change of busy time, and the speedup, from the sums of a group. */
static Status change_cells(const FoldRows *rows, const uint32_t *row, int64_t n, Arena *a,
                           Cell *out)
{
    const int column[] = { table_column(&rows->t, "busy_old"), table_column(&rows->t, "busy_new") };
    double busy[DIFF_SIDES] = { 0 };
    (void)a;
    for (int64_t i = 0; i < n; i++)
        for (int s = 0; s < DIFF_SIDES; s++)
            busy[s] += table_at(&rows->t, row[i], column[s])->number;
    out[0] = cell_number(busy[DIFF_NEW] - busy[DIFF_OLD]);
    out[1] = speedup_cell(busy[DIFF_OLD], busy[DIFF_NEW]);
    return OK;
}

#define NAMES "name_old=first name_old|name_new=first name_new"
#define TIMES                                                                                      \
    "|calls=n|kernels_old=whole kernels_old|kernels_new=whole kernels_new|"                        \
    "kernel_time_old=sum sum_old|kernel_time_new=sum sum_new|busy_time_old=sum busy_old|"          \
    "busy_time_new=sum busy_new|delta_us (new - old)=more|speedup (old/new)=more|"                 \
    "host_time_old=sum host_old|host_time_new=sum host_new"
#define BY_CHANGE .by = "delta", .magnitude = true, .more = change_cells

/* Three sheets fold the same rows by different keys. DIFF_KERNELS comes last, because it drops
 * rows. */
static Status op_sheets(Comparison *r, Table out[DIFF_SHEETS])
{
    static const char *const NAME[] = {
        [DIFF_OPS] = "diff_ops", [DIFF_ARGS] = "diff_unique_args", [DIFF_KERNELS] = "diff_kernels"
    };
    static const Fold FOLD[] = {
        [DIFF_OPS] = { .keys = "name_old|name_new", .columns = NAMES TIMES, BY_CHANGE },
        [DIFF_ARGS] = { .keys = "name_old|name_new|args_old|args_new",
                        .columns =
                            NAMES "|Input Dims_old=first dims_old|Input Dims_new=first dims_new|"
                                  "Input type_old=first types_old|Input type_new=first types_new|"
                                  "Concrete Inputs=first concrete" TIMES,
                        BY_CHANGE },
        [DIFF_KERNELS] = { .keys = "name_old|name_new|list_old|list_new",
                           .columns = NAMES "|kernel_names_old=first list_old|"
                                            "kernel_names_new=first list_new" TIMES,
                           BY_CHANGE },
    };
    FoldRows rows = { .state = r };
    TRY(table_init(&rows.t, "rows", OP_ROWS, "", r->scratch));
    TRY(put_owners(r, &rows.t));
    for (DiffSheet i = DIFF_OPS; i <= DIFF_KERNELS; i++) {
        out[i] = (Table){ .name = NAME[i] };
        if (i == DIFF_KERNELS) TRY(keep_changed(&rows.t));
        TRY(fold_rows(&rows, &FOLD[i], "", r->a, &out[i]));
    }
    return OK;
}

/* ---- what is in one trace only ---- */

/* The row of a call that only one trace has, with all device work below it. */
static Status put_alone(const Comparison *r, int side, uint32_t event, const char *parent, Table *t)
{
    const Tree *tree = r->d->tree[side];
    Measure of[DIFF_SIDES] = { { 0 } };
    double end = -INFINITY;
    for (uint32_t g = tree->gpu_first[event]; g < tree->gpu_first[event + 1]; g++)
        add_event(tree->events, tree->gpu[g], &of[side], &end);
    const Measure *m = &of[side];
    return TABLE_ROW(t, cell_text(side == DIFF_NEW ? "new" : "vanished"),
                     cell_text(event_name(tree->events, event)), cell_text(parent),
                     cell_whole(m->kernels), cell_number(m->sum), cell_number(m->busy),
                     cell_number(tree->events->dur[event]));
}

/* Lists the topmost calls that only one trace has. What is below them is part of them. Below a
 * matched call only operators are listed, not runtime calls. */
static Status work_sheet(Comparison *r, Table *out)
{
    static const Fold fold = { .rows = "change|name|parent|kernels|sum|busy|host",
                               .keys = "change|name|parent",
                               .by = "busy",
                               .columns = "change=first change|name=first name|"
                                          "parent=first parent|calls=n|kernels=whole kernels|"
                                          "kernel_time=sum sum|busy_time=sum busy|"
                                          "host_time=sum host" };
    const Diff *d = r->d;
    FoldRows rows = { 0 };
    TRY(table_init(&rows.t, "rows", fold.rows, "", r->scratch));
    for (int64_t id = 0; id < d->nodes; id++) {
        const DiffNode *node = &d->node[id];
        int s = node->event[DIFF_OLD] == EVENT_NONE ? DIFF_NEW : DIFF_OLD;
        uint32_t event = node->event[s], up = node->parent;
        bool alone = node->event[!s] == EVENT_NONE, root = up == EVENT_NONE;
        if (!alone || !(root || d->node[up].event[!s] != EVENT_NONE)) continue;
        if (!root && !is_op(r, s, event)) continue;
        const char *parent = root ? NULL : event_name(events_of(r, s), d->node[up].event[s]);
        TRY(put_alone(r, s, event, parent, &rows.t));
    }
    *out = (Table){ .name = "diff_new_and_vanished" };
    return fold_rows(&rows, &fold, "", r->a, out);
}

/* ---- the host ---- */

/* All calls of one name. busy: their own time, without the calls below them. host: their whole
 * time. */
typedef struct HostCalls {
    Measure of[DIFF_SIDES];
    uint32_t name;
} HostCalls;

static double host_change(const HostCalls *x)
{
    return x->of[DIFF_NEW].busy - x->of[DIFF_OLD].busy;
}

static int by_host_change(const void *a, const void *b)
{
    const HostCalls *x = a, *y = b;
    double i = fabs(host_change(x)), j = fabs(host_change(y));
    if (i != j) return i > j ? -1 : 1;
    return (x->name > y->name) - (x->name < y->name);
}

/* Adds up calls by the number of their name. There are no rows and no fold, since every call of the
 * host would be a row. */
static Status host_sheet(Comparison *r, Table *t)
{
    const Diff *d = r->d;
    int64_t names = d->names.text.n, n = 0;
    HostCalls *x = NULL;
    TRY(table_init(t, "diff_host",
                   "name|calls_old|calls_new|host_time_old|host_time_new|self_time_old|"
                   "self_time_new|delta_us (new - old)|speedup (old/new)",
                   "", r->a));
    TRY(ARENA_ZEROED(r->scratch, names, &x));
    for (int s = 0; s < DIFF_SIDES; s++) {
        const Events *e = events_of(r, s);
        for (uint32_t i = 0; i < e->n; i++) {
            uint32_t up = d->tree[s]->parent[i];
            if (!is_host(e, i)) continue;
            Measure *m = &x[diff_name(d, s, i, false)].of[s];
            m->kernels++;
            m->host += e->dur[i];
            m->busy += e->dur[i];
            /* A call's own time is its duration without that of the calls below it. */
            if (up != EVENT_NONE) x[diff_name(d, s, up, false)].of[s].busy -= e->dur[i];
        }
    }
    for (int64_t i = 0; i < names; i++) {
        if (x[i].of[DIFF_OLD].kernels + x[i].of[DIFF_NEW].kernels == 0) continue;
        x[n] = x[i];
        x[n++].name = (uint32_t)i;
    }
    if (n > 0) qsort(x, (size_t)n, sizeof *x, by_host_change);
    for (int64_t i = 0; i < n; i++) {
        const Measure *old = &x[i].of[DIFF_OLD], *new = &x[i].of[DIFF_NEW];
        const char *name = strings_text(&d->names.text, x[i].name);
        TRY(arena_text(r->a, name, strlen(name), &name));
        TRY(TABLE_ROW(t, cell_text(name), cell_whole(old->kernels), cell_whole(new->kernels),
                      cell_number(old->host), cell_number(new->host), cell_number(old->busy),
                      cell_number(new->busy), cell_number(host_change(&x[i])),
                      speedup_cell(old->busy, new->busy)));
    }
    return OK;
}

/* ---- totals ---- */

/* Rows of the totals. Those before T_TIMES are times, the others counts. */
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

/* Adds up one side. What the other sheets leave out is counted here too: work without a launch in
 * the trace, and calls that only one trace has. */
static Status totals_of(Comparison *r, int side, double v[T_ROWS])
{
    const Tree *t = r->d->tree[side];
    const Events *e = t->events;
    ArenaMark mark = arena_mark(r->scratch);
    Spans busy = { 0 };
    double first = INFINITY, last = -INFINITY;
    TRY(ARENA_NEW(r->scratch, e->n, &busy.at));
    for (uint32_t i = 0; i < e->n; i++) {
        bool host = is_host(e, i);
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
    /* The rest is known from the tree and from the sheets of operators. */
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

/* Times have a speedup, counts have none. Rows that begin with "of it" are parts of a row above
 * them. */
static Status totals_sheet(Comparison *r, Table *t)
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
        if (i < T_TIMES) TABLE_MORE(t, speedup_cell(old, new));
    }
    return OK;
}

Status diff_report(const Diff *d, Arena *a, Arena *scratch, Table out[DIFF_SHEETS])
{
    Comparison r = { .d = d, .a = a, .scratch = scratch };
    ArenaMark mark = arena_mark(scratch);
    TRY(find_owners(&r));
    TRY(op_sheets(&r, out)); /* adds up `matched`, which the totals show */
    TRY(totals_sheet(&r, &out[DIFF_TOTALS]));
    TRY(work_sheet(&r, &out[DIFF_WORK]));
    TRY(host_sheet(&r, &out[DIFF_HOST]));
    arena_release(scratch, mark);
    return OK;
}
