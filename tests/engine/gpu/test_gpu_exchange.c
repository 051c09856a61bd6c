/*
 * exchange/direct on GPUs: kernels of several ranks meet, store and load, and all has the bits of the
 * same exchange on the CPU, over and over and from a graph; and a rank that does not come ends the
 * others' wait. Ranks are threads, first all on one GPU, whose kernels then run beside each other,
 * then each on its own with NCCL's groups, where there are two.
 */
#include "harness/comm_cases.h"
#include "harness/gpu.h"
#include "kernels/op/exchange_case.h"

#include "engine/base/clock.h"

#include <stdlib.h>
#include <time.h>

enum { DEVICE_BYTES = 256 << 20, GRAPH_RUNS = 3, SHARING = 4 };
static const double TIMEOUT_S = 60, SHORT_S = 2, MARGIN_S = 4;

/* A rank on a GPU, and its tensors there. */
typedef struct Gpu {
    Exec ex;
    Mesh mesh;
    Arena device, scratch;
    void *spin; /* made here, where the group has none */
    Traveller v;
} Gpu;

static bool each_its_own; /* GPU; set between runs */

static Status block_new(Gpu *g, const char *name, Arena *out)
{
    void *block = NULL;
    TRY(g->ex.backend->alloc(&g->ex, MEM_DEVICE, DEVICE_BYTES, &block));
    arena_over(out, name, MEM_DEVICE, block, DEVICE_BYTES);
    return OK;
}

static Status gpu_open(Gpu *g, Rank *r)
{
    void *front = NULL;
    Comm *host = r->mesh.group[GROUP_WORLD], *c = host;
    TRY(gpu_exec_init(&g->ex, each_its_own ? host->rank : 0, &r->t.arena, &g->scratch));
    TRY(block_new(g, "scratch", &g->scratch));
    TRY(block_new(g, "device", &g->device));
    TRY(arena_alloc(&g->device, BOARD_MOST + (size_t)host->rank * 512, &front));
    void *stream = g->ex.backend->streams->of_lane(&g->ex, LANE_COMPUTE);
    if (each_its_own) TRY(comm_nccl(host, stream, COMM_BLOCKS, &r->t.arena, &c));
    g->mesh = (Mesh){ .rank = host->rank, .ranks = host->size };
    g->mesh.group[GROUP_WORLD] = g->mesh.group[GROUP_EP] = c;
    g->ex.mesh = &g->mesh;
    TRY(exchange_open(&g->ex, EXCHANGE_DIRECT, g->device.base, DEVICE_BYTES, &r->t.arena));
    if (!each_its_own) {
        TRY(g->ex.backend->alloc(&g->ex, MEM_PINNED, sizeof(CommSpin), &g->spin));
        memset(g->spin, 0, sizeof(CommSpin));
        g->ex.peers->spin = g->spin;
    }
    return comm_barrier(host); /* what takes memory may wait for kernels */
}

static void gpu_close(Gpu *g)
{
    exchange_close(&g->ex);
    if (each_its_own) comm_free(g->mesh.group[GROUP_WORLD]);
    if (g->spin != NULL) g->ex.backend->free(&g->ex, MEM_PINNED, g->spin, sizeof(CommSpin));
    Arena *blocks[] = { &g->device, &g->scratch };
    for (int i = 0; i < 2; i++) {
        if (blocks[i]->base != NULL)
            g->ex.backend->free(&g->ex, MEM_DEVICE, blocks[i]->base, DEVICE_BYTES);
    }
    exec_free(&g->ex);
}

/* Tensors */

static Status copy_up(Gpu *g, const Tensor *to, const Tensor *from)
{
    return g->ex.backend->copy(&g->ex, to->data, from->data, tensor_bytes(from));
}

static Status gpu_poison(Gpu *g, const Tensor *t)
{
    return g->ex.backend->fill(&g->ex, t->data, 0xFF, tensor_bytes(t));
}

/* The same on the GPU; from NULL: poisoned. */
static Status gpu_tensor(Gpu *g, const Tensor *like, const Tensor *from, Tensor *out)
{
    *out = *like;
    if (like->data == NULL) return OK;
    TRY(tensor_new(&g->device, like->dtype, like->rank, like->dim, out));
    return from == NULL ? gpu_poison(g, out) : copy_up(g, out, from);
}

