/* config_check: rules that involve several settings: sizes that must divide, limits that depend on
 * other settings. The range of a single setting is in rows.def and checked by config_value.c. */
#include "engine/config/config_private.h"
#include "engine/config/gpu_hour.h"
#include "engine/config/ramp.h"
#include "kernels/core/kinds.h"

#include <math.h>
#include <stdio.h>

/* Searches downward and upward for the nearest divisors, which always exist: 1 and the whole
 * itself. */
Status config_divides(const char *part_name, int64_t part, const char *whole_name, int64_t whole)
{
    if (part >= 1 && whole % part == 0) return OK;
    int64_t below = part < 1 ? 1 : part < whole ? part : whole, above = below;
    while (whole % below != 0) below--;
    while (whole % above != 0) above++;
    if (above == below)
        return FAIL(ERR_ARG, "%s %lld does not divide %s %lld; %lld is the nearest that does",
                    part_name, (long long)part, whole_name, (long long)whole, (long long)below);
    return FAIL(ERR_ARG, "%s %lld does not divide %s %lld; %lld and %lld are the nearest that do",
                part_name, (long long)part, whole_name, (long long)whole, (long long)below,
                (long long)above);
}

static Status at_most(const char *name, int64_t value, const char *limit_name, int64_t limit)
{
    if (value <= limit) return OK;
    return FAIL(ERR_ARG, "%s %lld is more than %s %lld", name, (long long)value, limit_name,
                (long long)limit);
}

/* Rotary embedding turns columns in pairs, so their number must be even. */
static Status even(const char *name, int64_t value)
{
    if (value % 2 == 0) return OK;
    return FAIL(ERR_ARG, "%s %lld is odd, rotary positions turn pairs", name, (long long)value);
}

/* Refuses settings that only grouped-query attention has. */
static Status check_mla(const Config *c)
{
    if (c->attention_qk_norm != QK_NORM_NONE)
        return FAIL(ERR_ARG, "attention.qk_norm is for attention.kind gqa: mla normalises its "
                             "latents; set attention.qk_norm=none");
    if (c->attention_rotary != 1)
        return FAIL(ERR_ARG,
                    "attention.rotary %.15g is for attention.kind gqa: of mla's heads "
                    "attention.rope_dim columns are rotated; set attention.rotary=1",
                    c->attention_rotary);
    if (c->attention_nope_every > 0)
        return FAIL(ERR_ARG,
                    "attention.nope_every %lld is for attention.kind gqa: all layers of mla have "
                    "rotated columns; set attention.nope_every=0",
                    (long long)c->attention_nope_every);
    return even("attention.rope_dim", c->attention_rope_dim);
}

int64_t config_rotated(const Config *c)
{
    if (c->attention_kind == ATTENTION_MLA) return c->attention_rope_dim;
    return (int64_t)((double)c->attention_head_dim * c->attention_rotary);
}

static Status check_rotary(const Config *c)
{
    int64_t rotated = config_rotated(c);
    TRY(even("attention.head_dim", c->attention_head_dim));
    if (rotated >= 2 && rotated % 2 == 0) return OK;
    return FAIL(ERR_ARG,
                "attention.rotary %.15g of attention.head_dim %lld is %lld columns, rotary "
                "positions turn pairs: wanted an even number from 2 on (attention.nope_every=1 "
                "rotates none)",
                c->attention_rotary, (long long)c->attention_head_dim, (long long)rotated);
}

