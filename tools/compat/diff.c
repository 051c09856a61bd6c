/*
 * compat/diff: the tables and files that TraceLens' TraceDiff writes, from our merged tree.
 *
 * A row is a device event that differs, or whose operator differs, below the lowest matched node
 * above it. That node is its lowest common ancestor (lca). Files equal TraceLens' byte for byte, so
 * orders and roundings are those of pandas and numpy. Matching is not done here:
 * compat/diff_rules.c has TraceLens' rules.
 */
#include "compat/compat.h"
#include "traces/table/python_text.h"
#include "traces/table/spans.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const sources[] = { "trace1", "trace2" };

/* ---- rows ---- */

/* A row of diff_stats. busy: of all device work in the same list, us. */
typedef struct Row {
    uint32_t gpu, op; /* events: the device's, and the operator above it */
    uint32_t lca;     /* node; EVENT_NONE: it lies below a root of one trace */
    const char *lca_name;
    double busy;
    int side;
} Row;

/* What all parts of this file work on. a: what the tables point to; scratch: everything else. */
typedef struct Stats {
    const Diff *d;
    Arena *a, *scratch;
    Row *row;
    int64_t rows;
    bool *done; /* done[node]: its events have rows */
} Stats;

/* Copies a name without the line numbers in it, like "(12)". */
static Status without_lines(Arena *a, const char *s, const char **out)
{
    char *o = NULL;
    size_t n = 0;
    TRY(ARENA_NEW(a, strlen(s) + 1, &o));
    *out = o;
    while (*s != 0) {
        size_t digits = *s == '(' ? strspn(s + 1, "0123456789") : 0;
        if (digits > 0 && s[1 + digits] == ')')
            s += digits + 2;
        else
            o[n++] = *s++;
    }
    o[n] = 0;
    return OK;
}

/* The name of a row's lowest common ancestor: of side `only`, or (only < 0) of both if they
 * differ. */
static Status lca_name(Stats *st, const DiffNode *n, int only, const char **out)
{
    const char *name[DIFF_SIDES] = { NULL };
    Text both = { 0 };
    for (int s = 0; s < DIFF_SIDES; s++)
        TRY(without_lines(st->a, event_name(st->d->tree[s]->events, n->event[s]), &name[s]));
    *out = name[only < 0 ? 0 : only];
    if (only >= 0 || strcmp(name[DIFF_OLD], name[DIFF_NEW]) == 0) return OK;
    TRY(text_init(&both, st->a));
    TRY(text_printf(&both, "%s | %s", name[DIFF_OLD], name[DIFF_NEW]));
    *out = both.data;
    return OK;
}

static bool is_copy_or_kernel(const Events *e, uint32_t event)
{
    return e->kind[event] == EVENT_KERNEL || e->kind[event] == EVENT_MEMCPY;
}

/* Rounds to three decimals. Halves go to the even digit, as numpy rounds. */
static double round_to_thousandth(double x) { return rint(x * 1000) / 1000; }

/* Adds rows for device work with an operator above it. All rows have the busy time of the whole
 * list. */
static Status add_rows(Stats *st, int side, const DiffList *gpu, uint32_t lca, const char *name)
{
    const Tree *t = st->d->tree[side];
    const Events *e = t->events;
    double busy = 0;
    TRY(spans_busy(e->ts, e->dur, gpu->at, gpu->n, st->scratch, &busy));
    for (int64_t i = 0; i < gpu->n; i++) {
        uint32_t op = t->parent[gpu->at[i]];
        while (op != EVENT_NONE && e->kind[op] != EVENT_CPU_OP) op = t->parent[op];
        if (op == EVENT_NONE) continue;
        st->row[st->rows] = (Row){ gpu->at[i], op, lca, name, round_to_thousandth(busy), side };
        st->rows++;
    }
    return OK;
}

