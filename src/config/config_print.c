/* config_print: settings as YAML that reads back to the same struct, and the tables for people. A
 * text is written bare if no reader of YAML could take it for anything else. Otherwise it is
 * written in double quotes, with escapes for characters that YAML calls not printable or folds as
 * line breaks. */
#include "config/config_private.h"

#include <string.h>

/* ---- texts ---- */

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

static bool is_bare(const char *s)
{
    static const char *const words[] = { "true", "false", "null", "yes", "no",
                                         "on",   "off",   "y",    "n",   NULL };
    for (int i = 0; words[i] != NULL; i++) {
        if (strcasecmp(s, words[i]) == 0) return false;
    }
    if (!is_letter(*s) && *s != '/' && *s != '_') return false;
    for (; *s != '\0'; s++) {
        if (!is_letter(*s) && strchr("0123456789/_.-", *s) == NULL) return false;
    }
    return true;
}

/* One character of valid UTF-8; *bytes is its length. */
static uint32_t character(const char *s, int *bytes)
{
    unsigned char lead = (unsigned char)*s;
    *bytes = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    uint32_t c = *bytes == 1 ? lead : lead & (0x7Fu >> *bytes);
    for (int i = 1; i < *bytes; i++) c = c << 6 | ((unsigned char)s[i] & 0x3Fu);
    return c;
}

static bool needs_escape(uint32_t c)
{
    return c < 0x20 || c == '"' || c == '\\' || (c >= 0x7F && c <= 0xA0) || c == 0x2028 ||
           c == 0x2029 || c == 0xFEFF || c == 0xFFFE || c == 0xFFFF;
}

static Status print_text(Text *out, const char *s)
{
    if (is_bare(s)) return text_append(out, s, strlen(s));
    TRY(text_append(out, "\"", 1));
    for (int bytes = 0; *s != '\0'; s += bytes) {
        uint32_t c = character(s, &bytes);
        if (c == '"' || c == '\\') {
            TRY(text_printf(out, "\\%c", (int)c));
        } else if (needs_escape(c)) {
            TRY(text_printf(out, c < 0x100 ? "\\x%02X" : "\\u%04X", (unsigned)c));
        } else {
            TRY(text_append(out, s, (size_t)bytes));
        }
    }
    return text_append(out, "\"", 1);
}

/* ---- values ---- */

static Status print_choice(Text *out, const char *choices, int index)
{
    int n = 0;
    const char *word = text_word(choices, index, &n);
    return text_append(out, word, (size_t)n);
}

/* Entry i of a list. */
static Status print_entry(Text *out, ConfigType type, const void *list, int i)
{
    const ConfigInts *ints = list;
    const ConfigTexts *texts = list;
    if (type == CONFIG_INTS) return text_printf(out, "%lld", (long long)ints->at[i]);
    if (type == CONFIG_TEXTS) return print_text(out, texts->at[i]);
    const ConfigSource *source = &((const ConfigSources *)list)->at[i];
    TRY(text_printf(out, "{name: "));
    TRY(print_text(out, source->name));
    TRY(text_printf(out, ", path: "));
    TRY(print_text(out, source->path));
    return text_json(out, ", weight: %g}", source->weight);
}

static Status print_list(Text *out, ConfigType type, const void *list, int n)
{
    TRY(text_append(out, "[", 1));
    for (int i = 0; i < n; i++) {
        TRY(text_append(out, ", ", i == 0 ? 0 : 2));
        TRY(print_entry(out, type, list, i));
    }
    return text_append(out, "]", 1);
}

/* Lists begin with their length. */
Status config_print_value(const ConfigRow *row, const Config *c, Text *out)
{
    const void *field = (const char *)c + row->offset;
    switch (row->type) {
    case CONFIG_INT: return text_printf(out, "%lld", (long long)*(const int64_t *)field);
    case CONFIG_REAL: return text_json(out, "%g", *(const double *)field);
    case CONFIG_BOOL: return text_printf(out, *(const bool *)field ? "true" : "false");
    case CONFIG_TEXT: return print_text(out, *(const char *const *)field);
    case CONFIG_CHOICE: return print_choice(out, row->choices, *(const int *)field);
    case CONFIG_INTS:
    case CONFIG_TEXTS:
    case CONFIG_SOURCES: return print_list(out, row->type, field, *(const int *)field);
    }
    return OK;
}

/* ---- tables ---- */

static int section_length(const ConfigRow *row) { return (int)strcspn(row->name, "."); }

/* Rows of a section stand together. */
static bool begins_section(int i)
{
    int n = section_length(&config_rows[i]);
    return i == 0 || strncmp(config_rows[i].name, config_rows[i - 1].name, (size_t)n + 1) != 0;
}

