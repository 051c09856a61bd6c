/* Folders that a command fills: a source of a training, and --init. */
#include "harness/run_folder.h"

#define CACHE "cache.dir=cache"

/* The books' shard, as an object store would give it, and a note of each call. */
#define SOURCE "data.sources=[{name: books, path: 'cmd: echo x >>calls; cp ../books.* {folder}'}]"

static void a_source_is_fetched_once_and_trains_as_a_file_does(void **state)
{
    Lab *lab = *state;
    size_t n = 0;
    Outcome o = RUN(lab, "plain", "train", "../tiny.yaml", "train.steps=2",
                    "data.sources=[{name: books, path: ../books}]");
    CHECK_EXIT(o, 0);
    o = RUN(lab, "fetch", "train", "../tiny.yaml", "train.steps=2", CACHE, SOURCE);
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "runs the command: echo x >>calls; cp ../books.* cache/fetched-");
    CHECK(lab_same_files(lab, lab_path(lab, "plain/run/checkpoints/step-0000000002/rank-00000.bin"),
                         lab_path(lab, "fetch/run/checkpoints/step-0000000002/rank-00000.bin")));
    o = RUN(lab, "fetch", "train", "../tiny.yaml", "train.steps=3", "--resume",
            "--change=train.steps", CACHE, SOURCE);
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "has what this command gave before");
    CHECK_TEXT(lab_read(lab, lab_path(lab, "fetch/calls"), &n), "x\n");
}

static void initial_weights_are_fetched(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "first", "train", "../tiny.yaml", "train.steps=1");
    CHECK_EXIT(o, 0);
    o = RUN(lab, "init", "train", "../tiny.yaml", "train.steps=1", CACHE, "--init",
            "cmd: cp -r ../first/run/checkpoints/step-0000000001/. {folder}");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "cache/fetched-");
}

static void a_command_that_gives_nothing_is_an_error(void **state)
{
    static const struct {
        const char *setting, *sentence;
    } CASES[] = {
        { "data.sources=[{name: a, path: 'cmd: echo no access >&2; false {folder}'}]",
          "failed after 0 bytes; its stderr ends with: no access" },
        { "data.sources=[{name: a, path: 'cmd: : {folder}'}]", "left its folder empty" },
        { "data.sources=[{name: a, path: 'cmd: echo a >{folder}/b'}]",
          "gave 0 files .idx in cache/" },
        { "data.sources=[{name: a, path: 'cmd: aws s3 cp s3://b/a.bin -'}]", "has no {folder}" },
    };
    Lab *lab = *state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        Outcome o = RUN(lab, "nothing", "train", "../tiny.yaml", CACHE, CASES[i].setting);
        CHECK_REFUSED(o, 2, CASES[i].sentence);
    }
    CHECK(!file_exists(lab_path(lab, "nothing/run/metrics.jsonl")));
}

/* Also where it stands in the configuration that a run or a checkpoint keeps. */
static void a_source_of_a_file_needs_leave(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "leave", "train", "../tiny.yaml", "train.steps=1", CACHE, SOURCE);
    CHECK_EXIT(o, 0);
    size_t n = 0;
    const char *kept = lab_read(lab, lab_path(lab, "leave/run/config.yaml"), &n);
    CHECK(strstr(kept, "cmd:") == NULL);
    lab_write_text(
        lab, lab_path(lab, "leave/code.yaml"),
        "data: {sources: [{name: a, path: 'cmd: touch ran; cp ../books.* {folder}'}]}\n");
    o = RUN(lab, "leave", "train", "code.yaml", CACHE);
    CHECK_REFUSED(o, 2, "data.sources of code.yaml is the command \"cmd: touch ran;");
    CHECK(!file_exists(lab_path(lab, "leave/ran")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(a_source_is_fetched_once_and_trains_as_a_file_does),
        LAB_TEST(initial_weights_are_fetched),
        LAB_TEST(a_command_that_gives_nothing_is_an_error),
        LAB_TEST(a_source_of_a_file_needs_leave),
    };
    return LAB_RUN_ALL(tests);
}
