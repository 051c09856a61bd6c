/* explain: prints the factors of a number of a report: layers, ops, collectives, times of stages, and the values
 * of the stack that it depends on (`plan --why`).
 *
 * Not here: the report itself (report.c), how numbers are computed (price.c). */
#include "planner/price/price_private.h"
#include "planner/report.h"

#include <math.h>
#include <string.h>

static const double MIB = 1048576.0;

static const char *const pass_names[LAYER_PASSES] = {
    [PASS_FORWARD] = "forward",
    [PASS_INPUT] = "input gradients",
    [PASS_WEIGHT] = "weight gradients",
    [PASS_RECOMPUTE] = "second forward",
};

/* The price of the report's layout, made again with all that a report does not keep. */
typedef struct Explained {
    Planner *p;
    const PlanReport *r;
    const PriceEntry *entry;
    PriceRanks ranks;
    EstimateInput in;
    Text *out;
} Explained;

/* Layers of one class have equal prices, so the first one stands for all. */
static const char *title_of(const Explained *x, int class)
{
    return layer_desc(x->p->spec.layers[x->p->first_of[class]].kind)->title;
}

/* Explains a value that the stack defines. Values that it leaves at their fallback print nothing. */
static Status explain_stack_value(const Explained *x, StackName name)
{
    PlanInputs in;
    Sheet sheet;
    if (!x->p->q.stack->has[name]) return OK;
    ArenaMark mark = arena_mark(&x->p->scratch);
    TRY(price_inputs(x->p, x->entry, &in));
    stack_sheet(x->p->q.stack, &in, &sheet);
    arena_release(&x->p->scratch, mark);
    return sheet_explain(&sheet, sheet_find(&sheet, stack_names[name]), 3, x->out);
}

/* What ranks of tp split stands apart only where they do. */
static Status explain_kind(Explained *x, const ParamShards *s, const ParamSizes *z, PlanKind kind,
                           bool shared)
{
    const double expert = (double)z->expert, part = (double)z->part, whole = (double)z->whole;
    const double dense = (double)z->flat - expert - part - whole, bytes = x->r->price->memory[kind];
    const long long of = shared ? (long long)s->dense : 1,
                    of_part = shared ? (long long)s->part : 1,
                    of_expert = shared ? (long long)s->expert : 1;
    const double elems =
        whole + dense / (double)of + part / (double)of_part + expert / (double)of_expert;
    TRY(text_printf(x->out,
                    "  %s %.3f GiB = (%.0f parameters that every rank holds + %.0f / %lld + ",
                    plan_kind_names[kind], bytes / PLAN_GIB, whole, dense, of));
    if (part > 0) TRY(text_printf(x->out, "%.0f in parts of tp / %lld + ", part, of_part));
    return text_printf(x->out, "%.0f of experts / %lld) x %.4g bytes\n", expert, of_expert,
                       bytes / elems);
}

/* One line for each kind of state: parameters x bytes. The divisors are 1 for kinds that this ZeRO
 * stage replicates. Bytes a parameter are the total over the parameters. */
static Status explain_state(Explained *x, const ParamShards *s)
{
    /* The main weights are all parameters; some have no other weights than 8-bit copies. */
    static const ParamBuffer buffer[] = { BUF_MAIN, BUF_GRAD, BUF_MAIN, BUF_OPTIMIZER };
    static const int shared_from[] = { 3, 2, 1, 1 }; /* the ZeRO stage that shares a kind out */
    const PlanPrice *price = x->r->price;
    const ChunkPrice *sum = &x->ranks.rank[price->worst_rank].sum;
    for (int k = PLAN_WEIGHTS; k <= PLAN_OPTIMIZER; k++) {
        const ParamSizes *z = &sum->params.of[buffer[k - PLAN_WEIGHTS]];
        if (k == PLAN_OPTIMIZER && price->offload) {
            TRY(text_printf(
                x->out, "  %s %.3f GiB: what stays on the GPU; %.3f GiB lie on the host\n",
                plan_kind_names[k], price->memory[k] / PLAN_GIB, price->host_bytes / PLAN_GIB));
            continue;
        }
        TRY(explain_kind(x, s, z, (PlanKind)k, s->zero >= shared_from[k - PLAN_WEIGHTS]));
    }
    return OK;
}

