/* Every wait of every action is needed. Of legal programs over the layers of real models (exchanges,
 * shared experts beside them, context ranks, layers computed again, tied heads, all stages of ZeRO)
 * one wait at a time is left out: the check refuses what is left, unless the lanes and the other
 * waits enforce the same order. On a CPU all lanes run in the order of the list, so that the check
 * alone sees a missing wait. */
#include "engine/schedule/pipelines.h"

#include "engine/count/chunks.h"
#include "harness/draw_model.h"

#include <string.h>

enum { TRIES = 24, BLOCKS = 6 };

static Draws drawn = { .seed = 13, .stream = "waits" };

/* The model. */

static ModelSpec draw_model(void)
{
    static const char *const pieces[] = { "[layer]", "[norm]", "[layer, norm]" };
    Config c;
    ModelSpec s;
    CHECK_OK(config_default(&c, &made));
    set_row(&c, &made, "model.layers=%d", BLOCKS);
    set_row(&c, &made, "model.dense_layers=%d", draw_int(&drawn, 0, 2));
    set_row(&c, &made, "model.tied=%s", draw_int(&drawn, 0, 1) ? "true" : "false");
    set_row(&c, &made, "attention.kind=%s", draw_int(&drawn, 0, 1) ? "mla" : "gqa");
    set_row(&c, &made, "moe.shared=%d", draw_int(&drawn, 0, 1));
    set_row(&c, &made, "recompute.pieces=%s", pieces[draw_int(&drawn, 0, 2)]);
    if (draw_int(&drawn, 0, 1))
        set_row(&c, &made, "recompute.layers=[%d, %d, 5]", draw_int(&drawn, 0, 2),
                draw_int(&drawn, 3, 4));
    CHECK_OK(config_check(&c));
    CHECK_OK(spec_build(&c, &made, &s));
    s.ranks.ep = draw_int(&drawn, 1, 2);
    s.ranks.cp = draw_int(&drawn, 1, 2);
    return s;
}

/* Stages 0 to 3 of ZeRO, and ranks that share nothing; replicas or not (shards.c). */
static ScheduleShards draw_shards(bool both)
{
    int stage = draw_int(&drawn, -1, 3);
    return (ScheduleShards){ .weights = stage == 3,
                             .gradients = stage >= 2,
                             .reduce = stage >= 0,
                             .sums = draw_int(&drawn, 0, 1) || stage >= 2 || both,
                             .update = stage == 1 || stage == 2 };
}

/* Blocks evenly over the stages. */
static const Chunk *draw_chunks(int stages, const ScheduleDesc *d, ScheduleShards *shards)
{
    ModelSpec s = draw_model();
    Chunk *chunk = NULL;
    *shards = draw_shards(d->placement == PLACE_BOTH || (s.tied && stages > 1));
    CHECK_OK(ARENA_NEW(&made, stages, &chunk));
    for (int i = 0; i < stages; i++) {
        LayerRange range = { i == 0 ? 0 : 1 + 2 * (i * BLOCKS / stages),
                             1 + 2 * ((i + 1) * BLOCKS / stages) + (i + 1 == stages) };
        CHECK_OK(chunk_build(&s, range, shards, &made, &chunk[i]));
    }
    return chunk;
}

/* A step, and an evaluation by the same ranks. false: the schedule does not take the shape. */
static bool draw_pipelines(const ScheduleDesc *d, Pipeline out[2])
{
    ScheduleShape s = { .stages = draw_int(&drawn, 1, 3),
                        .chunks = draw_int(&drawn, d->chunks_least,
                                           d->chunks_most < 2 ? d->chunks_most : 2),
                        .forward = draw_int(&drawn, 1, 3),
                        .input = draw_int(&drawn, 1, 3),
                        .weight = draw_int(&drawn, 1, 3) };
    s.micros = s.stages * draw_int(&drawn, 1, 3);
    int stages = d->placement == PLACE_BOTH ? s.stages : s.stages * s.chunks;
    s.blocks = (BLOCKS + stages - 1) / stages;
    if (schedule_legal(d, &s) != OK) return false;
    s.chunk = draw_chunks(stages, d, &s.shards);
    CHECK_OK(schedule_make(d, &s, &made, &scratch, &out[0]));
    CHECK_OK(schedule_evaluation(d, &s, &made, &scratch, &out[1]));
    for (int i = 0; i < 2; i++) CHECK_OK(schedule_check_all(&out[i], &scratch));
    return true;
}

/* The order that a program enforces, as a table: before[i] is the set of all actions that have
 * ended when action i starts. */

typedef struct Enforced {
    const Program *p;
    int words, *signaller, *ahead; /* by event; by action: the one before it in its queue, or -1 */
    uint64_t *before;
} Enforced;

static uint64_t *before(const Enforced *o, int action)
{
    return &o->before[(size_t)action * (size_t)o->words];
}

static bool has_ended(const uint64_t *ended, int action)
{
    return ended[action / 64] >> (action % 64) & 1;
}

static void comes_after(const Enforced *o, int action, uint64_t *out)
{
    if (action < 0) return;
    for (int w = 0; w < o->words; w++) out[w] |= before(o, action)[w];
    out[action / 64] |= 1ULL << (action % 64);
}

