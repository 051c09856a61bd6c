/* fd: writes to open descriptors, shared by files, the log and stdout. It knows no paths and no
 * buffers; those are in base/file.h. */
#ifndef BASE_FD_H
#define BASE_FD_H

#include <stddef.h>

/* Writes all bytes and returns how many the system accepted. If that is fewer, errno says why. Safe
 * in any thread; never touches the status record. */
size_t fd_write(int fd, const void *data, size_t bytes);

#endif
