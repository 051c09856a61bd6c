/* recorder: stamps the actions, phases and ops of a step while it runs, and keeps the last steps in
 * a ring. It writes no file: recorder_files.c does. */
#include "engine/train/recorder.h"

#include "engine/base/clock.h"
#include "engine/step/agree.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NAMES_BYTES = 1 << 18 };

/* ---- set-up ---- */

/* The most rows of a step: a pass runs each of its phases at most three times (recomputed, for input
 * gradients, for weight gradients). */
static int rows_most(const Program *p)
{
    int64_t rows = p->n;
    for (int i = 0; i < p->n; i++) {
        const Action *a = &p->at[i];
        if (action_is_pass(a->kind)) rows += 3 * (int64_t)(a->end - a->first);
    }
    return rows < INT_MAX / 4 ? (int)rows : INT_MAX / 4;
}

/* The device writes stamps into pinned memory. There are two for each action and one for each phase, within 2 x room. */
static Status make_stamps(Recorder *r)
{
    void *block = NULL;
    size_t bytes = arena_rounded(2 * (size_t)r->room * sizeof *r->stamp) +
                   arena_rounded(2 * (size_t)RECORDER_OPS * sizeof *r->op_stamp);
    TRY(r->e->ex.backend->alloc(&r->e->ex, MEM_PINNED, bytes, &block));
    arena_over(&r->stamps, "stamps", MEM_PINNED, block, bytes);
    TRY(ARENA_ZEROED(&r->stamps, 2 * (int64_t)r->room, &r->stamp));
    return ARENA_ZEROED(&r->stamps, 2 * (int64_t)RECORDER_OPS, &r->op_stamp);
}

/* The times of all rows, then the expert load, in one block: a traced step is copied with one
 * memcpy. */
static size_t slot_bytes(const Recorder *r)
{
    return (size_t)r->room * sizeof(RecordTime) + (size_t)r->loads * sizeof(uint32_t);
}

/* All host memory of the recorder, sized exactly: the ring, one more slot for a traced step, rows, names and ops. */
static Status make_ring(Recorder *r)
{
    size_t bytes = (size_t)(r->steps + 1) * (sizeof *r->slot + arena_rounded(slot_bytes(r))) +
                   RECORD_WAYS * (size_t)r->room * sizeof(RecordRow) +
                   RECORDER_OPS * sizeof *r->op + NAMES_BYTES + (size_t)16 * ARENA_ALIGN;
    TRY(arena_init(&r->memory, "recording", MEM_HOST, bytes));
    TRY(arena_init(&r->scratch, "a recording's file", MEM_HOST, 2 * bytes + ((size_t)1 << 26)));
    for (int i = 0; i < RECORD_WAYS; i++) TRY(ARENA_ZEROED(&r->memory, r->room, &r->mode[i].row));
    TRY(ARENA_NEW(&r->memory, NAMES_BYTES, &r->names));
    TRY(ARENA_NEW(&r->memory, RECORDER_OPS, &r->op));
    TRY(ARENA_ZEROED(&r->memory, r->steps + 1, &r->slot));
    for (int i = 0; i <= r->steps; i++) {
        void *times = NULL;
        TRY(arena_alloc(&r->memory, slot_bytes(r), &times));
        r->slot[i].times = times;
    }
    return make_stamps(r);
}

static Status stamp_op(Exec *ex, int level, const OpDesc *op, const void *args);

static int64_t unix_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* All ranks take rank 0's begin as theirs, so that recordings of one run can be told from those of
 * others. Both modes share the memory for stamps, so there is room for the longer list. */
