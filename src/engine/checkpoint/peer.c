/* peer: the half of peer.h that finds its place and makes copies; peer_load.c takes them. */
#include "engine/checkpoint/peer.h"

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/checkpoint/checkpoint_folder.h"
#include "engine/step/agree.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PREFIX "switchyard-"

/* PEER_TAG: other messages between two ranks may pass a part that is on its way. */
enum { PEER_TAG = COMM_TAGS - 1 };
enum { ID_BYTES = 17, ID_DIGITS = ID_BYTES - 1 }; /* 16 hexadecimal digits */

/* ---- places ---- */

/* PREFIX and the sum of the run folder's path and device, without the run's number. */
static Status name_of_folder(const Config *c, Arena *a, char out[64])
{
    char path[PATH_MAX], sum[CHECKPOINT_SUM_BYTES];
    struct stat info;
    void *state = NULL;
    if (realpath(c->run_dir, path) == NULL || stat(path, &info) != 0)
        return FAIL(ERR_IO, "run folder %s is not there", c->run_dir);
    TRY(manifest_sum_new(a, &state));
    manifest_sum_add(state, path, strlen(path));
    manifest_sum_add(state, &info.st_dev, sizeof info.st_dev);
    manifest_sum_take(state, sum);
    (void)snprintf(out, 64, PREFIX "%.16s-", sum);
    return OK;
}

/* The number in RUN/peer-id, which a new run draws. Rank 0 alone. */
static Status run_number(const Config *c, bool resume, Arena *a, char out[ID_BYTES])
{
    char path[FILE_PATH_MAX], *text = NULL;
    size_t bytes = 0;
    uint64_t drawn = 0;
    TRY(file_join(path, c->run_dir, "peer-id"));
    if (resume && file_exists(path)) {
        TRY(file_read_all(path, a, &text, &bytes));
        if (bytes == ID_DIGITS && strspn(text, "0123456789abcdef") == ID_DIGITS) {
            memcpy(out, text, ID_BYTES);
            return OK;
        }
    }
    if (getrandom(&drawn, sizeof drawn, 0) != sizeof drawn)
        return FAIL(ERR_IO, "the system gives no random number for %s", path);
    (void)snprintf(out, ID_BYTES, "%016" PRIx64, drawn);
    return file_write_whole(path, out, ID_DIGITS);
}

