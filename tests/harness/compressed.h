/* compressed: gzip and zstd streams of bytes, for tests of what reads them. */
#ifndef TESTS_HARNESS_COMPRESSED_H
#define TESTS_HARNESS_COMPRESSED_H

#include "harness/test.h"

#include <zlib.h>
#include <zstd.h>

/* Both append one whole stream to out, of which *used bytes are taken. */
static inline void add_gzip(const char *s, size_t n, char *out, size_t room, size_t *used)
{
    z_stream z = { 0 };
    CHECK_INT(deflateInit2(&z, 6, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (unsigned char *)(uintptr_t)s;
    z.avail_in = (uInt)n;
    z.next_out = (unsigned char *)out + *used;
    z.avail_out = (uInt)(room - *used);
    CHECK_INT(deflate(&z, Z_FINISH), Z_STREAM_END);
    *used = room - z.avail_out;
    deflateEnd(&z);
}

static inline void add_zstd(const char *s, size_t n, char *out, size_t room, size_t *used)
{
    ZSTD_CCtx *c = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, 1);
    size_t more = ZSTD_compress2(c, out + *used, room - *used, s, n);
    ZSTD_freeCCtx(c);
    CHECK(!ZSTD_isError(more));
    *used += more;
}

#endif
