/* report: prints a plan and a search as text, JSON and CSV. The formats are docs/reference/planning.md's: programs
 * read them, so names and order stay. */
#include "planner/report.h"

#include "engine/count/capacity.h"
#include "engine/model/spec.h"
#include "kernels/exchange/exchange.h"
#include "planner/stack/stack.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { ALL_BLOCKS = 1000 }; /* this number of blocks of a chunk, or more, means all of them */

static const char *const buffers_names[] = {
    [BUFFERS_POOLED] = "pooled", [BUFFERS_WORST] = "worst", [PLAN_COUNTED_ROWS] = "exact"
};

static const char *exchange_word(const PlanPrice *p)
{
    return p->exchange < 0 ? "" : exchange_kinds[p->exchange]->name;
}

/* " in 0-3+8": the blocks of a rising list; what does not fit becomes "...". */
static void again_text(char *out, size_t bytes, const ConfigInts *again)
{
    size_t at = text_add(out, bytes, 0, " in ");
    for (int i = 0, last; i < again->n && at + 48 < bytes; i = last + 1) {
        for (last = i; last + 1 < again->n && again->at[last + 1] == again->at[last] + 1;) last++;
        at = text_add(out, bytes, at, "%s%" PRId64, i > 0 ? "+" : "", again->at[i]);
        if (last > i) at = text_add(out, bytes, at, "-%" PRId64, again->at[last]);
        if (at + 48 >= bytes && last + 1 < again->n) (void)text_add(out, bytes, at, "+...");
    }
}

enum { RECOMPUTE_BYTES = 160 };

/* "norm+act in 0-3+8 of 2": modules, then the blocks, if not all of them, then how many of each chunk. */
static const char *recompute_text(char out[RECOMPUTE_BYTES], const PlanLayout *l)
{
    ConfigTexts names = { 0 };
    size_t at = 0;
    spec_recompute_names(l->recompute_blocks == 0 ? 0 : l->recompute, &names);
    out[0] = '\0';
    for (int i = 0; i < names.n; i++)
        at = text_add(out, 64, at, "%s%s", i > 0 ? "+" : "", names.at[i]);
    if (names.n > 0 && l->again != NULL) again_text(out + at, RECOMPUTE_BYTES - at, l->again);
    if (names.n > 0 && l->recompute_blocks > 0 && l->recompute_blocks < ALL_BLOCKS)
        (void)snprintf(out + at, 32, " of %d", l->recompute_blocks);
    return names.n > 0 ? out : "none";
}

/* "e4m3 block", "hybrid row + e4m3 attention": products in 8 bits or fewer; "": none. */
enum { PRODUCTS_BYTES = 48 };
static const char *products_text(char out[PRODUCTS_BYTES], const PlanPrice *p)
{
    int recipe_n = 0, format_n = 0;
    const char *recipe = text_word(CONFIG_RECIPE_WORDS, p->recipe, &recipe_n);
    const char *format = text_word(CONFIG_FORMAT_WORDS, p->format, &format_n);
    const bool narrow = p->recipe != RECIPE_NONE;
    out[0] = '\0';
    if (narrow)
        (void)snprintf(out, PRODUCTS_BYTES, "%.*s %.*s", format_n, format, recipe_n, recipe);
    if (p->attention_e4m3)
        (void)snprintf(out + strlen(out), PRODUCTS_BYTES - strlen(out), "%se4m3 attention",
                       narrow ? " + " : "");
    return out;
}

/* "bf16", or "bf16 with e4m3 block". */
enum { PRECISION_BYTES = 64 };
static const char *precision_text(char out[PRECISION_BYTES], const PlanPrice *p)
{
    char products[PRODUCTS_BYTES];
    (void)products_text(products, p);
    (void)snprintf(out, PRECISION_BYTES, "%s%s%s", dtype_name(compute_type(p->compute)),
                   *products == '\0' ? "" : " with ", products);
    return out;
}

const char *plan_layout_text(char out[PLAN_LAYOUT_BYTES], const PlanLayout *l, const PlanPrice *p)
{
    char precision[PRECISION_BYTES];
    char again[RECOMPUTE_BYTES], shard[32] = "", buffers[32] = "", exchange[32] = "", tp[16] = "";
    char etp[16] = "";
    if (l->tp > 1) (void)snprintf(tp, sizeof tp, " TP%d", l->tp);
    if (l->etp > 1) (void)snprintf(etp, sizeof etp, " ETP%d", l->etp);
    if (p->exchange > 0) (void)snprintf(exchange, sizeof exchange, ", %s", exchange_word(p));
    if (l->shard > 0) (void)snprintf(shard, sizeof shard, " over %" PRId64, l->shard);
    if (p->buffers != BUFFERS_POOLED)
        (void)snprintf(buffers, sizeof buffers, ", %s buffers", buffers_names[p->buffers]);
    (void)snprintf(out, PLAN_LAYOUT_BYTES,
                   "PP%d VPP%d EP%d%s CP%d%s DP%" PRId64 " ZeRO-%d%s %s%s MBS%" PRId64
                   " %s recompute %s%s%s%s",
                   l->pp, l->vpp, l->ep, etp, l->cp, tp, l->dp, l->zero, shard, l->schedule->name,
                   p->in_series ? " in series" : "", l->micro_batch, precision_text(precision, p),
                   recompute_text(again, l), buffers, exchange, p->offload ? ", offload" : "");
    return out;
}

