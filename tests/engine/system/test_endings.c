/* How a command ends that is interrupted or waits, and where its surroundings are unusual. */
#include "harness/run_folder.h"

#include "engine/base/text.h"

#include <sys/stat.h>

/* Waits until the child has written a file or said something. */
static void wait_for_file(Child *c, const char *path)
{
    while (!file_exists(path) && child_runs(c)) child_sleep();
}

static void wait_for_words(Lab *lab, Child *c, const char *words)
{
    for (bool said = false; !said && child_runs(c); child_sleep()) {
        ArenaMark mark = arena_mark(&lab->arena);
        said = file_exists(c->err) && strstr(lab_read(lab, c->err, NULL), words) != NULL;
        arena_release(&lab->arena, mark);
    }
}

/* ---- Ctrl-C ---- */

static void check_interrupted(Lab *lab, Child *c, int number, const char *says)
{
    kill(c->pid, number);
    Outcome o = lab_wait(lab, c);
    CHECK_REFUSED(o, 130, says);
    CHECK_TEXT(o.out, "");
}

static void an_interrupted_command_leaves_nothing_and_says_so(void **state)
{
    Lab *lab = *state;
    for (int i = 0; i < 2; i++) {
        Child c = START(lab, "stop", "data", "batches", "../tiny.yaml", "--steps", "100000000",
                        "--out", "batches");
        wait_for_file(&c, lab_path(lab, "stop/batches.tmp"));
        check_interrupted(lab, &c, i == 0 ? SIGINT : SIGTERM, "interrupted: nothing was written");
        CHECK(!file_exists(lab_path(lab, "stop/batches.tmp")));
        CHECK(!file_exists(lab_path(lab, "stop/batches")));
    }
}

static void generated_text_ends_where_it_is_interrupted(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "text", "train", "../tiny.yaml", "train.steps=1");
    CHECK_EXIT(o, 0);
    Child c = START(lab, "text", "generate", "run", "--prompt", "start", "--tokens", "20000");
    uint64_t bytes = 0;
    while (bytes < strlen("start") && child_runs(&c)) { /* the prompt comes first */
        if (file_exists(c.out)) CHECK_OK(file_size(c.out, &bytes));
        child_sleep();
    }
    kill(c.pid, SIGINT);
    o = lab_wait(lab, &c);
    CHECK_REFUSED(o, 130, "interrupted: the text ends early");
    CHECK(text_starts(o.out, "start") && text_ends(o.out, "\n"));
}

/* ---- pipes and folders ---- */

/* A pipe that nobody writes to: the command says what it waits for, and Ctrl-C ends it. */
static void a_pipe_without_a_writer_is_waited_for_aloud(void **state)
{
    static const char *const calls[][9] = {
        { "data", "prepare", "--tokenizer", "../tokenizer.json", "--out", "shard", "fifo" },
        { "data", "tokenizer", "train", "--vocab", "300", "--out", "t.json", "fifo" },
        { "trace", "report", "fifo", "--out", "report" },
        { "train", "fifo" },
        { "plan", "fifo", "--cluster", "h200:1" },
    };
    Lab *lab = *state;
    CHECK_OK(file_make_folders(lab_path(lab, "pipe/")));
    CHECK_INT(mkfifo(lab_path(lab, "pipe/fifo"), 0600), 0);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        Child c = lab_start(lab, &(Launch){ .cell = "pipe", .args = calls[i] });
        wait_for_words(lab, &c, "waiting for another program to write to fifo, which is a pipe");
        CHECK(child_runs(&c));
        kill(c.pid, SIGINT);
        Outcome o = lab_wait(lab, &c);
        CHECK_EXIT(o, 130);
        if (i < 3) CHECK_SAYS(o.err, "interrupted: ");
    }
    const char *const *names = NULL;
    int n = 0;
    CHECK_OK(file_list(lab_path(lab, "pipe"), &lab->arena, &names, &n));
    CHECK_INT(n, 1);
}

static void a_configuration_comes_through_a_pipe_and_not_from_a_folder(void **state)
{
    Lab *lab = *state;
    Outcome o =
        SHELL(lab, "named", "mkfifo in; cat ../tiny.yaml >in & exec \"$0\" train in --dry-run");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "\n  hidden: 32");
    o = RUN(lab, "named", "train", "..", "--dry-run");
    CHECK_REFUSED(o, 2, "CONFIG is a folder: give a YAML file, such as config.yaml in it");
}

