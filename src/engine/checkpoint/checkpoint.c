/* checkpoint: the half of checkpoint.h that loads; checkpoint_write.c saves.
 *
 * A load goes in this order: rank 0's manifest must be everyone's; the gate allows it; entries are matched
 * to parameters; the set must be complete; then elements are read. So a refused checkpoint changes
 * nothing. */
#include "engine/checkpoint/checkpoint.h"

#include "engine/base/log.h"
#include "engine/checkpoint/checkpoint_folder.h"
#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/peer.h"
#include "engine/step/agree.h"
#include "engine/step/copies.h"
#include "engine/step/engine_weights.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The state of an entry on a rank. The state of the entry is the highest of all ranks. */
enum {
    ENTRY_UNKNOWN, /* no such parameter here */
    ENTRY_PART,    /* at most a part of it was wanted: its sum is not verified */
    ENTRY_DONE
};

typedef struct Loading {
    EngineParams *w;
    const char *folder;
    const CheckpointGate *gate; /* or NULL */
    bool moments;               /* else they stay as they are here */
    Peer *peer;                 /* it brings files into the folder; NULL: they are all there */
    CheckpointInfo *info;
    Arena *scratch;
    ManifestEntry *entry; /* of the whole manifest */
    int64_t n;
    int *param;                  /* which one an entry is of here; -1: none */
    int32_t *found;              /* of each entry */
    const ManifestEntry **chain; /* by (parameter, buffer): all of its entries; NULL: none */
    const Param **by_name;       /* the table's parameters by rising name */
    int next;                    /* expected next: a rank's entries come in table order */
} Loading;

/* Does this rank load that buffer of the parameter? */
static bool is_wanted(const Loading *l, const Param *p, ParamBuffer b)
{
    if (!l->moments && (buffer_is_optimizers(b) || b == BUF_AVERAGE)) return false;
    return p->first[b] >= 0 && l->w->memory.buffer[b].data != NULL;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(const Param *const *)a)->name, (*(const Param *const *)b)->name);
}

static int compare_name(const void *name, const void *param)
{
    return strcmp(name, (*(const Param *const *)param)->name);
}

/* For find_param: entries of other ranks do not come in this rank's order. */
static Status sort_names(Loading *l)
{
    const ParamTable *t = &l->w->table;
    TRY(ARENA_NEW(l->scratch, t->n, &l->by_name));
    for (int i = 0; i < t->n; i++) l->by_name[i] = &t->at[i];
    qsort(l->by_name, (size_t)t->n, sizeof *l->by_name, compare_names);
    return OK;
}

/* Index of a parameter; -1: this rank has none of that name. Entries come in table order, so the next
 * parameter is tried before the search. */
static int find_param(Loading *l, const char *name)
{
    const ParamTable *t = &l->w->table;
    const Param *const *found = NULL;
    if (l->next < t->n && strcmp(t->at[l->next].name, name) == 0) return l->next++;
    found = bsearch(name, l->by_name, (size_t)t->n, sizeof *l->by_name, compare_name);
    if (found == NULL) return -1;
    l->next = (int)(*found - t->at) + 1;
    return l->next - 1;
}

static Status check_shape(const char *folder, const Param *p, const ManifestEntry *entry)
{
    char have[64], want[64];
    Tensor a = { NULL, DTYPE_F32, entry->rank, { entry->dim[0], entry->dim[1] } };
    Tensor b = { NULL, DTYPE_F32, p->rank, { param_whole_dim(p, 0), param_whole_dim(p, 1) } };
    if (a.rank == b.rank && a.dim[0] == b.dim[0] && (a.rank == 1 || a.dim[1] == b.dim[1]))
        return OK;
    return FAIL(ERR_ARG, "%s is of another model: %s is %s there, %s here", folder, p->name,
                tensor_shape_text(&a, have, sizeof have), tensor_shape_text(&b, want, sizeof want));
}

/* Is it a buffer that the parameter has here? Another rule may have left other state there. */
static bool same_buffer(const Loading *l, const Param *p, const ManifestEntry *entry)
{
    const OptimizerDesc *rule = param_bucket_rule(&l->w->table, p);
    if (!buffer_is_optimizers(entry->buffer)) return true;
    if (rule == NULL || buffer_state(entry->buffer) >= rule->n_states) return false;
    return strcmp(buffer_desc(rule, entry->buffer).name,
                  buffer_desc(entry->rule, entry->buffer).name) == 0;
}

/* The part of a buffer of the parameter that this rank holds. */
static ParamPiece piece_here(const Loading *l, const Param *p, ParamBuffer b)
{
    return param_piece(&l->w->table, p, &l->w->memory, b);
}

