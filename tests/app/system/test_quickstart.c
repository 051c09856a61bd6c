/* tools/quickstart: which model and how many steps it chooses for a machine, and a whole run of it with a small text.
 * A room has it as `make install` puts it: bin/quickstart beside bin/switchyard, share/switchyard beside bin. */
#include "harness/program.h"

enum { TRAIN_S = 90 };

/* bin/switchyard is the program, or a script that answers as a machine of these speeds does. */
static void make_room(Lab *lab, const char *room, const char *fake)
{
    char root[FILE_PATH_MAX], line[5 * FILE_PATH_MAX];
    CHECK(getcwd(root, sizeof root) != NULL);
    CHECK_OK(file_make_folders(lab_path(lab, "%s/bin", room)));
    CHECK_OK(file_make_folders(lab_path(lab, "%s/share/switchyard", room)));
    if (fake != NULL) lab_write_text(lab, lab_path(lab, "%s/bin/fake", room), fake);
    snprintf(line, sizeof line,
             "cp '%s/tools/quickstart' bin/ && ln -s '%s/share/presets' share/switchyard/ && "
             "ln -s '%s/tools/corpus' '%s/tools/corpus_pages' share/switchyard/ && %s",
             root, root, root, root,
             fake == NULL ? "ln -s \"$(readlink -f \"$0\")\" bin/switchyard"
                          : "chmod +x bin/fake && mv bin/fake bin/switchyard");
    Outcome o = SHELL(lab, room, line);
    CHECK_EXIT(o, 0);
}

static Outcome dry_run(Lab *lab, const char *room, const char *options)
{
    char line[256];
    snprintf(line, sizeof line, "unset OMP_WAIT_POLICY; bin/quickstart --dry-run %s", options);
    return SHELL(lab, room, line);
}

/* The steps that a choice is for. */
static int steps_of(const char *says)
{
    int steps = 0;
    const char *at = strstr(says, " parameters for ");
    if (at == NULL || sscanf(at, " parameters for %d steps\n", &steps) != 1) fail_msg("%s", says);
    return steps;
}

static const char preset_chosen[] =
    "a model of 8.9 M parameters for 480 steps\nswitchyard train quickstart\n";

static void fast_machines_train_the_preset_as_it_is(void **state)
{
    Lab *lab = *state;
    static const char *const options[] = { "--full", "--speed 6500", "--speed 7292",
                                           "--speed 12040" };
    make_room(lab, "fast", NULL);
    for (int i = 0; i < 4; i++) {
        Outcome o = dry_run(lab, "fast", options[i]);
        CHECK_EXIT(o, 0);
        CHECK_SAYS(o.out, preset_chosen);
    }
    CHECK_SAYS(dry_run(lab, "fast", "--speed 7292").out, "such a machine does 7,292 tokens/s: a ");
}

/* The small model is four times as fast; three evaluations of the held-out text take as long as 54,000 tokens. */
static void slow_machines_train_a_small_model_within_ninety_seconds(void **state)
{
    Lab *lab = *state;
    static const int speeds[] = { 300, 475, 950, 1900, 3800, 6499 };
    int last = 0;
    make_room(lab, "slow", NULL);
    for (int i = 0; i < 6; i++) {
        char options[32];
        snprintf(options, sizeof options, "--speed %d", speeds[i]);
        Outcome o = dry_run(lab, "slow", options);
        CHECK_EXIT(o, 0);
        CHECK_SAYS(o.out, "tokens/s: a model of 2.3 M parameters for ");
        CHECK_SAYS(o.out, "\nswitchyard train quickstart model.hidden=128 ");
        const int steps = steps_of(o.out);
        const double took_s = (steps * 2048.0 + 54000) / (4.0 * speeds[i]);
        CHECK(steps >= last && took_s <= TRAIN_S);
        if (speeds[i] <= 3800) CHECK(took_s > 0.7 * TRAIN_S); /* and uses its time */
        last = steps;
    }
    CHECK_INT(steps_of(dry_run(lab, "slow", "--speed 1900").out), 260);
    CHECK_INT(steps_of(dry_run(lab, "slow", "--speed 1").out), 20);
}

/* What is measured, by a program that knows the answers: the small model with threads that sleep and with
 * threads that spin (a text that sh runs), the preset, and what is chosen. */
