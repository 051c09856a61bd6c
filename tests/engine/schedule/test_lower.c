/* The lists that small chunks become, action by action, with the waits between their queues. */
#include "engine/schedule/pipelines.h"

#include "engine/base/text.h"
#include "engine/schedule/lower.h"

#include <string.h>

/* A row from text: phases parted by blanks, each the number of its layer, a letter for its name and
 * marks: * on the comm lane, & beside the phase before it, ! meets, + adds to gradients, ^ again,
 * $ the last of its layer, = reads layer 0's weights. */
static ChunkRow row_of(const char *text, bool placed)
{
    static const char parts[] = "adec"; /* of a block that is taken apart */
    ChunkPhase *at = NULL;
    int n = 0;
    CHECK_OK(ARENA_ZEROED(&made, strlen(text), &at));
    for (const char *c = text; *c != '\0'; n++) {
        ChunkPhase *x = &at[n];
        x->own = x->layer = x->weights = x->block = (short)(*c++ - '0');
        x->part = strchr(parts, *c) == NULL ? 0 : (unsigned char)(strchr(parts, *c) - parts);
        x->name = c++;
        for (; *c != ' ' && *c != '\0'; c++) {
            x->lane = *c == '*' ? LANE_COMM : x->lane;
            x->overlap_ok |= *c == '&';
            x->communicates |= *c == '!';
            x->gradients |= *c == '+';
            x->recompute |= *c == '^';
            x->ends |= *c == '$';
            x->weights = (short)(*c == '=' ? 0 : x->weights);
        }
        x->half = (short)(placed && x->lane == LANE_COMPUTE ? x->weights % CHUNK_HALVES : -1);
        while (*c == ' ') c++;
    }
    return (ChunkRow){ at, n };
}

static Chunk chunk_of(const char *forward, const char *backward, const ScheduleShards *shards)
{
    bool placed = shards->weights || shards->gradients;
    return (Chunk){ { row_of(forward, placed), row_of(backward, placed) }, 1 };
}

/* Each action as a word with what it is about, and behind < the numbers of those that it waits for. */
static void add_action(Text *t, const Program *p, const Action *a)
{
    static const char *const words[ACTION_KIND_COUNT] = {
        "zero",      "F",      "B",    "I",      "W",   "send",   "recv",   "send-grad",
        "recv-grad", "gather", "free", "reduce", "sum", "update", "records"
    };
    CHECK_OK(text_printf(t, "%s", words[a->kind]));
    if (a->micro >= 0) CHECK_OK(text_printf(t, "%d", a->micro));
    for (int k = a->first; k < a->end; k++) {
        const ChunkPhase *x = &action_row(p, a)->at[k];
        CHECK_OK(text_printf(t, "%s%d%c", k == a->first ? ":" : "", x->own, x->name[0]));
    }
    if (a->layer >= 0) CHECK_OK(text_printf(t, " %d", a->layer));
    if (a->half >= 0) CHECK_OK(text_printf(t, " in %d", a->half));
    for (int k = 0; k < ACTION_WAITS && a->wait[k] >= 0; k++) {
        int by = 0;
        while (p->at[by].signal != a->wait[k]) by++;
        CHECK_OK(text_printf(t, " <%d", by));
    }
}

static void list_is(const Program *p, const char *want)
{
    Text t;
    CHECK_OK(text_init(&t, &scratch));
    for (int i = 0; i < p->n; i++) {
        if (i > 0) CHECK_OK(text_printf(&t, "; "));
        add_action(&t, p, &p->at[i]);
    }
    CHECK_TEXT(t.data, want);
}

static Pipeline lowered(const char *name, int stages, int micros, const char *forward,
                        const char *backward, ScheduleShards shards)
{
    pipeline_forget();
    Chunk *chunk = NULL;
    CHECK_OK(ARENA_NEW(&made, stages, &chunk));
    for (int i = 0; i < stages; i++) chunk[i] = chunk_of(forward, backward, &shards);
    ScheduleShape s = { stages, 1, micros, 1, 1, 1, .blocks = 1, .chunk = chunk, .shards = shards };
    return pipeline_of(name, &s);
}

