/* bench comm on threads: every collective and every kind of exchange has its rows, whose bandwidths
 * are what NCCL-tests calls them; and steps without traffic run like those with it. */
#include "harness/bench_ranks.h"
#include "harness/json_lines.h"

#include "bench/null.h"
#include "comm/comm.h"
#include "hardware/hardware.h"
#include "kernels/exchange/exchange.h"

#include <stdlib.h>

enum { RANKS = 4, LINES_MAX = 128, SHRINK = 64, TOKENS = 16, MANY = 8 };

typedef struct Line {
    char *kind, *call, *shape, *routing, *why;
    double bytes, bus_bytes, seconds, room, graph_s, ranks, ranks_per_host;
} Line;

static const ScanField fields[] = {
    FIELD(kind, SCAN_TEXT),        FIELD(call, SCAN_TEXT),      FIELD(shape, SCAN_TEXT),
    FIELD(routing, SCAN_TEXT),     FIELD(why, SCAN_TEXT),       FIELD(bytes, SCAN_NUMBER),
    FIELD(bus_bytes, SCAN_NUMBER), FIELD(seconds, SCAN_NUMBER), FIELD(room, SCAN_NUMBER),
    FIELD(graph_s, SCAN_NUMBER),   FIELD(ranks, SCAN_NUMBER),   FIELD(ranks_per_host, SCAN_NUMBER),
};

typedef struct Report {
    BenchRanks of;
    Line line[LINES_MAX];
    int n;
} Report;

static Report report; /* large */

static Status on_rank(const Config *config, Comm *world, const void *options, Text *out)
{
    return bench_comm(config, world, options, out);
}

static Status run(BenchComm options, const char *hosts, int ranks)
{
    options.json = true;
    bench_ranks_open(&report.of);
    CHECK_OK(config_override(&report.of.config, &report.of.arena, hosts));
    TRY(bench_ranks_run(&report.of, ranks, on_rank, &options));
    report.n = json_lines(report.of.out.data, fields, sizeof fields / sizeof *fields, report.line,
                          sizeof *report.line, LINES_MAX);
    return OK;
}

static int count(const char *kind, const char *call)
{
    int n = 0;
    for (int i = 0; i < report.n; i++) {
        const Line *l = &report.line[i];
        n += strcmp(l->kind, kind) == 0 && (call == NULL || strcmp(l->call, call) == 0);
    }
    return n;
}

static void collectives_have_the_bandwidths_of_nccl_tests(void **state)
{
    (void)state;
    static const struct {
        const char *call;
        double bus; /* of four ranks */
    } WANT[] = { { "all_reduce", 1.5 },  { "reduce_scatter", 0.75 }, { "all_gather", 0.75 },
                 { "all_to_all", 0.75 }, { "broadcast", 1 },         { "send_recv", 1 } };
    CHECK_OK(
        run((BenchComm){ BENCH_COMM_COLLECTIVES, SHRINK, false }, "mesh.ranks_per_host=0", RANKS));
    CHECK_TEXT(report.line[0].kind, "machine");
    CHECK_NEAR(report.line[0].ranks, RANKS, 0);
    CHECK_NEAR(report.line[0].ranks_per_host, RANKS, 0);
    for (size_t i = 0; i < sizeof WANT / sizeof *WANT; i++) {
        double bytes = (double)(64 << 10) / SHRINK;
        for (int k = 0; k < report.n; k++) {
            const Line *l = &report.line[k];
            if (l->call == NULL || strcmp(l->call, WANT[i].call) != 0) continue;
            CHECK_NEAR(l->bytes, bytes, 0);
            CHECK_NEAR(l->bus_bytes, WANT[i].bus * bytes, 1e-9 * bytes);
            CHECK(l->seconds > 0 && l->seconds < 10 && l->graph_s == 0); /* a CPU has no graphs */
            bytes *= 16;
        }
        CHECK_INT(count("row", WANT[i].call), 3);
    }
    CHECK_INT(count("row", "barrier"), 1);
    CHECK_INT(count("row", NULL), 3 * 6 + 1);
    arena_free(&report.of.arena);
}

/* Bytes of the rows that come to a rank: of uniform routing about as many as the mean says. */
static void check_exchange(const char *kind, const Line *l)
{
    bool v3 = text_starts(l->shape, "V3"), back = text_ends(l->call, "combine");
    int64_t experts = v3 ? 256 : 64, k = v3 ? 8 : 6, d = (v3 ? 7168 : 2048) / 8;
    bool narrow = text_ends(l->call, "8-bit");
    int64_t number = narrow ? d + (d + 127) / 128 * 4 : d * 4;
    double row = (double)(number + (back ? 0 : k * 8)), rows = TOKENS * MANY;
    if (strcmp(kind, "allgather") != 0) rows = TOKENS * exchange_distinct(experts, k, MANY);
    if (strcmp(l->routing, "uniform") == 0) {
        CHECK_NEAR(l->bytes / (rows * row), 1, 0.1);
        CHECK(l->room < 2.3);
    }
    CHECK(l->bytes <= rows * row * 1.1 && l->room >= 1 && l->seconds > 0);
    CHECK(l->bus_bytes > 0.5 * l->bytes && l->bus_bytes < 1.4 * l->bytes);
    if (strcmp(kind, "hier") != 0) CHECK_NEAR(l->bus_bytes / l->bytes, 0.875, 1e-9);
}

