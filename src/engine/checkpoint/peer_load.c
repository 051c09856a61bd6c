/* peer_load: finds the newest whole copy in the memory of hosts, and fetches what a rank lacks of it. */
#include "engine/base/log.h"
#include "engine/checkpoint/checkpoint_folder.h"
#include "engine/checkpoint/peer.h"
#include "engine/step/agree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of one message, so that each has a deadline of its own. */
static const size_t MESSAGE_BYTES = (size_t)256 << 20;

/* ---- which copy ---- */

/* Newer steps first; in a step by manifest, then by rank, then by who found it. */
static int compare_parts(const void *a, const void *b)
{
    const PeerPart *x = a, *y = b;
    if (x->step != y->step) return x->step < y->step ? 1 : -1;
    const int sums = memcmp(x->sum, y->sum, sizeof x->sum);
    if (sums != 0) return sums;
    return x->rank != y->rank ? x->rank - y->rank : x->owner - y->owner;
}

static bool same_set(const PeerPart *a, const PeerPart *b)
{
    return a->step == b->step && memcmp(a->sum, b->sum, sizeof a->sum) == 0;
}

int peer_choose(PeerPart *part, int n)
{
    if (n > 0) qsort(part, (size_t)n, sizeof *part, compare_parts);
    for (int i = 0, end = 0; i < n && part[i].step >= 0; i = end) {
        int ranks = 0;
        for (end = i; end < n && same_set(&part[end], &part[i]); end++)
            ranks += end == i || part[end].rank != part[end - 1].rank;
        if (ranks < part[i].files) continue;
        memmove(part, part + i, (size_t)(end - i) * sizeof *part);
        return end - i;
    }
    return 0;
}

/* ---- what is on this host ---- */

static Status slot_folder(const Peer *p, const PeerPart *part, char out[FILE_PATH_MAX])
{
    char name[48];
    (void)snprintf(name, sizeof name, "rank-%05d/%c", part->holder, 'a' + part->slot);
    return file_join(out, p->home, name);
}

static Status part_path(const Peer *p, const PeerPart *part, char out[FILE_PATH_MAX])
{
    char folder[FILE_PATH_MAX], name[32];
    TRY(slot_folder(p, part, folder));
    folder_shard_name(name, part->rank);
    return file_join(out, folder, name);
}

/* Reads all elements of one file, because a sum that is wrong must be known before the copy is chosen. A file that
 * the manifest does not name must not stand in for one that is missing. */
static Status verify_file(const char *folder, const char *file, const ManifestEntry *entry,
                          int64_t n, Arena *scratch)
{
    bool named = false;
    for (int64_t i = 0; i < n; i++) {
        if (strcmp(entry[i].file, file) != 0) continue;
        named = true;
        TRY(manifest_read_entry(NULL, folder, &entry[i], &(ParamPiece){ .in = entry[i].piece },
                                scratch));
    }
    return named ? OK : FAIL(ERR_FORMAT, "%s/%s is not in its manifest", folder, file);
}

/* Entries come file by file. */
static int count_files(const ManifestEntry *entry, int64_t n)
{
    int files = 0;
    for (int64_t i = 0; i < n; i++)
        files += i == 0 || strcmp(entry[i].file, entry[i - 1].file) != 0;
    return files;
}

/* Appends the good files of a slot to the parts. */
static Status read_slot(Peer *p, PeerPart part, int64_t newer_than, PeerPart *out, int *n)
{
    char folder[FILE_PATH_MAX], path[FILE_PATH_MAX];
    const char *const *names = NULL;
    CheckpointInfo info;
    ManifestEntry *entry = NULL;
    int64_t entries = 0;
    int n_names = 0;
    const int room = *n + 2; /* a rank's own part and its neighbour's */
    TRY(slot_folder(p, &part, folder));
    TRY(file_join(path, folder, MANIFEST_NAME));
    if (!file_exists(path)) return OK;
    TRY(manifest_read(folder, &p->arena, &info, &entry, &entries));
    if (info.step <= newer_than) return OK;
    part.step = info.step;
    part.files = count_files(entry, entries);
    memcpy(part.sum, info.sum, sizeof part.sum);
    TRY(file_list(folder, &p->arena, &names, &n_names));
    for (int i = 0; i < n_names && *n < room; i++) {
        if (!folder_rank(names[i], ".bin", &part.rank)) continue;
        TRY(part_path(p, &part, path));
        TRY(file_size(path, &part.bytes));
        if (verify_file(folder, names[i], entry, entries, &p->arena) == OK)
            out[(*n)++] = part;
        else
            log_failure(LOG_WARN, "a copy in memory is damaged: ");
    }
    return OK;
}

