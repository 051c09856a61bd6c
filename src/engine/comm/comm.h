/*
 * comm: groups of ranks that communicate: collectives, point-to-point transfers, windows.
 *
 * There are four implementations: thread (N ranks as N threads of one process, for tests and
 * `--ranks`; also a group of one), mpi and tcp (processes, CPU memory) and nccl (GPU memory, on a stream).
 * null.c replaces one of them to measure a step without its traffic. A counting run needs no group:
 * ops are counted before they get here. Opening a world chooses the implementation; comm_split makes
 * all other groups. Which ranks form which group is decided in mesh.h.
 *
 * Lengths come from tensors; no call takes a count. Every member of a group calls the same
 * collectives in the same order. On the host, sums are added in the order of ranks, in f32 for every
 * floating type. So threads and processes give the same bits in every run. NCCL's sums have other bits,
 * but also the same in every run, because its algorithm and protocol are fixed by size.
 *
 * On the host a collective is complete when it returns. On a GPU every call is a launch on the group's
 * stream, in order with its kernels. It can be captured in a graph, and the host does not wait.
 *
 * Every wait has a timeout (comm.timeout_s). Then it fails with ERR_COMM. The error names the rank it
 * waited for, the call, the time, and where in the step this rank was (CommPlace). A rank that fails
 * for another reason calls comm_abort: the waits of the other ranks then end with its reason.
 */
#ifndef ENGINE_COMM_COMM_H
#define ENGINE_COMM_COMM_H

#include "engine/base/tensor.h"

#include <signal.h>
#include <stdbool.h>

/* Blocks of an NCCL kernel. Each occupies a multiprocessor (SM) while it runs. */
enum {
    COMM_BLOCKS = 24, /* for a collective */
    /* Where ranks of tp gather rows, for which compute waits: a step of Llama 3 8B (8 layers, tp 2) on two
     * H200s takes 991 ms with 24 blocks, 983 with 32, 981 with 48, which need half a gigabyte more. */
    COMM_TENSOR_BLOCKS = 32,
    COMM_FEW_BLOCKS =
        4 /* for a transfer that overlaps with passes: it is not urgent, and each block
                           needs buffer memory */
};

typedef struct Comm Comm;
typedef struct CommWorld CommWorld;
typedef struct CommTable CommTable;

typedef enum ReduceOp { REDUCE_SUM, REDUCE_MAX } ReduceOp;

struct Comm {
    const CommTable *table;
    CommWorld *world;
    const char *name;  /* of the group, for messages: "world", "ep" */
    int rank, size;    /* this rank's number in the group; members */
    const int *member; /* (size) their ranks in the world */
    int number;        /* the group's number, the same on all members. It separates this group's
                          messages from those of other groups. */
    void *own;         /* the implementation's data, in the arena that the group was made in */
    bool mirror;       /* nothing is sent: every member counts as a copy of this rank (bench) */
};

/* Flags in pinned host memory, polled by kernels that wait for other members. */
typedef struct CommSpin {
    int32_t over; /* set by the host or a kernel: give up waiting and return */
    int32_t lost; /* set by a kernel that timed out: 1 + the member it waited for */
} CommSpin;

/* Memory that members load from and store to directly. peer[r] is the address of member r's memory in
 * this rank's address space. */
typedef struct CommWindow {
    void **peer; /* (size) by member, this one included */
    size_t bytes;
    size_t
        flags; /* offset of the flags with which members wait for each other; set by the window's user */
    CommSpin *spin;   /* for GPUs; NULL: kernels do not wait */
    double timeout_s; /* after this time a waiting kernel gives up */
} CommWindow;

/* A transfer that was begun and is not yet known to be done; zeroed: none. A transfer belongs to
 * the rank that began it. It must be tested or waited for until it is done, or its slot stays
 * taken. */
typedef struct CommRequest {
    int slot; /* number in the world's table, from 1 */
} CommRequest;

/* Callback that says where in the step this rank is. Called only for the message of a failed wait. */
typedef struct CommPlace {
    void (*say)(void *self, char *out, int out_bytes); /* "step 12: forward of micro-batch 3 ..." */
    void *self;
} CommPlace;

/* Opens a world of `ranks` threads that run `body`, and returns when all have ended. timeout_s is the
 * limit of one wait. Returns the first failure with its message; *failed is its rank, or -1. */
typedef Status CommBody(void *state, Comm *world);
Status comm_threads(int ranks, double timeout_s, CommBody *body, void *state, int *failed);

