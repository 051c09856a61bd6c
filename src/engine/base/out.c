/* out: checked writes to file descriptor 1. */
#include "engine/base/out.h"

#include "engine/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { REASON_BYTES = 128 };

/* open() returns the lowest free number, so each closed standard stream gets its own number back.
 * stdin and stdout are opened for reading only: writes to such a stdout still fail, as they should. */
void out_begin(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY);
    }
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN);
}

static Status cannot_write(void)
{
    char why[REASON_BYTES];
    if (errno == EPIPE) return ERR_CLOSED;
    return FAIL(ERR_DISK, "stdout: cannot write: %s", strerror_r(errno, why, sizeof why));
}

/* On a terminal a text could move the cursor or change its title; a file gets the bytes as they are. */
static Status write_visible(const char *data, size_t bytes)
{
    enum { PIECE = 1024 };
    char shown[4 * PIECE];
    for (size_t i = 0; i < bytes; i += PIECE) {
        size_t n =
            text_visible(shown, sizeof shown, data + i, bytes - i < PIECE ? bytes - i : PIECE);
        if (fd_write(STDOUT_FILENO, shown, n) != n) return cannot_write();
    }
    return OK;
}

Status out_write(const char *data, size_t bytes)
{
    if (isatty(STDOUT_FILENO)) return write_visible(data, bytes);
    return fd_write(STDOUT_FILENO, data, bytes) == bytes ? OK : cannot_write();
}

Status out_text(const Text *t) { return out_write(t->data, t->used); }

/* Network file systems report lost writes when a descriptor of the file is closed. This closes a copy,
 * so that no later open() gets number 1. */
Status out_end(void)
{
    int copy = dup(STDOUT_FILENO);
    return copy < 0 || close(copy) == 0 ? OK : cannot_write();
}
