/*
 * NCCL's groups: ranks are threads, each with a GPU of its own. Values are those of comm_cases.h,
 * so every rank can compute what the others have; sums of f32 may have another order than the
 * host's, so they are held to the sum of magnitudes. Skipped where there are fewer than two GPUs.
 */
#include "harness/comm_cases.h"
#include "harness/gpu.h"
#include "harness/test.h"
#include "kernels/norm/elementwise.h"

#include "engine/backend/backend.h"
#include "engine/base/clock.h"

#include <stdlib.h>
#include <time.h>

enum { RANKS_MAX = 4, MANY = 300007, ROUNDS = 3, DEVICE_BYTES = 64 << 20, HOST_BYTES = 256 << 20 };

static const double TIMEOUT_S = 60, SHORT_S = 6, MARGIN_S = 3;

/* A rank and its GPU. */
typedef struct Gpu {
    Comm *host, *world;
    Exec ex;
    Mesh mesh;
    Arena tables, device, scratch;
} Gpu;

typedef Status Body(Gpu *g);

static Status gpu_open(Gpu *g, Comm *host)
{
    void *block = NULL;
    g->host = host;
    TRY(arena_init(&g->tables, "tables", MEM_HOST, HOST_BYTES));
    TRY(gpu_exec_init(&g->ex, host->rank, &g->tables, &g->scratch));
    TRY(g->ex.backend->alloc(&g->ex, MEM_DEVICE, DEVICE_BYTES, &block));
    arena_over(&g->device, "device", MEM_DEVICE, block, DEVICE_BYTES);
    TRY(comm_nccl(host, g->ex.backend->streams->of_lane(&g->ex, LANE_COMPUTE), COMM_BLOCKS,
                  &g->tables, &g->world));
    g->mesh = (Mesh){ .rank = host->rank, .ranks = host->size };
    g->mesh.group[GROUP_WORLD] = g->world;
    g->ex.mesh = &g->mesh;
    return OK;
}

static void gpu_close(Gpu *g, Status s)
{
    char why[512];
    if (s != OK && g->world != NULL) {
        status_sentence(why, sizeof why);
        comm_abort(g->world, why);
    }
    comm_free(g->world);
    if (g->device.base != NULL)
        g->ex.backend->free(&g->ex, MEM_DEVICE, g->device.base, DEVICE_BYTES);
    exec_free(&g->ex);
    arena_free(&g->tables);
}

static Status on_gpu(void *state, Comm *host)
{
    Gpu g = { 0 };
    Body *const *body = state;
    Status s = gpu_open(&g, host);
    if (s == OK) s = (*body)(&g);
    gpu_close(&g, s);
    return s;
}

static int ranks_here(void)
{
    int n = gpu_devices();
    return n < RANKS_MAX ? n : RANKS_MAX;
}

static void run_all_sizes(Body *body)
{
    for (int ranks = 2; ranks <= ranks_here(); ranks++) {
        int failed = 0;
        CHECK_OK(comm_threads(ranks, TIMEOUT_S, on_gpu, &body, &failed));
    }
}

/* Tensors: on the GPU, with a mirror on the host. */

typedef struct Pair {
    Tensor gpu, host;
} Pair;

static Status pair_new(Gpu *g, Dtype dtype, int64_t n, Pair *out)
{
    TRY(tensor_new1(&g->device, dtype, n, &out->gpu));
    return tensor_new1(&g->tables, dtype, n, &out->host);
}

static Status pair_up(Gpu *g, const Pair *p)
{
    return g->ex.backend->copy(&g->ex, p->gpu.data, p->host.data, tensor_bytes(&p->gpu));
}

/* Of this rank's values: `c` says who it is. */
static Status pair_fill(Gpu *g, const Comm *c, const Pair *p)
{
    case_fill(c, &p->host);
    return pair_up(g, p);
}

static Status gpu_wait(Gpu *g) { return g->ex.backend->sync(&g->ex); }

/* Waits first with a deadline: a copy to memory that is not pinned waits without one. */
static Status pair_down(Gpu *g, const Pair *p)
{
    TRY(gpu_wait(g));
    TRY(g->ex.backend->copy(&g->ex, p->host.data, p->gpu.data, tensor_bytes(&p->gpu)));
    return gpu_wait(g);
}

