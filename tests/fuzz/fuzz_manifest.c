/* Any lines, before a right last one, are refused with a sentence, or are entries of which those
 * that fit their tensor can be asked for what they share. */
#include "harness/fuzz_manifest.h"

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
    int64_t n = 0;
    if (f->bytes == 0 || f->data[f->bytes - 1] != '\n') return OK;
    TRY(fuzz_seal_manifest(f, &(FuzzPart){ f->data, f->bytes }, &text));
    TRY(manifest_parse("fuzz", text.data, text.used, f->a, &info, &entry, &n));
    ask(entry, n);
    return OK;
}

const Fuzzer fuzzer = { .look = look };
