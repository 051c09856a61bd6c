/* cli: one function a subcommand: parse, call, print; no logic. argv[0] is the word that chose the
 * function. Results go to stdout, messages to stderr. */
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
