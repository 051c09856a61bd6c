#include "viz/curve.h"

#include <math.h>

Status buckets_init(Buckets *b, Arena *a, int64_t first, int64_t last, int most)
{
    int64_t steps = last - first + 1, width = (steps + most - 1) / most;
    void *at = NULL;
    *b = (Buckets){ .first = first, .width = width, .n = (int)((steps + width - 1) / width) };
    TRY(arena_alloc_zero(a, (size_t)b->n * sizeof(Bucket), &at));
    b->at = at;
    return OK;
}

void buckets_put(Buckets *b, int64_t step, double y)
{
    int64_t i = (step - b->first) / b->width;
    if (step < b->first || i >= b->n) return;
    Bucket *bucket = &b->at[i];
    bucket->x += (double)step;
    bucket->n++;
    if (isfinite(y)) {
        bucket->y += y;
    } else {
        bucket->missing++;
    }
}

static Status curve_init(Curve *c, Arena *a, int n)
{
    void *x = NULL, *y = NULL;
    TRY(arena_alloc(a, (size_t)n * sizeof(double), &x));
    TRY(arena_alloc(a, (size_t)n * sizeof(double), &y));
    *c = (Curve){ .x = x, .y = y };
    return OK;
}

Status buckets_curve(const Buckets *b, Arena *a, Curve *out)
{
    Curve c = { 0 };
    TRY(curve_init(&c, a, b->n));
    for (int i = 0; i < b->n; i++) {
        const Bucket *bucket = &b->at[i];
        if (bucket->n == 0) continue;
        c.x[c.n] = bucket->x / bucket->n;
        c.y[c.n] = bucket->missing > 0 ? (double)NAN : bucket->y / bucket->n;
        c.finite += bucket->missing == 0;
        c.n++;
    }
    *out = c;
    return OK;
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
    Curve smooth = { 0 };
    TRY(curve_init(&smooth, a, c->n));
    int most = c->n / 50;
    for (int i = 0; i < c->n; i++) {
        int edge = i < c->n - 1 - i ? i : c->n - 1 - i;
        smooth.x[i] = c->x[i];
        smooth.y[i] =
            isfinite(c->y[i]) ? mean_around(c, i, edge < most ? edge : most) : (double)NAN;
    }
    smooth.n = c->n;
    smooth.finite = c->finite;
    *out = smooth;
    return OK;
}
