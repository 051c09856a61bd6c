/* gpu: the GPU of each rank, and what lies between GPUs.
 *
 * All ranks load their GPUs at the same time, for 3 seconds. The second half counts, when the power
 * limit has set the clock. Ranks without a GPU take part in what is collective. If one rank's GPU does not
 * start, NCCL is not measured, since all ranks would wait for that one. */
#include "doctor/pairs.h"

#include "bench/runner.h"
#include "engine/base/clock.h"
#include "engine/gpu/gpu_health.h"
#include "engine/gpu/gpu_memory.h"
#include "engine/host/library.h"
#include "engine/step/agree.h"
#include "engine/step/engine_memory.h"
#include "engine/train/peak.h"
#include "hardware/hardware.h"
#include "kernels/core/libraries.h"
#include "kernels/dense/linear.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>

enum { BATCH = 16, COPIES = 10, RUNS = 5, PASSES = 4, SUM_ELEMS = 1024 };

/* What GPUs do, before --shrink. */
typedef struct Sizes {
    int64_t side;                         /* of a product */
    size_t message, block, scratch, left; /* bytes; left: that the test of memory leaves free */
    double load_s;
} Sizes;

static const Sizes WHOLE = {
    8192, (size_t)256 << 20, (size_t)1 << 30, (size_t)64 << 20, (size_t)2 << 30, 3
};

typedef struct DoctorGpu {
    Doctor *d;
    Sizes sizes;
    BenchRunner r;
    GpuState state;
    GpuInfo info;
    Hardware sheet; /* all 0: no file has this GPU */
    Mesh mesh;      /* so that waits for the GPU watch the other ranks */
} DoctorGpu;

static Status note(DoctorGpu *g, DoctorCheck check, double value, double expected, const char *why)
{
    DoctorSample s = DOCTOR_OF(g->d->rank, check, value);
    s.expected = expected;
    return doctor_note(g->d, s, "%s", why);
}

/* ---- one GPU ---- */

static Status open_gpu(DoctorGpu *g)
{
    char bus_id[GPU_BUS_ID_MAX];
    const Config *c = &g->d->gpu;
    if (!engine_wants_gpu(c)) return FAIL(ERR_DEVICE, "this rank finds no GPU, others do");
    TRY(gpu_info((int)c->run_gpu, &g->info));
    TRY(bench_runner_open(&g->r, c));
    TRY(exec_bus_id(&g->r.ex, bus_id));
    gpu_state_open(&g->state, bus_id);
    return hardware_of_driver(g->info.name, &g->sheet);
}

static void close_gpu(DoctorGpu *g)
{
    gpu_state_close(&g->state);
    bench_runner_close(&g->r);
}

/* What the driver tells when the GPU works; an idle bus is slower. */
static Status note_health(DoctorGpu *g, const GpuHealth *h)
{
    static const char untold[] = "the driver does not tell it to this user";
    const double *v = h->value;
    char why[DOCTOR_WHY_BYTES];
    bool power = gpu_health_knows(h, GPU_POWER_LIMIT_W), bus = gpu_health_knows(h, GPU_PCIE_GB_S);
    bool errors = gpu_health_knows(h, GPU_MEMORY_ERRORS);
    bool remap = gpu_health_knows(h, GPU_REMAP_FAULTS);
    bool links = gpu_health_knows(h, GPU_LINKS);
    TRY(note(g, DOCTOR_GPU_POWER, power ? v[GPU_POWER_LIMIT_W] : (double)NAN,
             v[GPU_POWER_DEFAULT_W], power ? "" : untold));
    TRY(note(g, DOCTOR_GPU_BUS, bus ? v[GPU_PCIE_GB_S] : (double)NAN, v[GPU_PCIE_MOST_GB_S],
             bus ? "" : untold));
    TRY(note(g, DOCTOR_GPU_LINKS, links ? v[GPU_LINKS] : (double)NAN, 0,
             links ? "" : "it has no links to other GPUs, or the driver does not tell"));
    (void)snprintf(why, sizeof why, "%g errors that could not be corrected%s%s",
                   v[GPU_MEMORY_ERRORS],
                   fmod(v[GPU_REMAP_FAULTS], 2) == 1 ? ", a row that cannot be replaced" : "",
                   v[GPU_REMAP_FAULTS] > 1 ? ", a row that is replaced at the next reset" : "");
    return note(g, DOCTOR_GPU_ERRORS,
                errors || remap ? v[GPU_MEMORY_ERRORS] + v[GPU_REMAP_FAULTS] : (double)NAN, 0,
                errors || remap ? why : untold);
}

