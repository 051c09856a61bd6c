/* report: RUN/report.html, one file that needs no network. It shows metrics.jsonl, and where they
 * are there config.yaml, recording/ and sample.txt of the same folder. docs/reference/formats.md
 * lists the parts. Traces of other trainers have a page of their own (traces/page/trace_page.h). */
#ifndef PAGES_REPORT_H
#define PAGES_REPORT_H

#include "pages/run_data.h"

/* Writes the report and returns the run's figures. Needs 64 MiB of `scratch` plus 8 bytes a step,
 * and releases all of it. ERR_IO: metrics.jsonl is missing. ERR_FORMAT: it has no step and no
 * evaluation. */
Status report_write(const char *run_dir, Arena *scratch, RunSummary *out);

#endif
