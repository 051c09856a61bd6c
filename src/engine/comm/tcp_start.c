/*
 * tcp_start: how ranks meet over TCP.
 *
 * Rank 0 listens at MASTER_ADDR and MASTER_PORT. Every other rank connects to it, again and again until
 * comm.timeout_s have passed, and says hello. When all have come, rank 0 sends everybody the addresses of
 * all. Then each rank connects to the lower ones and waits for the higher ones.
 *
 * Where ranks listen: without SWITCHYARD_TOKEN only at the address by which rank 0 is reached, so on
 * loopback or on that one network. With a token rank 0 listens on all networks, because MASTER_ADDR may
 * be the address of a service in front of it. The token is sent as it is: it keeps strangers and
 * accidents away, but nobody who reads the network.
 *
 * A connection with another magic, or that says nothing, is closed and disturbs nobody. So is one with
 * another token or of another start (TcpHello.job), but it is told why. A rank with the right token that
 * does not fit the others ends the start of all, with one sentence.
 */
#include "engine/comm/tcp.h"

#include "engine/base/clock.h"
#include "engine/base/interrupt.h"
#include "engine/base/log.h"
#include "engine/base/text.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { WIRE = 1, WHY_BYTES = 1024, LOOK_MS = 50, ADDRESS_BYTES = 80, BACKLOG = 4096 };
static const char MAGIC[8] = { 'S', 'W', 'Y', 'A', 'R', 'D', '\r', '\n' };
static const double SILENCE_S = 2;  /* a connection that says nothing for so long is closed */
static const double RESOLVE_S = 60; /* a name server may not know a new host yet */
static const double MORE_S = 2;     /* rank 0 says why it gives up: the others wait longer */

typedef struct Address {
    struct sockaddr_storage at;
    socklen_t bytes;
} Address;

typedef struct Meeting {
    const CommLaunch *launch;
    TcpHello own;
    double timeout_s, until;
    int lost;               /* the rank that made the start fail; before: this rank */
    int told;               /* ranks that know that the start has failed */
    int door;               /* listens */
    int *fd;                /* (ranks) */
    struct pollfd *poll;    /* (1 + ranks) */
    Address *seat;          /* (ranks) where each rank listens */
    char at[ADDRESS_BYTES]; /* of the door; before that of rank 0 */
    char why[WHY_BYTES];    /* why the last attempt, or the last guest, was refused */
} Meeting;

static const char *address_text(const struct sockaddr *at, socklen_t bytes, char out[ADDRESS_BYTES])
{
    char host[56] = "?", port[16] = "?";
    (void)getnameinfo(at, bytes, host, sizeof host, port, sizeof port,
                      NI_NUMERICHOST | NI_NUMERICSERV);
    (void)snprintf(out, ADDRESS_BYTES, at->sa_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
    return out;
}

/* The address of one end of a connection. The port has the same place in both families. */
static Address end_of(int fd, bool far)
{
    Address a = { .bytes = sizeof a.at };
    struct sockaddr *at = (struct sockaddr *)&a.at;
    (void)(far ? getpeername(fd, at, &a.bytes) : getsockname(fd, at, &a.bytes));
    return a;
}

static in_port_t *port_of(Address *a) { return &((struct sockaddr_in *)&a->at)->sin_port; }

static const char *far_text(int fd, char out[ADDRESS_BYTES])
{
    const Address a = end_of(fd, true);
    return address_text((const struct sockaddr *)&a.at, a.bytes, out);
}

static void close_fd(int *fd)
{
    if (*fd >= 0) (void)close(*fd);
    *fd = -1;
}

static const char *note_error(Meeting *m, int error)
{
    char text[64];
    (void)snprintf(m->why, sizeof m->why, "%s",
                   error == 0 ? "it ended" : strerror_r(error, text, sizeof text));
    return m->why;
}

static int open_socket(int family)
{
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0) return -1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on,
                     sizeof on); /* a port that was left a moment ago */
    return fd;
}

/* Waits until `fd` can be read or written. False: the time `until` has come, or a signal. */
static bool wait_for(int fd, short events, double until)
{
    do {
        struct pollfd p = { fd, events, 0 };
        if (poll(&p, 1, LOOK_MS) > 0) return true;
    } while (clock_s() < until && interrupt_signal() == 0);
    errno = interrupt_signal() == 0 ? ETIMEDOUT : EINTR;
    return false;
}

