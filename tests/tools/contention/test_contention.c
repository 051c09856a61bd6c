/* bench contention on threads: each op has a row with its times alone and beside each call. */
#include "harness/bench_ranks.h"
#include "harness/json_lines.h"

#include "contention/contention.h"

#include <stdlib.h>

enum { LINES_MAX = 16, OPS = 7 };

typedef struct Line {
    char *kind, *op, *work, *type;
    double alone, gather, held, recv, ranks, gather_blocks, recv_blocks;
} Line;

static const ScanField fields[] = {
    FIELD(kind, SCAN_TEXT),          FIELD(op, SCAN_TEXT),
    FIELD(work, SCAN_TEXT),          FIELD(type, SCAN_TEXT),
    FIELD(alone, SCAN_NUMBER),       FIELD(gather, SCAN_NUMBER),
    FIELD(held, SCAN_NUMBER),        FIELD(recv, SCAN_NUMBER),
    FIELD(ranks, SCAN_NUMBER),       FIELD(gather_blocks, SCAN_NUMBER),
    FIELD(recv_blocks, SCAN_NUMBER),
};

static Status on_rank(const Config *config, Comm *world, const void *options, Text *out)
{
    return bench_contention(config, world, options, out);
}

static void run(BenchRanks *r, int ranks, bool json)
{
    BenchContention options = { .shrink = 64, .json = json };
    bench_ranks_open(r);
    CHECK_OK(bench_ranks_run(r, ranks, on_rank, &options));
}

/* Of three ranks the last has nobody to receive from. */
static void each_op_is_timed_beside_each_call(void **state)
{
    (void)state;
    static const char *const works[OPS] = { "grouped",   "grouped_weight",     "gemm",  "gemm",
                                            "attention", "attention_backward", "memory" };
    for (int ranks = 2; ranks <= 3; ranks++) {
        BenchRanks r;
        Line line[LINES_MAX] = { 0 };
        run(&r, ranks, true);
        int n = json_lines(r.out.data, fields, sizeof fields / sizeof *fields, line, sizeof *line,
                           LINES_MAX);
        CHECK_INT(n, 1 + OPS);
        CHECK_TEXT(line[0].kind, "machine");
        CHECK_NEAR(line[0].ranks, ranks, 0);
        CHECK_NEAR(line[0].gather_blocks, COMM_BLOCKS, 0);
        CHECK_NEAR(line[0].recv_blocks, COMM_FEW_BLOCKS, 0);
        for (int i = 0; i < OPS; i++) {
            const Line *l = &line[1 + i];
            CHECK_TEXT(l->work, works[i]);
            CHECK_TEXT(l->type, "f32");
            CHECK(l->alone > 0 && l->gather > 0 && l->held > 0 && l->recv > 0 && l->recv < 10);
        }
        arena_free(&r.arena);
    }
}

static void a_host_says_that_nothing_runs_beside_an_op(void **state)
{
    (void)state;
    BenchRanks r;
    run(&r, 2, false);
    CHECK(strstr(r.out.data, "2 ranks, 1 thread: ops and calls run one after the other here"));
    CHECK(strstr(r.out.data, "too low") == NULL);
    arena_free(&r.arena);
}

static void one_rank_is_refused(void **state)
{
    (void)state;
    CHECK_FAILS(bench_contention(NULL, NULL, &(BenchContention){ .shrink = 1 }, NULL), ERR_ARG,
                "bench contention: it needs two ranks or more: give --ranks");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_op_is_timed_beside_each_call),
        TEST(a_host_says_that_nothing_runs_beside_an_op),
        TEST(one_rank_is_refused),
    };
    return TEST_RUN(tests);
}
