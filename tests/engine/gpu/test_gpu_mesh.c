/* The law of meshes on GPUs: as many ranks as there are GPUs, each on its own, have the gradients
 * and losses of one. */
#include "harness/gpu.h"
#include "harness/mesh_cases.h"

#include "kernels/core/libraries.h"

enum { FOUR_STEPS = RUNS(6, 2), BF16_STEPS = 3, ALIKE = 4 };

/* What bf16's roundings decide, so that gradients of two meshes differ by more: which one expert a
 * token of scored inputs takes (with all of them there is nothing to choose), which side of a clamp
 * a product falls on, which token a capacity drops. In f32 these meshes are compared, too. */
static bool roundings_decide(const ManyCase *c)
{
    return case_sets(c, "moe.score_input") || case_sets(c, "moe.activation=clamped") ||
           case_sets(c, "moe.capacity");
}

/* All cases that there are GPUs for, or those of them that set `only`. */
static void run_cases(const char *only, const char *const *also, int steps, double limit,
                      double cosine)
{
    int wrong = 0, ran = 0;
    if (!gpu_built() || gpu_devices() < 2) {
        printf("skip: needs two GPUs and a build with CUDA=1\n");
        skip();
    }
    for (int i = 0; i < MESH_CASES; i++) {
        const int most = mesh_cases[i].ranks > 2 && steps > FOUR_STEPS ? FOUR_STEPS : steps;
        Many m = { .what = &mesh_cases[i],
                   .steps = case_steps(&mesh_cases[i], most),
                   .limit = limit,
                   .cosine = cosine,
                   .also = also,
                   .alike = ALIKE };
        int failed = -1;
        if (mesh_cases[i].ranks > gpu_devices() || !case_sets(&mesh_cases[i], only)) continue;
        if (cosine > 0 && roundings_decide(&mesh_cases[i])) continue;
        Status s = comm_threads(mesh_cases[i].ranks, 60, many_run, &m, &failed);
        if (s != OK) print_error("%s, rank %d: %s\n", m.what->name, failed, status_message());
        wrong += s != OK;
        ran++;
    }
    print_message("%d meshes on %d GPUs\n", ran, gpu_devices());
    CHECK(ran > 0);
    CHECK_INT(wrong, 0);
}

/* Steps at a high learning rate let roundings grow, which differ by shape and so by mesh: in the ninth step of "pp 2,
 * ep 2, mtp 2, dualpipe" the router's z is 1.3e-5 apart. */
static void meshes_of_gpus_have_the_loss_of_one(void **state)
{
    (void)state;
    run_cases(NULL, TINY(ON_GPU), MANY_STEPS, 1e-5, 0);
}

static void so_they_have_launched_op_by_op(void **state)
{
    (void)state;
    run_cases(NULL, TINY(ON_GPU, "run.executor=eager"), 1, 1e-5, 0);
}

/* Momentum of whole matrices: their parts come together from the ranks that hold them. */
static void so_they_have_with_muon(void **state)
{
    (void)state;
    run_cases(NULL, TINY(ON_GPU, "optimizer.kind=muon"), 2, 1e-5, 0);
}

/* Pools that are too small make each step run again, by a graph of its own; with larger ones, between
 * two steps, none does. All have the bits of room for all. */
static Status grow(void *state, Comm *world)
{
    static const char *const small[] = { ON_GPU, "moe.pool_factor=0.3", NULL };
    static const char *const all[] = { ON_GPU, WORST, NULL };
    const RowCapacity large = { .pool = 4 };
    const ManyCase *c = state;
    ManyRank a = { .also = small, .device = world->rank }, b = { .also = all, .device = a.device };
    Status s = many_open(&a, c, world);
    if (s == OK) s = many_open(&b, c, world);
    for (int i = 0; i < 4 && s == OK; i++) {
        StepResult x, y;
        if (i == 2) s = many_resize(&a, &large);
        if (s == OK) s = many_step(&a, i, &x);
        if (s == OK) s = many_step(&b, i, &y);
        if (s == OK && x.retried != (i < 2))
            s = FAIL(ERR_NUMERIC, "step %d: again %d", i, x.retried);
        if (s == OK && (x.loss != y.loss || x.grad_norm != y.grad_norm))
            s = FAIL(ERR_NUMERIC, "step %d: loss %.9g, with room for all %.9g", i, x.loss, y.loss);
    }
    many_close(&b);
    many_close(&a);
    return s;
}

