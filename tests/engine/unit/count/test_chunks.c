/* The rows of real layers, phase by phase: what schedules are told of them. */
#include "harness/arena.h"

#include "engine/base/text.h"
#include "engine/config/config.h"
#include "engine/count/chunks.h"

/* A row as text: each phase as its layer of the model, its name, and marks: * on the comm lane, ! on
 * the compute lane and meets, & beside the phase before it, + adds to gradients, ^ again, $ the last
 * of its layer, =n reads the weights of layer n, @n in place n, #n part n of its block. */
static void add_phase(Text *t, const ChunkPhase *x)
{
    CHECK_OK(text_printf(t, "%s%d.%s", t->used > 0 ? " " : "", x->own, x->name));
    if (x->lane == LANE_COMM) CHECK_OK(text_printf(t, "*"));
    if (x->communicates) CHECK_OK(text_printf(t, "!"));
    if (x->overlap_ok) CHECK_OK(text_printf(t, "&"));
    if (x->gradients) CHECK_OK(text_printf(t, "+"));
    if (x->recompute) CHECK_OK(text_printf(t, "^"));
    if (x->ends) CHECK_OK(text_printf(t, "$"));
    if (x->weights != x->own) CHECK_OK(text_printf(t, "=%d", x->weights));
    if (x->half >= 0) CHECK_OK(text_printf(t, "@%d", x->half));
    if (x->part > 0) CHECK_OK(text_printf(t, "#%d", x->part));
}

static void row_is(const Chunk *c, int row, const char *want)
{
    Text t;
    CHECK_OK(text_init(&t, &arena));
    for (int i = 0; i < c->row[row].n; i++) add_phase(&t, &c->row[row].at[i]);
    CHECK_TEXT(t.data, want);
}

static ModelSpec spec_of(const char *const *settings)
{
    static const char *const base[] = { "model.layers=4", "model.dense_layers=1", "moe.shared=1",
                                        "recompute.layers=[]" };
    Config c;
    ModelSpec s;
    arena_release(&arena, (ArenaMark){ 0 });
    CHECK_OK(config_default(&c, &arena));
    for (size_t i = 0; i < sizeof base / sizeof *base; i++) {
        CHECK_OK(config_override(&c, &arena, base[i]));
    }
    for (; *settings != NULL; settings++) CHECK_OK(config_override(&c, &arena, *settings));
    CHECK_OK(config_check(&c));
    CHECK_OK(spec_build(&c, &arena, &s));
    return s;
}
#define SPEC(...) spec_of((const char *const[]){ __VA_ARGS__, NULL })

static Chunk chunk_of(const ModelSpec *s, int first, int end, ScheduleShards shards)
{
    Chunk c;
    CHECK_OK(chunk_build(s, (LayerRange){ first, end }, &shards, &arena, &c));
    return c;
}

/* Alone everything computes. The tied head reads the embedding's table, and adds to its gradients. */
static void a_lone_rank_has_one_lane(void **state)
{
    (void)state;
    ModelSpec s = SPEC("model.layers=2", "model.tied=true", "attention.kind=mla");
    Chunk c = chunk_of(&s, 0, 6, (ScheduleShards){ 0 });
    row_is(&c, ROW_FORWARD,
           "0.embed 1.qkv 1.kv_gather 1.core 2.mlp#2 3.qkv 3.kv_gather 3.core "
           "4.route 4.dispatch#1 4.shared#2 4.experts#2 4.combine#3 5.head+=0#3");
    row_is(&c, ROW_BACKWARD,
           "5.head$=0#3 4.combine#3 4.shared#2 4.experts#2 4.dispatch#1 4.route$ "
           "3.core 3.kv_gather 3.qkv$ 2.mlp$#2 1.core 1.kv_gather 1.qkv$ 0.embed$");
    CHECK_INT(c.blocks, 2);
    for (int row = 0; row < CHUNK_ROWS; row++) {
        for (int i = 0; i < c.row[row].n; i++) {
            const ChunkPhase *x = &c.row[row].at[i];
            CHECK_INT(x->layer, x->own);
            CHECK_INT(x->block, x->own > 2);
        }
    }
}

/* What talks to others is on its lane, or meets: gathers of keys and values (of gqa in the
 * attention's own phase), exchanges of tokens with the shared experts beside them. Over context ranks
 * the core of attention adds to gradients while it goes back, before weights have their turn. */
static void ranks_meet_on_their_lanes(void **state)
{
    (void)state;
    ModelSpec s = SPEC("attention.kind=gqa");
    s.ranks.ep = s.ranks.cp = 2;
    Chunk c = chunk_of(&s, 0, 5, (ScheduleShards){ .weights = true });
    row_is(&c, ROW_FORWARD,
           "0.embed@0 1.qkv@1 1.kv_gather@1 1.core!@1 2.mlp@0#2 3.qkv@1 3.kv_gather@1 3.core!@1 "
           "4.route@0 4.dispatch*#1 4.shared&@0#2 4.experts@0#2 4.combine*#3");
    row_is(&c, ROW_BACKWARD,
           "4.combine*#3 4.shared&@0#2 4.experts@0#2 4.dispatch*#1 4.route$@0 "
           "3.core!+@1 3.kv_gather@1 3.qkv$@1 2.mlp$@0#2 1.core!+@1 1.kv_gather@1 "
           "1.qkv$@1 0.embed$@0");
}

