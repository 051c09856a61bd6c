/*
 * report: RUN/report.html, one file about one run that needs nothing else and no network.
 *
 * It shows what metrics.jsonl says, and config.yaml, trace.json and sample.txt of the same folder
 * where they are there. docs/formats.md lists the parts.
 */
#ifndef VIZ_REPORT_H
#define VIZ_REPORT_H

#include "base/arena.h"

#include <stdint.h>

/* NaN: the run has no such thing. */
typedef struct RunSummary {
    int64_t steps, tokens; /* by the last line for each step */
    double wall_s;         /* sum of the steps' times: without evaluation and checkpoints */
    double final_loss;     /* of the last step */
    double first_bits_per_byte, last_bits_per_byte; /* held out: first and last evaluation */
    double least_share; /* of all experts of all MoE layers, over the last 50 steps: the smallest
                           load / mean load */
    int64_t least_layer, least_expert; /* whose it is; -1 if there is none */
} RunSummary;

/* Both read RUN/metrics.jsonl in pieces and give `scratch` back. They want 64 MiB of it and 8 bytes
 * a step, report_write also twice the size of trace.json. A missing file is ERR_IO, one without a
 * step or evaluation ERR_FORMAT. */
Status report_write(const char *run_dir, Arena *scratch);
Status report_summary(const char *run_dir, Arena *scratch, RunSummary *out);

#endif
