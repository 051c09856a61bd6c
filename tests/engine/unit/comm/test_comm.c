/* Groups of threads against plain loops (comm_cases.h), and how worlds end. */
#include "engine/base/clock.h"
#include "harness/comm_cases.h"
#include "harness/test.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum { RANKS = 8 };

typedef Status Case(Comm *c, Arena *a);

static Status in_arena(void *state, Comm *c)
{
    Arena a = { 0 };
    Case *const *run = state;
    TRY(arena_init(&a, "case", MEM_HOST, (size_t)64 << 20));
    Status s = (*run)(c, &a);
    arena_free(&a);
    return s;
}

static void run_all_sizes(Case *run)
{
    for (int ranks = 1; ranks <= RANKS; ranks += RUNS(1, 3)) {
        int failed = 0;
        CHECK_OK(comm_threads(ranks, 30, in_arena, &run, &failed));
        CHECK_INT(failed, -1);
    }
}

static void collectives_are_plain_loops_in_the_order_of_ranks(void **state)
{
    (void)state;
    run_all_sizes(case_collectives);
}

static void transfers_arrive_whole_and_in_order(void **state)
{
    (void)state;
    run_all_sizes(case_transfers);
}

static void groups_of_a_split_do_not_hear_each_other(void **state)
{
    (void)state;
    run_all_sizes(case_split);
}

static void a_store_into_a_window_is_in_the_peers_memory(void **state)
{
    (void)state;
    run_all_sizes(case_window);
}

/* Even and odd ranks, each side in falling order. */
static Status window_of_a_side(Comm *c, Arena *a)
{
    Comm *side = NULL;
    TRY(comm_split(c, c->rank % 2, -c->rank, "side", a, &side));
    TRY(case_window(c, a));
    TRY(case_window(side, a));
    comm_free(side);
    return OK;
}

static void each_group_has_windows_of_its_own(void **state)
{
    (void)state;
    run_all_sizes(window_of_a_side);
}

/* Rank 2 of 3 gives less: all hear of it, and nobody has a window. */
static Status windows_differ(void *state, Comm *c)
{
    int32_t mine[4] = { 0 };
    Arena a = { 0 };
    CommWindow w = { 0 };
    int *heard = state;
    TRY(arena_init(&a, "window", MEM_HOST, 4096));
    Status s = comm_window(c, mine, c->rank == 2 ? 8 : sizeof mine, &a, &w);
    heard[c->rank] = s == ERR_SHAPE && w.peer == NULL &&
                     strstr(status_message(), "rank 2 gives 8 bytes, rank 0 16") != NULL;
    s = comm_barrier(c); /* it was an answer, not the end */
    arena_free(&a);
    return s;
}

static void windows_that_differ_are_an_error_on_all_ranks(void **state)
{
    (void)state;
    int failed, heard[3] = { 0 };
    CHECK_OK(comm_threads(3, 30, windows_differ, heard, &failed));
    for (int r = 0; r < 3; r++) CHECK_INT(heard[r], 1);
}

static void run_alone(Case *run)
{
    int failed = 0;
    CHECK_OK(comm_threads(1, 30, in_arena, &run, &failed));
}

static Status call_what_gpus_need(Comm *c, Arena *a)
{
    (void)a;
    comm_set_stream(c, NULL);
    TRY(comm_connect(c));
    TRY(comm_batch_begin(c));
    TRY(comm_batch_end(c));
    return comm_watch(c, 1e9);
}

static void what_only_gpus_need_is_nothing_on_the_host(void **state)
{
    (void)state;
    run_alone(call_what_gpus_need);
}

/* Did a call fail with this message? */
static bool refused(Status s, Status want, const char *part)
{
    bool as_wanted = s == want && strstr(status_message(), part) != NULL;
    status_clear();
    return as_wanted;
}

