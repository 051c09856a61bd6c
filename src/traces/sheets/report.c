/*
 * report: decides what counts of a trace and who launched it. See report.h. Sheets have files of
 * their own (sheet_*.c, timeline.c).
 *
 * Device work is chosen first (choose_work), by the step and by whether its launch is known. Then
 * it is grouped by launcher (report_launchers). Sheets read both and change neither.
 */
#include "traces/sheets/report.h"
#include "traces/read/movers.h"
#include "traces/sheets/perf.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- buckets ---- */

/* ROCm also copies with kernels, which are known by their names. */
static bool is_copy_kernel(const char *name)
{
    static const char *const DIRECTION[] = { "HOST_TO_DEVICE", "DEVICE_TO_HOST",
                                             "DEVICE_TO_DEVICE" };
    static const char BLIT[] = "__amd_rocclr_copyBuffer", COPY[] = "MEMORY_COPY_";
    if (text_starts(name, COPY)) {
        for (int i = 0; i < 3; i++)
            if (strcmp(name + sizeof COPY - 1, DIRECTION[i]) == 0) return true;
    }
    if (!text_starts(name, BLIT)) return false;
    name += sizeof BLIT - 1;
    /* __amd_rocclr_copyBuffer, with Rect, Aligned or both, and .kd */
    if (text_starts(name, "Rect")) name += 4;
    if (text_starts(name, "Aligned")) name += 7;
    return *name == '\0' || strcmp(name, ".kd") == 0;
}

static Bucket bucket_of_name(const Report *r, const char *name)
{
    if (is_copy_kernel(name)) return BUCKET_MEMCPY;
    const char *movers = r->o->movers;
    bool comm = movers == NULL ? mover_library(name) != NULL
                               : strings_has_word(name, movers) || text_starts(name, "comm: ");
    return comm ? BUCKET_COMM : BUCKET_COMPUTATION;
}

/* Names are few, so the bucket of a name is found once. A copy's name says nothing. */
Bucket report_bucket(const Report *r, uint32_t event)
{
    uint8_t *known = &r->bucket[r->e->name[event]];
    if (r->e->kind[event] == EVENT_MEMCPY) return BUCKET_MEMCPY;
    if (*known == 0) *known = (uint8_t)(bucket_of_name(r, event_name(r->e, event)) + 1);
    return (Bucket)(*known - 1);
}

/* ---- small questions ---- */

uint32_t report_operator(const Report *r, uint32_t event)
{
    while (event != EVENT_NONE && r->e->kind[event] != EVENT_CPU_OP) event = r->tree->parent[event];
    return event;
}

const OpArgs *report_args(const Report *r, uint32_t event)
{
    uint32_t args = event == EVENT_NONE ? EVENT_NONE : event_args(r->e, event);
    return args == EVENT_NONE ? NULL : &r->e->args[args];
}

int32_t report_stream(const Report *r, uint32_t event)
{
    uint32_t detail = r->e->detail[event];
    return detail == EVENT_NONE ? -1 : r->e->gpu[detail].stream;
}

/* Leaves the spans in the report's arena. */
Status report_spans(const Report *r, unsigned mask, int recompute, Spans *out)
{
    Spans s = { 0 };
    TRY(ARENA_NEW(r->arena, r->gpus + 1, &s.at));
    for (int64_t k = 0; k < r->gpus; k++) {
        uint32_t i = r->gpu[k];
        if (recompute >= 0 && r->tree->recompute[i] != (recompute == 1)) continue;
        if ((mask >> report_bucket(r, i) & 1) == 0) continue;
        s.at[s.n++] = (Span){ r->e->ts[i], event_end(r->e, i) };
    }
    spans_merge(&s);
    *out = s;
    return OK;
}

/* ---- steps ---- */

static const char STEP[] = "ProfilerStep#";

/* The number of a step's range; -1: the event is not a step. */
static int64_t step_number(const Events *e, int64_t i)
{
    const char *name = event_name(e, i);
    if (e->kind[i] != EVENT_ANNOTATION || !text_starts(name, STEP)) return -1;
    return strtoll(name + sizeof STEP - 1, NULL, 10);
}

static int by_host_start(const void *a, const void *b)
{
    const Step *x = a, *y = b;
    return (x->host.start > y->host.start) - (x->host.start < y->host.start);
}

/* Steps are sorted by time: traces of several threads need not be in order. Steps of one number that
 * overlap are those of several processes, and count as one. */
