#include "engine/host/shared_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

static Status cannot_make(const char *path, size_t bytes, int why)
{
    char text[128];
    return FAIL(ERR_DISK, "%s cannot be made with %zu bytes: %s", path, bytes,
                strerror_r(why, text, sizeof text));
}

/* A tmpfs gives up when a signal comes, and takes back what it had allocated. */
static int allocate(int fd, size_t bytes)
{
    int why = EINTR;
    while (why == EINTR) why = posix_fallocate(fd, 0, (off_t)bytes);
    return why;
}

Status shared_file_open(SharedFile *f, const char *path, size_t bytes)
{
    int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return cannot_make(path, bytes, errno);
    int why = ftruncate(fd, (off_t)bytes) == 0 ? allocate(fd, bytes) : errno;
    void *at = MAP_FAILED;
    if (why == 0) {
        /* so that the first write takes no page faults */
        at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
        if (at == MAP_FAILED) why = errno;
    }
    close(fd);
    if (why != 0) return cannot_make(path, bytes, why);
    *f = (SharedFile){ at, bytes };
    return OK;
}

void shared_file_close(SharedFile *f)
{
    if (f->data == NULL) return;
    munmap(f->data, f->bytes);
    *f = (SharedFile){ 0 };
}
