/* planner: opens a planner for a question, makes a layout from a configuration, and says which are legal. Prices are price.c's. */
#include "planner/price/price_private.h"

#include "engine/backend/backend.h"
#include "engine/config/ramp.h"
#include "engine/model/recipe_text.h"
#include "kernels/attention/attention_kernels.h"
#include "kernels/core/cpu_set.h"
#include "kernels/core/kernels.h"
#include "kernels/exchange/exchange.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const plan_kind_names[PLAN_KINDS] = { [PLAN_WEIGHTS] = "weights",
                                                  [PLAN_GRADS] = "grads",
                                                  [PLAN_MAIN] = "main",
                                                  [PLAN_OPTIMIZER] = "optimizer",
                                                  [PLAN_ACTIVATIONS] = "activations",
                                                  [PLAN_BUFFERS] = "buffers",
                                                  [PLAN_WORKSPACE] = "workspace",
                                                  [PLAN_RESERVE] = "reserve" };

#define PART_WORDS(bubble)                                                                         \
    {                                                                                              \
        [PLAN_COMPUTE] = "compute", [PLAN_SLOWED] = "slowed", [PLAN_SLOWEST] = "slowest",          \
        [PLAN_EXCHANGE] = "exchange", [PLAN_CONTEXT] = "context", [PLAN_TENSOR] = "tensor",        \
        [PLAN_SEND] = "send", [PLAN_BUBBLE] = (bubble), [PLAN_GRADIENTS] = "gradients",            \
        [PLAN_UPDATE] = "update", [PLAN_HOST] = "host", [PLAN_CHECKPOINT] = "checkpoint",          \
    }
const char *const plan_part_names[PLAN_PARTS] = PART_WORDS("bubble");
const char *const plan_part_words[PLAN_PARTS] = PART_WORDS("idle");

static const size_t KEPT_BYTES = (size_t)64 << 30; /* reserved; only what is written counts */
static const size_t ESTIMATE_BYTES = (size_t)4 << 30;
static const size_t STEP_BYTES = (size_t)64 << 30;

/* FLOPs of a step of the model: each layer whole, on one rank, without recompute, and without what documents hide. */
static Status count_model_flops(Planner *p)
{
    PlanLayout one = { .micro_batch = 1, .ep = 1, .cp = 1, .tp = 1 };
    const PriceEntry *e = NULL;
    TRY(price_entry(p, &one, &e));
    p->limits = &e->stack;
    double flops = 0;
    for (int i = 0; i < p->spec.n_layers; i++) {
        const LayerPrice *l = &e->plain[p->class_of[i]];
        for (int pass = 0; pass < LAYER_PASSES; pass++) flops += l->count.pass[pass].flops;
        flops -= l->hidden_flops, p->skips |= l->skips;
    }
    p->flops = flops * (double)p->config.train_batch;
    return OK;
}

/* A GPU without a rate for 8-bit products has no such products. Scales of 1 x 32 are in the hardware that
 * has products of 6 or 4 bits. Shapes that a run on a GPU refuses are refused here. */
static Status check_recipe(Planner *p)
{
    const RecipeSpec *r = &p->spec.recipe;
    const Hardware *h = p->q.hardware;
    const RecipeGpu gpu = { h->name, kernel_device_full.capability, VENDOR_NVIDIA, NULL };
    const Dtype type = r->kind != RECIPE_NONE ? r->forward : DTYPE_E4M3;
    const int bits = dtype_bits(type);
    ParamTable whole;
    double rate;
    if (r->kind == RECIPE_NONE && !r->attention) return OK;
    if (r->kind == RECIPE_MX && h->peak_fp6 == 0 && h->peak_fp4 == 0)
        return FAIL(ERR_ARG,
                    "fp8.recipe=mx: %s has no products with scales of 1 x 32, as its hardware file "
                    "has neither peak.fp6 nor peak.fp4: set fp8.recipe=block",
                    h->name);
    if (hardware_rate(h, WORK_GEMM, hardware_dtype(type), 1, &rate) == OK) {
        TRY(params_build(&p->spec, 0, NULL, &p->kept, &whole));
        return recipe_check_shapes(&p->spec, &whole, &gpu);
    }
    status_clear();
    if (bits < 8)
        return FAIL(ERR_ARG,
                    "fp8.format=%s: %s has no %d-bit products, as its hardware file has no "
                    "peak.fp%d: set fp8.format=e4m3",
                    dtype_name(type), h->name, bits, bits);
    return FAIL(ERR_ARG,
                "%s: %s has no 8-bit products, as its hardware file has neither peak.fp8 nor "
                "gemm.fp8: leave it out",
                r->attention ? "fp8.attention" : "fp8.recipe", h->name);
}

