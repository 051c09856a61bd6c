/*
 * Optimizer state in host memory (optimizer.offload) and a batch that grows (train.batch_ramp) on a GPU:
 * the bits of the same training without them, in both executors; memory that is planned; checkpoints.
 * Skipped where there is no GPU.
 */
#include "engine/step/offload.h"
#include "harness/gpu_state.h"

enum { STEPS = 4 };

static const char *const kinds[][10] = {
    { ON_GPU, "optimizer.kind=adamw" },
    { ON_GPU, "optimizer.moments=bf16", "run.compute=bf16", "optimizer.ema=0.9" },
    { ON_GPU, "optimizer.kind=muon", "optimizer.ema=0.9" },
    { ON_GPU, "optimizer.kind=muon", "optimizer.moments=bf16", "train.micro_batch=1" },
    /* Without offload the update writes the 8-bit copies of experts, in blocks of 128 x 128. */
    { ON_GPU, "run.compute=bf16", "fp8.recipe=block", "fp8.products=grouped", "fp8.kept=plain",
      "model.hidden=256", "moe.ffn=144", "data.sequence=32" },
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static void offloaded_states_give_the_same_bits_in_both_executors(void **state)
{
    NEEDS_GPU();
    for (int k = 0; k < KINDS; k++) {
        Tiny plain, captured, eager;
        tiny_open_also(&plain, kinds[k], TINY("optimizer.offload=false"));
        tiny_open_also(&captured, kinds[k], TINY("optimizer.offload=true"));
        tiny_open_also(&eager, kinds[k], TINY("optimizer.offload=true", "run.executor=eager"));
        double x = tiny_steps(&plain, 0, STEPS).loss, y = tiny_steps(&captured, 0, STEPS).loss;
        double z = tiny_steps(&eager, 0, STEPS).loss;
        CHECK(x == y && x == z);
        CHECK(gpu_same_state(&plain, &captured));
        CHECK(gpu_same_state(&plain, &eager));
        CHECK(captured.engine.params.offload != NULL && plain.engine.params.offload == NULL);
        tiny_close(&plain);
        tiny_close(&captured);
        tiny_close(&eager);
    }
}

/* The GPU has three buffers in place of the states, and pinned memory has the states. */
static void the_plan_moves_the_states_to_pinned_memory(void **state)
{
    NEEDS_GPU();
    for (int k = 0; k < KINDS; k++) {
        Tiny plain, apart;
        size_t states = 0, buffers = 0;
        tiny_open_also(&plain, kinds[k], TINY("optimizer.offload=false"));
        tiny_open_also(&apart, kinds[k], TINY("optimizer.offload=true"));
        for (int s = 0; s < OPTIMIZER_STATES; s++) {
            const Tensor *t = &apart.engine.params.memory.buffer[BUF_OPTIMIZER + s];
            if (t->data != NULL) states += arena_rounded(tensor_bytes(t));
            for (int b = 0; b < OFFLOAD_BUFFERS; b++) {
                const Tensor *buffer = &apart.engine.params.offload->buffer[b][s];
                if (buffer->data != NULL) buffers += arena_rounded(tensor_bytes(buffer));
            }
        }
        const size_t *with = apart.plan.bytes, *without = plain.plan.bytes;
        CHECK_INT(with[ENGINE_RUN] + states, without[ENGINE_RUN] + buffers);
        CHECK_INT(with[ENGINE_PINNED], without[ENGINE_PINNED] + states);
        tiny_steps(&apart, 0, 2);
        CHECK_INT(engine_peak_bytes(&apart.engine, ENGINE_RUN), with[ENGINE_RUN]);
        tiny_close(&plain);
        tiny_close(&apart);
    }
}

/* A checkpoint of offloaded states is one of states on the GPU, and the other way round. */
static void checkpoints_move_between_both_places(void **state)
{
    NEEDS_GPU();
    gpu_checkpoints_move(kinds[1], "optimizer.offload=true", "optimizer.offload=false", true);
    gpu_checkpoints_move(kinds[1], "optimizer.offload=false", "optimizer.offload=true", true);
}

/* The sequences of a step, of a global batch of four. */
static StepResult step_of(Tiny *t, int64_t step, int64_t n)
{
    StepResult r;
    tiny_batch(t, step);
    Batch b = many_rows(&t->batch, 0, n, t->config.data_sequence);
    CHECK_OK(engine_step(&t->engine, &b, 1e-2, step + 1, &r));
    return r;
}

/* One sequence, then two, then four: each size has a graph of its own. */
static void a_growing_batch_is_captured_for_each_size(void **state)
{
    NEEDS_GPU();
    static const int64_t size[] = { 1, 1, 2, 2, 4, 4 };
    Tiny t[3];
    const char *const ramp = "train.batch_ramp=[\"2: 1\", \"4: 2\"]", *one = "train.micro_batch=1";
    tiny_open(&t[0], TINY(ON_GPU, ramp, one));
    tiny_open(&t[1], TINY(ON_GPU, ramp, one, "run.executor=eager"));
    tiny_open(&t[2], TINY(ON_CPU, ramp, one));
    for (int64_t i = 0; i < 6; i++) {
        StepResult r[3];
        for (int k = 0; k < 3; k++) r[k] = step_of(&t[k], i, size[i]);
        CHECK(r[0].loss == r[1].loss && r[0].grad_norm == r[1].grad_norm);
        CHECK_NEAR(r[0].loss / r[2].loss, 1, 1e-4);
        CHECK_INT(r[0].launches, 1);
        CHECK_INT(r[0].kernels, r[1].kernels);
    }
    CHECK(gpu_same_state(&t[0], &t[1]));
    for (int k = 0; k < 3; k++) tiny_close(&t[k]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(offloaded_states_give_the_same_bits_in_both_executors),
        TEST(the_plan_moves_the_states_to_pinned_memory),
        TEST(checkpoints_move_between_both_places),
        TEST(a_growing_batch_is_captured_for_each_size),
    };
    return TEST_RUN(tests);
}
