/* goodput: the closed forms of goodput.h. */
#include "planner/goodput.h"

#include "engine/config/ramp.h"

#include <inttypes.h>
#include <math.h>

static const double HOUR_S = 3600;

/* ---- a segment ---- */

/* Mean and variance of a time or a number. */
typedef struct Moments {
    double mean, variance;
} Moments;

/* (e^x - 1) / x */
static double growth(double x) { return x > 0 ? expm1(x) / x : 1; }

/* The time until c seconds have passed without a failure, each failure starting them anew. Its transform is known
 * (renewal theory): with x = rate c,
 *     mean = (e^x - 1) / rate,   variance = (e^2x - 2 x e^x - 1) / rate^2.
 * Below x = 1e-3 the variance would cancel: then its series, c^2 (x/3 + x^2/3 + 11/60 x^3). */
static Moments until_done(double rate, double c)
{
    double x = rate * c;
    double v = x < 1e-3 ? x * (1.0 / 3 + x / 3 + 11.0 / 60 * x * x)
                        : (exp(2 * x) - 2 * x * exp(x) - 1) / (x * x);
    return (Moments){ c * growth(x), c * c * v };
}

/* The mean time until a failure, given that it comes within c. */
static double until_failure(double rate, double c)
{
    double x = rate * c;
    return c * (x < 1e-3 ? 0.5 - x / 12 : 1 / x - 1 / expm1(x));
}

/* A segment of `work` seconds and its checkpoint. K failures, a geometric number, each add the time X until it and a
 * restart D of its own. So T = A + B, A = c + sum X, B = sum D, and with m = E K
 *     Var T = Var A + m Var D + Var K (E D)^2 + 2 Var K E X E D,   Var K = m (m + 1). */
static Moments segment(const GoodputCase *c, double work)
{
    double rate = 1 / c->mtbf_s, length = work + c->stall_s;
    Moments a = until_done(rate, length), d = until_done(rate, c->restart_s + c->write_s);
    double m = expm1(rate * length), lost = until_failure(rate, length);
    double spread = m * (m + 1) * d.mean * (d.mean + 2 * lost);
    return (Moments){ a.mean + m * d.mean, a.variance + m * d.variance + spread };
}

/* ---- the best interval ---- */

/* Solves 1 - u = e^-(u + rate stall) for u = rate tau by bisection. The left side minus the right one is above 0 at 0
 * and below 0 at 1. */
static double best_interval(const GoodputCase *c)
{
    double least = 0, most = 1, stall = c->stall_s / c->mtbf_s;
    for (int i = 0; i < 60; i++) {
        double u = (least + most) / 2;
        *(-expm1(-u - stall) > u ? &least : &most) = u;
    }
    return least * c->mtbf_s;
}

/* Steps between checkpoints: whole ones, at least as long as one is written, at most all. */
static double interval_steps(const GoodputCase *c)
{
    double all = ceil(c->work_s / c->step_s), least = fmax(1, ceil(c->write_s / c->step_s));
    double want = c->interval_s > 0 ? c->interval_s : best_interval(c);
    double steps = isfinite(want) ? floor(want / c->step_s * (1 + 1e-9)) : all;
    if (c->interval_s <= 0 && steps < all) {
        double less = fmax(1, steps), cost = segment(c, less * c->step_s).mean / less;
        steps = segment(c, (less + 1) * c->step_s).mean / (less + 1) < cost ? less + 1 : less;
    }
    return fmin(fmax(steps, least), fmax(all, 1));
}

/* ---- quantiles ---- */

/* Share of a gamma distribution of shape k below x: the series of the lower incomplete gamma function. */
static double gamma_below(double k, double x)
{
    double term = 1, sum = 1;
    for (int n = 1; term > 1e-13 * sum; n++) sum += term *= x / (k + n);
    return sum * exp(k * log(x) - x) / tgamma(k + 1);
}

/* The value below which the share p lies; z is the normal distribution's. Large shapes take the cube of Wilson and
 * Hilferty (1931), exact to 1e-4 there. */
static double gamma_quantile(double k, double p, double z)
{
    if (k > 60) return k * pow(1 - 1 / (9 * k) + z / (3 * sqrt(k)), 3);
    double least = 0, most = 4 * k + 40;
    for (int i = 0; i < 80; i++) {
        double x = (least + most) / 2;
        *(gamma_below(k, x) < p ? &least : &most) = x;
    }
    return most;
}

/* ---- the training ---- */

static double quantile(double shortest, Moments more, double p, double z)
{
    if (!(more.variance > 0) || !isfinite(more.variance)) return shortest + more.mean;
    double shape = more.mean * more.mean / more.variance;
    return shortest + more.variance / more.mean * gamma_quantile(shape, p, z);
}

