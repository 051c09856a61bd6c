/*
 * options: describes a subcommand's arguments in one table. Parsing, range checks and --help are
 * loops over it. There is no global state: a table points to the caller's variables.
 *
 *     const Option table[] = {
 *         { "--prompt", OPTION_TEXT, &prompt, "TEXT", .help = "text to go on from",
 *           .required = true },
 *         { "--tokens", OPTION_INT, &tokens, "N", .help = "tokens to write", .min = 1,
 *           .max = 1e6 },
 *     };
 *
 * A value follows its name (`--tokens 5`) or is in the same word (`--tokens=5`). The value of an
 * OPTION_SWITCH must be in the same word. Options and positional arguments mix freely; after a bare
 * `--` everything is positional. The default of an option is what its target holds before. Every
 * error is ERR_ARG and one sentence; that for an unknown option names the nearest one. Every
 * command has --help, --verbose and --quiet.
 */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

enum { OPTION_LIST_MAX = 64, OPTION_TABLE_MAX = 32 };

typedef struct OptionInts {
    int n;
    int64_t at[OPTION_LIST_MAX];
} OptionInts;

typedef struct OptionTexts {
    int n;
    const char *at[OPTION_LIST_MAX]; /* into argv */
} OptionTexts;

typedef enum OptionKind {                /* what target points to */
                          OPTION_FLAG,   /* bool, set to true */
                          OPTION_SWITCH, /* int: 1 for a bare --x, 2 + i for --x=WORD, word i */
                          OPTION_INT,    /* int64_t */
                          OPTION_REAL,   /* double */
                          OPTION_TEXT,   /* const char * into argv */
                          OPTION_CHOICE, /* int: index in `value`, which is words separated by | */
                          OPTION_INTS,   /* OptionInts: the option may be repeated */
                          OPTION_TEXTS   /* OptionTexts: the option may be repeated */
} OptionKind;

/* The members are in the order in which rows are written, which costs 8 bytes a row.
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

/* A row of a command that has subcommands ("data prepare"). argv[1] chooses the row by its name. */
typedef struct Subcommand {
    const char *name, *what;
    Status (*run)(int argc, char **argv);
} Subcommand;

typedef struct Command {
    const char *name;      /* "switchyard data prepare" */
    const char *arguments; /* positional arguments as --help shows them: "FILE...", or NULL */
    const char *what;      /* sentences; --help wraps them */
    const char *example;   /* complete lines; NULL: none */
    const Option *options;
    int n_options;
    int min_positional, max_positional; /* max -1: any number */
    const Subcommand *below;            /* a command below this one ("plan calibrate"), or NULL */
} Command;

/* Initialises a Command's array of options and its limits for positional arguments. */
#define OPTIONS(table, min, max)                                                                   \
    .options = (table), .n_options = sizeof(table) / sizeof *(table), .min_positional = (min),     \
    .max_positional = (max)

/* Parses a command line into the options' targets. Positional arguments are moved to argv[1] ..
 * argv[*n_positional], in order; empty ones are refused. With --help (or -h) the help goes to
 * stdout, *help is set and nothing else is checked. */
Status options_parse(const Command *c, int argc, char **argv, int *n_positional, bool *help);

/* Runs a whole subcommand: parses, then (unless it was --help) calls `run` with the positional
 * arguments and an arena. Its `out` goes to stdout if it returns OK, ERR_PARTIAL or ERR_FIT.
 * `state` is the caller's; usually the options' targets are in it. If argv[1] names the row
 * `below`, that runs instead. */
typedef Status CommandRun(void *state, int n, char **arguments, Arena *a, Text *out);
Status options_run(const Command *c, int argc, char **argv, CommandRun *run, void *state);

/* Calls the row that argv[1] names, with argv + 1. --help lists the rows. ERR_ARG: there is no
 * word, or an unknown one (the error names the nearest). `program` is "switchyard data", for
 * example. */
Status options_dispatch(const char *program, const Subcommand *rows, int n, int argc, char **argv);

#endif
