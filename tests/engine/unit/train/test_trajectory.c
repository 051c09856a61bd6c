/* Ten steps of `train_run` on one rank are those of PyTorch: what lies between the settings and the
 * ops. */
#include "harness/trajectory.h"

static void ten_steps_are_pytorch_s(void **state)
{
    trajectory_case(*state, NULL, &trajectory_f32);
}

static void in_bf16_losses_and_norms_are_close(void **state)
{
    static const char *const bf16[] = { "run.compute=bf16", NULL };
    trajectory_case(*state, bf16, &trajectory_bf16);
}

/* Rate, age of the moments, data and the router's bias go on where they were. */
static void a_resumed_run_goes_on_with_pytorch_s_steps(void **state)
{
    static const char *const five[] = { "train.steps=5", NULL };
    const TrajectoryCase *c = *state;
    Trajectory t;
    trajectory_open(&t, c->model);
    CHECK_OK(trajectory_run(&t, 1, five, false));
    CHECK_OK(trajectory_run(&t, 1, NULL, true));
    trajectory_check(&t, &trajectory_f32);
    trajectory_close(&t);
}

#define OF(i, model, test)                                                                         \
    {                                                                                              \
        model ": " #test, test, NULL, NULL, (void *)(uintptr_t)&trajectory_alone[i]                \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        OF(0, "mla", ten_steps_are_pytorch_s),
        OF(1, "gqa", ten_steps_are_pytorch_s),
        OF(0, "mla", in_bf16_losses_and_norms_are_close),
        OF(1, "gqa", in_bf16_losses_and_norms_are_close),
        OF(0, "mla", a_resumed_run_goes_on_with_pytorch_s_steps),
    };
    return TEST_RUN(tests);
}
