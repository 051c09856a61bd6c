/*
 * timeline: splits the device's time into computation, exposed communication, exposed copies and
 * idle time.
 *
 * With C, M and P the merged spans of computation, communication and copies:
 *
 *     exposed communication = M without C
 *     exposed copies        = P without C and without M
 *     busy                  = union of all; idle = total - busy
 *
 * Who is to blame for idle time is said in sheet_idle.c.
 */
#include "traces/sheets/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

const char *const timeline_name[TIMELINE_ROWS] = {
    [TIMELINE_COMPUTATION] = "computation_time",
    [TIMELINE_EXPOSED_COMM] = "exposed_comm_time",
    [TIMELINE_EXPOSED_MEMCPY] = "exposed_memcpy_time",
    [TIMELINE_BUSY] = "busy_time",
    [TIMELINE_IDLE] = "idle_time",
    [TIMELINE_TOTAL] = "total_time",
    [TIMELINE_COMM] = "total_comm_time",
    [TIMELINE_MEMCPY] = "total_memcpy_time",
};

/* Merged spans of each row, and the time from the first start to the last end. */
typedef struct Timeline {
    Spans of[TIMELINE_ROWS]; /* idle and total have none */
    double total;
} Timeline;

/* recompute: as in report_spans. The spans lie in the report's arena. */
static Status make_timeline(const Report *r, int recompute, Timeline *t)
{
    Spans not_comp, *comp = &t->of[TIMELINE_COMPUTATION], *comm = &t->of[TIMELINE_COMM];
    Spans *memcpy = &t->of[TIMELINE_MEMCPY], *all = &t->of[TIMELINE_BUSY];
    *t = (Timeline){ 0 };
    TRY(report_spans(r, 1u << BUCKET_COMPUTATION, recompute, comp));
    TRY(report_spans(r, 1u << BUCKET_COMM, recompute, comm));
    TRY(report_spans(r, 1u << BUCKET_MEMCPY, recompute, memcpy));
    TRY(report_spans(r, ~0u, recompute, all));
    /* Computation hides communication, and both hide copies. */
    TRY(spans_subtract(comm, comp, r->arena, &t->of[TIMELINE_EXPOSED_COMM]));
    TRY(spans_subtract(memcpy, comp, r->arena, &not_comp));
    TRY(spans_subtract(&not_comp, comm, r->arena, &t->of[TIMELINE_EXPOSED_MEMCPY]));
    t->total = all->n == 0 ? 0 : all->at[all->n - 1].end - all->at[0].start;
    return OK;
}

static void timeline_lengths(const Timeline *t, double us[TIMELINE_ROWS])
{
    for (int i = 0; i < TIMELINE_ROWS; i++) us[i] = spans_length(&t->of[i]);
    us[TIMELINE_TOTAL] = t->total;
    us[TIMELINE_IDLE] = t->total - us[TIMELINE_BUSY];
}

Status report_timeline(const Report *r, double us[TIMELINE_ROWS])
{
    Timeline t;
    ArenaMark mark = arena_mark(r->arena);
    TRY(make_timeline(r, -1, &t));
    timeline_lengths(&t, us);
    arena_release(r->arena, mark);
    return OK;
}

/* ---- gpu_timeline ---- */

/* The sum of all gaps shorter than `limit`, us. */
static double gaps_below(const Spans *s, double limit)
{
    double sum = 0;
    for (int64_t i = 1; i < s->n; i++) {
        double gap = s->at[i].start - s->at[i - 1].end;
        if (gap < limit) sum += gap;
    }
    return sum;
}

static Status put_timeline_row(Table *out, const char *type, double us, double total, int part)
{
    return TABLE_ROW(out, cell_text(type), cell_number(us / 1e3),
                     cell_number(percent_of(us, total)), cell_bool(part == 1));
}

/* part: work outside recomputation (0), inside (1), or all (-1). With a limit, idle time has two
 * rows. */
static Status put_timeline(const Report *r, int part, Table *out)
{
    Timeline t;
    double us[TIMELINE_ROWS], limit = r->o->micro_idle_us;
    TRY(make_timeline(r, part, &t));
    timeline_lengths(&t, us);
    for (int i = 0; i < TIMELINE_ROWS; i++) {
        /* With a limit, idle time is split into micro and macro idle time. */
        if (i != TIMELINE_IDLE || limit <= 0) {
            TRY(put_timeline_row(out, timeline_name[i], us[i], t.total, part));
            continue;
        }
        double micro = gaps_below(&t.of[TIMELINE_BUSY], limit);
        TRY(put_timeline_row(out, "micro_idle_time", micro, t.total, part));
        TRY(put_timeline_row(out, "macro_idle_time", us[i] - micro, t.total, part));
    }
    return OK;
}

