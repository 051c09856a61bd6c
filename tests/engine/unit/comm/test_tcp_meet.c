/* How ranks meet over TCP: who is refused, by what sentence, and who disturbs nobody. */
#include "engine/base/clock.h"
#include "engine/base/rng.h"
#include "harness/comm_cases.h"
#include "harness/tcp_ranks.h"

#include "engine/base/log.h"

#include <sys/wait.h>

static Status meets(Comm *c, Arena *a)
{
    (void)a;
    EXPECT(c->size == 2 || c->size == 3);
    return comm_barrier(c);
}

static int port; /* of the test that runs */

/* What rank 1 of run `l` says, as a rank of this program does. */
static TcpHello hello_of(const CommLaunch *l)
{
    TcpHello h = {
        .wire = 1, .ranks = (uint32_t)l->ranks, .rank = (uint32_t)l->rank, .job = l->job
    };
    memcpy(h.magic, "SWYARD\r\n", 8);
    snprintf(h.program, sizeof h.program, "1.0");
    return h;
}

/* Sends it, and waits until the other side has closed. */
static void say(const void *data, size_t bytes)
{
    char answer[4096];
    int fd = tcp_connect(port);
    if (fd < 0) return;
    if (bytes > 0) (void)!send(fd, data, bytes, MSG_NOSIGNAL);
    while (recv(fd, answer, sizeof answer, 0) > 0) {}
    close(fd);
}

/* ---- strangers ---- */

static void strangers_come_first(int rank, CommLaunch *l)
{
    static const char *const words[] = { "GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02", "SWYARD",
                                         "S", "" };
    if (rank != 1) return;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        int fd = tcp_connect(port);
        (void)!send(fd, words[i], strlen(words[i]), MSG_NOSIGNAL);
        close(fd);
    }
    TcpHello h = hello_of(l);
    for (size_t n = 0; n < sizeof h; n += 13) { /* ended in the middle */
        int fd = tcp_connect(port);
        (void)!send(fd, &h, n, MSG_NOSIGNAL);
        close(fd);
    }
}

static void strangers_and_broken_hellos_disturb_nobody(void **state)
{
    (void)state;
    port = tcp_free_port();
    TcpRun run = { .ranks = 2, .port = port, .body = meets, .before = strangers_come_first };
    tcp_run(&run);
    tcp_check_all(&run, OK, "");
}

static void a_silent_one_comes_first(int rank, CommLaunch *l)
{
    (void)l;
    if (rank == 1) (void)tcp_connect(port); /* open until the test ends */
}

static void a_silent_connection_delays_the_others_for_two_seconds(void **state)
{
    (void)state;
    double since = clock_s();
    port = tcp_free_port();
    TcpRun run = { .ranks = 2, .port = port, .body = meets, .before = a_silent_one_comes_first };
    tcp_run(&run);
    tcp_check_all(&run, OK, "");
    CHECK(clock_s() - since < 10);
}

/* Random changes of a hello whose token is not right, and random bytes behind the right magic. */
static void damaged_hellos(int rank, CommLaunch *l)
{
    memcpy(l->token, "right", 5);
    if (rank != 1) return;
    uint64_t stream = rng_stream("hello");
    for (int i = 0; i < RUNS(300, 60); i++) {
        TcpHello h = hello_of(l);
        unsigned char *bytes = (unsigned char *)&h;
        memcpy(h.token, "wrong", 5);
        size_t from = i % 2 == 0 ? 8 : (size_t)(rng_uniform(1, stream, (uint64_t)i) * sizeof h);
        for (size_t b = from; b < sizeof h && (i % 2 == 0 || b < from + 4); b++)
            bytes[b] = (unsigned char)(256 * rng_uniform(2, stream, (uint64_t)i * 1000 + b));
        say(&h, sizeof h);
    }
}

static void damaged_hellos_disturb_nobody(void **state)
{
    (void)state;
    port = tcp_free_port();
    TcpRun run = { .ranks = 2, .port = port, .body = meets, .before = damaged_hellos };
    log_set_level(LOG_ERROR);
    tcp_run(&run);
    log_set_level(LOG_INFO);
    tcp_check_all(&run, OK, "");
}

/* ---- ranks that do not belong ---- */

