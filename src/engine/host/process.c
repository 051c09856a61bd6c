/* process: fork and exec. posix_spawn cannot ask for a signal at the parent's death. */
#include "engine/host/process.h"

#include "engine/base/clock.h"
#include "engine/base/fd.h"
#include "engine/base/log.h"

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

enum { LOOK_MS = 50 };

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
    char *word = argv[0];
    argv[0] = path; /* so that lists of processes name the program */
    (void)execv(path, argv);
    argv[0] = word;
    return FAIL(ERR_IO, "%s cannot be started: %s; it belongs in the folder of this program", path,
                strerror_r(errno, why, sizeof why));
}

Status process_before(const char *name, Arena *a, const char **out)
{
    const char *self = NULL;
    TRY(process_self(a, &self));
    const size_t n = strlen(self), tail = strlen(name) + 1;
    if (n > tail && self[n - tail] == '-' && strcmp(self + n - tail + 1, name) == 0)
        return arena_text(a, self, n - tail, out);
    return FAIL(
        ERR_ARG,
        "%s: this program is %s, whose name does not say which program it belongs to: rename it "
        "to switchyard-%s, in the folder of switchyard",
        name, self, name);
}

/* A part of a pipeline ends when its reader has gone, and SIGTERM ends it. A thread of ours may block all signals. */
static bool leave_terminal(void)
{
    sigset_t none;
    sigemptyset(&none);
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): the child of a fork has one thread */
    return signal(SIGPIPE, SIG_DFL) != SIG_ERR && sigprocmask(SIG_SETMASK, &none, NULL) == 0 &&
           setsid() >= 0;
}

/* The child's half, up to exec. Only calls that are safe after a fork of a process with threads. Its failure goes
 * through `failed`, which exec closes. */
static void become(const char *const *words, const ProcessHow *how, pid_t parent, int said, int out,
                   int failed)
{
    const int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    bool ready = in >= 0 && (how->apart ? leave_terminal() : setpgid(0, 0) == 0);
    ready = ready && dup2(in, 0) == 0 && dup2(said, 2) == 2;
    ready = ready && (how->own_stdout || dup2(out, 1) == 1);
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

/* Makes the pipes of its words and of exec's failure, and with `piped` that of its stdout. */
static bool make_pipes(int pipes[3][2], bool piped)
{
    enum { PIPE_BYTES = 1 << 20 }; /* less where the system's limit is lower */
    bool made = true;
    for (int i = 0; i < (piped ? 3 : 2) && made; i++) made = pipe2(pipes[i], O_CLOEXEC) == 0;
    if (made && piped) (void)fcntl(pipes[2][0], F_SETPIPE_SZ, PIPE_BYTES);
    return made;
}

static void close_ends(int pipes[3][2], int end)
{
    for (int i = 0; i < 3; i++)
        if (pipes[i][end] >= 0) (void)close(pipes[i][end]);
}

Status process_start(Process *p, const char *who, const char *const *words, const ProcessHow *how)
{
    char why[128];
    int pipes[3][2] = { { -1, -1 }, { -1, -1 }, { -1, -1 } };
    const pid_t parent = getpid();
    p->pid = make_pipes(pipes, how->piped) ? fork() : -1;
    const int reason = errno, said = pipes[0][1];
    if (p->pid == 0) become(words, how, parent, said, how->piped ? pipes[2][1] : said, pipes[1][1]);
    close_ends(pipes, 1);
    if (p->pid < 0) {
        close_ends(pipes, 0);
        return FAIL(ERR_IO, "%s has no pipe or no process for %s: %s", who, words[0],
                    strerror_r(reason, why, sizeof why));
    }
    const int refused = exec_failure(pipes[1][0]);
    p->fd = pipes[0][0];
    p->out = pipes[2][0];
    p->ended = false;
    p->shown = how->shown;
    p->used = 0;
    p->said[0] = '\0';
    if (refused == 0) return OK;
    pipes[1][0] = -1;
    close_ends(pipes, 0);
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
