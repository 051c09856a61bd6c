/* Ten steps of `train_run` over ranks are those of PyTorch: losses, norms and loads, and in the
 * checkpoints every weight, moment and bias. */
#include "harness/trajectory.h"

static void ten_steps_are_pytorch_s(void **state)
{
    trajectory_case(*state, NULL, &trajectory_f32);
}

int main(void)
{
    struct CMUnitTest tests[TRAJECTORY_MESHES];
    for (int i = 0; i < TRAJECTORY_MESHES; i++) {
        const TrajectoryCase *c = &trajectory_meshes[i];
        tests[i] = (struct CMUnitTest){ c->name, ten_steps_are_pytorch_s, NULL, NULL,
                                        (void *)(uintptr_t)c };
    }
    return TEST_RUN(tests);
}