/* -1: errno says why. */
static int connect_to(const struct sockaddr *at, socklen_t bytes, double until)
{
    int fd = open_socket(at->sa_family), why = 0;
    socklen_t n = sizeof why;
    if (fd < 0 || connect(fd, at, bytes) == 0) return fd;
    bool waited = errno == EINPROGRESS && wait_for(fd, POLLOUT, until);
    if (!waited || getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &n) != 0) why = errno;
    if (why != 0) close_fd(&fd);
    errno = why;
    return fd;
}

/* Sends all of `from`, or without it receives all of `to`. False: errno says why; 0: the other side has ended. */
static bool move_whole(int fd, char *to, const char *from, size_t bytes, double until)
{
    for (size_t moved = 0; moved < bytes;) {
        size_t left = bytes - moved;
        if (!wait_for(fd, from == NULL ? POLLIN : POLLOUT, until)) return false;
        ssize_t n = from == NULL ? recv(fd, to + moved, left, 0)
                                 : send(fd, from + moved, left, MSG_NOSIGNAL);
        if (n == 0) errno = 0;
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return false;
        if (n > 0) moved += (size_t)n;
    }
    return true;
}

static bool read_whole(int fd, void *data, size_t bytes, double until)
{
    return move_whole(fd, data, NULL, bytes, until);
}

static bool write_whole(int fd, const void *data, size_t bytes, double until)
{
    return move_whole(fd, NULL, data, bytes, until);
}

/* ---- who may come ---- */

/* In a time that does not depend on where the two differ. */
static bool same_token(const char *a, const char *b)
{
    volatile unsigned char differs = 0;
    for (int i = 0; i < LAUNCH_TOKEN_BYTES; i++) differs |= (unsigned char)(a[i] ^ b[i]);
    return differs == 0;
}

/* ERR_UNSUPPORTED: it is no rank of this start, whose other ranks go on. ERR_ARG: it is one, and does not fit. */
static Status check_hello(const Meeting *m, const TcpHello *h, const char *from)
{
    char there[ADDRESS_BYTES];
    const TcpHello *own = &m->own;
    if (h->wire != WIRE || !same_token(h->token, m->launch->token) || h->job != own->job)
        return FAIL(ERR_UNSUPPORTED,
                    "a process at %s comes to rank %u with %s: it does not belong to "
                    "this start",
                    from, own->rank,
                    h->wire != WIRE      ? "another version of messages"
                    : h->job != own->job ? "another job or restart, on the same MASTER_PORT"
                                         : "another SWITCHYARD_TOKEN");
    if (strncmp(h->program, own->program, sizeof h->program) != 0)
        return FAIL(ERR_ARG,
                    "rank %u at %s is version %.31s of the program, rank %u is version %s: install "
                    "one on all hosts",
                    h->rank, from, h->program, own->rank, own->program);
    if (h->ranks != own->ranks)
        return FAIL(ERR_ARG,
                    "rank %u at %s is one of %u ranks, rank %u one of %u: give all the same "
                    "WORLD_SIZE",
                    h->rank, from, h->ranks, own->rank, own->ranks);
    if (h->rank >= own->ranks || h->rank <= own->rank)
        return FAIL(ERR_ARG,
                    "rank %u at %s comes to rank %u of %u: give each process a RANK of its own, "
                    "from 0 on",
                    h->rank, from, own->rank, own->ranks);
    if (m->fd[h->rank] >= 0)
        return FAIL(ERR_ARG,
                    "rank %u comes twice, from %s and from %s: give each process a RANK of its own",
                    h->rank, far_text(m->fd[h->rank], there), from);
    return OK;
}

/* It fits the buffer of a new connection, so nothing waits. */
static void tell_why(int fd, int rank, Status code, const char *why)
{
    const TcpFrame f = { .kind = TCP_STOP, .slot = (int)code, .key = rank, .bytes = strlen(why) };
    if (write_whole(fd, &f, sizeof f, 0)) (void)write_whole(fd, why, f.bytes, 0);
}

/* A connection at the door. `verdict`: the start has failed, as m->why says. Only a failure that ends the start of
 * all is returned. */
