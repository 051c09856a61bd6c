/* The law of meshes: however many ranks share the work, gradients, losses and loads are those of
 * one rank. */
#include "harness/mesh_cases.h"

static void every_mesh_has_the_loss_of_one_rank(void **state)
{
    (void)state;
    int wrong = 0;
    for (int i = 0; i < MESH_CASES; i++) {
        Many m = { .what = &mesh_cases[i], .steps = MANY_STEPS, .limit = 1e-5 };
        int failed = -1;
        Status s = comm_threads(mesh_cases[i].ranks, 60, many_run, &m, &failed);
        if (s != OK) print_error("%s, rank %d: %s\n", mesh_cases[i].name, failed, status_message());
        wrong += s != OK;
    }
    CHECK_INT(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_mesh_has_the_loss_of_one_rank),
    };
    return TEST_RUN(tests);
}
