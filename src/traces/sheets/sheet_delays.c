/* sheet_delays: how long launched work waits until it starts, and how long the host waits for the
 * device. A long launch delay with a deep queue is good: the host runs ahead of the device. A short
 * one with an empty queue means that the device waits for the host (sheet_idle.c says why). */
#include "traces/sheets/report.h"

/* Returns how many numbers of a sorted list are below t. The depth of the queue at time t is the
 * number of launches before t minus the number of starts before t. */
static int64_t count_below(const double *sorted, int64_t n, double t)
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

/* The work of one process that has a launch. Launches and starts are sorted separately, since only
 * their numbers before a time matter. Where the GPU's clock is behind, a delay or a depth may come
 * out below 0: it is then not known. */
static Status fill_process(Report *r, const uint32_t *gpu, int64_t n, FoldRows *rows)
{
    const Events *e = r->e;
    double *launch = NULL, *start = NULL;
    TRY(ARENA_NEW(r->arena, n, &launch));
    TRY(ARENA_NEW(r->arena, n, &start));
    for (int64_t k = 0; k < n; k++) {
        launch[k] = e->ts[r->tree->parent[gpu[k]]];
        start[k] = e->ts[gpu[k]]; /* in order, as r->gpu is */
    }
    sort_numbers(launch, n);
    for (int64_t k = 0; k < n; k++) {
        const uint32_t i = gpu[k], call = r->tree->parent[i];
        const double t = e->ts[call], delay = e->ts[i] - t;
        const int64_t depth = count_below(launch, n, t) - count_below(start, n, t);
        TRY(TABLE_ROW(&rows->t, cell_text(event_name(e, call)), cell_whole(report_stream(r, i)),
                      delay < 0 ? cell_none() : cell_number(delay), cell_number(e->dur[call]),
                      depth < 0 ? cell_none() : cell_number((double)depth),
                      depth < 0 ? cell_none() : cell_number(depth == 0 ? 100 : 0)));
    }
    return OK;
}

/* Each process has a queue of its own. */
static Status fill_launches(Report *r, FoldRows *rows)
{
    const Events *e = r->e;
    uint32_t *gpu = NULL, *key = NULL;
    int64_t n = 0;
    Groups g;
    TRY(ARENA_NEW(r->arena, r->gpus + 1, &gpu));
    TRY(ARENA_NEW(r->arena, r->gpus + 1, &key));
    for (int64_t k = 0; k < r->gpus; k++) {
        const uint32_t call = r->tree->parent[r->gpu[k]];
        if (call == EVENT_NONE) continue;
        key[n] = e->tracks[e->track[call]].pid;
        gpu[n++] = r->gpu[k];
    }
    TRY(groups_make(key, 1, n, r->arena, &g));
    for (int64_t k = 0; k < g.n; k++) {
        const int64_t from = g.first[k], rest = g.first[k + 1] - from;
        for (int64_t i = 0; i < rest; i++) key[i] = gpu[g.row[from + i]];
        TRY(fill_process(r, key, rest, rows));
    }
    return OK;
}

Status sheet_launch_delays(Report *r, Table *out)
{
    static const Fold fold = { .rows = "call|stream|us|call us|depth|empty",
                               .keys = "call|stream",
                               .columns = "launch=first call|stream=first stream|count=n|"
                                          "delay us_*=mean,median,min,max us|"
                                          "call us_mean=mean call us|queue depth_*=mean,max depth|"
                                          "launches into an empty queue (%)=mean empty" };
    return report_fold(r, &fold, fill_launches, NULL, out);
}

/* Only calls within the host's range count, which is that of the chosen step. */
static Status fill_waits(Report *r, FoldRows *rows)
{
    const Events *e = r->e;
    rows->whole[0] = report_wall(r);
    for (uint32_t i = 0; i < e->n; i++) {
        bool inside = e->ts[i] >= r->host_start && e->ts[i] <= r->host_end;
        if (!inside || !report_is_sync(r, i)) continue;
        uint32_t op = report_operator(r, i);
        TRY(TABLE_ROW(&rows->t, cell_text(op == EVENT_NONE ? "" : event_name(e, op)),
                      cell_text(event_name(e, i)), cell_number(e->dur[i])));
    }
    return OK;
}

Status sheet_sync_delays(Report *r, Table *out)
{
    static const Fold fold = { .rows = "operator|call|us",
                               .keys = "operator|call",
                               .by = "us",
                               .columns = "Parent cpu_op=first operator|call=first call|count=n|"
                                          "time ms=ms us|* us=mean,max us|"
                                          "percent of wall=share0 us" };
    return report_fold(r, &fold, fill_waits, NULL, out);
}
