/*
 * compat: TraceLens' tables and files (--compat tracelens), made from our own.
 *
 * TraceLens (AMD) reports on the same traces. Its users compare its tables from version to version,
 * so these keep its names, orders, roundings, and its mistakes. Nothing else in analyze/ knows of it:
 * readers, trees, reports and sheets are ours. What cannot be had from a finished table is asked for by
 * what the engine offers anybody: another choice of device work, other rules for work of operators
 * (PerfRules). docs/reference/trace.md lists the differences.
 */
#ifndef ANALYZE_COMPAT_COMPAT_H
#define ANALYZE_COMPAT_COMPAT_H

#include "analyze/perf.h"
#include "analyze/report.h"

/* Trees and reports of these options are what TraceLens looks at; `unlinked`: device work without a
 * launch in the trace counts, too. */
void compat_options(TreeOptions *tree, ReportOptions *report, bool unlinked);

/* What report_tables is for our own. Report `r` gets other launchers and other work of operators. */
Status compat_tables(Report *r, Table *out, int *n);

extern const struct PerfRules compat_perf_rules;

#endif
