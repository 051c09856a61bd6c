/* host: processor, memory, disk, clock and builds of each rank. */
#include "doctor/doctor_private.h"
#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/interrupt.h"
#include "engine/base/order.h"
#include "engine/base/rng.h"
#include "engine/comm/mpi_version.h"
#include "engine/host/cgroup.h"
#include "engine/host/host_memory.h"
#include "engine/step/agree.h"
#include "engine/train/peak.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

static const double GIB = 1 << 30;

/* ---- processor and memory ---- */

/* A rank's part of its host's cores. */
typedef struct CoreShare {
    double part;     /* each core counts in equal parts for the ranks that may use it */
    int cores, here; /* that this rank may use; ranks of the host */
    int with;        /* another rank that may use one of them; -1: none */
} CoreShare;

static bool may_use(const DoctorRank *r, int core)
{
    return (r->cores.bit[core / 32] >> core % 32 & 1) != 0;
}

/* Ranks that are not bound thus share out all cores, and ranks that are bound to one core share that. */
static void count_cores(const Doctor *d, CoreShare *s)
{
    const DoctorRank *me = &d->all[d->rank];
    *s = (CoreShare){ .with = -1, .here = doctor_ranks_here(d) };
    for (int c = 0; c < BIND_CORES_MAX; c++) {
        int users = 0;
        if (!may_use(me, c)) continue;
        for (int r = 0; r < d->ranks; r++) {
            bool uses = d->all[r].host_number == me->host_number && may_use(&d->all[r], c);
            if (uses && r != d->rank) s->with = r;
            users += uses;
        }
        s->cores++;
        s->part += 1.0 / users;
    }
}

/* Ranks of a host are in one cgroup or in several; the quota is taken as shared by all of them. */
static Status note_cores(Doctor *d)
{
    CoreShare s;
    const DoctorRank *me = &d->all[d->rank];
    if (me->cores_known == 0)
        return doctor_note(d, DOCTOR_OF(d->rank, DOCTOR_CORES, NAN),
                           "the system does not tell its cores");
    count_cores(d, &s);
    double quota = (double)me->quota / s.here;
    if (me->quota > 0 && quota < s.part)
        return doctor_note(d, DOCTOR_OF(d->rank, DOCTOR_CORES, quota),
                           "the quota of its cgroup is %g processors for %d ranks",
                           (double)me->quota, s.here);
    if (s.with < 0)
        return doctor_note(d, DOCTOR_OF(d->rank, DOCTOR_CORES, s.part), "it may use %d", s.cores);
    return doctor_note(d, DOCTOR_OF(d->rank, DOCTOR_CORES, s.part),
                       "it may use %d, which rank %d may use, too", s.cores, s.with);
}

/* What the host and its cgroups leave, in equal parts for its ranks. A limit of the address space (ulimit -v) is no
 * row: this program reserves more than it uses, and says so where that is refused (engine/base/arena.c). */
static Status note_free_memory(Doctor *d, double *out_gib)
{
    HostMemory m;
    host_memory("/proc", "/sys/fs/cgroup", &m);
    *out_gib = (double)m.available_bytes / doctor_ranks_here(d) / GIB;
    if (m.available_bytes == UINT64_MAX)
        return doctor_note(d, DOCTOR_OF(d->rank, DOCTOR_MEMORY, NAN),
                           "/proc/meminfo cannot be read");
    return doctor_note(d, DOCTOR_OF(d->rank, DOCTOR_MEMORY, *out_gib), "by %s", m.limit);
}

enum { MEASURES = 4 };

/* All ranks measure together. The best of a few runs counts, as others take processor time. */
static Status note_rates(Doctor *d, bool has_room)
{
    MeasuredPeak peak = { 0 };
    Status s = has_room ? OK : FAIL(ERR_MEMORY, "its free memory is too small to measure in");
    TRY(doctor_meet(d));
    for (int i = 0; i < MEASURES && s == OK; i++)
        s = peak_measure(&d->host, d->threads, true, &peak);
    if (s != OK) {
        TRY(doctor_note_failure(d, DOCTOR_PRODUCTS, NAN));
        return doctor_note(d, DOCTOR_OF(d->rank, DOCTOR_MEMORY_RATE, NAN),
                           "as its matrix products");
    }
    TRY(doctor_note(d, DOCTOR_OF(d->rank, DOCTOR_PRODUCTS, peak.flops / d->threads / 1e9),
                    "threads: %d", d->threads));
    return doctor_note(d, DOCTOR_OF(d->rank, DOCTOR_MEMORY_RATE, peak.bytes / 1e9), "threads: %d",
                       d->threads);
}

