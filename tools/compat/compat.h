/*
 * compat: TraceLens' tables and files (--compat tracelens), made from our own.
 *
 * TraceLens (AMD) reports on the same traces. Its users compare its tables from version to version.
 * So these tables keep its names, orders and roundings, and its mistakes. docs/reference/trace.md
 * lists the differences.
 *
 * src/ knows only the struct Compat: readers, trees, reports and sheets are ours. What a finished
 * table does not tell is asked for by rules that are data: another choice of device work, other
 * rules for the work of operators (PerfRules), other rules of matching (DiffRules,
 * CollectiveRules).
 */
#ifndef COMPAT_COMPAT_H
#define COMPAT_COMPAT_H

#include "diff/command.h"
#include "traces/command/compat.h"
#include "traces/sheets/perf.h"

/* The members of Compat, as traces/command/compat.h describes them, and of DiffCompat
 * (diff/command.h). */
void compat_options(TreeOptions *tree, ReportOptions *report, bool unlinked);
Status compat_tables(Report *r, Table *out, int *n);
Status compat_diff(const Diff *d, Arena *a, Arena *scratch, CompatDiff *out);
extern const struct DiffRules compat_diff_rules;
extern const struct CollectiveRules compat_collective_rules;

/* How it counts the work of operators. */
extern const struct PerfRules compat_perf_rules;

#endif
