/* schedule: the table of schedules, the shapes that they accept, and the steps from a shape to Programs: order
, then lower. */
#include "engine/schedule/schedule.h"

#include "engine/base/synonym.h"
#include "engine/base/text.h"
#include "engine/schedule/lower.h"
#include "engine/schedule/order.h"

#include <math.h>
#include <string.h>

enum { NAMES_MAX = 32 };

/* In schedule.def: as many chunks as an action's field can number. */
enum { MANY = SCHEDULE_CHUNKS_MAX };

const ScheduleDesc schedule_table[] = {
#include "engine/schedule/schedule.def"
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
    const Synonym *other = synonym_of_value(name); /* of another trainer, or of 0.9.0 */
    if (other != NULL)
        return FAIL(ERR_ARG, "schedule %s %s%s", name, *other->ours == '\0' ? "" : "is called ",
                    *other->ours == '\0' ? other->note : other->ours);
    char hint[TEXT_HINT_BYTES], all[160];
    size_t at = 0;
    for (int i = 0; i < schedule_table_n; i++)
        at = text_add(all, sizeof all, at, "%s%s", i > 0 ? ", " : ", there are ", names[i]);
    return FAIL(ERR_ARG, "schedule: there is no \"%s\"%s", name,
                text_hint(hint, name, names, schedule_table_n, all));
}

/* The sizes and the placement that the Programs of all ranks share. It has no actions and no
 * rank. */
static Program program_like(const ScheduleDesc *d, const ScheduleShape *s)
{
    return (Program){ .micros = s->micros,
                      .chunks = s->chunks,
                      .stages = s->stages,
                      .placement = d->placement,
                      .phased = d->phases,
                      .shards = s->shards };
}

/* Does the schedule take these numbers of chunks, micro-batches and blocks? With several chunks in a loop,
 * micro-batches go in groups; a group has one for each stage. */
static Status check_sizes(const ScheduleDesc *d, const ScheduleShape *s)
{
    bool range = d->chunks_least < d->chunks_most, round = d->placement == PLACE_LOOP && range;
    if (s->chunks < d->chunks_least || s->chunks > d->chunks_most) {
        return FAIL(ERR_ARG, "schedule %s: %d chunks a rank, this one takes %d%s", d->name,
                    s->chunks, d->chunks_least, range ? " or more" : "");
    }
    if (d->phases && (s->blocks < 1 || s->blocks > SCHEDULE_BLOCKS_MAX)) {
        return FAIL(ERR_ARG, "schedule %s: %d blocks a chunk to take apart, legal are 1 to %d",
                    d->name, s->blocks, SCHEDULE_BLOCKS_MAX);
    }
    if (d->phases && d->placement == PLACE_LOOP && s->chunks > 1 && s->stages == 1)
        return FAIL(ERR_ARG, "schedule %s: %d chunks on one stage, it takes 1", d->name, s->chunks);
    if (round && s->chunks > 1 && s->micros % s->stages != 0) {
        const int below = s->micros / s->stages * s->stages, above = below + s->stages;
        return FAIL(ERR_ARG,
                    "schedule %s: %d micro-batches do not divide into groups of %d stages; the "
                    "nearest legal numbers are %d and %d",
                    d->name, s->micros, s->stages, below > 0 ? below : above,
                    above + (below > 0 ? 0 : s->stages));
    }
    if (d->placement == PLACE_BOTH && (s->stages % 2 != 0 || s->micros % 2 != 0)) {
        return FAIL(ERR_ARG, "schedule %s: %d stages and %d micro-batches; both must be even",
                    d->name, s->stages, s->micros);
    }
    if (s->micros < d->micros_least * s->stages) {
        return FAIL(ERR_ARG, "schedule %s: %d micro-batches over %d stages, at least %d", d->name,
                    s->micros, s->stages, d->micros_least * s->stages);
    }
    Program like = program_like(d, s);
    if (queue_count(&like) <= QUEUES_MAX) return OK;
    return FAIL(ERR_ARG, "schedule %s: %d chunks a rank need %d streams, a GPU has %d; take fewer",
                d->name, s->chunks, queue_count(&like), QUEUES_MAX);
}

