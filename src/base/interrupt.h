/* interrupt: Ctrl-C and SIGTERM end a command in order. After interrupt_catch the first signal sets a
 * flag. Loops look at it and return interrupt_check(), so temporary files go, and the program ends
 * with one sentence and 130. The second signal ends it at once. Other commands end at the first. */
#ifndef BASE_INTERRUPT_H
#define BASE_INTERRUPT_H

#include "base/status.h"

#include <signal.h>

void interrupt_catch(void);

/* The signal that came, 0 if none did. The pointer is for code that is told where to look. */
int interrupt_signal(void);
const volatile sig_atomic_t *interrupt_flag(void);

/* OK, or ERR_INTERRUPTED if a signal came. Its sentence is "interrupted: " and `left`, which says
 * what is on disk now: "nothing was written". */
Status interrupt_check(const char *left);

#endif
