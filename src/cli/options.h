/*
 * options: a subcommand's arguments from one table. Parsing, range checks and --help are loops over
 * it.
 *
 *     int64_t tokens = 100;
 *     const char *prompt = NULL;
 *     const Option table[] = {
 *         { "--prompt", OPTION_TEXT, &prompt, "TEXT", .help = "text to go on from",
 *           .required = true },
 *         { "--tokens", OPTION_INT, &tokens, "N", .help = "tokens to write", .min = 1,
 *           .max = 1e6 },
 *     };
 *     const Command command = {
 *         .name = "switchyard generate", .arguments = "CKPT", .what = "Go on from a prompt.",
 *         .example = "switchyard generate runs/a/last --prompt 'In the beginning'",
 *         .options = table, .n_options = 2, .min_positional = 1, .max_positional = 1,
 *     };
 *     bool help = false;
 *     int n = 0;
 *     TRY(options_parse(&command, argc, argv, &n, &help));
 *     if (help) return OK;           now argv[1] .. argv[n] are the positional arguments
 *
 * (The designator .help is what lets a row end there without a warning.)
 *
 * A value follows its name (`--tokens 5`) or stands in the same word (`--tokens=5`). Options and
 * positional arguments mix freely; after a bare `--` everything is positional. What a target holds
 * before is its default. Every error is ERR_ARG (exit code 2) and one sentence; an unknown option
 * names the nearest one.
 */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { OPTION_LIST_MAX = 64, OPTION_TABLE_MAX = 32 };

typedef struct OptionTexts {
    int n;
    const char *at[OPTION_LIST_MAX];
} OptionTexts;

typedef struct OptionInts {
    int n;
    int64_t at[OPTION_LIST_MAX];
} OptionInts;

typedef enum OptionKind {                /* what target points to */
                          OPTION_FLAG,   /* bool, set to true */
                          OPTION_INT,    /* int64_t */
                          OPTION_REAL,   /* double */
                          OPTION_TEXT,   /* const char * into argv */
                          OPTION_CHOICE, /* int: index in `value`, words with | between */
                          OPTION_INTS,   /* OptionInts: the option may be repeated */
                          OPTION_TEXTS   /* OptionTexts: the option may be repeated */
} OptionKind;

/* Rows are written in this order, which costs 8 bytes a row.
 * NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding) */
typedef struct Option {
    const char *name; /* with its dashes: "--out" */
    OptionKind kind;
    void *target;
    const char *value; /* what --help calls the value: "FILE"; NULL for a flag */
    const char *help;
    bool required;
    double min, max; /* INT, REAL, INTS: both ends included; equal: no limit */
} Option;

typedef struct Command {
    const char *name;      /* "switchyard data prepare" */
    const char *arguments; /* positional arguments as --help shows them: "FILE...", or NULL */
    const char *what;      /* one or two sentences */
    const char *example;   /* whole lines, NULL for none */
    const Option *options;
    int n_options;
    int min_positional, max_positional; /* max -1: any number */
} Command;

/* Positional arguments are moved to argv[1] .. argv[*n_positional], in order. With --help (or -h)
 * the help goes to stdout, *help is set and nothing else is checked. */
Status options_parse(const Command *c, int argc, char **argv, int *n_positional, bool *help);

/* What --help prints. */
void options_print_help(const Command *c);

/* A subcommand of subcommands ("data prepare"): the row whose name is argv[1]. */
typedef struct Subcommand {
    const char *name, *what;
    Status (*run)(int argc, char **argv);
} Subcommand;

/* Call the row that argv[1] names with argv + 1. --help lists the rows; no word at all, or an
 * unknown one (the nearest is named), is ERR_ARG. `program` is "switchyard data". */
Status options_dispatch(const char *program, const Subcommand *rows, int n, int argc, char **argv);

#endif
