/* peak: times the matrix product and the copy that give the measured peak. */
#include "engine/train/peak.h"

#include "engine/backend/backend.h"
#include "engine/base/clock.h"
#include "engine/base/order.h"
#include "engine/base/rng.h"
#include "engine/step/engine_memory.h"
#include "kernels/core/libraries.h"
#include "kernels/dense/linear.h"

#include <math.h>
#include <omp.h>
#include <string.h>
#include <time.h>

/* LEAST to MOST runs are timed; the first ones wake threads and clocks. ROW numbers are drawn at a time,
 * and PATTERN numbers in all. */
enum { LEAST = 4, MOST = 12, ROW = 1024, PATTERN = 1 << 20, THREADS_MAX = 1024, FEW = 16 };

static const double LIMIT_S = 0.1; /* then no more runs: a slow machine must not delay the start */

/* Sizes on a GPU are so large that the ends of a launch and the L2 cache do not matter. In f32, without
 * matrix instructions, a smaller product takes as long. */
typedef struct Size {
    int64_t side_bf16, side_f32;
    size_t block_bytes, scratch_bytes, copy_bytes; /* on the CPU only reserved */
    int launches;                                  /* timed together */
    bool median;                                   /* else the minimum: of CPU time */
} Size;

static const Size ON_CPU = { 1024, 1024, (size_t)1 << 30, (size_t)1 << 30, (size_t)128 << 20,
                             1,    false },
                  ON_GPU = { 8192, 4096, (size_t)1 << 30, (size_t)64 << 20, (size_t)512 << 20,
                             15,   true };

typedef struct Peak {
    Exec ex;
    Arena tables, block, scratch; /* block: the operands, then what is copied */
    Tensor x, y;
    int64_t rows; /* of the product */
    void *from, *to;
    int threads;
    const Size *size;
} Peak;

static Status open_arena(Peak *p, Arena *a, const char *name, MemKind kind, size_t bytes)
{
    void *block = NULL;
    if (kind != MEM_DEVICE) return arena_init(a, name, kind, bytes);
    TRY(p->ex.backend->alloc(&p->ex, kind, bytes, &block));
    arena_over(a, name, kind, block, bytes);
    return OK;
}

/* Both operands are the same matrix: it takes as long, and half the memory. */
static Status peak_open(Peak *p, const Config *c, int threads, MemKind kind)
{
    const Dtype act = config_type(c);
    const bool gpu = kind == MEM_DEVICE;
    *p = (Peak){ .threads = threads, .size = gpu ? &ON_GPU : &ON_CPU };
    int64_t side = act == DTYPE_BF16 ? p->size->side_bf16 : p->size->side_f32;
    TRY(arena_reserve(&p->tables, "peak tables", (size_t)1 << 30));
    TRY(gpu ? gpu_exec_init(&p->ex, (int)c->run_gpu, &p->tables, &p->scratch)
            : exec_init(&p->ex, &p->tables, &p->scratch, threads, (CpuIsa)c->run_cpu_isa));
    if (kind == MEM_COUNT) p->ex.backend = &backend_count;
    TRY(open_arena(p, &p->block, "peak", kind, p->size->block_bytes));
    TRY(open_arena(p, &p->scratch, "peak scratch", kind, p->size->scratch_bytes));
    p->rows = side;
    TRY(tensor_new2(&p->block, act, side, side, &p->x));
    return tensor_new2(&p->block, act, side, side, &p->y);
}

static void close_arena(Peak *p, Arena *a)
{
    if (a->kind == MEM_DEVICE && a->base != NULL)
        p->ex.backend->free(&p->ex, MEM_DEVICE, a->base, a->cap_bytes);
    arena_free(a);
}

static void peak_close(Peak *p)
{
    close_arena(p, &p->block);
    close_arena(p, &p->scratch);
    exec_free(&p->ex);
    arena_free(&p->tables);
}

Status peak_fill(Exec *ex, const Tensor *t)
{
    float row[ROW], packed[ROW];
    const Backend *b = ex->backend;
    int64_t n = tensor_elems(t), done = 0, bytes = (int64_t)dtype_bytes(t->dtype);
    for (; done < n && done < PATTERN; done += ROW) {
        rng_fill_normal(row, ROW, 1, rng_stream("peak"), (uint64_t)done, 1);
        dtype_from_f32(packed, t->dtype, row, ROW);
        TRY(b->copy(ex, tensor_at(t, done), packed, (size_t)(ROW * bytes)));
        TRY(b->sync(ex));
    }
    for (; done < n; done *= 2)
        TRY(b->copy(ex, tensor_at(t, done), t->data, (size_t)(done * bytes)));
    return OK;
}

/* y = x x^T for the first rows of x: 2 rows side^2 FLOPs. */
static Status multiply_once(Peak *p)
{
    const Tensor x = tensor_rows(&p->x, 0, p->rows), y = tensor_rows(&p->y, 0, p->rows);
    return linear_fwd(&p->ex,
                      (LinearFwd){ .x = operand_plain(x), .w = operand_plain(p->x), .y = y });
}