const char *plan_fit_word(const PlanPrice *p)
{
    return p->fits ? "fits" : p->tight ? "tight" : "does not fit";
}

const char *plan_also_text(char out[PLAN_ALSO_BYTES], unsigned also, const char *first,
                           const char *between)
{
    size_t at = 0;
    out[0] = '\0';
    for (int i = 0; i < schedule_table_n; i++) {
        if ((also >> i & 1) == 0) continue;
        at += (size_t)snprintf(out + at, PLAN_ALSO_BYTES - at, "%s%s", at == 0 ? first : between,
                               schedule_table[i].name);
    }
    return out;
}

static const double HOUR_S = 3600, DAY_S = 86400;

/* ---- for people ---- */

/* A table of parts that are not 0, with their share of the whole. */
static Status print_parts(Text *out, const char *title, const char *const *names,
                          const double *value, int n, double whole, double scale)
{
    TRY(text_printf(out, "%s\n", title));
    for (int i = 0; i < n; i++) {
        if (value[i] == 0) continue;
        TRY(text_printf(out, "  %-12s %10.3f %s %5.1f %%\n", names[i], value[i] / scale,
                        scale == 1 ? "s  " : "GiB", 100 * value[i] / whole));
    }
    return OK;
}

/* Rows of a search, numbered from `first`, as --row counts them. */
static Status print_rows(Text *out, const char *title, int first, const SearchRow *row, int n)
{
    char layout[PLAN_LAYOUT_BYTES], also[PLAN_ALSO_BYTES];
    TRY(text_printf(out, "%s\n", title));
    for (int i = 0; i < n; i++) {
        const PlanPrice *p = &row[i].price;
        TRY(text_printf(out, "  %3d %9.1f tokens/s/GPU %8.2f GiB %8.3f s  %s%s\n", first + i,
                        p->tokens_per_s_per_gpu, p->peak_bytes / PLAN_GIB, p->step_s,
                        plan_layout_text(layout, &row[i].layout, p),
                        plan_also_text(also, row[i].also, "; the same under ", ", ")));
    }
    return OK;
}

/* Capacity for received rows: rows that are kept lie in pools, the others in buffers. */
static Status print_room(const PlanPrice *p, double imbalance, Text *out)
{
    char rows[64], again[32] = "below 1e-9";
    if (p->room.pool == 0 || p->pool_bytes == 0) return OK;
    const double retry = p->outlook.retry_chance;
    if (retry >= 1e-9) (void)snprintf(again, sizeof again, "at most %.2g", retry);
    TRY(text_printf(out,
                    "rows        pools for %g times the balanced ones, %.3f GiB of the "
                    "activations; buffers of a layer for %s\n",
                    p->room.pool, p->pool_bytes / PLAN_GIB, capacity_rows_text(&p->room, rows)));
    return text_printf(out,
                       "            %.0f expected of a layer and micro-batch on the busiest rank, "
                       "%g times the mean (plan.imbalance); chance of a second run %s a "
                       "step\n",
                       p->outlook.rows, imbalance, again);
}

static Status print_search(const PlanReport *r, Text *out)
{
    const SearchResult *s = r->search;
    char layout[PLAN_LAYOUT_BYTES];
    TRY(text_printf(out,
                    "search      %" PRId64 " layouts, %" PRId64 " priced and %" PRId64
                    " simulated in %.2f s, %" PRId64 " too large, %" PRId64
                    " too slow to look at\n",
                    s->count.legal, s->count.priced, s->count.simulated, s->seconds,
                    s->count.pruned_memory, s->count.pruned_time));
    if (s->n_best == 0)
        return text_printf(out, "nothing fits; nearest: %s lacks %.2f GiB\n",
                           plan_layout_text(layout, &s->nearest.layout, &s->nearest.price),
                           (s->nearest.price.peak_bytes - plan_room_bytes(r->request)) / PLAN_GIB);
    TRY(print_rows(out, "best", 1, s->best, s->n_best));
    if (!r->whole) return OK;
    return print_rows(out, "front of memory and time", s->n_best + 1, s->front, s->n_front);
}

