/* curve: means of values over buckets of steps, and smoothing. It draws nothing and knows no
 * quantity by name: report_charts.c does. */
#include "pages/curve.h"

#include <math.h>

Status curve_init(Curve *c, Arena *a, int64_t first, int64_t last, int most)
{
    /* The width is rounded up, so that n buckets cover all steps and n is at most `most`. */
    int64_t steps = last - first + 1, width = (steps + most - 1) / most;
    *c = (Curve){ .first = first, .width = width, .n = (int)((steps + width - 1) / width) };
    TRY(ARENA_ZEROED(a, c->n, &c->x));
    TRY(ARENA_ZEROED(a, c->n, &c->y));
    TRY(ARENA_ZEROED(a, c->n, &c->steps));
    return ARENA_ZEROED(a, c->n, &c->missing);
}

void curve_put(Curve *c, int64_t step, double y)
{
    int64_t i = (step - c->first) / c->width;
    if (step < c->first || i >= c->n) return;
    /* x is a mean of steps, too: a bucket whose steps are partly missing is drawn where they
     * are. */
    c->x[i] += (double)step;
    c->steps[i]++;
    if (isfinite(y))
        c->y[i] += y;
    else
        c->missing[i]++;
}

/* Works in place: point c->n is never behind bucket i, so no bucket is overwritten before it is
 * read. One value that is not finite makes its whole bucket a gap, because a mean without it would
 * hide it. */
void curve_finish(Curve *c)
{
    int buckets = c->n;
    c->n = 0;
    for (int i = 0; i < buckets; i++) {
        if (c->steps[i] == 0) continue;
        c->x[c->n] = c->x[i] / c->steps[i];
        c->y[c->n] = c->missing[i] > 0 ? (double)NAN : c->y[i] / c->steps[i];
        c->finite += c->missing[i] == 0;
        c->steps[c->n] = c->steps[i];
        c->n++;
    }
}

/* The mean of the finite values among 2 * reach + 1 points; point i itself is finite. */
static double mean_around(const Curve *c, int i, int reach)
{
    double sum = 0;
    int n = 0;
    for (int j = i - reach; j <= i + reach; j++) {
        if (!isfinite(c->y[j])) continue;
        sum += c->y[j];
        n++;
    }
    return sum / n;
}

Status curve_smooth(const Curve *c, Arena *a, Curve *out)
{
    Curve smooth = *c;
    TRY(ARENA_NEW(a, c->n, &smooth.y));
    int most = c->n / 50;
    for (int i = 0; i < c->n; i++) {
        int edge = i < c->n - 1 - i ? i : c->n - 1 - i;
        smooth.y[i] =
            isfinite(c->y[i]) ? mean_around(c, i, edge < most ? edge : most) : (double)NAN;
    }
    *out = smooth;
    return OK;
}
