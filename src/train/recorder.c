/* recorder: see recorder.h. */
#include "train/recorder.h"

#include "base/clock.h"
#include "train/agree.h"
#include "train/engine_memory.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NAMES_BYTES = 1 << 18 };

/* ---- set-up ---- */

/* An action's passes run each of its phases at most three times: again, inputs, weights. */
static int rows_most(const Program *p)
{
    int64_t rows = p->n;
    for (int i = 0; i < p->n; i++) {
        const Action *a = &p->at[i];
        if (action_is_pass(a->kind)) rows += 3 * (int64_t)(a->end - a->first);
    }
    return rows < INT_MAX / 4 ? (int)rows : INT_MAX / 4;
}

static Status make_stamps(Recorder *r)
{
    void *block = NULL;
    size_t bytes = arena_rounded(2 * (size_t)r->room * sizeof *r->stamp);
    TRY(r->e->ex.backend->alloc(&r->e->ex, MEM_PINNED, bytes, &block));
    arena_over(&r->stamps, "stamps", MEM_PINNED, block, bytes);
    return ARENA_ZEROED(&r->stamps, 2 * (int64_t)r->room, &r->stamp);
}

static int64_t unix_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

Status recorder_open(Recorder *r, Engine *e, Comm *world, int steps)
{
    *r = (Recorder){ .e = e, .steps = steps, .began_us = unix_now() / 1000, .ahead_ns = INT64_MAX };
    if (steps == 0) return OK;
    TRY(agree_first(world, &r->began_us, sizeof r->began_us));
    for (int i = 0; i < e->n_modes; i++) {
        int most = rows_most(&e->modes[i].step.program);
        if (most > r->room) r->room = most;
    }
    r->loads = (int)(e->spec.n_moe * e->spec.experts);
    size_t bytes = (size_t)steps * (2 * (size_t)r->room * sizeof *r->times + sizeof *r->step +
                                    (size_t)r->loads * sizeof *r->load) +
                   RECORD_WAYS * (size_t)r->room * sizeof(RecordRow) + NAMES_BYTES +
                   (size_t)16 * ARENA_ALIGN;
    TRY(arena_init(&r->memory, "recording", MEM_HOST, bytes));
    TRY(arena_init(&r->scratch, "a recording's file", MEM_HOST, 2 * bytes + ((size_t)1 << 26)));
    for (int i = 0; i < RECORD_WAYS; i++) TRY(ARENA_ZEROED(&r->memory, r->room, &r->way[i].row));
    TRY(ARENA_NEW(&r->memory, 2 * (int64_t)steps * r->room, &r->times));
    TRY(ARENA_NEW(&r->memory, steps, &r->step));
    TRY(ARENA_NEW(&r->memory, NAMES_BYTES, &r->names));
    TRY(ARENA_NEW(&r->memory, (int64_t)steps * r->loads, &r->load));
    TRY(make_stamps(r));
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
    r->e->recorder = NULL;
    *r = (Recorder){ 0 };
}

/* ---- while a step is walked ---- */

static Status add_cost(Exec *ex, int level, const OpDesc *op, const void *args)
{
    ex->totals.flops += op->cost(args).flops;
    return op_next(ex, level, op, args);
}

static const Decorator counts_flops = { .run = add_cost };

/* Names are texts one behind the other; the place of this one, by texts. */
static uint32_t name_of(Recorder *r, const char *name)
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

static uint64_t bytes_in_use(const Engine *e)
{
    const EngineMode *w = e->mode;
    uint64_t sum = 0;
    for (int i = 0; i < ENGINE_ARENAS; i++) sum += w->arena[i].used_bytes;
    for (int i = 0; i < w->n_slots; i++) sum += w->slots[i].arena.used_bytes;
    for (int i = 0; i < RINGS; i++) sum += w->ring[i].used_bytes;
    return sum;
}

