/*
 * mpi: ranks are processes. MPI only carries messages between two ranks; host.c builds the collectives.
 * So sums have the same bits as with threads, whatever algorithms an MPI library would choose.
 *
 * Waits poll, and after SPINS polls sleep for longer and longer, up to a millisecond, because there may
 * be more ranks than cores.
 *
 * A second communicator carries news, for which every wait polls. A rank announces that it aborted the
 * world. From half of the deadline on, or after SIGTERM, it also announces which rank it waits for. So
 * the first rank whose deadline passes can name the rank that caused the wait.
 *
 * MPI_Finalize waits for all ranks without a deadline, so it is called only after a barrier that has
 * one. After a failure the process just ends, and mpirun ends the others.
 */
#include "engine/comm/host.h"

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/comm/mpi_version.h"

#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* MPI counts are ints, so a long message is sent as two messages: whole blocks, and the rest. The
 * threshold is far below 2 GiB on purpose: it costs nothing, and every run uses that path. */
enum { BLOCK_BYTES = 1 << 16, WHOLE_MAX_BYTES = 1 << 20 };
enum { SPINS = 100, NAP_MIN_NS = 20000, NAP_MAX_NS = 1000000 };
static const double LINGER_S = 0.3;   /* failed rank: time for the others to report before mpirun
                                         kills them */
static const double PARTING_S = 0.05; /* wait for a last message, or to cancel a receive */

typedef enum NewsKind { NEWS_ABORT, NEWS_WAITS } NewsKind;

typedef struct News {
    NewsKind kind;
    int peer; /* the rank that the sender waits for; -1: none */
    char why[COMM_WHY_BYTES];
} News;

typedef struct Transfer {
    MPI_Request part[2]; /* blocks, rest */
    Message message;
} Transfer;

typedef struct Mpi {
    MPI_Comm messages, news;
    MPI_Datatype block;
    Comm *world;
    int rank, ranks, tag_max;
    int aborted_by; /* the rank that aborted; -1: none */
    WaitNews wait;
    int *waits_for;       /* (ranks) the rank that each rank announced; -1: none */
    MPI_Request *telling; /* (ranks) news being sent to each rank */
    News out;             /* its contents: unchanged until `telling` is done */
    char why[COMM_WHY_BYTES];
    Transfer transfer[COMM_REQUESTS];
} Mpi;