Status report_steps(const Events *e, Arena *a, Step **out, int64_t *n)
{
    int64_t most = 0;
    *n = 0;
    for (int64_t i = 0; i < e->n; i++) most += step_number(e, i) >= 0;
    TRY(ARENA_NEW(a, most + 1, out));
    for (int64_t i = 0; i < e->n; i++) {
        int64_t number = step_number(e, i);
        if (number >= 0) (*out)[(*n)++] = (Step){ number, { e->ts[i], event_end(e, i) } };
    }
    qsort(*out, (size_t)*n, sizeof **out, by_host_start);
    int64_t kept = 0;
    for (int64_t i = 0; i < *n; i++) {
        Step *last = &(*out)[kept > 0 ? kept - 1 : 0], next = (*out)[i];
        const bool again = kept > 0 && last->number == next.number;
        if (again && next.host.start < last->host.end)
            last->host.end = fmax(last->host.end, next.host.end);
        else
            (*out)[kept++] = next;
    }
    *n = kept;
    return OK;
}

/* The sentence tells which steps there are, because traces often begin at a late step. */
Status report_step(const Events *e, int64_t step, Arena *a, Span *out)
{
    Step *at = NULL;
    int64_t n = 0;
    TRY(report_steps(e, a, &at, &n));
    for (int64_t i = 0; i < n; i++) {
        if (at[i].number != step) continue;
        *out = at[i].host;
        return OK;
    }
    if (n == 0)
        return FAIL(ERR_ARG, "%s: no step %lld: the trace marks no steps", e->path,
                    (long long)step);
    return FAIL(ERR_ARG, "%s: no step %lld: the trace has steps %lld to %lld", e->path,
                (long long)step, (long long)at[0].number, (long long)at[n - 1].number);
}

/* ---- what counts ---- */

/* A trace without device events has nothing to report. The sentence says what it has, and how to
 * record the rest. */
Status report_need_work(const Events *e)
{
    int64_t of[EVENT_KINDS] = { 0 };
    for (int64_t i = 0; i < e->n; i++) of[e->kind[i]]++;
    if (of[EVENT_KERNEL] + of[EVENT_MEMCPY] + of[EVENT_MEMSET] > 0) return OK;
    if (e->counts.truncated)
        return FAIL(ERR_PARTIAL, "%s ends early, before any of its device events", e->path);
    return FAIL(ERR_FORMAT,
                "%s has no device events, only %lld operators, %lld runtime calls and %lld others: "
                "without kernels there is no timeline and no operator's time; record it with "
                "CUDA activities, too",
                e->path, (long long)of[EVENT_CPU_OP],
                (long long)(of[EVENT_RUNTIME] + of[EVENT_DRIVER]),
                (long long)(e->n - of[EVENT_CPU_OP] - of[EVENT_RUNTIME] - of[EVENT_DRIVER]));
}

/* A device event belongs to the step in which it was launched. Without a launch, it belongs to the
 * step in which it starts. */
static bool in_step(const Report *r, uint32_t i, const Span *step)
{
    uint32_t call = r->tree->parent[i];
    double ts = r->e->ts[call == EVENT_NONE ? i : call];
    return ts >= step->start && ts < step->end;
}

/* Events are in the order of the file. The sort is stable, so equal starts keep it. */
static Status sort_work_by_time(Report *r)
{
    double *start = NULL;
    uint32_t *order = NULL, *sorted = NULL;
    TRY(ARENA_NEW(r->arena, r->gpus + 1, &sorted));
    ArenaMark mark = arena_mark(r->arena);
    TRY(ARENA_NEW(r->arena, r->gpus + 1, &start));
    for (int64_t k = 0; k < r->gpus; k++) start[k] = r->e->ts[r->gpu[k]];
    TRY(groups_rising(start, r->gpus, r->arena, &order));
    for (int64_t k = 0; k < r->gpus; k++) sorted[k] = r->gpu[order[k]];
    r->gpu = sorted;
    arena_release(r->arena, mark);
    return OK;
}

/* Decides what counts: the work of the chosen step; with linked_only, only work whose launch is in
 * the trace. If no launch is there at all, all work counts. Also notes when the host begins and
 * ends. */
