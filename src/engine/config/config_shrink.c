/* config_shrink: reduces a configuration to a small model of the same structure, for tests and for a
 * first try of a large preset on one CPU (--shrink). It does not keep the quality or the proportions of
 * the model. */
#include "engine/config/config.h"

#include "engine/base/order.h"

#include <stddef.h>

/* Upper limits of sizes. Some are odd or no multiple of 16 on purpose, so that kernels also meet sizes
 * that they must pad. */
static const struct {
    size_t offset;
    int64_t most;
} sizes[] = {
#define MOST(name, most)                                                                           \
    {                                                                                              \
        offsetof(Config, name), most                                                               \
    }
    MOST(model_vocab, 509),       MOST(model_hidden, 40),      MOST(model_ffn, 72),
    MOST(attention_head_dim, 16), MOST(attention_q_rank, 28),  MOST(attention_kv_rank, 20),
    MOST(attention_nope_dim, 12), MOST(attention_rope_dim, 8), MOST(attention_v_dim, 12),
    MOST(attention_chunk, 16),    MOST(attention_window, 12),  MOST(attention_temper_floor, 8),
    MOST(delta_key_dim, 12),      MOST(delta_value_dim, 10),   MOST(moe_ffn, 24),
    MOST(data_sequence, 48),      MOST(train_micro_batch, 1),  MOST(train_batch, 4),
    MOST(model_loss_chunk, 64),
#undef MOST
};

/* Scales `part` as `whole` was scaled to `now`, then rounds down to a divisor of `now`. */
static int64_t scaled_divisor(int64_t part, int64_t whole, int64_t now)
{
    int64_t n = most(1, now * part / whole);
    while (now % n != 0) n--;
    return n;
}

/* Keeps how many query heads share a key, as far as four heads allow. */
static void shrink_heads(Config *c)
{
    int64_t heads = least(c->attention_heads, 4);
    c->attention_kv_heads =
        scaled_divisor(least(c->attention_kv_heads, c->attention_heads), c->attention_heads, heads);
    c->attention_heads = heads;
    heads = least(c->delta_heads, 4);
    c->delta_key_heads = scaled_divisor(c->delta_key_heads, c->delta_heads, heads);
    c->delta_heads = heads;
}

/* Makes groups of two experts and keeps the share of groups that a token may choose from. */
static void shrink_experts(Config *c)
{
    int64_t groups = c->moe_groups == 1 ? 1 : least(c->moe_groups, 4);
    c->moe_top_groups = most(1, (groups * c->moe_top_groups + c->moe_groups - 1) / c->moe_groups);
    c->moe_groups = groups;
    c->moe_experts = groups > 1 ? 2 * groups : least(c->moe_experts, 8);
    c->moe_group_score_top = least(c->moe_group_score_top, c->moe_experts / groups);
    c->moe_top_k = least(c->moe_top_k, least(3, c->moe_top_groups * c->moe_experts / groups));
}

/* Keeps one of the leading dense layers, and one period of the pattern of the other layers. */
static void shrink_layers(Config *c)
{
    bool all_dense = config_moe_layers(c) == 0;
    int64_t dense = least(c->model_dense_layers, 1), every = most(2, c->attention_full_every);
    every = most(every, most(c->attention_nope_every, most(c->moe_every, c->delta_full_every)));
    c->model_layers = least(c->model_layers, dense + every);
    c->model_dense_layers = all_dense ? c->model_layers : dense;
}

/* Sizes first: heads, experts and layers are then reduced by rules of their own. */
void config_shrink(Config *c)
{
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int64_t *size = (int64_t *)((char *)c + sizes[i].offset);
        *size = least(*size, sizes[i].most);
    }
    c->train_batch_ramp.n = 0;
    if (c->fp8_head) { /* which is not padded (config_check) */
        c->model_vocab -= c->model_vocab % 16;
        c->model_loss_chunk = 0;
    }
    shrink_heads(c);
    shrink_experts(c);
    shrink_layers(c);
}