Status recorder_open(Recorder *r, Engine *e, Comm *world, int steps)
{
    *r = (Recorder){ .e = e, .steps = steps, .began_us = unix_now() / 1000, .ahead_ns = INT64_MAX };
    if (steps == 0) return OK;
    TRY(agree_first(world, &r->began_us, sizeof r->began_us));
    for (int i = 0; i < e->n_modes; i++) {
        for (int k = 0; k < e->modes[i].n_steps; k++) {
            int most = rows_most(&e->modes[i].step[k].program);
            if (most > r->room) r->room = most;
        }
    }
    r->loads = (int)(e->spec.n_moe * e->spec.experts);
    TRY(make_ring(r));
    r->note = (Decorator){ stamp_op, r };
    r->most_ops = RECORDER_OPS;
    e->recorder = r;
    return OK;
}

void recorder_close(Recorder *r)
{
    if (r->e == NULL || r->steps == 0) return;
    if (r->stamps.base != NULL)
        r->e->ex.backend->free(&r->e->ex, MEM_PINNED, r->stamps.base, r->stamps.cap_bytes);
    arena_free(&r->memory);
    arena_free(&r->scratch);
    arena_free(&r->trace_memory);
    r->e->recorder = NULL;
    *r = (Recorder){ 0 };
}

/* ---- while a step is walked ---- */

static Status add_cost(Exec *ex, int level, const OpDesc *op, const void *args)
{
    ex->totals.flops += op->cost(args).flops;
    return op_next(ex, level, op, args);
}

/* While rows are learned, FLOPs are added up as ops run. It is pushed only then, so later steps pay
 * nothing. */
static const Decorator counts_flops = { .run = add_cost };

/* The name's number in `names`. Adds it if it is new; 0 if there is no room for it. */
static uint32_t recorder_name(Recorder *r, const char *name)
{
    const char *at = r->names;
    for (uint32_t i = 0; i < r->n_names; i++, at += strlen(at) + 1) {
        if (strcmp(at, name) == 0) return i;
    }
    size_t n = strlen(name) + 1;
    if (r->names_bytes + n > NAMES_BYTES) return 0;
    memcpy(r->names + r->names_bytes, name, n);
    r->names_bytes += n;
    return r->n_names++;
}

/* Bytes at this moment, not the peak: a timeline of memory is made of them. */
static uint64_t bytes_in_use(const EngineMode *w)
{
    uint64_t sum = 0;
    for (int i = 0; i < ENGINE_ARENAS; i++) sum += w->arena[i].used_bytes;
    for (int i = 0; i < w->n_slots; i++) sum += w->slots[i].arena.used_bytes;
    for (int i = 0; i < RINGS; i++) sum += w->ring[i].used_bytes;
    return sum;
}

/* The rows of actions come first, at their index in the list. Those of phases are appended as
 * phases run. */
static void describe_actions(Recorder *r)
{
    const Program *p = &r->e->list->program;
    for (int i = 0; i < p->n; i++) {
        const Action *a = &p->at[i];
        r->now->row[i] =
            (RecordRow){ .name = recorder_name(r, action_name(a->kind)),
                         .action = i,
                         .micro = a->micro,
                         .lane = (int16_t)a->lane,
                         .layer = (int16_t)(a->layer < 0 ? -1 : r->e->spec.layers[a->layer].block),
                         .chunk = a->chunk,
                         .transfer = action_is_transfer(a->kind) };
    }
}

/* Steps of another list have other rows. */
static void forget_steps(Recorder *r)
{
    r->first = r->taken;
    r->n_ops = 0;
    r->slot[r->steps].head.rows = 0;
    for (int i = 0; i < RECORD_WAYS; i++) r->mode[i].list = NULL;
}

/* An evaluation runs the same engine but is not recorded (now NULL). Its transfers get no
 * stamps. */
void recorder_begin(Recorder *r)
{
    if (r == NULL) return;
    Engine *e = r->e;
    const Program *p = &e->list->program;
    r->now = p->evaluates ? NULL : &r->mode[e->mode - e->modes];
    e->list->transfers.stamp = r->now != NULL ? r->stamp : NULL;
    if (r->now == NULL) return;
    r->at = p->n;
    r->n_ops = r->traces ? 0 : r->n_ops;
    r->learns = r->now->list != e->list;
    if (!r->learns) return;
    if (r->now->list != NULL) forget_steps(r);
    describe_actions(r);
    exec_push(&e->ex, &counts_flops);
}

