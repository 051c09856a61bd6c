/* verify_run: runs a command in a process of its own, under a time limit, and reads the result of `bench step`. It is
 * the only file that starts a process. */
#include "base/clock.h"
#include "base/interrupt.h"
#include "base/json.h"
#include "plan/verify.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- a process ---- */

enum { POLL_MS = 50, GRACE_S = 5 }; /* between two looks; from SIGTERM to SIGKILL */

/* What a process prints: the last bytes of it, if it is more. */
typedef struct Stream {
    int fd; /* -1: closed */
    size_t used;
    char data[1 << 16];
} Stream;

typedef struct Process {
    pid_t pid;
    Stream out, err;
} Process;

static void stream_read(Stream *s)
{
    if (s->used + 1 >= sizeof s->data) { /* keep the second half */
        s->used = sizeof s->data / 2;
        memmove(s->data, s->data + sizeof s->data - 1 - s->used, s->used);
    }
    ssize_t n = read(s->fd, s->data + s->used, sizeof s->data - 1 - s->used);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (n <= 0) {
        (void)close(s->fd);
        s->fd = -1;
        return;
    }
    s->used += (size_t)n;
    s->data[s->used] = '\0';
}

/* Starts the command in a process group of its own, so that all that it starts can be ended. */
static Status process_start(Process *p, const VerifyCommand *c)
{
    int out[2], err[2];
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    extern char **environ;
    if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0)
        return FAIL(ERR_IO, "plan: --verify has no pipe for %s: %s", c->word[0], strerror(errno));
    (void)posix_spawn_file_actions_init(&files);
    (void)posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    (void)posix_spawn_file_actions_adddup2(&files, out[1], 1);
    (void)posix_spawn_file_actions_adddup2(&files, err[1], 2);
    (void)posix_spawnattr_init(&how);
    (void)posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP);
    int failed =
        posix_spawnp(&p->pid, c->word[0], &files, &how, (char *const *)(uintptr_t)c->word, environ);
    (void)posix_spawn_file_actions_destroy(&files);
    (void)posix_spawnattr_destroy(&how);
    (void)close(out[1]);
    (void)close(err[1]);
    p->out.fd = out[0];
    p->err.fd = err[0];
    p->out.used = p->err.used = 0;
    p->out.data[0] = p->err.data[0] = '\0';
    if (failed == 0) return OK;
    (void)close(out[0]);
    (void)close(err[0]);
    return FAIL(ERR_ARG, "plan: --verify cannot start %s: %s", c->word[0], strerror(failed));
}

/* Reads what the process prints until it has ended, the time is over or Ctrl-C comes. True: it has ended, and *status
 * is waitpid's. */
static bool process_watch(Process *p, double end_s, bool stop_at_signal, int *status)
{
    bool ended = false, more = true;
    while (!ended || more) { /* what it wrote before its end is still in the pipes */
        if (clock_s() > end_s || (stop_at_signal && interrupt_signal() != 0)) return ended;
        ended = ended || waitpid(p->pid, status, WNOHANG) == p->pid;
        struct pollfd fds[2] = { { p->out.fd, POLLIN, 0 }, { p->err.fd, POLLIN, 0 } };
        more = poll(fds, 2, ended ? 0 : POLL_MS) > 0; /* waits, too, if both are closed */
        if (more && fds[0].revents != 0) stream_read(&p->out);
        if (more && fds[1].revents != 0) stream_read(&p->err);
    }
    return true;
}

/* Asks it to end, then ends it with all that it started. */
static void process_end(Process *p)
{
    int status = 0;
    (void)kill(-p->pid, SIGTERM);
    bool ended = process_watch(p, clock_s() + GRACE_S, false, &status);
    (void)kill(-p->pid, SIGKILL);
    if (!ended) (void)waitpid(p->pid, &status, 0);
}

/* ---- what it says ---- */

/* The sentence of the first error line, or else the last line that is not empty. */
static const char *reason(char *text)
{
    static const char mark[] = "error: ";
    char *error = strstr(text, mark), *rest = NULL, *last = NULL;
    if (error != NULL) {
        error[strcspn(error, "\n")] = '\0';
        return error + strlen(mark);
    }
    for (char *w = strtok_r(text, "\n", &rest); w != NULL; w = strtok_r(NULL, "\n", &rest))
        last = w;
    return last == NULL ? "it printed nothing" : last;
}

static double number(const Json *object, const char *name)
{
    const Json *v = json_get(object, name);
    return json_is(v, JSON_NUMBER) ? v->number : 0;
}

/* Reads the object that `bench step --json` prints; a launcher may print lines around it. */
static Status read_result(const char *text, Arena *a, VerifyRun *out)
{
    const char *begin = strchr(text, '{'), *end = strrchr(text, '}');
    Json *all = NULL;
    size_t bad = 0;
    if (begin != NULL && end > begin)
        TRY(json_parse(begin, (size_t)(end + 1 - begin), a, &all, &bad));
    out->step_s = number(all, "step_p50_s");
    out->tokens_per_s = number(all, "tokens_per_s");
    out->on_gpu = number(all, "gpu_bytes") > 0;
    out->bytes = number(all, out->on_gpu ? "gpu_bytes" : "arena_bytes");
    out->machine = json_string(json_get(all, "machine"));
    out->ran = out->step_s > 0 && out->tokens_per_s > 0 && out->machine != NULL;
    if (!out->ran) (void)snprintf(out->why, sizeof out->why, "it printed no result of bench step");
    return OK;
}

Status verify_run(const VerifyCommand *c, double limit_s, Arena *a, VerifyRun *out)
{
    Process *p = NULL;
    int status = 0;
    TRY(ARENA_ZEROED(a, 1, &p));
    out->ran = false;
    TRY(process_start(p, c));
    bool ended = process_watch(p, clock_s() + limit_s, true, &status);
    if (!ended) process_end(p);
    for (int i = 0; i < 2; i++) {
        Stream *s = i == 0 ? &p->out : &p->err;
        if (s->fd >= 0) (void)close(s->fd);
    }
    if (!ended) {
        TRY(interrupt_check("layouts that were not run have no result"));
        (void)snprintf(out->why, sizeof out->why, "it ran longer than %g s and was ended", limit_s);
        return OK;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return read_result(p->out.data, a, out);
    if (WIFSIGNALED(status))
        (void)snprintf(out->why, sizeof out->why, "signal %d ended it: %.300s", WTERMSIG(status),
                       reason(p->err.data));
    else
        (void)snprintf(out->why, sizeof out->why, "%.390s", reason(p->err.data));
    return OK;
}
