/* bench ops --why: parses the call, and lists the kernels of a model's ops. */
#include "app/options/options.h"
#include "beside/beside.h"
#include "why/why.h"

typedef struct Call {
    bool why, small;
    const char *device;
} Call;

static Status list_kernels(void *state, int n, char **arguments, Arena *a, Text *out)
{
    const Call *call = state;
    const char *const *set = (const char *const *)arguments;
    Config c = { 0 };
    TRY(config_load_as(&c, a, call->small ? CONFIG_SMALL : 0, n > 0 ? set[0] : "quickstart",
                       n > 0 ? set + 1 : set, n > 0 ? n - 1 : 0));
    return bench_why(&c, call->device, out);
}

Status beside_run(int argc, char **argv)
{
    Call call = { 0 };
    const Option table[] = {
        { "--why", OPTION_FLAG, &call.why,
          .help = "list which kernel runs each call on a GPU, and why others do not" },
        { "--device", OPTION_TEXT, &call.device, "GPU",
          .help = "a GPU of the hardware files, or a file of one" },
        { "--shrink", OPTION_FLAG, &call.small,
          .help = "shrink the model but keep its structure; settings are applied after that" },
    };
    const Command command = {
        .name = "switchyard bench ops",
        .arguments = "[MODEL [section.key=value ...]]",
        .what = "With --why: list which kernel takes each call of a step of MODEL (default "
                "quickstart) on a GPU, and why the others do not. Nothing is run.",
        .example = "switchyard bench ops --why --device h200 quickstart run.compute=bf16",
        OPTIONS(table, 0, -1),
    };
    return options_run(&command, argc, argv, list_kernels, &call);
}