static Status check_rope(const Config *c)
{
    bool yarn = c->rope_scaling == SCALING_YARN, llama3 = c->rope_scaling == SCALING_LLAMA3;
    if ((yarn || llama3) && c->rope_original == 0)
        return FAIL(ERR_ARG,
                    "rope.scaling=%s needs rope.original above 0: the positions that the model was "
                    "trained on before (original_max_position_embeddings)",
                    yarn ? "yarn" : "llama3");
    if (yarn && c->attention_rope_theta == 1)
        return FAIL(ERR_ARG, "rope.scaling=yarn tells frequencies apart, attention.rope_theta 1 "
                             "makes all the same: set it above 1");
    if (yarn && c->rope_beta_fast <= c->rope_beta_slow)
        return FAIL(ERR_ARG, "rope.beta_fast %.15g must be above rope.beta_slow %.15g",
                    c->rope_beta_fast, c->rope_beta_slow);
    if (llama3 && c->rope_high_freq <= c->rope_low_freq)
        return FAIL(ERR_ARG, "rope.high_freq %.15g must be above rope.low_freq %.15g",
                    c->rope_high_freq, c->rope_low_freq);
    if (c->rope_scaling != SCALING_NONE || c->rope_factor == 1) return OK;
    return FAIL(ERR_ARG,
                "rope.factor %.15g stretches nothing with rope.scaling=none: set rope.scaling, or "
                "rope.factor=1",
                c->rope_factor);
}

static Status check_attention(const Config *c)
{
    TRY(check_rope(c));
    if (c->attention_full_every > 0 && c->attention_chunk == 0 && c->attention_window == 0)
        return FAIL(ERR_ARG,
                    "attention.full_every %lld needs an attention.window or attention.chunk above "
                    "0: without them every layer sees all keys",
                    (long long)c->attention_full_every);
    if (c->attention_temper_floor > 0 && c->attention_nope_every == 0)
        return FAIL(ERR_ARG,
                    "attention.temper_floor %lld is for layers without positions: set "
                    "attention.nope_every, or attention.temper_floor=0",
                    (long long)c->attention_temper_floor);
    const bool heads = c->attention_kind == ATTENTION_GQA && c->attention_qk_norm == QK_NORM_RMS;
    if (c->attention_gate && !heads)
        return FAIL(ERR_ARG,
                    "attention.gate is built for attention.kind=gqa with attention.qk_norm=rms: "
                    "set both, or attention.gate=false");
    if (c->attention_kind == ATTENTION_MLA) return check_mla(c);
    TRY(check_rotary(c));
    return config_divides("attention.kv_heads", c->attention_kv_heads, "attention.heads",
                          c->attention_heads);
}

static Status check_delta(const Config *c)
{
    if (c->delta_full_every == 0) return OK;
    TRY(config_divides("delta.key_heads", c->delta_key_heads, "delta.heads", c->delta_heads));
    if (c->delta_full_every == 1)
        return FAIL(ERR_ARG, "delta.full_every 1 leaves no layer for a gated delta net: set it to "
                             "2 or more, or to 0 for attention in all layers");
    return OK;
}

static Status check_moe(const Config *c)
{
    if (c->moe_score_input && c->moe_top_k > 1)
        return FAIL(ERR_ARG,
                    "moe.score_input scales a token before it goes to its expert: moe.top_k %lld "
                    "must be 1, or set moe.score_input=false",
                    (long long)c->moe_top_k);
    if (c->moe_score_input && c->moe_capacity > 0)
        return FAIL(ERR_ARG,
                    "moe.capacity %.15g drops entries by what weighs an expert's output: set it to "
                    "0, or moe.score_input=false",
                    c->moe_capacity);
    if (c->moe_shared_gate && c->moe_shared == 0)
        return FAIL(ERR_ARG, "moe.shared_gate needs a shared expert, moe.shared is 0: set it to 1 "
                             "or more, or moe.shared_gate=false");
    if (c->moe_bias_rate > 0 && c->moe_bias_rule == BIAS_QUANTILE &&
        (c->moe_groups > 1 || c->moe_forced_balance || c->moe_top_k == c->moe_experts))
        return FAIL(ERR_ARG,
                    "moe.bias_rule=quantile needs tokens that choose freely: moe.groups %lld must "
                    "be 1, moe.top_k %lld below moe.experts %lld, moe.forced_balance false",
                    (long long)c->moe_groups, (long long)c->moe_top_k, (long long)c->moe_experts);
    TRY(config_divides("moe.groups", c->moe_groups, "moe.experts", c->moe_experts));
    TRY(at_most("moe.top_groups", c->moe_top_groups, "moe.groups", c->moe_groups));
    int64_t group = c->moe_experts / c->moe_groups;
    TRY(at_most("moe.group_score_top", c->moe_group_score_top, "the experts of a group,", group));
    int64_t allowed = c->moe_top_groups * group;
    if (c->moe_top_k <= allowed) return OK;
    return FAIL(ERR_ARG,
                "moe.top_k %lld is more than the %lld experts that a token may choose from "
                "(moe.top_groups %lld of moe.groups %lld, moe.experts %lld)",
                (long long)c->moe_top_k, (long long)allowed, (long long)c->moe_top_groups,
                (long long)c->moe_groups, (long long)c->moe_experts);
}

