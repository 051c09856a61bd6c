/* One rank of mpirun has a fault that was made here: `switchyard doctor` names it. */
#include "harness/doctor_table.h"

/* `only_rank_1` is a line for sh, before rank 1 becomes the program. */
static Outcome run_ranks(Lab *lab, const char *only_rank_1, const char *options)
{
    char line[4 * FILE_PATH_MAX];
    snprintf(line, sizeof line,
             "if [ \"$OMPI_COMM_WORLD_RANK\" = 1 ]; then %s; fi; exec \"$0\" doctor %s",
             only_rank_1, options);
    return lab_run(lab, &(Launch){ .cell = "a", .shell = line, .processes = 3 });
}

static void a_rank_that_is_bound_to_one_core_of_all(void **state)
{
    Lab *lab = *state;
    Outcome o = run_ranks(lab, "exec taskset -c 0 \"$0\" doctor", "");
    CHECK_EXIT(o, 3);
    const char *row = doctor_row(lab, &o, "cores of a rank");
    doctor_check_named(row, "rank 1 (host ");
    CHECK_SAYS(row, "bad, 0.3333 cores (limit 1): it may use 1, which rank 2 may use, too");
}

static Outcome run_late(Lab *lab, int ms, const char *options)
{
    char line[2 * FILE_PATH_MAX], self[FILE_PATH_MAX] = "";
    CHECK(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    snprintf(line, sizeof line, "export LATE_CLOCK_MS=%d LD_PRELOAD=%s/late_clock.so", ms,
             dirname(self));
    return run_ranks(lab, line, options);
}

static void a_clock_that_is_ahead(void **state)
{
    Lab *lab = *state;
    Outcome o = run_late(lab, 100000, "");
    CHECK_EXIT(o, 3);
    const char *row = doctor_row(lab, &o, "clock, difference");
    doctor_check_named(row, "rank 1 (host ");
    CHECK_SAYS(row, "bad, 100 s (limit 1): its clock is 100 s ahead of rank 0's");
    if (strstr(row, "rank 2") != NULL) fail_msg("rank 2 has the right time: %s", row);
}

/* Other rows may be bad, as there may be fewer cores than ranks. */
static void what_is_slow_fails_only_with_strict(void **state)
{
    Lab *lab = *state;
    Outcome o = run_late(lab, 300, "--shrink 100");
    doctor_check_verdict(lab, &o, "clock, difference", "slow");
    CHECK_EXIT(o, strstr(o.out, ": bad") != NULL ? 3 : 0);
    o = run_late(lab, 300, "--strict --shrink 100");
    doctor_check_verdict(lab, &o, "clock, difference", "slow");
    CHECK_EXIT(o, 3);
}

static void a_program_that_is_not_the_others(void **state)
{
    Lab *lab = *state;
    size_t n = 0;
    char line[2 * FILE_PATH_MAX];
    const char *other = lab_path(lab, "other"), *data = lab_read(lab, lab->program, &n);
    lab_write(lab, other, data, n);
    FILE *f = fopen(other, "a");
    CHECK(f != NULL && fputc('x', f) == 'x' && fclose(f) == 0 && chmod(other, 0755) == 0);
    snprintf(line, sizeof line, "cp \"$0-doctor\" %s-doctor; exec %s doctor", other, other);
    Outcome o = run_ranks(lab, line, "");
    CHECK_EXIT(o, 3);
    const char *row = doctor_row(lab, &o, "program and libraries");
    doctor_check_named(row, "rank 1 (host ");
    CHECK_SAYS(row, "bad: it has \"sum ");
    CHECK_SAYS(row, "\", others have \"sum ");
    if (strstr(row, "rank 0") != NULL) fail_msg("rank 0 is as most: %s", row);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(a_rank_that_is_bound_to_one_core_of_all),
        LAB_TEST(a_clock_that_is_ahead),
        LAB_TEST(what_is_slow_fails_only_with_strict),
        LAB_TEST(a_program_that_is_not_the_others),
    };
    return LAB_RUN_ALL(tests);
}
