/* What a step that runs again takes: room for all rows, and little else. */
#include "harness/arena.h"

#include "engine/step/engine.h"

static Config config_of(const char *const *settings)
{
    static const char *const base[] = { "model.vocab=61", "model.hidden=32",    "model.layers=4",
                                        "moe.experts=8",  "moe.ffn=20",         "data.sequence=24",
                                        "mesh.ep=4",      "moe.buffers=pooled", "run.device=cpu",
                                        "train.batch=4",  "train.micro_batch=1" };
    Config c;
    CHECK_OK(config_default(&c, &arena));
    for (size_t i = 0; i < sizeof base / sizeof *base; i++) {
        CHECK_OK(config_override(&c, &arena, base[i]));
    }
    for (; *settings != NULL; settings++) CHECK_OK(config_override(&c, &arena, *settings));
    CHECK_OK(config_check(&c));
    return c;
}

typedef struct Plans {
    EngineShape shape;
    EnginePlan first, again;
    size_t alone; /* what the first way takes by itself */
} Plans;

static size_t work_bytes(const EnginePlan *p)
{
    return p->bytes[ENGINE_SLOT] + p->bytes[ENGINE_RING] + p->bytes[ENGINE_SCRATCH];
}

static void plans_of(const char *const *settings, Plans *p)
{
    static Mesh mesh;
    MeshShape shape;
    Config c = config_of(settings);
    CHECK_OK(mesh_shape(4, 1, 4, 1, 1, 4, &shape));
    mesh = mesh_alone(&shape, 0);
    const RowCapacity room = p->shape.capacity;
    p->shape = (EngineShape){ .batch = 1,
                              .micro_batch = 1,
                              .sequence = 24,
                              .positions = 24,
                              .domains = 1,
                              .threads = 1,
                              .capacity = room,
                              .mesh = &mesh };
    CHECK_OK(engine_plan(&c, ENGINE_TRAIN, &p->shape, &p->first));
    p->alone = work_bytes(&p->first);
    CHECK_OK(engine_plan_retry(&c, &p->shape, &p->first, &p->again));
}
#define PLANS(out, ...) plans_of((const char *const[]){ __VA_ARGS__, NULL }, (out))

/* Layers that go forward again in the first way, too: all rows take more than its room did. */
static void the_first_way_has_memory_for_the_second(void **state)
{
    (void)state;
    static const double rows[] = { 1, 1.6, 0 };
    for (int i = 0; i < 3; i++) {
        Plans p = { .shape.capacity = { .rows = rows[i] } };
        PLANS(&p, "moe.buffer_factor=4", "model.layers=1", "moe.top_k=4", "moe.ffn=400",
              "model.loss_chunk=16", "model.dense_layers=0", "recompute.layers=[0]");
        CHECK(p.shape.retry == &p.again);
        CHECK_INT(work_bytes(&p.first), work_bytes(&p.again));
        CHECK((p.alone < work_bytes(&p.again)) == (i < 2));
        PLANS(&p, "model.layers=4", "moe.top_k=4", "moe.ffn=400");
        CHECK(work_bytes(&p.first) > work_bytes(&p.again));
    }
}

/* It keeps what a run keeps whose layers all go forward again, with room for every row. */
static void the_second_way_keeps_as_little_as_it_can(void **state)
{
    (void)state;
    Plans pooled = { 0 }, worst = { 0 };
    PLANS(&pooled, "moe.top_k=4");
    PLANS(&worst, "moe.top_k=4", "moe.buffers=worst", "recompute.layers=[0, 1, 2, 3]",
          "recompute.pieces=[layer, exchange]");
    CHECK_INT(work_bytes(&pooled.again), work_bytes(&worst.first));
    CHECK(work_bytes(&pooled.again) < work_bytes(&pooled.first));
}

static void rows_that_have_room_need_no_second_way(void **state)
{
    (void)state;
    Plans p = { 0 };
    PLANS(&p, "moe.buffers=worst");
    CHECK(p.shape.retry == NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_first_way_has_memory_for_the_second),
        TEST(the_second_way_keeps_as_little_as_it_can),
        TEST(rows_that_have_room_need_no_second_way),
    };
    return ARENA_RUN(tests);
}
