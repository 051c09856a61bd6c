/*
 * Row-wise ops at the sizes of models, at any address, with no rows, past 2^31 elements, and twice.
 *
 * Each case runs on the CPU and, by the mirror, on a GPU. A GPU takes rows by 16 bytes where they
 * lie so and singly elsewhere: every case is run where memory begins and one element behind. Their
 * values have their tests by op; here both runs must give the same bits on the CPU.
 */
#include "harness/gpu.h"
#include "harness/optest.h"
#include "kernels/attention/rope.h"
#include "kernels/head/embed.h"
#include "kernels/moe/swiglu.h"
#include "kernels/norm/bias.h"
#include "kernels/norm/elementwise.h"
#include "kernels/norm/rmsnorm.h"

enum { ARGS_MAX = 1024 };

static bool is_output(PortDir dir)
{
    return dir != PORT_IN && dir != PORT_IN_OPT && dir != PORT_IN_SCALE && dir != PORT_ROWS;
}

/* The same arguments, each tensor in memory of its own that begins `skew` elements late. */
static void skewed_args(OpTest *t, const OpDesc *op, const void *args, int64_t skew, void *out)
{
    memcpy(out, args, op->args_bytes);
    for (const OpPort *p = op->ports; p->dir != PORT_END; p++) {
        if (p->dir == PORT_ROWS || op_port_tensor(p, args)->data == NULL) continue;
        const Tensor *from = op_port_tensor(p, args);
        Tensor room = optest_poisoned(t, from->dtype, DIMS(tensor_elems(from) + skew));
        void *at = tensor_at(&room, skew);
        memcpy(at, from->data, tensor_bytes(from));
        ((Tensor *)(void *)((char *)out + p->offset))->data = at;
    }
}

/* Runs an op on skewed copies of its arguments, then on the arguments themselves. */
static void check_addresses(OpTest *t, OpId id, const void *args)
{
    const OpDesc *op = op_desc(id);
    _Alignas(16) char skewed[ARGS_MAX];
    assert(op->args_bytes <= sizeof skewed);
    skewed_args(t, op, args, 1, skewed);
    CHECK_OK(op_run(&t->ex, id, skewed));
    CHECK_OK(op_run(&t->ex, id, args));
    for (const OpPort *p = op->ports; p->dir != PORT_END; p++) {
        if (!is_output(p->dir) || op_port_tensor(p, args)->data == NULL) continue;
        CHECK_SAME(op_port_tensor(p, skewed), op_port_tensor(p, args));
    }
}

/* Arguments of each op, for n tokens. */

typedef struct Norm {
    int64_t n, d, heads;
} Norm;

static RmsnormFwd norm_forward(OpTest *t, Dtype act, Norm s)
{
    return (RmsnormFwd){ .x = optest_normal(t, act, DIMS(s.n, s.heads * s.d)),
                         .w = optest_normal(t, DTYPE_F32, DIMS(1, s.d)),
                         .y = optest_poisoned(t, act, DIMS(s.n, s.heads * s.d)),
                         .rstd = optest_poisoned(t, DTYPE_F32, DIMS(s.n, s.heads)),
                         .eps = 1e-5f };
}

/* The residual is a copy of dy, so that it is given but not dx. */
static RmsnormBwd norm_backward(OpTest *t, Dtype act, Norm s)
{
    RmsnormFwd f = norm_forward(t, act, s);
    CHECK_OK(rmsnorm_fwd(&t->ex, f));
    return (RmsnormBwd){ .dy = optest_normal(t, act, DIMS(s.n, s.heads * s.d)),
                         .x = f.x,
                         .w = f.w,
                         .rstd = f.rstd,
                         .dres = optest_copy(t, &f.x),
                         .dx = optest_poisoned(t, act, DIMS(s.n, s.heads * s.d)),
                         .dw = optest_normal(t, DTYPE_F32, DIMS(1, s.d)) };
}

typedef struct Angles {
    Tensor pos, cos, sin;
} Angles;