/* Called after the phase was launched. In later steps only the stamp is made, because the row is
 * already known. */
Status recorder_phase(Recorder *r, const LayerRun *run, const char *name, RecordPart part)
{
    if (r == NULL || r->now == NULL || r->at >= r->room) return OK;
    Engine *e = r->e;
    if (r->learns) {
        char text[96];
        (void)snprintf(text, sizeof text, "%s %s", layer_desc(run->layer->kind)->name, name);
        r->now->row[r->at] = (RecordRow){ .name = recorder_name(r, text),
                                          .action = e->at,
                                          .micro = e->list->program.at[e->at].micro,
                                          .lane = (int16_t)e->ex.lane,
                                          .layer = (int16_t)e->ex.layer,
                                          .chunk = e->list->program.at[e->at].chunk,
                                          .part = (uint8_t)part,
                                          .bytes = bytes_in_use(e->mode),
                                          .flops = e->ex.totals.flops };
    }
    int place = r->at++ + e->list->program.n; /* after the two stamps of each action */
    return e->ex.backend->streams->stamp(&e->ex, &r->stamp[place], NULL);
}

/* Until here the row of a phase has the FLOPs of the whole step up to its end. Subtracts those before it. */
void recorder_action(Recorder *r, int action, double flops_before)
{
    if (r == NULL || r->now == NULL || !r->learns) return;
    const Engine *e = r->e;
    RecordRow *row = &r->now->row[action];
    double before = flops_before;
    row->flops = e->ex.totals.flops - flops_before;
    row->bytes = bytes_in_use(e->mode);
    int first = r->at;
    while (first > e->list->program.n && r->now->row[first - 1].action == action) first--;
    for (int i = first; i < r->at; i++) {
        double upto = r->now->row[i].flops;
        r->now->row[i].flops = upto - before;
        before = upto;
    }
}

void recorder_end(Recorder *r)
{
    if (r == NULL || r->now == NULL) return;
    if (r->learns) {
        exec_pop(&r->e->ex);
        r->now->rows = r->at;
        r->now->list = r->e->list;
    }
    r->now = NULL;
}

bool recorder_traces(const Recorder *r) { return r != NULL && r->traces; }

/* ---- ops of a traced step ---- */

static Status stamp_op(Exec *ex, int level, const OpDesc *op, const void *args)
{
    Recorder *r = ex->front[level]->self;
    const Streams *streams = ex->backend->streams;
    if (r->now == NULL) return op_next(ex, level, op, args);
    if (r->n_ops == r->most_ops) {
        r->dropped++;
        return op_next(ex, level, op, args);
    }
    uint64_t *stamp = &r->op_stamp[2 * (size_t)r->n_ops];
    OpCost cost = op->cost(args);
    r->op[r->n_ops++] = (RecordOp){ .name = recorder_name(r, op->name),
                                    .layer = (int16_t)ex->layer,
                                    .lane = (int16_t)ex->lane,
                                    .step = ex->step,
                                    .flops = cost.flops,
                                    .bytes = cost.bytes };
    TRY(streams->stamp(ex, &stamp[0], NULL));
    TRY(op_next(ex, level, op, args));
    return streams->stamp(ex, &stamp[1], NULL);
}

/* Between steps only: the decorator must not change while a step is walked. */
void recorder_trace(Recorder *r, bool on)
{
    if (r->e == NULL || r->steps == 0 || r->traces == on) return;
    if (on)
        exec_push(&r->e->ex, &r->note);
    else
        exec_pop(&r->e->ex);
    r->traces = on;
}

/* ---- the ring ---- */

static uint64_t to_ns(double seconds) { return (uint64_t)(seconds * 1e9); }

