/* What the check of all ranks says of pipelines that are broken in one place. */
#include "engine/schedule/pipelines.h"

#include <string.h>

/* GPipe over two stages, two micro-batches:
 * rank 0: zero F0 send F1 send recv B0 recv B1 update
 * rank 1: zero recv F0 recv F1 B0 send B1 send update */
enum { F0 = 1, SEND0 = 2, F1 = 3, SEND1 = 4, RECV0 = 5, B0 = 6, RECV1 = 7, B1 = 8, UPDATE = 9 };

static Pipeline two_stages(void)
{
    ScheduleShape s = { 2, 1, 2, 1, 1, 1, .blocks = 0 };
    pipeline_forget();
    return pipeline_of("gpipe", &s);
}

static Pipeline long_1f1b(void)
{
    ScheduleShape s = { 2, 1, 16, 1, 1, 1, .blocks = 0 };
    pipeline_forget();
    return pipeline_of("1f1b", &s);
}

/* The n-th action of this kind on a rank. */
static Action *nth(Pipeline *p, int rank, ActionKind kind, int n)
{
    Program *x = &p->rank[rank];
    for (int i = 0; i < x->n; i++) {
        if (x->at[i].kind == kind && n-- == 0) return &x->at[i];
    }
    fail_msg("rank %d has too few of %s", rank, action_name(kind));
    return NULL;
}

static void forget_waits(Action *a)
{
    for (int i = 0; i < ACTION_WAITS; i++) a->wait[i] = -1;
}

static void leave_out(Pipeline *p, int rank, const Action *a)
{
    Program *x = &p->rank[rank];
    size_t i = (size_t)(a - x->at);
    memmove(&x->at[i], &x->at[i + 1], ((size_t)--x->n - i) * sizeof *a);
}

/* The event of an action that had none. */
static int event_of(Pipeline *p, Action *a)
{
    if (a->signal < 0) a->signal = p->rank[0].events++;
    return a->signal;
}

static void swap(Action *a, Action *b)
{
    Action kept = *a;
    *a = *b;
    *b = kept;
}

static void a_missing_wait_is_found(void **state)
{
    (void)state;
    Pipeline p = two_stages();
    forget_waits(nth(&p, 1, ACTION_FORWARD, 0));
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG,
                "does not wait until entry 0 is written");
    p = two_stages();
    forget_waits(nth(&p, 0, ACTION_SEND_ACTIVATIONS, 1));
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "does not wait until entry");
    p = long_1f1b();
    forget_waits(nth(&p, 1, ACTION_RECV_ACTIVATIONS, 9));
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG,
                "does not wait for the last reader of entry");
    p = long_1f1b();
    forget_waits(nth(&p, 0, ACTION_FORWARD, 9)); /* its output would overwrite what is being sent */
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG,
                "does not wait for the last reader of entry");
}

static void a_wrong_number_is_found(void **state)
{
    (void)state;
    Pipeline p = two_stages();
    p.rank[0].at[F1].slot = p.rank[0].at[F0].slot;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "slot 0 still holds micro-batch 0");
    p = two_stages();
    p.rank[0].at[F1].slot = 2;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "slot 2 of 2, 1, 2");
    p = two_stages();
    p.rank[0].at[SEND0].peer = 0;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "with rank 0, the other end is rank 1");
    p = two_stages();
    p.rank[0].at[F1].out = p.rank[0].at[F0].out;
    p.rank[0].at[F1].wait[0] = -1;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "does not wait for the last reader");
    p = two_stages();
    p.rank[0].at[B0].in = 99;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "reads entry 99 of");
    p = two_stages();
    p.rank[0].at[SEND1].micro = 0;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG,
                "does not hold the activations of micro-batch 0");
    p = two_stages();
    p.rank[0].at[F0].wait[2] = 1000;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "event 1000 of");
    p = two_stages();
    p.rank[0].at[F0].wait[2] = p.rank[0].at[RECV1].signal;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "which nobody signals before");
    p = two_stages();
    p.rank[0].at[F1].signal = p.rank[0].at[F0].signal;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "a second time");
    p = two_stages();
    p.rank[1].rank = 0;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "rank 1 is of another pipeline");
}