static Angles angles(OpTest *t, int64_t n, int64_t d)
{
    return (Angles){ optest_integers(t, DTYPE_I32, DIMS(n), 0, 9),
                     optest_normal(t, DTYPE_F32, DIMS(9, d / 2)),
                     optest_normal(t, DTYPE_F32, DIMS(9, d / 2)) };
}

static RopeMlaFwd mla_forward(OpTest *t, Dtype act, int64_t n, RopeMlaDims m)
{
    int64_t qk = m.heads * (m.nope + m.rope);
    Angles r = angles(t, n, m.rope);
    return (RopeMlaFwd){ .q = optest_normal(t, act, DIMS(n, qk)),
                         .kv = optest_normal(t, act, DIMS(n, m.heads * (m.nope + m.v))),
                         .k_rope = optest_normal(t, act, DIMS(n, m.k_col + m.rope)),
                         .pos = r.pos,
                         .cos = r.cos,
                         .sin = r.sin,
                         .q_out = optest_poisoned(t, act, DIMS(n, qk)),
                         .k_out = optest_poisoned(t, act, DIMS(n, qk)),
                         .v_out = optest_poisoned(t, act, DIMS(n, m.heads * m.v)),
                         .dims = m };
}

static RopeMlaBwd mla_backward(OpTest *t, Dtype act, int64_t n, RopeMlaDims m)
{
    RopeMlaFwd f = mla_forward(t, act, n, m);
    return (RopeMlaBwd){ .dq_out = optest_normal(t, act, f.q_out.dim),
                         .dk_out = optest_normal(t, act, f.k_out.dim),
                         .dv_out = optest_normal(t, act, f.v_out.dim),
                         .pos = f.pos,
                         .cos = f.cos,
                         .sin = f.sin,
                         .dq = f.q,
                         .dkv = f.kv,
                         .dk_rope = f.k_rope,
                         .dims = m };
}

static RopeGqaFwd gqa_forward(OpTest *t, Dtype act, int64_t n, RopeGqaDims m)
{
    Angles r = angles(t, n, m.rotary > 0 ? m.rotary : m.head);
    return (RopeGqaFwd){ .qkv = optest_normal(t, act, DIMS(n, (m.heads + 2 * m.kv_heads) * m.head)),
                         .pos = r.pos,
                         .cos = r.cos,
                         .sin = r.sin,
                         .q_out = optest_poisoned(t, act, DIMS(n, m.heads * m.head)),
                         .k_out = optest_poisoned(t, act, DIMS(n, m.kv_heads * m.head)),
                         .v_out = optest_poisoned(t, act, DIMS(n, m.kv_heads * m.head)),
                         .dims = m };
}

static RopeGqaBwd gqa_backward(OpTest *t, Dtype act, int64_t n, RopeGqaDims m)
{
    RopeGqaFwd f = gqa_forward(t, act, n, m);
    return (RopeGqaBwd){ .dq_out = optest_normal(t, act, f.q_out.dim),
                         .dk_out = optest_normal(t, act, f.k_out.dim),
                         .dv_out = optest_normal(t, act, f.v_out.dim),
                         .pos = f.pos,
                         .cos = f.cos,
                         .sin = f.sin,
                         .dqkv = f.qkv,
                         .dims = m };
}

/* Every fifth slot has no row. */
static MoeCombine combine(OpTest *t, Dtype act, int64_t n, int64_t k, int64_t d)
{
    MoeCombine a = { .out = optest_normal(t, act, DIMS(n * k, d)),
                     .slot_row = optest_integers(t, DTYPE_I32, DIMS(n, k), 0, n * k),
                     .weight = optest_normal(t, DTYPE_F32, DIMS(n, k)),
                     .shared = optest_normal(t, act, DIMS(n, d)),
                     .residual = optest_normal(t, act, DIMS(n, d)),
                     .y = optest_poisoned(t, act, DIMS(n, d)) };
    for (int64_t i = 0; i < n * k; i += 5) optest_set(&a.slot_row, i, -1);
    return a;
}