/* Nearly all free memory; halved until it can be had. */
static Status take_memory(const DoctorGpu *g, void **block, size_t *bytes)
{
    const size_t least = (size_t)1 << 20, free_bytes = g->info.free_bytes, left = g->sizes.left;
    *bytes = free_bytes > 2 * left ? free_bytes - left : free_bytes / 2;
    if (g->d->options->shrink > 1) *bytes /= (size_t)g->d->options->shrink;
    for (; *bytes >= least; *bytes /= 2) {
        if (gpu_alloc(*bytes, block) == OK) return OK;
        status_clear();
        gpu_error_clear();
    }
    return FAIL(ERR_MEMORY, "there is no free memory to test");
}

/* Writes each pattern and reads it back. A pattern and its complement turn every bit. */
static Status test_memory(DoctorGpu *g, uint64_t *wrong, size_t *bytes)
{
    static const uint32_t seed[PASSES] = { 0, 0xFFFFFFFF, 0x55555555, 0xAAAAAAAA };
    GpuStream s = g->r.ex.backend->streams->of_lane(&g->r.ex, LANE_COMPUTE);
    void *block = NULL, *found = NULL;
    TRY(take_memory(g, &block, bytes));
    Status status = gpu_alloc_pinned(sizeof(uint64_t), &found);
    int64_t words = (int64_t)(*bytes / sizeof(uint32_t));
    *wrong = 0;
    for (int i = 0; i < PASSES && status == OK; i++) {
        status = gpu_fill_pattern(s, block, words, seed[i]);
        if (status == OK) status = gpu_count_wrong(s, block, words, seed[i], found);
        if (status == OK) status = gpu_stream_sync(s);
        if (status == OK) *wrong += *(uint64_t *)found;
    }
    gpu_free(block);
    gpu_free_pinned(found);
    return status;
}

/* A failure within the test is a fault of the GPU, too. */
static Status note_memory(DoctorGpu *g)
{
    uint64_t wrong = 0;
    size_t bytes = 0;
    char tested[32], total[32], why[DOCTOR_WHY_BYTES];
    Status s = test_memory(g, &wrong, &bytes);
    if (s == ERR_MEMORY) return doctor_note_failure(g->d, DOCTOR_GPU_MEMORY, NAN);
    if (s != OK) return doctor_note_failure(g->d, DOCTOR_GPU_MEMORY, INFINITY);
    (void)snprintf(why, sizeof why, "%s of %s were tested", text_bytes(tested, (double)bytes),
                   text_bytes(total, (double)g->info.total_bytes));
    return note(g, DOCTOR_GPU_MEMORY, (double)wrong, 0, why);
}

/* What was seen in the second half of the load. */
typedef struct Load {
    double flops, clock_mhz, copy_bytes_s;
    uint64_t throttle;
    int clocks;
    GpuHealth health;
} Load;

/* The driver is asked while the batch runs. */
static Status run_batch(DoctorGpu *g, const LinearFwd *product, bool counts, Load *out)
{
    Exec *ex = &g->r.ex;
    for (int i = 0; i < BATCH; i++) TRY(linear_fwd(ex, *product));
    if (counts) {
        GpuReading now = gpu_state_read(&g->state);
        if (gpu_knows(&now, GPU_CLOCK_MHZ))
            out->clock_mhz += now.value[GPU_CLOCK_MHZ], out->clocks++;
        if (gpu_knows(&now, GPU_THROTTLE)) out->throttle |= now.throttle;
    }
    return ex->backend->sync(ex);
}

