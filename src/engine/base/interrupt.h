/* interrupt: lets Ctrl-C, SIGTERM, SIGHUP (a lost terminal) and SIGUSR2, which mpirun passes on, end a command
 * cleanly. After interrupt_catch the first signal sets a flag. Loops poll it through interrupt_check(), which
 * returns an error: temporary files are removed and the program ends with one sentence and exit code 130. A
 * second signal ends it at once. Commands that never call interrupt_catch end at the first signal. */
#ifndef ENGINE_BASE_INTERRUPT_H
#define ENGINE_BASE_INTERRUPT_H

#include "engine/base/status.h"

#include <signal.h>

void interrupt_catch(void);

/* The signal that was caught, 0 if none. The pointer is for code that takes the flag's address. */
int interrupt_signal(void);
const volatile sig_atomic_t *interrupt_flag(void);

/* From now on the handler of the first signal writes the character 1 at `at` into the file, even where this process
 * hangs in a library. The path must last until it is NULL again: then nothing is written. */
void interrupt_mark(const char *path, long at);

/* OK, or ERR_INTERRUPTED if a signal was caught. The sentence is "interrupted: " followed by `left`,
 * which says what is on disk now: "nothing was written". */
Status interrupt_check(const char *left);

#endif
