/* What others do to a run while it runs, and what limits of the system do: docs/reliability.md lists
 * the attacks and names these tests. */
#include "harness/run_folder.h"

/* Something done to a training after its second step. */
typedef struct Deed {
    const char *line; /* for sh, in the cell; $P is the process */
    const char *option;
    int code;
    const char *says;
} Deed;

/* The child's data are copies of its own, z.bin and z.idx. */
static Child start_training(Lab *lab, const char *cell, const char *option)
{
    Outcome o = SHELL(lab, cell, "cp ../web.bin z.bin && cp ../web.idx z.idx");
    CHECK_EXIT(o, 0);
    Child c = START(lab, cell, "train", "../tiny.yaml", "train.steps=1000000",
                    "data.sources=[{name: web, path: z}]", option);
    while (run_count_steps(lab, cell) < 2 && child_runs(&c)) child_sleep();
    return c;
}

static Outcome do_to_training(Lab *lab, const char *cell, const Deed *d)
{
    char line[512];
    Child c = start_training(lab, cell, d->option);
    snprintf(line, sizeof line, "export P=%d; %s", (int)c.pid, d->line);
    Outcome done = SHELL(lab, cell, line), o = lab_wait(lab, &c);
    CHECK_EXIT(done, 0);
    return o;
}

static void check_deeds(Lab *lab, const char *name, const Deed *deed, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char cell[64];
        snprintf(cell, sizeof cell, "%s-%zu", name, i);
        Outcome o = do_to_training(lab, cell, &deed[i]);
        CHECK_EXIT(o, deed[i].code);
        CHECK_SAYS(o.err, deed[i].says);
        CHECK_INT(run_count_checkpoints(lab, cell, true), 1);
        CHECK_INT(run_count_checkpoints(lab, cell, false), 0);
    }
}

#define CHECK_DEEDS(lab, name, table)                                                              \
    check_deeds((lab), (name), (table), sizeof(table) / sizeof *(table))

/* ---- data ---- */

static void data_that_changes_ends_a_run_with_a_sentence_and_a_checkpoint(void **state)
{
    static const char changed[] = "was changed while it was read: it has ";
    static const char noise[] = "head -c 3000 /dev/urandom | dd of=z.idx conv=notrunc status=none";
    const Deed table[] = {
        { "truncate -s 100 z.bin", "train.log_every=1", 3, changed },
        { "truncate -s 100 z.idx", "train.log_every=1", 3, changed },
        { "truncate -s 0 z.bin", "--ranks=2", 3, changed },
        { "truncate -s 100 z.bin", "train.eval_every=1", 3, changed },
        { noise, "train.log_every=1", 3, changed },
    };
    CHECK_DEEDS(*state, "changed", table);
}

static void a_run_goes_on_when_its_data_is_as_before(void **state)
{
    Lab *lab = *state;
    const Deed cut = { "truncate -s 100 z.bin", "train.log_every=1", 3, "" };
    Outcome o = do_to_training(lab, "mended", &cut);
    CHECK_EXIT(o, 3);
    o = SHELL(lab, "mended", "cp ../web.bin z.bin");
    Child c = START(lab, "mended", "train", "../tiny.yaml", "train.steps=1000000",
                    "data.sources=[{name: web, path: z}]", "--resume");
    int before = run_count_steps(lab, "mended");
    while (run_count_steps(lab, "mended") <= before && child_runs(&c)) child_sleep();
    kill(c.pid, SIGTERM);
    o = lab_wait(lab, &c);
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "resumed from run/checkpoints/step-");
}

static void data_that_is_removed_or_replaced_by_name_is_read_on(void **state)
{
    static const char stopped[] = "stopped by signal 15";
    const Deed table[] = {
        { "rm z.bin z.idx && sleep 0.2 && kill $P", "train.log_every=1", 0, stopped },
        { "cp ../books.bin y && mv y z.bin && sleep 0.2 && kill $P", "train.log_every=1", 0,
          stopped },
    };
    CHECK_DEEDS(*state, "renamed", table);
}

/* ---- the run's folder ---- */

static void a_run_folder_that_goes_away_ends_the_run_and_keeps_its_steps(void **state)
{
    static const char gone[] = "run folder run was removed or replaced while training writes to it";
    const Deed table[] = {
        { "rm -rf run || true", "train.log_every=1", 3, gone },
        { "mv run elsewhere", "--ranks=2", 3, gone },
        { "rm run/metrics.jsonl", "train.log_every=1", 3,
          "run/metrics.jsonl was removed or replaced" },
    };
    CHECK_DEEDS(*state, "gone", table);
}

