/* input: reads a file in pieces and hands them to zlib or zstd. */
#include "corpus/prepare/input.h"

#include "engine/base/text.h"

#define ZLIB_CONST /* its input is not written */

#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

enum { RAW_BYTES = 1 << 20, MAGIC_BYTES = 6, WINDOW_LOG_MAX = 31 };

/* What the first bytes of a file say. how: how to turn it into a file that is read. Compression is read,
 * but not a second time inside. */
typedef struct Magic {
    const char *bytes;
    size_t n;
    InputKind kind;
    const char *name, *how;
} Magic;

static const Magic MAGICS[] = {
    { "\x1F\x8B", 2, INPUT_GZIP, "gzip", "decompress it once" },
    { "\x28\xB5\x2F\xFD", 4, INPUT_ZSTD, "zstd", "decompress it once" },
    { "PAR1", 4, INPUT_PLAIN, "Parquet",
      "its index is at its end, so name a file, or the command \"cmd: ... | switchyard data "
      "parquet "
      "--field NAME /dev/stdin\"" },
    { "BZh", 3, INPUT_PLAIN, "bzip2", "name the command that reads it: \"cmd: bzip2 -dc FILE\"" },
    { "\xFD\x37zXZ", 5, INPUT_PLAIN, "xz", "name the command that reads it: \"cmd: xz -dc FILE\"" },
    { "\x04\x22\x4D\x18", 4, INPUT_PLAIN, "lz4",
      "name the command that reads it: \"cmd: lz4 -dc FILE\"" },
    { "\xFF\xFE\0\0", 4, INPUT_PLAIN, "UTF-32 text",
      "convert it: iconv -t UTF-8 -f UTF-32 IN > OUT" },
    { "\xFF\xFE", 2, INPUT_PLAIN, "UTF-16 text", "convert it: iconv -t UTF-8 -f UTF-16 IN > OUT" },
    { "\xFE\xFF", 2, INPUT_PLAIN, "UTF-16 text", "convert it: iconv -t UTF-8 -f UTF-16 IN > OUT" },
    { "PK\x03\x04", 4, INPUT_PLAIN, "a zip archive", "unpack it, and name the folder" },
};

/* pzstd and the seekable format begin with a frame to be skipped, of any of 16 magics. */
static bool is_skippable(const char *s, size_t n)
{
    return n >= 4 && ((unsigned char)s[0] & 0xF0) == 0x50 && memcmp(s + 1, "\x2A\x4D\x18", 3) == 0;
}

/* NULL: text, as far as the bytes tell. */
static const Magic *find_magic(const char *s, size_t n)
{
    for (const Magic *m = MAGICS; m < MAGICS + sizeof MAGICS / sizeof *MAGICS; m++) {
        if (n >= m->n && memcmp(s, m->bytes, m->n) == 0) return m;
    }
    return NULL;
}

/* Its rows come from the program beside this one that reads Parquet. */
static Status start_rows(Input *in, const InputHow *how)
{
    file_close(&in->file);
    in->rows = true;
    in->read = 0;
    in->raw_bytes = 0;
    if (how->field == NULL)
        return FAIL(
            ERR_FORMAT,
            "%s is Parquet, and only columns of it are read: write its lines with `switchyard "
            "data parquet --field NAME %s >%s.jsonl` (--field may be repeated)",
            in->path, in->path, in->path);
    TRY(ARENA_ZEROED(&in->arena, 1, &in->shell));
    return shell_start_rows(in->shell, in->path, how->field);
}

/* A name in .parquet is enough, since encrypted and cut off files have other bytes. */
static Status read_magic(Input *in, const InputHow *how)
{
    const Magic *m = find_magic(in->raw, in->raw_bytes);
    if (is_skippable(in->raw, in->raw_bytes)) in->kind = INPUT_ZSTD;
    if (m == NULL && text_ends(in->path, ".parquet")) m = find_magic("PAR1", 4);
    if (m == NULL) return OK;
    if (m == find_magic("PAR1", 4) && in->file.fd > 0 && !in->pipe) return start_rows(in, how);
    in->kind = m->kind;
    if (m->kind != INPUT_PLAIN) return OK;
    return FAIL(ERR_FORMAT, "%s is %s, which is not read: %s", in->path, m->name, m->how);
}

