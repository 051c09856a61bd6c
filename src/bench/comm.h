/* comm: what the parts of `bench comm` share: comm.c opens the ranks and has the collectives,
 * comm_exchange.c has the exchange of tokens, comm_rows.c times and prints a row of either. */
#ifndef BENCH_COMM_H
#define BENCH_COMM_H

#include "bench/bench.h"
#include "bench/runner.h"

typedef struct CommBench {
    const BenchComm *options;
    BenchRunner r;
    Comm *host;
    Mesh mesh;   /* of tensors: all ranks share the experts, `inside` of them on each host */
    double link; /* bytes a second that leave a GPU, of the data sheet; 0: not known */
    Dtype type;
    Text *out;
} CommBench;

/* A line of the table. */
typedef struct CommRow {
    const char *call, *shape, *routing; /* a collective has no routing */
    double bytes, bus_bytes;            /* a call's: of NCCL-tests' two bandwidths */
    double seconds, graph_s;            /* of the slowest rank; graph_s 0: there are no graphs */
    double room; /* an exchange's rows that a rank has memory for, over those that come to it on
                    average; else 0 */
} CommRow;

typedef Status CommCall(CommBench *b, void *state);

/* The device's memory for a row. ERR_MEMORY on all ranks if one has too little. */
Status comm_bench_take(CommBench *b, size_t block_bytes, size_t scratch_bytes);

/* Times `call`, and prints the row. */
Status comm_bench_row(CommBench *b, CommCall *call, void *state, CommRow row);
/* A line of a row that there is not: the last failure says why, and is cleared. */
Status comm_bench_why(CommBench *b, const char *call, const char *shape);

/* Every kind of exchange on two shapes, with two routings. */
Status comm_bench_exchanges(CommBench *b);

#endif
