/* dry_run: `switchyard train --dry-run`. */
#ifndef APP_DRY_RUN_H
#define APP_DRY_RUN_H

#include "engine/config/config.h"

/* Prints the settings that differ from their defaults (`all`: all of them), the mesh, rank 0's parameters,
 * work and memory, and whether that memory is there. */
Status dry_run(const Config *c, int ranks, bool all, Arena *a, Text *out);

#endif