Status input_check_inside(const Input *in, const char *text, size_t bytes)
{
    const Magic *m = in->kind == INPUT_PLAIN ? NULL : find_magic(text, bytes);
    if (m == NULL) return OK;
    return FAIL(ERR_FORMAT, "%s holds %s, which is not read: %s", in->path, m->name, m->how);
}

/* More bytes of the file, after those that are in `raw` already. Only a pipe gives less than fits
 * before it ends. */
static Status read_raw(Input *in)
{
    size_t left = in->raw_bytes - in->raw_used, got = 0;
    if (in->room == NULL) return OK;
    if (left > 0) memmove(in->room, in->raw + in->raw_used, left);
    if (in->shell != NULL)
        TRY(shell_read(in->shell, in->room + left, RAW_BYTES - left, &got));
    else
        TRY(file_read_next(&in->file, in->room + left, RAW_BYTES - left, &got));
    in->raw = in->room;
    in->raw_bytes = left + got;
    in->raw_used = 0;
    in->read += (int64_t)got;
    return OK;
}

/* The libraries' own memory: about 40 KiB of zlib's, and of zstd's as much as the window of the stream
 * says: of a file at most 2 GiB (zstd --long=31), of bytes in memory 128 MiB. */
static Status begin_stream(Input *in)
{
    if (in->kind == INPUT_ZSTD) {
        in->stream = ZSTD_createDStream();
        if (in->stream != NULL && in->room != NULL)
            (void)ZSTD_DCtx_setParameter(in->stream, ZSTD_d_windowLogMax, WINDOW_LOG_MAX);
    } else if (in->kind == INPUT_GZIP) {
        z_stream *z = NULL;
        TRY(ARENA_ZEROED(&in->arena, 1, &z));
        if (inflateInit2(z, MAX_WBITS + 16) == Z_OK) in->stream = z;
    }
    if (in->kind != INPUT_PLAIN && in->stream == NULL)
        return FAIL(ERR_MEMORY, "%s: no memory to decompress it", in->path);
    return OK;
}

static Status begin_input(Input *in, const InputHow *how)
{
    TRY(read_magic(in, how));
    return begin_stream(in);
}

static Status open_input(Input *in, const InputHow *how)
{
    const bool command = shell_command(in->path) != NULL;
    TRY(arena_init(&in->arena, "input", MEM_HOST, (size_t)4 * RAW_BYTES));
    if (command) {
        TRY(ARENA_ZEROED(&in->arena, 1, &in->shell));
        TRY(shell_start(in->shell, in->path, how->wait_s > 0 ? how->wait_s : SHELL_WAIT_S));
    } else {
        TRY(file_open_input(&in->file, in->path));
    }
    TRY(ARENA_NEW(&in->arena, RAW_BYTES, &in->room));
    in->pipe = command || file_is_pipe(in->path);
    /* A pipe may give its first bytes one by one. */
    for (size_t before = SIZE_MAX; in->raw_bytes < MAGIC_BYTES && in->raw_bytes != before;) {
        before = in->raw_bytes;
        TRY(read_raw(in));
    }
    if (in->pipe && in->raw_bytes == 0)
        return FAIL(ERR_IO,
                    "%s is a pipe and holds nothing (a pipe is read only once): give a file",
                    in->path);
    return begin_input(in, how);
}

Status input_open(Input *in, const char *path, const InputHow *how)
{
    *in = (Input){ .path = path };
    Status s = open_input(in, how);
    if (s != OK) input_close(in);
    return s;
}

Status input_from_memory(Input *in, const char *name, const void *data, size_t bytes)
{
    *in = (Input){ .path = name, .raw = data, .raw_bytes = bytes, .read = (int64_t)bytes };
    Status s = arena_init(&in->arena, "input", MEM_HOST, RAW_BYTES);
    if (s == OK) s = begin_input(in, &(InputHow){ 0 });
    if (s != OK) input_close(in);
    return s;
}

