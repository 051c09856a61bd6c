/* interrupt: one flag, set by a signal handler. */
#include "base/interrupt.h"

#include <stddef.h>

/* sig_atomic_t, because a signal handler writes it. */
static volatile sig_atomic_t caught;

/* Restores the default action, so that a second signal ends the process at once. */
static void on_signal(int number)
{
    caught = number;
    (void)signal(number, SIG_DFL);
}

/* SA_RESTART: libraries that do not handle EINTR keep working. poll() returns EINTR nevertheless. */
void interrupt_catch(void)
{
    struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGUSR2, &action, NULL);
}

int interrupt_signal(void) { return caught; }
const volatile sig_atomic_t *interrupt_flag(void) { return &caught; }

Status interrupt_check(const char *left)
{
    return caught == 0 ? OK : FAIL(ERR_INTERRUPTED, "interrupted: %s", left);
}
