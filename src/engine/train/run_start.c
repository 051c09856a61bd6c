/* run_start: where a training begins: with random weights, with those of --init, or where a checkpoint
 * ended (--resume). */
#include "engine/base/log.h"
#include "engine/checkpoint/init.h"
#include "engine/step/step_rule.h"
#include "engine/train/run_parts.h"

#include <inttypes.h>
#include <string.h>

/* Compares this run's data with what a checkpoint was trained on. *other: the first source that has other data; -1:
 * none. A document's side depends on its source's name and on the share. A source that only lies elsewhere has not
 * changed: `then` gets its new path. */
static void compare_data(const Trainer *t, const char *who, const SourcesTaken *was, Config *then,
                         int *other)
{
    const Config *now = t->config.asked;
    const double share = then->data_validation;
    *other = -1;
    for (int n = 0; n < now->data_sources.n * was->n; n++) {
        const int i = n / was->n, k = n % was->n;
        const char *name = now->data_sources.at[i].name;
        if (was->sum[k] == NULL) continue;
        const bool data = strcmp(was->sum[k], t->config.sums[i]) == 0;
        const bool named = strcmp(was->name[k], name) == 0;
        ConfigSource *at = &then->data_sources.at[i];
        if (named && !data && *other < 0) *other = i;
        if (named && data && i < then->data_sources.n && strcmp(at->name, name) == 0) {
            const char *path = now->data_sources.at[i].path;
            if (t->is_rank0 && strcmp(at->path, path) != 0)
                log_info("%s: source %s lies at %s now: its data is the same", who, name, path);
            at->path = path;
        }
        if (!data || now->data_validation <= (named ? share : 0) || !t->is_rank0) continue;
        log_warn("%s: the data of source %s was trained on as %s with data.validation=%g: what is "
                 "held out now was in part trained on",
                 who, name, was->name[k], share);
    }
}

/* The gate of --init: the checkpoint's configuration must fit. */
static Status may_begin(const void *trainer, const char *path, CheckpointInfo *info, Arena *a)
{
    const Trainer *t = trainer;
    Config then;
    int other = -1;
    TRY(init_check(t->config.asked, path, info, t->is_rank0, a));
    TRY(checkpoint_config(path, info, a, &then));
    compare_data(t, "init", &info->taken, &then, &other);
    return OK;
}

/* A load may take minutes, in which a supervisor wants to hear of it. Without one a refused start must not change the
 * folder. */
static Heartbeat *beat_of(Trainer *t) { return t->options->supervised != NULL ? &t->beat : NULL; }

static Status start_fresh(Trainer *t)
{
    const char *init = t->options->init;
    if (t->saver.n_steps > 0) {
        return FAIL(ERR_ARG,
                    "%s already holds checkpoints (the newest of step %" PRId64
                    "): continue it with --resume, or set another run.dir",
                    t->saver.folder, t->saver.steps[t->saver.n_steps - 1]);
    }
    TRY(agree_failure(&t->ranks,
                      engine_init_weights(&t->engine.params, (uint64_t)t->config.own.run_seed)));
    if (init == NULL) return OK;
    char path[FILE_PATH_MAX];
    bool moments = t->config.own.init_moments;
    const CheckpointGate gate = { may_begin, t, beat_of(t) };
    CheckpointInfo info;
    TRY(agree_failure(&t->ranks, init_resolve(init, &t->saver.arena, path)));
    TRY(checkpoint_load_init(&t->engine.params, path, &gate, moments, &t->saver.arena, &info));
    for (int i = 0; i < AGE_COUNT && moments; i++) {
        if (i == AGE_MODEL || info.modules > 0)
            t->engine.params.moment_steps[i] =
                info.step + info.moment_steps[i] - info.kept.loss_scale.skipped;
    }
    if (t->is_rank0)
        log_info("init: weights%s of %s, step %" PRId64, moments ? " and moments" : "", path,
                 info.step);
    return OK;
}

/* Each source goes on where it was, by its name: puts `taken` into the order of this run's sources. */
static void order_taken(const Loader *loader, SourcesTaken *taken)
{
    SourcesTaken own = { .n = taken->n > 0 ? loader_sources(loader) : 0 };
    for (int i = 0; i < own.n; i++) {
        for (int k = 0; k < taken->n; k++)
            if (strcmp(taken->name[k], loader_source_name(loader, i)) == 0)
                own.sequences[i] = taken->sequences[k];
    }
    *taken = own;
}