/* Each stage, or each chunk of a stage, has the same layers; three micro-batches a step. */
static Pipeline evaluation_of(const char *name, int stages, int chunks, const char *forward,
                              const char *backward, ScheduleShards shards)
{
    pipeline_forget();
    const ScheduleDesc *d = NULL;
    Chunk *chunk = NULL;
    Pipeline p;
    CHECK_OK(ARENA_NEW(&made, stages * chunks, &chunk));
    for (int i = 0; i < stages * chunks; i++) chunk[i] = chunk_of(forward, backward, &shards);
    ScheduleShape s = { stages, chunks, 3, 1, 1, 1, .blocks = 1, .chunk = chunk, .shards = shards };
    CHECK_OK(schedule_find(name, &d));
    CHECK_OK(schedule_evaluation(d, &s, &made, &scratch, &p));
    CHECK_OK(schedule_check_all(&p, &scratch));
    return p;
}

/* ZeRO 3, with a tied head. Gathers run a layer ahead, nothing is reduced, and the exchange waits
 * as in a step. */
static void an_evaluation_gathers_a_layer_ahead(void **state)
{
    (void)state;
    Pipeline p = evaluation_of("1f1b", 1, 1, "0a 1r 1d* 1e 2h+=", "2h$= 1e 1d* 1r$ 0a$",
                               (ScheduleShards){ true, true, true, true, false });
    list_is(&p.rank[0], "zero; gather 0 in 0; gather 1 in 1; F0:0a <1; F0:1r <2; F0:1d <4; "
                        "F0:1e <5; F0:2h; free 0 in 0; free 1 in 1; records <5");
}

/* The two directions of DualPipe have copies of the same stages: an evaluation takes one. A V comes
 * back to each rank, whose slot is free again. Passes are whole where those of a step are not. */
static void an_evaluation_takes_the_way_of_the_first_micro_batch(void **state)
{
    (void)state;
    Pipeline p =
        evaluation_of("dualpipe", 2, 2, "0a 0e", "0e 0a$", (ScheduleShards){ .reduce = true });
    list_is(&p.rank[0], "zero; F0:0a0e; send0 <1; records");
    list_is(&p.rank[1], "zero; recv0; F0:0a0e <1; records");
    p = evaluation_of("1f1b-overlap", 1, 1, "0a 0e 0a", "0e 0a$", (ScheduleShards){ 0 });
    list_is(&p.rank[0], "zero; F0:0a0e0a; records");
    p = evaluation_of("zbv", 2, 2, "0a 0k*", "0k* 0a$", (ScheduleShards){ .update = true });
    list_is(&p.rank[0], "zero; F0:0a; F0:0k <1; send0 <2; recv0; F0:0a <2 <4; F0:0k <5; "
                        "records <6");
    list_is(&p.rank[1], "zero; recv0; F0:0a <1; F0:0k <2; F0:0a <3; F0:0k <4; send0 <5; "
                        "records <5");
    for (int r = 0; r < 2; r++) CHECK_INT(p.rank[r].slots, 1);
}

/* ZeRO 3. Weights are gathered a layer ahead, into the place of the layer before the last one; the
 * third layer takes the first one's. A layer's gradients are reduced when its backward ends. */
static void parts_of_weights_and_gradients_come_and_go_by_layers(void **state)
{
    static const char want[] =
        "zero; gather 0 in 0; gather 1 in 1; F0:0a <1; free 0 in 0; gather 2 in 0 <4; "
        "F0:1a <2; F0:2a <5; zero 2 in 0; B0:2a; reduce 2 in 0 <9; free 2 in 0; "
        "gather 0 in 0 <11; zero 1 in 1; B0:1a; reduce 1 in 1 <14; zero 0 in 0 <10; "
        "B0:0a <12; reduce 0 in 0 <17; F1:0a; free 0 in 0; gather 2 in 0 <20; F1:1a; "
        "F1:2a <21; zero 2 in 0 <18; B1:2a; reduce 2 in 0 <25; free 2 in 0; "
        "gather 0 in 0 <27; zero 1 in 1 <15; B1:1a; reduce 1 in 1 <30; zero 0 in 0 <26; "
        "B1:0a <28; reduce 0 in 0 <33; free 0 in 0; free 1 in 1; sum 2 <25; sum 1 <30; "
        "sum 0 <33; update <39";
    (void)state;
    Pipeline p = lowered("1f1b", 1, 2, "0a 1a 2a", "2a$ 1a$ 0a$",
                         (ScheduleShards){ true, true, true, true, false });
    list_is(&p.rank[0], want);
}

