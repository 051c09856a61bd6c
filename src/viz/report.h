/* report: RUN/report.html, one file that needs no network: what metrics.jsonl says, and
 * config.yaml, trace.json and sample.txt of the same folder. docs/formats.md lists the parts. */
#ifndef VIZ_REPORT_H
#define VIZ_REPORT_H

#include "viz/run_data.h"

/* Writes it and says the run's figures. Reads RUN/metrics.jsonl in pieces and gives `scratch` back;
 * it wants 64 MiB, 8 bytes a step and twice the size of trace.json. A missing file is ERR_IO, one
 * without a step or evaluation ERR_FORMAT. */
Status report_write(const char *run_dir, Arena *scratch, RunSummary *out);

#endif
