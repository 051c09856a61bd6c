/* spec: makes the list of layers from a configuration, whose settings have been checked (config_check). params_build.c
 * sets which parameters are frozen. Nothing is allocated but the list itself. */
#include "engine/model/spec.h"

#include "kernels/exchange/exchange.h"

#include <math.h>

int64_t attention_qk_dim(const AttentionSpec *a)
{
    return a->kind == ATTENTION_MLA ? a->nope + a->rope : a->head;
}

int64_t attention_v_dim(const AttentionSpec *a)
{
    return a->kind == ATTENTION_MLA ? a->v : a->head;
}

int64_t spec_attention_width(const ModelSpec *s)
{
    int64_t sum = 0;
    for (int i = 0; i < s->n_layers; i++) {
        const AttentionSpec *a = &s->layers[i].as.attention;
        if (s->layers[i].kind != LAYER_ATTENTION) continue;
        sum += a->heads * (attention_qk_dim(a) + attention_v_dim(a));
    }
    return sum;
}

static const struct {
    const char *name;
    unsigned piece;
} pieces[] = {
    { "norm", RECOMPUTE_NORM },
    { "attn_up", RECOMPUTE_ATTN_UP },
    { "act", RECOMPUTE_ACT },
    { "shared", RECOMPUTE_SHARED },
    { "layer", RECOMPUTE_LAYER },
    { "exchange", RECOMPUTE_EXCHANGE },
    { "mlp", RECOMPUTE_MLP },
    { "moe", RECOMPUTE_MOE },
    { "core_attn", RECOMPUTE_CORE_ATTN },
};

/* recompute.layers selects blocks, recompute.pieces what those blocks recompute. */
static unsigned recompute_of(const Config *c, int block)
{
    unsigned set = 0;
    if (!config_has_int(&c->recompute_layers, block)) return 0;
    for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
        if (config_has_text(&c->recompute_pieces, pieces[p].name)) set |= pieces[p].piece;
    }
    return set;
}

void spec_recompute_names(unsigned set, ConfigTexts *out)
{
    out->n = 0;
    for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
        if ((set & pieces[p].piece) != 0) out->at[out->n++] = pieces[p].name;
    }
}

/* Is a block the last of a period of `every` blocks? 0: there are no periods. */
static bool ends_period(int64_t every, int block) { return every > 0 && (block + 1) % every == 0; }

/* Ranks of tp with different heads of keys. */
static int64_t key_parts_of(const Config *c)
{
    const bool fewer = c->attention_kind == ATTENTION_GQA && c->attention_kv_heads < c->mesh_tp;
    return fewer ? c->attention_kv_heads : c->mesh_tp;
}

/* Every nope_every-th block has no positions (Llama 4). It then lacks the L2 norm, which only
 * rotated heads get, and may have the temperature of queries. */
static void gqa_of(const Config *c, int block, AttentionSpec *a)
{
    bool nope = ends_period(c->attention_nope_every, block);
    a->kv_heads = c->attention_kv_heads / key_parts_of(c);
    a->head = c->attention_head_dim;
    a->rotary = nope ? 0 : rotary_of(c).dim;
    a->temper_floor = nope ? c->attention_temper_floor : 0;
    a->temper_scale = (float)c->attention_temper_scale;
    a->qk_norm = nope && c->attention_qk_norm == QK_NORM_L2 ? QK_NORM_NONE : c->attention_qk_norm;
}

