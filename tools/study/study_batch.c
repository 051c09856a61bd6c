/* study_batch: legal batches near a wanted one. */
#include "engine/config/ramp.h"
#include "study/study.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>

/* Batches are looked at up to this many micro-batches away. Schedules ask for multiples of the pipeline's ranks, so
 * a legal one is much nearer if there is any. */
enum { FAR_MICROS = 1 << 14 };

static bool is_legal(const Config *c, const PlanLayout *l, int64_t micros)
{
    if (micros < 1 || micros > INT_MAX) return false;
    Config with = *c;
    with.train_batch = micros * l->dp * l->micro_batch;
    const ScheduleShape shape = { l->pp, l->vpp, (int)micros, 1, 1, 1, .blocks = 1 };
    const bool legal = schedule_legal(l->schedule, &shape) == OK &&
                       ramp_divides(&with, l->dp, l->micro_batch) == OK;
    status_clear();
    return legal;
}

void study_batches(const Config *c, const PlanLayout *l, int64_t wanted, int64_t *below,
                   int64_t *above)
{
    const int64_t unit = l->dp * l->micro_batch, first = wanted / unit;
    *below = *above = 0;
    for (int64_t k = first; k >= 1 && k > first - FAR_MICROS && *below == 0; k--) {
        if (is_legal(c, l, k)) *below = k * unit;
    }
    for (int64_t k = (wanted + unit - 1) / unit; k < first + FAR_MICROS && *above == 0; k++) {
        if (is_legal(c, l, k)) *above = k * unit;
    }
}

Status study_move_batch(Study *s, StudyRow *r, int64_t wanted)
{
    PlanLayout l;
    int64_t below = 0, above = 0;
    char from[32];
    TRY(plan_layout_of(r->request.config, r->request.gpus, s->a, &l));
    study_batches(r->request.config, &l, wanted, &below, &above);
    if (below == 0 && above == 0)
        return FAIL(ERR_ARG, "no batch near %" PRId64 " is legal for this layout", wanted);
    const bool down = above == 0 || (below > 0 && wanted - below <= above - wanted);
    study_config(r)->train_batch = down ? below : above;
    if (study_config(r)->train_batch == wanted) return OK;
    return study_text(s->a, &r->moved, "the nearest legal batch to %s",
                      text_thousands(from, wanted));
}
