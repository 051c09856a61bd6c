/* convert: `switchyard convert from-hf` and `to-hf`: parses, calls convert/, prints. Which families
 * of models can be converted is a table of convert/. */
#include "convert/convert.h"
#include "engine/base/interrupt.h"
#include "engine/options/cli.h"
#include "engine/options/options.h"

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

/* The targets of to-hf's options. */
typedef struct ToHfCall {
    int dtype;
    bool average;
    double shard_gb;
} ToHfCall;

/* Ctrl-C ends a conversion in order (engine/base/interrupt.h). */
static Status run_to_hf(void *state, int n, char **path, Arena *a, Text *out)
{
    static const int dtypes[] = { -1, DTYPE_F32, DTYPE_BF16 }; /* in the order of --dtype's words */
    const ToHfCall *c = state;
    (void)n;
    const ConvertToHf o = { .checkpoint = path[0],
                            .out = path[1],
                            .dtype = dtypes[c->dtype],
                            .average = c->average,
                            .shard_bytes = (int64_t)(c->shard_gb * 1e9) };
    interrupt_catch();
    return convert_to_hf(&o, a, out);
}

static Status parse_to_hf(int argc, char **argv)
{
    ToHfCall c = { .shard_gb = 5 };
    const Option table[] = {
        { "--dtype", OPTION_CHOICE, &c.dtype, "auto|f32|bf16",
          .help = "type of the weights; auto takes that of run.compute" },
        { "--average", OPTION_FLAG, &c.average, NULL,
          .help = "take the average of the weights that optimizer.ema kept" },
        { "--shard-gb", OPTION_REAL, &c.shard_gb, "N",
          .help = "split files at N GB (1e9 bytes); a larger tensor gets a file of its own",
          .min = 1e-9, .max = 1e6 },
    };
    const Command command = {
        .name = "switchyard convert to-hf",
        .arguments = "CKPT OUT",
        .what = "Convert a checkpoint into a folder that Hugging Face transformers loads. CKPT is "
                "a checkpoint, or a run, whose newest one is taken. OUT must be new or empty.",
        .example = "switchyard convert to-hf runs/a exported",
        OPTIONS(table, 2, 2),
    };
    return options_run(&command, argc, argv, run_to_hf, &c);
}

Status cli_convert(int argc, char **argv)
{
    static const Subcommand rows[] = {
        { "from-hf", "convert a Hugging Face folder into a checkpoint", parse_from_hf },
        { "to-hf", "convert a checkpoint into a Hugging Face folder", parse_to_hf },
    };
    return options_dispatch("switchyard convert", rows, 2, argc, argv);
}
