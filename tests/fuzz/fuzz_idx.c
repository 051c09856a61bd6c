/* Any pair of bytes is refused with a sentence, or is a shard whose documents can all be read. The
 * input: one byte n, n bytes of .bin, the rest is the .idx. */
#include "corpus/shard/shard.h"
#include "harness/fuzz.h"

static void read_documents(const Shard *s)
{
    int32_t ids[UINT8_MAX];
    int64_t at = 0;
    for (int64_t d = 0; d < s->documents; d++) {
        int64_t first = shard_start(s, d), n = shard_start(s, d + 1) - first;
        need(first == at && n >= 0 && first + n <= s->tokens);
        shard_read(s, first, n, ids);
        at += n;
    }
    need(at == s->tokens);
}

static Status look(Fuzz *f)
{
    if (f->bytes < 1 || f->bytes < 1 + (size_t)f->data[0]) return OK;
    FileMap bin = { f->data + 1, f->data[0] };
    FileMap idx = { f->data + 1 + f->data[0], f->bytes - 1 - f->data[0] };
    Shard s = { 0 };
    TRY(shard_from_maps(&s, "fuzz", bin, idx));
    read_documents(&s);
    return OK;
}

const Fuzzer fuzzer = { .look = look, .most_bytes = 1 << 20 };