/* Ranks of a host share its folders. A slot that cannot be read is as one that is not there. */
static Status read_home(Peer *p, int64_t newer_than, PeerPart **out, int *n)
{
    const char *const *names = NULL;
    int n_names = 0, turn = 0;
    TRY(file_list(p->home, &p->arena, &names, &n_names));
    TRY(ARENA_NEW(&p->arena, 2 * PEER_SLOTS * (n_names + 1), out));
    for (int i = 0; i < n_names; i++) {
        PeerPart part = { .owner = p->rank };
        if (!folder_rank(names[i], "", &part.holder) || turn++ % p->locals != p->local) continue;
        for (part.slot = 0; part.slot < PEER_SLOTS; part.slot++) {
            ArenaMark mark = arena_mark(&p->arena);
            if (read_slot(p, part, newer_than, *out, n) != OK)
                log_failure(LOG_WARN, "a copy in memory is left out: ");
            arena_release(&p->arena, mark);
        }
    }
    return OK;
}

/* All ranks' parts, in p->found. */
static Status gather_parts(Peer *p, const PeerPart *mine, int n)
{
    int32_t most = n;
    PeerPart *room = NULL;
    if (p->host != NULL) TRY(agree_most(p->host, &most, 1));
    p->found.n = most * p->ranks;
    if (most == 0) return OK;
    TRY(ARENA_ZEROED(&p->arena, most, &room));
    TRY(ARENA_ZEROED(&p->arena, p->found.n, &p->found.part));
    for (int i = 0; i < most; i++) room[i].step = -1;
    for (int i = 0; i < n; i++) room[i] = mine[i];
    if (p->host == NULL) {
        memcpy(p->found.part, room, (size_t)n * sizeof *room);
        return OK;
    }
    const int64_t bytes = (int64_t)sizeof *room * most;
    return comm_all_gather(p->host, &(Tensor){ room, DTYPE_U8, 1, { bytes } },
                           &(Tensor){ p->found.part, DTYPE_U8, 1, { bytes * p->ranks } });
}

/* ---- the folder to load ---- */

static bool on_this_host(const Peer *p, const PeerPart *part)
{
    return strcmp(p->name[part->owner].text, p->name[p->rank].text) == 0;
}

static Status load_folder(const Peer *p, char out[FILE_PATH_MAX])
{
    char name[32];
    (void)snprintf(name, sizeof name, "load-%05d", p->rank);
    return file_join(out, p->home, name);
}

static Status broadcast_from(Comm *c, void *data, size_t bytes, int root)
{
    const Tensor t = { data, DTYPE_U8, 1, { (int64_t)bytes } };
    return c == NULL ? OK : comm_broadcast(c, &t, root);
}

/* The manifest of the first part goes from the rank that found it to all. */
static Status bring_manifest(Peer *p)
{
    const PeerPart *part = p->found.part;
    char folder[FILE_PATH_MAX], path[FILE_PATH_MAX], *text = NULL;
    size_t bytes = 0;
    Status s = OK;
    const int root = part->owner;
    if (p->rank == root) {
        s = slot_folder(p, part, folder);
        if (s == OK) s = file_join(path, folder, MANIFEST_NAME);
        if (s == OK) s = file_read_all(path, &p->arena, &text, &bytes);
    }
    TRY(agree_status(p->host, s));
    TRY(broadcast_from(p->host, &bytes, sizeof bytes, root));
    if (p->rank != root) TRY(arena_alloc(&p->arena, bytes, (void **)&text));
    TRY(broadcast_from(p->host, text, bytes, root));
    TRY(file_join(path, p->found.folder, MANIFEST_NAME));
    return file_write_whole(path, text, bytes);
}

static Status make_load_folder(Peer *p)
{
    char above[FILE_PATH_MAX];
    TRY(load_folder(p, above));
    TRY(file_remove_tree(above));
    TRY(folder_of_step(p->found.folder, above, p->found.part->step, ""));
    return file_make_folders(p->found.folder);
}

Status peer_find(Peer *p, int64_t newer_than)
{
    PeerPart *mine = NULL;
    int n = 0;
    TRY(agree_status(p->host, read_home(p, newer_than, &mine, &n)));
    TRY(gather_parts(p, mine, n));
    p->found.n = peer_choose(p->found.part, p->found.n);
    if (p->found.n == 0) return OK;
    p->found.files = p->found.part[p->found.n - 1].rank + 1;
    TRY(agree_status(p->host, make_load_folder(p)));
    ArenaMark mark = arena_mark(&p->arena);
    TRY(agree_status(p->host, bring_manifest(p)));
    arena_release(&p->arena, mark);
    p->found.step = p->found.part->step;
    return OK;
}

void peer_forget(Peer *p)
{
    char folder[FILE_PATH_MAX];
    if (p->found.n == 0) return;
    p->found.n = 0;
    if (load_folder(p, folder) != OK || file_remove_tree(folder) != OK)
        log_failure(LOG_WARN, "left behind in %s: ", p->home);
}

