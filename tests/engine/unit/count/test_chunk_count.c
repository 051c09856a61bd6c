/* chunk_count: layers counted alone add up to every arena that the counting run finds, whatever the
 * model, the mesh, the schedule and what is recomputed. */
#include "harness/draw_model.h"

#include "engine/count/chunk_count.h"
#include "engine/step/engine.h"
#include "engine/step/slots.h"

enum {
    CASES = RUNS(400, 150),
    SETTINGS = 24,
    BLOCKS = 9,
    DEPTHS = 2,
    LAYERS = 2 * BLOCKS + 3 * DEPTHS + 2
};

static Arena arena;
static Draws drawn = { .seed = 11, .stream = "cases" };

typedef struct Case {
    Config config;
    ModelSpec spec;
    EngineShape shape;
    LayerCount count[LAYERS];
} Case;

static void draw_model(Case *c)
{
    static const char *const pieces[] = { "[layer]", "[norm]", "[attn_up, act]",
                                          "[norm, attn_up, act, shared]" };
    int blocks = draw_int(&drawn, 1, BLOCKS), tp = 1 << draw_int(&drawn, 0, 1);
    set_row(&c->config, &arena, "mesh.tp=%d", tp);
    set_row(&c->config, &arena, "model.vocab=%d", tp * draw_int(&drawn, 5, 90));
    set_row(&c->config, &arena, "model.hidden=%d", draw_int(&drawn, 1, 70));
    set_row(&c->config, &arena, "model.layers=%d", blocks);
    set_row(&c->config, &arena, "model.dense_layers=%d", draw_int(&drawn, 0, blocks));
    set_row(&c->config, &arena, "model.ffn=%d", tp * draw_int(&drawn, 1, 90));
    set_row(&c->config, &arena, "model.tied=%s", draw_int(&drawn, 0, 1) ? "true" : "false");
    set_row(&c->config, &arena, "attention.kind=%s", draw_int(&drawn, 0, 1) ? "mla" : "gqa");
    set_row(&c->config, &arena, "attention.heads=%d", 2 * draw_int(&drawn, 1, 3));
    set_row(&c->config, &arena, "attention.kv_heads=%d", draw_int(&drawn, 1, 2));
    set_row(&c->config, &arena, "attention.q_rank=%d",
            draw_int(&drawn, 0, 1) * draw_int(&drawn, 1, 20));
    set_row(&c->config, &arena, "moe.experts=4");
    set_row(&c->config, &arena, "mesh.ep=%d", 1 << draw_int(&drawn, 0, 2));
    set_row(&c->config, &arena, "moe.pool_factor=%d", draw_int(&drawn, 0, 3));
    set_row(&c->config, &arena, "moe.ffn=%d", draw_int(&drawn, 1, 40));
    set_row(&c->config, &arena, "moe.shared=%d", draw_int(&drawn, 0, 2));
    set_row(&c->config, &arena, "run.compute=%s", draw_int(&drawn, 0, 1) ? "f32" : "bf16");
    set_row(&c->config, &arena, "data.sequence=%d", tp * draw_int(&drawn, 2, 40));
    set_row(&c->config, &arena, "recompute.pieces=%s", pieces[draw_int(&drawn, 0, 3)]);
    set_row(&c->config, &arena, "recompute.layers=[%d, %d]", draw_int(&drawn, 0, blocks - 1),
            draw_int(&drawn, 0, blocks - 1));
    set_row(&c->config, &arena, "run.device=cpu");
    set_row(&c->config, &arena, "mtp.layers=%d", draw_int(&drawn, 0, DEPTHS));
    if (draw_int(&drawn, 0, 2) > 0) return;
    set_row(&c->config, &arena, "delta.full_every=%d", draw_int(&drawn, 2, 4));
    set_row(&c->config, &arena, "delta.key_dim=%d", draw_int(&drawn, 1, 9));
    if (draw_int(&drawn, 0, 1) == 0) return;
    set_row(&c->config, &arena, "mesh.cp=2");
    set_row(&c->config, &arena, "data.sequence=%d", 4 * tp * draw_int(&drawn, 3, 10));
}

static const ScheduleDesc *draw_mesh(Case *c)
{
    const ScheduleDesc *d = &schedule_table[draw_int(&drawn, 0, schedule_table_n - 1)];
    int micro = draw_int(&drawn, 1, 2);
    set_row(&c->config, &arena, "mesh.schedule=%s", d->name);
    set_row(&c->config, &arena, "mesh.pp=%d", draw_int(&drawn, 1, 4));
    set_row(&c->config, &arena, "mesh.vpp=%d", draw_int(&drawn, 1, 3));
    set_row(&c->config, &arena, "train.micro_batch=%d", micro);
    set_row(&c->config, &arena, "train.batch=%d", micro * draw_int(&drawn, 1, 12));
    return d;
}

