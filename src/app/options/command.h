/*
 * command: describes a subcommand and its arguments in one table. Parsing, range checks (options.h),
 * --help, and --help for programs (help_table.h) are loops over it. There is no global state: a
 * table points to the caller's variables.
 *
 *     const Option table[] = {
 *         { "--prompt", OPTION_TEXT, &prompt, "TEXT", .help = "text to go on from",
 *           .required = true },
 *         { "--tokens", OPTION_INT, &tokens, "N", .help = "tokens to write", .min = 1,
 *           .max = 1e6 },
 *     };
 */
#ifndef APP_OPTIONS_COMMAND_H
#define APP_OPTIONS_COMMAND_H

#include "engine/base/status.h"

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

/* An option, and those that it excludes, or all of which it needs: "--json|--csv". */
typedef struct OptionPair {
    const char *name;
    enum { OPTION_APART, OPTION_NEEDS } how;
    const char *others;
} OptionPair;

/* A row of a command that has subcommands ("data prepare"). argv[1] chooses the row by its name. */
typedef struct Subcommand {
    const char *name, *what;
    Status (*run)(int argc, char **argv); /* NULL: a program beside this one (process_become) */
} Subcommand;

typedef struct Command {
    const char *name;      /* "switchyard data prepare" */
    const char *arguments; /* positional arguments as --help shows them: "FILE...", or NULL */
    const char *what;      /* sentences; --help wraps them */
    const char *example;   /* complete lines; NULL: none */
    const Option *options;
    int n_options;
    const OptionPair *pairs;            /* the last has no name; NULL: none */
    int min_positional, max_positional; /* max -1: any number */
    const Subcommand *below;            /* a command below this one ("plan calibrate"), or NULL */
} Command;

/* Initialises a Command's array of options and its limits for positional arguments. */
#define OPTIONS(table, min, max)                                                                   \
    .options = (table), .n_options = sizeof(table) / sizeof *(table), .min_positional = (min),     \
    .max_positional = (max)

#endif
