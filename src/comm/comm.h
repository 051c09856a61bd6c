/*
 * comm: a group of ranks that talk to each other.
 *
 * There are four implementations: self (a group of one), thread (N ranks as N threads of one
 * process, for tests and `--ranks`), mpi (processes, CPU memory) and nccl (GPU memory, on a
 * stream). A counting run needs none: ops are counted before they come here. Opening a world
 * chooses the implementation; comm_split makes all other groups.
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

/* Blocks of a kernel of NCCL, each of which takes a multiprocessor. */
enum {
    COMM_BLOCKS = 24,   /* of a collective */
    COMM_FEW_BLOCKS = 4 /* of a transfer beside passes: it has time, and each block takes memory */
};

typedef struct Comm Comm;
typedef struct CommWorld CommWorld;
typedef struct CommTable CommTable;

typedef enum ReduceOp { REDUCE_SUM, REDUCE_MAX } ReduceOp;

struct Comm {
    const CommTable *table;
    CommWorld *world;
    const char *name;  /* of the group, for sentences: "world", "ep" */
    int rank, size;    /* this rank's number in the group; members */
    const int *member; /* (size) their ranks in the world */
    int number;        /* the group's number, the same on all members. It separates this group's
                          messages from those of other groups. */
    void *own;         /* the implementation's data */
};

/* What kernels that wait for other members look at, in memory of the host that the GPU reaches. */
typedef struct CommSpin {
    int32_t over; /* the host, or a kernel: there is no hope, leave */
    int32_t lost; /* a kernel: 1 + the member for which it waited in vain */
} CommSpin;

/* Memory that members load from and store to without a call: peer[r] is where member r's memory
 * lies in this rank's address space. */
typedef struct CommWindow {
    void **peer; /* (size) by member, this one included */
    size_t bytes;
    CommSpin *spin;   /* of GPUs; NULL: kernels do not wait */
    double timeout_s; /* after which a kernel gives up */
} CommWindow;

/* A transfer that has begun and is not known to be done; zeroed: none. */
typedef struct CommRequest {
    int slot; /* number in the world's table, from 1 */
} CommRequest;

/* Says where in the step this rank is. Called only for the sentence of a wait that failed. */
typedef struct CommPlace {
    void (*say)(void *self, char *out, int out_bytes); /* "step 12: forward of micro-batch 3 ..." */
    void *self;
} CommPlace;

/* Opens a world of `ranks` threads, which run `body`; returns when all have ended. timeout_s: of a wait.
 * The first failure is returned with its message; its rank in *failed (or -1). */
typedef Status CommBody(void *state, Comm *world);
Status comm_threads(int ranks, double timeout_s, CommBody *body, void *state, int *failed);

/* comm_mpi opens the world of all processes of mpirun or srun, once. ERR_UNSUPPORTED in a build
 * without MPI. comm_launched, which needs no MPI: how many processes mpirun or srun has started (1
 * if neither did); comm_launched_rank: which of them this is. */
Status comm_mpi(Arena *a, double timeout_s, Comm **out);
int comm_launched(void);
int comm_launched_rank(void);
/* This rank's number among the ranks of its host, from 0; and how many ranks the host has. */
int comm_local_rank(const Comm *world);
int comm_local_ranks(const Comm *world);
/* How many ranks each host has. Collective. ERR_ARG unless that is the same on all hosts, and the
 * ranks of each follow each other. comm_hosts_of: the same by the names of the ranks' hosts. */
typedef struct CommHostName {
    char text[64]; /* Linux allows no longer one */
} CommHostName;
Status comm_hosts(Comm *world, Arena *a, int *out);
Status comm_hosts_of(const CommHostName *name, int ranks, int *out);
bool comm_mpi_built(void);

/* Makes of the group `host` one for memory of the current GPU, on `stream` (a GpuStream).
 * Members meet over `host`, and the call is collective over it. ERR_UNSUPPORTED in a build without
 * CUDA. */
Status comm_nccl(Comm *host, void *stream, Arena *a, Comm **out);

/* To be called after the group's last call. The groups of a world are freed before the world. Of
 * processes, all free their world, or have failed. Safe on NULL. */
void comm_free(Comm *c);

/* Makes a group of the ranks that give the same color, ordered by key, then by rank. With a color
 * below 0 this rank is in no group, and *out is NULL. Collective. `name` must outlive the group. */
Status comm_split(Comm *c, int color, int key, const char *name, Arena *a, Comm **out);

/* Makes a second group of the same members. With NCCL it has a stream of its own, so that its calls
 * do not queue behind the first group's. On the host it is comm_split with one color. */
