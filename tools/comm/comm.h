/* comm: `switchyard bench comm`. comm.c opens the ranks and has the collectives, comm_exchange.c has the exchange of
 * tokens, comm_rows.c times and prints a row. */
#ifndef TOOLS_COMM_COMM_H
#define TOOLS_COMM_COMM_H

#include "bench/bench.h"
#include "bench/runner.h"

enum { BENCH_COMM_ALL, BENCH_COMM_COLLECTIVES, BENCH_COMM_EXCHANGE };

typedef struct BenchComm {
    int only;       /* BENCH_COMM_ALL ... */
    int64_t shrink; /* divides bytes and tokens */
    bool json;
} BenchComm;

/* Times collectives by size and exchanges of tokens by kind, between all ranks of the world: one
 * line, or one JSON object, for each row. ERR_ARG: fewer than two ranks. */
Status bench_comm(const Config *c, Comm *world, const BenchComm *options, Text *out);

typedef struct CommBench {
    const BenchComm *options;
    BenchRunner r;
    Comm *host;  /* between the ranks' host threads: agreements and barriers */
    Mesh mesh;   /* for tensors: all ranks share the experts, `inside` of them on each host */
    double link; /* bytes a second that leave a GPU, from the data sheet; 0: not known */
    Dtype type;
    Text *out;
} CommBench;

/* A line of the table. */
typedef struct CommRow {
    const char *call, *shape, *routing; /* a collective has no routing */
    double bytes, bus_bytes;            /* of a call, for the algorithm and the bus bandwidth */
    double seconds, graph_s;            /* on the slowest rank; graph_s 0: there are no graphs */
    double room; /* of an exchange: rows a rank has memory for, over the mean that arrive */
} CommRow;

/* One call that is timed; `state` is the row's. */
typedef Status CommCall(CommBench *b, void *state);

/* Allocates device memory for a row. ERR_MEMORY on all ranks if one has too little: the ranks must
 * agree, or some would wait in the row's first call. */
Status comm_bench_alloc(CommBench *b, size_t block_bytes, size_t scratch_bytes);

/* Times `call`, and prints the row. */
Status comm_bench_row(CommBench *b, CommCall *call, void *state, CommRow row);
/* Prints, in place of a row, why it cannot run: the last failure's sentence. Clears the failure. */
Status comm_bench_print_why(CommBench *b, const char *call, const char *shape);

/* Every kind of exchange on two shapes, with two routings. */
Status comm_bench_exchanges(CommBench *b);

#endif