/* PEER_DIR is anybody's: a folder that another user has made in advance is not taken. */
static Status make_private(const char *path)
{
    struct stat info;
    if (mkdir(path, 0700) == 0) return OK;
    if (lstat(path, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid()) return OK;
    return FAIL(ERR_DISK, "%s cannot be made, or belongs to another user: set checkpoint.peer_dir",
                path);
}

/* Copies of earlier runs in this run folder. */
static Status remove_earlier(const Peer *p, const char *dir, const char *name, Arena *a)
{
    const char *const *names = NULL;
    int n = 0;
    char path[FILE_PATH_MAX];
    TRY(file_list(dir, a, &names, &n));
    for (int i = 0; i < n; i++) {
        if (!text_starts(names[i], name)) continue;
        TRY(file_join(path, dir, names[i]));
        if (strcmp(path, p->root) != 0) TRY(file_remove_tree(path));
    }
    return OK;
}

static Status make_home(Peer *p, const Config *c, const char id[ID_BYTES])
{
    char name[64], whole[96];
    TRY(name_of_folder(c, &p->arena, name));
    (void)snprintf(whole, sizeof whole, "%s%s", name, id);
    TRY(file_make_folders(c->checkpoint_peer_dir));
    TRY(file_join(p->root, c->checkpoint_peer_dir, whole));
    TRY(make_private(p->root));
    TRY(file_join(p->home, p->root, p->name[p->rank].text));
    TRY(make_private(p->home));
    return p->local == 0 ? remove_earlier(p, c->checkpoint_peer_dir, name, &p->arena) : OK;
}

/* ---- hosts ---- */

static bool same_host(const CommHostName *name, int a, int b)
{
    return strcmp(name[a].text, name[b].text) == 0;
}

/* Ranks of the host of `rank` below `end`. */
static int ranks_beside(const CommHostName *name, int rank, int end)
{
    int n = 0;
    for (int i = 0; i < end; i++) n += same_host(name, i, rank);
    return n;
}

static int first_beside(const CommHostName *name, int rank)
{
    int first = 0;
    while (!same_host(name, first, rank)) first++;
    return first;
}

int peer_order(const CommHostName *name, int ranks, int *order)
{
    int n = 0, most = 0;
    for (int first = 0; first < ranks; first++) {
        const int begin = n;
        if (first_beside(name, first) != first) continue;
        for (int i = first; i < ranks; i++)
            if (same_host(name, i, first)) order[n++] = i;
        if (n - begin > most) most = n - begin;
    }
    return most == ranks ? 1 : most;
}

static Status find_neighbours(Peer *p)
{
    int *order = NULL, at = 0;
    p->to = p->from = -1;
    if (p->ranks == 1) return OK;
    TRY(ARENA_NEW(&p->arena, p->ranks, &order));
    const int shift = peer_order(p->name, p->ranks, order);
    while (order[at] != p->rank) at++;
    p->to = order[(at + shift) % p->ranks];
    p->from = order[(at + p->ranks - shift) % p->ranks];
    return OK;
}

static Status gather_hosts(Peer *p, const char *host)
{
    CommHostName mine = { 0 }, *all = NULL;
    const int64_t words = sizeof mine / sizeof(int32_t);
    TRY(ARENA_ZEROED(&p->arena, p->ranks, &all));
    if (host != NULL)
        (void)snprintf(mine.text, sizeof mine.text, "%s", host);
    else if (gethostname(mine.text, sizeof mine.text - 1) != 0)
        return FAIL(ERR_IO, "rank %d cannot read its host's name", p->rank);
    if (p->host == NULL)
        all[0] = mine;
    else
        TRY(comm_all_gather(p->host, &(Tensor){ &mine, DTYPE_I32, 1, { words } },
                            &(Tensor){ all, DTYPE_I32, 1, { words * p->ranks } }));
    p->name = all;
    p->local = ranks_beside(all, p->rank, p->rank);
    p->locals = ranks_beside(all, p->rank, p->ranks);
    return find_neighbours(p);
}

Status peer_init(Peer *p, const Config *c, Comm *world, bool resume, const char *host)
{
    char id[ID_BYTES] = "";
    *p = (Peer){ .host = world, .ranks = 1, .found = { .step = -1 } };
    if (world != NULL) p->rank = world->rank;
    if (world != NULL) p->ranks = world->size;
    TRY(arena_reserve(&p->arena, "copies of checkpoints", (size_t)4 << 30));
    TRY(gather_hosts(p, host));
    TRY(agree_status(world, p->rank == 0 ? run_number(c, resume, &p->arena, id) : OK));
    TRY(agree_first(world, id, sizeof id));
    return agree_status(world, make_home(p, c, id));
}

static uint64_t tree_bytes(const char *path, Arena *a)
{
    const char *const *names = NULL;
    int n = 0;
    struct stat info;
    uint64_t sum = 0;
    if (lstat(path, &info) != 0) return 0;
    if (!S_ISDIR(info.st_mode)) return (uint64_t)info.st_blocks * 512;
    if (file_list(path, a, &names, &n) != OK) return 0;
    for (int i = 0; i < n; i++) {
        char part[FILE_PATH_MAX];
        if (file_join(part, path, names[i]) == OK) sum += tree_bytes(part, a);
    }
    return sum;
}

uint64_t peer_held_bytes(const Config *c)
{
    Arena a = { 0 };
    char name[64], path[FILE_PATH_MAX];
    const char *const *names = NULL;
    int n = 0;
    uint64_t sum = 0;
    if (arena_reserve(&a, "copies of checkpoints", (size_t)1 << 28) != OK) return 0;
    Status s = name_of_folder(c, &a, name);
    if (s == OK) s = file_list(c->checkpoint_peer_dir, &a, &names, &n);
    for (int i = 0; i < n && s == OK; i++) {
        if (!text_starts(names[i], name)) continue;
        s = file_join(path, c->checkpoint_peer_dir, names[i]);
        if (s == OK) sum += tree_bytes(path, &a);
    }
    if (s != OK) status_clear();
    arena_free(&a);
    return sum;
}

/* ---- slots ---- */

static Status folder_of_rank(const Peer *p, int rank, char out[FILE_PATH_MAX])
{
    char name[32];
    (void)snprintf(name, sizeof name, "rank-%05d", rank);
    return file_join(out, p->home, name);
}

static Status file_of_slot(const PeerSlot *slot, int rank, char out[FILE_PATH_MAX])
{
    char name[32];
    folder_shard_name(name, rank);
    return file_join(out, slot->folder, name);
}

static void empty_slot(PeerSlot *slot)
{
    char path[FILE_PATH_MAX];
    slot->step = -1;
    if (file_join(path, slot->folder, MANIFEST_NAME) == OK) unlink(path);
}

/* A file of another size is of another mesh, so the copy in the slot ends here. */
static Status open_part(PeerSlot *slot, int rank, size_t bytes, SharedFile *out)
{
    char path[FILE_PATH_MAX];
    uint64_t there = 0;
    if (rank < 0 || bytes == 0) return OK;
    TRY(file_of_slot(slot, rank, path));
    if (file_exists(path)) TRY(file_size(path, &there));
    if (there != bytes) empty_slot(slot);
    return shared_file_open(out, path, bytes);
}

/* Removes files of ranks that are not its neighbour now. */
static Status remove_others(const Peer *p, const PeerSlot *slot, Arena *a)
{
    const char *const *names = NULL;
    int n = 0;
    char path[FILE_PATH_MAX], own[32], theirs[32];
    folder_shard_name(own, p->rank);
    folder_shard_name(theirs, p->from);
    TRY(file_list(slot->folder, a, &names, &n));
    for (int i = 0; i < n; i++) {
        const char *name = names[i];
        if (strcmp(name, MANIFEST_NAME) == 0 || strcmp(name, own) == 0 || strcmp(name, theirs) == 0)
            continue;
        TRY(file_join(path, slot->folder, name));
        unlink(path);
    }
    return OK;
}

/* The step of the whole copy in a slot; -1: none. */
static int64_t step_of_slot(const PeerSlot *slot, Arena *a)
{
    CheckpointInfo info = { .step = -1 };
    char path[FILE_PATH_MAX];
    if (file_join(path, slot->folder, MANIFEST_NAME) != OK || !file_exists(path)) return -1;
    if (manifest_read(slot->folder, a, &info, NULL, NULL) == OK) return info.step;
    status_clear();
    return -1;
}

static Status open_slots(Peer *p, size_t bytes, size_t theirs, int64_t step)
{
    char folder[FILE_PATH_MAX];
    TRY(folder_of_rank(p, p->rank, folder));
    for (int i = 0; i < PEER_SLOTS; i++) {
        PeerSlot *slot = &p->slot[i];
        ArenaMark mark = arena_mark(&p->arena);
        TRY(file_join(slot->folder, folder, i == 0 ? "a" : "b"));
        TRY(file_make_folders(slot->folder));
        slot->step = step_of_slot(slot, &p->arena);
        if (slot->step > step) slot->step = -1;
        TRY(remove_others(p, slot, &p->arena));
        TRY(open_part(slot, p->rank, bytes, &slot->own));
        TRY(open_part(slot, p->from, theirs, &slot->theirs));
        if (slot->step < 0) empty_slot(slot);
        arena_release(&p->arena, mark);
    }
    p->next = p->slot[1].step < p->slot[0].step;
    return OK;
}

static void close_slots(Peer *p)
{
    for (int i = 0; i < PEER_SLOTS; i++) {
        shared_file_close(&p->slot[i].own);
        shared_file_close(&p->slot[i].theirs);
    }
    p->open = false;
}

static void remove_slots(const Peer *p)
{
    char folder[FILE_PATH_MAX];
    if (folder_of_rank(p, p->rank, folder) != OK || file_remove_tree(folder) != OK)
        log_failure(LOG_WARN, "left behind in %s: ", p->home);
}

Status peer_open(Peer *p, size_t bytes, int64_t step)
{
    int64_t mine = (int64_t)bytes, *all = NULL;
    TRY(ARENA_NEW(&p->arena, p->ranks, &all));
    all[0] = mine;
    if (p->host != NULL)
        TRY(comm_all_gather(p->host, &(Tensor){ &mine, DTYPE_U8, 1, { sizeof mine } },
                            &(Tensor){ all, DTYPE_U8, 1, { (int64_t)sizeof mine * p->ranks } }));
    Status s =
        agree_status(p->host, open_slots(p, bytes, p->from < 0 ? 0 : (size_t)all[p->from], step));
    p->open = s == OK;
    if (s == OK) return OK;
    char why[2048];
    (void)snprintf(why, sizeof why, "%s", status_message());
    close_slots(p);
    remove_slots(p);
    return status_adopt(s, why);
}

/* ---- a copy ---- */

char *peer_begin(Peer *p)
{
    PeerSlot *slot = &p->slot[p->next];
    empty_slot(slot);
    return slot->own.data;
}

static Tensor tensor_of(const SharedFile *f)
{
    return (Tensor){ f->data, DTYPE_U8, 1, { (int64_t)f->bytes } };
}

Status peer_send(Peer *p)
{
    const PeerSlot *slot = &p->slot[p->next];
    const Tensor own = tensor_of(&slot->own), theirs = tensor_of(&slot->theirs);
    if (p->to < 0) return OK;
    TRY(comm_recv(p->host, &theirs, p->from, PEER_TAG, &p->receiving));
    return comm_send(p->host, &own, p->to, PEER_TAG, &p->sending);
}

Status peer_sent(Peer *p, double wait_s, bool *done)
{
    const struct timespec nap = { .tv_nsec = 1000000 };
    *done = true;
    if (p->to < 0) return OK;
    for (double until = clock_s() + wait_s;; nanosleep(&nap, NULL)) {
        bool sent = false, received = false;
        TRY(comm_test(p->host, &p->sending, &sent));
        TRY(comm_test(p->host, &p->receiving, &received));
        *done = sent && received;
        if (*done || clock_s() >= until) return OK;
    }
}

/* Folders of ranks that are on another host now. They are kept until a copy is whole without them. */
static Status remove_strangers(const Peer *p, Arena *a)
{
    const char *const *names = NULL;
    int n = 0, rank = 0;
    char path[FILE_PATH_MAX];
    TRY(file_list(p->home, a, &names, &n));
    for (int i = 0; i < n; i++) {
        if (!folder_rank(names[i], "", &rank)) continue;
        if (rank < p->ranks && same_host(p->name, rank, p->rank)) continue;
        TRY(file_join(path, p->home, names[i]));
        TRY(file_remove_tree(path));
    }
    return OK;
}

/* Rank 0's manifest goes to all, and into the slot. */
static Status spread_manifest(Peer *p, const char *folder, const char *to)
{
    char path[FILE_PATH_MAX], *text = NULL;
    size_t bytes = 0;
    Status s = file_join(path, folder, MANIFEST_NAME);
    if (s == OK && p->rank == 0) s = file_read_all(path, &p->arena, &text, &bytes);
    TRY(agree_status(p->host, s));
    TRY(agree_first(p->host, &bytes, sizeof bytes));
    if (p->rank > 0) TRY(arena_alloc(&p->arena, bytes, (void **)&text));
    TRY(agree_first(p->host, text, bytes));
    s = file_join(path, to, MANIFEST_NAME);
    if (s == OK) s = file_write_whole(path, text, bytes);
    return agree_status(p->host, s);
}

Status peer_commit(Peer *p, int64_t step, const char *folder)
{
    PeerSlot *slot = &p->slot[p->next];
    ArenaMark mark = arena_mark(&p->arena);
    Status s = spread_manifest(p, folder, slot->folder);
    if (s != OK) {
        empty_slot(slot);
        arena_release(&p->arena, mark);
        return s;
    }
    slot->step = step;
    p->next = 1 - p->next;
    if (!p->settled && p->local == 0 && remove_strangers(p, &p->arena) != OK)
        log_failure(LOG_WARN, "left behind in %s: ", p->home);
    p->settled = true;
    arena_release(&p->arena, mark);
    return OK;
}

/* A run that ends with a failure closes this, too: its status record stays. Waits end with that failure if
 * other ranks have ended. */
static void end_transfers(Peer *p)
{
    char before[2048];
    (void)snprintf(before, sizeof before, "%s", status_message());
    const bool ended = comm_wait(p->host, &p->sending) == OK;
    if (comm_wait(p->host, &p->receiving) == OK && ended) return;
    status_clear();
    if (before[0] != '\0') (void)status_adopt(OK, before);
}

/* All ranks of a host have closed their files when the first one removes them. */
static Status remove_home(const Peer *p)
{
    if (p->host != NULL) TRY(comm_barrier(p->host));
    if (p->local > 0) return OK;
    TRY(file_remove_tree(p->home));
    (void)rmdir(p->root); /* another host of this machine may have its folder there */
    return OK;
}

/* Says where copies stay, for a run that did not end as it should. */
static void log_kept(const Peer *p)
{
    const int64_t *step = &p->slot[1 - p->next].step;
    if (p->open && *step >= 0)
        log_info("the checkpoint of step %" PRId64 " stays in memory until the run goes on: %s",
                 *step, p->home);
}

void peer_close(Peer *p, bool ended)
{
    if (p->open && p->to >= 0) end_transfers(p);
    if (!ended) log_kept(p);
    close_slots(p);
    peer_forget(p);
    if (ended && p->home[0] != '\0' && remove_home(p) != OK)
        log_failure(LOG_WARN, "left behind in %s: ", p->home);
    if (p->home[0] != '\0' && rmdir(p->home) == 0) (void)rmdir(p->root); /* nothing was kept */
    arena_free(&p->arena);
    *p = (Peer){ 0 };
}
