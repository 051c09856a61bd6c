/* What others do to a run while it runs, and what limits of the system do: docs/reliability.md and
 * docs/notes/reliability-tests.md name these tests. */
#include "harness/forge.h"
#include "harness/run_folder.h"

#include <sys/stat.h>

/* Something done to a training after its second step. */
typedef struct Deed {
    const char *line; /* for sh, in the cell; $P is the process */
    const char *option;
    int code;
    const char *says;
} Deed;

/* The child's data are copies of its own, z.bin and z.idx. also: another option, or NULL. */
static Child start_training(Lab *lab, const char *cell, const char *option, const char *also)
{
    Outcome o = SHELL(lab, cell, "cp ../web.bin z.bin && cp ../web.idx z.idx");
    CHECK_EXIT(o, 0);
    Child c = START(lab, cell, "train", "../tiny.yaml", "train.steps=1000000",
                    "data.sources=[{name: web, path: z}]", option, also);
    while (run_count_steps(lab, cell) < 2 && child_runs(&c)) child_sleep();
    return c;
}

static Outcome do_to_training(Lab *lab, const char *cell, const Deed *d)
{
    char line[512];
    Child c = start_training(lab, cell, d->option, NULL);
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

/* A rank that does not read the file is told, so that both save. */
static void data_that_changes_during_an_evaluation_of_ranks_leaves_a_checkpoint(void **state)
{
    Lab *lab = *state;
    Child c = start_training(lab, "ranks", "train.eval_every=1", "--ranks=2");
    Outcome cut = SHELL(lab, "ranks", "truncate -s 100 z.bin"), o = lab_wait(lab, &c);
    CHECK_EXIT(cut, 0);
    CHECK_EXIT(o, 3);
    CHECK_SAYS(o.err, "was changed while it was read: it has ");
    CHECK_INT(run_count_checkpoints(lab, "ranks", true), 1);
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
    CHECK_OK(file_make_folders(lab_path(lab, "report/run/sample.txt/")));
    Outcome o = RUN(lab, "report", "train", "../tiny.yaml", "train.steps=2");
    CHECK_EXIT(o, 3);
    CHECK_SAYS(o.err, "all steps are trained and saved, but there is no report: run/sample.txt");
    CHECK(run_has_checkpoint(lab, "report", 2));
}

/* ---- hostile checkpoints, whose sums are right ---- */

/* Every reader refuses the checkpoint at once with the same sentence. */
static void check_all_refuse(Lab *lab, const char *cell, const char *says)
{
    static const char newest[] = "run/checkpoints/step-0000000002";
    lab_write(lab, lab_path(lab, "%s/ids", cell), (int32_t[]){ 5, 6, 7 }, 12);
    CHECK_REFUSED(RUN(lab, cell, "eval", newest), 2, says);
    CHECK_REFUSED(RUN(lab, cell, "generate", newest, "--prompt", "ba"), 2, says);
    CHECK_REFUSED(RUN(lab, cell, "logits", newest, "ids", "out"), 2, says);
    CHECK_REFUSED(RUN(lab, cell, "convert", "to-hf", newest, "hf"), 2, says);
    CHECK_REFUSED(RUN(lab, cell, "train", "../tiny.yaml", "run.dir=b", "--init", newest), 2, says);
    Outcome o = RUN(lab, cell, "train", "../tiny.yaml", "train.steps=2", "--resume");
    CHECK_EXIT(o, 2);
    CHECK_SAYS(o.err, says);
}

static const char *forged_run(Lab *lab, const char *cell)
{
    Outcome o = RUN(lab, cell, "train", "../tiny.yaml", "train.steps=2");
    CHECK_EXIT(o, 0);
    return run_checkpoint(lab, cell, 2);
}

static void forged_manifests_are_refused_by_all_who_read_them(void **state)
{
    static const struct {
        const char *from, *to, *says;
    } table[] = {
        { "\"file\":\"rank-00000.bin\"", "\"file\":\"../../../../../../etc/passwd\"",
          "\"../../../../../../etc/passwd\" is not the name of a file in this folder" },
        { "\"file\":\"rank-00000.bin\"", "\"file\":\"/etc/passwd\"",
          "is not the name of a file in this folder" },
        { "\"file\":\"rank-00000.bin\"", "\"file\":\"..\"",
          "is not the name of a file in this folder" },
        { "\"switchyard checkpoint\"", "\"nope\"", "its format is \"nope\"" },
        { "\"step\":2,", "\"step\":1,", "holds step 1, which its name contradicts" },
        { "\"step\":2,", "\"step\":-5,", "step -5 at position" },
        { "top_k: 2", "top_k: 9", "the configuration in it is not legal: moe.top_k 9" },
        { "group_score_top: 1", "group_score_top: 1000",
          "the configuration in it is not legal: moe.group_score_top" },
    };
    Lab *lab = *state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char cell[32];
        snprintf(cell, sizeof cell, "forged-%zu", i);
        forge_text(forged_run(lab, cell), table[i].from, table[i].to);
        check_all_refuse(lab, cell, table[i].says);
    }
}

