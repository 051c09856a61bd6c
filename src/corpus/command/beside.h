/* beside: a command that is run for folders as they are finished, one at a time, beside what the program does. Its end is
 * a line of a journal, and a warning if it failed. */
#ifndef CORPUS_COMMAND_BESIDE_H
#define CORPUS_COMMAND_BESIDE_H

#include "corpus/command/shell.h"
#include "engine/base/file.h"

typedef struct Beside {
    const char *name, *command; /* of the setting; the command has {folder} */
    int64_t running, waiting;   /* steps; -1: none */
    char folder[FILE_PATH_MAX]; /* of the one that waits */
    double start_s;
    Shell shell;
    Text filled, line; /* of the one that runs, in `room` */
    Arena room;
    File journal;
} Beside;

/* `folder`: one that holds the folders to come. ERR_ARG: as shell_fill. */
Status beside_open(Beside *b, const char *name, const char *command, const char *folder,
                   const char *journal);
/* Runs it for a folder as soon as none runs. One that waits already is left out with a warning. */
Status beside_add(Beside *b, int64_t step, const char *folder);
/* Notes the end of the one that runs, for which it waits up to wait_ms, and starts the one that waits. */
Status beside_look(Beside *b, int wait_ms);
/* Waits for all; what has not ended after wait_s is ended, with a warning. */
Status beside_finish(Beside *b, double wait_s);
void beside_close(Beside *b); /* ends what runs; safe on { 0 } */

#endif