static Status gpu_traveller(Gpu *g, const Traveller *v)
{
    Traveller *u = &g->v;
    *u = *v;
    TRY(gpu_tensor(g, &v->x.data, &v->x.data, &u->x.data));
    TRY(gpu_tensor(g, &v->x.scale, &v->x.scale, &u->x.scale));
    TRY(gpu_tensor(g, &v->index, &v->index, &u->index));
    TRY(gpu_tensor(g, &v->weight, &v->weight, &u->weight));
    TRY(gpu_tensor(g, &v->shared, &v->shared, &u->shared));
    TRY(gpu_tensor(g, &v->residual, &v->residual, &u->residual));
    const struct {
        const Tensor *like;
        Tensor *out;
    } made[] = { { &v->offset, &u->offset },
                 { &v->count, &u->count },
                 { &v->first, &u->first },
                 { &v->rows.data, &u->rows.data },
                 { &v->rows.scale, &u->rows.scale },
                 { &v->rows_index, &u->rows_index },
                 { &v->rows_weight, &u->rows_weight },
                 { &v->sums, &u->sums },
                 { &v->dweight, &u->dweight },
                 { &v->y, &u->y },
                 { &v->home, &u->home } };
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        TRY(gpu_tensor(g, made[i].like, NULL, made[i].out));
    TRY(gpu_tensor(g, &v->overflow, NULL, &u->overflow));
    return g->ex.backend->fill(&g->ex, u->overflow.data, 0, tensor_bytes(&u->overflow));
}

/* Waits first: a copy to memory that is not pinned waits without a deadline. */
static Status gpu_down(Gpu *g, const Tensor *from, Arena *a, Tensor *out)
{
    TRY(tensor_new(a, from->dtype, from->rank, from->dim, out));
    TRY(g->ex.backend->sync(&g->ex));
    TRY(g->ex.backend->copy(&g->ex, out->data, from->data, tensor_bytes(from)));
    return g->ex.backend->sync(&g->ex);
}

static Status same(Gpu *g, Rank *r, const char *what, const Tensor *gpu, const Tensor *want)
{
    Tensor have;
    TRY(gpu_down(g, gpu, &r->t.arena, &have));
    if (memcmp(have.data, want->data, tensor_bytes(want)) == 0) return OK;
    return FAIL(ERR_NUMERIC, "rank %d of %d: %s differs from the CPU's", r->mesh.rank,
                r->mesh.ranks, what);
}

/* The rows that came. */
static Status same_rows(Gpu *g, Rank *r)
{
    const Traveller *v = &r->traveller;
    int64_t n = (int64_t)optest_get(&v->first, r->mesh.ranks);
    const Operand *have = &g->v.rows, *want = &v->rows;
    if (n == 0) return OK;
    for (int i = 0; i < (v->rows.kind == OPERAND_PLAIN ? 1 : 2); i++) {
        const Tensor of = tensor_rows(i == 0 ? &have->data : &have->scale, 0, n);
        const Tensor as = tensor_rows(i == 0 ? &want->data : &want->scale, 0, n);
        TRY(same(g, r, i == 0 ? "rows" : "the rows' scales", &of, &as));
    }
    return OK;
}

/* Trips. What the CPU has made of them lies in the rank's traveller. */

static Status there(Gpu *g, Rank *r)
{
    const Traveller *v = &r->traveller, *u = &g->v;
    TRY(exchange_place(&g->ex, to_offsets(u, r->mesh.ranks)));
    TRY(exchange_dispatch(&g->ex, going_there(u, r->mesh.ranks)));
    TRY(same(g, r, "first", &u->first, &v->first));
    TRY(same(g, r, "the rows' experts", &u->rows_index, &v->rows_index));
    TRY(same(g, r, "the rows' weights", &u->rows_weight, &v->rows_weight));
    TRY(same(g, r, "overflow", &u->overflow, &v->overflow));
    return same_rows(g, r);
}

static Status and_back(Gpu *g, Rank *r)
{
    const Traveller *v = &r->traveller, *u = &g->v;
    TRY(copy_up(g, &u->sums, &v->sums));
    TRY(copy_up(g, &u->dweight, &v->dweight));
    TRY(exchange_combine(&g->ex, coming_back(u, r->mesh.ranks)));
    TRY(same(g, r, "y", &u->y, &v->y));
    return same(g, r, "the weights' gradients", &u->home, &v->home);
}