/* ---- fetching ---- */

/* What this rank does with each file of the copy. */
typedef struct Fetch {
    Peer *p;
    int32_t *lacks;        /* (ranks, files): a rank wants a file that its host lacks */
    const PeerPart **from; /* (files) the part that is sent to them; NULL: there is no such file */
    SharedFile *file;      /* (files) that this rank sends or receives */
} Fetch;

static bool lacks(const Fetch *f, int rank, int file)
{
    return f->lacks[(int64_t)rank * f->p->found.files + file] != 0;
}

/* Links what lies on this host, and notes what does not. */
static Status link_files(Fetch *f, const int32_t *wanted, int32_t *missing)
{
    const Peer *p = f->p;
    char path[FILE_PATH_MAX], to[FILE_PATH_MAX], name[32];
    for (int i = 0; i < p->found.n; i++) {
        const PeerPart *part = &p->found.part[i];
        if (f->from[part->rank] == NULL) f->from[part->rank] = part;
    }
    for (int r = 0; r < p->found.files; r++) missing[r] = wanted[r] && f->from[r] != NULL;
    for (int i = 0; i < p->found.n; i++) {
        const PeerPart *part = &p->found.part[i];
        if (!missing[part->rank] || !on_this_host(p, part)) continue;
        TRY(part_path(p, part, path));
        folder_shard_name(name, part->rank);
        TRY(file_join(to, p->found.folder, name));
        if (link(path, to) != 0) return FAIL(ERR_IO, "%s cannot be linked to %s", path, to);
        missing[part->rank] = 0;
    }
    return OK;
}

/* Opens all files that this rank sends or receives, so that only the transfers can fail behind it. */
static Status open_files(Fetch *f)
{
    const Peer *p = f->p;
    char path[FILE_PATH_MAX], name[32];
    for (int file = 0; file < p->found.files; file++) {
        const PeerPart *part = f->from[file];
        bool sends = false;
        for (int r = 0; r < p->ranks; r++) sends |= lacks(f, r, file);
        if (part == NULL || !sends) continue;
        folder_shard_name(name, file);
        if (lacks(f, p->rank, file))
            TRY(file_join(path, p->found.folder, name));
        else if (part->owner == p->rank)
            TRY(part_path(p, part, path));
        else
            continue;
        TRY(shared_file_open(&f->file[file], path, part->bytes));
    }
    return OK;
}

static Status transfer(Comm *c, const SharedFile *file, int peer, bool sends)
{
    for (size_t done = 0, n = 0; done < file->bytes; done += n) {
        CommRequest r = { 0 };
        n = file->bytes - done < MESSAGE_BYTES ? file->bytes - done : MESSAGE_BYTES;
        const Tensor t = { (char *)file->data + done, DTYPE_U8, 1, { (int64_t)n } };
        TRY(sends ? comm_send(c, &t, peer, 0, &r) : comm_recv(c, &t, peer, 0, &r));
        TRY(comm_wait(c, &r));
    }
    return OK;
}

/* All ranks walk through the same list, so a sender and its receiver meet. */
static Status transfer_files(const Fetch *f)
{
    const Peer *p = f->p;
    for (int file = 0; file < p->found.files; file++) {
        const PeerPart *part = f->from[file];
        for (int r = 0; r < p->ranks && part != NULL; r++) {
            if (!lacks(f, r, file)) continue;
            if (r == p->rank) TRY(transfer(p->host, &f->file[file], part->owner, false));
            if (part->owner == p->rank) TRY(transfer(p->host, &f->file[file], r, true));
        }
    }
    return OK;
}

static Status fetch_files(Fetch *f, const int32_t *wanted)
{
    Peer *p = f->p;
    const int64_t files = p->found.files;
    int32_t *missing = NULL;
    TRY(ARENA_ZEROED(&p->arena, files, &missing));
    TRY(ARENA_ZEROED(&p->arena, files * p->ranks, &f->lacks));
    TRY(ARENA_ZEROED(&p->arena, files, &f->from));
    TRY(ARENA_ZEROED(&p->arena, files, &f->file));
    TRY(agree_status(p->host, link_files(f, wanted, missing)));
    if (p->host == NULL) return OK;
    TRY(comm_all_gather(p->host, &(Tensor){ missing, DTYPE_I32, 1, { files } },
                        &(Tensor){ f->lacks, DTYPE_I32, 1, { files * p->ranks } }));
    TRY(agree_status(p->host, open_files(f)));
    return transfer_files(f);
}

Status peer_fetch(Peer *p, const int32_t *wanted)
{
    Fetch f = { .p = p };
    ArenaMark mark = arena_mark(&p->arena);
    Status s = fetch_files(&f, wanted);
    for (int i = 0; i < p->found.files && f.file != NULL; i++) shared_file_close(&f.file[i]);
    arena_release(&p->arena, mark);
    return s;
}