static Status call_with_what_does_not_fit(Comm *c, Arena *a)
{
    Tensor four = { NULL, DTYPE_F32, 1, { 4 } }, five = { NULL, DTYPE_F32, 1, { 5 } };
    Tensor bytes = { NULL, DTYPE_U8, 1, { 4 } };
    CommRequest r;
    CommWindow w;
    EXPECT(refused(comm_all_gather(c, &four, &five), ERR_SHAPE, "(5) f32 is not 1 times (4) f32"));
    EXPECT(
        refused(comm_reduce_scatter(c, &four, &five), ERR_SHAPE, "reduce_scatter of group world"));
    EXPECT(refused(comm_all_to_all(c, &four, &bytes), ERR_SHAPE, "all_to_all"));
    EXPECT(
        refused(comm_all_reduce(c, &bytes, REDUCE_SUM), ERR_UNSUPPORTED, "u8 cannot be added up"));
    EXPECT(refused(comm_broadcast(c, &four, 1), ERR_ARG, "no rank 1 among its 1"));
    EXPECT(refused(comm_send(c, &four, 0, COMM_TAGS, &r), ERR_ARG, "tag 256"));
    EXPECT(refused(comm_recv(c, &four, -1, 0, &r), ERR_ARG, "no rank -1"));
    EXPECT(refused(comm_window(c, NULL, 16, a, &w), ERR_ARG, "rank 0 gives 16 bytes at NULL"));
    EXPECT(refused(comm_window(c, &r, 0, a, &w), ERR_ARG, "window of group world: rank 0 gives 0"));
    return OK;
}

static void what_does_not_fit_is_an_error(void **state)
{
    (void)state;
    run_alone(call_with_what_does_not_fit);
}

/* NaN of any rank, before or behind a number. */
static Status nan_somewhere(void *state, Comm *c)
{
    (void)state;
    float x[3];
    for (int i = 0; i < 3; i++) x[i] = i == c->rank ? NAN : (float)c->rank;
    TRY(comm_all_reduce(c, &(Tensor){ x, DTYPE_F32, 1, { 3 } }, REDUCE_MAX));
    for (int i = 0; i < 3; i++) EXPECT(isnan(x[i]));
    return OK;
}

static void nan_of_any_rank_is_the_largest(void **state)
{
    (void)state;
    int failed;
    CHECK_OK(comm_threads(3, 30, nan_somewhere, NULL, &failed));
}

static void say_place(void *self, char *out, int bytes)
{
    (void)snprintf(out, (size_t)bytes, "step 12, action %d", *(int *)self);
}

/* Rank 2 sleeps past the deadline; the others go round in a ring, so rank 0 waits for the one that
 * waits for rank 2. */
static Status one_is_lost(void *state, Comm *c)
{
    Status *ends = state;
    int action = c->rank;
    float x[8] = { 0 };
    comm_set_place(c, (CommPlace){ say_place, &action });
    if (c->rank == 2) {
        nanosleep(&(struct timespec){ .tv_sec = 1 }, NULL);
        return OK;
    }
    Status s = comm_all_reduce(c, &(Tensor){ x, DTYPE_F32, 1, { 8 } }, REDUCE_SUM);
    ends[c->rank] = s;
    TRY(s);
    return OK;
}

static void a_lost_rank_is_named_at_the_deadline(void **state)
{
    (void)state;
    Status ends[4] = { OK };
    int failed = -1;
    double since = clock_s();
    CHECK_FAILS(comm_threads(4, 0.3, one_is_lost, ends, &failed), ERR_COMM, "s for rank 2");
    CHECK(strstr(status_message(), "in all_reduce of group world (comm.timeout_s 0.3)") != NULL);
    CHECK(strstr(status_message(), ", at step 12, action ") != NULL);
    CHECK(failed >= 0 && failed != 2);
    for (int r = 0; r < 4; r++) CHECK_INT(ends[r], r == 2 ? OK : ERR_COMM);
    CHECK(clock_s() - since < 5);
}

typedef struct Endings {
    char why[4][256];
} Endings;

/* Rank 1 fails for a reason of its own while the others wait for it. */
static Status one_fails(void *state, Comm *c)
{
    Endings *e = state;
    if (c->rank == 1) return FAIL(ERR_DISK, "no room for the checkpoint");
    Status s = comm_barrier(c);
    for (int i = 0; i < 100 && s == OK; i++) s = comm_barrier(c);
    status_sentence(e->why[c->rank], sizeof e->why[c->rank]);
    TRY(s);
    return OK;
}