/* As gradients go: rows alone, to the same offsets. */
static Status there_alone(Gpu *g, Rank *r)
{
    ExchangeDispatch d = going_there(&g->v, r->mesh.ranks);
    d.index = d.weight = d.rows_index = d.rows_weight = d.overflow = (Tensor){ 0 };
    TRY(gpu_poison(g, &d.rows.data));
    if (d.rows.scale.data != NULL) TRY(gpu_poison(g, &d.rows.scale));
    TRY(exchange_dispatch(&g->ex, d));
    return same_rows(g, r);
}

static Status from_a_graph(Gpu *g, Rank *r)
{
    const Traveller *u = &g->v;
    const Graphs *graphs = g->ex.backend->graphs;
    Graph graph = { 0 };
    TRY(gpu_poison(g, &u->rows.data));
    TRY(gpu_poison(g, &u->y));
    TRY(g->ex.backend->sync(&g->ex));
    TRY(graphs->begin(&g->ex));
    Status s = exchange_place(&g->ex, to_offsets(u, r->mesh.ranks));
    if (s == OK) s = exchange_dispatch(&g->ex, going_there(u, r->mesh.ranks));
    if (s == OK) s = exchange_combine(&g->ex, coming_back(u, r->mesh.ranks));
    Status end = graphs->end(&g->ex, &graph);
    TRY(s);
    TRY(end);
    TRY(g->ex.backend->sync(&g->ex));
    TRY(comm_barrier(r->mesh.group[GROUP_WORLD]));
    for (int i = 0; i < GRAPH_RUNS; i++) TRY(graphs->launch(&g->ex, &graph));
    TRY(same_rows(g, r));
    TRY(same(g, r, "y of a graph", &u->y, &r->traveller.y));
    TRY(comm_barrier(r->mesh.group[GROUP_WORLD])); /* what gives memory back may wait, too */
    graphs->free(&graph);
    return OK;
}

static Status on_cpu(Rank *r)
{
    const Traveller *v = &r->traveller;
    TRY(exchange_open(&r->t.ex, v->kind, r->front, WINDOW, &r->t.scratch));
    TRY(exchange_place(&r->t.ex, to_offsets(v, r->mesh.ranks)));
    TRY(exchange_dispatch(&r->t.ex, going_there(v, r->mesh.ranks)));
    act_as_experts(v, r->mesh.rank * v->experts / r->mesh.ranks);
    TRY(exchange_combine(&r->t.ex, coming_back(v, r->mesh.ranks)));
    exchange_close(&r->t.ex);
    return OK;
}

static Status trips(Gpu *g, Rank *r)
{
    ArenaMark here = arena_mark(&g->device);
    for (int i = 0; i < 3; i++) {
        arena_release(&g->device, here);
        TRY(gpu_traveller(g, &r->traveller));
        TRY(there(g, r));
        TRY(and_back(g, r));
        TRY(there_alone(g, r));
    }
    return from_a_graph(g, r);
}

/* Odd widths and whole packs, fewer tokens than warps and many more, more choices than lanes, no
 * room for all, all to few ranks: then others get none. */
static const struct {
    int64_t n, k, experts, d, room;
} cases[] = { { 23, 3, 24, 9, 23 },      { 1, 1, 24, 8, 1 },        { 23, 3, 24, 8, 23 },
              { 23, 3, 24, 9, 8 },       { 700, 6, 48, 2048, 700 }, { 1300, 4, 24, 1032, 400 },
              { 300, 40, 96, 264, 300 }, { 61, 8, 48, 7168, 61 } };
enum { CASES = sizeof cases / sizeof *cases };

static Status travel_case(Gpu *g, Rank *r, int i, int how)
{
    const Sizes s = { cases[i].n, cases[i].k,    cases[i].experts,
                      cases[i].d, r->mesh.ranks, r->mesh.ranks };
    static const Dtype rows[] = { DTYPE_F32, DTYPE_BF16, DTYPE_E4M3 };
    ArenaMark here = arena_mark(&r->t.arena), there = arena_mark(&g->device);
    if (how % DEALS == DEAL_ONE_RANK && s.k > s.experts / s.ranks) return OK;
    r->traveller =
        traveller(&r->t, EXCHANGE_DIRECT, rows[how / DEALS], (Deal)(how % DEALS), s, cases[i].room);
    TRY(on_cpu(r));
    Status status = trips(g, r);
    arena_release(&r->t.arena, here);
    arena_release(&g->device, there);
    if (status == OK) return OK;
    print_error("%d ranks, case %d, deal %d: %s\n", r->mesh.ranks, i, how, status_message());
    return status;
}