static void learn_actions(Recorder *r)
{
    const Program *p = &r->e->list->program;
    for (int i = 0; i < p->n; i++) {
        const Action *a = &p->at[i];
        r->now->row[i] =
            (RecordRow){ .name = name_of(r, action_name(a->kind)),
                         .action = i,
                         .micro = a->micro,
                         .lane = (int16_t)a->lane,
                         .layer = (int16_t)(a->layer < 0 ? -1 : r->e->spec.layers[a->layer].block),
                         .chunk = a->chunk,
                         .transfer = action_is_transfer(a->kind) };
    }
}

void recorder_begin(Engine *e)
{
    Recorder *r = e->recorder;
    const Program *p = &e->list->program;
    if (r == NULL) return;
    r->now = p->evaluates ? NULL : &r->way[e->mode - e->modes];
    e->list->transfers.stamp = r->now != NULL ? r->stamp : NULL;
    if (r->now == NULL) return;
    r->at = p->n;
    r->learns = !r->now->known;
    if (!r->learns) return;
    learn_actions(r);
    exec_push(&e->ex, &counts_flops);
}

Status recorder_phase(Engine *e, const LayerRun *run, const char *name, RecordPart part)
{
    Recorder *r = e->recorder;
    if (r == NULL || r->now == NULL || r->at >= r->room) return OK;
    if (r->learns) {
        char text[96];
        (void)snprintf(text, sizeof text, "%s %s", layer_desc(run->layer->kind)->name, name);
        r->now->row[r->at] = (RecordRow){ .name = name_of(r, text),
                                          .action = e->at,
                                          .micro = e->list->program.at[e->at].micro,
                                          .lane = (int16_t)e->ex.lane,
                                          .layer = (int16_t)e->ex.layer,
                                          .chunk = e->list->program.at[e->at].chunk,
                                          .part = (uint8_t)part,
                                          .bytes = bytes_in_use(e),
                                          .flops = e->ex.totals.flops };
    }
    int place = r->at++ + e->list->program.n; /* behind two of each action */
    return e->ex.backend->streams->stamp(&e->ex, &r->stamp[place], NULL);
}

/* Until here a phase's row has what was counted up to its end. */
void recorder_action(Engine *e, int action, double flops_before)
{
    Recorder *r = e->recorder;
    if (r == NULL || r->now == NULL || !r->learns) return;
    RecordRow *row = &r->now->row[action];
    double before = flops_before;
    row->flops = e->ex.totals.flops - flops_before;
    row->bytes = bytes_in_use(e);
    int first = r->at;
    while (first > e->list->program.n && r->now->row[first - 1].action == action) first--;
    for (int i = first; i < r->at; i++) {
        double upto = r->now->row[i].flops;
        r->now->row[i].flops = upto - before;
        before = upto;
    }
}

void recorder_end(Engine *e)
{
    Recorder *r = e->recorder;
    if (r == NULL || r->now == NULL) return;
    if (r->learns) {
        exec_pop(&e->ex);
        r->now->rows = r->at;
        r->now->known = true;
    }
    r->now = NULL;
}

/* ---- the ring ---- */

static uint64_t ns(double seconds) { return (uint64_t)(seconds * 1e9); }

/* Begin and end of every row: actions by their stamps, or on the host by their spans; a phase begins
 * where the one before it in its action ended. */
static void take_times(const Recorder *r, const RecorderWay *w, const EngineList *l, uint64_t *out)
{
    const ActionSpan *span = l->transfers.span;
    const bool device = r->e->ex.backend->async;
    const size_t n = (size_t)l->program.n, rows = (size_t)w->rows;
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = device ? r->stamp[2 * i] : ns(span[i].start_s);
        out[2 * i + 1] = device ? r->stamp[2 * i + 1] : ns(span[i].end_s);
    }
    for (size_t i = n; i < rows; i++) {
        bool first = i == n || w->row[i - 1].action != w->row[i].action;
        out[2 * i] = first ? out[2 * (size_t)w->row[i].action] : out[2 * i - 1];
        out[2 * i + 1] = r->stamp[n + i];
    }
}

