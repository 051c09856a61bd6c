/* roofline: the time of an op from its cost and the rates of the hardware; exchanges go through collective.c. */
#include "planner/price/roofline.h"
#include "kernels/dense/product.h"
#include "kernels/exchange/exchange.h"

#include <math.h>
#include <string.h>

enum { TILE_ROWS = 128 }; /* rows of a tile of grouped products (kernels/moe/grouped.cuh) */

/* Members stand `stride` GPUs apart, so a domain has scale_up_gpus / stride of them. It is rounded
 * down to a divisor of the group, because collectives need domains of equal size. */
CollectiveGroup roofline_group(const Hardware *h, int64_t ranks, int64_t stride)
{
    int64_t room = (int64_t)h->scale_up_gpus / stride, local = room < ranks ? room : ranks;
    if (local < 1) local = 1;
    while (ranks % local != 0) local--;
    return (CollectiveGroup){ .ranks = ranks, .local = local, .span = ranks * stride };
}

/* Seconds for bytes at the measured rate of memory, times the share of it that the stack reaches. */
double roofline_memory_s(const Roofline *r, double bytes)
{
    return bytes / (1e9 * r->hardware->memory_achieved_gb_s * r->stack->at[STACK_share_memory]);
}

/* An exchange of tokens. The busiest rank gets plan.imbalance times the mean bytes; the latency stays. */
static Status exchange_s(const Roofline *r, const MoeSpec *m, const OpCost *c, RooflineTime *out)
{
    static const DispatchKind kinds[] = { DISPATCH_EACH, DISPATCH_RANK, DISPATCH_HOST };
    static const DispatchKind ours[EXCHANGE_KINDS] = { [EXCHANGE_ALLTOALL] = DISPATCH_RANK,
                                                       [EXCHANGE_ALLGATHER] = DISPATCH_ALL,
                                                       [EXCHANGE_HIER] = DISPATCH_RELAY,
                                                       [EXCHANGE_DIRECT] = DISPATCH_RANK };
    double theirs = r->stack->at[STACK_dispatch];
    const int64_t etp = r->spec->ranks.etp;
    CollectiveGroup g = roofline_group(r->hardware, r->spec->ranks.ep, 1);
    Dispatch d = { .kind = theirs < 0 ? ours[r->spec->ranks.exchange] : kinds[(int)theirs],
                   .tokens = r->tokens,
                   .row_bytes = c->size,
                   .experts = m->experts * etp,
                   .top_k = m->rule.top_k * etp,
                   .domain_limit = m->rule.groups > 1 ? m->rule.top_groups : 0 };
    CollectiveCost cost;
    TRY(collective_dispatch(r->hardware, &g, &d, &cost));
    double links = r->stack->at[STACK_share_links], busiest = r->spec->ranks.imbalance;
    out->s = (cost.latency_s + (cost.s - cost.latency_s) * busiest) / links;
    /* Kernels of their own copy rows into blocks and add up those that return. direct moves rows from where they are. */
    const ExchangeDesc *own = exchange_kinds[r->spec->ranks.exchange];
    if (r->stack->at[STACK_list] != 0 && own->offsets && !own->compact)
        out->s += roofline_memory_s(r, c->bytes) * busiest + r->stack->at[STACK_kernel_s];
    out->nic = (CollectiveLoad){ cost.nic_s * busiest / links, cost.flows, g.span };
    return OK;
}

/* A shift is a send to one neighbour; all other ops are collectives. */
Status roofline_collective(const Hardware *h, const OpCost *c, const CollectiveGroup *g,
                           CollectiveCost *out)
{
    CollectiveKind kind = c->comm == COMM_ALL_GATHER   ? COLLECTIVE_ALL_GATHER
                          : c->comm == COMM_ALL_REDUCE ? COLLECTIVE_ALL_REDUCE
                                                       : COLLECTIVE_REDUCE_SCATTER;
    if (c->comm != COMM_SHIFT) return collective_cost(h, kind, g, c->size, out);
    *out = collective_send(h, g->local == g->ranks, g->span, c->comm_bytes);
    return OK;
}

/* Collectives of context ranks, of ranks of tp, and of the ranks of a stage where an op sums over all data. Those of
 * all ranks with rows of a sequence count as one axis says: they are small. */
