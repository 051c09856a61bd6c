/* options: loops over a subcommand's table: parsing, checks, help. */
#include "cli/options.h"
#include "cli/help_table.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

/* Does `word` ("--out" or "--out=x") name this option? */
static bool names(const Option *o, const char *word)
{
    size_t n = strlen(o->name);
    return strncmp(word, o->name, n) == 0 && (word[n] == '\0' || word[n] == '=');
}

static const Option *find(const Command *c, const char *word)
{
    for (int i = 0; i < c->n_options; i++) {
        if (names(&c->options[i], word)) return &c->options[i];
    }
    return NULL;
}

static Status unknown(const Command *c, const char *word)
{
    const char *known[OPTION_TABLE_MAX];
    assert(c->n_options <= OPTION_TABLE_MAX);
    for (int i = 0; i < c->n_options; i++) known[i] = c->options[i].name;
    char bare[64];
    (void)snprintf(bare, sizeof bare, "%.*s", (int)strcspn(word, "="), word);
    char hint[TEXT_HINT_BYTES], help[TEXT_HINT_BYTES];
    (void)snprintf(help, sizeof help, " (see %s --help)", c->name);
    return FAIL(ERR_ARG, "%s knows no option %s%s", c->name, bare,
                text_hint(hint, bare, known, c->n_options, help));
}

static bool limited(const Option *o) { return o->min < o->max; }

static Status check_range(const Option *o, double v)
{
    if (!limited(o) || (v >= o->min && v <= o->max)) return OK;
    return FAIL(ERR_ARG, "%s is %.15g, must be from %.15g to %.15g", o->name, v, o->min, o->max);
}

static Status parse_int(const Option *o, const char *value, int64_t *out)
{
    char *end = NULL;
    errno = 0;
    long long v = strtoll(value, &end, 10);
    if (end == value || *end != '\0' || errno != 0)
        return FAIL(ERR_ARG, "%s is \"%s\", must be a whole number", o->name, value);
    TRY(check_range(o, (double)v));
    *out = v;
    return OK;
}

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

static Status parse_choice(const Option *o, const char *value, int *out)
{
    int index = text_word_index(o->value, value);
    if (index < 0)
        return FAIL(ERR_ARG, "%s is \"%s\", must be one of %s", o->name, value, o->value);
    *out = index;
    return OK;
}

static Status check_room(const Option *o, int n)
{
    if (n < OPTION_LIST_MAX) return OK;
    return FAIL(ERR_ARG, "%s is given more than %d times", o->name, OPTION_LIST_MAX);
}

static Status add_int(const Option *o, const char *value, OptionInts *list)
{
    TRY(check_room(o, list->n));
    TRY(parse_int(o, value, &list->at[list->n]));
    list->n++;
    return OK;
}

static Status add_text(const Option *o, const char *value, OptionTexts *list)
{
    TRY(check_room(o, list->n));
    list->at[list->n++] = value;
    return OK;
}

static Status store(const Option *o, const char *value)
{
    switch (o->kind) {
    case OPTION_FLAG: *(bool *)o->target = true; return OK;
    case OPTION_INT: return parse_int(o, value, o->target);
    case OPTION_REAL: return parse_real(o, value, o->target);
    case OPTION_TEXT: *(const char **)o->target = value; return OK;
    case OPTION_CHOICE: return parse_choice(o, value, o->target);
    case OPTION_INTS: return add_int(o, value, o->target);
    case OPTION_TEXTS: return add_text(o, value, o->target);
    }
    return OK;
}

/* One option at argv[*i]; *i moves on to its value if that is a word of its own. */
static Status take_option(const Option *o, int argc, char **argv, int *i)
{
    const char *equals = argv[*i][strlen(o->name)] == '=' ? argv[*i] + strlen(o->name) + 1 : NULL;
    if (o->kind == OPTION_FLAG) {
        if (equals != NULL) return FAIL(ERR_ARG, "%s takes no value", o->name);
        return store(o, "");
    }
    if (equals != NULL) return store(o, equals);
    if (*i + 1 >= argc || text_starts(argv[*i + 1], "--"))
        return FAIL(ERR_ARG, "%s wants a value: %s", o->name, o->value);
    *i += 1;
    return store(o, argv[*i]);
}

static Status check_required(const Command *c, const bool *seen, int n_positional)
{
    for (int i = 0; i < c->n_options; i++) {
        if (c->options[i].required && !seen[i])
            return FAIL(ERR_ARG, "%s needs %s %s (see %s --help)", c->name, c->options[i].name,
                        c->options[i].value, c->name);
    }
    if (n_positional < c->min_positional)
        return FAIL(ERR_ARG, "%s needs %s, got %d (see %s --help)", c->name, c->arguments,
                    n_positional, c->name);
    return OK;
}