/* Adds the device work below an event; with `itself`, also the event if it is device work. */
static void add_work_below(const Tree *t, uint32_t event, bool itself, DiffList *out)
{
    for (uint32_t i = t->gpu_first[event]; i < t->gpu_first[event + 1]; i++)
        out->at[out->n++] = t->gpu[i];
    if (itself && is_copy_or_kernel(t->events, event)) out->at[out->n++] = event;
}

/* Rows of a matched node: device work below its unmatched children, and the node itself if it is
 * device work. */
static Status rows_of_pair(Stats *st, uint32_t id)
{
    const Diff *d = st->d;
    const DiffNode *n = &d->node[id];
    bool kernels = true, any = false;
    DiffList gpu[DIFF_SIDES];
    const char *name = NULL;
    ArenaMark mark = arena_mark(st->scratch);
    for (int s = 0; s < DIFF_SIDES; s++) {
        const Tree *t = d->tree[s];
        int64_t room = 1;
        kernels &= is_copy_or_kernel(t->events, n->event[s]);
        for (uint32_t c = 0; c < n->children; c++) {
            const DiffNode *child = &d->node[d->child[n->first + c]];
            if (diff_only_in(child) != s + 1) continue;
            any |= diff_has_work(t, child->event[s]);
            room += 1 + t->gpu_first[child->event[s] + 1] - t->gpu_first[child->event[s]];
        }
        gpu[s] = (DiffList){ 0 };
        TRY(ARENA_NEW(st->scratch, room, &gpu[s].at));
    }
    if (any || kernels) {
        for (int s = 0; s < DIFF_SIDES; s++) {
            for (uint32_t c = 0; c < n->children; c++) {
                uint32_t child = d->child[n->first + c], event = d->node[child].event[s];
                if (diff_only_in(&d->node[child]) != s + 1 || !diff_has_work(d->tree[s], event))
                    continue;
                add_work_below(d->tree[s], event, true, &gpu[s]);
                st->done[child] = true;
            }
            if (is_copy_or_kernel(d->tree[s]->events, n->event[s]))
                gpu[s].at[gpu[s].n++] = n->event[s];
        }
        TRY(lca_name(st, n, -1, &name));
        for (int s = 0; s < DIFF_SIDES; s++) TRY(add_rows(st, s, &gpu[s], id, name));
        st->done[id] = true;
    }
    arena_release(st->scratch, mark);
    return OK;
}

/* Makes the rows of all nodes, in the order of the walk. Nothing is done below a node that only one
 * trace has: the node's rows have all device work below it. */
static Status all_rows(Stats *st)
{
    const Diff *d = st->d;
    bool *open = NULL;
    TRY(ARENA_ZEROED(st->scratch, d->nodes, &open));
    for (int64_t id = 0; id < d->nodes; id++) {
        const DiffNode *n = &d->node[id];
        int side = diff_only_in(n) - 1;
        const char *name = NULL;
        if ((n->parent != EVENT_NONE && !open[n->parent]) || st->done[id]) continue;
        if (side < 0) {
            bool work[DIFF_SIDES];
            for (int s = 0; s < DIFF_SIDES; s++) work[s] = diff_has_work(d->tree[s], n->event[s]);
            if (work[DIFF_OLD] && work[DIFF_NEW]) TRY(rows_of_pair(st, (uint32_t)id));
            open[id] = work[DIFF_OLD] || work[DIFF_NEW];
            continue;
        }
        const Tree *t = d->tree[side];
        DiffList gpu = { t->gpu + t->gpu_first[n->event[side]],
                         t->gpu_first[n->event[side] + 1] - t->gpu_first[n->event[side]] };
        if (n->parent != EVENT_NONE) TRY(lca_name(st, &d->node[n->parent], side, &name));
        TRY(add_rows(st, side, &gpu, n->parent, name));
    }
    return OK;
}

/* ---- cells ---- */

static const char *op_name(const Stats *st, const Row *r)
{
    return event_name(st->d->tree[r->side]->events, r->op);
}

