#include "engine/comm/mesh.h"
#include "harness/test.h"

/* Shapes of up to 24 ranks. */
static const MeshShape SHAPES[] = {
    { 1, 1, 1, 1, 1, 0, 1, 1, 1, false }, { 2, 1, 4, 2, 1, 0, 1, 1, 1, false },
    { 1, 2, 2, 4, 2, 0, 1, 1, 1, false }, { 3, 2, 2, 2, 2, 0, 1, 1, 1, false },
    { 2, 1, 3, 6, 2, 0, 1, 1, 1, false }, { 1, 1, 8, 8, 1, 0, 1, 1, 1, false },
    { 1, 1, 8, 8, 1, 2, 1, 1, 2, false }, { 2, 1, 3, 6, 2, 3, 1, 1, 2, false },
    { 1, 2, 8, 4, 1, 4, 1, 1, 2, false }, { 2, 1, 4, 4, 2, 1, 1, 1, 1, false },
    { 1, 1, 1, 1, 1, 0, 4, 2, 1, false }, { 2, 1, 3, 6, 2, 3, 2, 1, 2, false },
    { 1, 2, 2, 8, 2, 4, 2, 2, 2, false }, { 1, 3, 2, 1, 1, 0, 4, 4, 1, false },
};
enum { SHAPE_COUNT = sizeof SHAPES / sizeof *SHAPES, RANKS_MAX = 24 };

static void a_place_is_a_rank(void **state)
{
    (void)state;
    for (int i = 0; i < SHAPE_COUNT; i++) {
        const MeshShape *s = &SHAPES[i];
        for (int r = 0; r < mesh_ranks(s); r++) {
            MeshPlace p = mesh_place(s, r);
            const int sequence =
                ((p.stage * s->replicate + p.replica) * s->shard + p.shard) * s->cp;
            CHECK_INT((sequence + p.cp) * mesh_tp(s) + p.tp, r);
            CHECK_INT(p.expert_shard * s->ep + p.ep, p.inner);
        }
    }
}

static int group_size(const MeshShape *s, MeshGroup g)
{
    int tp = s->tp > 1 ? s->tp : 1, inner = s->shard * s->cp * tp;
    int inside = s->inside > 0 ? s->inside : s->ep;
    const int size[GROUP_MADE] = { [GROUP_WORLD] = mesh_ranks(s),
                                   [GROUP_STAGE] = s->replicate * inner,
                                   [GROUP_SHARD] = inner,
                                   [GROUP_SPLIT_SHARD] = s->shard * s->cp,
                                   [GROUP_TP] = tp,
                                   [GROUP_SEQUENCE] = s->cp * tp,
                                   [GROUP_KEYS] = s->keys > 1 ? s->keys : 1,
                                   [GROUP_EXPERT_SHARD] = inner / s->ep,
                                   [GROUP_REPLICA] = s->replicate,
                                   [GROUP_EP] = s->ep,
                                   [GROUP_EP_INSIDE] = inside,
                                   [GROUP_EP_ACROSS] = s->ep / inside,
                                   [GROUP_EXPERT_PARTS] = s->parts,
                                   [GROUP_CP] = s->cp,
                                   [GROUP_PP] = s->pp };
    return size[g];
}

/* Every rank is in one group of each kind, whose keys go from 0 on, in the order of ranks. */
static void groups_part_the_ranks(void **state)
{
    (void)state;
    for (int i = 0; i < SHAPE_COUNT * GROUP_MADE; i++) {
        const MeshShape *s = &SHAPES[i / GROUP_MADE];
        MeshGroup g = (MeshGroup)(i % GROUP_MADE);
        int members[RANKS_MAX] = { 0 };
        for (int r = 0; r < mesh_ranks(s); r++) {
            int color = -1, key = -1;
            mesh_color(s, g, r, &color, &key);
            CHECK(color >= 0 && color < mesh_ranks(s));
            CHECK_INT(key, members[color]++);
        }
        for (int c = 0; c < mesh_ranks(s) && members[c] > 0; c++) {
            CHECK_INT(members[c], group_size(s, g));
        }
    }
}

