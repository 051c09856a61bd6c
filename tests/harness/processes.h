/* processes: the ranks of a program that mpirun started, one by one. */
#ifndef TESTS_HARNESS_PROCESSES_H
#define TESTS_HARNESS_PROCESSES_H

#include "harness/run_folder.h"

static inline bool process_is_rank(long pid, int rank)
{
    char path[64], want[64], environment[1 << 15];
    snprintf(path, sizeof path, "/proc/%ld/environ", pid);
    int n = snprintf(want, sizeof want, "OMPI_COMM_WORLD_RANK=%d", rank) + 1;
    FILE *f = fopen(path, "r");
    if (f == NULL) return false;
    size_t bytes = fread(environment, 1, sizeof environment, f);
    fclose(f);
    return memmem(environment, bytes, want, (size_t)n) != NULL; /* with its zero */
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
