/* Any bytes as an experiment of Primus: refused with a sentence, or a configuration that passes the checks, with a stack.
 * Up to a line of %% is the model's file. */
#include "harness/fuzz_import.h"

static Status look(Fuzz *f)
{
    const FuzzPart model = fuzz_part(f, "\n%%\n");
    (void)fuzz_file("models/megatron/m.yaml", model.data, model.bytes);
    return fuzz_import("primus", fuzz_file("experiment.yaml", f->data, f->bytes), f);
}

const Fuzzer fuzzer = { .look = look };
