/* run_program: runs a list of actions. Each action waits for its events, takes its lane, runs, and signals.
 * run_layers.c runs layers, shards.c works on parameters, transfers.c sends and receives. */
#include "engine/step/run_program.h"

#include "engine/base/clock.h"
#include "engine/step/copies.h"
#include "engine/step/engine_memory.h"
#include "engine/step/run_layers.h"
#include "engine/step/shards.h"
#include "engine/step/slots.h"
#include "engine/step/update.h"
#include "engine/train/recorder.h"

#include <stdio.h>

/* The record's sums are zeroed in every list; gradients only in a step. */
static Status zero_sums(Engine *e)
{
    TRY(engine_zero(&e->arenas, &e->io.record.sums));
    TRY(engine_zero(&e->arenas, &e->io.record.counts));
    for (int i = 0; i < 2 * FIGURES; i++) { /* first the largest numbers, then this rank's own */
        const Figure f = (Figure)(i % FIGURES);
        const Tensor at = record_figure(&e->io.record, f);
        if (figure_rows[f].record == (i < FIGURES ? RECORD_MAX : RECORD_OWN))
            TRY(engine_zero(&e->arenas, &at));
    }
    bool evaluates = e->list->program.evaluates;
    if (!evaluates || e->params.copies_old) TRY(copies_quantise(&e->params, false));
    return evaluates ? OK : shards_begin(&e->params);
}

/* Called by a wait that failed, on the thread that runs the list: "step 7: backward of micro-batch 3 on chunk 0". */
void run_say_place(void *engine, char *out, int out_bytes)
{
    const Engine *e = engine;
    const Program *p = &e->list->program;
    const Action *a = e->at < p->n ? &p->at[e->at] : NULL;
    const char *when = a == NULL ? "after " : p->evaluates ? "evaluation after " : "";
    int n = snprintf(out, (size_t)out_bytes, "%sstep %lld", when, (long long)e->step);
    if (a == NULL || n >= out_bytes) return;
    out += n, out_bytes -= n;
    if (a->micro < 0)
        (void)snprintf(out, (size_t)out_bytes, ": %s", action_name(a->kind));
    else
        (void)snprintf(out, (size_t)out_bytes, ": %s of micro-batch %d on chunk %d",
                       action_name(a->kind), a->micro, a->chunk);
}

/* From here on launches and collectives go to this lane, which has scratch of its own. */
static void take_lane(Engine *e, Lane lane)
{
    e->ex.lane = lane;
    if (!e->arenas.lanes) return;
    e->ex.scratch = lane == LANE_COMM ? &e->mode->comm_scratch : &e->mode->arena[ENGINE_SCRATCH];
    if (e->arenas.counting) return;
    void *stream = e->ex.backend->streams->of_lane(&e->ex, lane);
    for (int g = 0; g < GROUP_COUNT; g++) {
        if (e->mesh.group[g] != NULL) comm_set_stream(e->mesh.group[g], stream);
    }
}

/* Does what an action says. A counting run has a single slot for all micro-batches. */
static Status run_action(Engine *e, const Action *a)
{
    EngineMode *w = e->mode;
    e->ex.layer = a->layer >= 0 ? e->spec.layers[a->layer].block : -1;
    if (action_is_pass(a->kind)) {
        int64_t micro = e->shape.micro_batch;
        MicroBatch m = e->io.evaluated;
        if (!e->list->program.evaluates) m = run_part(&e->io.batch, a->micro * micro, micro);
        return run_pass(e, a, &m, &w->slots[e->arenas.counting ? 0 : a->slot]);
    }
    switch (a->kind) {
    case ACTION_ZERO_GRADS: return a->layer >= 0 ? shards_zero(&e->params, a->layer) : zero_sums(e);
    case ACTION_GATHER_WEIGHTS: return shards_gather(&e->params, a->layer);
    case ACTION_FREE_WEIGHTS: return OK;
    case ACTION_REDUCE_GRADS: return shards_reduce(&e->params, a->layer);
    case ACTION_SUM_GRADS: return shards_sum(&e->params, a->layer);
    case ACTION_UPDATE: return update_run(&e->params, &e->io);
    case ACTION_ADD_RECORDS: return update_add_records(&e->params, &e->io.record);
    default: return FAIL(ERR_ARG, "engine: %s runs on no lane", action_name(a->kind));
    }
}

/* Waits for the action's events, runs it on its lane, and signals. The span is the host's time; stamps give the
 * device's. */
static Status run_on_lane(Engine *e, const Action *a)
{
    Transfers *t = &e->list->transfers;
    ActionSpan *span = &t->span[e->at];
    take_lane(e, a->lane);
    TRY(transfers_wait(t, a));
    TRY(transfers_mark(t, e->at, 0, NULL));
    const double flops = e->ex.totals.flops;
    span->start_s = clock_s();
    TRY(run_action(e, a));
    span->end_s = clock_s();
    recorder_action(e->recorder, e->at, flops);
    TRY(transfers_mark(t, e->at, 1, NULL));
    return transfers_signal(t, a);
}

/* Runs all actions in order. Before a traced step all stages meet in a barrier, so that their clocks can be
 * compared. */