Status sheet_gpu_timeline(Report *r, Table *out)
{
    TRY(sheet_columns(r, "type|time ms|percent|?is_recompute", out));
    if (!r->o->recompute) return put_timeline(r, -1, out);
    TRY(put_timeline(r, 0, out));
    return put_timeline(r, 1, out);
}

/* ---- by step ---- */

/* The time of spans inside a window. Windows come in order, so spans that end before a window are
 * dropped for good. */
static double time_inside(Spans *s, Span window)
{
    double sum = 0;
    while (s->n > 0 && s->at->end <= window.start) s->at++, s->n--;
    for (int64_t i = 0; i < s->n && s->at[i].start < window.end; i++)
        sum += fmin(s->at[i].end, window.end) - fmax(s->at[i].start, window.start);
    return sum;
}

/* host_us NaN: the window is not a step. */
static Status put_window(Timeline *t, const char *name, double host_us, Span window, Table *out)
{
    double total = window.end - window.start, us[TIMELINE_ROWS];
    for (int i = 0; i < TIMELINE_ROWS; i++) us[i] = time_inside(&t->of[i], window);
    us[TIMELINE_TOTAL] = total;
    us[TIMELINE_IDLE] = total - us[TIMELINE_BUSY];
    TRY(TABLE_ROW(out, cell_text(name), isnan(host_us) ? cell_none() : cell_number(host_us / 1e3)));
    for (int i = 0; i < TIMELINE_ROWS; i++) TABLE_MORE(out, cell_number(us[i] / 1e3));
    TABLE_MORE(out, cell_number(percent_of(us[TIMELINE_BUSY], total)),
               cell_number(percent_of(us[TIMELINE_EXPOSED_COMM], total)));
    return OK;
}

/* out[k]: when the first work starts that was launched in step k or later; out[n]: the end of all
 * work. So out[k] never exceeds out[k + 1]. */
static Status first_starts(const Report *r, const Step *step, int64_t n, double **out)
{
    const Events *e = r->e;
    TRY(ARENA_NEW(r->arena, n + 1, out));
    for (int64_t k = 0; k <= n; k++) (*out)[k] = e->ts[r->gpu[0]] + r->total_us;
    for (int64_t k = 0; k < r->gpus; k++) {
        uint32_t i = r->gpu[k], call = r->tree->parent[i];
        double launched = e->ts[call == EVENT_NONE ? i : call];
        int64_t low = 0, high = n;
        while (low < high) {
            int64_t middle = (low + high) / 2;
            if (step[middle].host.start <= launched)
                low = middle + 1;
            else
                high = middle;
        }
        if (low > 0) (*out)[low - 1] = fmin((*out)[low - 1], e->ts[i]);
    }
    for (int64_t k = n - 1; k >= 0; k--) (*out)[k] = fmin((*out)[k], (*out)[k + 1]);
    return OK;
}

/* A step's window on the device begins with the first work that the step launched, and ends where
 * the window of the next step begins. So windows add up to the whole. */
Status sheet_timeline_by_step(Report *r, Table *out)
{
    Step *step = NULL;
    int64_t n = 0;
    double *start = NULL, begin = r->e->ts[r->gpu[0]];
    Timeline t;
    TRY(report_steps(r->e, r->arena, &step, &n));
    if (n == 0) return OK;
    TRY(first_starts(r, step, n, &start));
    TRY(make_timeline(r, -1, &t));
    TRY(sheet_columns(r,
                      "step|host ms|computation_time ms|exposed_comm_time ms|"
                      "exposed_memcpy_time ms|busy_time ms|idle_time ms|total_time ms|"
                      "total_comm_time ms|total_memcpy_time ms|busy percent|"
                      "exposed_comm percent",
                      out));
    if (start[0] > begin && r->o->step < 0)
        TRY(put_window(&t, "before", NAN, (Span){ begin, start[0] }, out));
    for (int64_t k = 0; k < n; k++) {
        char name[24];
        const char *kept = NULL;
        if (r->o->step >= 0 && step[k].number != r->o->step) continue;
        int length = snprintf(name, sizeof name, "%lld", (long long)step[k].number);
        TRY(arena_text(r->arena, name, (size_t)length, &kept));
        TRY(put_window(&t, kept, step[k].host.end - step[k].host.start,
                       (Span){ start[k], start[k + 1] }, out));
    }
    return OK;
}