void input_close(Input *in)
{
    if (in->kind == INPUT_ZSTD) ZSTD_freeDStream(in->stream);
    if (in->kind == INPUT_GZIP && in->stream != NULL) inflateEnd(in->stream);
    if (in->shell != NULL) shell_stop(in->shell);
    file_close(&in->file);
    arena_free(&in->arena);
    *in = (Input){ 0 };
}

/* ---- reading ---- */

static Status damaged(const Input *in, const char *why)
{
    return FAIL(ERR_FORMAT,
                "%s is damaged before byte %lld: %s: copy it again, or test it with %s -t",
                in->path, (long long)(in->read - (int64_t)(in->raw_bytes - in->raw_used)), why,
                in->kind == INPUT_GZIP ? "gzip" : "zstd");
}

/* One step of zlib: writes at most n bytes. Members follow each other without a gap, and zeros may
 * follow the last one, as on tapes. */
static Status inflate_some(Input *in, void *out, size_t n, size_t *got)
{
    z_stream *z = in->stream;
    size_t left = in->raw_bytes - in->raw_used;
    if (!in->inside && in->raw[in->raw_used] == '\0' && in->given > 0) {
        in->raw_used++;
        return OK;
    }
    if (!in->inside) (void)inflateReset(z);
    z->next_in = (const unsigned char *)in->raw + in->raw_used;
    z->avail_in = left < UINT32_MAX ? (uInt)left : UINT32_MAX;
    z->next_out = out;
    z->avail_out = n < UINT32_MAX ? (uInt)n : UINT32_MAX;
    size_t room = z->avail_out, before = z->avail_in;
    int result = inflate(z, Z_NO_FLUSH);
    in->raw_used += before - z->avail_in;
    in->inside = result != Z_STREAM_END;
    *got = room - z->avail_out;
    if (result == Z_MEM_ERROR) return FAIL(ERR_MEMORY, "%s: no memory to decompress it", in->path);
    if (result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR) return OK;
    return damaged(in, z->msg != NULL ? z->msg : "zlib gives no reason");
}

static Status unzstd_some(Input *in, void *out, size_t n, size_t *got)
{
    ZSTD_inBuffer from = { in->raw + in->raw_used, in->raw_bytes - in->raw_used, 0 };
    ZSTD_outBuffer to = { out, n, 0 };
    size_t result = ZSTD_decompressStream(in->stream, &to, &from);
    in->raw_used += from.pos;
    *got = to.pos;
    if (ZSTD_isError(result)) return damaged(in, ZSTD_getErrorName(result));
    in->inside = result != 0;
    return OK;
}

static Status copy_some(Input *in, void *out, size_t n, size_t *got)
{
    size_t left = in->raw_bytes - in->raw_used;
    *got = left < n ? left : n;
    if (*got > 0) memcpy(out, in->raw + in->raw_used, *got);
    in->raw_used += *got;
    return OK;
}

/* A decompressor may take bytes and give none, or give bytes that it held back and take none. */
Status input_read(Input *in, void *out, size_t n, size_t *got)
{
    static Status (*const STEP[])(Input *, void *, size_t, size_t *) = { copy_some, inflate_some,
                                                                         unzstd_some };
    *got = 0;
    while (n > 0 && *got == 0) {
        if (in->raw_used == in->raw_bytes) TRY(read_raw(in));
        bool ended = in->raw_used == in->raw_bytes;
        if (ended && !in->inside) return OK;
        TRY(STEP[in->kind](in, out, n, got));
        if (ended && *got == 0) return damaged(in, "it is cut off");
    }
    in->given += (int64_t)*got;
    return OK;
}

Status input_seek(Input *in, int64_t at)
{
    char piece[1 << 16];
    size_t got = 1;
    if (in->kind == INPUT_PLAIN && in->file.fd > 0 && !in->pipe) {
        if (lseek(in->file.fd, at, SEEK_SET) < 0)
            return FAIL(ERR_IO, "%s has no byte %lld", in->path, (long long)at);
        in->raw_used = in->raw_bytes = 0;
        in->read = in->given = at;
    }
    while (in->given < at && got > 0) {
        int64_t left = at - in->given;
        TRY(input_read(in, piece, left < (int64_t)sizeof piece ? (size_t)left : sizeof piece,
                       &got));
    }
    return OK;
}