static Status context_s(const Roofline *r, const OpCost *c, RooflineTime *out)
{
    const SpecRanks *n = &r->spec->ranks;
    int64_t ranks = c->axis == AXIS_DP ? n->stage : c->axis == AXIS_TP ? n->tp : n->cp;
    CollectiveGroup g = roofline_group(r->hardware, ranks, c->axis == AXIS_CP ? n->tp : 1);
    CollectiveCost cost;
    TRY(roofline_collective(r->hardware, c, &g, &cost));
    out->lane = c->axis == AXIS_TP   ? ROOFLINE_TENSOR
                : c->axis == AXIS_DP ? ROOFLINE_EXCHANGE /* loads of experts, for their balance */
                                     : ROOFLINE_CONTEXT;
    out->s = cost.s / r->stack->at[STACK_share_links];
    return OK;
}

/* A chunk of logits has two all-reduces: of the largest logit of each token, then of two sums. */
Status roofline_loss_sums(const Roofline *r, const OpCost *c, RooflineTime *out)
{
    const int64_t ranks = r->spec->ranks.tp;
    const double tokens = r->tokens * (double)ranks;
    const double chunks = ceil(tokens / (double)r->spec->loss.chunk);
    const CollectiveGroup g = roofline_group(r->hardware, ranks, 1);
    *out = (RooflineTime){ .lane = ROOFLINE_TENSOR };
    for (int floats = 1; floats <= 2; floats++) {
        OpCost one = { .comm = COMM_ALL_REDUCE, .axis = c->axis };
        CollectiveCost cost;
        one.size = floats * tokens / chunks * (double)dtype_bytes(DTYPE_F32);
        TRY(roofline_collective(r->hardware, &one, &g, &cost));
        out->s += chunks * cost.s / r->stack->at[STACK_share_links];
    }
    return OK;
}

static double rows_of_expert(const Roofline *r, const MoeSpec *m)
{
    return r->tokens * (double)(m->rule.top_k * r->spec->ranks.ep) / (double)m->experts;
}

/* The share of rates that the stack reaches. */
static double share_of(const StackValues *v, OpWork work)
{
    double own = work_is_grouped(work) ? v->at[STACK_share_grouped] : -1;
    if (work >= WORK_ATTENTION && work <= WORK_ATTENTION_PLAIN_BACKWARD)
        own = v->at[STACK_share_attention];
    return own >= 0 ? own : v->at[STACK_share_compute];
}

/* The share of tiles that is useful: on average the last tile of an expert is half empty. */
static double tile_share(const Roofline *r, const MoeSpec *m)
{
    double rows = rows_of_expert(r, m);
    return rows / (rows + TILE_ROWS / 2.0);
}

/* The share of the peak that instructions allow (stack.def, bound); 0: the file has no such share. */
static double bound_share(const Hardware *h, const OpCost *c)
{
    if (c->dtype == DTYPE_F32) return 0;
    if (dtype_bits(c->dtype) == 8) return h->bound_products_fp8;
    switch (c->work) {
    case WORK_GEMM:
    case WORK_HEAD:
    case WORK_GROUPED:
    case WORK_GROUPED_INPUT: return h->bound_products;
    case WORK_GROUPED_WEIGHT: return h->bound_sums;
    case WORK_ATTENTION: return h->bound_attention;
    case WORK_ATTENTION_ORDERED:
    case WORK_ATTENTION_BACKWARD: return h->bound_attention_backward;
    default: return 0;
    }
}

OpWork roofline_work(const StackValues *v, OpWork work)
{
    bool ours = v->at[STACK_list] != 0;
    switch (work) {
    case WORK_GEMM: return ours ? WORK_OWN_GEMM : work;
    case WORK_GROUPED: return ours ? WORK_OWN_GROUPED : work;
    case WORK_ATTENTION: return ours ? WORK_OWN_ATTENTION : work;
    case WORK_HEAD: return ours ? work : WORK_GEMM;
    case WORK_GROUPED_INPUT:
    case WORK_GROUPED_WEIGHT: return ours ? work : WORK_GROUPED;
    case WORK_ATTENTION_PLAIN: return ours ? work : WORK_ATTENTION;
    case WORK_ATTENTION_ORDERED:
    case WORK_ATTENTION_PLAIN_BACKWARD: return ours ? work : WORK_ATTENTION_BACKWARD;
    default: return work;
    }
}

