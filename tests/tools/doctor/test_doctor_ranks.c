/* Four ranks as threads, each with a fault of its own: slow memory, bound to a core, a clock that is ahead, another
 * library. One run measures all; each test looks for one of them. */
#include "harness/test.h"

#include "doctor/doctor.h"
#include "engine/train/peak.h"

#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 4, SLOW = 0, BOUND = 1, AHEAD = 2, OTHER = 3, AHEAD_S = 100 };

static char table[1 << 15], folder[] = "/tmp/switchyard_test_XXXXXX";
static DoctorVerdict verdict;
static _Thread_local int ahead_s;
static _Thread_local double copy_bytes_s;

/* Instead of the C library's: each rank has a time of day of its own. */
int clock_gettime(clockid_t clock, struct timespec *out)
{
    long failed = syscall(SYS_clock_gettime, clock, out);
    if (failed == 0 && clock == CLOCK_REALTIME) out->tv_sec += ahead_s;
    return (int)failed;
}

/* The linker takes these in place of engine/train/peak.c, so that rates do not depend on who else works here. */
Status peak_measure(const Config *c, int threads, bool with_copy, MeasuredPeak *best)
{
    (void)c, (void)with_copy;
    *best = (MeasuredPeak){ 50e9 * threads, copy_bytes_s };
    return OK;
}

Status peak_plan(const Config *c, int threads, size_t *out_bytes)
{
    (void)c, (void)threads;
    *out_bytes = 0;
    return OK;
}

Status peak_fill(Exec *ex, const Tensor *t) { return (void)ex, (void)t, OK; }

static void bind_to_first_core(void)
{
    cpu_set_t set;
    int first = 0;
    CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
    while (!CPU_ISSET(first, &set)) first++;
    CPU_ZERO(&set);
    CPU_SET(first, &set);
    CHECK(sched_setaffinity(0, sizeof set, &set) == 0);
}

static Status run_rank(void *state, Comm *world)
{
    Arena a = { 0 }, text = { 0 };
    Text out = { 0 };
    DoctorVerdict mine = DOCTOR_OK;
    DoctorOptions options = { .folder = folder, .shrink = 100 };
    (void)state;
    if (world->rank == BOUND) bind_to_first_core();
    copy_bytes_s = world->rank == SLOW ? 6e9 : 10e9;
    ahead_s = world->rank == AHEAD ? AHEAD_S : 0;
    options.versions =
        world->rank == OTHER ? "zlib 1.2\nnccl 2.27\nisa v4\n" : "zlib 1.2\nnccl 2.28\nisa v4\n";
    TRY(arena_init(&a, "test", MEM_HOST, (size_t)1 << 32));
    TRY(arena_init(&text, "text", MEM_HOST, (size_t)1 << 24));
    TRY(text_init(&out, &text));
    TRY(doctor_run(&options, world, &a, &out, &mine));
    if (world->rank == 0) {
        verdict = mine;
        snprintf(table, sizeof table, "%s", out.data);
    }
    arena_free(&text);
    arena_free(&a);
    return OK;
}

static int run_ranks(void **state)
{
    int failed = -1;
    (void)state;
    CHECK(mkdtemp(folder) != NULL);
    CHECK_OK(comm_threads(RANKS, 60, run_rank, NULL, &failed));
    CHECK(rmdir(folder) == 0); /* nothing was left in it */
    return 0;
}

/* The row's text up to the next row, into `out`. */
static void copy_row(const char *check, char out[4096])
{
    const char *at = strstr(table, check);
    if (at == NULL) fail_msg("no row %s in: %s", check, table);
    const char *end = strchr(at, '\n');
    while (end != NULL && strncmp(end, "\n    ", 5) == 0) end = strchr(end + 1, '\n');
    snprintf(out, 4096, "%.*s", (int)(end - at), at);
}

static void check_says(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) fail_msg("%s is not in: %s", part, text);
}

static void a_rank_that_is_bound_to_one_core_is_the_worst(void **state)
{
    char row[4096];
    (void)state;
    if (sysconf(_SC_NPROCESSORS_ONLN) < 2) skip();
    copy_row("cores of a rank ", row);
    check_says(row, "cores\n    rank 1 (host ");
    check_says(row, "): bad, 0.25 cores (limit 1): it may use 1, which rank 3 may use, too\n");
    CHECK_INT(verdict, DOCTOR_BAD);
}

static void a_clock_that_is_ahead_is_named_alone(void **state)
{
    char row[4096];
    (void)state;
    copy_row("clock, difference ", row);
    check_says(row, "clock, difference        bad");
    check_says(row, "    rank 2 (host ");
    check_says(row, "bad, 100 s (limit 1): its clock is 100 s ahead of rank 0's\n");
    CHECK(strstr(row, "rank 1") == NULL && strstr(row, "rank 3") == NULL);
}

static void a_library_that_others_do_not_have_is_named(void **state)
{
    char row[4096];
    (void)state;
    copy_row("program and libraries ", row);
    check_says(row, "    rank 3 (host ");
    check_says(row, "bad: it has \"nccl 2.27\", others have \"nccl 2.28\"\n");
    CHECK(strstr(row, "rank 0") == NULL && strstr(row, "rank 1") == NULL);
}

static void a_rank_under_the_others_is_named_with_its_limit(void **state)
{
    char row[4096];
    (void)state;
    copy_row("memory copy ", row);
    check_says(row, "memory copy              slow");
    check_says(row, "    rank 0 (host ");
    check_says(row, "): slow, 6 GB/s (limit 8, by the others): threads: ");
    CHECK(strstr(row, "rank 1") == NULL);
    copy_row("products of a thread ", row);
    check_says(row, "products of a thread     ok              50         50         50  GFLOP/s");
}

/* Six pairs and four ranks have a number each, whatever it is. */
static void all_pairs_are_measured(void **state)
{
    char row[4096];
    (void)state;
    copy_row("pairs in a host, rate ", row);
    copy_row("pairs in a host, latency ", row);
    copy_row("rank in a host, rate ", row);
    CHECK(strstr(table, "pairs of hosts") == NULL);
    CHECK(strstr(table, " - ") == NULL || strstr(table, "GPU") < strstr(table, " - "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_rank_that_is_bound_to_one_core_is_the_worst),
        TEST(a_clock_that_is_ahead_is_named_alone),
        TEST(a_rank_under_the_others_is_named_with_its_limit),
        TEST(a_library_that_others_do_not_have_is_named),
        TEST(all_pairs_are_measured),
    };
    return cmocka_run_group_tests(tests, run_ranks, NULL);
}
