/* config_print: writes settings as YAML that reads back to the same struct, and as tables for people.
 *
 * A text is written without quotes only if no YAML reader could take it for anything else. Otherwise it
 * is in double quotes, with escapes for characters that YAML 1.1 calls not printable or treats as line
 * breaks. Without them config_parse would not read back the same text. */
#include "engine/config/config_private.h"

#include <string.h>

/* ---- texts ---- */

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/* Can the text stand without quotes? The words are YAML 1.1's other spellings of booleans and null. */
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

/* Decodes one character of valid UTF-8; *bytes is its length. */
static uint32_t decode_utf8(const char *s, int *bytes)
{
    unsigned char lead = (unsigned char)*s;
    *bytes = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    uint32_t c = *bytes == 1 ? lead : lead & (0x7Fu >> *bytes);
    for (int i = 1; i < *bytes; i++) c = c << 6 | ((unsigned char)s[i] & 0x3Fu);
    return c;
}

/* Control characters, YAML 1.1's line breaks (NEL, LS, PS), the no-break space, the byte order mark
 * and noncharacters. */
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
        uint32_t c = decode_utf8(s, &bytes);
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

/* A CHOICE is kept as an index; in files it is a word. */
static Status print_choice(Text *out, const char *choices, int index)
{
    int n = 0;
    const char *word = text_word(choices, index, &n);
    return text_append(out, word, (size_t)n);
}

/* Appends entry i of a list, whose struct `type` says. */
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
    TRY(text_json(out, ", weight: %g", source->weight));
    if (source->epochs > 0) TRY(text_json(out, ", epochs: %g", source->epochs));
    return text_append(out, "}", 1);
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

/* Every list struct begins with its length, an int, so *(const int *)field is right for all three. */
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

bool config_opens_section(const ConfigRow *row, const ConfigRow *last)
{
    return last == NULL || strncmp(row->name, last->name, (size_t)section_length(row) + 1) != 0;
}

/* All settings, also those with their default: the run's config.yaml says everything that it ran
 * with. */
Status config_print(const Config *c, Text *out)
{
    for (int i = 0; i < config_row_count; i++) {
        const ConfigRow *row = &config_rows[i];
        int n = section_length(row);
        if (row->level == CONFIG_PLAN) continue;
        if (config_opens_section(row, i == 0 ? NULL : row - 1))
            TRY(text_printf(out, "%.*s:\n", n, row->name));
        TRY(text_printf(out, "  %s: ", row->name + n + 1));
        TRY(config_print_value(row, c, out));
        TRY(text_append(out, "\n", 1));
    }
    return OK;
}

static const char *shown(const char *fallback) { return *fallback == '\0' ? "\"\"" : fallback; }

const ConfigLevelText config_levels[] = {
    [CONFIG_FIRST] = { "First", "What a first training sets, with a preset for the model." },
    [CONFIG_COMMON] = { "Common", "The model, the mesh, the optimizer and memory." },
    [CONFIG_EXPERT] = { "Expert", "Everything else, by section." },
    [CONFIG_PLAN] = { "Plan", "Arguments of `switchyard plan`. A training run has none of them." },
};

Status config_print_presets(Text *out, const char *before, const char *between)
{
    for (int i = 0; i < config_presets_n; i++)
        TRY(text_printf(out, "%s%s", i == 0 ? before : between, config_presets[i].name));
    return OK;
}

/* One pass over the table for each level, so rows keep their order within a level. */
Status config_help(bool plan, Text *out)
{
    const int end = (plan ? CONFIG_PLAN + 1 : CONFIG_PLAN) * config_row_count;
    if (!plan) TRY(config_print_presets(out, "Presets: ", ", "));
    if (!plan) TRY(text_append(out, "\n", 1));
    for (int i = plan ? CONFIG_PLAN * config_row_count : 0; i < end; i++) {
        const ConfigLevel level = (ConfigLevel)(i / config_row_count);
        const ConfigRow *row = &config_rows[i % config_row_count];
        if (i % config_row_count == 0)
            TRY(text_printf(out, "\n%s settings. %s\n", config_levels[level].title,
                            config_levels[level].what));
        if (row->level != level) continue;
        TRY(text_printf(out, "  %-28s %-12s %s", row->name, shown(row->fallback), row->help));
        if (row->choices != NULL) TRY(text_printf(out, " (%s)", row->choices));
        TRY(text_append(out, "\n", 1));
    }
    return OK;
}