/* Sizes, strides, types and values of an operator's arguments as Python prints them; "" where there
 * are none. */
static Status put_arguments(Stats *st, const Row *r, Table *t)
{
    static const OpArgs none = { 0 };
    const Events *e = st->d->tree[r->side]->events;
    const uint32_t row = event_args(e, r->op);
    const OpArgs *args = row == EVENT_NONE ? &none : &e->args[row];
    const uint32_t id[4] = { args->dims, args->strides, args->types, args->concrete };
    for (int i = 0; i < 4; i++) {
        Text text = { 0 };
        TRY(text_init(&text, st->a));
        TRY(text_append(&text, "", 0));
        TRY(python_value(&text, strings_text(&e->strings, id[i]), true));
        TABLE_MORE(t, cell_text(text.data));
    }
    return OK;
}

/* Trees without frames of Python have one module: root. A column of whole numbers with an empty
 * cell is printed as reals, as pandas does. */
static Status stats_table(Stats *st, Table *t)
{
    const Cell root = cell_text("root");
    bool none = false;
    TRY(table_init(t, "diff_stats",
                   "name|cpu_op_name|cpu_op_uid|source|Input Dims|Input Strides|Input type|"
                   "Concrete Inputs|kernel_time|busy_time|lowest_common_ancestor_name|"
                   "lowest_common_ancestor_id|gpu_op_uid|nn_module_stack|nn_module_parent",
                   "", st->a));
    for (int64_t i = 0; i < st->rows; i++) none |= st->row[i].lca == EVENT_NONE;
    for (int64_t i = 0; i < st->rows; i++) {
        const Row *r = &st->row[i];
        const Events *e = st->d->tree[r->side]->events;
        Cell id = none ? cell_number((double)r->lca) : cell_whole(r->lca);
        if (r->lca == EVENT_NONE) id = cell_none();
        TRY(TABLE_ROW(t, cell_text(event_name(e, r->gpu)), cell_text(op_name(st, r)),
                      cell_whole(e->index[r->op]), cell_text(sources[r->side])));
        TRY(put_arguments(st, r, t));
        TABLE_MORE(t, cell_number(e->dur[r->gpu]), cell_number(r->busy), cell_text(r->lca_name), id,
                   cell_whole(e->index[r->gpu]), root, root);
    }
    return OK;
}

/* ---- the same by arguments ---- */

enum { UNIQUE_COLUMNS = 15 };

/* The text by which pandas compares cells when it sorts by columns of mixed types. */
static const char *cell_as_text(const Cell *c, char number[TABLE_NUMBER_BYTES])
{
    if (c->type == CELL_TEXT) return c->text;
    if (c->type == CELL_NUMBER) return table_number(number, c->number);
    (void)snprintf(number, TABLE_NUMBER_BYTES, "%lld", (long long)c->whole);
    return number;
}

/* The longest time first. Equal times are ordered by all other columns as text. */
static int by_sum(const void *a, const void *b)
{
    const Cell *x = a, *y = b;
    char number[2][TABLE_NUMBER_BYTES];
    double sum = x[UNIQUE_COLUMNS - 1].number, other = y[UNIQUE_COLUMNS - 1].number;
    if (sum != other) return sum > other ? -1 : 1;
    for (int i = 0; i < UNIQUE_COLUMNS - 1; i++) {
        int order = strcmp(cell_as_text(&x[i], number[0]), cell_as_text(&y[i], number[1]));
        if (order != 0) return order;
    }
    return 0;
}

/* Folds rows with equal arguments. pandas sorts groups by the summed time; ties are in the order of
 * the other columns. */
