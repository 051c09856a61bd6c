/* pairs: rate and latency between pairs of ranks, over the transport that a training takes: threads,
 * MPI, and NCCL between GPUs.
 *
 * All pairs of a host are measured, and between hosts the pairs of ranks with the same number on their
 * host. Pairs that share no rank are measured at the same time (doctor_partner). So 1,024 ranks on 128
 * hosts need 7 + 127 rounds. What pairs of a round share, such as the network card of a host, they share
 * in all rounds, so that pairs stay comparable.
 *
 * One exchange sends in both directions at once. Rates are of one direction. */
#include "doctor/pairs.h"

#include "engine/base/clock.h"
#include "engine/base/interrupt.h"
#include "engine/base/order.h"

#include <math.h>
#include <stdlib.h>

enum { LATENCY_RUNS = 30, RATE_RUNS = 5, SLOW_RUNS = 2 };

static const double LONG_S =
    0.05; /* an exchange of the small message that takes longer: a slow link */

/* Sends the first `elems` elements, and receives as many. */
static Status exchange(const DoctorWire *w, Comm *c, int peer, int64_t elems)
{
    CommRequest going = { 0 }, coming = { 0 };
    const Tensor out = { w->from, DTYPE_F32, 1, { elems } },
                 in = { w->to, DTYPE_F32, 1, { elems } };
    TRY(comm_batch_begin(c));
    Status s = comm_recv(c, &in, peer, 0, &coming);
    if (s == OK) s = comm_send(c, &out, peer, 0, &going);
    Status end = comm_batch_end(c); /* after a failure, too */
    TRY(s);
    TRY(end);
    TRY(comm_wait(c, &coming));
    return comm_wait(c, &going);
}

/* The median of single exchanges. Both ranks meet before each one. */
static Status time_exchanges(const DoctorWire *w, Comm *c, int peer, int64_t elems, int runs,
                             double *out_s)
{
    double each[LATENCY_RUNS];
    for (int i = 0; i < runs; i++) {
        TRY(exchange(w, c, peer, 1));
        TRY(w->sync(w));
        double began = clock_s();
        for (int j = 0; j < w->launches; j++) TRY(exchange(w, c, peer, elems));
        TRY(w->sync(w));
        each[i] = (clock_s() - began) / w->launches;
    }
    TRY(interrupt_check("nothing was written"));
    sort_doubles(each, runs);
    *out_s = each[runs / 2];
    return OK;
}

/* The ranks tell each other whether a small message took long, so that both choose the same size. The host's
 * group carries that, as its memory needs no copy. */
static Status agree_slow(Comm *host, int peer, bool *slow)
{
    float mine = *slow, theirs = 0;
    const DoctorWire w = { .from = &mine, .to = &theirs };
    TRY(exchange(&w, host, peer, 1));
    *slow = mine > 0 || theirs > 0;
    return OK;
}

static Status measure_pair(const DoctorWire *w, const DoctorLane *lane, int peer, double *rate,
                           double *latency_s)
{
    double s = 0;
    TRY(time_exchanges(w, lane->wire, peer, 1, LATENCY_RUNS, latency_s));
    TRY(time_exchanges(w, lane->wire, peer, w->small, 1, &s));
    bool slow = s > LONG_S;
    TRY(agree_slow(lane->host, peer, &slow));
    int64_t elems = slow ? w->small : w->large;
    TRY(time_exchanges(w, lane->wire, peer, elems, slow ? SLOW_RUNS : RATE_RUNS, &s));
    *rate = (double)elems * 4 / s;
    return OK;
}

static Status note_pair(Doctor *d, const DoctorLane *lane, int peer, double rate, double latency_s)
{
    DoctorSample s = DOCTOR_OF(d->rank, lane->rate, rate / 1e9);
    s.peer = lane->host->member[peer];
    s.expected = lane->expected_bytes_s / 1e9;
    TRY(doctor_note(d, s, "%s", ""));
    s.check = (int32_t)lane->latency, s.value = latency_s * 1e6, s.expected = 0;
    return doctor_note(d, s, "%s", "");
}

/* All pairs of the group; the lower rank notes what it measured. A rank with several pairs also notes their
 * median, the upper one of two: so it is named if its own link is slow, and not if a peer's is. */
Status doctor_tournament(Doctor *d, const DoctorWire *w, const DoctorLane *lane)
{
    const Comm *c = lane->host;
    double *rate = NULL;
    int n = 0;
    TRY(ARENA_NEW(d->a, c->size, &rate));
    for (int round = 0; round < doctor_rounds(c->size); round++) {
        int peer = doctor_partner(c->rank, c->size, round);
        double latency_s = 0;
        if (peer < 0) continue;
        TRY(measure_pair(w, lane, peer, &rate[n++], &latency_s));
        if (peer > c->rank) TRY(note_pair(d, lane, peer, rate[n - 1], latency_s));
    }
    sort_doubles(rate, n);
    if (n < 2) return OK;
    return doctor_note(d, DOCTOR_OF(d->rank, lane->rank, rate[n / 2] / 1e9), "%s", "");
}

Status doctor_split(const Doctor *d, Comm *of, DoctorWay way, Comm **out)
{
    const DoctorRank *me = &d->all[d->rank];
    bool inside = way == DOCTOR_INSIDE;
    return comm_split(of, inside ? me->host_number : me->local, d->rank,
                      inside ? "ranks of a host" : "hosts", d->a, out);
}

static Status no_sync(const DoctorWire *w) { return (void)w, OK; }

enum { SMALL_ELEMS = 1 << 16, LARGE_ELEMS = 1 << 20 }; /* 256 KiB, 4 MiB */

Status doctor_measure_pairs(Doctor *d)
{
    static const struct {
        DoctorWay way;
        DoctorCheck rank, rate, latency;
    } each[] = { { DOCTOR_INSIDE, DOCTOR_HOST_RANK, DOCTOR_HOST_RATE, DOCTOR_HOST_LATENCY },
                 { DOCTOR_BETWEEN, DOCTOR_NET_RANK, DOCTOR_NET_RATE, DOCTOR_NET_LATENCY } };
    float *from = NULL, *to = NULL;
    if (d->world == NULL) return OK;
    TRY(ARENA_ZEROED(d->a, LARGE_ELEMS, &from));
    TRY(ARENA_ZEROED(d->a, LARGE_ELEMS, &to));
    const DoctorWire w = { from, to, SMALL_ELEMS, LARGE_ELEMS, 1, no_sync, NULL };
    for (int i = 0; i < 2; i++) {
        Comm *group = NULL;
        TRY(doctor_split(d, d->world, each[i].way, &group));
        const DoctorLane lane = { group, group, each[i].rank, each[i].rate, each[i].latency, 0 };
        TRY(doctor_meet(d));
        TRY(doctor_tournament(d, &w, &lane));
        comm_free(group);
    }
    return OK;
}
