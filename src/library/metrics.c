/* metrics: follows RUN/metrics.jsonl line by line while it is written. */
#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/json.h"
#include "library/handle.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 1 << 16, LINE_MOST = 1 << 25, LOOK_US = 50000 };

/* Bytes [used, end) of `text` are read and not yet given out. The last line's JSON lies in `last`. */
struct SwitchyardMetrics {
    Arena arena;
    char path[FILE_PATH_MAX];
    int fd;
    char *text;
    int64_t room, used, end, offset; /* offset: of the file's next byte */
    Arena last;
    Json *line;
};

void switchyard_metrics_close(SwitchyardMetrics *m)
{
    if (m == NULL) return;
    if (m->fd >= 0) (void)close(m->fd);
    arena_free(&m->last);
    library_free(m);
}

static Status metrics_open(const char *run, SwitchyardMetrics **out)
{
    SwitchyardMetrics *m = NULL;
    TRY(library_given("metrics_open", run, out));
    TRY(library_make("metrics", sizeof *m, 1, &m));
    Status s = file_join(m->path, run, "metrics.jsonl");
    if (s == OK) s = arena_reserve(&m->last, "line of metrics", (size_t)1 << 30);
    m->fd = s == OK ? open(m->path, O_RDONLY | O_CLOEXEC) : -1;
    if (s == OK && m->fd < 0)
        s = FAIL(ERR_IO, "%s cannot be opened: %s", m->path, strerrordesc_np(errno));
    if (s == OK) *out = m;
    if (s != OK) switchyard_metrics_close(m);
    return s;
}
LIBRARY_FUNCTION(metrics_open, (const char *run, SwitchyardMetrics **out), (run, out))

/* Reads what was written since; *n: bytes. */
static Status read_more(SwitchyardMetrics *m, ssize_t *n)
{
    if (m->end - m->used > LINE_MOST)
        return FAIL(ERR_FORMAT, "%s: a line has more than %d bytes", m->path, LINE_MOST);
    if (m->used > 0) memmove(m->text, m->text + m->used, (size_t)(m->end - m->used));
    m->end -= m->used, m->used = 0;
    TRY(ARENA_GROW(&m->arena, m->end + CHUNK, &m->room, &m->text));
    *n = pread(m->fd, m->text + m->end, CHUNK, m->offset);
    if (*n < 0) return FAIL(ERR_IO, "%s cannot be read: %s", m->path, strerrordesc_np(errno));
    if (*n == 0 && lseek(m->fd, 0, SEEK_END) < m->offset)
        return FAIL(ERR_CHANGED, "%s is shorter than what was read of it: another run began there",
                    m->path);
    m->end += *n, m->offset += *n;
    return OK;
}

/* Takes the next line that is a JSON object; NULL: there is none yet. */
static Status take_line(SwitchyardMetrics *m, const char **line)
{
    const ArenaMark none = { 0 };
    while (*line == NULL) {
        char *text = m->text + m->used;
        char *end = m->end > m->used ? memchr(text, '\n', (size_t)(m->end - m->used)) : NULL;
        size_t bad = 0;
        if (end == NULL) return OK;
        *end = '\0';
        m->used = end + 1 - m->text;
        arena_release(&m->last, none);
        TRY(json_parse(text, strlen(text), &m->last, &m->line, &bad));
        if (json_is(m->line, JSON_OBJECT)) *line = text;
    }
    return OK;
}

static Status metrics_next(SwitchyardMetrics *m, double wait_s, const char **line)
{
    const char *found = NULL;
    TRY(library_given("metrics_next", m, line));
    const double until = clock_s() + wait_s;
    for (ssize_t n = 1;;) {
        TRY(take_line(m, &found));
        if (found != NULL || (n == 0 && !(clock_s() < until))) break;
        if (n == 0) (void)usleep(LOOK_US);
        TRY(read_more(m, &n));
    }
    *line = found;
    return OK;
}
LIBRARY_FUNCTION(metrics_next, (SwitchyardMetrics * m, double wait_s, const char **line),
                 (m, wait_s, line))

static Status metrics_number(const SwitchyardMetrics *m, const char *name, double *out)
{
    TRY(library_given("metrics_number", m, name));
    TRY(library_given("metrics_number", m, out));
    const Json *v = json_get(m->line, name);
    *out = json_is(v, JSON_NUMBER) ? v->number : json_is(v, JSON_BOOL) ? v->truth : (double)NAN;
    return OK;
}
LIBRARY_FUNCTION(metrics_number, (const SwitchyardMetrics *m, const char *name, double *out),
                 (m, name, out))