static void larger_pools_are_taken_between_two_steps(void **state)
{
    (void)state;
    static const ManyCase cases[] = {
        { "f32", 2, { MLA, BATCH, "mesh.ep=2" } },
        { "bf16", 2, { MLA, BATCH, "mesh.ep=2", "run.compute=bf16" } },
        { "eager", 2, { GQA, BATCH, "mesh.ep=2", "run.executor=eager", "moe.exchange=allgather" } },
        { "overlap",
          4,
          { MLA, BATCH, "mesh.ep=2", "mesh.pp=2", "mesh.vpp=2", "mesh.schedule=1f1b-overlap" } },
    };
    if (!gpu_built() || gpu_devices() < 2) skip();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ManyCase c = cases[i];
        int failed = -1;
        if (c.ranks > gpu_devices()) continue;
        if (comm_threads(c.ranks, 60, grow, &c, &failed) != OK)
            fail_msg("%s, rank %d: %s", c.name, failed, status_message());
    }
}

/* All experts are chosen: a rounding cannot change a route. */
static void in_bf16_gradients_point_the_same_way(void **state)
{
    (void)state;
    run_cases(NULL, TINY(ON_GPU, "run.compute=bf16", "moe.top_k=8"), BF16_STEPS, 2e-2, 0.999);
}

/* Heads and pieces of sequences that the kernel takes: with attention.kernel=hopper it fails if another
 * kernel would run, on the one rank and on those that share its sequences. */
static void context_ranks_attend_through_hopper(void **state)
{
    (void)state;
    GpuInfo info;
    if (!gpu_built() || gpu_devices() < 2 || gpu_info(0, &info) != OK || info.major != 9 ||
        op_vendor != VENDOR_NVIDIA || gpu_code_lacks() != NULL) {
        printf("skip: needs two Hopper GPUs and a build with CUDA=1\n");
        skip();
    }
    run_cases("mesh.cp=",
              TINY(ON_GPU, "run.compute=bf16", "moe.top_k=8", "attention.kernel=hopper",
                   "data.sequence=520", "attention.rope_dim=8", "attention.v_dim=16",
                   "attention.head_dim=16"),
              BF16_STEPS, 2e-2, 0.999);
}

/* A row has two scales. A last bit of a sum may turn a code, which is as much as a rounding to bf16:
 * see tests/engine/mesh/test_recipe. */
#define EXPERTS_8_BIT                                                                              \
    GQA, BATCH, "mesh.ep=2", "model.hidden=256", "moe.ffn=128", "data.sequence=32",                \
        "fp8.recipe=block", "fp8.products=grouped"

static void experts_read_8_bit_rows_of_other_gpus(void **state)
{
    (void)state;
    static const ManyCase cases[] = {
        { "alltoall", 2, { EXPERTS_8_BIT, POOLED, "moe.exchange=alltoall" } },
        { "direct, hybrid", 2, { EXPERTS_8_BIT, WORST, DIRECT, "fp8.format=hybrid" } },
        { "allgather, bf16 weight gradients",
          2,
          { EXPERTS_8_BIT, WORST, "moe.exchange=allgather", "fp8.wgrad=bf16",
            "moe.expert_bias=true" } },
        { "hier over 2 hosts",
          2,
          { EXPERTS_8_BIT, WORST, HIER, "mesh.ranks_per_host=1", "recompute.layers=[0,1,2,3]" } },
        { "the head, too",
          2,
          { EXPERTS_8_BIT, WORST, "fp8.head=true", "model.vocab=128", "model.loss_chunk=128" } },
    };
    int wrong = 0;
    if (!gpu_built() || gpu_devices() < 2) skip();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Many m = {
            .what = &cases[i], .steps = 1, .limit = 2e-2, .cosine = 0.999, .also = TINY(ON_GPU)
        };
        int failed = -1;
        Status s = comm_threads(2, 60, many_run, &m, &failed);
        if (s != OK) print_error("%s, rank %d: %s\n", cases[i].name, failed, status_message());
        wrong += s != OK;
    }
    CHECK_INT(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(meshes_of_gpus_have_the_loss_of_one),
        TEST(so_they_have_launched_op_by_op),
        TEST(so_they_have_with_muon),
        TEST(larger_pools_are_taken_between_two_steps),
        TEST(in_bf16_gradients_point_the_same_way),
        TEST(context_ranks_attend_through_hopper),
        TEST(experts_read_8_bit_rows_of_other_gpus),
    };
    return TEST_RUN(tests);
}
