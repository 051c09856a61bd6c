/*
 * tcp: carries messages between ranks that are processes, over one TCP connection for each pair. host.c
 * builds the collectives, so sums have the bits of threads and of MPI.
 *
 * The receiver begins. When a receive is posted, a READY frame tells the sender its key, its length and
 * its slot. A send waits for the first READY with its key. Then its bytes follow in pieces, straight from
 * the sender's memory into the receiver's. So no data arrives before its receive: a rank keeps at most
 * COMM_REQUESTS READYs of each other rank. Lengths that differ are found before the first byte is sent.
 *
 * There is no thread. Every post and every test moves bytes in both directions of all connections, so two
 * ranks that send gigabytes to each other make progress. Other frames go between pieces.
 *
 * Frames carry the news, too: a rank that failed tells all others why (STOP). From half of the deadline
 * on, or after SIGTERM, a rank announces for which rank it waits (WAITS). A connection that ends without
 * BYE is a lost rank. What it brought before its end is read first, so a reason is not lost.
 *
 * After a failure no memory of a transfer is touched: a piece that has begun is filled up with zeros, and
 * a piece that arrives is dropped.
 */
#include "engine/comm/tcp.h"

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/comm/host.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#ifdef HOSTILE
enum { PIECE_BYTES = 100 };
#else
enum { PIECE_BYTES = 1 << 18 };
#endif
/* QUEUE: a READY for each receive, and NEWS other frames. TURNS: system calls for one connection before the next has its turn. */
enum { NEWS = 16, QUEUE = COMM_REQUESTS + NEWS, TURNS = 16, DROP_BYTES = 4096 };
static const double LINGER_S = 1;     /* a failed rank: time for the others to read why */
static const double PARTING_S = 0.05; /* to send a failure at once */
static const double GOODBYE_S = 2; /* for the last frame of each rank, when all have ended well */

typedef struct Slot {
    Message message; /* bytes 0: free */
    uint64_t order;  /* of posting */
    size_t left;     /* bytes that were not yet sent, or have not yet arrived */
    int mate;        /* a send: the receiver's slot; -1: it is not ready */
} Slot;

/* A frame, and the bytes behind it. */
typedef struct Piece {
    TcpFrame frame;
    size_t head; /* bytes of the frame that were moved */
    size_t left; /* bytes behind it that were not */
    char *at;    /* their memory; NULL: none, zeros are sent and what arrives is dropped */
    int slot;    /* whose memory it is */
} Piece;

/* The connection to one rank. */
typedef struct Peer {
    int fd;                        /* -1: closed, or this rank itself */
    bool left;                     /* it has said BYE */
    int offers, matched, queued;   /* matched: sends with a mate whose bytes have not all gone */
    TcpFrame offer[COMM_REQUESTS]; /* READYs without a send, in the order of their arrival */
    TcpFrame queue[QUEUE];         /* frames to send */
    Piece in, out;
} Peer;

typedef struct Tcp {
    Comm *world;
    int rank, ranks;
    int aborted_by; /* the rank that failed first, as far as this one knows; -1: none */
    bool over;      /* no piece begins any more */
    uint64_t posted;
    WaitNews wait;
    int *waits_for; /* (ranks) the rank that each rank announced; -1: none */
    Peer *peer;     /* (ranks) */
    struct pollfd *poll;
    char why[COMM_WHY_BYTES], text[COMM_WHY_BYTES]; /* text: of a STOP that arrives */
    char zeros[DROP_BYTES];
    Slot slot[COMM_REQUESTS];
} Tcp;

static Status bad_frame(const Tcp *t, int rank, const TcpFrame *f)
{
    return FAIL(ERR_COMM, "rank %d sent rank %d a frame of kind %u that makes no sense", rank,
                t->rank, f->kind);
}

static void note_aborted(Tcp *t, int by, const char *why)
{
    if (t->aborted_by >= 0) return;
    t->aborted_by = by;
    (void)snprintf(t->why, sizeof t->why, "%s", why);
}

static void close_peer(Peer *p)
{
    if (p->fd >= 0) (void)close(p->fd);
    p->fd = -1;
}

static void lose_peer(Tcp *t, int rank, int error)
{
    char why[160], text[64];
    (void)snprintf(
        why, sizeof why,
        "its connection to rank %d ended (%s): it was killed, or its host or network is down",
        t->rank, error == 0 ? "closed" : strerror_r(error, text, sizeof text));
    if (!t->peer[rank].left) note_aborted(t, rank, why);
    close_peer(&t->peer[rank]);
}

