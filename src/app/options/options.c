/* options: loops over a subcommand's table: parsing, checks, help for people. It knows no
 * subcommand by name. Help for programs is help_table.c's. */
#include "app/options/options.h"
#include "app/options/help_table.h"
#include "engine/base/log.h"
#include "engine/base/out.h"
#include "engine/base/synonym.h"
#include "engine/host/process.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char HELP_OPTION[] = "--help";
static bool is_help(const char *word)
{
    return strcmp(word, HELP_OPTION) == 0 || strcmp(word, "-h") == 0;
}

/* Does `word` ("--out" or "--out=x") name this option? */
static bool names_option(const Option *o, const char *word)
{
    const size_t n = strlen(o->name);
    return strncmp(word, o->name, n) == 0 && (word[n] == '\0' || word[n] == '=');
}

/* Options of every command. They take effect while they are parsed, so that even an error in a
 * later word is reported at their level. */
static const struct {
    const char *name, *help;
    LogLevel level;
} GENERAL[] = {
    { "--verbose", "print more, and where in the source an error comes from", LOG_DEBUG },
    { "--quiet", "print only warnings and errors besides the result", LOG_WARN },
};
enum { N_GENERAL = sizeof GENERAL / sizeof *GENERAL };

/* Applies one of GENERAL. False: the word is another one. */
static bool apply_general(const char *word)
{
    for (int i = 0; i < N_GENERAL; i++) {
        if (strcmp(word, GENERAL[i].name) != 0) continue;
        log_set_level(GENERAL[i].level);
        return true;
    }
    return false;
}

/* The option that a word names; NULL: there is none. Tables are short, so a scan is enough. */
static const Option *find_option(const Command *c, const char *word)
{
    for (int i = 0; i < c->n_options; i++)
        if (names_option(&c->options[i], word)) return &c->options[i];
    return NULL;
}

static bool takes_settings(const Command *c)
{
    return c->arguments != NULL && strstr(c->arguments, "key=value") != NULL;
}

/* OK: it is no name of another trainer that has an answer here. `next` is the word after it, or NULL. */
static Status fail_foreign_option(const Command *c, const char *bare, const char *word,
                                  const char *next)
{
    char answer[SYNONYM_BYTES];
    const char *equals = strchr(word, '='), *name = bare + strspn(bare, "-");
    const char *value = equals != NULL ? equals + 1 : next != NULL && *next != '-' ? next : NULL;
    const bool settings = takes_settings(c);
    const Synonym *s = synonym_of(name);
    const char *dot = s == NULL || settings ? NULL : strchr(s->ours, '.');
    char own[64] = "--"; /* a command without settings may have the same as an option */
    if (dot != NULL) (void)snprintf(own, sizeof own, "--%.*s", (int)strcspn(dot + 1, "="), dot + 1);
    if (find_option(c, own) != NULL)
        return FAIL(ERR_ARG, "%s has no option %s: it is %s here", c->name, bare, own);
    if (s == NULL && settings && strchr(name, '.') != NULL)
        return FAIL(ERR_ARG, "%s has no option %s: settings have no dashes, write %s=%.60s",
                    c->name, bare, name, value == NULL ? "VALUE" : value);
    if (s != NULL && text_starts(s->ours, "--") && find_option(c, s->ours) == NULL) s = NULL;
    if (s == NULL) return OK;
    const bool away = !settings && *s->ours != '\0' && !text_starts(s->ours, "--");
    return FAIL(ERR_ARG, "%s has no option %s: %s%s", c->name, bare,
                away ? "for `switchyard train` " : "",
                synonym_answer(answer, s, value == NULL && settings ? "VALUE" : value));
}

