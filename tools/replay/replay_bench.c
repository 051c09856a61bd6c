/* replay_bench: writes operators of a trace as rows of `bench shapes --list`. A row names the op of
 * ours that does the same work on the same sizes, or one that moves as many bytes: a layer norm is
 * timed as an rmsnorm, a product of elements as a sum. Arguments are known by their positions
 * (schemas.def). Nothing is timed here. */
#include "replay/replay.h"

#include <stdio.h>
#include <string.h>

/* Sizes by the letters of shapes/shapes.def; 0: the case has no such size. */
typedef struct Row {
    const char *op; /* a case of shapes/shapes.def */
    int64_t n, d, f, e, k, b, t, h;
} Row;

/* The arguments of a call, with the sizes of tensors as numbers. rank -1: not a tensor. */
typedef struct Mapped {
    const OpArg *arg;
    int args;
    int64_t dim[OP_ARGS_MOST][REPLAY_DIMS_MAX];
    int rank[OP_ARGS_MOST];
} Mapped;

/* Fills *row. Returns NULL, or why there is no row. at: positions of arguments, from the table
 * below. */
typedef const char *MapFn(const Mapped *m, const int *at, Row *row);

static const char SIZES[] = "sizes that are not those of this operator";

/* (m, k) x (k, n). at[0]: the left side, which a bias may precede. */
static const char *map_product(const Mapped *m, const int *at, Row *row)
{
    const int64_t *a = m->dim[at[0]], *b = m->dim[at[0] + 1];
    if (m->rank[at[0]] != 2 || m->rank[at[0] + 1] != 2 || a[1] != b[0]) return SIZES;
    *row = (Row){ .op = "linear_fwd", .n = a[0], .d = a[1], .e = b[1] };
    return NULL;
}

/* (g, m, k) x (g, k, n): each of the g products is timed as a group of a grouped product. */
static const char *map_batched(const Mapped *m, const int *at, Row *row)
{
    const int64_t *a = m->dim[at[0]], *b = m->dim[at[0] + 1];
    if (m->rank[at[0]] != 3 || m->rank[at[0] + 1] != 3 || a[0] != b[0] || a[2] != b[1])
        return SIZES;
    *row = (Row){ .op = "fwd2", .n = a[0] * a[1], .d = b[2], .f = a[2], .e = a[0], .k = 1 };
    return NULL;
}

/* (m, k) rows in g groups x (g, k, n) or (g, n, k). */
static const char *map_grouped(const Mapped *m, const int *at, Row *row)
{
    const int64_t *a = m->dim[at[0]], *b = m->dim[at[0] + 1];
    bool plain = b[1] == a[1];
    if (m->rank[at[0]] != 2 || m->rank[at[0] + 1] != 3 || (!plain && b[2] != a[1])) return SIZES;
    *row = (Row){ .op = "fwd2", .n = a[0], .d = plain ? b[2] : b[1], .f = a[1], .e = b[0], .k = 1 };
    return NULL;
}

/* at: the position of the query; 1 if heads come before positions; the position of is_causal; 1 if
 * it is a backward. Our attention is causal, with as many key heads as query heads here. */
static const char *map_attention(const Mapped *m, const int *at, Row *row)
{
    int q = at[0], heads = at[1] ? 1 : 2;
    const int64_t *a = m->dim[q], *k = m->dim[q + 1], *v = m->dim[q + 2];
    const char *causal = at[2] < m->args ? m->arg[at[2]].value : NULL;
    if (m->rank[q] != 4 || m->rank[q + 1] != 4 || m->rank[q + 2] != 4) return SIZES;
    if (a[1] != k[1] || a[2] != k[2]) return "keys of other lengths or fewer heads than queries";
    if (causal == NULL) return "the trace does not say whether it is causal";
    if (strcasecmp(causal, "true") != 0 && strcmp(causal, "1") != 0)
        return "attention to later positions";
    *row = (Row){ .op = at[3] ? "attention_bwd" : "attention_fwd",
                  .b = a[0],
                  .t = a[3 - heads],
                  .h = a[heads],
                  .d = a[3],
                  .f = v[3] };
    return NULL;
}

/* All sizes but the last make rows. at: the position of the tensor; 1 if it is a backward. */
static const char *map_norm(const Mapped *m, const int *at, Row *row)
{
    int rank = m->rank[at[0]];
    if (rank < 1) return SIZES;
    *row =
        (Row){ .op = at[1] ? "rmsnorm_bwd" : "rmsnorm_fwd", .n = 1, .d = m->dim[at[0]][rank - 1] };
    for (int i = 0; i + 1 < rank; i++) row->n *= m->dim[at[0]][i];
    return NULL;
}

/* Two tensors of the same sizes. Broadcasts are left out: they move fewer bytes. */
static const char *map_sum(const Mapped *m, const int *at, Row *row)
{
    const int zero[] = { at[0], 0 };
    if (m->rank[0] < 1 || m->rank[0] != m->rank[1] ||
        memcmp(m->dim[0], m->dim[1], (size_t)m->rank[0] * sizeof(int64_t)) != 0)
        return "tensors of different sizes, or a number";
    const char *why = map_norm(m, zero, row);
    row->op = "add";
    return why;
}

