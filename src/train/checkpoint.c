#include "train/checkpoint.h"

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "op/choices.h"
#include "train/manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BUFFER_BYTES = 1 << 20, ENTRY_ALIGN = 64, STEPS_MAX = 4096 };

static const ParamBuffer saved[] = { BUF_MAIN, BUF_MOMENT1, BUF_MOMENT2, BUF_STATE };
static const char shard_name[] = "rank-00000.bin";
static const char TEMP[] = ".tmp";

/* Folders. */

static Status step_folder(char out[FILE_PATH_MAX], const char *folder, int64_t step,
                          const char *suffix)
{
    char name[64];
    (void)snprintf(name, sizeof name, "step-%010" PRId64 "%s", step, suffix);
    return file_join(out, folder, name);
}

/* What a killed run was writing. */
static Status remove_unfinished(const char *folder, Arena *a)
{
    const char *const *names = NULL;
    int n = 0;
    TRY(file_list(folder, a, &names, &n));
    for (int i = 0; i < n; i++) {
        char path[FILE_PATH_MAX];
        if (!text_starts(names[i], "step-") || !text_ends(names[i], TEMP)) continue;
        TRY(file_join(path, folder, names[i]));
        TRY(file_remove_tree(path));
    }
    return OK;
}

/* Steps of all finished checkpoints in a folder, rising. A missing folder has none. */
static Status list_steps(const char *folder, Arena *a, int64_t *steps, int *n)
{
    *n = 0;
    if (!file_exists(folder)) return OK;
    const char *const *names = NULL;
    int n_names = 0;
    TRY(file_list(folder, a, &names, &n_names));
    for (int i = 0; i < n_names; i++) {
        char *end = NULL;
        if (strncmp(names[i], "step-", 5) != 0) continue;
        int64_t step = strtoll(names[i] + 5, &end, 10);
        if (*end != '\0' || end == names[i] + 5) continue; /* step-N.tmp: never finished */
        if (*n == STEPS_MAX) return FAIL(ERR_IO, "%s: more than %d checkpoints", folder, STEPS_MAX);
        steps[(*n)++] = step; /* names have a fixed width, so their order is the steps' */
    }
    return OK;
}

/* Saving. */

Status checkpointer_open(Checkpointer *k, const Config *c, Arena *a)
{
    *k = (Checkpointer){ .keep = (int)c->checkpoint_keep };
    char folder[FILE_PATH_MAX];
    TRY(file_join(folder, c->run_dir, "checkpoints"));
    TRY(file_make_folders(folder));
    TRY(arena_text(a, folder, strlen(folder), &k->folder));

    TRY(ARENA_NEW(a, STEPS_MAX + 1, &k->steps));
    TRY(ARENA_NEW(a, BUFFER_BYTES, &k->buffer));
    Text yaml = { 0 };
    TRY(text_init(&yaml, a));
    TRY(config_print(c, &yaml));
    k->config = yaml.data;
    TRY(arena_init(&k->arena, "checkpoint", MEM_HOST, (size_t)64 << 20));
    ArenaMark mark = arena_mark(&k->arena);
    TRY(remove_unfinished(k->folder, &k->arena));
    TRY(list_steps(k->folder, &k->arena, k->steps, &k->n_steps));
    arena_release(&k->arena, mark);
    return OK;
}

void checkpointer_close(Checkpointer *k)
{
    arena_free(&k->arena);
    *k = (Checkpointer){ 0 };
}

static Status pad_to(File *f, uint64_t align)
{
    static const char zeros[ENTRY_ALIGN];
    uint64_t over = f->written_bytes % align;
    return over == 0 ? OK : file_write(f, zeros, align - over);
}

static Status save_param(Engine *e, const Param *p, ParamBuffer b, File *f, Manifest *m)
{
    TRY(pad_to(f, ENTRY_ALIGN));
    Tensor t = param_view(p, &e->memory, b);
    uint64_t offset = f->written_bytes;
    size_t bytes = tensor_bytes(&t), most = engine_piece_bytes(e);
    for (size_t at = 0; at < bytes; at += most) {
        size_t n = bytes - at < most ? bytes - at : most;
        const void *piece = NULL;
        TRY(engine_get(e, (const char *)t.data + at, n, &piece));
        manifest_elements(m, piece, n);
        TRY(file_write(f, piece, n));
        if (n < most) break;
    }
    return manifest_entry(m, p, b, offset);
}

static Status save_shard(Checkpointer *k, Engine *e, const char *folder, Manifest *m)
{
    char path[FILE_PATH_MAX];
    TRY(file_join(path, folder, shard_name));
    File f = { 0 };
    Status s = file_create_temp_buffered(&f, path, k->buffer, BUFFER_BYTES);
    for (size_t b = 0; b < sizeof saved / sizeof *saved; b++) {
        for (int i = 0; i < e->params.n && s == OK; i++) {
            const Param *p = &e->params.at[i];
            if (p->first[saved[b]] < 0) continue;
            s = save_param(e, p, saved[b], &f, m);
        }
    }
    if (s == OK) s = file_commit(&f);
    file_close(&f);
    return s;
}