static Status mpi_status(int rc, const char *what)
{
    char why[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    if (rc == MPI_SUCCESS) return OK;
    MPI_Error_string(rc, why, &n);
    return FAIL(ERR_COMM, "MPI, %s: %s", what, why);
}

/* Yields first, because a message inside a host takes microseconds. Then the pauses double. */
static void back_off(int spins)
{
    long ns = NAP_MIN_NS;
    if (spins < SPINS) {
        sched_yield();
        return;
    }
    for (int i = SPINS; i < spins && ns < NAP_MAX_NS; i += SPINS / 2) ns *= 2;
    nanosleep(&(struct timespec){ .tv_nsec = ns < NAP_MAX_NS ? ns : NAP_MAX_NS }, NULL);
}

/* The key is MPI's tag, so messages of different groups and calls never match. */
static int begin_message(const Mpi *b, const Message *m, char *at, int count, MPI_Datatype type,
                         MPI_Request *out)
{
    if (m->sends) return MPI_Isend(at, count, type, m->peer, m->key, b->messages, out);
    return MPI_Irecv(at, count, type, m->peer, m->key, b->messages, out);
}

/* The rest is always sent, even if it is empty: check_length looks at its length alone. */
static Status mpi_post(void *self, int slot, const Message *m)
{
    Mpi *b = self;
    Transfer *t = &b->transfer[slot];
    size_t blocks = m->bytes > WHOLE_MAX_BYTES ? m->bytes / BLOCK_BYTES : 0;
    size_t rest = m->bytes - blocks * BLOCK_BYTES;
    char *at = m->data;
    *t = (Transfer){ { MPI_REQUEST_NULL, MPI_REQUEST_NULL }, *m };
    if (m->key > b->tag_max) {
        return FAIL(ERR_COMM, "message key %d, this MPI has tags up to %d", m->key, b->tag_max);
    }
    if (blocks > 0) {
        /* NOLINTNEXTLINE(clang-analyzer-optin.mpi.MPI-Checker): mpi_test waits for it */
        TRY(mpi_status(begin_message(b, m, at, (int)blocks, b->block, &t->part[0]),
                       "a message's blocks"));
    }
    at += blocks * BLOCK_BYTES;
    /* NOLINTNEXTLINE(clang-analyzer-optin.mpi.MPI-Checker): mpi_test waits for it */
    return mpi_status(begin_message(b, m, at, (int)rest, MPI_BYTE, &t->part[1]), "a message");
}

/* Sends news to all other ranks. If the previous news is still being sent, drops this one, because
 * b->out is in use. So mpi_abort first waits until it is sent. */
static void send_news(Mpi *b, NewsKind kind, int peer, size_t bytes)
{
    int gone = 0;
    MPI_Testall(b->ranks, b->telling, &gone, MPI_STATUSES_IGNORE);
    if (!gone) return;
    b->out.kind = kind;
    b->out.peer = peer;
    for (int r = 0; r < b->ranks; r++) {
        if (r == b->rank) continue;
        MPI_Isend(&b->out, (int)bytes, MPI_BYTE, r, 0, b->news, &b->telling[r]);
    }
}

/* Called by every wait. News about waits are only hints for messages; the first abort ends the
 * world. */
static Status receive_news(Mpi *b)
{
    for (;;) {
        MPI_Status st;
        News in = { 0 };
        int there = 0;
        TRY(mpi_status(MPI_Iprobe(MPI_ANY_SOURCE, 0, b->news, &there, &st), "looking for news"));
        if (!there) return OK;
        TRY(mpi_status(MPI_Recv(&in, (int)sizeof in, MPI_BYTE, st.MPI_SOURCE, 0, b->news, &st),
                       "reading news"));
        if (in.kind == NEWS_WAITS) b->waits_for[st.MPI_SOURCE] = in.peer;
        if (in.kind != NEWS_ABORT || b->aborted_by >= 0) continue;
        b->aborted_by = st.MPI_SOURCE;
        memcpy(b->why, in.why, sizeof b->why);
    }
}

/* Compares the length of the second part (the rest) with what was expected. */
static Status check_length(const Mpi *b, const Transfer *t, const MPI_Status *st)
{
    int n = 0;
    size_t want = t->message.bytes;
    if (want > WHOLE_MAX_BYTES) want %= BLOCK_BYTES;
    MPI_Get_count(st, MPI_BYTE, &n);
    if (t->message.sends || (size_t)n == want) return OK;
    return FAIL(ERR_SHAPE, "rank %d receives %zu bytes, rank %d sends %d", b->rank, want,
                t->message.peer, n);
}

static Status test_transfer(Mpi *b, Transfer *t, bool *done)
{
    MPI_Status st[2];
    int all = 0;
    TRY(mpi_status(MPI_Testall(2, t->part, &all, st), "a message under way"));
    *done = all != 0;
    return all ? check_length(b, t, &st[1]) : OK;
}

static Status mpi_test(void *self, int slot, double patience_s, bool *done)
{
    Mpi *b = self;
    double until = clock_s() + patience_s;
    for (int spins = 0;; spins++) {
        TRY(test_transfer(b, &b->transfer[slot], done));
        if (*done) break;
        TRY(receive_news(b));
        if (b->aborted_by >= 0 || patience_s <= 0 || clock_s() >= until) break;
        back_off(spins);
    }
    int peer = b->transfer[slot].message.peer;
    bool tells =
        patience_s > 0 && host_wait_news(b->world->world, &b->wait, slot, peer, *done, &peer);
    if (tells) send_news(b, NEWS_WAITS, peer, offsetof(News, why));
    return OK;
}

static int mpi_waits_for(void *self, int rank) { return ((const Mpi *)self)->waits_for[rank]; }

static int mpi_aborted(void *self, char why[COMM_WHY_BYTES])
{
    const Mpi *b = self;
    if (b->aborted_by >= 0) memcpy(why, b->why, COMM_WHY_BYTES);
    return b->aborted_by;
}

/* Waits until all requests are done, or until the time `until`. */
static void finish_requests(int n, MPI_Request *request, double until)
{
    int gone = 0;
    for (int spins = 0; !gone && (spins == 0 || clock_s() < until); spins++) {
        if (MPI_Testall(n, request, &gone, MPI_STATUSES_IGNORE) != MPI_SUCCESS) return;
        if (!gone) back_off(spins);
    }
}

static void mpi_abort(void *self, const char *why)
{
    Mpi *b = self;
    if (b->aborted_by >= 0) return;
    b->aborted_by = b->rank;
    finish_requests(b->ranks, b->telling, clock_s() + PARTING_S);
    (void)snprintf(b->out.why, sizeof b->out.why, "%s", why);
    memcpy(b->why, b->out.why, sizeof b->why);
    send_news(b, NEWS_ABORT, -1, sizeof b->out);
    finish_requests(b->ranks, b->telling, clock_s() + PARTING_S);
}

/* MPI writes a received message only inside calls of this process. Later calls concern only news, so
 * after this no memory of a transfer is written. */
static void mpi_withdraw(void *self)
{
    Mpi *b = self;
    double until = clock_s() + PARTING_S;
    for (int i = 0; i < COMM_REQUESTS; i++) {
        Transfer *t = &b->transfer[i];
        for (int p = 0; p < 2 && !t->message.sends; p++) {
            if (t->part[p] != MPI_REQUEST_NULL) MPI_Cancel(&t->part[p]);
        }
        if (!t->message.sends) finish_requests(2, t->part, until);
    }
}

static void mpi_close(void *self, bool failed)
{
    Mpi *b = self;
    if (failed) {
        nanosleep(&(struct timespec){ .tv_nsec = (long)(1e9 * LINGER_S) }, NULL);
        return;
    }
    if (comm_barrier(b->world) == OK)
        MPI_Finalize();
    else
        log_failure(LOG_WARN, "the end: ");
}

static const Transport mpi_transport = { .post = mpi_post,
                                         .test = mpi_test,
                                         .waits_for = mpi_waits_for,
                                         .aborted = mpi_aborted,
                                         .abort = mpi_abort,
                                         .withdraw = mpi_withdraw,
                                         .close = mpi_close };

static Status open_channel(MPI_Comm *out, const char *what)
{
    TRY(mpi_status(MPI_Comm_dup(MPI_COMM_WORLD, out), what));
    return mpi_status(MPI_Comm_set_errhandler(*out, MPI_ERRORS_RETURN), what);
}

/* Each communicator is a duplicate, so that no library that uses MPI_COMM_WORLD can take our
 * messages. */
static Status open_channels(Mpi *b)
{
    const int *tag_max = NULL;
    int found = 0;
    TRY(open_channel(&b->messages, "a communicator for messages"));
    TRY(open_channel(&b->news, "a communicator for news"));
    TRY(mpi_status(MPI_Type_contiguous(BLOCK_BYTES, MPI_BYTE, &b->block), "the type of blocks"));
    TRY(mpi_status(MPI_Type_commit(&b->block), "the type of blocks"));
    TRY(mpi_status(MPI_Comm_get_attr(b->messages, MPI_TAG_UB, (void *)&tag_max, &found),
                   "the largest tag"));
    b->tag_max = found ? *tag_max : INT16_MAX;
    return OK;
}

/* SIGALRM handler: ends the process if MPI_Init takes too long, because it has no deadline. Only
 * async-signal-safe calls. */
static void on_late_start(int number)
{
    static const char text[] = "error: MPI has not started within comm.timeout_s: a rank has not "
                               "come\n";
    (void)number;
    ssize_t said = write(STDERR_FILENO, text, sizeof text - 1);
    _exit(said < 0 ? EXIT_FAILURE : status_exit_code(ERR_COMM));
}

/* timeout_s 0 stops the timer and removes the handler. */
static void watch_start(double timeout_s)
{
    time_t s = (time_t)timeout_s;
    struct itimerval after = { .it_value = { s, (suseconds_t)(1e6 * (timeout_s - (double)s)) } };
    (void)signal(SIGALRM, timeout_s > 0 ? on_late_start : SIG_DFL);
    setitimer(ITIMER_REAL, &after, NULL);
}

static Status start_mpi(Arena *a, double timeout_s, Comm **out)
{
    int level = 0;
    Mpi *b = NULL;
    TRY(mpi_status(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level), "its start"));
    TRY(mpi_status(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "its errors"));
    TRY(ARENA_ZEROED(a, 1, &b));
    MPI_Comm_rank(MPI_COMM_WORLD, &b->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &b->ranks);
    TRY(ARENA_NEW(a, b->ranks, &b->waits_for));
    TRY(ARENA_NEW(a, b->ranks, &b->telling));
    for (int r = 0; r < b->ranks; r++) {
        b->waits_for[r] = -1;
        b->telling[r] = MPI_REQUEST_NULL;
    }
    for (int i = 0; i < COMM_REQUESTS; i++) {
        b->transfer[i].part[0] = b->transfer[i].part[1] = MPI_REQUEST_NULL;
    }
    b->aborted_by = -1;
    TRY(open_channels(b));
    TRY(host_open(&mpi_transport, b, b->rank, b->ranks, timeout_s, a, &b->world));
    *out = b->world;
    return OK;
}

Status comm_mpi(Arena *a, double timeout_s, Comm **out)
{
    watch_start(timeout_s);
    Status s = start_mpi(a, timeout_s, out);
    watch_start(0);
    return s;
}

bool comm_mpi_built(void) { return true; }

/* Open MPI goes on with ", package: ..." and more. MPI allows this call before MPI_Init. */
void comm_mpi_version(char out[COMM_MPI_VERSION_BYTES])
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int n = 0;
    (void)MPI_Get_library_version(text, &n);
    (void)snprintf(out, COMM_MPI_VERSION_BYTES, "%.*s", (int)strcspn(text, ",\n"), text);
}
