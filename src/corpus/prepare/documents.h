/* documents: iterates over the documents of a file. NAME.jsonl has one JSON object per line, whose text
 * is one of its string fields, or a list of token ids where the caller takes them (DocumentOptions.ids). Files with other names are text: a document is the whole file, a block
 * between blank lines, or a line. blocks.h tells the one from the other, and what is decompressed. The
 * tokenizer handles bytes that are not UTF-8. A NUL inside a JSON string is an error, because a C string
 * ends there. */
#ifndef CORPUS_PREPARE_DOCUMENTS_H
#define CORPUS_PREPARE_DOCUMENTS_H

#include "corpus/prepare/blocks.h"
#include "engine/base/json.h"

typedef struct Documents {
    const char *path; /* the caller's */
    DocumentOptions options;
    bool jsonl;
    Block block; /* of which `at` bytes are done */
    size_t at;
    int64_t line, skipped; /* JSON lines read; bad ones among them */
    const Json *ids; /* of the current line: the list of token ids that its field is; else NULL */
    Json *json;      /* the tree of the current line, in: */
    Arena arena;
    Blocks blocks; /* of documents_open: where the next block comes from */
    Text room;     /* of its text, in: */
    Arena room_arena;
} Documents;

/* ERR_IO for a missing file; ERR_FORMAT for one that input.h refuses. */
Status documents_open(Documents *d, const char *path, const DocumentOptions *o);
void documents_close(Documents *d); /* safe on { 0 } */

/* The documents of one block (jsonl: JSON lines), whose text must live as long as d. The memory of what
 * was read before is used again: { 0 } the first time. */
void documents_of_block(Documents *d, const char *name, bool jsonl, const Block *block,
                        const DocumentOptions *o);

/* The next text (with d->ids its line), valid until the next call; *more is false past the last one. ERR_FORMAT: a line is
 * no JSON, or no object with the field; the sentence has FILE:LINE and says what is wrong. */
Status documents_next(Documents *d, const char **text, size_t *bytes, bool *more);

/* Reports a bad line that the caller found: counts it and returns OK with skip_bad, else ERR_FORMAT with
 * FILE:LINE. */
Status documents_bad(Documents *d, const char *wrong);

#endif
