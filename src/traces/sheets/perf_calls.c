/* perf_calls: see perf_calls.h. A model runs once for all calls of an operator with equal
 * arguments, because a trace repeats each call at every step. */
#include "traces/sheets/perf_calls.h"
#include "traces/table/python_text.h"

#include <stdlib.h>
#include <string.h>

static const char GRADIENT[] = "autograd::engine::evaluate_function:";

/* Finds the kernel whose name a model reads. Only names of rocBLAS tell something (perf_dense.c:
 * put_transposes). 0: there is none. */
static uint32_t telling_kernel(const Report *r, uint32_t event)
{
    const Work w = perf_work_below(r, event);
    for (uint32_t i = 0; i < w.n; i++)
        if (text_starts(event_name(r->e, w.gpu[i]), "Cijk_")) return r->e->name[w.gpu[i]];
    return 0;
}

/* Writes a parameter as Python's repr() does. Shapes and types are Python text already. */
static Status put_python_value(Text *t, const Cell *c)
{
    char number[TABLE_NUMBER_BYTES];
    if (c->type == CELL_WHOLE) return text_printf(t, "%lld", (long long)c->whole);
    if (c->type == CELL_BOOL) return text_printf(t, c->truth ? "True" : "False");
    if (c->type == CELL_NUMBER) return text_printf(t, "%s", table_number(number, c->number));
    if (c->type == CELL_NONE) return text_printf(t, "None");
    bool plain = *c->text == '(' || *c->text == '[' || strcmp(c->text, "None") == 0;
    return plain ? text_printf(t, "%s", c->text) : python_string(t, c->text, strlen(c->text));
}

/* Writes the parameters as a Python dict. Two calls are the same row of a sheet if these texts are
 * equal. */
static Status params_text(const Perf *p, Arena *a, const char **out)
{
    Text t;
    TRY(text_init(&t, a));
    TRY(text_printf(&t, "{"));
    for (int i = 0; i < p->params; i++) {
        TRY(text_printf(&t, "%s'%s': ", i == 0 ? "" : ", ", p->name[i]));
        TRY(put_python_value(&t, &p->value[i]));
    }
    TRY(text_printf(&t, "}"));
    *out = t.data;
    return OK;
}

/* key[group] is (operator, arguments, telling kernel). */
static Status make_rows(Report *r, PerfCalls *p, const Groups *g, const uint32_t *key,
                        Strings *seen)
{
    TRY(ARENA_ZEROED(r->arena, g->n + 1, &p->row));
    for (p->rows = 0; p->rows < g->n; p->rows++) {
        const uint32_t *k = key + 3 * (size_t)g->row[g->first[p->rows]];
        PerfRow *row = &p->row[p->rows];
        const Strings *s = &r->e->strings;
        const PerfQuery q = { strings_text(s, k[0]), k[2] == 0 ? NULL : strings_text(s, k[2]),
                              k[1] == EVENT_NONE ? NULL : &r->e->args[k[1]], p->how.rules };
        TRY(perf_model(r->e, &q, r->arena, &row->p));
        TRY(params_text(&row->p, r->arena, &row->text));
        TRY(strings_id(seen, row->text, strlen(row->text), &row->params));
    }
    return OK;
}

/* Lists the calls that have a model. Groups them by operator, arguments and telling kernel, so that
 * each group's model runs once. */
static Status find_calls(Report *r, PerfCalls *p)
{
    const Events *e = r->e;
    uint8_t *known = NULL; /* known[name]: 0 not asked yet, 1 has no model, 2 has one */
    uint32_t *key = NULL;
    int64_t room = 0, key_room = 0;
    Groups g;
    TRY(ARENA_ZEROED(r->arena, e->strings.n + 1, &known));
    TRY(ARENA_GROW(r->arena, 1, &key_room, &key));
    for (uint32_t i = 0; i < e->n; i++) {
        if (e->kind[i] != EVENT_CPU_OP) continue;
        /* a call without device work has no time to compare its work with */
        if (!p->how.idle && perf_work_below(r, i).n == 0) continue;
        uint8_t *k = &known[e->name[i]];
        if (*k == 0) *k = perf_has_model(event_name(e, i), p->how.rules) ? 2 : 1;
        if (*k == 1) continue;
        TRY(ARENA_GROW(r->arena, p->calls + 1, &room, &p->call));
        TRY(ARENA_GROW(r->arena, 3 * p->calls + 3, &key_room, &key));
        uint32_t *at = key + 3 * p->calls;
        at[0] = e->name[i];
        at[1] = event_args(e, i);
        at[2] = telling_kernel(r, i);
        p->call[p->calls++].event = i;
    }
    TRY(groups_make(key, 3, p->calls, r->arena, &g));
    Strings seen = { 0 };
    TRY(strings_init(&seen));
    Status s = make_rows(r, p, &g, key, &seen);
    strings_free(&seen);
    for (int64_t i = 0; i < p->calls && s == OK; i++) {
        const Work w = perf_work_below(r, p->call[i].event);
        p->call[i].row = g.of[i];
        s = report_busy(r, w.gpu, w.n, &p->call[i].us);
    }
    return s;
}