static void the_measured_speeds_choose(void **state)
{
    Lab *lab = *state;
    static const struct {
        const char *sleeping, *spinning, *preset, *says;
        bool sleeps; /* threads sleep in the training, too */
    } cases[] = {
        { "echo 25000", "echo 30000", "echo 7300", "does 7,300 tokens/s: a model of 8.9 M", false },
        { "echo 30000", "echo 15000", "echo 7300", "does 7,300 tokens/s: a model of 8.9 M", true },
        { "echo 25000", "echo 30000", "echo 6400", "does 30,000 tokens/s: a model of 2.3 M",
          false },
        { "exit 1", "exit 1", "exit 1", "does under 1,000 tokens/s: a model of 2.3 M", false },
        { "echo 7700", "echo 7600", "echo 9000", "does 7,600 tokens/s: a model of 2.3 M", false },
        { "echo 3100", "echo 600", "echo 9000", "does 3,100 tokens/s: a model of 2.3 M", true },
        { "echo 3100", "sleep 60; echo 9000", "echo 9000", "does 3,100 tokens/s: a model of 2.3 M",
          true },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char room[32], fake[1024];
        snprintf(room, sizeof room, "measured %zu", i);
        snprintf(fake, sizeof fake,
                 "#!/bin/sh\n"
                 "case \"$*-${OMP_WAIT_POLICY:-spin}\" in\n"
                 "    train*hidden=128*) echo 'parameters  2,286,656 total' ;;\n"
                 "    train*) echo 'parameters  8,872,448 total' ;;\n"
                 "    bench*hidden=128*-passive) speed=$(%s) ;;\n"
                 "    bench*hidden=128*) speed=$(%s) ;;\n"
                 "    bench*) speed=$(%s) ;;\n"
                 "esac\n"
                 "echo \"{\\\"tokens_per_s\\\":${speed:-0}.5}\"\n",
                 cases[i].sleeping, cases[i].spinning, cases[i].preset);
        make_room(lab, room, fake);
        Outcome o = dry_run(lab, room, "");
        CHECK_EXIT(o, 0);
        CHECK_SAYS(o.out, cases[i].says);
        CHECK_SAYS(o.out, cases[i].sleeps ? "\nOMP_WAIT_POLICY=passive switchyard train"
                                          : "\nswitchyard train");
    }
}

static void wrong_options_are_refused(void **state)
{
    Lab *lab = *state;
    static const char *const cases[][2] = {
        { "--speed 0", "quickstart: --speed needs a whole number of tokens/s, got 0\n" },
        { "--speed 1e3", "got 1e3\n" },
        { "--speed", "got none\n" },
        { "--fast", "there is no option --fast; there are --data, --dry-run, --full, --speed and" },
    };
    make_room(lab, "wrong", NULL);
    for (int i = 0; i < 4; i++) {
        Outcome o = dry_run(lab, "wrong", cases[i][0]);
        CHECK_EXIT(o, 2);
        CHECK_SAYS(o.err, cases[i][1]);
        CHECK_TEXT(o.out, "");
    }
}

/* A text of this tree: the corpus is there already, so nothing is downloaded. */
static void a_slow_machine_gets_a_report_and_a_sample(void **state)
{
    Lab *lab = *state;
    make_room(lab, "whole", NULL);
    char root[FILE_PATH_MAX], line[2 * FILE_PATH_MAX];
    CHECK(getcwd(root, sizeof root) != NULL);
    snprintf(line, sizeof line,
             "mkdir -p runs/quickstart/corpus\n"
             "for f in train:postgres model:bible; do\n"
             "    cat '%s'/src/${f%%:*}/*.c | tr -d '\\\\\"\\t' |\n"
             "        awk '/./ { printf \"{\\\"text\\\": \\\"%%s\\\"}\\n\", $0 }' "
             ">runs/quickstart/corpus/${f#*:}.jsonl\n"
             "done\n"
             "bin/quickstart --speed 1\n"
             "grep -c '\"kind\":\"step\"' runs/quickstart/metrics.jsonl",
             root);
    Outcome o = SHELL(lab, "whole", line);
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "such a machine does 4 tokens/s: a model of 2.3 M parameters for 20 steps\n");
    CHECK_SAYS(o.out, "\nheld-out bits a byte  ");
    CHECK_SAYS(o.out, " before, ");
    CHECK_SAYS(o.out, "\nof byte n-grams       ");
    CHECK_SAYS(o.out, "\nIn the beginning");
    CHECK_SAYS(o.out, "\nreport                runs/quickstart/report.html\n");
    CHECK_SAYS(o.out, "\n20\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(fast_machines_train_the_preset_as_it_is),
        LAB_TEST(slow_machines_train_a_small_model_within_ninety_seconds),
        LAB_TEST(the_measured_speeds_choose),
        LAB_TEST(wrong_options_are_refused),
        LAB_TEST(a_slow_machine_gets_a_report_and_a_sample),
    };
    return LAB_RUN_ALL(tests);
}
