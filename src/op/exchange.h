/*
 * exchange: communication between ranks as ops, so that it is counted, traced and priced like all
 * other work.
 *
 * Tokens go to the ranks of their experts and back: rank i of n has the experts [i E / n, (i + 1) E
 * / n). How they go is a kind of exchange, a row of a table (ExchangeDesc): a line of exchange.def
 * and a file of its own, exchange_NAME.c, whose head says how its rows travel. Which row a token
 * takes is decided once (exchange_place, for kinds that have places) and kept: gradients go the
 * same ways. Sums are in f32, in the order of ranks. A kind that relays sends a token once to each
 * host, to the rank there that has this rank's number inside its host; that relay passes it on to
 * the ranks of its experts, and adds up what comes back from them. Relays keep their places, too.
 *
 * Collectives are over rows: ALL_GATHER makes out = the in of all ranks one below the other,
 * REDUCE_SCATTER is its reverse with sums, SHIFT gets the next rank's in (a ring), ALL_REDUCE sums
 * in place.
 *
 * A mesh of one rank never comes here.
 */
#ifndef OP_EXCHANGE_H
#define OP_EXCHANGE_H

#include "comm/mesh.h"
#include "op/kinds.h"
#include "op/moe.h"
#include "op/work.h"

struct Exec;
struct OpCost;

/* place[n][i]: the row in which token n goes out to the i-th of its ranks, in the order of ranks.
 * It is rank * C + the number of earlier tokens that go to that rank. -1: the token has no i-th
 * rank, or there was no room (then overflow is set). Of a kind without gaps C is N: the room is
 * what the receiver has for all. */
typedef struct ExchangePlace {
    Tensor index;    /* in  (N, K) i32; -1 with `elsewhere`: no expert, which has no rank */
    Tensor place;    /* out (N, K) i32 */
    Tensor overflow; /* add (1) f32, optional: 1 if a row had no room, else left as it is */
    Tensor count;    /* out (1, ranks) i32, optional: rows that go to each rank */
    int64_t experts, ranks;
    int64_t room; /* C */
    bool elsewhere;
} ExchangePlace;

/* How the ranks of the experts lie: so many, `inside` of them on each host. uneven: that is not the
 * same for all groups and hosts; then inside is 1, as if each were on a host of its own. */
typedef struct ExchangeShape {
    int64_t experts, top_k, ranks, inside;
    bool uneven;
} ExchangeShape;

static inline int64_t exchange_hosts(const ExchangeShape *s) { return s->ranks / s->inside; }

/* Only for kinds that relay: how the L rows go on that came to this rank, L / hosts of each host. */
typedef struct ExchangeRelay {
    Tensor place;    /* (L, K) i32: as in ExchangePlace, in what goes to each rank of the host */
    int64_t inside;  /* ranks on each host */
    double expected; /* how many of L */
} ExchangeRelay;

typedef struct ExchangeDispatch {
    Tensor x;             /* in  (N, D) act */
    Tensor index, weight; /* in  (N, K) i32, f32: optional, with x's rows */
    Tensor place; /* in  (N, K) i32: only for kinds with places; of a kind that relays, in what goes
                     to each host */
    Tensor count; /* in  (1, ranks) i32: rows that go to each rank; a kind without gaps needs it
                     with index */
    /* add (1, ranks + 1) i32: only of a kind without gaps: the row at each rank from which on this
     * rank's tokens lie; last how many came here. Made with index, else read */
    Tensor first;
    ExchangeRelay relay; /* add: made with index, else read */
    /* add (1) f32, optional, with index: as in ExchangePlace, of relay.place, or of all that come to
     * a rank that has them without gaps */
    Tensor overflow;
    Tensor rows; /* out (M, D) act */
    /* out (M, K) i32, optional: number among this rank's experts; -1: not here */
    Tensor rows_index;
    Tensor rows_weight; /* out (M, K) f32, optional */
    Rows received;      /* of M */
    int64_t ranks, experts;
    ExchangeKind kind;
} ExchangeDispatch;