static void a_backward_that_is_not_whole_is_found(void **state)
{
    (void)state;
    Pipeline p = two_stages();
    p.rank[0].at[B0].kind = ACTION_BACKWARD_INPUT;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "never goes backward on chunk 0");
    p = two_stages();
    p.rank[0].at[B0].kind = ACTION_BACKWARD_WEIGHT;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "before its input gradients");
    p = two_stages();
    leave_out(&p, 0, &p.rank[0].at[SEND1]);
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG,
                "nobody reads the activations of micro-batch 1");
}

static void passes_at_the_wrong_place_are_found(void **state)
{
    (void)state;
    Pipeline p = two_stages();
    p.rank[0].at[F1] = p.rank[0].at[F0];
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "0 goes forward twice on chunk 0");
    p = two_stages();
    p.rank[0].at[B0].slot = 1;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "slot 1 does not hold micro-batch 0");
    p = two_stages();
    p.rank[0].at[F1].out = p.rank[0].at[F0].out;
    swap(&p.rank[0].at[SEND0], &p.rank[0].at[F1]);
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG,
                "still holds the activations of micro-batch 0");
    p = two_stages();
    p.rank[0].at[SEND0].kind = ACTION_SEND_GRADIENTS;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG,
                "send gradients at the end of the pipeline");
    p = two_stages();
    p.rank[0].at[F0].kind = ACTION_KIND_COUNT;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "unknown kind 15");
    p = two_stages();
    p.rank[0].at[F0].signal = 1000;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "event 1000 of");
    ScheduleShape s = { 2, 2, 4, 1, 1, 1, .blocks = 1 };
    pipeline_forget();
    p = pipeline_of("dualpipe", &s);
    nth(&p, 0, ACTION_FORWARD, 0)->chunk = 1;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "0 does not come to chunk 1");
    s.chunks = 1;
    pipeline_forget();
    p = pipeline_of("zb-h1", &s);
    nth(&p, 0, ACTION_BACKWARD_WEIGHT, 0)->kind = ACTION_BACKWARD_INPUT;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "0 after its input gradients");
}

/* The first action makes the sums zero, the last one uses them. */
static void a_step_without_its_ends_is_found(void **state)
{
    (void)state;
    Pipeline p = two_stages();
    leave_out(&p, 0, &p.rank[0].at[0]);
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG,
                "forward of micro-batch 0 outside of zero and update");
    p = two_stages();
    p.rank[0].at[F0] = p.rank[0].at[0];
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG,
                "action 1: zero gradients a second time");
    p = two_stages();
    swap(&p.rank[0].at[B1], &p.rank[0].at[UPDATE]);
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG,
                "backward of micro-batch 1 outside of zero and update");
    p = two_stages();
    swap(&p.rank[0].at[0], &p.rank[0].at[UPDATE]);
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "update before zero gradients");
    p = two_stages();
    leave_out(&p, 0, &p.rank[0].at[UPDATE]);
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "there is no update");
    p = two_stages();
    p.rank[0].at[B1] = p.rank[0].at[UPDATE];
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "action 9: update a second time");
}

/* Each rank is right alone; together they name different micro-batches. */
static void ends_that_disagree_are_found(void **state)
{
    (void)state;
    Pipeline p = two_stages();
    for (int i = 0; i < p.rank[0].n; i++) {
        Action *a = &p.rank[0].at[i];
        if (a->micro >= 0) a->micro = 1 - a->micro;
    }
    CHECK_OK(schedule_check(&p.rank[0], &scratch));
    CHECK_FAILS(
        schedule_check_all(&p, &scratch), ERR_ARG,
        "rank 0 is to send activations of micro-batch 1 where rank 1 is to receive activations "
        "of 0");
}

