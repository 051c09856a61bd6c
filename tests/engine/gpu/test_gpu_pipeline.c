/* Stages on GPUs of their own, through NCCL: every schedule gives the losses and gradients of one
 * GPU, in both executors, and the same bits twice. Skipped where there are fewer than two GPUs. */
#include "harness/gpu.h"
#include "harness/pipeline.h"

static void captured_stages_train_as_one_gpu_does(void **state)
{
    NEEDS_GPUS(2);
    check_schedules(2, TINY(ON_GPU, "attention.q_rank=9"));
}

static void stages_that_launch_train_as_one_gpu_does(void **state)
{
    NEEDS_GPUS(2);
    check_schedules(2, TINY(ON_GPU, "run.executor=eager", "model.tied=true"));
}

static void four_stages_train_as_one_gpu_does(void **state)
{
    NEEDS_GPUS(4);
    check_schedules(4, TINY(ON_GPU, "attention.kind=gqa"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(captured_stages_train_as_one_gpu_does),
        TEST(stages_that_launch_train_as_one_gpu_does),
        TEST(four_stages_train_as_one_gpu_does),
    };
    return TEST_RUN(tests);
}