static Status receive_guest(Meeting *m, Status verdict)
{
    char from[ADDRESS_BYTES];
    TcpHello h;
    int fd = accept4(m->door, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), on = 1;
    if (fd < 0 && (errno == EMFILE || errno == ENFILE))
        return FAIL(ERR_COMM, "rank %u has too many open files: raise ulimit -n", m->own.rank);
    if (fd < 0) return OK;
    double until = clock_s() + SILENCE_S;
    bool ours = read_whole(fd, h.magic, sizeof h.magic, until) &&
                memcmp(h.magic, MAGIC, sizeof MAGIC) == 0 &&
                read_whole(fd, &h.wire, sizeof h - offsetof(TcpHello, wire), until);
    if (!ours) return close_fd(&fd), OK;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (m->own.rank == 0) (void)write_whole(fd, &m->own, sizeof m->own, 0);
    Status s = check_hello(m, &h, far_text(fd, from));
    if (s == OK && verdict == OK) {
        m->seat[h.rank] = end_of(fd, true);
        *port_of(&m->seat[h.rank]) = htons((uint16_t)h.port);
        return m->fd[h.rank] = fd, OK;
    }
    if (s != OK) status_sentence(m->why, sizeof m->why);
    if (m->own.rank == 0) tell_why(fd, 0, s == OK ? verdict : ERR_ARG, m->why);
    close_fd(&fd);
    m->told += s != ERR_UNSUPPORTED;
    if (s == ERR_UNSUPPORTED) log_warn("%s", m->why);
    return s == ERR_UNSUPPORTED ? OK : s;
}

/* Rank `rank` has ended, or has sent a frame other than expected. It may already run, so before its reason come frames
 * of its first messages. `f` was read if `read`. */
static Status hear_end(Meeting *m, int rank, TcpFrame f, bool read)
{
    double until = clock_s() + MORE_S;
    while (read && (f.kind == TCP_READY || f.kind == TCP_WAITS))
        read = read_whole(m->fd[rank], &f, sizeof f, until);
    m->lost = rank;
    if (!read || f.kind != TCP_STOP || f.bytes >= WHY_BYTES ||
        !read_whole(m->fd[rank], m->why, f.bytes, until))
        return FAIL(ERR_COMM, "rank %u lost rank %d while the ranks met: %s", m->own.rank, rank,
                    note_error(m, read ? EPROTO : errno));
    m->why[f.bytes] = '\0';
    m->lost = f.key;
    if (f.slot == OK) return FAIL(ERR_COMM, "rank %d failed: %s", f.key, m->why);
    return FAIL(f.slot == ERR_ARG ? ERR_ARG : ERR_COMM, "%s", m->why);
}

static Status check_signals(void) { return interrupt_check("the ranks have not met yet"); }

/* Looks once at the door and at the ranks that have come: one that ends is lost. */
static Status look(Meeting *m, Status verdict)
{
    int ranks = m->launch->ranks;
    for (int r = 0; r < ranks; r++) m->poll[r] = (struct pollfd){ m->fd[r], POLLRDHUP, 0 };
    m->poll[ranks] = (struct pollfd){ m->door, POLLIN, 0 };
    (void)poll(m->poll, (nfds_t)ranks + 1, LOOK_MS);
    TRY(check_signals());
    for (int r = 0; r < ranks && verdict == OK; r++) {
        if (m->poll[r].revents == 0) continue;
        TcpFrame f = { 0 };
        bool read = read_whole(m->fd[r], &f, sizeof f, clock_s() + MORE_S);
        return hear_end(m, r, f, read);
    }
    return m->poll[ranks].revents != 0 ? receive_guest(m, verdict) : OK;
}

/* Until all higher ranks have come. */
static Status wait_for_higher(Meeting *m)
{
    enum { NAMED = 8 };
    for (;;) {
        char names[96];
        int missing = 0;
        size_t n = 0;
        for (int r = m->launch->rank + 1; r < m->launch->ranks; r++) {
            if (m->fd[r] >= 0) continue;
            if (missing < NAMED)
                n = text_add(names, sizeof names, n, missing == 0 ? "rank %d" : ", rank %d", r);
            missing++;
        }
        if (missing == 0) return OK;
        if (clock_s() > m->until)
            return FAIL(
                ERR_COMM,
                "%s%s of %d did not come to rank %u at %s within %g s (comm.timeout_s); does "
                "it run, and reach this address?%s%s",
                names, missing > NAMED ? " and more" : "", m->launch->ranks, m->own.rank, m->at,
                m->timeout_s, m->why[0] == '\0' ? "" : " Refused: ", m->why);
        TRY(look(m, OK));
    }
}

/* ---- rank 0 ---- */

