/* tcp_ranks: ranks that meet over TCP on loopback, as threads of the test: so sanitizers see all of them. */
#ifndef TESTS_HARNESS_TCP_RANKS_H
#define TESTS_HARNESS_TCP_RANKS_H

#include "engine/comm/tcp.h"
#include "harness/test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TCP_RANKS = 8 };

typedef Status TcpBody(Comm *world, Arena *a);
/* Before rank `rank` meets the others: changes its launch, or does what a stranger does. */
typedef void TcpBefore(int rank, CommLaunch *l);

typedef struct TcpRun {
    int ranks, port;
    double timeout_s;
    TcpBody *body;
    TcpBefore *before;
    const char *address, *program[TCP_RANKS]; /* NULL: 127.0.0.1; "1.0" */
    /* out */
    Status end[TCP_RANKS];
    char why[TCP_RANKS][1024];
} TcpRun;

/* A port that nobody has now. */
static inline int tcp_free_port(void)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t n = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&at, n) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&at, &n) == 0);
    close(fd);
    return ntohs(at.sin_port);
}

static inline Status tcp_be_rank(void *state, Comm *thread)
{
    TcpRun *run = (TcpRun *)state;
    const int rank = thread->rank;
    Comm *world = NULL;
    Arena a = { 0 };
    CommLaunch l = { LAUNCHED_TORCH, run->ranks, rank, rank, run->ranks,
                     "127.0.0.1",    run->port,  7,    "" };
    if (run->address != NULL) snprintf(l.address, sizeof l.address, "%s", run->address);
    if (run->before != NULL) run->before(rank, &l);
    TRY(arena_init(&a, "tcp", MEM_HOST, (size_t)1 << 30));
    Status s = tcp_open(&l, run->program[rank] == NULL ? "1.0" : run->program[rank], run->timeout_s,
                        &a, &world);
    if (s == OK) s = run->body(world, &a);
    if (s != OK) status_sentence(run->why[rank], sizeof run->why[rank]);
    if (s != OK && world != NULL) comm_abort(world, run->why[rank]);
    comm_free(world);
    arena_free(&a);
    run->end[rank] = s;
    return OK;
}

static inline void tcp_run(TcpRun *run)
{
    int failed = -1;
    if (run->port == 0) run->port = tcp_free_port();
    if (run->timeout_s == 0) run->timeout_s = 60;
    CHECK_OK(comm_threads(run->ranks, 60, tcp_be_rank, run, &failed));
}

static inline void tcp_check_all(const TcpRun *run, Status want, const char *part)
{
    for (int r = 0; r < run->ranks; r++) {
        if (run->end[r] != want)
            fail_msg("rank %d: %s, want %s: %s", r, status_name(run->end[r]), status_name(want),
                     run->why[r]);
        if (want != OK && strstr(run->why[r], part) == NULL)
            fail_msg("rank %d says \"%s\", want \"%s\"", r, run->why[r], part);
    }
}

/* A stranger's connection; the port may not be open yet. */
static inline int tcp_connect(int port)
{
    const struct sockaddr_in at = { .sin_family = AF_INET,
                                    .sin_port = htons((uint16_t)port),
                                    .sin_addr = { htonl(INADDR_LOOPBACK) } };
    for (int tries = 0; tries < 2000; tries++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (const struct sockaddr *)&at, sizeof at) == 0) return fd;
        close(fd);
        usleep(5000);
    }
    return -1;
}

#endif
