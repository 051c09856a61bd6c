/* pairs: tournaments of ranks over one kind of memory, for pairs.c and gpu.c. */
#ifndef DOCTOR_PAIRS_H
#define DOCTOR_PAIRS_H

#include "doctor/doctor_private.h"

/* Memory that is exchanged: two blocks of `large` f32 numbers. */
typedef struct DoctorWire DoctorWire;
struct DoctorWire {
    void *from, *to;
    int64_t small, large;                /* elements of a message */
    int launches;                        /* exchanges between two syncs */
    Status (*sync)(const DoctorWire *w); /* waits for what was launched */
    void *self;
};

/* A group of ranks whose pairs are measured. */
typedef struct DoctorLane {
    Comm *host; /* between host threads */
    Comm *wire; /* carries the wire's memory; on the CPU the same group */
    DoctorCheck rank, rate, latency;
    double expected_bytes_s; /* of the data sheet; 0: unknown */
} DoctorLane;

Status doctor_tournament(Doctor *d, const DoctorWire *w, const DoctorLane *lane);

/* Ranks of this rank's host, or the ranks of all hosts with this rank's number on its host. */
typedef enum DoctorWay { DOCTOR_INSIDE, DOCTOR_BETWEEN } DoctorWay;
Status doctor_split(const Doctor *d, Comm *of, DoctorWay way, Comm **out);

#endif