/* comm_processes opens the world of all processes that a launcher started; call it once. Over MPI if
 * mpirun started them, or srun with PMIx: ERR_UNSUPPORTED in a build without MPI. Else over TCP, by the
 * variables of torchrun (also Kubernetes) or of srun. `program` is the version, which must be equal on all
 * ranks. ERR_ARG: a variable makes no sense, or ranks differ. ERR_COMM: a rank has not come in time.
 * comm_launched: how many processes a launcher started (1: none did). comm_launched_rank: which of them
 * this is. comm_launch_check: ERR_ARG if variables of a launcher are missing or make no sense. */
Status comm_processes(Arena *a, double timeout_s, const char *program, Comm **out);
Status comm_mpi(Arena *a, double timeout_s, Comm **out);
Status comm_launch_check(void);
int comm_launched(void);
int comm_launched_rank(void);
/* mpirun and srun with PMIx merge what all ranks print, and end all ranks when one fails. */
bool comm_launched_by_mpi(void);
/* ", over MPI", ", over TCP (torchrun's variables)": how these processes meet; "" without a launcher. */
const char *comm_launched_how(void);
/* This rank's number among the ranks of its host, from 0; and how many ranks the host has. */
int comm_local_rank(const Comm *world);
int comm_local_ranks(const Comm *world);
/* How many ranks each host has. Collective. ERR_ARG unless that is the same on all hosts and the ranks
 * of each host are consecutive. comm_hosts_of computes it from the host name of each rank.
 * CommHostName travels as 32-bit numbers, so its size is a multiple of four. */
typedef struct CommHostName {
    char text[64]; /* Linux limits host names to 64 characters; a longer one is cut */
} CommHostName;
Status comm_hosts(Comm *world, Arena *a, int *out);
Status comm_hosts_of(const CommHostName *name, int ranks, int *out);
bool comm_mpi_built(void);

/* Makes a group with the members of `host` for memory of the current GPU, on `stream` (a GpuStream).
 * Collective over `host`, which the members use to set up NCCL and which must outlive the new group.
 * ERR_UNSUPPORTED in a build without CUDA.
 * Its collectives, and those of groups split from it, have `blocks` blocks. */
Status comm_nccl(Comm *host, void *stream, int blocks, Arena *a, Comm **out);

/* Call it after the group's last call. The groups of a world are freed before the world. Every process
 * must free its world unless it has failed. Safe on NULL. */
void comm_free(Comm *c);

/* Like MPI_Comm_split: makes a group of the ranks with the same color, ordered by key, then by rank.
 * With a color below 0 this rank is in no group and *out is NULL. Collective. `name` must outlive the
 * group. */
Status comm_split(Comm *c, int color, int key, const char *name, Arena *a, Comm **out);

/* Makes a second group with the same members, which can communicate at the same time as the first.
 * With NCCL it has its own communicator and stream. On the host it is comm_split with one color. */
Status comm_duplicate(Comm *c, void *stream, const char *name, Arena *a, Comm **out);

/* t = op over the members' t. f32, bf16, f16, i32. */
Status comm_all_reduce(Comm *c, const Tensor *t, ReduceOp op);
/* out = this member's part (one of `size` equal parts) of the sum of all members' in. out may alias
 * that part of in. */
Status comm_reduce_scatter(Comm *c, const Tensor *in, const Tensor *out);
/* out = all members' in, ordered by rank. in may alias this member's part of out. */
Status comm_all_gather(Comm *c, const Tensor *in, const Tensor *out);
/* Part r of in goes to member r; part r of out comes from member r. All parts have one size; in and out
 * must not overlap. */
Status comm_all_to_all(Comm *c, const Tensor *in, const Tensor *out);
/* Copies t of member `root` to t of all members. */
Status comm_broadcast(Comm *c, const Tensor *t, int root);
Status comm_barrier(Comm *c);

/* Says whether to go on waiting for a stream that runs calls of this world's groups, after waited_s
 * seconds. Never waits itself. ERR_COMM: another rank has ended, NCCL found an error, or the deadline
 * has passed; then all groups are aborted. Graphs that contain calls must be freed before their
 * groups. */
Status comm_watch(Comm *c, double waited_s);

/* On a GPU: later calls go to this stream (a GpuStream) and run after earlier ones. */
void comm_set_stream(Comm *c, void *stream);

/* On a GPU: sets up buffers and links between all pairs of members, which NCCL would otherwise do in
 * the first transfer or all_to_all and cannot do in a capture. Collective; call it before a capture. */
Status comm_connect(Comm *c);

/* All transfers between batch_begin and batch_end start together. On a GPU a send blocks its stream
 * until the other side receives, so members that all send first would deadlock. On the host this does
 * nothing. */
Status comm_batch_begin(Comm *c);
Status comm_batch_end(Comm *c);

