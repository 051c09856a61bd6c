/* hosts: the words of a launcher as hosts and ranks, and a launcher's words for other hosts.
 *
 * Words stay as they are until a host is left out. Then those that name hosts and counts are replaced:
 * mpirun gets --host a:2,c:2 -n 4, srun --nodelist=a,c -N 2 -n 4. */
#ifndef SUPERVISE_SUPERVISE_HOSTS_H
#define SUPERVISE_SUPERVISE_HOSTS_H

#include "engine/host/process.h"
#include "supervise/rules.h"

enum { LAUNCH_HOSTS_MAX = 4096 };

typedef enum LaunchKind { LAUNCH_RANKS, LAUNCH_MPIRUN, LAUNCH_SRUN } LaunchKind;

typedef enum LaunchUse { LAUNCH_USED, LAUNCH_SPARE, LAUNCH_OUT } LaunchUse;

typedef struct LaunchHost {
    const char *name;
    int slots; /* ranks that it takes */
    int failures;
    bool bare; /* of a hostfile that does not say slots */
    LaunchUse use;
} LaunchHost;

typedef struct Launch {
    LaunchKind kind;
    ProcessWords words; /* as given */
    ProcessWords rest;  /* without what names hosts and counts */
    int ranks;          /* of the run; 0: the launcher decides */
    bool changed;       /* hosts or ranks are not those of the words */
    LaunchHost *host;
    int n_hosts;
} Launch;

/* Reads `--ranks N` or the words of mpirun, mpiexec, orterun, prterun or srun, and the spare hosts ("c,d", NULL:
 * none). ERR_ARG: no words, another command, a number that is none, a list with brackets. ERR_IO: a hostfile. */
Status launch_read(const char *const *words, int n, const char *spare, Arena *a, Launch *out);

/* Takes the hosts of the ranks that came, if the words name none. */
Status launch_learn(Launch *l, const RankBeat *rank, int n, Arena *a);

/* The host of this name in use; also by the part before its first dot. NULL: none. */
LaunchHost *launch_host(const Launch *l, const char *name);

/* Leaves a host out. A spare one takes its ranks; else the run has fewer. Returns the host that came, or NULL. */
LaunchHost *launch_leave_out(Launch *l, LaunchHost *host);

/* Appends the launcher's words; nothing for --ranks, which comes behind the command. */
Status launch_words(const Launch *l, Arena *a, ProcessWords *out);

#endif