/* The error says what another trainer's option is here, names the most similar one, or else points to --help. */
static Status fail_unknown_option(const Command *c, const char *word, const char *next)
{
    const char *known[OPTION_TABLE_MAX + N_GENERAL + 1] = { HELP_OPTION };
    int n = 1;
    assert(c->n_options <= OPTION_TABLE_MAX);
    for (int i = 0; i < N_GENERAL; i++) known[n++] = GENERAL[i].name;
    for (int i = 0; i < c->n_options; i++) known[n++] = c->options[i].name;
    char bare[64];
    (void)snprintf(bare, sizeof bare, "%.*s", (int)strcspn(word, "="), word);
    TRY(fail_foreign_option(c, bare, word, next));
    char hint[TEXT_HINT_BYTES], help[2 * TEXT_HINT_BYTES];
    const bool launches = takes_settings(c) && strstr(c->arguments, " -- ") != NULL;
    (void)snprintf(help, sizeof help, "%s (see %s --help%s)",
                   launches ? ": how ranks start is written after --, as in -- --ranks 2" : "",
                   c->name,
                   takes_settings(c) ? "; settings have no dashes: optimizer.lr=1e-3" : "");
    return FAIL(ERR_ARG, "%s has no option %s%s", c->name, bare,
                text_hint(hint, bare, known, n, help));
}

/* A table row without .min and .max has 0 for both: no limits. */
static bool has_limits(const Option *o) { return o->min < o->max; }

static Status check_range(const Option *o, double v)
{
    if (!has_limits(o) || (v >= o->min && v <= o->max)) return OK;
    return FAIL(ERR_ARG, "%s is %.15g, must be from %.15g to %.15g", o->name, v, o->min, o->max);
}

/* The whole word must be a number: "5x" and "" are errors, and so is one beyond 64 bits (errno). */
static Status parse_int(const Option *o, const char *value, int64_t *out)
{
    char *end = NULL, number[SYNONYM_NUMBER_BYTES];
    errno = 0;
    long long v = strtoll(value, &end, 10);
    const bool whole = end != value && *end == '\0' && errno == 0;
    const char *digits = whole ? NULL : synonym_number(number, value);
    if (!whole)
        return FAIL(ERR_ARG, "%s is \"%s\", must be a whole number%s%s", o->name, value,
                    digits == NULL ? "" : ": write ", digits == NULL ? "" : digits);
    TRY(check_range(o, (double)v));
    *out = v;
    return OK;
}

/* v != v refuses a NaN: for an option without limits nothing else would. */
static Status parse_real(const Option *o, const char *value, double *out)
{
    char *end = NULL;
    double v = strtod(value, &end);
    if (end == value || *end != '\0' || v != v)
        return FAIL(ERR_ARG, "%s is \"%s\", must be a number", o->name, value);
    TRY(check_range(o, v));
    *out = v;
    return OK;
}

/* `value` lists the words, as --help shows them; the target gets the index. */
static Status parse_choice(const Option *o, const char *value, int *out)
{
    int index = text_word_index(o->value, value);
    if (index < 0)
        return FAIL(ERR_ARG, "%s is \"%s\", must be one of %s", o->name, value, o->value);
    *out = index;
    return OK;
}

/* Stores `--resume` (word NULL) as 1, `--resume=auto` as 2, further words as 3 and on; 0 stays for
 * none. */
static Status store_switch(const Option *o, const char *word)
{
    int index = -1;
    if (word != NULL) TRY(parse_choice(o, word, &index));
    *(int *)o->target = 2 + index;
    return OK;
}

static Status check_list_length(const Option *o, int n)
{
    if (n < OPTION_LIST_MAX) return OK;
    return FAIL(ERR_ARG, "%s is given more than %d times", o->name, OPTION_LIST_MAX);
}

static Status add_int(const Option *o, const char *value, OptionInts *list)
{
    TRY(check_list_length(o, list->n));
    TRY(parse_int(o, value, &list->at[list->n]));
    list->n++;
    return OK;
}

/* Only a value that --help calls TEXT may be empty: others are paths or names. */
static Status check_given(const Option *o, const char *value)
{
    if (*value != '\0' || strcmp(o->value, "TEXT") == 0) return OK;
    return FAIL(ERR_ARG, "%s is empty: give %s", o->name, o->value);
}

