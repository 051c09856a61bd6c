/* compare: several runs over each other, for `switchyard report`: figures, the settings in which they differ, and
 * a chart of each quantity. Reading is run_data.h's; a page of one run alone is report.h's. */
#ifndef REPORT_COMPARE_H
#define REPORT_COMPARE_H

#include "pages/report_parts.h"

enum { COMPARE_FIGURES = 7 };

/* A figure or a setting, by run; "-" where a run does not have it. Only figures have numbers, or NaN. */
typedef struct CompareRow {
    const char *name, *value[RUNS_MOST];
    double number[RUNS_MOST];
} CompareRow;

typedef struct Compare {
    RunSet set;
    const char *name[RUNS_MOST]; /* the folder's own name, or its path where two have the same */
    RunData *run[RUNS_MOST];
    CompareRow *row; /* COMPARE_FIGURES figures, then the settings that differ */
    int rows;
} Compare;

/* Loads the folders of n <= RUNS_MOST runs. by_tokens: curves are over tokens, not steps. ERR_ARG: a path is no
 * folder of a run. ERR_FORMAT: it has no step yet, or a line that no killed run leaves. */
Status compare_load(char *const *path, int n, bool by_tokens, Arena *a, Compare *out);

Status compare_text(Text *out, const Compare *c);
Status compare_json(Text *out, const Compare *c);
Status compare_page(Text *out, const Compare *c);

#endif