/* The first send to this rank, in the order of posting, that has a mate, or has none and this key. */
static int find_send(const Tcp *t, int rank, bool mated, int key)
{
    int first = -1;
    for (int i = 0; i < COMM_REQUESTS; i++) {
        const Slot *s = &t->slot[i];
        bool fits = s->message.sends && s->message.peer == rank && s->left > 0 &&
                    (s->mate >= 0) == mated && (mated || s->message.key == key);
        if (fits && (first < 0 || s->order < t->slot[first].order)) first = i;
    }
    return first;
}

/* ---- what goes ---- */

/* The next frame: news and READYs before pieces. False: there is none. */
static bool next_frame(Tcp *t, int rank)
{
    Peer *p = &t->peer[rank];
    int slot = p->queued == 0 && p->matched > 0 && !t->over ? find_send(t, rank, true, 0) : -1;
    p->out = (Piece){ .frame = p->queue[0], .slot = slot };
    if (p->queued > 0) {
        memmove(p->queue, p->queue + 1, (size_t)--p->queued * sizeof *p->queue);
        p->out.left = p->out.frame.kind == TCP_STOP ? p->out.frame.bytes : 0;
        p->out.at = t->why;
        return true;
    }
    if (slot < 0) return false;
    const Slot *s = &t->slot[slot];
    p->out.left = s->left < PIECE_BYTES ? s->left : PIECE_BYTES;
    p->out.at = (char *)s->message.data + (s->message.bytes - s->left);
    p->out.frame = (TcpFrame){ .kind = TCP_DATA, .slot = s->mate, .bytes = p->out.left };
    return true;
}

static void note_sent(Tcp *t, Peer *p, size_t n)
{
    Piece *o = &p->out;
    size_t head = n < sizeof o->frame - o->head ? n : sizeof o->frame - o->head, body = n - head;
    o->head += head;
    o->left -= body;
    if (o->at == NULL || body == 0) return;
    o->at += body;
    if (o->slot < 0) return;
    t->slot[o->slot].left -= body;
    if (t->slot[o->slot].left == 0) p->matched--;
}

static bool is_sending(const Piece *o) { return o->left > 0 || o->head < sizeof o->frame; }

static bool has_output(const Tcp *t, const Peer *p)
{
    return p->fd >= 0 && (is_sending(&p->out) || p->queued > 0 || (p->matched > 0 && !t->over));
}

/* An error is left to read_peer: it first reads what the other side has said before. */
static void write_peer(Tcp *t, int rank)
{
    Peer *p = &t->peer[rank];
    Piece *o = &p->out;
    for (int turn = 0; turn < TURNS && has_output(t, p); turn++) {
        if (!is_sending(o) && !next_frame(t, rank)) return;
        size_t body = o->at == NULL && o->left > DROP_BYTES ? DROP_BYTES : o->left;
        struct iovec part[] = { { (char *)&o->frame + o->head, sizeof o->frame - o->head },
                                { o->at == NULL ? t->zeros : o->at, body } };
        const struct msghdr m = { .msg_iov = part, .msg_iovlen = 2 };
        ssize_t n = sendmsg(p->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n <= 0) return;
        note_sent(t, p, (size_t)n);
    }
}

/* A queue has room for every READY, for STOP and for BYE: of WAITS, which say where ranks are, only a few may be in it. */
static void queue_frame(Tcp *t, int rank, const TcpFrame *f)
{
    Peer *p = &t->peer[rank];
    if (p->fd < 0 || p->queued == QUEUE) return;
    if (f->kind == TCP_WAITS && p->queued >= NEWS / 2) return;
    p->queue[p->queued++] = *f;
    write_peer(t, rank);
}

static void tell(Tcp *t, const TcpFrame *f)
{
    for (int r = 0; r < t->ranks; r++) queue_frame(t, r, f);
}

/* ---- what arrives ---- */

/* A send of this rank to itself is done at once. */
static Status match(Tcp *t, int slot, const TcpFrame *ready)
{
    Slot *s = &t->slot[slot];
    const Message *m = &s->message;
    if (m->bytes != ready->bytes)
        return FAIL(ERR_SHAPE, "rank %d sends %zu bytes, rank %d receives %llu", t->rank, m->bytes,
                    m->peer, (unsigned long long)ready->bytes);
    s->mate = ready->slot;
    if (m->peer != t->rank) return t->peer[m->peer].matched++, OK;
    memcpy(t->slot[s->mate].message.data, m->data, m->bytes);
    s->left = t->slot[s->mate].left = 0;
    return OK;
}

static Status take_ready(Tcp *t, int rank, const TcpFrame *f)
{
    Peer *p = &t->peer[rank];
    int slot = find_send(t, rank, false, f->key);
    if (f->slot < 0 || f->slot >= COMM_REQUESTS || f->bytes == 0 || p->offers == COMM_REQUESTS)
        return bad_frame(t, rank, f);
    if (slot >= 0) return match(t, slot, f);
    p->offer[p->offers++] = *f;
    return OK;
}

