/* Any lines, before a right last one, are refused with a sentence, or are entries of which those
 * that fit their tensor can be asked for what they share. */
#include "harness/fuzz.h"
#include "train/manifest.h"

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
        need(shared == piece_common(&chain->other->piece, &chain->piece));
        need(shared <= piece_elems(&chain->piece));
    }
    if (chain != NULL) (void)manifest_check_cover("fuzz", chain, ELEMS);
}

static Status look(Fuzz *f)
{
    Text text = { 0 };
    CheckpointInfo info;
    ManifestEntry *entry = NULL;
    int64_t lines = 0, n = 0;
    char got[CHECKPOINT_SUM_BYTES];
    void *sum = NULL;
    if (f->bytes == 0 || f->data[f->bytes - 1] != '\n') return OK;
    for (size_t i = 0; i < f->bytes; i++) lines += f->data[i] == '\n';
    TRY(manifest_sum_new(f->a, &sum));
    manifest_sum_add(sum, f->data, f->bytes);
    manifest_sum_take(sum, got);
    TRY(text_init(&text, f->a));
    TRY(text_append(&text, (const char *)f->data, f->bytes));
    TRY(text_printf(&text, "{\"entries\":%lld,\"xxh3\":\"%s\"}\n", (long long)lines - 1, got));
    TRY(manifest_parse("fuzz", text.data, text.used, f->a, &info, &entry, &n));
    ask(entry, n);
    return OK;
}

const Fuzzer fuzzer = { .look = look };
