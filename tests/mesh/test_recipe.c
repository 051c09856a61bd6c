/*
 * Meshes of a model with 8-bit products, beside one rank: what a mesh promises with a recipe.
 *
 * A row of activations or gradients has the same codes and scales on every mesh, if its scale is its own
 * (row, block). Three things depend on the mesh, and each has a limit here:
 *
 * - Which rows a sum over tokens has, and so the scales of columns and of whole tensors. Data and
 *   pipeline parallelism keep micro-batches, so nothing changes. With mesh.ep an expert sees rows of all
 *   ranks at once, with mesh.cp a rank sees a part of a sequence. With scales that are powers of two
 *   (block) numbers keep their codes, but for those below the smallest normal of a block. With exact scales
 *   both sides are rounded anew: each by a relative 0.026 an operand, so that two sums of many such
 *   terms are 0.05 apart, and short ones up to three times that.
 * - The order of sums of f32. It moves last bits, which turn the code of one number in a million. A
 *   turned code is a relative 1/16 of that number, and some 1e-4 of a small gradient.
 * - What is quantised. Under mesh.cp each rank has a part of the gradient of mla's keys and values, and
 *   quantises that part: as with exact scales.
 *
 * Where routes hang on it (tensor), positions choose experts. Each step begins with equal weights.
 */
#include "harness/mesh_cases.h"

#define FORCED "moe.forced_balance=true"

static const double SAME = 1e-5, TURNED = 2e-3, ROUNDED = 0.15, SHORT = 0.3;

typedef struct RecipeCase {
    double limit;
    ManyCase mesh;
} RecipeCase;

static const RecipeCase cases[] = {
    { SAME, { "dp 2, zero 2", 2, { MLA, BATCH, "mesh.zero=2", "fp8.recipe=tensor" } } },
    { SAME,
      { "dp 2, zero 3, recompute",
        2,
        { MLA, BATCH, "mesh.zero=3", "recompute.layers=[0,1,2,3]", "fp8.recipe=block" } } },
    { SAME,
      { "dp 2, zero 1, bf16 weight gradients",
        2,
        { GQA, BATCH, "mesh.zero=1", "fp8.recipe=tensor", "fp8.wgrad=bf16" } } },
    { SAME,
      { "pp 2, interleaved, hybrid",
        2,
        { MLA, BATCH, "mesh.pp=2", "mesh.vpp=2", "mesh.schedule=interleaved", "fp8.recipe=row",
          "fp8.format=hybrid" } } },
    { SAME,
      { "pp 2, zb1p, some layers",
        2,
        { GQA, BATCH, "mesh.pp=2", "mesh.schedule=zb1p", "fp8.recipe=tensor",
          "fp8.layers=[1,2]" } } },
    { SAME,
      { "dp 2, zero 3, 1 x 32",
        2,
        { MLA, BATCH, "mesh.zero=3", "fp8.recipe=mx", "fp8.format=e2m3" } } },
    { TURNED, { "ep 2, a pool", 2, { MLA, BATCH, POOLED, "mesh.ep=2", "fp8.recipe=block" } } },
    { TURNED,
      { "ep 2, direct", 2, { MLA, BATCH, WORST, "mesh.ep=2", DIRECT, "fp8.recipe=block" } } },
    { TURNED,
      { "ep 2, allgather, recompute",
        2,
        { GQA, BATCH, POOLED, "mesh.ep=2", "moe.exchange=allgather", "recompute.layers=[1,2]",
          "recompute.pieces=[exchange,norm,act]", "fp8.recipe=block" } } },
    { TURNED,
      { "ep 4, hier over 2 hosts",
        4,
        { GQA, BATCH, WORST, "mesh.ep=4", HIER, "mesh.ranks_per_host=2", "fp8.recipe=block" } } },
    { TURNED,
      { "pp 2, ep 2, 1f1b-overlap",
        4,
        { MLA, BATCH, POOLED, "mesh.pp=2", "mesh.vpp=2", "mesh.ep=2", "mesh.schedule=1f1b-overlap",
          "fp8.recipe=block" } } },
    { TURNED,
      { "ep 2, rows alone",
        2,
        { MLA, BATCH, WORST, "mesh.ep=2", "fp8.recipe=row", "fp8.wgrad=bf16" } } },
    { TURNED, { "cp 2, gqa", 2, { GQA, BATCH, "mesh.cp=2", "fp8.recipe=block" } } },
    { ROUNDED, { "ep 2, a pool", 2, { MLA, BATCH, POOLED, "mesh.ep=2", "fp8.recipe=row" } } },
    { ROUNDED, { "ep 2", 2, { GQA, BATCH, WORST, "mesh.ep=2", FORCED, "fp8.recipe=tensor" } } },
    { ROUNDED, { "cp 2, gqa", 2, { GQA, BATCH, "mesh.cp=2", "fp8.recipe=row" } } },
    { SHORT, { "cp 2, mla", 2, { MLA, BATCH, "mesh.cp=2", "fp8.recipe=block" } } },
};

