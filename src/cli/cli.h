/*
 * cli: one function a subcommand: parse, call, print; no logic.
 *
 * argv[0] is the word that chose the function ("train"), argv[1] the first argument after it.
 * Results go to stdout, messages to stderr through base/log.h; a failure is the Status that comes
 * back, which main prints and turns into the exit code.
 */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include "base/status.h"

Status cli_train(int argc, char **argv);
Status cli_generate(int argc, char **argv);
Status cli_eval(int argc, char **argv);
Status cli_logits(int argc, char **argv);
Status cli_data(int argc, char **argv);
Status cli_data_batches(int argc, char **argv);
Status cli_bench(int argc, char **argv);
Status cli_plan(int argc, char **argv);
Status cli_viz(int argc, char **argv);

#endif
