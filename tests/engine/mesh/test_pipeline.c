/* Stages on ranks of their own, as threads: every schedule gives the losses and gradients of one
 * rank, the same bits twice, and takes the memory that was planned. */
#include "harness/pipeline.h"

#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/train/recorder.h"
#include "viz/timeline_file.h"

#include <stdlib.h>

static void two_stages_train_as_one_rank_does(void **state)
{
    (void)state;
    check_schedules(2, TINY("attention.q_rank=9"));
}

static void four_stages_train_as_one_rank_does(void **state)
{
    (void)state;
    check_schedules(4, TINY("attention.kind=gqa"));
}

static void a_table_on_both_ends_gets_the_gradients_of_both(void **state)
{
    (void)state;
    check_schedules(2, TINY("model.tied=true"));
}

/* An id that is none comes to the first stage alone, in the third micro-batch. */
static Status fail_step(Tiny *t, Case *c, int rank)
{
    (void)c;
    StepResult result;
    if (rank == 0) ((int32_t *)t->batch.id.data)[2 * t->shape.sequence] = 1000;
    return engine_step(&t->engine, &t->batch, 0, 1, &result);
}

static Status failing_stage(void *state, Comm *world)
{
    (void)state;
    return with_stage(world, TINY("mesh.pp=2", "train.micro_batch=1", "run.threads=1"), NULL,
                      fail_step);
}

static void a_stage_that_fails_within_a_step_ends_all(void **state)
{
    (void)state;
    int failed = -1;
    double start = clock_s();
    CHECK_FAILS(comm_threads(2, TIMEOUT_S, failing_stage, NULL, &failed), ERR_ARG, "id is 1000");
    CHECK_INT(failed, 0);
    CHECK(clock_s() - start < TIMEOUT_S / 2);
}

static Status stay_away(Tiny *t, Case *c, int rank)
{
    (void)c;
    StepResult result;
    return rank == 1 ? OK : engine_step(&t->engine, &t->batch, 0, 1, &result);
}

static Status lonely_stage(void *state, Comm *world)
{
    (void)state;
    return with_stage(world, TINY("mesh.pp=2", "train.micro_batch=1", "run.threads=1"), NULL,
                      stay_away);
}

static void who_waits_in_vain_says_where_it_stood(void **state)
{
    (void)state;
    int failed = -1;
    CHECK_FAILS(comm_threads(2, 3, lonely_stage, NULL, &failed), ERR_COMM,
                "at step 1: backward of micro-batch 0 on chunk 0");
    CHECK_INT(failed, 0);
}

/* Written by the stages, read as a page of pipelines reads it. */

static char folder[] = "/tmp/switchyard-pipeline-XXXXXX";

static Status record_step(Tiny *t, Case *c, int rank)
{
    (void)c, (void)rank;
    Recorder r;
    StepResult result;
    TRY(recorder_open(&r, &t->engine, NULL, 1));
    recorder_trace(&r, true);
    Status s = engine_step(&t->engine, &t->batch, 0, 7, &result);
    recorder_take(&r, &result, 1, 0, 0);
    recorder_trace(&r, false);
    if (s == OK) s = recorder_pipeline(&r, folder);
    recorder_close(&r);
    return s;
}

static Status recorded_stage(void *state, Comm *world)
{
    (void)state;
    return with_stage(world,
                      TINY("mesh.pp=2", "mesh.vpp=2", "mesh.schedule=zbv", "model.layers=4",
                           "train.micro_batch=1", "run.threads=1"),
                      NULL, record_step);
}

static void a_recorded_step_is_drawn_with_every_pass(void **state)
{
    (void)state;
    enum { MICROS = 4, CHUNKS = 2 };
    int failed = -1;
    Arena a = { 0 };
    Timeline t;
    CHECK(mkdtemp(folder) != NULL);
    CHECK_OK(comm_threads(2, TIMEOUT_S, recorded_stage, NULL, &failed));
    CHECK_OK(arena_init(&a, "timeline", MEM_HOST, (size_t)1 << 30));
    CHECK_OK(timeline_read(folder, -1, &a, &t));
    CHECK_OK(file_remove_tree(folder));
    CHECK_INT(t.iteration, 7);
    CHECK_TEXT(t.title, "zbv, step 7");
    CHECK_INT(t.ranks, 2);
    CHECK_INT(t.chunks, CHUNKS);
    CHECK_INT(t.micros, MICROS);
    for (int r = 0; r < t.ranks; r++) {
        int n[TIMELINE_KINDS] = { 0 };
        for (int i = 0; i < t.rank[r].spans; i++) {
            const TimelineSpan *s = &t.rank[r].span[i];
            n[s->kind]++;
            CHECK(s->end_s >= s->start_s && s->end_s <= t.rank[r].total_s);
        }
        CHECK_INT(n[TIMELINE_FORWARD], MICROS * CHUNKS);
        CHECK_INT(n[TIMELINE_BACKWARD] + n[TIMELINE_INPUT], MICROS * CHUNKS);
        CHECK_INT(n[TIMELINE_INPUT], n[TIMELINE_WEIGHT]);
        CHECK(n[TIMELINE_INPUT] > 0);
        CHECK_INT(n[TIMELINE_OTHER], 2); /* zero, update */
        CHECK_INT(n[TIMELINE_SEND], 2 * MICROS);
    }
    arena_free(&a);
}

static void a_pipeline_without_its_ranks_is_refused(void **state)
{
    (void)state;
    Tiny t;
    CHECK_FAILS(tiny_make(&t, TINY("mesh.pp=2"), NULL), ERR_ARG,
                "mesh.pp=2 needs 2 ranks: add --ranks 2");
    tiny_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(two_stages_train_as_one_rank_does),
        TEST(four_stages_train_as_one_rank_does),
        TEST(a_table_on_both_ends_gets_the_gradients_of_both),
        TEST(a_stage_that_fails_within_a_step_ends_all),
        TEST(who_waits_in_vain_says_where_it_stood),
        TEST(a_recorded_step_is_drawn_with_every_pass),
        TEST(a_pipeline_without_its_ranks_is_refused),
    };
    return TEST_RUN(tests);
}