enum { CASES = sizeof cases / sizeof *cases };

static void a_mesh_is_as_close_to_one_rank_as_its_recipe_lets_it_be(void **state)
{
    (void)state;
    int wrong = 0;
    for (int i = 0; i < CASES; i += MANY_EVERY) {
        const ManyCase *c = &cases[i].mesh;
        Many m = { .what = c, .steps = RUNS(3, 2), .limit = cases[i].limit, .afresh = 1 };
        int failed = -1;
        Status s = comm_threads(c->ranks, 60, many_run, &m, &failed);
        if (s != OK) print_error("%s, rank %d: %s\n", c->name, failed, status_message());
        wrong += s != OK;
    }
    CHECK_INT(wrong, 0);
}

/* The limits say something: with exact scales an expert parallel mesh is not as close. */
static void exact_scales_of_columns_depend_on_the_mesh(void **state)
{
    (void)state;
    ManyCase c = { "exact",
                   2,
                   { MLA, BATCH, WORST, "mesh.ep=2", "fp8.recipe=block", "fp8.scales=exact" } };
    Many m = { .what = &c, .steps = 1, .limit = TURNED };
    int failed = -1;
    CHECK(comm_threads(c.ranks, 60, many_run, &m, &failed) != OK);
    m.limit = ROUNDED;
    CHECK_OK(comm_threads(c.ranks, 60, many_run, &m, &failed));
}

/* In front of the CPU: the memory in which an exchange packs its rows holds 3.4e38 before. */
static Status dirty_run(Exec *ex, int level, const OpDesc *op, const void *args)
{
    char *workspace = ex->workspace;
    if (strcmp(op->name, "exchange_dispatch") == 0 && workspace != NULL)
        memset(workspace, 0x7F, (size_t)(ex->scratch->base + ex->scratch->used_bytes - workspace));
    return op_next(ex, level, op, args);
}

static const Decorator dirty = { .run = dirty_run };

/* Two engines on the same steps, one of them with dirty memory. */
static Status run_dirty(void *state, Comm *world)
{
    const ManyCase *c = state;
    ManyRank r[2] = { 0 };
    Status s = OK;
    for (int i = 0; s == OK && i < 2; i++) {
        StepResult result;
        s = many_open(&r[i], c, world);
        if (s == OK && i == 1) exec_push(&r[i].t.engine.ex, &dirty);
        for (int64_t k = 0; s == OK && k < 2; k++) s = many_step(&r[i], k, &result);
    }
    if (s == OK && !tiny_same_state(&r[0].t, &r[1].t))
        s = FAIL(ERR_NUMERIC, "what was in memory before a step changes it");
    for (int i = 0; i < 2; i++) many_close(&r[i]);
    return s;
}

/* Blocks of received rows have gaps, which hold what was in memory. */
static void gaps_between_received_rows_move_no_scale(void **state)
{
    (void)state;
    static const char *const recipes[] = { "fp8.recipe=tensor", "fp8.recipe=row",
                                           "fp8.recipe=block" };
    for (int i = 0; i < 3; i++) {
        ManyCase c = { "gaps",
                       2,
                       { MLA, BATCH, WORST, "mesh.ep=2", "moe.exchange=alltoall", recipes[i] } };
        int failed = -1;
        CHECK_OK(comm_threads(c.ranks, 60, run_dirty, &c, &failed));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_mesh_is_as_close_to_one_rank_as_its_recipe_lets_it_be),
        TEST(exact_scales_of_columns_depend_on_the_mesh),
        TEST(gaps_between_received_rows_move_no_scale),
    };
    return TEST_RUN(tests);
}