/* A copy into another type. */
static const char *map_conversion(const Mapped *m, const int *at, Row *row)
{
    if (m->rank[1] < 0 || strcmp(m->arg[0].type, m->arg[1].type) == 0)
        return "a copy without a change of type";
    const char *why = map_sum(m, at, row);
    row->op = "cast";
    return why == NULL ? NULL : "a copy of other sizes";
}

static const struct {
    const char *name; /* the whole name, or with a * before it, its end */
    MapFn *map;
    int at[4];
} maps[] = {
    { "aten::mm", map_product, { 0 } },
    { "aten::addmm", map_product, { 1 } },
    { "aten::bmm", map_batched, { 0 } },
    { "aten::baddbmm", map_batched, { 1 } },
    { "aten::_grouped_mm", map_grouped, { 0 } },
    { "*grouped_gemm", map_grouped, { 0 } },
    { "aten::_scaled_dot_product_flash_attention", map_attention, { 0, 1, 4, 0 } },
    { "aten::_flash_attention_forward", map_attention, { 0, 0, 8, 0 } },
    { "aten::_scaled_dot_product_efficient_attention", map_attention, { 0, 1, 6, 0 } },
    { "aten::_scaled_dot_product_cudnn_attention", map_attention, { 0, 1, 6, 0 } },
    { "aten::_efficient_attention_forward", map_attention, { 0, 0, 9, 0 } },
    { "aten::_scaled_dot_product_flash_attention_backward", map_attention, { 1, 1, 11, 1 } },
    { "aten::_flash_attention_backward", map_attention, { 1, 0, 11, 1 } },
    { "aten::native_layer_norm", map_norm, { 0, 0 } },
    { "aten::_fused_rms_norm", map_norm, { 0, 0 } },
    { "aten::rms_norm", map_norm, { 0, 0 } },
    { "aten::native_layer_norm_backward", map_norm, { 1, 1 } },
    { "aten::add", map_sum, { 0 } },
    { "aten::add_", map_sum, { 0 } },
    { "aten::sub", map_sum, { 0 } },
    { "aten::mul", map_sum, { 0 } },
    { "aten::mul_", map_sum, { 0 } },
    { "aten::div", map_sum, { 0 } },
    { "aten::copy_", map_conversion, { 0 } },
};

static const char *map_op(const char *name, const Mapped *m, Row *row)
{
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
        const char *of = maps[i].name;
        if (*of == '*' ? text_ends(name, of + 1) : strcmp(name, of) == 0)
            return maps[i].map(m, maps[i].at, row);
    }
    return "no op of ours does this";
}

/* A size below 0 was not recorded; a size of 0 does no work. */
static bool all_positive(const Row *r)
{
    const int64_t size[] = { r->n, r->d, r->f, r->e, r->b, r->t, r->h };
    for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
        if (size[i] < 0) return false;
    }
    return r->d > 0 && (r->n > 0 || r->b * r->t * r->h > 0);
}

/* One JSON object on a line. "shape" and "type" are for people; traced_s is the time of one call in
 * the trace. */
static Status put_row(Text *out, const Replay *r, const ReplayOp *op, const Mapped *m,
                      const Row *row)
{
    const struct {
        char name;
        int64_t size;
    } size[] = { { 'n', row->n }, { 'd', row->d }, { 'f', row->f }, { 'e', row->e },
                 { 'k', row->k }, { 'b', row->b }, { 't', row->t }, { 'h', row->h } };
    const char *name = event_name(r->events, op->event);
    char shape[128];
    (void)snprintf(shape, sizeof shape, "%s %s %s", text_starts(name, "aten::") ? name + 6 : name,
                   m->arg[0].dims, m->args > 1 ? m->arg[1].dims : "");
    TRY(text_json(out, "{\"op\":%s,\"shape\":%s,\"type\":%s", row->op, shape, m->arg[0].type));
    for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
        if (size[i].size > 0)
            TRY(text_json(out, ",\"%c\":%lld", size[i].name, (long long)size[i].size));
    }
    return text_json(out, ",\"count\":%lld,\"traced_s\":%g}\n", (long long)op->calls,
                     op->device_us / (double)op->calls / 1e6);
}

/* An operator without a row is counted with the reason. */
Status replay_bench(const Replay *r, Arena *scratch, Text *out, ReplayCount *count)
{
    for (int64_t i = 0; i < r->n; i++) {
        ArenaMark mark = arena_mark(scratch);
        const char *name = event_name(r->events, r->op[i].event);
        OpArg arg[OP_ARGS_MOST];
        Mapped m = { .arg = arg };
        Row row = { 0 };
        TRY(replay_args(r, &r->op[i], scratch, arg, &m.args));
        for (int k = 0; k < OP_ARGS_MOST; k++)
            m.rank[k] = op_sizes(arg[k].dims, m.dim[k], REPLAY_DIMS_MAX);
        const char *why =
            m.args < 0 ? "its arguments are not what a profiler writes" : map_op(name, &m, &row);
        if (why == NULL && !all_positive(&row)) why = "a tensor without elements";
        if (why == NULL) TRY(put_row(out, r, &r->op[i], &m, &row));
        replay_count(r, &r->op[i], why, count);
        arena_release(scratch, mark);
    }
    return OK;
}