/* Rows of ranks of tp. Fewer packs than threads and many more, one part and several, and a width that is no
 * whole number of packs, which goes through comm. */
static const struct {
    int64_t rows, parts, width;
} row_cases[] = { { 1, 1, 8 }, { 6, 3, 40 }, { 6, 2, 9 }, { 210, 2, 4096 }, { 64, 4, 1032 } };
enum { ROW_CASES = sizeof row_cases / sizeof *row_cases };

/* Like an engine's: the second window over the same memory has its flags elsewhere. */
static Status rows_open(Gpu *g, Rank *r, CommWindow *w)
{
    g->mesh.group[GROUP_TP] = g->mesh.group[GROUP_WORLD];
    TRY(exchange_rows_map(&g->ex, g->device.base, DEVICE_BYTES, DEVICE_BYTES - BOARD_MOST,
                          &r->t.arena, w));
    TRY(exchange_rows_start(&g->ex, w));
    if (!each_its_own) w->spin = g->spin;
    return comm_barrier(r->mesh.group[GROUP_WORLD]);
}

/* Twice: flags of the first call are not taken for those of the second. */
static Status row_case(Gpu *g, Rank *r, int i, OpComm kind, Dtype type)
{
    const int64_t few = row_cases[i].rows, all = few * r->mesh.ranks, width = row_cases[i].width;
    const bool gather = kind == COMM_ALL_GATHER;
    const Collective cpu = { .in = optest_normal(&r->t, type, DIMS(gather ? few : all, width)),
                             .out = optest_poisoned(&r->t, type, DIMS(gather ? all : few, width)),
                             .kind = kind,
                             .axis = AXIS_DP,
                             .parts = row_cases[i].parts,
                             .ranks = r->mesh.ranks };
    Collective gpu = cpu;
    ExchangeRows at;
    gpu.axis = AXIS_TP;
    TRY(exchange_collective(&r->t.ex, cpu));
    TRY(gpu_tensor(g, &cpu.in, &cpu.in, &gpu.in));
    for (int turn = 0; turn < 2; turn++) {
        TRY(gpu_tensor(g, &cpu.out, NULL, &gpu.out));
        if (exchange_rows_direct(&g->ex, &gpu, &at) != (width % 8 == 0))
            return FAIL(ERR_NUMERIC, "rows of %lld go another way", (long long)width);
        if (!each_its_own && width % 8 != 0) return OK; /* comm of the host cannot */
        TRY(exchange_collective(&g->ex, gpu));
        if (kind == COMM_REDUCE_SCATTER && width % 8 != 0 && r->mesh.ranks > 2) return OK;
        TRY(same(g, r, gather ? "gathered rows" : "sums of rows", &gpu.out, &cpu.out));
    }
    return OK;
}

static Status row_cases_run(Gpu *g, Rank *r)
{
    CommWindow w = { 0 };
    TRY(rows_open(g, r, &w));
    for (int i = 0; i < ROW_CASES * 4; i++) {
        ArenaMark here = arena_mark(&r->t.arena), there = arena_mark(&g->device);
        Status s = row_case(g, r, i / 4, i % 2 ? COMM_ALL_GATHER : COMM_REDUCE_SCATTER,
                            i / 2 % 2 ? DTYPE_BF16 : DTYPE_F32);
        TRY(g->ex.backend->sync(&g->ex));
        arena_release(&r->t.arena, here);
        arena_release(&g->device, there);
        TRY(s);
    }
    comm_window_close(g->mesh.group[GROUP_TP], &w);
    g->ex.row_peers = NULL;
    return OK;
}

static Status travel_rank(Rank *r)
{
    Gpu g = { 0 };
    Status s = gpu_open(&g, r);
    for (int i = 0; s == OK && i < CASES * 3 * DEALS; i++)
        s = travel_case(&g, r, i / (3 * DEALS), i % (3 * DEALS));
    if (s == OK) s = row_cases_run(&g, r);
    if (s != OK) { /* the others end, too */
        char why[512];
        status_sentence(why, sizeof why);
        comm_abort(g.mesh.group[GROUP_WORLD] != NULL ? g.mesh.group[GROUP_WORLD]
                                                     : r->mesh.group[GROUP_WORLD],
                   why);
    }
    gpu_close(&g);
    return s;
}