typedef struct ExchangeCombine {
    Tensor x; /* in  (M, D) act: one row for each received one */
    /* in  (M, K) f32, optional: go back with the rows; 0 for experts elsewhere */
    Tensor rows_weight;
    Tensor place;            /* in  (N, K) i32: only for kinds with places */
    Tensor first;            /* in  (1, ranks + 1) i32: as dispatch left it */
    ExchangeRelay relay;     /* in: as dispatch left it */
    Tensor shared, residual; /* in  (N, D) act, optional: y's other summands */
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
    /* The group; for another axis than dp leave it GROUP_WORLD: the axis names it. */
    MeshGroup group;
    int root; /* of a broadcast, in the group */
    int64_t ranks;
} Collective;

/* What a kind's steps and kernels need beside the op's arguments. */
typedef struct ExchangeRows {
    Comm *all;               /* who exchange */
    const CommWindow *peers; /* their memory; NULL: none is open */
    uint64_t at[3];          /* bytes from its window's front to the buffers that others reach */
    Tensor x, index, weight; /* rows in the workspace; data NULL: they do not travel */
} ExchangeRows;

/* The kernels of a kind on one backend, run between calls of comm or instead of them. */
typedef struct ExchangeLocal {
    Status (*dispatch_rows)(struct Exec *ex, const ExchangeDispatch *a, const ExchangeRows *rows);
    Status (*combine_rows)(struct Exec *ex, const ExchangeCombine *a, const ExchangeRows *rows);
} ExchangeLocal;

/* Who exchanges: all ranks of the experts; of these the ones on this rank's host, and those with
 * this rank's number on all hosts. */
typedef struct ExchangeGroups {
    Comm *all, *inside, *across;
} ExchangeGroups;

/* What a cost is made of. */
typedef struct ExchangeLoad {
    double received, relayed; /* rows that a rank expects */
    double row;               /* bytes of a row */
    double home;              /* bytes that are read and written at the tokens' rank */
    int64_t ranks, inside;
} ExchangeLoad;

/* Rows that a rank sends for each of its tokens, on average. */
typedef struct ExchangeVolume {
    double between; /* hosts */
    double inside;  /* to other ranks of its host */
} ExchangeVolume;

typedef struct ExchangeDesc {
    const char *name;
    /* True: a token has rows only at the ranks of its experts, at the places that exchange_place
     * gives, and the M rows of a rank are blocks of one size. False: a row at every rank. */
    bool places;
    bool relays;  /* tokens go to hosts first: places are by host, and relay has those inside it */
    bool gapless; /* a rank's rows lie one behind the other, by source rank and token, and only
                     their number is bounded; there are places, and `first` */
    /* Above 0: ranks store directly into each other's memory (exchange_open), whose first header_bytes
     * hold the kind's own flags. */
    size_t header_bytes;
    int ranks_most; /* of these */
    /* How many rows a rank receives on average for each token of one rank. */
    double (*rows)(int64_t experts, int64_t top_k, int64_t ranks);
    ExchangeVolume (*volume)(const ExchangeShape *s);
    struct OpCost (*cost)(const ExchangeLoad *load);
    /* Bytes at ex->workspace, on both backends. */
    size_t (*dispatch_workspace)(const ExchangeDispatch *a);
    size_t (*combine_workspace)(const ExchangeCombine *a);
    /* Whole steps, for both backends. The kind decides how rows travel: by calls of comm, or by
     * stores into peers' memory (comm_window). The groups have as many ranks as a says. */
    Status (*dispatch)(struct Exec *ex, const ExchangeGroups *g, const ExchangeDispatch *a,
                       const ExchangeLocal *l);
    Status (*combine)(struct Exec *ex, const ExchangeGroups *g, const ExchangeCombine *a,
                      const ExchangeLocal *l);
    ExchangeLocal cpu; /* a GPU's is exchange_NAME_cuda, in exchange_NAME.cu */
} ExchangeDesc;