void goodput_times(const GoodputCase *c, Goodput *out)
{
    *out = (Goodput){ .of = *c, .interval_steps = interval_steps(c) };
    double work = out->of.interval_s = fmin(out->interval_steps * c->step_s, c->work_s);
    double n = c->work_s / work, shortest = n * (work + c->stall_s);
    double half = c->stall_s / (2 * c->mtbf_s), young = sqrt(2 * c->stall_s * c->mtbf_s);
    Moments one = segment(c, work);
    Moments more = { n * one.mean - shortest, n * one.variance };
    out->young_s = young;
    out->daly_s = half < 1 ? young * (1 + sqrt(half) / 3 + half / 9) - c->stall_s : c->mtbf_s;
    out->mean_s = n * one.mean;
    out->p50_s = quantile(shortest, more, 0.5, 0);
    out->p90_s = quantile(shortest, more, 0.9, 1.2815515655446004);
    out->failures = out->mean_s / c->mtbf_s;
    out->redone_s = until_failure(1 / c->mtbf_s, work + c->stall_s) + c->write_s;
}

/* Main weights and moments: what a checkpoint holds. Where the weights are f32 they are the main ones. */
static double saved_bytes(const PlanPrice *p)
{
    double main = p->memory[PLAN_MAIN] > 0 ? p->memory[PLAN_MAIN] : p->memory[PLAN_WEIGHTS];
    return main + p->memory[PLAN_OPTIMIZER];
}

/* What smaller steps (train.batch_ramp) take longer than their tokens would in whole ones: their schedule has
 * fewer micro-batches and the same bubble. */
static double ramp_more_s(const Config *c, const PlanPrice *p, double tokens)
{
    const BatchRamp r = ramp_of(c);
    const double least = p->step_s - (p->schedule_s - p->part_s[PLAN_BUBBLE]) -
                         p->part_s[PLAN_SLOWEST]; /* of a step without tokens */
    double seconds = 0, done = 0;
    for (int i = 0; i + 1 < r.n && tokens > 0; i++) {
        double each = (double)(r.at[i].sequences * c->data_sequence);
        double steps = fmin((double)r.at[i].last - done, tokens / each);
        seconds += steps * least * (1 - (double)r.at[i].sequences / (double)c->train_batch);
        tokens -= steps * each;
        done = (double)r.at[i].last;
    }
    return seconds;
}

void plan_goodput(const PlanRequest *q, const PlanPrice *p, double tokens, Goodput *out)
{
    const Config *c = q->config;
    double gpus = (double)q->gpus, step = p->step_s;
    double full = tokens / (p->tokens_per_s_per_gpu * gpus) + ramp_more_s(c, p, tokens);
    double bytes = saved_bytes(p), write = bytes / (1e9 * c->plan_storage_gb_s);
    bool apart = c->plan_checkpoint_s > 0; /* the training goes on while it is written */
    GoodputCase of = { .work_s = full,
                       .step_s = step,
                       .mtbf_s =
                           c->plan_mtbf_hours > 0 ? c->plan_mtbf_hours * HOUR_S / gpus : HUGE_VAL,
                       .restart_s = c->plan_restart_s,
                       .stall_s = apart ? c->plan_checkpoint_s : write,
                       .write_s = apart ? write : 0,
                       .interval_s = (double)c->checkpoint_every * step };
    goodput_times(&of, out);
    out->full_s = full;
    out->saved_bytes = bytes;
    out->share = full / out->mean_s;
    if (!(out->share >= GOODPUT_LEAST))
        out->share = 0, out->mean_s = out->p50_s = out->p90_s = HUGE_VAL;
    out->whole_s = out->mean_s * c->plan_lost;
    out->gpu_hours = out->whole_s / HOUR_S * gpus;
    out->hour = gpu_hour_of(c);
    out->megawatt_h = out->gpu_hours * q->hardware->gpu_watts * c->plan_power_factor / 1e6;
}

Status plan_goodput_ends(const PlanRequest *q, const Goodput *g)
{
    if (g->share > 0) return OK;
    return FAIL(ERR_FIT,
                "plan: this training never ends: of %" PRId64
                " GPUs one fails every %.3g s (plan.mtbf_hours %g), and after it a restart takes "
                "%.3g s (plan.restart_s) and a checkpoint %.3g s (plan.storage_gb_s, "
                "plan.checkpoint_s); fewer GPUs, or lower these",
                q->gpus, g->of.mtbf_s, q->config->plan_mtbf_hours, g->of.restart_s,
                g->of.stall_s + g->of.write_s);
}
