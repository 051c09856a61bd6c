/* A rank that fails amid a step in which others store into its memory: they end with its reason, soon,
 * and its memory goes when they have left it. */
#include "harness/many.h"

#include "engine/base/clock.h"

enum { RANKS = 4, CULPRIT = 1, TIMES = 3 };
static const double TIMEOUT_S = 30, SOON_S = 10;

static const ManyCase stores = { "stores",
                                 RANKS,
                                 { "moe.experts=8", "moe.top_k=2", "model.layers=4",
                                   "train.batch=8", "train.micro_batch=1", "mesh.ep=4",
                                   "moe.exchange=direct", "moe.buffers=worst" } };

/* Passes ops on until the n-th of a name, which fails. */
typedef struct Saboteur {
    Decorator decorator;
    const char *op;
    int left;
} Saboteur;

static Status sabotage(Exec *ex, int level, const OpDesc *op, const void *args)
{
    Saboteur *s = ex->front[level]->self;
    if (strcmp(op->name, s->op) == 0 && --s->left == 0) return FAIL(ERR_IO, "the disk is full");
    return op_next(ex, level, op, args);
}

typedef struct End {
    const char *op; /* at which the culprit fails */
    int nth;
    char why[RANKS][512];
} End;

static Status run_rank(void *state, Comm *world)
{
    End *e = state;
    ManyRank r = { 0 };
    StepResult out;
    Saboteur s = { .op = e->op, .left = e->nth };
    s.decorator = (Decorator){ .run = sabotage, .self = &s };
    Status status = many_open(&r, &stores, world);
    if (status == OK && world->rank == CULPRIT) exec_push(&r.t.engine.ex, &s.decorator);
    for (int i = 0; status == OK && i < 3; i++) status = many_step(&r, i, &out);
    status_sentence(e->why[world->rank], sizeof e->why[0]);
    many_close(&r);
    return status;
}

static void check_end(const char *op, int nth)
{
    End e = { .op = op, .nth = nth };
    int failed = -1;
    double start = clock_s();
    CHECK_FAILS(comm_threads(RANKS, TIMEOUT_S, run_rank, &e, &failed), ERR_IO, "the disk is full");
    CHECK_INT(failed, CULPRIT);
    CHECK(clock_s() - start < SOON_S);
    for (int r = 0; r < RANKS; r++) CHECK(strstr(e.why[r], "the disk is full") != NULL);
}

static void who_fails_amid_a_step_ends_all_soon(void **state)
{
    (void)state;
    static const char *const ops[] = { "exchange_dispatch", "exchange_combine", "moe_up_fwd",
                                       "moe_down_bwd_input" };
    for (int i = 0; i < 4 * TIMES; i++) check_end(ops[i / TIMES], 1 + 3 * (i % TIMES));
}

int main(void)
{
    const struct CMUnitTest tests[] = { TEST(who_fails_amid_a_step_ends_all_soon) };
    return TEST_RUN(tests);
}