static Pair pair_part(const Pair *p, int64_t first, int64_t n)
{
    return (Pair){ tensor_rows(&p->gpu, first, n), tensor_rows(&p->host, first, n) };
}

/* Collectives */

/* A sum travels from rank to rank and is rounded at each, the host's once: half a last bit each time, of eight bits in
 * bf16. */
static bool reduced_right(const Comm *c, const CommCase *k, int64_t i, float got)
{
    double magnitude = 0, bit = k->dtype == DTYPE_F32    ? 0x1p-23
                                : k->dtype == DTYPE_BF16 ? 0x1.01p-8
                                                         : 0;
    double each = c->size * bit;
    if (k->op == REDUCE_MAX) each = 0;
    for (int r = 0; r < c->size; r++) magnitude += fabs((double)case_value(c, r, k->dtype, i));
    return fabs((double)got - (double)case_reduced(c, k, i)) <= each * magnitude;
}

static Status check_all_reduce(Gpu *g, Comm *c, const CommCase *k)
{
    Pair p;
    TRY(pair_new(g, k->dtype, k->n, &p));
    TRY(pair_fill(g, c, &p));
    TRY(comm_all_reduce(c, &p.gpu, k->op));
    TRY(pair_down(g, &p));
    for (int64_t i = 0; i < k->n; i++) EXPECT(reduced_right(c, k, i, case_get(&p.host, i)));
    return OK;
}

static Status check_reduce_scatter(Gpu *g, Comm *c, const CommCase *k, bool in_place)
{
    Pair in, out;
    int64_t first = c->rank * k->n;
    TRY(pair_new(g, k->dtype, c->size * k->n, &in));
    TRY(pair_new(g, k->dtype, k->n, &out));
    TRY(pair_fill(g, c, &in));
    if (in_place) out = pair_part(&in, first, k->n);
    TRY(comm_reduce_scatter(c, &in.gpu, &out.gpu));
    TRY(pair_down(g, &out));
    for (int64_t i = 0; i < k->n; i++)
        EXPECT(reduced_right(c, k, first + i, case_get(&out.host, i)));
    return OK;
}

static Status check_all_gather(Gpu *g, Comm *c, const CommCase *k, bool in_place)
{
    Pair in, out;
    TRY(pair_new(g, k->dtype, k->n, &in));
    TRY(pair_new(g, k->dtype, c->size * k->n, &out));
    if (in_place) in = pair_part(&out, c->rank * k->n, k->n);
    TRY(pair_fill(g, c, &in));
    TRY(comm_all_gather(c, &in.gpu, &out.gpu));
    TRY(pair_down(g, &out));
    for (int64_t i = 0; i < c->size * k->n; i++) {
        EXPECT(case_get(&out.host, i) == case_value(c, (int)(i / k->n), k->dtype, i % k->n));
    }
    return OK;
}

static Status check_all_to_all(Gpu *g, Comm *c, const CommCase *k)
{
    Pair in, out;
    TRY(pair_new(g, k->dtype, c->size * k->n, &in));
    TRY(pair_new(g, k->dtype, c->size * k->n, &out));
    TRY(pair_fill(g, c, &in));
    TRY(comm_all_to_all(c, &in.gpu, &out.gpu));
    TRY(pair_down(g, &out));
    for (int64_t i = 0; i < c->size * k->n; i++) {
        EXPECT(case_get(&out.host, i) ==
               case_value(c, (int)(i / k->n), k->dtype, c->rank * k->n + i % k->n));
    }
    return OK;
}

static Status check_broadcast(Gpu *g, Comm *c, const CommCase *k)
{
    Pair p;
    int root = c->size - 1;
    TRY(pair_new(g, k->dtype, k->n, &p));
    TRY(pair_fill(g, c, &p));
    TRY(comm_broadcast(c, &p.gpu, root));
    TRY(pair_down(g, &p));
    for (int64_t i = 0; i < k->n; i++)
        EXPECT(case_get(&p.host, i) == case_value(c, root, k->dtype, i));
    return OK;
}

