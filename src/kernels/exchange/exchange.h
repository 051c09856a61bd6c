/*
 * exchange: communication between ranks as ops, so that it is counted, traced and priced like all other work.
 *
 * Dispatch sends tokens to the ranks of their experts; combine brings the results back and sums
 * them. Rank i of n has the experts [i E / n, (i + 1) E / n). A kind of exchange is a way in which
 * rows travel: a line of exchange.def, and a file exchange_NAME.c whose header describes it.
 *
 * exchange_place decides once which row a token takes, for kinds that have offsets. These are kept,
 * because gradients travel the same way. Sums are in f32, in the order of ranks.
 *
 * A hierarchical kind sends a token once to each host. It goes to the relay: the rank there that
 * has the sender's number inside its host. The relay passes the token on to the ranks of its
 * experts, and sums what comes back from them. Relays keep the offsets of what they pass on, too.
 *
 * Dispatched rows are plain or 8-bit. With 8-bit rows their scales travel like the routing, as one
 * more tensor of rows. Rows that come back are plain, because they are sums.
 *
 * Collectives work on rows. ALL_GATHER stacks the rows of all ranks, REDUCE_SCATTER is its reverse with sums, SHIFT
 * gets the next rank's rows (a ring), ALL_REDUCE sums (or takes the largest) and BROADCAST copies in place.
 *
 * These ops are not called on a mesh of one rank.
 */
#ifndef KERNELS_EXCHANGE_EXCHANGE_H
#define KERNELS_EXCHANGE_EXCHANGE_H

#include "engine/comm/mesh.h"
#include "kernels/core/kinds.h"
#include "kernels/core/work.h"
#include "kernels/moe/moe.h"

struct Exec;
struct OpCost;

/* offset[n][i]: the row in which token n goes to the i-th of its ranks, in the order of ranks. It is rank * C + the
 * number of earlier tokens that go to that rank. -1: the token has no i-th rank, or its rank had no room (then
 * overflow is set). For a compact kind C = N, because only the receiver's total is bounded. */
typedef struct ExchangePlace {
    Tensor index;    /* in  (N, K) i32; with `elsewhere` -1 means no expert, and so no rank */
    Tensor offset;   /* out (N, K) i32 */
    Tensor overflow; /* add (1) f32, optional: 1 if a row had no room, else left as it is */
    Tensor count;    /* out (1, ranks) i32, optional: rows that go to each rank */
    int64_t experts, ranks;
    int64_t room; /* C */
    bool elsewhere;
} ExchangePlace;

/* The ranks of an expert group, `inside` of them on each host. uneven: hosts have different numbers
 * of them; then inside is 1, as if each rank were on a host of its own. */
typedef struct ExchangeShape {
    int64_t experts, top_k, ranks, inside;
    bool uneven;
} ExchangeShape;

static inline int64_t exchange_hosts(const ExchangeShape *s) { return s->ranks / s->inside; }

/* Hierarchical kinds only: where the L rows go that came to this relay, L / hosts from each host. */
typedef struct ExchangeRelay {
    Tensor offset;   /* (L, K) i32: as ExchangePlace.offset, among the ranks of this host */
    int64_t inside;  /* ranks on each host */
    double expected; /* rows of L that are expected to be used, for costs */
} ExchangeRelay;

typedef struct ExchangeDispatch {
    Operand x;            /* in  (N, D): act, or 8-bit with scales of rows or 1 x 128 */
    Tensor index, weight; /* in  (N, K) i32, f32: optional, with x's rows */
    /* in  (N, K) i32: only for kinds with offsets; of a hierarchical kind among hosts */
    Tensor offset;
    /* in  (1, ranks) i32: rows that go to each rank; compact kinds need it with index */
    Tensor count;
    /* add (1, ranks + 1) i32, compact kinds only: the row at each rank where this rank's tokens
     * begin, and last the number of rows that came here. Written if index is given, else read */
    Tensor first;
    ExchangeRelay relay; /* add: written if index is given, else read */
    /* add (1) f32, optional, with index: 1 if a relay, or the receiver of a compact kind, had no room for a row */
    Tensor overflow;
    Operand rows; /* out (M, D), as x */
    /* out (M, K) i32, optional: index among this rank's experts; -1: on another rank */
    Tensor rows_index;
    Tensor rows_weight; /* out (M, K) f32, optional */
    Rows received;      /* of M */
    int64_t ranks, experts;
    ExchangeKind kind;
} ExchangeDispatch;

