/*
 * data batches: writes the batches that a run reads to a file, so that
 * another program can train on exactly the same tokens (tools/peer_torch.py).
 *
 *     switchyard batches 1 STEPS BATCH SEQUENCE\n       text
 *     id, target, pos, doc (BATCH x SEQUENCE each), domain (BATCH)     for every step
 *
 * Elements are 32-bit integers in this machine's byte order; corpus/shard/loader.h says what they mean.
 */
#include "app/options/options.h"
#include "beside/beside.h"
#include "engine/base/file.h"
#include "engine/base/interrupt.h"
#include "engine/host/progress.h"
#include "engine/train/train.h"

#include <inttypes.h>

static Status write_batch(File *f, const Batch *b)
{
    const Tensor *parts[] = { &b->id, &b->target, &b->pos, &b->doc, &b->domain };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        TRY(file_write(f, parts[i]->data, tensor_bytes(parts[i])));
    return OK;
}

/* The file is committed (renamed into place) only when it is complete. */
static Status write_batches(File *f, const Config *c, Loader *l, int64_t steps)
{
    TRY(file_printf(f, "switchyard batches 1 %" PRId64 " %" PRId64 " %" PRId64 "\n", steps,
                    c->train_batch, c->data_sequence));
    Progress bar = {
        .what = "write batches", .unit = "steps", .total = steps, .left = "nothing was written"
    };
    progress_begin(&bar);
    for (int64_t i = 0; i < steps; i++) {
        const Batch *batch = NULL;
        TRY(loader_next(l, &batch));
        TRY(write_batch(f, batch));
        TRY(progress_add(&bar, 1));
    }
    progress_end(&bar);
    return file_commit(f);
}

static Status write_batches_file(const Config *c, Arena *a, int64_t steps, const char *path,
                                 Text *out)
{
    LoaderConfig data;
    Loader *loader = NULL;
    File f = { 0 };
    if (c->train_batch_ramp.n > 0)
        return FAIL(ERR_ARG, "data batches: steps of the file have one size, and train.batch_ramp "
                             "gives several: set train.batch_ramp=[]");
    TRY(train_loader_config(c, NULL, NULL, a, &data));
    TRY(loader_open(&data, a, &loader));
    interrupt_catch();
    Status s = file_create_temp(&f, path, a);
    if (s == OK) s = write_batches(&f, c, loader, steps);
    file_close(&f);
    loader_close(loader);
    TRY(s);
    return text_printf(out,
                       "%s: %" PRId64 " steps of %" PRId64 " sequences of %" PRId64 " tokens\n",
                       path, steps, c->train_batch, c->data_sequence);
}

/* The targets of the command's options. */
typedef struct Call {
    int64_t steps;
    const char *out;
} Call;

static Status run_batches(void *state, int n, char **arguments, Arena *a, Text *out)
{
    const Call *call = state;
    Config c;
    TRY(config_load(&c, a, arguments[0], (const char *const *)(arguments + 1), n - 1));
    return write_batches_file(&c, a, call->steps, call->out, out);
}

Status beside_run(int argc, char **argv)
{
    Call call = { 0 };
    const Option table[] = {
        { "--steps", OPTION_INT, &call.steps, "N", .help = "number of steps", .required = true,
          .min = 1, .max = 1e9 },
        { "--out", OPTION_TEXT, &call.out, "FILE", .help = "the file to write", .required = true },
    };
    const Command command = {
        .name = "switchyard data batches",
        .arguments = "CONFIG [section.key=value ...]",
        .what = "Write the first batches that a run of CONFIG reads, as raw 32-bit integers. Each "
                "step has id, target, pos and doc (sequences x tokens), then domain (sequences).",
        .example = "switchyard data batches quickstart --steps 100 --out runs/batches.i32",
        OPTIONS(table, 1, -1),
    };
    return options_run(&command, argc, argv, run_batches, &call);
}
