/* fd: the loops around write() and pwrite(), which may write less than asked or be interrupted by a signal. */
#include "base/fd.h"

#include <errno.h>
#include <unistd.h>

/* write() may also return 0, which would loop forever; it counts as a refusal. */
size_t fd_write(int fd, const void *data, size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = write(fd, (const char *)data + done, bytes - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        done += (size_t)n;
    }
    return done;
}

size_t fd_write_at(int fd, const void *data, size_t bytes, uint64_t offset)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = pwrite(fd, (const char *)data + done, bytes - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        done += (size_t)n;
    }
    return done;
}