static Status check_offload(const PlanRequest *q)
{
    if (!q->config->optimizer_offload || q->hardware->host_link_gb_s > 0) return OK;
    return FAIL(
        ERR_ARG,
        "optimizer.offload=true: the file of %s has no host.link_gb_s, GB/s between a GPU and "
        "its host: add it, or leave optimizer.offload out",
        q->hardware->name);
}

bool plan_attends_slower(const PlanRequest *q)
{
    const int capability = (int)q->hardware->gpu_capability;
    return stack_is_ours(q->stack) && capability > 0 &&
           attention_kernel_of(capability) != ATTENTION_HOPPER;
}

static Status choose_attention(const PlanRequest *q, Config *c)
{
    const int capability = (int)q->hardware->gpu_capability;
    const bool fast = c->attention_kernel == ATTENTION_HOPPER || c->fp8_attention;
    if (!plan_attends_slower(q)) return OK;
    if (c->attention_kernel == ATTENTION_AUTO)
        c->attention_kernel = attention_kernel_of(capability);
    if (!fast) return OK;
    return FAIL(ERR_ARG, "%s: it is made for compute capability 9.0, %s has %d.%d: leave it out",
                c->fp8_attention ? "fp8.attention=true" : "attention.kernel=hopper",
                q->hardware->name, capability / 10, capability % 10);
}

/* The planner's own configuration has one rank; layouts bring their mesh. */
static Status planner_setup(Planner *p, const PlanRequest *q)
{
    p->q = *q;
    p->config = *q->config;
    Config *c = &p->config;
    config_alone(c);
    c->mesh_vpp = 1;
    c->mesh_layout = "";
    c->run_device = DEVICE_CPU; /* its workspaces are small; those of a GPU are in the stack */
    c->recompute_layers.n = 0;
    /* Other stacks have no pools: they allocate the rows that come. */
    if (!stack_is_ours(q->stack) && c->moe_buffers == BUFFERS_POOLED)
        c->moe_buffers = BUFFERS_WORST, c->plan_counted_rows = true;
    p->moe_layers = config_moe_layers(c);
    TRY(choose_attention(q, c));
    if (q->gpus < 1)
        return FAIL(ERR_ARG, "plan: %lld GPUs, at least 1 is needed", (long long)q->gpus);
    TRY(arena_reserve(&p->scratch, "plan scratch", KEPT_BYTES));
    TRY(arena_reserve(&p->steps, "simulations", STEP_BYTES));
    TRY(arena_reserve(&p->parts, "partitions", KEPT_BYTES));
    TRY(ARENA_ZEROED(&p->kept, PRICE_ENTRIES, &p->entry));
    TRY(ARENA_ZEROED(&p->kept, PRICE_PARTITIONS, &p->partition));
    TRY(estimator_init(&p->estimator, ESTIMATE_BYTES));
    /* the same digits on each processor that plans, and workspaces as an engine on a GPU counts them */
    TRY(exec_init(&p->exec, &p->kept, &p->scratch, 1, op_set_base.isa));
    if (q->hardware->gpu_vendor != NULL) p->exec.device = &kernel_device_full;
    TRY(price_classes(p));
    TRY(check_recipe(p));
    TRY(check_offload(q));
    return count_model_flops(p);
}

