/* run.verify_every on a GPU: a flipped bit of a gradient is found, and a captured run that is verified has the bits of
 * one that is not. Skipped where there is no GPU. */
#include "harness/flip.h"
#include "harness/gpu.h"
#include "harness/many.h"
#include "train/verify.h"

#define MODEL ON_GPU, "run.compute=bf16"

static void a_flipped_bit_of_a_gradient_is_found_before_the_update(void **state)
{
    NEEDS_GPU();
    for (int nth = 1; nth <= 5; nth += 4) {
        Tiny t;
        Flip f;
        StepResult r;
        float *before = NULL, *behind = NULL;
        tiny_open(&t, TINY(MODEL, "run.verify_every=2"));
        const Tensor *main = &t.engine.params.memory.buffer[BUF_MAIN];
        (void)tiny_steps(&t, 0, 1);
        CHECK_OK(many_floats(&t.engine, main, &t.arena, &before));
        flip_push(&t.engine.ex, &f, "linear_bwd_weight", nth);
        tiny_batch(&t, 1);
        CHECK_OK(engine_step(&t.engine, &t.batch, 1e-2, 2, &r));
        exec_pop(&t.engine.ex);
        CHECK(r.differs);
        CHECK_FAILS(verify_explain(&t.engine, 2), ERR_NUMERIC,
                    "step 2 was computed twice, with other bits on rank 0 (host ");
        CHECK_OK(many_floats(&t.engine, main, &t.arena, &behind));
        CHECK(memcmp(before, behind, tensor_bytes(main)) == 0);
        tiny_close(&t);
    }
}

static void a_verified_run_has_the_bits_of_one_that_is_not(void **state)
{
    NEEDS_GPU();
    Tiny a, b;
    float *x = NULL, *y = NULL;
    tiny_open(&a, TINY(MODEL, "run.verify_every=2"));
    tiny_open(&b, TINY(MODEL));
    const StepResult s = tiny_steps(&a, 0, 4), u = tiny_steps(&b, 0, 4);
    CHECK(s.verify_s > 0 && !s.differs && u.verify_s <= 0);
    CHECK_NEAR(s.loss, u.loss, 0);
    const Tensor *main = &a.engine.params.memory.buffer[BUF_MAIN];
    CHECK_OK(many_floats(&a.engine, main, &a.arena, &x));
    CHECK_OK(many_floats(&b.engine, &b.engine.params.memory.buffer[BUF_MAIN], &b.arena, &y));
    CHECK(memcmp(x, y, tensor_bytes(main)) == 0);
    tiny_close(&a);
    tiny_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_flipped_bit_of_a_gradient_is_found_before_the_update),
        TEST(a_verified_run_has_the_bits_of_one_that_is_not),
    };
    return TEST_RUN(tests);
}