static void others_end_at_once_with_the_reason_of_the_first(void **state)
{
    (void)state;
    Endings e = { 0 };
    int failed = -1;
    double since = clock_s();
    CHECK_FAILS(comm_threads(4, 60, one_fails, &e, &failed), ERR_DISK, "no room for the");
    CHECK_INT(failed, 1);
    CHECK_TEXT(e.why[0], "rank 1 failed: no room for the checkpoint");
    CHECK_TEXT(e.why[3], "rank 1 failed: no room for the checkpoint");
    CHECK(clock_s() - since < 10);
}

/* A rank whose memory goes while its message was not taken: the others do not touch it. */
static Status memory_goes(void *state, Comm *c)
{
    (void)state;
    char *x = malloc(1 << 20);
    Tensor t = { x, DTYPE_U8, 1, { 1 << 20 } };
    CommRequest r[2] = { 0 };
    EXPECT(x != NULL);
    memset(x, 1, 1 << 20);
    int peer = 1 - c->rank;
    Status s = comm_send(c, &t, peer, 1, &r[0]);
    if (c->rank == 0) comm_abort(c, "enough");
    if (s == OK) s = comm_recv(c, &t, peer, 2, &r[1]);
    if (s == OK) s = comm_wait(c, &r[1]);
    free(x);
    TRY(s);
    return OK;
}

static void memory_may_go_after_an_abort(void **state)
{
    (void)state;
    int failed = -1;
    for (int i = 0; i < 20; i++) {
        CHECK_FAILS(comm_threads(2, 60, memory_goes, NULL, &failed), ERR_COMM, "enough");
        CHECK_INT(failed, 0);
    }
}

static Status lengths_differ(void *state, Comm *c)
{
    (void)state;
    float x[2] = { 0 };
    CommRequest r;
    Tensor t = { x, DTYPE_F32, 1, { c->rank + 1 } };
    TRY(c->rank == 0 ? comm_send(c, &t, 1, 0, &r) : comm_recv(c, &t, 0, 0, &r));
    return comm_wait(c, &r);
}

static void lengths_that_differ_are_an_error(void **state)
{
    (void)state;
    int failed;
    CHECK_FAILS(comm_threads(2, 60, lengths_differ, NULL, &failed), ERR_SHAPE, " 8");
}

/* Members that call different collectives wait for each other, and say in what. */
static Status calls_differ(void *state, Comm *c)
{
    (void)state;
    float x[2] = { 0 };
    Tensor t = { x, DTYPE_F32, 1, { 2 } };
    if (c->rank == 0) return comm_all_reduce(c, &t, REDUCE_SUM);
    return comm_broadcast(c, &t, 0);
}

static void calls_that_differ_end_at_the_deadline(void **state)
{
    (void)state;
    int failed;
    CHECK_FAILS(comm_threads(2, 0.2, calls_differ, NULL, &failed), ERR_COMM, "of group world");
}

static Status many_receives(void *state, Comm *c)
{
    (void)state;
    float x = 0;
    CommRequest r;
    for (int i = 0; i < 1000; i++)
        TRY(comm_recv(c, &(Tensor){ &x, DTYPE_F32, 1, { 1 } }, 0, 0, &r));
    return OK;
}

static void transfers_under_way_have_a_limit(void **state)
{
    (void)state;
    int failed;
    CHECK_FAILS(comm_threads(1, 60, many_receives, NULL, &failed), ERR_COMM, "one too many");
}

static volatile sig_atomic_t stopped;

static Status waits_for_none(void *state, Comm *c)
{
    (void)state;
    if (c->rank == 1) {
        nanosleep(&(struct timespec){ .tv_nsec = 800000000 }, NULL);
        return OK;
    }
    comm_set_stop(c, &stopped, 0.1);
    return comm_barrier(c);
}

static void a_signal_ends_a_wait(void **state)
{
    (void)state;
    int failed;
    stopped = 1;
    CHECK_FAILS(comm_threads(2, 60, waits_for_none, NULL, &failed), ERR_COMM,
                "rank 0 was terminated while it waited for rank 1 in barrier");
}

static void ranks_have_a_limit(void **state)
{
    (void)state;
    int failed;
    CHECK_FAILS(comm_threads(0, 1, waits_for_none, NULL, &failed), ERR_ARG, "0 ranks as threads");
}