static Status check_all(Gpu *g, Comm *c, const CommCase *k)
{
    ArenaMark device = arena_mark(&g->device), host = arena_mark(&g->tables);
    TRY(check_all_reduce(g, c, k));
    if (k->op == REDUCE_SUM) TRY(check_reduce_scatter(g, c, k, false));
    if (k->op == REDUCE_SUM) TRY(check_reduce_scatter(g, c, k, true));
    TRY(check_all_gather(g, c, k, false));
    TRY(check_all_gather(g, c, k, true));
    TRY(check_all_to_all(g, c, k));
    TRY(check_broadcast(g, c, k));
    TRY(comm_barrier(c));
    TRY(gpu_wait(g));
    arena_release(&g->device, device);
    arena_release(&g->tables, host);
    return OK;
}

static Status all_collectives(Gpu *g)
{
    static const Dtype dtypes[] = { DTYPE_F32, DTYPE_BF16, DTYPE_I32 };
    static const int64_t lengths[] = { 1, 7, 1031, MANY };
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
            TRY(check_all(g, g->world, &(CommCase){ dtypes[d], lengths[l], REDUCE_SUM }));
            TRY(check_all(g, g->world, &(CommCase){ dtypes[d], lengths[l], REDUCE_MAX }));
        }
    }
    return OK;
}

static void collectives_are_what_the_host_computes(void **state)
{
    NEEDS_GPUS(2);
    run_all_sizes(all_collectives);
}

/* Even and odd ranks: of two ranks, two groups of one. */
static Status sides(Gpu *g)
{
    Comm *side = NULL, *none = g->world;
    const Comm *c = g->world;
    const CommCase k = { DTYPE_F32, 1031, REDUCE_SUM };
    TRY(comm_split(g->world, c->rank % 2, -c->rank, "side", &g->tables, &side));
    TRY(comm_split(g->world, -1, 0, "none", &g->tables, &none));
    EXPECT(none == NULL && side->member[side->rank] == c->rank);
    TRY(comm_connect(side));
    for (int i = 0; i < ROUNDS; i++) {
        TRY(check_all(g, side, &k));
        TRY(check_all(g, g->world, &k));
    }
    comm_free(side);
    return OK;
}

static void groups_of_a_split_sum_among_themselves(void **state)
{
    NEEDS_GPUS(2);
    run_all_sizes(sides);
}

/* Transfers */

static Status ring(Gpu *g)
{
    Comm *c = g->world;
    Pair out, in;
    CommRequest r[2] = { { 0 } };
    int next = (c->rank + 1) % c->size, before = (c->rank + c->size - 1) % c->size;
    TRY(pair_new(g, DTYPE_F32, MANY * 4, &out)); /* more than NCCL's buffers hold */
    TRY(pair_new(g, DTYPE_F32, MANY * 4, &in));
    TRY(comm_connect(c));
    TRY(pair_fill(g, c, &out));
    for (int i = 0; i < ROUNDS; i++) {
        TRY(g->ex.backend->fill(&g->ex, in.gpu.data, 0xFF, tensor_bytes(&in.gpu)));
        TRY(comm_batch_begin(c));
        TRY(comm_send(c, &out.gpu, next, 1, &r[0]));
        TRY(comm_recv(c, &in.gpu, before, 1, &r[1]));
        TRY(comm_batch_end(c));
        TRY(comm_wait(c, &r[0]));
        TRY(comm_wait(c, &r[1]));
        TRY(pair_down(g, &in));
        for (int64_t j = 0; j < tensor_elems(&in.host); j++)
            EXPECT(case_get(&in.host, j) == case_value(c, before, DTYPE_F32, j));
    }
    return OK;
}

static void all_send_round_a_ring_at_once(void **state)
{
    NEEDS_GPUS(2);
    run_all_sizes(ring);
}

/* As stages do: without a batch, each to the next. */
static Status chain(Gpu *g)
{
    Comm *c = g->world;
    Pair p;
    CommRequest r = { 0 };
    bool done = false;
    TRY(pair_new(g, DTYPE_BF16, MANY, &p));
    TRY(pair_fill(g, c, &p));
    if (c->rank > 0) TRY(comm_recv(c, &p.gpu, c->rank - 1, 0, &r));
    TRY(comm_test(c, &r, &done));
    EXPECT(done && r.slot == 0);
    if (c->rank + 1 < c->size) TRY(comm_send(c, &p.gpu, c->rank + 1, 0, &r));
    TRY(pair_down(g, &p));
    for (int64_t j = 0; j < MANY; j++)
        EXPECT(case_get(&p.host, j) == case_value(c, 0, DTYPE_BF16, j));
    return OK;
}

