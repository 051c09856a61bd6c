#include "app/options/options.h"
#include "engine/base/log.h"
#include "harness/test.h"

#include <unistd.h>

typedef struct Values {
    bool dry;
    int64_t tokens;
    double temperature;
    const char *out;
    int mode, again;
    OptionInts orders;
    OptionTexts keys;
    int n;
    bool help;
} Values;

static const Values DEFAULTS = { .tokens = 100, .temperature = 0.5, .mode = 1 };

/* Parse words (NULL-terminated) with one option of each kind; two positional arguments at most. */
static Status parse(Values *v, const char **words)
{
    const Option table[] = {
        { "--dry-run", OPTION_FLAG, &v->dry, NULL, .help = "only say" },
        { "--tokens", OPTION_INT, &v->tokens, "N", .help = "tokens", .min = 1, .max = 1000 },
        { "--temperature", OPTION_REAL, &v->temperature, "X", .help = "heat", .min = 0, .max = 2 },
        { "--out", OPTION_TEXT, &v->out, "FILE", .help = "where to", .required = true },
        { "--mode", OPTION_CHOICE, &v->mode, "fail|skip|ask", .help = "what then" },
        { "--order", OPTION_INTS, &v->orders, "N", .help = "orders" },
        { "--key", OPTION_TEXTS, &v->keys, "KEY", .help = "keys" },
        { "--again", OPTION_SWITCH, &v->again, "auto|late", .help = "once more" },
    };
    static const OptionPair pairs[] = { { "--again", OPTION_APART, "--dry-run|--key" },
                                        { "--key", OPTION_NEEDS, "--out|--mode" },
                                        { NULL, OPTION_APART, NULL } };
    const Command command = { .name = "yard do",
                              .pairs = pairs,
                              .arguments = "FROM [TO]",
                              .what = "Do it.",
                              .example = "yard do --out a b",
                              .options = table,
                              .n_options = sizeof table / sizeof *table,
                              .min_positional = 1,
                              .max_positional = 2 };
    static char text[32][64];
    char *argv[32] = { NULL };
    int argc = 0;
    *v = DEFAULTS;
    (void)snprintf(text[0], sizeof text[0], "do");
    argv[argc++] = text[0];
    for (; words[argc - 1] != NULL; argc++) {
        (void)snprintf(text[argc], sizeof text[argc], "%s", words[argc - 1]);
        argv[argc] = text[argc];
    }
    Status s = options_parse(&command, argc, argv, &v->n, &v->help);
    for (int i = 0; s == OK && i < v->n; i++) words[i] = argv[1 + i];
    return s;
}

#define WORDS(...)                                                                                 \
    (const char *[32]) { __VA_ARGS__ }

static void a_switch_takes_a_word_only_behind_an_equals_sign(void **state)
{
    (void)state;
    Values v;
    CHECK_OK(parse(&v, WORDS("--out=o", "from")));
    CHECK_INT(v.again, 0);
    CHECK_OK(parse(&v, WORDS("--again", "auto", "--out=o")));
    CHECK_INT(v.again, 1);
    CHECK_INT(v.n, 1); /* "auto" is FROM */
    CHECK_OK(parse(&v, WORDS("--again=auto", "--out=o", "from")));
    CHECK_INT(v.again, 2);
    CHECK_OK(parse(&v, WORDS("--again=late", "--out=o", "from")));
    CHECK_INT(v.again, 3);
    CHECK_FAILS(parse(&v, WORDS("--again=", "--out=o", "from")), ERR_ARG,
                "--again is \"\", must be one of auto|late");
    CHECK_FAILS(parse(&v, WORDS("--again=now", "--out=o", "from")), ERR_ARG,
                "--again is \"now\", must be one of auto|late");
}

static void every_kind_of_value_reaches_its_target(void **state)
{
    (void)state;
    Values v;
    const char **words =
        WORDS("--dry-run", "--tokens", "5", "from", "--temperature=1.5", "--out", "o", "--mode",
              "ask", "--order", "2", "--order=5", "to", "--key", "k", "--key=l=m");
    CHECK_OK(parse(&v, words));
    CHECK(v.dry && !v.help);
    CHECK_INT(v.tokens, 5);
    CHECK_NEAR(v.temperature, 1.5, 0);
    CHECK_TEXT(v.out, "o");
    CHECK_INT(v.mode, 2);
    CHECK_INT(v.orders.n, 2);
    CHECK_INT(v.orders.at[0], 2);
    CHECK_INT(v.orders.at[1], 5);
    CHECK_INT(v.keys.n, 2);
    CHECK_TEXT(v.keys.at[0], "k");
    CHECK_TEXT(v.keys.at[1], "l=m");
    CHECK_INT(v.n, 2);
    CHECK_TEXT(words[0], "from");
    CHECK_TEXT(words[1], "to");
}

