/* merge: see merge.h. */
#include "pages/charts/merge.h"

#include <math.h>

enum { RUN = 4 }; /* grains that a group may cover */

bool merge_takes(const Merge *m, double start, double end, double grain)
{
    if (m->spans == 0) return true;
    return start - m->end <= grain && end - m->start <= RUN * grain;
}

/* Time that several spans cover is drawn once. */
void merge_add(Merge *m, int kind, double start, double end)
{
    if (m->spans++ == 0) m->start = m->end = start;
    MergeShare *x = &m->of[kind];
    x->spans++;
    x->sum += end - start;
    x->covered += fmax(0, end - fmax(start, m->end));
    m->end = fmax(m->end, end);
}

int merge_boxes(Merge *m, MergeBox out[MERGE_KINDS])
{
    double at = m->start, end = at;
    int n = 0;
    for (int k = 0; k < MERGE_KINDS; k++) end += m->of[k].covered;
    for (int k = 0; k < MERGE_KINDS; k++) {
        const MergeShare *x = &m->of[k];
        if (x->spans == 0) continue;
        out[n++] = (MergeBox){ k, x->spans, at, x->covered, end, x->sum };
        at += x->covered;
    }
    *m = (Merge){ 0 };
    return n;
}