#ifdef __cplusplus
extern "C" {
#endif

/* Indexed by ExchangeKind. */
extern const ExchangeDesc *const exchange_kinds[EXCHANGE_KINDS];

#define EXCHANGE(KIND, name)                                                                       \
    extern const ExchangeDesc exchange_##name;                                                     \
    extern const ExchangeLocal exchange_##name##_cuda;
#include "op/exchange.def"
#undef EXCHANGE

/* The mean number of different ranks that a token goes to. e experts lie in `groups` equal groups;
 * k of them, chosen uniformly without repetition, lie in groups (1 - C(e - e/groups, k) / C(e, k))
 * groups. */
double exchange_distinct(int64_t experts, int64_t top_k, int64_t groups);

/* Do ranks lie so that the kind can be used? One that stores needs them on one host. */
bool exchange_reaches(ExchangeKind kind, const ExchangeShape *s);

/* The kind whose rows take the least time where one between hosts takes as long as
 * EXCHANGE_BETWEEN inside one; of equals the first. */
ExchangeKind exchange_choose(const ExchangeShape *s);
/* NVLink's 450 GB/s of a GPU beside the 50 GB/s of its NIC (H100 and H200, data sheets). */
enum { EXCHANGE_BETWEEN = 9 };

/* Opens `bytes` at `base` to the other ranks of the experts, if the kind stores into them: a block of
 * the backend (comm_window), whose first header_bytes are the kind's and in whose rest all lies that
 * its dispatch writes and its combine reads. Collective; the window lives in `a`. ERR_UNSUPPORTED
 * says what the ranks lack. exchange_close, behind the last exchange and before that memory goes; it
 * says nothing and is safe on an Exec that opened none. */
Status exchange_open(struct Exec *ex, ExchangeKind kind, void *base, size_t bytes, Arena *a);
void exchange_close(struct Exec *ex);

/* Run the two ops with their kind's kernels for a backend. */
Status exchange_dispatch_run(struct Exec *ex, const ExchangeDispatch *a, const ExchangeLocal *l);
Status exchange_combine_run(struct Exec *ex, const ExchangeCombine *a, const ExchangeLocal *l);

/* Into how many blocks a rank's tokens are sorted before they leave it: one for each of `ranks`, or,
 * with a kind that relays, for each host of `inside` ranks. */
int64_t exchange_blocks(ExchangeKind kind, int64_t ranks, int64_t inside);

/* For several kinds. exchange_copied: the cost if rows are written on both sides. exchange_straight:
 * the volume if a token goes straight to each rank of its experts. exchange_no_rows: marks all rows
 * as no data: experts -1, weights 0. exchange_pack: tokens to their places, on each backend.
 * exchange_unpack: makes y and weight from the rows at the tokens' places, or without places from
 * one row a token. */
struct OpCost exchange_copied(const ExchangeLoad *load);
ExchangeVolume exchange_straight(const ExchangeShape *s);
Status exchange_no_rows(struct Exec *ex, const Tensor *index, const Tensor *weight);
Status exchange_pack(struct Exec *ex, const ExchangeDispatch *a, const ExchangeRows *out);
Status exchange_pack_cuda(struct Exec *ex, const ExchangeDispatch *a, const ExchangeRows *out);
Status exchange_unpack(struct Exec *ex, const ExchangeCombine *a, const ExchangeRows *back);

/* Tokens to the members of c that have their experts, in blocks of one size, and back (a kind's
 * whole steps, or one stage of them; exchange_blocks.c). The workspace begins at `at`. */
size_t exchange_blocks_out_bytes(const ExchangeDispatch *a);
size_t exchange_blocks_back_bytes(const ExchangeCombine *a);
Status exchange_blocks_out(struct Exec *ex, Comm *c, const ExchangeDispatch *a,
                           const ExchangeLocal *l, void *at);
Status exchange_blocks_back(struct Exec *ex, Comm *c, const ExchangeCombine *a,
                            const ExchangeLocal *l, void *at);

/* exchange_rows_bytes: bytes of `rows` rows like those of t; 0 if t has no data. exchange_rows_at:
 * makes these rows at *at, and moves *at behind them. */
size_t exchange_rows_bytes(const Tensor *t, int64_t rows);
/* What places over so many ranks are counted in. */
size_t exchange_place_bytes(int64_t ranks);
Tensor exchange_rows_at(const Tensor *t, int64_t rows, char **at);

/* An expert's number on the rank of experts [first, first + here); -1: it is on another rank. */
static inline int32_t exchange_local_expert(int64_t expert, int64_t first, int64_t here)
{
    int64_t e = expert - first;
    return e >= 0 && e < here ? (int32_t)e : -1;
}

#ifdef __cplusplus
}
#endif

#define OPS_EXCHANGE
#include "op/declare.h"
#undef OPS_EXCHANGE

#endif