static AttentionSpec attention_of(const Config *c, int block)
{
    bool full = ends_period(c->attention_full_every, block);
    RotarySpec rotary = rotary_of(c);
    AttentionSpec a = {
        .kind = c->attention_kind,
        .heads = c->attention_heads / c->mesh_tp,
        .interleaved = c->attention_rope_interleaved,
        .document_mask = c->attention_document_mask,
        .kernel = (AttentionKernel)c->attention_kernel, /* the setting's words are in enum order */
        .window = full ? 0 : c->attention_window,
        .chunk = full ? 0 : c->attention_chunk,
        .norm_eps = (float)c->model_norm_eps,
        .bias = c->attention_bias,
        .out_bias = c->attention_out_bias,
        .sinks = c->attention_sinks,
        .gated = c->attention_gate,
    };
    if (a.kind == ATTENTION_MLA) {
        a.kv_heads = a.heads;
        a.q_rank = c->attention_q_rank;
        a.kv_rank = c->attention_kv_rank;
        a.nope = c->attention_nope_dim;
        a.rope = c->attention_rope_dim;
        a.v = c->attention_v_dim;
        if (c->attention_latent_eps > 0) a.norm_eps = (float)c->attention_latent_eps;
    } else {
        gqa_of(c, block, &a);
    }
    a.scale = (float)(rotary_score_factor(&rotary) / sqrt((double)attention_qk_dim(&a)));
    return a;
}

static Glu glu_of(const Config *c)
{
    switch (c->moe_activation) {
    case ACTIVATION_CLAMPED: return glu_clamped((float)c->moe_limit);
    case ACTIVATION_GELU: return glu_gelu();
    default: return (Glu){ 0 };
    }
}

static MoeSpec moe_of(const Config *c)
{
    /* A group of the auxiliary loss is a sequence or a micro-batch. An AUX_GLOBAL group is as many
     * micro-batches as there are data-parallel ranks; moe.c (rule_of) divides by that. */
    int64_t groups =
        c->moe_aux_scope == AUX_SEQUENCE ? c->train_batch : c->train_batch / c->train_micro_batch;
    return (MoeSpec){
        .experts = c->moe_experts,
        .ffn = c->moe_ffn / c->mesh_etp,
        .shared_ffn = c->moe_shared * c->moe_ffn,
        .bias = c->moe_bias_rate > 0,
        .bias_rate = (float)c->moe_bias_rate,
        .shift = c->moe_router_bias,
        .shared_gate = c->moe_shared_gate,
        .score_input = c->moe_score_input,
        .expert_bias = c->moe_expert_bias,
        .glu = glu_of(c),
        .bias_rule = c->moe_bias_rule,
        .capacity = c->moe_capacity,
        .forced_balance = c->moe_forced_balance,
        .rule = { .score = c->moe_score == SCORE_SOFTMAX ? ROUTE_SOFTMAX : ROUTE_SIGMOID,
                  .top_k = c->moe_top_k,
                  .groups = c->moe_groups,
                  .top_groups = c->moe_top_groups,
                  .group_score_top = c->moe_group_score_top,
                  .normalise = c->moe_normalise,
                  .scaling = (float)c->moe_scaling,
                  .aux_scale = (float)(c->moe_aux_loss / (double)groups),
                  .aux_per_batch = c->moe_aux_scope != AUX_SEQUENCE,
                  .z_scale = (float)(c->moe_z_loss / (double)(c->train_batch * c->data_sequence)) },
        .aux_global = c->moe_aux_scope == AUX_GLOBAL,
    };
}

void spec_place(ModelSpec *s, const Mesh *m)
{
    s->ranks.ep_rank = m->at.ep;
    s->ranks.tp_rank = m->at.tp;
    s->ranks.stage = (int64_t)mesh_data_ranks(&m->shape) * mesh_sequence_ranks(&m->shape);
}

void spec_set_capacity(ModelSpec *s, const RowCapacity *capacity)
{
    if (s->capacity.pool == 0) return;
    if (capacity->pool > 0) s->capacity.pool = capacity->pool;
    if (capacity->blocks > 0) s->capacity.blocks = capacity->blocks;
    s->capacity.rows = capacity->rows;
    for (int i = 0; i < s->n_layers; i++) {
        LayerSpec *l = &s->layers[i];
        bool kept = l->load >= 0 && (l->recompute & RECOMPUTE_LAYER) == 0;
        if (kept && l->load < capacity->fetching) l->recompute |= RECOMPUTE_EXCHANGE;
    }
}

