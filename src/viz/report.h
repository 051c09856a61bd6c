/* report: RUN/report.html, one file that needs no network: what metrics.jsonl says, and
 * config.yaml, trace.json and sample.txt of the same folder. docs/formats.md lists the parts. */
#ifndef VIZ_REPORT_H
#define VIZ_REPORT_H

#include "base/arena.h"

#include <stdint.h>

/* NaN: the run has no such thing. */
typedef struct RunSummary {
    int64_t steps, tokens; /* by the last line for each step */
    int64_t twice;         /* of the steps: those that ran a second time for want of room */
    double wall_s;         /* sum of the steps' times: without evaluation and checkpoints */
    double final_loss;     /* of the last step */
    double first_bits_per_byte, last_bits_per_byte; /* held out: first and last evaluation */
    double least_share; /* of all experts of all MoE layers, over the last 50 steps: the smallest
                           load / mean load */
    int64_t least_layer, least_expert; /* whose it is; -1 if there is none */
} RunSummary;

/* Writes it and says the run's figures. Reads RUN/metrics.jsonl in pieces and gives `scratch` back;
 * it wants 64 MiB, 8 bytes a step and twice the size of trace.json. A missing file is ERR_IO, one
 * without a step or evaluation ERR_FORMAT. */
Status report_write(const char *run_dir, Arena *scratch, RunSummary *out);

#endif
