/* doctor: measures in a fixed order on all ranks, collects the samples, judges and prints (doctor.h). */
#include "doctor/doctor_private.h"

#include "engine/base/interrupt.h"
#include "engine/host/cgroup.h"
#include "engine/host/cpu.h"
#include "engine/step/agree.h"
#include "engine/train/train.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const double STOP_S = 2; /* a wait may last so long after Ctrl-C */

/* ---- notes ---- */

_Static_assert(sizeof(DoctorSample) % 8 == 0, "samples travel as numbers");

Status doctor_note(Doctor *d, DoctorSample s, const char *why, ...)
{
    va_list ap;
    TRY(ARENA_GROW(d->a, d->samples + 1, &d->room, &d->sample));
    va_start(ap, why);
    (void)vsnprintf(s.why, sizeof s.why, why, ap);
    va_end(ap);
    d->sample[d->samples++] = s;
    return OK;
}

Status doctor_note_failure(Doctor *d, DoctorCheck check, double value)
{
    char why[DOCTOR_WHY_BYTES];
    status_sentence(why, sizeof why);
    status_clear();
    return doctor_note(
        d, (DoctorSample){ .check = check, .rank = d->rank, .peer = -1, .value = value }, "%s",
        why);
}

/* ---- ranks ---- */

Status doctor_gather(Doctor *d, void *mine, size_t bytes, void *all)
{
    const int64_t words = (int64_t)(bytes / 4);
    const Tensor in = { mine, DTYPE_I32, 2, { 1, words } };
    const Tensor out = { all, DTYPE_I32, 2, { d->ranks, words } };
    if (d->world == NULL) return memcpy(all, mine, bytes), OK;
    return comm_all_gather(d->world, &in, &out);
}

Status doctor_meet(const Doctor *d)
{
    TRY(interrupt_check("nothing was written"));
    return d->world == NULL ? OK : comm_barrier(d->world);
}

/* Ranks need not follow each other on a host here. */
static void number_hosts(Doctor *d)
{
    int hosts = 0;
    for (int r = 0; r < d->ranks; r++) {
        int first = 0;
        while (strcmp(d->all[first].host.text, d->all[r].host.text) != 0) first++;
        d->all[r].host_number = first == r ? hosts++ : d->all[first].host_number;
        for (int before = first; before < r; before++)
            d->all[r].local += d->all[before].host_number == d->all[r].host_number;
    }
}

int64_t doctor_shrunk(const Doctor *d, int64_t size)
{
    int64_t by = d->options->shrink;
    return size / by > 1 ? size / by : 1;
}

int doctor_ranks_here(const Doctor *d)
{
    int here = 0;
    for (int r = 0; r < d->ranks; r++) here += d->all[r].host_number == d->all[d->rank].host_number;
    return here;
}

/* Version 2 of cgroups has both numbers in one file: "200000 100000". Version 1 has a file for each. */
static void lower_quota(void *state, const char *folder, int version)
{
    double *cpus = state;
    char text[CGROUP_FILE_BYTES], second[CGROUP_FILE_BYTES];
    uint64_t quota = 0, period = 0;
    if (!cgroup_read(folder, version == 2 ? "cpu.max" : "cpu.cfs_quota_us", text)) return;
    const char *rest = version == 2 ? strchr(text, ' ') : second;
    if (version == 1 && !cgroup_read(folder, "cpu.cfs_period_us", second)) return;
    if (rest == NULL || !cgroup_number(text, "", &quota) || !cgroup_number(rest, "", &period))
        return;
    double here = period == 0 ? 0 : (double)quota / (double)period;
    if (here > 0 && (*cpus == 0 || here < *cpus)) *cpus = here;
}

double doctor_cpu_quota(const char *proc, const char *cgroups)
{
    double cpus = 0;
    cgroup_visit(proc, cgroups, "cpu", lower_quota, &cpus);
    return cpus;
}

/* Before this rank takes its share of the cores, which binds it. */
static Status meet_ranks(Doctor *d)
{
    DoctorRank mine = { 0 };
    if (gethostname(mine.host.text, sizeof mine.host.text - 1) != 0)
        return FAIL(ERR_IO, "rank %d cannot read its host's name", d->rank);
    mine.cores_known = bind_cores(&mine.cores);
    mine.quota = (float)doctor_cpu_quota("/proc", "/sys/fs/cgroup");
    TRY(ARENA_NEW(d->a, d->ranks, &d->all));
    TRY(doctor_gather(d, &mine, sizeof mine, d->all));
    number_hosts(d);
    return OK;
}

static Status take_share(Doctor *d)
{
    BindShare share;
    TRY(config_default(&d->gpu, d->a));
    TRY(config_override(&d->gpu, d->a, "run.compute=bf16"));
    if (d->world != NULL) train_take_share(&d->gpu, d->world, &share);
    TRY(config_default(&d->host, d->a));
    TRY(config_override(&d->host, d->a, "run.device=cpu"));
    d->threads = train_threads(&d->gpu);
    return OK;
}

/* ---- the table ---- */

/* All ranks send as many samples as the rank that has most of them; rank -1 fills up. */
static Status collect_samples(Doctor *d, DoctorSample **out, int64_t *out_n)
{
    int32_t most = (int32_t)d->samples;
    TRY(agree_most(d->world, &most, 1));
    TRY(ARENA_NEW(d->a, (int64_t)most * d->ranks, out));
    while (d->samples < most)
        TRY(doctor_note(d, (DoctorSample){ .check = -1, .rank = -1, .value = NAN }, "%s", ""));
    TRY(doctor_gather(d, d->sample, (size_t)most * sizeof **out, *out));
    *out_n = (int64_t)most * d->ranks;
    return OK;
}

static Status report(Doctor *d, Text *out, DoctorVerdict *verdict)
{
    DoctorSample *sample = NULL;
    DoctorRow row[DOCTOR_CHECKS];
    int64_t n = 0;
    TRY(collect_samples(d, &sample, &n));
    if (d->rank != 0) return OK;
    for (DoctorCheck c = 0; c < DOCTOR_CHECKS; c++) {
        TRY(doctor_judge(c, sample, n, d->a, &row[c]));
        if (row[c].verdict > *verdict) *verdict = row[c].verdict;
    }
    return d->options->json ? doctor_print_json(d, row, sample, n, out)
                            : doctor_print_text(d, row, out);
}

static Status measure(Doctor *d)
{
    TRY(meet_ranks(d));
    TRY(take_share(d));
    TRY(doctor_measure_host(d));
    TRY(doctor_meet(d));
    TRY(doctor_measure_disk(d));
    TRY(doctor_meet(d));
    TRY(doctor_measure_clock(d));
    TRY(doctor_measure_pairs(d));
    TRY(doctor_measure_gpu(d));
    return doctor_measure_builds(d);
}

Status doctor_run(const DoctorOptions *options, Comm *world, Arena *a, Text *out,
                  DoctorVerdict *verdict)
{
    Doctor d = { .options = options, .world = world, .a = a, .ranks = 1 };
    const Cpu cpu = cpu_here();
    *verdict = DOCTOR_OK;
    (void)snprintf(d.cpu_text, sizeof d.cpu_text, "%s%s%s", cpu_isa_names[cpu.isa],
                   cpu.bf16 ? " bf16" : "", cpu.amx ? " amx" : "");
    if (world != NULL) {
        d.rank = world->rank, d.ranks = world->size;
        comm_set_stop(world, interrupt_flag(), STOP_S);
    }
    TRY(measure(&d));
    return report(&d, out, verdict);
}
