/* main: which subcommand, and what its failure looks like from outside. The only exit(). */
#include "base/cpu.h"
#include "base/log.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "op/cpu_set.h"

#include <stdio.h>

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
    CpuIsa have = cpu_here().isa, need = op_set_base.isa; /* of all code but this file's */
    if (have < need) {
        (void)fprintf(stderr,
                      "switchyard: this build needs a processor with %s, this one has %s alone: "
                      "build it here with make CPU_ARCH=-march=native\n",
                      cpu_isa_names[need], cpu_isa_names[have]);
        return 2;
    }
    const int n = sizeof COMMANDS / sizeof *COMMANDS;
    Status s = options_dispatch("switchyard", COMMANDS, n, argc, argv);
    if (s != OK) log_error("%s", status_message());
    return status_exit_code(s);
}
