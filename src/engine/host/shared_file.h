/* shared_file: a file that is mapped for writing. Its bytes outlive the process: in a tmpfs such as /dev/shm
 * they are memory that stays until the file is removed. */
#ifndef ENGINE_HOST_SHARED_FILE_H
#define ENGINE_HOST_SHARED_FILE_H

#include "engine/base/status.h"

#include <stddef.h>

typedef struct SharedFile {
    void *data; /* NULL: not open */
    size_t bytes;
} SharedFile;

/* Opens the file, or makes it for this user alone, with exactly so many bytes (at least one). All of them are
 * allocated here, so later writes do not fail for lack of room. ERR_DISK: there is no room, or the file
 * cannot be made. */
Status shared_file_open(SharedFile *f, const char *path, size_t bytes);
void shared_file_close(SharedFile *f); /* the file stays; safe on { 0 } */

#endif
