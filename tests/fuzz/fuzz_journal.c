/* Any bytes as the journal of `data prepare`: none, or numbers from 0 on. */
#include "corpus/prepare/prepare_private.h"
#include "harness/fuzz.h"

static Status look(Fuzz *f)
{
    Journal j = { .run = "0123456789abcdef0123456789abcdef" };
    bool found = false;
    char prefix[FILE_PATH_MAX];
    (void)fuzz_file("x.journal", f->data, f->bytes);
    TRY(file_join(prefix, fuzz_folder(), "x"));
    TRY(journal_read(&j, prefix, &found));
    if (!found) return OK;
    need(j.file >= 0 && j.file_bytes >= 0 && j.place.bytes >= 0 && j.place.lines >= 0);
    need(j.mark.documents >= 0 && j.mark.tokens >= 0 && j.stats.duplicates >= 0);
    return OK;
}

const Fuzzer fuzzer = { .look = look, .most_bytes = 2048 };