static void a_pipe_in_a_checkpoint_is_refused_at_once(void **state)
{
    Lab *lab = *state;
    const char *path = forged_run(lab, "fifo");
    CHECK_OK(
        file_remove_tree(lab_path(lab, "fifo/run/checkpoints/step-0000000002/rank-00000.bin")));
    CHECK_INT(mkfifo(lab_path(lab, "fifo/run/checkpoints/step-0000000002/rank-00000.bin"), 0600),
              0);
    CHECK(path != NULL);
    Outcome o = RUN(lab, "fifo", "eval", "run");
    CHECK_REFUSED(o, 2, "rank-00000.bin is a pipe");
}

/* Each would be waited for without end, or lose what is written there. */
static void a_pipe_in_the_place_of_a_file_of_a_run_is_refused_at_once(void **state)
{
    static const struct {
        const char *file, *more;
        int code;
    } table[] = {
        { "metrics.jsonl", "", 2 },
        { "lock", "", 2 },
        { "log/rank-00001.log", "--ranks 2", 2 },
        { "checkpoints", "", 3 }, /* a file is in the way */
        { "config.yaml", "", 2 },
        { "heartbeat/$(hostname).jsonl", "", 0 },
        { "report.html", "", 3 }, /* all steps are trained and saved */
    };
    Lab *lab = *state;
    Outcome o = RUN(lab, "pipes", "train", "../tiny.yaml", "train.steps=2", "--ranks", "2");
    CHECK_EXIT(o, 0);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char line[512];
        snprintf(line, sizeof line,
                 "rm -rf again; cp -r run again; f=again/%s; mkdir -p $(dirname $f); rm -rf $f; "
                 "mkfifo $f || exit 9; exec timeout 60 \"$0\" train ../tiny.yaml run.dir=again "
                 "train.steps=3 optimizer.decay_steps=2 --resume %s",
                 table[i].file, table[i].more);
        o = SHELL(lab, "pipes", line);
        CHECK_EXIT(o, table[i].code);
        if (table[i].code == 2) CHECK_SAYS(o.err, "is a pipe, a device or a socket");
    }
    o = SHELL(lab, "pipes",
              "rm -rf again; mkdir again; mkfifo again/supervise.lock; exec timeout 60 \"$0\" "
              "supervise ../tiny.yaml run.dir=again checkpoint.every=1 -- --ranks 1");
    CHECK_REFUSED(o, 2, "supervise.lock is a pipe, a device or a socket, not a file: remove it");
    o = SHELL(lab, "pipes",
              "rm -rf again; mkdir again; mkfifo again/journal.jsonl; exec timeout 60 \"$0\" "
              "supervise ../tiny.yaml run.dir=again checkpoint.every=1 -- --ranks 1");
    CHECK_REFUSED(o, 2, "journal.jsonl is a pipe, a device or a socket, not a file: remove it");
}

