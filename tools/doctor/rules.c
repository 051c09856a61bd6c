/* rules: what is ok, slow and bad, as a table, and the verdicts that follow from it. Pure: nothing here
 * measures. docs/reference/doctor.md has the same table; a test compares them. */
#include "doctor/doctor.h"

#include "engine/base/order.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

const char *const doctor_verdict_names[] = { "ok", "unknown", "slow", "bad" };

/* clang-format off */
/* A synchronous step takes as long as its slowest rank, so 0.8 of the others costs a fifth of all. Latency,
 * shared disks and transfers between cores vary more between runs. */
#define OF_PEERS { 0.8, 0.5 }
#define VARYING  { 0.5, 0.2 }
#define LATENCY  { 0.5, 0.1 }

/* Sheets promise what no program reaches: on an H200 under its power limit our products reach 0.65 to 0.7 of
 * it, copies 0.89, NCCL between two GPUs 0.6 to 0.75. */
#define OF_SHEET { 0.5, 0.25 }
/* clang-format on */

const DoctorRule doctor_rules[DOCTOR_CHECKS] = {
    [DOCTOR_CORES] = { "cores of a rank", "cores", .value = { 0, 1 }, .peers = OF_PEERS,
                       .advice =
                           "give each rank cores of its own: fewer ranks a host, or mpirun "
                           "--bind-to none, with which ranks share out the cores themselves" },
    [DOCTOR_PRODUCTS] = { "products of a thread", "GFLOP/s", .peers = OF_PEERS,
                          .advice = "look for other processes on that host (top), for its governor "
                                    "(cpupower frequency-info) and its temperature" },
    [DOCTOR_MEMORY] = { "free memory of a rank", "GiB", .value = { 0, 1 }, .peers = OF_PEERS,
                        .advice = "end what uses memory there, raise the limit that is named, or "
                                  "start fewer ranks" },
    [DOCTOR_MEMORY_RATE] = { "memory copy", "GB/s", .peers = OF_PEERS,
                             .advice = "look for other processes on that host, and for missing or "
                                       "slow memory modules (dmidecode -t memory)" },
    [DOCTOR_DISK_FREE] = { "disk, free", "GiB", .value = { 0, 1 },
                           .advice = "free space there, or name another folder" },
    [DOCTOR_DISK_WRITE] = { "disk, write", "MB/s", .value = { 100, 10 }, .peers = VARYING,
                            .advice =
                                "keep run.dir on a faster disk: a checkpoint is written at this "
                                "rate" },
    [DOCTOR_DISK_FSYNC] = { "disk, fsync", "ms", .less = true, .value = { 100, 2000 },
                            .advice =
                                "keep run.dir on another disk: each file of a checkpoint waits "
                                "this long" },
    [DOCTOR_DISK_RENAME] = { "disk, rename", "ms", .less = true, .value = { 100, 2000 },
                             .advice = "keep run.dir on another disk: each file of a checkpoint is "
                                       "renamed" },
    [DOCTOR_CLOCK] = { "clock, difference", "s", .less = true, .value = { 0.05, 1 },
                       .advice = "start a time service on that host (chronyc tracking)" },
    [DOCTOR_BUILD] = { "program and libraries", "", .value = { 0, 1 },
                       .advice = "install the same program, libraries and driver on all hosts" },
    [DOCTOR_HOST_RANK] = { "rank in a host, rate", "GB/s", .peers = VARYING,
                           .advice = "look at the cores of this rank (row 1)" },
    [DOCTOR_HOST_RATE] = { "pairs in a host, rate", "GB/s", .peers = VARYING,
                           .advice =
                               "look at the cores of these ranks (row 1) and at other processes "
                               "on that host" },
    [DOCTOR_HOST_LATENCY] = { "pairs in a host, latency", "us", .less = true, .peers = { 0.5, 0 },
                              .advice = "look at the cores of these ranks (row 1) and at other "
                                        "processes on that host" },
    [DOCTOR_NET_RANK] = { "rank and hosts, rate", "GB/s", .peers = OF_PEERS,
                          .advice =
                              "look at the network card of that host, its cable and its port: all "
                              "its pairs are slow" },
    [DOCTOR_NET_RATE] = { "pairs of hosts, rate", "GB/s", .peers = OF_PEERS,
                          .advice =
                              "look at the link of that host: ethtool, ibstat, cables, and which "
                              "interface MPI takes (--mca btl_tcp_if_include)" },
    [DOCTOR_NET_LATENCY] = { "pairs of hosts, latency", "us", .less = true, .peers = LATENCY,
                             .advice = "look at the way between these hosts: switches, and which "
                                       "interface MPI takes (--mca btl_tcp_if_include)" },
    [DOCTOR_GPU] = { "GPU", "", .value = { 0, 1 },
                     .advice = "look at the driver (nvidia-smi), at its log (dmesg), and at "
                               "CUDA_VISIBLE_DEVICES" },
    [DOCTOR_GPU_PRODUCTS] = { "GPU, products", "TFLOP/s", .peers = OF_PEERS, .sheet = OF_SHEET,
                              .advice =
                                  "look at the next rows for its clock and power; else change "
                                  "the GPU" },
    [DOCTOR_GPU_CLOCK] = { "GPU, clock under load", "MHz", .peers = OF_PEERS,
                           .advice =
                               "look at cooling and power of that host, and whether its clock "
                               "was locked (nvidia-smi -q -d CLOCK)" },
    [DOCTOR_GPU_THROTTLE] = { "GPU, throttling", "", .less = true, .value = { 0.5, 1.5 },
                              .advice = "look at fans, cooling water and power supplies of that "
                                        "host" },
    [DOCTOR_GPU_POWER] = { "GPU, power limit", "W", .sheet = { 0.95, 0.5 },
                           .advice = "raise it: nvidia-smi -pl, by the administrator" },
    [DOCTOR_GPU_COPY] = { "GPU, memory copy", "GB/s", .peers = OF_PEERS, .sheet = OF_SHEET,
                          .advice = "look at its memory clock and at other processes on it "
                                    "(nvidia-smi); else change the GPU" },
    [DOCTOR_GPU_MEMORY] = { "GPU, memory test", "words", .less = true, .value = { 0, 0.5 },
                            .advice = "do not train on it: reset it, and change it if this stays" },
    [DOCTOR_GPU_ERRORS] = { "GPU, memory errors", "", .less = true, .value = { 0, 0.5 },
                            .advice =
                                "reset it (nvidia-smi -r, or the host), and change it if they "
                                "come again" },
    [DOCTOR_GPU_BUS] = { "GPU, bus", "GB/s", .sheet = { 0.9, 0.4 },
                         .advice =
                             "look at its slot: PCIe runs with fewer lanes or slower than GPU "
                             "and slot can do" },
    [DOCTOR_GPU_LINKS] = { "GPU, links up", "", .peers = { 0, 0.99 },
                           .advice = "look at nvidia-smi nvlink -s and at the fabric manager" },
    [DOCTOR_COLLECTIVE] = { "NCCL, right sums", "", .value = { 0, 1 },
                            .advice = "set NCCL_DEBUG=INFO and look which link it takes" },
    [DOCTOR_COLLECTIVE_RATE] = { "NCCL, all-reduce", "GB/s", .sheet = OF_SHEET,
                                 .advice = "look at the pairs below: the slowest one sets it" },
    [DOCTOR_GPU_HOST_RANK] = { "GPU in a host, rate", "GB/s", .peers = OF_PEERS,
                               .advice = "look at the links of this GPU: nvidia-smi nvlink -s" },
    [DOCTOR_GPU_HOST_RATE] = { "GPUs in a host, rate", "GB/s", .peers = OF_PEERS, .sheet = OF_SHEET,
                               .advice = "look at nvidia-smi topo -m and nvlink -s of that host" },
    [DOCTOR_GPU_HOST_LATENCY] = { "GPUs in a host, latency", "us", .less = true,
                                  .peers = { 0.5, 0 },
                                  .advice = "look at nvidia-smi topo -m of that host" },
    [DOCTOR_GPU_NET_RANK] = { "GPU and hosts, rate", "GB/s", .peers = OF_PEERS,
                              .advice =
                                  "look at the network card of this GPU, its cable and its port: "
                                  "all its pairs are slow" },
    [DOCTOR_GPU_NET_RATE] = { "GPUs of hosts, rate", "GB/s", .peers = OF_PEERS, .sheet = OF_SHEET,
                              .advice =
                                  "look at that GPU's network card (ibstat), its cable, and at "
                                  "NCCL_DEBUG=INFO" },
    [DOCTOR_GPU_NET_LATENCY] = { "GPUs of hosts, latency", "us", .less = true, .peers = LATENCY,
                                 .advice = "look at the way between these hosts, and at "
                                           "NCCL_DEBUG=INFO" },
};

