/* checkpoint_write: the half of checkpoint.h that saves; checkpoint.c loads. The thread of the rank copies
 * the elements and agrees with the other ranks. The writer's thread only writes this rank's file and its
 * lines of the manifest, so it makes no collective call. */
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/checkpoint_folder.h"
#include "engine/checkpoint/manifest.h"
#include "engine/step/agree.h"
#include "engine/step/engine_memory.h"
#include "engine/step/step_rule.h"
#include "kernels/core/choices.h"
#include "kernels/core/libraries.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BUFFER_BYTES = 1 << 20, TAKE_BYTES = 64 << 20, LINE_BYTES = 256 /* mean of an entry's */ };

/* Between two questions whether all ranks have written. Far below the timeout of a collective, so ranks
 * that have written wait for a slow one without an error. */
static const double POLL_S = 1;

/* What this rank writes. */

/* Where several ranks hold the same elements, the first one writes them. These are replicas, groups that
 * hold a bucket whole, ranks of tp with the same heads of keys, and two stages with the same table or the same layers (DualPipe). */
static bool rank_writes(const EngineParams *w, const Param *p, ParamBuffer b)
{
    const Mesh *m = w->shape->mesh;
    if (m == NULL) return true;
    if (m->at.replica > 0 || p->second || m->at.tp % p->copies != 0) return false;
    if (p->bucket < 0) return m->at.inner == 0;
    const ParamBucket *k = &w->table.bucket[p->bucket];
    if (w->table.sharded[b] && k->ranks > 1) return true;
    if (k->shard_group == SHARD_EXPERT) return m->at.expert_shard == 0;
    return shard_group_part(k->shard_group) ? m->at.inner < mesh_tp(&m->shape) : m->at.inner == 0;
}

/* An entry of this rank's file. Zeroed: before the first. */
typedef struct Saved {
    int next;
    const Param *param;
    ParamBuffer buffer;
    const OptimizerDesc *rule;
    ParamPiece piece;
    uint64_t offset, end; /* in the file */
} Saved;

/* Moves to the next entry of this rank's file; false at the end. Buffer by buffer, each in table order:
 * every walk over the entries gives the same offsets. */
static bool next_saved(const EngineParams *w, Saved *s)
{
    int n = w->table.n;
    while (s->next < CHECKPOINT_BUFFERS * n) {
        int i = s->next++;
        s->param = &w->table.at[i % n];
        s->buffer = checkpoint_buffer(i / n);
        s->rule = param_bucket_rule(&w->table, s->param);
        if (!rank_writes(w, s->param, s->buffer)) continue;
        s->piece = param_piece(&w->table, s->param, &w->memory, s->buffer);
        if (piece_elems(&s->piece.in) == 0) continue;
        s->offset = manifest_offset(s->end);
        s->end = s->offset + (uint64_t)tensor_bytes(&s->piece.at);
        return true;
    }
    return false;
}

/* Walks without writing: the size of the file is known before training starts. */
static size_t count_entries(const EngineParams *w, size_t *bytes)
{
    Saved s = { 0 };
    size_t n = 0;
    while (next_saved(w, &s)) n++;
    *bytes = s.end;
    return n;
}

size_t checkpoint_plan_bytes(const EngineParams *w, size_t *peer)
{
    const Config *c = w->config;
    const Mesh *m = w->shape->mesh;
    size_t bytes = 0, entries = count_entries(w, &bytes);
    *peer = c->checkpoint_peer ? peer_slot_bytes(bytes, m == NULL ? 1 : m->ranks) : 0;
    const bool copies = c->checkpoint_async && !c->checkpoint_peer;
    return entries * LINE_BYTES + (copies ? arena_rounded(bytes) : 0);
}

/* The writer. */

