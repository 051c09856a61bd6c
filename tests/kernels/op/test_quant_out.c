/* 8-bit copies of an op's output (kernels/quant/quant.h): bit by bit what quantize makes of the plain output,
 * whether that is given or not. */
#include "harness/optest.h"
#include "kernels/attention/rope.h"
#include "kernels/moe/swiglu.h"
#include "kernels/norm/rmsnorm.h"
#include "kernels/quant/quant.h"

static const OperandKind kinds[] = { OPERAND_1X128, OPERAND_ROW, OPERAND_TENSOR, OPERAND_128X128 };
enum { KINDS = sizeof kinds / sizeof *kinds, WAYS = 6, FULL = 2 * KINDS * WAYS };

/* What a call is asked for. */
typedef struct Way {
    OperandKind kind;
    Dtype type;
    bool rows, columns, plain, pow2;
} Way;

static Way way_of(int i)
{
    int way = i % WAYS;
    return (Way){ .kind = kinds[i / WAYS % KINDS],
                  .type = i / WAYS / KINDS % 2 == 0 ? DTYPE_E4M3 : DTYPE_E5M2,
                  .rows = way % 3 != 1,
                  .columns = way % 3 != 0,
                  .plain = way < 3,
                  .pow2 = way % 2 == 0 };
}

/* Random numbers, of which some are far larger than the others of their row and column. */
static Tensor outliers(OpTest *t, Dtype act, const int64_t *dims)
{
    Tensor x = optest_normal(t, act, dims);
    int64_t n = tensor_elems(&x);
    for (int64_t i = n / 3; i < n; i += n / 3 + 7) optest_set(&x, i, 1e4 * optest_get(&x, i));
    return x;
}

static void operands_new(OpTest *t, const Way *w, int64_t N, int64_t D, Operand *rows,
                         Operand *columns)
{
    *rows = *columns = (Operand){ 0 };
    if (w->rows) CHECK_OK(operand_new(&t->arena, w->kind, w->type, 2, DIMS(N, D), rows));
    if (w->columns) CHECK_OK(operand_new(&t->arena, w->kind, w->type, 2, DIMS(D, N), columns));
    columns->transposed = true;
    const Operand *both[] = { rows, columns };
    for (int i = 0; i < 2; i++) {
        if (both[i]->data.data == NULL) continue;
        memset(both[i]->data.data, 0xFF, tensor_bytes(&both[i]->data));
        memset(both[i]->scale.data, 0xFF, tensor_bytes(&both[i]->scale));
    }
}

static void check_same(const Operand *have, const Operand *want)
{
    if (want->data.data == NULL) return;
    CHECK(memcmp(have->data.data, want->data.data, tensor_bytes(&want->data)) == 0);
    CHECK(memcmp(have->scale.data, want->scale.data, tensor_bytes(&want->scale)) == 0);
}

/* An op's arguments without copies, where they have an output, its copies, and its second output
 * (-1: none). */
typedef struct Producer {
    OpId id;
    const void *args;
    size_t plain, quant;
    int64_t second;
} Producer;

enum { ARGS_MAX = 2048, NO_SECOND = -1 };

static Tensor poisoned_like(OpTest *t, const Tensor *like)
{
    Tensor out = optest_copy(t, like);
    memset(out.data, 0xFF, tensor_bytes(&out));
    return out;
}