/* Where the bytes behind a frame go. After a failure slots are free, and the bytes are dropped. */
static Status take_data(Tcp *t, int rank, const TcpFrame *f)
{
    Piece *in = &t->peer[rank].in;
    in->left = f->bytes;
    in->at = NULL;
    if (t->over) return OK;
    if (f->slot < 0 || f->slot >= COMM_REQUESTS) return bad_frame(t, rank, f);
    const Slot *s = &t->slot[f->slot];
    if (s->message.sends || s->message.peer != rank || s->left < f->bytes || f->bytes == 0)
        return bad_frame(t, rank, f);
    in->slot = f->slot;
    in->at = (char *)s->message.data + (s->message.bytes - s->left);
    return OK;
}

static Status take_frame(Tcp *t, int rank)
{
    Piece *in = &t->peer[rank].in;
    const TcpFrame *f = &in->frame;
    in->head = 0;
    in->slot = -1;
    switch (f->kind) {
    case TCP_READY: return t->over ? OK : take_ready(t, rank, f);
    case TCP_DATA: return take_data(t, rank, f);
    case TCP_WAITS: t->waits_for[rank] = f->key < t->ranks ? f->key : -1; return OK;
    case TCP_BYE: t->peer[rank].left = true; return OK;
    case TCP_STOP:
        if (f->key < 0 || f->key >= t->ranks || f->bytes >= sizeof t->text) break;
        if (f->bytes == 0) note_aborted(t, f->key, "");
        memset(t->text, 0, sizeof t->text);
        in->at = t->text;
        in->left = f->bytes;
        return OK;
    default: break;
    }
    return bad_frame(t, rank, f);
}

static void note_arrived(Tcp *t, Piece *in, size_t n)
{
    in->left -= n;
    if (in->at == NULL) return;
    in->at += n;
    if (in->slot >= 0) t->slot[in->slot].left -= n;
    if (in->slot < 0 && in->left == 0) note_aborted(t, in->frame.key, t->text);
}