static ManifestEntry entry_of(const Saved *s, const char *file)
{
    const Param *p = s->param;
    return (ManifestEntry){ .param = p->name,
                            .file = file,
                            .buffer = s->buffer,
                            .rule = s->rule,
                            .dtype = s->piece.at.dtype,
                            .rank = p->rank,
                            .dim = { param_whole_dim(p, 0), param_whole_dim(p, 1) },
                            .piece = s->piece.in };
}

static Status create_shard(const Checkpointer *k, const char *name, File *out)
{
    char folder[FILE_PATH_MAX], path[FILE_PATH_MAX];
    TRY(folder_of_step(folder, k->folder, k->info.step, CHECKPOINT_TEMP));
    if (!file_exists(folder)) {
        return FAIL(
            ERR_ARG,
            "%s, which rank 0 made, is not there: run.dir must be one folder that all ranks "
            "share",
            folder);
    }
    TRY(file_join(path, folder, name));
    return file_create_temp_buffered(out, path, k->buffer, BUFFER_BYTES);
}

/* The writer's job: this rank's file, from the image or, without checkpoint.async, from the
 * engine's memory. In memory the image is the file, so its entries are only checked and summed. */
static Status write_shard(void *checkpointer)
{
    Checkpointer *k = checkpointer;
    char name[32];
    if (k->bytes == 0) return OK;
    ManifestShard w = { .arenas = k->image == NULL ? k->params->arenas : NULL,
                        .step = k->info.step,
                        .sum = k->sum,
                        .lines = &k->lines };
    folder_shard_name(name, rank_of(k->params));
    Status s = k->on_disk ? create_shard(k, name, &w.file) : OK;
    for (Saved at = { 0 }; s == OK && next_saved(k->params, &at);) {
        ManifestEntry entry = entry_of(&at, name);
        s = manifest_write_entry(&w, &entry, k->image ? k->image + at.offset : at.piece.at.data);
    }
    if (s == OK && k->on_disk) s = file_commit(&w.file);
    file_close(&w.file);
    return s;
}

/* Opening. */

/* Pins no more once the system has refused a piece: copies then take the detour of engine_read. */
static void pin_piece(Checkpointer *k, size_t at, size_t bytes)
{
    Exec *ex = k->params->ex;
    if (ex->backend->pin == NULL || k->copy.pinned < at) return;
    if (ex->backend->pin(ex, k->image + at, bytes) == OK) {
        k->copy.pinned = at + bytes;
        return;
    }
    log_debug("a save copies through a staging block: %s", status_message());
    status_clear();
}

static void unpin_image(Checkpointer *k)
{
    for (size_t at = 0; at < k->copy.pinned; at += TAKE_BYTES)
        k->params->ex->backend->unpin(k->params->ex, k->image + at);
    k->copy.pinned = 0;
}

/* The writer's first job, during the first steps: a save would wait for the system to find and clear these pages,
 * which takes longer than the copy. A save ends it. */
static Status take_pages(void *checkpointer)
{
    Checkpointer *k = checkpointer;
    for (size_t at = 0; at < k->bytes && !atomic_load(&k->copy.wanted); at += TAKE_BYTES) {
        const size_t bytes = k->bytes - at < TAKE_BYTES ? k->bytes - at : TAKE_BYTES;
        arena_take_pages(&k->copy.arena, at, bytes);
        pin_piece(k, at, bytes);
    }
    return OK;
}

static Status open_image(Checkpointer *k)
{
    TRY(arena_init(&k->copy.arena, "copy", MEM_HOST, k->bytes));
    arena_huge_pages(&k->copy.arena);
    TRY(ARENA_NEW(&k->copy.arena, k->bytes, &k->image));
    k->writer.job = take_pages;
    worker_begin(&k->writer);
    return OK;
}

/* Waits until the folders of checkpoints that are no longer kept are removed. */
static void end_removal(Checkpointer *k)
{
    if (k->gone == 0) return;
    worker_wait(&k->writer, INFINITY);
    if (worker_result(&k->writer) != OK)
        log_failure(LOG_WARN, "an old checkpoint was not removed: ");
    k->gone = 0;
}

