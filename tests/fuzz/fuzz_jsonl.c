/* Any bytes read as documents: JSON lines with bad ones left out, JSON lines that fail at the first
 * bad one, fields inside others, and the three ways to split a text. The texts of a text file are pieces of it. */
#include "data/documents.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void read_all(const uint8_t *data, size_t bytes, bool jsonl, const DocumentOptions *o)
{
    Documents d = { 0 };
    const Block block = { .text = (const char *)data, .bytes = bytes };
    bool more = true;
    documents_of_block(&d, "fuzz", jsonl, &block, o);
    while (more) {
        const char *text = NULL;
        size_t n = 0;
        if (documents_next(&d, &text, &n, &more) != OK) break;
        const uint8_t *first = (const uint8_t *)text;
        if (more && !jsonl && (first < data || first + n > data + bytes || n == 0)) abort();
        if (more && jsonl && n > bytes) abort();
    }
    documents_close(&d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const FIELDS[] = { "text", "text", "a.b.c", NULL };
    for (int i = 0; i < 4; i++)
        read_all(data, bytes, true, &(DocumentOptions){ .field = FIELDS[i], .skip_bad = i > 0 });
    for (int split = SPLIT_FILE; split <= SPLIT_LINE; split++) {
        read_all(data, bytes, false, &(DocumentOptions){ .split = (DocumentSplit)split });
    }
    return 0;
}