/* The activations of the worst rank: slots, arenas of deferred weight gradients, and what an evaluation adds. Arenas
 * are as large as the largest chunk that uses them. */
static Status explain_slots(Explained *x, const EstimateRank *of)
{
    int rank = x->r->price->worst_rank;
    double all = x->r->price->memory[PLAN_ACTIVATIONS];
    TRY(text_printf(x->out, "  activations %.3f GiB =", all / PLAN_GIB));
    if (of->alive.kept + of->alive.waiting > 0)
        TRY(text_printf(
            x->out, " %d micro-batches x %.4f GiB + %d that wait for weight gradients x %.4f GiB",
            of->alive.kept, of->alive.kept_bytes / PLAN_GIB, of->alive.waiting,
            of->alive.waiting_bytes / PLAN_GIB));
    for (int i = 0; i < of->uses && of->alive.kept + of->alive.waiting == 0; i++) {
        const SlotUse *use = &of->use[i];
        const int chunk = estimate_largest_chunk(&x->in, rank, use);
        if (chunk < 0) continue;
        TRY(text_printf(x->out, "%s %d %s x %.4f GiB (chunk %d)", i > 0 ? " +" : "", use->count,
                        use->gradients ? "arenas for gradients that wait" : "slots",
                        estimate_use_bytes(&x->in, rank, chunk, use) / PLAN_GIB, chunk));
    }
    const double more = all - of->slot_arena_bytes;
    return text_printf(x->out, " + %.4f GiB that %s\n", more / PLAN_GIB,
                       more < 0 ? "gradients and buffers take over" : "an evaluation takes more");
}

static Status explain_buffers(Explained *x, const EstimateRank *of)
{
    static const char *const names[BUFFER_TERMS] = {
        [BUFFER_GATHERED] = "gathered weights", [BUFFER_ROWS] = "rows between a layer's phases",
        [BUFFER_TRANSFERS] = "transfers",       [BUFFER_STEP] = "the batch",
        [BUFFER_ROTARY] = "rotary tables",      [BUFFER_EXCHANGE] = "the exchange",
    };
    const PlanPrice *price = x->r->price;
    const RankPrice *r = &x->ranks.rank[price->worst_rank];
    double term[BUFFER_TERMS], step, stack = x->entry->stack.at[STACK_workspace] / MIB;
    TRY(price_step_bytes(x->p, x->r->layout, x->entry, &step));
    price_buffers(x->p, x->r->layout, x->entry, r, of, step, term);
    TRY(text_printf(x->out, "  buffers %.3f GiB =", price->memory[PLAN_BUFFERS] / PLAN_GIB));
    for (int i = 0; i < BUFFER_TERMS; i++)
        TRY(text_printf(x->out, "%s %s %.2f MiB", i > 0 ? " +" : "", names[i], term[i] / MIB));
    return text_printf(x->out,
                       "; transfers: %d entries x %.2f MiB\n  workspace %.3f GiB = of the "
                       "largest layer %.2f MiB + of libraries %.2f MiB\n  reserve %.3f GiB = of "
                       "the process %.2f MiB + of NCCL's groups and links %.2f MiB\n",
                       of->entries, (double)x->entry->plain[0].count.stream / MIB,
                       price->memory[PLAN_WORKSPACE] / PLAN_GIB, r->scratch / MIB, stack,
                       price->memory[PLAN_RESERVE] / PLAN_GIB,
                       x->entry->stack.at[STACK_reserve] / MIB,
                       price_comm_bytes(x->r->layout, x->entry) / MIB);
}

