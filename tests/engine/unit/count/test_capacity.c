/* How much room for received rows there is: the most that fits, the least that a rank has, more after
 * steps that ran twice. */
#include "engine/comm/comm.h"
#include "engine/count/capacity.h"
#include "engine/train/train.h"
#include "harness/tiny.h"

/* Memory as a number: every notch of room takes some. */
typedef struct Memory {
    double most;
    int asked;
} Memory;

static double taken(const RowCapacity *r)
{
    return r->pool + (r->rows > 0 ? r->rows : 8) + (r->blocks > 0 ? r->blocks : 2) -
           0.25 * r->fetching;
}

static Status fits(void *self, const RowCapacity *room, bool *out)
{
    Memory *m = self;
    m->asked++;
    *out = taken(room) <= m->most;
    return OK;
}

static Config config_of(Arena *a, const char *setting)
{
    Config c;
    CHECK_OK(config_default(&c, a));
    if (setting != NULL) CHECK_OK(config_override(&c, a, setting));
    return c;
}

/* The room that takes the most of a little less memory each time. */
static void the_most_room_that_fits_is_taken(void **state)
{
    (void)state;
    Arena a = { 0 };
    CHECK_OK(arena_init(&a, "test", MEM_HOST, (size_t)1 << 30));
    Config c = config_of(&a, NULL);
    RowCapacity before = { 0 }, room, least = capacity_least(&c, 4);
    CHECK_NEAR(least.pool, 1.1, 0);
    for (double most = 13; most > 0; most -= 0.1) {
        Memory m = { .most = most };
        CHECK_OK(capacity_choose(&c, 4, fits, &m, &room));
        CHECK(m.asked <= 6);
        if (most > 12) {
            CHECK_NEAR(room.pool, 2, 0);
            CHECK_NEAR(room.rows + room.blocks, 0, 0);
            CHECK_INT(m.asked, 1);
        } else {
            CHECK(taken(&room) <= fmax(most, taken(&least)));
            CHECK(taken(&room) <= taken(&before));
            CHECK(capacity_same(&room, &before) || taken(&before) > most);
        }
        before = room;
    }
    CHECK(capacity_same(&before, &least));
    arena_free(&a);
}

static void what_is_set_is_not_chosen(void **state)
{
    (void)state;
    Arena a = { 0 };
    RowCapacity room;
    Memory none = { 0 };
    CHECK_OK(arena_init(&a, "test", MEM_HOST, (size_t)1 << 30));
    Config fixed = config_of(&a, "moe.pool_factor=1.7"), worst = config_of(&a, "moe.buffers=worst");
    CHECK_OK(capacity_choose(&fixed, 4, fits, &none, &room));
    CHECK_NEAR(room.pool, 1.7, 0);
    CHECK_NEAR(room.rows, 1.5, 0);
    none.asked = 0;
    CHECK_OK(capacity_choose(&fixed, 1, fits, &none, &room));
    CHECK_NEAR(room.pool, 0, 0);
    CHECK_OK(capacity_choose(&worst, 4, fits, &none, &room));
    CHECK_NEAR(room.pool, 0, 0);
    CHECK_INT(none.asked, 0);
    Config small = config_of(&a, "moe.buffer_factor=1.3");
    CHECK_OK(capacity_choose(&small, 4, fits, &none, &room));
    CHECK_NEAR(room.blocks, 1.25, 0);
    arena_free(&a);
}

static void more_room_is_the_next_larger_one_of_what_was_short(void **state)
{
    (void)state;
    Arena a = { 0 };
    Memory m = { .most = 100 };
    RowCapacity now = { .pool = 1.2, .rows = 2 }, out;
    CHECK_OK(arena_init(&a, "test", MEM_HOST, (size_t)1 << 30));
    Config c = config_of(&a, NULL);
    CHECK_OK(capacity_grow(&c, &now, (Shortage){ .rows = true }, fits, &m, &out));
    CHECK(capacity_same(&out, &(RowCapacity){ .pool = 1.35, .rows = 3 }));
    CHECK_OK(capacity_grow(&c, &now, (Shortage){ .blocks = true }, fits, &m, &out));
    CHECK(capacity_same(&out, &(RowCapacity){ .pool = 1.2, .rows = 2, .blocks = 3 }));
    now = (RowCapacity){ .pool = 2, .rows = 4 };
    CHECK_OK(capacity_grow(&c, &now, (Shortage){ .rows = true }, fits, &m, &out));
    CHECK(capacity_same(&out, &(RowCapacity){ .pool = 3 })); /* 0: all rows that can come */
    now = (RowCapacity){ .pool = 1.5 };
    m.most = taken(&(RowCapacity){ .pool = 1.75 }) - 0.3; /* two layers fetch their rows again */
    CHECK_OK(capacity_grow(&c, &now, (Shortage){ .rows = true }, fits, &m, &out));
    CHECK(capacity_same(&out, &(RowCapacity){ .pool = 1.75, .fetching = 2 }));
    c.model_dense_layers = c.model_layers - 1; /* there is one */
    CHECK_OK(capacity_grow(&c, &now, (Shortage){ .rows = true }, fits, &m, &out));
    CHECK(capacity_same(&out, &now));
    arena_free(&a);
}