static void what_the_first_sends_goes_from_rank_to_rank(void **state)
{
    NEEDS_GPUS(2);
    run_all_sizes(chain);
}

/* Lanes and graphs */

/* The world on the compute lane and its second communicator on the other: an all_reduce in each,
 * and what comes of them after the lanes have met. `sum` and `other` begin as copies of `from`. */
typedef struct Lanes {
    Comm *again;
    Pair from, sum, other;
    Event fork, join;
} Lanes;

static Status lanes_make(Gpu *g, Lanes *l)
{
    const Streams *s = g->ex.backend->streams;
    *l = (Lanes){ 0 };
    TRY(comm_duplicate(g->world, s->of_lane(&g->ex, LANE_COMM), "again", &g->tables, &l->again));
    TRY(pair_new(g, DTYPE_F32, MANY, &l->from));
    TRY(pair_new(g, DTYPE_F32, MANY, &l->sum));
    TRY(pair_new(g, DTYPE_F32, MANY, &l->other));
    TRY(pair_fill(g, g->world, &l->from));
    TRY(s->event_new(&g->ex, false, &l->fork));
    return s->event_new(&g->ex, false, &l->join);
}

static Status lanes_run(Gpu *g, Lanes *l)
{
    const Backend *b = g->ex.backend;
    const Streams *s = b->streams;
    size_t bytes = tensor_bytes(&l->from.gpu);
    TRY(s->record(&g->ex, &l->fork, NULL));
    g->ex.lane = LANE_COMM;
    TRY(s->wait(&g->ex, &l->fork, NULL));
    TRY(b->copy(&g->ex, l->other.gpu.data, l->from.gpu.data, bytes));
    TRY(comm_all_reduce(l->again, &l->other.gpu, REDUCE_SUM));
    TRY(s->record(&g->ex, &l->join, NULL));
    g->ex.lane = LANE_COMPUTE;
    TRY(b->copy(&g->ex, l->sum.gpu.data, l->from.gpu.data, bytes));
    TRY(comm_all_reduce(g->world, &l->sum.gpu, REDUCE_SUM));
    return s->wait(&g->ex, &l->join, NULL);
}

/* A lane's sums are right, and the same bits as before. */
static Status lane_check(Gpu *g, const Pair *p, const Tensor *first)
{
    const Comm *c = g->world;
    const CommCase k = { DTYPE_F32, MANY, REDUCE_SUM };
    TRY(pair_down(g, p));
    for (int64_t i = 0; i < MANY; i++) EXPECT(reduced_right(c, &k, i, case_get(&p->host, i)));
    EXPECT(memcmp(p->host.data, first->data, tensor_bytes(first)) == 0);
    return OK;
}

static Status lanes_check(Gpu *g, Lanes *l, const Tensor first[LANE_COUNT])
{
    TRY(lane_check(g, &l->sum, &first[0]));
    return lane_check(g, &l->other, &first[1]);
}

static Status lane_keep(Gpu *g, const Pair *p, Tensor *first)
{
    TRY(tensor_new1(&g->tables, DTYPE_F32, MANY, first));
    TRY(pair_down(g, p));
    memcpy(first->data, p->host.data, tensor_bytes(first));
    return OK;
}

static Status lanes_first(Gpu *g, Lanes *l, Tensor first[LANE_COUNT])
{
    TRY(lanes_run(g, l));
    TRY(lane_keep(g, &l->sum, &first[0]));
    return lane_keep(g, &l->other, &first[1]);
}

static Status two_lanes(Gpu *g)
{
    Lanes l;
    Tensor first[LANE_COUNT];
    TRY(lanes_make(g, &l));
    TRY(lanes_first(g, &l, first));
    for (int i = 0; i < ROUNDS; i++) {
        for (int j = 0; j < 10; j++) TRY(lanes_run(g, &l));
        TRY(lanes_check(g, &l, first));
    }
    comm_free(l.again);
    return OK;
}

static void two_lanes_at_once_give_the_same_bits_every_time(void **state)
{
    NEEDS_GPUS(2);
    run_all_sizes(two_lanes);
}

static Status capture(Gpu *g, Lanes *l, Graph *out)
{
    TRY(g->ex.backend->graphs->begin(&g->ex));
    TRY(lanes_run(g, l));
    return g->ex.backend->graphs->end(&g->ex, out);
}