Status doctor_measure_host(Doctor *d)
{
    double free_gib = 0;
    TRY(note_cores(d));
    TRY(note_free_memory(d, &free_gib));
    return note_rates(d, free_gib >= doctor_rules[DOCTOR_MEMORY].value.bad);
}

/* ---- disk ---- */

enum { BLOCK_BYTES = 1 << 20, BLOCKS = 64, SYNCS = 5, PAGE_BYTES = 4096 };
static const double WRITE_LIMIT_S = 3; /* then the file is large enough */

typedef struct DiskTimes {
    double write_bytes_s, fsync_s, rename_s;
} DiskTimes;

/* fsync of the data is a part of the write's time, as it is of a checkpoint's. */
static Status time_writes(File *f, const char *block, int64_t blocks, double *out_bytes_s)
{
    double began = clock_s();
    for (int64_t i = 0; i < blocks && clock_s() - began < WRITE_LIMIT_S; i++) {
        TRY(file_write(f, block, BLOCK_BYTES));
        TRY(interrupt_check("the doctor's file is removed"));
    }
    TRY(file_sync(f));
    *out_bytes_s = (double)f->written_bytes / (clock_s() - began);
    return OK;
}

static Status time_syncs(File *f, const char *block, double *out_s)
{
    double each[SYNCS];
    for (int i = 0; i < SYNCS; i++) {
        TRY(file_write(f, block, PAGE_BYTES));
        double began = clock_s();
        TRY(file_sync(f));
        each[i] = clock_s() - began;
    }
    sort_doubles(each, SYNCS);
    *out_s = each[SYNCS / 2];
    return OK;
}

/* Random bytes, since some file systems compress. The rename is file_commit's, with its two fsyncs. */
static Status time_disk(Doctor *d, const char *path, DiskTimes *out)
{
    File f = { 0 };
    char *block = NULL;
    uint32_t word = 0;
    TRY(ARENA_NEW(d->a, BLOCK_BYTES, &block));
    for (uint64_t i = 0; i < BLOCK_BYTES; i += sizeof word) {
        word = rng_u32(1, 0, i);
        memcpy(block + i, &word, sizeof word);
    }
    Status s = file_create_temp_buffered(&f, path, NULL, 0);
    if (s == OK) s = time_writes(&f, block, doctor_shrunk(d, BLOCKS), &out->write_bytes_s);
    if (s == OK) s = time_syncs(&f, block, &out->fsync_s);
    double began = clock_s();
    if (s == OK) s = file_commit(&f);
    out->rename_s = clock_s() - began;
    file_close(&f);
    (void)unlink(path);
    return s;
}

static Status free_bytes(const char *folder, double *out)
{
    char why[64];
    struct statvfs v;
    if (statvfs(folder, &v) != 0)
        return FAIL(ERR_IO, "%.100s: %s", folder, strerror_r(errno, why, sizeof why));
    *out = (double)v.f_bavail * (double)v.f_frsize;
    return OK;
}

/* A folder that cannot be written to has a rate of 0; the times are then unknown. */
static Status note_disk(Doctor *d, const char *path)
{
    DiskTimes t = { 0 };
    double bytes = 0;
    if (free_bytes(d->options->folder, &bytes) != OK)
        TRY(doctor_note_failure(d, DOCTOR_DISK_FREE, 0));
    else
        TRY(doctor_note(d, DOCTOR_OF(d->rank, DOCTOR_DISK_FREE, bytes / GIB), "%s", ""));
    Status s = time_disk(d, path, &t);
    if (s == ERR_INTERRUPTED) return s;
    if (s != OK) {
        TRY(doctor_note_failure(d, DOCTOR_DISK_WRITE, 0));
        TRY(doctor_note(d, DOCTOR_OF(d->rank, DOCTOR_DISK_FSYNC, NAN), "it cannot be written to"));
        return doctor_note(d, DOCTOR_OF(d->rank, DOCTOR_DISK_RENAME, NAN),
                           "it cannot be written to");
    }
    TRY(doctor_note(d, DOCTOR_OF(d->rank, DOCTOR_DISK_WRITE, t.write_bytes_s / 1e6), "%s", ""));
    TRY(doctor_note(d, DOCTOR_OF(d->rank, DOCTOR_DISK_FSYNC, t.fsync_s * 1e3), "%s", ""));
    return doctor_note(d, DOCTOR_OF(d->rank, DOCTOR_DISK_RENAME, t.rename_s * 1e3), "%s", "");
}

