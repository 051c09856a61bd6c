/* Fifty steps of `train_run` are those of transformers' models, family by family. Under a sanitizer
 * the first ones. */
#include "harness/trajectory.h"

#define FEW RUNS("train.steps=50", "train.steps=5")

static void fifty_steps_are_transformers_s(void **state)
{
    static const char *const f32[] = { FEW, NULL };
    const TrajectoryCase c = { *state, *state, 1, { NULL } };
    trajectory_case(&c, f32, &steps_f32);
}

static void in_bf16_losses_are_close(void **state)
{
    static const char *const bf16[] = { "run.compute=bf16", FEW, NULL };
    const TrajectoryCase c = { *state, *state, 1, { NULL } };
    trajectory_case(&c, bf16, &steps_bf16);
}

int main(void)
{
    struct CMUnitTest tests[2 * STEPS_MODELS];
    for (int i = 0; i < 2 * STEPS_MODELS; i++) {
        const char *name = steps_models[i / 2];
        tests[i] =
            (struct CMUnitTest){ name,
                                 i % 2 ? in_bf16_losses_are_close : fifty_steps_are_transformers_s,
                                 NULL, NULL, (void *)(uintptr_t)name };
    }
    return TEST_RUN(tests);
}
