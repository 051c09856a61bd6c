/* traces: small traces made in a test, read in blocks of any size by one thread or two. */
#ifndef TRACES_UNIT_TRACES_H
#define TRACES_UNIT_TRACES_H

#include "harness/test.h"

#include "engine/base/file.h"
#include "traces/read/events_read.h"
#include "traces/read/kineto.h"

#include <unistd.h>

typedef struct ReadAs {
    size_t block, element_max; /* 0: the reader's own */
    int threads;
    bool gzip, no_python;
} ReadAs;

/* A new file of these bytes; the caller unlinks it. */
static inline void trace_file(char path[32], const void *text, size_t n)
{
    strcpy(path, "/tmp/switchyard_test_XXXXXX");
    int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, text, n) == (ssize_t)n && close(fd) == 0);
}

/* text as one gzip member; malloced */
static inline unsigned char *trace_gzip(const void *text, size_t n, size_t *out_n)
{
    z_stream z = { 0 };
    unsigned char *out = malloc(n + n / 100 + 1000);
    CHECK(out != NULL && deflateInit2(&z, 6, Z_DEFLATED, MAX_WBITS + 16, 8, 0) == Z_OK);
    unsigned char *in = malloc(n + 1);
    memcpy(in, text, n);
    z.next_in = in;
    z.avail_in = (unsigned)n;
    z.next_out = out;
    z.avail_out = (unsigned)(n + n / 100 + 1000);
    CHECK_INT(deflate(&z, Z_FINISH), Z_STREAM_END);
    *out_n = z.total_out;
    CHECK_INT(deflateEnd(&z), Z_OK);
    free(in);
    return out;
}

/* What events_read does, with other limits. */
static inline Status trace_read_file(const char *path, const ReadAs *as, Events *e)
{
    Arena a = { 0 };
    Source s = { 0 };
    *e = (Events){ .path = path, .rank = -1, .world = -1 };
    CHECK_OK(arena_init(&a, "input", MEM_HOST, (size_t)1 << 20));
    Status status = source_open(&s, path, &a);
    if (as->block > 0) s.block = as->block;
    if (as->element_max > 0) s.element_max = as->element_max;
    if (status == OK) status = kineto_read(&s, !as->no_python, as->threads, e);
    source_close(&s);
    arena_free(&a);
    if (status != OK) events_free(e);
    return status;
}

static inline Status trace_read_bytes(const void *text, size_t n, const ReadAs *as, Events *e)
{
    char path[32];
    size_t packed = n;
    unsigned char *gz = as->gzip ? trace_gzip(text, n, &packed) : NULL;
    trace_file(path, gz != NULL ? gz : text, packed);
    Status s = trace_read_file(path, as, e);
    unlink(path);
    free(gz);
    return s;
}

static inline Status trace_read(const char *text, const ReadAs *as, Events *e)
{
    return trace_read_bytes(text, strlen(text), as, e);
}

#endif