static EmbedFwd look_up(OpTest *t, Dtype act, int64_t n, int64_t d)
{
    return (EmbedFwd){ .id = optest_integers(t, DTYPE_I32, DIMS(n), 0, 11),
                       .table = optest_normal(t, act, DIMS(11, d)),
                       .h = optest_poisoned(t, act, DIMS(n, d)) };
}

static EmbedBwd look_up_backward(OpTest *t, Dtype act, int64_t n, int64_t d)
{
    return (EmbedBwd){ .id = optest_integers(t, DTYPE_I32, DIMS(n), 0, 11),
                       .dh = optest_normal(t, act, DIMS(n, d)),
                       .dtable = optest_normal(t, DTYPE_F32, DIMS(11, d)) };
}

/* Rows of one column, of packs and one more, of models, and too wide for a GPU's registers; rows as
 * one more than a GPU's blocks take at a time; heads. */
static const Norm norms[] = {
    { 1, 1, 1 },      { 5, 7, 1 },      { 9, 512, 1 },  { 9, 1536, 1 },
    { 9, 2048, 1 },   { 3, 7168, 1 },   { 3, 8208, 1 }, { 2, 16400, 1 },
    { 533, 2048, 1 }, { 267, 2056, 1 }, { 3, 128, 36 }, { 561, 128, 16 },
};

static void norms_give_the_same_bits_at_any_address(void **state)
{
    OpTest *t = *state;
    for (size_t i = 0; i < 2 * sizeof norms / sizeof *norms; i++) {
        ArenaMark mark = arena_mark(&t->arena);
        Dtype act = i % 2 == 0 ? DTYPE_F32 : DTYPE_BF16;
        RmsnormFwd f = norm_forward(t, act, norms[i / 2]);
        RmsnormBwd b = norm_backward(t, act, norms[i / 2]);
        check_addresses(t, OP_RMSNORM_FWD, &f);
        check_addresses(t, OP_RMSNORM_BWD, &b);
        arena_release(&t->arena, mark);
    }
}

/* DeepSeek-V2-Lite and -V3, Qwen3-30B-A3B; one token, and one more than a thread takes. */
static void rotations_give_the_same_bits_at_any_address(void **state)
{
    OpTest *t = *state;
    const RopeMlaDims mla[] = { { 16, 128, 64, 128, 0, 512, true },
                                { 16, 128, 64, 128, 0, 512, false },
                                { 128, 128, 64, 128, 0, 512, true } };
    /* the last ones turn half a head, and nothing */
    const RopeGqaDims gqa[] = { { 32, 4, 128, 128, .interleaved = false },
                                { 32, 4, 128, 128, .interleaved = true },
                                { 5, 1, 12, 12, .interleaved = false },
                                { 32, 4, 128, 64, .interleaved = false },
                                { 32, 4, 128, 0, false, 3, 0.3f, false } };
    for (int i = 0; i < 5 * 4; i++) {
        ArenaMark mark = arena_mark(&t->arena);
        Dtype act = i % 2 == 0 ? DTYPE_F32 : DTYPE_BF16;
        int64_t n = i / 2 % 2 == 0 ? 1 : 5;
        RopeMlaFwd mf = mla_forward(t, act, n, mla[i / 4 % 3]);
        RopeMlaBwd mb = mla_backward(t, act, n, mla[i / 4 % 3]);
        RopeGqaFwd gf = gqa_forward(t, act, n, gqa[i / 4]);
        RopeGqaBwd gb = gqa_backward(t, act, n, gqa[i / 4]);
        check_addresses(t, OP_ROPE_MLA_FWD, &mf);
        check_addresses(t, OP_ROPE_MLA_BWD, &mb);
        check_addresses(t, OP_ROPE_GQA_FWD, &gf);
        check_addresses(t, OP_ROPE_GQA_BWD, &gb);
        arena_release(&t->arena, mark);
    }
}