static Status check_layers(const Config *c, const char *name, const ConfigInts *list)
{
    const int64_t layers = c->model_layers + c->mtp_layers;
    for (int i = 0; i < list->n; i++) {
        if (list->at[i] < layers) continue;
        return FAIL(ERR_ARG, "%s names layer %lld, %s is %lld (0 is the first)", name,
                    (long long)list->at[i],
                    c->mtp_layers > 0 ? "model.layers + mtp.layers" : "model.layers",
                    (long long)layers);
    }
    return OK;
}

/* Scales of a tensor, a row or a column would cover a chunk of the loss, so they would depend on its size. */
static Status check_fp8_head(const Config *c)
{
    enum { BLOCK = 128, STEP = 16 };
    const int64_t vocab = c->model_vocab;
    if (!c->fp8_head) return OK;
    if (c->fp8_recipe != RECIPE_BLOCK)
        return FAIL(ERR_ARG,
                    "fp8.head has scales of 1 x %d: set fp8.recipe=block, or "
                    "fp8.head=false",
                    BLOCK);
    if (c->model_tied)
        return FAIL(ERR_ARG, "fp8.head needs a matrix of its own, and model.tied=true shares the "
                             "embedding's: set model.tied=false, or fp8.head=false");
    if (vocab % STEP != 0)
        return FAIL(ERR_ARG,
                    "fp8.head: model.vocab %lld is not a multiple of %d, as rows of 8-bit "
                    "numbers must be; %lld is the next that is, or set fp8.head=false",
                    (long long)vocab, STEP, (long long)(vocab + STEP - vocab % STEP));
    if (c->model_loss_chunk % BLOCK == 0) return OK;
    return FAIL(ERR_ARG,
                "model.loss_chunk %lld is not a multiple of %d, tokens that share a scale "
                "of fp8.head: set such a multiple, or 0 to have it chosen",
                (long long)c->model_loss_chunk, BLOCK);
}

/* Refuses what is set of a recipe without a recipe, and layers that are not there. */
static Status check_fp8(const Config *c)
{
    const struct {
        const char *name;
        bool set;
    } details[] = {
        { "fp8.format", c->fp8_format != FORMAT_E4M3 },
        { "fp8.scales", c->fp8_scales != SCALES_AUTO },
        { "fp8.kept", c->fp8_kept != KEPT_FP8 },
        { "fp8.products", c->fp8_products != PRODUCTS_ALL },
        { "fp8.dispatch", c->fp8_dispatch != DISPATCH_AUTO },
        { "fp8.layers", c->fp8_layers.n > 0 },
        { "fp8.wgrad", c->fp8_wgrad != WGRAD_FP8 },
        { "fp8.head", c->fp8_head },
    };
    for (size_t i = 0; c->fp8_recipe == RECIPE_NONE && i < sizeof details / sizeof *details; i++) {
        if (!details[i].set) continue;
        return FAIL(ERR_ARG,
                    "%s is a detail of 8-bit products, and fp8.recipe=none has none: set "
                    "fp8.recipe=block, or leave %s out",
                    details[i].name, details[i].name);
    }
    if (c->fp8_format >= FORMAT_E2M1 && c->fp8_recipe != RECIPE_MX)
        return FAIL(ERR_ARG,
                    "fp8.format: 4 and 6 bits need scales of 1 x 32, set fp8.recipe=mx, or "
                    "fp8.format=e4m3");
    if (c->fp8_scales == SCALES_EXACT && c->fp8_recipe == RECIPE_MX)
        return FAIL(ERR_ARG,
                    "fp8.scales=exact: scales of fp8.recipe=mx are powers of two, leave it "
                    "auto");
    bool shifts = c->fp8_recipe == RECIPE_BLOCK && c->fp8_scales != SCALES_EXACT;
    if (c->fp8_dispatch == DISPATCH_FP8 && (!shifts || c->fp8_products == PRODUCTS_DENSE))
        return FAIL(
            ERR_ARG,
            "fp8.dispatch=fp8 makes columns from rows that are already 8-bit, which only "
            "scales of blocks that are powers of two allow: set fp8.recipe=block with "
            "fp8.scales=auto and fp8.products=all (or grouped), or leave fp8.dispatch auto");
    return check_layers(c, "fp8.layers", &c->fp8_layers);
}

