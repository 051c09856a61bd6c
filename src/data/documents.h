/* documents: iterates over the documents of a file. NAME.jsonl has one JSON object per line, whose text
 * is one of its string fields. Files with other names are text: a document is the whole file, a block
 * between blank lines, or a line. A pipe holds JSON lines if its first byte is a brace. The tokenizer
 * handles bytes that are not UTF-8. A NUL inside a JSON string is an error, because a C string ends
 * there. */
#ifndef DATA_DOCUMENTS_H
#define DATA_DOCUMENTS_H

#include "base/file.h"
#include "base/json.h"

/* Where a document of a text file ends: at the end of the file, at a blank line, at the end of a
 * line. */
typedef enum DocumentSplit { SPLIT_FILE, SPLIT_BLANK, SPLIT_LINE } DocumentSplit;

typedef struct DocumentOptions {
    DocumentSplit split; /* of text files */
    const char *field;   /* of JSON lines; NULL: any object, and the text is its line */
    bool skip_bad;       /* count broken JSON lines and go on, instead of failing */
} DocumentOptions;

typedef struct Documents {
    const char *path; /* the caller's */
    DocumentOptions options;
    bool jsonl;
    FileMap map;
    size_t at;             /* next byte */
    int64_t line, skipped; /* JSON lines read; bad ones among them */
    Json *json;            /* the tree of the current line, in: */
    Arena arena;
} Documents;

/* ERR_IO for a missing file; ERR_ARG for .json, which would be one document of braces. */
Status documents_open(Documents *d, const char *path, const DocumentOptions *o);
void documents_close(Documents *d); /* safe on { 0 } */

/* Documents of bytes in memory (jsonl: JSON lines), which must live as long as d. */
void documents_from_memory(Documents *d, const char *name, bool jsonl, FileMap map,
                           const DocumentOptions *o);

/* The next text, valid until the next call; *more is false past the last one. ERR_FORMAT: a line is
 * no JSON, or no object with the field; the sentence has FILE:LINE and says what is wrong. */
Status documents_next(Documents *d, const char **text, size_t *bytes, bool *more);

/* Reports a bad line that the caller found: counts it and returns OK with skip_bad, else ERR_FORMAT with
 * FILE:LINE. */
Status documents_bad(Documents *d, const char *wrong);

#endif
