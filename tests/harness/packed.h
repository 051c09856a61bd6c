/* packed: the whole bytes of a golden file, which is stored compressed: NAME.zst, made by tools/golden_file.py.
 * `zstdcat FILE` shows one to people. A program unpacks each file once, however many of its tests ask. */
#ifndef TESTS_HARNESS_PACKED_H
#define TESTS_HARNESS_PACKED_H

#include "harness/test.h"

#include "engine/base/file.h"

#include <assert.h>
#include <pthread.h>
#include <zstd.h>

typedef struct Packed {
    const char *text; /* a NUL follows the bytes */
    size_t bytes;
} Packed;

typedef struct PackedFile {
    char path[FILE_PATH_MAX];
    Packed whole;
    struct PackedFile *next;
} PackedFile;

/* The size is in the frame's head, and a sum of the bytes behind them. */
static inline Status packed_unpack(const char *path, Packed *out)
{
    FileMap map = { 0 };
    TRY(file_map(path, &map));
    unsigned long long bytes = ZSTD_getFrameContentSize(map.data, map.bytes);
    bool known = bytes != ZSTD_CONTENTSIZE_ERROR && bytes != ZSTD_CONTENTSIZE_UNKNOWN;
    char *text = known ? malloc((size_t)bytes + 1) : NULL;
    size_t got = text != NULL ? ZSTD_decompress(text, (size_t)bytes, map.data, map.bytes) : 0;
    file_unmap(&map);
    if (text == NULL || got != bytes) {
        free(text);
        return FAIL(ERR_FORMAT, "%s: %s", path,
                    ZSTD_isError(got) ? ZSTD_getErrorName(got)
                                      : "tools/golden_file.py did not make it");
    }
    text[got] = '\0';
    *out = (Packed){ text, got };
    return OK;
}

/* What comes back lives as long as the program, and all who ask share it. */
static inline Packed packed_read(const char *path)
{
    static PackedFile *files;
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    Status s = OK;
    (void)pthread_mutex_lock(&lock);
    PackedFile *f = files;
    while (f != NULL && strcmp(f->path, path) != 0) f = f->next;
    if (f == NULL) {
        f = calloc(1, sizeof *f);
        assert(f != NULL && strlen(path) < sizeof f->path);
        (void)snprintf(f->path, sizeof f->path, "%s", path);
        s = packed_unpack(path, &f->whole);
        f->next = files;
        files = f;
    }
    (void)pthread_mutex_unlock(&lock);
    if (s != OK) fail_msg("%s", status_message());
    return f->whole;
}

#endif
