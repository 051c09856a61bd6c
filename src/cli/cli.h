/* cli: one function a subcommand: parse, call, print; no logic. argv[0] is the word that chose the
 * function. Results go to stdout, messages to stderr. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include "comm/comm.h"

Status cli_train(int argc, char **argv);
Status cli_generate(int argc, char **argv);
Status cli_eval(int argc, char **argv);
Status cli_logits(int argc, char **argv);
Status cli_data(int argc, char **argv);
Status cli_convert(int argc, char **argv);
Status cli_data_batches(int argc, char **argv);
Status cli_bench(int argc, char **argv);
Status cli_bench_trace(int argc, char **argv);
Status cli_plan(int argc, char **argv);
Status cli_viz(int argc, char **argv);
Status cli_trace(int argc, char **argv);
Status cli_version(int argc, char **argv);

/* From tools/embed_version: the file VERSION, and git's commit ("": unknown). */
extern const char version_number[], version_commit[];

/* Runs `body` on every rank: threads of this process (`ranks`: --ranks), or the processes of mpirun
 * or srun; with fewer than two here, once without a world. A failure that is the same on all
 * processes is told by the first alone. ERR_ARG: --ranks under a launcher. */
Status cli_ranks(int64_t ranks, double timeout_s, Arena *a, CommBody *body, void *state);

#endif