static void take_load(const Recorder *r, const int32_t *load, uint32_t *out)
{
    const ModelSpec *s = &r->e->spec;
    int64_t domains = r->e->shape.domains, E = s->experts;
    memset(out, 0, (size_t)r->loads * sizeof *out);
    for (int64_t i = 0; load != NULL && i < s->n_moe * domains * E; i++)
        out[i / (domains * E) * E + i % E] += (uint32_t)load[i];
}

void recorder_take(Recorder *r, const StepResult *result, double seconds, double tokens,
                   uint64_t memory_bytes, bool traced)
{
    if (r->e == NULL || r->steps == 0) return;
    int w = result->retried && r->e->n_modes > 1;
    const EngineList *l = &r->e->modes[w].step;
    if (!r->way[w].known) return;
    int64_t slot = r->taken++ % r->steps;
    uint64_t *times = &r->times[2 * slot * r->room], first = UINT64_MAX, last = 0;
    take_times(r, &r->way[w], l, times);
    for (int i = 0; i < 2 * l->program.n; i++) {
        if (times[i] < first) first = times[i];
        if (times[i] > last) last = times[i];
    }
    bool device = r->e->ex.backend->async;
    int64_t ahead = unix_now() - (int64_t)(device ? last : ns(clock_s()));
    if (!device || ahead < r->ahead_ns) r->ahead_ns = ahead;
    r->step[slot] = (RecordStep){ .step = r->e->step,
                                  .unix_ns = (int64_t)first,
                                  .seconds = seconds,
                                  .loss = result->loss,
                                  .tokens = tokens,
                                  .memory_bytes = memory_bytes,
                                  .flags = (result->retried ? RECORD_RAN_AGAIN : 0) |
                                           (result->finite ? 0 : RECORD_NOT_FINITE) |
                                           (traced ? RECORD_TRACED : 0),
                                  .way = (uint32_t)w,
                                  .rows = (uint32_t)r->way[w].rows,
                                  .loads = (uint32_t)r->loads };
    take_load(r, result->load, &r->load[slot * r->loads]);
}

/* ---- the file ---- */

Status recorder_meta(const Recorder *r, const RecorderMeta *m, Text *out)
{
    const ModelSpec *s = &r->e->spec;
    const Program *p = &r->e->mode->step.program;
    bool cpu = m->device == NULL || m->device[0] == '\0';
    TRY(text_json(out, "{\"model\":%s,\"rank\":%d,\"ranks\":%d,\"device\":%s",
                  r->e->config->model_name, m->rank, m->ranks, cpu ? "CPU" : m->device));
    TRY(text_json(out, ",\"stage\":%d,\"stages\":%d,\"schedule\":%s,\"micro_batches\":%d", p->rank,
                  p->stages, r->e->config->mesh_schedule, p->micros));
    TRY(text_json(out, ",\"flops\":%g,\"sheet_flops\":%g,\"roof_flops\":%g,\"seed\":%lld", m->flops,
                  m->sheet_flops, m->roof_flops, (long long)r->e->config->run_seed));
    TRY(text_json(out, ",\"experts\":%lld,\"began_us\":%lld,\"ran\":%lld,\"moe_layers\":[",
                  (long long)s->experts, (long long)r->began_us, (long long)r->taken));
    for (int i = 0, n = 0; i < s->n_layers; i++) {
        if (s->layers[i].load < 0) continue;
        TRY(text_json(out, n++ == 0 ? "%d" : ",%d", (int)s->layers[i].block));
    }
    return text_json(out, "]}");
}

static Status put_rows(const Recorder *r, File *f, Arena *a)
{
    for (int i = 0; i < RECORD_WAYS; i++) {
        struct {
            uint32_t way, rows;
        } head = { (uint32_t)i, (uint32_t)r->way[i].rows };
        size_t bytes = (size_t)r->way[i].rows * sizeof(RecordRow);
        char *out = NULL;
        if (!r->way[i].known) continue;
        ArenaMark mark = arena_mark(a);
        TRY(ARENA_NEW(a, sizeof head + bytes, &out));
        memcpy(out, &head, sizeof head);
        memcpy(out + sizeof head, r->way[i].row, bytes);
        TRY(record_chunk(f, "ROWS", out, sizeof head + bytes));
        arena_release(a, mark);
    }
    return OK;
}