/* The name is the rank's own, since hosts may share the folder. */
Status doctor_measure_disk(Doctor *d)
{
    char name[64], path[FILE_PATH_MAX];
    if (d->all[d->rank].local != 0) return OK;
    (void)snprintf(name, sizeof name, ".switchyard-doctor-%d", d->rank);
    TRY(file_join(path, d->options->folder, name));
    return note_disk(d, path);
}

/* ---- clock ---- */

enum { LOOKS = 8 };

static double real_time_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static Status send_time(Comm *c, int peer, double t)
{
    CommRequest r = { 0 };
    TRY(comm_send(c, &(Tensor){ &t, DTYPE_U8, 1, { sizeof t } }, peer, 0, &r));
    return comm_wait(c, &r);
}

static Status receive_time(Comm *c, int peer, double *t)
{
    CommRequest r = { 0 };
    TRY(comm_recv(c, &(Tensor){ t, DTYPE_U8, 1, { sizeof *t } }, peer, 0, &r));
    return comm_wait(c, &r);
}

/* As NTP does: the other clock stood in the middle of the question's way there and back. Half of the way
 * is the doubt, so the shortest way counts, and the doubt is taken off. */
static Status ask_clock(Doctor *d, int peer)
{
    double ahead = 0, shortest = INFINITY;
    for (int i = 0; i < LOOKS; i++) {
        double there = 0, asked = real_time_s();
        TRY(send_time(d->world, peer, asked));
        TRY(receive_time(d->world, peer, &there));
        double now = real_time_s();
        if (now - asked >= shortest) continue;
        shortest = now - asked;
        ahead = there - (asked + now) / 2;
    }
    return doctor_note(d, DOCTOR_OF(peer, DOCTOR_CLOCK, fmax(0, fabs(ahead) - shortest / 2)),
                       "its clock is %.3g s %s rank 0's", fabs(ahead),
                       ahead > 0 ? "ahead of" : "behind");
}

Status doctor_measure_clock(Doctor *d)
{
    double question = 0;
    if (d->world == NULL) return OK;
    if (d->rank == 0) {
        for (int r = 1; r < d->ranks; r++) TRY(ask_clock(d, r));
        return OK;
    }
    for (int i = 0; i < LOOKS; i++) {
        TRY(receive_time(d->world, 0, &question));
        TRY(send_time(d->world, 0, real_time_s()));
    }
    return OK;
}

/* ---- builds ---- */

enum { BUILDS_BYTES = 4096 };

/* The text that most ranks have; of equally frequent ones the first. */
static const char *commonest(const char *const *text, int n)
{
    int best = 0, most = 0;
    for (int i = 0; i < n && n - i > most; i++) {
        int same = 0;
        for (int j = i; j < n; j++) same += strcmp(text[i], text[j]) == 0;
        if (same > most) most = same, best = i;
    }
    return text[best];
}

static int line_bytes(const char *at) { return (int)strcspn(at, "\n"); }

/* The first line that differs, of both texts. */
static void first_difference(const char **x, const char **y)
{
    while (**x != '\0' && **y != '\0' && line_bytes(*x) == line_bytes(*y) &&
           strncmp(*x, *y, (size_t)line_bytes(*x)) == 0) {
        *x += line_bytes(*x) + ((*x)[line_bytes(*x)] == '\n');
        *y += line_bytes(*y) + ((*y)[line_bytes(*y)] == '\n');
    }
}

/* This rank's lines, as name and value. */
static void list_builds(const Doctor *d, char *out, size_t out_bytes)
{
    char mpi[COMM_MPI_VERSION_BYTES];
    comm_mpi_version(mpi);
    (void)snprintf(out, out_bytes, "%sprocessor %s\ngpu %s\nmpi library %s\n", d->options->versions,
                   d->cpu_text, d->gpu_text, mpi);
}

static Status note_build(Doctor *d, int rank, const char *own, const char *common)
{
    first_difference(&own, &common);
    if (*own == '\0' && *common == '\0')
        return doctor_note(d, DOCTOR_OF(rank, DOCTOR_BUILD, 1), "%s", "");
    return doctor_note(d, DOCTOR_OF(rank, DOCTOR_BUILD, 0), "it has \"%.*s\", others have \"%.*s\"",
                       line_bytes(own), own, line_bytes(common), common);
}

Status doctor_measure_builds(Doctor *d)
{
    char mine[BUILDS_BYTES];
    const char *const *text = NULL;
    if (d->world == NULL) return OK;
    list_builds(d, mine, sizeof mine);
    TRY(agree_texts(d->world, mine, d->a, &text));
    if (d->rank != 0) return OK;
    const char *common = commonest(text, d->ranks);
    for (int r = 0; r < d->ranks; r++) TRY(note_build(d, r, text[r], common));
    return OK;
}
