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
    CHECK_OK(config_check_ops(&c, 4));
    CHECK_FAILS(config_check_ops(&c, 2), ERR_ARG,
                "mesh.pp=2 with mesh.ep=2 needs 4 ranks, not 2: start them with --ranks 4 (or "
                "mpirun -n 4)");
    CHECK_FAILS(config_check_ops(&c, 1), ERR_ARG,
                "mesh.pp=2 with mesh.ep=2 needs 4 ranks: add --ranks 4 (or mpirun -n 4)");
    const struct {
        int64_t pp, ep, etp, cp, tp, least;
    } meshes[] = { { 1, 1, 1, 1, 1, 1 },  { 1, 2, 1, 1, 1, 2 },  { 1, 4, 1, 2, 2, 4 },
                   { 1, 6, 1, 2, 2, 12 }, { 3, 2, 2, 1, 8, 24 }, { 2, 3, 2, 1, 1, 12 } };
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        c.mesh_pp = meshes[i].pp, c.mesh_ep = meshes[i].ep, c.mesh_etp = meshes[i].etp;
        c.mesh_cp = meshes[i].cp, c.mesh_tp = meshes[i].tp;
        CHECK_OK(config_check_ranks(&c, meshes[i].least));
        if (meshes[i].least > 1) CHECK_INT(config_check_ranks(&c, meshes[i].least - 1), ERR_ARG);
    }
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
