/* main: which subcommand, and what its failure looks like from outside. The only exit(). */
#include "base/log.h"
#include "base/out.h"
#include "cli/cli.h"
#include "cli/options.h"

#include <stdlib.h>

static const Subcommand COMMANDS[] = {
    { "train", "train a model, or --dry-run what it would take", cli_train },
    { "generate", "write text from a checkpoint", cli_generate },
    { "eval", "loss and bits a byte of a checkpoint on held-out text", cli_eval },
    { "logits", "logits of a checkpoint for a file of token ids", cli_logits },
    { "convert", "models from and to Hugging Face's folders", cli_convert },
    { "data", "train a tokenizer, prepare and inspect data", cli_data },
    { "bench", "measure ops and training steps", cli_bench },
    { "plan", "what a training takes on a cluster, and the best layout", cli_plan },
    { "trace", "what a training step really did", cli_trace },
    { "viz", "draw recorded and simulated pipelines", cli_viz },
};

int main(int argc, char **argv)
{
    const int n = sizeof COMMANDS / sizeof *COMMANDS;
    const char *level = getenv("SWITCHYARD_LOG");
    out_begin();
    Status s = level == NULL ? OK : log_set_level_named(level);
    if (s == OK) s = options_dispatch("switchyard", COMMANDS, n, argc, argv);
    if (s == OK) s = out_end();
    if (s != OK && s != ERR_CLOSED) log_failure(LOG_ERROR, "%s", "");
    return status_exit_code(s);
}
