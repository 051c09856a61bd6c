/* run: a training, as a loop over its steps and a table of what happens around them. Where a run opens and closes its
 * parts is run_open.c's; the step is run_step.c's, and below it engine.c's. What watches a run, writes of it or ends it
 * has a row here. A further one needs a file with its row, and its name in run_hooks.h. */
#include "engine/train/run_hooks.h"

#include <stddef.h>

/* In a step: signs of life, figures, then what may end the run, then what is written. */
static const RunHook *const hooks[] = {
    &run_hook_heartbeat, &run_hook_progress,   &run_hook_verified, &run_hook_early_end,
    &run_hook_growth,    &run_hook_evaluation, &run_hook_saves,    &run_hook_recorder,
    &run_hook_codes,     &run_hook_written,    &run_hook_after,    &run_hook_gpu,
    &run_hook_ranks,
};

enum { HOOKS = sizeof hooks / sizeof *hooks };

Status run_hooks_open(Trainer *t)
{
    for (int i = 0; i < HOOKS; i++)
        if (hooks[i]->open != NULL) TRY(hooks[i]->open(t));
    return OK;
}

void run_hooks_close(Trainer *t)
{
    for (int i = HOOKS - 1; i >= 0; i--)
        if (hooks[i]->close != NULL) hooks[i]->close(t);
}

static Status run_step(Trainer *t)
{
    TRY(run_step_begin(t));
    for (int i = 0; i < HOOKS; i++)
        if (hooks[i]->before_step != NULL) TRY(hooks[i]->before_step(t));
    Status s = run_step_engine(t);
    for (int i = HOOKS - 1; i >= 0; i--)
        if (hooks[i]->behind_engine != NULL) s = hooks[i]->behind_engine(t, s);
    TRY(s);
    TRY(run_step_end(t));
    for (int i = 0; i < HOOKS; i++)
        if (hooks[i]->after_step != NULL) TRY(hooks[i]->after_step(t));
    return OK;
}

static Status run_to_end(Trainer *t)
{
    TRY(run_open(t));
    while (run_more(t)) TRY(run_step(t));
    for (int i = 0; i < HOOKS; i++)
        if (hooks[i]->at_end != NULL) TRY(hooks[i]->at_end(t));
    return OK;
}

Status run_whole(Trainer *t)
{
    Status s = run_to_end(t);
    for (int i = 0; i < HOOKS; i++)
        if (hooks[i]->on_end != NULL) s = hooks[i]->on_end(t, s);
    return s;
}
