/* Ops in f16: products are exact where f16 is, attention is as close to double as 11 bits allow, and
 * scaled gradients become those without a scale. GPUs have no kernels for it. */
#include "kernels/dense/linear.h"
#include "kernels/op/attention_reference.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/route/route.h"

/* The guard stays; the mirror would run the op on a GPU. */
static OpTest *on_cpu(void **state)
{
    OpTest *t = *state;
    if (t->ex.front[0] == &backend_mirror) exec_pop(&t->ex);
    return t;
}

/* The same numbers in another type. */
static Tensor as_type(OpTest *t, const Tensor *x, Dtype type)
{
    Tensor out = optest_poisoned(t, type, DIMS(x->dim[0], x->dim[1]));
    optest_write(&out, optest_read(t, x));
    return out;
}

typedef struct Products {
    Tensor y, dx, dw;
} Products;

/* The three products of x, w, dy, with r added to dx, and w to dw. */
static Products products_of(OpTest *t, const Tensor *x, const Tensor *w, const Tensor *dy,
                            const Tensor *r, Dtype act, Dtype weights)
{
    Operand in = operand_plain(as_type(t, x, act)), matrix = operand_plain(as_type(t, w, weights));
    Operand grad = operand_plain(as_type(t, dy, act));
    Products p = { .y = optest_poisoned(t, act, DIMS(dy->dim[0], dy->dim[1])),
                   .dx = as_type(t, r, act),
                   .dw = as_type(t, w, DTYPE_F32) };
    CHECK_OK(linear_fwd(&t->ex, (LinearFwd){ .x = in, .w = matrix, .y = p.y }));
    CHECK_OK(linear_bwd_input(&t->ex,
                              (LinearBwdInput){ .dy = grad, .w = matrix, .r = p.dx, .dx = p.dx }));
    CHECK_OK(linear_bwd_weight(&t->ex, (LinearBwdWeight){ .dy = grad, .x = in, .dw = p.dw }));
    return p;
}

static void check_exact(const Tensor *have, const Tensor *want)
{
    for (int64_t i = 0; i < tensor_elems(want); i++)
        CHECK_NEAR(optest_get(have, i), optest_get(want, i), 0);
}

/* Sums of signs are integers far below 2048, which f16 holds exactly. All sizes are odd; 531 terms are
 * more than a block, so that sums wait in f32 before they are rounded. mixed: f32 weights, as the
 * router's. */
static void products_of_small_integers_are_those_of_f32(void **state)
{
    enum { N = 37, O = 45, I = 531 };
    OpTest *t = on_cpu(state);
    for (int mixed = 0; mixed < 2; mixed++) {
        Tensor x = optest_signs(t, DTYPE_F32, DIMS(N, I)),
               w = optest_signs(t, DTYPE_F32, DIMS(O, I));
        Tensor dy = optest_signs(t, DTYPE_F32, DIMS(N, O)),
               r = optest_signs(t, DTYPE_F32, DIMS(N, I));
        Products want = products_of(t, &x, &w, &dy, &r, DTYPE_F32, DTYPE_F32);
        Products have = products_of(t, &x, &w, &dy, &r, DTYPE_F16, mixed ? DTYPE_F32 : DTYPE_F16);
        check_exact(&have.y, &want.y);
        check_exact(&have.dx, &want.dx);
        check_exact(&have.dw, &want.dw);
    }
}

/* A result is rounded once, to nearest: 2^-12 of itself on average, under half of 2^-11 always. */
static void products_are_rounded_once(void **state)
{
    OpTest *t = on_cpu(state);
    Tensor x = optest_normal(t, DTYPE_F16, DIMS(9, 300)),
           w = optest_normal(t, DTYPE_F16, DIMS(33, 300));
    Tensor wide = optest_poisoned(t, DTYPE_F32, DIMS(9, 33)),
           y = optest_poisoned(t, DTYPE_F16, DIMS(9, 33));
    LinearFwd a = { .x = operand_plain(x), .w = operand_plain(w), .y = wide };
    CHECK_OK(linear_fwd(&t->ex, a));
    a.y = y;
    CHECK_OK(linear_fwd(&t->ex, a));
    for (int64_t i = 0; i < tensor_elems(&y); i++) {
        uint16_t want = 0;
        dtype_from_f32(&want, DTYPE_F16, (const float *)wide.data + i, 1);
        CHECK_INT(((const uint16_t *)y.data)[i], want);
    }
}