/* The median of n sorted values. `without` leaves out one value that is among them; NAN: none. Element k of
 * the others is element k or, from the left-out one on, k + 1. */
static double median_of(const double *sorted, int64_t n, double without)
{
    const bool whole = isnan(without);
    int64_t others = whole ? n : n - 1;
    if (others < 1) return NAN;
    int64_t low = (others - 1) / 2, high = others / 2;
    if (!whole && without <= sorted[low]) low++;
    if (!whole && without <= sorted[high]) high++;
    return (sorted[low] + sorted[high]) / 2;
}

/* How far below (or, where less is better, above) the limits this is. limit 0 and reference 0: none. */
static DoctorVerdict compare_to(const DoctorRule *r, double value, const DoctorLimit *limit,
                                double reference, double *out_limit)
{
    const double share[] = { limit->bad, limit->slow };
    static const DoctorVerdict verdict[] = { DOCTOR_BAD, DOCTOR_SLOW };
    for (int i = 0; i < 2; i++) {
        if (share[i] == 0 || !(reference > 0)) continue;
        bool of_value = limit == &r->value;
        double at = of_value ? share[i] : r->less ? reference / share[i] : reference * share[i];
        if (r->less ? value <= at : value >= at) continue;
        *out_limit = at;
        return verdict[i];
    }
    return DOCTOR_OK;
}

