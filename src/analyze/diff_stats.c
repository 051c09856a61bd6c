/* diff_stats: TraceLens' tables of two traces (tracing.md 2.7), and the merged tree as text. */
#include "analyze/diff.h"
#include "analyze/spans.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const sources[] = { "trace1", "trace2" };

/* ---- the tree as text ---- */

static int only_in(const DiffNode *n)
{
    if (n->event[DIFF_OLD] == EVENT_NONE) return 2;
    return n->event[DIFF_NEW] == EVENT_NONE ? 1 : 0;
}

static Status write_line(const Diff *d, uint32_t id, const bool *last, uint32_t *path, File *out)
{
    const DiffNode *n = &d->node[id];
    const char *name[DIFF_SIDES] = { "", "" };
    int64_t depth = 0;
    for (uint32_t up = n->parent; up != EVENT_NONE; up = d->node[up].parent) path[depth++] = up;
    while (depth-- > 0) TRY(file_printf(out, last[path[depth]] ? "    " : "│   "));
    for (int s = 0; s < DIFF_SIDES; s++) {
        if (n->event[s] != EVENT_NONE) name[s] = event_name(d->tree[s]->events, n->event[s]);
    }
    TRY(file_printf(out, last[id] ? "└── " : "├── "));
    switch (only_in(n)) {
    case 1: return file_printf(out, ">> trace1: %s\n", name[DIFF_OLD]);
    case 2: return file_printf(out, "<< trace2: %s\n", name[DIFF_NEW]);
    default: break;
    }
    if (strcmp(name[DIFF_OLD], name[DIFF_NEW]) == 0) return file_printf(out, "%s\n", *name);
    return file_printf(out, "combined: %s | %s\n", name[DIFF_OLD], name[DIFF_NEW]);
}

Status diff_text(const Diff *d, Arena *scratch, File *out)
{
    ArenaMark mark = arena_mark(scratch);
    bool *last = NULL;
    uint32_t *path = NULL, *stack = NULL;
    int64_t n = 0;
    TRY(ARENA_ZEROED(scratch, d->nodes, &last));
    TRY(ARENA_NEW(scratch, d->nodes, &path));
    TRY(ARENA_NEW(scratch, d->nodes + 1, &stack));
    for (int64_t i = d->roots - 1; i >= 0; i--) stack[n++] = d->root[i];
    if (n > 0) last[stack[0]] = true;
    while (n > 0) {
        uint32_t id = stack[--n];
        const DiffNode *node = &d->node[id];
        int64_t below = n;
        TRY(write_line(d, id, last, path, out));
        for (int kind = 2; kind >= 0; kind--) {
            for (int64_t c = node->children - 1; c >= 0; c--) {
                uint32_t child = d->child[node->first + c];
                if (only_in(&d->node[child]) == kind) stack[n++] = child;
            }
        }
        if (n > below) last[stack[below]] = true;
    }
    arena_release(scratch, mark);
    return OK;
}

/* ---- rows ---- */

typedef struct Row {
    uint32_t gpu, op; /* events */
    uint32_t lca;     /* node; EVENT_NONE */
    const char *lca_name;
    double busy;
    int64_t nth;
    int side;
} Row;

typedef struct Stats {
    const Diff *d;
    Arena *a, *scratch;
    Row *row;
    int64_t rows;
    bool *done;                     /* by node: its events have rows */
    const char **tuple[DIFF_SIDES]; /* by row of args: four texts as Python prints them */
} Stats;

/* The name without "(12)". */
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

/* To three digits, as numpy rounds. */
static double rounded(double x) { return rint(x * 1000) / 1000; }

static Status add_rows(Stats *st, int side, const DiffList *gpu, uint32_t lca, const char *name)
{
    const Tree *t = st->d->tree[side];
    const Events *e = t->events;
    ArenaMark mark = arena_mark(st->scratch);
    Spans busy = { NULL, gpu->n };
    TRY(ARENA_NEW(st->scratch, gpu->n, &busy.at));
    for (int64_t i = 0; i < gpu->n; i++)
        busy.at[i] = (Span){ e->ts[gpu->at[i]], event_end(e, gpu->at[i]) };
    spans_merge(&busy);
    double length = rounded(spans_length(&busy));
    for (int64_t i = 0; i < gpu->n; i++) {
        uint32_t op = t->parent[gpu->at[i]];
        while (op != EVENT_NONE && e->kind[op] != EVENT_CPU_OP) op = t->parent[op];
        if (op == EVENT_NONE) continue;
        st->row[st->rows] = (Row){ gpu->at[i], op, lca, name, length, st->rows, side };
        st->rows++;
    }
    arena_release(st->scratch, mark);
    return OK;
}

/* Device work of an event and below. */
static void gather(const Tree *t, uint32_t event, bool itself, DiffList *out)
{
    for (uint32_t i = t->gpu_first[event]; i < t->gpu_first[event + 1]; i++)
        out->at[out->n++] = t->gpu[i];
    if (itself && is_copy_or_kernel(t->events, event)) out->at[out->n++] = event;
}

