/* gpu: a GPU as a backend. Each lane is a stream. Ops, copies, fills and events go to the stream of
 * ex->lane, in order; events order the lanes. Only `sync` and `read` wait. If there are other ranks
 * (ex->mesh), they wait with the deadline of the world, and the error names the rank.
 *
 * Ops take their workspace from ex->scratch, so each lane needs its own scratch arena. Attention always
 * runs on the compute lane, because the attention library is bound to that stream.
 *
 * A process may have several Execs, each with its own thread and device. The device is current for the
 * thread that called gpu_exec_init, and only that thread uses the Exec.
 *
 * This file is the same for all vendors: the differences are behind engine/gpu/gpu.h and kernels/core/libraries.h. */
#include "engine/backend/backend.h"

#include "engine/base/clock.h"
#include "kernels/core/kernels.h"
#include "kernels/core/libraries.h"

#include <stdio.h>
#include <time.h>

enum { PACE_OPS = 64 }; /* see pace_launches */

/* List of all events of an Exec, to free them; in the arena of its tables. */
typedef struct EventNode {
    GpuEvent event;
    struct EventNode *next;
} EventNode;

/* The part of an Exec that only GPUs have. `pace` alternates, see pace_launches; `reached` is for
 * waits of one lane. Both are events without time. */
typedef struct Gpu {
    GpuExec own; /* first: Exec.gpu points to it */
    Arena *arena;
    Backend counts; /* for a plan: backend_count with the properties of a GPU */
    EventNode *events;
    GpuEvent pace[2], reached;
    int64_t ops; /* number of ops launched while there are other ranks */
    bool capturing;
    uint64_t *bad; /* device: index of the first element that is not finite */
} Gpu;

static Gpu *gpu_of(const Exec *ex) { return (Gpu *)(void *)ex->gpu; }

/* Marks the stream as used, so that waits include it. */
static GpuStream stream_of(Exec *ex, int i)
{
    ex->gpu->used |= 1u << i;
    return ex->gpu->stream[i];
}

static GpuStream lane_stream(Exec *ex) { return stream_of(ex, ex->lane); }
static GpuStream compute_stream(Exec *ex) { return stream_of(ex, LANE_COMPUTE); }
static void *stream_of_lane(Exec *ex, Lane lane) { return stream_of(ex, lane); }

static Status stream_add(GpuExec *g, bool urgent, int *out)
{
    if (g->streams == STREAMS_MAX) {
        return FAIL(ERR_ARG, "GPU %d: stream %d was asked for, %d is the most", g->device,
                    g->streams + 1, STREAMS_MAX);
    }
    TRY(gpu_stream_make(urgent, &g->stream[g->streams]));
    *out = g->streams++;
    return OK;
}

/* Added streams carry transfers. They have high priority, because other ranks wait for them. The
 * Exec frees the stream in close_exec; callers only keep the handle. */
static Status stream_new(Exec *ex, void **out)
{
    int i = 0;
    TRY(stream_add(ex->gpu, true, &i));
    *out = stream_of(ex, i);
    return OK;
}

/* A capture begins on the compute lane. Other lanes join it when they wait for an event of that
 * lane. */
static Status capture_begin(Exec *ex)
{
    TRY(gpu_capture_begin(compute_stream(ex)));
    gpu_of(ex)->capturing = true;
    return OK;
}

static Status capture_end(Exec *ex, Graph *out)
{
    gpu_of(ex)->capturing = false;
    return gpu_capture_end(compute_stream(ex), out);
}

static Status graph_launch(Exec *ex, const Graph *g)
{
    return gpu_graph_launch(g, compute_stream(ex));
}

Status exec_bus_id(const Exec *ex, char out[GPU_BUS_ID_MAX])
{
    out[0] = '\0';
    return ex->gpu == NULL ? OK : gpu_bus_id(ex->gpu->device, out);
}

Status exec_used_bytes(const Exec *ex, size_t *out)
{
    *out = 0;
    return ex->gpu == NULL ? OK : gpu_used_bytes(out);
}

/* *busy: is work before `event` unfinished? Without an event: is any used stream busy? Only streams
 * with work since the Exec was made are asked: `used` never loses a bit. */
static Status work_pending(Exec *ex, GpuEvent event, bool *busy)
{
    const GpuExec *g = ex->gpu;
    if (event != NULL) return gpu_event_busy(event, busy);
    *busy = false;
    for (int i = 0; i < g->streams && !*busy; i++) {
        if ((g->used >> i & 1) != 0) TRY(gpu_stream_busy(g->stream[i], busy));
    }
    return OK;
}

