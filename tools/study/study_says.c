/* study_says: one sentence of what a study shows, from its rows alone. */
#include "study/study.h"

#include <math.h>
#include <stdio.h>

/* ---- choosing rows ---- */

static double speed(const StudyRow *r) { return r->price.tokens_per_s_per_gpu; }

/* A part's share of the step, in percent. */
static double percent(const StudyRow *r, PlanPart part)
{
    return 100 * r->price.part_s[part] / r->price.step_s;
}

static double gib(const StudyRow *r) { return r->price.peak_bytes / PLAN_GIB; }

/* The fastest row that fits; NULL: none does. */
static const StudyRow *fastest(const Study *s)
{
    const StudyRow *best = NULL;
    for (int i = 0; i < s->n; i++) {
        const StudyRow *r = &s->row[i];
        if (study_row_fits(r) && (best == NULL || speed(r) > speed(best))) best = r;
    }
    return best;
}

/* The first or the last legal row of a curve; NULL: none is legal. */
static const StudyRow *end_of(const Study *s, int curve, bool last)
{
    const StudyRow *found = NULL;
    for (int i = 0; i < s->n; i++) {
        const StudyRow *r = &s->row[i];
        if (study_legal(r) && r->curve == curve && (found == NULL || last)) found = r;
    }
    return found;
}

/* The legal row that takes least memory. */
static const StudyRow *smallest(const Study *s)
{
    const StudyRow *least = NULL;
    for (int i = 0; i < s->n; i++) {
        const StudyRow *r = &s->row[i];
        if (study_legal(r) && (least == NULL || gib(r) < gib(least))) least = r;
    }
    return least;
}

static Status says_none_fits(const Study *s, Text *out)
{
    const StudyRow *least = smallest(s);
    return text_printf(out, "No row fits: %s takes least, %.2f GiB, and %.2f may be used.",
                       least->label, gib(least), plan_room_bytes(&least->request) / PLAN_GIB);
}

/* ---- the sentences ---- */

Status study_says_micro(const Study *s, Text *out)
{
    const StudyRow *best = fastest(s), *first = end_of(s, 0, false), *unfit = NULL;
    if (best == NULL) return says_none_fits(s, out);
    for (int i = s->n - 1; i >= 0; i--) {
        if (study_legal(&s->row[i]) && !s->row[i].price.fits) unfit = &s->row[i];
    }
    TRY(text_printf(out, "Micro-batches of %s are the fastest that fit", best->label));
    if (best != first)
        TRY(text_printf(out,
                        ": %.2f x the speed of %s; the host costs %.1f %% of the step instead of "
                        "%.1f",
                        speed(best) / speed(first), first->label, percent(best, PLAN_HOST),
                        percent(first, PLAN_HOST)));
    if (unfit == NULL) return text_printf(out, ".");
    return text_printf(out, "; %s take %.2f GiB, and %.2f may be used.", unfit->label, gib(unfit),
                       plan_room_bytes(&unfit->request) / PLAN_GIB);
}

/* The row of the other curve with the same number; NULL: it is not legal. */
static const StudyRow *partner(const Study *s, const StudyRow *of)
{
    for (int i = 0; i < s->n; i++) {
        const StudyRow *r = &s->row[i];
        if (study_legal(r) && r->curve != of->curve && r->x == of->x) return r;
    }
    return NULL;
}

Status study_says_ep(const Study *s, Text *out)
{
    const StudyRow *first = end_of(s, 0, false), *last = end_of(s, 0, true);
    if (first == NULL) first = end_of(s, 1, false), last = end_of(s, 1, true);
    TRY(text_printf(out, "From EP%g to EP%g a GPU has %.2f x the speed", first->x, last->x,
                    speed(last) / speed(first)));
    const StudyRow *from = partner(s, first), *to = partner(s, last);
    if (s->curve[1] != NULL && from != NULL && to != NULL)
        return text_printf(out,
                           " with %s and %.2f x with %s, which is %.2f x as fast at EP%g and %.2f "
                           "x at EP%g.",
                           s->curve[0], speed(to) / speed(from), s->curve[1],
                           speed(from) / speed(first), first->x, speed(to) / speed(last), last->x);
    return text_printf(out, "; exchange takes %.1f %% of the step instead of %.1f.",
                       percent(last, PLAN_EXCHANGE), percent(first, PLAN_EXCHANGE));
}