static bool with_rank_0(const MeshShape *s, MeshGroup g, int rank)
{
    int color, key, color_0;
    mesh_color(s, g, 0, &color_0, &key);
    mesh_color(s, g, rank, &color, &key);
    return color == color_0;
}

/* Sizes, and which kinds have the same members, are formulas; here ranks are compared one by one. */
static void groups_with_the_same_members_are_one(void **state)
{
    (void)state;
    for (int i = 0; i < SHAPE_COUNT * GROUP_MADE; i++) {
        const MeshShape *s = &SHAPES[i / GROUP_MADE];
        MeshGroup g = (MeshGroup)(i % GROUP_MADE), first = GROUP_WORLD;
        for (bool same = false; !same; first += !same) {
            same = true;
            for (int r = 0; r < mesh_ranks(s); r++)
                same &= with_rank_0(s, first, r) == with_rank_0(s, g, r);
        }
        CHECK_INT(mesh_group_size(s, g), group_size(s, g));
        CHECK_INT(mesh_first(s, g), first);
    }
}

/* Worked by hand: two stages of four ranks, two sequences' shards by two of context, two experts'
 * ranks: rank 5 is in stage 1, shard 0, context 1, expert rank 1, expert shard 0. */
static void an_example_is_as_worked_by_hand(void **state)
{
    (void)state;
    MeshShape s;
    int color, key;
    CHECK_OK(mesh_shape(8, 2, 2, 2, 1, 0, &s));
    CHECK_INT(s.shard, 2);
    CHECK_INT(s.replicate, 1);
    MeshPlace p = mesh_place(&s, 5);
    CHECK(p.stage == 1 && p.replica == 0 && p.shard == 0 && p.cp == 1);
    CHECK(p.inner == 1 && p.ep == 1 && p.expert_shard == 0);
    mesh_color(&s, GROUP_EXPERT_SHARD, 7, &color, &key);
    CHECK(color == 3 && key == 1);
    mesh_color(&s, GROUP_PP, 7, &color, &key);
    CHECK(color == 3 && key == 1);
}

/* One stage, two shards of two context ranks of two tensor ranks, experts over four: rank 6 is in shard 1,
 * context 1, tensor 0, and the third of its experts. */
static void tensor_ranks_are_neighbours(void **state)
{
    (void)state;
    MeshShape s;
    int color, key;
    CHECK_OK(mesh_shape(8, 1, 4, 2, 2, 0, &s));
    CHECK_INT(s.shard, 2);
    MeshPlace p = mesh_place(&s, 6);
    CHECK(p.shard == 1 && p.cp == 1 && p.tp == 0 && p.ep == 2 && p.expert_shard == 1);
    mesh_color(&s, GROUP_CP, 6, &color, &key);
    CHECK(color == 2 && key == 1);
    mesh_color(&s, GROUP_TP, 6, &color, &key);
    CHECK(color == 3 && key == 0);
    mesh_color(&s, GROUP_SPLIT_SHARD, 6, &color, &key);
    CHECK(color == 0 && key == 3);
    mesh_color(&s, GROUP_SEQUENCE, 6, &color, &key);
    CHECK(color == 1 && key == 2);
}

/* Two EP groups of six ranks, three on each host: rank 10 is in the second, the second of its
 * second host. */
static void a_group_of_experts_has_groups_inside_hosts_and_across(void **state)
{
    (void)state;
    const MeshShape s = { .pp = 1, .replicate = 1, .shard = 12, .ep = 6, .cp = 1, .inside = 3 };
    int color, key;
    mesh_color(&s, GROUP_EP_INSIDE, 10, &color, &key);
    CHECK(color == 3 && key == 1);
    mesh_color(&s, GROUP_EP_ACROSS, 10, &color, &key);
    CHECK(color == 4 && key == 1);
}