static Status run_list(Engine *e)
{
    const Program *p = &e->list->program;
    Transfers *t = &e->list->transfers;
    if (recorder_traces(e->recorder) && t->comm != NULL) TRY(comm_barrier(t->comm));
    TRY(transfers_begin(t));
    recorder_begin(e->recorder);
    for (e->at = 0; e->at < p->n; e->at++) {
        const Action *a = &p->at[e->at];
        TRY(action_is_transfer(a->kind) ? transfers_reach(t, a) : run_on_lane(e, a));
    }
    recorder_end(e->recorder);
    return OK;
}

/* A counting run does not wait, and its transfers take no memory. */
static Status count_action(Engine *e, const Action *a)
{
    take_lane(e, a->lane);
    return action_is_transfer(a->kind) ? OK : run_action(e, a);
}

/* The evaluation's list while counting: every action once, in order. */
static Status count_list(Engine *e)
{
    const Program *p = &e->list->program;
    for (int i = 0; i < p->n; i++) TRY(count_action(e, &p->at[i]));
    return OK;
}

/* After a failure, aborts the communicator: other stages and ranks must not write into memory that is about to
 * be freed. */
Status run_program(Engine *e, EngineList *l)
{
    Transfers *t = &l->transfers;
    e->list = l;
    Status s = e->arenas.counting ? count_list(e) : run_list(e);
    take_lane(e, LANE_COMPUTE);
    if (s == OK && !e->arenas.counting) s = transfers_end(t);
    if (s != OK && t->comm != NULL) {
        char why[1024];
        status_sentence(why, sizeof why);
        comm_abort(t->comm, why);
    }
    return s;
}

/* Counting a step. Micro-batches with the same kinds of passes on a chunk cost the same, so one of them is
 * counted and multiplied. */

static bool is_pass_on(const Action *a, int chunk)
{
    return a->chunk == chunk && a->micro >= 0 && !action_is_transfer(a->kind);
}

/* What was counted since `first` is one of n alike: adds the other n - 1. */
static void add_repeats(OpTotals *t, const OpTotals *first, int n)
{
    t->flops += (t->flops - first->flops) * (n - 1);
    t->bytes += (t->bytes - first->bytes) * (n - 1);
    t->comm_bytes += (t->comm_bytes - first->comm_bytes) * (n - 1);
    t->ops += (t->ops - first->ops) * (n - 1);
}

/* Counts the micro-batches whose backward on a chunk begins so: all passes of one of them, n times. */
static Status count_alike(Engine *e, int chunk, ActionKind backward, bool apart)
{
    const Program *p = &e->list->program;
    OpTotals before = e->ex.totals;
    int n = 0, micro = -1;
    for (int i = 0; i < p->n; i++) {
        const Action *a = &p->at[i];
        if (!is_pass_on(a, chunk) || a->kind != backward || a->first > 0) continue;
        if (a->apart != apart) continue;
        if (n++ == 0) micro = a->micro;
    }
    for (int i = 0; n > 0 && i < p->n; i++) {
        const Action *a = &p->at[i];
        if (is_pass_on(a, chunk) && a->micro == micro) TRY(count_action(e, a));
    }
    if (n > 0) add_repeats(&e->ex.totals, &before, n);
    return OK;
}

static void raise_to(size_t *bytes, size_t need) { *bytes = need > *bytes ? need : *bytes; }

/* Each chunk of a list alone, which gives its own peaks. */
static Status count_chunks(Engine *e, const Program *p, EnginePlan *out)
{
    bool split = program_splits(p);
    for (int c = 0; c < p->chunks; c++) {
        Arena *slot = &e->mode->slots[0].arena, *grads = e->mode->grads.at;
        slot->peak_bytes = 0;
        if (split) grads->peak_bytes = 0;
        TRY(count_alike(e, c, ACTION_BACKWARD, false));
        TRY(count_alike(e, c, ACTION_BACKWARD_INPUT, false));
        size_t whole = slot->peak_bytes;
        slot->peak_bytes = 0;
        TRY(count_alike(e, c, ACTION_BACKWARD_INPUT, true));
        raise_to(&out->split_keep[c], slot->peak_bytes);
        raise_to(&out->chunk_bytes[SLOT_KEEP][c],
                 whole > slot->peak_bytes ? whole : slot->peak_bytes);
        out->pool_of_chunk[c] = (size_t)operand_bytes(&e->mode->slots[0].pool.rows);
        if (split) raise_to(&out->chunk_bytes[SLOT_GRADS][c], grads->peak_bytes);
    }
    return OK;
}

/* Actions without a micro-batch are counted as they stand, then chunks. Smaller steps can have passes that
 * the largest has not, but all have the same actions without a micro-batch. */
Status run_count(Engine *e, EnginePlan *out)
{
    const Program *p = &e->mode->step->program;
    e->list = e->mode->step;
    for (int i = 0; i < p->n; i++) {
        if (p->at[i].micro < 0) TRY(count_action(e, &p->at[i]));
    }
    TRY(count_chunks(e, p, out));
    out->step = e->ex.totals;
    for (int i = 1; i < e->mode->n_steps; i++) {
        e->list = &e->mode->step[i];
        TRY(count_chunks(e, &e->list->program, out));
    }
    take_lane(e, LANE_COMPUTE);
    return OK;
}