/* The planner lies in its own arena, so planner_free copies the arena before it frees it. */
Status planner_make(const PlanRequest *q, Planner **out)
{
    Arena kept = { 0 };
    Planner *p = NULL;
    TRY(arena_reserve(&kept, "plan", KEPT_BYTES));
    TRY(ARENA_ZEROED(&kept, 1, &p));
    p->kept = kept;
    Status s = planner_setup(p, q);
    *out = s == OK ? p : NULL;
    if (s != OK) planner_free(p);
    return s;
}

bool planner_skips_documents(const Planner *p) { return p->skips; }

void planner_free(Planner *p)
{
    if (p == NULL) return;
    Arena kept = p->kept;
    exec_free(&p->exec);
    estimator_free(&p->estimator);
    arena_free(&p->scratch);
    arena_free(&p->steps);
    arena_free(&p->parts);
    arena_free(&kept);
}

/* Joins the recompute modules of all layers: a layout has one set, for the layers that it names. */
static Status set_recompute(const Config *c, PlanLayout *l)
{
    ModelSpec spec;
    Arena a = { 0 };
    TRY(arena_reserve(&a, "spec", (size_t)1 << 30));
    Config one = *c;
    one.mesh_tp = 1; /* a stack may pad what ranks of tp do not divide */
    Status s = spec_build(&one, &a, &spec);
    for (int i = 0; s == OK && i < spec.n_layers; i++)
        l->recompute |= spec.layers[i].no_backward ? 0 : spec.layers[i].recompute;
    arena_free(&a);
    if (c->recompute_layers.n == 0) return s;
    l->recompute_blocks = -1;
    int64_t blocks = c->model_layers + c->mtp_layers;
    for (int64_t block = 0; block < blocks && l->again == NULL; block++) {
        if (!config_has_int(&c->recompute_layers, block)) l->again = &c->recompute_layers;
    }
    return s;
}

Status plan_layout_of(const Config *c, int64_t gpus, Arena *a, PlanLayout *out)
{
    PlanLayout l = { .pp = (int)c->mesh_pp,
                     .vpp = (int)c->mesh_vpp,
                     .ep = (int)c->mesh_ep,
                     .etp = (int)c->mesh_etp,
                     .cp = (int)c->mesh_cp,
                     .tp = (int)c->mesh_tp,
                     .dp = gpus / (c->mesh_pp * c->mesh_cp * c->mesh_tp),
                     .zero = (int)c->mesh_zero,
                     .shard = c->mesh_shard,
                     .micro_batch = c->train_micro_batch };
    TRY(schedule_find(c->mesh_schedule, &l.schedule));
    if (l.dp < 1)
        return FAIL(ERR_ARG,
                    "plan: mesh.pp %d x mesh.cp %d x mesh.tp %d are more than the %lld GPUs", l.pp,
                    l.cp, l.tp, (long long)gpus);
    TRY(set_recompute(c, &l));
    if (c->mesh_layout[0] != '\0') {
        Layout *given = NULL;
        TRY(ARENA_NEW(a, 1, &given));
        TRY(layout_parse(c->mesh_layout, price_stage_count(&l), (int)c->model_layers, a, given));
        TRY(layout_check_predictions(given, (int)c->mtp_layers));
        l.partition = given;
    }
    *out = l;
    return OK;
}

/* The blocks of a stage: its layers, and the modules of multi-token prediction behind the last. */
static int stage_blocks(const Config *c, const LayoutStage *s)
{
    return s->layers + (s->loss ? (int)c->mtp_layers : 0);
}

void plan_recompute_by_chunk(const Config *c, PlanLayout *l)
{
    const Layout *of = l->partition;
    int most = 0;
    if (l->again == NULL || of == NULL) return;
    for (int i = 0; i < of->stages; i++) {
        const LayoutStage *s = &of->stage[i];
        int n = 0;
        while (n < stage_blocks(c, s) && config_has_int(l->again, s->first + n)) n++;
        if (n > most) most = n;
    }
    for (int i = 0; i < of->stages; i++) {
        const LayoutStage *s = &of->stage[i];
        for (int k = 0; k < stage_blocks(c, s); k++)
            if (config_has_int(l->again, s->first + k) != (k < most)) return;
    }
    l->again = NULL;
    l->recompute_blocks = most;
}

