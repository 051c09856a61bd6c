/* Any bytes read as documents: JSON lines with bad ones left out, JSON lines that fail at the first
 * bad one, fields inside others, and the three ways to split a text. The texts of a text file are pieces of it. */
#include "corpus/prepare/documents.h"
#include "harness/fuzz.h"

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
        if (more && !jsonl) need(first >= data && first + n <= data + bytes && n > 0);
        if (more && jsonl) need(n <= bytes);
    }
    documents_close(&d);
}

static Status look(Fuzz *f)
{
    static const char *const FIELDS[] = { "text", "text", "a.b.c", NULL };
    for (int i = 0; i < 4; i++)
        read_all(f->data, f->bytes, true,
                 &(DocumentOptions){ .field = FIELDS[i], .skip_bad = i > 0 });
    for (int split = SPLIT_FILE; split <= SPLIT_LINE; split++) {
        read_all(f->data, f->bytes, false, &(DocumentOptions){ .split = (DocumentSplit)split });
    }
    return OK;
}

const Fuzzer fuzzer = { .look = look };
