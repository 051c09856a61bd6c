/* recorder_files: the exports of the ring: a rank's SYRECORD file, trace.json, which is made from that
 * file, and the folder of one step of a pipeline. They run between steps. */
#include "engine/train/recorder.h"

#include "engine/base/file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const RecorderSlot *last_slot(const Recorder *r)
{
    return &r->slot[(r->taken - 1) % r->steps];
}

/* The list that the last step in the ring ran. */
static const Program *last_program(const Recorder *r)
{
    return &r->mode[last_slot(r)->head.way].list->program;
}

/* Sets the Unix times of ops from their stamps. */
static void set_op_times(Recorder *r)
{
    for (int i = 0; i < r->n_ops; i++) {
        const uint64_t *at = &r->op_stamp[2 * (size_t)i];
        r->op[i].start_ns = (int64_t)at[0] + r->ahead_ns;
        r->op[i].dur_ns = (int64_t)(at[1] - at[0]);
    }
}

/* ---- SYRECORD ---- */

/* The JSON of the META chunk: what a reader needs to name stages, devices and expert loads without
 * the run folder. */
Status recorder_meta(const Recorder *r, const RecorderMeta *m, Text *out)
{
    const ModelSpec *s = &r->e->spec;
    const Program *p = &r->e->mode->step[r->e->size].program;
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

/* A mode that never ran has no rows and no chunk. */
static Status write_rows(const Recorder *r, File *f)
{
    for (int i = 0; i < RECORD_WAYS; i++) {
        const RecorderMode *w = &r->mode[i];
        const uint32_t head[2] = { (uint32_t)i, (uint32_t)w->rows };
        if (w->list != NULL)
            TRY(record_chunk(f, "ROWS", head, sizeof head, w->row,
                             (size_t)w->rows * sizeof *w->row));
    }
    return OK;
}

/* Stamps become Unix times here and not in the ring: the estimate of ahead_ns gets better with
 * every step. */
static Status write_step(const Recorder *r, const RecorderSlot *s, File *f)
{
    RecordStep head = s->head;
    head.unix_ns += r->ahead_ns;
    return record_chunk(f, "STEP", &head, sizeof head, s->times,
                        head.rows * sizeof *s->times + head.loads * sizeof *s->load);
}

/* Steps go out from the oldest to the newest. The last traced step is written first if the ring has
 * lost it. */
static Status write_chunks(Recorder *r, File *f, const char *meta)
{
    int64_t first = r->taken - r->first > r->steps ? r->taken - r->steps : r->first;
    const RecorderSlot *traced = &r->slot[r->steps];
    set_op_times(r);
    TRY(record_head(f));
    TRY(record_chunk(f, "META", meta, strlen(meta), NULL, 0));
    TRY(write_rows(r, f));
    TRY(record_chunk(f, "NAME", r->names, r->names_bytes, NULL, 0));
    bool lost = traced->head.rows > 0 && traced->head.step < r->slot[first % r->steps].head.step;
    if (lost) TRY(write_step(r, traced, f));
    for (int64_t i = first; i < r->taken; i++) TRY(write_step(r, &r->slot[i % r->steps], f));
    if (r->n_ops == 0) return OK;
    return record_chunk(f, "OPS_", r->op, (size_t)r->n_ops * sizeof *r->op, NULL, 0);
}

static Status recording_path(char out[FILE_PATH_MAX], const char *folder, int rank)
{
    char name[40];
    (void)snprintf(name, sizeof name, "rank-%05d.syr", rank);
    return file_join(out, folder, name);
}

/* Written under a temporary name and renamed, so a reader sees the old file or the whole new
 * one. */
Status recorder_dump(Recorder *r, const char *folder, int rank, const char *meta)
{
    enum { BUFFER_BYTES = 1 << 18 };
    char path[FILE_PATH_MAX];
    File f = { 0 };
    char *buffer = NULL;
    if (r->e == NULL || r->steps == 0) return OK;
    TRY(file_make_folders(folder));
    TRY(recording_path(path, folder, rank));
    ArenaMark mark = arena_mark(&r->scratch);
    TRY(ARENA_NEW(&r->scratch, BUFFER_BYTES, &buffer));
    TRY(file_create_temp_buffered(&f, path, buffer, BUFFER_BYTES));
    Status s = write_chunks(r, &f, meta);
    if (s == OK) s = file_commit(&f);
    file_close(&f);
    arena_release(&r->scratch, mark);
    return s;
}

/* ---- trace.json ---- */

/* Appends the events of the newest step of the recording that was just written. */
static Status add_events(Recorder *r, const char *recording, int rank)
{
    char *data = NULL;
    size_t bytes = 0;
    Recorded newest;
    TRY(file_read_all(recording, &r->scratch, &data, &bytes));
    TRY(record_parse(recording, (const uint8_t *)data, bytes, &r->scratch, &newest));
    newest.step += newest.steps - 1, newest.steps = 1;
    if (r->trace.data == NULL) {
        TRY(arena_reserve(&r->trace_memory, "trace.json", (size_t)8 << 30));
        TRY(text_init(&r->trace, &r->trace_memory));
        r->trace_began_ns = newest.step->head.unix_ns;
        TRY(text_printf(&r->trace, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"));
    } else {
        TRY(text_printf(&r->trace, ",\n"));
    }
    return record_events(&newest, rank, r->trace_began_ns, &r->trace);
}

/* The events of all traced steps are kept as text. Each export writes the whole file with its
 * closing brackets, which are then taken off again. */
Status recorder_trace_json(Recorder *r, const char *folder, int rank, const char *path)
{
    char recording[FILE_PATH_MAX];
    if (r->e == NULL || r->taken == 0) return OK;
    ArenaMark mark = arena_mark(&r->scratch);
    TRY(recording_path(recording, folder, rank));
    TRY(add_events(r, recording, rank));
    arena_release(&r->scratch, mark);
    size_t events = r->trace.used;
    TRY(text_json(&r->trace, "\n],\"otherData\":{\"dropped_events\":%lld}}\n",
                  (long long)r->dropped));
    Status status = file_write_whole(path, r->trace.data, r->trace.used);
    r->trace.used = events; /* the next step's events go on from here */
    return status;
}

/* ---- a step of a pipeline ---- */

typedef enum List { FORWARDS, BACKWARDS, WEIGHTS, OTHERS, EXCHANGES, SENDS, RECEIVES } List;

/* The lists that pp_vis reads: all but receives. `passes`: with the micro-batch and chunk of each action. */
static const struct {
    const char *name;
    bool passes;
} lists[] = {
    [FORWARDS] = { "fwd", true },        [BACKWARDS] = { "bwd", true },
    [WEIGHTS] = { "wgrad", true },       [OTHERS] = { "other", false },
    [EXCHANGES] = { "exchange", false }, [SENDS] = { "send", false },
};

/* An exchange is anything else on the comm lane: passes of MoE layers, gathers, reductions. */
static List list_of_action(const Action *a)
{
    if (action_is_transfer(a->kind)) return action_is_send(a->kind) ? SENDS : RECEIVES;
    if (a->lane == LANE_COMM) return EXCHANGES;
    switch (a->kind) {
    case ACTION_FORWARD: return FORWARDS;
    case ACTION_BACKWARD:
    case ACTION_BACKWARD_INPUT: return BACKWARDS;
    case ACTION_BACKWARD_WEIGHT: return WEIGHTS;
    default: return OTHERS;
    }
}

enum { START, END, MICRO, CHUNK, VALUES };

static Status add_list(Text *out, const Recorder *r, List which, int value)
{
    static const char *const names[VALUES] = { "start", "end", "minibatch", "chunk" };
    const Program *p = last_program(r);
    const RecordTime *t = last_slot(r)->times;
    char key[32];
    (void)snprintf(key, sizeof key, "%s_%s", lists[which].name, names[value]);
    TRY(text_json(out, ",%s:[", key));
    for (int i = 0, n = 0; i < p->n; i++) {
        const Action *a = &p->at[i];
        const double values[VALUES] = { (double)t[i].begin / 1e6, (double)t[i].end / 1e6, a->micro,
                                        a->chunk };
        if (list_of_action(a) == which) TRY(text_json(out, n++ == 0 ? "%g" : ",%g", values[value]));
    }
    return text_json(out, "]");
}

/* The file of one rank: one step, whose number is the key. Times are ms from the begin of the
 * step. */
static Status stage_text(const Recorder *r, Text *out)
{
    const RecorderSlot *s = last_slot(r);
    TRY(text_json(out, "{\"%lld\":{\"total\":%g", (long long)s->head.step,
                  (double)s->times[last_program(r)->n - 1].end / 1e6));
    for (int i = FORWARDS; i <= SENDS; i++) {
        for (int v = 0; v < (lists[i].passes ? VALUES : MICRO); v++)
            TRY(add_list(out, r, (List)i, v));
    }
    return text_json(out, "}}\n");
}

static Status config_text(const Recorder *r, Text *out)
{
    const Program *p = last_program(r);
    char title[64];
    (void)snprintf(title, sizeof title, "%s, step %" PRId64, r->e->config->mesh_schedule,
                   last_slot(r)->head.step);
    return text_json(out, "{\"title\":%s,\"pp_size\":%d,\"vp_size\":%d,\"num_mbs\":%d}\n", title,
                     p->stages, p->chunks, p->micros);
}

static Status write_json(Recorder *r, const char *folder, const char *name,
                         Status (*fill)(const Recorder *r, Text *out))
{
    Text text = { 0 };
    char path[FILE_PATH_MAX];
    ArenaMark mark = arena_mark(&r->scratch);
    TRY(file_join(path, folder, name));
    TRY(text_init(&text, &r->scratch));
    TRY(fill(r, &text));
    TRY(file_write_whole(path, text.data, text.used));
    arena_release(&r->scratch, mark);
    return OK;
}

/* One rank of each stage writes: the first replica and the first of those inside. Without a
 * pipeline and without lanes of its own there is nothing to draw. */
Status recorder_pipeline(Recorder *r, const char *folder)
{
    if (r->e == NULL || r->taken == 0) return OK;
    const Mesh *m = r->e->shape.mesh;
    char name[32];
    if (m == NULL || m->at.replica > 0 || m->at.inner > 0) return OK;
    if (m->shape.pp == 1 && !r->e->arenas.lanes) return OK;
    (void)snprintf(name, sizeof name, "pp_rank_%d.json", last_program(r)->rank);
    TRY(file_make_folders(folder));
    TRY(write_json(r, folder, name, stage_text));
    return last_program(r)->rank > 0 ? OK : write_json(r, folder, "config.json", config_text);
}
