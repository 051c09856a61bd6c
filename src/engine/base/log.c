/* log: formats a message and writes it to stderr in one call, so that ranks do not mix lines. */
#include "engine/base/log.h"

#include "engine/base/clock.h"
#include "engine/base/fd.h"
#include "engine/base/text.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 4096 };

static const double PROGRESS_EVERY_S = 10;
static const char NEW_LINE[] = "\r\033[K"; /* of a terminal: the same line, emptied */

/* Any thread may log. A line is built on the caller's stack and written with one call, so that lines
 * of threads, and of ranks that share a terminal, do not mix. Shared state is single atomic words. */
static struct {
    _Atomic int least;           /* LogLevel */
    _Atomic bool kinds;          /* the kind of a failure stands after its sentence */
    _Atomic bool progress_open;  /* a progress line stands on the terminal without its newline */
    _Atomic int64_t progress_ms; /* when the last one was printed; 0: never */
} sink = { .least = LOG_INFO };

/* Whose messages this thread writes. Zero: rank 0, no log file. */
static _Thread_local struct {
    int rank, fd;
    bool has_file, quiet;
} speaker;

void log_rank(int rank, int fd)
{
    speaker.rank = rank;
    speaker.fd = fd;
    speaker.has_file = fd >= 0;
}

void log_quiet(void) { speaker.quiet = true; }

typedef struct Line {
    char text[LINE_MAX_BYTES];
    size_t used;
} Line;

/* Appends to the line, keeps one byte for the newline, and ends a truncated text with "...". Names of files
 * and keys are others' texts, so control characters in them are shown. */
static void line_format(Line *l, const char *fmt, va_list ap)
{
    char text[LINE_MAX_BYTES];
    size_t room = sizeof l->text - l->used - 1;
    int n = vsnprintf(text, sizeof text, fmt, ap);
    if (n < 0) return;
    size_t whole = (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
    size_t shown = text_visible(l->text + l->used, room - 1, text, whole);
    l->used += shown;
    if ((size_t)n == whole && shown >= whole) return;
    memcpy(l->text + l->used - 3, "...", 3);
}

__attribute__((format(printf, 2, 3))) static void line_add(Line *l, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    line_format(l, fmt, ap);
    va_end(ap);
}

void log_set_level(LogLevel least) { atomic_store(&sink.least, (int)least); }
LogLevel log_level(void) { return (LogLevel)atomic_load(&sink.least); }

Status log_set_level_named(const char *name)
{
    int level = text_word_index("error|warn|info|debug", name);
    if (level < 0)
        return FAIL(ERR_ARG, "SWITCHYARD_LOG is \"%.40s\", must be error, warn, info or debug",
                    name);
    log_set_level((LogLevel)level);
    return OK;
}

/* Nothing is formatted if the level is too low or nobody listens, so debug messages cost a
 * comparison. */
void log_message(LogLevel level, const char *fmt, ...)
{
    static const char *const PREFIX[] = { "error: ", "warning: ", "", "debug: " };
    if ((int)level > atomic_load(&sink.least)) return;
    bool aloud = !speaker.quiet && (speaker.rank == 0 || level <= LOG_WARN);
    Line l;
    l.used = 0;
    if (!aloud && !speaker.has_file) return;
    if (aloud && atomic_exchange(&sink.progress_open, false)) line_add(&l, "\n");
    if (speaker.rank > 0) line_add(&l, "rank %d: ", speaker.rank);
    line_add(&l, "%s", PREFIX[level]);
    va_list ap;
    va_start(ap, fmt);
    line_format(&l, fmt, ap);
    va_end(ap);
    /* a status record has its own newline */
    if (l.used == 0 || l.text[l.used - 1] != '\n') l.text[l.used++] = '\n';
    if (aloud) fd_write(STDERR_FILENO, l.text, l.used); /* a stderr that is gone: nobody to tell */
    if (speaker.has_file) fd_write(speaker.fd, l.text, l.used);
}

void log_kinds(void) { atomic_store(&sink.kinds, true); }

/* People need the sentence. The path through the source is for debugging. */
void log_failure(LogLevel level, const char *fmt, ...)
{
    char before[256];
    const char *text = status_message();
    const bool frames = log_level() >= LOG_DEBUG;
    const int shown = atomic_load(&sink.kinds) ? status_head_bytes() : status_sentence_bytes();
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(before, sizeof before, fmt, ap);
    va_end(ap);
    log_message(level, "%s%.*s", before, frames ? (int)strlen(text) : shown, text);
}

/* Columns of the terminal; 0 if stderr is not a terminal. */
static size_t terminal_columns(void)
{
    if (!isatty(STDERR_FILENO)) return 0;
    struct winsize size = { 0 };
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
    return size.ws_col;
}

bool log_on_terminal(void) { return terminal_columns() > 0; }

/* now_ms is at least 1, so that 0 can mean "never". */
void log_progress(bool last, const char *fmt, ...)
{
    if (atomic_load(&sink.least) < (int)LOG_INFO || speaker.rank > 0 || speaker.quiet) return;
    size_t columns = terminal_columns();
    int64_t now_ms = (int64_t)(clock_s() * 1e3) + 1, before_ms = atomic_load(&sink.progress_ms);
    bool due = before_ms == 0 || (double)(now_ms - before_ms) >= PROGRESS_EVERY_S * 1e3;
    if (columns == 0 && !last && !due) return;
    atomic_store(&sink.progress_ms, now_ms);

    Line l;
    l.used = 0;
    if (columns > 0) l.used = sizeof NEW_LINE - 1;
    memcpy(l.text, NEW_LINE, l.used);
    size_t start = l.used;
    va_list ap;
    va_start(ap, fmt);
    line_format(&l, fmt, ap);
    va_end(ap);
    /* A carriage return cannot rewrite a line that wrapped, so the text must fit the width. */
    if (columns > 0 && l.used - start >= columns) l.used = start + columns - 1;
    if (columns == 0 || last) l.text[l.used++] = '\n';
    fd_write(STDERR_FILENO, l.text, l.used);
    atomic_store(&sink.progress_open, columns > 0 && !last);
}
