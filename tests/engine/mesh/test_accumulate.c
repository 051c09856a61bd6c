/* One global batch, cut differently, is one step: the seed of the meshes' law that the layout does
 * not change the loss. */
#include "harness/tiny.h"

static void split_batch_gives_the_same_loss(void **state)
{
    (void)state;
    static const char *const cuts[] = { "train.micro_batch=4", "train.micro_batch=2",
                                        "train.micro_batch=1" };
    Tiny whole;
    tiny_open(&whole, TINY("run.threads=1"));
    double want = tiny_steps(&whole, 0, 1).loss;
    const float *g = whole.engine.params.memory.buffer[BUF_GRAD].data;
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        Tiny t;
        tiny_open(&t, TINY("run.threads=1", cuts[i]));
        CHECK_NEAR(tiny_steps(&t, 0, 1).loss, want, 1e-6 * want);
        const float *d = t.engine.params.memory.buffer[BUF_GRAD].data;
        for (int p = 0; p < t.engine.params.table.n; p++) {
            const Param *param = &t.engine.params.table.at[p];
            double square = 0, error = 0;
            for (int64_t j = 0; j < param_elems(param); j++) {
                int64_t at = param->first[BUF_GRAD] + j;
                square += (double)g[at] * (double)g[at];
                error += ((double)d[at] - (double)g[at]) * ((double)d[at] - (double)g[at]);
            }
            CHECK_NEAR(sqrt(error), 0, 1e-5 * sqrt(square) + 1e-9);
        }
        tiny_close(&t);
    }
    tiny_close(&whole);
}

static void two_runs_are_the_same_to_the_bit(void **state)
{
    (void)state;
    Tiny a, b;
    tiny_open(&a, TINY("train.micro_batch=2"));
    tiny_open(&b, TINY("train.micro_batch=2"));
    tiny_steps(&a, 0, 5);
    tiny_steps(&b, 0, 5);
    CHECK(tiny_same_state(&a, &b));
    tiny_close(&a);
    tiny_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(split_batch_gives_the_same_loss),
        TEST(two_runs_are_the_same_to_the_bit),
    };
    return TEST_RUN(tests);
}
