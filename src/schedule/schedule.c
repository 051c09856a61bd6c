#include "schedule/schedule.h"

#include "base/text.h"
#include "schedule/lower.h"
#include "schedule/order.h"

#include <math.h>
#include <string.h>

enum { NAMES_MAX = 32 };

static Status one_chunk(const ScheduleShape *s)
{
    if (s->chunks == 1) return OK;
    return FAIL(ERR_ARG, "schedule: %d chunks a rank, this one takes 1 (interleaved takes more)",
                s->chunks);
}

/* Several chunks a rank go round the ranks, a group of micro-batches at a time. */
static Status whole_groups(const ScheduleShape *s)
{
    if (s->chunks < 2) {
        return FAIL(ERR_ARG, "schedule: %d chunk a rank does not interleave, at least 2",
                    s->chunks);
    }
    if (s->micros % s->stages == 0) return OK;
    return FAIL(ERR_ARG,
                "schedule: %d micro-batches do not divide into groups of %d stages; the next legal "
                "number is %d",
                s->micros, s->stages, (s->micros / s->stages + 1) * s->stages);
}

static Status with_blocks(const ScheduleShape *s)
{
    if (s->blocks < 1 || s->blocks > SCHEDULE_BLOCKS_MAX) {
        return FAIL(ERR_ARG,
                    "schedule 1f1b-overlap: %d blocks a chunk to take apart, legal are 1 to %d",
                    s->blocks, SCHEDULE_BLOCKS_MAX);
    }
    if (s->chunks == 1) return OK;
    if (s->stages > 1) return whole_groups(s);
    return FAIL(ERR_ARG, "schedule 1f1b-overlap: %d chunks on one stage, only 1 or more stages",
                s->chunks);
}

static Status two_chunks(const ScheduleShape *s)
{
    if (s->chunks == 2) return OK;
    return FAIL(ERR_ARG,
                "schedule: %d chunks a rank, this one takes 2, down the ranks and up again",
                s->chunks);
}

static Status two_ways(const ScheduleShape *s)
{
    TRY(two_chunks(s));
    if (s->stages % 2 == 0 && s->micros % 2 == 0 && s->micros >= 2 * s->stages) return OK;
    return FAIL(
        ERR_ARG,
        "schedule dualpipe: %d stages and %d micro-batches; both must be even, and at least 2 "
        "micro-batches a stage",
        s->stages, s->micros);
}

static Status two_halves(const ScheduleShape *s)
{
    TRY(two_chunks(s));
    if (s->micros >= 2 * s->stages) return OK;
    return FAIL(ERR_ARG, "schedule dualpipe-v: %d micro-batches over %d stages, at least %d",
                s->micros, s->stages, 2 * s->stages);
}

const ScheduleDesc schedule_table[] = {
    { "gpipe", PLACE_LOOP, one_chunk, false, false, schedule_gpipe, NULL },
    { "1f1b", PLACE_LOOP, one_chunk, false, false, schedule_1f1b, NULL },
    { "interleaved", PLACE_LOOP, whole_groups, false, false, schedule_interleaved, NULL },
    { "1f1b-overlap", PLACE_LOOP, with_blocks, true, false, schedule_1f1b_overlap, NULL },
    { "zb-h1", PLACE_LOOP, one_chunk, false, false, schedule_zb_h1, NULL },
    { "zb1p", PLACE_LOOP, one_chunk, false, false, NULL, schedule_zb1p },
    { "zbv", PLACE_V, two_chunks, false, false, schedule_zbv, NULL },
    { "v-half", PLACE_V, two_chunks, false, true, NULL, schedule_v_half },
    { "v-min", PLACE_V, two_chunks, false, true, NULL, schedule_v_min },
    { "dualpipe", PLACE_BOTH, two_ways, false, false, schedule_dualpipe, NULL },
    { "dualpipe-v", PLACE_V, two_halves, false, false, schedule_dualpipe_v, NULL },
};
const int schedule_table_n = (int)(sizeof schedule_table / sizeof *schedule_table);

Status schedule_find(const char *name, const ScheduleDesc **out)
{
    const char *names[NAMES_MAX];
    for (int i = 0; i < schedule_table_n; i++) {
        names[i] = schedule_table[i].name;
        if (strcmp(name, names[i]) != 0) continue;
        *out = &schedule_table[i];
        return OK;
    }
    char hint[TEXT_HINT_BYTES];
    return FAIL(ERR_ARG, "schedule: there is no \"%s\"%s", name,
                text_hint(hint, name, names, schedule_table_n, ""));
}

Status schedule_legal(const ScheduleDesc *d, const ScheduleShape *s)
{
    const struct {
        const char *name;
        int value, max;
    } size[] = { { "stages", s->stages, SCHEDULE_STAGES_MAX },
                 { "chunks", s->chunks, SCHEDULE_CHUNKS_MAX },
                 { "micro-batches", s->micros, SCHEDULE_MICROS_MAX } };
    for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
        if (size[i].value >= 1 && size[i].value <= size[i].max) continue;
        return FAIL(ERR_ARG, "schedule %s: %d %s, legal are 1 to %d", d->name, size[i].value,
                    size[i].name, size[i].max);
    }
    const double cost[] = { s->forward, s->input, s->weight };
    for (size_t i = 0; i < sizeof cost / sizeof *cost; i++) {
        if (cost[i] >= 0 && isfinite(cost[i])) continue;
        return FAIL(ERR_ARG, "schedule %s: a pass of duration %g, legal are finite ones from 0",
                    d->name, cost[i]);
    }
    return d->legal(s);
}

Status schedule_orders(const ScheduleDesc *d, const ScheduleShape *s, Arena *scratch, Order **out)
{
    size_t passes = 3 * (size_t)s->chunks * (size_t)s->micros;
    Order *ranks = NULL;
    Pass *all = NULL;
    TRY(ARENA_ZEROED(scratch, s->stages, &ranks));
    TRY(ARENA_NEW(scratch, (size_t)s->stages * passes, &all));
    for (int r = 0; r < s->stages; r++) ranks[r].at = all + (size_t)r * passes;
    if (d->search != NULL)
        TRY(d->search(s, scratch, ranks));
    else
        order_by_hand(s, d->by_hand, ranks);
    *out = ranks;
    return OK;
}

Status schedule_make(const ScheduleDesc *d, const ScheduleShape *s, Arena *a, Arena *scratch,
                     Pipeline *out)
{
    TRY(schedule_legal(d, s));
    Order *ranks = NULL;
    ArenaMark mark = arena_mark(scratch);
    Status status = schedule_orders(d, s, scratch, &ranks);
    if (status == OK) status = schedule_lower(d, s, ranks, a, scratch, out);
    arena_release(scratch, mark);
    return status;
}
