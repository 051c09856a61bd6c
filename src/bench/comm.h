/* comm: what the parts of `bench comm` share: comm.c opens the ranks, times calls, prints, and has
 * the collectives; comm_exchange.c has the exchange of tokens. */
#ifndef BENCH_COMM_H
#define BENCH_COMM_H

#include "backend/backend.h"
#include "bench/bench.h"

enum { COMM_WARM_UP = 3, COMM_RUNS = 11, COMM_GRAPH_RUNS = 5 };

typedef struct CommBench {
    const Config *config;
    const BenchComm *options;
    Comm *host;
    Mesh mesh; /* of tensors: all ranks share the experts, `inside` of them on each host */
    Exec ex;
    Arena tables, scratch, block; /* the last two: the device's memory, of one row */
    Event mark[2 * COMM_RUNS];
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
void comm_bench_give(CommBench *b);

/* Times `call`, sets seconds and graph_s, and prints the row. */
Status comm_bench_row(CommBench *b, CommCall *call, void *state, CommRow row);
/* A line of a row that there is not: the last failure says why, and is cleared. */
Status comm_bench_why(CommBench *b, const char *call, const char *shape);

/* Every kind of exchange on two shapes, with two routings. */
Status comm_bench_exchanges(CommBench *b);

#endif
