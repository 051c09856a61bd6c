/*
 * failure: how a Status leaves a parallel region. The record of a failure belongs to a thread, and
 * no thread may leave the region early: each notes its Status, and behind the region the first
 * failure noted becomes the caller's.
 *
 *     Failure failure = { 0 };
 *     #pragma omp parallel for
 *     for (...) failure_note(&failure, work(...));
 *     return failure_status(&failure);
 */
#ifndef OP_FAILURE_H
#define OP_FAILURE_H

#include "base/status.h"

#include <string.h>

typedef struct Failure {
    Status status;
    char text[512];
} Failure;

static inline void failure_note(Failure *f, Status status)
{
    if (status == OK) return;
#pragma omp critical(op_failure)
    if (f->status == OK) {
        f->status = status;
        strncpy(f->text, status_message(), sizeof f->text - 1);
    }
}

static inline Status failure_status(const Failure *f)
{
    return f->status == OK ? OK : status_adopt(f->status, f->text);
}

#endif