/* An overflow of f16 gradients is an infinity, which skips the step. 8-bit operands have none. */
static Status check_f16(const Config *c)
{
    if (c->run_compute != COMPUTE_F16 || c->fp8_recipe == RECIPE_NONE) return OK;
    return FAIL(ERR_ARG, "run.compute=f16 skips steps by the infinities in their gradients, and "
                         "8-bit operands hold none: set run.compute=bf16, or fp8.recipe=none");
}

/* A kernel that was chosen by name must not silently be replaced by another one. */
static Status check_device(const Config *c)
{
    const AttentionWord *kernel = &attention_words[c->attention_kernel];
    if (!attention_kernel_wants_gpu((AttentionKernel)c->attention_kernel)) return OK;
    if (c->run_device == DEVICE_CPU)
        return FAIL(ERR_ARG, "attention.kernel=%s needs a GPU, run.device is cpu: leave it auto",
                    kernel->name);
    if (c->run_compute == COMPUTE_BF16 || kernel->f32) return OK;
    return FAIL(ERR_ARG,
                "attention.kernel=%s takes bf16, run.compute is f32: set run.compute=bf16 or leave "
                "it auto",
                kernel->name);
}

/* The second moment is v += (1 - beta2) (g^2 - v), a relative change of (1 - beta2) (g^2 / v - 1).
 * bf16 rounds away relative changes below 1/512. So with beta2 above 1 - 1/512 = 0.998, v could not even
 * decay when gradients become 0. The limit 0.99 leaves a margin of five. */
static Status check_optimizer(const Config *c)
{
    const double most = 0.99;
    const bool muon = c->optimizer_kind == OPTIMIZER_MUON;
    const struct {
        const char *name, *what;
        double value;
    } slow[] = { { "beta2", "second moment", c->optimizer_beta2 },
                 { "momentum", "momentum", muon ? c->optimizer_momentum : 0 } };
    for (size_t i = 0; c->optimizer_moments == MOMENTS_BF16 && i < sizeof slow / sizeof *slow;
         i++) {
        if (slow[i].value <= most) continue;
        return FAIL(ERR_ARG,
                    "optimizer.%s %.15g is more than %.15g, the most for optimizer.moments=bf16: a "
                    "bf16 %s cannot change by less than 1/512 of itself and would not change; set "
                    "optimizer.%s=0.95 or optimizer.moments=f32",
                    slow[i].name, slow[i].value, most, slow[i].what, slow[i].name);
    }
    if (c->optimizer_skip_spikes > 0 && c->optimizer_skip_spikes <= 1)
        return FAIL(ERR_ARG,
                    "optimizer.skip_spikes %.15g must be above 1, or 0: steps are skipped whose "
                    "gradient norm is above this many times the running mean",
                    c->optimizer_skip_spikes);
    if (c->optimizer_qk_clip > 0 && c->attention_qk_norm != QK_NORM_NONE)
        return FAIL(ERR_ARG,
                    "optimizer.qk_clip %.15g scales the weights of queries and keys, which "
                    "attention.qk_norm normalises after them: it would change nothing; set "
                    "optimizer.qk_clip=0",
                    c->optimizer_qk_clip);
    if (c->optimizer_min_lr <= c->optimizer_lr) return OK;
    return FAIL(ERR_ARG, "optimizer.min_lr %.15g is more than optimizer.lr %.15g",
                c->optimizer_min_lr, c->optimizer_lr);
}