static Status read_peer(Tcp *t, int rank)
{
    char dropped[DROP_BYTES];
    Peer *p = &t->peer[rank];
    Piece *in = &p->in;
    for (int turn = 0; turn < TURNS; turn++) {
        bool body = in->left > 0;
        char *at = !body ? (char *)&in->frame + in->head : in->at == NULL ? dropped : in->at;
        size_t most = !body ? sizeof in->frame - in->head : in->left;
        if (at == dropped && most > sizeof dropped) most = sizeof dropped;
        ssize_t n = recv(p->fd, at, most, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return OK;
        if (n <= 0) return lose_peer(t, rank, n == 0 ? 0 : errno), OK;
        if (body)
            note_arrived(t, in, (size_t)n);
        else if ((in->head += (size_t)n) == sizeof in->frame)
            TRY(take_frame(t, rank));
    }
    return OK;
}

/* Moves what can be moved, after waiting up to `ms` milliseconds until something can. */
static Status progress(Tcp *t, int ms)
{
    for (int r = 0; r < t->ranks; r++) {
        const Peer *p = &t->peer[r];
        t->poll[r] =
            (struct pollfd){ p->fd, (short)(POLLIN | (has_output(t, p) ? POLLOUT : 0)), 0 };
    }
    if (poll(t->poll, (nfds_t)t->ranks, ms) <= 0) return OK;
    for (int r = 0; r < t->ranks; r++) {
        if (t->poll[r].revents & ~POLLOUT) TRY(read_peer(t, r));
        if (t->poll[r].revents != 0) write_peer(t, r);
    }
    return OK;
}

/* Goes on until all connections have ended: those whose both sides have said BYE, or that the others have closed.
 * It fails never, because it may follow a failure that is not yet printed. */
static void finish(Tcp *t, double patience_s)
{
    double until = clock_s() + patience_s;
    status_mute(true);
    for (bool open = true; open && clock_s() < until;) {
        open = false;
        for (int r = 0; r < t->ranks; r++) {
            Peer *p = &t->peer[r];
            if (p->left && !has_output(t, p)) close_peer(p);
            open |= p->fd >= 0;
        }
        if (open && progress(t, 10) != OK) break;
    }
    status_mute(false);
}

/* ---- the transport ---- */

static Status tcp_post(void *self, int slot, const Message *m)
{
    Tcp *t = self;
    Peer *p = &t->peer[m->peer];
    const TcpFrame ready = { .kind = TCP_READY, .slot = slot, .key = m->key, .bytes = m->bytes };
    t->slot[slot] = (Slot){ *m, t->posted++, m->bytes, -1 };
    if (!m->sends && m->peer == t->rank) return take_ready(t, t->rank, &ready);
    if (!m->sends) return queue_frame(t, m->peer, &ready), OK;
    int i = 0;
    while (i < p->offers && p->offer[i].key != m->key) i++;
    if (i == p->offers) return OK;
    const TcpFrame first = p->offer[i];
    memmove(&p->offer[i], &p->offer[i + 1], (size_t)(--p->offers - i) * sizeof first);
    TRY(match(t, slot, &first));
    write_peer(t, m->peer);
    return OK;
}

static Status tcp_test(void *self, int slot, double patience_s, bool *done)
{
    Tcp *t = self;
    Slot *s = &t->slot[slot];
    const double until = clock_s() + patience_s;
    TcpFrame news = { .kind = TCP_WAITS };
    for (bool first = true;; first = false) {
        double left_s = until - clock_s();
        *done = s->left == 0;
        if (*done || t->aborted_by >= 0 || (!first && left_s <= 0)) break;
        if (t->peer[s->message.peer].left)
            return FAIL(ERR_COMM, "rank %d waits for rank %d, which has ended", t->rank,
                        s->message.peer);
        TRY(progress(t, left_s <= 0 ? 0 : (int)ceil(1000 * left_s)));
    }
    bool tells = patience_s > 0 &&
                 host_wait_news(t->world->world, &t->wait, slot, s->message.peer, *done, &news.key);
    if (tells) tell(t, &news);
    if (*done) *s = (Slot){ 0 };
    return OK;
}

static int tcp_waits_for(void *self, int rank) { return ((const Tcp *)self)->waits_for[rank]; }

static int tcp_aborted(void *self, char why[COMM_WHY_BYTES])
{
    const Tcp *t = self;
    if (t->aborted_by >= 0) memcpy(why, t->why, COMM_WHY_BYTES);
    return t->aborted_by;
}

/* Another rank's failure is passed on as it is, because this rank's end may be seen before the other's. */
static void tcp_abort(void *self, const char *why)
{
    Tcp *t = self;
    note_aborted(t, t->rank, why);
    t->over = true;
    tell(t, &(TcpFrame){ .kind = TCP_STOP, .key = t->aborted_by, .bytes = strlen(t->why) });
    finish(t, PARTING_S);
}

static void tcp_withdraw(void *self)
{
    Tcp *t = self;
    t->over = true;
    memset(t->slot, 0, sizeof t->slot);
    for (int r = 0; r < t->ranks; r++) {
        Peer *p = &t->peer[r];
        p->matched = 0;
        if (p->in.slot >= 0) p->in.at = NULL;
        if (p->out.slot >= 0) p->out.at = NULL;
    }
}

/* After the barrier no rank waits for this one. */
static void tcp_close(void *self, bool failed)
{
    Tcp *t = self;
    bool well = !failed && comm_barrier(t->world) == OK;
    if (!failed && !well) log_failure(LOG_WARN, "the end: ");
    tcp_withdraw(t);
    if (well) tell(t, &(TcpFrame){ .kind = TCP_BYE });
    finish(t, well ? GOODBYE_S : LINGER_S);
    for (int r = 0; r < t->ranks; r++) close_peer(&t->peer[r]);
}

static const Transport tcp_transport = { .post = tcp_post,
                                         .test = tcp_test,
                                         .waits_for = tcp_waits_for,
                                         .aborted = tcp_aborted,
                                         .abort = tcp_abort,
                                         .withdraw = tcp_withdraw,
                                         .close = tcp_close };

Status tcp_open(const CommLaunch *l, const char *program, double timeout_s, Arena *a, Comm **out)
{
    int *fd = NULL;
    Tcp *t = NULL;
    TRY(ARENA_ZEROED(a, 1, &t));
    TRY(ARENA_ZEROED(a, l->ranks, &t->peer));
    TRY(ARENA_NEW(a, l->ranks, &t->poll));
    TRY(ARENA_NEW(a, l->ranks, &t->waits_for));
    TRY(ARENA_NEW(a, l->ranks, &fd));
    TRY(host_open(&tcp_transport, t, l->rank, l->ranks, timeout_s, a, &t->world));
    TRY(tcp_meet(l, program, timeout_s, a, fd));
    for (int r = 0; r < l->ranks; r++) {
        t->peer[r].fd = fd[r];
        t->peer[r].in.slot = t->peer[r].out.slot = -1;
        t->peer[r].out.head = sizeof(TcpFrame);
        t->waits_for[r] = -1;
    }
    t->rank = l->rank;
    t->ranks = l->ranks;
    t->aborted_by = -1;
    *out = t->world;
    return OK;
}

Status comm_processes(Arena *a, double timeout_s, const char *program, Comm **out)
{
    CommLaunch l;
    TRY(comm_launch_read(&l));
    if (l.by == LAUNCHED_MPI) return comm_mpi(a, timeout_s, out);
    return tcp_open(&l, program, timeout_s, a, out);
}