static void gates_give_the_same_bits_at_any_address(void **state)
{
    OpTest *t = *state;
    const int64_t n[] = { 1, 35, 133, 9 }, f[] = { 7, 1408, 8, 10944 };
    for (int i = 0; i < 2 * 4; i++) {
        Dtype act = i % 2 == 0 ? DTYPE_F32 : DTYPE_BF16;
        Tensor gu = optest_normal(t, act, DIMS(n[i / 2], 2 * f[i / 2]));
        Tensor y = optest_poisoned(t, act, DIMS(n[i / 2], f[i / 2]));
        SwigluFwd forward = { .gu = gu, .y = y };
        check_addresses(t, OP_SWIGLU_FWD, &forward);
        SwigluBwd backward = { .dy = y, .gu = gu, .dgu = optest_poisoned(t, act, gu.dim) };
        check_addresses(t, OP_SWIGLU_BWD, &backward);
    }
}

/* As many slots as a GPU takes at a time, one more, and many times as many. */
static void gathers_give_the_same_bits_at_any_address(void **state)
{
    OpTest *t = *state;
    const int64_t slots[] = { 1, 6, 8, 9, 33 }, d[] = { 2048, 7168, 13, 2056, 128 };
    for (int i = 0; i < 2 * 5; i++) {
        Dtype act = i % 2 == 0 ? DTYPE_F32 : DTYPE_BF16;
        MoeCombine c = combine(t, act, 7, slots[i / 2], d[i / 2]);
        EmbedFwd f = look_up(t, act, 35, d[i / 2]);
        EmbedBwd b = look_up_backward(t, act, 35, d[i / 2]);
        check_addresses(t, OP_MOE_COMBINE, &c);
        check_addresses(t, OP_EMBED_FWD, &f);
        check_addresses(t, OP_EMBED_BWD, &b);
    }
}

static void sums_and_casts_give_the_same_bits_at_any_address(void **state)
{
    OpTest *t = *state;
    const Dtype types[] = { DTYPE_F32, DTYPE_BF16 };
    const int64_t counts[] = { 1, 4096, 8191, 12289 };
    for (int i = 0; i < 4 * 4; i++) {
        Add a = { optest_normal(t, types[i % 2], DIMS(counts[i / 4])),
                  optest_normal(t, types[i / 2 % 2], DIMS(counts[i / 4])) };
        Cast c = { a.x, optest_poisoned(t, types[i / 2 % 2], DIMS(counts[i / 4])) };
        check_addresses(t, OP_CAST, &c);
        check_addresses(t, OP_ADD, &a);
    }
}

static BiasBwd bias_backward(OpTest *t, Dtype act, int64_t n, int64_t d)
{
    return (BiasBwd){ optest_normal(t, act, DIMS(n, d)), optest_normal(t, DTYPE_F32, DIMS(1, d)) };
}

static void biases_give_the_same_bits_at_any_address(void **state)
{
    OpTest *t = *state;
    const int64_t n[] = { 1, 5, 257, 300 }, d[] = { 13, 5120, 2880, 264 };
    for (int i = 0; i < 2 * 4; i++) {
        Dtype act = i % 2 == 0 ? DTYPE_F32 : DTYPE_BF16;
        BiasBwd b = bias_backward(t, act, n[i / 2], d[i / 2]);
        BiasFwd f = { b.dy, b.db, optest_poisoned(t, act, b.dy.dim) };
        check_addresses(t, OP_BIAS_FWD, &f);
        check_addresses(t, OP_BIAS_BWD, &b);
    }
}

/* Tensors with no rows. */
static void empty(Tensor *const *tensors)
{
    for (; *tensors != NULL; tensors++) (*tensors)->dim[0] = 0;
}

#define EMPTY(...) empty((Tensor *const[]){ __VA_ARGS__, NULL })

