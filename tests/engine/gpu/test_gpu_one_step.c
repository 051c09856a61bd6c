/* One training step on a GPU beside the CPU's: forward, backward and update. Short enough for an
 * interpreter of kernels (tools/gfxrun). */
#include "harness/gpu.h"
#include "harness/many.h"

#include <math.h>

enum { KINDS = 4 };
static const char *const kinds[KINDS] = { "attention.kind=mla", "attention.kind=gqa",
                                          "optimizer.kind=muon", "optimizer.qk_clip=0.2" };

/* One step of a model with each kind of attention and experts, of each rule, and with clipped heads, beside the CPU's in f32: its loss, every
 * gradient, and every weight after the update. */
static void check_one_step(int kind, const char *type, double loss, const Many *limits)
{
    Tiny cpu, gpu;
    float *have = NULL, *want = NULL;
    tiny_open(&cpu, TINY(ON_CPU, "run.compute=f32", kinds[kind]));
    tiny_open(&gpu, TINY(ON_GPU, type, kinds[kind]));
    const StepResult on_gpu = tiny_steps(&gpu, 0, 1), on_cpu = tiny_steps(&cpu, 0, 1);
    CHECK_NEAR(on_gpu.loss / on_cpu.loss, 1.0, loss);
    CHECK_INT(on_gpu.clipped, on_cpu.clipped);
    CHECK((cpu.config.optimizer_qk_clip > 0) == (on_cpu.clipped > 0));
    CHECK_OK(many_same_gradients(limits, &cpu, &(SinkTerms){ 0 }, &gpu.engine));
    const Tensor *main[] = { &cpu.engine.params.memory.buffer[BUF_MAIN],
                             &gpu.engine.params.memory.buffer[BUF_MAIN] };
    CHECK_OK(many_floats(&cpu.engine, main[0], &cpu.arena, &want));
    CHECK_OK(many_floats(&gpu.engine, main[1], &cpu.arena, &have));
    double error = 0, square = 0;
    for (int64_t i = 0; i < tensor_elems(main[0]); i++) {
        error += ((double)have[i] - (double)want[i]) * ((double)have[i] - (double)want[i]);
        square += (double)want[i] * (double)want[i];
    }
    CHECK(square > 0);
    if (!(sqrt(error / square) <= limits->whole)) fail_msg("weights: %g", sqrt(error / square));
    tiny_close(&cpu);
    tiny_close(&gpu);
}

static void one_step_has_the_cpu_s_loss_gradients_and_weights(void **state)
{
    NEEDS_GPU();
    const Many f32 = { .limit = 1e-5, .whole = 1e-5 }, bf16 = { .cosine = 0.98, .whole = 1e-2 };
    for (int kind = 0; kind < KINDS; kind++) {
        check_one_step(kind, "run.compute=f32", 1e-6, &f32);
        check_one_step(kind, "run.compute=bf16", 1e-2, &bf16);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_step_has_the_cpu_s_loss_gradients_and_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
