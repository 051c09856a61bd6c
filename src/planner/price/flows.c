/* flows: max-min fair rates of concurrent transfers. The header has the model and its source. */
#include "planner/price/flows.h"

#include <math.h>
#include <stdbool.h>

static bool crosses(const FlowClass *c, int link)
{
    for (int i = 0; i < c->hops; i++)
        if (c->link[i] == link) return true;
    return false;
}

/* A class without a rate yet. */
static bool still_rises(double rate) { return rate < 0; }

/* The rate at which the flows that still rise fill a link; INFINITY: none crosses it. */
static double level_of(const Flows *f, const double *rate, int link)
{
    double left = f->link[link], rising = 0;
    for (int c = 0; c < f->classes; c++) {
        if (!crosses(&f->of[c], link)) continue;
        if (still_rises(rate[c]))
            rising += f->of[c].flows;
        else
            left -= f->of[c].flows * rate[c];
    }
    return rising > 0 ? fmax(left, 0) / rising : (double)INFINITY;
}

/* Each round fills one link, so there are at most as many rounds as links. */
void flows_share(const Flows *f, double *rate)
{
    for (int c = 0; c < f->classes; c++) rate[c] = f->of[c].bytes > 0 ? -1 : 0;
    for (;;) {
        double least = INFINITY;
        int full = -1;
        for (int i = 0; i < f->links; i++) {
            double level = level_of(f, rate, i);
            if (level < least) least = level, full = i;
        }
        if (full < 0) break;
        for (int c = 0; c < f->classes; c++)
            if (still_rises(rate[c]) && crosses(&f->of[c], full)) rate[c] = least;
    }
    for (int c = 0; c < f->classes; c++)
        if (still_rises(rate[c])) rate[c] = INFINITY;
}

/* The class that ends next keeps no bytes, whatever rounding leaves: so each round ends one. */
void flows_run(Flows *f, double *rate, double *end_s)
{
    double now = 0;
    for (int c = 0; c < f->classes; c++) end_s[c] = 0;
    for (int round = 0; round < f->classes; round++) {
        double step = INFINITY;
        int next = -1;
        flows_share(f, rate);
        for (int c = 0; c < f->classes; c++) {
            if (f->of[c].bytes > 0 && f->of[c].bytes / rate[c] < step)
                step = f->of[c].bytes / rate[c], next = c;
        }
        if (next < 0) return;
        now += step;
        for (int c = 0; c < f->classes; c++) {
            if (f->of[c].bytes <= 0) continue;
            f->of[c].bytes = c == next ? 0 : fmax(f->of[c].bytes - rate[c] * step, 0);
            end_s[c] = now;
        }
    }
}
