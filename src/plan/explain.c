#include "plan/explain.h"

#include "plan/price_private.h"

#include <string.h>

static const double MIB = 1048576.0, GIB = 1073741824.0;

static const char *const kind_names[] = { [LAYER_EMBED] = "embedding",
                                          [LAYER_ATTENTION] = "attention",
                                          [LAYER_MLP] = "dense MLP",
                                          [LAYER_MOE] = "MoE",
                                          [LAYER_HEAD] = "head" };
static const char *const pass_names[LAYER_PASSES] = { "forward", "input gradients",
                                                      "weight gradients" };
static const char *const work_names[WORK_COUNT] = {
    [WORK_MEMORY] = "memory",
    [WORK_GEMM] = "gemm",
    [WORK_GROUPED] = "grouped",
    [WORK_ATTENTION] = "attention",
    [WORK_ATTENTION_BACKWARD] = "attention_backward",
    [WORK_COMM] = "links",
};

typedef struct Explained {
    Planner *p;
    const PlanReport *r;
    const PriceEntry *entry;
    Text *out;
} Explained;

static const LayerSpec *layer_of(const Explained *x, int class)
{
    return &x->entry->spec.layers[x->p->first_of[class]];
}

/* The stack's sheet says where a value is from, if it says anything. */
static Status stack_value(const Explained *x, StackName name)
{
    const StackValues *v = &x->entry->stack;
    const FormulaSheet *sheet = &x->p->q.stack->sheet;
    if (!x->p->q.stack->has[name]) return OK;
    FormulaInputs in;
    ArenaMark mark = arena_mark(&x->p->scratch);
    TRY(price_inputs(x->p, x->entry, &in));
    Status s = formula_explain(sheet, stack_names[name], &in, 3, x->out);
    arena_release(&x->p->scratch, mark);
    if (s != OK) return text_printf(x->out, "  %s = %g\n", stack_names[name], v->at[name]);
    return OK;
}

static Status peak(Explained *x)
{
    const PlanPrice *price = x->r->price;
    const PlanLayout *l = x->r->layout;
    ParamShards shards = price_shards(x->p, l, x->entry);
    TRY(text_printf(x->out,
                    "\npeak of pipeline rank %d: kinds as above, from\n"
                    "  shared out by %lld ranks, experts by %lld (ZeRO stage %d)\n",
                    price->worst_rank, (long long)shards.dense, (long long)shards.expert,
                    shards.stage));
    TRY(text_printf(x->out, "  kept of a micro-batch of %lld x %lld tokens by one layer\n",
                    (long long)x->entry->key.micro_batch,
                    (long long)x->p->config.data_sequence / x->entry->key.cp));
    for (int i = 0; i < x->p->classes; i++) {
        const LayerPrice *a = &x->entry->plain[i], *b = &x->entry->recomputed[i];
        TRY(text_printf(x->out,
                        "    %-10s %10.2f MiB, recomputed %10.2f MiB, output %.2f MiB; "
                        "%lld parameters, %lld of experts\n",
                        kind_names[layer_of(x, i)->kind], a->keep_bytes / MIB, b->keep_bytes / MIB,
                        (double)a->count.stream / MIB, (long long)a->count.elems,
                        (long long)a->count.expert_elems));
    }
    TRY(text_printf(x->out, "  activations %.3f GiB: slots of all micro-batches in flight\n",
                    price->memory[PLAN_ACTIVATIONS] / GIB));
    static const StackName names[] = {
        STACK_keep_attention, STACK_keep_moe,  STACK_keep_head,
        STACK_reserve,        STACK_workspace, STACK_exchange_buffers
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) TRY(stack_value(x, names[i]));
    return OK;
}

static Status print_op(const Explained *x, const OpPrice *o)
{
    const Hardware *h = x->p->q.hardware;
    TRY(text_printf(x->out, "    %-20s %-16s x%d %9.2f GFLOP %9.2f MB", o->name,
                    pass_names[o->pass], o->calls, o->flops / 1e9, o->bytes / 1e6));
    if (o->lane != ROOFLINE_COMPUTE)
        TRY(text_printf(x->out, " %9.2f MB sent", o->comm_bytes / 1e6));
    else if (o->rate > 0)
        TRY(text_printf(x->out, " at %6.1f TFLOP/s (%s, size %.0f)", o->rate / 1e12,
                        work_names[o->work], o->size));
    else
        TRY(text_printf(x->out, " at %6.0f GB/s", h->memory_achieved_gb_s));
    return text_printf(x->out, " = %.3f ms\n", 1e3 * o->s);
}