static void no_rows_change_nothing(void **state)
{
    OpTest *t = *state;
    const RopeMlaDims m = { 2, 8, 8, 8, 0, 0, true };
    RmsnormFwd nf = norm_forward(t, DTYPE_BF16, (Norm){ 3, 16, 1 });
    RmsnormBwd nb = norm_backward(t, DTYPE_BF16, (Norm){ 3, 16, 1 });
    RopeMlaFwd rf = mla_forward(t, DTYPE_BF16, 3, m);
    RopeMlaBwd rb = mla_backward(t, DTYPE_BF16, 3, m);
    MoeCombine c = combine(t, DTYPE_BF16, 3, 2, 16);
    EmbedFwd ef = look_up(t, DTYPE_BF16, 3, 16);
    EmbedBwd eb = look_up_backward(t, DTYPE_BF16, 3, 16);
    SwigluFwd g = { .gu = optest_normal(t, DTYPE_BF16, DIMS(3, 16)),
                    .y = optest_poisoned(t, DTYPE_BF16, DIMS(3, 8)) };
    BiasBwd bb = bias_backward(t, DTYPE_BF16, 3, 16);
    BiasFwd bf = { bb.dy, bb.db, g.gu };
    Tensor dw = optest_copy(t, &nb.dw), dtable = optest_copy(t, &eb.dtable);
    Tensor db = optest_copy(t, &bb.db);
    EMPTY(&nf.x, &nf.y, &nf.rstd, &nb.x, &nb.dy, &nb.rstd, &nb.dres, &nb.dx);
    EMPTY(&g.gu, &g.y, &bb.dy, &bf.x, &bf.y);
    EMPTY(&rf.q, &rf.kv, &rf.k_rope, &rf.pos, &rf.q_out, &rf.k_out, &rf.v_out);
    EMPTY(&rb.dq_out, &rb.dk_out, &rb.dv_out, &rb.pos, &rb.dq, &rb.dkv, &rb.dk_rope);
    EMPTY(&c.slot_row, &c.weight, &c.shared, &c.residual, &c.y, &ef.id, &ef.h, &eb.id, &eb.dh);
    CHECK_OK(rmsnorm_fwd(&t->ex, nf));
    CHECK_OK(rmsnorm_bwd(&t->ex, nb));
    CHECK_OK(rope_mla_fwd(&t->ex, rf));
    CHECK_OK(rope_mla_bwd(&t->ex, rb));
    CHECK_OK(moe_combine(&t->ex, c));
    CHECK_OK(bias_fwd(&t->ex, bf));
    CHECK_OK(bias_bwd(&t->ex, bb));
    CHECK_SAME(&bb.db, &db);
    CHECK_OK(embed_fwd(&t->ex, ef));
    CHECK_OK(embed_bwd(&t->ex, eb));
    CHECK_OK(swiglu_fwd(&t->ex, g));
    CHECK_SAME(&nb.dw, &dw);
    CHECK_SAME(&eb.dtable, &dtable);
}

/* ---- on a GPU alone ---- */

/* Sums over rows and heads twice, on copies: the same bits. */
static void check_twice(OpTest *t, OpId id, const void *args)
{
    const OpDesc *op = op_desc(id);
    _Alignas(16) char runs[2][ARGS_MAX];
    for (int i = 0; i < 2; i++) {
        CHECK_OK(mirror_args(op, args, runs[i]));
        if (op->gpu_workspace != NULL) {
            CHECK_OK(arena_alloc(&mirror.scratch, op->gpu_workspace(&mirror.gpu, runs[i]),
                                 &mirror.gpu.workspace));
        }
        CHECK_OK(op->gpu(&mirror.gpu, runs[i]));
    }
    for (const OpPort *p = op->ports; p->dir != PORT_END; p++) {
        if (!is_output(p->dir) || op_port_tensor(p, args)->data == NULL) continue;
        Tensor out[2];
        for (int i = 0; i < 2; i++) {
            out[i] = optest_copy(t, op_port_tensor(p, args));
            CHECK_OK(mirror.gpu.backend->copy(
                &mirror.gpu, out[i].data, op_port_tensor(p, runs[i])->data, tensor_bytes(&out[i])));
            CHECK_OK(mirror.gpu.backend->sync(&mirror.gpu));
        }
        CHECK_SAME(&out[1], &out[0]);
    }
}

