/* convert: `switchyard convert from-hf`: parses, calls convert/, prints. Which families of models can be
 * converted is a table of convert/. `to-hf` is a program of its own (tools/hf). */
#include "app/options/cli.h"
#include "app/options/options.h"
#include "convert/convert.h"
#include "engine/base/interrupt.h"

static Status run_from_hf(void *state, int n, char **path, Arena *a, Text *out)
{
    (void)state, (void)n;
    interrupt_catch();
    return convert_from_hf(path[0], path[1], a, out);
}

static Status parse_from_hf(int argc, char **argv)
{
    const Command command = {
        .name = "switchyard convert from-hf",
        .arguments = "DIR OUT",
        .what = "Convert a Hugging Face folder (config.json, safetensors, tokenizer) into a "
                "checkpoint. OUT must be new or empty. The commands generate, eval, logits and "
                "train --init read it. Its config.yaml is the matching configuration.",
        .example = "switchyard convert from-hf Qwen3-30B-A3B models/qwen3\n"
                   "  switchyard train models/qwen3/config.yaml --init models/qwen3 run.dir=runs/a",
        .min_positional = 2,
        .max_positional = 2
    };
    return options_run(&command, argc, argv, run_from_hf, NULL);
}

Status cli_convert(int argc, char **argv)
{
    static const Subcommand rows[] = {
        { "from-hf", "convert a Hugging Face folder into a checkpoint", parse_from_hf },
        { "from-dcp", "convert a folder of torch.distributed.checkpoint into a checkpoint", NULL },
        { "to-hf", "convert a checkpoint into a Hugging Face folder", NULL },
    };
    return options_dispatch("switchyard convert", rows, 3, argc, argv);
}
