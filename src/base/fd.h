/* fd: writes to open descriptors, shared by files, the log and stdout. Paths and buffers are file.h's. */
#ifndef BASE_FD_H
#define BASE_FD_H

#include <stddef.h>

/* Bytes that the system took before it refused; errno says why it did if that is not all. */
size_t fd_write(int fd, const void *data, size_t bytes);

#endif
