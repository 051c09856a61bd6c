/* compat: what commands and the library call for --compat tracelens. The functions and rules are in
 * tools/compat; src/ knows this struct alone. */
#ifndef TRACES_COMMAND_COMPAT_H
#define TRACES_COMMAND_COMPAT_H

#include "traces/compare/collectives.h"
#include "traces/sheets/report.h"

typedef struct Compat {
    /* Sets the options of the trees and reports that TraceLens looks at. unlinked: device work without
     * a launch in the trace counts too. report may be NULL. */
    void (*options)(TreeOptions *tree, ReportOptions *report, bool unlinked);
    /* Makes all sheets as TraceLens has them; report_tables makes our own. It replaces the report's
     * launchers and work of operators, so the report cannot be used for our sheets afterwards. */
    Status (*tables)(Report *r, Table *out, int *n);
    const struct CollectiveRules *collective_rules;
} Compat;

/* Defined in tools/compat, whose objects are in the library and in switchyard-trace-compat. */
extern const Compat compat_tracelens;

#endif