static Status load_products(DoctorGpu *g, Load *out)
{
    Exec *ex = &g->r.ex;
    Tensor x, y;
    int64_t batches = 0;
    TRY(tensor_new2(&g->r.block, DTYPE_BF16, g->sizes.side, g->sizes.side, &x));
    TRY(tensor_new2(&g->r.block, DTYPE_BF16, g->sizes.side, g->sizes.side, &y));
    TRY(peak_fill(ex, &x));
    const LinearFwd product = { .x = operand_plain(x), .w = operand_plain(x), .y = y };
    TRY(exec_tune(ex, true));
    TRY(linear_fwd(ex, product));
    TRY(exec_tune(ex, false));
    double began = clock_s(), half = began;
    while (batches == 0 || clock_s() - began < g->sizes.load_s) {
        bool counts = clock_s() - began >= g->sizes.load_s / 2;
        if (!counts) half = clock_s();
        TRY(run_batch(g, &product, counts, out));
        if (!counts) half = clock_s();
        batches += counts;
    }
    out->flops = 2 * pow((double)g->sizes.side, 3) * BATCH * (double)batches / (clock_s() - half);
    for (int i = 0; i < BATCH; i++) TRY(linear_fwd(ex, product));
    out->health = gpu_health_read(&g->state);
    return ex->backend->sync(ex);
}

static Status load_copies(DoctorGpu *g, Load *out)
{
    Exec *ex = &g->r.ex;
    char *block = g->r.block.base;
    size_t bytes = g->sizes.block / 2;
    TRY(ex->backend->copy(ex, block + bytes, block, bytes));
    TRY(ex->backend->sync(ex));
    double began = clock_s();
    for (int i = 0; i < COPIES; i++) TRY(ex->backend->copy(ex, block + bytes, block, bytes));
    TRY(ex->backend->sync(ex));
    out->copy_bytes_s = 2.0 * (double)bytes * COPIES / (clock_s() - began);
    return OK;
}

/* Reasons that hardware gives are faults; heat that software answers to costs speed; the power limit is how
 * a GPU is used. */
static Status note_throttle(DoctorGpu *g, const Load *l)
{
    const char *word[GPU_REASONS_MAX];
    char why[DOCTOR_WHY_BYTES] = "";
    size_t used = 0;
    int level = 0;
    if (l->clocks == 0)
        return note(g, DOCTOR_GPU_THROTTLE, NAN, 0, "the driver does not tell it to this user");
    for (int i = 0, n = gpu_throttle_words(l->throttle, word); i < n; i++) {
        bool hardware = text_word_index("hw_slowdown|hw_thermal|hw_power_brake", word[i]) >= 0;
        bool heat = text_word_index("sw_thermal", word[i]) >= 0;
        if (hardware || (heat && level == 0)) level = hardware ? 2 : 1;
        used = text_add(why, sizeof why, used, "%s%s", i == 0 ? "" : ", ", word[i]);
    }
    return note(g, DOCTOR_GPU_THROTTLE, level, 0, why);
}

static Status note_load(DoctorGpu *g, const Load *l)
{
    const Hardware *h = &g->sheet;
    TRY(note(g, DOCTOR_GPU_PRODUCTS, l->flops / 1e12, h->peak_bf16, ""));
    TRY(note(g, DOCTOR_GPU_COPY, l->copy_bytes_s / 1e9, h->memory_gb_s, ""));
    TRY(l->clocks == 0
            ? note(g, DOCTOR_GPU_CLOCK, NAN, 0, "the driver does not tell it to this user")
            : note(g, DOCTOR_GPU_CLOCK, l->clock_mhz / l->clocks, 0, ""));
    TRY(note_throttle(g, l));
    return note_health(g, &l->health);
}

static Status measure_load(DoctorGpu *g)
{
    Load l = { 0 };
    Status s = bench_runner_alloc(&g->r, g->sizes.block + ARENA_ALIGN, g->sizes.scratch);
    if (s == OK) s = load_products(g, &l);
    if (s == OK) s = load_copies(g, &l);
    bench_runner_release(&g->r);
    if (s == OK) return note_load(g, &l);
    return doctor_note_failure(g->d, DOCTOR_GPU_PRODUCTS, 0);
}