static Status resolve(const Meeting *m, struct addrinfo **out)
{
    const CommLaunch *l = m->launch;
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV };
    double until = clock_s() + (m->timeout_s < RESOLVE_S ? m->timeout_s : RESOLVE_S);
    char port[16];
    (void)snprintf(port, sizeof port, "%d", l->port);
    for (bool told = false;; told = true) {
        int rc = getaddrinfo(l->address, port, &hints, out);
        if (rc == 0) return OK;
        if (clock_s() >= until)
            return FAIL(ERR_ARG, "MASTER_ADDR %s does not resolve: %s", l->address,
                        gai_strerror(rc));
        if (!told)
            log_warn("MASTER_ADDR %s does not resolve yet: %s", l->address, gai_strerror(rc));
        TRY(check_signals());
        (void)poll(NULL, 0, 4 * LOOK_MS);
    }
}

/* -1: errno says why. `anywhere`: on all networks of this family. */
static int listen_at(const struct sockaddr *address, socklen_t bytes, bool anywhere)
{
    struct sockaddr_storage at = { 0 };
    int fd = open_socket(address->sa_family);
    memcpy(&at, address, bytes);
    if (anywhere && address->sa_family == AF_INET6)
        ((struct sockaddr_in6 *)&at)->sin6_addr = in6addr_any;
    if (anywhere && address->sa_family == AF_INET) ((struct sockaddr_in *)&at)->sin_addr.s_addr = 0;
    if (fd < 0 || (bind(fd, (struct sockaddr *)&at, bytes) == 0 && listen(fd, BACKLOG) == 0))
        return fd;
    int why = errno;
    close_fd(&fd);
    errno = why;
    return -1;
}

static Status open_first_door(Meeting *m)
{
    struct addrinfo *list = NULL;
    TRY(resolve(m, &list));
    for (const struct addrinfo *at = list; at != NULL && m->door < 0; at = at->ai_next) {
        m->door = listen_at(at->ai_addr, at->ai_addrlen, m->launch->token[0] != '\0');
        (void)address_text(at->ai_addr, at->ai_addrlen, m->at);
    }
    int why = errno;
    freeaddrinfo(list);
    if (m->door >= 0) return log_info("rank 0 of %u waits at %s", m->own.ranks, m->at), OK;
    return FAIL(ERR_ARG, "rank 0 cannot listen at %s (MASTER_ADDR, MASTER_PORT): %s%s", m->at,
                note_error(m, why),
                why == EADDRINUSE ? "; another program has this port, choose another one"
                : why == EADDRNOTAVAIL
                    ? "; this host has no such address: MASTER_ADDR must be a name of rank "
                      "0's host, or SWITCHYARD_TOKEN be set"
                    : "");
}

static Status send_seats(Meeting *m)
{
    const TcpFrame f = { .kind = TCP_SEATS, .bytes = (size_t)m->launch->ranks * sizeof *m->seat };
    for (int r = 1; r < m->launch->ranks; r++) {
        if (!write_whole(m->fd[r], &f, sizeof f, m->until + MORE_S) ||
            !write_whole(m->fd[r], m->seat, f.bytes, m->until + MORE_S))
            return hear_end(m, r, f, false);
    }
    return OK;
}

/* Tells those who have come, and for a moment those who still come. The failure stays that of this thread. */
static void turn_away(Meeting *m, Status verdict)
{
    double until = clock_s() + (m->own.rank == 0 ? MORE_S : 0);
    status_sentence(m->why, sizeof m->why);
    for (int r = 0; r < m->launch->ranks; r++) {
        if (m->fd[r] >= 0) tell_why(m->fd[r], m->lost, verdict, m->why);
        m->told += m->fd[r] >= 0;
        close_fd(&m->fd[r]);
    }
    status_mute(true);
    while (m->told < m->launch->ranks - 1 && clock_s() < until && interrupt_signal() == 0) {
        if (look(m, verdict) != OK) break;
    }
    status_mute(false);
}

static Status meet_as_first(Meeting *m)
{
    TRY(open_first_door(m));
    Status s = wait_for_higher(m);
    if (s == OK) s = send_seats(m);
    if (s != OK) turn_away(m, s);
    return s;
}

/* ---- the others ---- */

static TcpHello hello_with_token(const Meeting *m)
{
    TcpHello hello = m->own;
    memcpy(hello.token, m->launch->token, sizeof hello.token);
    return hello;
}

