/* search_batch: finds the batch with which the GPUs of a search would have enough work. It doubles the batch until
 * speed no longer grows. */
#include "planner/search/search.h"

#include <math.h>

/* LAYOUTS of the best layouts are priced with each batch. A batch is large enough if doubling it gives less than
 * GAIN times the speed. The question's batch is reported as a limit if the large one is at least LIMITS
 * times as fast. With PER_GPU sequences a GPU or more, no pipeline lacks that many micro-batches. */
enum { LAYOUTS = 10, PER_GPU = 2 };
static const double GAIN = 1.1, LIMITS = 1.5;

/* Tokens/s/GPU of the fastest layout. Context parallelism is also traded for data parallelism: a larger batch has
 * whole sequences for all ranks. */
static Status fastest_speed(const PlanRequest *q, const SearchResult *r, double *out)
{
    Planner *p = NULL;
    *out = 0;
    TRY(planner_make(q, &p));
    for (int i = 0; i < r->n_best && i < LAYOUTS; i++) {
        PlanLayout l = r->best[i].layout;
        for (; l.cp >= 1; l.cp /= 2, l.dp *= 2) {
            PlanPrice price = { 0 };
            if (planner_legal(p, &l) == OK && planner_price(p, &l, &price) == OK && price.fits)
                *out = fmax(*out, price.tokens_per_s_per_gpu);
        }
    }
    status_clear();
    planner_free(p);
    return OK;
}

Status search_batch(const PlanRequest *q, const SearchResult *r, SearchBatch *out)
{
    Config c = *q->config;
    PlanRequest other = *q;
    double now = 0, before = 0, speed = 0;
    *out = (SearchBatch){ 0 };
    other.config = &c;
    if (r->n_best == 0 || c.train_batch >= PER_GPU * q->gpus) return OK;
    TRY(fastest_speed(&other, r, &now));
    for (speed = now; speed > 0 && speed >= GAIN * before;) {
        before = speed;
        c.train_batch *= 2;
        TRY(fastest_speed(&other, r, &speed));
    }
    if (before > LIMITS * now) *out = (SearchBatch){ c.train_batch / 2, before };
    return OK;
}
