/* run_step: one step of a run on this rank: its batch, the engine, what ranks tell each other of it, and its line in the
 * log. */
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/host/host_memory.h"
#include "engine/step/update.h"
#include "engine/step/verify.h"
#include "engine/train/run_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { DOMAIN_EVERY = 50 };

bool run_more(Trainer *t)
{
    const TrainOptions *o = t->options;
    if (o->between != NULL && !o->between(o->self, &t->engine, &t->now)) return false;
    return t->at.step < t->config.own.train_steps && t->ranks.steps.spread.most.of[RANK_STOP] <= 0;
}

static double seconds_waited(const RunRanks *r)
{
    return r->world == NULL ? 0 : comm_waited_s(r->world);
}

static int stop_signal(const TrainOptions *o) { return o->stop == NULL ? 0 : (int)*o->stop; }

/* Rows that this rank's experts took. `load` is summed over all groups that have the same experts, so this
 * is their mean. */
static double own_rows(const ModelSpec *s, const EngineShape *shape, const int32_t *load)
{
    const int64_t here = spec_experts_here(&s->ranks, s->experts);
    const int64_t first = spec_first_expert(&s->ranks, s->experts);
    int64_t sum = 0;
    for (int i = 0; i < s->n_layers; i++) {
        const LayerSpec *l = &s->layers[i];
        if (l->load < 0 || !layer_on(l, shape->pp_rank)) continue;
        for (int64_t d = 0; d < shape->domains; d++) {
            const int32_t *row = load + (l->load * shape->domains + d) * s->experts;
            for (int64_t e = first; e < first + here; e++) sum += row[e];
        }
    }
    return (double)sum * (double)s->ranks.ep / (double)s->ranks.stage;
}

/* Exchanges the figures of a step between ranks. */
static Status exchange_steps(Trainer *t, const StepMetrics *m)
{
    const float dumps = t->options->dumps == NULL ? 0 : (float)*t->options->dumps;
    const float ends = run_goes_on(t, m->step) ? 0 : 1;
    RankStep mine = {
        { [RANK_STOP] = (float)stop_signal(t->options), [RANK_ENDS] = ends, [RANK_DUMPS] = dumps }
    };
    if (t->ranks.world == NULL)
        return ranks_step(&t->ranks.steps, &mine); /* its other figures are not read */
    size_t used = 0;
    TRY(exec_used_bytes(&t->engine.ex, &used));
    if (used == 0) used = process_now_bytes();
    const double waited_s = seconds_waited(&t->ranks) - t->at.waited_s;
    float *of = mine.of;
    of[RANK_STEP_S] = (float)m->step_s;
    of[RANK_OWN_S] = (float)(m->step_s - waited_s);
    of[RANK_TOKENS_PER_S] = (float)m->tokens_per_s;
    of[RANK_MEMORY_GIB] = (float)((double)used / (1 << 30));
    of[RANK_EXPERT_ROWS] = (float)own_rows(&t->engine.spec, &t->plan.shape, m->result.load);
    if (gpu_knows(&m->gpu, GPU_CLOCK_MHZ)) of[RANK_CLOCK_MHZ] = (float)m->gpu.value[GPU_CLOCK_MHZ];
    if (gpu_knows(&m->gpu, GPU_THROTTLE)) of[RANK_THROTTLE] = (float)(m->gpu.throttle & 0xFFFFFF);
    return ranks_step(&t->ranks.steps, &mine);
}

double run_step_flops(const Trainer *t)
{
    const EngineMode *m = t->engine.mode;
    const double share = (double)m->step[t->engine.size].batch / (double)m->step->batch;
    const double all = t->plan.model_flops * share;
    if (t->at.batch == NULL) return all;
    return all - train_hidden_flops(&t->engine.spec, t->plan.shape.pp_rank, t->at.batch);
}

Status run_step_begin(Trainer *t)
{
    const Config *c = &t->config.own;
    const int64_t step = t->at.step + 1;
    t->now = (StepMetrics){ .step = step,
                            .tokens = ramp_batch(&t->ramp, step) * c->data_sequence,
                            .lr = learning_rate(c, step),
                            .by_domain = step % DOMAIN_EVERY == 0 || step == c->train_steps,
                            .taken = t->at.taken,
                            .save_stall_s = t->saver.times.stall_s,
                            .save_share = t->saver.times.share,
                            .grow_s = t->growth.grow_s };
    t->saver.times.stall_s = t->saver.times.share = t->growth.grow_s = 0;
    t->at.begun_s = clock_s();
    t->at.waited_s = seconds_waited(&t->ranks);
    TRY(loader_next(t->loader, &t->at.batch));
    memcpy(t->at.taken, t->at.batch->taken, sizeof t->at.taken);
    return OK;
}

