/*
 * compat: TraceLens' tables and files (--compat tracelens), made from our own.
 *
 * TraceLens (AMD) reports on the same traces. Its users compare its tables from version to version.
 * So these tables keep its names, orders and roundings, and its mistakes. docs/reference/trace.md
 * lists the differences.
 *
 * Nothing else in analyze/ knows of this folder but the library, which offers it: readers, trees,
 * reports and sheets are ours. What a finished table does not tell is asked for by rules that are
 * data: another choice of device work, other rules for the work of operators (PerfRules), other
 * rules of matching (DiffRules, CollectiveRules).
 */
#ifndef ANALYZE_COMPAT_COMPAT_H
#define ANALYZE_COMPAT_COMPAT_H

#include "analyze/collectives.h"
#include "analyze/diff.h"
#include "analyze/perf.h"
#include "analyze/report.h"

/* Sets the options of the trees and reports that TraceLens looks at. unlinked: device work without
 * a launch in the trace counts too. report may be NULL. */
void compat_options(TreeOptions *tree, ReportOptions *report, bool unlinked);

/* Makes all sheets as TraceLens has them; report_tables makes our own. It replaces the report's
 * launchers and work of operators, so the report cannot be used for our sheets afterwards. */
Status compat_tables(Report *r, Table *out, int *n);

extern const struct PerfRules compat_perf_rules;

/* TraceLens' tables of two traces that were matched by its rules. stats: a row for each device
 * event that is not the same in both traces, or whose operator has work that is not. unique: the
 * same by arguments. map: the kernels of each operator as JSON, of the old trace, of the new one,
 * and of both. */
typedef struct CompatDiff {
    Table stats, unique;
    const char *map[3];
} CompatDiff;
Status compat_diff(const Diff *d, Arena *a, Arena *scratch, CompatDiff *out);

extern const struct DiffRules compat_diff_rules;

/* How it reports on the collectives of several ranks. */
extern const struct CollectiveRules compat_collective_rules;

#endif