static DoctorFinding judge_sample(const DoctorRule *r, const DoctorSample *s, double others)
{
    DoctorFinding worst = { s, isnan(s->value) ? DOCTOR_UNKNOWN : DOCTOR_OK, AGAINST_NOTHING, 0 };
    const struct {
        DoctorAgainst against;
        const DoctorLimit *limit;
        double reference;
    } each[] = { { AGAINST_VALUE, &r->value, 1 },
                 { AGAINST_PEERS, &r->peers, others },
                 { AGAINST_SHEET, &r->sheet, s->expected } };
    for (int i = 0; i < 3 && !isnan(s->value); i++) {
        double limit = 0;
        DoctorVerdict v = compare_to(r, s->value, each[i].limit, each[i].reference, &limit);
        if (v > worst.verdict) worst = (DoctorFinding){ s, v, each[i].against, limit };
    }
    return worst;
}

/* Of two samples with one verdict the one that is farther off. Unknown ones stay in the order of ranks. */
static bool is_worse(const DoctorRule *r, const DoctorFinding *x, const DoctorFinding *y)
{
    if (x->verdict != y->verdict) return x->verdict > y->verdict;
    return r->less ? x->sample->value > y->sample->value : x->sample->value < y->sample->value;
}

/* Keeps the worst findings, sorted. */
static void keep_finding(const DoctorRule *r, DoctorRow *row, DoctorFinding f)
{
    int at = row->findings;
    while (at > 0 && is_worse(r, &f, &row->finding[at - 1])) at--;
    if (at == DOCTOR_FINDINGS_MAX) return;
    if (row->findings < DOCTOR_FINDINGS_MAX) row->findings++;
    for (int i = row->findings - 1; i > at; i--) row->finding[i] = row->finding[i - 1];
    row->finding[at] = f;
}