/* Ends take_pages, which has no more to do once there was a save. */
static void use_writer(Checkpointer *k)
{
    end_removal(k);
    atomic_store(&k->copy.wanted, true);
    worker_wait(&k->writer, INFINITY);
    k->writer.job = write_shard;
}

/* All memory of the saves to come, but for slots (checkpoint_open_copies). */
static Status open_memory(Checkpointer *k, const Config *c, Arena *a)
{
    char folder[FILE_PATH_MAX];
    Text yaml = { 0 };
    size_t entries = count_entries(k->params, &k->bytes);
    TRY(file_join(folder, c->run_dir, "checkpoints"));
    TRY(arena_text(a, folder, strlen(folder), &k->folder));
    TRY(ARENA_NEW(a, CHECKPOINT_STEPS_MAX + 1, &k->steps));
    TRY(ARENA_NEW(a, BUFFER_BYTES, &k->buffer));
    TRY(manifest_sum_new(a, &k->sum));
    TRY(text_init(&yaml, a));
    TRY(config_print(c, &yaml));
    k->config = yaml.data;
    TRY(arena_reserve(&k->arena, "checkpoint", (size_t)1 << 30));
    TRY(arena_init(&k->text, "lines", MEM_HOST, (entries + 1) * MANIFEST_LINE_MAX));
    TRY(text_init(&k->lines, &k->text));
    k->writer.state = k;
    if (!c->checkpoint_async) return OK;
    TRY(worker_start(&k->writer, "the thread that writes checkpoints"));
    return c->checkpoint_peer ? OK : open_image(k);
}

/* Only rank 0 calls it, so no other rank's unfinished folder is removed by a late rank. */
static Status make_folder(Checkpointer *k)
{
    TRY(file_make_folders(k->folder));
    return folder_remove_unfinished(k->folder, &k->arena);
}

/* Fails if this rank sees other checkpoints than rank 0. Only rank 0 makes the folder, so a rank that does
 * not find it has another file system. */
static Status check_same_folder(Checkpointer *k)
{
    Status s = folder_steps(k->folder, &k->arena, k->steps, &k->n_steps);
    int64_t mine[2] = { k->n_steps, k->n_steps > 0 ? k->steps[k->n_steps - 1] : 0 };
    int64_t theirs[2] = { mine[0], mine[1] };
    TRY(agree_first(host_of(k->params), theirs, sizeof theirs));
    if (s == OK && !file_exists(k->folder))
        return FAIL(ERR_ARG,
                    "%s is not there, but rank 0 has made it: run.dir must be one folder that all "
                    "ranks share",
                    k->folder);
    if (s != OK || memcmp(mine, theirs, sizeof mine) == 0) return s;
    return FAIL(ERR_ARG,
                "%s has %" PRId64 " checkpoints, the newest of step %" PRId64
                "; rank 0 sees %" PRId64 ", the newest of step %" PRId64
                ": run.dir must be one folder that all ranks share",
                k->folder, mine[0], mine[1], theirs[0], theirs[1]);
}

/* Both agreements come even after a failure, so no rank waits for another. */
Status checkpointer_open(Checkpointer *k, const Config *c, EngineParams *w, Arena *a)
{
    *k = (Checkpointer){ .params = w, .keep = (int)c->checkpoint_keep };
    k->times.began_s = clock_s();
    TRY(open_memory(k, c, a));
    ArenaMark mark = arena_mark(&k->arena);
    TRY(agree_status(host_of(k->params), rank_of(k->params) == 0 ? make_folder(k) : OK));
    TRY(agree_status(host_of(k->params), check_same_folder(k)));
    arena_release(&k->arena, mark);
    return OK;
}

/* Goes on without copies in memory. */
static Status without_copies(Checkpointer *k, Status s, const char *what)
{
    if (s == ERR_COMM) return s;
    if (rank_of(k->params) == 0) log_failure(LOG_WARN, "checkpoint.peer: %s: ", what);
    status_clear();
    return OK;
}