typedef struct ExchangeCombine {
    Tensor x; /* in  (M, D) act: one row for each received one */
    /* in  (M, K) f32, optional: sent back with the rows; 0 for experts of other ranks */
    Tensor rows_weight;
    Tensor offset;           /* in  (N, K) i32: only for kinds with offsets */
    Tensor first;            /* in  (1, ranks + 1) i32: as dispatch left it */
    ExchangeRelay relay;     /* in: as dispatch left it */
    Tensor shared, residual; /* in  (N, D) act, optional: also added to y */
    Tensor y;                /* out (N, D) act */
    Tensor weight;           /* out (N, K) f32, optional */
    Rows received;
    int64_t ranks;
    ExchangeKind kind;
} ExchangeCombine;

typedef struct Collective {
    Tensor in, out; /* (rows, C) of one type */
    OpComm kind;
    int axis; /* of the mesh */
    /* The group. For an axis other than dp leave it GROUP_WORLD: then the axis gives the group. */
    MeshGroup group;
    int root;     /* of a broadcast, in the group */
    bool largest; /* an all-reduce takes the largest instead of the sum */
    /* A gather or a reduce-scatter works on so many equal parts of the rows, one after the other: sequences, of
     * each of which every rank has a run of tokens. 0 is 1. */
    int64_t parts;
    int64_t ranks;
} Collective;

/* The buffers of a rank that others access: rows, and what travels with them. */
enum { PEER_ROWS, PEER_SCALES, PEER_EXPERTS, PEER_WEIGHTS, PEER_BUFFERS };

/* What a kind's steps and kernels need in addition to the op's arguments. Valid for one call. */
typedef struct ExchangeRows {
    Comm *all;                 /* the ranks that exchange */
    const CommWindow *peers;   /* their memory; NULL: none is open */
    uint64_t at[PEER_BUFFERS]; /* offsets, in this rank's window, of buffers that peers access */
    Operand x;                 /* rows in the workspace; data NULL: they do not travel */
    Tensor index, weight;
} ExchangeRows;

/* The kernels of a kind on one backend. They run between calls of comm, or replace these. */
typedef struct ExchangeLocal {
    Status (*dispatch_rows)(struct Exec *ex, const ExchangeDispatch *a, const ExchangeRows *rows);
    Status (*combine_rows)(struct Exec *ex, const ExchangeCombine *a, const ExchangeRows *rows);
} ExchangeLocal;

/* The groups of an exchange: all ranks of the experts, those on this rank's host, and those with
 * this rank's number on every host. */
typedef struct ExchangeGroups {
    Comm *all, *inside, *across;
} ExchangeGroups;

/* What the cost of an exchange depends on. */
typedef struct ExchangeLoad {
    double received, relayed; /* rows that a rank expects */
    double row;               /* bytes of a row */
    double home;              /* bytes of the tokens' tensors, read or written at their own rank */
    int64_t ranks, inside;
} ExchangeLoad;

/* Rows that a rank sends for each of its tokens, on average. */
typedef struct ExchangeVolume {
    double between; /* to other hosts */
    double inside;  /* to other ranks of this host */
} ExchangeVolume;