static Status print_rates(const PlanRequest *q, Text *out)
{
    HardwareRates rates[HARDWARE_SECTIONS_MAX];
    const int n = hardware_bases(q->hardware, rates);
    const char *before = "rates       ";
    for (int basis = 0; basis < BASES; basis++) {
        const char *between = hardware_basis_names[basis];
        for (int i = 0; i < n; i++) {
            if ((int)rates[i].basis != basis) continue;
            TRY(text_printf(out, "%s%s %s", before, between, rates[i].section));
            before = "", between = ",";
        }
        if (*between == ',') before = "; ";
    }
    return text_printf(out, " (gpu.measured: %s)\n", q->hardware->gpu_measured ? "true" : "false");
}

Status plan_report_basis(const PlanRequest *q, bool rates, Text *out)
{
    if (rates) TRY(print_rates(q, out));
    if (plan_attends_slower(q))
        TRY(text_printf(out, "note        attention runs by attention.kernel=mma, made for all of "
                             "NVIDIA's GPUs and measured on an H200 alone\n"));
    if (q->config->delta_full_every > 0 && q->hardware->delta_bf16.n == 0)
        TRY(text_printf(out, "note        gated delta nets: 0.05 of the peak is assumed for their "
                             "rule, as the GPU's file has no section delta\n"));
    if (stack_is_proven(q->stack, q->hardware)) return OK;
    return text_printf(out,
                       "note        %s has never run on a GPU of %s: its kernels ran in an "
                       "interpreter (docs/amd.md)\n",
                       q->stack->name, q->hardware->gpu_vendor);
}

static Status print_interval(const PlanPrice *p, const PlanInterval *v, Text *out)
{
    const char *before = "; by rates and constants of";
    TRY(text_printf(
        out, "interval    %.0f to %.0f tokens/s/GPU, %.1f to %.1f GiB",
        p->tokens_per_s_per_gpu / (1 + v->time), p->tokens_per_s_per_gpu * (1 + v->faster),
        p->peak_bytes / PLAN_GIB / (1 + v->bytes), p->peak_bytes / PLAN_GIB * (1 + v->bytes)));
    for (int i = 0; i < INTERVAL_INPUTS; i++) {
        if (v->by[i] < 0.005) continue;
        TRY(text_printf(out, "%s %s %.0f %%", before, interval_names[i], 100 * v->by[i]));
        before = ",";
    }
    return text_printf(out, "\n");
}

/* What the interval is wide for: options that nobody gave, links that nobody measured. */
static Status print_assumed(const PlanReport *r, Text *out)
{
    const PlanInterval *v = &r->interval;
    const SheetGiven *o = &v->option;
    if (o->name != NULL && fabs(v->option_step - 1) >= 0.02)
        TRY(text_printf(out,
                        "note        options assumed: with --stack %s,%s=%g a step takes %.2f x\n",
                        r->stack, o->name, o->value, v->option_step));
    if (!v->assumed || v->by[INTERVAL_LINKS] < 0.005) return OK;
    return text_printf(out,
                       "note        links assumed: %g to %g of the sheet's network, because "
                       "nobody measured this one (plan calibrate --exchange)\n",
                       INTERVAL_NETWORK_LEAST, INTERVAL_NETWORK_MOST);
}

/* How often GPUs fail, and what that asks of checkpoints. */
static Status print_failures(const Config *c, const Goodput *g, Text *out)
{
    char bytes[32];
    if (c->plan_mtbf_hours > 0)
        TRY(text_printf(out,
                        "failures    %.1f expected, one in %.1f h (plan.mtbf_hours %g a GPU); each "
                        "takes %.1f min to restart and %.1f min of work\n",
                        g->failures, g->of.mtbf_s / HOUR_S, c->plan_mtbf_hours,
                        g->of.restart_s / 60, g->redone_s / 60));
    TRY(text_printf(out, "checkpoint  every %.0f steps, %.1f min", g->interval_steps,
                    g->of.interval_s / 60));
    if (c->plan_mtbf_hours > 0)
        TRY(text_printf(out, "%s (best by Young %.1f, by Daly %.1f min)",
                        c->checkpoint_every > 0 ? ", as checkpoint.every says" : ", the best",
                        g->young_s / 60, g->daly_s / 60));
    return text_printf(out, "; it stops the training for %.1f s and writes %s a GPU at %g GB/s\n",
                       g->of.stall_s, text_bytes(bytes, g->saved_bytes), c->plan_storage_gb_s);
}