static void options_exclude_or_need_each_other(void **state)
{
    (void)state;
    Values v;
    CHECK_FAILS(parse(&v, WORDS("--again=auto", "--dry-run", "--out=o", "from")), ERR_ARG,
                "yard do: --again and --dry-run exclude each other");
    CHECK_FAILS(parse(&v, WORDS("--key=k", "--again", "--out=o", "from")), ERR_ARG,
                "yard do: --again and --key exclude each other");
    CHECK_FAILS(parse(&v, WORDS("--key=1", "--out=o", "from")), ERR_ARG,
                "yard do: --key needs --mode");
    CHECK_OK(parse(&v, WORDS("--key=1", "--mode=ask", "--out=o", "from")));
    CHECK_OK(parse(&v, WORDS("--mode=ask", "--dry-run", "--key=k", "--out=o", "from")));
}

static void what_is_not_given_keeps_its_default(void **state)
{
    (void)state;
    Values v;
    CHECK_OK(parse(&v, WORDS("--out=o", "from")));
    CHECK(!v.dry);
    CHECK_INT(v.tokens, 100);
    CHECK_NEAR(v.temperature, 0.5, 0);
    CHECK_INT(v.mode, 1);
    CHECK_INT(v.orders.n, 0);
    CHECK_INT(v.n, 1);
}

static void an_unknown_option_names_the_nearest(void **state)
{
    (void)state;
    Values v;
    CHECK_FAILS(parse(&v, WORDS("--token", "5")), ERR_ARG,
                "yard do has no option --token, did you mean --tokens?");
    CHECK_FAILS(parse(&v, WORDS("--temprature=5")), ERR_ARG, "did you mean --temperature?");
    CHECK_FAILS(parse(&v, WORDS("--zzzzzzzz")), ERR_ARG, "see yard do --help");
    CHECK_FAILS(parse(&v, WORDS("-x")), ERR_ARG, "has no option -x");
}

/* `takes` is what the command calls its arguments. */
static void check_unknown(const char *takes, const char *word, const char *next, const char *says)
{
    bool help = false;
    int n = 0;
    int64_t tokens = 0;
    char name[] = "do", first[64], second[64];
    char *argv[] = { name, first, second, NULL };
    const Option table[] = { { "--tokens", OPTION_INT, &tokens, "N", .help = "tokens" } };
    const Command c = { .name = "yard do", .arguments = takes, OPTIONS(table, 0, 9) };
    snprintf(first, sizeof first, "%s", word);
    snprintf(second, sizeof second, "%s", next == NULL ? "" : next);
    CHECK_FAILS(options_parse(&c, next == NULL ? 2 : 3, argv, &n, &help), ERR_ARG, says);
}

static void an_option_of_another_trainer_is_answered_with_ours(void **state)
{
    (void)state;
    static const char settings[] = "CONFIG [section.key=value ...]";
    static const char launcher[] = "CONFIG [section.key=value ...] -- LAUNCHER";
    check_unknown(settings, "--lr", "1e-3",
                  "yard do has no option --lr: write optimizer.lr=1e-3 [");
    check_unknown(settings, "--lr=1e-3", "x", "no option --lr: write optimizer.lr=1e-3 [");
    check_unknown(settings, "--lr", NULL, "no option --lr: write optimizer.lr=VALUE [");
    check_unknown(settings, "--lr", "--bf16", "no option --lr: write optimizer.lr=VALUE [");
    check_unknown(settings, "--optimizer.lr", "1e-3", ": write optimizer.lr=1e-3 [");
    check_unknown(
        settings, "--mesh.tp_pieces=8", NULL,
        "has no option --mesh.tp_pieces: settings have no dashes, write mesh.tp_pieces=8 [");
    check_unknown(settings, "--bf16", NULL, ": write run.compute=bf16 [");
    check_unknown(settings, "--swiglu", NULL, "no option --swiglu: MLPs are SwiGLU");
    check_unknown("FROM", "--lr", "1e-3", ": for `switchyard train` write optimizer.lr=1e-3 [");
    check_unknown("FROM", "--mesh.tp_pieces=8", NULL,
                  "has no option --mesh.tp_pieces (see yard do");
    check_unknown("FROM", "--max-new-tokens", "7",
                  "no option --max-new-tokens: write --tokens=7 [");
    check_unknown("FROM", "--nproc_per_node", "7",
                  "no option --nproc_per_node (see yard do --help)");
    check_unknown(
        launcher, "--ranks", "2",
        "no option --ranks: how ranks start is written after --, as in -- --ranks 2 (see");
}

