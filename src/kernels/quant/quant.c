/*
 * quant: check, cost and CPU version of quantize and dequantize. All kinds of scales are one case:
 * data is cut into blocks of height x width elements with one scale each. The largest magnitude is
 * first taken for each row of a block, so that rows can be spread over threads for every kind. A
 * maximum does not depend on its order, so bits do not depend on threads.
 *
 * A transposed operand is made in strips: up to 128 rows of x (32 of OPERAND_1X32), which become as many
 * columns of data. A strip has one scale for each row of data.
 */
#include "kernels/quant/quant.h"

#include "engine/base/order.h"
#include "kernels/core/cpu_math.h"
#include "kernels/core/op.h"
#include "kernels/moe/moe_tiles.h"

#include <float.h>

enum {
    PIECE = 256,
    TILE = 64
}; /* elements that a thread widens at a time; columns of a strip's tile */

/* Rows of x that a strip of a transposed operand reads, and its first column of data. */
typedef struct Strip {
    int64_t matrix, group, first, n, column;
} Strip;

/* What both operands of a call read, and where their amax lies in the workspace. */
typedef struct Source {
    const Quantize *a;
    const int32_t *row_token;    /* NULL: row r is row pool_first + r of x */
    int64_t D, pool_first, live; /* live: rows in use, of all matrices */
    int64_t to;                  /* the row of quant that row 0 is */
} Source;

static bool has_rows(const Quantize *a) { return a->quant.data.data != NULL; }
static bool has_columns(const Quantize *a) { return a->transposed.data.data != NULL; }
static bool has_groups(const Quantize *a) { return a->offsets.data != NULL; }

static int64_t groups_of(const Quantize *a)
{
    return has_groups(a) ? tensor_elems(&a->offsets) - 1 : 0;
}

/* R: the rows of the operands, of all matrices. */
static int64_t row_count(const Quantize *a)
{
    int64_t d = tensor_cols(&a->x.data);
    return a->rows.bound > 0 ? a->rows.bound : d == 0 ? 0 : tensor_elems(&a->x.data) / d;
}

static Source source_of(const Quantize *a)
{
    Source s = { .a = a, .row_token = a->row_token.data, .D = tensor_cols(&a->x.data) };
    s.pool_first = moe_first(a->rows.first);
    s.to = moe_first(a->to);
    s.live = row_count(a);
    if (a->rows.device != NULL) s.live = least(s.live, *a->rows.device);
    return s;
}

static int64_t source_row(const Source *s, int64_t r)
{
    return s->row_token != NULL ? s->row_token[r] : s->pool_first + r;
}

/* n numbers of a row of x from column j on, at most PIECE. Those of 8-bit rows lie in one block of
 * scales; others are rounded. */
static const float *source_load(const Source *s, int64_t row, int64_t j, int64_t n, float *buffer)
{
    uint16_t low[PIECE];
    const Operand *x = &s->a->x;
    const float *v = row_load(&x->data, row * s->D + j, n, buffer);
    if (x->kind != OPERAND_PLAIN) {
        const float *scale = x->scale.data;
        float of_block = scale[row * tensor_cols(&x->scale) + j / OPERAND_BLOCK];
#pragma omp simd
        for (int64_t k = 0; k < n; k++) buffer[k] *= of_block;
        return buffer;
    }
    if (s->a->round == DTYPE_F32 || x->data.dtype != DTYPE_F32) return v;
    dtype_from_f32(low, s->a->round, v, n);
    dtype_to_f32(buffer, low, s->a->round, n);
    return buffer;
}

/* ---- scales ---- */

/* The largest magnitude, as bits: magnitudes have the order of their bits. The bits of NaNs are
 * above all others, so NaNs are left out by a comparison. */
static uint32_t max_bits(const float *x, int64_t n)
{
    uint32_t most = 0;
#pragma omp simd reduction(max : most)
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = f32_bits(x[i]) & 0x7FFFFFFFu;
        bits = bits > 0x7F800000u ? 0 : bits;
        most = bits > most ? bits : most;
    }
    return most;
}

