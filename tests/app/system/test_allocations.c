/* From the first step, evaluation and checkpoint on nothing is allocated, by no library either: a
 * run three times as long asks for memory as often. The program runs inside this binary, which has
 * a malloc that counts. */
#include "harness/malloc_count.h"
#include "harness/run_folder.h"

#include "app/options/cli.h"

/* The counts of a training of so many steps, with evaluations and checkpoints, as text. */
static const char *counts_of(Lab *lab, const char *steps, const char *setting)
{
    ssize_t n = readlink("/proc/self/exe", lab->program, sizeof lab->program - 1);
    CHECK(n > 0);
    lab->program[n] = '\0';
    CHECK_OK(file_remove_tree(lab_path(lab, "cell")));
    const char *const *args =
        ARGS("train", "../tiny.yaml", steps, "train.eval_every=4", "checkpoint.every=4",
             "run.threads=2", "moe.bias_rate=0.01", setting);
    Outcome o = lab_run(lab, &(Launch){ .cell = "cell", .args = args });
    CHECK_EXIT(o, 0);
    const char *at = strstr(o.err, "allocations: ");
    CHECK(at != NULL);
    return at;
}

static void check_longer_runs_allocate_no_more(Lab *lab, const char *setting)
{
    if (!MALLOC_COUNTED) {
        print_message("skip: a sanitizer has a malloc of its own\n");
        skip();
    }
    CHECK_TEXT(counts_of(lab, "train.steps=36", setting),
               counts_of(lab, "train.steps=12", setting));
}

static void longer_runs_allocate_no_more(void **state)
{
    check_longer_runs_allocate_no_more(*state, "run.compute=f32");
}

static void longer_runs_allocate_no_more_in_bf16(void **state)
{
    check_longer_runs_allocate_no_more(*state, "run.compute=bf16");
}

static void longer_runs_allocate_no_more_with_recompute(void **state)
{
    check_longer_runs_allocate_no_more(*state, "recompute.layers=[0, 1, 2]");
}

/* As main does it, and then the counts. */
static int be_the_program(int argc, char **argv)
{
#if MALLOC_COUNTED
    malloc_count_start();
    Status s = cli_train(argc - 1, argv + 1);
    if (s != OK) fprintf(stderr, "%s\n", status_message());
    fprintf(stderr, "allocations: ");
    malloc_count_print(stderr);
    return status_exit_code(s);
#else
    (void)argc, (void)argv;
    return 1;
#endif
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "train") == 0) return be_the_program(argc, argv);
    const struct CMUnitTest tests[] = {
        LAB_TEST(longer_runs_allocate_no_more),
        LAB_TEST(longer_runs_allocate_no_more_in_bf16),
        LAB_TEST(longer_runs_allocate_no_more_with_recompute),
    };
    return LAB_RUN_ALL(tests);
}