/* FLOP/s that the op reaches. looped: it is one product for each expert, of the expert's rows. */
static Status op_rate(const Roofline *r, const LayerSpec *layer, const OpCost *c, bool looped,
                      double *rate)
{
    OpWork work = looped ? WORK_GEMM : c->work;
    double router = r->stack->at[STACK_router];
    if (work == WORK_GEMM_MIXED && router >= 0) {
        *rate = router * hardware_peak(r->hardware, HARDWARE_F32);
        return OK;
    }
    double rows = looped ? rows_of_expert(r, &layer->as.moe) : c->size;
    const bool back = c->work != WORK_ATTENTION && c->work != WORK_ATTENTION_PLAIN;
    if (c->kernel == NULL || c->dtype != DTYPE_BF16 || r->stack->at[STACK_list] == 0 ||
        !hardware_kernel_rate(r->hardware, c->kernel->name, back, c->size, rate))
        TRY(hardware_rate(r->hardware, roofline_work(r->stack, work), hardware_dtype(c->dtype),
                          fmin(c->size, rows), rate));
    double share = bound_share(r->hardware, c);
    if (r->stack->at[STACK_bound] != 0 && share > 0)
        *rate = share * hardware_peak(r->hardware, hardware_dtype(c->dtype));
    *rate *= share_of(r->stack, c->work);
    if (work_is_grouped(work)) *rate *= tile_share(r, &layer->as.moe);
    return OK;
}

/* The most that a dense weight gradient in 8 bits reaches, and of how many parts of its tokens one is the sum on Hopper,
 * in 8 bits on AMD's GPUs, too. A block of our kernel makes 128 x 256 of a part. One multiprocessor reaches 0.77 of its
 * share of the peak: two products of V2-Lite with 40 and 64 blocks, one part each, took 94 and 102 us on an H200, or 0.73
 * and 0.79 us for 128 tokens. So it was with fp8.recipe=block; others are assumed to be alike. */
static double few_blocks(const Roofline *r, const OpCost *c, double *parts)
{
    const double most = 0.77, all = r->hardware->gpu_multiprocessors,
                 area = c->sum_bytes / sizeof(float);
    const char *vendor = r->hardware->gpu_vendor;
    const bool eight = dtype_bits(c->dtype) == 8, hopper = r->hardware->gpu_capability == 90;
    *parts = 1;
    if (c->work != WORK_GEMM || area == 0 || r->stack->at[STACK_list] == 0) return INFINITY;
    if ((hopper && c->dtype != DTYPE_F32) ||
        (eight && vendor != NULL && strcmp(vendor, "AMD") == 0))
        *parts = (double)weight_parts((int64_t)c->size, (int64_t)(area / c->size),
                                      (int64_t)(c->flops / area / 2));
    const double blocks = fmax(area / (128 * 256), 1) * *parts;
    if (!eight || blocks >= all) return INFINITY;
    return most * hardware_peak(r->hardware, HARDWARE_FP8) * blocks / all;
}

/* Weight gradients of `joined` micro-batches as one product: of one of them, the time is a part of it. An expert has the
 * rows of all, and sums are read and written once. Returns by how many the launches count. */
static double join_sums(Roofline *r, OpCost *c)
{
    const bool sums = c->sum_bytes > 0 || c->work == WORK_GROUPED_WEIGHT;
    if (!sums || r->joined <= 1) return 1;
    c->bytes -= 2 * c->sum_bytes * (1 - 1 / r->joined);
    c->sum_bytes /= r->joined;
    r->tokens *= r->joined;
    return r->joined;
}

/* Work without a rate is bound by memory. A kernel of our own reads the sums that it adds to at its end, when none
 * of its products run, so that this adds up. */
Status roofline_op(const Roofline *of, const LayerSpec *layer, const OpCost *op, RooflineTime *out)
{
    Roofline all = *of, *r = &all;
    OpCost one = *op, *c = &one;
    const double joined = join_sums(r, c);
    RooflineTime t = { .s = roofline_memory_s(r, c->bytes) };
    if (c->work == WORK_COMM) {
        t.lane = ROOFLINE_EXCHANGE;
        TRY(c->comm == COMM_EXCHANGE ? exchange_s(r, &layer->as.moe, c, &t) : context_s(r, c, &t));
        *out = t;
        return OK;
    }
    bool looped = work_is_grouped(c->work) && r->stack->at[STACK_loop_experts] != 0;
    const int64_t experts = looped ? spec_experts_here(&r->spec->ranks, layer->as.moe.experts) : 1;
    const double launches = (double)experts / joined;
    if (work_has_rate(c->work) && c->flops > 0) {
        double rate, parts, most = few_blocks(r, op, &parts);
        TRY(op_rate(r, layer, c, looped, &rate));
        rate = fmin(rate, most);
        double adds = r->stack->at[STACK_list] != 0 ? roofline_memory_s(r, c->sum_bytes) : 0;
        if (parts > 1) adds += roofline_memory_s(r, 2 * parts * op->sum_bytes);
        double s = c->flops / rate + adds;
        if (s > t.s) t.s = s, t.rate = c->flops / s;
    }
    t.s += launches * r->stack->at[STACK_kernel_s];
    *out = t;
    return OK;
}