/* The pipe's reader is past main's first lines. */
#define HELD_OPEN                                                                                  \
    "mkfifo in; \"$0\" train in --dry-run >/dev/null & exec 3>in; cat /proc/$!/comm; "             \
    "tr '\\0' '\\n' </proc/$!/environ | grep -E 'SPINCOUNT|WAIT_POLICY'; "                         \
    "cat ../tiny.yaml >&3; exec 3>&-; wait $!"

static void threads_that_wait_spin_for_a_bounded_time(void **state)
{
    Lab *lab = *state;
    Outcome o = SHELL(lab, "bounded", "unset OMP_WAIT_POLICY GOMP_SPINCOUNT; " HELD_OPEN);
    CHECK_EXIT(o, 0);
    if (strstr(o.out, "=20000\n") == NULL) /* an idle machine */
        CHECK_TEXT(o.out, "switchyard\nGOMP_SPINCOUNT=2000\n");
    CHECK_SAYS(o.out, "switchyard\nGOMP_SPINCOUNT=2000");
    o = SHELL(lab, "busy",
              "unset OMP_WAIT_POLICY GOMP_SPINCOUNT; for i in 1 2 3 4; do (timeout 60 sh -c 'while "
              ":; do :; "
              "done' & echo $! >>loops); done; sleep 0.2; " HELD_OPEN "; kill $(cat loops)");
    CHECK_TEXT(o.out, "switchyard\nGOMP_SPINCOUNT=2000\n");
    o = SHELL(lab, "own", "unset OMP_WAIT_POLICY; export GOMP_SPINCOUNT=7; " HELD_OPEN);
    CHECK_TEXT(o.out, "switchyard\nGOMP_SPINCOUNT=7\n");
    o = SHELL(lab, "policy", "unset GOMP_SPINCOUNT; export OMP_WAIT_POLICY=active; " HELD_OPEN);
    CHECK_TEXT(o.out, "switchyard\nOMP_WAIT_POLICY=active\n");
}

static void an_empty_folder_is_as_good_as_none(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "empty", "train", "../tiny.yaml", "train.steps=1");
    CHECK_EXIT(o, 0);
    CHECK_OK(file_make_folders(lab_path(lab, "empty/there/")));
    CHECK_INT(chmod(lab_path(lab, "empty/run"), 0755), 0);
    o = RUN(lab, "empty", "trace", "report", "run", "--out", "there");
    CHECK_EXIT(o, 2);
    CHECK(file_exists(lab_path(lab, "empty/there")));
    o = RUN(lab, "empty", "convert", "to-hf", "run", "there");
    CHECK_EXIT(o, 0);
    CHECK(file_exists(lab_path(lab, "empty/there/config.json")));
    o = RUN(lab, "empty", "convert", "to-hf", "run", "there");
    CHECK_REFUSED(o, 2, "there exists already and is not an empty folder; choose another");
}

/* ---- empty names ---- */

static void an_empty_path_is_refused_with_its_name(void **state)
{
    static const struct {
        const char *args[9], *says;
    } rows[] = {
        { { "train", "" }, "switchyard train: argument 1 is empty" },
        { { "train", "../tiny.yaml", "run.dir=" }, "run.dir is empty: name a folder" },
        { { "train", "../tiny.yaml", "data.sources=[{name: a, path: ''}]" },
          "data.sources[0].path is empty: name a prefix" },
        { { "train", "../tiny.yaml", "--init", "" }, "--init is empty: give CKPT" },
        { { "data", "batches", "../tiny.yaml", "--steps", "1", "--out", "" },
          "--out is empty: give FILE" },
        { { "plan", "../tiny.yaml", "--cluster", "h200:1", "--html=" },
          "--html is empty: give FILE" },
        { { "eval", "run", "--documents=" }, "--documents is empty" },
        { { "logits", "run", "ids", "" }, "switchyard logits: argument 3 is empty" },
        { { "trace", "report", "x", "--perfetto", "" }, "--perfetto is empty: give FILE" },
    };
    Lab *lab = *state;
    const char *const *names = NULL;
    int n = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Outcome o = lab_run(lab, &(Launch){ .cell = "nameless", .args = rows[i].args });
        CHECK_REFUSED(o, 2, rows[i].says);
    }
    CHECK_OK(file_list(lab_path(lab, "nameless"), &lab->arena, &names, &n));
    CHECK_INT(n, 0);
}

/* ---- surroundings ---- */

