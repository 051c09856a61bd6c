/* Messages over TCP: the cases of comm_cases.h, and how worlds end. Ranks are threads
 * (tcp_ranks.h). */
#include "engine/base/clock.h"
#include "harness/comm_cases.h"
#include "harness/tcp_ranks.h"

#include <stdatomic.h>
#include <time.h>

static void run_sizes(TcpBody *body)
{
    for (int ranks = 2; ranks <= RUNS(5, 3); ranks++) {
        TcpRun run = { .ranks = ranks, .body = body };
        tcp_run(&run);
        tcp_check_all(&run, OK, "");
    }
}

static void collectives_are_plain_loops_in_the_order_of_ranks(void **state)
{
    (void)state;
    run_sizes(case_collectives);
}

static void transfers_arrive_whole_and_in_order(void **state)
{
    (void)state;
    run_sizes(case_transfers);
}

static void groups_of_a_split_do_not_hear_each_other(void **state)
{
    (void)state;
    run_sizes(case_split);
}

static void addresses_of_version_6(void **state)
{
    (void)state;
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    const struct sockaddr_in6 at = { .sin6_family = AF_INET6, .sin6_addr = in6addr_loopback };
    bool here = fd >= 0 && bind(fd, (const struct sockaddr *)&at, sizeof at) == 0;
    if (fd >= 0) close(fd);
    if (!here) {
        printf("skip: ::1 is no address of this host\n");
        skip();
    }
    TcpRun run = { .ranks = 3, .body = case_split, .address = "::1" };
    tcp_run(&run);
    tcp_check_all(&run, OK, "");
}

/* More than the buffers of the system, both ways at once: who does not read while it sends never ends. */
static Status large(Comm *c, Arena *a)
{
    enum { N = 16 << 20 };
    const int peer = (c->rank + 1) % 2;
    Tensor out = { NULL, DTYPE_I32, 1, { N } }, in = out;
    CommRequest r[2];
    TRY(ARENA_NEW(a, 4 * N, (char **)&out.data));
    TRY(ARENA_NEW(a, 4 * N, (char **)&in.data));
    for (int i = 0; i < N; i++) ((int32_t *)out.data)[i] = (c->rank + 1) * i;
    TRY(comm_send(c, &out, peer, 0, &r[0]));
    TRY(comm_recv(c, &in, peer, 0, &r[1]));
    TRY(comm_wait(c, &r[0]));
    TRY(comm_wait(c, &r[1]));
    for (int i = 0; i < N; i++) EXPECT(((int32_t *)in.data)[i] == (peer + 1) * i);
    return OK;
}

static void both_sides_may_send_much_at_once(void **state)
{
    (void)state;
    TcpRun run = { .ranks = 2, .body = large };
    tcp_run(&run);
    tcp_check_all(&run, OK, "");
}

/* All sends are posted before the first receive, and receives come in the opposite order of tags. */
static Status sends_first(Comm *c, Arena *a)
{
    enum { N = 40 };
    int32_t out[N][3], in[N][3];
    CommRequest going[N], coming[N];
    const int peer = 1 - c->rank;
    (void)a;
    for (int i = 0; i < N; i++) {
        for (int j = 0; j < 3; j++) out[i][j] = 1000 * c->rank + 3 * i + j;
        TRY(comm_send(c, &(Tensor){ out[i], DTYPE_I32, 1, { 3 } }, peer, i / 2, &going[i]));
    }
    TRY(comm_barrier(c));
    for (int i = N - 2; i >= 0; i -= 2) {
        for (int j = i; j < i + 2; j++)
            TRY(comm_recv(c, &(Tensor){ in[j], DTYPE_I32, 1, { 3 } }, peer, j / 2, &coming[j]));
    }
    for (int i = 0; i < N; i++) {
        TRY(comm_wait(c, &coming[i]));
        TRY(comm_wait(c, &going[i]));
        for (int j = 0; j < 3; j++) EXPECT(in[i][j] == 1000 * peer + 3 * i + j);
    }
    return OK;
}

static void a_message_that_nobody_awaits_yet_is_not_lost(void **state)
{
    (void)state;
    TcpRun run = { .ranks = 2, .body = sends_first };
    tcp_run(&run);
    tcp_check_all(&run, OK, "");
}

