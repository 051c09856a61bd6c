/*
 * doctor: checks the machine before a training: processor, memory, disk, clocks, links, GPUs, libraries.
 *
 * Each rank measures samples: one number for a check, of itself or of a pair of ranks. A number that
 * cannot be had is NAN, with the reason. Rules judge all samples of a check together and give one
 * verdict. Judging is pure (rules.c); measuring is in host.c, pairs.c and gpu.c; text.c prints.
 *
 * Ranks measure processor, memory and GPU at the same time, as a training uses them. So a rank that
 * shares a core with another one shows it in its rates, too.
 *
 * Not here: the speed of a training (bench/), and whether a model fits (engine/train/fits.h, src/planner).
 */
#ifndef DOCTOR_DOCTOR_H
#define DOCTOR_DOCTOR_H

#include "engine/base/text.h"
#include "engine/comm/comm.h"

typedef enum DoctorCheck {
    DOCTOR_CORES,
    DOCTOR_PRODUCTS,
    DOCTOR_MEMORY,
    DOCTOR_MEMORY_RATE,
    DOCTOR_DISK_FREE,
    DOCTOR_DISK_WRITE,
    DOCTOR_DISK_FSYNC,
    DOCTOR_DISK_RENAME,
    DOCTOR_CLOCK,
    DOCTOR_BUILD,
    DOCTOR_HOST_RANK, /* the median rate of a rank's pairs on its host */
    DOCTOR_HOST_RATE, /* of pairs of ranks on one host */
    DOCTOR_HOST_LATENCY,
    DOCTOR_NET_RANK, /* the median rate of a rank's pairs with other hosts */
    DOCTOR_NET_RATE, /* of pairs of ranks on two hosts */
    DOCTOR_NET_LATENCY,
    DOCTOR_GPU,
    DOCTOR_GPU_PRODUCTS, /* for a few seconds, as are clock and throttling */
    DOCTOR_GPU_CLOCK,
    DOCTOR_GPU_THROTTLE, /* 0: no reason, 1: software lowers the clock for heat, 2: hardware lowers it */
    DOCTOR_GPU_POWER,
    DOCTOR_GPU_COPY,
    DOCTOR_GPU_MEMORY, /* words that were read back wrong */
    DOCTOR_GPU_ERRORS, /* of memory, that the driver has counted */
    DOCTOR_GPU_BUS,
    DOCTOR_GPU_LINKS,
    DOCTOR_COLLECTIVE, /* 1: an all-reduce between GPUs has the right sum */
    DOCTOR_COLLECTIVE_RATE,
    DOCTOR_GPU_HOST_RANK,
    DOCTOR_GPU_HOST_RATE, /* of pairs of GPUs on one host */
    DOCTOR_GPU_HOST_LATENCY,
    DOCTOR_GPU_NET_RANK,
    DOCTOR_GPU_NET_RATE, /* of pairs of GPUs on two hosts */
    DOCTOR_GPU_NET_LATENCY,
    DOCTOR_CHECKS
} DoctorCheck;

/* From best to worst. */
typedef enum DoctorVerdict { DOCTOR_OK, DOCTOR_UNKNOWN, DOCTOR_SLOW, DOCTOR_BAD } DoctorVerdict;
extern const char *const doctor_verdict_names[];

enum { DOCTOR_WHY_BYTES = 160, DOCTOR_FINDINGS_MAX = 8 };

/* What one rank measured. Samples travel between ranks as they are, so the size is a multiple of 8. */
typedef struct DoctorSample {
    int32_t check;              /* DoctorCheck */
    int32_t rank;               /* of the world */
    int32_t peer;               /* the pair's other rank; -1: none */
    int32_t unused;             /* 0 */
    double value;               /* in the rule's unit; NAN: unknown */
    double expected;            /* by a data sheet, in the same unit; 0: no sheet has it */
    char why[DOCTOR_WHY_BYTES]; /* why it is unknown or bad, or what else to know; "": nothing */
} DoctorSample;

/* A limit that separates ok from slow, and slow from bad. 0: none. */
typedef struct DoctorLimit {
    double slow, bad;
} DoctorLimit;

/* When a sample of a check is slow or bad. Any of its limits is enough. */
typedef struct DoctorRule {
    const char *name, *unit;
    bool less; /* less is better, so values above `value` are slow or bad; else those below */
    DoctorLimit value;  /* in the unit */
    DoctorLimit peers;  /* of the others' median; where less is better, of its inverse */
    DoctorLimit sheet;  /* of what the data sheet says */
    const char *advice; /* what to do */
} DoctorRule;

extern const DoctorRule doctor_rules[DOCTOR_CHECKS];

typedef enum DoctorAgainst {
    AGAINST_NOTHING,
    AGAINST_VALUE,
    AGAINST_PEERS,
    AGAINST_SHEET
} DoctorAgainst;

/* A sample that is not ok, and the limit that says so, in the check's unit. */
typedef struct DoctorFinding {
    const DoctorSample *sample;
    DoctorVerdict verdict;
    DoctorAgainst against;
    double limit;
} DoctorFinding;

/* All samples of a check, judged. */
typedef struct DoctorRow {
    DoctorCheck check;
    DoctorVerdict verdict; /* the worst; unknown only if nothing is known, and nothing worse */
    int64_t samples, known;
    double least, median, most; /* of those that are known */
    int64_t odd;                /* samples that are not ok */
    int findings;               /* the worst of these come first */
    DoctorFinding finding[DOCTOR_FINDINGS_MAX];
} DoctorRow;

/* Judges the samples of one check out of all n samples, in any order. Memory comes from `a`. A check
 * without a sample has samples 0 and is ok. */
Status doctor_judge(DoctorCheck check, const DoctorSample *sample, int64_t n, Arena *a,
                    DoctorRow *out);

/* Appends a rule's limits: "bad under 1; slow under 0.8, bad under 0.5 of the others' median". */
Status doctor_print_limits(const DoctorRule *rule, Text *out);

/* The rank that plays `rank` in this round of a tournament of n, in which each pair meets once in
 * doctor_rounds(n) rounds; -1: none. */
int doctor_partner(int rank, int n, int round);
int doctor_rounds(int n);
/* How many processors' time the least quota of these cgroups allows; 0: no quota. */
double doctor_cpu_quota(const char *proc, const char *cgroups);

typedef struct DoctorOptions {
    const char *folder;   /* where the disk is measured */
    const char *versions; /* of this rank's program and libraries, a line each: "nccl 2.28.3" */
    int64_t shrink;       /* divides sizes, times and repetitions, from 1 */
    bool json;
} DoctorOptions;

/* Measures on every rank, and appends the table to rank 0's `out`. world NULL: one rank. *verdict is the
 * worst row's, on rank 0. Takes under a minute. Fails only if ranks cannot reach each other, or memory
 * or an interrupt ends it; what is wrong with the machine is a row. Collective. */
Status doctor_run(const DoctorOptions *options, Comm *world, Arena *a, Text *out,
                  DoctorVerdict *verdict);

#endif