/* All that has ended when the action starts, if it leaves out one of its waits; -1: none. */
static void ended_before(const Enforced *o, int action, int without, uint64_t *out)
{
    const Action *a = &o->p->at[action];
    memset(out, 0, (size_t)o->words * sizeof *out);
    comes_after(o, o->ahead[action], out);
    for (int k = 0; k < ACTION_WAITS; k++) {
        if (k != without && a->wait[k] >= 0) comes_after(o, o->signaller[a->wait[k]], out);
    }
}

static Enforced enforced(const Program *p)
{
    Enforced o = { .p = p, .words = p->n / 64 + 1 };
    int *last = NULL;
    CHECK_OK(ARENA_NEW(&scratch, queue_count(p), &last));
    CHECK_OK(ARENA_NEW(&scratch, p->events + 1, &o.signaller));
    CHECK_OK(ARENA_NEW(&scratch, p->n, &o.ahead));
    CHECK_OK(ARENA_NEW(&scratch, p->n * o.words, &o.before));
    for (int q = 0; q < queue_count(p); q++) last[q] = -1;
    for (int i = 0; i < p->n; i++) {
        int queue = queue_of(p, &p->at[i]);
        o.ahead[i] = last[queue];
        last[queue] = i;
        ended_before(&o, i, -1, before(&o, i));
        if (p->at[i].signal >= 0) o.signaller[p->at[i].signal] = i;
    }
    return o;
}

/* Where another stage waits for the gradients of a pass, reductions and sums wait for its end, also
 * behind later actions than the last that adds to what they add up. Such a wait can be spared if
 * all that add to it have ended. */
static bool adds_to(const Program *p, const Action *a, int layer)
{
    if (!action_is_pass(a->kind)) return false;
    bool weight = a->kind == ACTION_BACKWARD || a->kind == ACTION_BACKWARD_WEIGHT;
    for (int i = a->first; i < a->end; i++) {
        const ChunkPhase *x = &action_row(p, a)->at[i];
        if ((weight || x->gradients) && (x->own == layer || x->weights == layer)) return true;
    }
    return false;
}

static bool can_be_spared(const Enforced *o, int action, int signaller, const uint64_t *rest)
{
    const Action *a = &o->p->at[action], *by = &o->p->at[signaller];
    if (a->kind != ACTION_REDUCE_GRADS && a->kind != ACTION_SUM_GRADS) return false;
    if (hop_of(o->p, by->chunk, by->micro) == 0 || action_communicates(o->p, by)) return false;
    for (int i = 0; i < action; i++) {
        if (adds_to(o->p, &o->p->at[i], a->layer) && !has_ended(rest, i)) return false;
    }
    return true;
}

typedef struct Tally {
    int refused, implied, spared;
} Tally;

static void leave_out(const Enforced *o, int action, int wait, Tally *t)
{
    Action *a = &o->p->at[action];
    int event = a->wait[wait], signaller = o->signaller[event];
    uint64_t *rest = NULL;
    ArenaMark mark = arena_mark(&scratch);
    CHECK_OK(ARENA_NEW(&scratch, o->words, &rest));
    ended_before(o, action, wait, rest);
    bool implied = has_ended(rest, signaller),
         spared = !implied && can_be_spared(o, action, signaller, rest);
    a->wait[wait] = -1;
    bool refused = schedule_check(o->p, &scratch) != OK;
    a->wait[wait] = event;
    arena_release(&scratch, mark);
    if (refused != (!implied && !spared)) {
        fail_msg(
            "rank %d action %d: %s of micro-batch %d, layer %d, without its wait for action %d "
            "(%s) is %s",
            o->p->rank, action, action_name(a->kind), a->micro, a->layer, signaller,
            action_name(o->p->at[signaller].kind), refused ? "refused" : "accepted");
    }
    t->refused += refused;
    t->implied += implied;
    t->spared += spared;
}

static void leave_out_each(const Program *p, Tally *t)
{
    ArenaMark mark = arena_mark(&scratch);
    Enforced o = enforced(p);
    for (int i = 0; i < p->n; i++) {
        for (int k = 0; k < ACTION_WAITS; k++) {
            if (p->at[i].wait[k] >= 0) leave_out(&o, i, k, t);
        }
    }
    arena_release(&scratch, mark);
}

static void no_wait_can_be_left_out(void **state)
{
    (void)state;
    for (int i = 0; i < schedule_table_n; i++) {
        Tally t[2] = { 0 };
        for (int n = 0; n < TRIES;) {
            Pipeline p[2];
            pipeline_forget();
            if (!draw_pipelines(&schedule_table[i], p)) continue;
            for (int k = 0; k < 2; k++) {
                for (int r = 0; r < p[k].stages; r++) leave_out_each(&p[k].rank[r], &t[k]);
            }
            n++;
        }
        CHECK(t[0].refused > 1000 && t[0].implied > 100 && 10 * t[0].spared < t[0].refused);
        CHECK(t[1].refused > 200 && t[1].spared == 0);
    }
    pipeline_forget();
}

static const struct CMUnitTest tests[] = { TEST(no_wait_can_be_left_out) };
PIPELINE_TESTS(tests)