/* The gate of --resume: logs the settings that differ. Each must be free to differ, or named by --change. */
static Status may_resume(const void *trainer, const char *path, CheckpointInfo *info, Arena *a)
{
    const Trainer *t = trainer;
    const TrainOptions *o = t->options;
    const ConfigChange *changes = NULL;
    Config then;
    int n = 0, other = -1;
    TRY(checkpoint_config(path, info, a, &then));
    compare_data(t, "resume", &info->taken, &then, &other);
    TRY(config_changes(&then, t->config.asked, a, &changes, &n));
    if (t->is_rank0) init_log_changes("resume", changes, n);
    if (t->is_rank0 && info->cpu[0] != '\0' && strcmp(t->cpu, info->cpu) != 0)
        log_warn(
            "resume: %s was computed with %s, this run computes with %s: from here on sums are "
            "rounded differently",
            path, info->cpu, t->cpu[0] != '\0' ? t->cpu : "a GPU");
    TRY(config_check_changes(path, changes, n, o->change, o->n_change));
    const ConfigSource *at = &t->config.asked->data_sources.at[other < 0 ? 0 : other];
    bool allowed = other < 0;
    for (int i = 0; i < o->n_change; i++) {
        int c = 0;
        const bool data = strcmp(o->change[i], "data.sources") == 0 && other >= 0;
        allowed |= data;
        while (c < n && strcmp(o->change[i], changes[c].row->name) != 0) c++;
        if (c == n && !data && t->is_rank0)
            log_info("resume: --change %s: it has not changed", o->change[i]);
    }
    if (!allowed)
        return FAIL(
            ERR_ARG,
            "%s was trained on other data of source %s: put the files of then at %s, or allow "
            "what is there now with --change data.sources",
            path, at->name, at->path);
    if (t->is_rank0 && other >= 0)
        log_info("resume: source %s has other data than %s was trained on", at->name, path);
    if (t->is_rank0 && (info->taken.n == 0 || info->taken.sum[0] == NULL))
        log_info("resume: %s has no sums of its data, as it is of an older version: whether the "
                 "data has changed is not known",
                 path);
    order_taken(t->loader, &info->taken);
    return OK;
}

/* Takes over what a loaded checkpoint says. */
static Status go_on_from(Trainer *t, const CheckpointInfo *info)
{
    t->at.step = info->step;
    t->at.position = info->position;
    memcpy(t->engine.params.moment_steps, info->moment_steps, sizeof info->moment_steps);
    t->engine.params.kept = rules_begin(&t->config.own, &info->kept);
    /* old checkpoints have only the position of the mix */
    if (info->taken.n == 0) return loader_seek(t->loader, info->position);
    memcpy(t->at.taken, info->taken.sequences, sizeof t->at.taken);
    return loader_resume(t->loader, info->step, info->position, t->at.taken);
}

/* A copy in memory that cannot be loaded costs the steps since the newest checkpoint on disk. */
static Status load_copy(Trainer *t, const CheckpointGate *gate, CheckpointInfo *info, bool *loaded)
{
    if (checkpoint_copy_step(&t->saver) < 0) return OK;
    Status s = checkpoint_load_copy(&t->saver, gate, &t->saver.arena, info);
    *loaded = s == OK;
    if (s == OK || s == ERR_COMM) return s;
    if (t->is_rank0)
        log_failure(LOG_WARN, "the copy of step %" PRId64 " in memory is not taken: ",
                    checkpoint_copy_step(&t->saver));
    status_clear();
    return OK;
}

static Status start_resumed(Trainer *t)
{
    const CheckpointGate gate = { may_resume, t, beat_of(t) };
    CheckpointInfo info;
    bool from_memory = false;
    if (t->options->init != NULL && t->is_rank0)
        log_info("--init %s is not used: the run continues from its own checkpoint",
                 t->options->init);
    TRY(load_copy(t, &gate, &info, &from_memory));
    if (from_memory) return go_on_from(t, &info);
    if (t->saver.n_steps == 0 && t->options->or_begin) return start_fresh(t);
    if (t->saver.n_steps == 0) {
        return FAIL(ERR_ARG,
                    "%s holds no checkpoint to continue from: begin without --resume, or with "
                    "--resume=auto, which then begins from the start",
                    t->saver.folder);
    }
    TRY(checkpoint_load_newest(&t->engine.params, t->config.own.run_dir, &gate, &t->saver.arena,
                               &info));
    t->at.saved_step = info.step;
    return go_on_from(t, &info);
}

Status run_weights_and_position(Trainer *t)
{
    const bool there = t->saver.n_steps > 0 || checkpoint_copy_step(&t->saver) >= 0;
    const bool none = t->options->or_begin && !there;
    if (none && t->is_rank0) log_info("%s has no checkpoint yet: training begins", t->saver.folder);
    TRY(t->options->resume && !none ? start_resumed(t) : start_fresh(t));
    t->at.first_step = t->at.step;
    t->at.first_position = t->at.position;
    return OK;
}