/* The list points into argv, which lives as long as the program. */
static Status add_text(const Option *o, const char *value, OptionTexts *list)
{
    TRY(check_given(o, value));
    TRY(check_list_length(o, list->n));
    list->at[list->n++] = value;
    return OK;
}

static Status store_value(const Option *o, const char *value)
{
    switch (o->kind) {
    case OPTION_FLAG: *(bool *)o->target = true; return OK;
    case OPTION_SWITCH: return store_switch(o, value);
    case OPTION_INT: return parse_int(o, value, o->target);
    case OPTION_REAL: return parse_real(o, value, o->target);
    case OPTION_TEXT:
        TRY(check_given(o, value));
        *(const char **)o->target = value;
        return OK;
    case OPTION_CHOICE: return parse_choice(o, value, o->target);
    case OPTION_INTS: return add_int(o, value, o->target);
    case OPTION_TEXTS: return add_text(o, value, o->target);
    }
    return OK;
}

/* Parses the option at argv[*i]. If its value is a separate word, *i moves on to it. A following
 * word with dashes is no value, but the next option: the value was forgotten. */
static Status parse_option(const Option *o, int argc, char **argv, int *i)
{
    const char *equals = argv[*i][strlen(o->name)] == '=' ? argv[*i] + strlen(o->name) + 1 : NULL;
    if (o->kind == OPTION_FLAG && equals != NULL)
        return FAIL(ERR_ARG, "%s takes no value", o->name);
    if (o->kind == OPTION_FLAG) return store_value(o, "");
    if (equals != NULL || o->kind == OPTION_SWITCH) return store_value(o, equals);
    if (*i + 1 >= argc || text_starts(argv[*i + 1], "--"))
        return FAIL(ERR_ARG, "%s needs a value: %s", o->name, o->value);
    *i += 1;
    return store_value(o, argv[*i]);
}

/* Positional arguments are checked after options, since a forgotten value eats a positional
 * argument. */
static Status check_required(const Command *c, const bool *seen, int n_positional)
{
    for (int i = 0; i < c->n_options; i++)
        if (c->options[i].required && !seen[i])
            return FAIL(ERR_ARG, "%s needs %s %s (see %s --help)", c->name, c->options[i].name,
                        c->options[i].value, c->name);
    if (n_positional < c->min_positional)
        return FAIL(ERR_ARG, "%s needs %s, got %d (see %s --help)", c->name, c->arguments,
                    n_positional, c->name);
    return OK;
}

static Status check_pairs(const Command *c, const bool *seen)
{
    for (const OptionPair *p = c->pairs; p != NULL && p->name != NULL; p++) {
        const bool needs = p->how == OPTION_NEEDS,
                   asked = seen[find_option(c, p->name) - c->options];
        for (int i = 0; asked && i < c->n_options; i++) {
            const char *other = c->options[i].name;
            if (text_word_index(p->others, other) >= 0 && seen[i] != needs)
                return FAIL(ERR_ARG, needs ? "%s: %s needs %s" : "%s: %s and %s exclude each other",
                            c->name, p->name, other);
        }
    }
    return OK;
}

/* ---- help ---- */

enum { HELP_INDENT = 31, HELP_COLUMNS = 100 };

/* A name and its description. After a long name the description begins on a new line. */
static Status help_row(Text *out, const char *name, const char *words)
{
    TRY(text_printf(out, "  %-*s ", HELP_INDENT - 3, name));
    return text_wrap(out, words, strlen(name) + 3 > HELP_INDENT ? HELP_COLUMNS : HELP_INDENT,
                     HELP_COLUMNS, HELP_INDENT);
}