static Status put_step(const Recorder *r, int64_t slot, File *f, Arena *a)
{
    RecordStep head = r->step[slot];
    const uint64_t *times = &r->times[2 * slot * r->room];
    size_t n = 2 * (size_t)head.rows, load = (size_t)head.loads * sizeof *r->load;
    int64_t first = head.unix_ns, *at = NULL;
    char *out = NULL;
    head.unix_ns += r->ahead_ns;
    ArenaMark mark = arena_mark(a);
    TRY(ARENA_NEW(a, sizeof head + n * sizeof *at + load, &out));
    memcpy(out, &head, sizeof head);
    at = (void *)(out + sizeof head);
    for (size_t i = 0; i < n; i++) at[i] = (int64_t)times[i] - first;
    memcpy(at + n, &r->load[slot * r->loads], load);
    TRY(record_chunk(f, "STEP", out, sizeof head + n * sizeof *at + load));
    arena_release(a, mark);
    return OK;
}

/* Events of a traced step are by the host's clock. */
static Status put_ops(Recorder *r, const Trace *ops, File *f, Arena *a)
{
    RecordOp *out = NULL;
    int64_t n = 0, ahead = unix_now() - (int64_t)ns(clock_s());
    if (ops == NULL || ops->used == 0) return OK;
    ArenaMark mark = arena_mark(a);
    TRY(ARENA_NEW(a, ops->used, &out));
    for (int64_t i = 0; i < ops->used; i++) {
        const TraceEvent *e = &ops->events[i];
        if (e->depth < 2) continue; /* actions and phases have rows */
        out[n++] = (RecordOp){ .name = name_of(r, e->name),
                               .layer = (int16_t)e->layer,
                               .lane = (int16_t)e->lane,
                               .step = e->step,
                               .start_ns = (int64_t)ns(e->start_s) + ahead,
                               .dur_ns = (int64_t)ns(e->duration_s),
                               .flops = e->flops,
                               .bytes = e->bytes };
    }
    TRY(record_chunk(f, "OPS_", out, (size_t)n * sizeof *out));
    arena_release(a, mark);
    return OK;
}

/* Names come last, when all are known. */
static Status put_all(Recorder *r, File *f, const char *meta, const Trace *ops, Arena *a)
{
    TRY(record_head(f));
    TRY(record_chunk(f, "META", meta, strlen(meta)));
    TRY(put_rows(r, f, a));
    int64_t first = r->taken > r->steps ? r->taken - r->steps : 0;
    TRY(record_chunk(f, "NAME", r->names, r->names_bytes));
    for (int64_t i = first; i < r->taken; i++) TRY(put_step(r, i % r->steps, f, a));
    if (ops == NULL || ops->used == 0) return OK;
    TRY(put_ops(r, ops, f, a));
    return record_chunk(f, "NAME", r->names, r->names_bytes);
}

Status recorder_dump(Recorder *r, const char *folder, int rank, const char *meta, const Trace *ops)
{
    enum { BUFFER_BYTES = 1 << 18 };
    char path[FILE_PATH_MAX], name[40];
    File f = { 0 };
    char *buffer = NULL;
    if (r->e == NULL || r->steps == 0) return OK;
    (void)snprintf(name, sizeof name, "rank-%05d.syr", rank);
    TRY(file_make_folders(folder));
    TRY(file_join(path, folder, name));
    ArenaMark mark = arena_mark(&r->scratch);
    TRY(ARENA_NEW(&r->scratch, BUFFER_BYTES, &buffer));
    TRY(file_create_temp_buffered(&f, path, buffer, BUFFER_BYTES));
    Status s = put_all(r, &f, meta, ops, &r->scratch);
    if (s == OK) s = file_commit(&f);
    file_close(&f);
    arena_release(&r->scratch, mark);
    return s;
}