typedef struct ExchangeDesc {
    const char *name;
    /* True: a token has rows only at the ranks of its experts, at the offsets that exchange_place
     * gives. False: it has a row at every rank. */
    bool offsets;
    bool hierarchical; /* `offset` is by host, relay.offset by rank inside the host */
    /* True: a rank's rows are contiguous, by source rank and token, and only their total is bounded.
     * Needs offsets and `first`. False: blocks of one size. */
    bool compact;
    /* Above 0: ranks store directly into each other's memory (exchange_open). The first
     * header_bytes of that memory hold the kind's own flags. */
    size_t header_bytes;
    int ranks_most; /* with header_bytes: the most ranks that the flags have room for */
    /* How many rows a rank receives on average for each token of one rank. */
    double (*rows)(int64_t experts, int64_t top_k, int64_t ranks);
    ExchangeVolume (*volume)(const ExchangeShape *s);
    struct OpCost (*cost)(const ExchangeLoad *load);
    /* Bytes at ex->workspace, on both backends. */
    size_t (*dispatch_workspace)(const ExchangeDispatch *a);
    size_t (*combine_workspace)(const ExchangeCombine *a);
    /* The two ops, for both backends. The kind decides how rows travel: by calls of comm, or by
     * stores into peers' memory (comm_window). g->all has a->ranks ranks; the caller checked it. */
    Status (*dispatch)(struct Exec *ex, const ExchangeGroups *g, const ExchangeDispatch *a,
                       const ExchangeLocal *l);
    Status (*combine)(struct Exec *ex, const ExchangeGroups *g, const ExchangeCombine *a,
                      const ExchangeLocal *l);
    ExchangeLocal cpu; /* a GPU's is exchange_NAME_gpu, in exchange_NAME.cu */
} ExchangeDesc;

