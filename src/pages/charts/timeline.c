/* timeline: the spans and memory of a simulated step, and the sums of any timeline. tools/viz reads
 * recorded steps, timeline_svg.c draws both. It simulates nothing:
 * engine/schedule/simulate.h does. */
#include "pages/charts/timeline.h"

#include "pages/charts/svg.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* BOXES: of a page with one timeline. A rank has about two boxes for each grain of the step. */
enum { SHOWN_MOST = 64, BOXES_MOST = 40000, GRAIN_LEAST = 128, GRAIN_MOST = 1024 };

const struct TimelineKindName timeline_kind[TIMELINE_KINDS] = {
    { "forward", "fwd" },       { "backward", "bwd" },
    { "input gradient", NULL }, { "weight gradient", "wgrad" },
    { "other", "other" },       { "exchange", "exchange" },
    { "send", "send" },
};

/* ---- sums ---- */

/* By start, then by kind, so that the order of spans does not depend on qsort. */
static int compare_start(const void *a, const void *b)
{
    const TimelineSpan *x = a, *y = b;
    if (x->start_s != y->start_s) return x->start_s < y->start_s ? -1 : 1;
    return (x->kind > y->kind) - (x->kind < y->kind);
}

/* busy_s is the length of the union of the compute lane's spans: spans over the same time count
 * once. It is found in one sweep by start, where `end` is the latest end so far. passes_s is the part of it
 * that passes have. */
static void sum_rank(TimelineRank *r)
{
    double end = 0;
    memset(r->sum_s, 0, sizeof r->sum_s);
    r->busy_s = r->passes_s = 0;
    qsort(r->span, (size_t)r->spans, sizeof *r->span, compare_start);
    for (int i = 0; i < r->spans; i++) {
        const TimelineSpan *s = &r->span[i];
        r->sum_s[s->kind] += s->end_s - s->start_s;
        if (s->kind >= TIMELINE_EXCHANGE) continue;
        const double more = fmax(s->end_s - fmax(s->start_s, end), 0);
        r->busy_s += more;
        if (s->kind < TIMELINE_OTHER) r->passes_s += more;
        end = fmax(end, s->end_s);
    }
}

/* theory is the bubble of interleaved 1F1B with equal passes and free communication:
 * (p - 1) / (p - 1 + m v), p stages, m micro-batches, v chunks (arXiv:2104.04473). */
void timeline_sum(Timeline *t)
{
    double p = t->ranks - 1, most = -1;
    t->peak_rank = -1;
    t->step_s = t->bubble = 0;
    for (int i = 0; i < t->ranks; i++) {
        TimelineRank *r = &t->rank[i];
        sum_rank(r);
        t->step_s = fmax(t->step_s, r->total_s);
        if (r->peak_bytes > most) t->peak_rank = i;
        most = fmax(most, r->peak_bytes);
    }
    for (TimelineRank *r = t->rank; r < t->rank + t->ranks; r++) {
        const double all = t->pipeline_s > 0 ? t->pipeline_s : t->step_s;
        const double busy = t->pipeline_s > 0 ? r->passes_s : r->busy_s;
        r->bubble = all > 0 ? (all - busy) / all : 0;
        t->bubble += r->bubble;
    }
    t->bubble /= t->ranks;
    t->theory = p / (p + (double)t->micros * t->chunks);
    t->shown = t->ranks < SHOWN_MOST ? t->ranks : SHOWN_MOST;
    timeline_limit(t, BOXES_MOST);
}

/* Fewer boxes merge more spans: none is left out. */
void timeline_limit(Timeline *t, int boxes)
{
    int grain = boxes / (2 * t->shown);
    t->grain = grain < GRAIN_LEAST ? GRAIN_LEAST : grain > GRAIN_MOST ? GRAIN_MOST : grain;
}

/* Evenly spread, so the first and the last rank are always shown. */
int timeline_shown_rank(const Timeline *t, int i)
{
    return t->shown == 1 ? 0 : (int)((int64_t)i * (t->ranks - 1) / (t->shown - 1));
}

/* ---- recorded iterations ---- */

/* The one of which as many take less as take longer; equal ones by their order. */
const TimelineIteration *timeline_median(const Timeline *t)
{
    for (int i = 0; i < t->n_recorded; i++) {
        int before = 0;
        for (int k = 0; k < t->n_recorded; k++) {
            const double x = t->recorded[k].step_s, y = t->recorded[i].step_s;
            before += x < y || (x == y && k < i);
        }
        if (before == (t->n_recorded - 1) / 2) return &t->recorded[i];
    }
    return NULL;
}

