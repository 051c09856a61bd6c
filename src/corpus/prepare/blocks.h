/* blocks: cuts a file into blocks of whole documents, so that threads can work on one file. A block is
 * about 1 MiB, or as long as its only document. Where blocks end depends on the bytes of the file alone. */
#ifndef CORPUS_PREPARE_BLOCKS_H
#define CORPUS_PREPARE_BLOCKS_H

#include "corpus/prepare/input.h"
#include "engine/base/text.h"

/* Where a document of a text file ends: at the end of the file, at a blank line, at the end of a
 * line. */
typedef enum DocumentSplit { SPLIT_FILE, SPLIT_BLANK, SPLIT_LINE } DocumentSplit;

typedef struct DocumentOptions {
    DocumentSplit split; /* of text files */
    const char *
        field; /* of JSON lines and Parquet, names with dots between; NULL: any object, as its line */
    bool ids;           /* the field may be a list of token ids */
    bool skip_bad;      /* count broken JSON lines and go on, instead of failing */
    size_t block_bytes; /* least size of a block; 0: 1 MiB */
    size_t most_bytes;  /* of a line, or a block between blank lines; 0: 1 GiB */
    double wait_s;      /* as InputHow has it */
} DocumentOptions;

/* A place in a file: bytes and lines before it, decompressed. sum: a hash of what a command printed before it (0 for
 * files), since it may print something else the next time. */
typedef struct BlockPlace {
    int64_t bytes, lines, sum;
} BlockPlace;

typedef struct Block {
    const char *text;
    size_t bytes;
    BlockPlace begin, end;
} Block;

typedef struct Blocks {
    DocumentOptions options;
    bool jsonl;
    bool checked; /* that the first bytes are no archive */
    Input input;
    BlockPlace at; /* of the next block */
    Text carry;    /* read already, and of the next block; in: */
    Arena arena;
} Blocks;

/* Names that end in .jsonl, .ndjson or .json are JSON lines, also before .gz, .zst or .zstd; so is a pipe
 * or a command whose first byte is a brace. ERR_IO, ERR_FORMAT: as input_open. */
Status blocks_open(Blocks *b, const char *path, const DocumentOptions *o);
void blocks_close(Blocks *b); /* safe on { 0 } */
/* Goes on to a place where a block ended before; `room` as in blocks_next. ERR_CHANGED: a command printed other bytes up
 * to there than it did before. */
Status blocks_seek(Blocks *b, BlockPlace place, Text *room);

/* The next block, whose text lies in `room`; *more is false past the last one. ERR_FORMAT: the file is
 * damaged, or a document is longer than most_bytes. */
Status blocks_next(Blocks *b, Text *room, Block *out, bool *more);

/* Are these spaces, tabs and carriage returns only? */
bool blocks_blank(const char *s, size_t n);

#endif
