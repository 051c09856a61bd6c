/* help_table: --help as rows of fields. */
#include "cli/help_table.h"

#include <stdio.h>
#include <string.h>

enum { TABLE_BYTES = 1 << 20 };

bool help_table_asked(const char *word) { return strcmp(word, "--help=table") == 0; }

/* A tab, then the text with escapes. NULL is an empty field. */
static Status append_field(Text *out, const char *text)
{
    TRY(text_append(out, "\t", 1));
    for (const char *at = text == NULL ? "" : text; *at != '\0';) {
        size_t plain = strcspn(at, "\n\t\\");
        TRY(text_append(out, at, plain));
        at += plain;
        if (*at == '\0') break;
        TRY(text_printf(out, "\\%c", *at == '\n' ? 'n' : *at == '\t' ? 't' : '\\'));
        at++;
    }
    return OK;
}

static Status append_row(Text *out, const char *kind, const char *text)
{
    if (text == NULL) return OK;
    TRY(text_append(out, kind, strlen(kind)));
    TRY(append_field(out, text));
    return text_append(out, "\n", 1);
}

static const char *kind_of(const Option *o)
{
    if (o->kind == OPTION_FLAG) return "flag";
    if (o->kind == OPTION_CHOICE) return "word";
    return o->kind == OPTION_TEXT || o->kind == OPTION_TEXTS ? "text" : "number";
}

static const char *rule_of(const Option *o)
{
    if (o->required) return "required";
    return o->kind == OPTION_INTS || o->kind == OPTION_TEXTS ? "repeated" : "";
}

/* A number outside the option's limits means that the option is off unless it is given. */
static Status append_number(Text *out, const Option *o, double v)
{
    bool off = o->min < o->max && (v < o->min || v > o->max);
    return off ? OK : text_printf(out, "%.15g", v);
}

/* What the target holds before the command line is read. A text's default stands in its help. */
static Status append_default(Text *out, const Option *o)
{
    int n = 0;
    TRY(text_append(out, "\t", 1));
    if (o->kind == OPTION_INT) return append_number(out, o, (double)*(int64_t *)o->target);
    if (o->kind == OPTION_REAL) return append_number(out, o, *(double *)o->target);
    if (o->kind != OPTION_CHOICE) return OK;
    const char *word = text_word(o->value, *(int *)o->target, &n);
    return text_append(out, word, (size_t)n);
}

static Status append_option(Text *out, const Option *o)
{
    TRY(text_append(out, "option", strlen("option")));
    TRY(append_field(out, o->name));
    TRY(append_field(out, kind_of(o)));
    TRY(append_field(out, o->value));
    TRY(append_default(out, o));
    TRY(append_field(out, rule_of(o)));
    TRY(append_field(out, o->help));
    return text_append(out, "\n", 1);
}

static Status append_below(Text *out, const Subcommand *row)
{
    TRY(text_printf(out, "command\t%s", row->name));
    TRY(append_field(out, row->what));
    return text_append(out, "\n", 1);
}

static Status append_command(Text *out, const Command *c)
{
    TRY(append_row(out, "name", c->name));
    TRY(append_row(out, "what", c->what));
    TRY(append_row(out, "arguments", c->arguments));
    TRY(append_row(out, "example", c->example));
    for (int i = 0; i < c->n_options; i++) TRY(append_option(out, &c->options[i]));
    return c->below == NULL ? OK : append_below(out, c->below);
}

static Status append_group(Text *out, const Command *c, const Subcommand *rows, int n)
{
    TRY(append_row(out, "name", c->name));
    for (int i = 0; i < n; i++) TRY(append_below(out, &rows[i]));
    return OK;
}

static Status print_table(const Command *c, const Subcommand *rows, int n)
{
    Arena a = { 0 };
    Text t = { 0 };
    TRY(arena_init(&a, "help", MEM_HOST, TABLE_BYTES));
    Status s = text_init(&t, &a);
    if (s == OK) s = rows == NULL ? append_command(&t, c) : append_group(&t, c, rows, n);
    if (s == OK) (void)fwrite(t.data, 1, t.used, stdout);
    arena_free(&a);
    return s;
}

Status help_table_command(const Command *c) { return print_table(c, NULL, 0); }

Status help_table_group(const char *program, const Subcommand *rows, int n)
{
    return print_table(&(Command){ .name = program }, rows, n);
}