static Status save_into(Checkpointer *k, Engine *e, const char *folder, const CheckpointInfo *info)
{
    TRY(file_remove_tree(folder));
    TRY(file_make_folders(folder));
    Manifest m = { 0 };
    Status s = manifest_create(&m, folder, &k->arena);
    if (s == OK) s = manifest_header(&m, e->spec.name, info);
    if (s == OK) s = save_shard(k, e, folder, &m);
    if (s == OK) s = manifest_commit(&m);
    manifest_close(&m);
    return s;
}

/* A checkpoint's two files and its folder, without the allocations of a walk through a tree. The
 * manifest goes first: what is left after a crash is no checkpoint. */
static Status remove_checkpoint(const char *folder)
{
    static const char *const names[] = { MANIFEST_NAME, shard_name };
    for (int i = 0; i < 2; i++) {
        char path[FILE_PATH_MAX];
        TRY(file_join(path, folder, names[i]));
        unlink(path);
    }
    return rmdir(folder) == 0 ? OK : file_remove_tree(folder);
}

/* Drop the oldest beyond `keep`. A folder that cannot be removed is no reason to stop training. */
static void prune(Checkpointer *k)
{
    while (k->n_steps > k->keep) {
        char folder[FILE_PATH_MAX];
        if (step_folder(folder, k->folder, k->steps[0], "") != OK ||
            remove_checkpoint(folder) != OK) {
            log_warn("an old checkpoint was not removed: %s", status_message());
        }
        k->n_steps--;
        memmove(k->steps, k->steps + 1, (size_t)k->n_steps * sizeof *k->steps);
    }
}

/* Steps later than this one belong to a future that a resume from an older checkpoint abandoned
 * (damaged ones, as a rule): their folders stay, but no longer count. */
static void remember(Checkpointer *k, int64_t step)
{
    while (k->n_steps > 0 && k->steps[k->n_steps - 1] >= step) k->n_steps--;
    k->steps[k->n_steps++] = step;
}

Status checkpoint_save(Checkpointer *k, Engine *e, int64_t step, uint64_t position)
{
    char temp[FILE_PATH_MAX], folder[FILE_PATH_MAX];
    TRY(step_folder(temp, k->folder, step, TEMP));
    TRY(step_folder(folder, k->folder, step, ""));
    CheckpointInfo info = { step, position, k->config, NULL };
    ArenaMark mark = arena_mark(&k->arena);
    Status s = choices_text(cuda_choices(&e->ex), &k->arena, &info.products);
    if (s == OK) s = save_into(k, e, temp, &info);
    arena_release(&k->arena, mark);
    if (s != OK) {
        char message[1024];
        status_sentence(message, sizeof message);
        if (file_remove_tree(temp) != OK) log_warn("left behind: %s", temp);
        return FAIL(s, "checkpoint of step %" PRId64 ": %s; older checkpoints are untouched", step,
                    message);
    }
    TRY(file_remove_tree(folder)); /* a damaged one of the same step, passed over by a resume */
    if (rename(temp, folder) != 0) {
        return FAIL(ERR_DISK, "checkpoint: %s cannot be renamed to %s", temp, folder);
    }
    TRY(file_sync_folder(k->folder));
    remember(k, step);
    prune(k);
    return OK;
}

/* Loading. */

typedef struct Loading {
    Engine *e;
    const char *folder;
    Arena *scratch;
    Tensor whole;    /* the parameter that is being read */
    int64_t *loaded; /* elements so far, by (parameter, saved buffer) */
    int next;        /* parameter expected next: entries come in table order */
} Loading;

static bool wanted(const Engine *e, const Param *p, ParamBuffer b)
{
    return p->first[b] >= 0 && e->memory.buffer[b].data != NULL;
}

static int find_param(Loading *l, const char *name)
{
    const ParamTable *t = &l->e->params;
    for (int i = 0; i < t->n; i++) {
        int at = (l->next + i) % t->n;
        if (strcmp(t->at[at].name, name) == 0) {
            l->next = at + 1;
            return at;
        }
    }
    return -1;
}

static Status same_shape(const char *folder, const Param *p, const ManifestEntry *entry)
{
    char have[64], want[64];
    Tensor a = { NULL, DTYPE_F32, entry->rank, { entry->dim[0], entry->dim[1] } };
    Tensor b = { NULL, DTYPE_F32, p->rank, { p->dim[0], p->dim[1] } };
    if (a.rank == b.rank && a.dim[0] == b.dim[0] && (a.rank == 1 || a.dim[1] == b.dim[1]))
        return OK;
    return FAIL(ERR_ARG, "%s is of another model: %s is %s there, %s here", folder, p->name,
                tensor_shape_text(&a, have, sizeof have), tensor_shape_text(&b, want, sizeof want));
}

