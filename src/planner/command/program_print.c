/* program_print: a rank's list of actions as text, a line each. */
#include "planner/command/program_print.h"

static const char *const lane_names[LANE_COUNT] = {
    [LANE_COMPUTE] = "compute", [LANE_COMM] = "comm"
};

/* "layer 2 moe.experts", with "again" for a second forward. */
static Status phase_text(const ChunkPhase *x, Text *out)
{
    if (x->own >= 0) TRY(text_printf(out, "layer %d ", x->own));
    return text_printf(out, "%s.%s%s", x->kind, x->name, x->recompute ? " again" : "");
}

static Status pass_text(const Program *p, const Action *a, Text *out)
{
    const ChunkRow *row = action_row(p, a);
    TRY(text_printf(out, " slot %d: ", a->slot));
    TRY(phase_text(&row->at[a->first], out));
    if (a->end - a->first == 1) return OK;
    TRY(text_printf(out, " to "));
    return phase_text(&row->at[a->end - 1], out);
}

/* Fields below 0 mean "none" in an action and are left out. */
static Status append_number(Text *out, const char *what, int value)
{
    return value < 0 ? OK : text_printf(out, " %s %d", what, value);
}

/* One action, one line: number, times in ms, queue, name, then only the fields that the action has. */
static Status action_text(const Program *p, int i, const SimSpan *span, Text *out)
{
    const Action *a = &p->at[i];
    bool transfer = action_is_transfer(a->kind);
    TRY(text_printf(out, "%6d", i));
    if (span != NULL) TRY(text_printf(out, " %9.3f %9.3f", 1e3 * span[i].start, 1e3 * span[i].end));
    TRY(text_printf(out, " %-7s %s", transfer ? "link" : lane_names[a->lane],
                    action_name(a->kind)));
    TRY(append_number(out, "micro", a->micro));
    if (p->chunks > 1) TRY(append_number(out, "chunk", a->chunk));
    TRY(append_number(out, "layer", a->layer));
    TRY(append_number(out, "place", a->half));
    TRY(append_number(out, "peer", a->peer));
    if (action_is_pass(a->kind)) TRY(pass_text(p, a, out));
    TRY(append_number(out, "in", a->in));
    TRY(append_number(out, "out", a->out));
    const char *waits = " waits";
    for (int k = 0; k < ACTION_WAITS; k++) {
        if (a->wait[k] < 0) continue;
        TRY(text_printf(out, "%s %d", waits, a->wait[k]));
        waits = "";
    }
    TRY(append_number(out, "signals", a->signal));
    TRY(append_number(out, "early", a->early));
    return text_append(out, "\n", 1);
}

Status program_print(const Program *p, const SimSpan *span, Text *out)
{
    TRY(text_printf(out, "rank %d of %d: %d actions, %d slots, %d entries, %d events\n", p->rank,
                    p->stages, p->n, p->slots, p->entries, p->events));
    for (int i = 0; i < p->n; i++) TRY(action_text(p, i, span, out));
    return OK;
}