/* Rank 0 wants the gradient of micro-batch 0 before it sends 1, rank 1 wants 1 first. */
static void a_deadlock_is_found(void **state)
{
    (void)state;
    Pipeline p = two_stages();
    Action *at = p.rank[0].at, f1 = at[F1], send1 = at[SEND1];
    at[F1] = at[RECV0], at[SEND1] = at[B0];
    at[RECV0] = f1, at[B0] = send1;
    CHECK_OK(schedule_check(&p.rank[0], &scratch));
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "rank 0 waits forever before action 4");
}

static Pipeline by_phases(void)
{
    ScheduleShape s = { 2, 1, 4, 1, 1, 1, .blocks = 2 };
    pipeline_forget();
    return pipeline_of("1f1b-overlap", &s);
}

static void phases_out_of_turn_are_found(void **state)
{
    (void)state;
    Pipeline p = by_phases();
    forget_waits(nth(&p, 0, ACTION_FORWARD, PHASE_DISPATCH));
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG,
                "does not wait for the phase of micro-batch 0");
    p = by_phases();
    forget_waits(nth(&p, 0, ACTION_BACKWARD_INPUT, 2)); /* dispatch, then attention */
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG,
                "does not wait for the phase of micro-batch 0");
    p = by_phases();
    nth(&p, 0, ACTION_FORWARD, PHASE_EXPERTS)->first = 0;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "phase 1 (dispatch) is on the wrong");
    p = by_phases();
    Action *experts = nth(&p, 0, ACTION_FORWARD, PHASE_EXPERTS);
    *experts = *nth(&p, 0, ACTION_FORWARD, PHASES);
    forget_waits(experts);
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "begins with phase 4, next is 2");
    p = by_phases();
    nth(&p, 0, ACTION_FORWARD, PHASE_DISPATCH)->lane = LANE_COMPUTE;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "is on the wrong lane");
    p = by_phases();
    nth(&p, 0, ACTION_BACKWARD_WEIGHT, 0)->end = 6;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "before its input gradients");
    p = by_phases();
    nth(&p, 0, ACTION_BACKWARD_WEIGHT, 0)->end = 3; /* dispatch, which has no weight gradients */
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "begins with phase 2, next is 3");
    p = by_phases();
    forget_waits(nth(&p, 1, ACTION_BACKWARD_INPUT, 0));
    swap(nth(&p, 1, ACTION_FORWARD, 7), nth(&p, 1, ACTION_BACKWARD_INPUT, 0));
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG,
                "backward input of micro-batch 0 before the end of its forward");
    p = by_phases();
    nth(&p, 0, ACTION_FORWARD, 7)->end = 9;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "phases 7 to 9 of 8");
    p = by_phases();
    leave_out(&p, 0, nth(&p, 0, ACTION_BACKWARD_WEIGHT, 15));
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "micro-batch 3 never goes backward");
}

/* The first exchange of a block of a backward writes memory that the weight gradients of the block
 * before it still read; the first attention of a forward, what the last combine read. */
static void memory_between_phases_is_guarded(void **state)
{
    (void)state;
    Pipeline p = by_phases();
    forget_waits(nth(&p, 1, ACTION_BACKWARD_INPUT, PHASES)); /* the second block's combine */
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG,
                "does not wait for the phase of micro-batch 0 before it");
    ScheduleShape s = { 1, 1, 4, 1, 1, 1, .blocks = 1 };
    pipeline_forget();
    p = pipeline_of("1f1b-overlap", &s);
    forget_waits(nth(&p, 0, ACTION_FORWARD, PHASES)); /* the second micro-batch */
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG,
                "until micro-batch 0 has left the memory between phases");
}

