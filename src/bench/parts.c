/*
 * parts: ms by part of the step (`bench step --parts`), from the stamps that every training run makes
 * (engine/train/recorder.h). A part is a phase of a kind of layer, over all layers and micro-batches, or an action
 * without phases, such as the update. Means over the timed steps, so the parts of the compute lane and the time outside
 * of them add up to the step.
 */
#include "bench/bench.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PART_KINDS = RECORD_WEIGHT + 1, PART_LANES = 3 };
enum { PART_TRANSFERS = PART_LANES - 1 }; /* a lane of their own, as RecordRow says */

struct BenchPart {
    uint32_t name;
    int lane;
    double s[PART_KINDS], all_s, flops; /* summed over steps */
};

static int lane_of(const RecordRow *row)
{
    if (row->transfer != 0) return PART_TRANSFERS;
    return row->lane == LANE_COMPUTE ? 0 : 1;
}

/* Adds the last step, if it ran as it was planned: one that ran twice has other times. */
Status bench_parts_add(BenchModel *m, BenchParts *p, double seconds)
{
    Recorder *r = &m->recorder;
    if (m->result.retried != 0) return OK;
    recorder_take(r, &m->result, seconds, 0, 0);
    const RecorderMode *w = &r->mode[0];
    const RecordTime *time = r->slot[0].times;
    if (p->part == NULL) {
        p->n = (int)r->n_names * PART_LANES;
        TRY(ARENA_ZEROED(&m->arena, p->n, &p->part));
        TRY(ARENA_ZEROED(&m->arena, w->rows, &p->has_phases));
        for (int i = w->list->program.n; i < w->rows; i++) p->has_phases[w->row[i].action] = true;
    }
    for (int i = 0; i < w->rows; i++) {
        const RecordRow *row = &w->row[i];
        if (p->has_phases[i]) continue;
        BenchPart *part = &p->part[(int)row->name * PART_LANES + lane_of(row)];
        const double s = 1e-9 * (double)(time[i].end - time[i].begin);
        part->name = row->name;
        part->lane = lane_of(row);
        part->s[row->part] += s;
        part->all_s += s;
        part->flops += row->flops;
    }
    p->seconds += seconds;
    p->steps++;
    return OK;
}

static int longest_first(const void *left, const void *right)
{
    const BenchPart *a = left, *b = right;
    if (a->lane != b->lane) return a->lane < b->lane ? -1 : 1;
    return a->all_s == b->all_s ? 0 : a->all_s > b->all_s ? -1 : 1;
}

static const char *name_of(const Recorder *r, uint32_t name)
{
    const char *at = r->names;
    while (name-- > 0) at += strlen(at) + 1;
    return at;
}

static const char *const lane_word[PART_LANES] = { "compute", "comm", "transfer" };

static Status print_part(const BenchPart *b, const char *name, double ms, double share, bool json,
                         Text *out)
{
    if (json)
        return text_json(out,
                         "{\"part\":%s,\"lane\":%s,\"ms\":%g,\"forward_ms\":%g,\"again_ms\":%g,"
                         "\"input_ms\":%g,\"weight_ms\":%g,\"flops_per_s\":%g}",
                         name, lane_word[b->lane], ms * b->all_s, ms * b->s[RECORD_FORWARD],
                         ms * b->s[RECORD_AGAIN], ms * b->s[RECORD_INPUT], ms * b->s[RECORD_WEIGHT],
                         b->all_s > 0 ? b->flops / b->all_s : 0);
    int columns = PART_KINDS;
    while (b->flops <= 0 && columns > RECORD_FORWARD && b->s[columns - 1] <= 0) columns--;
    TRY(text_printf(out, "  %-8s %-26s %8.2f %6.1f %%", lane_word[b->lane], name, ms * b->all_s,
                    share * b->all_s));
    for (int k = RECORD_FORWARD; k < columns; k++) {
        char cell[32] = "";
        if (b->s[k] > 0) (void)snprintf(cell, sizeof cell, "%.2f", ms * b->s[k]);
        TRY(text_printf(out, " %8s", cell));
    }
    if (b->flops > 0) TRY(text_printf(out, " %9.1f", 1e-9 * b->flops / b->all_s));
    return text_printf(out, "\n");
}

Status bench_parts_print(const BenchModel *m, BenchParts *p, bool json, Text *out)
{
    if (p->steps == 0)
        return FAIL(ERR_UNSUPPORTED, "bench step: --parts: every step ran twice, because rows had "
                                     "no room: set moe.buffers=worst");
    const double ms = 1e3 / (double)p->steps, share = 100 / p->seconds;
    double inside = 0;
    int printed = 0;
    qsort(p->part, (size_t)p->n, sizeof *p->part, longest_first);
    if (json) TRY(text_printf(out, ",\"parts\":["));
    if (!json)
        TRY(text_printf(out,
                        "  lane     part                             ms     step  forward    again"
                        "    input   weight  GFLOP/s (means of %" PRId64 " steps)\n",
                        p->steps));
    for (int i = 0; i < p->n; i++) {
        const BenchPart *b = &p->part[i];
        if (b->all_s <= 0) continue;
        if (b->lane == 0) inside += b->all_s;
        if (json && printed++ > 0) TRY(text_printf(out, ","));
        TRY(print_part(b, name_of(&m->recorder, b->name), ms, share, json, out));
    }
    const double outside = p->seconds - inside;
    if (json) return text_json(out, "],\"outside_parts_ms\":%g", ms * outside);
    return text_printf(out, "  %-8s %-26s %8.2f %6.1f %%\n", lane_word[0], "outside of parts",
                       ms * outside, share * outside);
}