static unsigned passes_over(const Program *p, int chunk)
{
    unsigned set_of = 0;
    for (int i = 0; i < p->n; i++) {
        const Action *a = &p->at[i];
        if (a->chunk != chunk) continue;
        if (a->kind == ACTION_BACKWARD) set_of |= CHUNK_WHOLE;
        if (a->kind == ACTION_BACKWARD_INPUT) set_of |= a->apart ? CHUNK_SPLIT : CHUNK_PHASED;
    }
    return set_of;
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

/* Blocks evenly over the stages, the first ones take the remainder. */
static LayerRange layers_of(const Case *c, int stage, int stages)
{
    int blocks = (int)c->spec.blocks, each = blocks / stages, more = blocks % stages;
    return chunk_layers(&c->spec,
                        &(LayoutStage){ .first = stage * each + (stage < more ? stage : more),
                                        .layers = each + (stage < more),
                                        .embedding = stage == 0,
                                        .loss = stage + 1 == stages });
}

static void check_rank(const Case *c, const Program *p, const EnginePlan *plan)
{
    int stages = hop_count(p);
    EnginePlan sum = { 0 };
    SlotSizes slots;
    for (int k = 0; k < p->chunks; k++) {
        const LayerCount *layer[LAYERS];
        LayerRange range = layers_of(c, hop_of(p, k, k), stages);
        for (int i = range.first; i < range.end; i++) layer[i - range.first] = &c->count[i];
        ChunkBytes b =
            chunk_count(layer, range.end - range.first, passes_over(p, k), c->spec.capacity.pool);
        for (int part = 0; part < SLOT_PARTS; part++) {
            CHECK_INT(b.slot[part], plan->chunk_bytes[part][k]);
            sum.chunk_bytes[part][k] = b.slot[part];
        }
        bool split = (passes_over(p, k) & CHUNK_SPLIT) != 0;
        CHECK_INT(split ? b.split_keep : 0, plan->split_keep[k]);
        sum.split_keep[k] = b.split_keep;
        for (int i = 0; i < RINGS; i++) sum.ring_bytes[i] = larger(sum.ring_bytes[i], b.ring[i]);
        if (hop_of(p, k, 0) >= 0) sum.eval_bytes = larger(sum.eval_bytes, b.eval);
        sum.bytes[ENGINE_SCRATCH] = larger(sum.bytes[ENGINE_SCRATCH], b.scratch);
    }
    CHECK_INT(sum.eval_bytes, plan->eval_bytes);
    sum.bytes[ENGINE_SCRATCH] += engine_header_bytes(&c->spec);
    CHECK_INT(sum.bytes[ENGINE_SCRATCH], plan->bytes[ENGINE_SCRATCH]);
    size_t ring = (size_t)p->entries * c->count[0].stream, slot = 0;
    for (int i = 0; i < RINGS; i++) {
        CHECK_INT(sum.ring_bytes[i], plan->ring_bytes[i]);
        ring += sum.ring_bytes[i];
    }
    CHECK_INT(ring, plan->bytes[ENGINE_RING]);
    CHECK_OK(slot_sizes(p, &sum, &arena, &slots));
    for (int part = 0; part < SLOT_PARTS; part++) {
        for (int i = 0; i < slots.n[part]; i++) slot += slots.bytes[part][i];
    }
    CHECK_INT(slot, plan->bytes[ENGINE_SLOT]);
}

/* Programs as the engine makes them; false if the schedule does not take the mesh. */
static bool programs(const Case *c, const ScheduleDesc *d, Arena *scratch, Pipeline *out)
{
    const Config *o = &c->config;
    int stages = (int)(o->mesh_pp * (d->placement == PLACE_BOTH ? 1 : o->mesh_vpp));
    ScheduleShape s = {
        (int)o->mesh_pp, (int)o->mesh_vpp, (int)(o->train_batch / o->train_micro_batch), 1, 1, 1,
        .blocks = 0
    };
    if (stages > o->model_layers) return false;
    s.blocks = (int)(o->model_layers + stages - 1) / stages;
    return schedule_make(d, &s, &arena, scratch, out) == OK;
}

static void layers_add_up_to_every_arena(void **state)
{
    (void)state;
    Arena scratch;
    int by_schedule[32] = { 0 }, n = 0;
    CHECK_OK(arena_init(&arena, "test", MEM_HOST, (size_t)1 << 32));
    CHECK_OK(arena_init(&scratch, "scratch", MEM_HOST, (size_t)1 << 32));
    while (n < CASES) {
        Case c = { 0 };
        Pipeline p;
        arena_release(&arena, (ArenaMark){ 0 });
        CHECK_OK(config_default(&c.config, &arena));
        draw_model(&c);
        const ScheduleDesc *d = draw_mesh(&c);
        if (!programs(&c, d, &scratch, &p)) continue;
        CHECK_OK(config_check(&c.config));
        CHECK_OK(spec_build(&c.config, &arena, &c.spec));
        const Config *o = &c.config;
        c.shape = (EngineShape){ .batch = o->train_batch,
                                 .micro_batch = o->train_micro_batch,
                                 .sequence = o->data_sequence / o->mesh_cp,
                                 .positions = o->data_sequence,
                                 .domains = 1,
                                 .threads = 1 };
        for (int i = 0; i < c.spec.n_layers; i++) {
            CHECK_OK(layer_count(&c.spec, i, o->train_micro_batch, c.shape.sequence, NULL, &scratch,
                                 &c.count[i]));
        }
        for (int r = 0; r < p.stages; r++) {
            EnginePlan plan;
            c.shape.pp_rank = r;
            CHECK_OK(engine_plan(o, ENGINE_TRAIN, &c.shape, &plan));
            check_rank(&c, &p.rank[r], &plan);
        }
        by_schedule[d - schedule_table]++;
        n++;
    }
    for (int i = 0; i < schedule_table_n; i++) CHECK(by_schedule[i] > RUNS(5, 1));
    arena_free(&scratch);
    arena_free(&arena);
}

/* The comm lane begins with the rows of layer i - 1 while weight gradients read the ring of layer i. */
static void layers_over_ranks_of_tp_take_turns_in_two_rings(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        CHECK_INT(backward_ring(false, i), RING_FORWARD);
        CHECK_INT(backward_ring(true, i), i % 2 == 0 ? RING_FORWARD : RING_BACKWARD);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { TEST(layers_add_up_to_every_arena),
                                        TEST(layers_over_ranks_of_tp_take_turns_in_two_rings) };
    return TEST_RUN(tests);
}