static Status give(Comm *c, int32_t *x, int tag, CommRequest *r)
{
    return comm_send(c, &(Tensor){ x, DTYPE_I32, 1, { 1 } }, 1, tag, r);
}

static Status get(Comm *c, int32_t *x, int tag)
{
    CommRequest r;
    TRY(comm_recv(c, &(Tensor){ x, DTYPE_I32, 1, { 1 } }, 0, tag, &r));
    return comm_wait(c, &r);
}

/* The later of two sends has the slot that the first message left. */
static Status slots_come_again(Comm *c, Arena *a)
{
    int32_t first = 9, early = 1, late = 2, go = 3, got = 0;
    CommRequest r[4];
    (void)a;
    if (c->rank == 1) {
        TRY(get(c, &got, 9));
        TRY(get(c, &got, 3));
        TRY(get(c, &got, 1));
        EXPECT(got == 1);
        TRY(get(c, &got, 1));
        EXPECT(got == 2);
        return OK;
    }
    TRY(give(c, &first, 9, &r[0]));
    TRY(give(c, &early, 1, &r[1]));
    TRY(comm_wait(c, &r[0]));
    TRY(give(c, &late, 1, &r[2]));
    TRY(give(c, &go, 3, &r[3]));
    for (int i = 3; i > 0; i--) TRY(comm_wait(c, &r[i]));
    return OK;
}

static void messages_of_one_tag_keep_the_order_of_posting(void **state)
{
    (void)state;
    TcpRun run = { .ranks = 2, .body = slots_come_again };
    tcp_run(&run);
    tcp_check_all(&run, OK, "");
}

/* Rank 2 sleeps past the deadline; rank 0 waits for rank 1, which waits for rank 2. */
static Status rank_2_is_lost(Comm *c, Arena *a)
{
    int32_t x = 0;
    CommRequest r;
    (void)a;
    if (c->rank == 2) {
        nanosleep(&(struct timespec){ .tv_sec = 6 }, NULL);
        return FAIL(ERR_COMM, "rank 2 slept long enough");
    }
    TRY(comm_recv(c, &(Tensor){ &x, DTYPE_I32, 1, { 1 } }, c->rank + 1, 0, &r));
    return comm_wait(c, &r);
}

static void a_lost_rank_is_named_at_the_deadline_through_the_chain_of_waits(void **state)
{
    (void)state;
    TcpRun run = { .ranks = 3, .body = rank_2_is_lost, .timeout_s = 3 };
    double since = clock_s();
    tcp_run(&run);
    tcp_check_all(&run, ERR_COMM, "rank 2");
    CHECK(clock_s() - since < 30);
    CHECK(strstr(run.why[0], "in recv of group world (comm.timeout_s 3)") != NULL);
}

static Status rank_1_fails(Comm *c, Arena *a)
{
    (void)a;
    if (c->rank == 1) return FAIL(ERR_DISK, "no room for the checkpoint");
    for (int i = 0; i < 1000; i++) TRY(comm_barrier(c));
    return OK;
}

static void others_end_at_once_with_the_reason_of_the_first(void **state)
{
    (void)state;
    double since = clock_s();
    TcpRun run = { .ranks = 4, .body = rank_1_fails };
    tcp_run(&run);
    CHECK_INT(run.end[1], ERR_DISK);
    for (int r = 0; r < 4; r++) {
        if (r != 1) CHECK_TEXT(run.why[r], "rank 1 failed: no room for the checkpoint");
    }
    CHECK(clock_s() - since < 10);
}

static atomic_int gone; /* rank 1 has dropped its message */

/* Rank 1 ends in the middle of a message: the buffers of the system are full, a piece has gone in part. Only then rank 0
 * reads on, and the reason comes behind that piece. */
static Status ends_in_a_message(Comm *c, Arena *a)
{
    enum { BYTES = 64 << 20 };
    char *x = NULL;
    bool done = false;
    CommRequest r;
    TRY(ARENA_NEW(a, BYTES, &x));
    const Tensor t = { x, DTYPE_U8, 1, { BYTES } };
    memset(x, c->rank + 1, BYTES);
    if (c->rank == 0) {
        TRY(comm_recv(c, &t, 1, 0, &r));
        while (gone == 0) usleep(1000);
        return comm_wait(c, &r);
    }
    TRY(comm_send(c, &t, 0, 0, &r));
    for (int i = 0; i < 20 && !done; i++) TRY(comm_test(c, &r, &done));
    EXPECT(!done);
    comm_abort(c, "stopped in a message");
    gone = 1;
    return FAIL(ERR_NUMERIC, "stopped in a message");
}

