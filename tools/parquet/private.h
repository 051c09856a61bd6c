/* private: what the files of this folder share. */
#ifndef PARQUET_PRIVATE_H
#define PARQUET_PRIVATE_H

#include "parquet/parquet.h"

typedef struct Bytes {
    const uint8_t *at, *end;
} Bytes;

/* ---- Thrift's compact protocol (thrift.c). After the first wrong byte every read gives 0 and `bad`. ---- */

typedef struct Thrift {
    Bytes left;
    bool bad;
    int id, type; /* of the current field */
} Thrift;

/* Thrift's numbers of the types that are asked for. */
enum { THRIFT_BINARY = 8, THRIFT_LIST = 9, THRIFT_STRUCT = 12 };

/* Goes on to the next field of a struct; `before`: the id of the field before it, 0 for the first. */
bool thrift_field(Thrift *t, int before);
int64_t thrift_varint(Thrift *t);
int64_t thrift_zigzag(Thrift *t); /* a varint with a sign */
Bytes thrift_bytes(Thrift *t);
int64_t thrift_list(Thrift *t); /* how many elements follow, of type t->type */
/* The value of the current field if it is a number or a truth; all else is skipped, and gives 0. */
int64_t thrift_value(Thrift *t);
/* The numbers and truths of a struct, by the ids of their fields; others stay. */
enum { THRIFT_FIELDS = 16 };
void thrift_struct(Thrift *t, int64_t out[THRIFT_FIELDS]);

/* ---- the file ---- */

typedef enum PhysicalType { PARQUET_INT32 = 1, PARQUET_INT64 = 2, PARQUET_TEXT = 6 } PhysicalType;
typedef enum ParquetCodec { CODEC_NONE, CODEC_SNAPPY, CODEC_GZIP, CODEC_ZSTD = 6 } ParquetCodec;

/* The column's part of a row group. */
typedef struct Chunk {
    Bytes pages;
    int64_t rows, values;
    int codec;
} Chunk;

/* A run-length or bit-packed sequence of small numbers. */
typedef struct Runs {
    Bytes left;
    const uint8_t *packed; /* NULL: `value` is repeated */
    int64_t n, bit;
    uint32_t value;
    int width; /* bits of a number */
} Runs;

struct Parquet {
    const char *path, *field; /* the caller's */
    Bytes file;
    int type, leaf; /* PhysicalType; number of the column among all */
    bool is_unsigned;
    int max_rep, max_def; /* levels of a value that is there; max_rep is 0 or 1 */
    int item_def;         /* least definition level of an element of a list */
    Chunk *chunk;
    int64_t chunks, next; /* `next`: of the chunk after the current one */
    Bytes pages;          /* left of the current chunk */
    int codec;
    int64_t rows, values; /* left in it */
    int64_t in_page;      /* values left in the page, nulls too */
    Runs rep, def, index;
    int encoding;    /* of values */
    Bytes value;     /* left in the page */
    int64_t *number; /* decoded lengths or numbers: of n_numbers, number_at are done */
    int64_t n_numbers, number_at;
    Bytes *word; /* the dictionary */
    int64_t n_words;
    Text line, page,
        words; /* lines to be given out, from line_at; the page and the dictionary, decompressed */
    size_t line_at;
    Arena line_arena, page_arena, word_arena, number_arena;
};

Status parquet_damaged(const Parquet *p, const char *what);

/* Reads the next data page of the current chunk. ERR_FORMAT: it has none. */
Status parquet_page(Parquet *p);
/* The next number of the runs; false: they are at their end. */
bool parquet_run(Runs *r, uint32_t *out);
/* The next value of the page that is there: bytes of a text, or a number of 4 or 8 bytes. */
Status parquet_value(Parquet *p, Bytes *out);

/* Appends what snappy compressed. false: it is damaged, or is not of `bytes` bytes. */
bool snappy_expand(Bytes in, size_t bytes, uint8_t *out);

#endif
