/* transfers: queues and events of transfers, and how one host thread drives them (see the header for why
 * it may block). The GPU's table of the same calls is in transfers_gpu.c. */
#include "engine/step/transfers.h"

#include "engine/base/clock.h"

#include <assert.h>

_Static_assert((int)QUEUES_MAX <= (int)COMM_TAGS,
               "each link has a tag, there are fewer links than queues");

TransferQueue *transfers_queue(const Transfers *t, const Action *a)
{
    return &t->queue[queue_of(t->program, a) - LANE_COUNT];
}

/* A send reads the entry that its pass wrote; a receive writes the one that its pass reads. */
const Tensor *transfers_entry(const Transfers *t, const Action *a)
{
    return &t->entries[action_is_send(a->kind) ? a->in : a->out];
}

/* The tag is the link, so messages of different links between two ranks cannot be confused. */
Status transfers_post(const Transfers *t, const Action *a, const Tensor *what, CommRequest *out)
{
    Comm *c = transfers_queue(t, a)->comm;
    int tag = transfer_link(t->program, a);
    if (action_is_send(a->kind)) return comm_send(c, what, a->peer, tag, out);
    return comm_recv(c, what, a->peer, tag, out);
}

/* On the host. */

/* Has everything that the action waits for been signalled? */
static bool events_signalled(const Transfers *t, const Action *a)
{
    for (int i = 0; i < ACTION_WAITS; i++) {
        if (a->wait[i] >= 0 && !t->event[a->wait[i]].signalled) return false;
    }
    return true;
}

/* Its event gets the request, so a waiter can block on exactly this message. */
static Status start_transfer(Transfers *t, int action)
{
    const Action *a = &t->program->at[action];
    t->span[action].start_s = clock_s();
    t->event[a->signal].action = action;
    return transfers_post(t, a, transfers_entry(t, a), &t->event[a->signal].request);
}

/* On the host a transfer ends when this thread notices it, so its span can be too long, never too short. */
static void finish_transfer(Transfers *t, int action)
{
    t->event[t->program->at[action].signal].signalled = true;
    t->span[action].end_s = clock_s();
}

/* Notes the transfers of a queue that have ended, then starts those that are ready. A queue keeps its order:
 * an earlier transfer that is not ready holds up the later ones. */
static Status advance_queue(Transfers *t, TransferQueue *q)
{
    const Action *at = t->program->at;
    for (bool done = true; q->done < q->started; q->done++) {
        TransferEvent *e = &t->event[at[q->action[q->done]].signal];
        if (e->signalled) continue;
        TRY(comm_test(q->comm, &e->request, &done));
        if (!done) break;
        finish_transfer(t, q->action[q->done]);
    }
    for (; q->started < q->n && events_signalled(t, &at[q->action[q->started]]); q->started++) {
        TRY(start_transfer(t, q->action[q->started]));
    }
    return OK;
}

static Status advance_queues(Transfers *t)
{
    for (int i = 0; i < t->n; i++) TRY(advance_queue(t, &t->queue[i]));
    return OK;
}

/* Receives without conditions start at once, before the first pass. */
static Status host_begin(Transfers *t)
{
    for (int i = 0; i < t->program->events; i++) t->event[i] = (TransferEvent){ .action = -1 };
    for (int i = 0; i < t->n; i++) t->queue[i].started = t->queue[i].done = 0;
    return advance_queues(t);
}

/* The list has come to a transfer. It starts when its events are signalled, wherever the list is, so this
 * only advances the queues. */
static Status host_reach(Transfers *t, const Action *a)
{
    (void)a;
    return advance_queues(t);
}

/* Blocks until the transfer that signals an event has ended. Passes that the event could come from have
 * signalled already, because they stand earlier in the list. */
static Status wait_for_event(Transfers *t, int event)
{
    TransferEvent *e = &t->event[event];
    if (e->signalled) return OK;
    assert(e->action >= 0);
    TRY(comm_wait(t->comm, &e->request));
    finish_transfer(t, e->action);
    return OK;
}

static Status host_wait(Transfers *t, const Action *a)
{
    for (int i = 0; i < ACTION_WAITS; i++) {
        if (a->wait[i] >= 0) TRY(wait_for_event(t, a->wait[i]));
    }
    return OK;
}

/* A signal may be what a transfer waited for, so the queues are advanced. */
static Status host_signal(Transfers *t, int event)
{
    t->event[event].signalled = true;
    return advance_queues(t);
}

/* A step ends when all its transfers have: the next one uses the same entries. */
static Status host_end(Transfers *t)
{
    for (int i = 0; i < t->n; i++) {
        const TransferQueue *q = &t->queue[i];
        for (int k = q->done; k < q->n; k++) {
            TRY(wait_for_event(t, t->program->at[q->action[k]].signal));
        }
    }
    return OK;
}

static const TransferTable on_host = { .begin = host_begin,
                                       .reach = host_reach,
                                       .wait = host_wait,
                                       .signal = host_signal,
                                       .end = host_end };

/* Set-up. */

/* Lists the transfers of each queue in the order of the program: counts them, then fills them in. */
static Status make_queues(Transfers *t, Arena *a)
{
    const Program *p = t->program;
    t->n = queue_count(p) - LANE_COUNT;
    TRY(ARENA_ZEROED(a, t->n, &t->queue));
    for (int i = 0; i < p->n; i++) {
        if (action_is_transfer(p->at[i].kind)) transfers_queue(t, &p->at[i])->n++;
    }
    for (int i = 0; i < t->n; i++) {
        t->queue[i].comm = t->comm;
        TRY(ARENA_NEW(a, t->queue[i].n, &t->queue[i].action));
        t->queue[i].n = 0;
    }
    for (int i = 0; i < p->n; i++) {
        if (!action_is_transfer(p->at[i].kind)) continue;
        TransferQueue *q = transfers_queue(t, &p->at[i]);
        q->action[q->n++] = i;
    }
    return OK;
}

Status transfers_make(Exec *ex, const Program *p, const Tensor *entries, Comm *comm, Arena *a,
                      Transfers *out)
{
    *out =
        (Transfers){ .table = &on_host, .ex = ex, .program = p, .entries = entries, .comm = comm };
    TRY(make_queues(out, a));
    TRY(ARENA_ZEROED(a, p->n, &out->span));
    return ARENA_ZEROED(a, p->events + 1, &out->event);
}

/* Only a list that opened links has any: on a GPU the first one, on the host none. */
void transfers_free(Transfers *t)
{
    for (int i = 0; i < t->links; i++) comm_free(t->link[i].comm);
}