static void two_runs_on_a_gpu_give_the_same_bits(void **state)
{
    OpTest *t = *state;
    NEEDS_GPU();
    RmsnormBwd n = norm_backward(t, DTYPE_BF16, (Norm){ 1201, 2048, 1 });
    RmsnormBwd h = norm_backward(t, DTYPE_BF16, (Norm){ 601, 128, 20 });
    RopeMlaBwd r = mla_backward(t, DTYPE_BF16, 67, (RopeMlaDims){ 16, 128, 64, 128, 0, 0, true });
    EmbedBwd e = look_up_backward(t, DTYPE_BF16, 2001, 520);
    BiasBwd b = bias_backward(t, DTYPE_BF16, 2001, 2880);
    ArenaMark device = arena_mark(&mirror.device), scratch = arena_mark(&mirror.scratch);
    check_twice(t, OP_RMSNORM_BWD, &n);
    check_twice(t, OP_RMSNORM_BWD, &h);
    check_twice(t, OP_ROPE_MLA_BWD, &r);
    check_twice(t, OP_EMBED_BWD, &e);
    check_twice(t, OP_BIAS_BWD, &b);
    arena_release(&mirror.device, device);
    arena_release(&mirror.scratch, scratch);
}

/* Memory for tensors of more than 2^31 elements, of which ops touch a few rows. */
enum { FAR_COLS = 2048, FAR_ROWS = (1 << 20) + 5 };

typedef struct Far {
    void *memory;
    size_t bytes;
} Far;

static void far_put(const Far *f, int64_t elem, const Tensor *from)
{
    char *to = (char *)f->memory + elem * (int64_t)dtype_bytes(from->dtype);
    CHECK(to + tensor_bytes(from) <= (char *)f->memory + f->bytes);
    CHECK_OK(mirror.gpu.backend->copy(&mirror.gpu, to, from->data, tensor_bytes(from)));
}

static Tensor far_get(OpTest *t, const void *from, const Tensor *like)
{
    Tensor out = optest_copy(t, like);
    CHECK_OK(mirror.gpu.backend->copy(&mirror.gpu, out.data, from, tensor_bytes(&out)));
    CHECK_OK(mirror.gpu.backend->sync(&mirror.gpu));
    return out;
}

static Tensor on_device(const Tensor *from)
{
    Tensor out = *from;
    CHECK_OK(arena_alloc(&mirror.device, tensor_bytes(from), &out.data));
    CHECK_OK(mirror.gpu.backend->copy(&mirror.gpu, out.data, from->data, tensor_bytes(from)));
    return out;
}

static Tensor far_tensor(const Far *f, Dtype type, int64_t rows, int64_t cols)
{
    return (Tensor){ f->memory, type, 2, { rows, cols } };
}

/* Rows of a look-up, of its gradient and of a sum, the last of which begins past 2^31 elements. */
static void check_far_rows(OpTest *t, const Far *f)
{
    static const int32_t at[] = { FAR_ROWS - 1, 0, FAR_ROWS - 3 };
    Tensor rows = optest_normal(t, DTYPE_BF16, DIMS(3, FAR_COLS));
    Tensor want = optest_poisoned(t, DTYPE_BF16, DIMS(1, FAR_COLS));
    Tensor id = optest_poisoned(t, DTYPE_I32, DIMS(3)), id_device, out = on_device(&rows);
    memcpy(id.data, at, sizeof at);
    id_device = on_device(&id);
    for (int i = 0; i < 3; i++) {
        Tensor row = tensor_rows(&rows, i, 1);
        far_put(f, (int64_t)at[i] * FAR_COLS, &row);
    }
    EmbedFwd look = { .id = id_device,
                      .table = far_tensor(f, DTYPE_BF16, FAR_ROWS, FAR_COLS),
                      .h = out };
    CHECK_OK(op_desc(OP_EMBED_FWD)->gpu(&mirror.gpu, &look));
    Tensor got = far_get(t, out.data, &rows);
    CHECK_SAME(&got, &rows);
    MoeCombine sum = { .out = look.table, .slot_row = id_device, .y = out };
    sum.slot_row.rank = 2, sum.slot_row.dim[0] = 1, sum.slot_row.dim[1] = 3;
    sum.y = tensor_rows(&out, 0, 1);
    CHECK_OK(op_desc(OP_MOE_COMBINE)->gpu(&mirror.gpu, &sum));
    for (int64_t i = 0; i < FAR_COLS; i++) {
        float a = (float)optest_get(&rows, i), b = (float)optest_get(&rows, FAR_COLS + i);
        optest_set(&want, i, (double)(a + b + (float)optest_get(&rows, 2 * FAR_COLS + i)));
    }
    got = far_get(t, sum.y.data, &want);
    CHECK_SAME(&got, &want);
}

