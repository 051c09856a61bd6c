/* run.verify_every in the program: a core with wrong results ends the run before the update, and what a verified
 * run writes. */
#include "harness/run_folder.h"

#include <libgen.h>
#include <unistd.h>

#define STEPS "train", "../tiny.yaml", "train.steps=6", "checkpoint.every=3"

static const char *const plain_args[] = { STEPS, NULL };
static const Launch whole = { .args = plain_args };

/* One in 37 logarithms has another bit. A step takes one for each of its targets, and their number is no multiple of 37:
 * so other losses differ in its second run. */
static Outcome run_faulty(Lab *lab, const char *cell, const char *const *args)
{
    char path[FILE_PATH_MAX + 32], self[FILE_PATH_MAX] = "";
    CHECK(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    snprintf(path, sizeof path, "%s/faulty_log.so", dirname(self));
    CHECK(setenv("LD_PRELOAD", path, 1) == 0 && setenv("FAULTY_LOG", "37", 1) == 0);
    Outcome o = lab_run(lab, &(Launch){ .cell = cell, .args = args });
    CHECK(unsetenv("LD_PRELOAD") == 0 && unsetenv("FAULTY_LOG") == 0);
    return o;
}

/* Goes on from a checkpoint, since initial weights need logarithms, too. */
static void a_faulty_core_ends_the_run_before_the_update(void **state)
{
    Lab *lab = *state;
    if (RUNS(0, 1)) skip(); /* a sanitizer must be loaded first */
    run_whole_s(lab, &whole);
    CHECK_EXIT(RUN(lab, "faulty", STEPS), 0);
    CHECK_OK(file_remove_tree(run_checkpoint(lab, "faulty", 6)));
    const char *const args[] = { STEPS, "run.verify_every=5", "--resume", NULL };
    Outcome o = run_faulty(lab, "faulty", args);
    CHECK_EXIT(o, 3);
    const char *error = strstr(o.err, "error: ");
    CHECK(error != NULL && one_sentence(error));
    CHECK_SAYS(o.err, "step 5 was computed twice, with other bits on rank 0 (host ");
    CHECK_SAYS(o.err, "its losses); nothing of it is kept");
    CHECK_INT(run_count_steps(lab, "faulty"), 6 + 1); /* and step 4 once more */
    CHECK(run_has_checkpoint(lab, "faulty", 3) && !run_has_checkpoint(lab, "faulty", 5));
    CHECK_EXIT(RUN(lab, "faulty", STEPS, "--resume"), 0);
    check_same_steps(lab, "whole", "faulty", 4, 6);
    check_same_checkpoint(lab, "whole", "faulty", 6);
}

/* Each of two ranks draws the weights that both hold, with other faults. No step is computed twice here. */
static void weights_that_differ_between_ranks_are_not_saved(void **state)
{
    Lab *lab = *state;
    if (RUNS(0, 1)) skip(); /* a sanitizer must be loaded first */
    const char *const args[] = { STEPS,         "run.verify_every=1000", "--ranks", "2",
                                 "mesh.zero=0", "train.micro_batch=1",   NULL };
    Outcome o = run_faulty(lab, "apart", args);
    CHECK_EXIT(o, 3);
    CHECK_SAYS(o.err,
               "after step 3 ranks that hold the same numbers have other bits on ranks 0 (host ");
    CHECK_SAYS(o.err, "the step is not saved");
    CHECK(!run_has_checkpoint(lab, "apart", 3));
}

static void a_verified_run_says_what_it_costs_and_has_the_same_bits(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "verified", STEPS, "run.verify_every=2", "--ranks", "2", "mesh.zero=1",
                    "train.micro_batch=1");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "step 4 was computed twice with the same bits: ");
    int lines = 0;
    const char *at = run_metrics(lab, "verified");
    for (; (at = strstr(at, "\"verify_s\":")) != NULL; at++) lines++;
    CHECK_INT(lines, 3);
    o = RUN(lab, "single", STEPS, "--ranks", "2", "mesh.zero=1", "train.micro_batch=1");
    CHECK_EXIT(o, 0);
    check_same_steps(lab, "single", "verified", 1, 6);
    for (int rank = 0; rank < 2; rank++) {
        const char *file = "%s/run/checkpoints/step-0000000006/rank-%05d.bin";
        CHECK(lab_same_files(lab, lab_path(lab, file, "single", rank),
                             lab_path(lab, file, "verified", rank)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(a_faulty_core_ends_the_run_before_the_update),
        LAB_TEST(weights_that_differ_between_ranks_are_not_saved),
        LAB_TEST(a_verified_run_says_what_it_costs_and_has_the_same_bits),
    };
    return LAB_RUN_ALL(tests);
}