#ifdef __cplusplus
extern "C" {
#endif

/* Indexed by ExchangeKind. */
extern const ExchangeDesc *const exchange_kinds[EXCHANGE_KINDS];

#define EXCHANGE(KIND, name)                                                                       \
    extern const ExchangeDesc exchange_##name;                                                     \
    ExchangeLocal exchange_##name##_gpu(void);
#include "kernels/exchange/exchange.def"
#undef EXCHANGE

/* The mean number of different ranks that a token goes to. e experts lie in `groups` equal groups; k of them, chosen
 * uniformly without repetition, lie in groups (1 - C(e - e/groups, k) / C(e, k)) groups. */
double exchange_distinct(int64_t experts, int64_t top_k, int64_t groups);

/* Can this kind be used for these ranks? A kind that stores into peer memory needs one host. */
bool exchange_reaches(ExchangeKind kind, const ExchangeShape *s);

/* The kind whose rows take the least time, if a row between hosts takes EXCHANGE_BETWEEN times as
 * long as a row inside a host. Of equals the first. */
ExchangeKind exchange_choose(const ExchangeShape *s);
/* 450 GB/s of NVLink over 50 GB/s of the network card, per GPU (H100 and H200, data sheets). */
enum { EXCHANGE_BETWEEN = 9 };

/* Opens `bytes` at `base` to the other ranks of the experts, if the kind stores into peer memory.
 * base is a block of the backend (comm_window). Its first header_bytes belong to the kind; the rest
 * must hold every buffer that dispatch writes and combine reads. Collective; the window lives in
 * `a`. ERR_UNSUPPORTED: the ranks are too many, or the block too small.
 *
 * Call exchange_close after the last exchange and before the block is freed. It reports no failure
 * and is safe on an Exec that opened nothing. */
Status exchange_open(struct Exec *ex, ExchangeKind kind, void *base, size_t bytes, Arena *a);
/* On GPUs: opens such a block to the other ranks of tp, so that gathers and reduce-scatters of their rows
 * (AXIS_TP) go into and out of peers' memory. `map` is collective and may fail on some ranks only. If all ranks agree
 * that it succeeded, they call `start`, also collective. `flags` is the offset of the flag area, which takes
 * the header_bytes of EXCHANGE_DIRECT. exchange_close closes this window, too. */
Status exchange_rows_map(struct Exec *ex, void *base, size_t bytes, size_t flags, Arena *a,
                         CommWindow *out);
Status exchange_rows_start(struct Exec *ex, CommWindow *w);
void exchange_close(struct Exec *ex);
/* Runs a collective through comm, which handles both memories. */
Status exchange_collective_comm(struct Exec *ex, const Collective *a);
/* Is t in this rank's window of r? Then *at is its offset there, in bytes. */
bool exchange_window_offset(const ExchangeRows *r, const Tensor *t, uint64_t *at);
/* Does this collective work in peers' memory? The same on all ranks. Then *out says where, and
 * exchange_rows_run runs it on a GPU (exchange_rows.cu). */
bool exchange_rows_direct(const struct Exec *ex, const Collective *a, ExchangeRows *out);
Status exchange_rows_run(struct Exec *ex, const Collective *a, const ExchangeRows *r);

/* Run the two ops with their kind's kernels for a backend. */
Status exchange_dispatch_run(struct Exec *ex, const ExchangeDispatch *a, const ExchangeLocal *l);
Status exchange_combine_run(struct Exec *ex, const ExchangeCombine *a, const ExchangeLocal *l);

/* Number of blocks into which a rank sorts its outgoing tokens: one for each of `ranks`, or, with a
 * hierarchical kind, one for each host of `inside` ranks. */
int64_t exchange_blocks(ExchangeKind kind, int64_t ranks, int64_t inside);

/* Shared by several kinds:
 *   exchange_copied    the cost if rows are written on both sides
 *   exchange_straight  the volume if a token goes directly to each rank of its experts
 *   exchange_no_rows   marks all rows as unused: experts -1, weights 0
 *   exchange_pack      copies tokens to their offsets, on the CPU (_gpu: on a GPU)
 *   exchange_unpack    makes y and weight from the rows at the tokens' offsets; without offsets a
 *                      token has one row */
struct OpCost exchange_copied(const ExchangeLoad *load);
ExchangeVolume exchange_straight(const ExchangeShape *s);
Status exchange_no_rows(struct Exec *ex, const Tensor *index, const Tensor *weight);
Status exchange_pack(struct Exec *ex, const ExchangeDispatch *a, const ExchangeRows *out);
Status exchange_pack_gpu(struct Exec *ex, const ExchangeDispatch *a, const ExchangeRows *out);
Status exchange_unpack(struct Exec *ex, const ExchangeCombine *a, const ExchangeRows *back);

/* Send tokens to the members of c that have their experts, in blocks of one size, and bring results
 * back: all of alltoall, or one stage of hier (exchange_blocks.c). The workspace begins at `at`. */
size_t exchange_blocks_out_bytes(const ExchangeDispatch *a);
size_t exchange_blocks_back_bytes(const ExchangeCombine *a);
Status exchange_blocks_out(struct Exec *ex, Comm *c, const ExchangeDispatch *a,
                           const ExchangeLocal *l, void *at);
Status exchange_blocks_back(struct Exec *ex, Comm *c, const ExchangeCombine *a,
                            const ExchangeLocal *l, void *at);

/* Bytes of a row of t; 0 if t has no data. */
static inline size_t exchange_row_bytes(const Tensor *t)
{
    return t->data == NULL ? 0 : (size_t)tensor_cols(t) * dtype_bytes(t->dtype);
}

/* exchange_rows_bytes: bytes of `rows` rows like those of t; 0 if t has no data. exchange_rows_at:
 * a tensor of these rows at *at; moves *at past them. _operand_: of data and scales. */
size_t exchange_rows_bytes(const Tensor *t, int64_t rows);
Tensor exchange_rows_at(const Tensor *t, int64_t rows, char **at);
size_t exchange_operand_bytes(const Operand *q, int64_t rows);
Operand exchange_operand_at(const Operand *q, int64_t rows, char **at);
/* Workspace of exchange_place over `ranks` ranks: a counter for each. */
size_t exchange_place_bytes(int64_t ranks);

/* An expert's index on the rank that has experts [first, first + here); -1: another rank has it. */
static inline int32_t exchange_local_expert(int64_t expert, int64_t first, int64_t here)
{
    int64_t e = expert - first;
    return e >= 0 && e < here ? (int32_t)e : -1;
}

#ifdef __cplusplus
}
#endif

#define OPS_EXCHANGE
#include "kernels/core/declare.h"
#undef OPS_EXCHANGE

#endif
