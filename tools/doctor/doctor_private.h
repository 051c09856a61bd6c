/* doctor_private: what the files of the doctor share: the ranks, and notes of what was measured. */
#ifndef DOCTOR_DOCTOR_PRIVATE_H
#define DOCTOR_DOCTOR_PRIVATE_H

#include "doctor/doctor.h"
#include "engine/comm/bind.h"
#include "engine/config/config.h"

/* What ranks tell each other first. It travels as 32-bit numbers. */
typedef struct DoctorRank {
    CommHostName host;
    int32_t host_number; /* hosts by their first ranks: 0, 1, 2 ... */
    int32_t local;       /* this rank's number among its host's ranks */
    int32_t cores_known;
    float quota; /* processors by the quota of its cgroups; 0: none */
    BindCores cores;
} DoctorRank;

typedef struct Doctor {
    const DoctorOptions *options;
    Comm *world; /* NULL: alone */
    int rank, ranks;
    Arena *a;
    Config host, gpu;                /* of a rank that computes on the CPU, and on its GPU */
    DoctorRank *all;                 /* (ranks) */
    int threads;                     /* of this rank */
    char cpu_text[32];               /* instructions of its processor: "x86-64-v4 bf16" */
    char gpu_text[DOCTOR_WHY_BYTES]; /* name, driver and memory of its GPU; "": none */
    DoctorSample *sample;            /* of this rank */
    int64_t samples, room;
} Doctor;

/* A sample of one rank. */
#define DOCTOR_OF(number, of_check, measured)                                                      \
    ((DoctorSample){ .check = (of_check), .rank = (number), .peer = -1, .value = (measured) })

/* Adds a sample of this rank. The text is cut at DOCTOR_WHY_BYTES. */
Status doctor_note(Doctor *d, DoctorSample s, const char *why, ...)
    __attribute__((format(printf, 3, 4)));
/* Adds a sample whose value is not there because of the last failure, and clears that. `value`: NAN if it
 * is unknown, 0 if the failure means that it is bad. */
Status doctor_note_failure(Doctor *d, DoctorCheck check, double value);

int64_t doctor_shrunk(const Doctor *d, int64_t size); /* divided by --shrink, 1 at least */
int doctor_ranks_here(const Doctor *d);               /* how many ranks this rank's host has */

/* All ranks' structs in the order of ranks. bytes: a multiple of 4, the same on all ranks. */
Status doctor_gather(Doctor *d, void *mine, size_t bytes, void *all);
/* Waits for all ranks, so that they measure at the same time. */
Status doctor_meet(const Doctor *d);

Status doctor_measure_host(Doctor *d);   /* cores, products, memory; collective */
Status doctor_measure_disk(Doctor *d);   /* by the first rank of each host */
Status doctor_measure_clock(Doctor *d);  /* against rank 0; collective */
Status doctor_measure_builds(Doctor *d); /* after the GPU, collective */
Status doctor_measure_pairs(Doctor *d);  /* collective */
Status doctor_measure_gpu(Doctor *d);    /* collective; fills gpu_text */

/* Append the rows, as a table or as one JSON object. `row` has DOCTOR_CHECKS elements. */
Status doctor_print_text(const Doctor *d, const DoctorRow *row, Text *out);
Status doctor_print_json(const Doctor *d, const DoctorRow *row, const DoctorSample *sample,
                         int64_t samples, Text *out);

#endif
