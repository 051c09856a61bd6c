/* out: the one place that writes to stdout. Every write is checked, so no result is lost in silence.
 * Nothing is buffered. A reader that goes away (`switchyard plan ... | head`) is no failure: the write
 * gives ERR_CLOSED, for which the program ends quietly with 0. */
#ifndef BASE_OUT_H
#define BASE_OUT_H

#include "base/text.h"

/* At the program's start. A standard stream that is closed gets a place holder, so that no file takes
 * its number. Writes to a reader that is gone become ERR_CLOSED instead of a deadly signal. */
void out_begin(void);

/* ERR_DISK: "stdout: cannot write: No space left on device". ERR_CLOSED: the reader is gone; the
 * record of the last failure stays as it is. No bytes at all always succeed. */
Status out_write(const char *data, size_t bytes);
Status out_text(const Text *t);

/* At the program's end: what a file system says only when a file is closed. */
Status out_end(void);

#endif
