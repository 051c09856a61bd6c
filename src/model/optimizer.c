/* optimizer: the table's rows. The arithmetic of an update is in op/optimizer.h; this file fills in
 * its arguments. */
#include "model/optimizer.h"

#include "op/optimizer.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* AdamW */

/* The learning rate, then 1 / (1 - beta^t) for each moment: Adam's bias correction
 * (arXiv:1412.6980). They are made in double on the host, because beta2^t in f32 loses digits when
 * t is large. */
static void adamw_scalars(const Config *c, double lr, double updates, float out[OPTIMIZER_SCALARS])
{
    out[0] = (float)lr;
    out[1] = (float)(1 / (1 - pow(c->optimizer_beta1, updates)));
    out[2] = (float)(1 / (1 - pow(c->optimizer_beta2, updates)));
}

static Adamw adamw_args(const UpdateRange *r)
{
    return (Adamw){ .w = r->w, .g = r->g, .m = r->state[0], .v = r->state[1], .w_low = r->low };
}

static OpCost adamw_cost_of(const UpdateRange *r)
{
    const Adamw a = adamw_args(r);
    return op_desc(OP_ADAMW)->cost(&a);
}

static Status adamw_run(Exec *ex, const Config *c, const UpdateRange *r, Tensor clip,
                        Tensor scalars)
{
    Adamw a = adamw_args(r);
    a.clip = clip;
    a.hyper = scalars;
    a.beta1 = (float)c->optimizer_beta1;
    a.beta2 = (float)c->optimizer_beta2;
    a.eps = (float)c->optimizer_eps;
    a.decay = r->decay ? (float)c->optimizer_weight_decay : 0;
    return adamw(ex, a);
}

const OptimizerDesc optimizer_adamw = {
    .name = "adamw",
    .n_states = 2,
    .state = { { "moment1", -FLT_MAX }, { "moment2", 0 } }, /* AdamW takes the second one's root */
    .scalars = adamw_scalars,
    .cost = adamw_cost_of,
    .run = adamw_run,
};

/* Muon */

/* Momentum, then X <- a X + (b A + c A^2) X with A = X X^T, MUON_STEPS times (Jordan et al., "Muon", 2024).
 * With r <= k the sides of a matrix a step multiplies 2 r^2 k (A), 2 r^3 (A^2) and 2 r^2 k. Products are
 * bf16 (Megatron-LM, emerging_optimizers.py: 5 steps). */
enum { MUON_STEPS = 5 };

static OpCost muon_cost_of(const UpdateRange *r)
{
    double n = (double)tensor_elems(&r->w), low = r->low.data != NULL ? 2 * n : 0;
    OpCost c = { .bytes = (3 * 4 + 2 * (double)dtype_bytes(r->state[0].dtype)) * n + low,
                 .work = WORK_GEMM,
                 .dtype = DTYPE_BF16 };
    if (r->w.rank < 2) return c;
    double a = (double)r->w.dim[0], b = (double)r->w.dim[1];
    c.size = fmin(a, b);
    c.flops = MUON_STEPS * (4 * c.size * c.size * fmax(a, b) + 2 * c.size * c.size * c.size);
    return c;
}

static Status muon_run(Exec *ex, const Config *c, const UpdateRange *r, Tensor clip, Tensor scalars)
{
    (void)ex, (void)c, (void)r, (void)clip, (void)scalars;
    return FAIL(ERR_UNSUPPORTED, "optimizer.kind=muon: the engine has no such update yet, only "
                                 "`switchyard plan` prices it; leave it out");
}

const OptimizerDesc optimizer_muon = {
    .name = "muon",
    .n_states = 1,
    .state = { { "moment1", -FLT_MAX } },
    .whole_matrices = true,
    .others = &optimizer_adamw,
    .scalars = adamw_scalars,
    .cost = muon_cost_of,
    .run = muon_run,
};

/* The table */

static const OptimizerDesc *const rules[] = { &optimizer_adamw };

const OptimizerDesc *optimizer_find_state(const char *name, int *state)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        for (int k = 0; k < rules[i]->n_states; k++) {
            if (strcmp(rules[i]->state[k].name, name) != 0) continue;
            *state = k;
            return rules[i];
        }
    }
    return NULL;
}

OptimizerSpec optimizer_with(const OptimizerDesc *rule, Dtype state)
{
    return (OptimizerSpec){ .rule = { rule, rule->others }, .state = state };
}

OptimizerSpec optimizer_of(const Config *c)
{
    bool low = c->optimizer_moments == MOMENTS_BF16;
    const OptimizerDesc *rule =
        c->optimizer_kind == OPTIMIZER_MUON ? &optimizer_muon : &optimizer_adamw;
    OptimizerSpec o = optimizer_with(rule, low ? DTYPE_BF16 : DTYPE_F32);
    o.averages = c->optimizer_ema > 0;
    return o;
}

/* Plans */

double optimizer_state_bytes(const OptimizerSpec *o)
{
    return o->rule[0]->n_states * (double)dtype_bytes(o->state);
}

/* Asks the op's own cost for an update of one element. */
double optimizer_update_bytes(const OptimizerSpec *o, Dtype low)
{
    float at = 0; /* costs look at whether there is data, and not at the data */
    const Tensor one = { .data = &at, .dtype = DTYPE_F32, .rank = 1, .dim = { 1 } };
    UpdateRange r = { .rule = o->rule[0], .w = one, .g = one };
    if (low != DTYPE_F32) r.low = one;
    for (int i = 0; i < OPTIMIZER_STATES; i++) {
        r.state[i] = one;
        r.state[i].dtype = o->state;
    }
    return o->rule[0]->cost(&r).bytes;
}