static void another_token(int rank, CommLaunch *l)
{
    memcpy(l->token, rank == 1 ? "tokes" : "token", 5);
}

static void no_token(int rank, CommLaunch *l)
{
    if (rank == 0) memcpy(l->token, "token", 5);
}

static void another_job(int rank, CommLaunch *l) { l->job += (uint64_t)rank; }

/* The rank hears why; rank 0 goes on, and says it when nobody else has come. */
static void a_rank_of_another_start_is_refused(void **state)
{
    static const struct {
        TcpBefore *before;
        const char *why;
    } cases[] = { { another_token, "another SWITCHYARD_TOKEN" },
                  { no_token, "another SWITCHYARD_TOKEN" },
                  { another_job, "another job or restart" } };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        TcpRun run = { .ranks = 2, .body = meets, .before = cases[i].before, .timeout_s = 3 };
        tcp_run(&run);
        CHECK_INT(run.end[1], ERR_ARG);
        CHECK(strstr(run.why[1], cases[i].why) != NULL);
        CHECK_INT(run.end[0], ERR_COMM);
        CHECK(strstr(run.why[0], "rank 1 of 2 did not come to rank 0 at 127.0.0.1:") != NULL);
        CHECK(strstr(run.why[0], cases[i].why) != NULL);
    }
}

static void the_same_token_is_let_in(int rank, CommLaunch *l)
{
    (void)rank;
    memset(l->token, 'x', sizeof l->token);
}

static void ranks_with_one_token_meet(void **state)
{
    (void)state;
    TcpRun run = { .ranks = 3, .body = meets, .before = the_same_token_is_let_in };
    tcp_run(&run);
    tcp_check_all(&run, OK, "");
}

static void another_size(int rank, CommLaunch *l)
{
    if (rank == 2) l->ranks = 4;
}

static void one_twice(int rank, CommLaunch *l)
{
    if (rank == 2) l->rank = 1;
}

static void one_too_large(int rank, CommLaunch *l)
{
    if (rank == 2) l->rank = 7;
}

static void check_all_say(TcpBefore *before, const char *program, const char *part)
{
    TcpRun run = {
        .ranks = 3, .body = meets, .before = before, .program = { NULL, NULL, program }
    };
    double since = clock_s();
    tcp_run(&run);
    tcp_check_all(&run, ERR_ARG, part);
    CHECK(clock_s() - since < 20); /* not at the deadline of 60 s */
}

static void a_rank_that_does_not_fit_ends_all_with_one_sentence(void **state)
{
    (void)state;
    check_all_say(another_size, NULL,
                  "is one of 4 ranks, rank 0 one of 3: give all the same WORLD_SIZE");
    check_all_say(one_twice, NULL, "rank 1 comes twice, from 127.0.0.1:");
    check_all_say(one_too_large, NULL, "comes to rank 0 of 3: give each process a RANK of its own");
    check_all_say(NULL, "1.1", "is version 1.1 of the program, rank 0 is version 1.0");
}

/* ---- places ---- */

static void a_rank_stays_away(int rank, CommLaunch *l)
{
    if (rank == 2) l->port = 1; /* nobody listens there */
}

static void a_missing_rank_is_named_at_the_deadline_by_all(void **state)
{
    (void)state;
    TcpRun run = { .ranks = 3, .body = meets, .before = a_rank_stays_away, .timeout_s = 3 };
    tcp_run(&run);
    for (int r = 0; r < 2; r++) {
        CHECK_INT(run.end[r], ERR_COMM);
        CHECK(strstr(run.why[r], "rank 2 of 3 did not come to rank 0 at 127.0.0.1:") != NULL);
    }
    CHECK(strstr(run.why[2],
                 "rank 2 did not reach rank 0 at 127.0.0.1:1 (MASTER_ADDR, MASTER_PORT) within 3 s "
                 "(comm.timeout_s): Connection refused") != NULL);
}

static void rank_1_is_late(int rank, CommLaunch *l)
{
    (void)l;
    if (rank == 1) usleep(700000);
}

static void a_late_rank_is_awaited(void **state)
{
    (void)state;
    TcpRun run = { .ranks = 3, .body = meets, .before = rank_1_is_late, .timeout_s = 20 };
    tcp_run(&run);
    tcp_check_all(&run, OK, "");
}