typedef struct Agreed {
    RowCapacity room[2];
    size_t bytes[2], slots[2];
} Agreed;

/* Rank 1 has less memory. */
static Status agree(void *state, Comm *world)
{
    static const char *const set[] = { "mesh.ep=2", "train.micro_batch=1", NULL };
    Agreed *g = state;
    Tiny t = { 0 };
    MeshShape shape;
    TrainPlan p;
    TRY(tiny_config(&t, set));
    TRY(train_mesh(&t.config, 2, &shape));
    Mesh mesh = mesh_alone(&shape, world->rank);
    TRY(train_plan(&t.config, &mesh, 2, &p));
    p.shape.retry = &p.retry;
    if (world->rank == 1) p.shape.capacity = (RowCapacity){ .pool = 1.2, .rows = 2, .blocks = 1.5 };
    TRY(train_agree_capacity(&t.config, world, &p));
    g->room[world->rank] = p.shape.capacity;
    g->bytes[world->rank] = p.engine.pool_bytes;
    g->slots[world->rank] = p.engine.bytes[ENGINE_SLOT];
    arena_free(&t.arena);
    return OK;
}

static void all_ranks_take_the_least_room_of_one(void **state)
{
    (void)state;
    Agreed g = { 0 };
    int failed = -1;
    CHECK_OK(comm_threads(2, 60, agree, &g, &failed));
    CHECK(capacity_same(&g.room[0], &(RowCapacity){ .pool = 1.2, .rows = 2, .blocks = 1.5 }));
    CHECK(capacity_same(&g.room[0], &g.room[1]));
    /* 24 tokens x top-2 of 2 MoE layers, 40 columns of f32, x 1.2 */
    CHECK_INT(g.bytes[0], arena_rounded((size_t)ceil(24 * 2 * 2 * 1.2) * 40 * 4));
    CHECK(g.slots[0] < g.slots[1]); /* who keeps its room plans nothing again */
}

static CapacityUse use_of(ExchangeKind kind, int64_t ep, int64_t tokens, double layers,
                          double pools)
{
    return (CapacityUse){ kind, ep, tokens, layers, pools, .etp = 1 };
}

/* Fifty tokens of each of two ranks take one of four experts: 50 rows a rank with a variance of 25. Of the
 * tokens of one rank 25 go to a given one, with a variance of 12.5. */
