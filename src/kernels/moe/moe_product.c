/*
 * moe_product: products of routed rows on the CPU. Rows are gathered, multiplied and finished tile by tile, while a
 * tile is in the cache. So what an op does with a row of the product needs no extra pass over memory. Also the views of
 * the two ops whose product is only stored; moe_up.c and moe_down.c have the others.
 */
#include "kernels/moe/moe_product.h"

#include "kernels/core/cpu_math.h"
#include "kernels/dense/gemm.h"
#include "kernels/dense/scaled.h"
#include "kernels/moe/moe_tiles.h"

#include <string.h>

enum { PIECE = 256 }; /* columns that a thread holds on the stack */

/* The product of a tile of `rows` rows, without pointers. c is f32 if the op still works on it,
 * else it has the output's type. */
static GemmArgs tile_gemm(const MoeProduct *p, int64_t rows)
{
    bool stored = p->epilogue == MOE_STORE && !moe_product_biased(p);
    Dtype c = stored ? p->act : DTYPE_F32;
    int64_t ldb = p->turned ? p->I : p->O;
    return (GemmArgs){ .m = rows,
                       .n = p->O,
                       .k = p->I,
                       .a = { NULL, p->in->data.dtype, p->I, false },
                       .b = { NULL, p->w->data.dtype, ldb, p->turned },
                       .c = { NULL, c, p->O } };
}

static bool is_scaled(const MoeProduct *p) { return p->in->kind != OPERAND_PLAIN; }

static bool gathers(const MoeProduct *p)
{
    return p->row_token != NULL && p->row_token->data != NULL;
}

/* The product of a tile of 8-bit rows; c as tile_gemm has it. Only a stored product reads rows of a pool. */
static ScaledArgs tile_scaled(const MoeProduct *p, const MoeTile *tile, const GemmArgs *g)
{
    const int32_t *index = gathers(p) ? p->row_token->data : NULL;
    return (ScaledArgs){ .m = tile->n,
                         .n = p->O,
                         .k = p->I,
                         .a = { .q = p->in,
                                .first = tile->first +
                                         (p->epilogue == MOE_STORE ? moe_first(p->first) : 0),
                                .index = index == NULL ? NULL : index + tile->first },
                         .b = { .q = p->w, .first = tile->expert * p->O },
                         .c = g->c };
}

/* A thread's scratch. */
typedef struct Space {
    size_t c, gemm, total; /* offsets of c and of gemm's part; the gathered rows come first */
    bool in_place;         /* c is made in the output itself */
} Space;

static Space space_of(const Exec *ex, const MoeProduct *p)
{
    GemmArgs g = tile_gemm(p, moe_tile_rows(p->rows));
    size_t gathered = (size_t)(g.m * g.k) * dtype_bytes(g.a.type);
    size_t sums = (size_t)(g.m * g.n) * dtype_bytes(g.c.type);
    Space s = { .in_place = p->out != NULL && p->out->dtype == g.c.type };
    s.c = gathers(p) && !is_scaled(p) ? arena_rounded(gathered) : 0;
    s.gemm = s.c + (s.in_place ? 0 : arena_rounded(sums));
    MoeTile tile = { .n = g.m };
    MoeProduct sized = *p;
    sized.first = NULL; /* not known where only sizes are counted */
    ScaledArgs scaled = tile_scaled(&sized, &tile, &g);
    s.total = s.gemm +
              arena_rounded(is_scaled(p) ? scaled_workspace(ex, &scaled) : gemm_workspace(ex, &g));
    return s;
}

/* c_r += bias_e for the tile's rows. */
static void bias_add(const MoeProduct *p, const MoeTile *tile, float *c)
{
    float buffer[PIECE];
    for (int64_t at = 0; at < p->O; at += PIECE) {
        int64_t n = p->O - at < PIECE ? p->O - at : PIECE;
        const float *b = row_load(p->bias, tile->expert * p->O + at, n, buffer);
        for (int64_t r = 0; r < tile->n; r++) {
            float *row = c + r * p->O + at;
#pragma omp simd
            for (int64_t i = 0; i < n; i++) row[i] += b[i];
        }
    }
}

