/* heartbeat: lines of a fixed length, each rewritten by one pwrite. The file is opened for each line and closed
 * again, because network filesystems show other hosts what was written when the file is closed. */
#include "engine/train/heartbeat.h"

#include "engine/base/clock.h"
#include "engine/base/interrupt.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *const heartbeat_phase_names[HEARTBEAT_PHASES] = { "starting",   "loading", "steps",
                                                              "evaluating", "saving",  "ended",
                                                              "failed" };

/* The beginning of a line, before the digit that a handler writes. */
#define SIGNALLED "{\"signalled\":"

static const double SHARE = 1e-3; /* of the time that lines may take */

Status heartbeat_init(Heartbeat *h, const char *run_dir, const Comm *world)
{
    CommHostName host = { 0 };
    char name[FILE_PATH_MAX], folder[FILE_PATH_MAX];
    *h = (Heartbeat){ .rank = world == NULL ? 0 : world->rank,
                      .line = world == NULL ? 0 : comm_local_rank(world) };
    if (gethostname(host.text, sizeof host.text - 1) != 0)
        return FAIL(ERR_IO, "rank %d cannot read its host's name", h->rank);
    (void)snprintf(name, sizeof name, "%s" HEARTBEAT_SUFFIX, host.text);
    TRY(file_join(folder, run_dir, HEARTBEAT_FOLDER));
    TRY(file_join(h->path, folder, name));
    TRY(arena_init(&h->arena, "heartbeat", MEM_HOST, (size_t)1 << 16));
    return text_init(&h->text, &h->arena);
}

void heartbeat_free(Heartbeat *h)
{
    interrupt_mark(NULL, 0);
    arena_free(&h->arena);
}

void heartbeat_hear(const Heartbeat *h)
{
    interrupt_mark(h->path, (long)h->line * HEARTBEAT_BYTES + (long)strlen(SIGNALLED));
}

Status heartbeat_check_token(const Heartbeat *h, const char *run_dir, const char *token)
{
    char path[FILE_PATH_MAX], folder[FILE_PATH_MAX];
    FileMap there = { 0 };
    TRY(file_join(folder, run_dir, HEARTBEAT_FOLDER));
    TRY(file_join(path, folder, HEARTBEAT_TOKEN));
    const size_t bytes = strlen(token);
    const bool read = file_exists(path) && file_map(path, &there) == OK;
    const bool same = read && there.bytes == bytes && memcmp(there.data, token, bytes) == 0;
    file_unmap(&there);
    if (same) return OK;
    const char *host = strrchr(h->path, '/') + 1;
    return FAIL(ERR_ARG,
                "run.dir %s is not the same folder on host %.*s (rank %d) as where supervise runs: "
                "%s is not there; set run.dir to a folder that all hosts share",
                run_dir, (int)(strlen(host) - strlen(HEARTBEAT_SUFFIX)), host, h->rank, path);
}

/* The line, filled up with blanks. False: it is too long. */
static bool print_line(Heartbeat *h, const char *kind, const char *why)
{
    Text *t = &h->text;
    t->used = 0;
    Status s =
        text_json(t,
                  SIGNALLED "%d,\"rank\":%d,\"phase\":%s,\"step\":%" PRId64 ",\"first\":%" PRId64
                            ",\"busy_s\":%g,\"time\":%.3f,\"kind\":%s,\"why\":%s}",
                  interrupt_signal() != 0, h->rank, heartbeat_phase_names[h->phase], h->step,
                  h->first, h->busy_s, clock_date_s(), kind, why);
    if (s == OK && t->used < HEARTBEAT_BYTES)
        s = text_printf(t, "%*s\n", (int)(HEARTBEAT_BYTES - 1 - t->used), "");
    return s == OK && t->used == HEARTBEAT_BYTES;
}

static int open_file(const Heartbeat *h)
{
    const int how = O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK; /* a pipe is not waited for */
    const int fd = open(h->path, how, 0644);
    if (fd >= 0 || file_make_parent(h->path) != OK) return fd;
    return open(h->path, how, 0644);
}

/* Readers leave out a line that a full disk cut short. */
static bool write_line(Heartbeat *h, const char *kind, const char *why)
{
    const double start_s = clock_s();
    if (!print_line(h, kind, why)) return false;
    const int fd = open_file(h);
    const off_t at = (off_t)h->line * HEARTBEAT_BYTES;
    const bool written = fd >= 0 && pwrite(fd, h->text.data, h->text.used, at) == HEARTBEAT_BYTES;
    if (fd >= 0) (void)close(fd);
    const double end_s = clock_s();
    h->next_s = end_s + fmin((end_s - start_s) / SHARE, HEARTBEAT_PAUSE_S);
    h->begun = true;
    return written;
}

void heartbeat_phase(Heartbeat *h, HeartbeatPhase phase)
{
    h->phase = phase;
    (void)write_line(h, "", "");
}

void heartbeat_again(Heartbeat *h)
{
    if (h != NULL && clock_s() >= h->next_s) (void)write_line(h, "", "");
}

void heartbeat_first(Heartbeat *h, int64_t step)
{
    h->step = h->first = step;
    heartbeat_phase(h, HEARTBEAT_STEPS);
}

void heartbeat_step(Heartbeat *h, int64_t step, double step_s)
{
    const bool other = h->phase != HEARTBEAT_STEPS;
    h->step = step;
    h->busy_s += step_s;
    h->phase = HEARTBEAT_STEPS;
    if (other) h->next_s = 0;
    heartbeat_again(h);
}

/* A sentence with many escapes may be too long for a line: then the kind alone is said. */
Status heartbeat_last(Heartbeat *h, Status s)
{
    char record[2048], why[HEARTBEAT_WHY_BYTES] = "";
    if (!h->begun) return s;
    (void)snprintf(record, sizeof record, "%s", status_message());
    if (s != OK) status_sentence(why, sizeof why);
    h->phase = s == OK ? HEARTBEAT_ENDED : HEARTBEAT_FAILED;
    if (!write_line(h, s == OK ? "" : status_name(s), why)) (void)write_line(h, status_name(s), "");
    return s == OK ? OK : status_adopt(s, record);
}