static void print_option(const Option *o)
{
    char left[96];
    int n = 0;
    const char *word = NULL;
    (void)snprintf(left, sizeof left, "%s%s%s", o->name, o->value == NULL ? "" : " ",
                   o->value == NULL ? "" : o->value);
    printf("  %-28s %s", left, o->help);
    switch (o->kind) {
    case OPTION_INT: printf(" [%lld]", (long long)*(const int64_t *)o->target); break;
    case OPTION_REAL: printf(" [%g]", *(const double *)o->target); break;
    case OPTION_CHOICE:
        word = text_word(o->value, *(const int *)o->target, &n);
        printf(" [%.*s]", n, word);
        break;
    case OPTION_INTS:
    case OPTION_TEXTS: printf(" (may be repeated)"); break;
    case OPTION_FLAG:
    case OPTION_TEXT: break;
    }
    printf("%s\n", o->required ? " (required)" : "");
}

static void print_help(const Command *c)
{
    printf("%s\n\nusage: %s%s%s%s\n", c->what, c->name, c->n_options > 0 ? " [option...]" : "",
           c->arguments == NULL ? "" : " ", c->arguments == NULL ? "" : c->arguments);
    if (c->n_options > 0) printf("\n");
    for (int i = 0; i < c->n_options; i++) print_option(&c->options[i]);
    if (c->example != NULL) printf("\nexample:\n  %s\n", c->example);
}

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
        if (is_option && help_table_asked(argv[i])) {
            *help = true;
            return help_table_command(c);
        }
        if (is_option && is_help(argv[i])) {
            print_help(c);
            *help = true;
            return OK;
        }
        if (is_option) {
            const Option *o = find(c, argv[i]);
            if (o == NULL) return unknown(c, argv[i]);
            seen[o - c->options] = true;
            TRY(take_option(o, argc, argv, &i));
            continue;
        }
        if (c->max_positional >= 0 && n >= c->max_positional)
            return FAIL(ERR_ARG, "%s does not know what to do with \"%s\" (see %s --help)", c->name,
                        argv[i], c->name);
        argv[++n] = argv[i];
    }
    TRY(check_required(c, seen, n));
    *n_positional = n;
    return OK;
}

Status options_run(const Command *c, int argc, char **argv, CommandRun *run, void *state)
{
    bool help = false;
    int n = 0;
    if (c->below != NULL && argc > 1 && strcmp(argv[1], c->below->name) == 0)
        return c->below->run(argc - 1, argv + 1);
    Arena a = { 0 }, text = { 0 }; /* a text grows in an arena of its own */
    Text out = { 0 };
    const size_t room = (size_t)64 << 30; /* memory that is not touched costs nothing */
    TRY(options_parse(c, argc, argv, &n, &help));
    if (help) return OK;
    Status s = arena_init(&a, "command", MEM_HOST, room);
    if (s == OK) s = arena_init(&text, "text", MEM_HOST, room);
    if (s == OK) s = text_init(&out, &text);
    if (s == OK) s = run(state, n, argv + 1, &a, &out);
    if (s == OK || s == ERR_PARTIAL) (void)fwrite(out.data, 1, out.used, stdout);
    arena_free(&text);
    arena_free(&a);
    return s;
}

static void print_rows(const char *program, const Subcommand *rows, int n)
{
    printf("usage: %s COMMAND ...\n\n", program);
    for (int i = 0; i < n; i++) printf("  %-12s %s\n", rows[i].name, rows[i].what);
    printf("\n%s COMMAND --help says more, with an example\n", program);
}

Status options_dispatch(const char *program, const Subcommand *rows, int n, int argc, char **argv)
{
    const char *known[OPTION_TABLE_MAX];
    assert(n <= OPTION_TABLE_MAX);
    if (argc < 2) return FAIL(ERR_ARG, "%s needs a command (see %s --help)", program, program);
    if (help_table_asked(argv[1])) return help_table_group(program, rows, n);
    if (is_help(argv[1])) {
        print_rows(program, rows, n);
        return OK;
    }
    for (int i = 0; i < n; i++) {
        if (strcmp(argv[1], rows[i].name) == 0) return rows[i].run(argc - 1, argv + 1);
        known[i] = rows[i].name;
    }
    char hint[TEXT_HINT_BYTES], help[TEXT_HINT_BYTES];
    (void)snprintf(help, sizeof help, " (see %s --help)", program);
    return FAIL(ERR_ARG, "%s has no command \"%s\"%s", program, argv[1],
                text_hint(hint, argv[1], known, n, help));
}
