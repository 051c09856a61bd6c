/* out: the one place that writes to stdout. Every write is checked, so no result is lost in silence.
 * Nothing is buffered. A reader that goes away (`switchyard plan ... | head`) is not a failure: the
 * write returns ERR_CLOSED, and the program ends quietly with exit code 0. */
#ifndef ENGINE_BASE_OUT_H
#define ENGINE_BASE_OUT_H

#include "engine/base/text.h"

/* Called first by main. A closed standard stream is replaced by /dev/null, so that no file gets its
 * number. SIGPIPE and SIGXFSZ are ignored: writing to a closed pipe returns ERR_CLOSED, and a file
 * that reaches a limit of its size (ulimit -f) is a failed write like a full disk. */
void out_begin(void);

/* On a terminal, control characters are shown as \xNN. ERR_DISK: "stdout: cannot write: No space left on device". ERR_CLOSED: the reader is gone; the
 * record of the last failure stays as it is. No bytes at all always succeed. */
Status out_write(const char *data, size_t bytes);
Status out_text(const Text *t);

/* Called last by main. Reports errors that a file system reports only when a file is closed. */
Status out_end(void);

#endif
