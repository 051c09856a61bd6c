#include "app/options/help_table.h"
#include "app/options/options.h"
#include "harness/test.h"

#include <unistd.h>

typedef struct Values {
    bool dry;
    int64_t tokens, gpus;
    double heat;
    const char *out;
    int mode;
    OptionInts orders;
    OptionTexts keys;
} Values;

static Status nothing(int argc, char **argv) { return argc > 0 && argv != NULL ? OK : ERR_ARG; }

static const Subcommand BELOW = { "below", "the one below", nothing };

/* Asks for --help=table with one option of each kind. */
static Status ask(void)
{
    Values v = { .tokens = 100, .heat = 0.5, .mode = 1 };
    const Option table[] = {
        { "--dry-run", OPTION_FLAG, &v.dry, NULL, .help = "only say" },
        { "--tokens", OPTION_INT, &v.tokens, "N", .help = "tokens", .min = 1, .max = 1000 },
        { "--gpus", OPTION_INT, &v.gpus, "N", .help = "GPUs", .min = 1, .max = 8 },
        { "--heat", OPTION_REAL, &v.heat, "X", .help = "heat", .min = 0, .max = 2 },
        { "--out", OPTION_TEXT, &v.out, "FILE", .help = "a \\ and\na\ttab", .required = true },
        { "--mode", OPTION_CHOICE, &v.mode, "fail|skip|ask", .help = "what then" },
        { "--order", OPTION_INTS, &v.orders, "N", .help = "orders" },
        { "--key", OPTION_TEXTS, &v.keys, "KEY", .help = "keys" },
    };
    const Command command = { .name = "yard do",
                              .arguments = "FROM [TO]",
                              .what = "Do it.\nNow.",
                              .example = "yard do \\\n  --out a b",
                              .below = &BELOW,
                              OPTIONS(table, 1, 2) };
    char words[][16] = { "do", "--help=table", "--unknown" };
    char *argv[] = { words[0], words[1], words[2], NULL };
    bool help = false;
    int n = 0;
    TRY(options_parse(&command, 3, argv, &n, &help));
    return help ? OK : FAIL(ERR_ARG, "help is not set");
}

static Status ask_group(void)
{
    static const Subcommand ROWS[] = { { "one", "the first", nothing },
                                       { "two", "more", nothing } };
    char words[][16] = { "yard", "--help=table" };
    char *argv[] = { words[0], words[1], NULL };
    return options_dispatch("yard", ROWS, 2, 2, argv);
}

/* What `fn` prints. */
static const char *printed(Status (*fn)(void))
{
    static char text[4096];
    FILE *f = tmpfile();
    CHECK(f != NULL);
    fflush(stdout);
    int kept = dup(STDOUT_FILENO);
    dup2(fileno(f), STDOUT_FILENO);
    Status s = fn();
    fflush(stdout);
    dup2(kept, STDOUT_FILENO);
    close(kept);
    rewind(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    CHECK_OK(s);
    return text;
}

static void a_command_is_rows_of_fields(void **state)
{
    (void)state;
    CHECK_TEXT(printed(ask), "name\tyard do\n"
                             "what\tDo it.\\nNow.\n"
                             "arguments\tFROM [TO]\n"
                             "example\tyard do \\\\\\n  --out a b\n"
                             "option\t--dry-run\tflag\t\t\t\tonly say\n"
                             "option\t--tokens\tnumber\tN\t100\t\ttokens\n"
                             "option\t--gpus\tnumber\tN\t\t\tGPUs\n"
                             "option\t--heat\tnumber\tX\t0.5\t\theat\n"
                             "option\t--out\ttext\tFILE\t\trequired\ta \\\\ and\\na\\ttab\n"
                             "option\t--mode\tword\tfail|skip|ask\tskip\t\twhat then\n"
                             "option\t--order\tnumber\tN\t\trepeated\torders\n"
                             "option\t--key\ttext\tKEY\t\trepeated\tkeys\n"
                             "command\tbelow\tthe one below\n");
}

static void a_group_lists_its_commands(void **state)
{
    (void)state;
    CHECK_TEXT(printed(ask_group), "name\tyard\ncommand\tone\tthe first\ncommand\ttwo\tmore\n");
}

static int ran;

static Status count_run(int argc, char **argv)
{
    ran = argc;
    return strcmp(argv[0], "below") == 0 ? OK : FAIL(ERR_ARG, "argv[0] is %s", argv[0]);
}

static Status never(void *state, int n, char **arguments, Arena *a, Text *out)
{
    (void)state, (void)n, (void)arguments, (void)a, (void)out;
    return FAIL(ERR_ARG, "the command above ran");
}

static void a_command_below_another_runs_instead(void **state)
{
    (void)state;
    static const Subcommand COUNT = { "below", "", count_run };
    const Command command = {
        .name = "yard do", .what = "", .below = &COUNT, .max_positional = -1
    };
    char words[][16] = { "do", "below", "a" };
    char *argv[] = { words[0], words[1], words[2], NULL };
    CHECK_OK(options_run(&command, 3, argv, never, NULL));
    CHECK_INT(ran, 2);
    CHECK_FAILS(options_run(&command, 1, argv, never, NULL), ERR_ARG, "the command above ran");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_command_is_rows_of_fields),
        TEST(a_group_lists_its_commands),
        TEST(a_command_below_another_runs_instead),
    };
    return TEST_RUN(tests);
}
