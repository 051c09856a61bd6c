/* command: `switchyard trace diff`, with our rules or with those of another program. */
#ifndef DIFF_COMMAND_H
#define DIFF_COMMAND_H

#include "diff/diff.h"
#include "traces/command/compat.h"

/* TraceLens' tables of two traces that were matched by its rules. stats: a row for each device
 * event that is not the same in both traces, or whose operator has work that is not. unique: the
 * same by arguments. map: the kernels of each operator as JSON, of the old trace, of the new one,
 * and of both. */
typedef struct CompatDiff {
    Table stats, unique;
    const char *map[3];
} CompatDiff;

/* What --compat tracelens calls. trees: how the trees of both traces are built. */
typedef struct DiffCompat {
    const Compat *trees;
    const struct DiffRules *rules;
    Status (*diff)(const Diff *d, Arena *a, Arena *scratch, CompatDiff *out);
} DiffCompat;

/* tracelens NULL: --compat is not among the words (traces/command/trace.c). */
Status cli_trace_diff(const DiffCompat *tracelens, int argc, char **argv);

#endif
