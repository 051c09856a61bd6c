/* status: the record of the last failure, one a thread: its code, its sentence and its frames. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local struct {
    char text[2048];
    size_t used;
} record;

static void append(const char *fmt, va_list ap)
{
    size_t room = sizeof record.text - record.used;
    int n = vsnprintf(record.text + record.used, room, fmt, ap);
    if (n > 0) record.used += (size_t)n < room ? (size_t)n : room - 1;
}

__attribute__((format(printf, 1, 2))) static void appendf(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    append(fmt, ap);
    va_end(ap);
}

void status_clear(void)
{
    record.used = 0;
    record.text[0] = '\0';
}

Status status_fail(const char *file, int line, Status code, const char *fmt, ...)
{
    /* Arguments may point into the record itself (a sentence wrapped in another), so the new text
     * is made beside it first. */
    char sentence[1024];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(sentence, sizeof sentence, fmt, ap);
    va_end(ap);
    status_clear();
    appendf("%s [%s]\n", sentence, status_name(code));
    return status_frame(file, line, code);
}

Status status_frame(const char *file, int line, Status code)
{
    appendf("  at %s:%d\n", file, line);
    return code;
}

const char *status_message(void) { return record.text; }

void status_sentence(char *out, int out_bytes)
{
    const char *end = strstr(record.text, " [");
    for (const char *next = end; next != NULL; next = strstr(next + 1, " [")) {
        const char *newline = strchr(record.text, '\n');
        if (newline != NULL && next > newline) break;
        end = next;
    }
    int n = end == NULL ? (int)record.used : (int)(end - record.text);
    (void)snprintf(out, (size_t)out_bytes, "%.*s", n, record.text);
}

Status status_adopt(Status code, const char *text)
{
    status_clear();
    appendf("%s", text);
    return code;
}

const char *status_name(Status code)
{
    switch (code) { /* no default: a new code without a name does not compile */
    case OK: return "ok";
    case ERR_ARG: return "bad argument";
    case ERR_SHAPE: return "bad shape";
    case ERR_MEMORY: return "out of memory";
    case ERR_IO: return "input/output";
    case ERR_FORMAT: return "bad format";
    case ERR_UNSUPPORTED: return "unsupported";
    case ERR_DISK: return "cannot write";
    case ERR_DEVICE: return "device";
    case ERR_COMM: return "communication";
    case ERR_FIT: return "does not fit";
    case ERR_NUMERIC: return "numeric";
    }
    return "unknown";
}

int status_exit_code(Status code)
{
    switch (code) {
    case OK: return 0;
    case ERR_ARG:
    case ERR_SHAPE:
    case ERR_IO:
    case ERR_FORMAT:
    case ERR_MEMORY:
    case ERR_UNSUPPORTED: return 2;
    case ERR_DISK:
    case ERR_DEVICE:
    case ERR_COMM:
    case ERR_FIT:
    case ERR_NUMERIC: return 3;
    }
    return 3;
}
