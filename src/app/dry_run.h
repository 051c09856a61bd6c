/* dry_run: `switchyard train --dry-run`. */
#ifndef APP_DRY_RUN_H
#define APP_DRY_RUN_H

#include "engine/config/config.h"

/* Prints the configuration, the mesh, and rank 0's parameters, work and memory. */
Status dry_run(const Config *c, int ranks, Arena *a, Text *out);

#endif