/* Days, what failures, checkpoints and all else take of them, and what the training uses up. */
static Status print_goodput(const PlanReport *r, Text *out)
{
    const Config *c = r->request->config;
    char tokens[32], hours[32], cost[GPU_HOUR_COST_BYTES];
    Goodput g;
    plan_goodput(r->request, r->price, r->tokens, &g);
    TRY(text_printf(out, "duration    %.1f days for %s tokens at full speed", g.full_s / DAY_S,
                    text_si(tokens, r->tokens)));
    if (g.share == 0) return text_printf(out, "; with failures it never ends\n");
    TRY(text_printf(out,
                    "; %.1f days with failures and checkpoints (P50 %.1f, P90 %.1f), goodput "
                    "%.1f %%\n",
                    g.mean_s / DAY_S, g.p50_s / DAY_S, g.p90_s / DAY_S, 100 * g.share));
    TRY(text_printf(out,
                    "whole       %.1f days with evaluation, annealing and pauses: x %g (plan.lost; "
                    "published ones x %g to %g: %.1f to %.1f days)\n",
                    g.whole_s / DAY_S, c->plan_lost, GOODPUT_LOST_LEAST, GOODPUT_LOST_MOST,
                    g.mean_s * GOODPUT_LOST_LEAST / DAY_S, g.mean_s * GOODPUT_LOST_MOST / DAY_S));
    TRY(print_failures(c, &g, out));
    TRY(text_printf(out, "cost        %s GPU hours", text_thousands(hours, llround(g.gpu_hours))));
    if (g.hour.price > 0)
        TRY(text_printf(out, ", %s (plan.gpu_hour %s)", gpu_hour_cost(cost, &g.hour, g.gpu_hours),
                        c->plan_gpu_hour));
    if (g.megawatt_h == 0) return text_printf(out, "\n");
    return text_printf(out, ", at most %.1f MWh: %g W a GPU, times %g (plan.power_factor)\n",
                       g.megawatt_h, r->request->hardware->gpu_watts, c->plan_power_factor);
}

/* What of the layout this program's own engine does not run yet, or what makes it slow; and the memory that a host must
 * have. */
static Status print_planned_only(const PlanReport *r, Text *out)
{
    char words[CONFIG_PLANNED_BYTES];
    const double domain = r->request->hardware->scale_up_gpus;
    if (r->layout->tp > domain)
        TRY(text_printf(out,
                        "warning     mesh.tp %d spans more GPUs than a scale-up domain has, %g: "
                        "each layer sends its tokens over the network between domains\n",
                        r->layout->tp, domain));
    Config c = *r->request->config;
    c.mesh_tp = r->layout->tp;
    if (*config_planned_only(&c, words) != '\0')
        TRY(text_printf(out, "note        the engine of this program does not run %s yet\n",
                        words));
    const bool by_host = r->request->stack->has[STACK_offload_host];
    if (r->price->host_bytes == 0) return OK;
    return text_printf(out, "host        %.3f GiB of host memory a GPU for %smoments\n",
                       r->price->host_bytes / PLAN_GIB, by_host ? "main weights and " : "");
}

Status plan_report_notes(const PlanReport *r, Text *out)
{
    if (r->price->in_series)
        TRY(text_printf(out,
                        "note        %s is priced with its exchanges in series with compute, as "
                        "stack %s runs it today\n",
                        r->layout->schedule->name, r->stack));
    if (r->price->bounded)
        TRY(text_printf(out, "note        products and attention have upper bounds for rates, from "
                             "the instructions of our kernels: nothing was measured\n"));
    const Config *c = r->request->config;
    if (c->plan_mean_context > 0)
        TRY(text_printf(out,
                        "documents   a query sees %g of %g keys on average (plan.mean_context): "
                        "MFU counts these pairs, attention computes %s\n",
                        c->plan_mean_context, ((double)c->data_sequence + 1) / 2,
                        r->skips_documents ? "no others" : "all"));
    return print_planned_only(r, out);
}

/* The layout, its memory, time and speed. */
static Status print_layout(const PlanReport *r, Text *out)
{
    const Config *c = r->request->config;
    const PlanPrice *p = r->price;
    char layout[PLAN_LAYOUT_BYTES], precision[PRECISION_BYTES];
    const PlanLayout *l = r->layout;
    int64_t micros = c->train_batch / l->dp / l->micro_batch;
    TRY(text_printf(out,
                    "layout      %s\n            %" PRId64 " micro-batches, replica of %" PRId64
                    " GPUs\npartition   %s\n",
                    plan_layout_text(layout, l, p), micros, search_replica(l), r->partition));
    TRY(plan_report_notes(r, out));
    char title[96];
    (void)snprintf(title, sizeof title, "memory      of pipeline rank %d, the fullest",
                   p->worst_rank);
    TRY(print_parts(out, title, plan_kind_names, p->memory, PLAN_KINDS, p->peak_bytes, PLAN_GIB));
    TRY(text_printf(out, "  %-12s %10.3f GiB of %.1f: %s (plan.margin %g)\n", "all",
                    p->peak_bytes / PLAN_GIB, r->request->hardware->memory_gib, plan_fit_word(p),
                    c->plan_margin));
    TRY(print_room(p, c->plan_imbalance, out));
    TRY(print_parts(out, "time        of a step", plan_part_words, p->part_s, PLAN_PARTS, p->step_s,
                    1));
    TRY(text_printf(out,
                    "  %-12s %10.3f s; bubble %.1f %%: the mean share of the pipeline's time in "
                    "which compute lanes run nothing\n"
                    "speed       %.1f tokens/s/GPU in %s, %.1f %% of the bf16 peak (MFU)\n",
                    "all", p->step_s, 100 * p->bubble, p->tokens_per_s_per_gpu,
                    precision_text(precision, p), 100 * p->mfu));
    TRY(print_interval(p, &r->interval, out));
    TRY(print_assumed(r, out));
    if (r->unbalanced > 0)
        TRY(text_printf(
            out,
            "balance     %.1f tokens/s/GPU if the busiest rank has %g times the rows of "
            "this plan (plan.imbalance %g)\n",
            r->unbalanced, PLAN_UNBALANCED, c->plan_imbalance));
    if (r->slope_s == 0) return OK;
    return text_printf(out, "slope       %.3f ms of a step and %.3f GiB of a GPU for a layer %s\n",
                       1e3 * r->slope_s, r->slope_bytes / PLAN_GIB, r->slope_of);
}

