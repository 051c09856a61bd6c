/* kineto_source: see kineto_source.h. A file is read up to the size that it had when it was opened.
 * If it has another size at the end, somebody is writing to it, and that is an error. */
#include "traces/read/kineto_source.h"

#include "engine/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* IN_BYTES: bytes of one read. DEFLATE_RATIO: deflate packs at most 1032 bytes into one (zlib,
 * "Maximum Compression Factor"). */
enum { IN_BYTES = 1 << 17, DEFLATE_RATIO = 1032 };

static Status fail_errno(const char *path, const char *what)
{
    char why[128];
    return FAIL(ERR_IO, "%s cannot be %s: %s", path, what, strerror_r(errno, why, sizeof why));
}

/* One read, which may give less than n bytes; 0 at the end. */
static Status read_file(Source *s, void *out, size_t n, size_t *got)
{
    ssize_t more = 0;
    if (!s->pipe && n > s->file_bytes - s->taken) n = s->file_bytes - s->taken;
    /* A signal may interrupt a read before any byte came. */
    do more = read(s->fd, out, n);
    while (more < 0 && errno == EINTR);
    if (more < 0) return fail_errno(s->path, "read");
    s->taken += (uint64_t)more;
    TRY(progress_add(s->bar, more));
    *got = (size_t)more;
    return OK;
}

/* Reads more input for inflate, after what inflate has not used yet. */
static Status read_input(Source *s)
{
    size_t got = 0;
    /* Unused input moves to the front, so that one buffer is enough. */
    memmove(s->in, s->z.next_in, s->z.avail_in);
    TRY(read_file(s, s->in + s->z.avail_in, IN_BYTES - s->z.avail_in, &got));
    s->z.next_in = s->in;
    s->z.avail_in += (unsigned)got;
    return OK;
}

/* zlib allocates from an arena too. Nothing is freed before the arena is. */
static void *zlib_alloc(void *arena, unsigned n, unsigned each)
{
    void *at = NULL;
    if (arena_alloc(arena, (size_t)n * each, &at) != OK) return Z_NULL;
    return at;
}

static void zlib_free(void *arena, void *at)
{
    (void)arena;
    (void)at;
}

/* Opened without blocking, so that a pipe without a writer is an error after a while and not a
 * hang. */
Status source_open(Source *s, const char *path, Arena *a)
{
    struct stat st;
    *s = (Source){ .path = path, .fd = -1, .block = BLOCK_BYTES, .element_max = ELEMENT_BYTES_MAX };
    TRY(ARENA_NEW(a, IN_BYTES, &s->in));
    s->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (s->fd < 0 || fstat(s->fd, &st) != 0) return fail_errno(path, "opened");
    s->pipe = S_ISFIFO(st.st_mode);
    if (!s->pipe && !S_ISREG(st.st_mode))
        return FAIL(ERR_IO, "%s is neither a file nor a pipe: name a trace", path);
    if (s->pipe) TRY(file_wait_for_writer(s->fd, path));
    s->file_bytes = (uint64_t)st.st_size;
    TRY(read_file(s, s->in, IN_BYTES, &s->in_bytes));
    s->gzip = s->in_bytes >= 2 && s->in[0] == 0x1F && s->in[1] == 0x8B;
    /* The most that the text can be: columns reserve their addresses by it. */
    s->text_max = s->pipe ? UINT64_MAX : s->file_bytes * (s->gzip ? DEFLATE_RATIO : 1);
    if (s->text_max < BLOCK_BYTES) s->block = (size_t)s->text_max + 1; /* one block holds it all */
    if (!s->gzip) return OK;
    s->z = (z_stream){ .zalloc = zlib_alloc, .zfree = zlib_free, .opaque = a };
    s->z.next_in = s->in;
    s->z.avail_in = (unsigned)s->in_bytes;
    if (inflateInit2(&s->z, MAX_WBITS + 16) != Z_OK)
        return FAIL(ERR_MEMORY, "%s: zlib cannot start", path);
    return OK;
}

