/* processes: the ranks of a program that mpirun started, one by one. */
#ifndef TESTS_HARNESS_PROCESSES_H
#define TESTS_HARNESS_PROCESSES_H

#include "harness/run_folder.h"

/* Is this text, NAME=VALUE, in its environment? */
static inline bool process_has(long pid, const char *want)
{
    char path[64], environment[1 << 15];
    snprintf(path, sizeof path, "/proc/%ld/environ", pid);
    FILE *f = fopen(path, "r");
    if (f == NULL) return false;
    size_t bytes = fread(environment, 1, sizeof environment, f);
    fclose(f);
    return memmem(environment, bytes, want, strlen(want) + 1) != NULL; /* with its zero */
}

static inline bool process_is_rank(long pid, int rank)
{
    char want[64];
    snprintf(want, sizeof want, "OMPI_COMM_WORLD_RANK=%d", rank);
    return process_has(pid, want);
}

/* Waits until mpirun has started it; 0: it has ended. */
static inline pid_t rank_pid(Child *mpirun, int rank)
{
    char path[64], line[512] = "";
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)mpirun->pid, (int)mpirun->pid);
    for (; child_runs(mpirun); child_sleep()) {
        FILE *f = fopen(path, "r");
        char *at = f == NULL ? NULL : fgets(line, sizeof line, f), *end = NULL;
        if (f != NULL) fclose(f);
        for (; at != NULL; at = end) {
            long pid = strtol(at, &end, 10);
            if (end == at) break;
            if (process_is_rank(pid, rank)) return (pid_t)pid;
        }
    }
    return 0;
}

#endif