/* dtable[id] += dh, whose last rows begin past 2^31 elements. */
static void check_far_gradient(OpTest *t, const Far *f)
{
    static const int32_t at[] = { FAR_ROWS - 1, FAR_ROWS - 4 };
    Tensor dh = optest_signs(t, DTYPE_BF16, DIMS(2, FAR_COLS));
    Tensor before = optest_signs(t, DTYPE_F32, DIMS(2, FAR_COLS)), id;
    id = optest_poisoned(t, DTYPE_I32, DIMS(2));
    memcpy(id.data, at, sizeof at);
    EmbedBwd a = { .id = on_device(&id),
                   .dh = on_device(&dh),
                   .dtable = far_tensor(f, DTYPE_F32, FAR_ROWS, FAR_COLS) };
    for (int i = 0; i < 2; i++) {
        Tensor row = tensor_rows(&before, i, 1);
        far_put(f, (int64_t)at[i] * FAR_COLS, &row);
    }
    CHECK_OK(arena_alloc(&mirror.scratch, op_desc(OP_EMBED_BWD)->gpu_workspace(&mirror.gpu, &a),
                         &mirror.gpu.workspace));
    CHECK_OK(op_desc(OP_EMBED_BWD)->gpu(&mirror.gpu, &a));
    for (int i = 0; i < 2; i++) {
        Tensor want = tensor_rows(&before, i, 1);
        for (int64_t c = 0; c < FAR_COLS; c++) {
            optest_set(&want, c, optest_get(&want, c) + optest_get(&dh, i * FAR_COLS + c));
        }
        Tensor got = far_get(t, tensor_at(&a.dtable, (int64_t)at[i] * FAR_COLS), &want);
        CHECK_SAME(&got, &want);
    }
}

/* A window of 64 columns at the end of three rows of 2^30 + 64: normalised, and turned. */
static void check_far_window(OpTest *t, const Far *f)
{
    const int64_t width = (1 << 30) + 64, cols = 64;
    Tensor near = optest_normal(t, DTYPE_BF16, DIMS(3, cols));
    RmsnormFwd a = norm_forward(t, DTYPE_BF16, (Norm){ 3, cols, 1 }), far = a;
    Angles r = angles(t, 3, cols);
    RopeMlaFwd b = { .q = near, .pos = r.pos, .cos = r.cos, .sin = r.sin }, turned;
    b.q_out = optest_poisoned(t, DTYPE_BF16, DIMS(3, cols));
    b.dims = (RopeMlaDims){ .heads = 1, .rope = cols, .interleaved = true };
    turned = b;
    a.x = near;
    for (int i = 0; i < 3; i++) {
        Tensor row = tensor_rows(&near, i, 1);
        far_put(f, (i + 1) * width - cols, &row);
    }
    far.x = far_tensor(f, DTYPE_BF16, 3, width);
    far.x_col = width - cols;
    far.w = on_device(&a.w), far.y = on_device(&a.y), far.rstd = on_device(&a.rstd);
    turned.q = far.x;
    turned.dims.q_col = far.x_col;
    turned.pos = on_device(&r.pos), turned.cos = on_device(&r.cos), turned.sin = on_device(&r.sin);
    turned.q_out = on_device(&b.q_out);
    CHECK_OK(rmsnorm_fwd(&t->ex, a));
    CHECK_OK(rope_mla_fwd(&t->ex, b));
    CHECK_OK(op_desc(OP_RMSNORM_FWD)->gpu(&mirror.gpu, &far));
    CHECK_OK(op_desc(OP_ROPE_MLA_FWD)->gpu(&mirror.gpu, &turned));
    Tensor y = far_get(t, far.y.data, &a.y), q = far_get(t, turned.q_out.data, &b.q_out);
    CHECK_TENSOR(&y, optest_read(t, &a.y));
    CHECK_TENSOR(&q, optest_read(t, &b.q_out));
}

