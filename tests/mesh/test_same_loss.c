/* The law of meshes: however many ranks share the work, gradients, losses and loads are those of
 * one rank. */
#include "harness/many.h"

#define DENSE "model.dense_layers=3"
#define MLA   "moe.experts=8"
#define GQA   "moe.experts=8", "attention.kind=gqa"
#define BATCH "train.batch=8", "train.micro_batch=1"

static const ManyCase cases[] = {
    { "dp 2", 2, { MLA, BATCH, "mesh.zero=0" } },
    { "dp 2, zero 1", 2, { MLA, BATCH, "mesh.zero=1" } },
    { "dp 2, zero 2", 2, { MLA, BATCH, "mesh.zero=2" } },
    { "dp 2, zero 3", 2, { MLA, BATCH, "mesh.zero=3" } },
    { "dp 4, zero 3", 4, { GQA, BATCH, "mesh.zero=3" } },
    { "dp 4, zero 1, shard 2", 4, { DENSE, BATCH, "mesh.zero=1", "mesh.shard=2" } },
    { "dp 4, zero 2, shard 2", 4, { MLA, BATCH, "mesh.zero=2", "mesh.shard=2" } },
    { "dp 8, zero 3, shard 4", 8, { GQA, BATCH, "mesh.zero=3", "mesh.shard=4" } },
};

static void every_mesh_has_the_loss_of_one_rank(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Many m = { &cases[i], MANY_STEPS, 1e-5 };
        int failed = -1;
        Status s = comm_threads(cases[i].ranks, 60, many_run, &m, &failed);
        if (s != OK) print_error("%s, rank %d:\n", cases[i].name, failed);
        CHECK_OK(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_mesh_has_the_loss_of_one_rank),
    };
    return TEST_RUN(tests);
}
