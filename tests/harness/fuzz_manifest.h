/* fuzz_manifest: lines of a manifest with a right last line behind them, so that a fuzzer gets past the sum. */
#ifndef HARNESS_FUZZ_MANIFEST_H
#define HARNESS_FUZZ_MANIFEST_H

#include "engine/checkpoint/manifest.h"
#include "harness/fuzz.h"

/* out grows in f->page. */
static inline Status fuzz_seal_manifest(Fuzz *f, const FuzzPart *lines, Text *out)
{
    char got[CHECKPOINT_SUM_BYTES];
    void *sum = NULL;
    long long n = 0;
    for (size_t i = 0; i < lines->bytes; i++) n += lines->data[i] == '\n';
    TRY(manifest_sum_new(f->a, &sum));
    manifest_sum_add(sum, lines->data, lines->bytes);
    manifest_sum_take(sum, got);
    TRY(text_init(out, f->page));
    TRY(text_append(out, (const char *)lines->data, lines->bytes));
    return text_printf(out, "{\"entries\":%lld,\"xxh3\":\"%s\"}\n", n - 1, got);
}

#endif