/* What a reader of a search's rows must know of the first, and where the rest is. */
static Status print_below_rows(const PlanReport *r, Text *out)
{
    TRY(plan_report_notes(r, out));
    TRY(print_assumed(r, out));
    return text_printf(out,
                       "more        --all: memory and time of row 1, and the front of memory and "
                       "time (%d rows)\n",
                       r->search->n_front);
}

/* Order of the page: the question, the search, the layout, memory, time, speed. A search prints its best rows, and
 * the rest with --all; without a result it ends after its own lines. */
Status plan_report_text(const PlanReport *r, Text *out)
{
    const PlanRequest *q = r->request;
    const Config *c = q->config;
    TRY(text_printf(out,
                    "training    %s, %" PRId64 " x %" PRId64 " tokens a step, on %" PRId64
                    " x %s, stack %s\n",
                    c->model_name, c->train_batch, c->data_sequence, q->gpus,
                    q->hardware->gpu_title, r->stack));
    if (c->moe_forced_balance)
        TRY(text_printf(out, "benchmark   moe.forced_balance: positions choose experts\n"));
    TRY(plan_report_basis(q, r->whole, out));
    if (r->search != NULL) TRY(print_search(r, out));
    if (r->search != NULL && r->search->n_best == 0) return OK;
    TRY((r->whole || r->search == NULL ? print_layout : print_below_rows)(r, out));
    if (r->tokens > 0) TRY(print_goodput(r, out));
    if (r->formula == NULL) return OK;
    const PlanFormula *f = r->formula;
    return text_printf(out,
                       "formula     %s: parameters %.0f, on the rank %.0f at %.4f bytes; "
                       "activations %.4f GiB, sum %.4f GiB\n",
                       r->formula_name, f->params_total, f->params_rank, f->bytes_per_param,
                       f->activation_bytes / PLAN_GIB, f->total_bytes / PLAN_GIB);
}

/* ---- for programs ---- */

static Status json_parts(Text *out, const char *name, const char *const *names, const double *value,
                         int n)
{
    TRY(text_printf(out, "\"%s\":{", name));
    for (int i = 0; i < n; i++)
        TRY(text_printf(out, "%s\"%s\":%.15g", i > 0 ? "," : "", names[i], value[i]));
    return text_printf(out, "}");
}

/* The members of a layout's object, without its braces. */
static Status json_layout(const PlanLayout *l, const PlanPrice *p, const char *partition, Text *out)
{
    char again[RECOMPUTE_BYTES], products[PRODUCTS_BYTES];
    TRY(text_printf(
        out,
        "\"compute\":\"%s\",\"products\":\"%s\",\"buffers\":\"%s\",\"exchange\":\"%s\","
        "\"exchange_in_series\":%s,\"bounded\":%s,"
        "\"fits\":%s,\"tight\":%s,\"peak_bytes\":%.0f,\"pool_factor\":%g,\"pool_bytes\":%.0f,"
        "\"rows_room\":%g,\"rows_expected\":%.15g,\"second_run_chance\":%.6g,",
        dtype_name(compute_type(p->compute)), products_text(products, p), buffers_names[p->buffers],
        exchange_word(p), p->in_series ? "true" : "false", p->bounded ? "true" : "false",
        p->fits ? "true" : "false", p->tight ? "true" : "false", p->peak_bytes, p->room.pool,
        p->pool_bytes, p->room.rows, p->outlook.rows, p->outlook.retry_chance));
    TRY(json_parts(out, "memory", plan_kind_names, p->memory, PLAN_KINDS));
    TRY(text_printf(out, ",\"step_s\":%.15g,", p->step_s));
    TRY(json_parts(out, "time", plan_part_names, p->part_s, PLAN_PARTS));
    return text_printf(
        out,
        ",\"bubble\":%.6g,\"tokens_per_s_per_gpu\":%.15g,\"mfu\":%.6g,\"layout\":{\"pp\":%d,"
        "\"vpp\":%d,\"ep\":%d,\"cp\":%d,\"dp\":%" PRId64 ",\"zero\":%d,\"shard\":%" PRId64
        ",\"schedule\":\"%s\",\"partition\":\"%s\",\"micro_batch\":%" PRId64
        ",\"recompute\":\"%s\",\"tp\":%d,\"etp\":%d},\"offload\":%s,\"host_bytes\":%.0f,"
        "\"replica\":%" PRId64,
        p->bubble, p->tokens_per_s_per_gpu, p->mfu, l->pp, l->vpp, l->ep, l->cp, l->dp, l->zero,
        l->shard, l->schedule->name, partition, l->micro_batch, recompute_text(again, l), l->tp,
        plan_etp(l), p->offload ? "true" : "false", p->host_bytes, search_replica(l));
}

