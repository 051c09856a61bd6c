/* scaling_file: curves of how a training scales, as `plan --scale --json` prints them, with a title
 * (docs/reference/formats.md). */
#ifndef VIZ_SCALING_FILE_H
#define VIZ_SCALING_FILE_H

#include "planner/page/pipeline_page.h"

/* {"title": ..., "scaling": [{"gpus": ..., ...}, ...]}, the keys those of Scaling. ERR_FORMAT names the point that
 * is wrong. */
Status scaling_read(const char *path, Arena *a, Scaling *out);

#endif