/* On a GPU, its results alone are compared: inputs of a rounding differ from the CPU's. */
static void check_way(OpTest *t, const Producer *p, int i)
{
    const Way w = way_of(i);
    _Alignas(16) char args[ARGS_MAX];
    size_t bytes = op_desc(p->id)->args_bytes;
    Tensor *plain = (Tensor *)(void *)(args + p->plain);
    Tensor *second = p->second < 0 ? NULL : (Tensor *)(void *)(args + p->second);
    QuantOut *q = (QuantOut *)(void *)(args + p->quant);
    ArenaMark mark = arena_mark(&t->arena);
    memcpy(args, p->args, bytes);
    CHECK_OK(op_run(&t->ex, p->id, args));
    Tensor want = *plain, want_second = second == NULL ? (Tensor){ 0 } : *second;
    int64_t D = tensor_cols(&want), N = tensor_elems(&want) / D;
    Quantize a = { .x.data = want, .pow2 = w.pow2 };
    operands_new(t, &w, N, D, &a.quant, &a.transposed);
    CHECK_OK(quantize(&t->ex, a));

    q->pow2 = w.pow2;
    operands_new(t, &w, N, D, &q->rows, &q->columns);
    *plain = poisoned_like(t, &want);
    if (!w.plain) plain->data = NULL;
    if (second != NULL) *second = poisoned_like(t, second);
    CHECK_OK(op_run(&t->ex, p->id, args));
    check_same(&q->rows, &a.quant);
    check_same(&q->columns, &a.transposed);
    if (w.plain) CHECK(memcmp(plain->data, want.data, tensor_bytes(&want)) == 0);
    if (second != NULL) CHECK_SAME(second, &want_second);
    arena_release(&t->arena, mark);
}

/* All kinds and types where rows are read in packs, some of them elsewhere. */
static void check_producer(OpTest *t, const Producer *p, bool all)
{
    mirror_finite_only();
    mirror_gives();
    for (int i = 0; i < FULL; i += all ? 1 : 7) check_way(t, p, i);
}

/* Rows and columns: fewer than a block, one past it, packed or not, whole blocks. */
static const int64_t shapes[][2] = {
    { 1, 1 }, { 129, 67 }, { 272, 256 }, { 144, 264 }, { 160, 256 }
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static Dtype act_of(int i) { return i % 2 == 0 ? DTYPE_BF16 : DTYPE_F32; }

static void rmsnorm_makes_copies_of_y(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < 2 * SHAPES; i++) {
        int64_t n = shapes[i / 2][0], d = shapes[i / 2][1], heads = i / 2 == 2 ? 2 : 1;
        ArenaMark mark = arena_mark(&t->arena);
        RmsnormFwd a = { .x = outliers(t, act_of(i), DIMS(n, heads * d + 8)),
                         .w = optest_normal(t, DTYPE_F32, DIMS(1, d)),
                         .y = optest_poisoned(t, act_of(i), DIMS(n, heads * d)),
                         .rstd = optest_poisoned(t, DTYPE_F32, DIMS(n, heads)),
                         .x_col = 8,
                         .eps = 1e-5f };
        const Producer p = { OP_RMSNORM_FWD, &a, offsetof(RmsnormFwd, y),
                             offsetof(RmsnormFwd, quant), offsetof(RmsnormFwd, rstd) };
        check_producer(t, &p, i == 2 * SHAPES - 2);
        arena_release(&t->arena, mark);
    }
}

static void swiglu_makes_copies_of_y(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < 2 * SHAPES; i++) {
        int64_t n = shapes[i / 2][0], f = shapes[i / 2][1];
        ArenaMark mark = arena_mark(&t->arena);
        SwigluFwd a = { .gu = outliers(t, act_of(i), DIMS(n, 2 * f)),
                        .y = optest_poisoned(t, act_of(i), DIMS(n, f)),
                        .glu = i / 2 == 2 ? glu_clamped(1.5f) : (Glu){ 0 } };
        const Producer p = { OP_SWIGLU_FWD, &a, offsetof(SwigluFwd, y), offsetof(SwigluFwd, quant),
                             NO_SECOND };
        check_producer(t, &p, i == 2 * SHAPES - 2);
        arena_release(&t->arena, mark);
    }
}