/* "  NAME = KIND a + KIND b ...", without those that are 0. scale: 1 for seconds, else of GiB. */
static Status explain_sum(Explained *x, const char *name, double whole, const char *const *names,
                          const double *value, int n, double scale)
{
    const char *before = " =", *unit = scale == 1 ? "s" : "GiB";
    TRY(text_printf(x->out, "  %s %.3f %s", name, whole / scale, unit));
    for (int i = 0; i < n; i++) {
        if (value[i] == 0) continue;
        TRY(text_printf(x->out, "%s %s %.4f %s", before, names[i], value[i] / scale, unit));
        before = " +";
    }
    return text_printf(x->out, "\n");
}

/* The moment of the simulated step at which slots hold most, and the action that begins there. */
static Status explain_fullest_moment(Explained *x)
{
    Arena a = { 0 };
    PlanStep step;
    int rank = x->r->price->worst_rank, found = -1;
    TRY(arena_reserve(&a, "simulation", (size_t)1 << 36));
    Status s = planner_simulate(x->p, x->r->layout, false, &a, &step);
    if (s == OK) {
        const SimRank *r = &step.sim.rank[rank];
        const Program *p = &step.pipeline.rank[rank];
        for (int i = 0; i < p->n; i++) {
            if (p->at[i].slot >= 0 && r->span[i].start <= r->peak_at) found = i;
        }
        const Action *at = &p->at[found < 0 ? 0 : found];
        s = text_printf(x->out,
                        "  most is alive %.4f s into the pipeline's %.4f: %s of micro-batch %d on "
                        "chunk %d begins, slots hold %.3f GiB\n",
                        r->peak_at, step.sim.step, action_name(at->kind), at->micro, at->chunk,
                        r->peak_bytes / PLAN_GIB);
    }
    arena_free(&a);
    return s;
}

/* Who shares out what, and the tokens of which layers keep something. */
static Status explain_shards(Explained *x, const ParamShards *s)
{
    const PriceKey *key = &x->entry->key;
    const bool parts = x->entry->own && key->tp > 1;
    const long long tokens = x->p->config.data_sequence / key->cp, rows = tokens / key->tp;
    TRY(text_printf(x->out,
                    "\npeak of pipeline rank %d: kinds as above, from\n"
                    "  shared out by %lld ranks, ",
                    x->r->price->worst_rank, (long long)s->dense));
    if (parts) TRY(text_printf(x->out, "parts of tp by %lld, ", (long long)s->part));
    TRY(text_printf(x->out,
                    "experts by %lld (ZeRO stage %d)\n"
                    "  kept of a micro-batch of %lld x %lld tokens by one layer",
                    (long long)s->expert, s->zero, (long long)key->micro_batch,
                    parts ? tokens : rows));
    if (parts)
        TRY(text_printf(x->out, "; %lld x %lld of them are this rank's rows of the stream",
                        (long long)key->micro_batch, rows));
    return text_printf(x->out, "\n");
}

/* The parts add up to the report's peak. All figures are those of the worst pipeline rank. */
static Status explain_peak(Explained *x)
{
    const PlanPrice *price = x->r->price;
    const PlanLayout *l = x->r->layout;
    ParamShards shards = price_shards(x->p, l, x->entry);
    TRY(explain_shards(x, &shards));
    for (int i = 0; i < x->p->classes; i++) {
        const LayerPrice *a = &x->entry->plain[i], *b = &x->entry->recomputed[i];
        TRY(text_printf(x->out,
                        "    %-10s %10.2f MiB, recomputed %10.2f MiB, output %.2f MiB; "
                        "%lld parameters, %lld of experts\n",
                        title_of(x, i), (double)(ptrdiff_t)a->count.keep / MIB,
                        (double)(ptrdiff_t)b->count.keep / MIB, (double)a->count.stream / MIB,
                        (long long)a->count.params.of[BUF_MAIN].flat,
                        (long long)a->count.params.of[BUF_MAIN].expert));
    }
    TRY(explain_state(x, &shards));
    Estimate t;
    TRY(estimate(&x->p->estimator, &x->in, &t));
    const EstimateRank *of = &t.rank[price->worst_rank];
    TRY(explain_slots(x, of));
    TRY(explain_buffers(x, of));
    TRY(explain_sum(x, "peak", price->peak_bytes, plan_kind_names, price->memory, PLAN_KINDS,
                    PLAN_GIB));
    return explain_fullest_moment(x);
}