float quantize_scale(float amax, float largest, bool pow2)
{
    float quotient = amax / largest;
    if (amax == 0) return 1;
    if (quotient < FLT_MIN) return FLT_MIN; /* a subnormal scale could round to 0 */
    uint32_t bits = f32_bits(quotient), mantissa = bits & 0x007FFFFFu;
    if (pow2 && mantissa != 0) bits = (bits & 0x7F800000u) + 0x00800000u;
    return f32_from_bits(bits);
}

/* How the scales of an operand follow from its largest magnitudes. */
typedef struct ScaleRule {
    float largest;
    bool pow2, mx;
} ScaleRule;

static ScaleRule rule_of(const Operand *q, bool pow2)
{
    return (ScaleRule){ dtype_largest(q->data.dtype), pow2, q->kind == OPERAND_1X32 };
}

/* A normal f32 rounded down to a power of two. */
static float power_below(float v) { return f32_from_bits(f32_bits(v) & 0x7F800000u); }

static float scale_of(float amax, ScaleRule rule)
{
    if (!rule.mx || amax < FLT_MIN) return quantize_scale(amax, rule.largest, rule.pow2);
    return quantize_scale(power_below(amax), power_below(rule.largest), false);
}

/* The scales of one matrix of n rows; amax has one for each row and column of blocks. */
static void set_scales(const OperandGrid *g, int64_t n, const float *amax, ScaleRule rule,
                       float *scale)
{
    for (int64_t b = 0; b < g->rows; b++) {
        for (int64_t c = 0; c < g->cols; c++) {
            float most = 0;
            int64_t end = least((b + 1) * g->height, n);
            for (int64_t i = b * g->height; i < end; i++) {
                float row = amax[i * g->cols + c];
                most = row > most ? row : most;
            }
            scale[b * g->cols + c] = scale_of(most, rule);
        }
    }
}

static void divide(const float *x, float scale, float largest, int64_t n, float *out)
{
#pragma omp simd
    for (int64_t k = 0; k < n; k++) {
        float v = x[k] / scale;
        v = v > largest ? largest : v; /* comparisons are false for NaN, which stays NaN */
        out[k] = v < -largest ? -largest : v;
    }
}

/* The first infinity of the rows in use. */
static Status refuse_infinity(const Exec *ex, const Source *s)
{
    const char *of = s->a->of;
    for (int64_t r = 0; r < s->live; r++) {
        for (int64_t j = 0; j < s->D; j++) {
            float buffer = 0;
            if (!isinf(*source_load(s, source_row(s, r), j, 1, &buffer))) continue;
            return FAIL(ERR_NUMERIC,
                        "step %lld, layer %d: quantize: x%s%s is infinite at row %lld, column "
                        "%lld: it has no scale",
                        (long long)ex->step, ex->layer, of == NULL ? "" : ", ",
                        of == NULL ? "" : of, (long long)source_row(s, r), (long long)j);
        }
    }
    return OK;
}

static bool all_finite(const float *amax, int64_t n)
{
    bool finite = true;
    for (int64_t i = 0; i < n; i++) finite = finite && isfinite(amax[i]);
    return finite;
}

/* ---- rows ---- */

/* amax of row r, for each column of blocks. */
static void row_amax(const Source *s, const OperandGrid *g, int64_t r, float *amax)
{
    float buffer[PIECE];
    int64_t row = source_row(s, r);
    for (int64_t c = 0; c < g->cols; c++) {
        uint32_t most = 0;
        int64_t end = least((c + 1) * g->width, g->d);
        for (int64_t j = c * g->width; j < end; j += PIECE) {
            int64_t n = least(PIECE, end - j);
            uint32_t bits = max_bits(source_load(s, row, j, n, buffer), n);
            most = bits > most ? bits : most;
        }
        amax[c] = f32_from_bits(most);
    }
}