static void swiglu_makes_copies_of_its_gradient(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < 2 * SHAPES; i++) {
        int64_t n = shapes[i / 2][0], f = shapes[i / 2][1];
        ArenaMark mark = arena_mark(&t->arena);
        SwigluBwd a = { .dy = outliers(t, act_of(i), DIMS(n, f)),
                        .gu = outliers(t, act_of(i), DIMS(n, 2 * f)),
                        .dgu = optest_poisoned(t, act_of(i), DIMS(n, 2 * f)),
                        .glu = i / 2 == 2 ? glu_clamped(1.5f) : (Glu){ 0 } };
        const Producer p = { OP_SWIGLU_BWD, &a, offsetof(SwigluBwd, dgu),
                             offsetof(SwigluBwd, quant), NO_SECOND };
        check_producer(t, &p, i == 2 * SHAPES - 2);
        arena_release(&t->arena, mark);
    }
}

/* The pre-activation may be what the gradient overwrites. */
static void the_gradient_may_overwrite_its_input(void **state)
{
    OpTest *t = *state;
    mirror_finite_only();
    mirror_gives();
    enum { N = 144, F = 256 };
    Tensor gu = outliers(t, DTYPE_BF16, DIMS(N, 2 * F)), over = optest_copy(t, &gu);
    SwigluBwd a = { .dy = outliers(t, DTYPE_BF16, DIMS(N, F)), .gu = gu }, b = a;
    const Way both = { OPERAND_1X128, DTYPE_E4M3, .rows = true, .columns = true };
    a.dgu = poisoned_like(t, &gu), b.gu = b.dgu = over;
    operands_new(t, &both, N, 2 * F, &a.quant.rows, &a.quant.columns);
    operands_new(t, &both, N, 2 * F, &b.quant.rows, &b.quant.columns);
    CHECK_OK(swiglu_bwd(&t->ex, a));
    CHECK_OK(swiglu_bwd(&t->ex, b));
    CHECK_SAME(&b.dgu, &a.dgu);
    check_same(&b.quant.rows, &a.quant.rows);
    check_same(&b.quant.columns, &a.quant.columns);
}

static Tensor positions(OpTest *t, int64_t n)
{
    return optest_integers(t, DTYPE_I32, DIMS(n), 0, 9);
}

static void rope_makes_copies_of_gradients_of_latents(void **state)
{
    OpTest *t = *state;
    static const RopeMlaDims dims[] = { { 3, 5, 2, 7, 0, 0, true },
                                        { 2, 64, 32, 56, 0, 8, true },
                                        { 3, 40, 48, 128, 0, 0, false } };
    static const int64_t rows[] = { 7, 144, 131 };
    for (int i = 0; i < 6; i++) {
        const RopeMlaDims *m = &dims[i / 2];
        int64_t n = rows[i / 2], qk = m->heads * (m->nope + m->rope);
        ArenaMark mark = arena_mark(&t->arena);
        Dtype act = act_of(i);
        RopeMlaBwd a = { .dq_out = outliers(t, act, DIMS(n, qk)),
                         .dk_out = outliers(t, act, DIMS(n, qk)),
                         .dv_out = outliers(t, act, DIMS(n, m->heads * m->v)),
                         .pos = positions(t, n),
                         .cos = optest_normal(t, DTYPE_F32, DIMS(9, m->rope / 2)),
                         .sin = optest_normal(t, DTYPE_F32, DIMS(9, m->rope / 2)),
                         .dq = optest_poisoned(t, act, DIMS(n, qk)),
                         .dkv = optest_poisoned(t, act, DIMS(n, m->heads * (m->nope + m->v))),
                         .dk_rope = optest_poisoned(t, act, DIMS(n, m->rope + 8)),
                         .dims = *m };
        const Producer q = { OP_ROPE_MLA_BWD, &a, offsetof(RopeMlaBwd, dq),
                             offsetof(RopeMlaBwd, dq_quant), offsetof(RopeMlaBwd, dkv) };
        const Producer kv = { OP_ROPE_MLA_BWD, &a, offsetof(RopeMlaBwd, dkv),
                              offsetof(RopeMlaBwd, dkv_quant), offsetof(RopeMlaBwd, dq) };
        check_producer(t, &q, i == 2);
        check_producer(t, &kv, i == 2);
        arena_release(&t->arena, mark);
    }
}

