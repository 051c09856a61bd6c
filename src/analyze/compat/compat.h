/*
 * compat: TraceLens' tables and files (--compat tracelens), made from our own.
 *
 * TraceLens (AMD) reports on the same traces. Its users compare its tables from version to version,
 * so these keep its names, orders, roundings, and its mistakes. Nothing else in analyze/ knows of
 * it: readers, trees, reports and sheets are ours. What cannot be had from a finished table is
 * asked for by what the engine offers anybody: another choice of device work, other rules for work
 * of operators (PerfRules), other rules of matching (DiffRules, CollectiveRules). docs/reference/trace.md lists the
 * differences.
 */
#ifndef ANALYZE_COMPAT_COMPAT_H
#define ANALYZE_COMPAT_COMPAT_H

#include "analyze/collectives.h"
#include "analyze/diff.h"
#include "analyze/perf.h"
#include "analyze/report.h"

/* Trees and reports of these options are what TraceLens looks at; `unlinked`: device work without a
 * launch in the trace counts, too. report may be NULL. */
void compat_options(TreeOptions *tree, ReportOptions *report, bool unlinked);

/* What report_tables is for our own. Report `r` gets other launchers and other work of
 * operators. */
Status compat_tables(Report *r, Table *out, int *n);

extern const struct PerfRules compat_perf_rules;

/* Its tables of two traces that were matched by its rules: a row a device event of which either
 * is not the same in both or its operator has work that is not; the same by arguments. Then the
 * kernels of each operator as JSON: of the old trace, of the new one, of both. */
typedef struct CompatDiff {
    Table stats, unique;
    const char *map[3];
} CompatDiff;
Status compat_diff(const Diff *d, Arena *a, Arena *scratch, CompatDiff *out);

extern const struct DiffRules compat_diff_rules;

/* Its report of the collectives of several ranks. */
extern const struct CollectiveRules compat_collective_rules;

#endif