/* Each finds all its inputs whenever it runs; only the order of collectives is open. */
static void collectives_without_an_order_are_found(void **state)
{
    (void)state;
    static const char *const names[] = { "gpipe", "1f1b-overlap" };
    ScheduleShape s = { 2, 1, 4, 1, 1, 1, .blocks = 2, .shards = { .reduce = true } };
    for (int i = 0; i < 2; i++) {
        pipeline_forget();
        Pipeline p = pipeline_of(names[i], &s);
        Action *update = nth(&p, 1, ACTION_UPDATE, 0);
        forget_waits(update);
        CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG,
                    "update does not wait for the collectives before it");
    }
}

/* A model of four layers, each a block, whose weights and gradients ranks share. */
static Pipeline sharded(bool weights)
{
    static Chunk chunk;
    ScheduleShape s = {
        1, 1, 2, 1, 1, 1, .chunk = &chunk, .shards = { weights, true, true, true, false }
    };
    pipeline_forget();
    CHECK_OK(chunk_of_blocks(4, &made, &chunk));
    for (int i = 0; i < CHUNK_ROWS; i++) {
        ChunkRow *row = &chunk.row[i];
        ChunkPhase *at = NULL;
        CHECK_OK(ARENA_NEW(&made, row->n, &at));
        memcpy(at, row->at, (size_t)row->n * sizeof *at);
        for (int k = 0; k < row->n; k++) {
            if (!weights) at[k].lane = LANE_COMPUTE; /* no exchange orders the lanes */
            if (at[k].lane == LANE_COMPUTE) at[k].half = (short)(at[k].own % CHUNK_HALVES);
        }
        row->at = at;
    }
    return pipeline_of("1f1b", &s);
}

static void lifetimes_of_gathered_weights_are_proven(void **state)
{
    (void)state;
    Pipeline p = sharded(true);
    nth(&p, 0, ACTION_GATHER_WEIGHTS, 1)->layer = 3;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG,
                "reads the weights of layer 1, which are not gathered");
    p = sharded(true);
    forget_waits(nth(&p, 0, ACTION_FORWARD, 0));
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "wait for the weights of layer 0");
    p = sharded(true);
    forget_waits(nth(&p, 0, ACTION_GATHER_WEIGHTS, 2));
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG,
                "gather weights of layer 2 does not wait for the last use of place 0");
    p = sharded(true);
    nth(&p, 0, ACTION_FREE_WEIGHTS, 0)->layer = 1;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "place 0 has layer 0");
    p = sharded(true);
    nth(&p, 0, ACTION_GATHER_WEIGHTS, 1)->half = 0;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG,
                "gather weights of layer 1: place 0 has layer 0");
}

static void lifetimes_of_gradients_are_proven(void **state)
{
    (void)state;
    Pipeline p = sharded(true);
    forget_waits(nth(&p, 0, ACTION_REDUCE_GRADS, 0));
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG,
                "reduce gradients of layer 3 does not wait for the last use of place 1");
    p = sharded(false);
    forget_waits(nth(&p, 0, ACTION_ZERO_GRADS, 3)); /* after the step's and two places' first */
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG,
                "zero gradients of layer 1 does not wait for the last use of place 1");
    p = sharded(true);
    nth(&p, 0, ACTION_REDUCE_GRADS, 7)->kind = ACTION_FREE_WEIGHTS;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "free weights of layer 0");
    p = sharded(true);
    nth(&p, 0, ACTION_SUM_GRADS, 3)->layer = 1;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "sum gradients of layer 1");
    p = sharded(false);
    leave_out(&p, 0, nth(&p, 0, ACTION_ZERO_GRADS, 1));
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG,
                "adds to gradients of layer 3, which have no place");
    p = sharded(true);
    leave_out(&p, 0, nth(&p, 0, ACTION_REDUCE_GRADS, 7));
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG,
                "update before the gradients of layer 0 are reduced");
}

