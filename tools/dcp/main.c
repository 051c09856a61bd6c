/* convert from-dcp: reads checkpoints of PyTorch's trainers. */
#include "app/options/options.h"
#include "beside/beside.h"
#include "dcp/from_dcp.h"
#include "engine/base/interrupt.h"

/* The targets of the options. */
typedef struct Call {
    const char *config;
    bool weights;
    int rope;
} Call;

static Status convert_folder(void *state, int n, char **argument, Arena *a, Text *out)
{
    const Call *call = state;
    Config config;
    const ConvertFromDcp o = { .folder = argument[0],
                               .out = argument[1],
                               .config = &config,
                               .weights = call->weights,
                               .rope = call->rope };
    interrupt_catch();
    TRY(config_load(&config, a, call->config, (const char *const *)argument + 2, n - 2));
    return convert_from_dcp(&o, a, out);
}

Status beside_run(int argc, char **argv)
{
    Call c = { 0 };
    const Option table[] = {
        { "--config", OPTION_TEXT, &c.config, "CONFIG",
          .help = "the model that the folder holds: a YAML file, or the name of a preset",
          .required = true },
        { "--weights-only", OPTION_FLAG, &c.weights, NULL,
          .help = "leave out the moments of AdamW" },
        { "--rope", OPTION_CHOICE, &c.rope, "auto|pairs|halves",
          .help = "how the folder stores rotated columns: neighbouring pairs or halves; auto: as "
                  "its trainer does by default" },
    };
    const Command command = {
        .name = "switchyard convert from-dcp",
        .arguments = "FOLDER OUT [section.key=value ...]",
        .what = "Convert a folder of torch.distributed.checkpoint, as TorchTitan and Megatron-Core "
                "write them, into a checkpoint. Such a folder does not say what model it holds: "
                "CONFIG does, and every tensor must fit it. AdamW's moments and their count of "
                "steps are taken, too. OUT must be new or empty.",
        .example = "switchyard convert from-dcp outputs/checkpoint/step-1000 models/mine "
                   "--config llama3-8b\n"
                   "  switchyard train models/mine/config.yaml --init models/mine "
                   "init.moments=true run.dir=runs/a",
        OPTIONS(table, 2, -1),
    };
    return options_run(&command, argc, argv, convert_folder, &c);
}