static Status clear(Gpu *g, const Pair *p)
{
    return g->ex.backend->fill(&g->ex, p->gpu.data, 0xFF, tensor_bytes(&p->gpu));
}

static Status graph(Gpu *g)
{
    Lanes l;
    Tensor first[LANE_COUNT];
    Graph step = { 0 };
    TRY(lanes_make(g, &l));
    TRY(lanes_first(g, &l, first));
    Status s = capture(g, &l, &step);
    for (int i = 0; i < ROUNDS && s == OK; i++) {
        s = clear(g, &l.sum);
        if (s == OK) s = clear(g, &l.other);
        if (s == OK) s = g->ex.backend->graphs->launch(&g->ex, &step);
        if (s == OK) s = lanes_check(g, &l, first);
    }
    g->ex.backend->graphs->free(&step);
    comm_free(l.again);
    return s;
}

static void a_captured_graph_gives_the_bits_of_launches(void **state)
{
    NEEDS_GPUS(2);
    run_all_sizes(graph);
}

/* Extra streams: a transfer waits for an event of the compute lane, and the other way round. */
static Status own_stream(Gpu *g)
{
    const Streams *s = g->ex.backend->streams;
    Comm *c = NULL;
    Pair p;
    void *stream = NULL;
    Event ready, done;
    TRY(s->add(&g->ex, &stream));
    TRY(comm_duplicate(g->world, stream, "transfers", &g->tables, &c));
    TRY(pair_new(g, DTYPE_I32, MANY, &p));
    TRY(s->event_new(&g->ex, false, &ready));
    TRY(s->event_new(&g->ex, false, &done));
    TRY(pair_fill(g, c, &p));
    TRY(s->record(&g->ex, &ready, NULL));
    TRY(s->wait(&g->ex, &ready, stream));
    TRY(comm_broadcast(c, &p.gpu, 1));
    TRY(s->record(&g->ex, &done, stream));
    TRY(s->wait(&g->ex, &done, NULL));
    TRY(pair_down(g, &p));
    for (int64_t i = 0; i < MANY; i++)
        EXPECT(case_get(&p.host, i) == case_value(c, 1, DTYPE_I32, i));
    comm_free(c);
    return OK;
}

static void a_stream_of_its_own_is_ordered_by_events(void **state)
{
    NEEDS_GPUS(2);
    run_all_sizes(own_stream);
}

/* One group, in turn on the one lane and on the other, without events of ours between its calls. */
static Status follow(Gpu *g)
{
    Comm *c = g->world;
    Pair p;
    int32_t want = 1;
    TRY(pair_new(g, DTYPE_I32, MANY, &p));
    for (int64_t i = 0; i < MANY; i++) case_put(&p.host, i, 1);
    TRY(pair_up(g, &p));
    TRY(gpu_wait(g));
    for (int i = 0; i < 6; i++, want *= c->size) {
        comm_set_stream(
            c, g->ex.backend->streams->of_lane(&g->ex, i % 2 == 0 ? LANE_COMM : LANE_COMPUTE));
        TRY(comm_all_reduce(c, &p.gpu, REDUCE_SUM));
    }
    TRY(pair_down(g, &p));
    for (int64_t i = 0; i < MANY; i++) EXPECT(case_get(&p.host, i) == (float)want);
    return OK;
}

static void a_group_follows_the_lane(void **state)
{
    NEEDS_GPUS(2);
    run_all_sizes(follow);
}

/* Ends */

typedef struct Ending {
    bool captured; /* the others wait in a graph */
    int more;      /* or launch so many ops behind what they wait for */
    bool broken;   /* the last rank fails; else it stays away */
    double waited_s[RANKS_MAX];
} Ending;

static void stay_away(double seconds)
{
    struct timespec t = { (time_t)seconds, 0 };
    (void)nanosleep(&t, NULL);
}

static Status last_rank(const Ending *e)
{
    if (e->broken) return FAIL(ERR_NUMERIC, "broken on purpose");
    stay_away(SHORT_S + MARGIN_S);
    return OK;
}

static Status add_up(Gpu *g, const Lanes *l)
{
    return add(&g->ex, (Add){ .x = l->from.gpu, .y = l->sum.gpu });
}

static Status launch(Gpu *g, const Ending *e, Lanes *l, const Graph *step)
{
    if (e->captured) return g->ex.backend->graphs->launch(&g->ex, step);
    TRY(lanes_run(g, l));
    for (int i = 0; i < e->more; i++) TRY(add_up(g, l));
    return OK;
}

