/* compare: several runs over each other: their figures in a table, the settings in which they differ, and a
 * page with a chart of each quantity (`switchyard report`). Reading is run_data.h's; a page of one run alone
 * is report.h's. */
#ifndef VIZ_COMPARE_H
#define VIZ_COMPARE_H

#include "viz/report_parts.h"

/* A setting in which runs differ; values by run, "-" where a run's config.yaml does not say. */
typedef struct ComparedSetting {
    const char *name, *value[RUNS_MOST];
} ComparedSetting;

typedef struct Compare {
    RunSet set;
    const char *name[RUNS_MOST]; /* the folder's own name, or its path where two have the same */
    RunData *run[RUNS_MOST];
    ComparedSetting *setting;
    int settings;
} Compare;

/* Loads the folders of n <= RUNS_MOST runs. by_tokens: curves are over tokens, not steps. ERR_ARG: a path is no
 * folder of a run. ERR_FORMAT: it has no step yet, or a line that no killed run leaves. */
Status compare_load(char *const *path, int n, bool by_tokens, Arena *a, Compare *out);

Status compare_text(Text *out, const Compare *c);
Status compare_json(Text *out, const Compare *c);
Status compare_page(Text *out, const Compare *c);

#endif
