/*
 * cli: one function for each subcommand: it parses, calls and prints, and has no other logic.
 * argv[0] is the word that chose the function. Results go to stdout, messages to stderr.
 *
 * A function returns a Status; main.c turns it into the exit code and prints the error, once.
 */
#ifndef APP_OPTIONS_CLI_H
#define APP_OPTIONS_CLI_H

#include "engine/base/text.h"
#include "engine/comm/comm.h"

/* The subcommands of main.c. */
Status cli_train(int argc, char **argv);
Status cli_generate(int argc, char **argv);
Status cli_eval(int argc, char **argv);
Status cli_logits(int argc, char **argv);
Status cli_data(int argc, char **argv);
Status cli_convert(int argc, char **argv);
Status cli_bench(int argc, char **argv);
Status cli_plan(int argc, char **argv);
Status cli_trace(int argc, char **argv);
Status cli_version(int argc, char **argv);

/* The contents of VERSION; and git's commit ("": unknown), by tools/embed_version. */
extern const char version_number[], version_commit[];

/* Appends the versions of the program and of its libraries, a line each or as one JSON object. */
Status cli_print_versions(bool json, Text *out);

/* Runs `body` on every rank: on `ranks` threads of this process (--ranks), or on the processes of
 * a launcher (comm_processes). With fewer than two ranks it runs once, with world NULL. A failure that
 * all processes of mpirun share is reported by rank 0 only. ERR_ARG: --ranks under a launcher. */
Status cli_ranks(int64_t ranks, double timeout_s, Arena *a, CommBody *body, void *state);

#endif