/* The scales of row i of all matrices. */
static const float *row_scales(const Operand *q, const OperandGrid *g, int64_t i)
{
    int64_t block = i / g->n * g->rows + i % g->n / g->height;
    return (const float *)q->scale.data + block * g->cols;
}

static void quantize_row(const Source *s, const OperandGrid *g, float largest, int64_t r)
{
    const Operand *q = &s->a->quant;
    const float *scales = row_scales(q, g, s->to + r);
    float buffer[PIECE], scaled[PIECE];
    int64_t row = source_row(s, r);
    int64_t step = least(g->width, PIECE); /* pieces never straddle two blocks */
    for (int64_t j = 0; j < g->d; j += step) {
        int64_t n = least(step, g->d - j);
        const float *x = source_load(s, row, j, n, buffer);
        divide(x, scales[j / g->width], largest, n, scaled);
        row_store(&q->data, (s->to + r) * g->d + j, n, scaled);
    }
}

static Status quantize_rows(Exec *ex, const Source *s, float *amax)
{
    const Operand *q = &s->a->quant;
    OperandGrid g = operand_grid_of(q);
    const ScaleRule rule = rule_of(q, s->a->pow2);
    float *scale = q->scale.data;
    if (s->a->to != NULL) g.rows = s->live; /* the others belong to other calls */
#pragma omp parallel for schedule(static) num_threads(ex->threads)
    for (int64_t r = 0; r < s->live; r++) row_amax(s, &g, r, amax + r * g.cols);
    if (!all_finite(amax, s->live * g.cols)) return refuse_infinity(ex, s);
    for (int64_t m = 0; m < g.matrices; m++) {
        int64_t rows = least(g.n, s->live - m * g.n);
        set_scales(&g, rows > 0 ? rows : 0, amax + m * g.n * g.cols, rule,
                   scale + (m * g.rows + s->to) * g.cols);
    }
#pragma omp parallel for schedule(static) num_threads(ex->threads)
    for (int64_t r = 0; r < s->live; r++) quantize_row(s, &g, rule.largest, r);
    return OK;
}

/* ---- columns ---- */

/* The most rows of a strip. */
static int64_t strip_rows(const Quantize *a)
{
    return a->transposed.kind == OPERAND_1X32 ? OPERAND_BLOCK_MX : OPERAND_BLOCK;
}

/* Strips of all columns of data: each row of data has an amax for each. */
static int64_t column_blocks(const Quantize *a)
{
    return operand_whole_blocks(tensor_cols(&a->transposed.data)) / strip_rows(a);
}

/* The most strips of a call. */
static int64_t strips_most(const Quantize *a)
{
    return (a->x.data.rank == 3 ? a->x.data.dim[0] : 1) * column_blocks(a);
}

/* Cuts rows [first, end) into strips whose columns begin at `column`. The last ones may have no rows:
 * they make zeros up to the end of the block of 128 columns. */
static int64_t cut_rows(const Quantize *a, Strip *out, Strip at, int64_t end)
{
    int64_t n = 0, each = strip_rows(a), last = at.first + operand_whole_blocks(end - at.first);
    int64_t columns = tensor_cols(&a->transposed.data);
    for (; at.first < last && at.column < columns; at.first += each, at.column += each) {
        at.n = end > at.first ? least(each, end - at.first) : 0;
        out[n++] = at;
    }
    return n;
}

static int64_t make_strips(const Source *s, Strip *out)
{
    const int32_t *offsets = s->a->offsets.data;
    int64_t n = 0, column = 0, matrices = s->a->x.data.rank == 3 ? s->a->x.data.dim[0] : 1;
    if (!has_groups(s->a)) {
        int64_t each = matrices == 1 ? s->live : s->a->x.data.dim[1];
        for (int64_t m = 0; m < matrices; m++)
            n += cut_rows(s->a, out + n, (Strip){ .matrix = m, .first = m * each }, (m + 1) * each);
        return n;
    }
    for (int64_t e = 0; e < groups_of(s->a); e++) {
        int64_t first = least(offsets[e], s->live), end = least(offsets[e + 1], s->live);
        n += cut_rows(s->a, out + n, (Strip){ .group = e, .first = first, .column = column }, end);
        column += operand_whole_blocks(end - first);
    }
    return n;
}