/* The members of a training's days. What never ends is null. */
static Status json_goodput(const Goodput *g, Text *out)
{
    TRY(text_json(out,
                  ",\"days\":%g,\"goodput\":{\"days\":%g,\"days_p50\":%g,\"days_p90\":%g,"
                  "\"share\":%g,\"failures\":%g,\"failure_every_s\":%g,\"restart_s\":%g,"
                  "\"redone_s\":%g,\"checkpoint_steps\":%g,\"checkpoint_every_s\":%g,"
                  "\"young_s\":%g,\"daly_s\":%g,\"checkpoint_stop_s\":%g,"
                  "\"checkpoint_bytes\":%g,\"gpu_hours\":%g,\"mwh\":%g,\"days_whole\":%g",
                  g->full_s / DAY_S, g->mean_s / DAY_S, g->p50_s / DAY_S, g->p90_s / DAY_S,
                  g->share, g->failures, g->of.mtbf_s, g->of.restart_s, g->redone_s,
                  g->interval_steps, g->of.interval_s, g->young_s, g->daly_s, g->of.stall_s,
                  g->saved_bytes, g->gpu_hours, g->megawatt_h, g->whole_s / DAY_S));
    if (g->hour.price > 0)
        TRY(text_json(out, ",\"cost\":%g,\"currency\":%s", g->hour.price * g->gpu_hours,
                      g->hour.currency));
    return text_printf(out, "}");
}

static Status json_also(unsigned also, Text *out)
{
    char names[PLAN_ALSO_BYTES];
    (void)plan_also_text(names, also, "\"", "\",\"");
    return text_printf(out, ",\"also\":[%s%s]", names, also != 0 ? "\"" : "");
}

static Status json_rows(const char *name, const SearchRow *row, int n, bool simulated, Text *out)
{
    TRY(text_printf(out, ",\"%s\":[", name));
    for (int i = 0; i < n; i++) {
        TRY(text_printf(out, "%s{", i > 0 ? "," : ""));
        TRY(json_layout(&row[i].layout, &row[i].price, row[i].partition, out));
        TRY(json_also(row[i].also, out));
        TRY(text_printf(out, ",\"simulated\":%s}", simulated ? "true" : "false"));
    }
    return text_printf(out, "]");
}

static Status json_rates(const Hardware *h, Text *out)
{
    HardwareRates rates[HARDWARE_SECTIONS_MAX];
    const int n = hardware_bases(h, rates);
    TRY(text_printf(out, ",\"measured\":%s,\"rates\":{", h->gpu_measured ? "true" : "false"));
    for (int i = 0; i < n; i++)
        TRY(text_printf(out, "%s\"%s\":\"%s\"", i > 0 ? "," : "", rates[i].section,
                        hardware_basis_names[rates[i].basis]));
    return text_printf(out, "}");
}

