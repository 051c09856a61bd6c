/*
 * peer: copies of checkpoints in memory that outlives the processes of a run.
 *
 *   PEER_DIR/switchyard-PATH-RUN/HOST/rank-00003/a/manifest.jsonl   as that of a checkpoint on disk
 *                                                  rank-00003.bin   the part of rank 3
 *                                                  rank-00001.bin   the part of its neighbour
 *                                                b/                 the copy before, or the next one
 *
 * Files are mapped, so a copy is made by a memcpy, and a neighbour's part is received into its file. Of the two
 * slots a and b one always holds a whole copy: only the other one is written. A slot is whole when it has its
 * manifest. That is removed before the slot is written, and comes when all ranks have their parts.
 *
 * RUN is a number that the run's first start draws (RUN/peer-id), PATH a sum of the run folder's path and
 * device. So neither another run nor a copy of the run folder takes these files. HOST in the path tells the
 * hosts of one machine or of one shared folder apart.
 *
 * A start looks for the newest step whose files are all on some host, under one manifest, with all
 * sums right. Each rank then has a folder of it: files of its own host are linked there, those that it needs and
 * its host lacks are fetched over the host group. The ordinary loader reads that folder.
 *
 * Collective functions are collective over the group of all ranks on the host.
 */
#ifndef ENGINE_CHECKPOINT_PEER_H
#define ENGINE_CHECKPOINT_PEER_H

#include "engine/base/file.h"
#include "engine/checkpoint/manifest.h"
#include "engine/config/config.h"
#include "engine/host/shared_file.h"

enum { PEER_SLOTS = 2 };

/* A file of a copy that some host holds. Ranks exchange these structs as bytes. */
typedef struct PeerPart {
    int64_t step; /* -1: none */
    uint64_t bytes;
    int32_t files;        /* that a whole copy of the step has */
    int32_t rank;         /* whose part it is */
    int32_t holder, slot; /* the folder that it lies in: rank-HOLDER, a or b */
    int32_t owner;        /* the rank that found it on its host */
    char sum[CHECKPOINT_SUM_BYTES];
} PeerPart;

typedef struct PeerSlot {
    char folder[FILE_PATH_MAX];
    SharedFile own, theirs;
    int64_t step; /* of the whole copy in it; -1: none */
} PeerSlot;

/* What a start found. */
typedef struct PeerFound {
    int64_t step; /* -1: nothing */
    int n;
    PeerPart *part;             /* (n) of that step, by rising rank */
    int files;                  /* 1 + the highest rank of a part */
    char folder[FILE_PATH_MAX]; /* step-N of this rank, to load */
} PeerFound;

typedef struct Peer {
    Comm *host; /* NULL: alone */
    int rank, ranks;
    char root[FILE_PATH_MAX]; /* PEER_DIR/switchyard-PATH-RUN */
    char home[FILE_PATH_MAX]; /* ROOT/HOST */
    const CommHostName *name; /* (ranks) of each rank's host */
    int local, locals;        /* this rank's number among those of its host; how many they are */
    int to, from; /* this rank's part goes there; it holds the part of that one; -1: none */
    PeerSlot slot[PEER_SLOTS];
    int next;     /* the slot that is written next */
    bool settled; /* a copy of this start is whole */
    bool open;    /* slots are there */
    CommRequest sending, receiving;
    PeerFound found;
    Arena arena;
} Peer;

/* Reads or makes the run's number, and removes copies of earlier runs in this folder. resume: take the number
 * that is there. host: name of this rank's host; NULL: the system's. ERR_DISK: the folder belongs to
 * somebody else, or cannot be made. Collective. */
Status peer_init(Peer *p, const Config *c, Comm *world, bool resume, const char *host);

/* Sets p->found to the newest whole copy of a step above `newer_than`, and makes its folder with the
 * manifest. Damaged files are left out, with a warning. Collective. */
Status peer_find(Peer *p, int64_t newer_than);
/* Puts the files r with wanted[r] (p->found.files of them) into the found folder. Collective. */
Status peer_fetch(Peer *p, const int32_t *wanted);
/* Removes the found folder. */
void peer_forget(Peer *p);

/* Keeps the parts of the newest whole set in front and returns their number, by rising rank; 0: no set is
 * whole. A set has one step and one manifest's sum; it is whole if it has as many ranks' files as that says. */
int peer_choose(PeerPart *part, int n);

/* order: the ranks so that those of a host follow each other. Returns how many places further the neighbour
 * stands that gets a rank's part: on another host, if no host has more than half of all ranks. */
int peer_order(const CommHostName *name, int ranks, int *order);

/* Makes both slots. Copies in them stay if they have the sizes of this run, and are of no step above `step`, where
 * this start goes on: those were abandoned. bytes: of this rank's part.
 * ERR_DISK: there is no room; then the folder of this rank is removed. Collective. */
Status peer_open(Peer *p, size_t bytes, int64_t step);
/* Where this rank's next part is to be written. The slot counts as empty from here on. */
char *peer_begin(Peer *p);
/* Begins to exchange parts with the neighbours. */
Status peer_send(Peer *p);
/* Has that ended? Waits up to wait_s. */
Status peer_sent(Peer *p, double wait_s, bool *done);
/* Makes the slot whole on all ranks: the manifest is rank 0's, in `folder`. After a failure the slot is empty on
 * all ranks and the older copy is as before. Collective. */
Status peer_commit(Peer *p, int64_t step, const char *folder);
/* ended: the run needs its copies no more, and their memory is given back; collective then. Safe on { 0 }. */
void peer_close(Peer *p, bool ended);

/* Bytes that two slots of one rank take, if parts are `bytes` long. */
static inline size_t peer_slot_bytes(size_t bytes, int ranks)
{
    return PEER_SLOTS * bytes * (ranks > 1 ? 2 : 1);
}
/* Bytes that copies of this run folder's runs hold on this host now; 0 where that cannot be read. */
uint64_t peer_held_bytes(const Config *c);

#endif