static void *element_room(void *state, int64_t first, int64_t n)
{
    const Loading *l = state;
    (void)n;
    return engine_room(l->e, tensor_at(&l->whole, first));
}

static Status element_put(void *state, int64_t first, int64_t n)
{
    const Loading *l = state;
    return engine_put(l->e, tensor_at(&l->whole, first), (size_t)n * sizeof(float));
}

static Status load_entry(void *state, const ManifestEntry *entry)
{
    Loading *l = state;
    int i = find_param(l, entry->param);
    if (i < 0) {
        return FAIL(ERR_ARG, "%s is of another model: it has %s, which this model lacks", l->folder,
                    entry->param);
    }
    const Param *p = &l->e->params.at[i];
    TRY(same_shape(l->folder, p, entry));
    if (!wanted(l->e, p, entry->buffer)) return OK;
    l->whole = param_view(p, &l->e->memory, entry->buffer);
    int64_t n = tensor_elems(&l->whole);
    if (entry->first < 0 || entry->count < 0 || entry->first + entry->count > n) {
        return FAIL(ERR_FORMAT, "%s: elements %" PRId64 "+%" PRId64 " of %s, which has %" PRId64,
                    l->folder, entry->first, entry->count, p->name, n);
    }
    ManifestSink sink = { element_room, element_put, l, engine_piece_bytes(l->e) };
    TRY(manifest_read_elements(l->folder, entry, &sink, l->scratch));
    l->loaded[(int64_t)i * BUF_COUNT + entry->buffer] += entry->count;
    return OK;
}

static Status check_complete(const Loading *l)
{
    const ParamTable *t = &l->e->params;
    for (int i = 0; i < t->n; i++) {
        for (size_t b = 0; b < sizeof saved / sizeof *saved; b++) {
            const Param *p = &t->at[i];
            int64_t have = l->loaded[(int64_t)i * BUF_COUNT + saved[b]];
            if (wanted(l->e, p, saved[b]) && have != param_elems(p)) {
                return FAIL(
                    ERR_ARG,
                    "%s is of another model: %s (%s) has %" PRId64 " of %" PRId64 " elements there",
                    l->folder, p->name, manifest_buffer_name(saved[b]), have, param_elems(p));
            }
        }
    }
    return OK;
}

Status checkpoint_load(Engine *e, const char *path, Arena *scratch, CheckpointInfo *info)
{
    ArenaMark mark = arena_mark(scratch);
    Loading l = { .e = e, .folder = path, .scratch = scratch };
    TRY(ARENA_ZEROED(scratch, e->params.n * BUF_COUNT, &l.loaded));
    TRY(manifest_read(path, scratch, info, load_entry, &l));
    TRY(check_complete(&l));
    /* they lay in the scratch that goes back now: see checkpoint_info */
    info->config = info->products = NULL;
    arena_release(scratch, mark);
    return engine_refresh_weights(e);
}

Status checkpoint_info(const char *path, Arena *a, CheckpointInfo *out)
{
    return manifest_read(path, a, out, NULL, NULL);
}

/* The newest checkpoint of a run's folder that is whole: with an engine it is loaded, else its
 * header is looked at. Damaged ones are warned about and passed over. */
static Status newest(const char *run_dir, Engine *e, Arena *scratch, CheckpointInfo *info,
                     char path[FILE_PATH_MAX])
{
    char folder[FILE_PATH_MAX];
    TRY(file_join(folder, run_dir, "checkpoints"));
    int64_t steps[STEPS_MAX];
    int n = 0;
    TRY(list_steps(folder, scratch, steps, &n));
    for (int i = n - 1; i >= 0; i--) {
        TRY(step_folder(path, folder, steps[i], ""));
        Status s = e != NULL ? checkpoint_load(e, path, scratch, info)
                             : checkpoint_info(path, scratch, info);
        if (s != ERR_FORMAT && s != ERR_IO) return s;
        char why[1024];
        status_sentence(why, sizeof why);
        log_warn("checkpoint %s is damaged: %s; trying the one before it", path, why);
    }
    return FAIL(ERR_IO, "%s/checkpoints: there is no whole checkpoint to load", run_dir);
}

Status checkpoint_load_newest(Engine *e, const char *run_dir, Arena *scratch, CheckpointInfo *info)
{
    char path[FILE_PATH_MAX];
    TRY(newest(run_dir, e, scratch, info, path));
    log_info("resumed from %s: step %" PRId64 ", %" PRIu64 " sequences read", path, info->step,
             info->position);
    return OK;
}

Status checkpoint_resolve(const char *path, Arena *scratch, char out[])
{
    char manifest[FILE_PATH_MAX];
    CheckpointInfo info;
    TRY(file_join(manifest, path, MANIFEST_NAME));
    if (file_exists(manifest)) {
        (void)snprintf(out, FILE_PATH_MAX, "%s", path);
        return OK;
    }
    if (!file_exists(path)) return FAIL(ERR_IO, "%s: there is no such checkpoint", path);
    return newest(path, NULL, scratch, &info, out);
}
