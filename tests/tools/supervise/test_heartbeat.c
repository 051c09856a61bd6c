/* The heartbeat as who watches reads it: lines of a fixed length, and what they cost. */
#include "harness/test.h"

#include "engine/base/clock.h"
#include "engine/train/heartbeat.h"
#include "supervise/files.h"

#include <unistd.h>

typedef struct Folder {
    char run[64];
    Arena arena;
} Folder;

static int begin(void **state)
{
    static Folder f;
    f = (Folder){ .run = "/tmp/switchyard_beat_XXXXXX" };
    CHECK(mkdtemp(f.run) != NULL);
    CHECK_OK(arena_init(&f.arena, "test", MEM_HOST, (size_t)1 << 28));
    *state = &f;
    return 0;
}

static int end(void **state)
{
    Folder *f = *state;
    CHECK_OK(file_remove_tree(f->run));
    arena_free(&f->arena);
    return 0;
}

static Beats read_beats(Folder *f)
{
    Beats b;
    CHECK_OK(beats_read(f->run, &f->arena, &b));
    return b;
}

/* A rank of a host; a test has no world of processes. */
static void open_beat(Heartbeat *h, const Folder *f, int rank, int line)
{
    CHECK_OK(heartbeat_init(h, f->run, NULL));
    h->rank = rank;
    h->line = line;
}

static void steps_and_phases_are_read_back(void **state)
{
    Folder *f = *state;
    CHECK_OK(beats_begin(f->run, "t"));
    Beats none = read_beats(f);
    CHECK_INT(none.n, 0);
    Heartbeat one, zero;
    open_beat(&one, f, 1, 1);
    open_beat(&zero, f, 0, 0);
    heartbeat_first(&one, 100);
    heartbeat_first(&zero, 100);
    one.next_s = 0;
    heartbeat_step(&one, 101, 0.5);
    Beats b = read_beats(f);
    CHECK_INT(b.n, 2);
    CHECK(b.rank[0].rank == 0 && b.rank[0].step == 100 && b.rank[0].phase == HEARTBEAT_STEPS);
    CHECK(b.rank[1].rank == 1 && b.rank[1].step == 101);
    CHECK_INT(beats_step(&b), 101);
    CHECK_INT(beats_first(&b), 100);
    CHECK_NEAR(beats_busy_s(&b), 0.5, 0);
    heartbeat_phase(&zero, HEARTBEAT_SAVING);
    Beats after = read_beats(f);
    CHECK(after.sum != b.sum && after.rank[0].phase == HEARTBEAT_SAVING);
    heartbeat_free(&one);
    heartbeat_free(&zero);
}

static void a_failure_is_the_last_line_and_stays_in_the_record(void **state)
{
    Folder *f = *state;
    Heartbeat h;
    open_beat(&h, f, 0, 0);
    heartbeat_first(&h, 3);
    Status s = FAIL(ERR_NUMERIC, "step 4: \"nan\"");
    CHECK_INT(heartbeat_last(&h, s), ERR_NUMERIC);
    CHECK(strstr(status_message(), "step 4: \"nan\" [numeric]") != NULL);
    Beats b = read_beats(f);
    CHECK(b.n == 1 && b.rank[0].phase == HEARTBEAT_FAILED);
    CHECK_TEXT(b.rank[0].kind, "numeric");
    CHECK_TEXT(b.rank[0].why, "step 4: \"nan\"");
    char quotes[300];
    memset(quotes, '"', sizeof quotes - 1); /* as JSON they are twice as long as the line */
    quotes[sizeof quotes - 1] = '\0';
    CHECK_INT(heartbeat_last(&h, FAIL(ERR_DISK, "%s%s", quotes, quotes)), ERR_DISK);
    b = read_beats(f);
    CHECK(b.n == 1);
    CHECK_TEXT(b.rank[0].kind, status_name(ERR_DISK));
    heartbeat_free(&h);
}

/* A start that is refused before its first line must leave the folder as it was. */
static void without_a_first_line_there_is_no_last_one(void **state)
{
    Folder *f = *state;
    char path[FILE_PATH_MAX];
    Heartbeat h;
    open_beat(&h, f, 0, 0);
    CHECK_INT(heartbeat_last(&h, ERR_ARG), ERR_ARG);
    CHECK_OK(file_join(path, f->run, HEARTBEAT_FOLDER));
    CHECK(!file_exists(path));
    heartbeat_free(&h);
}

static void half_a_line_is_left_out(void **state)
{
    Folder *f = *state;
    Heartbeat one, zero;
    open_beat(&one, f, 1, 1);
    open_beat(&zero, f, 0, 0);
    heartbeat_first(&zero, 1);
    heartbeat_first(&one, 1);
    CHECK(truncate(one.path, HEARTBEAT_BYTES + 20) == 0);
    CHECK_INT(read_beats(f).n, 1);
    heartbeat_free(&zero);
    heartbeat_free(&one);
}

static void the_token_tells_one_folder_from_another(void **state)
{
    Folder *f = *state;
    Heartbeat h;
    open_beat(&h, f, 5, 0);
    CHECK_OK(beats_begin(f->run, "right"));
    CHECK_OK(heartbeat_check_token(&h, f->run, "right"));
    CHECK_FAILS(heartbeat_check_token(&h, f->run, "wrong"), ERR_ARG, "(rank 5)");
    CHECK_FAILS(heartbeat_check_token(&h, f->run, "rightly"), ERR_ARG,
                "a folder that all hosts share");
    CHECK_OK(beats_begin(f->run, "next"));
    CHECK_FAILS(heartbeat_check_token(&h, f->run, "right"), ERR_ARG, "is not the same folder");
    heartbeat_free(&h);
}

/* Steps that take no time. A line takes a microsecond at least, so 0.3 s hold 300 lines at most; without the rule it
 * would be tens of thousands. */
static void lines_take_a_thousandth_of_the_time(void **state)
{
    Folder *f = *state;
    Heartbeat h;
    int lines = 0;
    open_beat(&h, f, 0, 0);
    heartbeat_first(&h, 0);
    const double start_s = clock_s();
    for (int64_t step = 1; clock_s() - start_s < 0.3; step++) {
        const double next_s = h.next_s;
        heartbeat_step(&h, step, 1e-6);
        lines += h.next_s != next_s;
    }
    CHECK(lines <= 300);
    CHECK(h.next_s - clock_s() <= HEARTBEAT_PAUSE_S);
    heartbeat_free(&h);
}

#define FOLDER_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(steps_and_phases_are_read_back),
        FOLDER_TEST(a_failure_is_the_last_line_and_stays_in_the_record),
        FOLDER_TEST(without_a_first_line_there_is_no_last_one),
        FOLDER_TEST(half_a_line_is_left_out),
        FOLDER_TEST(the_token_tells_one_folder_from_another),
        FOLDER_TEST(lines_take_a_thousandth_of_the_time),
    };
    return TEST_RUN(tests);
}
