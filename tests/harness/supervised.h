/* supervised: a run under `switchyard supervise`: its process, those of one rank or one host of it, its journal. */
#ifndef TESTS_HARNESS_SUPERVISED_H
#define TESTS_HARNESS_SUPERVISED_H

#include "harness/processes.h"

#include <dirent.h>

/* What the supervisor started: a training or a launcher; 0: the supervisor has ended. */
static inline pid_t supervised_pid(Child *supervise)
{
    char path[64];
    int pid = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)supervise->pid,
             (int)supervise->pid);
    while (pid == 0 && child_runs(supervise)) {
        FILE *f = fopen(path, "r");
        if (f != NULL && fscanf(f, "%d", &pid) != 1) pid = 0;
        if (f != NULL) fclose(f);
        if (pid == 0) child_sleep();
    }
    return (pid_t)pid;
}

/* Sends a signal to all processes whose environment has both texts; how many there were. */
static inline int signal_processes(const char *a, const char *b, int signal)
{
    DIR *d = opendir("/proc");
    int n = 0;
    CHECK(d != NULL);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        long pid = strtol(e->d_name, NULL, 10);
        if (pid <= 1 || !process_has(pid, a) || !process_has(pid, b)) continue;
        n += kill((pid_t)pid, signal) == 0;
    }
    closedir(d);
    return n;
}

static inline const char *run_journal(Lab *lab, const char *cell)
{
    const char *path = lab_path(lab, "%s/run/journal.jsonl", cell);
    return file_exists(path) ? lab_read(lab, path, NULL) : "";
}

static inline int text_count(const char *text, const char *part)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at++) n++;
    return n;
}

/* Hosts on one machine: names of their own (UTS namespaces), MPI over TCP on the loopback device. The script is what
 * ssh would be. With LAB_HIDE=hb in the environment host hb has an empty run folder of its own. False: namespaces cannot
 * be made here. */
static inline bool make_hosts(Lab *lab)
{
    const char *path = lab_path(lab, "enter");
    lab_write_text(lab, path,
                   "#!/bin/sh\n"
                   "export LAB_HOST=$1:$LAB\n"
                   "shift\n"
                   "hide=\n"
                   "[ \"${LAB_HOST%%:*}\" = \"$LAB_HIDE\" ] && hide='mount -t tmpfs none run;'\n"
                   "exec unshare --uts --mount sh -c \"hostname ${LAB_HOST%%:*}; $hide $*\"\n");
    CHECK(chmod(path, 0755) == 0);
    return system("unshare --uts --mount hostname x 2>/dev/null") == 0;
}

#define ON_HOSTS(hosts)                                                                            \
    "mpirun", "--oversubscribe", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo",  \
        "--mca", "oob_tcp_if_include", "lo", "--mca", "plm_rsh_agent", "../enter", "--host",       \
        (hosts)

#endif
