/* shell: waits for bytes or the end of a command, and tells how it ended. */
#include "corpus/command/shell.h"

#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/interrupt.h"
#include "engine/base/log.h"
#include "engine/base/text.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LOOK_MS = 100, NO_READER = 128 + SIGPIPE };
static const double GRACE_S = 2;

const char *shell_command(const char *path)
{
    if (!text_starts(path, "cmd:")) return NULL;
    return path + 4 + strspn(path + 4, " \t");
}

static Status start(Shell *s, const char *path, const char *command, bool piped)
{
    const char *const words[] = { "bash", "-o", "pipefail", "-c", command, NULL };
    const ProcessHow how = { .piped = piped, .apart = true, .death_signal = SIGTERM };
    log_info("runs the command: %s", command);
    s->bytes = 0;
    TRY(process_start(&s->process, path, words, &how));
    s->path = path;
    return OK;
}

Status shell_start(Shell *s, const char *path, double wait_s)
{
    const char *command = shell_command(path);
    if (*command == '\0')
        return FAIL(ERR_ARG, "\"%s\" names no command: write cmd: and what prints the data", path);
    s->wait_s = wait_s;
    return start(s, path, command, true);
}

Status shell_start_beside(Shell *s, const char *command)
{
    return start(s, command, command, false);
}

Status shell_fill(const char *command, const char *folder, Text *out)
{
    static const char PLACE[] = "{folder}",
                      SAFE[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                               "0123456789/._-+=:@%,";
    const char *at = command;
    if (strstr(command, PLACE) == NULL)
        return FAIL(ERR_ARG, "the command \"%s\" has no {folder}, the place of the folder's path",
                    command);
    if (folder[strspn(folder, SAFE)] != '\0')
        return FAIL(ERR_ARG,
                    "%s cannot be in a command as {folder}: name it with letters, digits and %s",
                    folder, SAFE + 62);
    for (const char *next; (next = strstr(at, PLACE)) != NULL; at = next + sizeof PLACE - 1)
        TRY(text_printf(out, "%.*s%s", (int)(next - at), at, folder));
    return text_append(out, at, strlen(at));
}

Status shell_start_rows(Shell *s, const char *file, const char *field)
{
    static const char NAME[] = "switchyard-data-parquet";
    char program[FILE_PATH_MAX];
    const char *const words[] = { program, "--quiet", "--field", field, "--", file, NULL };
    const ProcessHow how = { .piped = true, .apart = true, .death_signal = SIGTERM };
    const ssize_t n = readlink("/proc/self/exe", program, sizeof program - sizeof NAME);
    char *slash = memrchr(program, '/', n > 0 ? (size_t)n : 0);
    (void)memcpy(slash != NULL ? slash + 1 : program, NAME, sizeof NAME);
    s->wait_s = SHELL_WAIT_S;
    s->bytes = 0;
    s->rows = true;
    TRY(process_start(&s->process, file, words, &how));
    s->path = file;
    return OK;
}

/* The last lines of its stderr, joined to a part of a sentence. */
const char *shell_tail(const Shell *s, char out[SHELL_TAIL_BYTES])
{
    const Process *p = &s->process;
    const char *at = p->said, *end = at + p->used;
    size_t n = 0;
    while (end > at && (unsigned char)end[-1] <= ' ') end--;
    if (end - at >= SHELL_TAIL_BYTES / 2) {
        at = end - SHELL_TAIL_BYTES / 2;
        const char *next = memchr(at, '\n', (size_t)(end - at));
        if (next != NULL) at = next + 1;
    }
    for (; at < end && n < SHELL_TAIL_BYTES - 3; at++) {
        out[n] = *at;
        if (*at == '\n') memcpy(out + n, " | ", 3);
        n += *at == '\n' ? 3 : 1;
    }
    out[n] = '\0';
    return n == 0 ? "nothing" : out;
}

Status shell_failed(const Shell *s, const char *how)
{
    char tail[SHELL_TAIL_BYTES];
    return FAIL(ERR_IO, "the command \"%s\" %s after %lld bytes; its stderr ends with: %s", s->path,
                how, (long long)s->bytes, shell_tail(s, tail));
}

static Status hung(Shell *s)
{
    char how[128];
    (void)snprintf(how, sizeof how, "printed nothing for %g s and did not end", s->wait_s);
    shell_stop(s);
    return shell_failed(s, how);
}

/* It says what is wrong as any command of ours does. A file may have no rows. */
static Status judge_rows(const Shell *s)
{
    static const char SAYS[] = "error: ";
    const int code = process_code(&s->process);
    const char *said = strstr(s->process.said, SAYS);
    if (code == 0) return OK;
    if (said == NULL || (code != 2 && code != 3))
        return shell_failed(s, "cannot be read, and its reader ended");
    said += sizeof SAYS - 1;
    return FAIL(code == 3 ? ERR_CHANGED : ERR_FORMAT, "%.*s", (int)strcspn(said, "\n"), said);
}

/* `a | head -n 9` ends with the code of SIGPIPE under pipefail, though all that was wanted is there. */
static Status judge(const Shell *s)
{
    char how[64];
    if (s->rows) return judge_rows(s);
    const int code = process_code(&s->process);
    (void)snprintf(how, sizeof how, "ended with exit code %d", code);
    if (code != 0 && (code != NO_READER || s->bytes == 0)) return shell_failed(s, how);
    return s->bytes > 0 ? OK : shell_failed(s, "printed nothing to its stdout and ended");
}

/* Its end, or the bytes that there are. */
static Status look(Shell *s, void *out, size_t n, ssize_t *got)
{
    Process *p = &s->process;
    struct pollfd fds[2] = { { p->out, POLLIN, 0 }, { p->fd, POLLIN, 0 } };
    *got = -1;
    (void)poll(fds, 2, LOOK_MS);
    if (fds[1].revents != 0 || p->out < 0) (void)process_look(p, p->out < 0 ? LOOK_MS : 0);
    if (fds[0].revents != 0) *got = read(p->out, out, n);
    if (*got < 0 && fds[0].revents != 0 && errno != EINTR)
        return FAIL(ERR_IO, "%s: its output cannot be read after %lld bytes", s->path,
                    (long long)s->bytes);
    if (*got == 0) (void)close(p->out), p->out = -1;
    return OK;
}

Status shell_read(Shell *s, void *out, size_t n, size_t *got)
{
    const double end_s = clock_s() + s->wait_s;
    ssize_t now = 0;
    *got = 0;
    while (s->process.out >= 0 || s->process.fd >= 0 || !s->process.ended) {
        TRY(look(s, out, n, &now));
        if (now > 0) {
            *got = (size_t)now;
            s->bytes += now;
            return OK;
        }
        TRY(interrupt_check("the command was ended"));
        if (clock_s() > end_s) return hung(s);
    }
    return judge(s);
}

void shell_stop(Shell *s)
{
    Process *p = &s->process;
    if (s->path == NULL) return;
    if (!p->ended || p->fd >= 0) process_end(p, SIGTERM, GRACE_S);
    if (p->out >= 0) (void)close(p->out), p->out = -1;
}
