/*
 * options: parses a command line by the table of its command (app/options/command.h), and prints --help.
 *
 * A value follows its name (`--tokens 5`) or is in the same word (`--tokens=5`). The value of an
 * OPTION_SWITCH must be in the same word. Options and positional arguments mix freely; after a bare
 * `--` everything is positional. The default of an option is what its target holds before. Every
 * error is ERR_ARG and one sentence; that for an unknown option names the nearest one. Every
 * command has --help, --verbose and --quiet.
 */
#ifndef APP_OPTIONS_OPTIONS_H
#define APP_OPTIONS_OPTIONS_H

#include "app/options/command.h"
#include "engine/base/text.h"

#include <stdbool.h>

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
