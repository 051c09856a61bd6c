/* convert to-hf: writes a checkpoint as a folder that Hugging Face transformers loads. */
#include "app/options/options.h"
#include "beside/beside.h"
#include "engine/base/interrupt.h"
#include "hf/to_hf.h"

/* The targets of the options. */
typedef struct Call {
    int dtype;
    bool average;
    double shard_gb;
} Call;

/* Ctrl-C ends a conversion in order (engine/base/interrupt.h). */
static Status write_folder(void *state, int n, char **path, Arena *a, Text *out)
{
    static const int dtypes[] = { -1, DTYPE_F32, DTYPE_BF16 }; /* in the order of --dtype's words */
    const Call *c = state;
    (void)n;
    const ConvertToHf o = { .checkpoint = path[0],
                            .out = path[1],
                            .dtype = dtypes[c->dtype],
                            .average = c->average,
                            .shard_bytes = (int64_t)(c->shard_gb * 1e9) };
    interrupt_catch();
    return convert_to_hf(&o, a, out);
}

Status beside_run(int argc, char **argv)
{
    Call c = { .shard_gb = 5 };
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
    return options_run(&command, argc, argv, write_folder, &c);
}
