/* help_table: prints --help as rows of fields (help_table.h), from the same tables as options.c's
 * help for people. */
#include "app/options/help_table.h"

#include "engine/base/out.h"
#include "engine/base/text.h"

#include <stdio.h>
#include <string.h>

enum { TABLE_BYTES = 1 << 20, NUMBER_BYTES = 32 };

bool help_table_asked(const char *word) { return strcmp(word, "--help=table") == 0; }

/* Escapes what separates rows and fields, and the escape itself. */
static Status append_escaped(Text *out, const char *text)
{
    for (; *text != '\0'; text++) {
        bool plain = strchr("\n\t\\", *text) == NULL;
        if (!plain) TRY(text_append(out, "\\", 1));
        TRY(text_append(out, plain || *text == '\\' ? text : *text == '\n' ? "n" : "t", 1));
    }
    return OK;
}

/* `fields` ends with NULL. */
static Status append_row(Text *out, const char *const *fields)
{
    for (int i = 0; fields[i] != NULL; i++) {
        if (i > 0) TRY(text_append(out, "\t", 1));
        TRY(append_escaped(out, fields[i]));
    }
    return text_append(out, "\n", 1);
}
#define ROW(out, ...) append_row((out), (const char *const[]){ __VA_ARGS__, NULL })

static const char *option_kind(const Option *o)
{
    if (o->kind == OPTION_FLAG || o->kind == OPTION_SWITCH) return "flag";
    if (o->kind == OPTION_CHOICE) return "word";
    return o->kind == OPTION_TEXT || o->kind == OPTION_TEXTS ? "text" : "number";
}

static const char *option_rule(const Option *o)
{
    if (o->required) return "required";
    return o->kind == OPTION_INTS || o->kind == OPTION_TEXTS ? "repeated" : "";
}

/* Writes an option's default; "" if there is none. The default of a text is in its help. A default
 * number outside the option's limits means that the option is off unless it is given. */
static void option_default(const Option *o, char out[NUMBER_BYTES])
{
    int n = 0;
    const char *word = "";
    if (o->kind == OPTION_CHOICE) word = text_word(o->value, *(int *)o->target, &n);
    (void)snprintf(out, NUMBER_BYTES, "%.*s", n, word);
    if (o->kind != OPTION_INT && o->kind != OPTION_REAL) return;
    double v = o->kind == OPTION_INT ? (double)*(int64_t *)o->target : *(double *)o->target;
    bool off = o->min < o->max && (v < o->min || v > o->max);
    if (!off) (void)snprintf(out, NUMBER_BYTES, "%.15g", v);
}

static Status append_options(Text *out, const Command *c)
{
    for (const Option *o = c->options; o < c->options + c->n_options; o++) {
        char value[NUMBER_BYTES];
        option_default(o, value);
        TRY(ROW(out, "option", o->name, option_kind(o), o->value == NULL ? "" : o->value, value,
                option_rule(o), o->help));
    }
    return OK;
}

static Status append_table(Text *out, const Command *c, const Subcommand *rows, int n)
{
    TRY(ROW(out, "name", c->name));
    if (c->what != NULL) TRY(ROW(out, "what", c->what));
    if (c->arguments != NULL) TRY(ROW(out, "arguments", c->arguments));
    if (c->example != NULL) TRY(ROW(out, "example", c->example));
    TRY(append_options(out, c));
    for (int i = 0; i < n; i++) TRY(ROW(out, "command", rows[i].name, rows[i].what));
    return OK;
}

/* Collects the whole table before it is written: stdout gets all of it or nothing. */
static Status print_table(const Command *c, const Subcommand *rows, int n)
{
    Arena a = { 0 };
    Text t = { 0 };
    TRY(arena_init(&a, "help", MEM_HOST, TABLE_BYTES));
    Status s = text_init(&t, &a);
    if (s == OK) s = append_table(&t, c, rows, n);
    if (s == OK) s = out_text(&t);
    arena_free(&a);
    return s;
}

Status help_table_command(const Command *c)
{
    return print_table(c, c->below, c->below == NULL ? 0 : 1);
}

Status help_table_group(const char *program, const Subcommand *rows, int n)
{
    return print_table(&(Command){ .name = program }, rows, n);
}