static void what_is_no_place_is_found(void **state)
{
    (void)state;
    static const struct {
        ActionKind kind;
        int n;
        const char *says;
    } c[] = { { ACTION_ZERO_GRADS, 1, "zeroes no place of layer 3" },
              { ACTION_FREE_WEIGHTS, 0, "frees no place of layer 0" },
              { ACTION_GATHER_WEIGHTS, 0, "gathers layer 0 before the update" } };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        Pipeline p = sharded(true);
        nth(&p, 0, c[i].kind, c[i].n)->half = -1;
        CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, c[i].says);
        p = sharded(true);
        nth(&p, 0, c[i].kind, c[i].n)->half = CHUNK_HALVES;
        CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "of 4, place 2");
        p = sharded(true);
        nth(&p, 0, c[i].kind, c[i].n)->layer = 4;
        CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "of layer 4 of 4");
    }
}

/* One layer: zero F0 B0 F1 B1 reduce sum update. */
static Pipeline one_layer(void)
{
    ScheduleShape s = { 1, 1, 2, 1, 1, 1, .blocks = 0, .shards = { .reduce = true, .sums = true } };
    pipeline_forget();
    return pipeline_of("1f1b", &s);
}

static void gradients_are_reduced_once_and_at_last(void **state)
{
    (void)state;
    Pipeline p = one_layer();
    Action reduce = *nth(&p, 0, ACTION_REDUCE_GRADS, 0);
    forget_waits(&reduce);
    p.rank[0].at[0] = reduce;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "layer 0 which has none");
    p = one_layer();
    forget_waits(nth(&p, 0, ACTION_REDUCE_GRADS, 0));
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG,
                "reduce gradients of layer 0 does not wait for all that add to them");
    p = one_layer();
    nth(&p, 0, ACTION_REDUCE_GRADS, 0)->kind = ACTION_SUM_GRADS;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG,
                "sum gradients of layer 0 before they are reduced");
    p = one_layer();
    nth(&p, 0, ACTION_SUM_GRADS, 0)->kind = ACTION_REDUCE_GRADS;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG,
                "reduce gradients of layer 0 a second time");
    p = one_layer();
    Action *update = nth(&p, 0, ACTION_UPDATE, 0);
    forget_waits(update);
    swap(update, nth(&p, 0, ACTION_SUM_GRADS, 0));
    update = nth(&p, 0, ACTION_UPDATE, 0);
    update->wait[0] = event_of(&p, nth(&p, 0, ACTION_REDUCE_GRADS, 0));
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG,
                "update before the gradients of layer 0 are reduced");
    p = one_layer();
    Action *last = nth(&p, 0, ACTION_BACKWARD, 1), *early = nth(&p, 0, ACTION_REDUCE_GRADS, 0);
    forget_waits(early);
    early->wait[0] = event_of(&p, nth(&p, 0, ACTION_BACKWARD, 0));
    swap(last, early);
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG,
                "adds to gradients of layer 0, which have been reduced");
}

/* Each rank updates a part of the weights that all read in the next step. */
static void updated_weights_are_gathered(void **state)
{
    (void)state;
    ScheduleShape s = {
        1, 1, 2, 1, 1, 1, .blocks = 0, .shards = { .reduce = true, .update = true }
    };
    pipeline_forget();
    Pipeline p = pipeline_of("1f1b", &s);
    leave_out(&p, 0, nth(&p, 0, ACTION_GATHER_WEIGHTS, 0));
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG,
                "nobody gathers layer 0 after the update");
}

/* Backward ends beside what the comm lane does. */
static void a_slot_is_left_by_both_lanes(void **state)
{
    (void)state;
    static const ChunkPhase forward[] = { { "layer", "whole", .half = -1 } };
    static const ChunkPhase backward[] = {
        { "layer", "top", .half = -1 },
        { "layer", "out", .half = -1, .lane = LANE_COMM },
        { "layer", "in", .half = -1, .overlap_ok = true, .ends = true },
    };
    static const Chunk chunk = { { { forward, 1 }, { backward, 3 } }, 1 };
    ScheduleShape s = { 1, 1, 2, 1, 1, 1, .chunk = &chunk };
    pipeline_forget();
    Pipeline p = pipeline_of("1f1b", &s);
    forget_waits(nth(&p, 0, ACTION_FORWARD, 1));
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG,
                "does not wait for the last use of slot 0");
}