/* What comes back is looked at where it is timed: a row without room is a failure. Eight ranks, so
 * that few have experts of a token, and skewed rows need more room than balanced ones. */
static void every_kind_of_exchange_has_its_rows(void **state)
{
    (void)state;
    CHECK_OK(run((BenchComm){ BENCH_COMM_EXCHANGE, 16, false }, "mesh.ranks_per_host=2", MANY));
    CHECK_INT(count("row", NULL), EXCHANGE_KINDS * 2 * 2 * 3);
    CHECK_INT(count("none", NULL), 0);
    for (int kind = 0; kind < EXCHANGE_KINDS; kind++) {
        const char *name = exchange_kinds[kind]->name;
        int rows = 0;
        for (int i = 1; i < report.n; i++) {
            if (!text_starts(report.line[i].call, name)) continue;
            check_exchange(name, &report.line[i]);
            rows++;
        }
        CHECK_INT(rows, 12);
    }
    arena_free(&report.of.arena);
}

/* On one host nothing is relayed; three ranks cannot share 64 experts. */
static void kinds_that_cannot_say_why(void **state)
{
    (void)state;
    CHECK_OK(run((BenchComm){ BENCH_COMM_EXCHANGE, 16, false }, "mesh.ranks_per_host=0", 2));
    CHECK_INT(count("none", "hier"), 2);
    CHECK_INT(count("none", NULL), 2);
    for (int i = 1; i < report.n; i++) {
        const char *why = report.line[i].why;
        CHECK(why == NULL || strstr(why, "nothing is passed on") != NULL);
    }
    arena_free(&report.of.arena);
    CHECK_OK(run((BenchComm){ BENCH_COMM_EXCHANGE, 16, false }, "mesh.ranks_per_host=0", 3));
    CHECK_INT(count("row", NULL), 0);
    CHECK(strstr(report.line[1].why, "64 experts do not divide over 3 ranks") != NULL);
    arena_free(&report.of.arena);
    CHECK(run((BenchComm){ BENCH_COMM_EXCHANGE, 16, false }, "mesh.ranks_per_host=2", 3) ==
          ERR_ARG);
    CHECK(strstr(status_message(), "mesh.ranks_per_host 2 does not divide the 3 ranks") != NULL);
    arena_free(&report.of.arena);
}

static void links_are_those_of_the_data_sheet(void **state)
{
    (void)state;
    double link = -1;
    CHECK_OK(hardware_sheet_link("NVIDIA H200", 8, &link));
    CHECK_NEAR(link, 450e9, 0);
    CHECK_OK(hardware_sheet_link("NVIDIA H200", 9, &link)); /* beyond its domain */
    CHECK_NEAR(link, 0, 0);
    CHECK_OK(hardware_sheet_link("NVIDIA H2", 2, &link));
    CHECK_NEAR(link, 0, 0);
}

/* ---- steps without traffic ---- */

typedef struct Null {
    const char *set[6], *null; /* null: words of the traffic that is left out, or "all" */
    int ranks;
    const char *open; /* words of the traffic that there is */
} Null;

static unsigned silent_of(const Null *n)
{
    unsigned silent = 0;
    for (int i = 0; i < NULL_TRAFFICS; i++) {
        bool named = strstr(n->null, null_traffic[i].word) != NULL || strcmp(n->null, "all") == 0;
        silent |= named ? 1U << i : 0;
    }
    return silent;
}

static Status check_groups(const BenchModel *m, const Null *n)
{
    for (int i = 0; i < NULL_TRAFFICS; i++) {
        const NullTraffic *t = &null_traffic[i];
        bool named = (silent_of(n) >> i & 1) != 0;
        for (int k = 0; k < NULL_GROUPS && t->group[k] != GROUP_WORLD; k++) {
            Comm *c = m->engine.mesh.group[t->group[k]];
            if ((null_real(c) != c) == (named && c->size > 1)) continue;
            return FAIL(ERR_NUMERIC, "without %s: group %s", n->null, c->name);
        }
        if (null_moves(t, &m->mesh.shape) != (strstr(n->open, t->word) != NULL))
            return FAIL(ERR_NUMERIC, "%s moves or not", t->word);
    }
    Comm *world = m->engine.mesh.group[GROUP_WORLD], *stage = m->engine.mesh.group[GROUP_STAGE];
    if (null_real(world) == world && null_real(stage) == stage) return OK;
    return FAIL(ERR_NUMERIC, "the world is real");
}