/* An option's name, value, description, and its default if that is within the option's limits. */
static Status help_option(Text *out, const Option *o)
{
    char left[256], words[1024], more[64] = "";
    double number = o->min - 1; /* outside the limits: no default is shown */
    if (o->kind == OPTION_INT) number = (double)*(const int64_t *)o->target;
    if (o->kind == OPTION_REAL) number = *(const double *)o->target;
    int index = o->kind == OPTION_CHOICE ? *(const int *)o->target : -1, n = 0;
    const char *word = index < 0 ? NULL : text_word(o->value, index, &n);
    if (word != NULL) (void)snprintf(more, sizeof more, " [%.*s]", n, word);
    if (number >= o->min && number <= o->max) (void)snprintf(more, sizeof more, " [%.15g]", number);
    /* the text of one that is required says so itself: the table of help has one word for an option */
    if (!o->required && (o->kind == OPTION_INTS || o->kind == OPTION_TEXTS))
        (void)snprintf(more, sizeof more, " (may be repeated)");
    const bool optional = o->kind == OPTION_SWITCH;
    (void)snprintf(left, sizeof left, "%s%s%s%s", o->name,
                   o->value == NULL ? "" : (optional ? "[=" : " "),
                   o->value == NULL ? "" : o->value, optional ? "]" : "");
    (void)snprintf(words, sizeof words, "%s%s%s", o->help, more, o->required ? " (required)" : "");
    return help_row(out, left, words);
}

/* --help itself is no row of GENERAL, because it ends the command instead of changing it. */
static Status help_general(Text *out)
{
    TRY(text_printf(out, "\noptions of every command:\n"));
    for (int i = 0; i < N_GENERAL; i++) TRY(help_row(out, GENERAL[i].name, GENERAL[i].help));
    return help_row(out, HELP_OPTION, "print this");
}

static Status help_command(const void *of, Text *out)
{
    const Command *c = of;
    TRY(text_wrap(out, c->what, 0, HELP_COLUMNS, 0));
    TRY(text_printf(out, "\nusage: %s%s%s%s\n", c->name, c->n_options > 0 ? " [option...]" : "",
                    c->arguments == NULL ? "" : " ", c->arguments == NULL ? "" : c->arguments));
    if (c->n_options > 0) TRY(text_append(out, "\n", 1));
    for (int i = 0; i < c->n_options; i++) TRY(help_option(out, &c->options[i]));
    TRY(help_general(out));
    return c->example == NULL ? OK : text_printf(out, "\nexample:\n  %s\n", c->example);
}

typedef struct Group {
    const char *program;
    const Subcommand *rows;
    int n;
} Group;

static Status help_group(const void *of, Text *out)
{
    const Group *g = of;
    TRY(text_printf(out, "usage: %s COMMAND ...\n\n", g->program));
    for (int i = 0; i < g->n; i++)
        TRY(text_printf(out, "  %-12s %s\n", g->rows[i].name, g->rows[i].what));
    TRY(help_general(out));
    return text_printf(out, "\n%s COMMAND --help says more, with an example\n", g->program);
}

/* Help is collected first and then written at once, so that a failing write is one error. */
static Status print_help(Status (*help)(const void *, Text *), const void *of)
{
    Arena a = { 0 };
    Text t = { 0 };
    TRY(arena_init(&a, "help", MEM_HOST, (size_t)1 << 20));
    Status s = text_init(&t, &a);
    if (s == OK) s = help(of, &t);
    if (s == OK) s = out_text(&t);
    arena_free(&a);
    return s;
}

/* ---- a command ---- */

Status options_parse(const Command *c, int argc, char **argv, int *n_positional, bool *help)
{
    bool seen[OPTION_TABLE_MAX] = { false };
    bool only_positional = false;
    int n = 0;
    for (int i = 1; i < argc; i++) {
        if (!only_positional && strcmp(argv[i], "--") == 0) {
            only_positional = true;
            continue;
        }
        bool is_option = !only_positional && argv[i][0] == '-' && argv[i][1] != '\0';
        const bool table = is_option && help_table_asked(argv[i]);
        *help = table || (is_option && is_help(argv[i]));
        if (*help) return table ? help_table_command(c) : print_help(help_command, c);
        if (is_option && apply_general(argv[i])) continue;
        if (is_option) {
            const Option *o = find_option(c, argv[i]);
            if (o == NULL)
                return fail_unknown_option(c, argv[i], i + 1 < argc ? argv[i + 1] : NULL);
            seen[o - c->options] = true;
            TRY(parse_option(o, argc, argv, &i));
            continue;
        }
        if (argv[i][0] == '\0')
            return FAIL(ERR_ARG, "%s: argument %d is empty (see %s --help)", c->name, n + 1,
                        c->name);
        if (c->max_positional >= 0 && n >= c->max_positional)
            return FAIL(ERR_ARG,
                        "%s does not know what to do with \"%s\": arguments are at most %d "
                        "(see %s --help)",
                        c->name, argv[i], c->max_positional, c->name);
        argv[++n] = argv[i];
    }
    TRY(check_required(c, seen, n));
    TRY(check_pairs(c, seen));
    *n_positional = n;
    return OK;
}