/* Groups that a seed draws no shapes of would have an empty table. */
static void a_seed_without_shapes_is_refused(void **state)
{
    Outcome o = RUN(*state, "seed", "bench", "shapes", "--only", "attention", "--seed", "x");
    CHECK_REFUSED(o, 2, "--seed draws shapes of products and layers alone");
    CHECK_TEXT(o.out, "");
}

static void a_run_folder_that_cannot_be_made_is_named(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "below", "train", "../tiny.yaml", "run.dir=../tiny.yaml/run");
    CHECK_REFUSED(o, 3, "../tiny.yaml");
    o = SHELL(lab, "below", "exec \"$0\" train ../tiny.yaml run.dir=/proc/run");
    CHECK_REFUSED(o, 3, "/proc/run");
}

static void a_full_disk_is_a_sentence(void **state)
{
    Lab *lab = *state;
    Outcome o =
        ON_SMALL_DISK(lab, "small",
                      "exec \"$0\" data prepare --tokenizer ../tokenizer.json --out disk/web "
                      "../web.jsonl ../web.jsonl ../books.txt");
    CHECK_REFUSED(o, 3, "No space left on device");
    CHECK_SAYS(o.err, "disk/web.bin");
}

static void a_german_locale_changes_no_number(void **state)
{
    Lab *lab = *state;
    static const char *const lines[] = {
        "\"$0\" train ../tiny.yaml --dry-run | sed '/MemAvailable/d; /^fits/d'", /* that changes by itself */
        "\"$0\" plan ../tiny.yaml --cluster h200:1 --json",
        "\"$0\" plan ../tiny.yaml optimizer.lr=0.5 --cluster h200:1",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char german[256], plain[256];
        snprintf(german, sizeof german, "LANG=de_DE.UTF-8 LC_ALL=de_DE.UTF-8 %s", lines[i]);
        snprintf(plain, sizeof plain, "LANG=C LC_ALL=C %s", lines[i]);
        Outcome a = SHELL(lab, "german", german), b = SHELL(lab, "german", plain);
        CHECK_EXIT(a, 0);
        CHECK_TEXT(a.out, b.out);
    }
}

static void an_empty_environment_and_no_terminal_are_enough(void **state)
{
    Outcome o = SHELL(*state, "bare", "env -i setsid \"$0\" train ../tiny.yaml train.steps=1 <&-");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "report ");
}

static void names_with_blanks_and_letters_of_all_scripts_work(void **state)
{
    Lab *lab = *state;
    static const char cell[] = "mein Ort \xc3\xa4\xc3\xb6 \xe6\x95\xb0";
    Outcome o = RUN(lab, cell, "data", "tokenizer", "train", "--vocab", "300", "--out",
                    "w\xc3\xb6rter 1.json", "../web.jsonl");
    CHECK_EXIT(o, 0);
    o = RUN(lab, cell, "data", "prepare", "--tokenizer", "w\xc3\xb6rter 1.json", "--out",
            "ein Text", "../web.jsonl");
    CHECK_EXIT(o, 0);
    o = RUN(lab, cell, "train", "../tiny.yaml", "train.steps=1", "run.dir=mein Lauf",
            "data.tokenizer=w\xc3\xb6rter 1.json", "data.sources=[{name: netz, path: ein Text}]");
    CHECK_EXIT(o, 0);
    o = RUN(lab, cell, "eval", "mein Lauf");
    CHECK_EXIT(o, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(an_interrupted_command_leaves_nothing_and_says_so),
        LAB_TEST(generated_text_ends_where_it_is_interrupted),
        LAB_TEST(a_pipe_without_a_writer_is_waited_for_aloud),
        LAB_TEST(a_configuration_comes_through_a_pipe_and_not_from_a_folder),
        LAB_TEST(threads_that_wait_spin_for_a_bounded_time),
        LAB_TEST(an_empty_folder_is_as_good_as_none),
        LAB_TEST(an_empty_path_is_refused_with_its_name),
        LAB_TEST(a_seed_without_shapes_is_refused),
        LAB_TEST(a_run_folder_that_cannot_be_made_is_named),
        LAB_TEST(a_full_disk_is_a_sentence),
        LAB_TEST(a_german_locale_changes_no_number),
        LAB_TEST(an_empty_environment_and_no_terminal_are_enough),
        LAB_TEST(names_with_blanks_and_letters_of_all_scripts_work),
    };
    return LAB_RUN_ALL(tests);
}
