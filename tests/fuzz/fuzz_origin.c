/* Any bytes as PREFIX.meta: refused with a sentence, or a tokenizer with a sum and a vocabulary. */
#include "corpus/shard/origin.h"
#include "harness/fuzz.h"

static Status look(Fuzz *f)
{
    Origin o;
    char prefix[FILE_PATH_MAX];
    (void)fuzz_file("x.meta", f->data, f->bytes);
    TRY(file_join(prefix, fuzz_folder(), "x"));
    TRY(origin_read(prefix, &o));
    need(o.vocab > 0 && *o.tokenizer != '\0' && strlen(o.sum) < FILE_SUM_BYTES);
    return OK;
}

const Fuzzer fuzzer = { .look = look, .most_bytes = 4096 };
