/* status: the thread-local record of the last failure, as text: "SENTENCE [CODE]\n", then one line
 * "  at FILE:LINE" per frame. A text that does not fit is truncated. */
#include "engine/base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local struct {
    char text[2048];
    size_t used;
    bool muted;
} record;

/* Keeps what fits and drops the rest: a failure must never cause another one. */
__attribute__((format(printf, 1, 2))) static void append_to_record(const char *fmt, ...)
{
    size_t room = sizeof record.text - record.used;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(record.text + record.used, room, fmt, ap);
    va_end(ap);
    if (n > 0) record.used += (size_t)n < room ? (size_t)n : room - 1;
}

void status_clear(void)
{
    record.used = 0;
    record.text[0] = '\0';
}

Status status_fail(const char *file, int line, Status code, const char *fmt, ...)
{
    /* Arguments may point into the record (a caller wraps the last sentence in its own), so the new
     * sentence is formatted in a buffer first. */
    char sentence[1024];
    va_list ap;
    if (record.muted) return code;
    va_start(ap, fmt);
    (void)vsnprintf(sentence, sizeof sentence, fmt, ap);
    va_end(ap);
    status_clear();
    append_to_record("%s [%s]\n", sentence, status_name(code));
    return status_frame(file, line, code);
}

Status status_frame(const char *file, int line, Status code)
{
    if (!record.muted) append_to_record("  at %s:%d\n", file, line);
    return code;
}

void status_mute(bool muted) { record.muted = muted; }

const char *status_message(void) { return record.text; }

/* The frames start after the bracket that closes the code. */
int status_head_bytes(void)
{
    const char *frame = strstr(record.text, "]\n  at ");
    return (int)(frame == NULL ? record.used : (size_t)(frame - record.text) + 2);
}

/* The sentence may itself contain " [", so the last one before the frames begins the code. */
int status_sentence_bytes(void)
{
    const int head = status_head_bytes();
    for (int at = head - 1; at > 0 && record.text[head - 1] == '\n'; at--)
        if (record.text[at] == '[' && record.text[at - 1] == ' ') return at - 1;
    return (int)record.used;
}

void status_sentence(char *out, int out_bytes)
{
    (void)snprintf(out, (size_t)out_bytes, "%.*s", status_sentence_bytes(), record.text);
}

/* The text comes with its frames, so the record shows the path in the other thread too. */
Status status_adopt(Status code, const char *text)
{
    status_clear();
    append_to_record("%s", text);
    return code;
}

/* The words for each code, and the exit code of a program that ends with it (design.md §7). */
static const struct {
    const char *name;
    int exit_code;
} CODES[] = {
    [OK] = { "ok", 0 },
    [ERR_ARG] = { "bad argument", 2 },
    [ERR_SHAPE] = { "bad shape", 2 },
    [ERR_MEMORY] = { "out of memory", 2 },
    [ERR_IO] = { "input/output", 2 },
    [ERR_FORMAT] = { "bad format", 2 },
    [ERR_UNSUPPORTED] = { "unsupported", 2 },
    [ERR_DISK] = { "cannot write", 3 },
    [ERR_DEVICE] = { "device", 3 },
    [ERR_COMM] = { "communication", 3 },
    [ERR_FIT] = { "does not fit", 3 },
    [ERR_PARTIAL] = { "incomplete", 3 },
    [ERR_NUMERIC] = { "numeric", 3 },
    [ERR_INTERRUPTED] = { "interrupted", 130 },
    [ERR_CHANGED] = { "changed", 3 },
    [ERR_CLOSED] = { "closed", 0 },
};
_Static_assert(sizeof CODES / sizeof *CODES == ERR_CLOSED + 1, "a code has no row");

const char *status_name(Status code) { return CODES[code].name; }
int status_exit_code(Status code) { return CODES[code].exit_code; }
