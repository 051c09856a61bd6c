/* docs/reference/command-line.md is what --help says, and tools/check_guides sees outputs that are not the program's. */
#include "harness/program.h"

#include <stdio.h>

static void the_page_of_commands_is_current_else_run_make_docs(void **state)
{
    (void)state;
    char command[FILE_PATH_MAX + 32], *have = NULL;
    static char want[1 << 20];
    size_t bytes = 0;
    Lab lab = { 0 };
    lab_find_program(&lab);
    CHECK_OK(arena_init(&lab.arena, "page", MEM_HOST, sizeof want));
    CHECK_OK(file_read_all("docs/reference/command-line.md", &lab.arena, &have, &bytes));
    (void)snprintf(command, sizeof command, "tools/make_help '%s' page -", lab.program);
    FILE *made = popen(command, "r");
    CHECK(made != NULL);
    const size_t n = fread(want, 1, sizeof want - 1, made);
    CHECK_INT(pclose(made), 0);
    CHECK(n > 1000);
    CHECK(strcmp(have, want) == 0);
    arena_free(&lab.arena);
}

/* What a script of sh prints, in the project's folder. */
static const char *printed(const char *script)
{
    static char out[1 << 14];
    FILE *said = popen(script, "r");
    CHECK(said != NULL);
    out[fread(out, 1, sizeof out - 1, said)] = '\0';
    (void)pclose(said);
    return out;
}

/* Compares the page with --help for people, which shares no code with the page's generator: of each command every
 * word of every option is there, in this order, whatever the lines. */
static void the_page_has_every_word_of_every_option(void **state)
{
    (void)state;
    static const char walk[] =
        "squeeze() { tr -s ' \\n' ' ' | tr -d '`'; }\n"
        "page=$(squeeze <docs/reference/command-line.md)\n"
        "walk() {\n"
        /* rows of options, each on one line: further lines of a text are indented */
        "    $PROGRAM \"$@\" --help | sed '/^examples*:/,$d' |\n"
        "        awk '/^  -/ { if (row) print row; row = $0 } /^          / && row { row = row $0 }"
        " /^$/ { if (row) print row; row = \"\" } END { if (row) print row }' |\n"
        "        sed -E 's/^  (-[^ ]*( [^ ]+)?)  +/- \\1: /' | while read -r row; do\n"
        "            want=$(echo \"$row\" | squeeze)\n"
        "            case $page in *\"$want\"*) echo ok ;; *) echo \"$*: not there: $want\" ;; "
        "esac\n"
        "        done\n"
        "    for below in $($PROGRAM \"$@\" --help=table | sed -n 's/^command.\\([a-z]\\)/\\1/p' | "
        "cut -f 1 |"
        " grep -vx help); do (walk \"$@\" $below); done\n"
        "}\n"
        "walk | awk '$0 == \"ok\" { n++; next } { print } END { print n \" options\" }'\n";
    Lab lab = { 0 };
    int options = 0;
    lab_find_program(&lab);
    CHECK_INT(setenv("PROGRAM", lab.program, 1), 0);
    const char *out = printed(walk);
    if (sscanf(out, "%d options\n", &options) != 1) fail_msg("%s", out);
    CHECK(options > 150);
}

/* tools/check_guides runs this one, whichever build the test is of. */
static void need_program(void)
{
    if (file_exists("build/switchyard")) return;
    printf("skip: build/switchyard is not built\n");
    skip();
}

static void outputs_that_guides_print_are_compared(void **state)
{
    (void)state;
    need_program();
    CHECK_TEXT(printed("tools/check_guides tests/guides/bad_outputs.md | sed 's/, [0-9]* s)$/)/' |"
                       " diff tests/guides/bad_outputs.want - 2>&1"),
               "");
}

/* Lines that differ have what is printed; all others are as they were. */
static void outputs_that_guides_print_are_written(void **state)
{
    (void)state;
    need_program();
    CHECK_TEXT(
        printed("page=$(mktemp /tmp/outputs-XXXXXX.md) && cp tests/guides/bad_outputs.md $page\n"
                "tools/check_guides --write $page >/dev/null\n"
                "diff tests/guides/bad_outputs.md $page | grep '^[<>]' |"
                " diff tests/guides/bad_outputs.diff - 2>&1\n"
                "rm $page"),
        "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_page_of_commands_is_current_else_run_make_docs),
        TEST(the_page_has_every_word_of_every_option),
        TEST(outputs_that_guides_print_are_compared),
        TEST(outputs_that_guides_print_are_written),
    };
    return TEST_RUN(tests);
}