/* A strip's rows of columns [j, j + n), transposed: row k of `tile` has column j + k. */
static void load_tile(const Source *s, const Strip *strip, int64_t j, int64_t n,
                      float tile[TILE][OPERAND_BLOCK])
{
    float buffer[TILE];
    for (int64_t i = 0; i < strip->n; i++) {
        const float *x = source_load(s, source_row(s, strip->first + i), j, n, buffer);
        for (int64_t k = 0; k < n; k++) tile[k][i] = x[k];
    }
    for (int64_t k = 0; k < n; k++)
        for (int64_t i = strip->n; i < OPERAND_BLOCK; i++) tile[k][i] = 0;
}

static void strip_amax(const Source *s, const Strip *strip, float *amax)
{
    float tile[TILE][OPERAND_BLOCK];
    int64_t blocks = column_blocks(s->a), block = strip->column / strip_rows(s->a);
    for (int64_t j = 0; j < s->D; j += TILE) {
        int64_t n = least(TILE, s->D - j);
        load_tile(s, strip, j, n, tile);
        for (int64_t k = 0; k < n; k++)
            amax[(strip->matrix * s->D + j + k) * blocks + block] =
                f32_from_bits(max_bits(tile[k], strip->n));
    }
}

/* The column of scales that a strip belongs to. */
static int64_t strip_scale(const Quantize *a, const Strip *strip)
{
    OperandKind kind = a->transposed.kind;
    if (kind == OPERAND_TENSOR) return 0;
    return kind == OPERAND_ROW ? strip->group : strip->column / strip_rows(a);
}

static OperandGrid columns_grid(const Quantize *a)
{
    return has_groups(a) ? operand_grid_groups(&a->transposed, groups_of(a))
                         : operand_grid_of(&a->transposed);
}

/* The scales of all strips: the amax of a block is the largest of its rows and strips. */
static void set_column_scales(const Source *s, const Strip *strip, int64_t n, const float *amax)
{
    const Quantize *a = s->a;
    const OperandGrid g = columns_grid(a);
    const ScaleRule rule = rule_of(&a->transposed, a->pow2);
    float *scale = a->transposed.scale.data;
    int64_t blocks = column_blocks(a), all = g.matrices * g.rows * g.cols;
    for (int64_t i = 0; i < all; i++) scale[i] = 0;
    for (int64_t i = 0; i < n; i++) {
        const Strip *t = &strip[i];
        for (int64_t d = 0; d < s->D; d++) {
            float most = amax[(t->matrix * s->D + d) * blocks + t->column / strip_rows(a)];
            float *to = &scale[(t->matrix * g.rows + d / g.height) * g.cols + strip_scale(a, t)];
            *to = most > *to ? most : *to;
        }
    }
    for (int64_t i = 0; i < all; i++) scale[i] = scale_of(scale[i], rule);
}

/* Whole blocks are written, so the columns between two groups become 0. */
static void quantize_strip(const Source *s, const OperandGrid *g, const Strip *strip)
{
    const Operand *q = &s->a->transposed;
    const float largest = dtype_largest(q->data.dtype), *scale = q->scale.data;
    int64_t columns = tensor_cols(&q->data), n = least(strip_rows(s->a), columns - strip->column);
    float tile[TILE][OPERAND_BLOCK], scaled[OPERAND_BLOCK];
    for (int64_t j = 0; j < s->D; j += TILE) {
        int64_t width = least(TILE, s->D - j);
        load_tile(s, strip, j, width, tile);
        for (int64_t k = 0; k < width; k++) {
            int64_t block = strip->matrix * g->rows + (j + k) / g->height;
            divide(tile[k], scale[block * g->cols + strip_scale(s->a, strip)], largest, n, scaled);
            row_store(&q->data, (strip->matrix * s->D + j + k) * columns + strip->column, n,
                      scaled);
        }
    }
}