/* Neither is given in plain form, and neither is made in tiles: scales belong to rows. */
static void both_gradients_of_rope_may_lie_in_the_workspace(void **state)
{
    OpTest *t = *state;
    mirror_finite_only();
    mirror_gives();
    enum { N = 48, H = 2, QK = 96, KV = 112 };
    const Way w = { OPERAND_ROW, DTYPE_E4M3, .rows = true };
    RopeMlaBwd a = { .dq_out = outliers(t, DTYPE_BF16, DIMS(N, H * QK)),
                     .dk_out = outliers(t, DTYPE_BF16, DIMS(N, H * QK)),
                     .dv_out = outliers(t, DTYPE_BF16, DIMS(N, H * (KV - 64))),
                     .pos = positions(t, N),
                     .cos = optest_normal(t, DTYPE_F32, DIMS(9, 16)),
                     .sin = optest_normal(t, DTYPE_F32, DIMS(9, 16)),
                     .dq = optest_poisoned(t, DTYPE_BF16, DIMS(N, H * QK)),
                     .dkv = optest_poisoned(t, DTYPE_BF16, DIMS(N, H * KV)),
                     .dk_rope = optest_poisoned(t, DTYPE_BF16, DIMS(N, 32)),
                     .dims = { H, 64, 32, KV - 64, 0, 0, true } };
    RopeMlaBwd b = a;
    Operand none;
    operands_new(t, &w, N, H * QK, &a.dq_quant.rows, &none);
    operands_new(t, &w, N, H * KV, &a.dkv_quant.rows, &none);
    operands_new(t, &w, N, H * QK, &b.dq_quant.rows, &none);
    operands_new(t, &w, N, H * KV, &b.dkv_quant.rows, &none);
    CHECK_OK(rope_mla_bwd(&t->ex, a));
    b.dq.data = b.dkv.data = NULL;
    CHECK_OK(rope_mla_bwd(&t->ex, b));
    check_same(&b.dq_quant.rows, &a.dq_quant.rows);
    check_same(&b.dkv_quant.rows, &a.dkv_quant.rows);
}

static void rope_makes_copies_of_gradients_of_a_fused_projection(void **state)
{
    OpTest *t = *state;
    static const RopeGqaDims dims[] = { { 3, 1, 7, 4, true, 0, 0, false },
                                        { 4, 2, 48, 48, false, 0, 0, false } };
    for (int i = 0; i < 4; i++) {
        const RopeGqaDims *m = &dims[i / 2];
        int64_t n = i / 2 == 0 ? 131 : 144, q = m->heads * m->head, k = m->kv_heads * m->head;
        ArenaMark mark = arena_mark(&t->arena);
        Dtype act = act_of(i);
        RopeGqaBwd a = { .dq_out = outliers(t, act, DIMS(n, q)),
                         .dk_out = outliers(t, act, DIMS(n, k)),
                         .dv_out = outliers(t, act, DIMS(n, k)),
                         .pos = positions(t, n),
                         .cos = optest_normal(t, DTYPE_F32, DIMS(9, m->rotary / 2)),
                         .sin = optest_normal(t, DTYPE_F32, DIMS(9, m->rotary / 2)),
                         .dqkv = optest_poisoned(t, act, DIMS(n, q + 2 * k)),
                         .dims = *m };
        const Producer p = { OP_ROPE_GQA_BWD, &a, offsetof(RopeGqaBwd, dqkv),
                             offsetof(RopeGqaBwd, quant), NO_SECOND };
        check_producer(t, &p, i == 2);
        arena_release(&t->arena, mark);
    }
}

