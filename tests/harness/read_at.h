/* read_at: bytes of a file, opened for it. */
#ifndef HARNESS_READ_AT_H
#define HARNESS_READ_AT_H

#include "engine/base/file.h"

static inline Status read_at(const char *path, uint64_t offset, void *out, size_t bytes)
{
    File f = { 0 };
    TRY(file_open_read(&f, path));
    Status s = file_read(&f, offset, out, bytes);
    file_close(&f);
    return s;
}

#endif