Status checkpoint_find_copy(Checkpointer *k, bool resume, const char *host)
{
    const Config *c = k->params->config;
    const bool refused =
        !resume && k->n_steps > 0; /* a start that must leave everything as it is */
    if (!c->checkpoint_peer || refused) return OK;
    Status s = peer_init(&k->peer, c, host_of(k->params), resume, host);
    if (s != OK) {
        peer_close(&k->peer, false);
        return without_copies(k, s, "no checkpoint is kept in memory");
    }
    if (!resume) return OK;
    s = peer_find(&k->peer, k->n_steps > 0 ? k->steps[k->n_steps - 1] : -1);
    if (s == OK) return OK;
    peer_forget(&k->peer);
    return without_copies(k, s, "copies in memory are not taken");
}

Status checkpoint_open_copies(Checkpointer *k, int64_t step)
{
    if (!k->params->config->checkpoint_peer) return OK;
    peer_forget(&k->peer);
    if (k->peer.home[0] != '\0') {
        Status s = peer_open(&k->peer, k->bytes, step);
        if (s == OK) return OK;
        TRY(without_copies(k, s, "no checkpoint is kept in memory"));
    }
    return open_image(k);
}

void checkpoint_give_back(Checkpointer *k)
{
    if (k->peer.open) k->image = NULL;
    peer_close(&k->peer, true);
}

/* Removes what a save that is dropped has written. Other ranks that still write to it fail, and are to end anyway. */
static Status remove_pending(const Checkpointer *k)
{
    char temp[FILE_PATH_MAX];
    if (!k->on_disk || rank_of(k->params) != 0) return OK;
    TRY(folder_of_step(temp, k->folder, k->info.step, CHECKPOINT_TEMP));
    return file_remove_tree(temp);
}

/* Runs on the way out of an error, so it keeps the status record of that error. */
static void finish_alone(Checkpointer *k)
{
    char before[2048];
    (void)snprintf(before, sizeof before, "%s", status_message());
    const bool alone = k->pending && ranks_of(k->params) == 1;
    if (alone && checkpoint_finish(k) != OK) log_failure(LOG_WARN, "%s", "");
    if (k->pending && !alone) {
        (void)worker_wait(&k->writer, INFINITY);
        (void)remove_pending(k);
    }
    end_removal(k);
    if (before[0] != '\0') (void)status_adopt(OK, before);
}

void checkpointer_close(Checkpointer *k)
{
    atomic_store(&k->copy.wanted, true);
    finish_alone(k);
    worker_stop(&k->writer);
    peer_close(&k->peer, false);
    unpin_image(k);
    arena_free(&k->copy.arena);
    arena_free(&k->text);
    arena_free(&k->arena);
    *k = (Checkpointer){ 0 };
}

/* Saving. */

/* Drops the pending save and removes its folder. */
static Status fail_save(Checkpointer *k, Status s)
{
    char message[1024];
    status_sentence(message, sizeof message);
    arena_release(&k->arena, k->mark);
    k->pending = false;
    /* rank 0 logs what all agreed on; ERR_COMM is no agreement: rank 0 itself may be lost */
    if (rank_of(k->params) != 0 && s != ERR_COMM) log_quiet();
    if (remove_pending(k) != OK)
        log_warn("left behind: step %" PRId64 CHECKPOINT_TEMP " in %s", k->info.step, k->folder);
    return FAIL(s, "checkpoint of step %" PRId64 ": %s; older checkpoints are untouched",
                k->info.step, message);
}

/* Rank 0 collects what the header of the manifest says, and makes step-N.tmp. */
static Status begin_folder(Checkpointer *k)
{
    char temp[FILE_PATH_MAX];
    Exec *ex = k->params->ex;
    TRY(choices_text(exec_choices(ex), &k->arena, &k->info.products));
    op_set_text(ex, k->params->config->run_compute == COMPUTE_BF16, k->info.cpu);
    if (!k->on_disk) return OK;
    TRY(folder_of_step(temp, k->folder, k->info.step, CHECKPOINT_TEMP));
    TRY(file_remove_tree(temp));
    return file_make_folders(temp);
}