static Status quantize_columns(Exec *ex, const Source *s, float *amax, Strip *strip)
{
    const OperandGrid g = columns_grid(s->a);
    int64_t n = make_strips(s, strip);
#pragma omp parallel for schedule(static) num_threads(ex->threads)
    for (int64_t i = 0; i < n; i++) strip_amax(s, &strip[i], amax);
    for (int64_t i = 0; i < n; i++) {
        for (int64_t d = 0; d < s->D; d++) {
            int64_t at = (strip[i].matrix * s->D + d) * column_blocks(s->a);
            if (!isfinite(amax[at + strip[i].column / strip_rows(s->a)]))
                return refuse_infinity(ex, s);
        }
    }
    set_column_scales(s, strip, n, amax);
#pragma omp parallel for schedule(static) num_threads(ex->threads)
    for (int64_t i = 0; i < n; i++) quantize_strip(s, &g, &strip[i]);
    return OK;
}

/* ---- the op ---- */

static size_t rows_space(const Quantize *a)
{
    if (!has_rows(a)) return 0;
    OperandGrid g = operand_grid_of(&a->quant);
    return arena_rounded((size_t)(row_count(a) * g.cols) * sizeof(float));
}

static size_t amax_space(const Quantize *a)
{
    int64_t matrices = a->x.data.rank == 3 ? a->x.data.dim[0] : 1;
    return arena_rounded((size_t)(matrices * tensor_cols(&a->x.data) * column_blocks(a)) *
                         sizeof(float));
}

size_t quantize_workspace(const Exec *ex, const Quantize *a)
{
    (void)ex;
    size_t columns = has_columns(a) ? amax_space(a) + (size_t)strips_most(a) * sizeof(Strip) : 0;
    return rows_space(a) + columns;
}

Status quantize_cpu(Exec *ex, const Quantize *a)
{
    Source s = source_of(a);
    char *space = ex->workspace;
    if (has_rows(a)) TRY(quantize_rows(ex, &s, (float *)(void *)space));
    if (!has_columns(a)) return OK;
    space += rows_space(a);
    return quantize_columns(ex, &s, (float *)(void *)space,
                            (Strip *)(void *)(space + amax_space(a)));
}

/* Row i of y, which is row `from` of the operand. */
static void dequantize_row(const Dequantize *a, const OperandGrid *g, int64_t i, int64_t from)
{
    const float *scales = row_scales(&a->quant, g, from);
    float buffer[PIECE], wide[PIECE];
    int64_t step = least(g->width, PIECE);
    for (int64_t j = 0; j < g->d; j += step) {
        int64_t n = least(step, g->d - j), at = i * g->d + j;
        float scale = scales[j / g->width];
        const float *data = row_load(&a->quant.data, from * g->d + j, n, wide);
        float *y = row_open(&a->y, at, buffer);
#pragma omp simd
        for (int64_t k = 0; k < n; k++) y[k] = data[k] * scale;
        row_store(&a->y, at, n, y);
    }
}

Status dequantize_cpu(Exec *ex, const Dequantize *a)
{
    OperandGrid g = operand_grid_of(&a->quant);
    int64_t n = a->rows.bound > 0 ? a->rows.bound : g.matrices * g.n;
    int64_t first = moe_first(a->rows.first);
    if (a->rows.device != NULL) n = least(n, *a->rows.device);
#pragma omp parallel for schedule(static) num_threads(ex->threads)
    for (int64_t i = 0; i < n; i++) dequantize_row(a, &g, i, first + i);
    return OK;
}

/* ---- checks and costs ---- */