/* The convolution of a piece joins tokens of the piece before it, and of no others. */
static Status check_delta_runs(const Config *c, int64_t cp)
{
    const int64_t tokens = c->data_sequence / (2 * cp), past = c->delta_taps - 1;
    if (c->delta_full_every == 0 || tokens >= past) return OK;
    int64_t most = c->data_sequence / 2 / past;
    while (most > 1 && c->data_sequence % (2 * most) != 0) most--;
    return FAIL(ERR_ARG,
                "mesh.cp %lld cuts sequences into pieces of %lld tokens, and delta.taps %lld joins "
                "%lld before each: set mesh.cp=%lld or less",
                (long long)cp, (long long)tokens, (long long)c->delta_taps, (long long)past,
                (long long)most);
}

/* Each rank gets one piece from the front and one from the back of the sequence, because under a causal
 * mask later pieces cost more. Hence 2 * cp pieces. */
Status config_check_cp(const Config *c, int64_t cp)
{
    if (cp > 1 && c->fp8_attention)
        return FAIL(ERR_ARG,
                    "fp8.attention works on whole sequences, and mesh.cp %lld cuts them: set "
                    "mesh.cp=1 or fp8.attention=false",
                    (long long)cp);
    int64_t sequence = c->data_sequence, pieces = 2 * cp, below = sequence / pieces * pieces,
            above = below + pieces;
    if (cp == 1 || below == sequence) return cp == 1 ? OK : check_delta_runs(c, cp);
    return FAIL(ERR_ARG,
                "data.sequence %lld is not a multiple of %lld, two pieces for each rank of mesh.cp "
                "%lld; %lld is the nearest that is",
                (long long)sequence, (long long)pieces, (long long)cp,
                (long long)(below > 0 && sequence - below <= cp ? below : above));
}

Status config_check_tp(const Config *c, int64_t tp, int64_t cp)
{
    const struct {
        const char *name;
        int64_t n;
    } parts[] = {
        { "attention.heads", c->attention_heads },
        { "delta.key_heads", c->delta_full_every > 0 ? c->delta_key_heads : 0 },
        { "model.ffn", config_moe_layers(c) < c->model_layers ? c->model_ffn : 0 },
        { "the tokens of a sequence on a context rank,", c->data_sequence / cp },
    };
    for (size_t i = 0; tp > 1 && i < sizeof parts / sizeof *parts; i++)
        TRY(config_divides("mesh.tp", tp, parts[i].name, parts[i].n));
    const int64_t keys = c->attention_kind == ATTENTION_MLA ? tp : c->attention_kv_heads;
    if (keys >= tp) return config_divides("mesh.tp", tp, "attention.kv_heads", keys);
    return config_divides("attention.kv_heads", keys, "mesh.tp", tp);
}

static Status check_expert_parts(const Config *c)
{
    if (c->mesh_etp == 1) return OK;
    if (config_moe_layers(c) == 0)
        return FAIL(ERR_ARG,
                    "mesh.etp %lld shares experts over ranks, and this model has none: set it to 1",
                    (long long)c->mesh_etp);
    return config_divides("mesh.etp", c->mesh_etp, "moe.ffn", c->moe_ffn);
}