static Status choose_work(Report *r)
{
    const Events *e = r->e;
    Span step = { -INFINITY, INFINITY };
    bool launched = false, linked = false;
    double last = -INFINITY;
    int64_t most = 0;
    if (r->o->step >= 0) TRY(report_step(e, r->o->step, r->arena, &step));
    for (int64_t i = 0; i < e->n; i++) {
        launched |= e->kind[i] == EVENT_CPU_OP;
        linked |= event_on_gpu(e->kind[i]) && r->tree->parent[i] != EVENT_NONE;
        most += event_on_gpu(e->kind[i]);
    }
    /* A trace without any launch would otherwise have nothing to show. */
    bool all = !r->o->linked_only || (!launched && !linked);
    TRY(ARENA_NEW(r->arena, most + 1, &r->gpu));
    r->host_start = INFINITY, r->host_end = -INFINITY;
    for (uint32_t i = 0; i < e->n; i++) {
        double end = event_end(e, i);
        bool host = e->kind[i] <= EVENT_DRIVER && e->ts[i] >= step.start && end <= step.end;
        if (host && e->ts[i] < r->host_start) r->host_start = e->ts[i];
        if (host && end > r->host_end) r->host_end = end;
        if (!event_on_gpu(e->kind[i]) || !in_step(r, i, &step)) continue;
        if (all || r->tree->parent[i] != EVENT_NONE) {
            r->gpu[r->gpus++] = i;
            if (end > last) last = end;
        }
    }
    TRY(sort_work_by_time(r));
    r->total_us = r->gpus == 0 ? 0 : last - e->ts[r->gpu[0]];
    r->operators = launched || r->gpus != e->n;
    return OK;
}

/* ---- launchers ---- */

Status report_busy(const Report *r, const uint32_t *gpu, int64_t n, double *out)
{
    return spans_busy(r->e->ts, r->e->dur, gpu, n, r->arena, out);
}

/* A cache of categories. Finding a category compares many texts, and a trace has few pairs of
 * names. Entries collide by hash and replace each other. */
enum { KNOWN = 1 << 12 };
typedef struct KnownCategory {
    uint32_t name, kernel;
    const char *category;
} KnownCategory;

/* Exchanges have one category, whoever launches them, since most are launched by
 * record_param_comms. */
const char *report_category(const Report *r, uint32_t launcher, uint32_t first_kernel)
{
    if (launcher == EVENT_NONE) return "unlinked";
    if (report_bucket(r, first_kernel) == BUCKET_COMM) return "record_param_comms";
    uint32_t name = r->e->name[launcher], kernel = r->e->name[first_kernel];
    KnownCategory *k = &r->known[(name * 31 + kernel) % KNOWN];
    if (k->category == NULL || k->name != name || k->kernel != kernel) {
        const char *text = event_name(r->e, launcher), *work = event_name(r->e, first_kernel);
        *k = (KnownCategory){ name, kernel,
                              r->o->movers != NULL ? perf_category(text, work)
                                                   : perf_category_by_words(text, work) };
    }
    return k->category;
}

Launcher report_launcher(const Report *r, uint32_t event, uint32_t first_kernel)
{
    bool known = event != EVENT_NONE;
    return (Launcher){ .event = event,
                       .args = known ? event_args(r->e, event) : EVENT_NONE,
                       .category = report_category(r, event, first_kernel),
                       .recompute =
                           known && r->tree->recompute != NULL && r->tree->recompute[event] };
}

/* Busy time of a launcher's own work, and of all work below it. */
static Status measure_launcher(const Report *r, Launcher *l)
{
    const Tree *t = r->tree;
    TRY(report_busy(r, r->own + l->first, l->n, &l->direct_us));
    l->subtree_us = l->direct_us;
    if (l->event == EVENT_NONE) return OK;
    uint32_t from = t->gpu_first[l->event], n = t->gpu_first[l->event + 1] - from;
    return report_busy(r, t->gpu + from, n, &l->subtree_us);
}

/* Work without a launch in the trace is a launcher of its own, piece by piece, so that its time has
 * a row. Launchers are sorted by start; those without a launch come last. */
Status report_launchers(Report *r, const uint32_t *gpu, int64_t n)
{
    uint32_t *key = NULL; /* the launcher; EVENT_NONE, and the work itself */
    uint32_t *order = NULL;
    double *start = NULL;
    Groups g;
    TRY(ARENA_NEW(r->arena, n + 1, &r->own));
    TRY(ARENA_NEW(r->arena, 2 * n + 1, &key));
    for (int64_t k = 0; k < n; k++) {
        key[2 * k] = tree_launcher(r->tree, gpu[k]);
        /* two words: the launcher, or the work itself where the launcher is not known */
        key[2 * k + 1] = key[2 * k] == EVENT_NONE ? gpu[k] : 0;
    }
    TRY(groups_make(key, 2, n, r->arena, &g));
    TRY(ARENA_ZEROED(r->arena, g.n + 1, &r->launcher));
    r->launchers = 0;
    for (int64_t i = 0; i < n; i++) r->own[i] = gpu[g.row[i]];
    TRY(ARENA_NEW(r->arena, g.n + 1, &start));
    for (int64_t k = 0; k < g.n; k++) {
        uint32_t at = key[2 * (size_t)g.row[g.first[k]]];
        start[k] = at == EVENT_NONE ? (double)INFINITY : r->e->ts[at];
    }
    TRY(groups_rising(start, g.n, r->arena, &order));
    for (int64_t k = 0; k < g.n; k++) {
        uint32_t from = g.first[order[k]], end = g.first[order[k] + 1];
        Launcher *l = &r->launcher[r->launchers++];
        *l = report_launcher(r, key[2 * (size_t)g.row[from]], r->own[from]);
        l->first = from;
        l->n = end - from;
        TRY(measure_launcher(r, l));
    }
    return OK;
}

