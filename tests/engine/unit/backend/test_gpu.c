/* The GPU backend over a GPU that is made up: streams that note what is asked of them, events and queries
 * that stay busy as long as a test says. So its waits, its order and its ends are tested where there is
 * no GPU. What a real device does is tested in tests/engine/gpu. */
#include "harness/test.h"

#include "engine/backend/backend.h"
#include "engine/comm/comm_private.h"
#include "kernels/core/gpu_exec.h"
#include "kernels/core/kernels.h"
#include "kernels/core/libraries.h"
#include "kernels/core/tuner.h"
#include "kernels/dense/product_algo.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOTES = 8192, DEVICE_BYTES = 4096, MADE_UP = 5, EVENTS = 1024 };

/* What the made-up GPU was asked, in order, as words; and what it answers. */
static struct {
    char said[NOTES];
    int streams, events, allocated, busy; /* busy: queries that are still to say so */
    Status launch;                        /* of the next launch */
    uint64_t bad;                         /* what a search finds */
    bool lacks;                           /* there is no library */
    double watched_s;
    double now_s,
        recorded_s[EVENTS]; /* a clock that launches of a test move, and events by number */
    bool lost;
} fake;

static void said(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void said(const char *format, ...)
{
    size_t at = strlen(fake.said);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(fake.said + at, sizeof fake.said - at, format, args);
    va_end(args);
}

static intptr_t number(const void *handle) { return (intptr_t)handle; }
static void *handle(int n) { return (void *)(intptr_t)n; } /* NOLINT(performance-no-int-to-ptr) */

/* gpu.h, all of it, so that no other implementation is linked */

const GpuLibraries gpu_libraries = { 0 };
bool gpu_built(void) { return true; }
int gpu_runtime_version(void) { return 13000; }
int gpu_devices(void) { return MADE_UP + 1; }
int gpu_limit(GpuLimit which) { return (int)which; }
const char *gpu_code_lacks(void) { return "no code of sm_90a"; }
Status gpu_current(int *device)
{
    *device = MADE_UP;
    return OK;
}
Status gpu_info(int device, GpuInfo *out)
{
    if (device > MADE_UP) return FAIL(ERR_UNSUPPORTED, "GPU %d was asked for", device);
    *out = (GpuInfo){ .major = 9 };
    return OK;
}
Status gpu_bus_id(int device, char out[GPU_BUS_ID_MAX])
{
    (void)snprintf(out, GPU_BUS_ID_MAX, "bus %d", device);
    return OK;
}
Status gpu_used_bytes(size_t *out)
{
    *out = 77;
    return OK;
}
Status gpu_alloc(size_t bytes, void **out)
{
    fake.allocated++;
    *out = calloc(1, bytes);
    return *out == NULL ? FAIL(ERR_MEMORY, "no memory") : OK;
}
void gpu_free(void *at)
{
    fake.allocated--;
    free(at);
}
Status gpu_alloc_pinned(size_t bytes, void **out)
{
    said("pinned ");
    return gpu_alloc(bytes, out);
}
Status gpu_pin(int device, void *at, size_t bytes)
{
    (void)device, (void)at, (void)bytes;
    return OK;
}
void gpu_unpin(void *at) { (void)at; }
void gpu_free_pinned(void *at)
{
    said("unpinned ");
    gpu_free(at);
}
int gpu_share_make(void *base, GpuShare *out) { return base == NULL || out == NULL; }
int gpu_share_open(const GpuShare *share, void **out) { return share == NULL || out == NULL; }
void gpu_share_close(void *at) { (void)at; }
int gpu_peer_open(int device) { return device; }
const char *gpu_error_text(int code) { return code == 0 ? "" : "error"; }
Status gpu_copy(void *dst, const void *src, size_t bytes, GpuStream s)
{
    said("copy@%td ", number(s));
    memcpy(dst, src, bytes);
    return OK;
}
Status gpu_fill(void *dst, int byte, size_t bytes, GpuStream s)
{
    said("fill@%td ", number(s));
    memset(dst, byte, bytes);
    return OK;
}
Status gpu_stream_make(bool urgent, GpuStream *out)
{
    said(urgent ? "urgent " : "stream ");
    *out = handle(++fake.streams);
    return OK;
}
void gpu_stream_free(GpuStream s) { fake.streams -= s != NULL; }
Status gpu_stream_sync(GpuStream s)
{
    said("sync@%td ", number(s));
    return OK;
}
static Status answer_busy(bool *out)
{
    *out = fake.busy > 0;
    fake.busy -= *out;
    return OK;
}
Status gpu_stream_busy(GpuStream s, bool *out)
{
    said("ask@%td ", number(s));
    return answer_busy(out);
}
Status gpu_stream_wait(GpuStream s, GpuEvent e)
{
    said("wait%td@%td ", number(e), number(s));
    return OK;
}
Status gpu_event_make(bool timed, GpuEvent *out)
{
    said(timed ? "timed " : "event ");
    *out = handle(++fake.events);
    return OK;
}
void gpu_event_free(GpuEvent e) { fake.events -= e != NULL; }
Status gpu_event_record(GpuEvent e, GpuStream s)
{
    said("record%td@%td ", number(e), number(s));
    CHECK(number(e) < EVENTS);
    fake.recorded_s[number(e)] = fake.now_s;
    return OK;
}
Status gpu_event_sync(GpuEvent e) { return e == NULL ? FAIL(ERR_ARG, "no event") : OK; }
Status gpu_event_busy(GpuEvent e, bool *out)
{
    said("ask%td ", number(e));
    return answer_busy(out);
}
Status gpu_event_elapsed_s(GpuEvent from, GpuEvent to, double *out)
{
    *out = (double)(number(to) - number(from));
    *out += fake.recorded_s[number(to)] - fake.recorded_s[number(from)];
    return OK;
}
Status gpu_capture_begin(GpuStream s)
{
    said("begin@%td ", number(s));
    return OK;
}
Status gpu_capture_end(GpuStream s, Graph *out)
{
    said("end@%td ", number(s));
    *out = (Graph){ .exec = &fake, .nodes = 3 };
    return OK;
}
Status gpu_graph_launch(const Graph *g, GpuStream s)
{
    said("launch%lld@%td ", (long long)g->nodes, number(s));
    return OK;
}
void gpu_graph_free(Graph *g) { *g = (Graph){ 0 }; }
Status gpu_status(int code, const char *what)
{
    return code == 0 ? OK : FAIL(ERR_DEVICE, "%s: %d", what, code);
}
Status gpu_launch_status(const char *what) { return gpu_status((int)fake.launch, what); }
void gpu_error_clear(void) {}
Status gpu_kernel_shared(const void *kernel, size_t bytes, const char *what)
{
    return gpu_status(kernel == NULL || bytes == 0, what);
}
Status gpu_delay(GpuStream s, double seconds)
{
    said("delay%g@%td ", seconds, number(s));
    return OK;
}
Status gpu_stamp(GpuStream s, uint64_t *at)
{
    *at = 5;
    said("stamp@%td ", number(s));
    return OK;
}
Status gpu_find_bad(GpuStream s, const Tensor *t, uint64_t *first)
{
    said("search@%td ", number(s));
    *first = fake.bad;
    return t->data == NULL ? FAIL(ERR_ARG, "no data") : OK;
}
size_t gpu_sort_bytes(int64_t n) { return (size_t)n; }
Status gpu_sort(const GpuSort *x, void *room, size_t room_bytes, GpuStream s)
{
    (void)s;
    return x->n < 0 || room == NULL || room_bytes == 0 ? FAIL(ERR_ARG, "no room") : OK;
}

/* a library, which may be missing */

static Status open_products(Exec *ex, Arena *a, void **out)
{
    (void)a;
    CHECK(ex->gpu != NULL);
    said("open-products ");
    if (!fake.lacks) *out = ex->gpu;
    return OK;
}

static void close_products(void *library)
{
    CHECK(library != NULL);
    said("close-products ");
}

static Choices choices;
static Tuner tuner = { .choices = &choices };

static Tuner *tuner_of(void *library)
{
    CHECK(library != NULL);
    return &tuner;
}

static const char *says_lacks(const void *library) { return library == NULL ? "made up" : NULL; }

const GpuVendor op_vendor = VENDOR_NVIDIA;
const OpLibrary op_library[LIBRARY_COUNT] = {
    [LIBRARY_PRODUCTS] = { .open = open_products,
                           .close = close_products,
                           .tuner = tuner_of,
                           .lacks = says_lacks },
};

/* ops */

typedef struct Probe {
    Tensor out;
} Probe;

static const OpPort probe_ports[] = { PORT(Probe, out, PORT_OUT), PORTS_END };

static Status probe_gpu(Exec *ex, const void *args)
{
    (void)args;
    said("op@%td ", number(exec_gpu_stream(ex)));
    return fake.launch == OK ? OK : FAIL(fake.launch, "launch refused");
}

static const OpDesc probe_desc = { .name = "probe", .ports = probe_ports, .gpu = probe_gpu };
static const OpDesc lacking_desc = { .name = "lacking", .ports = probe_ports };

/* peers */

static Status fake_watch(Comm *c, double waited_s)
{
    (void)c;
    fake.watched_s = waited_s;
    said("watch ");
    return fake.lost ? FAIL(ERR_COMM, "rank 1 has ended") : OK;
}

static const CommTable fake_table = { .watch = fake_watch };

typedef struct GpuTest {
    Arena tables, scratch;
    Exec ex;
    Comm world;
    Mesh mesh;
    float data[4];
    Tensor out;
} GpuTest;

static GpuTest g;

static void heard(const char *want)
{
    CHECK_TEXT(fake.said, want);
    fake.said[0] = '\0';
}

static int gpu_open(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    fake.bad = GPU_NONE_BAD;
    g = (GpuTest){ .mesh = { .rank = 0, .ranks = 2 }, .world = { .table = &fake_table } };
    g.mesh.group[GROUP_WORLD] = &g.world;
    g.out = (Tensor){ g.data, DTYPE_F32, 1, { 4 } };
    CHECK_OK(arena_init(&g.tables, "tables", MEM_HOST, 1 << 20));
    CHECK_OK(arena_init(&g.scratch, "scratch", MEM_HOST, 1 << 20));
    CHECK_OK(gpu_exec_init(&g.ex, MADE_UP, &g.tables, &g.scratch));
    return 0;
}

static int gpu_close(void **state)
{
    (void)state;
    exec_free(&g.ex);
    CHECK_INT(fake.streams, 0);
    CHECK_INT(fake.events, 0);
    CHECK_INT(fake.allocated, 0);
    arena_free(&g.tables);
    arena_free(&g.scratch);
    return 0;
}

static void an_exec_has_a_stream_a_lane_and_its_libraries(void **state)
{
    (void)state;
    heard("stream urgent event event event fill@1 sync@1 open-products ");
    exec_free(&g.ex);
    heard("close-products ");
}

static void libraries_answer_for_their_exec(void **state)
{
    (void)state;
    fake.said[0] = '\0';
    int events = fake.events;
    CHECK(exec_choices(&g.ex) == &choices);
    CHECK_OK(exec_tune(&g.ex, true));
    CHECK(tuner.on);
    CHECK_INT(fake.events, events + TUNER_EVENTS);
    CHECK_OK(exec_tune(&g.ex, false));
    CHECK(!tuner.on);
    CHECK_INT(fake.events, events);
    fake.said[0] = '\0';
    CHECK(g.ex.device->lacks[LIBRARY_PRODUCTS] == NULL);
    CHECK_INT(g.ex.device->capability, 10 * GPU_CAPABILITY_MAJOR + GPU_CAPABILITY_MINOR);
    CHECK_TEXT(g.ex.device->lacks_code, "no code of sm_90a");
}

static void a_missing_library_says_so_and_is_not_closed(void **state)
{
    (void)state;
    exec_free(&g.ex);
    fake.lacks = true;
    fake.said[0] = '\0';
    CHECK_OK(gpu_exec_init(&g.ex, MADE_UP, &g.tables, &g.scratch));
    fake.lacks = false;
    CHECK_TEXT(g.ex.device->lacks[LIBRARY_PRODUCTS], "made up");
    CHECK(exec_choices(&g.ex) == NULL);
    fake.said[0] = '\0';
    exec_free(&g.ex);
    heard("");
}

/* Grouped products of three shapes. The second one is the fastest, though it is disturbed once. */
static int launched[3];
static Status launch_of(int shape, double s)
{
    fake.now_s += launched[shape]++ == 3 && shape == 1 ? 100 : s;
    return OK;
}
static Status launch_slow(Exec *ex, const char *op, const void *product)
{
    CHECK(product == launched && strcmp(op, "made_up") == 0 && ex == &g.ex);
    return launch_of(0, 3);
}
static Status launch_fast(Exec *ex, const char *op, const void *product)
{
    (void)ex, (void)op, (void)product;
    return launch_of(1, 1);
}
static Status launch_slowest(Exec *ex, const char *op, const void *product)
{
    (void)ex, (void)op, (void)product;
    return launch_of(2, 4);
}

static void check_launched(int first, int second, int third)
{
    static GroupedLaunch *const launch[] = { launch_slow, launch_fast, launch_slowest };
    const int shape[] = { 7, 8, 9 };
    ChoiceKey key = choices_grouped_key("made_up", false, 64, 8, 16, 32);
    memset(launched, 0, sizeof launched);
    CHECK_OK(tuner_run_grouped(&g.ex, "made_up", &key, shape, launch, 3, launched));
    CHECK_INT(launched[0], first);
    CHECK_INT(launched[1], second);
    CHECK_INT(launched[2], third);
}

static void a_grouped_product_is_timed_once_and_then_runs_the_fastest_shape(void **state)
{
    (void)state;
    enum { TIMED = TUNER_WARM_UP + TUNER_ROUNDS };
    choices_clear(&choices);
    check_launched(1, 0, 0); /* nothing is recorded, and tuning is off: the first shape */
    CHECK_INT(choices.n, 0);
    CHECK_OK(exec_tune(&g.ex, true));
    check_launched(TIMED, TIMED + 1, TIMED);
    check_launched(0, 1, 0);
    CHECK_OK(exec_tune(&g.ex, false));
    check_launched(0, 1, 0);
    CHECK_INT(choices.n, 1);
    CHECK(choices.unsaved);
}

/* A library with algorithms 10, 11 and on, of which 11 fails when it is launched. Later ones are faster. */
static int offered, ran[4];
static Status made_up_propose(ProductCall *call, ProductAlgos *out)
{
    CHECK(call->ex == &g.ex && out->n == 0);
    for (int i = 0; i < offered; i++) out->algo[out->n++][0] = 10 + (uint64_t)i;
    return OK;
}
static bool made_up_fits(ProductCall *call, const uint64_t *algo)
{
    return call->ex == &g.ex && algo[0] < 10 + (uint64_t)offered;
}
static Status made_up_launch(ProductCall *call, const uint64_t *algo)
{
    int i = (int)algo[0] - 10;
    CHECK(call->ex == &g.ex && i >= 0 && i < offered);
    ran[i]++;
    fake.now_s += 9 - i;
    return i == 1 ? FAIL(ERR_DEVICE, "algorithm %d is broken", i) : OK;
}

/* A product of m rows; returns what running it returned. */
static Status multiply(int64_t m, int n_offered)
{
    static const ProductLibrary library = { "made up", made_up_propose, made_up_fits,
                                            made_up_launch };
    const GemmArgs args = { .m = m, .n = 3, .k = 5, .a.ld = 5, .b.ld = 3, .c.ld = 3 };
    ProductCall call = { .library = &library, .ex = &g.ex, .g = &args };
    memset(ran, 0, sizeof ran);
    offered = n_offered;
    return product_algo_run(&call);
}

static void check_ran(int first, int second, int third)
{
    CHECK_INT(ran[0], first);
    CHECK_INT(ran[1], second);
    CHECK_INT(ran[2], third);
}

static void a_dense_product_keeps_the_fastest_algorithm_that_can_be_launched(void **state)
{
    (void)state;
    enum { TIMED = TUNER_WARM_UP + TUNER_ROUNDS };
    choices_clear(&choices);
    CHECK_OK(multiply(1, 3));
    check_ran(1, 0, 0); /* not tuned: the first proposal */
    CHECK_OK(exec_tune(&g.ex, true));
    CHECK_OK(multiply(2, 3));
    check_ran(TIMED, 1, TIMED + 1);
    CHECK_TEXT(status_message(), ""); /* of the one that failed */
    CHECK_OK(multiply(1, 3));
    check_ran(1, 0, 0); /* a shape keeps its choice */
    CHECK_OK(exec_tune(&g.ex, false));
    CHECK_OK(multiply(2, 3));
    check_ran(0, 0, 1);
    CHECK_INT(choices.at[0].kind, CHOICE_FIRST);
    CHECK_INT(choices.at[1].kind, CHOICE_TIMED);
    CHECK_INT(choices.n, 2);
}

static void a_dense_product_that_the_library_lacks_is_refused(void **state)
{
    (void)state;
    choices_clear(&choices);
    CHECK_FAILS(multiply(1, 0), ERR_UNSUPPORTED, "made up proposes no algorithm for it");
    CHECK_FAILS(multiply(1, 3), ERR_UNSUPPORTED, "made up proposes no algorithm for it");
    CHECK_INT(choices.at[0].kind, CHOICE_PLAIN);
}

static void a_choice_of_a_text_is_replaced_if_it_does_not_fit(void **state)
{
    (void)state;
    choices_clear(&choices);
    CHECK_OK(multiply(1, 3));
    Choice *kept = &choices.at[0];
    kept->algo[0] = 12, kept->unchecked = true;
    CHECK_OK(multiply(1, 3));
    check_ran(0, 0, 1);
    kept->unchecked = true;
    CHECK_OK(multiply(1, 1)); /* another version of the library, without that one */
    check_ran(1, 0, 0);
    CHECK(!kept->unchecked && choices.n == 1);
}

static void the_first_of_equal_times_is_the_fastest(void **state)
{
    (void)state;
    CHECK_INT(tuner_fastest((const float[]){ 2, 1.005f, 1, 1.02f }, 4), 1);
    CHECK_INT(tuner_fastest((const float[]){ 1 }, 1), 0);
}

static void work_goes_to_the_stream_of_its_lane(void **state)
{
    (void)state;
    const Backend *b = g.ex.backend;
    char to[4];
    fake.said[0] = '\0';
    CHECK_OK(b->run(&g.ex, &probe_desc, &(Probe){ g.out }));
    g.ex.lane = LANE_COMM;
    CHECK_OK(b->run(&g.ex, &probe_desc, &(Probe){ g.out }));
    CHECK_OK(b->copy(&g.ex, to, "abc", 4));
    CHECK_OK(b->fill(&g.ex, to, 1, 4));
    heard("op@1 op@2 copy@2 fill@2 ");
    CHECK(exec_ticket(&g.ex) == g.ex.gpu->tickets + LANE_COMM);
}

static void one_more_stream_is_urgent_and_they_are_counted(void **state)
{
    (void)state;
    void *stream = NULL;
    fake.said[0] = '\0';
    for (int i = LANE_COUNT; i < STREAMS_MAX; i++)
        CHECK_OK(g.ex.backend->streams->add(&g.ex, &stream));
    CHECK_INT(number(stream), STREAMS_MAX);
    CHECK(strstr(fake.said, "stream") == NULL);
    CHECK_FAILS(g.ex.backend->streams->add(&g.ex, &stream), ERR_ARG, "stream 13 was asked for");
}

/* Streams that nobody was given may hold others' work. */
static void a_wait_is_for_streams_that_are_used(void **state)
{
    (void)state;
    void *stream = NULL;
    CHECK_OK(g.ex.backend->streams->add(&g.ex, &stream));
    g.ex.gpu->used = 0;
    g.ex.lane = LANE_COMM;
    CHECK_OK(g.ex.backend->run(&g.ex, &probe_desc, &(Probe){ g.out }));
    fake.said[0] = '\0';
    int64_t waits = g.ex.waits;
    CHECK_OK(g.ex.backend->sync(&g.ex));
    heard("sync@2 ");
    CHECK_INT(g.ex.waits, waits + 1);
}

static void a_read_waits_for_its_lane_before_and_after(void **state)
{
    (void)state;
    char to[4];
    fake.said[0] = '\0';
    CHECK_OK(g.ex.backend->read(&g.ex, to, "abc", 4));
    heard("sync@1 copy@1 sync@1 ");
    CHECK_TEXT(to, "abc");
}

static void a_wait_with_peers_asks_for_them(void **state)
{
    (void)state;
    g.ex.mesh = &g.mesh;
    g.ex.gpu->used = 1;
    fake.busy = 2;
    fake.said[0] = '\0';
    CHECK_OK(g.ex.backend->sync(&g.ex));
    heard("ask@1 watch ask@1 watch ask@1 ");
}

/* The kernels of the lost groups leave first: until then their memory is in use. */
static void a_wait_for_a_lost_peer_ends_with_its_reason(void **state)
{
    (void)state;
    g.ex.mesh = &g.mesh;
    g.ex.gpu->used = 1;
    fake.lost = true;
    fake.busy = 3;
    fake.said[0] = '\0';
    CHECK_FAILS(g.ex.backend->sync(&g.ex), ERR_COMM, "rank 1 has ended");
    heard("ask@1 watch ask@1 ask@1 ask@1 ");
}

/* Events 1 and 2 pace: the host waits for the one before the last. */
static void launches_with_peers_are_never_far_ahead(void **state)
{
    (void)state;
    g.ex.mesh = &g.mesh;
    for (int i = 1; i < 3 * 64; i++) {
        fake.said[0] = '\0';
        CHECK_OK(g.ex.backend->run(&g.ex, &probe_desc, &(Probe){ g.out }));
        if (i == 64) heard("ask2 record2@1 op@1 ");
        if (i == 128) heard("ask1 record1@1 op@1 ");
        if (i % 64 != 0) heard("op@1 ");
    }
    CHECK_OK(g.ex.backend->graphs->begin(&g.ex));
    fake.said[0] = '\0';
    CHECK_OK(g.ex.backend->run(&g.ex, &probe_desc, &(Probe){ g.out }));
    heard("op@1 "); /* a capture waits for nothing */
}

static void a_graph_is_of_the_compute_lane(void **state)
{
    (void)state;
    Graph graph = { 0 };
    const Graphs *graphs = g.ex.backend->graphs;
    g.ex.lane = LANE_COMM;
    fake.said[0] = '\0';
    CHECK_OK(graphs->begin(&g.ex));
    CHECK_OK(graphs->end(&g.ex, &graph));
    CHECK_OK(graphs->launch(&g.ex, &graph));
    heard("begin@1 end@1 launch3@1 ");
    graphs->free(&graph);
    CHECK(graph.exec == NULL);
}

static void events_order_streams(void **state)
{
    (void)state;
    const Streams *s = g.ex.backend->streams;
    Event from = { 0 }, to = { 0 };
    double seconds = 0;
    uint64_t at = 0;
    char to_bytes[4];
    CHECK_OK(s->event_new(&g.ex, true, &from));
    CHECK_OK(s->event_new(&g.ex, false, &to));
    fake.said[0] = '\0';
    CHECK_OK(s->record(&g.ex, &from, NULL));
    CHECK_OK(s->wait(&g.ex, &from, s->of_lane(&g.ex, LANE_COMM)));
    CHECK_OK(s->stamp(&g.ex, &at, NULL));
    CHECK_OK(s->delay(&g.ex, 0.5));
    CHECK_OK(s->copy(&g.ex, to_bytes, "abc", 4, s->of_lane(&g.ex, LANE_COMM)));
    CHECK_OK(s->copy(&g.ex, to_bytes, "abc", 4, NULL));
    heard("record4@1 wait4@2 stamp@1 delay0.5@1 copy@2 copy@1 ");
    CHECK_OK(s->elapsed_s(&g.ex, &from, &to, &seconds));
    CHECK_NEAR(seconds, 1, 0);
    CHECK_INT(at, 5);
}

static void what_is_not_finite_is_found(void **state)
{
    (void)state;
    int64_t index = 0;
    double value = 0;
    CHECK_OK(g.ex.backend->find_bad(&g.ex, &g.out, &index, &value));
    CHECK_INT(index, -1);
    fake.bad = 2;
    g.data[2] = 7;
    CHECK_OK(g.ex.backend->find_bad(&g.ex, &g.out, &index, &value));
    CHECK_INT(index, 2);
    CHECK_NEAR(value, 7, 0);
    fake.said[0] = '\0';
    Tensor eight = { g.data, DTYPE_E4M3, 1, { 4 } };
    CHECK_OK(g.ex.backend->find_bad(&g.ex, &eight, &index, &value));
    CHECK_INT(index, -1);
    heard("");
}

static void a_refused_launch_names_op_and_shapes(void **state)
{
    (void)state;
    g.ex.step = 3;
    g.ex.layer = 4;
    fake.launch = ERR_DEVICE;
    CHECK_FAILS(g.ex.backend->run(&g.ex, &probe_desc, &(Probe){ g.out }), ERR_DEVICE,
                "step 3, layer 4: probe of out (4)");
    CHECK_FAILS(g.ex.backend->run(&g.ex, &lacking_desc, &(Probe){ g.out }), ERR_UNSUPPORTED,
                "lacking: there is no version for GPUs");
}

/* So that an error is found at the op that caused it. */
static void behind_a_decorator_each_op_is_waited_for(void **state)
{
    (void)state;
    exec_push(&g.ex, &backend_guard);
    g.ex.gpu->used = 0;
    fake.said[0] = '\0';
    CHECK_OK(g.ex.backend->run(&g.ex, &probe_desc, &(Probe){ g.out }));
    heard("op@1 sync@1 ");
    exec_pop(&g.ex);
}

static void the_device_says_where_it_is(void **state)
{
    (void)state;
    char bus_id[GPU_BUS_ID_MAX];
    size_t bytes = 0;
    CHECK_OK(exec_bus_id(&g.ex, bus_id));
    CHECK_TEXT(bus_id, "bus 5");
    CHECK_OK(exec_used_bytes(&g.ex, &bytes));
    CHECK_INT(bytes, 77);
}

static void memory_of_the_host_is_pinned(void **state)
{
    (void)state;
    const Backend *b = g.ex.backend;
    void *at = NULL;
    fake.said[0] = '\0';
    CHECK_OK(b->alloc(&g.ex, MEM_PINNED, 8, &at));
    b->free(&g.ex, MEM_PINNED, at, 8);
    CHECK_OK(b->alloc(&g.ex, MEM_DEVICE, 8, &at));
    b->free(&g.ex, MEM_DEVICE, at, 8);
    heard("pinned unpinned ");
}

static void a_counting_exec_touches_no_device(void **state)
{
    (void)state;
    Exec count;
    fake.said[0] = '\0';
    CHECK_OK(gpu_exec_count(&count, &g.tables, &g.scratch));
    CHECK(count.gpu != NULL && count.backend->apart && count.backend->async);
    CHECK(exec_choices(&count) == NULL);
    CHECK_OK(exec_tune(&count, true));
    exec_free(&count);
    heard("");
}

#define GPU_TEST(name) cmocka_unit_test_setup_teardown(name, gpu_open, gpu_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        GPU_TEST(an_exec_has_a_stream_a_lane_and_its_libraries),
        GPU_TEST(libraries_answer_for_their_exec),
        GPU_TEST(a_missing_library_says_so_and_is_not_closed),
        GPU_TEST(a_grouped_product_is_timed_once_and_then_runs_the_fastest_shape),
        GPU_TEST(a_dense_product_keeps_the_fastest_algorithm_that_can_be_launched),
        GPU_TEST(a_dense_product_that_the_library_lacks_is_refused),
        GPU_TEST(a_choice_of_a_text_is_replaced_if_it_does_not_fit),
        GPU_TEST(the_first_of_equal_times_is_the_fastest),
        GPU_TEST(work_goes_to_the_stream_of_its_lane),
        GPU_TEST(one_more_stream_is_urgent_and_they_are_counted),
        GPU_TEST(a_wait_is_for_streams_that_are_used),
        GPU_TEST(a_read_waits_for_its_lane_before_and_after),
        GPU_TEST(a_wait_with_peers_asks_for_them),
        GPU_TEST(a_wait_for_a_lost_peer_ends_with_its_reason),
        GPU_TEST(launches_with_peers_are_never_far_ahead),
        GPU_TEST(a_graph_is_of_the_compute_lane),
        GPU_TEST(events_order_streams),
        GPU_TEST(what_is_not_finite_is_found),
        GPU_TEST(a_refused_launch_names_op_and_shapes),
        GPU_TEST(behind_a_decorator_each_op_is_waited_for),
        GPU_TEST(the_device_says_where_it_is),
        GPU_TEST(memory_of_the_host_is_pinned),
        GPU_TEST(a_counting_exec_touches_no_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