/* All but the last rank launch what it takes part in, and wait. */
static Status launch_and_wait(Gpu *g, Ending *e, Lanes *l, const Graph *step)
{
    double start = clock_s();
    Status s = launch(g, e, l, step);
    if (s == OK) s = gpu_wait(g);
    e->waited_s[g->host->rank] = clock_s() - start;
    return s;
}

static Status ending_body(Gpu *g, Ending *e)
{
    Lanes l;
    Graph step = { 0 };
    TRY(lanes_make(g, &l));
    TRY(lanes_run(g, &l));
    TRY(add_up(g, &l)); /* the driver loads a kernel at its first launch, and waits for the GPU */
    TRY(gpu_wait(g));
    if (e->captured) TRY(capture(g, &l, &step));
    Status s = comm_barrier(g->host);
    if (s == OK && g->host->rank == g->host->size - 1)
        s = last_rank(e);
    else if (s == OK)
        s = launch_and_wait(g, e, &l, &step);
    g->ex.backend->graphs->free(&step);
    comm_free(l.again);
    return s;
}

static Status ending_rank(void *state, Comm *host)
{
    Gpu g = { 0 };
    Status s = gpu_open(&g, host);
    if (s == OK) s = ending_body(&g, state);
    gpu_close(&g, s);
    return s;
}

static void check_waits(const Ending *e, double least_s, double most_s)
{
    for (int r = 0; r < ranks_here() - 1; r++) {
        if (!(e->waited_s[r] >= least_s && e->waited_s[r] <= most_s))
            fail_msg("rank %d waited %.2f s, not %.2f to %.2f", r, e->waited_s[r], least_s, most_s);
    }
}

static void check_missed(Ending e)
{
    char who[64];
    int failed = 0, ranks = ranks_here();
    snprintf(who, sizeof who, ranks == 2 ? "with rank %d" : ", %d", ranks - 1);
    Status s = comm_threads(ranks, SHORT_S, ending_rank, &e, &failed);
    CHECK_FAILS(s, ERR_COMM, "of group world");
    CHECK_FAILS(s, ERR_COMM, "comm.timeout_s 6");
    CHECK_FAILS(s, ERR_COMM, who);
    check_waits(&e, ranks == 2 ? SHORT_S : 0, SHORT_S + MARGIN_S);
}

static void who_waits_for_a_rank_that_stays_away_fails_in_time_and_names_it(void **state)
{
    NEEDS_GPUS(2);
    check_missed((Ending){ 0 });
}

static void who_waits_for_it_in_a_graph_does_so_too(void **state)
{
    NEEDS_GPUS(2);
    check_missed((Ending){ .captured = true });
}

static void who_launches_more_than_the_driver_takes_ahead_does_so_too(void **state)
{
    NEEDS_GPUS(2);
    check_missed((Ending){ .more = 5000 });
}

static void the_end_of_a_rank_ends_the_waits_of_others_with_its_reason(void **state)
{
    NEEDS_GPUS(2);
    Ending e = { .broken = true };
    int failed = 0;
    CHECK_FAILS(comm_threads(ranks_here(), TIMEOUT_S, ending_rank, &e, &failed), ERR_NUMERIC,
                "broken on purpose");
    CHECK_INT(failed, ranks_here() - 1);
    check_waits(&e, 0, MARGIN_S);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(collectives_are_what_the_host_computes),
        TEST(groups_of_a_split_sum_among_themselves),
        TEST(all_send_round_a_ring_at_once),
        TEST(what_the_first_sends_goes_from_rank_to_rank),
        TEST(two_lanes_at_once_give_the_same_bits_every_time),
        TEST(a_captured_graph_gives_the_bits_of_launches),
        TEST(a_stream_of_its_own_is_ordered_by_events),
        TEST(a_group_follows_the_lane),
        TEST(who_waits_for_a_rank_that_stays_away_fails_in_time_and_names_it),
        TEST(who_waits_for_it_in_a_graph_does_so_too),
        TEST(who_launches_more_than_the_driver_takes_ahead_does_so_too),
        TEST(the_end_of_a_rank_ends_the_waits_of_others_with_its_reason),
    };
    return TEST_RUN(tests);
}