/* Begins copies that engine_wait ends. Each lies in one piece of what take_pages pinned: the runtime refuses others. */
static Status copy_to_pinned(Checkpointer *k, const Saved *s)
{
    Exec *ex = k->params->ex;
    const size_t first = (size_t)s->offset, end = (size_t)s->end;
    for (size_t at = first, n = 0; at < end; at += n) {
        const size_t left = TAKE_BYTES - at % TAKE_BYTES;
        n = end - at < left ? end - at : left;
        TRY(ex->backend->copy(ex, k->image + at, (const char *)s->piece.at.data + (at - first), n));
    }
    return OK;
}

/* Copies this rank's elements to host memory, laid out as in the file. Training waits for this copy. */
static Status copy_image(Checkpointer *k)
{
    EngineArenas *m = k->params->arenas;
    for (Saved s = { 0 }; next_saved(k->params, &s);) {
        if ((size_t)s.end <= k->copy.pinned && engine_on_device(m, s.piece.at.data))
            TRY(copy_to_pinned(k, &s));
        else
            TRY(engine_read(m, k->image + s.offset, s.piece.at.data, (size_t)(s.end - s.offset),
                            k->params->shape->threads));
    }
    return engine_wait(m);
}

static void name_taken(const Checkpointer *k, SourcesTaken *out)
{
    const ConfigSources *sources = &k->params->config->data_sources;
    out->n = k->taken != NULL ? sources->n : 0;
    for (int i = 0; i < out->n; i++) {
        out->name[i] = sources->at[i].name;
        out->sequences[i] = k->taken[i];
        out->sum[i] = k->sums != NULL ? k->sums[i] : NULL;
    }
}

/* Counts the time since `since`. A save that ended meanwhile is then known whole. */
static void note_time(Checkpointer *k, double since)
{
    SaveTimes *t = &k->times;
    const double spent = clock_s() - since;
    t->stall_s += spent;
    t->spent_s += spent;
    if (k->pending || t->interval_s == 0) return;
    t->share = t->spent_s / t->interval_s;
    if (t->share > t->worst_share) t->worst_share = t->share;
    t->all_s += t->spent_s;
    t->saves++;
    log_debug("checkpoint of step %" PRId64 ": training waited %.3g s, %.3g %% of the %.3g s since "
              "the one before",
              k->info.step, t->spent_s, 100 * t->share, t->interval_s);
    t->interval_s = 0;
}

/* Without checkpoint.async the writer reads the engine's memory, so training waits for it. */
static bool has_image(const Checkpointer *k) { return k->peer.open || k->image != NULL; }

static Status begin_save(Checkpointer *k, int64_t step, uint64_t position)
{
    k->mark = arena_mark(&k->arena);
    k->info = (CheckpointInfo){ .step = step, .position = position, .config = k->config };
    name_taken(k, &k->info.taken);
    memcpy(k->info.moment_steps, k->params->moment_steps, sizeof k->info.moment_steps);
    k->info.kept = rules_save(k->params);
    k->lines.used = 0;
    use_writer(k);
    Status s = rank_of(k->params) == 0 ? begin_folder(k) : OK;
    if (k->peer.open) k->image = peer_begin(&k->peer);
    if (s == OK && has_image(k)) s = copy_image(k);
    s = agree_status(host_of(k->params), s);
    if (s != OK) return fail_save(k, s);
    k->pending = true;
    worker_begin(&k->writer);
    if (k->peer.open) TRY(peer_send(&k->peer));
    return OK;
}

