/* run.verify_every on GPUs: a flipped bit of a gradient is found, of several GPUs the one is named, and a captured run
 * that is verified has the bits of one that is not. Skipped where there is no GPU. */
#include "engine/step/verify.h"
#include "harness/flip.h"
#include "harness/gpu.h"
#include "harness/many.h"

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

/* Ranks, each on a GPU of its own. */
enum { GPUS_MAX = 8 };
typedef struct Turn {
    const ManyCase *what;
    bool differs[GPUS_MAX];
    char why[GPUS_MAX][1024];
} Turn;

/* The last rank's GPU is the faulty one. */
static Status flipped_step(Turn *t, ManyRank *r, const Comm *world)
{
    StepResult x;
    Flip f;
    const bool culprit = world->rank == world->size - 1;
    TRY(many_step(r, 0, &x));
    if (culprit) flip_push(&r->t.engine.ex, &f, "linear_bwd_weight", 3);
    Status s = many_step(r, 1, &x);
    if (culprit) exec_pop(&r->t.engine.ex);
    t->differs[world->rank] = s == OK && x.differs;
    if (s != OK || !x.differs) return s;
    s = verify_explain(&r->t.engine, 2);
    status_sentence(t->why[world->rank], sizeof t->why[0]);
    status_clear();
    return s == ERR_NUMERIC ? OK : FAIL(ERR_ARG, "no explanation");
}

static Status run_flipped(void *state, Comm *world)
{
    static const char *const verified[] = { "run.verify_every=2", NULL };
    Turn *t = state;
    ManyRank r = { .also = verified, .device = world->rank };
    Status s = many_open(&r, t->what, world);
    if (s == OK) s = flipped_step(t, &r, world);
    many_close(&r);
    return s;
}

#define EXPERTS MODEL, "moe.experts=8", "model.layers=4", "train.batch=8", "train.micro_batch=1"
static void of_several_gpus_the_faulty_one_is_named(void **state)
{
    NEEDS_GPUS(2);
    for (int ranks = 2; ranks <= gpu_devices() && ranks <= GPUS_MAX; ranks *= 2) {
        const ManyCase cases[] = { { "zero 1", ranks, { EXPERTS, "mesh.zero=1" } },
                                   { "zero 3", ranks, { EXPERTS, "mesh.zero=3" } } };
        char want[80];
        snprintf(want, sizeof want, "step 2 was computed twice, with other bits on rank %d (host ",
                 ranks - 1);
        for (int i = 0; i < 2; i++) {
            Turn t = { .what = &cases[i] };
            int failed = -1;
            CHECK_OK(comm_threads(ranks, 60, run_flipped, &t, &failed));
            for (int r = 0; r < ranks; r++) {
                CHECK(t.differs[r]);
                if (strstr(t.why[r], want) == NULL)
                    fail_msg("%s, %d ranks: %s", cases[i].name, ranks, t.why[r]);
            }
        }
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
        TEST(of_several_gpus_the_faulty_one_is_named),
        TEST(a_verified_run_has_the_bits_of_one_that_is_not),
    };
    return TEST_RUN(tests);
}
