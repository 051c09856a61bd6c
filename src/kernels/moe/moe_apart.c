/*
 * moe_apart: a call of moe_up_fwd or moe_down_bwd_input with 8-bit results as several ops: dequantize,
 * the plain op into the workspace, quantize. Each runs on the backend of the call. CPUs run this, and
 * GPUs where no kernel does all of it at once (product_kernels.c).
 */
#include "kernels/core/op.h"
#include "kernels/moe/moe_product.h"
#include "kernels/quant/quant.h"

enum { NARROW_MOST = 3 };

/* The parts of a call. A plain tensor in the workspace stands for each 8-bit one. */
typedef struct Apart {
    OpId id;
    union {
        MoeUpFwd up;
        MoeDownBwdInput down;
    } plain;
    Dequantize wide; /* not given: pre is plain */
    Quantize narrow[NARROW_MOST];
    int n;
    char *space;  /* NULL: only sizes are asked for */
    size_t bytes; /* of the tensors */
} Apart;

static Tensor space_tensor(Apart *a, Dtype type, int64_t rows, int64_t cols)
{
    Tensor t = { a->space == NULL ? NULL : a->space + a->bytes, type, 2, { rows, cols } };
    a->bytes += arena_rounded(tensor_bytes(&t));
    return t;
}

/* What quantizes x, whose rows are the routed ones. Rows past the last group belong to no expert:
 * nothing wrote them. */
static Quantize *narrow_add(Apart *a, Tensor x, const Rows *rows, const Tensor *offsets, bool pow2)
{
    Quantize *q = &a->narrow[a->n++];
    *q = (Quantize){ .x = operand_plain(x), .rows = *rows, .pow2 = pow2 };
    q->rows.first = NULL;
    if (q->rows.device == NULL)
        q->rows.device = (const int32_t *)offsets->data + tensor_elems(offsets) - 1;
    return q;
}

static void up_apart(const MoeUpFwd *u, Dtype act, Apart *a)
{
    int64_t F = tensor_cols(&u->act.data), R = u->rows.bound;
    MoeUpFwd *plain = &a->plain.up;
    *plain = *u;
    if (u->pre.kind != OPERAND_PLAIN) {
        plain->pre = operand_plain(space_tensor(a, act, R, 2 * F));
        plain->rows.first = NULL;
        Quantize *q = narrow_add(a, plain->pre.data, &u->rows, &u->offsets, u->pow2);
        q->quant = u->pre;
        q->to = u->rows.first;
    }
    if (u->act.kind != OPERAND_PLAIN) {
        plain->act = operand_plain(space_tensor(a, act, R, F));
        Quantize *q = narrow_add(a, plain->act.data, &u->rows, &u->offsets, u->pow2);
        q->quant = u->act;
    }
}

/* dpre takes the place of the dequantised pre, as the plain op allows. */
static void down_apart(const MoeDownBwdInput *d, Dtype act, Apart *a)
{
    int64_t F = tensor_cols(&d->pre.data) / 2, R = d->rows.bound;
    bool pre = d->pre.kind != OPERAND_PLAIN, dpre = d->dpre.kind != OPERAND_PLAIN;
    MoeDownBwdInput *plain = &a->plain.down;
    *plain = *d;
    plain->dpre_columns = (Operand){ 0 };
    Operand wide = pre || dpre ? operand_plain(space_tensor(a, act, R, 2 * F)) : d->dpre;
    if (pre) {
        plain->pre = wide;
        a->wide = (Dequantize){ .quant = d->pre, .y = wide.data, .rows = d->rows };
    }
    if (dpre) plain->dpre = wide;
    if (pre || dpre) plain->rows.first = NULL;
    if (dpre || d->dpre_columns.data.data != NULL) {
        Quantize *q = narrow_add(a, plain->dpre.data, &d->rows, &d->offsets, d->pow2);
        if (dpre) q->quant = d->dpre;
        q->to = d->rows.first;
        q->rows.first = plain->rows.first;
        q->transposed = d->dpre_columns;
        if (q->transposed.data.data != NULL) q->offsets = d->offsets;
    }
    if (d->wact.kind != OPERAND_PLAIN) {
        plain->wact = operand_plain(space_tensor(a, act, R, F));
        Quantize *q = narrow_add(a, plain->wact.data, &d->rows, &d->offsets, d->pow2);
        q->transposed = d->wact;
        q->offsets = d->offsets;
    }
}

static Apart apart_of(const MoeProduct *p, void *space)
{
    bool up = p->epilogue == MOE_SWIGLU;
    Apart a = { .id = up ? OP_MOE_UP_FWD : OP_MOE_DOWN_BWD_INPUT, .space = space };
    if (up)
        up_apart(p->args, p->act, &a);
    else
        down_apart(p->args, p->act, &a);
    return a;
}

static size_t part_space(const Exec *ex, OpId id, const void *args)
{
    const OpDesc *op = op_desc(id);
    OpSpace *space = ex->gpu != NULL ? op->gpu_workspace : op->workspace;
    return space == NULL ? 0 : space(ex, args);
}

size_t moe_apart_workspace(const Exec *ex, const MoeProduct *p)
{
    Apart a = apart_of(p, NULL);
    size_t most = part_space(ex, a.id, &a.plain);
    for (int i = 0; i < a.n; i++) {
        size_t bytes = part_space(ex, OP_QUANTIZE, &a.narrow[i]);
        most = bytes > most ? bytes : most;
    }
    return a.bytes + most;
}

static Status part_run(Exec *ex, OpId id, const void *args)
{
    const OpDesc *op = op_desc(id);
    return (ex->gpu != NULL ? op->gpu : op->cpu)(ex, args);
}

Status moe_apart_run(Exec *ex, const MoeProduct *p)
{
    Apart a = apart_of(p, ex->workspace);
    void *whole = ex->workspace;
    ex->workspace = (char *)whole + a.bytes;
    Status s = OK;
    if (a.wide.y.data != NULL) s = part_run(ex, OP_DEQUANTIZE, &a.wide);
    if (s == OK) s = part_run(ex, a.id, &a.plain);
    for (int i = 0; i < a.n && s == OK; i++) s = part_run(ex, OP_QUANTIZE, &a.narrow[i]);
    ex->workspace = whole;
    return s;
}