static void travel(int ranks)
{
    static World w;
    int failed = -1;
    w = (World){ .ranks = ranks,
                 .run = travel_rank,
                 .shape = { 1, 1, ranks, ranks, 1, .inside = 0 } };
    world_open(&w);
    for (int i = 0; i < ranks; i++) optest_unguard(&w.rank[i].t);
    CHECK_OK(comm_threads(ranks, TIMEOUT_S, world_body, &w, &failed));
    world_close(&w);
}

static void ranks_that_share_a_gpu_have_the_bits_of_the_cpu(void **state)
{
    NEEDS_GPU();
    each_its_own = false;
    for (int ranks = 2; ranks <= SHARING; ranks++) travel(ranks);
}

static void gpus_have_the_bits_of_the_cpu(void **state)
{
    NEEDS_GPUS(2);
    each_its_own = true;
    for (int ranks = 2; ranks <= gpu_devices() && ranks <= RANKS_MAX; ranks *= 2) travel(ranks);
}

/* Deadlines */

typedef struct Heard {
    bool left, said;
    double waited_s;
} Heard;
static Heard heard[RANKS_MAX];

static void nap(double seconds)
{
    struct timespec t = { (time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9) };
    nanosleep(&t, NULL);
}

/* Rank 0 stays away. The others' kernels leave, each says for whom it waited, and no row has come. */
static Status wait_in_vain(Gpu *g, Rank *r)
{
    const Traveller *u = &g->v;
    volatile CommSpin *spin = g->ex.peers->spin;
    g->ex.peers->timeout_s = SHORT_S;
    TRY(gpu_traveller(g, &r->traveller));
    TRY(exchange_place(&g->ex, to_offsets(u, r->mesh.ranks)));
    TRY(g->ex.backend->sync(&g->ex));
    TRY(comm_barrier(r->mesh.group[GROUP_WORLD]));
    if (r->mesh.rank == 0) {
        nap(SHORT_S + MARGIN_S);
        return OK;
    }
    double start = clock_s();
    TRY(exchange_dispatch(&g->ex, going_there(u, r->mesh.ranks)));
    TRY(exchange_combine(&g->ex, coming_back(u, r->mesh.ranks))); /* leaves at once */
    Status s = g->ex.backend->sync(&g->ex);
    heard[r->mesh.rank] =
        (Heard){ .left = spin->over == 1 && spin->lost == 1, .waited_s = clock_s() - start };
    heard[r->mesh.rank].said =
        each_its_own
            ? s == ERR_COMM && strstr(status_message(), "for rank 0 in an exchange") != NULL
            : s == OK;
    status_clear();
    return OK;
}

static Status lonely_rank(Rank *r)
{
    Gpu g = { 0 };
    Status s = gpu_open(&g, r);
    if (s == OK) s = wait_in_vain(&g, r);
    if (each_its_own && s == OK) comm_abort(g.mesh.group[GROUP_WORLD], "enough");
    gpu_close(&g);
    return s;
}

static void check_deadline(void)
{
    static World w;
    int failed = -1;
    memset(heard, 0, sizeof heard);
    w = (World){ .ranks = 2, .run = lonely_rank, .shape = { 1, 1, 2, 2, 1, .inside = 0 } };
    world_open(&w);
    for (int i = 0; i < 2; i++)
        w.rank[i].traveller = traveller(&w.rank[i].t, EXCHANGE_DIRECT, DTYPE_BF16, DEAL_RANDOM,
                                        (Sizes){ 64, 3, 24, 64, 2, 2 }, 64);
    if (comm_threads(2, TIMEOUT_S, world_body, &w, &failed) != OK) status_clear();
    CHECK(heard[1].left);
    CHECK(heard[1].said);
    CHECK(heard[1].waited_s >= SHORT_S * 0.9 && heard[1].waited_s < SHORT_S + MARGIN_S);
    world_close(&w);
}

static void a_rank_that_does_not_come_ends_the_kernels_wait(void **state)
{
    NEEDS_GPU();
    each_its_own = false;
    check_deadline();
}

static void and_the_host_says_whom_it_waited_for(void **state)
{
    NEEDS_GPUS(2);
    each_its_own = true;
    check_deadline();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(ranks_that_share_a_gpu_have_the_bits_of_the_cpu),
        TEST(gpus_have_the_bits_of_the_cpu),
        TEST(a_rank_that_does_not_come_ends_the_kernels_wait),
        TEST(and_the_host_says_whom_it_waited_for),
    };
    /* On a GPU that ranks share, loading a kernel may wait for one that waits for it, and so may
     * streams that go through one queue. */
    (void)setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    return TEST_RUN(tests);
}
