/* docs/reference/command-line.md is what --help says. */
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
    (void)snprintf(command, sizeof command, "tools/make_command_line '%s'", lab.program);
    FILE *made = popen(command, "r");
    CHECK(made != NULL);
    const size_t n = fread(want, 1, sizeof want - 1, made);
    CHECK_INT(pclose(made), 0);
    CHECK(n > 1000);
    CHECK(strcmp(have, want) == 0);
    arena_free(&lab.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_page_of_commands_is_current_else_run_make_docs),
    };
    return TEST_RUN(tests);
}