static void a_reason_arrives_behind_half_a_message(void **state)
{
    (void)state;
    gone = 0;
    TcpRun run = { .ranks = 2, .body = ends_in_a_message };
    tcp_run(&run);
    CHECK_TEXT(run.why[1], "stopped in a message");
    CHECK_TEXT(run.why[0], "rank 1 failed: stopped in a message");
}

/* A rank whose memory goes while its message is under way: nobody touches it (under the address sanitizer). */
static Status memory_goes(Comm *c, Arena *a)
{
    const size_t bytes = (size_t)8 << 20;
    char *x = malloc(bytes), *y = malloc(bytes);
    const int peer = 1 - c->rank;
    CommRequest r[2] = { 0 };
    (void)a;
    EXPECT(x != NULL && y != NULL);
    memset(x, 1, bytes);
    Status s = comm_send(c, &(Tensor){ x, DTYPE_U8, 1, { (int64_t)bytes } }, peer, 1, &r[0]);
    if (s == OK) s = comm_recv(c, &(Tensor){ y, DTYPE_U8, 1, { (int64_t)bytes } }, peer, 1, &r[1]);
    if (s == OK && c->rank == 0) {
        comm_abort(c, "enough");
        free(x);
        free(y);
        return FAIL(ERR_COMM, "enough");
    }
    if (s == OK) s = comm_wait(c, &r[1]);
    free(x);
    free(y);
    TRY(s);
    return OK;
}

static void memory_may_go_after_an_abort(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        TcpRun run = { .ranks = 2, .body = memory_goes };
        tcp_run(&run);
        tcp_check_all(&run, ERR_COMM, "enough");
    }
}

static Status lengths_differ(Comm *c, Arena *a)
{
    float x[2] = { 0 };
    CommRequest r;
    const Tensor t = { x, DTYPE_F32, 1, { c->rank + 1 } };
    (void)a;
    TRY(c->rank == 0 ? comm_send(c, &t, 1, 0, &r) : comm_recv(c, &t, 0, 0, &r));
    return comm_wait(c, &r);
}

static void lengths_that_differ_are_an_error_that_names_both(void **state)
{
    (void)state;
    TcpRun run = { .ranks = 2, .body = lengths_differ };
    tcp_run(&run);
    CHECK_INT(run.end[0], ERR_SHAPE);
    CHECK_TEXT(run.why[0], "rank 0 sends 4 bytes, rank 1 receives 8");
    CHECK_TEXT(run.why[1], "rank 0 failed: rank 0 sends 4 bytes, rank 1 receives 8");
}

static Status ends_early(Comm *c, Arena *a)
{
    (void)a;
    return c->rank == 1 ? comm_barrier(c) : case_split(c, a);
}

/* A program whose ranks do not agree on what they call does not hang. */
static void a_rank_that_ends_early_is_named(void **state)
{
    (void)state;
    TcpRun run = { .ranks = 2, .body = ends_early, .timeout_s = 2 };
    tcp_run(&run);
    CHECK_INT(run.end[0], ERR_COMM);
    CHECK(strstr(run.why[0], "rank 1") != NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(collectives_are_plain_loops_in_the_order_of_ranks),
        TEST(transfers_arrive_whole_and_in_order),
        TEST(groups_of_a_split_do_not_hear_each_other),
        TEST(addresses_of_version_6),
        TEST(both_sides_may_send_much_at_once),
        TEST(a_message_that_nobody_awaits_yet_is_not_lost),
        TEST(messages_of_one_tag_keep_the_order_of_posting),
        TEST(a_lost_rank_is_named_at_the_deadline_through_the_chain_of_waits),
        TEST(others_end_at_once_with_the_reason_of_the_first),
        TEST(a_reason_arrives_behind_half_a_message),
        TEST(memory_may_go_after_an_abort),
        TEST(lengths_that_differ_are_an_error_that_names_both),
        TEST(a_rank_that_ends_early_is_named),
    };
    return TEST_RUN(tests);
}
