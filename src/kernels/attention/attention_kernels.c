/*
 * attention_kernels: which kernel runs a call of attention on a GPU. The candidates are the rows of
 * attention.def, and one row for the 8-bit forward. Their limits are checked here and nowhere else,
 * for runs and plans alike. The kernels themselves are in attention.cu, kernels-amd/attention_matrix.cu,
 * nv/attention_hopper.cu, nv/attention_mma.cu and nv/attention_e4m3.cu.
 */
#include "kernels/attention/attention_kernels.h"

#include "kernels/core/operand.h"

#include <stdio.h>

enum { PAIRS_MOST = 4, PAIRS_TEXT = 96 };

/* Which calls a kernel supports; 0 and false: no limit. */
typedef struct AttentionLimits {
    bool all_new;         /* Tq = Tk (no cache), and pieces that form one rectangle of scores */
    int64_t tokens_least; /* fewest queries, and fewest keys */
    int64_t keys_most;
    int64_t width_step, width_most, value_most; /* of heads; value_most: of v, if it is another */
    int pairs[PAIRS_MOST][2];                   /* the only widths of q and k, and of v */
} AttentionLimits;

/* The part of a call that limits depend on, for both directions. */
typedef struct AttentionCall {
    const Tensor *q, *k, *v;
    const AttentionPieces *pieces;
} AttentionCall;

static AttentionCall fwd_call(const AttentionFwd *a)
{
    return (AttentionCall){ &a->q, &a->k, &a->v, &a->pieces };
}

static AttentionCall bwd_call(const AttentionBwd *a)
{
    return (AttentionCall){ &a->q, &a->k, &a->v, &a->pieces };
}

/* Keys and values may have different widths (MLA), so each is judged by itself. */
static bool width_fits(const AttentionLimits *l, int64_t d, int64_t most)
{
    return (most == 0 || d <= most) && (l->width_step == 0 || d % l->width_step == 0);
}

/* "64 and 64, 128 and 128" */
static void pairs_text(const AttentionLimits *l, char out[PAIRS_TEXT])
{
    int used = 0;
    out[0] = 0;
    for (int i = 0; i < PAIRS_MOST && l->pairs[i][0] > 0; i++)
        used += snprintf(out + used, (size_t)(PAIRS_TEXT - used), "%s%d and %d", i > 0 ? ", " : "",
                         l->pairs[i][0], l->pairs[i][1]);
}

/* Heads narrower than all that it takes are those of a toy: no user expects it there. */
static bool pairs_fit(const AttentionLimits *l, int64_t dk, int64_t dv, KernelWhy *why)
{
    char pairs[PAIRS_TEXT];
    bool narrow = true;
    for (int i = 0; i < PAIRS_MOST && l->pairs[i][0] > 0; i++) {
        if (l->pairs[i][0] == dk && l->pairs[i][1] == dv) return true;
        narrow = narrow && (dk < l->pairs[i][0] || dv < l->pairs[i][1]);
    }
    pairs_text(l, pairs);
    return kernel_refuses(why, narrow, "heads are %lld and %lld wide, it takes %s", (long long)dk,
                          (long long)dv, pairs);
}

static bool widths_fit(const AttentionLimits *l, const AttentionCall *c, KernelWhy *why)
{
    int64_t dk = c->q->dim[3], dv = c->v->dim[3];
    if (l->pairs[0][0] > 0) return pairs_fit(l, dk, dv, why);
    int64_t most = l->value_most > 0 ? l->value_most : l->width_most;
    if (width_fits(l, dk, l->width_most) && width_fits(l, dv, most)) return true;
    if (l->width_step > 1)
        return kernel_refuses(why, false,
                              "heads are %lld and %lld wide, it takes multiples of %lld up to %lld "
                              "and %lld",
                              (long long)dk, (long long)dv, (long long)l->width_step,
                              (long long)l->width_most, (long long)most);
    return kernel_refuses(why, false, "heads are %lld and %lld wide, %lld is the most",
                          (long long)dk, (long long)dv, (long long)l->width_most);
}

