/* run_watch: what watches the steps of a run and changes none of their numbers: signs of life, second runs, capacity,
 * 8-bit codes, the GPU, and how the other ranks hear of a failure. */
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/train/run_parts.h"

#include <inttypes.h>
#include <stdio.h>

static Status beat(Trainer *t)
{
    heartbeat_step(&t->beat, t->now.step, t->now.step_s);
    return OK;
}

static Status beat_last(Trainer *t, Status s) { return heartbeat_last(&t->beat, s); }
static void free_beat(Trainer *t) { heartbeat_free(&t->beat); }

const RunHook run_hook_heartbeat = { .after_step = beat, .on_end = beat_last, .close = free_beat };

/* Says what a step that was computed twice cost. */
static Status log_verified(Trainer *t)
{
    const StepMetrics *m = &t->now;
    const double more = m->result.verify_s;
    if (more <= 0 || !t->is_rank0) return OK;
    log_info("step %" PRId64 " was computed twice with the same bits: %.3g s more, %.3g %% of the "
             "time of %" PRId64 " steps",
             m->step, more,
             100 * more / ((m->step_s - more) * (double)t->config.own.run_verify_every),
             t->config.own.run_verify_every);
    return OK;
}

const RunHook run_hook_verified = { .after_step = log_verified };

/* After two steps in a row that ran again, takes a larger capacity for rows if there is memory. One such step
 * may be chance; larger arenas and a new graph cost more than it. */
static Status grow_capacity(Trainer *t)
{
    const StepMetrics *m = &t->now;
    char more[32], fetching[64] = "";
    size_t before = t->plan.engine.pool_bytes;
    const RowCapacity was = t->plan.shape.capacity, *room = &t->plan.shape.capacity;
    bool grown = false;
    t->growth.in_a_row = m->result.retried ? t->growth.in_a_row + 1 : 0;
    if (t->growth.in_a_row < 2 || t->growth.at_limit || m->step == t->config.own.train_steps)
        return OK;
    double start = clock_s();
    TRY(train_grow_capacity(&t->config.own, t->ranks.world, m->result.short_of, &t->plan, &grown));
    if (grown) TRY(engine_resize(&t->engine, &t->plan.shape, &t->plan.engine));
    t->growth.grow_s = clock_s() - start;
    t->growth.in_a_row = 0;
    t->growth.at_limit = !grown;
    if (!grown && t->is_rank0)
        log_warn("step %" PRId64 ": rows had no room in two steps running, and there is no memory "
                 "for more: such steps go on running twice (recompute.layers or a smaller "
                 "train.micro_batch makes room)",
                 m->step);
    if (!grown || !t->is_rank0) return OK;
    if (room->fetching > was.fetching)
        (void)snprintf(fetching, sizeof fetching, "; %d layers fetch received rows again",
                       room->fetching);
    log_warn("step %" PRId64 ": rows had no room in two steps running: from here on pools hold %g "
             "times the balanced rows (%g before), %s more%s",
             m->step, room->pool, was.pool,
             text_bytes(more, (double)t->plan.engine.pool_bytes - (double)before), fetching);
    return OK;
}

const RunHook run_hook_growth = { .after_step = grow_capacity };

static Status open_codes(Trainer *t)
{
    return t->config.own.fp8_report_steps.n > 0 ? code_report_open(&t->codes) : OK;
}

static bool looks(const Trainer *t)
{
    return config_has_int(&t->config.own.fp8_report_steps, t->now.step);
}

static Status begin_codes(Trainer *t)
{
    if (looks(t)) code_report_begin(&t->codes, &t->engine.ex);
    return OK;
}

static Status end_codes(Trainer *t, Status s)
{
    if (looks(t)) code_report_end(&t->engine.ex);
    if (looks(t) && t->is_rank0) code_report_print(&t->codes, t->now.step);
    return s;
}

static void close_codes(Trainer *t) { code_report_close(&t->codes); }

const RunHook run_hook_codes = {
    .open = open_codes, .before_step = begin_codes, .behind_engine = end_codes, .close = close_codes
};

static void close_gpu(Trainer *t) { gpu_state_close(&t->rates.gpu); }

const RunHook run_hook_gpu = { .close = close_gpu };

/* Tells the other ranks to end, before this one frees memory that they may write to. Under a launcher it logs
 * at once, because the launcher soon kills all ranks. */
static Status end_others(Trainer *t, Status s)
{
    Comm *world = t->ranks.world;
    if (s == OK || world == NULL || t->ranks.failure_agreed) return s;
    char why[2048];
    status_sentence(why, sizeof why);
    if (comm_launched() > 1) {
        log_failure(LOG_ERROR, "%s", "");
        log_rank(world->rank, -1);
        log_quiet();
    }
    comm_abort(world, why);
    return s;
}

const RunHook run_hook_ranks = { .on_end = end_others };
