/*
 * code_report: how well the numbers of a step fit into 8 bits (fp8.report_steps). It looks at what
 * ops quantise: the share of codes that are 0 (too small for their scale, or 0 before), and of those
 * that are the largest finite one.
 *
 * It samples: the first million codes of each tensor, rows only, as columns hold the same numbers
 * with gaps between groups. Each look waits for the device, so steps that are looked at are slow.
 */
#ifndef ENGINE_TRAIN_CODE_REPORT_H
#define ENGINE_TRAIN_CODE_REPORT_H

#include "kernels/core/op.h"

/* One tensor of a layer. */
typedef struct CodeShares {
    int layer;                  /* of the model; -1: outside blocks */
    const char *of, *op, *port; /* of: what it is an operand of; NULL: not known */
    double n, zero, largest;    /* codes looked at, and how many of them are what */
} CodeShares;

typedef struct CodeReport {
    Decorator look;
    CodeShares *at;
    int n, dropped; /* dropped: tensors for which there was no room */
    uint8_t *sample;
    Arena arena;
} CodeReport;

Status code_report_open(CodeReport *r);
void code_report_close(CodeReport *r); /* safe on { 0 } */
/* Looks at the ops of the steps between these two calls. */
void code_report_begin(CodeReport *r, Exec *ex);
void code_report_end(Exec *ex);
/* Prints the tensors with the largest shares of zeros, and forgets all. */
void code_report_print(CodeReport *r, int64_t step);

#endif
