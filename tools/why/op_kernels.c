/* op_kernels: turns the arguments of an op into the calls that candidates (kernels/core/kernels.h) judge, for
 * `bench ops --why` and its tests. Ops that run do not come here. */
#include "why/op_kernels.h"

#include "kernels/attention/attention_kernels.h"
#include "kernels/delta/delta_kernels.h"
#include "kernels/dense/linear.h"
#include "kernels/dense/product_kernels.h"
#include "kernels/head/head_private.h"

const OpKernels op_kernels[OP_KERNELS] = {
    { "attention", &attention_fwd_kernels },
    { "8-bit attention, forward", &attention_e4m3_kernels },
    { "the gated delta rule", &delta_rule_fwd_kernels },
    { "dense products", &dense_kernels },
    { "8-bit dense products", &scaled_kernels },
    { "products of experts", &moe_product_kernels },
    { "8-bit products of experts", &moe_scaled_product_kernels },
    { "products of experts, 8-bit results", &moe_narrow_product_kernels },
    { "8-bit weight gradients of experts", &moe_scaled_weight_kernels },
};

/* Any row may run a dense product: no setting names one. */
static Status visit_dense(const char *what, GemmArgs g, KernelVisit *visit, void *self)
{
    DenseCall call = { .g = &g, .r = g.c.at };
    return visit(self, what, &dense_kernels, 0, &call);
}

static Status visit_scaled(const char *what, ScaledArgs s, KernelVisit *visit, void *self)
{
    ScaledCall call = { .s = &s };
    return visit(self, what, &scaled_kernels, 0, &call);
}

/* If f32 meets bf16, a GPU splits the f32 side and multiplies bf16 parts into f32 sums (linear.cu). */
static Status visit_linear(const Linear *l, KernelVisit *visit, void *self)
{
    if (linear_is_scaled(l)) return visit_scaled("", linear_scaled_args(l), visit, self);
    GemmArgs g = linear_product(l).g;
    if (product_mixed(&g)) {
        g.a.type = g.b.type = DTYPE_BF16;
        g.c.type = DTYPE_F32;
    }
    return visit_dense("", g, visit, self);
}

static Status visit_product(const char *what, const HeadProduct *p, KernelVisit *visit, void *self)
{
    return head_is_scaled(p) ? visit_scaled(what, head_scaled(p), visit, self)
                             : visit_dense(what, p->g, visit, self);
}

/* The three products of one chunk; a call without gradients has the first alone. */
static Status visit_head(const HeadLoss *a, KernelVisit *visit, void *self)
{
    char *at = a->x.data;
    int64_t n = head_chunk_rows(a);
    HeadCopies c = head_copies(a, n, &at);
    HeadProducts p = head_products(a, NULL, &c, 0, n);
    TRY(visit_product("logits", &p.logits, visit, self));
    if (a->dx.data != NULL) TRY(visit_product("dx", &p.dx, visit, self));
    return a->dw.data == NULL ? OK : visit_product("dw", &p.dw, visit, self);
}

static Status visit_experts(MoeProduct p, KernelVisit *visit, void *self)
{
    GroupedCall call = moe_product_call(&p);
    return visit(self, "", grouped_kernels(&call, false), 0, &call);
}

static Status visit_sum(MoeSum s, KernelVisit *visit, void *self)
{
    GroupedCall call = moe_sum_call(&s);
    return visit(self, "", grouped_kernels(&call, true), 0, &call);
}

Status op_kernels_visit(OpId id, const void *args, KernelVisit *visit, void *self)
{
    Linear l;
    const KernelTable *table;
    int asked;
    switch (id) {
    case OP_LINEAR_FWD: l = linear_fwd_view(args); return visit_linear(&l, visit, self);
    case OP_LINEAR_BWD_INPUT: l = linear_bwd_input_view(args); return visit_linear(&l, visit, self);
    case OP_LINEAR_BWD_WEIGHT:
        l = linear_bwd_weight_view(args);
        return visit_linear(&l, visit, self);
    case OP_HEAD_LOSS: return visit_head(args, visit, self);
    case OP_ATTENTION_FWD:
        table = attention_fwd_table(args, &asked);
        return visit(self, "", table, asked, args);
    case OP_ATTENTION_BWD:
        return visit(self, "", &attention_bwd_kernels, (int)((const AttentionBwd *)args)->kernel,
                     args);
    case OP_DELTA_RULE_FWD: return visit(self, "", &delta_rule_fwd_kernels, 0, args);
    case OP_DELTA_RULE_BWD: return visit(self, "", &delta_rule_bwd_kernels, 0, args);
    case OP_DELTA_SPAN_FWD: return visit(self, "", &delta_span_fwd_kernels, 0, args);
    case OP_DELTA_SPAN_BWD: return visit(self, "", &delta_span_bwd_kernels, 0, args);
    case OP_MOE_UP_FWD: return visit_experts(moe_up_fwd_view(args), visit, self);
    case OP_MOE_DOWN_FWD: return visit_experts(moe_down_fwd_view(args), visit, self);
    case OP_MOE_UP_BWD_INPUT: return visit_experts(moe_up_bwd_input_view(args), visit, self);
    case OP_MOE_DOWN_BWD_INPUT: return visit_experts(moe_down_bwd_input_view(args), visit, self);
    case OP_MOE_UP_BWD_WEIGHT: return visit_sum(moe_up_bwd_weight_view(args), visit, self);
    case OP_MOE_DOWN_BWD_WEIGHT: return visit_sum(moe_down_bwd_weight_view(args), visit, self);
    default: return OK;
    }
}
