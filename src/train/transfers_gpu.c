/* transfers_gpu: a send holds up its stream until the other side receives, and so does what is
 * launched behind it. So each queue has a stream and a communicator of its own: one for each way
 * and color of the sender, of which neighbours have different ones, so that a rank never sends and
 * receives through the same. All streams begin behind the compute lane and end before it does: a
 * step can be captured.
 *
 * Action.lane is not obeyed here: every pass runs on the compute lane, in the order of the list,
 * and waits for its own exchange before it ends. So a schedule that moves phases beside each other
 * overlaps nothing. Before it could, a phase on the comm lane would need memory of the ring that no
 * phase of the pass before still reads. */
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
    TransferQueue *q = queue_on(t, way);
    void *stream = cuda_stream(t->ex, LANE_COMPUTE);
    if (q != NULL) TRY(cuda_stream_new(t->ex, &stream));
    TRY(comm_again(t->comm, stream, "transfers", a, &t->way[way]));
    t->ways = way + 1;
    if (q != NULL) q->comm = t->way[way], q->stream = stream;
    return comm_connect(t->way[way]);
}

static Event spare(const Transfers *t) { return t->event[t->program->events].device; }

static Status gpu_begin(Transfers *t)
{
    TRY(exec_bottom(t->ex)->record(t->ex, spare(t)));
    for (int i = 0; i < t->n; i++) {
        if (t->queue[i].stream != NULL) TRY(cuda_wait_on(t->ex, spare(t), t->queue[i].stream));
    }
    return OK;
}

static Status gpu_reach(Transfers *t, const Action *a)
{
    CommRequest none;
    void *stream = transfers_queue(t, a)->stream;
    for (int i = 0; i < 3; i++) {
        if (a->wait[i] >= 0) TRY(cuda_wait_on(t->ex, t->event[a->wait[i]].device, stream));
    }
    TRY(transfers_post(t, a, transfers_entry(t, a), &none));
    return cuda_record_on(t->ex, t->event[a->signal].device, stream);
}

static Status gpu_wait(Transfers *t, const Action *a)
{
    for (int i = 0; i < 3; i++) {
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
    return OK;
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

Status transfers_open_gpu(Transfers *t, Arena *a)
{
    const Program *p = t->program;
    int ways = 2 * p->chunks * colors(p);
    t->table = &on_gpu;
    TRY(ARENA_ZEROED(a, ways, &t->way));
    for (int i = 0; i <= p->events; i++) {
        TRY(exec_bottom(t->ex)->event_new(t->ex, &t->event[i].device));
    }
    for (int i = 0; i < ways; i++) TRY(open_way(t, i, a));
    return OK;
}