/* A backward of a MoE layer: the gradient comes in on the comm lane, and shared experts read it on the other
 * one while it travels on to the routed experts. */
static void an_input_is_awaited_by_what_overlaps(void **state)
{
    (void)state;
    static const ChunkPhase forward[] = { { "layer", "whole", .half = -1 } };
    static const ChunkPhase backward[] = {
        { "layer", "combine", .half = -1, .lane = LANE_COMM },
        { "layer", "shared", .half = -1, .overlap_ok = true, .ends = true },
    };
    static const Chunk chunk = { { { forward, 1 }, { backward, 2 } }, 1 };
    ScheduleShape s = { 1, 1, 2, 1, 1, 1, .chunk = &chunk };
    pipeline_forget();
    Pipeline p = pipeline_of("1f1b", &s);
    CHECK_OK(schedule_check_all(&p, &scratch));
    forget_waits(nth(&p, 0, ACTION_BACKWARD, 1));
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG,
                "does not wait for its first action, which brings its input");
}

static Pipeline evaluated(void)
{
    const ScheduleDesc *d = NULL;
    Pipeline p;
    ScheduleShape s = { 2, 1, 4, 1, 1, 1, .blocks = 1 };
    pipeline_forget();
    CHECK_OK(schedule_find("1f1b", &d));
    CHECK_OK(schedule_evaluation(d, &s, &made, &scratch, &p));
    CHECK_OK(schedule_check_all(&p, &scratch));
    return p;
}

static void an_evaluation_is_no_step(void **state)
{
    (void)state;
    Pipeline p = evaluated();
    nth(&p, 0, ACTION_ADD_RECORDS, 0)->kind = ACTION_UPDATE;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "update in an evaluation");
    p = evaluated();
    leave_out(&p, 0, nth(&p, 0, ACTION_ADD_RECORDS, 0));
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "there is no end");
    p = evaluated();
    leave_out(&p, 1, nth(&p, 1, ACTION_FORWARD, 0));
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "micro-batch 0 never goes forward");
    p = evaluated();
    nth(&p, 0, ACTION_FORWARD, 0)->kind = ACTION_BACKWARD;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG,
                "backward of micro-batch 0 in an evaluation");
    p = two_stages();
    nth(&p, 0, ACTION_UPDATE, 0)->kind = ACTION_ADD_RECORDS;
    CHECK_FAILS(schedule_check_all(&p, &scratch), ERR_ARG, "add records in a step");
}

static const struct CMUnitTest tests[] = {
    TEST(a_missing_wait_is_found),
    TEST(a_wrong_number_is_found),
    TEST(a_backward_that_is_not_whole_is_found),
    TEST(passes_at_the_wrong_place_are_found),
    TEST(a_step_without_its_ends_is_found),
    TEST(ends_that_disagree_are_found),
    TEST(a_deadlock_is_found),
    TEST(collectives_without_an_order_are_found),
    TEST(phases_out_of_turn_are_found),
    TEST(memory_between_phases_is_guarded),
    TEST(lifetimes_of_gathered_weights_are_proven),
    TEST(lifetimes_of_gradients_are_proven),
    TEST(what_is_no_place_is_found),
    TEST(gradients_are_reduced_once_and_at_last),
    TEST(updated_weights_are_gathered),
    TEST(a_slot_is_left_by_both_lanes),
    TEST(an_input_is_awaited_by_what_overlaps),
    TEST(an_evaluation_is_no_step),
};
PIPELINE_TESTS(tests)
