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

enum { LOOK_MS = 50, GRACE_S = 5 }; /* between two looks; from SIGTERM to SIGKILL */

/* A running command, and the end of what it prints, on stdout and stderr together. */
typedef struct Process {
    pid_t pid;
    int fd, status; /* -1: closed; waitpid's */
    size_t used;
    char said[1 << 16];
} Process;

/* It gets a process group of its own, so that all that it starts can be ended. */
static Status start(Process *p, const VerifyCommand *c)
{
    int ends[2];
    char why[128], *argv[VERIFY_COMMAND_MAX];
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return FAIL(ERR_IO, "plan: --verify has no pipe for %s: %s", c->word[0],
                    strerror_r(errno, why, sizeof why));
    memcpy(argv, c->word, sizeof argv); /* of C's old type, without const */
    (void)posix_spawn_file_actions_init(&files);
    (void)posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    (void)posix_spawn_file_actions_adddup2(&files, ends[1], 1);
    (void)posix_spawn_file_actions_adddup2(&files, ends[1], 2);
    (void)posix_spawnattr_init(&how);
    (void)posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP);
    int failed = posix_spawnp(&p->pid, argv[0], &files, &how, argv, environ);
    (void)posix_spawn_file_actions_destroy(&files);
    (void)posix_spawnattr_destroy(&how);
    (void)close(ends[1]);
    p->fd = ends[0];
    if (failed == 0) return OK;
    (void)close(p->fd);
    return FAIL(ERR_ARG, "plan: --verify cannot start %s: %s", c->word[0],
                strerror_r(failed, why, sizeof why));
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
    if (n > 0) p->used += (size_t)n;
    if (n == 0) (void)close(p->fd), p->fd = -1;
    p->said[p->used] = '\0';
}

/* Reads what it prints until it has ended, or until the time is over or (`stop`) Ctrl-C comes: then false. */
static bool watch(Process *p, double seconds, bool stop)
{
    const double end_s = clock_s() + seconds;
    bool ended = false, more = true;
    while (!ended || more) { /* what it wrote before its end is still in the pipe */
        if (clock_s() > end_s || (stop && interrupt_signal() != 0)) return ended;
        ended = ended || waitpid(p->pid, &p->status, WNOHANG) == p->pid;
        struct pollfd look = { p->fd, POLLIN, 0 };
        more = poll(&look, 1, ended ? 0 : LOOK_MS) > 0; /* waits also where the pipe is closed */
        if (more) read_more(p);
    }
    return true;
}

/* Asks it to end, then ends it with all that it started. */
static void end(Process *p)
{
    (void)kill(-p->pid, SIGTERM);
    bool ended = watch(p, GRACE_S, false);
    (void)kill(-p->pid, SIGKILL);
    if (!ended) (void)waitpid(p->pid, &p->status, 0);
}

/* ---- what it says ---- */

/* The first line from `mark` on, without it; else the last line that is not empty. */
static const char *line_of(char *text, const char *mark)
{
    char *at = strstr(text, mark), *rest = NULL, *last = NULL;
    if (at != NULL) return at[strcspn(at, "\n")] = '\0', at + strlen(mark);
    for (char *w = strtok_r(text, "\n", &rest); w != NULL; w = strtok_r(NULL, "\n", &rest))
        last = w;
    return last == NULL ? "it printed nothing" : last;
}

static double number(const Json *object, const char *name)
{
    const Json *v = json_get(object, name);
    return json_is(v, JSON_NUMBER) ? v->number : 0;
}

/* Reads the line that `bench step --json` prints; a launcher may print others around it. */
static Status read_result(char *said, Arena *a, VerifyRun *out)
{
    char *line = strstr(said, "{\"kind\":\"step\"");
    Json *all = NULL;
    size_t bad = 0;
    if (line != NULL) TRY(json_parse(line, strcspn(line, "\n"), a, &all, &bad));
    out->step_s = number(all, "step_p50_s");
    out->spread = number(all, "step_p99_s") / out->step_s;
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
    TRY(ARENA_ZEROED(a, 1, &p));
    TRY(start(p, c));
    bool ended = watch(p, limit_s, true);
    if (!ended) end(p);
    if (p->fd >= 0) (void)close(p->fd);
    if (!ended) TRY(interrupt_check("the other layouts did not run"));
    if (ended && WIFEXITED(p->status) && WEXITSTATUS(p->status) == 0)
        return read_result(p->said, a, out);
    if (!ended)
        (void)snprintf(out->why, sizeof out->why, "it ran longer than %g s and was ended", limit_s);
    else if (WIFSIGNALED(p->status))
        (void)snprintf(out->why, sizeof out->why, "signal %d ended it", WTERMSIG(p->status));
    else
        (void)snprintf(out->why, sizeof out->why, "%.390s", line_of(p->said, "error: "));
    return OK;
}
