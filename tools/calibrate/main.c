/* plan-calibrate: what `switchyard plan calibrate` becomes: a GPU's file from its measured rates. */
#include "app/options/options.h"
#include "beside/beside.h"
#include "calibrate/calibrate.h"
#include "engine/base/file.h"

typedef struct CalibrateCall {
    const char *base, *exchange; /* NULL: none is given */
} CalibrateCall;

/* Replaces what the output of `bench ops` or an exchange measured in the base GPU's file, and writes the result. */
static Status run_calibrate(void *state, int n, char **arguments, Arena *a, Text *out)
{
    const CalibrateCall *call = state;
    char *bench = NULL;
    size_t bytes = 0;
    Hardware h;
    if (n < 2 && call->exchange == NULL)
        return FAIL(ERR_ARG, "plan calibrate: %.60s is alone: give BENCH and OUT, or --exchange",
                    arguments[0]);
    TRY(hardware_load(&h, a, call->base));
    if (call->exchange != NULL) TRY(calibrate_exchange(call->exchange, a, &h));
    if (n == 2) {
        TRY(file_read_input(arguments[0], a, &bench, &bytes));
        TRY(calibrate(arguments[0], bench, a, &h));
    }
    TRY(hardware_print(&h, out));
    TRY(file_write_whole(arguments[n - 1], out->data, out->used));
    out->used = 0;
    return OK;
}

Status beside_run(int argc, char **argv)
{
    CalibrateCall call = { 0 };
    const Option table[] = {
        { "--base", OPTION_TEXT, &call.base, "GPU",
          .help = "the GPU (a preset or a file) that gives all other values", .required = true },
        { "--exchange", OPTION_TEXT, &call.exchange, "TEXT",
          .help = "an all-to-all that you measured, as in '16 GPUs, 64 MiB, 3.1 ms', or the GPUs "
                  "and a line of alltoall_perf (nccl-tests). Bytes are those that each GPU sends" },
    };
    const Command command = {
        .name = "switchyard plan calibrate",
        .arguments = "[BENCH] OUT",
        .what =
            "Write a file for --hardware from the output of `switchyard bench ops` on a GPU. "
            "It holds the measured rates of matrix products, attention and memory, and with that "
            "of `bench contention` how much longer they take during communication. With --exchange "
            "it holds the rate of your network, and plans have its narrower interval.",
        .example = "switchyard bench ops deepseek-v2-lite run.compute=bf16 >bench.txt\n"
                   "  switchyard plan calibrate bench.txt my-h200.yaml --base h200\n"
                   "  switchyard plan calibrate my-h100.yaml --base h100 \\\n"
                   "    --exchange '16 GPUs, 64 MiB, 3.1 ms'",
        OPTIONS(table, 1, 2),
    };
    return options_run(&command, argc, argv, run_calibrate, &call);
}
