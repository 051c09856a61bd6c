/* bench contention on threads: each op has a row with its times alone and beside each call. */
#include "harness/json_lines.h"

#include "bench/bench.h"

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

typedef struct Report {
    Arena arena;
    Config config;
    BenchContention options;
    Text out; /* of rank 0 */
} Report;

static Status on_rank(void *state, Comm *world)
{
    Report *r = state;
    Arena a = { 0 };
    Text out;
    TRY(arena_init(&a, "test", MEM_HOST, (size_t)1 << 26));
    Status s = text_init(&out, &a);
    if (s == OK) s = bench_contention(&r->config, world, &r->options, &out);
    if (s == OK && world->rank == 0) s = text_append(&r->out, out.data, out.used);
    arena_free(&a);
    return s;
}

static void run(Report *r, int ranks, bool json)
{
    int failed = -1;
    *r = (Report){ .options = { .shrink = 64, .json = json } };
    CHECK_OK(arena_init(&r->arena, "test", MEM_HOST, (size_t)1 << 28));
    CHECK_OK(config_default(&r->config, &r->arena));
    CHECK_OK(config_override(&r->config, &r->arena, "run.device=cpu"));
    CHECK_OK(config_override(&r->config, &r->arena, "run.threads=1"));
    CHECK_OK(text_init(&r->out, &r->arena));
    CHECK_OK(comm_threads(ranks, 30, on_rank, r, &failed));
}

/* Of three ranks the last has nobody to receive from. */
static void each_op_is_timed_beside_each_call(void **state)
{
    (void)state;
    static const char *const works[OPS] = { "grouped",   "grouped_weight",     "gemm",  "gemm",
                                            "attention", "attention_backward", "memory" };
    for (int ranks = 2; ranks <= 3; ranks++) {
        Report r;
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
    Report r;
    run(&r, 2, false);
    CHECK(strstr(r.out.data, "2 ranks, 1 threads: ops and calls run one after the other here"));
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
