/* A plan beside the memory that there is: refused only where it does not fit, with what would. */
#include "engine/comm/comm.h"
#include "engine/train/fits.h"
#include "harness/arena.h"
#include "harness/tiny.h"

static TrainPlan plan_of(Tiny *t, const char *const *settings)
{
    TrainPlan p;
    CHECK_OK(tiny_config(t, settings));
    CHECK_OK(train_plan(&t->config, NULL, 1, &p));
    return p;
}

static HostMemory has(uint64_t bytes) { return (HostMemory){ bytes, "a limit" }; }

static void a_plan_that_fits_is_taken_and_a_little_more_too(void **state)
{
    (void)state;
    Tiny t = { 0 };
    TrainPlan p = plan_of(&t, TINY("train.micro_batch=4"));
    uint64_t need = p.total_bytes - p.need[NEED_DATA];
    HostMemory m = has(need);
    CHECK_OK(train_check_host(&t.config, &p, NULL, &m, &arena));
    m = has(need - need / 25); /* 4 % */
    CHECK_OK(train_check_host(&t.config, &p, NULL, &m, &arena));
    m = has(UINT64_MAX);
    CHECK_OK(train_check_host(&t.config, &p, NULL, &m, &arena));
    p.need[NEED_DATA] += need; /* pages of files give way */
    p.total_bytes += need;
    m = has(need);
    CHECK_OK(train_check_host(&t.config, &p, NULL, &m, &arena));
    arena_free(&t.arena);
}

static void the_nearest_setting_that_fits_is_named_and_fits(void **state)
{
    (void)state;
    Tiny t = { 0 }, small = { 0 };
    TrainPlan p = plan_of(&t, TINY("train.micro_batch=4", "data.sequence=512"));
    TrainPlan less = plan_of(&small, TINY("train.micro_batch=2", "data.sequence=512"));
    HostMemory m = has(less.total_bytes);
    CHECK_OK(train_check_host(&small.config, &less, NULL, &m, &arena));
    CHECK_FAILS(train_check_host(&t.config, &p, NULL, &m, &arena), ERR_ARG,
                "are available (a limit): train.micro_batch=2 fits with");
    CHECK_FAILS(train_check_host(&t.config, &p, NULL, &m, &arena), ERR_ARG, "the plan takes ");
    CHECK_INT(status_exit_code(ERR_ARG), 2);
    m = has(1000);
    CHECK_FAILS(train_check_host(&t.config, &p, NULL, &m, &arena), ERR_ARG,
                "take a host with more memory, more hosts or a smaller model");
    m = has(p.engine.bytes[ENGINE_RUN]);
    CHECK_FAILS(train_check_host(&t.config, &p, NULL, &m, &arena), ERR_ARG,
                "no train.micro_batch fits");
    arena_free(&t.arena);
    arena_free(&small.arena);
}

/* What communicators took on two H100s and four H200s with NCCL 2.28 (bench step: in use less arenas, the context and
 * kernels), in MiB. The chunks of a loop share links, those of a V do not. */
static void communicators_take_what_was_measured(void **state)
{
    (void)state;
    static const struct {
        MeshShape shape;
        bool stores;
        int queues;
        double mib;
    } row[] = {
        { { .pp = 1, .replicate = 1, .shard = 1, .ep = 1, .cp = 1 }, false, 1, 0 },
        { { .pp = 1, .replicate = 1, .shard = 2, .ep = 1, .cp = 1 }, false, 1, 875 },
        { { .pp = 1, .replicate = 1, .shard = 2, .ep = 2, .cp = 1 }, true, 1, 875 },
        { { .pp = 1, .replicate = 1, .shard = 2, .ep = 2, .cp = 1 }, false, 1, 1330 },
        { { .pp = 1, .replicate = 1, .shard = 1, .ep = 2, .cp = 2 }, false, 1, 1340 },
        { { .pp = 1, .replicate = 1, .shard = 4, .ep = 4, .cp = 1 }, false, 1, 2350 },
        { { .pp = 2, .replicate = 1, .shard = 1, .ep = 1, .cp = 1 }, false, 1, 1830 },
        { { .pp = 2, .replicate = 1, .shard = 1, .ep = 1, .cp = 1 }, false, 2, 2340 },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        double mib =
            (double)engine_comm_bytes(&row[i].shape, row[i].stores, row[i].queues) / (1 << 20);
        CHECK_NEAR(mib, row[i].mib, 300);
    }
    CHECK_INT(engine_comm_bytes(&row[0].shape, false, 1), 0);
    const MeshShape four = { .pp = 2, .replicate = 1, .shard = 2, .ep = 2, .cp = 1 };
    CHECK(engine_comm_bytes(&four, false, 1) > engine_comm_bytes(&row[6].shape, false, 1));
}

typedef struct Case {
    Tiny *t;
    const TrainPlan *p;
    uint64_t bytes[4]; /* that each rank sees */
    Status got[4];
    char why[4][256];
} Case;

static Status check_rank(void *state, Comm *world)
{
    Case *c = state;
    Arena a = { 0 };
    HostMemory m = has(c->bytes[world->rank]);
    TRY(arena_init(&a, "rank", MEM_HOST, (size_t)1 << 26));
    c->got[world->rank] = train_check_host(&c->t->config, c->p, world, &m, &a);
    status_sentence(c->why[world->rank], sizeof c->why[0]);
    arena_free(&a);
    return OK;
}

/* Four ranks take four times as much of one host; who sees least speaks for it. */
static void the_ranks_of_a_host_are_added_up_and_agree(void **state)
{
    (void)state;
    Tiny t = { 0 };
    TrainPlan p = plan_of(&t, TINY("train.micro_batch=2"));
    uint64_t need = p.total_bytes - p.need[NEED_DATA];
    Case fits = { &t, &p, { 4 * need, 4 * need, 4 * need, 4 * need }, { OK }, { "" } };
    Case less = { &t, &p, { 4 * need, 4 * need, 3 * need, 4 * need }, { OK }, { "" } };
    int failed = -1;
    CHECK_OK(comm_threads(4, 60, check_rank, &fits, &failed));
    CHECK_OK(comm_threads(4, 60, check_rank, &less, &failed));
    for (int r = 0; r < 4; r++) {
        CHECK_INT(fits.got[r], OK);
        CHECK_INT(less.got[r], ERR_ARG);
        CHECK(strncmp(less.why[r], "the 4 ranks on ", 15) == 0);
        CHECK_TEXT(less.why[r], less.why[0]);
    }
    arena_free(&t.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(communicators_take_what_was_measured),
        TEST(a_plan_that_fits_is_taken_and_a_little_more_too),
        TEST(the_nearest_setting_that_fits_is_named_and_fits),
        TEST(the_ranks_of_a_host_are_added_up_and_agree),
    };
    return ARENA_RUN(tests);
}