/* One attempt to reach rank 0. This rank then listens on the same network. */
static Status visit(Meeting *m, const struct addrinfo *at)
{
    TcpHello answer = { 0 };
    int fd = connect_to(at->ai_addr, at->ai_addrlen, m->until);
    (void)address_text(at->ai_addr, at->ai_addrlen, m->at);
    if (fd < 0) return (void)note_error(m, errno), OK;
    Address near = end_of(fd, false);
    *port_of(&near) = 0;
    close_fd(&m->door);
    m->door = listen_at((struct sockaddr *)&near.at, near.bytes, false);
    if (m->door < 0)
        return close_fd(&fd),
               FAIL(ERR_COMM, "rank %u cannot listen: %s", m->own.rank, note_error(m, errno));
    near = end_of(m->door, false);
    m->own.port = ntohs(*port_of(&near));
    const TcpHello hello = hello_with_token(m);
    if (write_whole(fd, &hello, sizeof hello, m->until) &&
        read_whole(fd, &answer, sizeof answer, m->until) &&
        memcmp(answer.magic, MAGIC, sizeof MAGIC) == 0)
        return m->fd[0] = fd, OK;
    (void)snprintf(m->why, sizeof m->why, "what listens there is no rank 0 of this program");
    return close_fd(&fd), OK;
}

static Status find_first(Meeting *m)
{
    struct addrinfo *list = NULL;
    Status s = resolve(m, &list);
    while (s == OK && m->fd[0] < 0) {
        for (const struct addrinfo *a = list; s == OK && a != NULL && m->fd[0] < 0; a = a->ai_next)
            s = visit(m, a);
        if (s == OK) s = check_signals();
        if (s == OK && m->fd[0] < 0 && clock_s() >= m->until)
            s = FAIL(ERR_COMM,
                     "rank %u did not reach rank 0 at %s (MASTER_ADDR, MASTER_PORT) within %g s "
                     "(comm.timeout_s): %s",
                     m->own.rank, m->at, m->timeout_s, m->why);
        if (m->fd[0] < 0) (void)poll(NULL, 0, LOOK_MS);
    }
    if (list != NULL) freeaddrinfo(list);
    return s;
}

/* The addresses of all ranks, or why rank 0 gave up. */
static Status receive_seats(Meeting *m)
{
    TcpFrame f = { 0 };
    double until = m->until + MORE_S;
    size_t bytes = (size_t)m->launch->ranks * sizeof *m->seat;
    bool read = read_whole(m->fd[0], &f, sizeof f, until);
    if (read && f.kind == TCP_SEATS && f.bytes == bytes &&
        read_whole(m->fd[0], m->seat, bytes, until))
        return OK;
    TRY(check_signals());
    return hear_end(m, 0, f, read);
}

static Status meet_lower(Meeting *m)
{
    const TcpHello hello = hello_with_token(m);
    for (int r = 1; r < m->launch->rank; r++) {
        char text[ADDRESS_BYTES];
        const struct sockaddr *at = (struct sockaddr *)&m->seat[r].at;
        m->fd[r] = connect_to(at, m->seat[r].bytes, m->until + MORE_S);
        if (m->fd[r] >= 0 && write_whole(m->fd[r], &hello, sizeof hello, m->until + MORE_S))
            continue;
        return FAIL(ERR_COMM,
                    "rank %u does not reach rank %d at %s: %s; hosts must reach each other on all "
                    "ports",
                    m->own.rank, r, address_text(at, m->seat[r].bytes, text), note_error(m, errno));
    }
    return OK;
}

static Status meet_as_other(Meeting *m)
{
    TRY(find_first(m));
    m->why[0] = '\0';
    TRY(receive_seats(m));
    TRY(meet_lower(m));
    Address own = end_of(m->door, false);
    (void)address_text((struct sockaddr *)&own.at, own.bytes, m->at);
    return wait_for_higher(m);
}

Status tcp_meet(const CommLaunch *l, const char *program, double timeout_s, Arena *a, int *fd)
{
    Meeting m = { .launch = l,
                  .timeout_s = timeout_s,
                  .until = clock_s() + timeout_s,
                  .door = -1,
                  .lost = l->rank,
                  .fd = fd };
    m.own = (TcpHello){
        .wire = WIRE, .ranks = (uint32_t)l->ranks, .rank = (uint32_t)l->rank, .job = l->job
    };
    memcpy(m.own.magic, MAGIC, sizeof MAGIC);
    (void)snprintf(m.own.program, sizeof m.own.program, "%s", program);
    TRY(ARENA_ZEROED(a, l->ranks, &m.seat));
    TRY(ARENA_NEW(a, l->ranks + 1, &m.poll));
    for (int r = 0; r < l->ranks; r++) fd[r] = -1;
    Status s = l->rank == 0 ? meet_as_first(&m) : meet_as_other(&m);
    if (s != OK && l->rank > 0) turn_away(&m, s);
    close_fd(&m.door);
    for (int r = 0; s != OK && r < l->ranks; r++) close_fd(&fd[r]);
    return s;
}