void spec_set_batch(ModelSpec *s, const Config *c, int64_t batch)
{
    Config now = *c;
    now.train_batch = batch;
    const RouteRule rule = moe_of(&now).rule;
    for (int i = 0; i < s->n_layers; i++) {
        RouteRule *own = &s->layers[i].as.moe.rule;
        if (s->layers[i].load >= 0) own->aux_scale = rule.aux_scale, own->z_scale = rule.z_scale;
    }
}

/* The error of mesh_inside is dropped: an EP group that lies unevenly on hosts is a case here. */
ExchangeKind spec_exchange(const Config *c, ExchangeShape *shape)
{
    int inside = 1;
    bool uneven =
        mesh_inside((int)config_expert_ranks(c), (int)c->mesh_ranks_per_host, &inside) != OK;
    if (uneven) status_clear();
    *shape = (ExchangeShape){ .experts = c->moe_experts * c->mesh_etp,
                              .top_k = c->moe_top_k * c->mesh_etp,
                              .ranks = config_expert_ranks(c),
                              .inside = inside,
                              .uneven = uneven };
    bool chosen = c->moe_exchange != EXCHANGE_AUTO; /* the setting's words are in enum order */
    return chosen ? (ExchangeKind)c->moe_exchange : exchange_choose(shape);
}

static RecipeSpec recipe_of(const Config *c)
{
    static const Dtype formats[] = { DTYPE_E4M3, DTYPE_E4M3, DTYPE_E2M1, DTYPE_E2M3, DTYPE_E3M2 };
    const Dtype forward = formats[c->fp8_format];
    bool block = c->fp8_recipe == RECIPE_BLOCK;
    bool auto_pow2 = c->fp8_scales == SCALES_AUTO && c->fp8_recipe >= RECIPE_BLOCK;
    bool pow2 = auto_pow2 || c->fp8_scales == SCALES_POW2;
    return (RecipeSpec){ .kind = c->fp8_recipe, /* the setting's words are in enum order */
                         .pow2 = pow2,
                         .forward = forward,
                         .gradient = c->fp8_format == FORMAT_HYBRID ? DTYPE_E5M2 : forward,
                         .weight_gradients = c->fp8_wgrad == WGRAD_FP8,
                         .dispatch = block && pow2 && c->fp8_dispatch != DISPATCH_BF16,
                         .keep = c->fp8_kept == KEPT_FP8,
                         .some_layers = c->fp8_layers.n > 0,
                         .dense = c->fp8_products != PRODUCTS_GROUPED,
                         .grouped = c->fp8_products != PRODUCTS_DENSE,
                         .head = c->fp8_head,
                         .attention = c->fp8_attention };
}

/* Do the products of a block follow the recipe? */
static bool eight_bit_of(const Config *c, int block)
{
    if (block < 0 || c->fp8_recipe == RECIPE_NONE) return false;
    return c->fp8_layers.n == 0 || config_has_int(&c->fp8_layers, block);
}

/* Blocks from s->blocks on are the modules of multi-token prediction. The head has the last depth,
 * because its input comes out of the last module. */
static LayerSpec *append_layer(ModelSpec *s, LayerKind kind, int block, unsigned recompute)
{
    LayerSpec *l = &s->layers[s->n_layers++];
    int depth = block >= s->blocks ? block - (int)s->blocks + 1 : 0;
    *l = (LayerSpec){ .kind = kind, .block = block, .recompute = recompute, .load = -1 };
    l->depth = kind == LAYER_HEAD ? s->depths : depth;
    /* The first LAYER_NEXT has the loss of the model proper, which evaluations need. */
    l->trains = l->depth > 0 && !(kind == LAYER_NEXT && depth == 1);
    return l;
}

static DeltaSpec delta_of(const Config *c)
{
    return (DeltaSpec){ .dims = { .key_heads = c->delta_key_heads / c->mesh_tp,
                                  .heads = c->delta_heads / c->mesh_tp,
                                  .key = c->delta_key_dim,
                                  .value = c->delta_value_dim },
                        .taps = c->delta_taps,
                        .document_mask = c->attention_document_mask };
}