static Status check_rows_in_use(const Quantize *a, int64_t N)
{
    bool gathers = a->row_token.data != NULL, groups = has_groups(a);
    if (a->rows.bound == 0 && !gathers && !groups) return OK;
    if (a->x.data.rank == 3)
        return FAIL(ERR_SHAPE, "quantize: x has three dimensions: its rows are not routed");
    if (groups) TRY(op_expect("quantize", "offsets", &a->offsets, 1, -1, DTYPE_I32));
    if (gathers) TRY(op_expect("quantize", "row_token", &a->row_token, -1, -1, DTYPE_I32));
    int64_t R = row_count(a), reads = gathers ? tensor_elems(&a->row_token) : N;
    if (R <= reads || a->rows.first != NULL) return OK; /* a pool may have fewer rows than R */
    return FAIL(ERR_SHAPE, "quantize: %lld rows, but %s has only %lld", (long long)R,
                gathers ? "row_token" : "x", (long long)reads);
}

/* (D, R), (M, D, N), or with groups (D, operand_group_columns(R, E)). */
static Status check_columns(const Quantize *a)
{
    const Operand *q = &a->transposed;
    int64_t matrices = a->x.data.rank == 3 ? a->x.data.dim[0] : 1, D = tensor_cols(&a->x.data);
    int64_t R = row_count(a), E = groups_of(a);
    int64_t columns = has_groups(a) ? operand_group_columns(R, E) : R / matrices;
    if (!q->transposed) return FAIL(ERR_ARG, "quantize: transposed is not marked as transposed");
    if (has_groups(a) && q->kind == OPERAND_128X128)
        return FAIL(ERR_UNSUPPORTED, "quantize: groups have no scales of 128 x 128");
    if (!has_groups(a))
        return operand_expect("quantize", "transposed", q, matrices * D, columns, OPERANDS_SCALED);
    OperandGrid g = columns_grid(a);
    TRY(op_expect("quantize", "transposed", &q->data, D, columns, q->data.dtype));
    return op_expect("quantize", "transposed.scale", &q->scale, g.rows, g.cols, DTYPE_F32);
}

Status quantize_check(const Quantize *a)
{
    int64_t D = tensor_cols(&a->x.data), N = D == 0 ? 0 : tensor_elems(&a->x.data) / D;
    TRY(operand_expect("quantize", "x", &a->x, N, D, OPERANDS_PLAIN | 1 << OPERAND_1X128));
    if (a->x.kind != OPERAND_PLAIN && (has_rows(a) || a->x.transposed))
        return FAIL(ERR_ARG, "quantize: 8-bit x must be rows, and only its columns can be made");
    if (a->round != DTYPE_F32 && a->round != DTYPE_BF16)
        return FAIL(ERR_UNSUPPORTED, "quantize: x is rounded to bf16 or not at all, not to %s",
                    dtype_name(a->round));
    TRY(check_rows_in_use(a, N));
    if (!has_rows(a) && !has_columns(a))
        return FAIL(ERR_ARG, "quantize: neither quant nor transposed is given");
    if (has_rows(a)) {
        if (a->quant.transposed) return FAIL(ERR_ARG, "quantize: quant is marked as transposed");
        TRY(operand_expect("quantize", "quant", &a->quant, a->to != NULL ? -1 : row_count(a), D,
                           a->to != NULL ? 1 << OPERAND_1X128 : OPERANDS_SCALED));
    }
    return has_columns(a) ? check_columns(a) : OK;
}

Status dequantize_check(const Dequantize *a)
{
    TRY(operand_expect("dequantize", "quant", &a->quant, -1, -1, OPERANDS_SCALED));
    OperandGrid g = operand_grid_of(&a->quant);
    int64_t n = a->rows.bound > 0 ? a->rows.bound : g.matrices * g.n;
    if (a->rows.first == NULL && n > g.matrices * g.n)
        return FAIL(ERR_SHAPE, "dequantize: rows.bound is %lld, quant has %lld rows", (long long)n,
                    (long long)(g.matrices * g.n));
    return op_expect_act("dequantize", "y", &a->y, n, g.d);
}