/* Most waits within a step are short: poll without sleeping first, then yield the core. */
static const double SPIN_S = 50e-6, LEAVE_S = 10;

static void pause_after(double waited_s)
{
    struct timespec t = { 0, 20000 };
    if (waited_s > SPIN_S) (void)nanosleep(&t, NULL);
}

/* Waits until the kernels of aborted groups have ended, because until then they access memory that the
 * caller is about to free. */
static void await_kernels(Exec *ex)
{
    bool busy = true;
    double start = clock_s();
    while (busy && clock_s() - start < LEAVE_S) {
        pause_after(SPIN_S * 2);
        if (work_pending(ex, NULL, &busy) != OK) busy = false;
    }
}

/* A kernel that waits for another rank may never end. So the host does not block: it polls the device,
 * and asks comm_watch whether a rank has ended or the deadline has passed. */
static Status wait_watched(Exec *ex, GpuEvent event)
{
    bool busy = true;
    char why[1024];
    double start = clock_s();
    for (;;) {
        TRY(work_pending(ex, event, &busy));
        if (!busy) return OK;
        double waited_s = clock_s() - start;
        if (comm_watch(ex->mesh->group[GROUP_WORLD], waited_s) != OK) break;
        pause_after(waited_s);
    }
    status_sentence(why, sizeof why);
    await_kernels(ex);
    return FAIL(ERR_COMM, "%s", why);
}

/* Without other ranks no kernel waits for anybody, so the host may block in the driver. */
static bool has_peers(const Exec *ex)
{
    return ex->mesh != NULL && ex->mesh->group[GROUP_WORLD] != NULL && ex->mesh->ranks > 1;
}

static Status wait_all(Exec *ex)
{
    const GpuExec *g = ex->gpu;
    ex->waits++;
    if (has_peers(ex)) return wait_watched(ex, NULL);
    for (int i = 0; i < g->streams; i++) {
        if ((g->used >> i & 1) != 0) TRY(gpu_stream_sync(g->stream[i]));
    }
    return OK;
}

/* The driver queues about a thousand launches behind a kernel that waits. Then it blocks the host,
 * without a deadline. So the host stays at most 2 * PACE_OPS launches ahead. */
static Status pace_launches(Exec *ex)
{
    Gpu *g = gpu_of(ex);
    if (!has_peers(ex) || g->capturing || ++g->ops % PACE_OPS != 0) return OK;
    GpuEvent event = g->pace[g->ops / PACE_OPS % 2];
    TRY(wait_watched(ex, event));
    return gpu_event_record(event, lane_stream(ex));
}

/* Adds the step, the layer, the op and its shapes to the error of a launch. */
static Status launch_failed(const Exec *ex, const OpDesc *op, const void *args)
{
    char why[512], shapes[512] = "", shape[96];
    size_t at = 0;
    status_sentence(why, sizeof why);
    for (const OpPort *p = op->ports; p->dir != PORT_END && at < sizeof shapes; p++) {
        const Tensor *t = op_port_tensor(p, args);
        if (p->dir == PORT_ROWS || t->data == NULL) continue;
        at += (size_t)snprintf(shapes + at, sizeof shapes - at, "%s%s %s", at > 0 ? ", " : "",
                               p->name, tensor_shape_text(t, shape, sizeof shape));
    }
    return FAIL(ERR_DEVICE, "step %lld, layer %d: %s of %s: %s", (long long)ex->step, ex->layer,
                op->name, shapes, why);
}

/* Kernels take "act" that is not f32 for bf16, and operands that are not e5m2 for e4m3. Conversions
 * alone know f16. */
static Status refuse_types(const OpDesc *op, const void *args)
{
    for (const OpPort *p = op->ports; op != op_desc(OP_CAST) && p->dir != PORT_END; p++) {
        const Tensor *t = p->dir == PORT_ROWS ? NULL : op_port_tensor(p, args);
        if (t != NULL && t->data != NULL && (t->dtype == DTYPE_F16 || dtype_is_emulated(t->dtype)))
            return FAIL(ERR_UNSUPPORTED, "%s: %s is %s, which kernels do not take", op->name,
                        p->name, dtype_name(t->dtype));
    }
    return OK;
}

