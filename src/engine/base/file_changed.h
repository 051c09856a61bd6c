/* file_changed: files that change while they are mapped.
 *
 * Reading a map beyond the end of its file raises SIGBUS, which ends a process without a word. After
 * file_changed_catch, a handler puts pages of zeros there instead and remembers the file. So the reader
 * goes on with zeros, and must ask before it believes what it read: for a file that is read for long
 * with a stamp, for all others once at the end of the command (file_changed_check).
 *
 * A stamp also sees a file that was overwritten in place. A file that was removed or replaced under its
 * name is no change: the map keeps the old one. */
#ifndef ENGINE_BASE_FILE_CHANGED_H
#define ENGINE_BASE_FILE_CHANGED_H

#include "engine/base/status.h"

#include <stddef.h>
#include <stdint.h>

/* Installs the handler of SIGBUS. For main. */
void file_changed_catch(void);

/* Guards a map; file_map and file_unmap call these. Beyond 256 maps at a time, more are not guarded. */
void file_changed_guard(const void *at, size_t bytes, const char *path);
void file_changed_unguard(const void *at);

/* The reader of this map compares a stamp: file_changed_check need not speak of it. */
void file_changed_stamped(const void *at);

/* ERR_CHANGED if a guarded file lost its end while this process read it. The sentence names the first
 * one. */
Status file_changed_check(void);

/* What a file is like at one time. Zeroed: there was none. */
typedef struct FileStamp {
    uint64_t device, inode, bytes;
    int64_t changed_s, changed_ns;
} FileStamp;

void file_stamp(const char *path, FileStamp *out);
/* ERR_CHANGED: the file of that name is still the same one, but it was written to or cut. */
Status file_stamp_check(const char *path, const FileStamp *then);

#endif
