/* run_end: evaluates a run, saves it, and ends one that cannot go on: its data changed, or its folder is gone. */
#include "engine/base/log.h"
#include "engine/step/agree.h"
#include "engine/step/verify.h"
#include "engine/train/eval_choices.h"
#include "engine/train/run_parts.h"

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

static Status save(Trainer *t)
{
    if (t->at.saved_step == t->at.step) return OK;
    TRY(check_before_save(t));
    TRY(checkpoint_save(&t->saver, t->at.step, t->at.position));
    t->at.saved_step = t->at.step;
    return OK;
}

static Status save_copy(Trainer *t)
{
    TRY(check_before_save(t));
    return checkpoint_save_copy(&t->saver, t->at.step, t->at.position);
}

static Status save_last(Trainer *t)
{
    TRY(save(t));
    return checkpoint_finish(&t->saver);
}

static Status save_before_failing(Trainer *t, Status s)
{
    char why[2048];
    if (t->at.step == t->at.first_step) return s;
    (void)snprintf(why, sizeof why, "%s", status_message());
    if (save_last(t) == OK) {
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

static Status end_early(Trainer *t)
{
    if (t->ranks.steps.spread.most.of[RANK_ENDS] <= 0) return OK;
    char why[2048];
    Status s = agree_failure(&t->ranks, check_next_step(t, t->at.step));
    if (s == OK) return OK; /* its files are there again */
    (void)snprintf(why, sizeof why, "%s", status_message());
    if (take_folder_again(t) != OK) {
        log_failure(LOG_WARN, "step %" PRId64 " is not saved: ", t->at.step);
        return status_adopt(s, why);
    }
    (void)status_adopt(s, why);
    return save_before_failing(t, s);
}

const RunHook run_hook_early_end = { .after_step = end_early };

static void log_evaluation(const EvalMetrics *v)
{
    char figures[EVAL_TEXT_BYTES];
    const EvalSum all = eval_total(v);
    if (all.targets > 0)
        log_info("step %" PRId64 ": held-out %s", v->step, eval_text(&all, ", ", figures));
    if (v->answers.questions > 0)
        log_info("step %" PRId64 ": %" PRId64 " questions, acc %.4f, acc_norm %.4f", v->step,
                 v->answers.questions, answers_share(&v->answers, BY_SUM),
                 answers_share(&v->answers, BY_CHARACTER));
}

Status run_evaluate(Trainer *t)
{
    EvalMetrics v = { .step = t->at.step };
    const bool asks = t->evaluator.questions != NULL;
    if (!t->holds_out && !asks) return OK;
    heartbeat_phase(&t->beat, HEARTBEAT_EVALUATING);
    Status s = OK;
    if (t->holds_out)
        s = eval_run(&t->evaluator, t->loader, t->config.own.train_eval_sequences, t->at.step, &v);
    if (s == ERR_CHANGED) return save_before_failing(t, s);
    TRY(s);
    if (asks) TRY(questions_ask(&t->evaluator, t->at.step, &v.answers));
    if (!t->is_rank0) return OK;
    log_evaluation(&v);
    return metrics_eval(&t->metrics, &v);
}

static Status evaluate_if_due(Trainer *t)
{
    const int64_t every = t->config.own.train_eval_every, step = t->at.step;
    if (every <= 0 || (step % every != 0 && step != t->config.own.train_steps)) return OK;
    return run_evaluate(t);
}

const RunHook run_hook_evaluation = { .after_step = evaluate_if_due };

/* Before the last save, which nothing overlaps. */
static void log_saves(const Trainer *t)
{
    const SaveTimes *s = &t->saver.times;
    if (s->saves == 0 || !t->is_rank0) return;
    log_info("%" PRId64
             " checkpoint%s delayed training by %.3g s in all, at most %.3g %% of an interval",
             s->saves, s->saves == 1 ? "" : "s", s->all_s, 100 * s->worst_share);
}

static Status save_if_due(Trainer *t)
{
    const Config *c = &t->config.own;
    if (c->checkpoint_every > 0 && t->at.step % c->checkpoint_every == 0) return save(t);
    const int64_t every = c->checkpoint_peer_every;
    return every > 0 && t->at.step % every == 0 ? save_copy(t) : OK;
}

static Status save_at_end(Trainer *t)
{
    const int stop = (int)t->ranks.steps.spread.most.of[RANK_STOP];
    log_saves(t);
    TRY(save_last(t));
    checkpoint_give_back(&t->saver);
    if (stop > 0) {
        log_info("stopped by signal %d after step %" PRId64 "; continue with --resume", stop,
                 t->at.step);
    }
    return OK;
}

const RunHook run_hook_saves = { .after_step = save_if_due, .at_end = save_at_end };

static Status poll_saves(Trainer *t) { return checkpoint_poll(&t->saver); }

const RunHook run_hook_written = { .after_step = poll_saves };