static Status unique_table(const Table *stats, Arena *a, Table *out)
{
    static const Fold fold = {
        .keys = "source|cpu_op_uid|name|busy_time|lowest_common_ancestor_name",
        .by = "kernel_time",
        .columns = "name=first name|operation_count=n|cpu_op_name=first cpu_op_name|"
                   "cpu_op_uid=first cpu_op_uid|source=first source|Input Dims=first Input Dims|"
                   "Input Strides=first Input Strides|Input type=first Input type|"
                   "Concrete Inputs=first Concrete Inputs|busy_time=first busy_time|"
                   "lowest_common_ancestor_name=first lowest_common_ancestor_name|"
                   "nn_module_stack=first nn_module_stack|nn_module_parent=first nn_module_parent|"
                   "kernel_time_*=mean,sum kernel_time"
    };
    FoldRows rows = { .t = *stats };
    *out = (Table){ .name = "diff_stats_unique_args_summary" };
    TRY(fold_rows(&rows, &fold, "", a, out));
    if (out->rows > 0) qsort(out->cell, (size_t)out->rows, UNIQUE_COLUMNS * sizeof(Cell), by_sum);
    return OK;
}

/* ---- kernels of operators ---- */

/* An operator that runs a kernel in one of the traces. */
typedef struct Use {
    int64_t rank; /* the operator's position in the table; 0 where the order is by name */
    const char *op, *source, *kernel;
} Use;

static int by_use(const void *a, const void *b)
{
    const Use *x = a, *y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    int order = strcmp(x->op, y->op);
    if (order == 0) order = strcmp(x->source, y->source);
    return order != 0 ? order : strcmp(x->kernel, y->kernel);
}

static bool same_op(const Use *x, const Use *y) { return strcmp(x->op, y->op) == 0; }

static bool same_source(const Use *x, const Use *y) { return strcmp(x->source, y->source) == 0; }

/* Writes the names of n kernels as a JSON list, each once. Lines are indented by `indent`. */
static Status put_kernels(Text *t, const Use *use, int64_t n, int indent)
{
    TRY(text_printf(t, "["));
    for (int64_t i = 0; i < n; i++) {
        if (i > 0 && strcmp(use[i].kernel, use[i - 1].kernel) == 0) continue;
        TRY(text_printf(t, "%s\n%*s", i > 0 ? "," : "", indent, ""));
        TRY(text_json(t, "%s", use[i].kernel));
    }
    return text_printf(t, "\n%*s]", indent - 2, "");
}

/* Writes which operators run which kernels, as JSON. source: the trace; -1: both, each under its
 * own key. */
static Status kernel_map(Stats *st, const Table *unique, int source, const char **out)
{
    Use *use = NULL;
    Text t = { 0 };
    int64_t n = 0;
    Strings ops = { 0 };
    TRY(ARENA_NEW(st->a, unique->rows, &use));
    TRY(strings_init(&ops));
    for (int64_t i = 0; i < unique->rows; i++) {
        const Cell *c = unique->cell + i * UNIQUE_COLUMNS;
        uint32_t rank = 0;
        if (source >= 0 && strcmp(c[4].text, sources[source]) != 0) continue;
        if (source < 0) TRY(strings_id(&ops, c[2].text, strlen(c[2].text), &rank));
        use[n++] = (Use){ rank, c[2].text, c[4].text, c[0].text };
    }
    strings_free(&ops);
    if (n > 0) qsort(use, (size_t)n, sizeof *use, by_use);
    TRY(text_init(&t, st->a));
    TRY(text_printf(&t, "{"));
    for (int64_t i = 0, end, part; i < n; i = end) {
        for (end = i; end < n && same_op(&use[i], &use[end]);) end++;
        TRY(text_json(&t, i > 0 ? ",\n  %s: " : "\n  %s: ", use[i].op));
        if (source >= 0) {
            TRY(put_kernels(&t, use + i, end - i, 4));
            continue;
        }
        for (int64_t k = i; k < end; k = part) {
            for (part = k; part < end && same_source(&use[k], &use[part]);) part++;
            TRY(text_json(&t,
                          k > i ? ",\n    %s: {\n      \"kernels\": "
                                : "{\n    %s: {\n      \"kernels\": ",
                          use[k].source));
            TRY(put_kernels(&t, use + k, part - k, 8));
            TRY(text_printf(&t, ",\n      \"nn_module_parents\": [\n        \"root\"\n      ]\n"
                                "    }"));
        }
        TRY(text_printf(&t, "\n  }"));
    }
    TRY(text_printf(&t, n > 0 ? "\n}" : "}"));
    *out = t.data;
    return OK;
}

