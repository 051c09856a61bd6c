/* docs/reference/config.md is what the table of settings says. `--write` prints the page (make docs). */
#include "harness/arena.h"

#include "engine/base/file.h"
#include "engine/config/config.h"

#include <stdio.h>
#include <string.h>

static const char *const type_names[] = { [CONFIG_INT] = "whole number",
                                          [CONFIG_REAL] = "number",
                                          [CONFIG_BOOL] = "true or false",
                                          [CONFIG_TEXT] = "text",
                                          [CONFIG_CHOICE] = "",
                                          [CONFIG_INTS] = "list of whole numbers and ranges (0-60)",
                                          [CONFIG_TEXTS] = "list of ",
                                          [CONFIG_SOURCES] = "list of sources" };

static const char *const mark_names[] = {
    [CONFIG_FREE] = "free", [CONFIG_MATH] = "mathematics", [CONFIG_DATA] = "data"
};

/* Appends the allowed values of a row: its type, range or words. */
static Status print_values(const ConfigRow *row, Text *out)
{
    bool ranged = row->type == CONFIG_INT || row->type == CONFIG_REAL || row->type == CONFIG_INTS;
    const char *word = row->choices, *what = row->type == CONFIG_TEXTS && !word ? "texts" : "";
    TRY(text_printf(out, "%s%s", type_names[row->type], what));
    if (ranged) TRY(text_printf(out, ", %.15g to %.15g", row->min, row->max));
    for (int i = 0, n = 0; word != NULL && (word = text_word(row->choices, i, &n)) != NULL; i++)
        TRY(text_printf(out, "%s`%.*s`", i == 0 ? "" : ", ", n, word));
    return OK;
}

/* Appends a row as a list item, wrapped to 116 columns. `a` is scratch memory. */
static Status print_item(const ConfigRow *row, Arena *a, Text *out)
{
    const ArenaMark mark = arena_mark(a);
    Text item;
    TRY(text_init(&item, a));
    TRY(text_printf(&item, "- **`%s`**, by default `%s`: %s. *Values:* ", row->name,
                    *row->fallback == '\0' ? "\"\"" : row->fallback, row->help));
    TRY(print_values(row, &item));
    TRY(text_append(&item, ".", 1));
    if (row->level != CONFIG_PLAN) TRY(text_printf(&item, " *Resume:* %s.", mark_names[row->mark]));
    TRY(text_wrap(out, item.data, 0, 116, 2));
    arena_release(a, mark);
    return OK;
}

/* One chapter per level. Those behind the common one are long, and divided by section. */
static Status print_levels(Arena *a, Text *out)
{
    const ConfigRow *last = NULL;
    for (int i = 0; i < (CONFIG_PLAN + 1) * config_row_count; i++) {
        const ConfigLevel level = (ConfigLevel)(i / config_row_count);
        const ConfigRow *row = &config_rows[i % config_row_count];
        if (i % config_row_count == 0) {
            TRY(text_printf(out, "\n## %s\n\n%s\n", config_levels[level].title,
                            config_levels[level].what));
            if (level < CONFIG_EXPERT) TRY(text_append(out, "\n", 1));
        }
        if (row->level != level) continue;
        if (level >= CONFIG_EXPERT && config_opens_section(row, last))
            TRY(text_printf(out, "\n### %.*s\n\n", (int)strcspn(row->name, "."), row->name));
        TRY(print_item(row, a, out));
        if (level >= CONFIG_EXPERT) last = row;
    }
    return OK;
}

static const char head[] =
    "# Settings\n\n"
    "<!-- Written by `make docs` from src/engine/config/rows.def: change it there. -->\n\n"
    "A setting is a line of the YAML file that `switchyard train` reads, or `section.key=value`\n"
    "on its command line. Later wins over earlier:\n\n"
    "1. the default below,\n"
    "2. the preset that the file's top-level key `preset` names,\n"
    "3. the file (or a preset's name in its place),\n"
    "4. the command line, from left to right.\n\n"
    "*Resume* says what another value would change when `--resume` continues a run:\n\n"
    "- *free*: nothing. The new value is used.\n"
    "- *mathematics*, *data*: the training itself. `--change section.key` allows it.\n\n"
    "`train.steps` is free as long as the curve of the learning rate ends where it did: at\n"
    "`optimizer.decay_steps`, or at `train.steps` where that is 0. With "
    "`optimizer.schedule=constant`\n"
    "it is always free. `train.micro_batch` is free unless `moe.aux_scope` is `batch` or\n"
    "`moe.capacity` is set. `--init` accepts any change that leaves parameters their names and "
    "shapes,\n"
    "and says what differs.\n\n";

static Status print_page(Text *out)
{
    Arena a = { 0 };
    TRY(text_append(out, head, sizeof head - 1));
    TRY(arena_init(&a, "settings", MEM_HOST, (size_t)1 << 20));
    Text presets;
    Status s = text_init(&presets, &a);
    if (s == OK) s = config_print_presets(&presets, "Presets (share/presets): `", "`, `");
    if (s == OK) s = text_append(&presets, "`.", 2);
    if (s == OK) s = text_wrap(out, presets.data, 0, 116, 0);
    if (s == OK) s = print_levels(&a, out);
    arena_free(&a);
    return s;
}

static void docs_reference_config_md_is_current_else_run_make_docs(void **state)
{
    (void)state;
    char *have = NULL;
    size_t bytes = 0;
    Text want;
    CHECK_OK(file_read_all("docs/reference/config.md", &arena, &have, &bytes));
    CHECK_OK(text_init(&want, &arena));
    CHECK_OK(print_page(&want));
    CHECK(strcmp(have, want.data) == 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(docs_reference_config_md_is_current_else_run_make_docs),
    };
    Text page;
    if (argc < 2 || strcmp(argv[1], "--write") != 0) return ARENA_RUN(tests);
    open_arena(NULL);
    CHECK_OK(text_init(&page, &arena));
    CHECK_OK(print_page(&page));
    return fputs(page.data, stdout) < 0;
}