Status timeline_which(Text *out, const Timeline *t)
{
    const TimelineIteration *median = timeline_median(t);
    char least_text[32], most_text[32];
    double least = INFINITY, most = 0;
    if (median == NULL || median->step_s <= 0) return OK;
    for (int i = 0; i < t->n_recorded; i++) {
        least = fmin(least, t->recorded[i].step_s);
        most = fmax(most, t->recorded[i].step_s);
    }
    TRY(text_printf(out, "iteration %lld, ", (long long)t->iteration));
    if (t->iteration != median->number)
        TRY(text_printf(out, "%.1f %% %s than ", 100 * fabs(t->step_s / median->step_s - 1),
                        t->step_s > median->step_s ? "longer" : "shorter"));
    return text_printf(out, "the median of %d (%s to %s)", t->n_recorded,
                       svg_value_text(least_text, least, SVG_SECONDS),
                       svg_value_text(most_text, most, SVG_SECONDS));
}

/* ---- from a simulation ---- */

/* Everything on the comm lane is an exchange here, also phases of passes: what kind of pass no
 * longer matters. */
static TimelineKind span_kind(const Action *a)
{
    if (action_is_transfer(a->kind)) return TIMELINE_SEND;
    if (a->lane == LANE_COMM) return TIMELINE_EXCHANGE;
    switch (a->kind) {
    case ACTION_FORWARD: return TIMELINE_FORWARD;
    case ACTION_BACKWARD: return TIMELINE_BACKWARD;
    case ACTION_BACKWARD_INPUT: return TIMELINE_INPUT;
    case ACTION_BACKWARD_WEIGHT: return TIMELINE_WEIGHT;
    default: return TIMELINE_OTHER;
    }
}

/* Makes a rank's spans. Phases of one pass that follow one another without a gap become one span.
 * Receives have none, because the sender's span shows the same transfer. */
static Status simulated_spans(const Program *p, const SimSpan *span, Arena *a, TimelineRank *r,
                              double *pipeline_s)
{
    TRY(ARENA_NEW(a, p->n, &r->span));
    TimelineSpan *last = r->span, *next = r->span;
    for (int i = 0; i < p->n; i++) {
        const Action *x = &p->at[i];
        TimelineSpan s = { span[i].start, span[i].end, span_kind(x), x->micro, x->chunk };
        bool receive = action_is_transfer(x->kind) && !action_is_send(x->kind);
        if (action_is_pass(x->kind)) *pipeline_s = fmax(*pipeline_s, s.end_s);
        if (receive || !(s.end_s > s.start_s)) continue;
        bool joins = next > last && last->kind == s.kind && last->micro == s.micro &&
                     last->chunk == s.chunk && last->end_s == s.start_s;
        if (joins) s.start_s = last->start_s;
        if (!joins) last = next++;
        *last = s;
    }
    r->spans = (int)(next - r->span);
    return OK;
}

/* Memory over time: at each moment of the simulation the resident kinds, then activations. */
static Status simulated_memory(const Timeline *t, const SimRank *s, const TimelineResident *kept,
                               int rank, Arena *a)
{
    TimelineRank *r = &t->rank[rank];
    size_t n = (size_t)s->n_memory, last = (size_t)t->memory_kinds - 1;
    double *at = NULL;
    TRY(ARENA_NEW(a, n * (last + 2), &at));
    double *bytes = at + n;
    r->at_s = at;
    r->bytes = bytes;
    r->points = s->n_memory;
    r->peak_bytes = s->peak_bytes;
    for (size_t k = 0; k < last; k++) r->peak_bytes += kept[k].bytes[rank];
    for (size_t i = 0; i < n; i++) {
        at[i] = s->memory[i].at;
        for (size_t k = 0; k < last; k++) *bytes++ = kept[k].bytes[rank];
        *bytes++ = s->memory[i].bytes;
    }
    return OK;
}

Status timeline_simulated(const Pipeline *p, const Simulation *s, const TimelineResident *resident,
                          int n, const char *title, Arena *a, Timeline *out)
{
    if (n < 0 || n > TIMELINE_MEMORY_KINDS - 1)
        return FAIL(ERR_ARG, "timeline: %d resident kinds of memory, at most %d are drawn", n,
                    TIMELINE_MEMORY_KINDS - 1);
    Timeline t = { .title = title, .ranks = p->stages };
    t.chunks = p->rank->chunks;
    t.micros = p->rank->micros;
    TRY(ARENA_ZEROED(a, t.ranks, &t.rank));
    if (s->rank[0].n_memory > 0) {
        for (int k = 0; k < n; k++) t.memory_kind[k] = resident[k].name;
        t.memory_kind[n] = "activations";
        t.memory_kinds = n + 1;
    }
    for (int i = 0; i < t.ranks; i++) {
        t.rank[i].total_s = s->step;
        t.rank[i].peak_bytes = NAN;
        TRY(simulated_spans(&p->rank[i], s->rank[i].span, a, &t.rank[i], &t.pipeline_s));
        if (t.memory_kinds > 0) TRY(simulated_memory(&t, &s->rank[i], resident, i, a));
    }
    timeline_sum(&t);
    *out = t;
    return OK;
}