/* Which parameter an entry is of, and whether all of it is wanted here. */
static Status match_entry(Loading *l, int64_t at)
{
    ManifestEntry *entry = &l->entry[at];
    const Piece *in = &entry->piece;
    int i = find_param(l, entry->param);
    l->param[at] = i;
    l->found[at] = i < 0 ? ENTRY_UNKNOWN : ENTRY_DONE;
    if (i < 0) return OK;
    const Param *p = &l->w->table.at[i];
    TRY(check_shape(l->folder, p, entry));
    if (!piece_fits(in, param_whole_elems(p))) {
        return FAIL(ERR_FORMAT,
                    "%s: elements %" PRId64 "+%" PRId64 " of %s, %" PRId64 " times, each %" PRId64
                    " further, without %" PRId64 " at the start and %" PRId64
                    " at the end; it has %" PRId64,
                    l->folder, in->first, in->n, p->name, in->rows, in->stride, in->skip, in->lack,
                    param_whole_elems(p));
    }
    if (!same_buffer(l, p, entry)) {
        l->param[at] = -1;
        return OK;
    }
    const ManifestEntry **chain = &l->chain[i * BUF_COUNT + (int)entry->buffer];
    entry->other = *chain;
    *chain = entry;
    if (!is_wanted(l, p, entry->buffer)) return OK;
    ParamPiece piece = piece_here(l, p, entry->buffer);
    if (piece_common(in, &piece.in) < piece_elems(in)) l->found[at] = ENTRY_PART;
    return OK;
}

static Status match_entries(Loading *l)
{
    CheckpointInfo same; /* as read_header read it; the gate has put its own into l->info since */
    TRY(manifest_read(l->folder, l->scratch, &same, &l->entry, &l->n));
    if (strcmp(same.sum, l->info->sum) != 0)
        return FAIL(ERR_CHANGED, "%s: its manifest was changed while it was read", l->folder);
    if (l->w->takes_average) TRY(manifest_take_average(l->folder, l->entry, &l->n, l->scratch));
    TRY(sort_names(l));
    TRY(ARENA_NEW(l->scratch, l->n, &l->param));
    TRY(ARENA_NEW(l->scratch, l->n, &l->found));
    TRY(ARENA_ZEROED(l->scratch, l->w->table.n * BUF_COUNT, &l->chain));
    for (int64_t i = 0; i < l->n; i++) TRY(match_entry(l, i));
    return OK;
}

/* Is it a parameter of the modules [first, end) of multi-token prediction? */
static bool of_modules(const Loading *l, const char *name, int64_t first, int64_t end)
{
    int64_t module = param_block(name) - l->w->config->model_layers;
    return module >= first && module < end;
}

/* Fails if the checkpoint has a parameter that no rank knows, or lacks elements that this rank wants. */
static Status check_complete(const Loading *l)
{
    const ParamTable *t = &l->w->table;
    /* generation and evaluation have no modules of multi-token prediction */
    int64_t here = l->w->training ? l->w->config->mtp_layers : 0;
    for (int64_t i = 0; i < l->n; i++) {
        bool left_out = of_modules(l, l->entry[i].param, here, l->info->modules);
        if (l->found[i] != ENTRY_UNKNOWN || left_out) continue;
        return FAIL(ERR_ARG, "%s is of another model: it has %s, which this model lacks", l->folder,
                    l->entry[i].param);
    }
    for (int i = 0; i < t->n * CHECKPOINT_BUFFERS; i++) {
        const Param *p = &t->at[i / CHECKPOINT_BUFFERS];
        ParamBuffer b = checkpoint_buffer(i % CHECKPOINT_BUFFERS);
        const ManifestEntry *chain = l->chain[(p - t->at) * BUF_COUNT + b];
        if (!is_wanted(l, p, b) || of_modules(l, p->name, l->info->modules, here)) continue;
        const bool begins = l->info->kept.means.weights == 0;
        if (chain == NULL && b == BUF_AVERAGE && begins) continue;
        if (chain == NULL && buffer_is_optimizers(b)) {
            return FAIL(ERR_ARG,
                        "%s has no moments of %s, which was frozen there: take its init.frozen, or "
                        "init.moments=false",
                        l->folder, p->name);
        }
        if (chain == NULL) {
            return FAIL(ERR_ARG,
                        "%s is of another model: %s (%s) has 0 of %" PRId64 " elements there",
                        l->folder, p->name, buffer_desc(NULL, b).name, param_whole_elems(p));
        }
        TRY(manifest_check_cover(l->folder, chain, param_whole_elems(p)));
    }
    return OK;
}

/* Reads this rank's part of an entry. Entries that no rank reads completely are read again by one rank,
 * which verifies the sum. */
