/* fd: writes to open descriptors, shared by files, the log and stdout. It knows no paths and no
 * buffers; those are in engine/base/file.h. */
#ifndef ENGINE_BASE_FD_H
#define ENGINE_BASE_FD_H

#include <stddef.h>
#include <stdint.h>

/* Writes all bytes and returns how many the system accepted. If that is fewer, errno says why. Safe
 * in any thread; never touches the status record. */
size_t fd_write(int fd, const void *data, size_t bytes);
/* The same from a place of the file on; the offset of the next fd_write stays. */
size_t fd_write_at(int fd, const void *data, size_t bytes, uint64_t offset);

#endif