/* Does the rectangle of scores that queries see fit the limits? */
static bool rect_fits(const AttentionLimits *l, const AttentionCall *c, KernelWhy *why)
{
    AttentionRect r;
    int64_t queries = c->q->dim[1];
    if (!attention_rect(c->pieces, queries, c->k->dim[1], &r))
        return kernel_refuses(
            why, false, "pieces of queries and keys lie as no two ranks of mesh.cp have them");
    int64_t least = r.Tq < r.Tk ? r.Tq : r.Tk;
    if (least < l->tokens_least)
        return kernel_refuses(why, false, "%lld tokens a sequence%s: it is used from %lld on",
                              (long long)least, least < queries ? "'s piece" : "",
                              (long long)l->tokens_least);
    return widths_fit(l, c, why);
}

/* Types and caches come first: such a call was never meant for the kernel, and the refusal is expected. */
static bool limits_fit(const AttentionLimits *l, bool f32, const AttentionCall *c, KernelWhy *why)
{
    int64_t queries = c->q->dim[1], keys = c->k->dim[1];
    if (c->q->dtype != DTYPE_BF16 && !f32)
        return kernel_refuses(why, true, "tensors are %s, it takes bf16", dtype_name(c->q->dtype));
    if (l->all_new && queries != keys)
        return kernel_refuses(why, true, "%lld queries and %lld keys: it is used where all are new",
                              (long long)queries, (long long)keys);
    if (l->keys_most > 0 && keys > l->keys_most)
        return kernel_refuses(why, false, "%lld keys, %lld is the most", (long long)keys,
                              (long long)l->keys_most);
    return l->all_new ? rect_fits(l, c, why) : widths_fit(l, c, why);
}

/* The limits as text, for `bench ops --why`. */
static void limits_text(const AttentionLimits *l, bool f32, char out[KERNEL_NEEDS_MAX])
{
    char step[48] = "", least[48] = "", value[48] = "", pairs[PAIRS_TEXT];
    const char *types = f32 ? "f32, bf16" : "bf16";
    pairs_text(l, pairs);
    if (pairs[0] != 0) {
        (void)snprintf(out, KERNEL_NEEDS_MAX, "%s; q and k, and v, %s wide", types, pairs);
        return;
    }
    if (l->width_step > 0)
        (void)snprintf(step, sizeof step, "multiples of %d, ", (int)l->width_step);
    if (l->value_most > 0) (void)snprintf(value, sizeof value, ", values %d", (int)l->value_most);
    if (l->tokens_least > 0)
        (void)snprintf(least, sizeof least, "; %d tokens or more", (int)l->tokens_least);
    (void)snprintf(out, KERNEL_NEEDS_MAX, "%s; heads %sup to %d wide%s%s%s", types, step,
                   (int)l->width_most, value, l->all_new ? "; no cache" : "", least);
}

