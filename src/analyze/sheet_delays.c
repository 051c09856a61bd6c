/* sheet_delays: how long launched work waits to start, and how long the host waits for the device. */
#include "analyze/report.h"

#include <math.h>
#include <stdlib.h>

/* One launch. */
typedef struct Delays {
    double *us, *call_us, *depth;
    uint32_t *key; /* name of the call, stream */
    int64_t n;
} Delays;

/* Work that was launched before time t and had not started: launches before t less starts before
 * t, both sorted. */
static int64_t before(const double *sorted, int64_t n, double t)
{
    int64_t low = 0, high = n;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (sorted[middle] < t)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static Status find_delays(const Report *r, Delays *d)
{
    const Events *e = r->e;
    double *launch = NULL, *start = NULL;
    int64_t n = 0;
    *d = (Delays){ 0 };
    TRY(ARENA_NEW(r->arena, r->gpus + 1, &d->us));
    TRY(ARENA_NEW(r->arena, r->gpus + 1, &d->call_us));
    TRY(ARENA_NEW(r->arena, r->gpus + 1, &d->depth));
    TRY(ARENA_NEW(r->arena, 2 * r->gpus + 1, &d->key));
    TRY(ARENA_NEW(r->arena, r->gpus + 1, &launch));
    TRY(ARENA_NEW(r->arena, r->gpus + 1, &start));
    for (int64_t k = 0; k < r->gpus; k++) {
        uint32_t call = r->tree->parent[r->gpu[k]];
        if (call == EVENT_NONE) continue;
        launch[n] = e->ts[call];
        start[n++] = e->ts[r->gpu[k]];
    }
    sort_numbers(launch, n);
    for (int64_t k = 0; k < r->gpus; k++) {
        uint32_t i = r->gpu[k], call = r->tree->parent[i];
        if (call == EVENT_NONE) continue;
        double t = e->ts[call];
        d->us[d->n] = e->ts[i] - t;
        d->call_us[d->n] = e->dur[call];
        d->depth[d->n] = (double)(before(launch, n, t) - before(start, n, t));
        d->key[2 * d->n] = e->name[call];
        d->key[2 * d->n++ + 1] = (uint32_t)report_stream(r, i);
    }
    return OK;
}

Status sheet_launch_delays(Report *r, Table *out)
{
    Delays d;
    Groups g;
    TRY(find_delays(r, &d));
    TRY(sheet_columns(r,
                      "launch|stream|count|delay us_mean|delay us_median|delay us_min|"
                      "delay us_max|call us_mean|queue depth_mean|queue depth_max|"
                      "launches into an empty queue (%)",
                      out));
    TRY(groups_ranked(d.key, 2, NULL, d.n, r->arena, &g));
    for (int64_t k = 0; k < g.n; k++) {
        int64_t n = 0, empty = 0;
        const uint32_t *row = groups_rows(&g, k, &n), *key = d.key + 2 * (size_t)row[0];
        Summary us, call, depth;
        TRY(summary_of(d.us, row, n, r->arena, &us));
        TRY(summary_of(d.call_us, row, n, r->arena, &call));
        TRY(summary_of(d.depth, row, n, r->arena, &depth));
        for (int64_t i = 0; i < n; i++) empty += d.depth[row[i]] <= 0;
        TRY(TABLE_ROW(out, cell_text(strings_text(&r->e->strings, key[0])),
                      cell_whole((int32_t)key[1]), cell_whole(n), cell_number(us.mean),
                      cell_number(us.median), cell_number(us.min), cell_number(us.max),
                      cell_number(call.mean), cell_number(depth.mean), cell_number(depth.max),
                      cell_number(100.0 * (double)empty / (double)n)));
    }
    return OK;
}

Status sheet_sync_delays(Report *r, Table *out)
{
    const Events *e = r->e;
    uint32_t *key = NULL;
    double *us = NULL, wall = report_wall(r);
    int64_t n = 0, most = 0;
    Groups g;
    TRY(sheet_columns(r, "Parent cpu_op|call|count|time ms|mean us|max us|percent of wall", out));
    for (int64_t i = 0; i < e->n; i++) most += report_is_sync(r, i);
    TRY(ARENA_NEW(r->arena, 2 * most + 1, &key));
    TRY(ARENA_NEW(r->arena, most + 1, &us));
    for (uint32_t i = 0; i < e->n; i++) {
        bool inside = e->ts[i] >= r->host_start && e->ts[i] <= r->host_end;
        if (!inside || !report_is_sync(r, i)) continue;
        uint32_t op = report_operator(r, i);
        key[2 * n] = op == EVENT_NONE ? 0 : e->name[op];
        key[2 * n + 1] = e->name[i];
        us[n++] = e->dur[i];
    }
    TRY(groups_ranked(key, 2, us, n, r->arena, &g));
    for (int64_t k = 0; k < g.n; k++) {
        const uint32_t *row = groups_rows(&g, k, &n), *first = key + 2 * (size_t)row[0];
        Summary s;
        TRY(summary_of(us, row, n, r->arena, &s));
        TRY(TABLE_ROW(out, cell_text(strings_text(&e->strings, first[0])),
                      cell_text(strings_text(&e->strings, first[1])), cell_whole(n),
                      cell_number(s.sum / 1e3), cell_number(s.mean), cell_number(s.max),
                      cell_number(report_percent(s.sum, wall))));
    }
    return OK;
}
