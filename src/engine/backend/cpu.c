/* cpu: the backend that runs ops on the host, inside the call, one after the other. So streams and
 * waits have nothing to do. Parallelism is inside the ops (OpenMP). */
#include "engine/backend/backend.h"

#include "kernels/core/cpu_set.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The instruction set is chosen once, for the whole run, so all ops of a run give the bits of one
 * set. */
Status exec_init(Exec *ex, Arena *arena, Arena *scratch, int threads, CpuIsa isa)
{
    *ex = (Exec){ .backend = &backend_cpu, .scratch = scratch, .threads = threads, .layer = -1 };
    const Cpu cpu = cpu_here();
    TRY(op_set_find(isa, &cpu, &ex->set));
    return ex->set->gemm_make(arena, &cpu, &ex->gemm);
}

/* Here and not in a file of its own, because it serves all backends: each has a `close`, or
 * none. */
void exec_free(Exec *ex)
{
    if (ex->backend != NULL && ex->backend->close != NULL) ex->backend->close(ex);
    *ex = (Exec){ 0 };
}

void exec_push(Exec *ex, const Decorator *decorator)
{
    assert(ex->depth < EXEC_FRONT_MAX);
    memmove(ex->front + 1, ex->front, (size_t)ex->depth * sizeof ex->front[0]);
    ex->front[0] = decorator;
    ex->depth++;
}

void exec_pop(Exec *ex)
{
    assert(ex->depth > 0);
    ex->depth--;
    memmove(ex->front, ex->front + 1, (size_t)ex->depth * sizeof ex->front[0]);
}

#pragma GCC diagnostic ignored "-Wunused-parameter" /* which is what a stub is */
/* NOLINTBEGIN(misc-unused-parameters) */

static Status cpu_run(Exec *ex, const OpDesc *op, const void *args) { return op->cpu(ex, args); }

/* Pinned memory is ordinary memory here: no device reads it. */
static Status cpu_alloc(Exec *ex, MemKind kind, size_t bytes, void **out)
{
    if (kind != MEM_HOST && kind != MEM_PINNED) {
        return FAIL(ERR_UNSUPPORTED, "cpu: %zu bytes wanted of memory other than the host's",
                    bytes);
    }
    void *at = aligned_alloc(ARENA_ALIGN, arena_rounded(bytes));
    if (at == NULL) return FAIL(ERR_MEMORY, "cpu: %zu bytes refused", bytes);
    *out = at;
    return OK;
}

static void cpu_release(Exec *ex, MemKind kind, void *at, size_t bytes) { free(at); }

static Status cpu_copy(Exec *ex, void *dst, const void *src, size_t bytes)
{
    memcpy(dst, src, bytes);
    return OK;
}

static Status cpu_fill(Exec *ex, void *dst, int byte, size_t bytes)
{
    memset(dst, byte, bytes);
    return OK;
}

/* 0 * x is 0 for a finite x, else NaN, and a sum keeps a NaN. There is no branch, so the common case is
 * vector code. */
static bool all_finite(const float *x, int64_t n)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += 0 * x[i];
    return sum == 0;
}

/* Finds the first element that is not finite; *index is -1 if there is none. Widens a chunk to f32
 * first, so that one test serves all floating types. The chunk stays in the first-level cache. */
static Status cpu_find_bad(Exec *ex, const Tensor *t, int64_t *index, double *value)
{
    *index = -1;
    enum { CHUNK = 1024 };
    float chunk[CHUNK];
    int64_t n = tensor_elems(t);
    for (int64_t first = 0; first < n; first += CHUNK) {
        int64_t m = n - first < CHUNK ? n - first : CHUNK, i = 0;
        dtype_to_f32(chunk, tensor_at(t, first), t->dtype, m);
        if (all_finite(chunk, m)) continue;
        while (isfinite(chunk[i])) i++;
        *value = (double)chunk[i];
        *index = first + i;
        return OK;
    }
    return OK;
}

const Backend backend_cpu = {
    .run = cpu_run,
    .alloc = cpu_alloc,
    .free = cpu_release,
    .copy = cpu_copy,
    .read = cpu_copy,
    .fill = cpu_fill,
    .find_bad = cpu_find_bad,
    BACKEND_WITHOUT_DEVICE,
};
/* NOLINTEND(misc-unused-parameters) */
