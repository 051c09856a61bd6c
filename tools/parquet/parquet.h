/* parquet: one column of a Parquet file, row by row, as members of JSON objects: "NAME": "text" or "NAME": [1, 2]. A null
 * is an empty text or list.
 *
 * Read: columns of text, and lists of text or of whole numbers, inside groups too ("a.b"); plain, dictionary,
 * delta-length and delta-packed values; uncompressed, snappy, gzip and zstd; data pages of both versions, with their
 * checksums. All else is refused by its name. file.c reads the index at the end of the file, page.c pages, thrift.c the
 * headers of both. */
#ifndef PARQUET_PARQUET_H
#define PARQUET_PARQUET_H

#include "engine/base/text.h"

typedef struct Parquet Parquet; /* in the caller's arena */

/* `data` are all bytes of the file, which must live as long. ERR_FORMAT: damaged, or without such a column.
 * ERR_UNSUPPORTED: the file is encrypted, or the column of a type that is not read. */
Status parquet_open(const char *path, const char *field, const uint8_t *data, size_t bytes,
                    Arena *a, Parquet **out);
void parquet_close(Parquet *p); /* safe on NULL */

/* Appends the member of the next row; *more is false past the last one. ERR_FORMAT: a damaged page. ERR_UNSUPPORTED: an
 * encoding or compression that is not read. */
Status parquet_row(Parquet *p, Text *out, bool *more);

/* Writes all rows to stdout, each an object of these columns on a line. */
Status parquet_print(const char *path, const char *const *fields, int n, Arena *a);

#endif
