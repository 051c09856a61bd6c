/*
 * comm: a group of ranks that talk to each other.
 *
 * One interface, five ways: self (a group of one), thread (N ranks as N threads of one process: the
 * tests' and `--ranks`), mpi (processes, CPU memory), nccl (GPU memory, on a stream) and, in a
 * counting run, none at all: ops are counted before they come here. Which way it is is chosen when
 * a world is opened; comm_split makes all other groups.
 *
 * Lengths come from tensors, no call takes a count. Every member of a group calls the same
 * collectives in the same order. Sums are added in the order of ranks, in f32 whatever the type, so
 * that threads and processes give the same bits, run to run; NCCL gives its own, the same every run
 * (its algorithm and protocol are pinned by size).
 *
 * On the host a collective has ended when it returns. On a GPU all calls are launches on the
 * group's stream, in order with its kernels, and may be captured; nothing waits.
 *
 * No wait is for ever: past the world's deadline it fails with ERR_COMM and says for whom it
 * waited, for how long, in which call, and where the rank stood (CommPlace). A rank that fails for
 * another reason calls comm_abort: the others' waits then end with its reason.
 */
#ifndef COMM_COMM_H
#define COMM_COMM_H

#include "base/tensor.h"

#include <signal.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct Comm Comm;
typedef struct CommWorld CommWorld;
typedef struct CommTable CommTable;

typedef enum ReduceOp { REDUCE_SUM, REDUCE_MAX } ReduceOp;

struct Comm {
    const CommTable *table;
    CommWorld *world;
    const char *name;  /* of the group, for messages: "world", "ep" */
    int rank, size;    /* in the group */
    const int *member; /* (size) ranks of the world */
    int number;        /* of the group, the same on all members; tells its messages from others' */
    void *own;         /* of the implementation */
};

/* Memory that members load from and store to without a call: what one calls peer[rank] lies at
 * another's own base. */
typedef struct CommWindow {
    void **peer; /* (size) where each member's memory lies for this one; its own, too */
    size_t bytes;
} CommWindow;

/* A transfer under way; zeroed: none. */
typedef struct CommRequest {
    int slot; /* number in the world's table, from 1 */
} CommRequest;

/* Where this rank stands, for messages of waits: called only when one fails. */
typedef struct CommPlace {
    void (*say)(void *self, char *out, int out_bytes); /* "step 12: forward of micro-batch 3 ..." */
    void *self;
} CommPlace;

/* Opening a world. Memory comes from `a`, which must outlive it: less than 2 MiB. timeout_s: the
 * deadline of a wait. */
Status comm_self(Arena *a, Comm **out);

/* `ranks` threads, each with a world of its own, which run `body`; returns when all have ended.
 * The first failure is returned with its message; its rank in *failed (or -1). */
typedef Status CommBody(void *state, Comm *world);
Status comm_threads(int ranks, double timeout_s, CommBody *body, void *state, int *failed);

/* All processes of mpirun or srun, once. ERR_UNSUPPORTED in a build without MPI. comm_launched,
 * which needs no MPI: how many processes mpirun or srun has started; 1 if neither did; and which of
 * them this is. */
Status comm_mpi(Arena *a, double timeout_s, Comm **out);
int comm_launched(void);
int comm_launched_rank(void);
/* Which of the ranks on its host this is, from 0; and how many there are. */
int comm_local_rank(const Comm *world);
int comm_local_ranks(const Comm *world);
bool comm_mpi_built(void);

/* The same group for memory of the GPU that is current, on `stream` (a cudaStream_t); `host` is
 * used to meet. Collective over `host`. ERR_UNSUPPORTED in a build without CUDA. */
Status comm_nccl(Comm *host, void *stream, Arena *a, Comm **out);

/* After the last call. A world's groups go before it; of processes, all free theirs, or have
 * failed. Safe on NULL. */
void comm_free(Comm *c);

/* The ranks that give the same color, ordered by key (then by rank). color < 0: in none, *out NULL.
 * Collective. `name` must outlive the group. */