/* A row that is known in part is judged by that part. */
static void judge_row(const DoctorSample *sample, int64_t n, const double *sorted, DoctorRow *row)
{
    const DoctorRule *r = &doctor_rules[row->check];
    for (int64_t i = 0; i < n; i++) {
        if (sample[i].check != (int32_t)row->check) continue;
        double others = median_of(sorted, row->known, sample[i].value);
        DoctorFinding f = judge_sample(r, &sample[i], others);
        if (f.verdict == DOCTOR_OK) continue;
        row->odd++;
        keep_finding(r, row, f);
        if (f.verdict > row->verdict && f.verdict > DOCTOR_UNKNOWN) row->verdict = f.verdict;
    }
    if (row->samples > 0 && row->known == 0) row->verdict = DOCTOR_UNKNOWN;
}

Status doctor_judge(DoctorCheck check, const DoctorSample *sample, int64_t n, Arena *a,
                    DoctorRow *out)
{
    double *sorted = NULL;
    ArenaMark mark = arena_mark(a);
    *out = (DoctorRow){ .check = check, .least = NAN, .median = NAN, .most = NAN };
    TRY(ARENA_NEW(a, n, &sorted));
    for (int64_t i = 0; i < n; i++) {
        if (sample[i].check != (int32_t)check) continue;
        out->samples++;
        if (!isnan(sample[i].value)) sorted[out->known++] = sample[i].value;
    }
    sort_doubles(sorted, out->known);
    if (out->known > 0) {
        out->least = sorted[0], out->most = sorted[out->known - 1];
        out->median = median_of(sorted, out->known, NAN);
    }
    judge_row(sample, n, sorted, out);
    arena_release(a, mark);
    return OK;
}

/* "slow under 0.8, bad under 0.5 of the others' median"; nothing without a limit. */
static Status print_limit(DoctorLimit l, const char *side, const char *end, bool *first, Text *out)
{
    const char *comma = l.slow != 0 && l.bad != 0 ? ", " : "";
    if (l.slow == 0 && l.bad == 0) return OK;
    TRY(text_printf(out, "%s", *first ? "" : "; "));
    *first = false;
    if (l.slow != 0) TRY(text_printf(out, "slow %s %g", side, l.slow));
    if (l.bad != 0) TRY(text_printf(out, "%sbad %s %g", comma, side, l.bad));
    return text_printf(out, "%s", end);
}

/* Where less is better, 0.5 of the others' median over a value is a value of twice the median. */
Status doctor_print_limits(const DoctorRule *r, Text *out)
{
    char unit[32] = "";
    bool first = true;
    DoctorLimit peers = r->peers;
    if (r->less && peers.slow != 0) peers.slow = 1 / peers.slow;
    if (r->less && peers.bad != 0) peers.bad = 1 / peers.bad;
    if (r->unit[0] != '\0') (void)snprintf(unit, sizeof unit, " %s", r->unit);
    TRY(print_limit(r->value, r->less ? "over" : "under", unit, &first, out));
    TRY(print_limit(peers, r->less ? "over" : "under",
                    r->less ? " times the others' median" : " of the others' median", &first, out));
    return print_limit(r->sheet, "under", " of the data sheet", &first, out);
}

/* The circle method. m is even; one place stays, the others turn. In round k places i and j with
 * i + j = k mod m - 1 meet, and the place that would meet itself meets the last one. */
int doctor_partner(int rank, int n, int round)
{
    int m = n + n % 2, turn = m - 1;
    int other =
        rank == turn ? (int)((int64_t)round * (m / 2) % turn) : (round - rank + turn) % turn;
    if (other == rank) other = turn;
    return other < n ? other : -1;
}

int doctor_rounds(int n) { return n < 2 ? 0 : n + n % 2 - 1; }
