/* Any pair of bytes is refused with a sentence, or is a shard whose documents can all be read. The
 * input: one byte n, n bytes of .bin, the rest is the .idx. */
#include "data/shard.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void read_documents(const Shard *s)
{
    int32_t ids[UINT8_MAX];
    int64_t at = 0;
    for (int64_t d = 0; d < s->documents; d++) {
        int64_t first = shard_start(s, d), n = shard_start(s, d + 1) - first;
        if (first != at || n < 0 || first + n > s->tokens) abort();
        shard_read(s, first, n, ids);
        at += n;
    }
    if (at != s->tokens) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes < 1 || bytes < 1 + (size_t)data[0]) return 0;
    FileMap bin = { data + 1, data[0] };
    FileMap idx = { data + 1 + data[0], bytes - 1 - data[0] };
    Shard s = { 0 };
    if (shard_from_maps(&s, "fuzz", bin, idx) == OK) read_documents(&s);
    return 0;
}
