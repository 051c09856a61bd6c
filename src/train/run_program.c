#include "train/run_program.h"

#include "base/clock.h"
#include "trace/trace.h"
#include "train/run_layers.h"
#include "train/shards.h"
#include "train/update.h"

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
    case ACTION_SEND_ACTIVATIONS:
    case ACTION_RECV_ACTIVATIONS:
    case ACTION_SEND_GRADIENTS:
    case ACTION_RECV_GRADIENTS:
        return FAIL(ERR_UNSUPPORTED, "engine: no other rank is there for \"%s\"",
                    action_name(a->kind));
    case ACTION_KIND_COUNT: break;
    }
    return FAIL(ERR_ARG, "engine: unknown action %d", (int)a->kind);
}

Status run_program(Engine *e)
{
    for (int i = 0; i < e->program.n; i++) {
        const Action *a = &e->program.at[i];
        double start = e->ex.trace != NULL ? clock_s() : 0;
        TRY(run_action(e, a));
        if (e->ex.trace == NULL) continue;
        trace_event(e->ex.trace, (TraceEvent){ .name = action_name(a->kind),
                                               .start_s = start,
                                               .duration_s = clock_s() - start,
                                               .step = e->step,
                                               .lane = a->lane,
                                               .layer = -1 });
    }
    return OK;
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