/* An op is bound by its FLOPs (then a rate is known), by memory, or it sends. */
static Status print_op(const Explained *x, const OpPrice *o)
{
    const Hardware *h = x->p->q.hardware;
    TRY(text_printf(x->out, "    %-20s %-16s x%d %9.2f GFLOP %9.2f MB", o->name,
                    pass_names[o->pass], o->calls, o->flops / 1e9, o->bytes / 1e6));
    if (o->lane != ROOFLINE_COMPUTE)
        TRY(text_printf(x->out, " %9.2f MB sent", o->comm_bytes / 1e6));
    else if (o->rate > 0)
        TRY(text_printf(x->out, " at %6.1f TFLOP/s (%s, size %.0f)", o->rate / 1e12,
                        op_work_names[roofline_work(&x->entry->stack, o->work)], o->size));
    else
        TRY(text_printf(x->out, " at %6.0f GB/s", h->memory_achieved_gb_s));
    return text_printf(x->out, " = %.4f ms\n", 1e3 * o->s);
}

enum { LAYER_PARTS = 5 };
static const PlanPart layer_parts[LAYER_PARTS] = { PLAN_COMPUTE, PLAN_EXCHANGE, PLAN_CONTEXT,
                                                   PLAN_TENSOR, PLAN_HOST };

/* All ops of a layer, or only those that send, and what the stack's own layers move besides. */
static Status print_layer(const Explained *x, const LayerPrice *l, bool all)
{
    double more_s = l->lane_s[ROOFLINE_COMPUTE];
    for (int k = 0; k < l->n_ops; k++) {
        const bool computes = l->op[k].lane == ROOFLINE_COMPUTE;
        if (computes) more_s -= l->op[k].s;
        if (all || !computes) TRY(print_op(x, &l->op[k]));
    }
    if (!all || more_s < 1e-9) return OK;
    return text_printf(x->out, "    bytes of the stack's own layers more than ours = %.4f ms\n",
                       1e3 * more_s);
}

/* How layers add up to a part of the step, which is that of the mean rank. */
static Status print_part(const Explained *x, PlanPart part, double layers_s)
{
    const PlanPrice *price = x->r->price;
    double micros = (double)price_micros(x->p, x->r->layout), pp = x->r->layout->pp;
    double sum_s = layers_s * micros / pp, more_s = price->part_s[part] - sum_s;
    const char *what = part == PLAN_HOST ? "once a step" : "in the simulated list";
    TRY(text_printf(x->out, "  %s %.3f s = all layers %.4f ms x %g micro-batches / %g ranks",
                    plan_part_words[part], price->part_s[part], 1e3 * layers_s, micros, pp));
    if (fabs(more_s) > 1e-7)
        TRY(text_printf(x->out, more_s < 0 ? " - %.4f s overlapped with compute" : " + %.4f s %s",
                        fabs(more_s), what));
    return text_printf(x->out, "\n");
}

