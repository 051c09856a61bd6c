/* run_end: saves a run, and ends one that cannot go on: its data changed, or its folder is gone. */
#include "base/log.h"
#include "train/agree.h"
#include "train/run_parts.h"
#include "train/verify.h"

#include <inttypes.h>
#include <stdio.h>

static Status lock_path(const Trainer *t, char out[FILE_PATH_MAX])
{
    return file_join(out, t->config.own.run_dir, "lock");
}

Status run_lock_folder(Trainer *t)
{
    char path[FILE_PATH_MAX];
    bool held = false;
    long holder = 0;
    TRY(file_make_folders(t->config.own.run_dir));
    TRY(lock_path(t, path));
    TRY(file_lock(path, &t->lock_fd, &held, &holder));
    if (held) return OK;
    return FAIL(ERR_ARG, "run folder %s is in use by process %ld: wait for it, or set run.dir",
                t->config.own.run_dir, holder);
}

static Status check_before_save(Trainer *t)
{
    heartbeat_phase(&t->beat, HEARTBEAT_SAVING);
    return agree_failure(&t->ranks, verify_replicas(&t->engine.params, t->at.step));
}

Status run_save(Trainer *t)
{
    if (t->at.saved_step == t->at.step) return OK;
    TRY(check_before_save(t));
    TRY(checkpoint_save(&t->saver, t->at.step, t->at.position));
    t->at.saved_step = t->at.step;
    return OK;
}

Status run_save_copy(Trainer *t)
{
    TRY(check_before_save(t));
    return checkpoint_save_copy(&t->saver, t->at.step, t->at.position);
}

Status run_save_last(Trainer *t)
{
    TRY(run_save(t));
    return checkpoint_finish(&t->saver);
}

Status run_save_before_failing(Trainer *t, Status s)
{
    char why[2048];
    if (t->at.step == t->at.first_step) return s;
    (void)snprintf(why, sizeof why, "%s", status_message());
    if (run_save_last(t) == OK) {
        log_info("the run ends here: step %" PRId64 " is saved", t->at.step);
    } else {
        log_failure(LOG_WARN, "step %" PRId64 " is not saved: ", t->at.step);
    }
    return status_adopt(s, why);
}

static bool has_lock(const Trainer *t)
{
    char path[FILE_PATH_MAX];
    return lock_path(t, path) == OK && file_has_name(t->lock_fd, path);
}

/* Without its name a lock excludes nobody, and lines of a log are lost. */
static Status check_folder(const Trainer *t)
{
    const File *log = &t->metrics.file;
    const char *run = t->config.own.run_dir;
    if (!t->is_rank0) return OK;
    if (!has_lock(t))
        return FAIL(ERR_DISK, "run folder %s was removed or replaced while training writes to it",
                    run);
    if (file_has_name(log->fd, log->path)) return OK;
    return FAIL(ERR_DISK, "%s was removed or replaced while training writes to it", log->path);
}

/* The last step needs no more data. */
static Status check_next_step(Trainer *t, int64_t step)
{
    TRY(check_folder(t));
    return step < t->config.own.train_steps ? loader_wait(t->loader) : OK;
}

bool run_goes_on(Trainer *t, int64_t step)
{
    bool goes_on = check_next_step(t, step) == OK;
    if (!goes_on) status_clear();
    return goes_on;
}

/* Where the folder is gone, makes it and its lock again for a last checkpoint. A run that has taken its place
 * keeps it. Collective. */
static Status take_folder_again(Trainer *t)
{
    int32_t lost = t->is_rank0 && !has_lock(t);
    if (t->ranks.world != NULL) TRY(agree_first(t->ranks.world, &lost, sizeof lost));
    if (lost == 0) return OK;
    if (checkpoint_finish(&t->saver) != OK) log_failure(LOG_WARN, "%s", "");
    t->at.saved_step = -1;
    if (t->is_rank0) file_unlock(t->lock_fd);
    t->lock_fd = 0;
    return agree_status(t->ranks.world, t->is_rank0 ? run_lock_folder(t) : OK);
}

Status run_end_early(Trainer *t)
{
    char why[2048];
    Status s = agree_failure(&t->ranks, check_next_step(t, t->at.step));
    if (s == OK) return OK; /* its files are there again */
    (void)snprintf(why, sizeof why, "%s", status_message());
    if (take_folder_again(t) != OK) {
        log_failure(LOG_WARN, "step %" PRId64 " is not saved: ", t->at.step);
        return status_adopt(s, why);
    }
    (void)status_adopt(s, why);
    return run_save_before_failing(t, s);
}