static Status run_op(Exec *ex, const OpDesc *op, const void *args)
{
    if (op->gpu == NULL) return FAIL(ERR_UNSUPPORTED, "%s: there is no version for GPUs", op->name);
    TRY(refuse_types(op, args));
    TRY(pace_launches(ex));
    Status s = op->gpu(ex, args);
    /* With a decorator, the host waits for each op, so that an error is reported for the op that caused
     * it. Decorators are slow anyway. A capture runs nothing yet: there is nothing to wait for. The
     * recorder counts FLOPs during the first walk of a mode, which is a capture if the step is a retry. */
    if (s == OK && ex->depth > 0 && !gpu_of(ex)->capturing) s = wait_all(ex);
    return s == ERR_DEVICE ? launch_failed(ex, op, args) : s;
}

static Status gpu_backend_alloc(Exec *ex, MemKind kind, size_t bytes, void **out)
{
    (void)ex;
    return kind == MEM_PINNED ? gpu_alloc_pinned(bytes, out) : gpu_alloc(bytes, out);
}

static void gpu_backend_release(Exec *ex, MemKind kind, void *at, size_t bytes)
{
    (void)ex, (void)bytes;
    if (kind == MEM_PINNED)
        gpu_free_pinned(at);
    else
        gpu_free(at);
}

static Status pin_pages(Exec *ex, void *at, size_t bytes)
{
    return gpu_pin(ex->gpu->device, at, bytes);
}

static void unpin_pages(Exec *ex, void *at)
{
    (void)ex;
    gpu_unpin(at);
}

static Status copy_on_lane(Exec *ex, void *dst, const void *src, size_t bytes)
{
    return gpu_copy(dst, src, bytes, lane_stream(ex));
}

/* The event marks the lane's work so far, so the wait polls this lane alone. */
static Status wait_lane(Exec *ex)
{
    const Gpu *g = gpu_of(ex);
    ex->waits++;
    if (!has_peers(ex)) return gpu_stream_sync(lane_stream(ex));
    TRY(gpu_event_record(g->reached, lane_stream(ex)));
    return wait_watched(ex, g->reached);
}

/* Copying to pageable memory blocks in the driver, without a deadline. So this waits with a deadline
 * first. */
static Status read_back(Exec *ex, void *dst, const void *src, size_t bytes)
{
    TRY(wait_lane(ex));
    TRY(copy_on_lane(ex, dst, src, bytes));
    return wait_lane(ex);
}

static Status fill_on_lane(Exec *ex, void *dst, int byte, size_t bytes)
{
    return gpu_fill(dst, byte, bytes, lane_stream(ex));
}

/* Only f32 and bf16 are searched: other types are integers, or 8-bit formats into which ops saturate. */
static Status find_bad(Exec *ex, const Tensor *t, int64_t *index, double *value)
{
    uint64_t *bad = gpu_of(ex)->bad, at = GPU_NONE_BAD;
    char bits[4] = { 0 };
    float v = 0;
    *index = -1;
    if (tensor_elems(t) == 0 || (t->dtype != DTYPE_F32 && t->dtype != DTYPE_BF16)) return OK;
    TRY(gpu_find_bad(lane_stream(ex), t, bad));
    TRY(copy_on_lane(ex, &at, bad, sizeof at));
    TRY(wait_all(ex));
    if (at == GPU_NONE_BAD) return OK;
    TRY(copy_on_lane(ex, bits, tensor_at(t, (int64_t)at), dtype_bytes(t->dtype)));
    TRY(wait_all(ex));
    dtype_to_f32(&v, bits, t->dtype, 1);
    *index = (int64_t)at;
    *value = (double)v;
    return OK;
}

/* Events are kept in a list, because the runtime frees them one by one while the arena forgets them
 * at once. */
static Status event_add(Gpu *g, bool timed, GpuEvent *out)
{
    EventNode *n = NULL;
    TRY(ARENA_ZEROED(g->arena, 1, &n));
    TRY(gpu_event_make(timed, &n->event));
    n->next = g->events;
    g->events = n;
    *out = n->event;
    return OK;
}

static Status event_new(Exec *ex, bool timed, Event *out)
{
    return event_add(gpu_of(ex), timed, &out->gpu);
}

static GpuStream stream_or_lane(Exec *ex, void *stream)
{
    return stream != NULL ? stream : lane_stream(ex);
}

static Status record_event(Exec *ex, Event *event, void *stream)
{
    return gpu_event_record(event->gpu, stream_or_lane(ex, stream));
}

static Status wait_event(Exec *ex, const Event *event, void *stream)
{
    return gpu_stream_wait(stream_or_lane(ex, stream), event->gpu);
}