Status schedule_legal(const ScheduleDesc *d, const ScheduleShape *s)
{
    const struct {
        const char *name;
        int value, max;
    } size[] = { { "stages (mesh.pp)", s->stages, SCHEDULE_STAGES_MAX },
                 { "chunks a rank (mesh.vpp)", s->chunks, SCHEDULE_CHUNKS_MAX },
                 { "micro-batches (train.batch / train.micro_batch on a data-parallel rank)",
                   s->micros, SCHEDULE_MICROS_MAX } };
    const double cost[] = { s->forward, s->input, s->weight };
    for (int i = 0; i < 3; i++) {
        if (size[i].value < 1 || size[i].value > size[i].max) {
            return FAIL(ERR_ARG, "schedule %s: %d %s, legal are 1 to %d", d->name, size[i].value,
                        size[i].name, size[i].max);
        }
        if (!(cost[i] >= 0 && isfinite(cost[i]))) {
            return FAIL(ERR_ARG, "schedule %s: a pass of duration %g, legal are finite ones from 0",
                        d->name, cost[i]);
        }
    }
    return check_sizes(d, s);
}

/* Orders with room for each pass: a forward, its input and its weight gradients, for each chunk and
 * micro-batch. */
static Status new_orders(const ScheduleShape *s, Arena *scratch, Order **out)
{
    size_t passes = 3 * (size_t)s->chunks * (size_t)s->micros;
    Pass *all = NULL;
    TRY(ARENA_ZEROED(scratch, s->stages, out));
    TRY(ARENA_NEW(scratch, (size_t)s->stages * passes, &all));
    for (int r = 0; r < s->stages; r++) (*out)[r].at = all + (size_t)r * passes;
    return OK;
}

Status schedule_orders(const ScheduleDesc *d, const ScheduleShape *s, Arena *scratch, Order **out)
{
    Order *ranks = NULL;
    TRY(new_orders(s, scratch, &ranks));
    order_by_hand(s, d->order, ranks);
    *out = ranks;
    return OK;
}

Status schedule_make(const ScheduleDesc *d, const ScheduleShape *s, Arena *a, Arena *scratch,
                     Pipeline *out)
{
    TRY(schedule_legal(d, s));
    Order *ranks = NULL;
    Program like = program_like(d, s);
    ArenaMark mark = arena_mark(scratch);
    Status status = schedule_orders(d, s, scratch, &ranks);
    if (status == OK) status = schedule_lower(&like, s, ranks, a, scratch, out);
    arena_release(scratch, mark);
    return status;
}

Status schedule_evaluation(const ScheduleDesc *d, const ScheduleShape *s, Arena *a, Arena *scratch,
                           Pipeline *out)
{
    ScheduleShape one = *s;
    one.micros = 1;
    one.shards = (ScheduleShards){ .weights = s->shards.weights };
    Program like = program_like(d, &one);
    like.phased = false;
    like.evaluates = true;
    Order *ranks = NULL;
    ArenaMark mark = arena_mark(scratch);
    Status status = new_orders(&one, scratch, &ranks);
    /* An evaluation needs no generator: its only micro-batch visits the hops one after the
     * other. */
    for (int hop = 0; status == OK && hop < hop_count(&like); hop++) {
        StageAt at = hop_stage(&like, 0, hop);
        Order *o = &ranks[at.rank];
        o->at[o->n++] = (Pass){ .kind = ACTION_FORWARD, .chunk = (short)at.chunk };
    }
    if (status == OK) status = schedule_lower(&like, &one, ranks, a, scratch, out);
    arena_release(scratch, mark);
    return status;
}