/* The same ranks, three to each expert. */
static void parts_of_an_expert_are_on_neighbours(void **state)
{
    (void)state;
    const MeshShape s = { .pp = 1, .replicate = 1, .shard = 12, .ep = 6, .cp = 1, .parts = 3 };
    int color, key;
    mesh_color(&s, GROUP_EXPERT_PARTS, 10, &color, &key);
    CHECK(color == 3 && key == 1);
    CHECK(mesh_exchanges(&s, GROUP_EXPERT_PARTS, true));
}

static void hosts_hold_as_many_ranks_of_each_group(void **state)
{
    (void)state;
    int inside = 0;
    const int fits[][3] = { { 8, 0, 8 }, { 8, 4, 4 }, { 8, 8, 8 }, { 4, 8, 4 }, { 6, 1, 1 } };
    for (size_t i = 0; i < sizeof fits / sizeof *fits; i++) {
        CHECK_OK(mesh_inside(fits[i][0], fits[i][1], &inside));
        CHECK_INT(inside, fits[i][2]);
    }
    CHECK_FAILS(
        mesh_inside(4, 3, &inside), ERR_ARG,
        "3 ranks on each host do not divide the 4 ranks of mesh.ep, nor are they a multiple "
        "of them: 1, 2 and 4 do, in mesh.ranks_per_host");
    CHECK_FAILS(mesh_inside(4, 6, &inside), ERR_ARG, "6 ranks on each host");
}

static void what_does_not_fit_says_what_would(void **state)
{
    (void)state;
    MeshShape s;
    CHECK_FAILS(mesh_shape(6, 4, 1, 1, 1, 0, &s), ERR_ARG,
                "6 ranks do not fit mesh.pp 4 x mesh.cp 1: 4 or 8 ranks would");
    CHECK_FAILS(mesh_shape(2, 2, 1, 2, 1, 0, &s), ERR_ARG,
                "2 ranks do not fit mesh.pp 2 x mesh.cp 2");
    CHECK_FAILS(mesh_shape(8, 2, 3, 1, 1, 0, &s), ERR_ARG,
                "mesh.ep x mesh.etp 3 does not divide the 4 ranks of a stage that share out "
                "(mesh.shard x mesh.cp); 1, 2 and 4 do");
    CHECK_FAILS(mesh_shape(8, 1, 1, 1, 1, 3, &s), ERR_ARG, "1, 2, 4 and 8 do");
    CHECK_FAILS(mesh_shape(8, 1, 2, 1, 1, 1, &s), ERR_ARG, "1 does");
    CHECK_FAILS(mesh_shape(8, 0, 1, 1, 1, 0, &s), ERR_ARG, "mesh.pp is 0, the least is 1");
    CHECK_FAILS(mesh_shape(6, 1, 1, 2, 2, 0, &s), ERR_ARG,
                "6 ranks do not fit mesh.pp 1 x mesh.cp 2 x mesh.tp 2: 4 or 8 ranks would");
    CHECK_FAILS(mesh_shape(8, 1, 3, 1, 2, 0, &s), ERR_ARG,
                "(mesh.shard x mesh.cp x mesh.tp); 1, 2, 4 and 8 do");
}

/* Ranks of tp send to each other only where they bring whole matrices together. */
static void groups_that_exchange_are_known(void **state)
{
    (void)state;
    MeshShape s;
    CHECK_OK(mesh_shape(4, 1, 1, 1, 2, 0, &s));
    CHECK(!mesh_exchanges(&s, GROUP_TP, false) && !mesh_exchanges(&s, GROUP_SHARD, false));
    CHECK(mesh_exchanges(&s, GROUP_EP, false) && !mesh_exchanges(&s, GROUP_EP, true));
    s.matrices = true;
    CHECK(mesh_exchanges(&s, GROUP_TP, true) && !mesh_exchanges(&s, GROUP_KEYS, true));
}

