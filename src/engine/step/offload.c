/* offload: cuts the ranges of the update, and copies their states to the GPU and back. */
#include "engine/step/offload.h"

/* Elements of the first dimension that a piece may have: matrices, or single elements. Of matrices that ranks split
 * these are a multiple of ranks, so that each of them has as many to orthogonalise. */
static int64_t piece_rows(const UpdateRange *r, int64_t most)
{
    if (r->w.rank == 2) return r->w.dim[0]; /* one matrix */
    int64_t each = r->w.rank == 3 ? r->w.dim[1] * r->w.dim[2] : 1;
    int64_t unit = r->ranks > 1 ? r->ranks : 1;
    return most > unit * each ? most / (unit * each) * unit : unit;
}

static int64_t pieces_of(const UpdateRange *r, int64_t most)
{
    int64_t rows = piece_rows(r, most);
    return (r->w.dim[0] + rows - 1) / rows;
}

/* Rows [first, first + n) of each tensor of a range. */
static UpdateRange rows_of(const UpdateRange *r, int64_t first, int64_t n)
{
    UpdateRange part = *r;
    Tensor *const all[] = { &part.w, &part.g, &part.low, &part.average };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (all[i]->data != NULL) *all[i] = tensor_rows(all[i], first, n);
    }
    for (int i = 0; i < OPTIMIZER_STATES; i++) {
        if (part.state[i].data != NULL) part.state[i] = tensor_rows(&part.state[i], first, n);
    }
    return part;
}

static Status cut_ranges(EngineParams *w, int64_t most)
{
    const UpdateRange *whole = w->ranges;
    UpdateRange *cut = NULL;
    int64_t n = 0;
    for (int i = 0; i < w->n_ranges; i++) n += pieces_of(&whole[i], most);
    TRY(ARENA_NEW(w->tables, n, &cut));
    w->ranges = cut;
    for (int i = 0, ranges = w->n_ranges; i < ranges; i++) {
        int64_t rows = piece_rows(&whole[i], most), all = whole[i].w.dim[0];
        for (int64_t at = 0; at < all; at += rows)
            *cut++ = rows_of(&whole[i], at, all - at < rows ? all - at : rows);
    }
    w->n_ranges = (int)n;
    return OK;
}

/* A buffer fits the largest piece, and any that could be cut: a plan knows no ranges (planner/price/price_offload.c). */
static Status make_buffers(const EngineParams *w, Offload *o, int64_t piece, Arena *device)
{
    for (int s = 0; s < OPTIMIZER_STATES; s++) {
        int64_t all = w->table.elems[BUF_OPTIMIZER + s], most = all < piece ? all : piece;
        for (int i = 0; i < w->n_ranges; i++) {
            const Tensor *t = &w->ranges[i].state[s];
            if (t->data != NULL && tensor_elems(t) > most) most = tensor_elems(t);
        }
        for (int b = 0; b < OFFLOAD_BUFFERS && most > 0; b++)
            TRY(tensor_new1(device, w->spec->optimizer.state, most, &o->buffer[b][s]));
    }
    return OK;
}

Status offload_make(EngineParams *w, int64_t most, Arena *device)
{
    const Streams *streams = w->ex->backend->streams;
    Offload *o = NULL;
    if (w->n_ranges == 0) return OK;
    TRY(cut_ranges(w, most));
    TRY(ARENA_ZEROED(w->tables, 1, &o));
    TRY(make_buffers(w, o, most, device));
    TRY(streams->add(w->ex, &o->in));
    TRY(streams->add(w->ex, &o->out));
    TRY(streams->event_new(w->ex, false, &o->begun));
    for (int b = 0; b < OFFLOAD_BUFFERS; b++) {
        TRY(streams->event_new(w->ex, false, &o->come[b]));
        TRY(streams->event_new(w->ex, false, &o->updated[b]));
        TRY(streams->event_new(w->ex, false, &o->gone[b]));
    }
    w->offload = o;
    return OK;
}

/* The buffer with the shape of a state of range i. */
static Tensor staged(const EngineParams *w, int i, int state)
{
    Tensor t = w->ranges[i].state[state];
    t.data = w->offload->buffer[i % OFFLOAD_BUFFERS][state].data;
    return t;
}

static Status copy_states(EngineParams *w, int i, bool come, void *stream)
{
    for (int s = 0; s < OPTIMIZER_STATES; s++) {
        const Tensor *host = &w->ranges[i].state[s];
        if (host->data == NULL) continue;
        void *device = staged(w, i, s).data;
        TRY(w->ex->backend->streams->copy(w->ex, come ? device : host->data,
                                          come ? host->data : device, tensor_bytes(host), stream));
    }
    return OK;
}

/* The states of range i come into the buffer that those of range i - 3 have left. */
static Status fetch(EngineParams *w, int i)
{
    Offload *o = w->offload;
    const Streams *streams = w->ex->backend->streams;
    const int b = i % OFFLOAD_BUFFERS;
    if (i >= w->n_ranges) return OK;
    if (i >= OFFLOAD_BUFFERS) TRY(streams->wait(w->ex, &o->gone[b], o->in));
    TRY(copy_states(w, i, true, o->in));
    return streams->record(w->ex, &o->come[b], o->in);
}

/* The stream begins after all earlier work of the lane, as a capture needs. */
Status offload_begin(EngineParams *w)
{
    Offload *o = w->offload;
    if (o == NULL) return OK;
    TRY(w->ex->backend->streams->record(w->ex, &o->begun, NULL));
    TRY(w->ex->backend->streams->wait(w->ex, &o->begun, o->in));
    for (int i = 0; i < OFFLOAD_BUFFERS; i++) TRY(fetch(w, i));
    return OK;
}

Status offload_take(EngineParams *w, int i, UpdateRange *out)
{
    *out = w->ranges[i];
    if (w->offload == NULL) return OK;
    for (int s = 0; s < OPTIMIZER_STATES; s++) {
        if (out->state[s].data != NULL) out->state[s] = staged(w, i, s);
    }
    return w->ex->backend->streams->wait(w->ex, &w->offload->come[i % OFFLOAD_BUFFERS], NULL);
}

Status offload_give(EngineParams *w, int i)
{
    Offload *o = w->offload;
    const int b = i % OFFLOAD_BUFFERS;
    if (o == NULL) return OK;
    const Streams *streams = w->ex->backend->streams;
    TRY(streams->record(w->ex, &o->updated[b], NULL));
    TRY(streams->wait(w->ex, &o->updated[b], o->out));
    TRY(copy_states(w, i, false, o->out));
    TRY(streams->record(w->ex, &o->gone[b], o->out));
    return fetch(w, i + OFFLOAD_BUFFERS);
}

/* Copies of one stream run in order, so the last one is the end of all. */
Status offload_end(EngineParams *w)
{
    if (w->offload == NULL) return OK;
    const int last = (w->n_ranges - 1) % OFFLOAD_BUFFERS;
    return w->ex->backend->streams->wait(w->ex, &w->offload->gone[last], NULL);
}