static Status copy_on_stream(Exec *ex, void *dst, const void *src, size_t bytes, void *stream)
{
    return gpu_copy(dst, src, bytes, stream_or_lane(ex, stream));
}

static Status elapsed_s(Exec *ex, const Event *from, const Event *to, double *out)
{
    (void)ex;
    return gpu_event_elapsed_s(from->gpu, to->gpu, out);
}

static Status delay_lane(Exec *ex, double seconds) { return gpu_delay(lane_stream(ex), seconds); }

static Status stamp_stream(Exec *ex, uint64_t *at, void *stream)
{
    return gpu_stamp(stream_or_lane(ex, stream), at);
}

/* The libraries go first: they may still hold the streams. */
static void close_exec(Exec *ex)
{
    Gpu *g = gpu_of(ex);
    libraries_close(ex);
    if (g->bad != NULL) gpu_free(g->bad);
    if (g->own.tickets != NULL) gpu_free(g->own.tickets);
    for (EventNode *n = g->events; n != NULL; n = n->next) gpu_event_free(n->event);
    for (int i = 0; i < g->own.streams; i++) gpu_stream_free(g->own.stream[i]);
}

static const Streams streams = {
    .of_lane = stream_of_lane,
    .add = stream_new,
    .event_new = event_new,
    .record = record_event,
    .wait = wait_event,
    .copy = copy_on_stream,
    .elapsed_s = elapsed_s,
    .delay = delay_lane,
    .stamp = stamp_stream,
};

static const Graphs graphs = {
    .begin = capture_begin,
    .end = capture_end,
    .launch = graph_launch,
    .free = gpu_graph_free,
};

static const Backend backend_gpu = {
    .apart = true,
    .async = true,
    .captures = true,
    .run = run_op,
    .alloc = gpu_backend_alloc,
    .free = gpu_backend_release,
    .copy = copy_on_lane,
    .pin = pin_pages,
    .unpin = unpin_pages,
    .read = read_back,
    .fill = fill_on_lane,
    .sync = wait_all,
    .find_bad = find_bad,
    .streams = &streams,
    .graphs = &graphs,
    .close = close_exec,
};

/* Makes the part of an Exec that only GPUs have, in `arena`. Used for a real GPU and for plans.
 * `threads` is 1, since the ops on a GPU use none of the host. */
static Status exec_make(Exec *ex, Arena *arena, Arena *scratch, Gpu **out)
{
    TRY(ARENA_ZEROED(arena, 1, out));
    *ex = (Exec){ .scratch = scratch, .threads = 1, .layer = -1, .gpu = &(*out)->own };
    return OK;
}

/* Lanes get streams in order, so that stream[LANE_...] is the lane's. The communication lane is
 * urgent: other ranks wait for it. */
Status gpu_exec_init(Exec *ex, int device, Arena *arena, Arena *scratch)
{
    const size_t tickets = LANE_COUNT * sizeof(unsigned);
    int i = 0;
    GpuInfo info;
    Gpu *g = NULL;
    TRY(gpu_info(device, &info));
    TRY(exec_make(ex, arena, scratch, &g));
    ex->backend = &backend_gpu;
    g->own.device = device;
    g->arena = arena;
    for (int lane = 0; lane < LANE_COUNT; lane++) TRY(stream_add(&g->own, lane == LANE_COMM, &i));
    for (int p = 0; p < 2; p++) TRY(event_add(g, false, &g->pace[p]));
    TRY(event_add(g, false, &g->reached));
    TRY(gpu_alloc(sizeof *g->bad, (void **)&g->bad));
    TRY(gpu_alloc(tickets, (void **)&g->own.tickets));
    /* Kernels leave a ticket at zero again, so this is its only initialisation. */
    TRY(gpu_fill(g->own.tickets, 0, tickets, g->own.stream[LANE_COMPUTE]));
    TRY(gpu_stream_sync(g->own.stream[LANE_COMPUTE]));
    return libraries_open(ex, arena);
}

/* A copy of backend_count that says it is a GPU: callers then place memory and order lanes as they
 * would on one. */
Status gpu_exec_count(Exec *ex, Arena *arena, Arena *scratch)
{
    Gpu *g = NULL;
    if (!gpu_built()) return gpu_info(0, &(GpuInfo){ 0 }); /* says what is missing */
    TRY(exec_make(ex, arena, scratch, &g));
    g->counts = backend_count;
    g->counts.apart = g->counts.async = true;
    ex->backend = &g->counts;
    ex->device = &kernel_device_full;
    return OK;
}