/* ZeRO 2 with a tied head, which adds to the table's place. Weights are gathered after the update. */
static void parts_of_gradients_alone_are_reduced_by_layers(void **state)
{
    static const char want[] =
        "zero; F0:0a; F0:1a; zero 0 in 0; F0:2h; B0:2h; zero 1 in 1; B0:1a; "
        "reduce 1 in 1 <7; B0:0a; reduce 0 in 0 <9; F1:0a; F1:1a; zero 0 in 0 <10; F1:2h; "
        "B1:2h; zero 1 in 1 <8; B1:1a; reduce 1 in 1 <17; B1:0a; reduce 0 in 0 <19; "
        "sum 2 <15; sum 1 <17; sum 0 <19; update <23; gather 0 <24; gather 1 <24; "
        "gather 2 <24";
    (void)state;
    Pipeline p = lowered("1f1b", 1, 2, "0a 1a 2h+=", "2h$= 1a$ 0a$",
                         (ScheduleShards){ false, true, true, true, true });
    list_is(&p.rank[0], want);
}

/* ZeRO 1: only the last backward is taken apart, and each layer is reduced as soon as it has ended. */
static void whole_gradients_are_reduced_after_the_last_pass(void **state)
{
    static const char want[] =
        "zero; F0:0a1a2h; B0:2h1a0a; F1:0a1a2h; B1:2h; reduce 2 <4; B1:1a; reduce 1 <6; "
        "B1:0a; reduce 0 <8; sum 2 <4; sum 1 <6; sum 0 <8; update <12; gather 0 <13; "
        "gather 1 <13; gather 2 <13";
    (void)state;
    Pipeline p = lowered("1f1b", 1, 2, "0a 1a 2h+=", "2h$= 1a$ 0a$",
                         (ScheduleShards){ false, false, true, true, true });
    list_is(&p.rank[0], want);
}

/* Of replicas, or two stages with the same layers, under the last backward, too. */
static void sums_wait_for_their_layer_alone(void **state)
{
    (void)state;
    Pipeline p = lowered("1f1b", 1, 2, "0a 1a 2h", "2h$ 1a$ 0a$", (ScheduleShards){ .sums = true });
    list_is(&p.rank[0], "zero; F0:0a1a2h; B0:2h1a0a; F1:0a1a2h; B1:2h; B1:1a; B1:0a; sum 2 <4; "
                        "sum 1 <5; sum 0 <6; update <9");
}

/* Shared experts wait for nothing, the routed ones for the exchange; what computes and meets waits
 * for the collectives before it. Backward computes the layer again. */
static void shared_experts_run_beside_the_exchange(void **state)
{
    static const char want[] =
        "zero; F0:0r; F0:0d <1; F0:0s; F0:0e <2; F0:0c <4; F0:1m <5; B0:1m <5; reduce 1 <7; "
        "B0:0r; B0:0d <9; B0:0s; B0:0e <10; B0:0c <12; B0:0s; B0:0e <13; B0:0d <15; "
        "B0:0r <16; reduce 0 <17; update <18";
    (void)state;
    Pipeline p =
        lowered("1f1b", 1, 1, "0r 0d* 0s& 0e 0c* 1m!", "1m!$ 0r^ 0d^* 0s^& 0e^ 0c* 0s& 0e 0d* 0r$",
                (ScheduleShards){ .reduce = true });
    list_is(&p.rank[0], want);
}