/* "switchyard data ngram" becomes switchyard-data-ngram. */
static Status run_row(const char *program, const Subcommand *row, int argc, char **argv)
{
    const char *above = strchr(program, ' ');
    char name[64];
    if (row->run != NULL) return row->run(argc, argv);
    (void)snprintf(name, sizeof name, "%s%s%s", above == NULL ? "" : above + 1,
                   above == NULL ? "" : "-", row->name);
    return process_become(name, argv);
}

Status options_run(const Command *c, int argc, char **argv, CommandRun *run, void *state)
{
    bool help = false;
    int n = 0;
    if (c->below != NULL && argc > 1 && strcmp(argv[1], c->below->name) == 0)
        return run_row(c->name, c->below, argc - 1, argv + 1);
    Arena a = { 0 }, text = { 0 }; /* a text must be the last allocation of its arena */
    Text out = { 0 };
    const size_t room = (size_t)64 << 30; /* reserved; only touched pages take memory */
    TRY(options_parse(c, argc, argv, &n, &help));
    if (help) return OK;
    Status s = arena_reserve(&a, "command", room);
    if (s == OK) s = arena_reserve(&text, "text", room);
    if (s == OK) s = text_init(&out, &text);
    if (s == OK) s = run(state, n, argv + 1, &a, &out);
    /* These two codes come with a result. A full disk is a worse failure than either. */
    if (s == OK || s == ERR_PARTIAL || s == ERR_FIT) {
        Status written = out_text(&out);
        if (s == OK || written == ERR_DISK) s = written;
    }
    arena_free(&text);
    arena_free(&a);
    return s;
}

/* --verbose and --quiet may also come before the subcommand's name. */
Status options_dispatch(const char *program, const Subcommand *rows, int n, int argc, char **argv)
{
    const char *known[OPTION_TABLE_MAX + N_GENERAL + 1];
    int n_known = 0;
    assert(n <= OPTION_TABLE_MAX);
    for (; argc > 1 && apply_general(argv[1]); argc--) argv++;
    if (argc < 2) TRY(print_help(help_group, &(Group){ program, rows, n }));
    if (argc < 2) return FAIL(ERR_ARG, "%s needs a command: one of the list above", program);
    if (help_table_asked(argv[1])) return help_table_group(program, rows, n);
    if (is_help(argv[1])) return print_help(help_group, &(Group){ program, rows, n });
    for (int i = 0; i < n; i++) {
        if (strcmp(argv[1], rows[i].name) == 0)
            return run_row(program, &rows[i], argc - 1, argv + 1);
        known[n_known++] = rows[i].name;
    }
    const Synonym *s = synonym_of(argv[1]);
    if (s != NULL && *s->ours == '\0')
        return FAIL(ERR_ARG, "%s has no command \"%s\": %s", program, argv[1], s->note);
    for (int i = 0; i < N_GENERAL; i++) known[n_known++] = GENERAL[i].name;
    known[n_known++] = HELP_OPTION;
    char hint[TEXT_HINT_BYTES], help[TEXT_HINT_BYTES];
    (void)snprintf(help, sizeof help, " (see %s --help)", program);
    return FAIL(ERR_ARG, "%s has no %s \"%s\"%s", program, argv[1][0] == '-' ? "option" : "command",
                argv[1], text_hint(hint, argv[1], known, n_known, help));
}