/* All ops, or those that send. */
static Status print_ops(Explained *x, bool all)
{
    for (int i = 0; i < x->p->classes; i++) {
        const LayerPrice *l = &x->entry->plain[i];
        double s = price_pass_s(l, false) + price_pass_s(l, true);
        TRY(text_printf(x->out, "  one %s layer: %.3f ms, host %.3f ms, waits %.3f ms\n",
                        kind_names[layer_of(x, i)->kind], 1e3 * s, 1e3 * l->host_s,
                        1e3 * l->wait_s));
        for (int k = 0; k < l->n_ops; k++) {
            if (all || l->op[k].lane != ROOFLINE_COMPUTE) TRY(print_op(x, &l->op[k]));
        }
    }
    return OK;
}

static Status step(Explained *x)
{
    const Hardware *h = x->p->q.hardware;
    TRY(text_printf(x->out, "\nops of a micro-batch on one rank: max(FLOPs / rate, bytes / memory "
                            "rate) + launch\n"));
    TRY(print_ops(x, true));
    TRY(text_printf(x->out,
                    "  rates of gemm: %s\n  of grouped: %s\n  of attention: %s\n  of memory: "
                    "%s\n",
                    h->gemm_source, h->grouped_source != NULL ? h->grouped_source : "as gemm",
                    h->attention_source, h->memory_source));
    static const StackName names[] = { STACK_share_compute, STACK_share_grouped, STACK_kernel_s,
                                       STACK_host_moe, STACK_wait_moe };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) TRY(stack_value(x, names[i]));
    return OK;
}

static Status comm(Explained *x)
{
    const Hardware *h = x->p->q.hardware;
    const PlanLayout *l = x->r->layout;
    CollectiveGroup ep = roofline_group(h, l->ep, 1), dp = roofline_group(h, l->dp * l->cp, 1);
    TRY(text_printf(
        x->out,
        "\nexperts: group of %lld, %lld in a domain; gradients: %lld, %lld in a domain\n"
        "  up %g GB/s (%s)\n  out %g GB/s (%s)\n",
        (long long)ep.ranks, (long long)ep.local, (long long)dp.ranks, (long long)dp.local,
        h->scale_up_achieved_gb_s, h->scale_up_source, h->scale_out_achieved_gb_s,
        h->scale_out_source));
    TRY(print_ops(x, false));
    static const StackName names[] = { STACK_dispatch, STACK_hide_exchange, STACK_hide_gradients };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) TRY(stack_value(x, names[i]));
    return text_printf(x->out, "  gradients and weights that nothing hides: %.3f s\n",
                       x->r->price->part_s[PLAN_GRADIENTS]);
}

static double sum_of(const double phase[PHASES])
{
    double s = 0;
    for (int i = 0; i < PHASES; i++) s += phase[i];
    return s;
}

static Status bubble(Explained *x)
{
    const PlanLayout *l = x->r->layout;
    EstimateInput in;
    ArenaMark mark = arena_mark(&x->p->scratch);
    TRY(price_estimate_input(x->p, l, &in));
    double p = l->pp, m = in.micros, v = l->vpp;
    TRY(text_printf(x->out,
                    "\nbubble %.4f of the pipeline's %.3f s; with equal stages 1F1B has "
                    "(p-1)/(p-1+m v) = %.4f, p = %g, m = %g, v = %g\n"
                    "  a transfer between stages takes %.3f ms; times of a micro-batch, ms\n",
                    x->r->price->bubble, x->r->price->schedule_s, (p - 1) / (p - 1 + m * v), p, m,
                    v, 1e3 * in.send_s));
    for (int i = 0; i < l->pp * l->vpp && i < 256; i++) {
        const ChunkTimes *t = &in.time[i];
        TRY(text_printf(x->out, "    rank %d chunk %d: forward %.3f, input %.3f, weight %.3f\n",
                        i / l->vpp, i % l->vpp, 1e3 * sum_of(t->forward), 1e3 * sum_of(t->input),
                        1e3 * sum_of(t->weight)));
    }
    arena_release(&x->p->scratch, mark);
    return OK;
}

Status plan_explain(Planner *p, const PlanReport *r, const char *what, Text *out)
{
    static const char *const words[] = { "peak", "step", "comm", "bubble" };
    static Status (*const explain[])(Explained *) = { peak, step, comm, bubble };
    Explained x = { .p = p, .r = r, .out = out };
    for (int i = 0; i < 4; i++) {
        if (strcmp(what, words[i]) != 0) continue;
        TRY(price_entry(p, r->layout, &x.entry));
        return explain[i](&x);
    }
    int near = text_nearest(what, words, 4);
    return FAIL(ERR_ARG, "plan: --why %.40s%s%s; there are peak, step, comm and bubble", what,
                near < 0 ? " is not known" : ", did you mean ", near < 0 ? "" : words[near]);
}