/* Bias and epilogue of a tile; c holds the products of its rows. */
static Status tile_finish(const MoeProduct *p, const MoeTile *tile, void *c)
{
    if (moe_product_biased(p)) bias_add(p, tile, c);
    for (int64_t r = 0; r < tile->n; r++) {
        const float *row = (const float *)c + r * p->O;
        if (p->epilogue != MOE_STORE)
            TRY(p->finish(p->args, tile->expert, tile->first + r, row));
        else if (moe_product_biased(p))
            row_store(p->out, (tile->first + r) * p->O, p->O, row);
    }
    return OK;
}

static Status product_tile_run(Exec *ex, const void *args, const MoeTile *tile, char *space)
{
    const MoeProduct *p = args;
    Space s = space_of(ex, p);
    GemmArgs g = tile_gemm(p, tile->n);
    MoeTile rows = *tile;
    int64_t first = moe_first(p->first), out = p->epilogue == MOE_STORE ? 0 : first;
    /* With MOE_STORE it is the input whose rows begin at `first` of a pool, else the result. */
    rows.cols = g.k;
    if (p->epilogue == MOE_STORE) rows.first += first;
    MoeRead in;
    g.c.at = s.in_place ? tensor_at(p->out, (tile->first + out) * g.n) : space + s.c;
    if (is_scaled(p)) {
        ScaledArgs scaled = tile_scaled(p, tile, &g);
        if (gathers(p))
            TRY(moe_tokens_check(p->op, p->row_token, tile, tensor_elems(&p->in->data) / p->I));
        TRY(scaled_run(ex, &scaled, space + s.gemm));
        return tile_finish(p, tile, g.c.at);
    }
    TRY(moe_gather(p->op, &p->in->data, p->row_token, &rows, space, &in));
    g.a.at = in.data;
    g.a.ld = in.ld;
    g.b.at = tensor_at(&p->w->data, tile->expert * g.k * g.n);
    TRY(gemm_run(ex, &g, space + s.gemm));
    return tile_finish(p, tile, g.c.at);
}

Status moe_product_cpu(Exec *ex, const MoeProduct *p)
{
    if (p->narrow) return moe_apart_run(ex, p);
    const Tensor *pool = p->epilogue == MOE_STORE ? &p->in->data : p->pool;
    MoeTiles t = { p->op,    p,   p->offsets, p->rows, 0, product_tile_run, space_of(ex, p).total,
                   p->first, pool };
    if (p->zeroed != NULL) memset(p->zeroed->data, 0, tensor_bytes(p->zeroed));
    return moe_tiles_run(ex, &t);
}

size_t moe_product_workspace(const Exec *ex, const MoeProduct *p)
{
    return moe_narrow_workspace(ex, p, (size_t)ex->threads * space_of(ex, p).total);
}

Dtype moe_act_type(const Operand *a, const Operand *b, const Operand *c, bool f32)
{
    if (a->kind == OPERAND_PLAIN) return a->data.dtype;
    if (b->kind == OPERAND_PLAIN) return b->data.dtype;
    if (c != NULL && c->kind == OPERAND_PLAIN) return c->data.dtype;
    return f32 ? DTYPE_F32 : DTYPE_BF16;
}

Status moe_result_check(const char *op, const char *port, const Operand *q, int64_t rows,
                        int64_t cols, Dtype act)
{
    if (q->transposed) return FAIL(ERR_ARG, "%s: %s is marked as transposed", op, port);
    return operand_expect_type(op, port, q, rows, cols, act, OPERANDS_PLAIN | 1 << OPERAND_1X128);
}

Status moe_columns_check(const char *op, const char *port, const Operand *q, const Rows *rows,
                         int64_t experts, int64_t cols)
{
    if (!q->transposed || q->kind != OPERAND_1X128)
        return FAIL(ERR_ARG, "%s: %s must be transposed, with scales of 1 x 128", op, port);
    return operand_expect(op, port, q, cols, operand_group_columns(rows->bound, experts),
                          1 << OPERAND_1X128);
}

double moe_result_bytes(const Operand *q, int64_t cols)
{
    double bytes = (double)cols * (double)dtype_bytes(q->data.dtype);
    return q->kind == OPERAND_PLAIN ? bytes
                                    : bytes + (double)cols / OPERAND_BLOCK * (double)sizeof(float);
}

