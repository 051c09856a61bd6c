/* files: lines of JSON. */
#include "supervise/files.h"

#include "engine/base/clock.h"
#include "engine/base/json.h"
#include "engine/checkpoint/checkpoint_folder.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

/* ---- the heartbeat ---- */

static const RankBeat *furthest(const Beats *b)
{
    const RankBeat *most = NULL;
    for (int i = 0; i < b->n; i++)
        if (most == NULL || b->rank[i].step > most->step) most = &b->rank[i];
    return most;
}

int64_t beats_step(const Beats *b) { return b->n > 0 ? furthest(b)->step : 0; }
int64_t beats_first(const Beats *b) { return b->n > 0 ? furthest(b)->first : 0; }
double beats_busy_s(const Beats *b) { return b->n > 0 ? furthest(b)->busy_s : 0; }

static Status folder_of(const char *run_dir, char out[FILE_PATH_MAX])
{
    return file_join(out, run_dir, HEARTBEAT_FOLDER);
}

Status beats_begin(const char *run_dir, const char *token)
{
    char folder[FILE_PATH_MAX], path[FILE_PATH_MAX];
    TRY(folder_of(run_dir, folder));
    TRY(file_remove_tree(folder));
    TRY(file_make_folders(folder));
    TRY(file_join(path, folder, HEARTBEAT_TOKEN));
    return file_write_whole(path, token, strlen(token));
}

static void copy_text(const Json *line, const char *name, char *out, size_t bytes)
{
    const char *text = json_string(json_get(line, name));
    (void)snprintf(out, bytes, "%s", text == NULL ? "" : text);
}

static double number_of(const Json *line, const char *name)
{
    const Json *v = json_get(line, name);
    return json_is(v, JSON_NUMBER) ? v->number : 0;
}

/* A whole number from 0 to `most`, 0 where there is none. False: it is something else. */
static bool whole_of(const Json *line, const char *name, double most, int64_t *out)
{
    const double v = number_of(line, name);
    const bool good = v >= 0 && v <= most && v == nearbyint(v);
    if (good) *out = (int64_t)v;
    return good;
}

/* False: the line is being written. */
static bool read_line(const Json *line, RankBeat *out)
{
    static const double STEP_MOST = 9007199254740992.0; /* a double holds all below */
    int64_t rank = 0;
    const char *phase = json_string(json_get(line, "phase"));
    out->phase = HEARTBEAT_PHASES;
    for (int i = 0; i < HEARTBEAT_PHASES && phase != NULL; i++)
        if (strcmp(phase, heartbeat_phase_names[i]) == 0) out->phase = (HeartbeatPhase)i;
    if (!whole_of(line, "rank", INT32_MAX, &rank) ||
        !whole_of(line, "step", STEP_MOST, &out->step) ||
        !whole_of(line, "first", STEP_MOST, &out->first))
        return false;
    out->rank = (int)rank;
    out->signalled = number_of(line, "signalled") != 0;
    out->busy_s = number_of(line, "busy_s");
    copy_text(line, "kind", out->kind, sizeof out->kind);
    copy_text(line, "why", out->why, sizeof out->why);
    return out->phase != HEARTBEAT_PHASES;
}

static Status read_file(const char *path, const char host[SUPERVISE_HOST_BYTES], Arena *a,
                        int64_t *room, Beats *out)
{
    FileMap map = { 0 };
    TRY(file_map(path, &map));
    const char *text = (const char *)map.data;
    Status s = OK;
    out->sum = XXH3_64bits_withSeed(text, map.bytes, out->sum);
    for (size_t at = 0; at + HEARTBEAT_BYTES <= map.bytes && s == OK; at += HEARTBEAT_BYTES) {
        Json *line = NULL;
        size_t bad = 0;
        s = ARENA_GROW(a, out->n + 1, room, &out->rank);
        if (s == OK) s = json_parse(text + at, HEARTBEAT_BYTES, a, &line, &bad);
        if (s != OK || line == NULL) continue;
        RankBeat *r = &out->rank[out->n];
        *r = (RankBeat){ 0 };
        memcpy(r->host, host, sizeof r->host);
        out->n += read_line(line, r);
    }
    file_unmap(&map);
    return s;
}