/* Every element that is stored is rounded by at most 2^-11 of itself; sums and probabilities are f32. */
static void attention_is_as_close_as_its_type(void **state)
{
    OpTest *t = on_cpu(state);
    const double limit = 0x1p-11;
    AttentionFwd f = { .q = optest_normal(t, DTYPE_F16, DIMS(2, 67, 4, 24)),
                       .k = optest_normal(t, DTYPE_F16, DIMS(2, 67, 2, 24)),
                       .v = optest_normal(t, DTYPE_F16, DIMS(2, 67, 2, 19)),
                       .o = optest_poisoned(t, DTYPE_F16, DIMS(2, 67, 4, 19)),
                       .lse = optest_poisoned(t, DTYPE_F32, DIMS(2, 4, 67)),
                       .scale = 0.2f };
    Problem p = problem_of(t, &f);
    each_query(&p, forward);
    CHECK_OK(attention_fwd(&t->ex, f));
    CHECK_TENSOR_WITHIN(&f.o, p.o, limit);
    AttentionBwd b = make_bwd(t, &f);
    p.d_o = optest_read(t, &b.d_o), p.given_o = optest_read(t, &f.o);
    p.given_lse = optest_read(t, &f.lse);
    each_query(&p, backward);
    CHECK_OK(attention_bwd(&t->ex, b));
    CHECK_TENSOR_WITHIN(&b.dv, p.dv, limit);
    for (int64_t i = 0; i < tensor_elems(&b.dq); i++)
        CHECK_NEAR(optest_get(&b.dq, i), p.dq[i], limit * p.dq_size[i]);
    for (int64_t i = 0; i < tensor_elems(&b.dk); i++)
        CHECK_NEAR(optest_get(&b.dk, i), p.dk[i], limit * p.dk_size[i]);
}

static Tensor number(OpTest *t, double value)
{
    Tensor x = optest_poisoned(t, DTYPE_F32, DIMS(1));
    optest_set(&x, 0, value);
    return x;
}

/* sum 10000 * 2^20: norm 100 under a scale of 2^10. */
static void norm_and_clip_are_without_the_scale(void **state)
{
    OpTest *t = on_cpu(state);
    ClipScale a = { .sum = number(t, 10000.0 * (1 << 20)),
                    .norm = number(t, 0),
                    .clip = number(t, 0),
                    .scale = number(t, 1024),
                    .max_norm = 25 };
    CHECK_OK(clip_scale(&t->ex, a));
    CHECK_NEAR(optest_get(&a.norm, 0), 100, 1e-5);
    CHECK_NEAR(optest_get(&a.clip, 0) * 1024, 0.25, 1e-7);
    a.max_norm = 0;
    CHECK_OK(clip_scale(&t->ex, a));
    CHECK_NEAR(optest_get(&a.clip, 0) * 1024, 1, 0);
}

/* dweight comes scaled; the op scales what it adds. */
static void gradients_of_auxiliary_losses_are_scaled(void **state)
{
    OpTest *t = on_cpu(state);
    RouteBwd a = { .logits = optest_normal(t, DTYPE_F32, DIMS(12, 6)),
                   .index = optest_poisoned(t, DTYPE_I32, DIMS(12, 2)),
                   .seq_count = optest_integers(t, DTYPE_I32, DIMS(2, 6), 1, 5),
                   .dweight = optest_normal(t, DTYPE_F32, DIMS(12, 2)),
                   .dlogits = optest_poisoned(t, DTYPE_F32, DIMS(12, 6)),
                   .rule = { .top_k = 2,
                             .groups = 1,
                             .top_groups = 1,
                             .group_score_top = 1,
                             .scaling = 1,
                             .aux_scale = 0.5f,
                             .z_scale = 0.25f } };
    for (int64_t i = 0; i < 24; i++) optest_set(&a.index, i, (double)(i % 6));
    CHECK_OK(route_bwd(&t->ex, a));
    double *want = optest_read(t, &a.dlogits);
    for (int64_t i = 0; i < 24; i++) optest_set(&a.dweight, i, 8 * optest_get(&a.dweight, i));
    a.scale = number(t, 8);
    CHECK_OK(route_bwd(&t->ex, a));
    for (int64_t i = 0; i < 72; i++) CHECK_NEAR(optest_get(&a.dlogits, i), 8 * want[i], 0);
}

/* The copy that the update leaves has the bits of the rounded main weights. */
static void the_update_leaves_rounded_weights(void **state)
{
    OpTest *t = on_cpu(state);
    Adamw a = { .w = optest_normal(t, DTYPE_F32, DIMS(300)),
                .g = optest_normal(t, DTYPE_F32, DIMS(300)),
                .m = optest_normal(t, DTYPE_F32, DIMS(300)),
                .v = optest_integers(t, DTYPE_F32, DIMS(300), 1, 3),
                .w_low = optest_poisoned(t, DTYPE_F16, DIMS(300)),
                .clip = number(t, 0.5),
                .hyper = optest_integers(t, DTYPE_F32, DIMS(3), 1, 1),
                .beta1 = 0.5f,
                .beta2 = 0.5f,
                .eps = 1,
                .decay = 0.5f };
    CHECK_OK(adamw(&t->ex, a));
    for (int64_t i = 0; i < 300; i++) {
        uint16_t want = 0;
        dtype_from_f32(&want, DTYPE_F16, (const float *)a.w.data + i, 1);
        CHECK_INT(((const uint16_t *)a.w_low.data)[i], want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(products_of_small_integers_are_those_of_f32, 2),
        OP_TEST(products_are_rounded_once, 1),
        OP_TEST(attention_is_as_close_as_its_type, 2),
        OP_TEST(norm_and_clip_are_without_the_scale, 1),
        OP_TEST(gradients_of_auxiliary_losses_are_scaled, 1),
        OP_TEST(the_update_leaves_rounded_weights, 1),
    };
    return TEST_RUN(tests);
}