static void weight_gradients_apart_are_one_action(void **state)
{
    static const char want[] =
        "zero; F0:0a; F0:0k <1; F0:0c <2; I0:0c; I0:0k <4; I0:0a <5; W0:0c0k0a; F1:0a; "
        "F1:0k <8; F1:0c <9; I1:0c; I1:0k <11; I1:0a <12; W1:0c0k0a; reduce 0 <14; update <15";
    (void)state;
    Pipeline p =
        lowered("zb-h1", 1, 2, "0a 0k* 0c", "0c+ 0k*+ 0a+$", (ScheduleShards){ .reduce = true });
    list_is(&p.rank[0], want);
}

/* A receive waits for who read its entry before, a pass for its input and for the send that read
 * the entry of its output before. */
static void two_stages_take_entries_in_turn(void **state)
{
    static const char first[] =
        "zero; F0:0a; F0:0k <1; send0 <2; F1:0a <2; F1:0k <4; send1 <5; recv-grad0; "
        "B0:0k <7; B0:0a <8; F2:0a; F2:0k <10 <3; send2 <11; recv-grad1; B1:0k <13; "
        "B1:0a <14; F3:0a; F3:0k <16 <6; send3 <17; recv-grad2 <8; B2:0k <19; B2:0a <20; "
        "recv-grad3 <14; B3:0k <21 <22; B3:0a <23; update <23";
    static const char second[] =
        "zero; recv0; F0:0a <1; F0:0k <2; B0:0k; B0:0a <4; send-grad0 <5; recv1; F1:0a <7; "
        "F1:0k <8; B1:0k; B1:0a <10; send-grad1 <11; recv2 <2; F2:0a <13; F2:0k <14; B2:0k; "
        "B2:0a <16 <6; send-grad2 <17; recv3 <8; F3:0a <19; F3:0k <20; B3:0k; B3:0a <22 <12; "
        "send-grad3 <23; update <22";
    (void)state;
    Pipeline p = lowered("1f1b", 2, 4, "0a 0k*", "0k* 0a$", (ScheduleShards){ 0 });
    list_is(&p.rank[0], first);
    list_is(&p.rank[1], second);
}

/* The second stage reduces when its last gradients are there to be sent, and its exchanges have
 * ended; for the first one's nobody waits. */
static void a_stage_that_others_wait_for_reduces_last(void **state)
{
    static const char first[] =
        "zero; F0:0a; F0:0k <1; F0:1a <2; F0:1k <3; send0 <4; recv-grad0; B0:1k <6; B0:1a <7; "
        "reduce 1 <8; B0:0k <8; B0:0a <10; reduce 0 <11; update <12";
    static const char second[] =
        "zero; recv0; F0:0a <1; F0:0k <2; F0:1a <3; F0:1k <4; B0:1k; B0:1a <6; B0:0k <7; "
        "B0:0a <8; reduce 1 <9; reduce 0 <9; send-grad0 <9; update <11";
    (void)state;
    Pipeline p = lowered("1f1b", 2, 1, "0a 0k* 1a 1k*", "1k* 1a$ 0k* 0a$",
                         (ScheduleShards){ .reduce = true });
    list_is(&p.rank[0], first);
    list_is(&p.rank[1], second);
}

/* Where weight gradients come apart the stage before has what it waits for: each layer is reduced
 * behind its own. */
static void weight_gradients_apart_hold_up_no_stage(void **state)
{
    (void)state;
    Pipeline p = lowered("zb-h1", 2, 1, "0a 1a", "1a$ 0a$",
                         (ScheduleShards){ .reduce = true, .sums = true });
    list_is(&p.rank[1], "zero; recv0; F0:0a1a <1; I0:1a0a; send-grad0 <3; W0:1a; reduce 1 <5; "
                        "W0:0a; reduce 0 <7; sum 1 <5; sum 0 <7; update <10");
}

/* Keys and values of gqa are gathered in the attention's own phase, on the compute lane. */
static void what_meets_is_an_action_of_its_own(void **state)
{
    (void)state;
    Pipeline p = lowered("1f1b", 1, 1, "0q 0k 0c! 1m", "1m$ 0c!+ 0k+ 0q+$", (ScheduleShards){ 0 });
    list_is(&p.rank[0], "zero; F0:0q0k; F0:0c; F0:1m; B0:1m; B0:0c; B0:0k0q; update");
}