/* Prints all ops, or only those that send, and how layers add up to the parts of the step. */
static Status print_ops(Explained *x, bool all)
{
    int n[2][LAYER_CLASSES_MAX] = { { 0 } };
    double sum_s[LAYER_PARTS] = { 0 };
    TRY(price_count_layers(x->p, x->r->layout, x->entry, n));
    for (int i = 0; i < 2 * x->p->classes; i++) {
        int class = i / 2, again = i % 2, count = n[again][class];
        const LayerPrice *l = again ? &x->entry->recomputed[class] : &x->entry->plain[class];
        const double *lane = l->lane_s,
                     s[LAYER_PARTS] = { lane[ROOFLINE_COMPUTE], lane[ROOFLINE_EXCHANGE],
                                        lane[ROOFLINE_CONTEXT], lane[ROOFLINE_TENSOR],
                                        price_lost_s(l) };
        if (count == 0) continue;
        TRY(text_printf(
            x->out,
            "  one %s layer%s: compute %.4f ms, exchange %.4f ms, context %.4f ms, tensor %.4f "
            "ms, lost to the host %.4f ms; %d of them\n",
            title_of(x, class), again ? ", recomputed" : "", 1e3 * s[0], 1e3 * s[1], 1e3 * s[2],
            1e3 * s[3], 1e3 * s[4], count));
        TRY(print_layer(x, l, all));
        for (int k = 0; k < LAYER_PARTS; k++) sum_s[k] += count * s[k];
    }
    for (int k = 0; k < LAYER_PARTS; k++) TRY(print_part(x, layer_parts[k], sum_s[k]));
    return OK;
}

static Status explain_step(Explained *x)
{
    static const OpWork rates[] = { WORK_GEMM, WORK_GROUPED, WORK_ATTENTION };
    Hardware h = *x->p->q.hardware;
    TRY(text_printf(x->out, "\nops of a micro-batch on one rank: max(FLOPs / rate, bytes / memory "
                            "rate) + launch\n"));
    TRY(print_ops(x, true));
    const PlanPrice *price = x->r->price;
    const double slowest = price_slowest(x->p);
    if (slowest > 0)
        TRY(text_printf(
            x->out,
            "  slowest %.3f s = mean GPU %.4f s x %.6f (the slowest of %lld, plan.spread "
            "%g)\n",
            price->part_s[PLAN_SLOWEST], price->part_s[PLAN_SLOWEST] / slowest, slowest,
            (long long)x->p->q.gpus, x->p->config.plan_spread));
    TRY(explain_sum(x, "step", price->step_s, plan_part_words, price->part_s, PLAN_PARTS, 1));
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        OpWork work = roofline_work(&x->entry->stack, rates[i]);
        if (*hardware_source(&h, work) == NULL) work = rates[i];
        const char *source = *hardware_source(&h, work);
        TRY(text_printf(x->out, "  rates of %s: %s\n", op_work_names[work],
                        source != NULL ? source : "as gemm"));
    }
    return text_printf(x->out, "  of memory: %s\n", h.memory_source);
}

/* Bytes within a domain ("up") and between domains ("out") have different rates, hence two figures. */
static Status print_call(Explained *x, const GradientCall *call)
{
    CollectiveCost c;
    CollectiveGroup g = roofline_group(x->p->q.hardware, call->ranks, call->stride);
    TRY(roofline_collective(x->p->q.hardware, &call->cost, &g, &c));
    return text_printf(x->out,
                       "    %-18s %9.3f GiB over %lld ranks, %lld a domain, %s: %.3f ms + %.3f "
                       "GB up and %.3f GB out of a GPU = %.3f ms\n",
                       call->what, call->cost.size / PLAN_GIB, (long long)g.ranks,
                       (long long)g.local, collective_way_name(c.way), 1e3 * c.latency_s,
                       c.up_bytes / 1e9, c.out_bytes / 1e9, 1e3 * call->s);
}