/* One quotient an element; the wide side is read once, however many operands are made of it. */
OpCost quantize_cost(const Quantize *a)
{
    double rows = a->rows.expected > 0 ? a->rows.expected : (double)row_count(a);
    double row = (double)tensor_cols(&a->x.data);
    OpCost cost = { .bytes = operand_rows_bytes(&a->x, rows) };
    if (has_rows(a)) {
        cost.flops += rows * row;
        cost.bytes += operand_rows_bytes(&a->quant, rows);
    }
    if (has_columns(a)) {
        cost.flops += rows * row;
        cost.bytes += rows * row * dtype_bits(a->transposed.data.dtype) / 8 +
                      operand_scale_bytes(&a->transposed);
    }
    return cost;
}

OpCost dequantize_cost(const Dequantize *a)
{
    return (OpCost){ .flops = (double)tensor_elems(&a->y),
                     .bytes = (double)tensor_bytes(&a->y) + operand_bytes(&a->quant) };
}

/* ---- outputs of other ops ---- */

Quantize quant_out_call(const QuantOut *q, Tensor plain)
{
    return (Quantize){ .x = operand_plain(plain),
                       .round = q->round,
                       .quant = q->rows,
                       .transposed = q->columns,
                       .pow2 = q->pow2,
                       .of = q->of };
}

Status quant_out_check(const char *op, const char *port, const QuantOut *q, const Tensor *plain)
{
    int64_t D = tensor_cols(plain), N = D == 0 ? 0 : tensor_elems(plain) / D;
    bool rows = q->rows.data.data != NULL, columns = q->columns.data.data != NULL;
    if (plain->data == NULL && !quant_out_wanted(q))
        return FAIL(ERR_ARG, "%s: neither %s nor an 8-bit copy of it is given", op, port);
    if ((rows && q->rows.transposed) || (columns && !q->columns.transposed))
        return FAIL(ERR_ARG, "%s: 8-bit columns of %s must be transposed, rows must not", op, port);
    if (rows) TRY(operand_expect(op, port, &q->rows, N, D, OPERANDS_SCALED));
    return columns ? operand_expect(op, port, &q->columns, D, N, OPERANDS_SCALED) : OK;
}

/* Scales of 1 x 128 or 1 x 32 can be made where the output is made. Others need the largest magnitudes first,
 * so the plain output is written, and read again. */
void quant_out_cost(OpCost *cost, const QuantOut *q, const Tensor *plain)
{
    const Operand *both[] = { &q->rows, &q->columns };
    bool again = false;
    for (int i = 0; i < 2; i++) {
        if (both[i]->data.data == NULL) continue;
        cost->flops += (double)tensor_elems(plain);
        cost->bytes += operand_bytes(both[i]);
        again |= both[i]->kind != OPERAND_1X128 && both[i]->kind != OPERAND_1X32;
    }
    int times = again ? 2 : plain->data != NULL;
    cost->bytes += times * (double)tensor_bytes(plain);
}

size_t quant_out_workspace(const Exec *ex, const QuantOut *q, const Tensor *plain)
{
    Quantize a = quant_out_call(q, *plain);
    return quant_out_wanted(q) ? quant_out_plain_bytes(q, plain) + quantize_workspace(ex, &a) : 0;
}

Status quant_out_cpu(Exec *ex, const QuantOut *q, const Tensor *plain, void *space)
{
    if (!quant_out_wanted(q)) return OK;
    Quantize a = quant_out_call(q, *plain);
    void *outer = ex->workspace;
    ex->workspace = (char *)space + (plain->data == space ? arena_rounded(tensor_bytes(plain)) : 0);
    Status s = quantize_cpu(ex, &a);
    ex->workspace = outer;
    return s;
}

/* Columns of `transposed` behind the last group are not written. */
OP_PORTS(quantize, IN_OPERAND(Quantize, x), OUT_OPERAND_OPT(Quantize, quant),
         OUT_OPERAND_PART_OPT(Quantize, transposed), IN_OPT(Quantize, offsets),
         IN_OPT(Quantize, row_token), ROWS(Quantize, rows));

/* Rows of quant may be gaps between received ones (kernels/exchange/exchange.h), so y is not searched for NaN. */
OP_PORTS(dequantize, IN_OPERAND(Dequantize, quant), OUT_PART(Dequantize, y),
         ROWS(Dequantize, rows));