static Status load_entry(Loading *l, int64_t i)
{
    const ManifestEntry *entry = &l->entry[i];
    const Param *p = l->param[i] < 0 ? NULL : &l->w->table.at[l->param[i]];
    if (p != NULL && is_wanted(l, p, entry->buffer)) {
        ParamPiece piece = piece_here(l, p, entry->buffer);
        TRY(manifest_read_entry(l->w->arenas, l->folder, entry, &piece, l->scratch));
    }
    if (l->found[i] == ENTRY_DONE || i % ranks_of(l->w) != rank_of(l->w)) return OK;
    return manifest_read_entry(NULL, l->folder, entry, &(ParamPiece){ .in = entry->piece },
                               l->scratch);
}

/* Brings the files that load_entry will read here. */
static Status fetch_files(Loading *l)
{
    int32_t *wanted = NULL;
    TRY(ARENA_ZEROED(l->scratch, l->peer->found.files, &wanted));
    for (int64_t i = 0; i < l->n; i++) {
        const ManifestEntry *entry = &l->entry[i];
        const Param *p = l->param[i] < 0 ? NULL : &l->w->table.at[l->param[i]];
        bool reads = l->found[i] != ENTRY_DONE && i % ranks_of(l->w) == rank_of(l->w);
        int file = -1;
        if (p != NULL && is_wanted(l, p, entry->buffer)) {
            ParamPiece piece = piece_here(l, p, entry->buffer);
            reads |= piece_meet(&entry->piece, &piece.in, &(PieceSpan){ 0 });
        }
        if (!reads || !folder_rank(entry->file, ".bin", &file)) continue;
        if (file < l->peer->found.files) wanted[file] = 1;
    }
    return peer_fetch(l->peer, wanted);
}

/* Rank 0's manifest must be everyone's. */
static Status read_header(const Loading *l)
{
    char first[CHECKPOINT_SUM_BYTES] = "";
    *l->info = (CheckpointInfo){ .modules = l->w->config->mtp_layers };
    Status s = checkpoint_info(l->folder, l->scratch, l->info);
    if (s == OK) memcpy(first, l->info->sum, sizeof first);
    TRY(agree_first(host_of(l->w), first, sizeof first));
    if (first[0] == '\0' || (s == OK && strcmp(first, l->info->sum) == 0)) return s;
    return FAIL(
        ERR_ARG,
        "%s is not there as rank 0 sees it: run.dir must be one folder that all ranks share",
        l->folder);
}

/* All ranks agree after each part: a rank that failed alone would leave the others waiting. */
static Status load_checkpoint(Loading *l)
{
    ArenaMark mark = arena_mark(l->scratch);
    TRY(agree_status(host_of(l->w), read_header(l)));
    const CheckpointGate *g = l->gate;
    Status s = g == NULL ? OK : g->may(g->self, l->folder, l->info, l->scratch);
    TRY(agree_status(host_of(l->w), s));
    arena_release(l->scratch, mark);
    TRY(agree_status(host_of(l->w), match_entries(l)));
    TRY(agree_most(host_of(l->w), l->found, l->n));
    s = check_complete(l);
    if (l->peer != NULL) {
        TRY(agree_status(host_of(l->w), s));
        TRY(agree_status(host_of(l->w), fetch_files(l)));
    }
    for (int64_t i = 0; i < l->n && s == OK; i++) {
        s = load_entry(l, i);
        if (g != NULL) heartbeat_again(g->beat);
    }
    return agree_status(host_of(l->w), s);
}

static Status load_folder(Loading *l)
{
    ArenaMark mark = arena_mark(l->scratch);
    Status s = load_checkpoint(l);
    /* in the scratch that is released here: checkpoint_info reads them again */
    l->info->config = l->info->products = NULL;
    arena_release(l->scratch, mark);
    return s == OK ? copies_refresh(l->w) : s;
}

Status checkpoint_load_init(EngineParams *w, const char *path, const CheckpointGate *gate,
                            bool moments, Arena *scratch, CheckpointInfo *info)
{
    Loading l = {
        .w = w, .folder = path, .gate = gate, .moments = moments, .info = info, .scratch = scratch
    };
    return load_folder(&l);
}

Status checkpoint_load_copy(Checkpointer *k, const CheckpointGate *gate, Arena *scratch,
                            CheckpointInfo *info)
{
    Loading l = { .w = k->params,
                  .folder = k->peer.found.folder,
                  .gate = gate,
                  .moments = true,
                  .peer = &k->peer,
                  .info = info,
                  .scratch = scratch };
    TRY(engine_zero_weights(k->params));
    TRY(load_folder(&l));
    log_info("resumed from the memory of hosts: step %" PRId64 ", %" PRIu64 " sequences read",
             info->step, info->position);
    return OK;
}

