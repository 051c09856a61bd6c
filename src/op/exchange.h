/*
 * exchange: what a layer sends to other ranks and gets from them, as ops, so that it is counted,
 * traced and priced like everything else.
 *
 * Tokens go to the ranks of their experts and back: rank i of n has the experts [i E / n, (i + 1)
 * E / n). How they go is a kind of exchange, a row of a table (ExchangeDesc): a line of exchange.def
 * and a file of its own, exchange_NAME.c, whose head says how its rows travel. Which row a token
 * takes is decided once (exchange_place, for kinds that have places) and kept: gradients go the same
 * ways. Sums are in f32, in the order of ranks.
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
#include "op/moe.h"
#include "op/work.h"

struct Exec;
struct OpCost;

typedef enum ExchangeKind {
#define EXCHANGE(KIND, name) EXCHANGE_##KIND,
#include "op/exchange.def"
#undef EXCHANGE
    EXCHANGE_KINDS
} ExchangeKind;

enum { EXCHANGE_COUNT_MAX = 1024 }; /* ranks whose counts a host holds on the stack */

/* place[n][i]: the row, of those that go out, that token n takes on its way to the i-th of its
 * ranks by number: rank * C + how many tokens before it go there; -1: there is no such rank, or no
 * room (then overflow is set). */
typedef struct ExchangePlace {
    Tensor index;    /* in  (N, K) i32 */
    Tensor place;    /* out (N, K) i32 */
    Tensor overflow; /* add (1) f32, optional: 1 if a row had no room, else left as it is */
    Tensor count;    /* out (1, ranks) i32, optional: rows that go to each rank */
    int64_t experts, ranks;
    int64_t room; /* C */
} ExchangePlace;

typedef struct ExchangeDispatch {
    Tensor x;             /* in  (N, D) act */
    Tensor index, weight; /* in  (N, K) i32, f32: optional, with x's rows */
    Tensor place;         /* in  (N, K) i32: of kinds with places */
    Tensor count;         /* in  (1, ranks) i32, optional: only so many rows of each block go */
    Tensor rows;          /* out (M, D) act */
    Tensor rows_index;    /* out (M, K) i32, optional: of the experts here; -1: elsewhere, no row */
    Tensor rows_weight;   /* out (M, K) f32, optional */
    Rows received;        /* of M */
    int64_t ranks, experts;
    ExchangeKind kind;
} ExchangeDispatch;

typedef struct ExchangeCombine {
    Tensor x;           /* in  (M, D) act: one row for each received one */
    Tensor rows_weight; /* in  (M, K) f32, optional: go back with the rows; 0 in slots not here */
    Tensor place;       /* in  (N, K) i32: of kinds with places */
    Tensor count;       /* in  (1, ranks) i32, optional: as in dispatch */
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
    int axis;        /* of the mesh */
    MeshGroup group; /* GROUP_WORLD with another axis than dp: that of the axis */
    int64_t ranks;
} Collective;

/* What a step and its kernels have in common beside the op's arguments, as the kind needs it. */
typedef struct ExchangeRows {
    int rank;                /* this one, of those that exchange */
    const CommWindow *peers; /* memory of theirs that the kind has opened; NULL: none */
    Tensor x, index, weight; /* rows in the workspace; data NULL where they do not travel */
} ExchangeRows;

/* What the steps of a kind run on one backend, between their calls of comm or instead of them. */
typedef struct ExchangeLocal {
    Status (*dispatch_rows)(struct Exec *ex, const ExchangeDispatch *a, const ExchangeRows *rows);
    Status (*combine_rows)(struct Exec *ex, const ExchangeCombine *a, const ExchangeRows *rows);
} ExchangeLocal;

typedef struct ExchangeDesc {
    const char *name;
    /* A token has rows at the ranks of its experts alone, at the places that exchange_place gives;
     * the M rows of a rank are blocks of one size. Otherwise it has one row at every rank. */
    bool places;
    /* May the ranks of c exchange like this? Collective, before the first step; ERR_UNSUPPORTED
     * says what they lack. */
    Status (*can)(Comm *c);
    /* Rows that come to a rank for each token of one rank, on average. */
    double (*rows)(int64_t experts, int64_t top_k, int64_t ranks);
    /* row, home: bytes of a row, of what is read and written where the tokens are. */
    struct OpCost (*cost)(const Rows *received, int64_t ranks, double row, double home);
    /* Bytes at ex->workspace, on both backends. */
    size_t (*dispatch_workspace)(const ExchangeDispatch *a);
    size_t (*combine_workspace)(const ExchangeCombine *a);
    /* Whole steps, for both backends: by which calls of comm, or by stores into whose memory
     * (comm_window), rows come and go is the kind's own affair. c has as many ranks as a says. */
    Status (*dispatch)(struct Exec *ex, Comm *c, const ExchangeDispatch *a, const ExchangeLocal *l);
    Status (*combine)(struct Exec *ex, Comm *c, const ExchangeCombine *a, const ExchangeLocal *l);
    ExchangeLocal cpu; /* a GPU's is exchange_NAME_cuda, in exchange_NAME.cu */
} ExchangeDesc;

#ifdef __cplusplus
extern "C" {
#endif

/* By ExchangeKind. */
extern const ExchangeDesc *const exchange_kinds[EXCHANGE_KINDS];
/* "|alltoall|allgather": a bar before each name. */
extern const char exchange_names[];

#define EXCHANGE(KIND, name)                                                                       \
    extern const ExchangeDesc exchange_##name;                                                     \
    extern const ExchangeLocal exchange_##name##_cuda;
#include "op/exchange.def"
#undef EXCHANGE

/* Mean number of different groups among `groups` equal ones that k of e experts, chosen without
 * repetition and uniformly, lie in: groups (1 - C(e - e/groups, k) / C(e, k)). */
double exchange_distinct(int64_t experts, int64_t top_k, int64_t groups);

/* The two ops, with what their kind has for a backend. */
Status exchange_dispatch_run(struct Exec *ex, const ExchangeDispatch *a, const ExchangeLocal *l);
Status exchange_combine_run(struct Exec *ex, const ExchangeCombine *a, const ExchangeLocal *l);

/* What several kinds have in common. exchange_any: all groups can. exchange_copied: the cost where
 * rows are written on both sides. exchange_unpack: y and weight, from the rows at the tokens' places,
 * or without places from a row a token. */
Status exchange_any(Comm *c);
struct OpCost exchange_copied(const Rows *received, int64_t ranks, double row, double home);
Status exchange_unpack(struct Exec *ex, const ExchangeCombine *a, const ExchangeRows *back);

/* Bytes of `rows` rows like those of t, if there are any; they themselves, at *at, which goes on
 * behind them. */
size_t exchange_rows_bytes(const Tensor *t, int64_t rows);
Tensor exchange_rows_at(const Tensor *t, int64_t rows, char **at);

/* The number of an expert on the rank that has [first, first + here); -1: elsewhere. */
static inline int32_t exchange_local_expert(int64_t expert, int64_t first, int64_t here)
{
    int64_t e = expert - first;
    return e >= 0 && e < here ? (int32_t)e : -1;
}

#ifdef __cplusplus
}
#endif

#endif