/* A block is attention or a gated delta net, and an MLP or MoE. A module of multi-token prediction has LAYER_NEXT in front. */
static void add_block(ModelSpec *s, const Config *c, int block)
{
    unsigned recompute = recompute_of(c, block);
    s->block_first[block] = s->n_layers;
    if (block >= s->blocks) append_layer(s, LAYER_NEXT, block, 0);
    if (config_has_delta(c, block))
        append_layer(s, LAYER_DELTA, block, recompute)->as.delta = delta_of(c);
    else
        append_layer(s, LAYER_ATTENTION, block, recompute)->as.attention = attention_of(c, block);
    if (!config_has_experts(c, block)) {
        append_layer(s, LAYER_MLP, block, recompute)->as.ffn = c->model_ffn / c->mesh_tp;
    } else {
        LayerSpec *l = append_layer(s, LAYER_MOE, block, recompute);
        l->as.moe = moe_of(c);
        l->load = s->n_moe++;
        s->experts = c->moe_experts;
        s->counts = c->moe_capacity > 0 ? COUNT_DROPPED : 0;
        if (c->moe_bias_rate > 0 && c->moe_bias_rule == BIAS_QUANTILE) s->counts |= COUNT_MARGINS;
    }
    for (int i = s->block_first[block]; i < s->n_layers; i++)
        s->layers[i].eight_bit = eight_bit_of(c, block);
    int layers = s->n_layers - s->block_first[block];
    if (layers > s->block_layers) s->block_layers = layers;
}

/* The embedding is the first layer, the head the last one, and blocks lie between them. */
Status spec_layers(const Config *c, Arena *a, ModelSpec *out)
{
    /* run.compute sets both types: that of activations and that of the weights' copies. */
    Dtype type = config_type(c);
    ModelSpec s = {
        .name = c->model_name,
        .vocab = c->model_vocab,
        .hidden = c->model_hidden,
        .blocks = c->model_layers,
        .depths = (int)c->mtp_layers,
        .loss = { .chunk = c->model_loss_chunk,
                  .depth_weight =
                      c->mtp_layers > 0 ? (float)(c->mtp_loss / (double)c->mtp_layers) : 0 },
        .eps = (float)c->model_norm_eps,
        .tied = c->model_tied,
        .init_std = c->model_init_std,
        .rotary = rotary_of(c),
        .act = type,
        .recipe = recipe_of(c),
        .weights = copies_plain(type),
        .optimizer = optimizer_of(c),
        .ranks = { .ep = config_expert_ranks(c),
                   .etp = c->mesh_etp,
                   .cp = c->mesh_cp,
                   .tp = c->mesh_tp,
                   .key_parts = key_parts_of(c),
                   .stage = c->mesh_cp * c->mesh_tp,
                   .imbalance = c->plan_imbalance },
        .capacity = { .pool = c->moe_pool_factor > 0 ? c->moe_pool_factor : SPEC_POOL_MOST,
                      .blocks = c->moe_buffer_factor },
    };
    s.ranks.own_first = c->mesh_tp > 1 && c->mesh_tp_pieces > 0 &&
                        c->data_sequence / spec_sequence_ranks(&s) >= c->mesh_tp_pieces;
    if (c->moe_buffers != BUFFERS_POOLED) s.capacity = (RowCapacity){ 0 };
    ExchangeShape shape;
    s.ranks.exchange = spec_exchange(c, &shape);
    s.ranks.ep_inside = shape.inside;
    ConfigTexts *frozen = NULL;
    TRY(ARENA_NEW(a, 1, &frozen));
    *frozen = c->init_frozen;
    s.frozen = frozen;
    int blocks = (int)s.blocks + s.depths;
    TRY(ARENA_ZEROED(a, BLOCK_LAYERS_MAX * blocks + 2, &s.layers));
    TRY(ARENA_NEW(a, blocks + 1, &s.block_first));
    append_layer(&s, LAYER_EMBED, -1, 0);
    for (int block = 0; block < blocks; block++) add_block(&s, c, block);
    s.block_first[blocks] = s.n_layers;
    append_layer(&s, LAYER_HEAD, -1, 0);
    *out = s;
    return OK;
}
