/* process: fork and exec. posix_spawn cannot ask for a signal at the parent's death. */
#include "engine/host/process.h"

#include "engine/base/clock.h"
#include "engine/base/fd.h"
#include "engine/base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOOK_MS = 50, CHILDREN_BYTES = 4096 };

Status process_word(ProcessWords *out, const char *word)
{
    if (out->n + 1 >= PROCESS_WORDS_MAX)
        return FAIL(ERR_ARG, "a command has more than %d words: it begins with %s",
                    PROCESS_WORDS_MAX - 1, out->word[0]);
    out->word[out->n++] = word;
    out->word[out->n] = NULL;
    return OK;
}

Status process_self(Arena *a, const char **out)
{
    char path[4096];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path);
    if (n <= 0) return FAIL(ERR_IO, "the program's own file cannot be found: is /proc mounted?");
    return arena_text(a, path, (size_t)n, out);
}

Status process_become(const char *name, char **argv)
{
    static const char *const levels[] = { "error", "warn", "info", "debug" };
    char path[4096 + 64], why[128];
    const ssize_t n = readlink("/proc/self/exe", path, 4096);
    (void)snprintf(path + (n > 0 ? n : 0), 64, "-%s", name);
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): a command has only one thread yet */
    (void)setenv("SWITCHYARD_LOG", levels[log_level()], 1);
    (void)execv(path, argv);
    return FAIL(ERR_IO, "%s cannot be started: %s; it belongs beside this program", path,
                strerror_r(errno, why, sizeof why));
}

/* The child's half, up to exec. Only calls that are safe after a fork of a process with threads. Its failure goes
 * through `failed`, which exec closes. */
static void become(const char *const *words, const ProcessHow *how, pid_t parent, int said,
                   int failed)
{
    const int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    bool ready = in >= 0 && setpgid(0, 0) == 0 && dup2(in, 0) == 0 && dup2(said, 2) == 2;
    ready = ready && (how->own_stdout || dup2(said, 1) == 1);
    ready = ready && (how->death_signal == 0 || prctl(PR_SET_PDEATHSIG, how->death_signal) == 0);
    /* the parent may have died before prctl */
    if (ready && getppid() == parent) {
        union {
            const char *const *words;
            char *const *argv; /* exec's old type, without const */
        } as = { words };
        (void)execvp(words[0], as.argv);
    }
    const int why = errno;
    (void)fd_write(failed, &why, sizeof why);
    _exit(127);
}

/* Waits until exec has closed the pipe, or reads why it failed. */
static int exec_failure(int fd)
{
    int why = 0;
    ssize_t n;
    do n = read(fd, &why, sizeof why);
    while (n < 0 && errno == EINTR);
    (void)close(fd);
    return n == sizeof why ? why : 0;
}

Status process_start(Process *p, const char *who, const char *const *words, const ProcessHow *how)
{
    char why[128];
    int said[2] = { -1, -1 }, failed[2] = { -1, -1 };
    const pid_t parent = getpid();
    const bool pipes = pipe2(said, O_CLOEXEC) == 0 && pipe2(failed, O_CLOEXEC) == 0;
    p->pid = pipes ? fork() : -1;
    const int reason = errno;
    if (p->pid == 0) become(words, how, parent, said[1], failed[1]);
    if (said[1] >= 0) (void)close(said[1]);
    if (failed[1] >= 0) (void)close(failed[1]);
    if (p->pid < 0) {
        if (said[0] >= 0) (void)close(said[0]);
        if (failed[0] >= 0) (void)close(failed[0]);
        return FAIL(ERR_IO, "%s has no pipe or no process for %s: %s", who, words[0],
                    strerror_r(reason, why, sizeof why));
    }
    const int refused = exec_failure(failed[0]);
    p->fd = said[0];
    p->ended = false;
    p->shown = how->shown;
    p->used = 0;
    p->said[0] = '\0';
    if (refused == 0) return OK;
    (void)close(p->fd);
    (void)waitpid(p->pid, &p->status, 0);
    return FAIL(ERR_ARG, "%s cannot start %s: %s", who, words[0],
                strerror_r(refused, why, sizeof why));
}