/* Writes begin and end of every row, in ns since the begin of the step, and returns that begin. Times of
 * actions come from stamps, on the host from spans. A phase has only an end: it begins where the phase
 * before it in its action ended. */
static uint64_t fill_times(const Recorder *r, const RecorderMode *w, const EngineList *l,
                           RecordTime *out)
{
    const ActionSpan *span = l->transfers.span;
    const bool device = r->e->ex.backend->async;
    const size_t n = (size_t)l->program.n, rows = (size_t)w->rows;
    uint64_t first = UINT64_MAX;
    for (size_t i = 0; i < n; i++) {
        uint64_t begin = device ? r->stamp[2 * i] : to_ns(span[i].start_s);
        uint64_t end = device ? r->stamp[2 * i + 1] : to_ns(span[i].end_s);
        out[i] = (RecordTime){ (int64_t)begin, (int64_t)end };
        if (begin < first) first = begin;
        if (end < first) first = end;
    }
    for (size_t i = n; i < rows; i++) {
        bool opens = i == n || w->row[i - 1].action != w->row[i].action;
        out[i].begin = opens ? out[w->row[i].action].begin : out[i - 1].end;
        out[i].end = (int64_t)r->stamp[n + i];
    }
    for (size_t i = 0; i < rows; i++) {
        out[i].begin -= (int64_t)first;
        out[i].end -= (int64_t)first;
    }
    return first;
}

/* Adds the domains up: a row has one number for each layer and expert. */
static void fill_load(const Recorder *r, const int32_t *load, uint32_t *out)
{
    const ModelSpec *s = &r->e->spec;
    int64_t domains = r->e->shape.domains, E = s->experts;
    memset(out, 0, (size_t)r->loads * sizeof *out);
    for (int64_t i = 0; load != NULL && i < s->n_moe * domains * E; i++)
        out[i / (domains * E) * E + i % E] += (uint32_t)load[i];
}

/* Copies a traced step to the extra slot, where the ring does not overwrite it. */
static void keep_traced(Recorder *r, const RecorderSlot *from)
{
    RecorderSlot *kept = &r->slot[r->steps];
    kept->head = from->head;
    kept->load = (void *)(kept->times + from->head.rows);
    memcpy(kept->times, from->times, slot_bytes(r));
}

/* The clock of stamps has no known zero, so ahead_ns relates it to Unix time. */
void recorder_take(Recorder *r, const StepResult *result, double seconds, double tokens,
                   uint64_t memory_bytes)
{
    if (r->e == NULL || r->steps == 0) return;
    int w = result->retried && r->e->n_modes > 1;
    const EngineList *l = r->mode[w].list;
    if (l == NULL) return;
    RecorderSlot *slot = &r->slot[r->taken++ % r->steps];
    uint64_t first = fill_times(r, &r->mode[w], l, slot->times), last = first;
    for (int i = 0; i < l->program.n; i++) {
        if (first + (uint64_t)slot->times[i].end > last)
            last = first + (uint64_t)slot->times[i].end;
    }
    bool device = r->e->ex.backend->async;
    int64_t ahead = unix_now() - (int64_t)(device ? last : to_ns(clock_s()));
    if (!device || ahead < r->ahead_ns) r->ahead_ns = ahead;
    slot->load = (void *)(slot->times + r->mode[w].rows);
    slot->head = (RecordStep){ .step = r->e->step,
                               .unix_ns = (int64_t)first,
                               .seconds = seconds,
                               .loss = result->loss,
                               .tokens = tokens,
                               .memory_bytes = memory_bytes,
                               .flags = (result->retried ? RECORD_RAN_AGAIN : 0) |
                                        (result->finite ? 0 : RECORD_NOT_FINITE) |
                                        (r->traces ? RECORD_TRACED : 0),
                               .way = (uint32_t)w,
                               .rows = (uint32_t)r->mode[w].rows,
                               .loads = (uint32_t)r->loads };
    fill_load(r, result->load, slot->load);
    if (r->traces) keep_traced(r, slot);
}
