/* Verdicts over samples made here: by a value, by the others, by a data sheet; and who is named first. */
#include "harness/test.h"

#include "doctor/doctor.h"
#include "engine/base/file.h"

enum { MOST = 64 };

static Arena arena;
static DoctorSample sample[MOST];
static int samples;

static int open_arena(void **state)
{
    (void)state;
    samples = 0;
    CHECK_OK(arena_init(&arena, "test", MEM_HOST, (size_t)1 << 24));
    return 0;
}

static int close_arena(void **state)
{
    (void)state;
    arena_free(&arena);
    return 0;
}

static void add(DoctorCheck check, double value, double expected)
{
    sample[samples] = (DoctorSample){ .check = check, .rank = samples, .peer = -1, .value = value };
    sample[samples++].expected = expected;
}

static DoctorRow judge(DoctorCheck check)
{
    DoctorRow row;
    CHECK_OK(doctor_judge(check, sample, samples, &arena, &row));
    return row;
}

/* `values` ends with 0. */
static DoctorRow judge_values(DoctorCheck check, const double *values)
{
    samples = 0;
    for (const double *v = values; *v != 0; v++) add(check, *v, 0);
    return judge(check);
}

#define ROW(check, ...) judge_values((check), (const double[]){ __VA_ARGS__, 0 })

static void a_rank_is_compared_with_the_median_of_the_others(void **state)
{
    (void)state;
    CHECK_INT(ROW(DOCTOR_PRODUCTS, 10, 10, 10, 8).verdict, DOCTOR_OK);
    CHECK_INT(ROW(DOCTOR_PRODUCTS, 10, 10, 10, 7.9).verdict, DOCTOR_SLOW);
    CHECK_INT(ROW(DOCTOR_PRODUCTS, 10, 10, 10, 5).verdict, DOCTOR_SLOW);
    DoctorRow row = ROW(DOCTOR_PRODUCTS, 10, 4.9, 10, 10);
    CHECK_INT(row.verdict, DOCTOR_BAD);
    CHECK_INT(row.odd, 1);
    CHECK_INT(row.finding[0].sample->rank, 1);
    CHECK_INT(row.finding[0].against, AGAINST_PEERS);
    CHECK_NEAR(row.finding[0].limit, 5, 1e-9);
    CHECK_NEAR(row.least, 4.9, 0);
    CHECK_NEAR(row.median, 10, 0);
}

/* Of two, the other one is the median: half of it is slow although it is 0.67 of both ones' mean. */
static void a_rank_is_not_its_own_peer(void **state)
{
    (void)state;
    CHECK_INT(ROW(DOCTOR_PRODUCTS, 10, 4.9).verdict, DOCTOR_BAD);
    CHECK_INT(ROW(DOCTOR_PRODUCTS, 10, 4.9).odd, 1);
    CHECK_INT(ROW(DOCTOR_PRODUCTS, 3).verdict, DOCTOR_OK);
    DoctorRow row =
        ROW(DOCTOR_PRODUCTS, 1, 10, 20, 30); /* the others of 1 have 20, those of 10 too */
    CHECK_NEAR(row.finding[0].limit, 10, 1e-9);
    CHECK_NEAR(row.finding[1].limit, 16, 1e-9);
    CHECK_INT(row.odd, 2);
    CHECK_NEAR(row.median, 15, 0);
}

static void where_less_is_better_more_is_slow(void **state)
{
    (void)state;
    CHECK_INT(ROW(DOCTOR_NET_LATENCY, 10, 10, 20).verdict, DOCTOR_OK);
    CHECK_INT(ROW(DOCTOR_NET_LATENCY, 10, 10, 21).verdict, DOCTOR_SLOW);
    CHECK_INT(ROW(DOCTOR_NET_LATENCY, 10, 10, 99).verdict, DOCTOR_SLOW);
    CHECK_INT(ROW(DOCTOR_NET_LATENCY, 10, 10, 101).verdict, DOCTOR_BAD);
    CHECK_INT(ROW(DOCTOR_NET_LATENCY, 10, 10, 0.1).verdict, DOCTOR_OK);
    CHECK_INT(ROW(DOCTOR_CLOCK, 0.04, 0.04).verdict, DOCTOR_OK);
    CHECK_INT(ROW(DOCTOR_CLOCK, 0.06, 0.04).verdict, DOCTOR_SLOW);
    DoctorRow row = ROW(DOCTOR_CLOCK, 1.5, 0.04);
    CHECK_INT(row.verdict, DOCTOR_BAD);
    CHECK_INT(row.finding[0].against, AGAINST_VALUE);
    CHECK_NEAR(row.finding[0].limit, 1, 0);
}

static void a_value_of_its_own_may_be_too_small(void **state)
{
    (void)state;
    CHECK_INT(ROW(DOCTOR_DISK_FREE, 1).verdict, DOCTOR_OK);
    CHECK_INT(ROW(DOCTOR_DISK_FREE, 0.9).verdict, DOCTOR_BAD);
    CHECK_INT(ROW(DOCTOR_DISK_WRITE, 99).verdict, DOCTOR_SLOW);
    CHECK_INT(ROW(DOCTOR_DISK_WRITE, 9).verdict, DOCTOR_BAD);
    CHECK_INT(ROW(DOCTOR_CORES, 0.5, 0.5).verdict, DOCTOR_BAD);
}

