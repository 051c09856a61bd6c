/* Any lines, before a right last one, are refused with a sentence, or are entries of which those
 * that fit their tensor can be asked for what they share. */
#include "train/manifest.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { ELEMS = 1000 };

static void ask(ManifestEntry *entry, int64_t n)
{
    const ManifestEntry *chain = NULL;
    for (int64_t i = 0; i < n; i++) {
        if (!piece_fits(&entry[i].piece, ELEMS)) continue;
        entry[i].other = chain;
        chain = &entry[i];
        if (chain->other == NULL) continue;
        int64_t shared = piece_common(&chain->piece, &chain->other->piece);
        if (shared != piece_common(&chain->other->piece, &chain->piece)) abort();
        if (shared > piece_elems(&chain->piece)) abort();
    }
    if (chain != NULL) (void)manifest_check_cover("fuzz", chain, ELEMS);
}

static Status read_lines(Arena *a, const uint8_t *data, size_t bytes)
{
    Text text = { 0 };
    CheckpointInfo info;
    ManifestEntry *entry = NULL;
    int64_t lines = 0, n = 0;
    char got[CHECKPOINT_SUM_BYTES];
    void *sum = NULL;
    for (size_t i = 0; i < bytes; i++) lines += data[i] == '\n';
    TRY(manifest_sum_new(a, &sum));
    manifest_sum_add(sum, data, bytes);
    manifest_sum_take(sum, got);
    TRY(text_init(&text, a));
    TRY(text_append(&text, (const char *)data, bytes));
    TRY(text_printf(&text, "{\"entries\":%lld,\"xxh3\":\"%s\"}\n", (long long)lines - 1, got));
    TRY(manifest_parse("fuzz", text.data, text.used, a, &info, &entry, &n));
    ask(entry, n);
    return OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    Arena a = { 0 };
    if (bytes == 0 || data[bytes - 1] != '\n') return 0;
    if (arena_init(&a, "fuzz", MEM_HOST, (size_t)1 << 24) != OK) abort();
    (void)read_lines(&a, data, bytes);
    arena_free(&a);
    return 0;
}