#define KERNEL(ID, name, f32, skips, vendor, capability, work, ...)                                \
    static const AttentionLimits name##_limits = { __VA_ARGS__ };                                  \
    static bool name##_fwd_can(const void *call, KernelWhy *why)                                   \
    {                                                                                              \
        AttentionCall c = fwd_call(call);                                                          \
        return limits_fit(&name##_limits, f32, &c, why);                                           \
    }                                                                                              \
    static bool name##_bwd_can(const void *call, KernelWhy *why)                                   \
    {                                                                                              \
        AttentionCall c = bwd_call(call);                                                          \
        return limits_fit(&name##_limits, f32, &c, why);                                           \
    }                                                                                              \
    static void name##_needs(char out[KERNEL_NEEDS_MAX])                                           \
    {                                                                                              \
        limits_text(&name##_limits, f32, out);                                                     \
    }                                                                                              \
    size_t attention_##name##_fwd_workspace(const void *call);                                     \
    size_t attention_##name##_bwd_workspace(const void *call);                                     \
    OpRun attention_##name##_fwd, attention_##name##_bwd;
#include "kernels/attention/attention.def"

/* The fields of KernelDesc in their order. */
#define ROW(name, way, vendor, capability, work)                                                   \
    { #name,                                                                                       \
      vendor,                                                                                      \
      capability,                                                                                  \
      capability,                                                                                  \
      0,                                                                                           \
      name##_needs,                                                                                \
      name##_##way##_can,                                                                          \
      OP_OF_VENDOR(vendor, attention_##name##_##way##_workspace),                                  \
      OP_OF_VENDOR(vendor, attention_##name##_##way),                                              \
      work },

static const KernelDesc fwd_rows[] = {
#define KERNEL(ID, name, f32, skips, vendor, capability, work, ...)                                \
    ROW(name, fwd, vendor, capability, WORK_##work)
#include "kernels/attention/attention.def"
};

static const KernelDesc bwd_rows[] = {
#define KERNEL(ID, name, f32, skips, vendor, capability, work, ...)                                \
    ROW(name, bwd, vendor, capability, WORK_##work##_BACKWARD)
#include "kernels/attention/attention.def"
};

enum { ROWS = sizeof fwd_rows / sizeof *fwd_rows };
const KernelTable attention_fwd_kernels = { "attention.kernel", fwd_rows, ROWS };
const KernelTable attention_bwd_kernels = { "attention.kernel", bwd_rows, ROWS };

AttentionKernel attention_kernel_of(int capability)
{
    for (int i = 0; i < ROWS; i++) {
        const KernelDesc *k = &fwd_rows[i];
        bool is_made = k->capability_most == 0 || k->capability_most == capability;
        if (k->vendor == VENDOR_NVIDIA && is_made) return (AttentionKernel)(i + 1);
    }
    return ATTENTION_PLAIN;
}

/* The 8-bit forward: one kernel. There is no slower one for all GPUs: it would win nothing over bf16. */
static bool e4m3_can(const void *call, KernelWhy *why)
{
    const AttentionFwd *a = call;
    int64_t dk = a->q.dim[3], dv = a->v.dim[3];
    if (a->q.dtype != DTYPE_BF16 || a->o.dtype != DTYPE_BF16)
        return kernel_refuses(why, false, "tensors are %s, it takes bf16",
                              dtype_name(a->q.dtype != DTYPE_BF16 ? a->q.dtype : a->o.dtype));
    if (a->pieces.length > 0 || a->o_before.data != NULL)
        return kernel_refuses(why, false, "it takes whole sequences, not blocks of keys");
    if ((dk == 128 || dk == 192) && dv == 128 && a->k.dim[1] <= INT32_MAX - OPERAND_BLOCK)
        return true;
    return kernel_refuses(why, false,
                          "heads are %lld and %lld wide, it takes 192 or 128 and 128, and keys "
                          "below 2^31",
                          (long long)dk, (long long)dv);
}

static void e4m3_needs(char out[KERNEL_NEEDS_MAX])
{
    (void)snprintf(out, KERNEL_NEEDS_MAX, "bf16; q and k 192 or 128 wide, v 128; whole sequences");
}

size_t attention_e4m3_fwd_workspace(const void *call);
OpRun attention_e4m3_fwd;

static const KernelDesc e4m3_rows[] = {
    { .name = "hopper",
      .vendor = VENDOR_NVIDIA,
      .capability_least = 90,
      .capability_most = 90,
      .needs = e4m3_needs,
      .can = e4m3_can,
      .workspace = VENDOR_NVIDIA_OP(attention_e4m3_fwd_workspace),
      .run = VENDOR_NVIDIA_OP(attention_e4m3_fwd),
      .work = WORK_ATTENTION },
};
const KernelTable attention_e4m3_kernels = { NULL, e4m3_rows, 1 };

Status attention_fwd_gpu(Exec *ex, const void *args)
{
    int asked;
    const KernelTable *t = attention_fwd_table(args, &asked);
    return kernels_run(ex, t, "attention_fwd", asked, args);
}

Status attention_bwd_gpu(Exec *ex, const void *args)
{
    const AttentionBwd *a = args;
    return kernels_run(ex, &attention_bwd_kernels, "attention_bwd", (int)a->kernel, a);
}

size_t attention_fwd_gpu_workspace(const Exec *ex, const void *args)
{
    int asked;
    (void)ex;
    const KernelTable *t = attention_fwd_table(args, &asked);
    return kernels_workspace(t, asked, args);
}

size_t attention_bwd_gpu_workspace(const Exec *ex, const void *args)
{
    const AttentionBwd *a = args;
    (void)ex;
    return kernels_workspace(&attention_bwd_kernels, (int)a->kernel, a);
}