/* Each group adds up its members' ranks of the world. */
static Status add_ranks(void *state, Comm *world)
{
    const MeshShape *s = state;
    Arena a = { 0 };
    Mesh m = { 0 };
    TRY(arena_init(&a, "mesh", MEM_HOST, 1 << 20));
    TRY(mesh_make(world, s, false, &a, &m));
    for (MeshGroup g = 0; g < GROUP_MADE; g++) {
        int32_t sum = world->rank, want = 0;
        int color, key, other, place;
        mesh_color(s, g, world->rank, &color, &key);
        for (int r = 0; r < world->size; r++) {
            mesh_color(s, g, r, &other, &place);
            if (other == color) want += r;
        }
        TRY(comm_all_reduce(m.group[g], &(Tensor){ &sum, DTYPE_I32, 1, { 1 } }, REDUCE_SUM));
        if (sum != want || m.group[g]->rank != key || m.group[g]->size != group_size(s, g)) {
            return FAIL(ERR_NUMERIC, "rank %d, group %s: %d, want %d", world->rank,
                        mesh_group_names[g], sum, want);
        }
    }
    if (mesh_axis(&m, AXIS_EP) != m.group[GROUP_EP]) return FAIL(ERR_NUMERIC, "axis ep");
    mesh_free(&m);
    arena_free(&a);
    return OK;
}

static void groups_of_a_mesh_talk_among_themselves(void **state)
{
    (void)state;
    for (int i = 0; i < SHAPE_COUNT; i++) {
        int failed;
        MeshShape s = SHAPES[i];
        CHECK_OK(comm_threads(mesh_ranks(&s), 30, add_ranks, &s, &failed));
    }
}

static Status wrong_world(void *state, Comm *world)
{
    Mesh m;
    (void)state;
    return mesh_make(world, &SHAPES[1], false, NULL, &m);
}

static void a_mesh_is_as_large_as_its_world(void **state)
{
    (void)state;
    int failed;
    CHECK_FAILS(comm_threads(2, 30, wrong_world, NULL, &failed), ERR_ARG,
                "a mesh of 8 ranks over a world of 2");
}

static void a_mesh_without_peers_knows_its_place(void **state)
{
    (void)state;
    Mesh m = mesh_alone(&SHAPES[1], 5);
    CHECK_INT(m.ranks, 8);
    CHECK_INT(m.at.stage, 1);
    CHECK(m.group[GROUP_WORLD] == NULL);
}

static void the_table_names_axes_and_places(void **state)
{
    (void)state;
    Arena a = { 0 };
    Text t;
    CHECK_OK(arena_init(&a, "text", MEM_HOST, 1 << 20));
    CHECK_OK(text_init(&t, &a));
    CHECK_OK(mesh_print(&(MeshShape){ 2, 1, 2, 2, 2, 0, 1, 1, 1, false }, &t));
    CHECK(strstr(t.data, "pp             2       4  the layers, a stage a rank\n") != NULL);
    CHECK(strstr(t.data, "    5      1        0      0    1    0       1             0\n") != NULL);
    arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(groups_that_exchange_are_known),
        TEST(a_place_is_a_rank),
        TEST(groups_part_the_ranks),
        TEST(groups_with_the_same_members_are_one),
        TEST(an_example_is_as_worked_by_hand),
        TEST(tensor_ranks_are_neighbours),
        TEST(a_group_of_experts_has_groups_inside_hosts_and_across),
        TEST(parts_of_an_expert_are_on_neighbours),
        TEST(hosts_hold_as_many_ranks_of_each_group),
        TEST(what_does_not_fit_says_what_would),
        TEST(groups_of_a_mesh_talk_among_themselves),
        TEST(a_mesh_is_as_large_as_its_world),
        TEST(a_mesh_without_peers_knows_its_place),
        TEST(the_table_names_axes_and_places),
    };
    return TEST_RUN(tests);
}