/* ---- gradients ---- */

/* An event of autograd, and the operator that it is the gradient of. Both have the same Sequence
 * number. Several nested operators may have it too; the one that begins last is the innermost,
 * which did the work. */
typedef struct Backward {
    int64_t sequence;
    uint32_t event, forward;
} Backward;

static int by_sequence(const void *a, const void *b)
{
    const Backward *x = a, *y = b;
    if (x->sequence != y->sequence) return x->sequence < y->sequence ? -1 : 1;
    return (x->event > y->event) - (x->event < y->event);
}

/* Notes the operator as the forward of all gradients with its Sequence number, unless a later one
 * is known. An operator on the gradient's own thread is part of the gradient. */
static void offer_forward(const Events *e, Backward *at, int64_t n, uint32_t event)
{
    const Backward want = { .sequence = e->ops[e->detail[event]].sequence };
    int64_t low = 0, high = n;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (at[middle].sequence < want.sequence)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < n && at[low].sequence == want.sequence; low++) {
        uint32_t *f = &at[low].forward;
        if (e->track[event] == e->track[at[low].event]) continue;
        if (*f == EVENT_NONE || e->ts[event] >= e->ts[*f]) *f = event;
    }
}

/* Calls are in the order of events, so this is a binary search. -1: there is none. */
static int64_t call_of(const PerfCalls *p, uint32_t event)
{
    int64_t low = 0, high = p->calls;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (p->call[middle].event < event)
            low = middle + 1;
        else
            high = middle;
    }
    return low < p->calls && p->call[low].event == event ? low : -1;
}

static int by_call(const void *a, const void *b)
{
    const PerfGradient *x = a, *y = b;
    if (x->call != y->call) return x->call < y->call ? -1 : 1;
    return (x->backward > y->backward) - (x->backward < y->backward);
}

/* Finds the gradients whose work the operator's model knows. Autograd runs them on another thread,
 * so the tree does not connect them. */
static Status find_gradients(Report *r, PerfCalls *p)
{
    const Events *e = r->e;
    Backward *at = NULL;
    int64_t most = 0, n = 0;
    bool any = false;
    /* Most traces have no such model; then autograd's events are not looked at. */
    for (int64_t i = 0; i < p->calls; i++) any |= p->row[p->call[i].row].p.backward_sheet != NULL;
    for (uint32_t i = 0; i < e->n && any; i++)
        most += e->kind[i] == EVENT_CPU_OP && text_starts(event_name(e, i), GRADIENT);
    TRY(ARENA_NEW(r->arena, most + 1, &at));
    TRY(ARENA_NEW(r->arena, most + 1, &p->gradient));
    if (most == 0) return OK;
    for (uint32_t i = 0; i < e->n; i++) {
        if (e->kind[i] != EVENT_CPU_OP || !text_starts(event_name(e, i), GRADIENT)) continue;
        int64_t sequence = e->detail[i] == EVENT_NONE ? -1 : e->ops[e->detail[i]].sequence;
        if (sequence >= 0) at[n++] = (Backward){ sequence, i, EVENT_NONE };
    }
    qsort(at, (size_t)n, sizeof *at, by_sequence);
    for (uint32_t i = 0; i < e->n; i++) {
        if (e->kind[i] == EVENT_CPU_OP && e->detail[i] != EVENT_NONE &&
            e->ops[e->detail[i]].sequence >= 0)
            offer_forward(e, at, n, i);
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t call = at[i].forward == EVENT_NONE ? -1 : call_of(p, at[i].forward);
        if (call < 0 || p->row[p->call[call].row].p.backward_sheet == NULL) continue;
        p->gradient[p->gradients++] = (PerfGradient){ (uint32_t)call, at[i].event };
    }
    qsort(p->gradient, (size_t)p->gradients, sizeof *p->gradient, by_call);
    return OK;
}

Status perf_calls_make(Report *r, const PerfChoice *how)
{
    PerfCalls *p = NULL;
    TRY(ARENA_ZEROED(r->arena, 1, &p));
    p->how = *how;
    TRY(find_calls(r, p));
    TRY(find_gradients(r, p));
    if (how->peaks) TRY(perf_peaks(r, &p->peaks));
    r->perf = p;
    return OK;
}

/* By default megabytes are 10^6 bytes and calls without device work are left out. */
Status perf_calls(Report *r, const PerfCalls **out)
{
    if (r->perf == NULL) TRY(perf_calls_make(r, &(PerfChoice){ .peaks = true, .mb = 1e6 }));
    *out = r->perf;
    return OK;
}

const PerfRow *perf_calls_find(const PerfCalls *p, uint32_t event)
{
    int64_t call = call_of(p, event);
    const PerfRow *row = call < 0 ? NULL : &p->row[p->call[call].row];
    return row == NULL || row->p.sheet == NULL ? NULL : row;
}