/* CPU time of this thread, which does not grow when other processes have the cores. */
static double thread_seconds(void)
{
    struct timespec t = { 0 };
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* An emulator of another processor has a thousandth of a machine's speed: no product takes more than a second. */
int64_t peak_rows(double s, int64_t rows) { return s * (double)rows / FEW <= 1 ? rows : FEW; }

static Status choose_rows(Peak *p)
{
    const double since = thread_seconds();
    p->rows = FEW;
    TRY(multiply_once(p));
    p->rows = peak_rows(thread_seconds() - since, p->x.dim[0]);
    return OK;
}

/* On the CPU every thread copies its part, as one thread cannot use all of the memory's rate. */
static Status copy_once(Peak *p)
{
    size_t bytes = p->size->copy_bytes, threads = (size_t)p->threads;
    if (p->ex.backend->apart) return p->ex.backend->copy(&p->ex, p->to, p->from, bytes);
#pragma omp parallel for num_threads(p->threads) schedule(static)
    for (size_t i = 0; i < threads; i++) {
        size_t first = i * bytes / threads, end = (i + 1) * bytes / threads;
        memcpy((char *)p->to + first, (char *)p->from + first, end - first);
    }
    return OK;
}

/* CPU seconds of each thread of the team until now. Its threads are the same in every parallel region. */
static void team_seconds(const Peak *p, double *out)
{
#pragma omp parallel num_threads(p->threads)
    out[omp_get_thread_num()] = thread_seconds();
}

/* Seconds of one run: the median or the minimum of several. On the CPU those of the busiest thread count,
 * without the time in which other processes had its core: a peak is the machine's, not what they left. */
static Status time_runs(Peak *p, Status (*run)(Peak *), double *out)
{
    double seconds[MOST], began = clock_s(), before[THREADS_MAX], after[THREADS_MAX];
    int n = 0, launches = p->size->launches;
    const bool apart = p->ex.backend->apart || p->threads > THREADS_MAX;
    for (; n < MOST && (n < LEAST || clock_s() - began <= LIMIT_S); n++) {
        double start = clock_s(), busiest = 0;
        if (!apart) team_seconds(p, before);
        for (int i = 0; i < launches; i++) TRY(run(p));
        TRY(p->ex.backend->sync(&p->ex));
        seconds[n] = clock_s() - start;
        if (!apart) team_seconds(p, after);
        for (int t = 0; !apart && t < p->threads; t++)
            busiest = fmax(busiest, after[t] - before[t]);
        if (busiest > 0) seconds[n] = fmin(seconds[n], busiest);
        seconds[n] /= launches;
    }
    sort_doubles(seconds, n);
    *out = seconds[p->size->median ? n / 2 : 0];
    return OK;
}

/* Tuning comes first, so that the GPU's library has chosen its kernel before the clock starts. */
static Status measure_product(Peak *p, double *out)
{
    double s = 0;
    TRY(peak_fill(&p->ex, &p->x));
    if (!p->ex.backend->apart) TRY(choose_rows(p));
    TRY(exec_tune(&p->ex, true));
    TRY(multiply_once(p));
    TRY(exec_tune(&p->ex, false));
    TRY(time_runs(p, multiply_once, &s));
    *out = 2 * (double)p->rows * pow((double)p->x.dim[0], 2) / s;
    return OK;
}

/* The copied blocks take the memory of the operands, which are no longer needed. */
static Status measure_copy(Peak *p, double *out)
{
    size_t bytes = p->size->copy_bytes;
    double s = 0;
    arena_release(&p->block, (ArenaMark){ 0 });
    TRY(arena_alloc(&p->block, bytes, &p->from));
    TRY(arena_alloc(&p->block, bytes, &p->to));
    if (!p->ex.backend->apart) memset(p->from, 1, bytes);
    TRY(time_runs(p, copy_once, &s));
    *out = 2 * (double)bytes / s;
    return OK;
}

/* Keeps the better of this and earlier measurements: a peak is a maximum. */
Status peak_measure(const Config *c, int threads, bool with_copy, MeasuredPeak *best)
{
    Peak p;
    MeasuredPeak peak = { 0 };
    Status s = peak_open(&p, c, threads, engine_wants_gpu(c) ? MEM_DEVICE : MEM_HOST);
    if (s == OK) s = measure_product(&p, &peak.flops);
    if (s == OK && with_copy) s = measure_copy(&p, &peak.bytes);
    peak_close(&p);
    if (s == OK)
        *best = (MeasuredPeak){ fmax(peak.flops, best->flops), fmax(peak.bytes, best->bytes) };
    return s;
}

/* Runs the same calls on counting memory, so the plan cannot differ from the measurement. */
Status peak_plan(const Config *c, int threads, size_t *out_bytes)
{
    Peak p;
    Status s = peak_open(&p, c, threads, MEM_COUNT);
    if (s == OK) s = multiply_once(&p);
    size_t bytes = p.block.peak_bytes + p.scratch.peak_bytes;
    peak_close(&p);
    if (s == OK) *out_bytes = bytes;
    return s;
}
