/* shell: a command that stands where a path may stand, "cmd: COMMAND", and what it prints. bash runs it, with pipefail,
 * so that a failure anywhere in a pipeline is one of the command. Its stdin is empty and it has no terminal. Nothing that
 * it prints counts if it fails in the end: the reader of its last byte gets the failure and the end of its stderr.
 *
 * A command is code. Callers run only what the user typed, or what stands in a file and the user has allowed. */
#ifndef CORPUS_COMMAND_SHELL_H
#define CORPUS_COMMAND_SHELL_H

#include "engine/base/text.h"
#include "engine/host/process.h"

#include <stdint.h>

enum { SHELL_WAIT_S = 600 }; /* a usual deadline */

typedef struct Shell {
    const char
        *path;     /* "cmd: COMMAND" or a Parquet file, the caller's; NULL: nothing was started */
    double wait_s; /* so long without a byte, and it counts as hung */
    bool rows;     /* it is our program that reads Parquet */
    int64_t bytes; /* read so far */
    Process process;
} Shell;

/* COMMAND of "cmd: COMMAND"; NULL: it is a path. */
const char *shell_command(const char *path);

/* Prints the command to the log and starts it. ERR_ARG: there is no command, or no bash. */
Status shell_start(Shell *s, const char *path, double wait_s);

/* Starts `switchyard data parquet`, which prints the column of a file as JSON lines. Its failure is ERR_FORMAT with its own
 * sentence. ERR_ARG: it does not lie beside this program. */
Status shell_start_rows(Shell *s, const char *file, const char *field);

/* The place of a path in a command: "{folder}" becomes the path. ERR_ARG: the command has no {folder}, or the path has a
 * character that a shell does not take as it is. */
Status shell_fill(const char *command, const char *folder, Text *out);

/* Prints a command to the log and starts it beside what the program does; all that it prints is in `process`, which the
 * caller looks at. */
Status shell_start_beside(Shell *s, const char *command);
/* The last lines of what it said, joined; "nothing". */
enum { SHELL_TAIL_BYTES = 600 };
const char *shell_tail(const Shell *s, char out[SHELL_TAIL_BYTES]);

/* ERR_IO: "the command "..." HOW after N bytes; its stderr ends with: ...". */
Status shell_failed(const Shell *s, const char *how);

/* Up to n bytes of its stdout; *got is 0 at the end of a command that succeeded, alone. ERR_IO: it failed, printed
 * nothing at all, or hung; ERR_INTERRUPTED. */
Status shell_read(Shell *s, void *out, size_t n, size_t *got);

void shell_stop(Shell *s); /* ends it with all that it started; safe on { 0 } */

#endif
