/* gpu_state: engines with the settings of a kind, and whether two of them hold the same. */
#ifndef TESTS_HARNESS_GPU_STATE_H
#define TESTS_HARNESS_GPU_STATE_H

#include "engine/base/file.h"
#include "engine/checkpoint/checkpoint.h"
#include "harness/gpu.h"
#include "harness/many.h"

#include <math.h>
#include <stdlib.h>

/* An engine with the settings of `kind`, then `more`; both end with NULL. */
static inline void tiny_open_also(Tiny *t, const char *const *kind, const char *const *more)
{
    const char *all[16] = { 0 };
    int n = 0;
    for (; *kind != NULL; kind++) all[n++] = *kind;
    for (; *more != NULL; more++) all[n++] = *more;
    tiny_open(t, all);
}

/* Bitwise equality of all buffers that an update writes, wherever they are. */
static inline bool gpu_same_state(Tiny *a, Tiny *b)
{
    for (int buffer = BUF_MAIN; buffer < BUF_COUNT; buffer++) {
        const Tensor *x = &a->engine.params.memory.buffer[buffer],
                     *y = &b->engine.params.memory.buffer[buffer];
        float *p = NULL, *q = NULL;
        ArenaMark mark = arena_mark(&a->arena);
        if (x->data == NULL) continue;
        CHECK_OK(many_floats(&a->engine, x, &a->arena, &p));
        CHECK_OK(many_floats(&b->engine, y, &a->arena, &q));
        bool same = memcmp(p, q, tensor_bytes(x)) == 0;
        arena_release(&a->arena, mark);
        if (!same) return false;
    }
    return true;
}

/* 4 steps in one place, saved and loaded: the other place holds the same bits and goes on alike; with `bits`
 * it stays bitwise equal. */
static inline void gpu_checkpoints_move(const char *const *kind, const char *from, const char *to,
                                        bool bits)
{
    char folder[] = "/tmp/switchyard_test_XXXXXX", dir[96];
    CHECK(mkdtemp(folder) != NULL);
    (void)snprintf(dir, sizeof dir, "run.dir=%s", folder);
    Tiny a, b;
    Checkpointer saver;
    CheckpointInfo info;
    Arena scratch;
    CHECK_OK(arena_init(&scratch, "scratch", MEM_HOST, (size_t)1 << 30));
    tiny_open_also(&a, kind, TINY(from, dir));
    tiny_open_also(&b, kind, TINY(to, dir));
    tiny_steps(&a, 0, 4);
    CHECK_OK(checkpointer_open(&saver, &a.config, &a.engine.params, &a.arena));
    CHECK_OK(checkpoint_save(&saver, 4, 16));
    CHECK_OK(checkpoint_finish(&saver));
    CHECK_OK(checkpoint_load_newest(&b.engine.params, folder, NULL, &scratch, &info));
    b.engine.params.kept.means = info.kept.means;
    CHECK_INT(info.step, 4);
    CHECK(gpu_same_state(&a, &b));
    double x = tiny_steps(&a, 4, 2).loss, y = tiny_steps(&b, 4, 2).loss;
    CHECK(fabs(x / y - 1) < 1e-4);
    if (bits) CHECK(x == y && gpu_same_state(&a, &b));
    checkpointer_close(&saver);
    tiny_close(&a);
    tiny_close(&b);
    arena_free(&scratch);
    CHECK_OK(file_remove_tree(folder));
}

#endif
