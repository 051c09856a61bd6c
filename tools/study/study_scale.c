/* study_scale: one training on several numbers of GPUs. Weak: the batch grows with the GPUs. Strong: it stays. */
#include "study/study.h"

#include <inttypes.h>
#include <math.h>

/* Searches on the row's GPUs, with the nearest batch that all of them can share out. */
static Status search_row(Study *s, StudyRow *r)
{
    PlanAnswer *answer = NULL; /* the row's layout may point to its configuration */
    SearchAxes axes;
    char from[32];
    Config *c = study_config(r);
    const int64_t wanted = c->train_batch;
    TRY(search_axes(c, &axes));
    if (search_gpus(&r->request, &axes) < r->request.gpus) {
        c->train_batch = search_even_batch(&r->request, &axes, 0);
        TRY(study_text(s->a, &r->moved, "the nearest legal batch to %s",
                       text_thousands(from, wanted)));
    }
    TRY(ARENA_ZEROED(s->a, 1, &answer));
    const PlanQuestion q = { .request = r->request, .search = true, .top = 1 };
    Status made = plan_answer(&q, s->a, answer);
    if (made == OK) {
        r->layout = answer->layout;
        r->price = answer->price;
        r->request.config = &answer->config;
        if (s->tokens > 0) plan_goodput(&r->request, &r->price, s->tokens, &r->goodput);
    }
    plan_answer_free(answer);
    return made;
}

static Status scale_row(Study *s, int64_t gpus)
{
    StudyRow *r = NULL;
    char text[32];
    const double grown = (double)s->base.config->train_batch * (double)gpus / (double)s->base.gpus;
    const int64_t wanted = s->strong ? s->base.config->train_batch : llround(fmax(1, grown));
    TRY(study_add(s, &r, "%s", text_thousands(text, gpus)));
    r->request.gpus = gpus;
    r->x = (double)gpus;
    study_config(r)->train_batch = wanted;
    Status made = s->search ? search_row(s, r) : study_move_batch(s, r, wanted);
    if (made != OK) return study_refuse(s, r, made);
    TRY(study_text(s->a, &r->settings, "--cluster %s:%" PRId64 " train.batch=%" PRId64,
                   s->base.hardware->name, gpus, r->request.config->train_batch));
    return s->search ? OK : study_price(s, r);
}

Status study_scale_rows(Study *s)
{
    for (int i = 0; i < s->n_gpus; i++) TRY(scale_row(s, s->gpus[i]));
    return OK;
}
