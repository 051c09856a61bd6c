/* Settings of a mesh: what does not fit each other, and how many ranks it wants. */
#include "harness/arena.h"

#include "engine/config/config.h"

static void experts_that_ranks_cannot_share_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *overrides[2], *part;
    } cases[] = {
        { { "mesh.etp=7" }, "mesh.etp 7 does not divide moe.ffn" },
        { { "mesh.etp=2", "model.dense_layers=6" }, "mesh.etp 2 shares experts over ranks, and" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Config c;
        int n = 1 + (cases[i].overrides[1] != NULL);
        CHECK_FAILS(config_load(&c, &arena, NULL, cases[i].overrides, n), ERR_ARG, cases[i].part);
    }
}

static void a_mesh_wants_its_ranks(void **state)
{
    (void)state;
    const char *stages[] = { "mesh.pp=2", "mesh.ep=2" };
    Config c;
    CHECK_OK(config_load(&c, &arena, NULL, stages, 2));
    CHECK_OK(config_check_ops(&c, 2));
    CHECK_FAILS(config_check_ops(&c, 1), ERR_UNSUPPORTED,
                "mesh.pp is 2, ranks are 1: start 2 with --ranks 2 or mpirun");
    config_alone(&c);
    CHECK_OK(config_check_ops(&c, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(experts_that_ranks_cannot_share_are_refused),
        TEST(a_mesh_wants_its_ranks),
    };
    return ARENA_RUN(tests);
}