static int by_rank(const void *a, const void *b)
{
    const RankBeat *x = a, *y = b;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

Status beats_read(const char *run_dir, Arena *a, Beats *out)
{
    char folder[FILE_PATH_MAX], path[FILE_PATH_MAX], host[SUPERVISE_HOST_BYTES];
    const char *const *names = NULL;
    int n = 0;
    int64_t room = 0;
    *out = (Beats){ 0 };
    TRY(folder_of(run_dir, folder));
    TRY(file_list(folder, a, &names, &n));
    for (int i = 0; i < n; i++) {
        if (!text_ends(names[i], HEARTBEAT_SUFFIX)) continue;
        const size_t bytes = strlen(names[i]) - strlen(HEARTBEAT_SUFFIX);
        (void)snprintf(host, sizeof host, "%.*s",
                       (int)(bytes < sizeof host ? bytes : sizeof host - 1), names[i]);
        TRY(file_join(path, folder, names[i]));
        TRY(read_file(path, host, a, &room, out));
    }
    if (out->n > 0) qsort(out->rank, (size_t)out->n, sizeof *out->rank, by_rank);
    return OK;
}

Status newest_checkpoint(const char *run_dir, Arena *a, int64_t *out)
{
    char folder[FILE_PATH_MAX];
    int64_t *steps = NULL;
    int n = 0;
    ArenaMark mark = arena_mark(a);
    TRY(file_join(folder, run_dir, "checkpoints"));
    TRY(ARENA_NEW(a, CHECKPOINT_STEPS_MAX, &steps));
    TRY(folder_steps(folder, a, steps, &n));
    *out = n > 0 ? steps[n - 1] : 0;
    arena_release(a, mark);
    return OK;
}

/* ---- the journal ---- */

static Status append_line(const char *run_dir, const Text *line)
{
    char path[FILE_PATH_MAX];
    File f = { 0 };
    TRY(file_join(path, run_dir, "journal.jsonl"));
    TRY(file_open_append(&f, path, NULL, 0));
    Status s = file_write(&f, line->data, line->used);
    if (s == OK) s = file_sync(&f);
    file_close(&f);
    return s;
}

Status journal_start(const char *run_dir, const JournalStart *j, Arena *a)
{
    Text t;
    TRY(text_init(&t, a));
    TRY(text_json(&t,
                  "{\"kind\":\"start\",\"time\":%.3f,\"start\":%" PRId64 ",\"step\":%" PRId64
                  ",\"ranks\":%d,\"mesh\":%s,\"command\":%s}\n",
                  clock_date_s(), j->number, j->step, j->ranks, j->mesh, j->command));
    return append_line(run_dir, &t);
}

Status journal_end(const char *run_dir, const Incident *i, const Verdict *v, const char *left_out,
                   double goodput, Arena *a)
{
    Text t;
    const int signal = incident_signal(i->code);
    const int64_t lost = i->reached > i->saved ? i->reached - i->saved : 0;
    TRY(text_init(&t, a));
    TRY(text_json(&t, "{\"kind\":\"end\",\"time\":%.3f,\"end\":%s,%s:%d", clock_date_s(),
                  incident_names[i->end], signal > 0 ? "signal" : "code",
                  signal > 0 ? signal : i->code));
    TRY(text_json(&t,
                  ",\"first\":%" PRId64 ",\"reached\":%" PRId64 ",\"saved\":%" PRId64
                  ",\"lost\":%" PRId64 ",\"error\":%s,\"host\":%s,\"left_out\":%s",
                  i->first, i->reached, i->saved, lost, i->sentence, i->host, left_out));
    TRY(text_json(&t, ",\"then\":%s,\"pause_s\":%g,\"goodput\":%.4f}\n",
                  v->restart ? "restart" : v->why, v->pause_s, goodput));
    return append_line(run_dir, &t);
}