/* The part whose share of the step grew most. */
static PlanPart grown_part(const StudyRow *from, const StudyRow *to)
{
    PlanPart most = PLAN_SLOWED;
    for (int k = PLAN_SLOWED; k < PLAN_PARTS; k++) {
        const double grown = percent(to, k) - percent(from, k);
        if (grown > percent(to, most) - percent(from, most)) most = (PlanPart)k;
    }
    return most;
}

Status study_says_scale(const Study *s, Text *out)
{
    const StudyRow *first = end_of(s, 0, false), *last = end_of(s, 0, true);
    if (first == last)
        return text_printf(out, "On %s GPUs each has %.1f tokens/s.", first->label, speed(first));
    const PlanPart part = grown_part(first, last);
    bool moved = false;
    for (int i = 0; i < s->n; i++) moved |= s->row[i].moved != NULL;
    TRY(text_printf(out, "From %s to %s GPUs a GPU has %.1f %% of its speed with %s", first->label,
                    last->label, 100 * speed(last) / speed(first),
                    !s->strong ? "a batch that grows with the GPUs"
                    : moved    ? "nearly the same batch"
                               : "the same batch"));
    if (percent(last, part) - percent(first, part) < 0.05) return text_printf(out, ".");
    return text_printf(out, "; most is lost to %s, %.1f %% of the step instead of %.1f.",
                       plan_part_names[part], percent(last, part), percent(first, part));
}

Status study_says_recompute(const Study *s, Text *out)
{
    const StudyRow *best = fastest(s), *least = smallest(s), *none = &s->row[0];
    if (best == NULL) return says_none_fits(s, out);
    TRY(text_printf(out, "The fastest that fits is recompute %s, %.1f tokens/s/GPU", best->label,
                    speed(best)));
    if (!study_legal(none) || least == none) return text_printf(out, ".");
    return text_printf(
        out, "; %s takes least, %.2f GiB instead of %.2f, at %.1f %% of the speed of %s.",
        least->label, gib(least), gib(none), 100 * speed(least) / speed(none), none->label);
}

Status study_says_precision(const Study *s, Text *out)
{
    const StudyRow *best = fastest(s), *plain = &s->row[0];
    if (best == NULL) return says_none_fits(s, out);
    TRY(text_printf(out, "%s is the fastest that fits, %.1f tokens/s/GPU", best->label,
                    speed(best)));
    if (best == plain || !study_legal(plain)) return text_printf(out, ".");
    return text_printf(out, ": %.2f x %s, with %.2f GiB instead of %.2f.",
                       speed(best) / speed(plain), plain->label, gib(best), gib(plain));
}

Status study_says_memory(const Study *s, Text *out)
{
    const StudyRow *given = &s->row[0], *least = smallest(s);
    int most = 0;
    if (!study_legal(given))
        return text_printf(out, "%s takes least, %.2f GiB.", least->label, gib(least));
    for (int k = 1; k < PLAN_KINDS; k++) {
        if (given->price.memory[k] > given->price.memory[most]) most = k;
    }
    TRY(text_printf(out,
                    "Pipeline rank %d is the fullest with %.2f GiB, %.0f %% of it %s, and %.2f may "
                    "be used",
                    given->price.worst_rank, gib(given),
                    100 * given->price.memory[most] / given->price.peak_bytes,
                    plan_kind_names[most], plan_room_bytes(&given->request) / PLAN_GIB));
    if (gib(given) - gib(least) < 0.005) return text_printf(out, "; no neighbour takes less.");
    return text_printf(out, "; of its neighbours %s takes least, %.2f GiB at %.1f %% of the speed.",
                       least->label, gib(least), 100 * speed(least) / speed(given));
}