/* The chosen layout's members stand at the top level; best, front and nearest repeat them as lists of objects. */
Status plan_report_json(const PlanReport *r, Text *out)
{
    bool forced = r->request->config->moe_forced_balance;
    TRY(text_printf(out, forced ? "{\"forced_balance\":true," : "{"));
    TRY(json_layout(r->layout, r->price, r->partition, out));
    TRY(text_json(out, ",\"gpus\":%" PRId64 ",\"stack\":%s", r->request->gpus, r->stack));
    TRY(json_rates(r->request->hardware, out));
    TRY(text_printf(out,
                    ",\"interval\":{\"time\":%.6g,\"faster\":%.6g,\"bytes\":%.6g,"
                    "\"links_assumed\":%s,",
                    r->interval.time, r->interval.faster, r->interval.bytes,
                    r->interval.assumed ? "true" : "false"));
    TRY(json_parts(out, "by", interval_names, r->interval.by, INTERVAL_INPUTS));
    TRY(text_printf(out, "}"));
    if (r->tokens > 0) {
        Goodput g;
        plan_goodput(r->request, r->price, r->tokens, &g);
        TRY(json_goodput(&g, out));
    }
    if (r->unbalanced > 0)
        TRY(text_printf(out, ",\"unbalanced\":{\"rows\":%g,\"tokens_per_s_per_gpu\":%.6g}",
                        PLAN_UNBALANCED, r->unbalanced));
    if (r->slope_s != 0)
        TRY(text_printf(out, ",\"slope\":{\"step_s\":%.6g,\"bytes\":%.0f,\"layer\":\"%s\"}",
                        r->slope_s, r->slope_bytes, r->slope_of));
    if (r->asked > 0) TRY(text_printf(out, ",\"gpus_asked\":%" PRId64, r->asked));
    if (r->batch.sequences > 0)
        TRY(text_printf(out,
                        ",\"batch_limits\":{\"sequences\":%" PRId64
                        ",\"tokens_per_s_per_gpu\":%.6g,\"simulated\":false}",
                        r->batch.sequences, r->batch.tokens_per_s_per_gpu));
    const PlanFormula *f = r->formula;
    if (f != NULL)
        TRY(text_json(out,
                      ",\"formula\":{\"name\":%s,\"params_total\":%.0f,\"params_rank\":%.0f,"
                      "\"bytes_per_param\":%.9g,\"weight_bytes\":%.0f,\"grad_bytes\":%.0f,"
                      "\"main_bytes\":%.0f,\"moment_bytes\":%.0f,\"activation_bytes\":%.0f,"
                      "\"total_bytes\":%.0f}",
                      r->formula_name, f->params_total, f->params_rank, f->bytes_per_param,
                      f->weight_bytes, f->grad_bytes, f->main_bytes, f->moment_bytes,
                      f->activation_bytes, f->total_bytes));
    const SearchResult *s = r->search;
    if (s != NULL) {
        TRY(json_rows("best", s->best, s->n_best, true, out));
        TRY(json_rows("front", s->front, s->n_front, true, out));
        if (s->n_best == 0) TRY(json_rows("nearest", &s->nearest, 1, false, out));
        TRY(text_printf(out,
                        ",\"layouts\":%" PRId64 ",\"priced\":%" PRId64 ",\"simulated\":%" PRId64
                        ",\"search_s\":%.6g",
                        s->count.legal, s->count.priced, s->count.simulated, s->seconds));
    }
    return text_printf(out, "}\n");
}

/* ---- for spreadsheets ---- */

/* New columns go to the end, so that scripts which read by position keep working. Those of a training's days are
 * there only with --tokens. */
static Status csv_row(const PlanReport *r, const PlanLayout *l, const PlanPrice *p, unsigned also,
                      Text *out)
{
    char again[RECOMPUTE_BYTES], names[PLAN_ALSO_BYTES], products[PRODUCTS_BYTES];
    TRY(text_printf(out, "%d,%d,%d,%d,%" PRId64 ",%d,%s,%" PRId64 ",%s,%d,%.0f,%.9g,%.6g,%.9g,%.6g",
                    l->pp, l->vpp, l->ep, l->cp, l->dp, l->zero, l->schedule->name, l->micro_batch,
                    recompute_text(again, l), p->fits, p->peak_bytes, p->step_s, p->bubble,
                    p->tokens_per_s_per_gpu, p->mfu));
    for (int i = 0; i < PLAN_KINDS; i++) TRY(text_printf(out, ",%.0f", p->memory[i]));
    for (int i = 0; i < PLAN_PARTS; i++) TRY(text_printf(out, ",%.9g", p->part_s[i]));
    TRY(text_printf(out, ",%" PRId64 ",%s,%s,%d,%s,%s,%s,%d,%d,%d", l->shard,
                    dtype_name(compute_type(p->compute)), buffers_names[p->buffers], p->in_series,
                    exchange_word(p), plan_also_text(names, also, "", "+"),
                    products_text(products, p), l->tp, p->offload, plan_etp(l)));
    if (r->tokens > 0) {
        Goodput g;
        plan_goodput(r->request, p, r->tokens, &g);
        TRY(text_printf(out, ",%.9g,%.9g,%.9g,%.9g,%.9g,%.9g,%.0f,%.9g", g.full_s / DAY_S,
                        g.mean_s / DAY_S, g.p50_s / DAY_S, g.p90_s / DAY_S, g.gpu_hours,
                        g.megawatt_h, g.interval_steps, g.whole_s / DAY_S));
        if (g.hour.price > 0) TRY(text_printf(out, ",%.9g", g.hour.price * g.gpu_hours));
    }
    return text_printf(out, "\n");
}

