/* interrupt: one flag, set by a signal handler. */
#include "engine/base/interrupt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

/* sig_atomic_t, because a signal handler writes it. */
static volatile sig_atomic_t caught;
/* A pointer that a handler may read: it changes in one piece. */
static const char *_Atomic marked;
static long marked_at;

/* open, pwrite and close may be called in a handler. */
static void mark(const char *path)
{
    const int before = errno, fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && pwrite(fd, "1", 1, (off_t)marked_at) != 1) errno = before;
    if (fd >= 0) (void)close(fd);
    errno = before;
}

/* Restores the default action, so that a second signal ends the process at once. */
static void on_signal(int number)
{
    const char *path = atomic_load(&marked);
    caught = number;
    if (path != NULL) mark(path);
    (void)signal(number, SIG_DFL);
}

/* SA_RESTART: libraries that do not handle EINTR keep working. poll() returns EINTR nevertheless. */
void interrupt_catch(void)
{
    struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART }, before;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    /* nohup ignores SIGHUP, and that stays so */
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        sigaction(SIGHUP, &action, NULL);
    sigaction(SIGUSR2, &action, NULL);
}

void interrupt_mark(const char *path, long at)
{
    if (path != NULL) marked_at = at;
    atomic_store(&marked, path);
}

int interrupt_signal(void) { return caught; }
const volatile sig_atomic_t *interrupt_flag(void) { return &caught; }

Status interrupt_check(const char *left)
{
    return caught == 0 ? OK : FAIL(ERR_INTERRUPTED, "interrupted: %s", left);
}