/* Rows of a matched pair: what is below children that are not matched, or the pair itself. */
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
        gpu[s] = (DiffList){ 0 };
        TRY(ARENA_NEW(st->scratch, t->gpu_first[t->events->n] + 1, &gpu[s].at));
        kernels &= is_copy_or_kernel(t->events, n->event[s]);
        for (uint32_t c = 0; c < n->children; c++) {
            const DiffNode *child = &d->node[d->child[n->first + c]];
            if (only_in(child) != s + 1) continue;
            any |= diff_on_way(t, child->event[s]);
        }
    }
    if (any || kernels) {
        for (int s = 0; s < DIFF_SIDES; s++) {
            for (uint32_t c = 0; c < n->children; c++) {
                uint32_t child = d->child[n->first + c], event = d->node[child].event[s];
                if (only_in(&d->node[child]) != s + 1 || !diff_on_way(d->tree[s], event)) continue;
                gather(d->tree[s], event, true, &gpu[s]);
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

/* Nodes come in the order of the walk; below a node that is in one trace only nothing is looked
 * at. */
static Status all_rows(Stats *st)
{
    const Diff *d = st->d;
    bool *open = NULL;
    TRY(ARENA_ZEROED(st->scratch, d->nodes, &open));
    for (int64_t id = 0; id < d->nodes; id++) {
        const DiffNode *n = &d->node[id];
        int side = only_in(n) - 1;
        const char *name = NULL;
        if ((n->parent != EVENT_NONE && !open[n->parent]) || st->done[id]) continue;
        if (side < 0) {
            bool way[DIFF_SIDES];
            for (int s = 0; s < DIFF_SIDES; s++) way[s] = diff_on_way(d->tree[s], n->event[s]);
            if (way[DIFF_OLD] && way[DIFF_NEW]) TRY(rows_of_pair(st, (uint32_t)id));
            open[id] = way[DIFF_OLD] || way[DIFF_NEW];
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

/* JSON as Python prints it with tuples for lists: ((8, 12), (), 'float'). A list of one ends in a
 * comma. */
static Status python_text(Arena *a, const char *s, const char **out)
{
    Text t = { 0 };
    bool comma[64] = { false };
    int depth = 0;
    TRY(text_init(&t, a));
    TRY(text_append(&t, "", 0));
    while (*s != 0) {
        size_t word = strcspn(s, "[],\"");
        if (word > 0) {
            const char *to = *s == 't' ? "True" : *s == 'f' ? "False" : *s == 'n' ? "None" : NULL;
            TRY(to != NULL ? text_append(&t, to, strlen(to)) : text_append(&t, s, word));
            s += word;
        } else if (*s == '"') {
            size_t n = 1;
            while (s[n] != '"' && s[n] != 0) n += s[n] == '\\' && s[n + 1] != 0 ? 2 : 1;
            char quote = memchr(s, '\'', n) != NULL ? '"' : '\'';
            TRY(text_append(&t, &quote, 1));
            for (size_t i = 1; i < n; i++) {
                if (s[i] == '\\' && (s[i + 1] == '"' || s[i + 1] == '/')) continue;
                TRY(text_append(&t, s + i, s[i] == '\\' && i + 1 < n ? 2 : 1));
                i += s[i] == '\\';
            }
            TRY(text_append(&t, &quote, 1));
            s += s[n] == 0 ? n : n + 1;
        } else {
            if (*s == '[' && depth < 63) comma[++depth] = false;
            if (*s == ',') comma[depth] = true;
            bool single = *s == ']' && !comma[depth] && s[-1] != '[';
            TRY(text_printf(&t, *s == '[' ? "(" : *s == ',' ? ", " : single ? ",)" : ")"));
            if (*s == ']' && depth > 0) depth--;
            s++;
        }
    }
    *out = t.data;
    return OK;
}

/* Sizes, strides, types and values of an operator's arguments; "" where there are none. */
static Status arguments(Stats *st, int side, uint32_t op, const char **out[4])
{
    static const char *none[4] = { "", "", "", "" };
    const Events *e = st->d->tree[side]->events;
    uint32_t row = e->detail[op] == EVENT_NONE ? EVENT_NONE : e->ops[e->detail[op]].args;
    *out = none;
    if (row == EVENT_NONE) return OK;
    const OpArgs *args = &e->args[row];
    const uint32_t id[4] = { args->dims, args->strides, args->types, args->concrete };
    const char **text = st->tuple[side] + (size_t)row * 4;
    for (int i = 0; i < 4 && text[0] == NULL; i++)
        if (i > 0 || true) break;
    for (int i = 0; i < 4; i++) {
        if (text[i] == NULL) TRY(python_text(st->a, strings_text(&e->strings, id[i]), &text[i]));
    }
    *out = text;
    return OK;
}
