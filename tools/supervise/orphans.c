/* orphans: read from /proc, since a launcher's ranks have process groups of their own. */
#include "supervise/orphans.h"

#include "engine/base/clock.h"
#include "engine/host/cgroup.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOOK_MS = 50 };

/* /proc/PID/stat: "PID (NAME) STATE PARENT ..."; a name may have parentheses. */
static bool is_unreaped(pid_t pid, pid_t parent)
{
    char folder[64], line[CGROUP_FILE_BYTES];
    (void)snprintf(folder, sizeof folder, "/proc/%d", (int)pid);
    const char *end = cgroup_read(folder, "stat", line) ? strrchr(line, ')') : NULL;
    return end != NULL && strncmp(end, ") Z ", 4) == 0 && strtol(end + 4, NULL, 10) == parent;
}

pid_t orphans_unreaped(pid_t launcher)
{
    pid_t found = 0;
    DIR *d = opendir("/proc");
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): the stream is this call's own */
    for (struct dirent *e; d != NULL && found == 0 && (e = readdir(d)) != NULL;) {
        const pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
        if (pid > 1 && is_unreaped(pid, launcher)) found = pid;
    }
    if (d != NULL) (void)closedir(d);
    return found;
}

void orphans_adopt(void) { (void)prctl(PR_SET_CHILD_SUBREAPER, 1); }

/* Kills and waits for one child; false: there is none. */
static bool kill_child(void)
{
    char folder[64], line[CGROUP_FILE_BYTES] = "", *end = line;
    (void)snprintf(folder, sizeof folder, "/proc/self/task/%d", (int)gettid());
    (void)cgroup_read(folder, "children", line);
    const pid_t pid = (pid_t)strtol(line, &end, 10);
    return end != line && kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid;
}

/* The end of one may leave its own children here. */
int orphans_end(double grace_s)
{
    const double end_s = clock_s() + grace_s;
    pid_t pid;
    int killed = 0;
    while ((pid = waitpid(-1, NULL, WNOHANG)) >= 0 && clock_s() < end_s)
        if (pid == 0) (void)poll(NULL, 0, LOOK_MS);
    while (kill_child()) killed++;
    return killed;
}
