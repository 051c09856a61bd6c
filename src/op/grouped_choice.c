/* grouped_choice: the tile shape of a grouped product, timed once and kept. */
#include "op/grouped_choice.h"

ChoiceKey grouped_key(const GroupedSizes *s)
{
    int64_t kinds = (int64_t)1 << 40 | (int64_t)s->product << 1 | (int64_t)s->indexed;
    return (ChoiceKey){ s->rows, s->b_cols, s->a_cols, s->experts, 1, 1, kinds };
}

/* The place of the shape on record; 0 if this program or this product does not know it. */
static int kept_place(const Choice *c, const GroupedCandidates *among)
{
    if (c->kind != CHOICE_TIMED) return 0;
    for (int w = 1; w < CHOICE_WORDS; w++) {
        if (c->algo[w] != 0) return 0;
    }
    for (int i = 0; i < among->n; i++) {
        if (c->algo[0] == (uint64_t)among->shape[i]) return i;
    }
    return 0;
}

static int fastest(const float *ms, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++) best = ms[i] < ms[best] ? i : best;
    return ms[0] >= GROUPED_GAIN * ms[best] ? best : 0;
}

Status grouped_choose(Choices *c, const GroupedSizes *s, const GroupedCandidates *among, int *out)
{
    float ms[GROUPED_SHAPES_MAX];
    ChoiceKey key = grouped_key(s);
    const Choice *kept = choices_find(c, &key);
    *out = kept != NULL ? kept_place(kept, among) : 0;
    if (kept != NULL || among->time == NULL || c->n == CHOICES_MAX) return OK;
    TRY(among->time(among->of, ms));
    *out = fastest(ms, among->n);
    Choice *made = choices_add(c, &key);
    made->kind = CHOICE_TIMED;
    made->algo[0] = (uint64_t)among->shape[*out];
    c->unsaved = true;
    return OK;
}