/* Explains the rank with the longest gradients: the step has its time. */
static Status explain_gradients(Explained *x)
{
    GradientTimes t = { 0 };
    int worst = 0;
    for (int r = 0; r < x->r->layout->pp; r++) {
        GradientTimes of;
        TRY(price_gradients(x->p, x->r->layout, x->entry, &x->ranks.rank[r], &of));
        if (r > 0 && price_gradients_s(&of) <= price_gradients_s(&t)) continue;
        t = of;
        worst = r;
    }
    const RankPrice *rank = &x->ranks.rank[worst];
    TRY(text_printf(x->out,
                    "  rank %d takes longest: dense parameters, %sthen experts; the slowest rank's "
                    "passes of a micro-batch hide them: backward %.3f ms, forward %.3f ms\n",
                    worst,
                    x->entry->own && x->entry->key.tp > 1 ? "then those that tp splits, " : "",
                    1e3 * rank->backward_s, 1e3 * rank->forward_s));
    for (int i = 0; i < t.calls; i++) TRY(print_call(x, &t.call[i]));
    if (t.sums > 0) TRY(text_printf(x->out, "    added to sums %.4f ms\n", 1e3 * t.sums));
    const double added = t.replicate + t.twins, shown_s = price_gradients_s(&t);
    TRY(text_printf(x->out,
                    "  reduced %.4f ms - %.4f ms hidden by backward, at least 0 = %.4f ms x %g\n"
                    "  added up %.4f ms - %.4f ms hidden by the rest of it = %.4f ms x 1\n"
                    "  gathered %.4f ms - %.4f ms hidden by passes = %.4f ms x %g\n"
                    "  passes at the same time take %.4f ms longer\n",
                    1e3 * t.reduce, 1e3 * t.behind_backward, 1e3 * t.shown_reduce, t.reductions,
                    1e3 * added, 1e3 * (added - t.shown_replicate), 1e3 * t.shown_replicate,
                    1e3 * t.gather, 1e3 * (t.gather - t.shown_gather), 1e3 * t.shown_gather,
                    t.gathers, 1e3 * t.slowed));
    const double part_s = x->r->price->part_s[PLAN_GRADIENTS], more_s = part_s - shown_s;
    TRY(text_printf(x->out, "  gradients %.3f s = %.4f s of these", part_s, shown_s));
    if (fabs(more_s) > 1e-7)
        TRY(text_printf(x->out, " %c %.4f s in the simulated list", more_s < 0 ? '-' : '+',
                        fabs(more_s)));
    return text_printf(x->out, "\n");
}

/* Which links exchanges and gradients use, at which rates, and each call with its bytes. */
static Status explain_comm(Explained *x)
{
    const Hardware *h = x->p->q.hardware;
    const PlanLayout *l = x->r->layout;
    CollectiveGroup ep = roofline_group(h, plan_expert_ranks(l), 1),
                    dp = roofline_group(h, l->dp * l->cp, l->tp);
    TRY(text_printf(x->out,
                    "\nexperts: group of %lld, %lld in a domain; gradients: %lld, %lld in a "
                    "domain\n  up %g GB/s (%s)\n  out %g GB/s (%s)\n",
                    (long long)ep.ranks, (long long)ep.local, (long long)dp.ranks,
                    (long long)dp.local, h->scale_up_achieved_gb_s, h->scale_up_source,
                    h->scale_out_achieved_gb_s, h->scale_out_source));
    if (l->tp > 1)
        TRY(text_printf(x->out, "  rows of the stream: group of %d, %lld in a domain\n", l->tp,
                        (long long)roofline_group(h, l->tp, 1).local));
    TRY(text_printf(x->out, "  latency up %g us and %g a peer, out %g us and %g a peer\n",
                    h->scale_up_latency_us, h->scale_up_issue_us, h->scale_out_latency_us,
                    h->scale_out_issue_us));
    const double all = h->scale_up_shard_gb_s, two = h->scale_up_pair_gb_s;
    if (all > 0)
        TRY(text_printf(x->out, "  gathers and reduce-scatters up %g GB/s, of two GPUs %g\n", all,
                        two > 0 ? two : all));
    if (planner_runs_list(x->p) && h->gpu_multiprocessors > 0)
        TRY(text_printf(x->out,
                        "  a collective holds %d of %g multiprocessors, a transfer between stages "
                        "%d: what computes at the same time takes %.3f s longer\n",
                        COMM_BLOCKS, h->gpu_multiprocessors, COMM_FEW_BLOCKS,
                        x->r->price->part_s[PLAN_SLOWED]));
    if (h->contention_blocks > 0)
        TRY(text_printf(x->out,
                        "  next to %g: products x %.3f, grouped x %.3f, attention x %.3f, memory x "
                        "%.3f (%s)\n",
                        h->contention_blocks, h->contention_gemm, h->contention_grouped,
                        h->contention_attention, h->contention_memory, h->contention_source));
    TRY(print_ops(x, false));
    return explain_gradients(x);
}

