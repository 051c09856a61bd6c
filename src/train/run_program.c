#include "train/run_program.h"

#include "base/clock.h"
#include "trace/trace.h"
#include "train/run_layers.h"
#include "train/shards.h"
#include "train/update.h"

#include <stdio.h>

static Status zero(Engine *e, const Tensor *t)
{
    if (t->data == NULL) return OK;
    return exec_bottom(&e->ex)->fill(&e->ex, t->data, 0, tensor_bytes(t));
}

Status run_zero_record(Engine *e)
{
    TRY(zero(e, &e->record.sums));
    return zero(e, &e->record.load);
}

void run_say_place(void *engine, char *out, int out_bytes)
{
    const Engine *e = engine;
    const Action *a = e->at < e->program.n ? &e->program.at[e->at] : NULL;
    if (a == NULL)
        (void)snprintf(out, (size_t)out_bytes, "after step %lld", (long long)e->step);
    else if (a->micro < 0)
        (void)snprintf(out, (size_t)out_bytes, "step %lld: %s", (long long)e->step,
                       action_name(a->kind));
    else
        (void)snprintf(out, (size_t)out_bytes, "step %lld: %s of micro-batch %d on chunk %d",
                       (long long)e->step, action_name(a->kind), a->micro, a->chunk);
}

static Status run_action(Engine *e, const Action *a)
{
    int64_t micro = e->shape.micro_batch;
    MicroBatch m = { 0 };
    if (a->micro >= 0) m = run_part(e, a->micro * micro, micro);
    e->ex.layer = -1;
    switch (a->kind) {
    case ACTION_ZERO_GRADS:
        shards_begin(e);
        TRY(run_zero_record(e));
        return zero(e, &e->memory.buffer[BUF_GRAD]);
    case ACTION_FORWARD:
    case ACTION_BACKWARD:
    case ACTION_BACKWARD_INPUT:
    case ACTION_BACKWARD_WEIGHT: return run_pass(e, a, &m, &e->slots[e->counting ? 0 : a->slot]);
    case ACTION_REDUCE_GRADS: return shards_reduce(e);
    case ACTION_UPDATE: return update_run(e);
    default: return FAIL(ERR_ARG, "engine: %s is no action of compute", action_name(a->kind));
    }
}

static Status run_compute(Engine *e, const Action *a)
{
    Transfers *t = &e->transfers;
    ActionSpan *span = &t->span[e->at];
    TRY(a->kind == ACTION_REDUCE_GRADS ? transfers_end(t) : transfers_wait(t, a));
    span->start_s = clock_s();
    TRY(run_action(e, a));
    span->end_s = clock_s();
    TRY(transfers_signal(t, a));
    if (e->ex.trace == NULL) return OK;
    trace_event(e->ex.trace, (TraceEvent){ .name = action_name(a->kind),
                                           .start_s = span->start_s,
                                           .duration_s = span->end_s - span->start_s,
                                           .step = e->step,
                                           .lane = a->lane,
                                           .layer = -1 });
    return OK;
}

/* Where a step is recorded all stages begin at one moment, so that their clocks compare. */
static Status run_list(Engine *e)
{
    if (e->ex.trace != NULL && e->transfers.comm != NULL) TRY(comm_barrier(e->transfers.comm));
    TRY(transfers_begin(&e->transfers));
    for (e->at = 0; e->at < e->program.n; e->at++) {
        const Action *a = &e->program.at[e->at];
        TRY(action_is_transfer(a->kind) ? transfers_reach(&e->transfers, a) : run_compute(e, a));
    }
    return OK;
}

/* After a failure other stages must not reach into entries that go. */
Status run_program(Engine *e)
{
    Status s = run_list(e);
    if (s != OK && e->transfers.comm != NULL) {
        char why[1024];
        status_sentence(why, sizeof why);
        comm_abort(e->transfers.comm, why);
    }
    return s;
}

/* Counting: micro-batches whose passes on a chunk are alike cost and take the same. */

static bool passes(const Action *a, int chunk)
{
    return a->chunk == chunk && a->micro >= 0 && !action_is_transfer(a->kind);
}

/* `first`: the totals before; the rest of `n` times the same is added. */
static void add_again(OpTotals *t, const OpTotals *first, int n)
{
    t->flops += (t->flops - first->flops) * (n - 1);
    t->bytes += (t->bytes - first->bytes) * (n - 1);
    t->comm_bytes += (t->comm_bytes - first->comm_bytes) * (n - 1);
    t->ops += (t->ops - first->ops) * (n - 1);
}

/* The micro-batches that go back over a chunk with actions of this kind: all passes of one. */
static Status count_alike(Engine *e, int chunk, ActionKind backward)
{
    const Program *p = &e->program;
    OpTotals before = e->ex.totals;
    int n = 0, micro = -1;
    for (int i = 0; i < p->n; i++) {
        const Action *a = &p->at[i];
        if (!passes(a, chunk) || a->kind != backward || a->phase > 0) continue;
        if (n++ == 0) micro = a->micro;
    }
    for (int i = 0; n > 0 && i < p->n; i++) {
        const Action *a = &p->at[i];
        if (passes(a, chunk) && a->micro == micro) TRY(run_action(e, a));
    }
    if (n > 0) add_again(&e->ex.totals, &before, n);
    return OK;
}

Status run_count(Engine *e, EnginePlan *out)
{
    const Program *p = &e->program;
    for (int i = 0; i < p->n; i++) {
        if (p->at[i].micro < 0) TRY(run_action(e, &p->at[i]));
    }
    for (int c = 0; c < p->chunks; c++) {
        Arena *slot = &e->slots[0].arena, *grads = e->grads.at;
        slot->peak_bytes = 0;
        if (e->split) grads->peak_bytes = 0;
        TRY(count_alike(e, c, ACTION_BACKWARD));
        TRY(count_alike(e, c, ACTION_BACKWARD_INPUT));
        out->chunk_bytes[SLOT_KEEP][c] = slot->peak_bytes;
        if (e->split) out->chunk_bytes[SLOT_GRADS][c] = grads->peak_bytes;
    }
    out->step = e->ex.totals;
    return OK;
}