/* Ops count a rank's slots (token, expert) of a micro-batch in 31 bits. */
static Status check_slots(const Config *c)
{
    const int64_t k = config_moe_layers(c) > 0 ? c->moe_top_k * c->mesh_etp : 1;
    const double slots =
        (double)c->train_micro_batch * (double)c->data_sequence / (double)c->mesh_cp * (double)k;
    if (slots <= INT32_MAX) return OK;
    return FAIL(
        ERR_ARG,
        "train.micro_batch %lld x data.sequence %lld x %lld experts a token are %.4g slots a "
        "rank, at most %d: lower train.micro_batch",
        (long long)c->train_micro_batch, (long long)c->data_sequence, (long long)k, slots,
        INT32_MAX);
}

/* Copies in memory are made of the copy that checkpoint.async takes. */
static Status check_peer(const Config *c)
{
    if (c->checkpoint_peer_every > 0 && !c->checkpoint_peer)
        return FAIL(
            ERR_ARG,
            "checkpoint.peer_every=%lld makes checkpoints in memory, and checkpoint.peer is "
            "false: set checkpoint.peer=true, or checkpoint.peer_every=0",
            (long long)c->checkpoint_peer_every);
    if (!c->checkpoint_peer) return OK;
    if (!c->checkpoint_async)
        return FAIL(ERR_ARG,
                    "checkpoint.peer needs checkpoint.async=true: set one of the two back");
    if (c->checkpoint_peer_dir[0] == '/') return OK;
    return FAIL(
        ERR_ARG,
        "checkpoint.peer_dir \"%s\" does not begin with /: name a folder in memory that each "
        "host has, such as /dev/shm",
        c->checkpoint_peer_dir);
}

/* Documents hide pairs of query and key from the triangle of all of them. */
static Status check_context(const Config *c)
{
    const double mean = c->plan_mean_context, most = ((double)c->data_sequence + 1) / 2;
    if (mean == 0) return OK;
    if (mean < 1 || mean > most)
        return FAIL(ERR_ARG,
                    "plan.mean_context is %.15g keys, but a query sees from 1 to %.15g on average "
                    "with data.sequence %lld: take what `data inspect --sequence` prints",
                    mean, most, (long long)c->data_sequence);
    if (c->attention_document_mask) return OK;
    return FAIL(ERR_ARG,
                "plan.mean_context %.15g: with attention.document_mask=false a query sees "
                "other documents, too: leave it out",
                mean);
}

/* Nobody would miss a curve that a run never draws. */
static Status check_choices(const Config *c)
{
    if (c->eval_choices[0] == '\0') return OK;
    if (c->train_eval_every == 0)
        return FAIL(ERR_ARG,
                    "eval.choices %s is asked in evaluations, and train.eval_every is 0: "
                    "set the steps between them",
                    c->eval_choices);
    if (c->data_tokenizer[0] != '\0') return OK;
    return FAIL(ERR_ARG, "eval.choices %s is text: set data.tokenizer to the tokenizer of the data",
                c->eval_choices);
}

/* Runs after all settings are known, once for each configuration. What depends on the number of
 * ranks is checked later, when that is known (config_check_ops, mesh_shape). */
Status config_check(const Config *c)
{
    BatchRamp ramp;
    GpuHour hour;
    if (c->run_dir[0] == '\0') return FAIL(ERR_ARG, "run.dir is empty: name a folder");
    TRY(config_check_data(c));
    TRY(config_divides("train.micro_batch", c->train_micro_batch, "train.batch", c->train_batch));
    TRY(gpu_hour_read(c, &hour));
    TRY(check_context(c));
    TRY(ramp_read(c, &ramp));
    TRY(ramp_divides(c, 1, c->train_micro_batch));
    TRY(at_most("model.dense_layers", c->model_dense_layers, "model.layers", c->model_layers));
    TRY(check_attention(c));
    TRY(check_delta(c));
    if (config_moe_layers(c) > 0) TRY(check_moe(c));
    if (c->mesh_ep > 1) TRY(config_divides("mesh.ep", c->mesh_ep, "moe.experts", c->moe_experts));
    TRY(check_expert_parts(c));
    TRY(config_check_cp(c, c->mesh_cp));
    TRY(config_check_tp(c, c->mesh_tp, c->mesh_cp));
    TRY(check_slots(c));
    TRY(check_layers(c, "recompute.layers", &c->recompute_layers));
    TRY(check_fp8(c));
    TRY(check_fp8_head(c));
    TRY(check_f16(c));
    TRY(check_device(c));
    TRY(check_peer(c));
    TRY(check_choices(c));
    return check_optimizer(c);
}

