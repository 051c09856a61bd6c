/* timeline: the device's time by what it did: computation, exchanges and copies that nothing hides,
 * idle. */
#include "analyze/report_sheets.h"

#include <stdio.h>

typedef struct Timeline {
    Spans comp, comm, memcpy, all, exposed_comm, exposed_memcpy;
    double total;
} Timeline;

static Status timeline(const Report *r, int recompute, Timeline *t)
{
    Spans not_comp;
    TRY(report_spans(r, 1u << BUCKET_COMPUTATION, recompute, &t->comp));
    TRY(report_spans(r, 1u << BUCKET_COMM, recompute, &t->comm));
    TRY(report_spans(r, 1u << BUCKET_MEMCPY, recompute, &t->memcpy));
    TRY(report_spans(r, ~0u, recompute, &t->all));
    TRY(spans_subtract(&t->comm, &t->comp, r->arena, &t->exposed_comm));
    TRY(spans_subtract(&t->memcpy, &t->comp, r->arena, &not_comp));
    TRY(spans_subtract(&not_comp, &t->comm, r->arena, &t->exposed_memcpy));
    t->total = t->all.n == 0 ? 0 : t->all.at[t->all.n - 1].end - t->all.at[0].start;
    return OK;
}

static double gaps_below(const Spans *s, double limit)
{
    double sum = 0;
    for (int64_t i = 1; i < s->n; i++) {
        double gap = s->at[i].start - s->at[i - 1].end;
        if (gap < limit) sum += gap;
    }
    return sum;
}

static Status put(const Report *r, Table *out, const char *type, double us, double total, int part)
{
    Cell *c = NULL;
    TRY(table_row(out, &c));
    *c++ = cell_text(type);
    *c++ = cell_number(us / 1e3);
    *c++ = cell_number(total == 0 ? 0 : us / total * 100);
    if (r->o->recompute) *c = cell_bool(part == 1);
    return OK;
}

static Status rows(const Report *r, int recompute, Table *out)
{
    Timeline t;
    TRY(timeline(r, recompute, &t));
    double busy = spans_length(&t.all), idle = t.total - busy, limit = r->o->micro_idle_us;
    double micro = limit > 0 ? gaps_below(&t.all, limit) : 0;
    const struct {
        const char *type;
        double us;
    } row[] = {
        { "computation_time", spans_length(&t.comp) },
        { "exposed_comm_time", spans_length(&t.exposed_comm) },
        { "exposed_memcpy_time", spans_length(&t.exposed_memcpy) },
        { "busy_time", busy },
        { limit > 0 ? NULL : "idle_time", idle },
        { limit > 0 ? "micro_idle_time" : NULL, micro },
        { limit > 0 ? "macro_idle_time" : NULL, idle - micro },
        { "total_time", t.total },
        { "total_comm_time", spans_length(&t.comm) },
        { "total_memcpy_time", spans_length(&t.memcpy) },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (row[i].type != NULL) TRY(put(r, out, row[i].type, row[i].us, t.total, recompute));
    return OK;
}

Status sheet_gpu_timeline(Report *r, Table *out)
{
    TRY(sheet_columns(r, "gpu_timeline", "type|time ms|percent|?is_recompute", out));
    if (!r->o->recompute) return rows(r, -1, out);
    TRY(rows(r, 0, out));
    return rows(r, 1, out);
}
