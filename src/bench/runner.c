/* runner: a device with memory and marks, one timing loop, and draws of experts (runner.h). */
#include "bench/runner.h"

#include "engine/base/order.h"
#include "engine/base/rng.h"
#include "engine/step/engine_memory.h"
#include "engine/train/train.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double DELAY_S = 0.02; /* the stream waits so long, and the host gets ahead of it */

/* ---- device and memory ---- */

/* Two marks for each run, made once: making an event inside the loop would be timed. */
Status bench_runner_open(BenchRunner *r, const Config *c)
{
    *r = (BenchRunner){ .config = c };
    TRY(arena_reserve(&r->tables, "tables", (size_t)16 << 30));
    TRY(engine_wants_gpu(c)
            ? gpu_exec_init(&r->ex, (int)c->run_gpu, &r->tables, &r->scratch)
            : exec_init(&r->ex, &r->tables, &r->scratch, train_threads(c), (CpuIsa)c->run_cpu_isa));
    for (int i = 0; i < 2 * BENCH_RUNS_MAX; i++)
        TRY(r->ex.backend->streams->event_new(&r->ex, true, &r->mark[i]));
    return OK;
}

void bench_runner_close(BenchRunner *r)
{
    bench_runner_release(r);
    exec_free(&r->ex);
    arena_free(&r->tables);
}

static Status alloc_block(Exec *ex, Arena *a, const char *name, size_t bytes)
{
    void *block = NULL;
    MemKind kind = ex->backend->apart ? MEM_DEVICE : MEM_HOST;
    size_t room = arena_rounded(bytes) + ARENA_ALIGN;
    TRY(ex->backend->alloc(ex, kind, room, &block));
    arena_over(a, name, kind, block, room);
    return OK;
}

Status bench_runner_alloc(BenchRunner *r, size_t block_bytes, size_t scratch_bytes)
{
    TRY(alloc_block(&r->ex, &r->block, "tensors", block_bytes));
    return alloc_block(&r->ex, &r->scratch, "scratch", scratch_bytes);
}

void bench_runner_release(BenchRunner *r)
{
    Arena *const arena[] = { &r->block, &r->scratch };
    for (int i = 0; i < 2; i++) {
        if (arena[i]->base != NULL)
            r->ex.backend->free(&r->ex, arena[i]->kind, arena[i]->base, arena[i]->cap_bytes);
        *arena[i] = (Arena){ 0 };
    }
}

Status bench_runner_counter(BenchRunner *r, Arena *scratch, Exec *out)
{
    const Config *c = r->config;
    TRY(arena_init(scratch, "count", MEM_COUNT, (size_t)1 << 50));
    if (engine_wants_gpu(c)) return gpu_exec_count(out, &r->tables, scratch);
    TRY(exec_init(out, &r->tables, scratch, train_threads(c), (CpuIsa)c->run_cpu_isa));
    out->backend = &backend_count;
    return OK;
}

/* A CPU has no name here: threads are what its times depend on. */
Status bench_machine(const Config *c, char out[GPU_NAME_MAX])
{
    GpuInfo gpu = { .name = "" };
    const int threads = train_threads(c);
    (void)snprintf(gpu.name, sizeof gpu.name, "%d thread%s", threads, threads == 1 ? "" : "s");
    if (engine_wants_gpu(c)) TRY(gpu_info((int)c->run_gpu, &gpu));
    memcpy(out, gpu.name, sizeof gpu.name);
    return OK;
}

/* ---- time ---- */

/* On a GPU the delay comes once, before the first call, so all calls are queued while the stream
 * waits. On the host the delay does nothing. The median of an even number is the mean of the middle
 * two. */
Status bench_runner_time(BenchRunner *r, const BenchLoop *loop, double *seconds)
{
    const Backend *backend = r->ex.backend;
    const Streams *streams = backend->streams;
    bool meet = loop->ranks != NULL && !backend->async;
    double each[BENCH_RUNS_MAX];
    TRY(backend->sync(&r->ex));
    if (loop->ranks != NULL) TRY(comm_barrier(loop->ranks));
    TRY(streams->delay(&r->ex, DELAY_S));
    for (int64_t i = -loop->warm_up; i < loop->runs; i++) {
        if (meet) TRY(comm_barrier(loop->ranks));
        if (i >= 0) TRY(streams->record(&r->ex, &r->mark[2 * i], NULL));
        TRY(loop->call(loop->state, i + loop->warm_up));
        if (i >= 0) TRY(streams->record(&r->ex, &r->mark[2 * i + 1], NULL));
    }
    TRY(backend->sync(&r->ex));
    for (int64_t i = 0; i < loop->runs; i++)
        TRY(streams->elapsed_s(&r->ex, &r->mark[2 * i], &r->mark[2 * i + 1], &each[i]));
    sort_doubles(each, loop->runs);
    *seconds = (each[(loop->runs - 1) / 2] + each[loop->runs / 2]) / 2;
    return OK;
}

/* ---- experts of random tokens ---- */

/* Draws `k` different experts, with probabilities in proportion to the steps of the partial sums
 * sums[]. An expert that the token already has is drawn again. `at` counts draws. */
static void draw_token(int32_t *to, int64_t k, const double *sums, int64_t experts, uint64_t stream,
                       uint64_t *at)
{
    for (int64_t i = 0; i < k;) {
        double u = rng_uniform(1, stream, (*at)++) * sums[experts - 1];
        int32_t e = 0;
        bool again = false;
        while (sums[e] <= u && e + 1 < experts) e++;
        for (int64_t j = 0; j < i; j++) again |= to[j] == e;
        if (!again) to[i++] = e;
    }
}

/* The weight of an expert in the draw; not normalised. */
static double expert_weight(BenchRouting how, uint64_t stream, int64_t e)
{
    if (how == BENCH_ZIPF) return 1 / (double)(e + 1);
    if (how == BENCH_UNIFORM) return 1;
    return -log(1 - rng_uniform(2, stream, (uint64_t)e)); /* Dirichlet(1) over its sum */
}

/* BENCH_EVEN deals the experts out like cards, to tokens in random order; BENCH_IN_TURN in token
 * order. */
Status bench_experts(BenchRouting how, uint64_t stream, int64_t n, int64_t k, int64_t experts,
                     Arena *a, int32_t **out)
{
    double *sums = NULL, sum = 0;
    uint64_t drawn = 0;
    TRY(ARENA_NEW(a, n * k, out));
    TRY(ARENA_NEW(a, experts, &sums));
    for (int64_t e = 0; e < experts; e++) sums[e] = sum += expert_weight(how, stream, e);
    for (int64_t i = 0; i < n; i++) {
        int32_t *to = *out + i * k;
        int64_t first = i * k;
        if (how > BENCH_IN_TURN) {
            draw_token(to, k, sums, experts, stream, &drawn);
            continue;
        }
        if (how == BENCH_EVEN)
            first = (int64_t)rng_permute(3, stream, (uint64_t)i, (uint64_t)n) * k;
        for (int64_t j = 0; j < k; j++) to[j] = (int32_t)((first + j) % experts);
    }
    return OK;
}