/* The forward of a layer that is computed again belongs to the part in which its backward opens. */
static void a_layer_goes_forward_again_before_it_goes_back(void **state)
{
    (void)state;
    ModelSpec s = SPEC("attention.kind=mla", "model.tied=true", "recompute.layers=[3]");
    s.ranks.ep = s.ranks.cp = 2;
    Chunk c = chunk_of(&s, 7, 10, (ScheduleShards){ .gradients = true });
    CHECK_INT(c.row[ROW_FORWARD].at[0].layer, 0);
    CHECK_INT(c.row[ROW_BACKWARD].at[0].layer, 2);
    CHECK_INT(c.blocks, 1);
    row_is(&c, ROW_FORWARD,
           "7.qkv@1 7.kv_gather* 7.core@1 8.route@0 8.dispatch*#1 8.shared&@0#2 "
           "8.experts@0#2 8.combine*#3 9.head+=0@0#3");
    row_is(&c, ROW_BACKWARD,
           "9.head$=0@0#3 8.route^@0#3 8.dispatch*^#3 8.shared&^@0#3 8.experts^@0#3 "
           "8.combine*^#3 8.combine*#3 8.shared&@0#2 8.experts@0#2 8.dispatch*#1 "
           "8.route$@0 7.qkv^@1 7.kv_gather*^ 7.core^@1 7.core+@1 7.kv_gather* 7.qkv$@1");
}

/* The routed tokens' norm is made again where the shared experts would begin. */
static void norms_made_again_wait_for_the_exchange(void **state)
{
    (void)state;
    ModelSpec s = SPEC("recompute.layers=[3]", "recompute.pieces=[norm]");
    s.ranks.ep = 2;
    Chunk c = chunk_of(&s, 8, 10, (ScheduleShards){ .reduce = true });
    row_is(&c, ROW_FORWARD, "8.route 8.dispatch*#1 8.shared&#2 8.experts#2 8.combine*#3 9.head+#3");
    row_is(&c, ROW_BACKWARD,
           "9.head$#3 8.combine*#3 8.shared#2 8.experts#2 8.dispatch*#1 8.route$");
}

/* What is summed or compared meets in forward alone, and not when that runs again: counts of the
 * auxiliary loss, and what a capacity compares. */
static void counts_meet_once(void **state)
{
    (void)state;
    ModelSpec s = SPEC("moe.aux_scope=global", "recompute.layers=[3]");
    s.ranks.stage = 2;
    Chunk c = chunk_of(&s, 8, 9, (ScheduleShards){ .reduce = true });
    row_is(&c, ROW_FORWARD, "8.route 8.dispatch*#1 8.shared&#2 8.experts#2 8.combine#3");
    row_is(&c, ROW_BACKWARD,
           "8.route^#3 8.dispatch^#3 8.shared^#3 8.experts^#3 8.combine^#3 8.combine#3 "
           "8.shared#2 8.experts#2 8.dispatch#1 8.route$");
    s = SPEC("moe.capacity=1", "moe.aux_loss=0", "recompute.layers=[3]");
    s.ranks.cp = 2;
    c = chunk_of(&s, 8, 9, (ScheduleShards){ 0 });
    row_is(&c, ROW_FORWARD, "8.route 8.dispatch*#1 8.shared&#2 8.experts#2 8.combine#3");
    row_is(&c, ROW_BACKWARD,
           "8.route^#3 8.dispatch^#3 8.shared^#3 8.experts^#3 8.combine^#3 8.combine#3 "
           "8.shared#2 8.experts#2 8.dispatch#1 8.route$");
}

/* Gathers and scatters of rows over ranks of tp are on the comm lane, and the norms between them, unless these
 * read weights that are gathered. */
static void rows_of_tp_are_normed_between_their_transfers(void **state)
{
    (void)state;
    ModelSpec s = SPEC("model.layers=1", "attention.kind=gqa", "recompute.layers=[0]");
    s.ranks.tp = 2;
    Chunk c = chunk_of(&s, 1, 3, (ScheduleShards){ .reduce = true });
    row_is(&c, ROW_FORWARD,
           "1.norm* 1.gather* 1.qkv 1.kv_gather 1.core 1.scatter* 2.norm* 2.gather*#1 2.mlp#2 "
           "2.scatter*#3");
    row_is(
        &c, ROW_BACKWARD,
        "2.norm*^#3 2.gather*^#3 2.mlp^#3 2.scatter*^#3 2.scatter*#3 2.mlp#2 2.gather*#1 2.norm*$ "
        "1.norm*^ 1.gather*^ 1.qkv^ 1.kv_gather^ 1.core^ 1.scatter*^ 1.scatter* 1.core "
        "1.kv_gather 1.qkv 1.gather* 1.norm*$");
    c = chunk_of(&s, 2, 3, (ScheduleShards){ .weights = true });
    row_is(&c, ROW_FORWARD, "2.norm@0 2.gather*#1 2.mlp@0#2 2.scatter*#3");
}

static void a_chunk_without_layers_hands_on(void **state)
{
    (void)state;
    ModelSpec s = SPEC("model.tied=true");
    Chunk c = chunk_of(&s, 4, 4, (ScheduleShards){ .weights = true });
    row_is(&c, ROW_FORWARD, "-1.hand on");
    row_is(&c, ROW_BACKWARD, "-1.hand on");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_lone_rank_has_one_lane),
        TEST(ranks_meet_on_their_lanes),
        TEST(a_layer_goes_forward_again_before_it_goes_back),
        TEST(norms_made_again_wait_for_the_exchange),
        TEST(counts_meet_once),
        TEST(rows_of_tp_are_normed_between_their_transfers),
        TEST(a_chunk_without_layers_hands_on),
    };
    return ARENA_RUN(tests);
}