/* The ideal bubble of 1F1B is (p-1)/(p-1+m v) (arXiv:2104.04473); unequal stages and transfers make it larger. */
static Status explain_bubble(Explained *x)
{
    const PlanLayout *l = x->r->layout;
    double p = l->pp, m = x->in.micros, v = l->vpp;
    TRY(text_printf(
        x->out,
        "\nbubble %.4f of the pipeline's %.3f s; with equal stages and free exchanges 1F1B has "
        "(p-1)/(p-1+m v) = %.4f, p = %g, m = %g, v = %g\n"
        "  a transfer between stages takes %.3f ms; times of a micro-batch, ms\n"
        "  theory of %s: %s\n",
        x->r->price->bubble, x->r->price->schedule_s, (p - 1) / (p - 1 + m * v), p, m, v,
        1e3 * x->in.send_s, l->schedule->name, l->schedule->bubble));
    for (int i = 0; i < l->pp * l->vpp && i < 256; i++) {
        const ChunkTimes *t = &x->in.time[i];
        TRY(text_printf(x->out, "    rank %d chunk %d: forward %.3f, input %.3f, weight %.3f\n",
                        i / l->vpp, i % l->vpp, 1e3 * price_phases_s(t->forward),
                        1e3 * price_phases_s(t->input), 1e3 * price_phases_s(t->weight)));
    }
    return OK;
}

enum { STACK_VALUES = 6 };

/* The topics of --why, and the values of the stack that each depends on; -1 ends a list. */
static const struct {
    const char *word;
    Status (*explain)(Explained *x);
    int stack[STACK_VALUES + 1];
} topics[] = {
    { "peak",
      explain_peak,
      { STACK_keep_attention, STACK_keep_moe, STACK_working_head, STACK_reserve, STACK_workspace,
        STACK_exchange_buffers, -1 } },
    { "step",
      explain_step,
      { STACK_share_compute, STACK_share_grouped, STACK_kernel_s, STACK_host_moe, STACK_wait_moe,
        -1 } },
    { "comm",
      explain_comm,
      { STACK_dispatch, STACK_hide_exchange, STACK_hide_gradients, STACK_hide_tensor,
        STACK_gather_attention, -1 } },
    { "bubble", explain_bubble, { -1 } },
};

enum { TOPICS = sizeof topics / sizeof *topics };

/* The room for rows is set to what the price chose, so that the entry is the same one. */
static Status explain_topic(Explained *x, int topic)
{
    PlanLayout l = *x->r->layout;
    l.room = x->r->price->room;
    TRY(price_entry(x->p, &l, &x->entry));
    TRY(price_input(x->p, &l, x->entry, &x->ranks, &x->in));
    TRY(topics[topic].explain(x));
    for (const int *name = topics[topic].stack; *name >= 0; name++)
        TRY(explain_stack_value(x, (StackName)*name));
    return x->out->data[x->out->used - 1] == '\n' ? OK : text_printf(x->out, "\n");
}

Status plan_explain(Planner *p, const PlanReport *r, const char *what, Text *out)
{
    const char *words[TOPICS];
    Explained x = { .p = p, .r = r, .out = out };
    for (int i = 0; i < TOPICS; i++) {
        words[i] = topics[i].word;
        if (strcmp(what, words[i]) != 0) continue;
        ArenaMark mark = arena_mark(&p->scratch);
        p->listing = true;
        Status s = explain_topic(&x, i);
        p->listing = false;
        arena_release(&p->scratch, mark);
        return s;
    }
    int near = text_nearest(what, words, TOPICS);
    return FAIL(ERR_ARG, "plan: --why %.40s%s%s; there are peak, step, comm and bubble", what,
                near < 0 ? " is not known" : ", did you mean ", near < 0 ? "" : words[near]);
}
