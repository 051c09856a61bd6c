/* spans: see spans.h. All functions are linear once spans are sorted, and profilers write most
 * events in order. */
#include "traces/table/spans.h"

#include <stdlib.h>

static int by_start(const void *a, const void *b)
{
    const Span *x = a, *y = b;
    return (x->start > y->start) - (x->start < y->start);
}

/* Spans that are in order are not sorted again. */
void spans_merge(Spans *s)
{
    int64_t sorted = 1, n = 0;
    while (sorted < s->n && s->at[sorted - 1].start <= s->at[sorted].start) sorted++;
    if (sorted < s->n) qsort(s->at, (size_t)s->n, sizeof *s->at, by_start);
    for (int64_t i = 0; i < s->n; i++) {
        Span next = s->at[i];
        if (n > 0 && next.start <= s->at[n - 1].end) {
            if (next.end > s->at[n - 1].end) s->at[n - 1].end = next.end;
        } else {
            s->at[n++] = next;
        }
    }
    s->n = n;
}

/* Walks both sets together. Each span of b ends at most one piece more than a has spans. */
Status spans_subtract(const Spans *a, const Spans *b, Arena *arena, Spans *out)
{
    Spans r = { 0 };
    int64_t j = 0;
    TRY(ARENA_NEW(arena, a->n + b->n + 1, &r.at));
    for (int64_t i = 0; i < a->n; i++) {
        Span left = a->at[i];
        while (j < b->n && b->at[j].end <= left.start) j++;
        for (int64_t k = j; k < b->n && b->at[k].start < left.end; k++) {
            if (left.start < b->at[k].start) r.at[r.n++] = (Span){ left.start, b->at[k].start };
            left.start = b->at[k].end;
        }
        if (left.start < left.end) r.at[r.n++] = left;
    }
    *out = r;
    return OK;
}

double spans_length(const Spans *s)
{
    double sum = 0;
    for (int64_t i = 0; i < s->n; i++) sum += s->at[i].end - s->at[i].start;
    return sum;
}

Status spans_busy(const double *start, const double *dur, const uint32_t *event, int64_t n,
                  Arena *a, double *out)
{
    Spans s = { .n = n };
    ArenaMark mark = arena_mark(a);
    TRY(ARENA_NEW(a, n + 1, &s.at));
    for (int64_t i = 0; i < n; i++)
        s.at[i] = (Span){ start[event[i]], start[event[i]] + dur[event[i]] };
    spans_merge(&s);
    *out = spans_length(&s);
    arena_release(a, mark);
    return OK;
}
