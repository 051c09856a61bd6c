/* report_sheets: the functions behind the table of sheets in report_sheets.c. */
#ifndef ANALYZE_REPORT_SHEETS_H
#define ANALYZE_REPORT_SHEETS_H

#include "analyze/report.h"

Status sheet_gpu_timeline(Report *r, Table *out);
Status sheet_ops_summary(Report *r, Table *out);
Status sheet_ops_by_category(Report *r, Table *out);
Status sheet_ops_unique_args(Report *r, Table *out);
Status sheet_kernel_summary(Report *r, Table *out);
Status sheet_short_histogram(Report *r, Table *out);
Status sheet_short_summary(Report *r, Table *out);
Status sheet_coll_analysis(Report *r, Table *out);
Status sheet_perf(Report *r, Table *out); /* all sheets of perf models: out->name says which */
Status sheet_unified(Report *r, Table *out);
/* What TraceLens lacks. */
Status sheet_timeline_by_step(Report *r, Table *out);
Status sheet_idle_by_cause(Report *r, Table *out);
Status sheet_idle_by_operator(Report *r, Table *out);
Status sheet_idle_gaps(Report *r, Table *out);
Status sheet_launch_delays(Report *r, Table *out);
Status sheet_sync_delays(Report *r, Table *out);
Status sheet_memory_summary(Report *r, Table *out);
Status sheet_trace_counts(Report *r, Table *out);

/* Does the host wait for the device in this call? */
bool report_is_sync(const Report *r, int64_t i);

#endif