static void copies_that_do_not_fit_are_an_error(void **state)
{
    OpTest *t = *state;
    Tensor gu = optest_normal(t, DTYPE_BF16, DIMS(16, 32));
    Tensor y = optest_poisoned(t, DTYPE_BF16, DIMS(16, 16)), none = y;
    Tensor rstd = optest_poisoned(t, DTYPE_F32, DIMS(16, 1)), pos = positions(t, 16);
    const Way both = { OPERAND_1X128, DTYPE_E4M3, .rows = true, .columns = true };
    none.data = NULL;
    SwigluFwd a = { .gu = gu, .y = none };
    RmsnormFwd norm = { .x = y, .y = none, .rstd = rstd };
    CHECK_FAILS(rmsnorm_fwd(&t->ex, norm), ERR_ARG,
                "rmsnorm_fwd: neither y nor an 8-bit copy of it is given");
    operands_new(t, &both, 16, 16, &a.quant.rows, &a.quant.columns);
    SwigluFwd b = a;
    b.quant.columns.transposed = false;
    CHECK_FAILS(swiglu_fwd(&t->ex, b), ERR_ARG,
                "swiglu_fwd: 8-bit columns of y must be transposed");
    operands_new(t, &both, 16, 17, &b.quant.rows, &b.quant.columns);
    CHECK_FAILS(swiglu_fwd(&t->ex, b), ERR_SHAPE, "swiglu_fwd: y is (16, 17)");
    RopeGqaBwd r = { .dq_out = y, .dk_out = y, .dv_out = y, .pos = pos, .cos = rstd, .sin = rstd };
    r.dims = (RopeGqaDims){ 1, 1, 16, 2, true, 0, 0, false };
    r.dqkv = optest_poisoned(t, DTYPE_BF16, DIMS(16, 48));
    r.dq = y;
    operands_new(t, &both, 16, 48, &r.quant.rows, &r.quant.columns);
    CHECK_FAILS(rope_gqa_bwd(&t->ex, r), ERR_ARG,
                "rope_gqa_bwd: 8-bit copies of dqkv: 32 of its 48 columns are written");
    r.dqkv.data = NULL, r.quant = (QuantOut){ 0 };
    CHECK_FAILS(rope_gqa_bwd(&t->ex, r), ERR_ARG, "rope_gqa_bwd: dqkv is not set");
}

/* Blocks of 128 can be made where the output is; other scales need the plain output written and
 * read again. */
static void a_cost_has_the_bytes_that_are_moved(void **state)
{
    OpTest *t = *state;
    SwigluFwd a = { .gu = optest_normal(t, DTYPE_BF16, DIMS(32, 32)),
                    .y = optest_poisoned(t, DTYPE_BF16, DIMS(32, 16)) };
    Way w = { OPERAND_1X128, DTYPE_E4M3, .rows = true, .columns = true };
    double read = 32 * 32 * 2, wide = 32 * 16 * 2, narrow = 32 * 16;
    operands_new(t, &w, 32, 16, &a.quant.rows, &a.quant.columns);
    OpCost cost = op_desc(OP_SWIGLU_FWD)->cost(&a);
    CHECK_NEAR(cost.bytes, read + wide + 2 * narrow + (32 + 16) * 4, 0);
    CHECK_NEAR(cost.flops, (5 + 2) * narrow, 0);
    a.y.data = NULL;
    CHECK_NEAR(op_desc(OP_SWIGLU_FWD)->cost(&a).bytes, read + 2 * narrow + (32 + 16) * 4, 0);
    w.kind = OPERAND_TENSOR, w.columns = false;
    operands_new(t, &w, 32, 16, &a.quant.rows, &a.quant.columns);
    CHECK_NEAR(op_desc(OP_SWIGLU_FWD)->cost(&a).bytes, read + 2 * wide + narrow + 4, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(rmsnorm_makes_copies_of_y, 2),
        OP_TEST(swiglu_makes_copies_of_y, 2),
        OP_TEST(swiglu_makes_copies_of_its_gradient, 2),
        OP_TEST(the_gradient_may_overwrite_its_input, 2),
        OP_TEST(rope_makes_copies_of_gradients_of_latents, 2),
        OP_TEST(both_gradients_of_rope_may_lie_in_the_workspace, 2),
        OP_TEST(rope_makes_copies_of_gradients_of_a_fused_projection, 2),
        OP_TEST(copies_that_do_not_fit_are_an_error, 1),
        OP_TEST(a_cost_has_the_bytes_that_are_moved, 1),
    };
    return TEST_RUN(tests);
}