/* A search writes its best layouts, a single plan its one line. */
Status plan_report_csv(const PlanReport *r, Text *out)
{
    TRY(text_printf(out, "pp,vpp,ep,cp,dp,zero,schedule,micro_batch,recompute,fits,peak_bytes,"
                         "step_s,bubble,tokens_per_s_per_gpu,mfu"));
    for (int i = 0; i < PLAN_KINDS; i++) TRY(text_printf(out, ",%s_bytes", plan_kind_names[i]));
    for (int i = 0; i < PLAN_PARTS; i++) TRY(text_printf(out, ",%s_s", plan_part_names[i]));
    TRY(text_printf(
        out,
        ",shard,compute,buffers,exchange_in_series,exchange,also,products,tp,offload,etp%s%s\n",
        r->tokens > 0 ? ",days,days_mean,days_p50,days_p90,gpu_hours,mwh,"
                        "checkpoint_steps,days_whole"
                      : "",
        r->tokens > 0 && *r->request->config->plan_gpu_hour != '\0' ? ",cost" : ""));
    if (r->search == NULL) return csv_row(r, r->layout, r->price, 0, out);
    for (int i = 0; i < r->search->n_best; i++) {
        const SearchRow *row = &r->search->best[i];
        TRY(csv_row(r, &row->layout, &row->price, row->also, out));
    }
    return OK;
}

/* ---- scaling ---- */

double plan_scale_efficiency(const PlanScale *s, int i)
{
    return s[i].price.tokens_per_s_per_gpu / s[0].price.tokens_per_s_per_gpu;
}

/* GPU seconds that a part of a step takes more in row i than in the first row. */
static double part_growth(const PlanScale *s, int i, int part)
{
    return (double)s[i].gpus * s[i].price.part_s[part] -
           (double)s[0].gpus * s[0].price.part_s[part];
}

/* The part that grew most; "": none grew. */
static const char *main_reason(const PlanScale *s, int i)
{
    double most = 0;
    const char *name = "";
    for (int k = 0; k < PLAN_PARTS; k++) {
        if (part_growth(s, i, k) > most) {
            most = part_growth(s, i, k);
            name = plan_part_names[k];
        }
    }
    return name;
}

/* Shares under 0.05 % are not shown. */
const char *plan_scale_losses(char out[PLAN_LOSSES_BYTES], const PlanScale *s, int i,
                              const char *lost)
{
    size_t at = 0;
    out[0] = '\0';
    for (int k = 0; k < PLAN_PARTS; k++) {
        double share = part_growth(s, i, k) * 100 / ((double)s[i].gpus * s[i].price.step_s);
        if (fabs(share) < 0.05) continue;
        at = text_add(out, PLAN_LOSSES_BYTES, at, "%s%s%s %.1f %%", at > 0 ? "; " : "",
                      share > 0 ? lost : "won to ", plan_part_words[k], fabs(share));
    }
    return out;
}

Status plan_scale_text(const PlanScale *s, int n, double room_bytes, Text *out)
{
    char layout[PLAN_LAYOUT_BYTES], losses[PLAN_LOSSES_BYTES], cost[GPU_HOUR_COST_BYTES];
    for (int i = 0; i < n; i++) {
        const PlanPrice *p = &s[i].price;
        TRY(text_printf(out, "%8" PRId64 " GPUs %9.1f tokens/s/GPU %6.1f %%  %s", s[i].gpus,
                        p->tokens_per_s_per_gpu, 100 * plan_scale_efficiency(s, i),
                        plan_layout_text(layout, &s[i].layout, p)));
        if (!p->fits)
            TRY(text_printf(out, "; %s: %.2f GiB, %.2f may be used",
                            p->tight ? "tight" : "DOES NOT FIT", p->peak_bytes / PLAN_GIB,
                            room_bytes / PLAN_GIB));
        const Goodput *g = &s[i].goodput;
        if (g->full_s > 0) TRY(text_printf(out, "; %.1f days", g->full_s / DAY_S));
        if (g->share > 0)
            TRY(text_printf(out, ", %.1f with failures (P90 %.1f), %.1f whole", g->mean_s / DAY_S,
                            g->p90_s / DAY_S, g->whole_s / DAY_S));
        else if (g->full_s > 0)
            TRY(text_printf(out, ", with failures it never ends"));
        if (g->share > 0 && g->hour.price > 0)
            TRY(text_printf(out, ", %s", gpu_hour_cost(cost, &g->hour, g->gpu_hours)));
        (void)plan_scale_losses(losses, s, i, "lost to ");
        TRY(text_printf(out, "%s%s\n", *losses != '\0' ? "; " : "", losses));
    }
    return OK;
}

Status plan_scale_json(const PlanScale *s, int n, Text *out)
{
    TRY(text_printf(out, "{\"scaling\":["));
    for (int i = 0; i < n; i++) {
        TRY(text_printf(out, "%s{\"gpus\":%" PRId64 ",\"efficiency\":%.6g,\"reason\":\"%s\",",
                        i > 0 ? "," : "", s[i].gpus, plan_scale_efficiency(s, i),
                        main_reason(s, i)));
        TRY(json_layout(&s[i].layout, &s[i].price, "", out));
        if (s[i].goodput.full_s > 0) TRY(json_goodput(&s[i].goodput, out));
        TRY(text_printf(out, "}"));
    }
    return text_printf(out, "]}\n");
}
