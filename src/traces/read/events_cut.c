/* events_cut: see events_cut.h. Device events are sorted by time and grouped by stream; each is then
 * compared with the next one of its group. */
#include "traces/read/events_cut.h"

#include "traces/table/group.h"

/* Profilers round starts and durations, so that neighbours may overlap by as much. */
static const double ROUNDED_US = 1.0;

/* Kernels of one graph share a correlation and may run beside each other. */
static bool may_overlap(const Events *e, uint32_t i, uint32_t next)
{
    return e->ts[i] == e->ts[next] || (e->link[i] > 0 && e->link[i] == e->link[next]);
}

/* Of two that may overlap, the one that ends last is held against the next. */
static void cut_stream(Events *e, const uint32_t *event, const uint32_t *row, int64_t n)
{
    uint32_t last = event[row[0]];
    for (int64_t k = 1; k < n; k++) {
        const uint32_t next = event[row[k]];
        const double over = event_end(e, last) - e->ts[next];
        if (over > ROUNDED_US && !may_overlap(e, last, next)) {
            e->dur[last] = e->ts[next] - e->ts[last];
            e->counts.cut++;
            e->counts.cut_us += over;
        }
        if (event_end(e, next) >= event_end(e, last)) last = next;
    }
}

/* A stream of a merged file may be one of each process. */
static Status cut_streams(Events *e, const Tree *t, int64_t n, Arena *a)
{
    uint32_t *event = NULL, *order = NULL, *key = NULL, *sorted = NULL;
    double *start = NULL;
    Groups g;
    TRY(ARENA_NEW(a, n, &event));
    TRY(ARENA_NEW(a, n, &sorted));
    TRY(ARENA_NEW(a, n, &start));
    TRY(ARENA_NEW(a, 2 * n, &key));
    int64_t at = 0;
    for (uint32_t i = 0; i < e->n; i++)
        if (event_on_gpu(e->kind[i])) event[at] = i, start[at++] = e->ts[i];
    TRY(groups_rising(start, n, a, &order));
    for (int64_t k = 0; k < n; k++) {
        const uint32_t i = sorted[k] = event[order[k]], call = t->parent[i];
        key[2 * k] = e->track[i];
        key[2 * k + 1] = t->processes < 2 || call == EVENT_NONE ? 0 : e->tracks[e->track[call]].pid;
    }
    TRY(groups_make(key, 2, n, a, &g));
    for (int64_t k = 0; k < g.n; k++)
        cut_stream(e, sorted, g.row + g.first[k], g.first[k + 1] - g.first[k]);
    return OK;
}

Status events_cut(Events *e, const Tree *t, Arena *a)
{
    int64_t n = 0;
    for (int64_t i = 0; i < e->n; i++) n += event_on_gpu(e->kind[i]);
    if (n == 0 || e->recording != NULL) return OK;
    ArenaMark mark = arena_mark(a);
    TRY(cut_streams(e, t, n, a));
    arena_release(a, mark);
    return OK;
}
