/* transfers_gpu: a send holds up its stream until the other side receives, and so does what is
 * launched behind it. So each queue has a stream and a communicator of its own: one for each way
 * and color of the sender, of which neighbours have different ones, so that a rank never sends and
 * receives through the same. Both lanes are streams, too. All streams begin behind the compute lane
 * and end before it does: a step can be captured. */
#include "backend/cuda.h"
#include "train/transfers.h"

static int colors(const Program *p) { return 2 + p->stages % 2; }

static int way_of(const Program *p, const Action *a)
{
    int from = action_is_send(a->kind) ? p->rank : a->peer;
    bool closes = p->stages % 2 != 0 && from == p->stages - 1; /* a ring of odd length */
    return transfers_tag(p, a) * colors(p) + (closes ? 2 : from % 2);
}

static TransferQueue *queue_on(const Transfers *t, int way)
{
    for (int i = 0; i < t->n; i++) {
        TransferQueue *q = &t->queue[i];
        if (q->n > 0 && way_of(t->program, &t->program->at[q->action[0]]) == way) return q;
    }
    return NULL;
}

static Status open_way(Transfers *t, int way, Arena *a)
{
    TransferWay *w = &t->way[way];
    w->stream = cuda_stream(t->ex, LANE_COMPUTE);
    if (queue_on(t, way) != NULL) TRY(cuda_stream_new(t->ex, &w->stream));
    TRY(comm_again(t->comm, w->stream, "transfers", a, &w->comm));
    t->ways = way + 1;
    return comm_connect(w->comm);
}

static Event spare(const Transfers *t) { return t->event[t->program->events].device; }

static Status gpu_begin(Transfers *t)
{
    const Backend *gpu = exec_bottom(t->ex);
    t->ex->lane = LANE_COMPUTE;
    TRY(gpu->record(t->ex, spare(t)));
    for (int i = 0; i < t->n; i++) {
        if (t->queue[i].stream != NULL) TRY(cuda_wait_on(t->ex, spare(t), t->queue[i].stream));
    }
    return t->lanes ? cuda_wait_on(t->ex, spare(t), cuda_stream(t->ex, LANE_COMM)) : OK;
}

static Status gpu_reach(Transfers *t, const Action *a)
{
    CommRequest none;
    void *stream = transfers_queue(t, a)->stream;
    for (int i = 0; i < ACTION_WAITS; i++) {
        if (a->wait[i] >= 0) TRY(cuda_wait_on(t->ex, t->event[a->wait[i]].device, stream));
    }
    TRY(transfers_post(t, a, transfers_entry(t, a), &none));
    return cuda_record_on(t->ex, t->event[a->signal].device, stream);
}

static Status gpu_wait(Transfers *t, const Action *a)
{
    for (int i = 0; i < ACTION_WAITS; i++) {
        if (a->wait[i] < 0) continue;
        TRY(exec_bottom(t->ex)->wait(t->ex, t->event[a->wait[i]].device));
    }
    return OK;
}

static Status gpu_signal(Transfers *t, const Action *a)
{
    if (a->signal < 0) return OK;
    return exec_bottom(t->ex)->record(t->ex, t->event[a->signal].device);
}

static Status gpu_end(Transfers *t)
{
    for (int i = 0; i < t->n; i++) {
        const TransferQueue *q = &t->queue[i];
        if (q->n == 0) continue;
        int last = t->program->at[q->action[q->n - 1]].signal;
        TRY(exec_bottom(t->ex)->wait(t->ex, t->event[last].device));
    }
    if (!t->lanes) return OK;
    TRY(cuda_record_on(t->ex, spare(t), cuda_stream(t->ex, LANE_COMM)));
    return exec_bottom(t->ex)->wait(t->ex, spare(t));
}

static Status gpu_move(Transfers *t, const Action *a, const Tensor *what)
{
    CommRequest none;
    void *stream = transfers_queue(t, a)->stream;
    TRY(exec_bottom(t->ex)->record(t->ex, spare(t)));
    TRY(cuda_wait_on(t->ex, spare(t), stream));
    TRY(transfers_post(t, a, what, &none));
    TRY(cuda_record_on(t->ex, spare(t), stream));
    return exec_bottom(t->ex)->wait(t->ex, spare(t));
}

static const TransferTable on_gpu = { .begin = gpu_begin,
                                      .reach = gpu_reach,
                                      .wait = gpu_wait,
                                      .signal = gpu_signal,
                                      .end = gpu_end,
                                      .move = gpu_move };

static Status open_ways(Transfers *t, Arena *a)
{
    int ways = 2 * t->program->chunks * colors(t->program);
    TRY(ARENA_ZEROED(a, ways, &t->way));
    for (int i = 0; i < ways; i++) TRY(open_way(t, i, a));
    return OK;
}

Status transfers_open_gpu(Transfers *t, bool lanes, const Transfers *like, Arena *a)
{
    t->table = &on_gpu;
    t->lanes = lanes;
    for (int i = 0; i <= t->program->events; i++) {
        TRY(exec_bottom(t->ex)->event_new(t->ex, &t->event[i].device));
    }
    t->borrowed = like != NULL;
    if (like != NULL)
        t->way = like->way, t->ways = like->ways;
    else if (t->comm != NULL && t->program->stages > 1)
        TRY(open_ways(t, a));
    for (int i = 0; i < t->ways; i++) {
        TransferQueue *q = queue_on(t, i);
        if (q == NULL) continue;
        q->comm = t->way[i].comm;
        q->stream = t->way[i].stream;
    }
    return OK;
}