static void rank_0_is_late(int rank, CommLaunch *l)
{
    (void)l;
    if (rank == 0) usleep(700000);
}

static void a_late_rank_0_is_awaited(void **state)
{
    (void)state;
    TcpRun run = { .ranks = 3, .body = meets, .before = rank_0_is_late, .timeout_s = 20 };
    tcp_run(&run);
    tcp_check_all(&run, OK, "");
}

/* Another program listens at the port, and answers or says nothing. */
static void a_port_that_is_taken_is_named(void **state)
{
    const struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    struct sockaddr_in got;
    socklen_t n = sizeof got;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    (void)state;
    CHECK(fd >= 0 && bind(fd, (const struct sockaddr *)&at, sizeof at) == 0 && listen(fd, 8) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&got, &n) == 0);
    TcpRun run = { .ranks = 2, .port = ntohs(got.sin_port), .body = meets, .timeout_s = 3 };
    tcp_run(&run);
    close(fd);
    CHECK_INT(run.end[0], ERR_ARG);
    CHECK(strstr(run.why[0], "another program has this port, choose another one") != NULL);
    CHECK_INT(run.end[1], ERR_COMM);
    CHECK(strstr(run.why[1], "what listens there is no rank 0 of this program") != NULL);
}

static void an_address_of_another_host_is_named(void **state)
{
    (void)state;
    TcpRun run = { .ranks = 2, .body = meets, .address = "192.0.2.1", .timeout_s = 0.5 };
    tcp_run(&run);
    CHECK_INT(run.end[0], ERR_ARG);
    CHECK(strstr(run.why[0], "this host has no such address") != NULL);
    CHECK_INT(run.end[1], ERR_COMM);
}

static void a_name_that_does_not_resolve_is_named(void **state)
{
    (void)state;
    TcpRun run = { .ranks = 2, .body = meets, .address = "no-such-host.invalid", .timeout_s = 0.5 };
    log_set_level(LOG_ERROR);
    tcp_run(&run);
    log_set_level(LOG_INFO);
    tcp_check_all(&run, ERR_ARG, "MASTER_ADDR no-such-host.invalid does not resolve: ");
}

/* Without a token nobody on another network reaches rank 0; with one it listens on all networks. */
static bool reaches(const char *token)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK + 1) } };
    CommLaunch l = { LAUNCHED_TORCH, 2, 0, 0, 2, "127.0.0.1", tcp_free_port(), 7, "" };
    snprintf(l.token, sizeof l.token, "%s", token);
    at.sin_port = htons((uint16_t)l.port);
    pid_t pid = fork();
    if (pid == 0) {
        Arena a = { 0 };
        Comm *world = NULL;
        _exit(arena_init(&a, "door", MEM_HOST, 1 << 24) == OK &&
              tcp_open(&l, "1.0", 0.5, &a, &world) == OK);
    }
    int own = tcp_connect(l.port), fd = socket(AF_INET, SOCK_STREAM, 0);
    bool reached = connect(fd, (struct sockaddr *)&at, sizeof at) == 0;
    CHECK(own >= 0);
    close(own);
    close(fd);
    CHECK(waitpid(pid, NULL, 0) == pid);
    return reached;
}

static void without_a_token_one_address_is_listened_at(void **state)
{
    (void)state;
    CHECK(!reaches(""));
    CHECK(reaches("token"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(strangers_and_broken_hellos_disturb_nobody),
        TEST(a_silent_connection_delays_the_others_for_two_seconds),
        TEST(damaged_hellos_disturb_nobody),
        TEST(a_rank_of_another_start_is_refused),
        TEST(ranks_with_one_token_meet),
        TEST(a_rank_that_does_not_fit_ends_all_with_one_sentence),
        TEST(a_missing_rank_is_named_at_the_deadline_by_all),
        TEST(a_late_rank_is_awaited),
        TEST(a_late_rank_0_is_awaited),
        TEST(a_port_that_is_taken_is_named),
        TEST(an_address_of_another_host_is_named),
        TEST(a_name_that_does_not_resolve_is_named),
        TEST(without_a_token_one_address_is_listened_at),
    };
    return TEST_RUN(tests);
}