/* 8-bit rows of x[row_token], the last of which begins past 2^31 elements. */
static void check_far_quantise(OpTest *t, const Far *f)
{
    static const int32_t at[] = { FAR_ROWS - 1, 0, FAR_ROWS - 3 };
    Tensor rows = optest_normal(t, DTYPE_BF16, DIMS(3, FAR_COLS));
    Tensor token = optest_poisoned(t, DTYPE_I32, DIMS(3));
    Quantize near = { .x = operand_plain(rows), .pow2 = true };
    CHECK_OK(operand_new(&t->arena, OPERAND_1X128, DTYPE_E4M3, 2, DIMS(3, FAR_COLS), &near.quant));
    memcpy(token.data, at, sizeof at);
    for (int i = 0; i < 3; i++) {
        Tensor row = tensor_rows(&rows, i, 1);
        far_put(f, (int64_t)at[i] * FAR_COLS, &row);
    }
    Quantize far = near;
    far.x = operand_plain(far_tensor(f, DTYPE_BF16, FAR_ROWS, FAR_COLS));
    far.row_token = on_device(&token);
    far.rows.bound = 3;
    far.quant.data = on_device(&near.quant.data), far.quant.scale = on_device(&near.quant.scale);
    CHECK_OK(quantize(&t->ex, near));
    CHECK_OK(op_desc(OP_QUANTIZE)->gpu(&mirror.gpu, &far));
    Tensor data = far_get(t, far.quant.data.data, &near.quant.data);
    Tensor scale = far_get(t, far.quant.scale.data, &near.quant.scale);
    CHECK_SAME(&data, &near.quant.data);
    CHECK_SAME(&scale, &near.quant.scale);
}

static void rows_past_2_to_31_elements_are_found(void **state)
{
    OpTest *t = *state;
    NEEDS_GPU();
    Far f = { NULL, (size_t)FAR_ROWS * FAR_COLS * sizeof(float) };
    ArenaMark device = arena_mark(&mirror.device), scratch = arena_mark(&mirror.scratch);
    CHECK_OK(mirror.gpu.backend->alloc(&mirror.gpu, mirror.device.kind, f.bytes, &f.memory));
    check_far_rows(t, &f);
    check_far_gradient(t, &f);
    check_far_window(t, &f);
    check_far_quantise(t, &f);
    mirror.gpu.backend->free(&mirror.gpu, mirror.device.kind, f.memory, f.bytes);
    arena_release(&mirror.device, device);
    arena_release(&mirror.scratch, scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(norms_give_the_same_bits_at_any_address, 2),
        OP_TEST(rotations_give_the_same_bits_at_any_address, 2),
        OP_TEST(gates_give_the_same_bits_at_any_address, 2),
        OP_TEST(gathers_give_the_same_bits_at_any_address, 2),
        OP_TEST(sums_and_casts_give_the_same_bits_at_any_address, 2),
        OP_TEST(biases_give_the_same_bits_at_any_address, 2),
        OP_TEST(no_rows_change_nothing, 2),
        OP_TEST(two_runs_on_a_gpu_give_the_same_bits, 2),
        OP_TEST(rows_past_2_to_31_elements_are_found, 2),
    };
    return TEST_RUN(tests);
}
