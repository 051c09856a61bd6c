/* main: which subcommand, and what its failure looks like from outside. The only exit(). */
#include "base/log.h"
#include "base/status.h"
#include "base/text.h"
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    Status (*run)(int argc, char **argv);
    const char *what;
} commands[] = {
    { "train", cli_train, "train a model, or --dry-run what it would take" },
    { "generate", cli_generate, "write text from a checkpoint" },
    { "eval", cli_eval, "loss and bits a byte of a checkpoint on held-out text" },
    { "logits", cli_logits, "logits of a checkpoint for a file of token ids" },
    { "data", cli_data, "train a tokenizer, prepare and inspect data" },
    { "bench", cli_bench, "measure ops and training steps" },
    { "plan", cli_plan, "what a training takes on a cluster, and the best layout" },
    { "viz", cli_viz, "draw recorded and simulated pipelines" },
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static void usage(FILE *to)
{
    (void)fprintf(to,
                  "switchyard COMMAND ...: pre-training of Mixture-of-Experts language models\n\n");
    for (int i = 0; i < COMMANDS; i++) {
        (void)fprintf(to, "  %-10s %s\n", commands[i].name, commands[i].what);
    }
    (void)fprintf(to, "\nEvery command has --help with an example.\n");
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        usage(stderr);
        return 2;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
        usage(stdout);
        return 0;
    }
    for (int i = 0; i < COMMANDS; i++) {
        if (strcmp(argv[1], commands[i].name) != 0) continue;
        Status s = commands[i].run(argc - 1, argv + 1);
        if (s != OK) log_error("%s", status_message());
        return status_exit_code(s);
    }
    const char *names[COMMANDS];
    for (int i = 0; i < COMMANDS; i++) names[i] = commands[i].name;
    int near = text_nearest(argv[1], names, COMMANDS);
    if (near >= 0)
        log_error("switchyard knows no command %s, did you mean %s?", argv[1], names[near]);
    if (near < 0) log_error("switchyard knows no command %s; see switchyard --help", argv[1]);
    return 2;
}
