/*
 * Matrix products touch the heap in no call but the first. The heap's functions are those below:
 * they count and pass on. Sanitizers bring functions of their own, so there the tests are skipped.
 */
#include "harness/optest.h"

#include "kernels/core/cpu_set.h"

#include <dlfcn.h>
#include <malloc.h>
#include <stdlib.h>

#if defined(__has_feature)
#define HAS(feature) __has_feature(feature)
#else
#define HAS(feature) 0
#endif
static volatile int64_t calls; /* the compiler knows malloc: it would not read again */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || HAS(address_sanitizer) ||     \
    HAS(thread_sanitizer)
enum { COUNTED = false };
#else
enum { COUNTED = true };

/* The function of this name that the C library has. */
#define NEXT(result, name, ...)                                                                    \
    union {                                                                                        \
        void *data;                                                                                \
        result (*code)(__VA_ARGS__);                                                               \
    } next = { dlsym(RTLD_NEXT, name) };                                                           \
    __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED)

void *malloc(size_t bytes)
{
    NEXT(void *, "malloc", size_t);
    return next.code(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    NEXT(void *, "calloc", size_t, size_t);
    return next.code(n, bytes);
}

void *realloc(void *at, size_t bytes)
{
    NEXT(void *, "realloc", void *, size_t);
    return next.code(at, bytes);
}

void *memalign(size_t to, size_t bytes)
{
    NEXT(void *, "memalign", size_t, size_t);
    return next.code(to, bytes);
}

void *aligned_alloc(size_t to, size_t bytes)
{
    NEXT(void *, "aligned_alloc", size_t, size_t);
    return next.code(to, bytes);
}

int posix_memalign(void **out, size_t to, size_t bytes)
{
    NEXT(int, "posix_memalign", void **, size_t, size_t);
    return next.code(out, to, bytes);
}
#endif

enum { SIDE = 700 }; /* the largest m, n and k */

typedef struct Data {
    OpTest t;
    Tensor a, b, c;
    void *workspace[2];
} Data;

static GemmArgs args_of(const Data *d, uint64_t i)
{
    Dtype in = i & 1 ? DTYPE_BF16 : DTYPE_F32, out = i & 2 ? DTYPE_BF16 : DTYPE_F32;
    GemmArgs g = { .a.at = d->a.data, .b.at = d->b.data, .c.at = d->c.data };
    g.m = 1 + (int64_t)rng_below(3, 1, 3 * i, SIDE),
    g.n = 1 + (int64_t)rng_below(3, 1, 3 * i + 1, SIDE);
    g.k = 1 + (int64_t)rng_below(3, 1, 3 * i + 2, SIDE);
    g.a.ld = g.b.ld = g.c.ld = SIDE;
    g.a.type = g.b.type = in, g.c.type = out;
    g.a.turned = i & 4, g.b.turned = i & 8, g.beta = i & 16 ? 1 : 0;
    return g;
}

static void data_open(Data *d)
{
    optest_open(&d->t, 2);
    d->a = optest_normal(&d->t, DTYPE_F32, DIMS(SIDE, SIDE));
    d->b = optest_normal(&d->t, DTYPE_F32, DIMS(SIDE, SIDE));
    d->c = optest_normal(&d->t, DTYPE_F32, DIMS(2 * SIDE, SIDE));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(arena_alloc(&d->t.arena, (size_t)64 << 20, &d->workspace[i]));
    }
}

static void the_heap_is_counted(void **state)
{
    (void)state;
    if (!COUNTED) {
        print_message("a sanitizer owns the heap: not counted\n");
        skip();
    }
    int64_t before = calls;
    void *volatile at = malloc(1);
    free(at);
    CHECK_INT(calls - before, 1);
}

static void products_of_new_shapes_take_nothing_from_the_heap(void **state)
{
    (void)state;
    if (!COUNTED || gpu_devices() > 0) skip(); /* the driver has threads that allocate */
    Data d;
    data_open(&d);
    GemmArgs g = args_of(&d, 0);
    CHECK_OK(d.t.ex.set->gemm_run(&d.t.ex, &g, d.workspace[0]));
    int64_t before = calls;
    for (uint64_t i = 1; i < 64; i++) {
        g = args_of(&d, i);
        (void)d.t.ex.set->gemm_workspace(&d.t.ex, &g);
        CHECK_OK(d.t.ex.set->gemm_run(&d.t.ex, &g, d.workspace[0]));
    }
    CHECK_INT(calls - before, 0);
    optest_close(&d.t);
}

static void products_inside_a_parallel_region_take_nothing_from_the_heap(void **state)
{
    (void)state;
    if (!COUNTED || gpu_devices() > 0) skip(); /* the driver has threads that allocate */
    Data d;
    data_open(&d);
    int64_t before = 0;
    Status status[2] = { OK, OK };
    for (uint64_t i = 0; i < 32; i++) {
        if (i == 1) before = calls;
#pragma omp parallel for num_threads(2) schedule(static)
        for (int n = 0; n < 2; n++) {
            GemmArgs g = args_of(&d, 2 * i + (uint64_t)n);
            g.c.at = (float *)d.c.data + n * SIDE * SIDE;
            Status s = d.t.ex.set->gemm_run(&d.t.ex, &g, d.workspace[n]);
            if (s != OK) status[n] = s;
        }
    }
    CHECK_INT(calls - before, 0);
    CHECK(status[0] == OK && status[1] == OK);
    optest_close(&d.t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_heap_is_counted),
        TEST(products_of_new_shapes_take_nothing_from_the_heap),
        TEST(products_inside_a_parallel_region_take_nothing_from_the_heap),
    };
    return TEST_RUN(tests);
}