Status run_step_engine(Trainer *t)
{
    StepMetrics *m = &t->now;
    return engine_step(&t->engine, t->at.batch, m->lr, m->step, &m->result);
}

Status run_step_end(Trainer *t)
{
    StepMetrics *m = &t->now;
    if (m->result.skipped && m->result.finite && t->is_rank0)
        log_warn("step %" PRId64 " is a spike and skipped: gradient norm %.4g is above %.4g",
                 m->step, m->result.grad_norm, m->result.norm_limit);
    if (m->result.differs) {
        TRY(checkpoint_finish(&t->saver));
        TRY(agree_failure(&t->ranks, verify_explain(&t->engine, m->step)));
    }
    if (!m->result.finite && !m->result.skipped) {
        TRY(checkpoint_finish(&t->saver)); /* while all ranks still run the same calls */
        TRY(engine_explain_nan(&t->engine, t->at.batch, m->step));
    }
    m->gpu = t->rates.reading;
    m->step_s = clock_s() - t->at.begun_s;
    m->tokens_per_s = (double)m->tokens / m->step_s;
    metrics_shares(m, run_step_flops(t), &t->rates.peak.flops, t->rates.sheet_flops);
    TRY(exchange_steps(t, m));
    m->ranks = t->ranks.world == NULL ? NULL : &t->ranks.steps.spread;
    t->at.step = m->step;
    return OK;
}

static const char *scale_text(const Trainer *t, const StepMetrics *m, char out[96])
{
    const int64_t skipped = t->engine.params.kept.loss_scale.skipped;
    size_t n = 0;
    if (m->result.loss_scale != 1) n = text_add(out, 96, n, "  scale %g", m->result.loss_scale);
    if (skipped > 0) n = text_add(out, 96, n, "  %" PRId64 " skipped", skipped);
    if (m->result.clipped > 0)
        (void)text_add(out, 96, n, "  largest logit %.4g, clipped heads %" PRId64, m->result.logit,
                       m->result.clipped);
    return out;
}

static void log_step(const Trainer *t, const StepMetrics *m)
{
    const Config *c = &t->config.own;
    bool last = m->step == c->train_steps;
    if (m->step % c->train_log_every != 0 && !last) return;
    char seen[32], speed[32], run[32], rest[32], share[40] = "", twice[48] = "", drops[48] = "",
                                                 scale[96] = "", slow[64] = "",
                                                 next[METRICS_DEPTHS_BYTES];
    if (m->mfu > 0)
        (void)snprintf(share, sizeof share, "MFU %.0f %%  ", 100 * m->mfu);
    else if (m->roof_share > 0)
        (void)snprintf(share, sizeof share, "%.0f %% of measured peak  ", 100 * m->roof_share);
    int64_t dropped = metrics_dropped(&t->engine.spec, &m->result);
    if (dropped > 0) (void)snprintf(drops, sizeof drops, "  %" PRId64 " dropped", dropped);
    if (t->at.retried > 0)
        (void)snprintf(twice, sizeof twice, "  %" PRId64 " ran twice", t->at.retried);
    const int straggler = m->ranks != NULL ? m->ranks->slow : -1;
    if (straggler >= 0) (void)snprintf(slow, sizeof slow, "  rank %d slow", straggler);
    log_progress(
        last,
        "step %" PRId64 "/%" PRId64 "  %s tokens  loss %.4f%s  lr %.2e  norm %.2f  %s tokens/s  "
        "%s%s so far, %s left%s%s%s%s%s",
        m->step, c->train_steps, text_si(seen, m->seen), m->result.loss,
        metrics_depths_text(&m->result, t->engine.spec.depths, next), m->lr, m->result.grad_norm,
        text_thousands(speed, (int64_t)m->tokens_per_s), share, text_duration(run, round(m->run_s)),
        text_duration(rest, round(m->left_s)), twice, drops, slow, scale_text(t, m, scale),
        c->moe_forced_balance ? "  forced balance" : "");
}

static Status progress(Trainer *t)
{
    StepMetrics *m = &t->now;
    t->at.retried += m->result.retried;
    t->at.position += (uint64_t)ramp_batch(&t->ramp, m->step);
    if (!t->is_rank0) return OK;
    const uint64_t all = ramp_sequences(&t->ramp, t->config.own.train_steps);
    const double left = (double)(all - ramp_sequences(&t->ramp, m->step));
    m->seen = (double)t->at.position * (double)t->config.own.data_sequence;
    m->run_s = clock_s() - t->at.started_s;
    m->left_s = m->run_s / (double)(t->at.position - t->at.first_position) * left;
    TRY(metrics_step(&t->metrics, m));
    log_step(t, m);
    return OK;
}

const RunHook run_hook_progress = { .after_step = progress };