/* Numbers of the blocks that a layout recomputes. */
static Status recomputed_blocks(const Config *c, const PlanLayout *l, const Layout *of,
                                ConfigInts *out)
{
    ConfigInts list = { 0 };
    if (l->again != NULL) list = *l->again;
    for (int i = 0; i < of->stages && l->again == NULL && l->recompute != 0; i++) {
        const LayoutStage *s = &of->stage[i];
        int all = stage_blocks(c, s), n = l->recompute_blocks;
        for (int k = 0; k < all && (k < n || n < 0); k++) {
            if (list.n == CONFIG_LIST_MAX)
                return FAIL(ERR_UNSUPPORTED,
                            "plan: --write: recompute.layers holds %d layers, this layout "
                            "recomputes more",
                            CONFIG_LIST_MAX);
            list.at[list.n++] = s->first + k;
        }
    }
    *out = list;
    return OK;
}

Status plan_config_of(const Config *c, const PlanLayout *l, const PlanPrice *price,
                      const char *partition, Arena *a, Config *out)
{
    Layout of;
    Config next = *c;
    TRY(layout_parse(partition, 0, (int)c->model_layers, a, &of));
    next.mesh_pp = l->pp;
    next.mesh_vpp = l->vpp;
    next.mesh_ep = l->ep;
    next.mesh_cp = l->cp;
    next.mesh_tp = l->tp;
    next.mesh_zero = l->zero;
    next.mesh_shard = l->shard;
    next.mesh_schedule = l->schedule->name;
    next.mesh_layout = partition;
    next.train_micro_batch = l->micro_batch;
    next.run_compute = price->compute;
    next.fp8_recipe = price->recipe;
    next.optimizer_offload = price->offload;
    if (price->buffers != PLAN_COUNTED_ROWS) next.moe_buffers = price->buffers;
    TRY(recomputed_blocks(c, l, &of, &next.recompute_layers));
    if (l->recompute != 0) spec_recompute_names(l->recompute, &next.recompute_pieces);
    *out = next;
    return OK;
}

Status plan_spread_evenly(const Config *c, Arena *a, PlanLayout *l)
{
    Layout *even = NULL;
    if (l->partition != NULL) return OK;
    TRY(ARENA_NEW(a, 1, &even));
    TRY(layout_even(price_stage_count(l), (int)c->model_layers, a, even));
    l->partition = even;
    return OK;
}

/* ---- which layouts are legal ---- */

/* What a stack has of a family of schedules: none (0), all (1), or one of two (2, 3). */
static bool has_schedule(double has, const ScheduleDesc *d, const char *second, const char *third)
{
    if (has == 2) return strcmp(d->name, second) == 0;
    if (has == 3) return third != NULL && strcmp(d->name, third) == 0;
    return has != 0;
}

static Status check_recompute(unsigned can, unsigned asked)
{
    ConfigTexts wrong, has;
    char list[64];
    spec_recompute_names(asked & ~can, &wrong);
    spec_recompute_names(can, &has);
    if (wrong.n == 0) return OK;
    for (size_t i = 0, at = 0; i < (size_t)has.n; i++)
        at = text_add(list, sizeof list, at, "%s%s", i > 0 ? ", " : "", has.at[i]);
    return FAIL(ERR_ARG,
                "recompute.pieces %s: this stack computes no such part of a layer again, but %s",
                wrong.at[0], list);
}

