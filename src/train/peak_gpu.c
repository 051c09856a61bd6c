#include "train/peak.h"

#include "backend/cuda.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>

enum { PATTERN = 1 << 20, WARM_UP = 5, TIMED = 15 };

/* Large enough that the ends of a launch and what stands in the L2 cache no longer matter; in f32,
 * without matrix instructions, a smaller one takes as long. */
static const int64_t SIDE_BF16 = 8192, SIDE_F32 = 4096;

static const size_t BLOCK_BYTES = (size_t)1 << 30, SCRATCH_BYTES = (size_t)64 << 20;

typedef struct Roof {
    Exec ex;
    Arena tables, block, scratch;
    void *block_memory, *scratch_memory;
    CudaTimer timer;
    Tensor x, y;
} Roof;

static Status roof_open(Roof *r, const Config *c)
{
    TRY(arena_init(&r->tables, "roof tables", MEM_HOST, (size_t)64 << 20));
    TRY(cuda_exec_init(&r->ex, (int)c->run_gpu, &r->tables, &r->scratch));
    const Backend *gpu = exec_bottom(&r->ex);
    TRY(gpu->alloc(&r->ex, MEM_DEVICE, BLOCK_BYTES, &r->block_memory));
    TRY(gpu->alloc(&r->ex, MEM_DEVICE, SCRATCH_BYTES, &r->scratch_memory));
    arena_over(&r->block, "roof", MEM_DEVICE, r->block_memory, BLOCK_BYTES);
    arena_over(&r->scratch, "roof scratch", MEM_DEVICE, r->scratch_memory, SCRATCH_BYTES);
    return cuda_timer_make(&r->tables, TIMED + 1, &r->timer);
}

static void roof_close(Roof *r)
{
    if (r->block_memory != NULL)
        exec_bottom(&r->ex)->free(&r->ex, MEM_DEVICE, r->block_memory, BLOCK_BYTES);
    if (r->scratch_memory != NULL)
        exec_bottom(&r->ex)->free(&r->ex, MEM_DEVICE, r->scratch_memory, SCRATCH_BYTES);
    cuda_timer_free(&r->timer);
    cuda_exec_free(&r->ex);
    arena_free(&r->tables);
}

/* Random numbers, because a GPU is faster on zeros; a million of them over and over. */
static Status fill(Roof *r, const Tensor *t)
{
    const Backend *gpu = exec_bottom(&r->ex);
    ArenaMark mark = arena_mark(&r->tables);
    size_t done = PATTERN * dtype_bytes(t->dtype), bytes = tensor_bytes(t);
    void *drawn = NULL, *packed = NULL;
    TRY(arena_alloc(&r->tables, PATTERN * sizeof(float), &drawn));
    TRY(arena_alloc(&r->tables, done, &packed));
    rng_fill_normal(drawn, PATTERN, 1, rng_stream("peak"), 0, 1);
    dtype_from_f32(packed, t->dtype, drawn, PATTERN);
    TRY(gpu->copy(&r->ex, t->data, packed, done));
    for (; done < bytes; done *= 2) TRY(gpu->copy(&r->ex, (char *)t->data + done, t->data, done));
    TRY(gpu->sync(&r->ex));
    arena_release(&r->tables, mark);
    return OK;
}

/* Both operands are the same matrix. */
static Status multiply(Roof *r)
{
    return linear_fwd(&r->ex, (LinearFwd){ .x = r->x, .w = r->x, .y = r->y });
}

static Status copy(Roof *r)
{
    size_t half = BLOCK_BYTES / 2;
    char *block = r->block_memory;
    return exec_bottom(&r->ex)->copy(&r->ex, block + half, block, half);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static Status median_s(Roof *r, Status (*run)(Roof *), double *out)
{
    double seconds[TIMED];
    for (int i = 0; i < WARM_UP; i++) TRY(run(r));
    TRY(cuda_timer_mark(&r->timer, &r->ex, 0));
    for (int i = 0; i < TIMED; i++) {
        TRY(run(r));
        TRY(cuda_timer_mark(&r->timer, &r->ex, i + 1));
    }
    TRY(exec_bottom(&r->ex)->sync(&r->ex));
    for (int i = 0; i < TIMED; i++) TRY(cuda_timer_s(&r->timer, i, i + 1, &seconds[i]));
    qsort(seconds, TIMED, sizeof *seconds, by_size);
    *out = seconds[TIMED / 2];
    return OK;
}

static Status measure(Roof *r, const Config *c, GpuRoof *out)
{
    bool bf16 = c->run_compute == COMPUTE_BF16;
    Dtype act = bf16 ? DTYPE_BF16 : DTYPE_F32;
    int64_t side = bf16 ? SIDE_BF16 : SIDE_F32;
    double product_s = 0, copy_s = 0;
    TRY(roof_open(r, c));
    TRY(tensor_new2(&r->block, act, side, side, &r->x));
    TRY(tensor_new2(&r->block, act, side, side, &r->y));
    TRY(fill(r, &r->x));
    TRY(cuda_tune(&r->ex, true));
    TRY(multiply(r));
    TRY(cuda_tune(&r->ex, false));
    TRY(median_s(r, multiply, &product_s));
    TRY(median_s(r, copy, &copy_s));
    *out = (GpuRoof){ 2 * pow((double)side, 3) / product_s, (double)BLOCK_BYTES / copy_s };
    return OK;
}

Status peak_gpu(const Config *c, GpuRoof *out)
{
    Roof r = { 0 };
    Status s = measure(&r, c, out);
    roof_close(&r);
    return s;
}
