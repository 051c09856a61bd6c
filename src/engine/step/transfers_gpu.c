/* transfers_gpu: each queue of transfers has a stream and a communicator of its own.
 *
 * A send holds up its stream, and what is launched behind it, until the other side receives. Two
 * calls of one communicator run in the order in which they were launched, so both ends must launch
 * them in the same order. schedule_check_all() proves both for queues: the two ends of a link come to
 * the same transfers in the same order, and no circle of queues waits for itself.
 *
 * A communicator belongs to a link and a color of the sender. Neighbours have different colors, so a
 * rank never sends and receives through the same one. The number of links does not grow with the
 * chunks, so there are never more of them than QUEUES_MAX. Both lanes are streams, too. All streams
 * begin behind the compute lane and end before it does: so a step can be captured. */
#include "engine/step/transfers.h"

/* Two colors alternate along the stages. Where the last stage also sends to the first one, a ring of odd
 * length needs a third. */
static int link_colors(const Program *p) { return 2 + p->stages % 2; }

static int link_of(const Program *p, const Action *a)
{
    int from = action_is_send(a->kind) ? p->rank : a->peer;
    bool closes = p->stages % 2 != 0 && from == p->stages - 1; /* a ring of odd length */
    return transfer_link(p, a) * link_colors(p) + (closes ? 2 : from % 2);
}

static TransferQueue *queue_on(const Transfers *t, int link)
{
    for (int i = 0; i < t->n; i++) {
        TransferQueue *q = &t->queue[i];
        if (q->n > 0 && link_of(t->program, &t->program->at[q->action[0]]) == link) return q;
    }
    return NULL;
}

static void *lane_stream(const Transfers *t, Lane lane)
{
    return t->ex->backend->streams->of_lane(t->ex, lane);
}

static Status record_event(const Transfers *t, Event *event, void *stream)
{
    return t->ex->backend->streams->record(t->ex, event, stream);
}

static Status wait_for_event(const Transfers *t, const Event *event, void *stream)
{
    return t->ex->backend->streams->wait(t->ex, event, stream);
}

/* All stages open all links, because making a communicator is collective; a link that this rank does not use
 * gets no stream of its own. */
static Status open_link(Transfers *t, int link, Arena *a)
{
    TransferLink *w = &t->link[link];
    w->stream = lane_stream(t, LANE_COMPUTE);
    if (queue_on(t, link) != NULL) TRY(t->ex->backend->streams->add(t->ex, &w->stream));
    TRY(comm_duplicate(t->comm, w->stream, "transfers", a, &w->comm));
    t->links = link + 1;
    return comm_connect(w->comm);
}

/* An event of no action, for begin and end. */
static Event *spare_event(const Transfers *t) { return &t->event[t->program->events].device; }

/* Forks all streams from the compute lane, as a capture needs. */
static Status gpu_begin(Transfers *t)
{
    t->ex->lane = LANE_COMPUTE;
    TRY(record_event(t, spare_event(t), NULL));
    for (int i = 0; i < t->n; i++) {
        if (t->queue[i].stream != NULL) TRY(wait_for_event(t, spare_event(t), t->queue[i].stream));
    }
    return t->lanes ? wait_for_event(t, spare_event(t), lane_stream(t, LANE_COMM)) : OK;
}

/* Launches a transfer in its queue's stream, after its events. */
static Status gpu_reach(Transfers *t, const Action *a)
{
    CommRequest none;
    void *stream = transfers_queue(t, a)->stream;
    for (int i = 0; i < ACTION_WAITS; i++) {
        if (a->wait[i] >= 0) TRY(wait_for_event(t, &t->event[a->wait[i]].device, stream));
    }
    int action = (int)(a - t->program->at);
    TRY(transfers_mark(t, action, 0, stream));
    if (!t->quiet) TRY(transfers_post(t, a, transfers_entry(t, a), &none));
    TRY(transfers_mark(t, action, 1, stream));
    return record_event(t, &t->event[a->signal].device, stream);
}

static Status gpu_wait(Transfers *t, const Action *a)
{
    for (int i = 0; i < ACTION_WAITS; i++) {
        if (a->wait[i] >= 0) TRY(wait_for_event(t, &t->event[a->wait[i]].device, NULL));
    }
    return OK;
}

static Status gpu_signal(Transfers *t, int event)
{
    return record_event(t, &t->event[event].device, NULL);
}

/* Waiting for the last transfer of each queue is enough: queues run in order. */
static Status gpu_end(Transfers *t)
{
    for (int i = 0; i < t->n; i++) {
        const TransferQueue *q = &t->queue[i];
        if (q->n == 0) continue;
        int last = t->program->at[q->action[q->n - 1]].signal;
        TRY(wait_for_event(t, &t->event[last].device, NULL));
    }
    if (!t->lanes) return OK;
    TRY(record_event(t, spare_event(t), lane_stream(t, LANE_COMM)));
    return wait_for_event(t, spare_event(t), NULL);
}

static const TransferTable in_streams = {
    .begin = gpu_begin, .reach = gpu_reach, .wait = gpu_wait, .signal = gpu_signal, .end = gpu_end
};

Status transfers_mark(Transfers *t, int action, int which, void *stream)
{
    if (t->stamp == NULL || !t->ex->backend->async) return OK;
    return t->ex->backend->streams->stamp(t->ex, &t->stamp[2 * action + which], stream);
}

static double seconds_since(uint64_t begin, uint64_t now)
{
    return 1e-9 * (double)(int64_t)(now - begin);
}

void transfers_read_stamps(Transfers *t)
{
    const uint64_t *at = t->stamp;
    size_t n = at != NULL && t->ex->backend->async ? (size_t)t->program->n : 0;
    for (size_t i = 0; i < n; i++)
        t->span[i] =
            (ActionSpan){ seconds_since(at[0], at[2 * i]), seconds_since(at[0], at[2 * i + 1]) };
}

static Status open_links(Transfers *t, Arena *a)
{
    int links = transfer_links(t->program) * link_colors(t->program);
    TRY(ARENA_ZEROED(a, links, &t->link));
    for (int i = 0; i < links; i++) TRY(open_link(t, i, a));
    return OK;
}

Status transfers_open_gpu(Transfers *t, bool lanes, const Transfers *like, Arena *a)
{
    t->table = &in_streams;
    t->lanes = lanes;
    for (int i = 0; i <= t->program->events; i++) {
        TRY(t->ex->backend->streams->event_new(t->ex, false, &t->event[i].device));
    }
    if (like != NULL)
        t->link = like->link, t->links = like->links;
    else if (t->comm != NULL && t->program->stages > 1)
        TRY(open_links(t, a));
    for (int i = 0; i < t->links; i++) {
        TransferQueue *q = queue_on(t, i);
        if (q == NULL) continue;
        q->comm = t->link[i].comm;
        q->stream = t->link[i].stream;
    }
    return OK;
}
