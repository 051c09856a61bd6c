/* run_hooks: what happens around each step of a run, as a table (run.c). A row gives only what it needs; the rest is NULL.
 * The rows are called in the order of the table: so it decides what stands first in a log, and what is written before
 * what. The step itself is run_step.c's. */
#ifndef ENGINE_TRAIN_RUN_HOOKS_H
#define ENGINE_TRAIN_RUN_HOOKS_H

#include "engine/base/status.h"

#include <stdbool.h>

typedef struct Trainer Trainer; /* run_parts.h */

typedef struct RunHook {
    Status (*open)(Trainer *t); /* once the engine is there; a rank may fail alone */
    /* Before the engine runs a step; and behind it, also if it failed, last row first. What this returns takes the
     * place of the step's status `s`. */
    Status (*before_step)(Trainer *t);
    Status (*behind_engine)(Trainer *t, Status s);
    Status (*after_step)(Trainer *t); /* all ranks have the figures of the step */
    Status (*at_end)(Trainer *t);     /* after the last step of a run that did not fail */
    /* However the run ended; returns `s`, whose record stays. */
    Status (*on_end)(Trainer *t, Status s);
    void (*close)(Trainer *t); /* last row first; also of what was not opened */
} RunHook;

extern const RunHook run_hook_heartbeat, run_hook_progress, run_hook_verified, run_hook_early_end,
    run_hook_growth, run_hook_evaluation, run_hook_saves, run_hook_recorder, run_hook_codes,
    run_hook_written, run_hook_after, run_hook_gpu, run_hook_ranks;

/* run.c */
Status run_whole(Trainer *t);
Status run_hooks_open(Trainer *t);
void run_hooks_close(Trainer *t);

/* run_open.c: everything up to the first step. */
Status run_open(Trainer *t);

/* run_step.c: is there a next step, its figures and its batch, the engine's part, and what ranks tell each other. */
bool run_more(Trainer *t);
Status run_step_begin(Trainer *t);
Status run_step_engine(Trainer *t);
Status run_step_end(Trainer *t);

#endif