/* Refuses what the stack does not have, so a plan never promises it. */
static Status check_stack_can(const double *can, const PlanLayout *l)
{
    if (l->tp > can[STACK_tp_most])
        return FAIL(
            ERR_ARG,
            "mesh.tp %d: this stack shares matrices over %g ranks at most; set mesh.tp=%g, or "
            "plan another stack, as --stack megatron",
            l->tp, can[STACK_tp_most], can[STACK_tp_most]);
    if (l->zero > can[STACK_zero_most])
        return FAIL(ERR_ARG, "mesh.zero %d: this stack shares out up to stage %g", l->zero,
                    can[STACK_zero_most]);
    TRY(check_recompute((unsigned)can[STACK_recompute], l->recompute));
    const ScheduleDesc *d = l->schedule;
    if (d->overlaps && !has_schedule(can[STACK_overlap], d, "1f1b-overlap", "dualpipe-v"))
        return FAIL(ERR_ARG, "mesh.schedule %s: this stack has none that overlaps micro-batches so",
                    d->name);
    if (d->least.passes == CHUNK_SPLIT && !has_schedule(can[STACK_split], d, "zbv", NULL))
        return FAIL(ERR_ARG, "mesh.schedule %s: this stack has none that splits backward so",
                    d->name);
    return OK;
}

/* An exchange that stores into peer memory works only inside a scale-up domain. */
bool plan_reaches(const PlanRequest *q, int ranks)
{
    int64_t kind = q->config->moe_exchange;
    bool stores = kind != EXCHANGE_AUTO && exchange_kinds[kind]->header_bytes > 0;
    return !stores || q->stack->has[STACK_dispatch] ||
           roofline_group(q->hardware, ranks, 1).local == ranks;
}

