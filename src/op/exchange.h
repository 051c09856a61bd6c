/*
 * exchange: what a layer sends to other ranks and gets from them, as ops, so that it is counted,
 * traced and priced like everything else.
 *
 * Tokens go to the ranks of their experts and back. A token travels once to each rank that holds
 * some of its experts, however many; there the routing weights sum the experts' rows up before one
 * row goes back. So with E experts on n ranks, k chosen uniformly without repetition, a rank gets
 * N distinct(E, k, n) rows from n ranks of N tokens: less than N k.
 *
 * Collectives are over rows: ALL_GATHER makes out = the in of all ranks one below the other,
 * REDUCE_SCATTER is its reverse with sums, SHIFT gets the next rank's in (a ring).
 *
 * A mesh of one rank never comes here; implementations need peers, which comm/ does not have yet.
 */
#ifndef OP_EXCHANGE_H
#define OP_EXCHANGE_H

#include "op/moe.h"
#include "op/work.h"

typedef struct ExchangeDispatch {
    Tensor x;             /* in  (N, D) act */
    Tensor index, weight; /* in  (N, K) i32, f32: optional, with x's rows */
    Tensor rows;          /* out (M, D) act */
    Tensor rows_index;    /* out (M, K) i32, optional: -1 where the expert is elsewhere */
    Tensor rows_weight;   /* out (M, K) f32, optional */
    Rows received;        /* of M */
    int64_t ranks;
} ExchangeDispatch;

typedef struct ExchangeCombine {
    Tensor x;                /* in  (M, D) act: one row for each received one */
    Tensor rows_weight;      /* in  (M, K) f32, optional: values that go back with the rows */
    Tensor shared, residual; /* in  (N, D) act, optional: y's other summands */
    Tensor y;                /* out (N, D) act */
    Tensor weight;           /* out (N, K) f32, optional */
    Rows received;
    int64_t ranks;
} ExchangeCombine;

typedef struct Collective {
    Tensor in, out; /* (rows, C) of one type */
    OpComm kind;
    int axis; /* of the mesh: comm/mesh.h */
    int64_t ranks;
} Collective;

/* Mean number of different groups among `groups` equal ones that k of e experts, chosen without
 * repetition and uniformly, lie in: groups (1 - C(e - e/groups, k) / C(e, k)). */
double exchange_distinct(int64_t experts, int64_t top_k, int64_t groups);

#endif