static Status note_presence(DoctorGpu *g)
{
    char memory[32];
    GpuHealth h = gpu_health_read(&g->state);
    (void)snprintf(g->d->gpu_text, sizeof g->d->gpu_text, "%.64s, driver %.32s, %s", g->info.name,
                   h.driver[0] == '\0' ? "unknown" : h.driver,
                   text_bytes(memory, (double)g->info.total_bytes));
    return note(g, DOCTOR_GPU, 1, 0, g->d->gpu_text);
}

/* ---- between GPUs ---- */

static Status sync_wire(const DoctorWire *w)
{
    Exec *ex = w->self;
    return ex->backend->sync(ex);
}

/* Bytes a second that a GPU can send to one other: in a mesh each pair has a link of its own. */
static double link_of_pair(const DoctorGpu *g, int ranks, DoctorWay way)
{
    const Hardware *h = &g->sheet;
    if (way == DOCTOR_BETWEEN) return h->scale_out_gb_s * 1e9;
    if ((double)ranks > h->scale_up_gpus) return 0;
    bool mesh = h->scale_up_fabric == FABRIC_MESH;
    return h->scale_up_gb_s * 1e9 / (mesh ? fmax(1, h->scale_up_gpus - 1) : 1);
}

static Status measure_links(DoctorGpu *g, Comm *nccl)
{
    static const struct {
        DoctorWay way;
        DoctorCheck rank, rate, latency;
    } each[] = {
        { DOCTOR_INSIDE, DOCTOR_GPU_HOST_RANK, DOCTOR_GPU_HOST_RATE, DOCTOR_GPU_HOST_LATENCY },
        { DOCTOR_BETWEEN, DOCTOR_GPU_NET_RANK, DOCTOR_GPU_NET_RATE, DOCTOR_GPU_NET_LATENCY }
    };
    Doctor *d = g->d;
    char *block = g->r.block.base;
    const DoctorWire w = { block,
                           block + g->sizes.message,
                           (int64_t)g->sizes.message / 1024,
                           (int64_t)g->sizes.message / 4,
                           4,
                           sync_wire,
                           &g->r.ex };
    for (int i = 0; i < 2; i++) {
        Comm *host = NULL, *wire = NULL;
        TRY(doctor_split(d, d->world, each[i].way, &host));
        TRY(doctor_split(d, nccl, each[i].way, &wire));
        const DoctorLane lane = { host,
                                  wire,
                                  each[i].rank,
                                  each[i].rate,
                                  each[i].latency,
                                  link_of_pair(g, host->size, each[i].way) };
        TRY(doctor_tournament(d, &w, &lane));
        comm_free(wire);
        comm_free(host);
    }
    return OK;
}

/* 1 + 2 + ... + n, on all GPUs. */
static Status check_sum(DoctorGpu *g, Comm *nccl, bool *right)
{
    float number[SUM_ELEMS];
    Exec *ex = &g->r.ex;
    const Tensor t = { g->r.block.base, DTYPE_F32, 1, { SUM_ELEMS } };
    const double n = nccl->size, want = n * (n + 1) / 2;
    for (int i = 0; i < SUM_ELEMS; i++) number[i] = (float)(nccl->rank + 1);
    TRY(ex->backend->copy(ex, t.data, number, sizeof number));
    TRY(comm_all_reduce(nccl, &t, REDUCE_SUM));
    TRY(ex->backend->copy(ex, number, t.data, sizeof number));
    TRY(ex->backend->sync(ex));
    *right = true;
    for (int i = 0; i < SUM_ELEMS; i++) *right &= (double)number[i] == want;
    return OK;
}

