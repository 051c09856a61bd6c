/* curve: means of values over buckets of steps, and smoothing. It knows nothing of what it draws. */
#include "viz/curve.h"

#include <math.h>

Status curve_init(Curve *c, Arena *a, int64_t first, int64_t last, int most)
{
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
    c->x[i] += (double)step;
    c->steps[i]++;
    if (isfinite(y))
        c->y[i] += y;
    else
        c->missing[i]++;
}

void curve_finish(Curve *c)
{
    int buckets = c->n;
    c->n = 0;
    for (int i = 0; i < buckets; i++) {
        if (c->steps[i] == 0) continue;
        c->x[c->n] = c->x[i] / c->steps[i];
        c->y[c->n] = c->missing[i] > 0 ? (double)NAN : c->y[i] / c->steps[i];
        c->finite += c->missing[i] == 0;
        c->n++;
    }
}

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