/* Finishing. */
static Status transfer_lines(Comm *c, void *data, size_t bytes, int peer, bool sends)
{
    const Tensor t = { data, DTYPE_U8, 1, { (int64_t)bytes } };
    CommRequest r = { 0 };
    TRY(sends ? comm_send(c, &t, peer, 0, &r) : comm_recv(c, &t, peer, 0, &r));
    return comm_wait(c, &r);
}

/* Receives the lines of another rank. After a failure (s) they are received and dropped: the rank sends
 * them in any case. */
static Status receive_lines(Checkpointer *k, int rank, Manifest *m, Status s)
{
    size_t bytes = 0;
    void *lines = NULL;
    ArenaMark mark = arena_mark(&k->arena);
    TRY(transfer_lines(host_of(k->params), &bytes, sizeof bytes, rank, false));
    TRY(arena_alloc(&k->arena, bytes, &lines));
    if (bytes > 0) TRY(transfer_lines(host_of(k->params), lines, bytes, rank, false));
    if (s == OK) s = manifest_lines(m, lines, bytes);
    arena_release(&k->arena, mark);
    return s;
}

/* The other side of receive_lines. */
static Status send_lines(Checkpointer *k)
{
    size_t bytes = k->lines.used;
    TRY(transfer_lines(host_of(k->params), &bytes, sizeof bytes, 0, true));
    return bytes == 0 ? OK : transfer_lines(host_of(k->params), k->lines.data, bytes, 0, true);
}

/* Lines of all ranks follow in the order of ranks, so manifests of equal runs are equal. */
static Status write_manifest(Checkpointer *k, const char *folder)
{
    Manifest m = { 0 };
    if (rank_of(k->params) > 0) return send_lines(k);
    Status s = manifest_create(&m, folder, k->params->spec->name, &k->info, &k->arena);
    if (s == OK) s = manifest_lines(&m, k->lines.data, k->lines.used);
    for (int rank = 1; rank < ranks_of(k->params); rank++) s = receive_lines(k, rank, &m, s);
    if (s == OK) s = manifest_commit(&m);
    file_close(&m.file);
    return s;
}

/* The files of all ranks are on disk: rank 0 makes the folder a checkpoint. */
static Status commit_folder(Checkpointer *k)
{
    char temp[FILE_PATH_MAX], folder[FILE_PATH_MAX];
    TRY(folder_of_step(temp, k->folder, k->info.step, CHECKPOINT_TEMP));
    TRY(folder_of_step(folder, k->folder, k->info.step, ""));
    TRY(write_manifest(k, temp));
    if (rank_of(k->params) > 0) return OK;
    TRY(file_remove_tree(folder)); /* a damaged one of the same step, which a resume skipped */
    TRY(file_rename(temp, folder));
    return file_sync_folder(k->folder);
}

/* The writer's job behind a save: a file of many GB takes seconds to remove. A folder that cannot be removed does not
 * stop training. */
static Status remove_gone(void *checkpointer)
{
    const Checkpointer *k = checkpointer;
    char folder[FILE_PATH_MAX];
    Status worst = OK;
    for (int i = 0; i < k->gone; i++) {
        Status s = folder_of_step(folder, k->folder, k->steps[k->n_steps + i], "");
        if (s == OK) s = folder_remove(folder, ranks_of(k->params));
        if (s != OK) worst = s;
    }
    return worst;
}

/* Drops the oldest beyond `keep`, which then stand behind those that stay. Rank 0 removes their folders. */
static void remove_oldest(Checkpointer *k)
{
    const int n = k->n_steps;
    for (int i = 0; i < n - k->keep; i++) {
        const int64_t oldest = k->steps[0];
        memmove(k->steps, k->steps + 1, (size_t)(n - 1) * sizeof *k->steps);
        k->steps[n - 1] = oldest;
        k->n_steps--;
    }
    if (rank_of(k->params) != 0 || n == k->n_steps) return;
    k->gone = n - k->n_steps;
    k->writer.job = remove_gone;
    worker_begin(&k->writer);
}

