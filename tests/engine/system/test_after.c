/* checkpoint.after: a command behind each finished checkpoint, and who may have it run. */
#include "harness/run_folder.h"

/* Lines of RUN/after.jsonl. */
static const char *journal(Lab *lab, const char *cell)
{
    size_t n = 0;
    return lab_read(lab, lab_path(lab, "%s/run/after.jsonl", cell), &n);
}

static int count(const char *text, const char *word)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, word)) != NULL; at += strlen(word)) n++;
    return n;
}

/* The manifest is there when the command runs, and the last one is waited for. */
static void each_checkpoint_is_followed_by_the_command(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "after", "train", "../tiny.yaml", "train.steps=5", "checkpoint.every=2",
                    "checkpoint.keep=5", "checkpoint.after=sleep 0.2; ls {folder} | grep manifest");
    CHECK_EXIT(o, 0);
    const char *lines = journal(lab, "after");
    CHECK(count(lines, "\"exit\":0") >= 2 && count(lines, "\"said\":\"manifest.jsonl\"") >= 2);
    CHECK_SAYS(lines, "{\"step\":5,\"command\":\"sleep 0.2; ls run/checkpoints/step-0000000005 | ");
    /* steps that found the one before still running are named */
    CHECK_INT(count(lines, "\n") + count(o.err, "checkpoint.after leaves out step"), 3);
    o = RUN(lab, "after", "train", "../tiny.yaml", "train.steps=6", "--resume",
            "--change=train.steps", "checkpoint.after=echo again {folder}");
    CHECK_EXIT(o, 0);
    lines = journal(lab, "after");
    CHECK_INT(count(lines, "echo again run/checkpoints/step-0000000006"), 1);
    CHECK_INT(count(lines, "echo again"), 1);
}

static void a_command_that_fails_or_hangs_is_a_warning(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "fails", "train", "../tiny.yaml", "train.steps=2",
                    "checkpoint.after=echo no access to {folder} >&2; exit 3");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "checkpoint.after of step 2 ended with exit code 3");
    CHECK_SAYS(o.err, "it says: no access to run/checkpoints/step-0000000002");
    CHECK_SAYS(journal(lab, "fails"), "\"exit\":3");
    o = RUN(lab, "hangs", "train", "../tiny.yaml", "train.steps=2", "comm.timeout_s=0.2",
            "checkpoint.after=: {folder}; sleep 1000");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "checkpoint.after of step 2 is ended, because it has not ended in 0.2 s");
}

static void a_command_of_a_file_needs_leave(void **state)
{
    Lab *lab = *state;
    size_t n = 0;
    const char *tiny = lab_read(lab, lab_path(lab, "tiny.yaml"), &n);
    char text[8192];
    (void)snprintf(text, sizeof text, "%s\ncheckpoint: {after: 'echo ran in a file {folder}'}\n",
                   tiny);
    lab_write_text(lab, lab_path(lab, "code.yaml"), text);
    Outcome o = RUN(lab, "file", "train", "../code.yaml", "train.steps=2");
    CHECK_REFUSED(
        o, 2, "checkpoint.after of ../code.yaml is the command \"echo ran in a file {folder}\"");
    CHECK(!file_exists(lab_path(lab, "file/run/after.jsonl")));
    o = RUN(lab, "file", "train", "../code.yaml", "train.steps=2", "--allow-commands");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "runs the command: echo ran in a file run/checkpoints/step-0000000002");
    /* the run's own config.yaml has it, too, and so has the checkpoint */
    o = RUN(lab, "file", "train", "run/config.yaml", "train.steps=3", "--resume");
    CHECK_REFUSED(o, 2, "give --allow-commands if it may run");
    o = RUN(lab, "file", "train", "../tiny.yaml", "train.steps=3", "--resume",
            "--change=train.steps");
    CHECK_EXIT(o, 0);
    CHECK(strstr(o.err, "runs the command") == NULL);
}

static void what_cannot_be_filled_in_is_refused_at_the_start(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "none", "train", "../tiny.yaml", "checkpoint.after=aws s3 sync . s3://b");
    CHECK_REFUSED(o, 2, "the command \"aws s3 sync . s3://b\" has no {folder}");
    o = RUN(lab, "none", "train", "../tiny.yaml", "checkpoint.after=ls {folder}", "run.dir=a b");
    CHECK_REFUSED(o, 2, "a b cannot be in a command as {folder}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(each_checkpoint_is_followed_by_the_command),
        LAB_TEST(a_command_that_fails_or_hangs_is_a_warning),
        LAB_TEST(a_command_of_a_file_needs_leave),
        LAB_TEST(what_cannot_be_filled_in_is_refused_at_the_start),
    };
    return LAB_RUN_ALL(tests);
}
