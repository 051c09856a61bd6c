/* Any bytes as options of Megatron-LM, YAML or the words of a command line: refused with a sentence, or a configuration
 * that passes the checks, with a stack. */
#include "harness/fuzz_import.h"

static Status look(Fuzz *f)
{
    return fuzz_import("megatron", fuzz_file("options", f->data, f->bytes), f);
}

const Fuzzer fuzzer = { .look = look };
