/* Ten steps of `train_run` on GPUs, each a captured graph, are those of PyTorch: on one GPU, and on
 * as many as a mesh has ranks. Skipped where there is no GPU, or one. */
#include "harness/gpu.h"
#include "harness/trajectory.h"

/* Products are f32 (no TF32), sums have another order than the CPU's. */
static const TrajectoryLimits F32 = { .loss = 1e-5, .norm = 1e-5, .tensor = 2e-5 };

static const char *const f32[] = { ON_GPU, "run.tune=false", NULL };
static const char *const bf16[] = { ON_GPU, "run.tune=false", "run.compute=bf16", NULL };

static void ten_steps_are_pytorch_s(void **state)
{
    const TrajectoryCase *c = *state;
    NEEDS_GPU();
    if (gpu_devices() < c->ranks) {
        printf("skip: %s needs %d GPUs\n", c->name, c->ranks);
        skip();
    }
    trajectory_case(c, f32, &F32);
}

static void in_bf16_losses_and_norms_are_close(void **state)
{
    const TrajectoryCase *c = *state;
    NEEDS_GPU();
    trajectory_case(c, bf16, &trajectory_bf16);
}

int main(void)
{
    enum { ALONE = 2, TESTS = 2 * ALONE + TRAJECTORY_MESHES };
    struct CMUnitTest tests[TESTS];
    for (int i = 0; i < TESTS; i++) {
        bool mesh = i >= 2 * ALONE, low = !mesh && i >= ALONE;
        const TrajectoryCase *c =
            mesh ? &trajectory_meshes[i - 2 * ALONE] : &trajectory_alone[i % 2];
        tests[i] =
            (struct CMUnitTest){ c->name,
                                 low ? in_bf16_losses_and_norms_are_close : ten_steps_are_pytorch_s,
                                 NULL, NULL, (void *)(uintptr_t)c };
    }
    return TEST_RUN(tests);
}