Status config_print(const Config *c, Text *out)
{
    for (int i = 0; i < config_row_count; i++) {
        const ConfigRow *row = &config_rows[i];
        int n = section_length(row);
        if (begins_section(i)) TRY(text_printf(out, "%.*s:\n", n, row->name));
        TRY(text_printf(out, "  %s: ", row->name + n + 1));
        TRY(config_print_value(row, c, out));
        TRY(text_append(out, "\n", 1));
    }
    return OK;
}

static const char *shown(const char *fallback) { return *fallback == '\0' ? "\"\"" : fallback; }

/* "before NAME between NAME ..." */
static Status print_presets(Text *out, const char *before, const char *between)
{
    for (int i = 0; i < config_presets_n; i++)
        TRY(text_printf(out, "%s%s", i == 0 ? before : between, config_presets[i].name));
    return OK;
}

Status config_help(Text *out)
{
    TRY(print_presets(out, "Presets: ", ", "));
    TRY(text_append(out, "\n\n", 2));
    for (int i = 0; i < config_row_count; i++) {
        const ConfigRow *row = &config_rows[i];
        if (begins_section(i)) TRY(text_append(out, "\n", i == 0 ? 0 : 1));
        TRY(text_printf(out, "  %-28s %-12s %s", row->name, shown(row->fallback), row->help));
        if (row->choices != NULL) TRY(text_printf(out, " (%s)", row->choices));
        TRY(text_append(out, "\n", 1));
    }
    return OK;
}

static const char *const type_names[] = { [CONFIG_INT] = "whole number",
                                          [CONFIG_REAL] = "number",
                                          [CONFIG_BOOL] = "true or false",
                                          [CONFIG_TEXT] = "text",
                                          [CONFIG_CHOICE] = "",
                                          [CONFIG_INTS] = "list of whole numbers",
                                          [CONFIG_TEXTS] = "list of ",
                                          [CONFIG_SOURCES] = "list of sources" };

static const char *const mark_names[] = {
    [CONFIG_FREE] = "free", [CONFIG_MATH] = "mathematics", [CONFIG_DATA] = "data"
};

/* The values that a row takes. Bars between words would end a cell of the table, so they become
 * commas. */
static Status print_values(const ConfigRow *row, Text *out)
{
    bool ranged = row->type == CONFIG_INT || row->type == CONFIG_REAL || row->type == CONFIG_INTS;
    TRY(text_printf(out, "%s", type_names[row->type]));
    if (ranged) TRY(text_printf(out, ", %.15g to %.15g", row->min, row->max));
    const char *word = row->choices;
    for (int i = 0, n = 0; word != NULL && (word = text_word(row->choices, i, &n)) != NULL; i++)
        TRY(text_printf(out, "%s`%.*s`", i == 0 ? "" : ", ", n, word));
    return OK;
}

Status config_markdown(Text *out)
{
    TRY(text_printf(
        out, "# Settings\n\n"
             "Written by `make docs` from src/config/rows.def; change it there.\n\n"
             "A setting is a line of the YAML file that `switchyard train` reads, or "
             "`section.key=value` on its command line, where later wins over earlier: the "
             "default below, then the preset that the file's top-level key `preset` names, "
             "then the file, then the command line from left to right. A preset's name may "
             "also stand in place of the file.\n\n"
             "`--resume` goes on with the mathematics and the data of its checkpoint. The "
             "last column says what another value would change: a setting that is free is "
             "taken, any other is refused unless `--change section.key` allows it. "
             "`train.steps` is free as long as the cosine ends where it did "
             "(`optimizer.decay_steps`, or `train.steps` where that is 0), and "
             "`train.micro_batch` unless `moe.aux_scope` is `batch` or `moe.capacity` is set. "
             "`--init` takes "
             "anything that leaves parameters their names and shapes, and says what differs.\n\n"));
    TRY(print_presets(out, "Presets: `", "`, `"));
    TRY(text_printf(out, "` (src/config/presets).\n"));
    for (int i = 0; i < config_row_count; i++) {
        const ConfigRow *row = &config_rows[i];
        if (begins_section(i))
            TRY(text_printf(out,
                            "\n## %.*s\n\n| setting | default | values | meaning | changes |\n"
                            "|---|---|---|---|---|\n",
                            section_length(row), row->name));
        TRY(text_printf(out, "| `%s` | `%s` | ", row->name, shown(row->fallback)));
        TRY(print_values(row, out));
        TRY(text_printf(out, " | %s | %s |\n", row->help, mark_names[row->mark]));
    }
    return OK;
}