Status moe_product_check(const MoeProduct *p)
{
    const Tensor *in = &p->in->data;
    int64_t E = tensor_elems(p->offsets) - 1, I = p->I, O = p->O;
    TRY(moe_dims_check(p->op, E, I, O));
    int64_t R = p->R;
    Dtype act = p->act;
    unsigned takes = is_scaled(p) ? OPERANDS_SCALED : OPERANDS_PLAIN;
    bool k_last = p->turned || is_scaled(p); /* each row of w has the terms of one column of c */
    if (is_scaled(p) && p->w->transposed == p->turned)
        return FAIL(ERR_ARG, "%s: w with scales must %sbe transposed here", p->op,
                    p->turned ? "not " : "");
    TRY(operand_expect_type(p->op, p->in_port, p->in,
                            p->row_token == NULL && p->first == NULL ? R : -1, I, act, takes));
    TRY(operand_expect_type(p->op, "w", p->w, E * (k_last ? O : I), k_last ? I : O, act, takes));
    if (moe_product_biased(p)) TRY(op_expect(p->op, "bias", p->bias, E, O, act));
    bool blocks = p->in->kind == OPERAND_1X128 && p->w->kind == OPERAND_128X128;
    if (p->narrow && (!blocks || p->width % OPERAND_BLOCK != 0))
        return FAIL(ERR_ARG,
                    "%s: 8-bit results need %s with scales of 1 x 128, w with scales of 128 x 128, "
                    "and experts whose width is a multiple of 128, not %lld",
                    p->op, p->in_port, (long long)p->width);
    if (p->check != NULL) TRY(p->check(p->args, R));
    bool pooled = p->epilogue == MOE_STORE && p->first != NULL;
    return moe_rows_check(p->op, p->offsets, p->row_token, p->rows, R,
                          pooled ? R : tensor_elems(in) / I);
}

/* Bytes: the weights of all experts, and the rows. A gathered token counts once, because later
 * reads of it hit the cache. */
OpCost moe_product_cost(const MoeProduct *p)
{
    double rows = moe_rows_expected(p->rows);
    double in = p->row_token == NULL ? operand_rows_bytes(p->in, rows) : operand_bytes(p->in);
    if (moe_product_biased(p)) in += (double)tensor_bytes(p->bias);
    OpWork work = p->turned ? WORK_GROUPED : WORK_GROUPED_INPUT;
    return moe_rows_cost(work, rows, p->w, (double)p->I, (double)p->O,
                         in + operand_bytes(p->w) + rows * p->row_bytes);
}

static int64_t rows_of(const Tensor *t)
{
    int64_t columns = tensor_cols(t);
    return columns == 0 ? 0 : tensor_elems(t) / columns;
}

MoeProduct moe_down_fwd_view(const MoeDownFwd *a)
{
    return (MoeProduct){
        { "moe_down_fwd", "act", &a->act, &a->w, &a->offsets, NULL, &a->rows, NULL },
        { tensor_cols(&a->act.data), tensor_cols(&a->out), true, &a->bias },
        { &a->out, a->out.dtype, rows_of(&a->out), tensor_cols(&a->out), false, &a->out, NULL, NULL,
          moe_rows_bytes(&a->out, 1) },
        { .epilogue = MOE_STORE },
    };
}

MoeProduct moe_up_bwd_input_view(const MoeUpBwdInput *a)
{
    return (MoeProduct){
        { "moe_up_bwd_input", "dpre", &a->dpre, &a->w, &a->offsets, NULL, &a->rows, a->rows.first },
        { tensor_cols(&a->dpre.data), tensor_cols(&a->dx), false, NULL },
        { &a->dx, a->dx.dtype, rows_of(&a->dx), tensor_cols(&a->dx), false, &a->dx, NULL, NULL,
          moe_rows_bytes(&a->dx, 1) },
        { .epilogue = MOE_STORE },
    };
}

OP_PORTS(moe_down_fwd, IN_OPERAND(MoeDownFwd, act), IN_OPERAND(MoeDownFwd, w),
         IN(MoeDownFwd, offsets), OUT(MoeDownFwd, out), IN_OPT(MoeDownFwd, bias),
         ROWS(MoeDownFwd, rows));

OP_PORTS(moe_up_bwd_input, IN_OPERAND(MoeUpBwdInput, dpre), IN_OPERAND(MoeUpBwdInput, w),
         IN(MoeUpBwdInput, offsets), OUT(MoeUpBwdInput, dx), ROWS(MoeUpBwdInput, rows));