const char *config_planned_only(const Config *c, char out[CONFIG_PLANNED_BYTES])
{
    out[0] = '\0';
    if (c->mesh_tp > 1 && c->attention_qk_norm == QK_NORM_WIDTH)
        (void)snprintf(out, CONFIG_PLANNED_BYTES, "mesh.tp=%lld with attention.qk_norm=width",
                       (long long)c->mesh_tp);
    static const char *const theirs[] = { "core_attn", "mlp", "moe" };
    for (int i = 0; i < 3 && c->recompute_layers.n > 0; i++) {
        if (config_has_text(&c->recompute_pieces, theirs[i]))
            (void)snprintf(out, CONFIG_PLANNED_BYTES, "recompute.pieces %s", theirs[i]);
    }
    return out;
}

/* Checks each number of ranks by itself; mesh_shape checks whether they fit together. */
Status config_check_ops(const Config *c, int ranks)
{
    char planned[CONFIG_PLANNED_BYTES];
    if (*config_planned_only(c, planned) != '\0')
        return FAIL(ERR_UNSUPPORTED,
                    "%s: the engine does not run this yet, only `switchyard plan` prices it; leave "
                    "it out",
                    planned);
    TRY(config_divides("mesh.tp", c->mesh_tp, "model.vocab", c->model_vocab));
    return config_check_ranks(c, ranks);
}

/* Experts are folded over the ranks of a stage that shard among themselves. */
Status config_check_ranks(const Config *c, int64_t ranks)
{
    const struct {
        const char *name;
        int64_t n;
    } axes[] = { { "pp", c->mesh_pp },
                 { "ep", c->mesh_ep },
                 { "etp", c->mesh_etp },
                 { "cp", c->mesh_cp },
                 { "tp", c->mesh_tp } };
    const int64_t sequence = c->mesh_cp * c->mesh_tp, experts = config_expert_ranks(c);
    int64_t stage = sequence;
    while (stage % experts != 0) stage += sequence;
    const int64_t least = c->mesh_pp * stage;
    char named[160] = "", alone[32] = "";
    size_t used = 0;
    if (ranks >= least) return OK;
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++)
        if (axes[i].n > 1)
            used = text_add(named, sizeof named, used, "%smesh.%s=%lld", used > 0 ? " with " : "",
                            axes[i].name, (long long)axes[i].n);
    if (ranks > 1) (void)snprintf(alone, sizeof alone, ", not %lld", (long long)ranks);
    return FAIL(ERR_ARG, "%s needs %lld ranks%s: %s --ranks %lld (or mpirun -n %lld)", named,
                (long long)least, alone, ranks > 1 ? "start them with" : "add", (long long)least,
                (long long)least);
}

/* Blocks from dense_layers on have experts, every moe.every-th of them counted from block 0.
 * Multi-token prediction modules have block numbers from model.layers on. */
bool config_has_experts(const Config *c, int64_t block)
{
    if (c->model_dense_layers >= c->model_layers) return false; /* also for modules of MTP */
    return block >= c->model_dense_layers && (block + 1) % c->moe_every == 0;
}

/* Modules of multi-token prediction have attention. */
bool config_has_delta(const Config *c, int64_t block)
{
    return c->delta_full_every > 0 && block < c->model_layers &&
           (block + 1) % c->delta_full_every != 0;
}

int64_t config_moe_layers(const Config *c)
{
    int64_t n = 0;
    for (int64_t block = 0; block < c->model_layers; block++) n += config_has_experts(c, block);
    return n;
}

void config_alone(Config *c)
{
    c->mesh_pp = c->mesh_ep = c->mesh_etp = c->mesh_cp = c->mesh_tp = 1;
}
