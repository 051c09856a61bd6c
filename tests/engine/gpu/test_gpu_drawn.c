/* Drawn models, on as many GPUs as there are, beside one rank on the CPU. */
#include "harness/draw_mesh.h"
#include "harness/gpu.h"

static int gpus(void) { return gpu_devices() < RANKS_MOST ? gpu_devices() : RANKS_MOST; }

static void drawn_models_are_the_cpu_s(void **state)
{
    NEEDS_GPU();
    run_drawn(
        60, gpus(),
        (Many){
            .steps = 2, .alike = 1, .limit = 1e-4, .also = TINY(ON_GPU), .lone = TINY(ON_CPU) });
}

/* A rounding may send a token to another expert, and an expert has few tokens here. */
static void in_bf16_their_gradients_point_the_same_way(void **state)
{
    NEEDS_GPU();
    run_drawn(60, gpus(),
              (Many){ .steps = 1,
                      .limit = 0.1,
                      .cosine = 0.5,
                      .also = TINY(ON_GPU, "run.compute=bf16"),
                      .lone = TINY(ON_CPU, "run.compute=bf16") });
}

int main(void)
{
    const struct CMUnitTest tests[] = { TEST(drawn_models_are_the_cpu_s),
                                        TEST(in_bf16_their_gradients_point_the_same_way) };
    return TEST_RUN(tests);
}
