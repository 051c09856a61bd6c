/* timeline_table: the figures of a timeline for a terminal. timeline_svg.c draws it. */
#include "viz/timeline_file.h"

#include <math.h>

/* Input gradients count as backward, as in recordings, which cannot tell them apart. */
static Status rank_row(Text *out, const TimelineRank *r, int rank)
{
    const double *sum = r->sum_s, back = sum[TIMELINE_BACKWARD] + sum[TIMELINE_INPUT];
    TRY(text_printf(out, "%4d  %12.3f  %12.3f  %12.3f  %12.3f  %8.2f", rank,
                    1e3 * sum[TIMELINE_FORWARD], 1e3 * back, 1e3 * sum[TIMELINE_WEIGHT],
                    1e3 * r->busy_s, 100 * r->bubble));
    if (isnan(r->peak_bytes)) return text_printf(out, "           -\n");
    return text_printf(out, "  %10.2f\n", r->peak_bytes / TIMELINE_GIB);
}

/* The table also lists the length of every recorded iteration, because the first ones are
 * slower. */
Status timeline_table(Text *out, const Timeline *t)
{
    TRY(text_printf(out, "%s: %d ranks, %d chunks a rank, %d micro-batches\n", t->title, t->ranks,
                    t->chunks, t->micros));
    if (t->iteration > 0) TRY(timeline_which(out, t));
    TRY(text_printf(out, t->iteration > 0 ? ": " : ""));
    TRY(text_printf(out, "step %.3f ms, bubble %.2f %% (mean), (p-1)/(p-1+m*v) %.2f %%",
                    1e3 * t->step_s, 100 * t->bubble, 100 * t->theory));
    if (t->peak_rank >= 0)
        TRY(text_printf(out, ", memory %.2f GiB (rank %d)",
                        t->rank[t->peak_rank].peak_bytes / TIMELINE_GIB, t->peak_rank));
    TRY(text_printf(out, "\nrank    forward ms   backward ms     weight ms        all ms  bubble %%"
                         "  memory GiB\n"));
    for (int i = 0; i < t->shown; i++) {
        int rank = timeline_shown_rank(t, i);
        TRY(rank_row(out, &t->rank[rank], rank));
    }
    for (int i = 0; i < t->n_recorded; i++)
        TRY(text_printf(out, "%s%lld: %.3f", i == 0 ? "iterations (ms)  " : "  ",
                        (long long)t->recorded[i].number, 1e3 * t->recorded[i].step_s));
    return text_printf(out, "%s\n", t->n_recorded > 0 ? "\n" : "");
}