Status comm_split(Comm *c, int color, int key, const char *name, Arena *a, Comm **out);

/* A second communicator of the same members with a stream of its own (NCCL), so that its calls do
 * not queue behind the first one's. On the host the same as comm_split with one color. */
Status comm_again(Comm *c, void *stream, const char *name, Arena *a, Comm **out);

/* t = op over the members' t. f32, bf16, i32. */
Status comm_all_reduce(Comm *c, const Tensor *t, ReduceOp op);
/* out = the own part, of size in / size, of the sum of all in. out may be that part of in. */
Status comm_reduce_scatter(Comm *c, const Tensor *in, const Tensor *out);
/* out = the in of all members, in order. in may be the own part of out. */
Status comm_all_gather(Comm *c, const Tensor *in, const Tensor *out);
/* Part r of in goes to member r; part r of out comes from it. All parts are equal; in is not out.
 */
Status comm_all_to_all(Comm *c, const Tensor *in, const Tensor *out);
/* t of member `root` becomes that of all. */
Status comm_broadcast(Comm *c, const Tensor *t, int root);
Status comm_barrier(Comm *c);

/* For who has waited `waited_s` so far for a stream with calls of this world's groups: is there
 * hope? Never waits. ERR_COMM, with all groups given up: another rank has ended, NCCL found an
 * error, or the deadline has passed. Graphs with calls are freed before their groups. */
Status comm_watch(Comm *c, double waited_s);

/* On a GPU: calls from here on go to this stream (a cudaStream_t), after those before. */
void comm_set_stream(Comm *c, void *stream);

/* On a GPU: memory and links between all pairs of members, so that transfers and all_to_all of this
 * group are launches from the first on. Collective; before a capture. */
Status comm_connect(Comm *c);

/* Transfers between the two begin as one: on a GPU a send holds up its stream until the other side
 * receives, so members that all send first would stand still. On the host nothing happens. */
Status comm_batch_begin(Comm *c);
Status comm_batch_end(Comm *c);

/* Opens `bytes` at `base`, an arena's or a part of one, to all members. Collective, once for memory
 * that stays: peer's array lives in `a`, and the window holds until the group or a member's memory
 * goes. Nothing orders what members do there: a barrier between stores and loads, and one before
 * the next stores, is the caller's. ERR_SHAPE: members give unequal lengths. ERR_UNSUPPORTED: their
 * memory is out of reach; so it is, so far, of processes and of GPUs (CUDA IPC and cuMem handles
 * come with the exchange that uses them). A group of one always can. */
Status comm_window(Comm *c, void *base, size_t bytes, Arena *a, CommWindow *out);

/* Begin to send and receive; messages of one tag (0 .. COMM_TAGS - 1) between two members come in
 * the order in which they were sent. The memory is the transfer's until it is done. On a GPU it is
 * a launch, and done at once. */
enum { COMM_TAGS = 256 };
Status comm_send(Comm *c, const Tensor *t, int peer, int tag, CommRequest *out);
Status comm_recv(Comm *c, const Tensor *t, int peer, int tag, CommRequest *out);
/* Is it done? Never waits. A request that is done is none. */
Status comm_test(Comm *c, CommRequest *r, bool *done);
/* Until it is done; others go on meanwhile. */
Status comm_wait(Comm *c, CommRequest *r);

/* This rank ends with `why`; all waits of all others end, too. Returns at once; safe at any time.
 * To be called before memory goes that transfers of this rank may still use. */
void comm_abort(Comm *c, const char *why);

/* Seconds that this rank has waited for others so far. */
double comm_waited_s(const Comm *c);

/* Who asks where this rank stands. */
void comm_set_place(Comm *c, CommPlace place);

/* A flag that a signal's handler sets: a wait that goes on for patience_s after it was seen set
 * fails, for mpirun sends SIGTERM to all when one of them has died. */
void comm_set_stop(Comm *c, const volatile sig_atomic_t *stop, double patience_s);

#ifdef __cplusplus
}
#endif

#endif
