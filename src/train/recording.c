/* recording: writes the times of a step's actions to a folder. */
#include "train/recording.h"

#include "base/file.h"
#include "base/text.h"

#include <stdio.h>

typedef enum List { FORWARDS, BACKWARDS, WEIGHTS, OTHERS, EXCHANGES, SENDS, RECEIVES } List;

/* The lists that are written; `whose`: with micro-batches and chunks. */
static const struct {
    const char *name;
    bool whose;
} lists[] = {
    [FORWARDS] = { "fwd", true },        [BACKWARDS] = { "bwd", true },
    [WEIGHTS] = { "wgrad", true },       [OTHERS] = { "other", false },
    [EXCHANGES] = { "exchange", false }, [SENDS] = { "send", false },
};

static List list_of(const Action *a)
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

static Status write_list(Text *out, const Engine *e, List which, int value)
{
    static const char *const names[VALUES] = { "start", "end", "minibatch", "chunk" };
    const ActionSpan *span = e->mode->step.transfers.span;
    char key[32];
    (void)snprintf(key, sizeof key, "%s_%s", lists[which].name, names[value]);
    TRY(text_json(out, ",%s:[", key));
    for (int i = 0, n = 0; i < e->mode->step.program.n; i++) {
        const Action *a = &e->mode->step.program.at[i];
        const double values[VALUES] = { 1e3 * (span[i].start_s - span[0].start_s),
                                        1e3 * (span[i].end_s - span[0].start_s), a->micro,
                                        a->chunk };
        if (list_of(a) == which) TRY(text_json(out, n++ == 0 ? "%g" : ",%g", values[value]));
    }
    return text_json(out, "]");
}

static Status stage_text(const Engine *e, Text *out)
{
    const ActionSpan *span = e->mode->step.transfers.span,
                     *last = &span[e->mode->step.program.n - 1];
    TRY(text_json(out, "{\"%lld\":{\"total\":%g", (long long)e->step,
                  1e3 * (last->end_s - span[0].start_s)));
    for (int i = FORWARDS; i <= SENDS; i++) {
        for (int v = 0; v < (lists[i].whose ? VALUES : MICRO); v++) {
            TRY(write_list(out, e, (List)i, v));
        }
    }
    return text_json(out, "}}\n");
}

static Status config_text(const Engine *e, Text *out)
{
    const Program *p = &e->mode->step.program;
    char title[64];
    (void)snprintf(title, sizeof title, "%s, step %lld", e->config->mesh_schedule,
                   (long long)e->step);
    return text_json(out, "{\"title\":%s,\"pp_size\":%d,\"vp_size\":%d,\"num_mbs\":%d}\n", title,
                     p->stages, p->chunks, p->micros);
}

static Status write_file(const Engine *e, const char *folder, const char *name,
                         Status (*fill)(const Engine *e, Text *out), Arena *scratch)
{
    Text text = { 0 };
    char path[FILE_PATH_MAX];
    ArenaMark mark = arena_mark(scratch);
    TRY(file_join(path, folder, name));
    TRY(text_init(&text, scratch));
    TRY(fill(e, &text));
    TRY(file_write_whole(path, text.data, text.used));
    arena_release(scratch, mark);
    return OK;
}

Status recording_write(const Engine *e, const char *folder, Arena *scratch)
{
    const Mesh *m = e->shape.mesh;
    int rank = e->mode->step.program.rank;
    char name[32];
    if (m == NULL || m->at.replica > 0 || m->at.inner > 0) return OK;
    if (m->shape.pp == 1 && !e->lanes) return OK;
    (void)snprintf(name, sizeof name, "pp_rank_%d.json", rank);
    TRY(file_make_folders(folder));
    TRY(write_file(e, folder, name, stage_text, scratch));
    if (rank > 0) return OK;
    return write_file(e, folder, "config.json", config_text, scratch);
}