static void checkpoints_that_were_swapped_are_not_taken_for_each_other(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "swap", "train", "../tiny.yaml", "train.steps=4", "checkpoint.every=2");
    CHECK_EXIT(o, 0);
    o = SHELL(lab, "swap",
              "cd run/checkpoints && mv step-0000000002 x && mv step-0000000004 "
              "step-0000000002 && mv x step-0000000004");
    CHECK_EXIT(o, 0);
    o = RUN(lab, "swap", "eval", "run");
    CHECK_EXIT(o, 2);
    CHECK_SAYS(o.err, "step-0000000004 holds step 2, which its name contradicts");
}

/* ---- what would be ignored in silence ---- */

static void settings_and_options_without_effect_are_said(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "idle", "train", "../tiny.yaml", "train.steps=2", "run.trace_steps=[9]",
                    "optimizer.warmup_steps=50", "optimizer.decay_steps=10");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "warning: run.trace_steps: step 9 is not traced, train.steps is 2");
    CHECK_SAYS(o.err, "warning: optimizer.warmup_steps 50 is beyond optimizer.decay_steps 10");
    o = RUN(lab, "idle", "train", "../tiny.yaml", "train.steps=2", "optimizer.warmup_steps=50",
            "optimizer.decay_steps=10", "--resume", "--init", "elsewhere");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "--init elsewhere is not used: the run continues from its own checkpoint");
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

/* A model whose weights take some time to make. */
static void a_stop_signal_works_before_the_first_step(void **state)
{
    Lab *lab = *state;
    Child c = START(lab, "early", "train", "../tiny.yaml", "model.layers=2000", "train.steps=1");
    while (!file_exists(lab_path(lab, "early/run/lock")) && child_runs(&c)) child_sleep();
    kill(c.pid, SIGTERM);
    Outcome o = lab_wait(lab, &c);
    CHECK_REFUSED(o, 130, "interrupted: no step has run");
    CHECK_INT(run_count_steps(lab, "early"), 0);
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

static void a_small_stack_is_a_sentence(void **state)
{
    Lab *lab = *state;
    Outcome o = SHELL(lab, "stack", "ulimit -s 64; exec \"$0\" train ../tiny.yaml");
    CHECK_REFUSED(o, 2, "the stack is limited to 64 KiB, at least 1024 are needed: set ulimit -s");
    o = SHELL(lab, "stack", "export OMP_STACKSIZE=16k; exec \"$0\" train ../tiny.yaml");
    CHECK_REFUSED(o, 2, "OMP_STACKSIZE is 16k, at least 1024 KiB are needed: unset it");
    o = SHELL(lab, "stack",
              "ulimit -s 1024; export OMP_STACKSIZE='1 M'; exec \"$0\" train ../tiny.yaml "
              "train.steps=1");
    CHECK_EXIT(o, 0);
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
        LAB_TEST(data_that_changes_during_an_evaluation_of_ranks_leaves_a_checkpoint),
        LAB_TEST(a_run_goes_on_when_its_data_is_as_before),
        LAB_TEST(data_that_is_removed_or_replaced_by_name_is_read_on),
        LAB_TEST(a_run_folder_that_goes_away_ends_the_run_and_keeps_its_steps),
        LAB_TEST(a_run_that_took_the_folder_is_not_written_over),
        LAB_TEST(a_report_that_fails_after_a_run_is_no_bad_input),
        LAB_TEST(forged_manifests_are_refused_by_all_who_read_them),
        LAB_TEST(a_pipe_in_a_checkpoint_is_refused_at_once),
        LAB_TEST(a_pipe_in_the_place_of_a_file_of_a_run_is_refused_at_once),
        LAB_TEST(a_small_stack_is_a_sentence),
        LAB_TEST(checkpoints_that_were_swapped_are_not_taken_for_each_other),
        LAB_TEST(a_lost_terminal_stops_a_run_as_sigterm_does),
        LAB_TEST(settings_and_options_without_effect_are_said),
        LAB_TEST(a_stop_signal_works_before_the_first_step),
        LAB_TEST(nohup_keeps_a_run_alive),
        LAB_TEST(a_file_that_may_not_grow_is_a_sentence),
        LAB_TEST(commands_run_in_little_address_space),
    };
    return LAB_RUN_ALL(tests);
}
