/* Our own recordings as traces: read into memory before anything of them is believed, whatever others
 * do to the file meanwhile, and told apart by the run that they are of. */
#include "harness/test.h"

#include "traces/read/events_read.h"
#include "traces/read/kineto_source.h"
#include "traces/read/recording.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 300, BUFFER_BYTES = 1 << 16 };

static const int64_t BEGAN = 1700000000123456; /* us of Unix time: more than 32 bits */

static char path[64];

/* A rank's file: one action, STEPS steps. */
static void write_recording(const char *to, int rank, int64_t began_us)
{
    static char buffer[BUFFER_BYTES];
    File f = { 0 };
    char meta[128];
    const RecordRow row = { .micro = -1, .layer = -1, .chunk = -1 };
    char rows[2 * sizeof(uint32_t) + sizeof row] = { 0 };
    struct {
        RecordStep head;
        RecordTime time;
    } step = { { .unix_ns = 1000, .seconds = 1, .rows = 1 }, { 0, 5000 } };
    (void)snprintf(meta, sizeof meta, "{\"rank\":%d,\"ranks\":2,\"began_us\":%lld}", rank,
                   (long long)began_us);
    rows[sizeof(uint32_t)] = 1;
    memcpy(rows + 2 * sizeof(uint32_t), &row, sizeof row);
    CHECK_OK(file_create_temp_buffered(&f, to, buffer, sizeof buffer));
    CHECK_OK(record_head(&f));
    CHECK_OK(record_chunk(&f, "META", meta, strlen(meta), NULL, 0));
    CHECK_OK(record_chunk(&f, "ROWS", rows, sizeof rows, NULL, 0));
    CHECK_OK(record_chunk(&f, "NAME", "forward", sizeof "forward", NULL, 0));
    for (step.head.step = 0; step.head.step < STEPS; step.head.step++)
        CHECK_OK(record_chunk(&f, "STEP", &step, sizeof step, NULL, 0));
    CHECK_OK(file_commit(&f));
}

static void a_file_that_changes_while_it_is_read_is_refused(void **state)
{
    (void)state;
    static const int by[] = { -20000, 20000 }; /* what lies behind the first read */
    for (int i = 0; i < 2; i++) {
        Arena a = { 0 };
        Source s = { 0 };
        uint8_t *data = NULL;
        uint64_t n = 0;
        size_t bytes = 0;
        CHECK_OK(arena_init(&a, "test", MEM_HOST, (size_t)1 << 30));
        write_recording(path, 0, BEGAN);
        CHECK_OK(file_size(path, &n));
        CHECK_OK(source_open(&s, path, &a));
        CHECK_INT(truncate(path, (off_t)n + by[i]), 0);
        CHECK_INT(source_all(&s, &a, &data, &bytes), ERR_IO);
        CHECK(strstr(status_message(), "while it was read") != NULL);
        source_close(&s);
        arena_free(&a);
    }
}

typedef struct Disturber {
    int fd;
    const char *whole;
    size_t bytes;
    atomic_bool over;
} Disturber;

/* Cuts the file, at many places, and makes it whole. */
static void *disturb(void *state)
{
    Disturber *d = state;
    for (size_t n = 0; !atomic_load(&d->over); n += 1009) {
        (void)!ftruncate(d->fd, (off_t)(n % d->bytes));
        (void)!pwrite(d->fd, d->whole, d->bytes, 0);
    }
    return NULL;
}

static void others_may_cut_the_file_at_any_time(void **state)
{
    (void)state;
    Disturber d = { .fd = -1 };
    Arena a = { 0 };
    char *whole = NULL;
    pthread_t other;
    int odd = 0;
    CHECK_OK(arena_init(&a, "test", MEM_HOST, (size_t)1 << 30));
    write_recording(path, 0, BEGAN);
    CHECK_OK(file_read_all(path, &a, &whole, &d.bytes));
    d.whole = whole;
    d.fd = open(path, O_WRONLY);
    CHECK_INT(pthread_create(&other, NULL, disturb, &d), 0);
    for (int i = 0; i < 300; i++) {
        Events e = { 0 };
        Status s = events_read(path, &(EventsOptions){ .threads = 1 }, &e);
        odd += s != OK && s != ERR_IO && s != ERR_FORMAT;
        odd += s == OK && (e.recording->file.steps < 1 || e.recording->file.steps > STEPS);
        events_free(&e);
    }
    atomic_store(&d.over, true);
    pthread_join(other, NULL);
    close(d.fd);
    arena_free(&a);
    CHECK_INT(odd, 0);
}

static void what_was_read_outlives_the_file(void **state)
{
    (void)state;
    Events e = { 0 };
    Arena a = { 0 };
    Table table[RECORDING_SHEETS];
    int n = 0;
    CHECK_OK(arena_init(&a, "test", MEM_HOST, (size_t)1 << 30));
    write_recording(path, 1, BEGAN);
    CHECK_OK(events_read(path, &(EventsOptions){ .threads = 1 }, &e));
    CHECK_INT(truncate(path, 0), 0);
    CHECK(e.rank == 1 && e.world == 2 && e.run == BEGAN && e.n == 2 * STEPS);
    CHECK_OK(recording_tables(e.recording, &a, table, &n));
    CHECK_INT(n, RECORDING_SHEETS);
    CHECK_INT(table[0].rows, STEPS);
    CHECK_OK(recording_tables(NULL, &a, table, &n)); /* of other traces */
    CHECK_INT(n, 0);
    events_free(&e);
    arena_free(&a);
}

static void runs_are_told_apart_by_when_they_began(void **state)
{
    (void)state;
    const int64_t began = BEGAN, s = 1000000;
    CHECK_OK(events_same_run("a", began, "b", began));
    CHECK_OK(events_same_run("a", 0, "b", began)); /* an older recording does not say it */
    CHECK_OK(events_same_run("a", began, "b", 0));
    CHECK_INT(events_same_run("a", began, "b", began + 5 * s / 2), ERR_ARG);
    CHECK(strstr(status_message(),
                 "a and b are of runs that began 2.5 s apart: name files of one run") != NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_file_that_changes_while_it_is_read_is_refused),
        TEST(others_may_cut_the_file_at_any_time),
        TEST(what_was_read_outlives_the_file),
        TEST(runs_are_told_apart_by_when_they_began),
    };
    (void)snprintf(path, sizeof path, "/tmp/test_recording.%d", (int)getpid());
    int failed = TEST_RUN(tests);
    (void)remove(path);
    return failed;
}