/* ---- operators that TraceLens takes for the same ---- */

/* New names of operators, by the number of the old name in `names`. */
typedef struct Renames {
    Strings names;
    const char **to;           /* to[name]: the new name; NULL: it stays */
    bool *seen;                /* seen[name]: it was in a list that was renamed */
    DiffList list[DIFF_SIDES]; /* names of operators under one ancestor, each once */
} Renames;

/* Finds one name for two operators under one ancestor: what both have in common, else the name of
 * the module, which is root without frames of Python. */
static Status common_name(Arena *a, const char *x, const char *y, const char **out)
{
    const char *cut[2] = { x, y };
    Text both = { 0 };
    for (int i = 0; i < 2; i++) {
        for (const char *colons; (colons = strstr(cut[i], "::")) != NULL;) cut[i] = colons + 2;
    }
    *out = "root";
    if (strstr(cut[1], cut[0]) != NULL)
        *out = cut[0];
    else if (strstr(cut[0], cut[1]) != NULL)
        *out = cut[1];
    else if (strncmp(cut[0], cut[1], 20) == 0) {
        TRY(text_init(&both, a));
        TRY(text_printf(&both, "%s/%s", cut[0], cut[1]));
        *out = both.data;
    }
    return OK;
}

/* x and y are numbers of names. */
static Status rename_pair(Renames *r, Arena *a, uint32_t x, uint32_t y)
{
    if (x == y) return OK;
    TRY(common_name(a, strings_text(&r->names, x), strings_text(&r->names, y), &r->to[x]));
    r->to[y] = r->to[x];
    return OK;
}

static bool in_list(const DiffList *l, uint32_t name)
{
    for (int64_t i = 0; i < l->n; i++) {
        if (l->at[i] == name) return true;
    }
    return false;
}

static void drop_from(DiffList *l, int64_t i)
{
    memmove(l->at + i, l->at + i + 1, (size_t)(--l->n - i) * sizeof *l->at);
}

/* Renames operators under one ancestor in pairs: by position if both traces have equally many, else
 * those that the other trace does not have, in their order. */
static Status rename_under(Renames *r, Arena *a)
{
    DiffList *x = &r->list[DIFF_OLD], *y = &r->list[DIFF_NEW];
    bool all = true, whole = x->n == y->n;
    for (int s = 0; s < DIFF_SIDES; s++) {
        for (int64_t i = 0; i < r->list[s].n; i++) all &= r->seen[r->list[s].at[i]];
    }
    if (all || x->n == 0 || y->n == 0) return OK;
    for (int s = 0; s < DIFF_SIDES; s++) {
        for (int64_t i = 0; i < r->list[s].n; i++) r->seen[r->list[s].at[i]] = true;
    }
    for (int64_t i = 0; i < x->n && whole; i++) TRY(rename_pair(r, a, x->at[i], y->at[i]));
    for (int64_t i = 0; i < x->n && !whole;) {
        int64_t j = 0;
        while (j < y->n && y->at[j] != x->at[i]) j++;
        if (j == y->n) {
            i++;
            continue;
        }
        drop_from(x, i);
        drop_from(y, j);
    }
    for (int64_t i = 0; i < x->n && i < y->n && !whole; i++)
        TRY(rename_pair(r, a, x->at[i], y->at[i]));
    return OK;
}

/* For sorting rows by their lowest common ancestor. */
typedef struct ByLca {
    int64_t first, nth; /* rows: the first one of the ancestor, and this one */
} ByLca;

