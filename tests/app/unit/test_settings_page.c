/* docs/reference/config.md is what the table of settings says. */
#include "harness/arena.h"

#include "app/settings_page.h"
#include "engine/base/file.h"

#include <string.h>

static void docs_reference_config_md_is_current_else_run_make_docs(void **state)
{
    (void)state;
    char *have = NULL;
    size_t bytes = 0;
    Text want;
    CHECK_OK(file_read_all("docs/reference/config.md", &arena, &have, &bytes));
    CHECK_OK(text_init(&want, &arena));
    CHECK_OK(settings_page(&want));
    CHECK(strcmp(have, want.data) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(docs_reference_config_md_is_current_else_run_make_docs),
    };
    return ARENA_RUN(tests);
}