/* A resume from an older checkpoint abandons the later ones, which as a rule are damaged. Their folders
 * stay, but no longer count. */
static void note_step(Checkpointer *k, int64_t step)
{
    while (k->n_steps > 0 && k->steps[k->n_steps - 1] >= step) k->n_steps--;
    k->steps[k->n_steps++] = step;
}

/* Rank 0's slot gets the manifest, unless the checkpoint on disk has it. Then all slots get it. A failure costs
 * the copy, and not the checkpoint on disk. */
static Status commit_copy(Checkpointer *k)
{
    char folder[FILE_PATH_MAX];
    Status s = folder_of_step(folder, k->folder, k->info.step, "");
    if (!k->on_disk) {
        (void)snprintf(folder, sizeof folder, "%s", k->peer.slot[k->peer.next].folder);
        s = write_manifest(k, folder);
    }
    s = agree_status(host_of(k->params), s);
    if (s == OK) s = peer_commit(&k->peer, k->info.step, folder);
    return s == OK ? OK : without_copies(k, s, "this checkpoint is not kept in memory");
}

/* Agreements: all parts are written, then the folder is a checkpoint, then the slots are. A failure of the
 * first two fails the save on all ranks. */
static Status finish_save(Checkpointer *k)
{
    k->pending = false;
    Status s = agree_status(host_of(k->params), worker_result(&k->writer));
    if (s == OK && k->on_disk) s = agree_status(host_of(k->params), commit_folder(k));
    if (s != OK) return fail_save(k, s);
    if (k->peer.open) TRY(commit_copy(k));
    arena_release(&k->arena, k->mark);
    if (!k->on_disk) return OK;
    note_step(k, k->info.step);
    remove_oldest(k);
    return OK;
}

/* Finishes the pending save if all ranks have written and sent. All ranks ask the same question at the same
 * step, so they agree on the answer. */
static Status finish_if_written(Checkpointer *k, double wait_s)
{
    bool sent = true;
    int32_t busy = !worker_wait(&k->writer, wait_s);
    if (k->peer.open) TRY(peer_sent(&k->peer, busy ? 0 : wait_s, &sent));
    busy |= !sent;
    TRY(agree_most(host_of(k->params), &busy, 1));
    return busy ? OK : finish_save(k);
}

/* Asks again every POLL_S, so that no collective waits longer than its timeout for a slow disk. */
static Status finish_pending(Checkpointer *k)
{
    while (k->pending) TRY(finish_if_written(k, POLL_S));
    return OK;
}

Status checkpoint_poll(Checkpointer *k)
{
    const double start = clock_s();
    if (!k->pending) return OK;
    TRY(finish_if_written(k, 0));
    note_time(k, start);
    return OK;
}

static Status finish_and_note(Checkpointer *k)
{
    const double start = clock_s();
    if (!k->pending) return OK;
    TRY(finish_pending(k));
    note_time(k, start);
    return OK;
}

Status checkpoint_finish(Checkpointer *k)
{
    TRY(finish_and_note(k));
    end_removal(k);
    return OK;
}

/* The copy and the agreement stop training; the writer then works during the next steps. */
static Status save(Checkpointer *k, int64_t step, uint64_t position, bool on_disk)
{
    SaveTimes *t = &k->times;
    TRY(finish_and_note(k));
    const double start = clock_s();
    t->spent_s = 0;
    t->interval_s = start - t->began_s;
    t->began_s = start;
    k->on_disk = on_disk;
    TRY(begin_save(k, step, position));
    if (!has_image(k)) TRY(finish_pending(k));
    note_time(k, start);
    return OK;
}

Status checkpoint_save(Checkpointer *k, int64_t step, uint64_t position)
{
    return save(k, step, position, true);
}

Status checkpoint_save_copy(Checkpointer *k, int64_t step, uint64_t position)
{
    return k->peer.open ? save(k, step, position, false) : OK;
}