/* Other stacks divide heads of keys and shared experts, too, and pad the vocabulary. */
static Status check_other_tensor(const Planner *p, int tp, int cp)
{
    const Config *c = &p->config;
    const struct {
        const char *name;
        int64_t n;
    } parts[] = {
        { "attention.heads", c->attention_heads },
        { "attention.kv_heads", c->attention_kind == ATTENTION_MLA ? 0 : c->attention_kv_heads },
        { "delta.key_heads", c->delta_full_every > 0 ? c->delta_key_heads : 0 },
        { "model.ffn", p->moe_layers < c->model_layers ? c->model_ffn : 0 },
        { "moe.shared x moe.ffn", p->moe_layers > 0 ? c->moe_shared * c->moe_ffn : 0 },
        { "the tokens of a sequence on a context rank,", c->data_sequence / cp },
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        TRY(config_divides("mesh.tp", tp, parts[i].name, parts[i].n));
    return OK;
}

/* Matrices of a rank of tp may be too narrow for 8-bit products. Experts are not split. */
static Status check_widths(const Planner *p, const Config *asked, Arena *a)
{
    ModelSpec spec;
    const RecipeGpu gpu = { p->q.hardware->name, kernel_device_full.capability, VENDOR_NVIDIA,
                            NULL };
    TRY(spec_like(asked, &p->spec, a, &spec));
    for (int i = 0; i < p->classes; i++) {
        ModelSpec one = spec;
        LayerSpec alone = spec.layers[p->first_of[i]];
        ParamTable table;
        if (alone.load >= 0) continue;
        one.layers = &alone, one.n_layers = 1;
        TRY(params_build(&one, alone.rank, NULL, a, &table));
        TRY(recipe_check_shapes(&one, &table, &gpu));
    }
    return OK;
}

static Status check_parts(const Planner *p, const Config *asked)
{
    Arena a = { 0 };
    if (p->spec.recipe.kind == RECIPE_NONE && !p->spec.recipe.attention) return OK;
    TRY(arena_reserve(&a, "parts", (size_t)1 << 30));
    Status s = check_widths(p, asked, &a);
    arena_free(&a);
    return s;
}

/* Our own stack plans what the engine runs. */
static Status check_tensor(const Planner *p, const PlanLayout *l)
{
    const Config *c = &p->config;
    char words[CONFIG_PLANNED_BYTES];
    if (l->tp == 1) return OK;
    if (!stack_is_ours(p->q.stack)) return check_other_tensor(p, l->tp, l->cp);
    Config asked = *c;
    asked.mesh_tp = l->tp, asked.mesh_cp = l->cp;
    TRY(config_check_tp(&asked, l->tp, l->cp));
    TRY(config_divides("mesh.tp", l->tp, "model.vocab", c->model_vocab));
    if (*config_planned_only(&asked, words) == '\0') return check_parts(p, &asked);
    return FAIL(ERR_ARG,
                "%s: the engine of this program does not run this yet: set mesh.tp=1, or plan "
                "another stack, as --stack megatron",
                words);
}

/* The ranks of the experts. The engine shares single experts (mesh.etp), other stacks are not priced so. */
static Status check_experts(const Planner *p, const PlanLayout *l)
{
    const Config *c = &p->config;
    if (p->spec.experts > 0) TRY(config_divides("mesh.ep", l->ep, "moe.experts", c->moe_experts));
    TRY(config_divides(l->etp > 1 ? "mesh.ep x mesh.etp" : "mesh.ep", plan_expert_ranks(l),
                       "the ranks of a pipeline stage,", plan_stage_gpus(l)));
    if (l->etp <= 1 || stack_is_ours(p->q.stack)) return OK;
    return FAIL(ERR_ARG,
                "mesh.etp %d: this stack is planned with whole experts only: set mesh.etp=1, or "
                "plan --stack switchyard",
                l->etp);
}

static Status check_batch(const Config *c, const PlanLayout *l)
{
    const long long unit = l->dp * l->micro_batch, below = c->train_batch / unit * unit;
    char also[48] = "";
    if (below == c->train_batch) return OK;
    if (below > 0) (void)snprintf(also, sizeof also, "%lld below and ", below);
    return FAIL(ERR_ARG,
                "train.batch %lld is no multiple of %lld, data-parallel ranks %lld x "
                "train.micro_batch %lld; nearest: %s%lld above",
                (long long)c->train_batch, unit, (long long)l->dp, (long long)l->micro_batch, also,
                below + unit);
}

/* In the order in which a user would fix them: GPUs, experts, batch, the stack, the schedule. */
Status planner_legal(const Planner *p, const PlanLayout *l)
{
    const Config *c = &p->config;
    TRY(config_divides("mesh.pp", l->pp, "the number of GPUs,", p->q.gpus));
    TRY(config_divides("mesh.pp x mesh.cp x mesh.tp", (int64_t)l->pp * l->cp * l->tp,
                       "the number of GPUs,", p->q.gpus));
    TRY(config_check_cp(c, l->cp));
    TRY(check_tensor(p, l));
    TRY(check_experts(p, l));
    if (!plan_reaches(&p->q, plan_expert_ranks(l)))
        return FAIL(ERR_ARG,
                    "mesh.ep x mesh.etp, %d ranks: moe.exchange=%s stores inside a scale-up "
                    "domain, which has %d GPUs; "
                    "moe.exchange=auto takes a kind that leaves it",
                    plan_expert_ranks(l), exchange_kinds[c->moe_exchange]->name,
                    (int)p->q.hardware->scale_up_gpus);
    TRY(check_batch(c, l));
    TRY(ramp_divides(c, l->dp, l->micro_batch));
    TRY(recipe_check_tokens(&p->spec, l->micro_batch * c->data_sequence / l->cp / l->tp));
    if (l->shard > 0)
        TRY(config_divides("mesh.shard", l->shard, "the data-parallel ranks,", l->dp));
    if (p->limits->at[STACK_bound] != 0 && p->q.hardware->bound_products == 0)
        return FAIL(ERR_ARG,
                    "--stack switchyard,bound=1: the file of %s has no section bound; leave "
                    "bound=1 out",
                    p->q.hardware->name);
    TRY(check_stack_can(p->limits->at, l));
    int stages = price_stage_count(l), micros = (int)fmin((double)price_micros(p, l), INT_MAX);
    if (l->partition == NULL && stages > p->spec.blocks)
        return FAIL(ERR_ARG,
                    "%d stages (mesh.pp %d, mesh.vpp %d) are more than model.layers %lld: a stage "
                    "has at least one",
                    stages, l->pp, l->vpp, (long long)p->spec.blocks);
    return schedule_legal(l->schedule,
                          &(ScheduleShape){ l->pp, l->vpp, micros, 1, 1, 1, .blocks = 1 });
}