static void the_chance_of_a_second_run_is_as_worked_out(void **state)
{
    (void)state;
    Arena a = { 0 };
    CHECK_OK(arena_init(&a, "test", MEM_HOST, (size_t)1 << 30));
    Config c = config_of(&a, "moe.experts=4");
    CHECK_OK(config_override(&c, &a, "moe.top_k=1"));
    CapacityUse one = use_of(EXCHANGE_ALLTOALL, 2, 50, 1, 1),
                four = use_of(EXCHANGE_ALLTOALL, 2, 50, 4, 3);
    CapacityUse direct = use_of(EXCHANGE_DIRECT, 2, 50, 1, 1);
    const double at_1 = 0.15865525393145707, at_2 = 0.022750131948179195;
    CapacityOutlook seen = capacity_outlook(&c, &(RowCapacity){ .pool = 1.1 }, &one);
    CHECK_NEAR(seen.rows, 50, 0);
    CHECK_NEAR(seen.retry_chance, at_1, 1e-12);
    CHECK_NEAR(capacity_outlook(&c, &(RowCapacity){ .pool = 2 }, &one).retry_chance, 0,
               0); /* all that can come */
    /* four layers: 220 of 200 with a deviation of 10, three times */
    CHECK_NEAR(capacity_outlook(&c, &(RowCapacity){ .pool = 1.1 }, &four).retry_chance, 3 * at_2,
               1e-12);
    /* buffers of each of them: 55 of 50; blocks, one from each rank: 30 of 25, 25 x sqrt 2 / 5 more */
    RowCapacity rows = { .pool = 2, .rows = 1.1 }, blocks = { .pool = 2, .blocks = 1.2 };
    CHECK_NEAR(capacity_outlook(&c, &rows, &four).retry_chance, 1, 0);
    CHECK_NEAR(capacity_outlook(&c, &rows, &one).retry_chance, at_1, 1e-12);
    CHECK_NEAR(capacity_outlook(&c, &blocks, &one).retry_chance, 2 * erfc(1) / 2, 1e-12);
    /* without gaps one buffer has all that come, 60 of 50 with a variance of 25 */
    CHECK_NEAR(capacity_outlook(&c, &blocks, &direct).retry_chance, at_2, 1e-12);
    /* two ranks share each expert: 100 of the tokens of all four come, with a variance of 50 */
    one.etp = direct.etp = 2;
    seen = capacity_outlook(&c, &(RowCapacity){ .pool = 1.1 }, &one);
    CHECK_NEAR(seen.rows, 100, 0);
    CHECK_NEAR(seen.retry_chance, erfc(1) / 2, 1e-12);
    CHECK_NEAR(capacity_outlook(&c, &blocks, &one).retry_chance, 4 * erfc(1) / 2, 1e-12);
    CHECK_NEAR(capacity_outlook(&c, &blocks, &direct).retry_chance, erfc(2) / 2, 1e-12);
    one.etp = 1;
    CHECK_OK(config_override(&c, &a, "plan.imbalance=1.2"));
    seen = capacity_outlook(&c, &(RowCapacity){ .pool = 1.1 }, &one);
    CHECK_NEAR(seen.rows, 60, 1e-12);
    CHECK_NEAR(seen.retry_chance, 1 - at_1, 1e-12);
    arena_free(&a);
}

/* Experts drawn one by one: how often the rows of one rank in two layers are more than its pool has. */
static bool drawn_beyond(int64_t draw, int tokens, double room)
{
    enum { EXPERTS = 16, TOP = 3, HERE = 4, RANKS = 4, LAYERS = 2 };
    int rows = 0;
    for (int t = 0; t < LAYERS * RANKS * tokens; t++) {
        unsigned taken = 0;
        for (int k = 0; k < TOP;) {
            uint64_t at = (((uint64_t)draw * 4096 + (uint64_t)t) * TOP + (uint64_t)k) * 64;
            uint64_t expert = 0;
            for (uint64_t i = at; i == at || taken >> expert & 1; i++)
                expert = rng_below(7, rng_stream("rows"), i, EXPERTS);
            taken |= 1U << expert;
            rows += expert < HERE;
            k++;
        }
    }
    return rows > room;
}

static void the_chance_is_what_drawing_gives(void **state)
{
    (void)state;
    enum { DRAWS = 16000, TOKENS = 32 };
    Arena a = { 0 };
    CHECK_OK(arena_init(&a, "test", MEM_HOST, (size_t)1 << 30));
    Config c = config_of(&a, "moe.experts=16");
    CHECK_OK(config_override(&c, &a, "moe.top_k=3"));
    CapacityUse use = use_of(EXCHANGE_DIRECT, 4, TOKENS, 2, 1);
    int beyond = 0;
    double room = 204.5; /* of 192, between two numbers of rows */
    for (int i = 0; i < DRAWS; i++) beyond += drawn_beyond(i, TOKENS, room);
    double told =
        capacity_outlook(&c, &(RowCapacity){ .pool = room / 192, .blocks = 4 }, &use).retry_chance;
    CHECK_NEAR((double)beyond / DRAWS, told, 0.008);
    CHECK(told > 0.1 && told < 0.2);
    arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_most_room_that_fits_is_taken),
        TEST(what_is_set_is_not_chosen),
        TEST(more_room_is_the_next_larger_one_of_what_was_short),
        TEST(all_ranks_take_the_least_room_of_one),
        TEST(the_chance_of_a_second_run_is_as_worked_out),
        TEST(the_chance_is_what_drawing_gives),
    };
    return TEST_RUN(tests);
}