/* The bus bandwidth of NCCL-tests: bytes x 2 (n - 1) / n over the time. */
static Status measure_collective(DoctorGpu *g, Comm *nccl)
{
    Exec *ex = &g->r.ex;
    bool right = false;
    const double n = nccl->size, bytes = (double)g->sizes.message;
    const Tensor t = { g->r.block.base, DTYPE_F32, 1, { (int64_t)g->sizes.message / 4 } };
    TRY(check_sum(g, nccl, &right));
    TRY(note(g, DOCTOR_COLLECTIVE, right, 0, right ? "" : "an all-reduce has a wrong sum"));
    TRY(ex->backend->fill(ex, t.data, 0, g->sizes.message));
    TRY(comm_all_reduce(nccl, &t, REDUCE_SUM));
    TRY(ex->backend->sync(ex));
    double began = clock_s();
    for (int i = 0; i < RUNS; i++) TRY(comm_all_reduce(nccl, &t, REDUCE_SUM));
    TRY(ex->backend->sync(ex));
    double rate = bytes * 2 * (n - 1) / n * RUNS / (clock_s() - began);
    double sheet = n <= g->sheet.scale_up_gpus ? g->sheet.scale_up_gb_s : 0;
    return note(g, DOCTOR_COLLECTIVE_RATE, rate / 1e9, sheet, "");
}

/* NCCL's start waits for all ranks, so a rank without its library must be known before. */
static Status find_collectives(void)
{
    void (*version)(void) = NULL;
    void *file = NULL;
    const LibraryCall call = { .name = "ncclGetVersion" };
    const Library l = { .file = gpu_libraries.collectives,
                        .what = "collectives of GPUs",
                        .advice = gpu_libraries.collectives_advice,
                        .call = &call,
                        .calls = 1 };
    TRY(library_open(&l, &version, &file));
    (void)dlclose(file);
    return OK;
}

static Status measure_between(DoctorGpu *g)
{
    Doctor *d = g->d;
    Comm *nccl = NULL;
    Status s = agree_status(d->world, find_collectives());
    if (s != OK) return doctor_note_failure(d, DOCTOR_COLLECTIVE, 0);
    TRY(bench_runner_alloc(&g->r, 2 * g->sizes.message, 1));
    TRY(comm_nccl(d->world, g->r.ex.backend->streams->of_lane(&g->r.ex, LANE_COMPUTE), COMM_BLOCKS,
                  d->a, &nccl));
    g->mesh.group[GROUP_WORLD] = nccl;
    g->mesh.ranks = d->ranks;
    g->r.ex.mesh = &g->mesh;
    s = measure_collective(g, nccl);
    if (s == OK) s = measure_links(g, nccl);
    if (s != OK) {
        char why[1024];
        status_sentence(why, sizeof why);
        comm_abort(nccl, why); /* before its memory is freed */
    }
    bench_runner_release(&g->r);
    g->r.ex.mesh = NULL;
    comm_free(nccl);
    return s;
}

/* ---- all GPUs ---- */

static Status measure_gpus(DoctorGpu *g)
{
    Doctor *d = g->d;
    Status s = open_gpu(g);
    int32_t failed = s != OK;
    TRY(s == OK ? note_presence(g) : doctor_note_failure(d, DOCTOR_GPU, 0));
    TRY(doctor_meet(d));
    if (failed == 0) TRY(note_memory(g));
    TRY(doctor_meet(d));
    if (failed == 0) TRY(measure_load(g));
    TRY(agree_most(d->world, &failed, 1));
    if (d->ranks == 1) return OK;
    if (failed != 0) return note(g, DOCTOR_COLLECTIVE, NAN, 0, "the GPU of a rank does not start");
    return measure_between(g);
}

Status doctor_measure_gpu(Doctor *d)
{
    const int64_t by = d->options->shrink;
    DoctorGpu g = { .d = d, .sizes = WHOLE };
    g.sizes.side = WHOLE.side / by < 128 ? 64 : WHOLE.side / by / 64 * 64;
    g.sizes.message = arena_rounded(WHOLE.message / (size_t)by);
    g.sizes.load_s /= (double)by;
    int32_t found = engine_wants_gpu(&d->gpu);
    TRY(agree_most(d->world, &found, 1));
    if (found == 0 && d->rank > 0) return OK; /* rank 0 says it for all */
    if (found == 0)
        return note(&g, DOCTOR_GPU, NAN, 0,
                    gpu_built() ? "no GPU is found" : "this program was built without a GPU");
    Status s = measure_gpus(&g);
    close_gpu(&g);
    return s;
}