/* A text is a pipe that has been read already, so that no size is checked. */
void source_text(Source *s, const char *path, unsigned char *text, size_t bytes)
{
    *s = (Source){ .path = path,
                   .fd = -1,
                   .pipe = true,
                   .in_bytes = bytes,
                   .block = BLOCK_BYTES,
                   .element_max = ELEMENT_BYTES_MAX,
                   .text_max = bytes };
    s->in = text;
}

/* A text in memory has no file, and its bytes are the caller's. */
void source_close(Source *s)
{
    if (s->gzip) inflateEnd(&s->z);
    if (s->in != NULL && s->fd >= 0) close(s->fd);
    *s = (Source){ 0 };
}

Status source_check(const Source *s)
{
    struct stat st;
    if (s->pipe) return OK;
    if (fstat(s->fd, &st) != 0) return fail_errno(s->path, "read");
    if ((uint64_t)st.st_size != s->file_bytes)
        return FAIL(ERR_IO,
                    "%s changed from %llu to %llu bytes while it was read: wait until it is "
                    "written",
                    s->path, (unsigned long long)s->file_bytes, (unsigned long long)st.st_size);
    return OK;
}

/* Gives what source_open has read already, then reads straight into `out`. */
static Status read_plain(Source *s, char *out, size_t n, size_t *got)
{
    size_t have = s->in_bytes - s->in_used;
    if (have > n) have = n;
    memcpy(out, s->in + s->in_used, have);
    s->in_used += have;
    for (size_t more = 1; s->fd >= 0 && have < n && more > 0; have += more)
        TRY(read_file(s, out + have, n - have, &more));
    /* A read that gives less than asked for is the end. */
    s->ended = have < n;
    *got = have;
    return OK;
}

/* A gzip file may have several members, one after the other. Anything else after a member is
 * padding, as for gzip. */
static Status next_member(Source *s)
{
    if (s->z.avail_in < 2) TRY(read_input(s));
    s->ended = s->z.avail_in < 2 || s->z.next_in[0] != 0x1F || s->z.next_in[1] != 0x8B;
    inflateReset(&s->z);
    return OK;
}

static Status read_gzip(Source *s, char *out, size_t n, size_t *got)
{
    s->z.next_out = (unsigned char *)out;
    s->z.avail_out = (unsigned)n;
    while (s->z.avail_out > 0 && !s->ended) {
        if (s->z.avail_in == 0) TRY(read_input(s));
        int code = inflate(&s->z, Z_NO_FLUSH); /* without new input it still gives what it holds */
        if (code == Z_STREAM_END)
            TRY(next_member(s));
        else if (code == Z_BUF_ERROR)
            s->ended = s->cut = true;
        else if (code != Z_OK)
            return FAIL(ERR_FORMAT, "%s is a corrupt gzip file: %s, near byte %llu: copy it again",
                        s->path, s->z.msg != NULL ? s->z.msg : "no reason",
                        (unsigned long long)s->taken);
    }
    *got = n - s->z.avail_out;
    return OK;
}

Status source_read(Source *s, char *out, size_t n, size_t *got)
{
    *got = 0;
    if (s->ended) return OK;
    TRY(s->gzip ? read_gzip(s, out, n, got) : read_plain(s, out, n, got));
    s->given += *got;
    return OK;
}

/* Doubles the buffer as it reads, because a pipe or gzip does not tell its size. */
Status source_all(Source *s, Arena *a, uint8_t **out, size_t *bytes)
{
    int64_t room = 0;
    size_t n = 0;
    *out = NULL;
    for (size_t got = 1; got > 0; n += got) {
        TRY(ARENA_GROW(a, (int64_t)(n + IN_BYTES), &room, out));
        TRY(source_read(s, (char *)*out + n, IN_BYTES, &got));
    }
    *bytes = n;
    return source_check(s);
}
