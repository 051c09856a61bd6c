/* report: RUN/report.html, one file that needs no network: what metrics.jsonl says, and
 * config.yaml, recording/ and sample.txt of the same folder. docs/reference/formats.md lists the
 * parts. */
#ifndef VIZ_REPORT_H
#define VIZ_REPORT_H

#include "viz/run_data.h"

/* Writes the report and prints the run's figures. Reads RUN/metrics.jsonl in pieces. Needs 64 MiB
 * of `scratch` and 8 bytes a step, and gives all of it back. ERR_IO: the file is missing.
 * ERR_FORMAT: it has no step and no evaluation. */
Status report_write(const char *run_dir, Arena *scratch, RunSummary *out);

#endif
