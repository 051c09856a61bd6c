/* Fifty steps of transformers' models on GPUs, each a captured graph: family by family on one GPU, and
 * on the meshes of tests/engine/mesh/test_steps_mesh that there are GPUs for, in f32 and in bf16. Skipped
 * where there is no GPU, or too few. */
#include "harness/gpu.h"
#include "harness/trajectory.h"

/* Sums have another order than the CPU's. */
static const TrajectoryLimits F32 = { .loss = 1e-5, .norm = 1e-3 };

static const char *const f32[] = { ON_GPU, "run.tune=false", NULL };
static const char *const bf16[] = { ON_GPU, "run.tune=false", "run.compute=bf16", NULL };

static void fifty_steps_are_transformers_s(void **state)
{
    const TrajectoryCase *c = *state;
    NEEDS_GPUS(c->ranks);
    trajectory_case(c, f32, &F32);
}

static void in_bf16_losses_are_close(void **state)
{
    const TrajectoryCase *c = *state;
    NEEDS_GPUS(c->ranks);
    trajectory_case(c, bf16, &steps_bf16);
}

int main(void)
{
    enum { CASES = STEPS_MODELS + STEPS_MESHES };
    static TrajectoryCase cases[CASES];
    struct CMUnitTest tests[2 * CASES];
    for (int i = 0; i < CASES; i++) {
        const char *model = i < STEPS_MODELS ? steps_models[i] : NULL;
        cases[i] =
            model ? (TrajectoryCase){ model, model, 1, { NULL } } : steps_meshes[i - STEPS_MODELS];
        for (int low = 0; low < 2; low++)
            tests[2 * i + low] = (struct CMUnitTest){ cases[i].name,
                                                      low ? in_bf16_losses_are_close
                                                          : fifty_steps_are_transformers_s,
                                                      NULL, NULL, &cases[i] };
    }
    return TEST_RUN(tests);
}