/* Makes `bytes` at `base` accessible to all members. `base` must be the first byte of an allocation of
 * the group's backend. Collective; meant for memory that stays allocated. out->peer lives in `a`.
 *
 * Nothing orders the members' loads and stores. The caller puts a barrier between stores and loads, and
 * another before the next stores. On GPUs, flags in the window can order the work of streams instead.
 *
 * ERR_SHAPE: members give different lengths. ERR_UNSUPPORTED: members cannot reach each other's memory
 * (CPU processes, different hosts, GPUs without peer access; the error names two). A group of one
 * always can. */
Status comm_window(Comm *c, void *base, size_t bytes, Arena *a, CommWindow *out);
/* Returns when no member uses this rank's memory any more: all have closed the window, or timeout_s
 * seconds have passed. Call it before that memory is freed and before comm_free. After a failure call
 * comm_abort first, so that the other ranks stop waiting and close too. Safe on a window that was not
 * opened. */
void comm_window_close(Comm *c, CommWindow *w);

/* Begin a send or a receive. Messages with one tag (0 .. COMM_TAGS - 1) between two members arrive in
 * the order in which they were sent. The caller must not touch the memory until the transfer is done.
 * On a GPU a transfer is a launch in stream order, so comm_test reports it as done at once. */
enum { COMM_TAGS = 256 };
Status comm_send(Comm *c, const Tensor *t, int peer, int tag, CommRequest *out);
Status comm_recv(Comm *c, const Tensor *t, int peer, int tag, CommRequest *out);
/* Is the transfer done? Never waits. Zeroes a request that is done. */
Status comm_test(Comm *c, CommRequest *r, bool *done);
/* Waits until the transfer is done; other transfers make progress meanwhile. */
Status comm_wait(Comm *c, CommRequest *r);

/* Reports that this rank failed because of `why`. The waits of all other ranks then end with it.
 * Returns at once; safe at any time. Call it before freeing memory that transfers of this rank may
 * still use. */
void comm_abort(Comm *c, const char *why);

/* Seconds that this rank has waited for others so far. */
double comm_waited_s(const Comm *c);

/* Sets the callback that failed waits use to say where this rank is. */
void comm_set_place(Comm *c, CommPlace place);

/* `stop` is a flag that a signal handler sets. A wait that still lasts patience_s after it saw the flag
 * fails: mpirun sends SIGTERM to all processes when one has died, so the peer may be gone. SIGUSR2 does not count. */
void comm_set_stop(Comm *c, const volatile sig_atomic_t *stop, double patience_s);

/* The table that an implementation fills, one entry per call. comm.c has checked the arguments: tensors fit each
 * other and the group; peers, roots and tags are in range. */
struct CommTable {
    Status (*all_reduce)(Comm *c, const Tensor *t, ReduceOp op);
    Status (*reduce_scatter)(Comm *c, const Tensor *in, const Tensor *out);
    Status (*all_gather)(Comm *c, const Tensor *in, const Tensor *out);
    Status (*all_to_all)(Comm *c, const Tensor *in, const Tensor *out);
    Status (*broadcast)(Comm *c, const Tensor *t, int root);
    Status (*barrier)(Comm *c);
    Status (*send)(Comm *c, const Tensor *t, int peer, int tag, CommRequest *out);
    Status (*recv)(Comm *c, const Tensor *t, int peer, int tag, CommRequest *out);
    Status (*test)(Comm *c, CommRequest *r, bool *done);
    Status (*wait)(Comm *c, CommRequest *r);
    /* Begin and end a batch of transfers. */
    Status (*batch_begin)(Comm *c);
    Status (*batch_end)(Comm *c);
    /* Copies within this rank's memory, in order with the group's calls. */
    Status (*copy)(Comm *c, void *dst, const void *src, size_t bytes);
    /* Fills w->peer, which lies in `a`. */
    Status (*window)(Comm *c, void *base, size_t bytes, Arena *a, CommWindow *w);
    void (*window_close)(Comm *c, CommWindow *w);
    Status (*connect)(Comm *c);
    Status (*watch)(Comm *c, double waited_s);
    void (*set_stream)(Comm *c, void *stream);
    Status (*split)(Comm *c, int color, int key, const char *name, Arena *a, Comm **out);
    Status (*duplicate)(Comm *c, void *stream, const char *name, Arena *a, Comm **out);
    void (*free)(Comm *c);
    void (*abort)(Comm *c, const char *why);
};

/* `test` and `wait` for implementations in which a transfer is done as soon as it has begun. */
Status comm_done_at_once(Comm *c, CommRequest *r, bool *done);
Status comm_done(Comm *c, CommRequest *r);

#endif
