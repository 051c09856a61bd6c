/* optimizer: the table's rows. The arithmetic of updates is in kernels/optimizer/optimizer.h and kernels/optimizer/muon.h; this
 * file fills in its arguments. */
#include "engine/model/optimizer.h"

#include "kernels/optimizer/muon.h"
#include "kernels/optimizer/optimizer.h"

#include <float.h>
#include <math.h>
#include <string.h>

static float decay_of(const Config *c, const UpdateRange *r)
{
    return r->decay ? (float)c->optimizer_weight_decay : 0;
}

/* AdamW */

/* The learning rate, then 1 / (1 - beta^t) for each moment: Adam's bias correction (arXiv:1412.6980). They are made in
 * double on the host, because beta2^t in f32 loses digits when t is large. */
static void adamw_scalars(const Config *c, double lr, double updates, float out[OPTIMIZER_SCALARS])
{
    out[0] = (float)lr;
    out[1] = (float)(1 / (1 - pow(c->optimizer_beta1, updates)));
    out[2] = (float)(1 / (1 - pow(c->optimizer_beta2, updates)));
}

static Adamw adamw_args(const UpdateRange *r)
{
    return (Adamw){ .w = r->w,
                    .g = r->g,
                    .m = r->state[0],
                    .v = r->state[1],
                    .w_low = r->low,
                    .copies = r->scaled };
}

static OpCost adamw_cost_of(const OptimizerSpec *o, const UpdateRange *r)
{
    (void)o;
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
    a.decay = decay_of(c, r);
    return adamw(ex, a);
}

const OptimizerDesc optimizer_adamw = {
    .name = "adamw",
    .n_states = 2,
    .state = { { "moment1", -FLT_MAX }, { "moment2", 0 } }, /* AdamW takes the second one's root */
    .writes_copies = true,
    .scalars = adamw_scalars,
    .cost = adamw_cost_of,
    .run = adamw_run,
};

/* Muon */

static void muon_scalars(const Config *c, double lr, double updates, float out[OPTIMIZER_SCALARS])
{
    (void)c, (void)updates;
    out[0] = (float)lr;
}

static Muon muon_args(const OptimizerSpec *o, const UpdateRange *r)
{
    return (Muon){ .w = r->w,
                   .g = r->g,
                   .m = r->state[0],
                   .w_low = r->low,
                   .products = o->products,
                   .steps = o->steps,
                   .ranks = r->ranks,
                   .copies = r->copies,
                   .cols_split = r->cols_split,
                   .of_experts = r->of_experts };
}

static OpCost muon_cost_of(const OptimizerSpec *o, const UpdateRange *r)
{
    const Muon a = muon_args(o, r);
    return op_desc(OP_MUON)->cost(&a);
}

static size_t muon_scratch(const Exec *ex, const OptimizerSpec *o, const UpdateRange *r)
{
    const Muon a = muon_args(o, r);
    const MuonShape s = muon_owned(&a);
    const OpDesc *op = op_desc(OP_MUON);
    if (ex == NULL) return (size_t)muon_group(&s, o->products) * muon_bytes(&s, o->products);
    return (ex->gpu != NULL ? op->gpu_workspace : op->workspace)(ex, &a);
}

/* An orthogonal matrix has entries of mean square 1 / longer side. Megatron-LM and torch.optim.Muon
 * have these factors under these names. 0.2 sqrt(longer) gives updates the size of AdamW's (Liu et
 * al., arXiv:2502.16982), so that one learning rate serves both rules. */
static double muon_scale(const Config *c, const Muon *a)
{
    const MuonShape s = muon_owned(a);
    const double rows = (double)s.rows, cols = (double)s.cols, longer = fmax(rows, cols);
    const double of[] = { [MUON_MATCH_RMS_ADAMW] = 0.2 * sqrt(longer),
                          [MUON_SPECTRAL] = sqrt(longer),
                          [MUON_SHAPE_SCALING] = sqrt(fmax(1, rows / cols)),
                          [MUON_UNIT_RMS_NORM] = sqrt(rows / cols) };
    return of[c->optimizer_muon_scale];
}

static Status muon_run(Exec *ex, const Config *c, const UpdateRange *r, Tensor clip, Tensor scalars)
{
    const OptimizerSpec o = optimizer_of(c);
    Muon a = muon_args(&o, r);
    a.clip = clip;
    a.hyper = tensor_rows(&scalars, 0, 1);
    a.nesterov = c->optimizer_nesterov;
    a.momentum = (float)c->optimizer_momentum;
    a.decay = decay_of(c, r);
    a.scale = (float)muon_scale(c, &a);
    return muon(ex, a);
}

const OptimizerDesc optimizer_muon = {
    .name = "muon",
    .n_states = 1,
    .state = { { "momentum", -FLT_MAX } },
    .whole_matrices = true,
    .others = &optimizer_adamw,
    .scalars = muon_scalars,
    .cost = muon_cost_of,
    .scratch = muon_scratch,
    .run = muon_run,
};

/* The table */

static const OptimizerDesc *const rules[] = { &optimizer_adamw, &optimizer_muon };

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
    return (OptimizerSpec){ .rule = { rule, rule->others }, .state = state, .steps = 5 };
}

OptimizerSpec optimizer_of(const Config *c)
{
    bool low = c->optimizer_moments == MOMENTS_BF16;
    const OptimizerDesc *rule =
        c->optimizer_kind == OPTIMIZER_MUON ? &optimizer_muon : &optimizer_adamw;
    OptimizerSpec o = optimizer_with(rule, low ? DTYPE_BF16 : DTYPE_F32);
    o.products = c->run_compute == COMPUTE_BF16 ? DTYPE_BF16 : DTYPE_F32;
    o.steps = (int)c->optimizer_muon_steps;
#define STEP_RULE(NAME, name, wanted) o.rules |= (wanted) ? 1U << RULE_##NAME : 0;
#include "engine/model/rules.def"
#undef STEP_RULE
    o.qk_clip = (float)c->optimizer_qk_clip;
    return o;
}

/* Plans */

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
    return o->rule[0]->cost(o, &r).bytes;
}
