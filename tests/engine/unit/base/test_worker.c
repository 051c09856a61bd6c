/* A worker's jobs are done one by one, each once, and their failures are handed over. */
#include "harness/test.h"

#include "engine/base/clock.h"
#include "engine/host/worker.h"

#include <time.h>

typedef struct Work {
    Worker worker;
    int done; /* guarded by nothing: the hand-over is what is tested */
    int fails_at;
    long sleep_ns;
} Work;

static Status add_one(void *state)
{
    Work *w = state;
    nanosleep(&(struct timespec){ .tv_nsec = w->sleep_ns }, NULL);
    w->done++;
    if (w->done == w->fails_at) return FAIL(ERR_DISK, "job %d is full", w->done);
    return OK;
}

static void open_work(Work *w)
{
    w->worker = (Worker){ .job = add_one, .state = w };
    CHECK_OK(worker_start(&w->worker, "the thread of the test"));
}

static void each_job_is_done_once_and_seen_when_it_has_ended(void **state)
{
    (void)state;
    Work w = { 0 };
    open_work(&w);
    CHECK(worker_wait(&w.worker, 0));
    CHECK_OK(worker_result(&w.worker));
    for (int i = 1; i <= 1000; i++) {
        worker_begin(&w.worker);
        CHECK(worker_wait(&w.worker, INFINITY));
        CHECK_OK(worker_result(&w.worker));
        CHECK_INT(w.done, i);
    }
    worker_stop(&w.worker);
    CHECK_INT(w.done, 1000);
}

static void a_failure_is_told_until_the_next_job_ends(void **state)
{
    (void)state;
    Work w = { .fails_at = 2 };
    open_work(&w);
    for (int i = 1; i <= 3; i++) {
        worker_begin(&w.worker);
        CHECK(worker_wait(&w.worker, INFINITY));
        status_clear();
        for (int twice = 0; twice < 2 && i == 2; twice++) {
            CHECK_FAILS(worker_result(&w.worker), ERR_DISK, "job 2 is full");
        }
        if (i != 2) CHECK_OK(worker_result(&w.worker));
    }
    worker_stop(&w.worker);
}

static void a_wait_ends_with_its_patience(void **state)
{
    (void)state;
    Work w = { .sleep_ns = 300000000 };
    open_work(&w);
    double start = clock_s();
    worker_begin(&w.worker);
    CHECK(!worker_wait(&w.worker, 0));
    CHECK(!worker_wait(&w.worker, 0.02));
    CHECK(clock_s() - start >= 0.02);
    CHECK(worker_wait(&w.worker, 100));
    CHECK(clock_s() - start >= 0.3 && clock_s() - start < 50);
    worker_stop(&w.worker);
}

static void stopping_waits_for_the_job_that_runs(void **state)
{
    (void)state;
    Work w = { .sleep_ns = 50000000 };
    open_work(&w);
    worker_begin(&w.worker);
    worker_stop(&w.worker);
    CHECK_INT(w.done, 1);
    worker_stop(&w.worker);
}

static void without_a_thread_the_job_is_done_at_once(void **state)
{
    (void)state;
    Work w = { .fails_at = 2 };
    w.worker = (Worker){ .job = add_one, .state = &w };
    for (int i = 1; i <= 3; i++) {
        worker_begin(&w.worker);
        CHECK_INT(w.done, i);
        CHECK(worker_wait(&w.worker, 0));
        if (i == 2) CHECK_FAILS(worker_result(&w.worker), ERR_DISK, "job 2 is full");
        if (i != 2) CHECK_OK(worker_result(&w.worker));
    }
    worker_stop(&w.worker);
    worker_stop(&(Worker){ 0 });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_job_is_done_once_and_seen_when_it_has_ended),
        TEST(a_failure_is_told_until_the_next_job_ends),
        TEST(a_wait_ends_with_its_patience),
        TEST(stopping_waits_for_the_job_that_runs),
        TEST(without_a_thread_the_job_is_done_at_once),
    };
    return TEST_RUN(tests);
}