/* The command has no settings, but an option of the setting's name. */
static void an_option_of_another_trainer_may_be_the_commands_own(void **state)
{
    (void)state;
    bool help = false;
    int n = 0;
    const char *path = NULL;
    char words[][32] = { "do", "--tokenizer-model", "a.json" };
    char *argv[] = { words[0], words[1], words[2], NULL };
    const Option table[] = { { "--tokenizer", OPTION_TEXT, &path, "FILE", .help = "tokenizer" } };
    Command c = { .name = "yard do", .arguments = "FILE...", OPTIONS(table, 0, 9) };
    CHECK_FAILS(options_parse(&c, 3, argv, &n, &help), ERR_ARG,
                "yard do has no option --tokenizer-model: it is --tokenizer here [");
    c.arguments = "CONFIG [section.key=value ...]";
    CHECK_FAILS(options_parse(&c, 3, argv, &n, &help), ERR_ARG, ": write data.tokenizer=a.json (");
    c.arguments = "FILE...", c.n_options = 0;
    CHECK_FAILS(options_parse(&c, 3, argv, &n, &help), ERR_ARG, ": for `switchyard train` write ");
}

static void values_are_checked(void **state)
{
    (void)state;
    Values v;
    CHECK_FAILS(parse(&v, WORDS("--tokens", "five")), ERR_ARG, "--tokens is \"five\"");
    CHECK_FAILS(parse(&v, WORDS("--tokens", "5x")), ERR_ARG, "must be a whole number");
    CHECK_FAILS(parse(&v, WORDS("--tokens=")), ERR_ARG, "must be a whole number [");
    CHECK_FAILS(parse(&v, WORDS("--tokens", "1_0")), ERR_ARG, "number: write 10 [");
    CHECK_FAILS(parse(&v, WORDS("--tokens", "1e2")), ERR_ARG, "number: write 100 [");
    CHECK_FAILS(parse(&v, WORDS("--tokens", "99999999999999999999")), ERR_ARG, "whole number");
    CHECK_FAILS(parse(&v, WORDS("--tokens", "0")), ERR_ARG, "must be from 1 to 1000");
    CHECK_FAILS(parse(&v, WORDS("--tokens", "1001")), ERR_ARG, "--tokens is 1001");
    CHECK_FAILS(parse(&v, WORDS("--temperature", "nan")), ERR_ARG, "must be a number");
    CHECK_FAILS(parse(&v, WORDS("--temperature", "-1")), ERR_ARG, "must be from 0 to 2");
    CHECK_FAILS(parse(&v, WORDS("--mode", "ski")), ERR_ARG, "must be one of fail|skip|ask");
    CHECK_FAILS(parse(&v, WORDS("--dry-run=yes")), ERR_ARG, "--dry-run takes no value");
    CHECK_FAILS(parse(&v, WORDS("--out")), ERR_ARG, "--out needs a value: FILE");
    CHECK_FAILS(parse(&v, WORDS("--out", "--tokens", "5")), ERR_ARG, "--out needs a value");
}

static void what_is_empty_is_refused_by_name(void **state)
{
    (void)state;
    Values v;
    CHECK_FAILS(parse(&v, WORDS("--out", "", "from")), ERR_ARG, "--out is empty: give FILE");
    CHECK_FAILS(parse(&v, WORDS("--key=", "from")), ERR_ARG, "--key is empty: give KEY");
    CHECK_FAILS(parse(&v, WORDS("--out=o", "from", "")), ERR_ARG, "yard do: argument 2 is empty");
}

static void every_command_takes_the_general_options(void **state)
{
    (void)state;
    Values v;
    CHECK_OK(parse(&v, WORDS("--quiet", "--out=o", "from")));
    CHECK_INT(log_level(), LOG_WARN);
    CHECK_OK(parse(&v, WORDS("--out=o", "from", "--verbose")));
    CHECK_INT(log_level(), LOG_DEBUG);
    log_set_level(LOG_INFO);
    CHECK_INT(v.n, 1);
    CHECK_FAILS(parse(&v, WORDS("--verbos")), ERR_ARG, "did you mean --verbose?");
    CHECK_FAILS(parse(&v, WORDS("--halp")), ERR_ARG, "did you mean --help?");
}

static void an_option_without_limits_takes_any_number(void **state)
{
    (void)state;
    Values v;
    CHECK_OK(parse(&v, WORDS("--order", "-7", "--out", "o", "from")));
    CHECK_INT(v.orders.at[0], -7);
}

static void positional_arguments_are_counted(void **state)
{
    (void)state;
    Values v;
    CHECK_FAILS(parse(&v, WORDS("--out", "o")), ERR_ARG, "yard do needs FROM [TO], got 0");
    CHECK_FAILS(parse(&v, WORDS("a", "b", "c")), ERR_ARG, "what to do with \"c\"");
    CHECK_FAILS(parse(&v, WORDS("a", "b")), ERR_ARG, "yard do needs --out FILE");
}

