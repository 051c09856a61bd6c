/* run_after: checkpoint.after, which rank 0 runs behind each checkpoint that is finished on disk. */
#include "corpus/corpus.h"
#include "engine/base/log.h"
#include "engine/checkpoint/checkpoint_folder.h"
#include "engine/train/run_parts.h"

#include <stdio.h>

static Status open_after(Trainer *t)
{
    char path[FILE_PATH_MAX];
    const Config *c = &t->config.own;
    if (!t->is_rank0 || *c->checkpoint_after == '\0') return OK;
    TRY(file_join(path, c->run_dir, "after.jsonl"));
    TRY(ARENA_ZEROED(&t->arena, 1, &t->at.after));
    return beside_open(t->at.after, "checkpoint.after", c->checkpoint_after, c->run_dir, path);
}

/* The checkpoints of this run that are whole and new; an older run may have left later ones. */
static Status add_finished(Trainer *t)
{
    const Checkpointer *k = &t->saver;
    char folder[FILE_PATH_MAX];
    const int64_t done = t->at.after_step > t->at.first_step ? t->at.after_step : t->at.first_step;
    for (int i = 0; i < k->n_steps; i++) {
        const int64_t step = k->steps[i];
        const bool writes = k->pending && k->info.step == step;
        if (step <= done || step > t->at.step || writes) continue;
        t->at.after_step = step;
        TRY(folder_of_step(folder, k->folder, step, ""));
        TRY(beside_add(t->at.after, step, folder));
    }
    return OK;
}

static Status look_after(Trainer *t)
{
    if (t->at.after == NULL) return OK;
    TRY(beside_look(t->at.after, 0));
    return add_finished(t);
}

/* The checkpoint is whole, so what goes wrong here does not change how the run ended. */
static Status finish_after(Trainer *t, Status s)
{
    char why[2048];
    if (t->at.after == NULL) return s;
    (void)snprintf(why, sizeof why, "%s", status_message());
    Status end = look_after(t);
    if (end == OK) end = beside_finish(t->at.after, t->config.own.comm_timeout_s);
    if (end != OK) log_failure(LOG_WARN, "%s", "");
    return s == OK ? OK : status_adopt(s, why);
}

static void close_after(Trainer *t)
{
    if (t->at.after != NULL) beside_close(t->at.after);
}

const RunHook run_hook_after = {
    .open = open_after, .after_step = look_after, .on_end = finish_after, .close = close_after
};
