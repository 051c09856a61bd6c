/* beside: a queue of one command that runs and one that waits. */
#include "corpus/command/beside.h"

#include "engine/base/clock.h"
#include "engine/base/log.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>

enum { LOOK_MS = 100 };
static const double GRACE_S = 5;

static Status fill(Beside *b, const char *folder)
{
    arena_release(&b->room, (ArenaMark){ 0 });
    TRY(text_init(&b->filled, &b->room));
    return shell_fill(b->command, folder, &b->filled);
}

Status beside_open(Beside *b, const char *name, const char *command, const char *folder,
                   const char *journal)
{
    *b = (Beside){ .name = name, .command = command, .running = -1, .waiting = -1 };
    TRY(arena_init(&b->room, name, MEM_HOST, 1 << 20));
    TRY(fill(b, folder)); /* refused now, and not at the first checkpoint */
    return file_open_append(&b->journal, journal, NULL, 0);
}

Status beside_add(Beside *b, int64_t step, const char *folder)
{
    if (b->waiting >= 0)
        log_warn("%s leaves out step %" PRId64 ": the command of step %" PRId64 " still runs",
                 b->name, b->waiting, b->running);
    b->waiting = step;
    (void)snprintf(b->folder, sizeof b->folder, "%s", folder);
    return beside_look(b, 0);
}

static Status write_end(Beside *b)
{
    char said[SHELL_TAIL_BYTES];
    const int code = process_code(&b->shell.process);
    const double seconds = clock_s() - b->start_s;
    const char *tail = shell_tail(&b->shell, said);
    if (code != 0)
        log_warn("%s of step %" PRId64 " ended with exit code %d after %.3g s; it says: %s",
                 b->name, b->running, code, seconds, tail);
    TRY(text_init(&b->line, &b->room));
    TRY(text_json(&b->line,
                  "{\"step\":%" PRId64 ",\"command\":%s,\"exit\":%d,\"seconds\":%g,\"said\":%s}\n",
                  b->running, b->filled.data, code, seconds, tail));
    b->running = -1;
    TRY(file_write(&b->journal, b->line.data, b->line.used));
    return file_flush(&b->journal);
}

Status beside_look(Beside *b, int wait_ms)
{
    if (b->running >= 0 && process_look(&b->shell.process, wait_ms)) TRY(write_end(b));
    if (b->running >= 0 || b->waiting < 0) return OK;
    TRY(fill(b, b->folder));
    TRY(shell_start_beside(&b->shell, b->filled.data));
    b->start_s = clock_s();
    b->running = b->waiting;
    b->waiting = -1;
    return OK;
}

Status beside_finish(Beside *b, double wait_s)
{
    const double end_s = clock_s() + wait_s;
    TRY(beside_look(b, 0));
    if (b->running >= 0) log_info("waits up to %g s for %s", wait_s, b->name);
    while (b->running >= 0 && clock_s() < end_s) TRY(beside_look(b, LOOK_MS));
    if (b->running < 0) return OK;
    log_warn("%s of step %" PRId64 " is ended, because it has not ended in %g s", b->name,
             b->running, wait_s);
    process_end(&b->shell.process, SIGTERM, GRACE_S);
    b->waiting = -1;
    return write_end(b);
}

void beside_close(Beside *b)
{
    if (b->name != NULL && b->running >= 0) process_end(&b->shell.process, SIGTERM, GRACE_S);
    file_close(&b->journal);
    arena_free(&b->room);
}