/* The table's gradients have no pass of the table's own here. */
static void what_a_tied_head_alone_adds_is_reduced_at_the_end(void **state)
{
    (void)state;
    Pipeline p =
        lowered("1f1b", 1, 2, "2h+=", "2h$=", (ScheduleShards){ false, true, true, true, true });
    list_is(&p.rank[0], "zero; zero 0 in 0; F0:2h; B0:2h; F1:2h; B1:2h; reduce 0 in 0 <5; "
                        "sum 2 <5; sum 0 <5; update <8; gather 0 <9; gather 2 <9");
}

/* Slots 0 and 1 are filled by chunks 0 and 1, slot 2 by both in turn. */
static void a_slot_is_taken_again_by_its_own_chunk(void **state)
{
    (void)state;
    enum { F = ACTION_FORWARD, B = ACTION_BACKWARD, I = ACTION_BACKWARD_INPUT };
    static const struct {
        Pass pass;
        int slot;
    } c[] = {
        { { 0, 0, F, false }, 0 },
        { { 0, 1, F, false }, 1 },
        { { 1, 0, F, false }, 2 },
        { { 1, 0, B, false }, 2 },
        { { 1, 1, F, false }, 2 },
        { { 1, 1, B, false }, 2 },
        { { 0, 0, I, false }, 0 },
        { { 0, 0, B, false }, 0 },
        { { 0, 1, B, false }, 1 },
        /* free: 2, 0, 1 */
        { { 2, 1, F, false }, 1 },
        { { 2, 0, F, false }, 0 },
        { { 3, 1, F, false }, 2 },
        { { 2, 1, B, false }, 1 },
        { { 2, 0, B, false }, 0 },
        { { 3, 1, B, false }, 2 },
        /* free: 1, 0, 2: chunk 2 was in none, and the first of those that had one is taken */
        { { 3, 2, F, false }, 0 },
    };
    ScheduleShape s = { .chunks = 3, .micros = 4 };
    SlotTable t;
    pipeline_forget();
    CHECK_OK(slots_make(&s, &scratch, &t));
    for (size_t i = 0; i < sizeof c / sizeof *c; i++)
        CHECK_INT(slots_pass(&t, &c[i].pass), c[i].slot);
    CHECK_INT(t.n, 3);
}

/* Forward of the second micro-batch between backward of the first. */
static void a_pair_runs_part_by_part(void **state)
{
    static const char want[] =
        "zero; F0:0a; F0:0d <1; F0:0e <2; F0:0c <3; I0:0c; F1:0a <4; F1:0d <6; I0:0e <5; "
        "I0:0d <8; W0:0c0e; F1:0e <7; F1:0c <11; I0:0a <9; W0:0d0a; I1:0c <14; I1:0e <15; "
        "I1:0d <16; W1:0c0e; I1:0a <17; W1:0d0a; update <17";
    (void)state;
    Pipeline p =
        lowered("1f1b-overlap", 1, 2, "0a 0d* 0e 0c*", "0c* 0e 0d* 0a$", (ScheduleShards){ 0 });
    list_is(&p.rank[0], want);
}

static const struct CMUnitTest tests[] = {
    TEST(parts_of_weights_and_gradients_come_and_go_by_layers),
    TEST(parts_of_gradients_alone_are_reduced_by_layers),
    TEST(whole_gradients_are_reduced_after_the_last_pass),
    TEST(sums_wait_for_their_layer_alone),
    TEST(shared_experts_run_beside_the_exchange),
    TEST(weight_gradients_apart_are_one_action),
    TEST(two_stages_take_entries_in_turn),
    TEST(a_stage_that_others_wait_for_reduces_last),
    TEST(weight_gradients_apart_hold_up_no_stage),
    TEST(a_pair_runs_part_by_part),
    TEST(what_meets_is_an_action_of_its_own),
    TEST(what_a_tied_head_alone_adds_is_reduced_at_the_end),
    TEST(a_slot_is_taken_again_by_its_own_chunk),
    TEST(an_evaluation_gathers_a_layer_ahead),
    TEST(an_evaluation_takes_the_way_of_the_first_micro_batch),
};
PIPELINE_TESTS(tests)