/* A resume or an inference: no gate, and moments in a training. */
Status checkpoint_load(EngineParams *w, const char *path, Arena *scratch, CheckpointInfo *info)
{
    TRY(engine_zero_weights(w)); /* no entry has the padding */
    return checkpoint_load_init(w, path, NULL, true, scratch, info);
}

Status checkpoint_info(const char *path, Arena *a, CheckpointInfo *out)
{
    int64_t step = 0;
    TRY(manifest_read(path, a, out, NULL, NULL));
    if (!folder_step(path, &step) || step == out->step) return OK;
    return FAIL(ERR_FORMAT, "%s holds step %" PRId64 ", which its name contradicts", path,
                out->step);
}

Status checkpoint_config(const char *path, const CheckpointInfo *info, Arena *a, Config *out)
{
    char why[512];
    TRY(config_parse(out, a, path, info->config, strlen(info->config)));
    Status s = config_check(out);
    if (s == OK) return OK;
    status_sentence(why, sizeof why);
    return FAIL(s, "%s: the configuration in it is not legal: %s", path, why);
}

/* Is this a failure after which an older checkpoint may be tried? Rank 0 logs it for all. */
static bool is_damaged(Status s, const char *path, int rank)
{
    char why[1024];
    if (s != ERR_FORMAT && s != ERR_IO && s != ERR_NUMERIC) return false;
    status_sentence(why, sizeof why);
    if (rank > 0) return true;
    log_warn("checkpoint %s is %s: %s; trying the one before it", path,
             s == ERR_NUMERIC ? "unusable" : "damaged", why);
    return true;
}

/* `last`: the failure of the last checkpoint that was tried. */
static Status no_checkpoint(const char *run_dir, Status last)
{
    char why[1024] = "";
    if (last == ERR_NUMERIC) status_sentence(why, sizeof why);
    return FAIL(last == ERR_NUMERIC ? last : ERR_IO,
                "%s/checkpoints: there is no whole checkpoint to load%s%s", run_dir,
                why[0] == '\0' ? "" : ": ", why);
}

/* Rank 0's list decides which step is tried next, so all ranks try the same one. */
Status checkpoint_load_newest(EngineParams *w, const char *run_dir, const CheckpointGate *gate,
                              Arena *scratch, CheckpointInfo *info)
{
    char folder[FILE_PATH_MAX], path[FILE_PATH_MAX];
    int64_t steps[CHECKPOINT_STEPS_MAX];
    int n = 0;
    TRY(file_join(folder, run_dir, "checkpoints"));
    TRY(agree_status(host_of(w), folder_steps(folder, scratch, steps, &n)));
    TRY(engine_zero_weights(w)); /* no entry has the padding */
    for (Status s = OK;;) {
        int64_t step = n > 0 ? steps[--n] : -1;
        TRY(agree_first(host_of(w), &step, sizeof step));
        if (step < 0) return no_checkpoint(run_dir, s);
        TRY(folder_of_step(path, folder, step, ""));
        s = checkpoint_load_init(w, path, gate, true, scratch, info);
        if (s == OK) break;
        if (!is_damaged(s, path, rank_of(w))) return s;
    }
    log_info("resumed from %s: step %" PRId64 ", %" PRIu64 " sequences read", path, info->step,
             info->position);
    return OK;
}

/* The newest checkpoint whose manifest is complete. Elements are not read. */
static Status find_newest(const char *run_dir, Arena *scratch, char path[FILE_PATH_MAX])
{
    char folder[FILE_PATH_MAX];
    int64_t steps[CHECKPOINT_STEPS_MAX];
    int n = 0;
    TRY(file_join(folder, run_dir, "checkpoints"));
    TRY(folder_steps(folder, scratch, steps, &n));
    while (n > 0) {
        CheckpointInfo info;
        TRY(folder_of_step(path, folder, steps[--n], ""));
        Status s = checkpoint_info(path, scratch, &info);
        if (s == OK || !is_damaged(s, path, 0)) return s;
    }
    return no_checkpoint(run_dir, OK);
}

Status checkpoint_resolve(const char *path, Arena *scratch, char out[])
{
    char manifest[FILE_PATH_MAX];
    TRY(file_join(manifest, path, MANIFEST_NAME));
    if (file_exists(manifest)) {
        (void)snprintf(out, FILE_PATH_MAX, "%s", path);
        return OK;
    }
    if (!file_exists(path)) return FAIL(ERR_IO, "%s: there is no such checkpoint", path);
    return find_newest(path, scratch, out);
}