static void after_two_dashes_everything_is_positional(void **state)
{
    (void)state;
    Values v;
    const char **words = WORDS("--out", "o", "--", "--tokens", "-");
    CHECK_OK(parse(&v, words));
    CHECK_INT(v.n, 2);
    CHECK_TEXT(words[0], "--tokens");
    CHECK_TEXT(words[1], "-");
}

/* Run with stdout in a file, and give back what it got. */
static void capture(Status (*run)(void), char *out, size_t out_bytes)
{
    FILE *f = tmpfile();
    CHECK(f != NULL);
    fflush(stdout);
    int kept = dup(STDOUT_FILENO);
    dup2(fileno(f), STDOUT_FILENO);
    Status s = run();
    fflush(stdout);
    dup2(kept, STDOUT_FILENO);
    close(kept);
    rewind(f);
    out[fread(out, 1, out_bytes - 1, f)] = '\0';
    fclose(f);
    CHECK_OK(s);
}

static Status ask_for_help(void)
{
    Values v;
    Status s = parse(&v, WORDS("--tokens", "5", "--help", "--unknown"));
    return s == OK && !v.help ? FAIL(ERR_ARG, "help is not set") : s;
}

static void help_shows_every_option_its_default_and_an_example(void **state)
{
    (void)state;
    static const char *const PARTS[] = { "Do it.",
                                         "usage: yard do [option...] FROM [TO]",
                                         "--dry-run ",
                                         "--tokens N ",
                                         "--again[=auto|late] ",
                                         "--out FILE",
                                         "where to (required)",
                                         "what then [skip]",
                                         "orders (may be repeated)",
                                         "options of every command:\n  --verbose ",
                                         "  --quiet ",
                                         "example:\n  yard do --out a b" };
    char text[4096];
    capture(ask_for_help, text, sizeof text);
    for (size_t i = 0; i < sizeof PARTS / sizeof *PARTS; i++) {
        if (strstr(text, PARTS[i]) == NULL) fail_msg("no \"%s\" in: %s", PARTS[i], text);
    }
}

static int called_with;

static Status run_it(int argc, char **argv)
{
    called_with = argc;
    return strcmp(argv[0], "train") == 0 ? OK : FAIL(ERR_ARG, "argv[0] is %s", argv[0]);
}

static const Subcommand ROWS[] = { { "prepare", "make it", run_it }, { "train", "learn", run_it } };

static void a_subcommand_gets_its_own_arguments(void **state)
{
    (void)state;
    char words[][16] = { "data", "train", "a" };
    char *argv[] = { words[0], words[1], words[2] };
    CHECK_OK(options_dispatch("yard data", ROWS, 2, 3, argv));
    CHECK_INT(called_with, 2);
}

static void an_unknown_subcommand_names_the_nearest(void **state)
{
    (void)state;
    char words[][24] = { "data", "trian", "zzzzzzzz", "mine.yaml", "preprocess_data.py", "lr" };
    char *argv[] = { words[0], words[1] };
    CHECK_FAILS(options_dispatch("yard data", ROWS, 2, 2, argv), ERR_ARG,
                "yard data has no command \"trian\", did you mean train?");
    argv[1] = words[2];
    CHECK_FAILS(options_dispatch("yard data", ROWS, 2, 2, argv), ERR_ARG, "see yard data --help");
    argv[1] = words[3];
    CHECK_FAILS(options_dispatch("yard", ROWS, 2, 2, argv), ERR_ARG,
                "yard has no command \"mine.yaml\": a command comes first: switchyard train");
    argv[1] = words[4];
    CHECK_FAILS(options_dispatch("yard", ROWS, 2, 2, argv), ERR_ARG, "`switchyard data prepare`");
    argv[1] = words[5];
    CHECK_FAILS(options_dispatch("yard", ROWS, 2, 2, argv), ERR_ARG, "see yard --help");
    CHECK_FAILS(options_dispatch("yard data", ROWS, 2, 1, argv), ERR_ARG, "needs a command");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_switch_takes_a_word_only_behind_an_equals_sign),
        TEST(every_kind_of_value_reaches_its_target),
        TEST(options_exclude_or_need_each_other),
        TEST(what_is_not_given_keeps_its_default),
        TEST(an_unknown_option_names_the_nearest),
        TEST(an_option_of_another_trainer_is_answered_with_ours),
        TEST(an_option_of_another_trainer_may_be_the_commands_own),
        TEST(values_are_checked),
        TEST(what_is_empty_is_refused_by_name),
        TEST(every_command_takes_the_general_options),
        TEST(an_option_without_limits_takes_any_number),
        TEST(positional_arguments_are_counted),
        TEST(after_two_dashes_everything_is_positional),
        TEST(help_shows_every_option_its_default_and_an_example),
        TEST(a_subcommand_gets_its_own_arguments),
        TEST(an_unknown_subcommand_names_the_nearest),
    };
    return TEST_RUN(tests);
}
