/* series: the table of figures that can be watched. */
#include "engine/train/series.h"

#include <math.h>

static const char *const KEY[EACH_LABELLED] = { "", "depth", "group", "layer", "layer", "source" };

/* Figures come by their places, those that cannot be watched (place 0) behind all others. */
Status series_make(SeriesTable *t, const SeriesLabels of[EACH_LABELLED], Arena *a)
{
    int n = 0;
    *t = (SeriesTable){ 0 };
    for (int f = 0; f < FIGURES; f++) {
        const FigureEach each = figure_rows[f].each;
        t->count[f] = each == EACH_RUN ? 1 : each < EACH_LABELLED ? of[each].n : 0;
        n += t->count[f];
    }
    TRY(ARENA_ZEROED(a, n, &t->all));
    n = 0;
    for (int i = 0; i < (FIGURE_PLACES + 1) * FIGURES; i++) {
        const int f = i % FIGURES, place = (i / FIGURES + 1) % (FIGURE_PLACES + 1);
        const FigureRow *r = &figure_rows[f];
        if (r->place != place) continue;
        t->first[f] = n;
        for (int k = 0; k < t->count[f]; k++) {
            const char *label = r->each == EACH_RUN ? "" : of[r->each].label[k];
            t->all[n++] = (Series){ r->name, r->help,           KEY[r->each],
                                    label,   .total = r->total, .figure = (Figure)f };
        }
        if (place > 0) t->n = n;
    }
    return OK;
}

void series_set(SeriesTable *t, Figure f, int i, double value)
{
    if (t->all == NULL) return;
    Series *s = &t->all[t->first[f] + i];
    s->now = value;
    s->set = true;
    s->fresh = !figure_rows[f].above_0 || value > 0;
    s->seen |= s->fresh;
}

/* With rows r of sum s the entropy -sum (r / s) ln (r / s) is ln s - (sum r ln r) / s. */
void series_set_load(SeriesTable *t, int layer, const int32_t *load, int64_t domains,
                     int64_t experts)
{
    double sum = 0, most = 0, least = HUGE_VAL, logs = 0;
    for (int64_t e = 0; e < experts; e++) {
        double rows = 0;
        for (int64_t d = 0; d < domains; d++) rows += load[d * experts + e];
        sum += rows;
        most = fmax(most, rows);
        least = fmin(least, rows);
        if (rows > 0) logs += rows * log(rows);
    }
    if (sum == 0) return;
    series_set(t, FIGURE_LOAD_MAX, layer, most * (double)experts / sum);
    series_set(t, FIGURE_LOAD_MIN, layer, least * (double)experts / sum);
    if (experts > 1)
        series_set(t, FIGURE_LOAD_ENTROPY, layer, (log(sum) - logs / sum) / log((double)experts));
}

void series_taken(SeriesTable *t)
{
    for (int f = 0; f < FIGURES; f++)
        for (int i = 0; i < t->count[f]; i++)
            t->all[t->first[f] + i].set = t->all[t->first[f] + i].fresh = false;
}