static int by_lca(const void *a, const void *b)
{
    const ByLca *x = a, *y = b;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return (x->nth > y->nth) - (x->nth < y->nth);
}

/* Visits ancestors in the order of their first rows. The order matters: an operator that was
 * renamed is not renamed again unless a new name comes with it. */
static Status find_renames(Stats *st, Renames *r)
{
    int64_t *first = NULL; /* first[node]: its first row + 1; 0: it has none */
    ByLca *order = NULL;
    uint32_t *name = NULL; /* name[row]: its operator's */
    TRY(ARENA_ZEROED(st->scratch, st->d->nodes, &first));
    TRY(ARENA_NEW(st->scratch, st->rows, &order));
    TRY(ARENA_NEW(st->scratch, st->rows, &name));
    int64_t n = 0;
    for (int64_t i = 0; i < st->rows; i++) {
        const Row *row = &st->row[i];
        const char *op = op_name(st, row);
        TRY(strings_id(&r->names, op, strlen(op), &name[i]));
        if (row->lca == EVENT_NONE) continue;
        if (first[row->lca] == 0) first[row->lca] = i + 1;
        order[n++] = (ByLca){ first[row->lca], i };
    }
    TRY(ARENA_ZEROED(st->scratch, r->names.n, &r->to));
    TRY(ARENA_ZEROED(st->scratch, r->names.n, &r->seen));
    for (int s = 0; s < DIFF_SIDES; s++) TRY(ARENA_NEW(st->scratch, r->names.n, &r->list[s].at));
    if (n > 0) qsort(order, (size_t)n, sizeof *order, by_lca);
    for (int64_t i = 0, end; i < n; i = end) {
        r->list[DIFF_OLD].n = r->list[DIFF_NEW].n = 0;
        for (end = i; end < n && order[end].first == order[i].first; end++) {
            DiffList *l = &r->list[st->row[order[end].nth].side];
            if (!in_list(l, name[order[end].nth])) l->at[l->n++] = name[order[end].nth];
        }
        TRY(rename_under(r, st->a));
    }
    return OK;
}

/* The summary and the map of both traces get the new names. Maps of one trace are written before,
 * with the old names. */
static Status rename_ops(Stats *st, Table *unique)
{
    Renames r = { 0 };
    TRY(strings_init(&r.names));
    Status s = find_renames(st, &r);
    for (int64_t i = 0; i < unique->rows && s == OK; i++) {
        Cell *op = &unique->cell[i * UNIQUE_COLUMNS + 2];
        uint32_t id = strings_find(&r.names, op->text);
        if (r.to[id] == NULL) continue;
        s = arena_text(st->a, r.to[id], strlen(r.to[id]), &op->text);
    }
    strings_free(&r.names);
    return s;
}

/* The maps of one trace come before rename_ops, the map of both after it. */
Status compat_diff(const Diff *d, Arena *a, Arena *scratch, CompatDiff *out)
{
    ArenaMark mark = arena_mark(scratch);
    Stats st = { .d = d, .a = a, .scratch = scratch };
    int64_t rows = 0;
    for (int s = 0; s < DIFF_SIDES; s++) {
        const Events *e = d->tree[s]->events;
        for (int64_t i = 0; i < e->n; i++) rows += event_on_gpu(e->kind[i]);
    }
    TRY(ARENA_NEW(scratch, rows, &st.row));
    TRY(ARENA_ZEROED(scratch, d->nodes, &st.done));
    TRY(all_rows(&st));
    TRY(stats_table(&st, &out->stats));
    TRY(unique_table(&out->stats, a, &out->unique));
    for (int s = 0; s < DIFF_SIDES; s++) TRY(kernel_map(&st, &out->unique, s, &out->map[s]));
    TRY(rename_ops(&st, &out->unique));
    TRY(kernel_map(&st, &out->unique, -1, &out->map[2]));
    arena_release(scratch, mark);
    return OK;
}