/* The run that took the folder has its lock, and keeps it. */
static void a_run_that_took_the_folder_is_not_written_over(void **state)
{
    Lab *lab = *state;
    const Deed taken = {
        "kill -STOP $P; mv run old; mkdir run; flock -x run/lock sh -c 'kill -CONT $P; "
        "while kill -0 $P && ! grep -q Z /proc/$P/status; do sleep 0.02; done'",
        "train.log_every=1", 3, ""
    };
    Outcome o = do_to_training(lab, "taken", &taken);
    CHECK_EXIT(o, 3);
    CHECK_SAYS(o.err, " is not saved: run folder run is in use by process ");
    CHECK_INT(run_count_checkpoints(lab, "taken", true), 0);
}

static void a_report_that_fails_after_a_run_is_no_bad_input(void **state)
{
    Lab *lab = *state;
    Outcome o = SHELL(lab, "report",
                      "mkdir -p run/report.html && exec \"$0\" train ../tiny.yaml train.steps=2");
    CHECK_EXIT(o, 3);
    CHECK(run_has_checkpoint(lab, "report", 2));
}

/* ---- signals and limits ---- */

static void a_lost_terminal_stops_a_run_as_sigterm_does(void **state)
{
    const Deed table[] = {
        { "kill -HUP $P", "train.log_every=1", 0, "stopped by signal 1 after step" },
        { "kill -HUP $P", "--ranks=2", 0, "stopped by signal 1 after step" },
        { "kill -TERM $P", "train.log_every=1", 0, "stopped by signal 15 after step" },
    };
    CHECK_DEEDS(*state, "stop", table);
}

static void nohup_keeps_a_run_alive(void **state)
{
    Lab *lab = *state;
    Outcome o = SHELL(lab, "nohup",
                      "trap '' HUP; \"$0\" train ../tiny.yaml train.steps=300 & P=$!; "
                      "while ! grep -q step run/metrics.jsonl; do sleep 0.01; done; "
                      "kill -HUP $P; wait $P");
    CHECK_EXIT(o, 0);
    CHECK(run_has_checkpoint(lab, "nohup", 300));
}

static void a_file_that_may_not_grow_is_a_sentence(void **state)
{
    Outcome o = SHELL(*state, "grow", "ulimit -f 8; exec \"$0\" train ../tiny.yaml train.steps=2");
    CHECK_REFUSED(o, 3, "File too large");
}

/* GiB of address space that each command needs for this model. */
static void commands_run_in_little_address_space(void **state)
{
    static const char *const lines[] = {
        "train ../tiny.yaml train.steps=2",
        "eval run",
        "generate run --prompt ba --tokens 2",
        "plan ../tiny.yaml --cluster h200:1",
        "data prepare --tokenizer ../tokenizer.json --out shard ../web.jsonl",
        "data inspect shard",
        "report run",
    };
    Lab *lab = *state;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char line[256];
        snprintf(line, sizeof line, "ulimit -v 4000000; exec \"$0\" %s", lines[i]);
        Outcome o = SHELL(lab, "space", line);
        CHECK_EXIT(o, 0);
    }
    Outcome o = SHELL(lab, "space",
                      "ulimit -v 4000000; exec \"$0\" train ../tiny.yaml run.dir=large "
                      "model.hidden=4096 model.ffn=65536 train.steps=1");
    CHECK_REFUSED(o, 2, "this process may use 4000000 KiB of address space: raise ulimit -v");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(data_that_changes_ends_a_run_with_a_sentence_and_a_checkpoint),
        LAB_TEST(a_run_goes_on_when_its_data_is_as_before),
        LAB_TEST(data_that_is_removed_or_replaced_by_name_is_read_on),
        LAB_TEST(a_run_folder_that_goes_away_ends_the_run_and_keeps_its_steps),
        LAB_TEST(a_run_that_took_the_folder_is_not_written_over),
        LAB_TEST(a_report_that_fails_after_a_run_is_no_bad_input),
        LAB_TEST(a_lost_terminal_stops_a_run_as_sigterm_does),
        LAB_TEST(nohup_keeps_a_run_alive),
        LAB_TEST(a_file_that_may_not_grow_is_a_sentence),
        LAB_TEST(commands_run_in_little_address_space),
    };
    return LAB_RUN_ALL(tests);
}
