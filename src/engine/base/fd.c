/* fd: the loop around write() and pwrite(), which may write less than asked or be interrupted by a signal. */
#include "engine/base/fd.h"

#include <errno.h>
#include <unistd.h>

/* at: where the bytes go; below 0: behind those that were written last. write() may also return 0, which would loop
 * forever; it counts as a refusal. */
static size_t write_all(int fd, const char *data, size_t bytes, off_t at)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = at < 0 ? write(fd, data + done, bytes - done)
                           : pwrite(fd, data + done, bytes - done, at + (off_t)done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        done += (size_t)n;
    }
    return done;
}

size_t fd_write(int fd, const void *data, size_t bytes) { return write_all(fd, data, bytes, -1); }

size_t fd_write_at(int fd, const void *data, size_t bytes, uint64_t offset)
{
    return write_all(fd, data, bytes, (off_t)offset);
}