/* Only the arena `a` grows; *out is set on success. */
Status report_make(const Events *e, const Tree *t, const ReportOptions *o, Arena *a, Report *out)
{
    Report r = { .e = e, .tree = t, .o = o, .arena = a };
    TRY(ARENA_ZEROED(a, e->strings.n + 1, &r.bucket));
    TRY(ARENA_ZEROED(a, e->strings.n + 1, &r.sync));
    TRY(ARENA_ZEROED(a, KNOWN, &r.known));
    TRY(choose_work(&r));
    TRY(report_launchers(&r, r.gpu, r.gpus));
    *out = r;
    return OK;
}

/* ---- sheets ---- */

/* The marks of columns that this report's sheets do not have. */
static const char *missing_marks(const Report *r, char marks[3])
{
    char *end = marks;
    if (!r->o->recompute) *end++ = '?';
    if (!r->operators) *end++ = '@';
    *end = '\0';
    return marks;
}

Status sheet_columns(const Report *r, const char *columns, Table *out)
{
    char marks[3];
    return table_init(out, out->name, columns, missing_marks(r, marks), r->arena);
}

/* The rows have an arena of their own, which is freed when the sheet is made. */
Status report_fold(Report *r, const Fold *f, FillRows *fill, void *state, Table *out)
{
    FoldRows rows = { .whole = { NAN, NAN }, .state = state };
    Arena room = { 0 };
    char marks[3];
    TRY(arena_reserve(&room, "rows of a sheet", (size_t)64 << 30));
    Status s = table_init(&rows.t, "rows", f->rows, "", &room);
    if (s == OK) s = fill(r, &rows);
    if (s == OK) s = fold_rows(&rows, f, missing_marks(r, marks), r->arena, out);
    arena_free(&room);
    return s;
}

static Cell label_of(const Report *r, uint32_t text)
{
    return cell_text(text == 0 ? "Unknown" : strings_text(&r->e->strings, text));
}

/* Cells of CALL_KEYS. What is unknown is "Unknown", as in TraceLens. */
Status report_put_call(const Report *r, const Launcher *l, uint32_t kernel, Table *rows)
{
    static const Track nowhere = { 0 };
    const Events *e = r->e;
    const bool loose = l->event == EVENT_NONE;
    const Track *t = loose ? &nowhere : &e->tracks[e->track[l->event]];
    return TABLE_ROW(rows, cell_text(loose ? "(unlinked)" : event_name(e, l->event)),
                     cell_bool(loose), cell_text(l->category),
                     cell_count(l->args == EVENT_NONE ? -1 : (int64_t)l->args),
                     label_of(r, t->process_name), label_of(r, t->process_label),
                     label_of(r, t->thread_name), cell_bool(l->recompute && r->o->recompute),
                     cell_text(kernel == EVENT_NONE ? NULL : event_name(e, kernel)));
}

/* Cells of CALL_REST. A kernel that stands alone has no arguments. */
Status report_put_rest(const Report *r, const Launcher *l, uint32_t kernel, Table *out)
{
    static const OpArgs none = { 0 };
    const Strings *s = &r->e->strings;
    const OpArgs *args = l->args == EVENT_NONE ? &none : &r->e->args[l->args];
    return TABLE_ROW(
        out, cell_text(strings_text(s, args->dims)), cell_text(strings_text(s, args->types)),
        cell_text(strings_text(s, args->strides)), cell_text(strings_text(s, args->concrete)),
        cell_whole(r->e->index[kernel == EVENT_NONE ? l->event : kernel]));
}

Status report_sheets_by(Report *r, MakeOne *make, Table *out, int *n)
{
    *n = 0;
    assert(report_sheets_n <= REPORT_SHEETS_MOST);
    for (int i = 0; i < report_sheets_n; i++) {
        Table *t = &out[*n];
        if (!report_sheets[i].wanted(r)) continue;
        *t = (Table){ .name = report_sheets[i].name };
        TRY(make(&report_sheets[i], r, t));
        if (t->columns == 0) continue; /* the trace has nothing of it */
        TRY(table_drop(t, REPORT_HIDDEN));
        *n += 1;
    }
    return OK;
}

static Status make_own(const Sheet *s, Report *r, Table *out) { return s->make(r, out); }

Status report_tables(Report *r, Table *out, int *n)
{
    return report_sheets_by(r, make_own, out, n);
}
