/* Ten steps of `train_run` on one rank are those of PyTorch: what lies between the settings and the
 * ops. *state is the model's name. */
#include "harness/trajectory.h"

static const TrajectoryLimits F32 = { .scalar = 1e-5, .tensor = 1e-5, .exact = true };
static const TrajectoryLimits BF16 = { .scalar = 3e-2 };

static void check_run(const char *model, const char *const *settings, const TrajectoryLimits *limits)
{
    Trajectory t;
    trajectory_open(&t, model);
    CHECK_OK(trajectory_run(&t, 1, settings, false));
    trajectory_check(&t, limits);
    print_message("%s: scalars %.2e, tensors %.2e\n", model, t.worst_scalar, t.worst_tensor);
    trajectory_close(&t);
}

static void ten_steps_are_pytorch_s(void **state) { check_run(*state, NULL, &F32); }

static void in_bf16_losses_and_norms_are_close(void **state)
{
    static const char *const bf16[] = { "run.compute=bf16", NULL };
    check_run(*state, bf16, &BF16);
}

#define OF(model, test)                                                                            \
    {                                                                                              \
#model ": " #test, test, NULL, NULL, (void *)(uintptr_t) #model                            \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        OF(mla, ten_steps_are_pytorch_s),
        OF(gqa, ten_steps_are_pytorch_s),
        OF(mla, in_bf16_losses_and_norms_are_close),
        OF(gqa, in_bf16_losses_and_norms_are_close),
    };
    return TEST_RUN(tests);
}
