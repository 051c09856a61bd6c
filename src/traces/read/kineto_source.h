/* kineto_source: the bytes of a trace, from a file, a pipe or memory, inflated if they are gzip. It
 * knows nothing of JSON. */
#ifndef TRACES_READ_KINETO_SOURCE_H
#define TRACES_READ_KINETO_SOURCE_H

#include "engine/base/arena.h"
#include "engine/host/progress.h"

#include <stdbool.h>
#include <zlib.h>

/* The most bytes of a block of text, and of one event. */
enum { BLOCK_BYTES = 1 << 18, ELEMENT_BYTES_MAX = 16 << 20 };

/* An open trace. Either a file or pipe (fd >= 0), or a text in memory. */
typedef struct Source {
    const char *path;
    int fd;
    bool gzip, pipe, ended;
    bool cut;              /* the gzip data ended early */
    uint64_t file_bytes;   /* the size when it was opened; no more is read */
    uint64_t taken, given; /* so far: bytes read from the file, bytes of text given out */
    unsigned char *in;     /* bytes that were read and not given out yet */
    size_t in_bytes, in_used;
    z_stream z;
    /* block: bytes of a block of text. element_max: a longer event counts as malformed. text_max: the
     * most bytes that the whole text can have. */
    size_t block, element_max;
    uint64_t text_max;
    Progress *bar; /* or NULL */
} Source;

/* Opens a file or pipe and reads its first bytes. Buffers lie in `a`. Close it also on failure. */
Status source_open(Source *s, const char *path, Arena *a);
/* A source over a text in memory. */
void source_text(Source *s, const char *path, unsigned char *text, size_t bytes);
/* Up to n bytes of text; fewer only at the end. ERR_IO, or ERR_FORMAT for a corrupt gzip. */
Status source_read(Source *s, char *out, size_t n, size_t *got);
/* Gives all that is left, and checks as source_check does. */
Status source_all(Source *s, Arena *a, uint8_t **out, size_t *bytes);
/* ERR_IO: the file has another size than when it was opened, so somebody is writing to it. */
Status source_check(const Source *s);
void source_close(Source *s); /* safe on { 0 } */

#endif