static void the_launcher_says_how_many_there_are(void **state)
{
    (void)state;
    setenv("SLURM_NTASKS", "5", 1);
    CHECK_INT(comm_launched(), 1); /* salloc says so, too, where nothing was launched */
    setenv("PMIX_RANK", "0", 1);
    CHECK_INT(comm_launched(), 5);
    setenv("OMPI_COMM_WORLD_SIZE", "3", 1);
    CHECK_INT(comm_launched(), 3);
    setenv("OMPI_COMM_WORLD_SIZE", "many", 1);
    unsetenv("PMIX_RANK");
    CHECK_INT(comm_launched(), 1);
}

static void what_is_not_built_says_so(void **state)
{
    (void)state;
    Comm *c = NULL;
    if (!comm_mpi_built()) CHECK_FAILS(comm_mpi(NULL, 1, &c), ERR_UNSUPPORTED, "MPI=1");
}

#ifdef HOSTILE
extern atomic_long comm_fail_countdown;

/* Whichever message is refused, all ranks end, and with that reason. */
static void every_message_may_fail(void **state)
{
    (void)state;
    Case *run = case_split;
    Status s = ERR_COMM;
    int tried = 0;
    for (long n = 0; s != OK; n += 1 + n / 16, tried++) {
        int failed = -1;
        comm_fail_countdown = n;
        s = comm_threads(4, 30, in_arena, &run, &failed);
        comm_fail_countdown = -1;
        if (s != OK) CHECK(failed >= 0 && strstr(status_message(), "on purpose") != NULL);
    }
    CHECK(tried > 20);
}
#endif

static Status find_hosts(void *each, Comm *world)
{
    Arena a = { 0 };
    TRY(arena_init(&a, "names", MEM_HOST, 1 << 16));
    Status s = comm_hosts(world, &a, &((int *)each)[world->rank]);
    arena_free(&a);
    return s;
}

static void ranks_of_a_host_find_each_other_by_its_name(void **state)
{
    (void)state;
    int each[3] = { 0 }, failed = -1, n = 0;
    CHECK_OK(comm_threads(3, 10, find_hosts, each, &failed));
    for (int r = 0; r < 3; r++) CHECK_INT(each[r], 3);
    const CommHostName even[] = { { "a" }, { "a" }, { "b" }, { "b" }, { "c" }, { "c" } };
    const CommHostName fewer[] = { { "a" }, { "a" }, { "b" }, { "b" }, { "c" } };
    const CommHostName more[] = { { "a" }, { "b" }, { "b" } };
    const CommHostName apart[] = { { "a" }, { "b" }, { "c" }, { "b" } };
    CHECK_OK(comm_hosts_of(even, 6, &n));
    CHECK_INT(n, 2);
    CHECK_FAILS(comm_hosts_of(fewer, 5, &n), ERR_ARG,
                "ranks 0 to 1 are on host a, and ranks 4 to 4 on host c: every host must have as "
                "many ranks, which follow each other");
    CHECK_FAILS(comm_hosts_of(more, 3, &n), ERR_ARG, "ranks 1 to 2 on host b");
    CHECK_FAILS(comm_hosts_of(apart, 4, &n), ERR_ARG, "ranks 3 to 3 on host b");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(collectives_are_plain_loops_in_the_order_of_ranks),
        TEST(transfers_arrive_whole_and_in_order),
        TEST(groups_of_a_split_do_not_hear_each_other),
        TEST(a_store_into_a_window_is_in_the_peers_memory),
        TEST(each_group_has_windows_of_its_own),
        TEST(windows_that_differ_are_an_error_on_all_ranks),
        TEST(what_only_gpus_need_is_nothing_on_the_host),
        TEST(what_does_not_fit_is_an_error),
        TEST(nan_of_any_rank_is_the_largest),
        TEST(a_lost_rank_is_named_at_the_deadline),
        TEST(others_end_at_once_with_the_reason_of_the_first),
        TEST(memory_may_go_after_an_abort),
        TEST(lengths_that_differ_are_an_error),
        TEST(calls_that_differ_end_at_the_deadline),
        TEST(transfers_under_way_have_a_limit),
        TEST(a_signal_ends_a_wait),
        TEST(ranks_have_a_limit),
        TEST(the_launcher_says_how_many_there_are),
        TEST(what_is_not_built_says_so),
#ifdef HOSTILE
        TEST(every_message_may_fail),
#endif
        TEST(ranks_of_a_host_find_each_other_by_its_name),
    };
    return TEST_RUN(tests);
}
