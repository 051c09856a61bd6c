/*
 * exchange: what a layer sends to other ranks and gets from them, as ops, so that it is counted,
 * traced and priced like everything else.
 *
 * Tokens go to the ranks of their experts and back: rank i of n has the experts [i E / n, (i + 1)
 * E / n). Two ways:
 *
 *   alltoall   a token travels once to each rank that holds some of its experts, however many;
 *              there the routing weights sum the experts' rows up before one row goes back. So with
 *              k of E experts chosen uniformly without repetition, a rank gets N distinct(E, k, n)
 *              rows from n ranks of N tokens: less than N k. Each rank has room for C rows of each
 *              other: blocks of C rows, filled from the front, change places. What lies behind a
 *              block's last row is no data: its experts are -1, its weights 0.
 *              Blocks travel whole, so that no host needs to know how full they are. Where it may
 *              wait (count is given), ranks tell each other, and only rows that are there travel,
 *              to the same places.
 *   allgather  all tokens go to all ranks, and sums of rows come back by reduce-scatter
 *
 * Which row a token takes is decided once (exchange_place) and kept: gradients go the same ways.
 * Sums are in f32, in the order of ranks.
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

typedef enum ExchangeKind { EXCHANGE_ALLTOALL, EXCHANGE_ALLGATHER } ExchangeKind;

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
    Tensor place;         /* in  (N, K) i32: of alltoall */
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
    Tensor place;       /* in  (N, K) i32: of alltoall */
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

/* Rows on their way: what goes out of dispatch, what has come back to combine. In the workspace. */
typedef struct ExchangeRows {
    Tensor x, index, weight; /* (M, ...), data NULL where they do not travel */
} ExchangeRows;

/* What a backend does between the calls of comm. */
typedef struct ExchangeLocal {
    /* Rows to their places, with numbers of experts as their rank counts them. */
    Status (*pack)(struct Exec *ex, const ExchangeDispatch *a, const ExchangeRows *out);
    /* Numbers of all experts to those of `here` from `first` on, -1 for others. */
    Status (*keep_own)(struct Exec *ex, const Tensor *index, int64_t first, int64_t here);
    /* y and weight, from the rows at the tokens' places (alltoall) or from a row a token. */
    Status (*unpack)(struct Exec *ex, const ExchangeCombine *a, const ExchangeRows *back);
} ExchangeLocal;

#ifdef __cplusplus
extern "C" {
#endif

/* Mean number of different groups among `groups` equal ones that k of e experts, chosen without
 * repetition and uniformly, lie in: groups (1 - C(e - e/groups, k) / C(e, k)). */
double exchange_distinct(int64_t experts, int64_t top_k, int64_t groups);

/* The two ops, for both backends. */
Status exchange_dispatch_run(struct Exec *ex, const ExchangeDispatch *a, const ExchangeLocal *l);
Status exchange_combine_run(struct Exec *ex, const ExchangeCombine *a, const ExchangeLocal *l);

#ifdef __cplusplus
}
#endif

#endif