static void a_sheet_counts_where_there_is_one(void **state)
{
    (void)state;
    add(DOCTOR_GPU_COPY, 1000, 0);
    CHECK_INT(judge(DOCTOR_GPU_COPY).verdict, DOCTOR_OK);
    add(DOCTOR_GPU_COPY, 1000, 3350);
    DoctorRow row = judge(DOCTOR_GPU_COPY);
    CHECK_INT(row.verdict, DOCTOR_SLOW);
    CHECK_INT(row.finding[0].against, AGAINST_SHEET);
    CHECK_NEAR(row.finding[0].limit, 1675, 1e-9);
    CHECK_INT(row.finding[0].sample->rank, 1);
}

static void what_is_unknown_is_no_peer_and_no_failure(void **state)
{
    (void)state;
    add(DOCTOR_GPU_CLOCK, NAN, 0);
    add(DOCTOR_GPU_CLOCK, NAN, 0);
    DoctorRow row = judge(DOCTOR_GPU_CLOCK);
    CHECK_INT(row.verdict, DOCTOR_UNKNOWN);
    CHECK(isnan(row.median));
    CHECK_INT(row.odd, 2);
    add(DOCTOR_GPU_CLOCK, 1700, 0);
    add(DOCTOR_GPU_CLOCK, 1710, 0);
    row = judge(DOCTOR_GPU_CLOCK);
    CHECK_INT(row.verdict, DOCTOR_OK);
    CHECK_INT(row.known, 2);
    CHECK_INT(row.findings, 2);
    add(DOCTOR_GPU_CLOCK, 300, 0);
    row = judge(DOCTOR_GPU_CLOCK);
    CHECK_INT(row.verdict, DOCTOR_BAD);
    CHECK_INT(row.finding[0].sample->rank, 4);
}

static void other_checks_do_not_count(void **state)
{
    (void)state;
    add(DOCTOR_PRODUCTS, 10, 0);
    add(DOCTOR_MEMORY_RATE, 1, 0);
    add(-1, NAN, 0); /* what fills up shorter lists */
    CHECK_INT(judge(DOCTOR_PRODUCTS).verdict, DOCTOR_OK);
    CHECK_INT(judge(DOCTOR_PRODUCTS).samples, 1);
    DoctorRow row = judge(DOCTOR_CLOCK);
    CHECK_INT(row.samples, 0);
    CHECK_INT(row.verdict, DOCTOR_OK);
}

/* Ranks 0 to 39 have 100, but every fourth has its own number below 50; the worst have the least. */
static void the_worst_are_named_first_and_all_are_counted(void **state)
{
    (void)state;
    for (int i = 0; i < 40; i++) add(DOCTOR_PRODUCTS, i % 4 == 0 ? 40 - i / 4 : 100, 0);
    add(DOCTOR_PRODUCTS, 70, 0);
    DoctorRow row = judge(DOCTOR_PRODUCTS);
    CHECK_INT(row.odd, 11);
    CHECK_INT(row.findings, DOCTOR_FINDINGS_MAX);
    for (int i = 0; i < DOCTOR_FINDINGS_MAX; i++) {
        CHECK_INT(row.finding[i].sample->rank, 36 - 4 * i);
        CHECK_INT(row.finding[i].verdict, DOCTOR_BAD);
    }
}

static void each_pair_meets_once(void **state)
{
    (void)state;
    for (int n = 2; n < 34; n++) {
        int met[34][34] = { { 0 } };
        for (int round = 0; round < doctor_rounds(n); round++) {
            for (int r = 0; r < n; r++) {
                int peer = doctor_partner(r, n, round);
                CHECK(peer >= -1 && peer < n && peer != r);
                if (peer < 0) continue;
                CHECK_INT(doctor_partner(peer, n, round), r);
                met[r][peer]++;
            }
        }
        for (int r = 0; r < n; r++) {
            for (int s = 0; s < n; s++) CHECK_INT(met[r][s], r != s);
        }
    }
    CHECK_INT(doctor_rounds(1), 0);
    CHECK_INT(doctor_rounds(8), 7);
    CHECK_INT(doctor_rounds(7), 7);
}

/* A row of the guide's table: the check, its limits, what to do. */
static void the_guide_has_every_limit(void **state)
{
    (void)state;
    char *guide = NULL;
    size_t bytes = 0;
    CHECK_OK(file_read_all("docs/reference/doctor.md", &arena, &guide, &bytes));
    for (DoctorCheck c = 0; c < DOCTOR_CHECKS; c++) {
        Text line = { 0 };
        CHECK_OK(text_init(&line, &arena));
        CHECK_OK(text_printf(&line, "| %s | ", doctor_rules[c].name));
        CHECK_OK(doctor_print_limits(&doctor_rules[c], &line));
        CHECK_OK(text_printf(&line, " |"));
        if (strstr(guide, line.data) == NULL) fail_msg("the guide lacks %s", line.data);
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, open_arena, close_arena)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_rank_is_compared_with_the_median_of_the_others),
        CASE(a_rank_is_not_its_own_peer),
        CASE(where_less_is_better_more_is_slow),
        CASE(a_value_of_its_own_may_be_too_small),
        CASE(a_sheet_counts_where_there_is_one),
        CASE(what_is_unknown_is_no_peer_and_no_failure),
        CASE(other_checks_do_not_count),
        CASE(the_worst_are_named_first_and_all_are_counted),
        CASE(each_pair_meets_once),
        CASE(the_guide_has_every_limit),
    };
    return TEST_RUN(tests);
}
