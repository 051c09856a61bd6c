#include "train/peak.h"

#include "backend/backend.h"
#include "base/clock.h"
#include "base/rng.h"
#include "train/engine_memory.h"

enum { SIZE = 1024, LEAST = 4, MOST = 24 }; /* the first ones wake threads and clocks */

static const double LIMIT_S = 0.2; /* no more repeats on a slow machine: a start must not drag */

typedef struct Peak {
    Exec ex;
    Arena tables, operands, scratch;
    Tensor x, y;
} Peak;

/* Both operands are the same matrix, which takes as long and half the memory. */
static Status peak_open(Peak *p, const Config *c, int threads, MemKind kind)
{
    const size_t most = (size_t)1 << 30; /* reserved; what is written counts */
    Dtype act = c->run_compute == COMPUTE_BF16 ? DTYPE_BF16 : DTYPE_F32;
    TRY(arena_init(&p->tables, "peak tables", MEM_HOST, most));
    TRY(arena_init(&p->operands, "peak", kind, most));
    TRY(arena_init(&p->scratch, "peak scratch", kind, most));
    TRY(exec_init(&p->ex, &p->tables, &p->scratch, threads));
    if (kind == MEM_COUNT) p->ex.stack[0] = &backend_count;
    TRY(tensor_new2(&p->operands, act, SIZE, SIZE, &p->x));
    return tensor_new2(&p->operands, act, SIZE, SIZE, &p->y);
}

static void peak_close(Peak *p)
{
    exec_free(&p->ex);
    arena_free(&p->tables);
    arena_free(&p->operands);
    arena_free(&p->scratch);
}

static void fill(Peak *p)
{
    float row[SIZE];
    for (int64_t i = 0; i < SIZE; i++) {
        rng_fill_normal(row, SIZE, 1, rng_stream("peak"), (uint64_t)(i * SIZE), 1);
        dtype_from_f32(tensor_at(&p->x, i * SIZE), p->x.dtype, row, SIZE);
    }
}

static Status multiply(Peak *p)
{
    return linear_fwd(&p->ex, (LinearFwd){ .x = p->x, .w = p->x, .y = p->y });
}

Status peak_plan(const Config *c, int threads, size_t *out_bytes)
{
    Peak p = { 0 };
    Status s = peak_open(&p, c, threads, MEM_COUNT);
    if (s == OK) s = multiply(&p);
    size_t bytes = p.operands.peak_bytes + p.scratch.peak_bytes;
    peak_close(&p);
    if (s == OK) *out_bytes = bytes;
    return s;
}

double peak_measure(const Config *c, int threads)
{
    Peak p = { 0 };
    GpuRoof roof;
    if (engine_wants_gpu(c)) return peak_gpu(c, &roof) == OK ? roof.flops : 0;
    Status s = peak_open(&p, c, threads, MEM_HOST);
    if (s == OK) fill(&p);
    double best = 0, began = clock_s();
    for (int i = 0; i < MOST && s == OK; i++) {
        double start = clock_s();
        if (i >= LEAST && start - began > LIMIT_S) break;
        s = multiply(&p);
        double flops = 2.0 * SIZE * SIZE * SIZE / (clock_s() - start);
        if (flops > best) best = flops;
    }
    peak_close(&p);
    return s == OK ? best : 0;
}