Status comm_again(Comm *c, void *stream, const char *name, Arena *a, Comm **out);

/* Makes of a group one of the same members whose calls send nothing (null.c says what they give
 * instead), for measuring alone; NULL of NULL. Freeing it frees `real`. comm_real: the group that
 * `c` was made of; of any other group itself. */
Status comm_null(Comm *real, Arena *a, Comm **out);
Comm *comm_real(Comm *c);

/* t = op over the members' t. f32, bf16, i32. */
Status comm_all_reduce(Comm *c, const Tensor *t, ReduceOp op);
/* out = this member's part (one of `size` equal ones) of the sum of all members' in. out may be
 * that part of in. */
Status comm_reduce_scatter(Comm *c, const Tensor *in, const Tensor *out);
/* out = all members' in, by rank. in may be this member's part of out. */
Status comm_all_gather(Comm *c, const Tensor *in, const Tensor *out);
/* Part r of in goes to member r; part r of out comes from it. All parts are equal; in is not out.
 */
Status comm_all_to_all(Comm *c, const Tensor *in, const Tensor *out);
/* Copies t of member `root` to t of all members. */
Status comm_broadcast(Comm *c, const Tensor *t, int root);
Status comm_barrier(Comm *c);

/* Says whether it makes sense to wait on for a stream that runs calls of this world's groups, after
 * waited_s seconds. Never waits itself. ERR_COMM: another rank has ended, NCCL found an error, or
 * the deadline has passed; all groups are then given up. Graphs with calls are freed before their
 * groups. */
Status comm_watch(Comm *c, double waited_s);

/* On a GPU: later calls go to this stream (a GpuStream) and run after earlier ones. */
void comm_set_stream(Comm *c, void *stream);

/* On a GPU: memory and links between all pairs of members, so that transfers and all_to_all of this
 * group are launches from the first on. Collective; before a capture. */
Status comm_connect(Comm *c);

/* All transfers between batch_begin and batch_end begin as one. On a GPU a send holds up its stream
 * until the other side receives, so members that all send first would block each other. On the host
 * this does nothing. */
Status comm_batch_begin(Comm *c);
Status comm_batch_end(Comm *c);

/* Opens `bytes` at `base`, a block of the group's backend from its first byte on, to all members.
 * Collective, once for memory that stays: peer's array lives in `a`. Nothing orders loads and stores
 * of members: the caller puts a barrier between stores and loads, and another before the next
 * stores; on GPUs a stream's own work orders them too, with flags in the window. ERR_SHAPE: members
 * give unequal lengths. ERR_UNSUPPORTED: members cannot reach each other's memory: processes on the
 * CPU, hosts, GPUs without peer access (two of them are named). A group of one always can. */
Status comm_window(Comm *c, void *base, size_t bytes, Arena *a, CommWindow *out);
/* Returns when no member touches this rank's memory any more: all have closed the window, or
 * timeout_s have passed. Before that memory is freed, and before comm_free; after a failure behind
 * comm_abort, so that the others come. Safe on a window that was not opened. */
void comm_window_close(Comm *c, CommWindow *w);

/* Begin to send and receive. Messages of one tag (0 .. COMM_TAGS - 1) between two members arrive in
 * the order in which they were sent. Nobody else may touch the memory until the transfer is done.
 * On a GPU a transfer is a launch, and counts as done at once. */
enum { COMM_TAGS = 256 };
Status comm_send(Comm *c, const Tensor *t, int peer, int tag, CommRequest *out);
Status comm_recv(Comm *c, const Tensor *t, int peer, int tag, CommRequest *out);
/* Is the transfer done? Never waits. A request that is done is zeroed. */
Status comm_test(Comm *c, CommRequest *r, bool *done);
/* Waits until the transfer is done; other transfers go on meanwhile. */
Status comm_wait(Comm *c, CommRequest *r);

/* Ends this rank with `why`: all waits of all other ranks end with it, too. Returns at once; safe
 * at any time. To be called before memory is freed that transfers of this rank may still use. */
void comm_abort(Comm *c, const char *why);

/* Seconds that this rank has waited for others so far. */
double comm_waited_s(const Comm *c);

/* Sets whom failed waits ask where this rank is. */
void comm_set_place(Comm *c, CommPlace place);

/* `stop` is a flag that a signal handler sets. A wait that still goes on patience_s after the flag
 * was seen fails, because mpirun sends SIGTERM to all when one of them has died. */
void comm_set_stop(Comm *c, const volatile sig_atomic_t *stop, double patience_s);

#endif