/* Every token takes its experts, and not all of them the same ones. */
static Status check_step(const BenchModel *m)
{
    const Config *c = m->config;
    const ModelSpec *s = &m->engine.spec;
    int64_t most = 0, all = 0;
    for (int64_t i = 0; i < s->n_moe * s->experts; i++) {
        all += m->result.load[i];
        if (m->result.load[i] > most) most = m->result.load[i];
    }
    int64_t rows = c->train_batch * c->data_sequence * c->moe_top_k;
    if (!m->result.finite || !(m->result.grad_norm > 0) || all != rows * s->n_moe)
        return FAIL(ERR_NUMERIC, "finite %d, norm %g, %lld rows", m->result.finite,
                    m->result.grad_norm, (long long)all);
    if (10 * most * s->experts <= 38 * rows) return OK; /* 40: all take the same two */
    return FAIL(ERR_NUMERIC, "an expert has %lld of %lld rows", (long long)most, (long long)rows);
}

static Status null_rank(void *state, Comm *world)
{
    const Null *n = state;
    Arena a = { 0 };
    Config c;
    BenchModel m;
    static const char *const small[] = {
        "model.vocab=131", "model.hidden=32",     "model.layers=4", "data.sequence=32",
        "train.batch=8",   "train.micro_batch=1", "moe.experts=8",  "moe.top_k=2",
        "run.device=cpu",  "run.threads=1",       "model.ffn=40",   "moe.ffn=20",
    };
    TRY(arena_init(&a, "test", MEM_HOST, (size_t)1 << 26));
    TRY(config_default(&c, &a));
    for (size_t i = 0; i < sizeof small / sizeof *small; i++)
        TRY(config_override(&c, &a, small[i]));
    for (int i = 0; n->set[i] != NULL; i++) TRY(config_override(&c, &a, n->set[i]));
    TRY(config_check(&c));
    TRY(bench_open(&m, &c, world, (BenchOpen){ .silent = silent_of(n) }));
    Status s = check_groups(&m, n);
    for (int i = 0; i < 3 && s == OK; i++) {
        double seconds = 0;
        s = bench_run_step(&m, &seconds);
        if (s == OK) s = check_step(&m);
    }
    bench_close(&m);
    arena_free(&a);
    return s;
}

static void steps_without_traffic_do_the_same_work(void **state)
{
    (void)state;
    static const Null cases[] = {
        { { "mesh.ep=2", "mesh.zero=3" }, "all", 2, "zero ep" },
        { { "mesh.ep=2", "mesh.zero=3" }, "zero", 2, "zero ep" },
        { { "mesh.ep=2", "mesh.shard=2" }, "ep", 4, "zero ep" },
        { { "mesh.shard=1" }, "zero", 2, "zero" },
        { { "mesh.ep=2", "moe.exchange=allgather" }, "all", 2, "zero ep" },
        { { "mesh.ep=2", "moe.buffers=worst" }, "ep", 2, "zero ep" },
        { { "mesh.ep=4", "moe.exchange=hier", "mesh.ranks_per_host=2" }, "ep", 4, "zero ep" },
        { { "mesh.cp=2" }, "cp", 2, "zero cp" },
        { { "mesh.cp=2", "attention.kind=gqa" }, "all", 2, "zero cp" },
        { { "mesh.tp=2", "model.vocab=132" }, "tp", 2, "zero tp" },
        { { "mesh.tp=2", "model.vocab=132", "mesh.ep=2" }, "all", 2, "zero ep tp" },
        { { "mesh.pp=2" }, "pp", 2, "pp" },
        { { "mesh.pp=2", "model.tied=true" }, "all", 2, "pp" },
        { { "mesh.pp=2", "mesh.vpp=2", "mesh.ep=2", "mesh.schedule=dualpipe" },
          "ep, pp",
          4,
          "zero ep pp" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i += RUNS(1, 3)) {
        int failed = -1;
        Null n = cases[i];
        if (comm_threads(n.ranks, 30, null_rank, &n, &failed) != OK)
            fail_msg("%s %s without %s: %s", n.set[0], n.set[1], n.null, status_message());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(collectives_have_the_bandwidths_of_nccl_tests),
        TEST(every_kind_of_exchange_has_its_rows),
        TEST(kinds_that_cannot_say_why),
        TEST(links_are_those_of_the_data_sheet),
        TEST(steps_without_traffic_do_the_same_work),
    };
    return TEST_RUN(tests);
}
