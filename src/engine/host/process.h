/* process: starts a command in a process group of its own, reads what it says, and ends it with all that it started.
 * It is the only file that starts a process. One thread uses a Process at a time. */
#ifndef ENGINE_HOST_PROCESS_H
#define ENGINE_HOST_PROCESS_H

#include "engine/base/arena.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { PROCESS_SAID_BYTES = 1 << 16, PROCESS_WORDS_MAX = 512 };

/* A command: words, the last NULL. */
typedef struct ProcessWords {
    const char *word[PROCESS_WORDS_MAX];
    int n;
} ProcessWords;

/* Appends a word, which the caller keeps. ERR_ARG: there are too many. */
Status process_word(ProcessWords *out, const char *word);
/* The file of this program, in `a`. */
Status process_self(Arena *a, const char **out);

/* Replaces this process by the program of that name that lies beside it, "switchyard-viz" for `name` viz
 * (tools/beside), which logs at this one's level. argv: its words, NULL last. Returns only if that fails. */
Status process_become(const char *name, char **argv);
/* The file of the program that became this one under that name, in `a`. ERR_ARG: this file's name does not end in it. */
Status process_before(const char *name, Arena *a, const char **out);

/* A running command, and the last half of PROCESS_SAID_BYTES or more of what it printed. */
typedef struct Process {
    pid_t pid;
    int fd;     /* its words come from here; -1: closed */
    int out;    /* with `piped` its stdout; -1: closed */
    int status; /* waitpid's, once it has ended */
    bool ended;
    bool shown; /* what it prints goes to our stderr as well */
    size_t used;
    char said[PROCESS_SAID_BYTES];
} Process;

typedef struct ProcessHow {
    bool own_stdout; /* its stdout is ours; else its stdout is read together with its stderr */
    bool shown;      /* as in Process */
    bool piped;      /* its stdout is Process.out */
    bool apart; /* it has the usual signals, and no terminal that it could ask for a password */
    int death_signal; /* what the kernel sends to it when this thread ends, even by SIGKILL; 0: nothing */
} ProcessHow;

/* Starts words[0], found in PATH, with words up to NULL. Its stdin is empty. ERR_ARG: it cannot be started; the sentence
 * begins with `who`. ERR_IO: there is no pipe or no process left. */
Status process_start(Process *p, const char *who, const char *const *words, const ProcessHow *how);

/* Waits up to wait_ms for words or the end of the command. Returns true once it has ended and all its words were
 * read. */
bool process_look(Process *p, int wait_ms);

/* Sends a signal to its process group. */
void process_signal(const Process *p, int signal);

/* Sends `signal` to its group, after grace_s seconds SIGKILL, and waits for its end. */
void process_end(Process *p, int signal, double grace_s);

/* The exit code, or 128 + the signal that ended it, as a shell has it. */
int process_code(const Process *p);

#endif
