/* The law of meshes: however many ranks share the work, a step from the same weights and moments has
 * the gradients, losses and loads of one rank.
 *
 * Ranks add in another order than one rank, so sums differ in their last bits, and a training is a
 * chaotic map: a difference grows from step to step, at a rate that depends on model, batch and
 * instruction set. In step 5 of the case "pp 2, mtp, zbv" a document of one token multiplies it by
 * 300. One rank whose first weights are moved by one bit does the same. So every second step starts
 * from the weights of one rank. Only if two scores are closer than TIE may a step's loads differ. */
#include "harness/mesh_cases.h"

/* Refused is QK-clip with a norm behind the projections of queries and keys, which would undo it. */
static bool fits(const ManyCase *c, const char *const *also)
{
    bool clips = strncmp(also[0], "optimizer.qk_clip", 17) == 0;
    return !(clips && case_sets(c, "attention.qk_norm"));
}

enum { WITHOUT_TP = 1, WITH_TP = 2, ALL_MESHES = 3 };

static void check_meshes(const char *const *also, int steps, int every, int which)
{
    int wrong = 0;
    for (int i = 0; i < MESH_CASES; i += every) {
        const ManyCase *c = &mesh_cases[i];
        Many m = {
            .what = c, .steps = case_steps(c, steps), .limit = 1e-5, .also = also, .afresh = 2
        };
        int failed = -1;
        if (!fits(c, also) || !(which & (case_sets(c, "mesh.tp") ? WITH_TP : WITHOUT_TP))) continue;
        Status s = comm_threads(c->ranks, 60, many_run, &m, &failed);
        if (s != OK) print_error("%s, rank %d: %s\n", c->name, failed, status_message());
        wrong += s != OK;
    }
    CHECK_INT(wrong, 0);
}

static void every_mesh_has_the_loss_of_one_rank(void **state)
{
    (void)state;
    check_meshes(TINY("optimizer.moments=f32"), MANY_STEPS, MANY_EVERY, WITHOUT_TP);
}

static void ranks_of_tp_have_the_loss_of_one_rank(void **state)
{
    (void)state;
    check_meshes(TINY("optimizer.moments=f32"), MANY_STEPS, MANY_EVERY, WITH_TP);
}

/* Where the last bit of a gradient rounds a moment up instead of down, the moment moves by up to
 * 1/128: after three to six steps, by build, the first tokens go to other experts. */
static void every_mesh_keeps_bf16_moments_as_one_rank_does(void **state)
{
    (void)state;
    check_meshes(TINY("optimizer.moments=bf16"), RUNS(3, 2), RUNS(1, 7), ALL_MESHES);
}

static void every_mesh_has_the_update_of_whole_matrices(void **state)
{
    (void)state;
    check_meshes(TINY("optimizer.kind=muon"), RUNS(3, 2), RUNS(1, 7), ALL_MESHES);
}

/* Heads of all layers are clipped in the first step, so later losses are of clipped weights. */
static void every_mesh_clips_the_heads_of_one_rank(void **state)
{
    (void)state;
    check_meshes(TINY("optimizer.qk_clip=0.2"), RUNS(3, 2), RUNS(1, 7), ALL_MESHES);
    check_meshes(TINY("optimizer.qk_clip=0.2", "optimizer.kind=muon"), 2, RUNS(5, 7), ALL_MESHES);
}

/* Each sum is rounded to 8 bits once a rank, but for those that all ranks hold whole. */
static void gradients_added_in_bf16_are_as_close_as_that(void **state)
{
    (void)state;
    static const char *const zero[] = { "mesh.zero=0", "mesh.zero=1", "mesh.zero=2",
                                        "mesh.zero=3" };
    for (int i = 0; i < 4; i++) {
        ManyCase c = { "bf16 sums", 4, { MLA, BATCH, WORST, "mesh.ep=2", "mesh.reduce=bf16" } };
        const char **end = c.settings;
        while (*end != NULL) end++;
        *end = zero[i];
        Many m = { .what = &c, .steps = 1, .limit = 5e-3, .whole = 1e-5 };
        int failed = -1;
        CHECK_OK(comm_threads(c.ranks, 60, many_run, &m, &failed));
        m.limit = 1e-6;
        CHECK(comm_threads(c.ranks, 60, many_run, &m, &failed) != OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_mesh_has_the_loss_of_one_rank),
        TEST(ranks_of_tp_have_the_loss_of_one_rank),
        TEST(every_mesh_keeps_bf16_moments_as_one_rank_does),
        TEST(every_mesh_has_the_update_of_whole_matrices),
        TEST(every_mesh_clips_the_heads_of_one_rank),
        TEST(gradients_added_in_bf16_are_as_close_as_that),
    };
    return TEST_RUN(tests);
}