/* Keeps the second half where there is no room for more. */
static void read_more(Process *p)
{
    const size_t most = sizeof p->said - 1;
    if (p->used == most) {
        p->used = most / 2;
        memmove(p->said, p->said + most - p->used, p->used);
    }
    ssize_t n = read(p->fd, p->said + p->used, most - p->used);
    if (n > 0 && p->shown) (void)fd_write(STDERR_FILENO, p->said + p->used, (size_t)n);
    if (n > 0) p->used += (size_t)n;
    /* poll would say again and again that there is something to read */
    const bool lost = n < 0 && errno != EINTR;
    char why[128];
    if (lost)
        log_warn("what process %ld prints cannot be read: %s", (long)p->pid,
                 strerror_r(errno, why, sizeof why));
    if (n == 0 || lost) (void)close(p->fd), p->fd = -1;
    p->said[p->used] = '\0';
}

/* What it wrote before its end is still in the pipe, which others may hold open. */
bool process_look(Process *p, int wait_ms)
{
    p->ended = p->ended || waitpid(p->pid, &p->status, WNOHANG) == p->pid;
    struct pollfd look = { p->fd, POLLIN, 0 }; /* waits also where the pipe is closed */
    bool more = poll(&look, 1, p->ended ? 0 : wait_ms) > 0;
    if (more) read_more(p);
    if (!p->ended || more) return false;
    if (p->fd >= 0) (void)close(p->fd);
    p->fd = -1;
    return true;
}

void process_signal(const Process *p, int signal) { (void)kill(-p->pid, signal); }

void process_end(Process *p, int signal, double grace_s)
{
    const double end_s = clock_s() + grace_s;
    process_signal(p, signal);
    while (!process_look(p, LOOK_MS) && clock_s() < end_s) {}
    process_signal(p, SIGKILL);
    if (!p->ended) p->ended = waitpid(p->pid, &p->status, 0) == p->pid;
    while (p->fd >= 0 && !process_look(p, 0)) {}
}

int process_code(const Process *p)
{
    return WIFEXITED(p->status) ? WEXITSTATUS(p->status) : 128 + WTERMSIG(p->status);
}

/* /proc/PID/stat: "PID (NAME) STATE PARENT ..."; a name may have parentheses. */
static bool is_unreaped(pid_t pid, pid_t parent)
{
    char path[64], line[512];
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? 0 : read(fd, line, sizeof line - 1);
    if (fd >= 0) (void)close(fd);
    line[n < 0 ? 0 : n] = '\0';
    const char *end = strrchr(line, ')');
    return end != NULL && strncmp(end, ") Z ", 4) == 0 && strtol(end + 4, NULL, 10) == parent;
}

pid_t process_unreaped(const Process *p)
{
    pid_t found = 0;
    DIR *d = p->ended ? NULL : opendir("/proc");
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): the stream is this call's own */
    for (struct dirent *e; d != NULL && found == 0 && (e = readdir(d)) != NULL;) {
        const pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
        if (pid > 1 && is_unreaped(pid, p->pid)) found = pid;
    }
    if (d != NULL) (void)closedir(d);
    return found;
}

void process_adopt(void) { (void)prctl(PR_SET_CHILD_SUBREAPER, 1); }

/* Kills and waits for one child; false: there is none. */
static bool kill_child(void)
{
    char path[64], line[CHILDREN_BYTES];
    (void)snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)gettid());
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? 0 : read(fd, line, sizeof line - 1);
    if (fd >= 0) (void)close(fd);
    line[n < 0 ? 0 : n] = '\0';
    char *end = line;
    const pid_t pid = (pid_t)strtol(line, &end, 10);
    return end != line && kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid;
}

/* The end of one may leave its own children here. */
int process_end_adopted(double grace_s)
{
    const double end_s = clock_s() + grace_s;
    pid_t pid;
    int killed = 0;
    while ((pid = waitpid(-1, NULL, WNOHANG)) >= 0 && clock_s() < end_s)
        if (pid == 0) (void)poll(NULL, 0, LOOK_MS);
    while (kill_child()) killed++;
    return killed;
}
