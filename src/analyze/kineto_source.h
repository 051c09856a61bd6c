/* kineto_source: the bytes of a trace, from a file, a pipe or memory, inflated if they are gzip. Knows
 * nothing of JSON. */
#ifndef ANALYZE_KINETO_SOURCE_H
#define ANALYZE_KINETO_SOURCE_H

#include "base/arena.h"
#include "base/progress.h"

#include <stdbool.h>
#include <zlib.h>

/* The most bytes of a block of text, and of one event. */
enum { BLOCK_BYTES = 1 << 18, ELEMENT_BYTES_MAX = 16 << 20 };

typedef struct Source {
    const char *path;
    int fd;
    bool gzip, pipe, ended;
    bool cut;              /* a gzip that ends early */
    uint64_t file_bytes;   /* when it was opened; no more is read */
    uint64_t taken, given; /* bytes of the file, bytes of text */
    unsigned char *in;     /* what is read and not yet given */
    size_t in_bytes, in_used;
    z_stream z;
    /* Bytes: of a block; of an event that is not malformed; the most that the text can have. */
    size_t block, element_max;
    uint64_t text_max;
    Progress *bar; /* or NULL */
} Source;

Status source_open(Source *s, const char *path, Arena *a);
/* A text that is in memory, as if it were a file's. */
void source_text(Source *s, const char *path, unsigned char *text, size_t bytes);
/* Up to n bytes of text; fewer only at the end. ERR_IO, or ERR_FORMAT for a corrupt gzip. */
Status source_read(Source *s, char *out, size_t n, size_t *got);
/* All that is left of it, checked. */
Status source_all(Source *s, Arena *a, uint8_t **out, size_t *bytes);
/* Is the file as long as when it was opened? */
Status source_check(const Source *s);
void source_close(Source *s); /* safe on { 0 } */

#endif
