/* Any bytes as a job file of torchtitan: refused with a sentence, or a configuration that passes the checks, with a
 * stack. */
#include "harness/fuzz_import.h"

static Status look(Fuzz *f)
{
    return fuzz_import("torchtitan", fuzz_file("job.toml", f->data, f->bytes), f);
}

const Fuzzer fuzzer = { .look = look };
