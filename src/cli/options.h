/* options: a subcommand's arguments from one table. Parsing, range checks and --help are loops over
 * it.
 *
 *     const Option table[] = {
 *         { "--prompt", OPTION_TEXT, &prompt, "TEXT", .help = "text to go on from",
 *           .required = true },
 *         { "--tokens", OPTION_INT, &tokens, "N", .help = "tokens to write", .min = 1,
 *           .max = 1e6 },
 *     };
 *
 * A value follows its name (`--tokens 5`) or stands in the same word (`--tokens=5`). The value of an
 * OPTION_SWITCH must stand in the same word. Options and positional arguments mix freely; after a bare
 * `--` everything is positional. What a target holds before is its default. Every error is ERR_ARG and
 * one sentence; an unknown option names the nearest one. Every command has --help, --verbose, --quiet. */
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
                          OPTION_CHOICE, /* int: index in `value`, words with | between */
                          OPTION_INTS,   /* OptionInts: the option may be repeated */
                          OPTION_TEXTS   /* OptionTexts: likewise */
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

/* A subcommand of subcommands ("data prepare"): the row whose name is argv[1]. */
typedef struct Subcommand {
    const char *name, *what;
    Status (*run)(int argc, char **argv);
} Subcommand;

typedef struct Command {
    const char *name;      /* "switchyard data prepare" */
    const char *arguments; /* positional arguments as --help shows them: "FILE...", or NULL */
    const char *what;      /* some sentences; --help wraps them */
    const char *example;   /* whole lines, NULL for none */
    const Option *options;
    int n_options;
    int min_positional, max_positional; /* max -1: any number */
    const Subcommand *below;            /* a command below this one ("plan calibrate"), or NULL */
} Command;

/* For a Command: an array of options, and how many positional arguments there are. */
#define OPTIONS(table, min, max)                                                                   \
    .options = (table), .n_options = sizeof(table) / sizeof *(table), .min_positional = (min),     \
    .max_positional = (max)

/* Positional arguments are moved to argv[1] .. argv[*n_positional], in order. With --help (or -h)
 * the help goes to stdout, *help is set and nothing else is checked. An empty argument is refused. */
Status options_parse(const Command *c, int argc, char **argv, int *n_positional, bool *help);

/* Runs a whole subcommand: parses, then (unless it was --help) calls `run` with the positional
 * arguments and an arena. If `run` does not fail (or with ERR_PARTIAL or ERR_FIT), its `out` goes to
 * stdout. `state` is the caller's; as a rule the options' targets lie in it. If argv[1] names the row
 * `below`, that runs instead. */
typedef Status CommandRun(void *state, int n, char **arguments, Arena *a, Text *out);
Status options_run(const Command *c, int argc, char **argv, CommandRun *run, void *state);

/* Call the row that argv[1] names with argv + 1. --help lists the rows; no word at all, or an
 * unknown one (the nearest is named), is ERR_ARG. `program` is "switchyard data". */
Status options_dispatch(const char *program, const Subcommand *rows, int n, int argc, char **argv);

#endif
