/* Timed choices of matrix products on a GPU: right, kept, and the same bits out of a text. */
#include "moe_case.h"

#include "kernels/core/choices.h"
#include "kernels/core/libraries.h"
#include "kernels/dense/linear.h"
#include "kernels/quant/quant.h"

typedef struct Sizes {
    int64_t N, O, I;
} Sizes;

/* Layers of a model, and what no tile divides. An interpreter of kernels has time for the last ones. */
static const Sizes all_sizes[] = {
    { 1024, 1536, 512 }, { 4096, 64, 256 }, { 256, 2048, 1032 }, { 129, 65, 31 }, { 1, 7, 13 },
};

enum { ALL_SIZES = sizeof all_sizes / sizeof *all_sizes, FEW_SIZES = 2 };

static const Sizes *sizes = all_sizes;
static int n_sizes = ALL_SIZES;

/* These products always run: their sizes are what the mirror would limit. */
static void open_on_gpu(OpTest *t)
{
    optest_open(t, 2);
    if (getenv("TEST_WORK") != NULL) {
        sizes = all_sizes + ALL_SIZES - FEW_SIZES;
        n_sizes = FEW_SIZES;
        mirror.work = 0;
    }
    if (mirror.device_memory != NULL && exec_choices(&mirror.gpu) != NULL) return;
    optest_close(t);
    skip();
}

/* AMD's build times no products but those of f32 and bf16 that are dense. */
static void open_on_nvidia(OpTest *t)
{
    open_on_gpu(t);
    if (op_vendor == VENDOR_NVIDIA) return;
    optest_close(t);
    skip();
}

static int count(const Choices *c, ChoiceKind kind)
{
    int n = 0;
    for (int i = 0; i < c->n; i++) n += c->at[i].kind == kind;
    return n;
}

static Dtype type_of(int i) { return i % 2 == 0 ? DTYPE_BF16 : DTYPE_F32; }

/* While tuning as well: nothing is added in place here. */
static void check_fwd(OpTest *t, const Sizes *s, Dtype type, bool residual)
{
    LinearFwd a = { .x = operand_plain(optest_normal(t, type, DIMS(s->N, s->I))),
                    .w = operand_plain(optest_normal(t, type, DIMS(s->O, s->I))),
                    .y = optest_poisoned(t, type, DIMS(s->N, s->O)) };
    if (residual) a.r = optest_normal(t, type, DIMS(s->N, s->O));
    CHECK_OK(linear_fwd(&t->ex, a));
}

static void check_bwd_weight(OpTest *t, const Sizes *s, Dtype type)
{
    LinearBwdWeight a = { .dy = operand_plain(optest_normal(t, type, DIMS(s->N, s->O))),
                          .x = operand_plain(optest_normal(t, type, DIMS(s->N, s->I))),
                          .dw = optest_normal(t, DTYPE_F32, DIMS(s->O, s->I)) };
    CHECK_OK(linear_bwd_weight(&t->ex, a));
}

/* The mirror compares each with the CPU. Timing adds a weight gradient many times over, so there it
 * only has to be finite, and is compared when it runs again. */
static void timed_products_match_the_cpu(void **state)
{
    (void)state;
    OpTest t;
    open_on_gpu(&t);
    for (int i = 0; i < n_sizes * 2; i++) {
        ArenaMark mark = arena_mark(&t.arena);
        const Sizes *s = &sizes[i / 2];
        CHECK_OK(exec_tune(&mirror.gpu, true));
        check_fwd(&t, s, type_of(i), false);
        check_fwd(&t, s, type_of(i), true);
        mirror.finite_only = true;
        check_bwd_weight(&t, s, type_of(i));
        mirror.finite_only = false;
        CHECK_OK(exec_tune(&mirror.gpu, false));
        check_bwd_weight(&t, s, type_of(i));
        arena_release(&t.arena, mark);
    }
    CHECK(count(exec_choices(&mirror.gpu), CHOICE_TIMED) >= 3 * n_sizes);
    CHECK_INT(count(exec_choices(&mirror.gpu), CHOICE_FIRST), 0);
    optest_close(&t);
}

/* One product for each pair of scales; all have the same shape, so only their kinds tell their
 * choices apart. */
static void timed_products_of_8_bit_operands_match_the_cpu(void **state)
{
    (void)state;
    static const OperandKind pairs[][2] = { { OPERAND_TENSOR, OPERAND_TENSOR },
                                            { OPERAND_ROW, OPERAND_ROW },
                                            { OPERAND_1X128, OPERAND_128X128 },
                                            { OPERAND_1X128, OPERAND_1X128 } };
    OpTest t;
    open_on_nvidia(&t);
    int before = count(exec_choices(&mirror.gpu), CHOICE_TIMED);
    Tensor x = optest_normal(&t, DTYPE_BF16, DIMS(272, 400)), w;
    Tensor y = optest_poisoned(&t, DTYPE_BF16, DIMS(272, 144));
    w = optest_normal(&t, DTYPE_BF16, DIMS(144, 400));
    for (int i = 0; i < 8; i++) {
        Dtype type = i < 4 ? DTYPE_E4M3 : DTYPE_E5M2;
        LinearFwd a = { .y = y };
        CHECK_OK(operand_new(&t.arena, pairs[i % 4][0], type, 2, x.dim, &a.x));
        CHECK_OK(operand_new(&t.arena, pairs[i % 4][1], DTYPE_E4M3, 2, w.dim, &a.w));
        CHECK_OK(quantize(&t.ex, (Quantize){ .x.data = x, .quant = a.x }));
        CHECK_OK(quantize(&t.ex, (Quantize){ .x.data = w, .quant = a.w }));
        CHECK_OK(exec_tune(&mirror.gpu, true));
        CHECK_OK(linear_fwd(&t.ex, a));
        CHECK_OK(exec_tune(&mirror.gpu, false));
        CHECK_OK(linear_fwd(&t.ex, a));
    }
    if (gpu_limit(GPU_CAPABILITY_MAJOR) == 9 && gpu_code_lacks() == NULL)
        CHECK_INT(count(exec_choices(&mirror.gpu), CHOICE_TIMED) - before, 8);
    optest_close(&t);
}

/* An Exec of its own, with an empty table. */
typedef struct Place {
    Exec ex;
    Arena tables;
} Place;

static void place_open(Place *p)
{
    *p = (Place){ 0 };
    CHECK_OK(arena_init(&p->tables, "place", MEM_HOST, (size_t)16 << 20));
    CHECK_OK(gpu_exec_init(&p->ex, 0, &p->tables, &mirror.scratch));
}

static void place_close(Place *p)
{
    exec_free(&p->ex);
    arena_free(&p->tables);
}

static Tensor on_device(Place *p, const Tensor *from)
{
    Tensor to = *from;
    CHECK_OK(arena_alloc(&mirror.device, tensor_bytes(from), &to.data));
    CHECK_OK(p->ex.backend->copy(&p->ex, to.data, from->data, tensor_bytes(from)));
    return to;
}

/* y = x W^T of every size, one after the other in one tensor of bytes. */
static Tensor run_all(OpTest *t, Place *p)
{
    int64_t used = 0;
    Tensor all = optest_poisoned(t, DTYPE_F32, DIMS(1 << 23));
    uint64_t drawn = t->drawn;
    for (int i = 0; i < n_sizes * 2; i++) {
        const Sizes *s = &sizes[i / 2];
        ArenaMark mark = arena_mark(&t->arena), device = arena_mark(&mirror.device);
        Tensor x = optest_normal(t, type_of(i), DIMS(s->N, s->I));
        Tensor w = optest_normal(t, type_of(i), DIMS(s->O, s->I));
        Tensor y = optest_poisoned(t, type_of(i), DIMS(s->N, s->O));
        LinearFwd a = { .x = operand_plain(on_device(p, &x)),
                        .w = operand_plain(on_device(p, &w)),
                        .y = on_device(p, &y) };
        CHECK_OK(linear_fwd(&p->ex, a));
        CHECK((used + s->N * s->O) <= tensor_elems(&all));
        CHECK_OK(p->ex.backend->copy(&p->ex, tensor_at(&all, used), a.y.data, tensor_bytes(&y)));
        CHECK_OK(p->ex.backend->sync(&p->ex));
        used += s->N * s->O;
        arena_release(&mirror.device, device);
        arena_release(&t->arena, mark);
    }
    t->drawn = drawn;
    return all;
}

static void a_text_of_choices_gives_the_same_bits(void **state)
{
    (void)state;
    OpTest t;
    Place timed, resumed;
    const char *text = NULL, *again = NULL;
    int taken = 0;
    open_on_gpu(&t);
    place_open(&timed);
    place_open(&resumed);
    CHECK_OK(exec_tune(&timed.ex, true));
    Tensor first = run_all(&t, &timed);
    CHECK_OK(exec_tune(&timed.ex, false));
    Tensor second = run_all(&t, &timed);
    CHECK_SAME(&first, &second);
    CHECK_OK(choices_text(exec_choices(&timed.ex), &t.arena, &text));
    CHECK_OK(choices_take(exec_choices(&resumed.ex), "text", text, &taken));
    CHECK_INT(taken, exec_choices(&timed.ex)->n);
    CHECK_OK(exec_tune(&resumed.ex, true)); /* nothing is left to time */
    Tensor third = run_all(&t, &resumed);
    CHECK_SAME(&first, &third);
    CHECK_OK(choices_text(exec_choices(&resumed.ex), &t.arena, &again));
    CHECK_TEXT(again, text);
    place_close(&resumed);
    place_close(&timed);
    optest_close(&t);
}

static void without_tuning_the_first_proposal_is_taken_every_time(void **state)
{
    (void)state;
    OpTest t;
    Place one, two;
    const char *text = NULL, *again = NULL;
    open_on_gpu(&t);
    place_open(&one);
    place_open(&two);
    Tensor first = run_all(&t, &one), second = run_all(&t, &two);
    CHECK_SAME(&first, &second);
    CHECK_INT(count(exec_choices(&one.ex), CHOICE_TIMED), 0);
    CHECK(!exec_choices(&one.ex)->unsaved);
    CHECK_OK(choices_text(exec_choices(&one.ex), &t.arena, &text));
    CHECK_OK(choices_text(exec_choices(&two.ex), &t.arena, &again));
    CHECK_TEXT(again, text);
    place_close(&two);
    place_close(&one);
    optest_close(&t);
}

/* An algorithm for bf16 with the key of a product in f32, and the other way round. */
static void an_algorithm_that_does_not_fit_is_replaced(void **state)
{
    (void)state;
    OpTest t;
    Place p;
    open_on_gpu(&t);
    place_open(&p);
    Tensor want = run_all(&t, &p);
    Choices *c = exec_choices(&p.ex);
    Choice *half = &c->at[0], *whole = &c->at[1], kept[2] = { *half, *whole };
    memcpy(half->algo, kept[1].algo, sizeof half->algo);
    memcpy(whole->algo, kept[0].algo, sizeof whole->algo);
    half->unchecked = whole->unchecked = true;
    Tensor got = run_all(&t, &p);
    CHECK_SAME(&got, &want);
    CHECK(memcmp(half->algo, kept[0].algo, sizeof half->algo) == 0);
    CHECK(memcmp(whole->algo, kept[1].algo, sizeof whole->algo) == 0);
    place_close(&p);
    optest_close(&t);
}

/* The entries of grouped products; their shape becomes `shape`, unless it is 0. */
static int grouped_entries(Choices *c, uint64_t shape)
{
    int n = 0;
    for (int i = 0; i < c->n; i++) {
        if (c->at[i].key.kinds >> 62 == 0) continue;
        if (shape != 0) c->at[i].algo[0] = shape;
        n++;
    }
    return n;
}

/* With an index, and without: then each routed row has a token of its own. */
static Moe grouped_case(OpTest *t, bool indexed)
{
    const int64_t group[] = { 0, 300, 1, 129, 82 };
    MoeSizes s = { indexed ? 256 : 512, indexed ? 2 : 1, 5, 264, 136, 0 };
    Moe m = moe_make(t, DTYPE_BF16, s, group, false);
    CHECK_OK(moe_sort_run(t, &m));
    if (!indexed) m.row_token = (Tensor){ 0 };
    return m;
}

/* All results of the experts' products, one behind the other. */
static void grouped_run(OpTest *t, const Moe *m, Tensor *all)
{
    const Tensor *out[] = { &m->pre, &m->act_rows, &m->out, &m->dx_rows, &m->dw1, &m->dw2 };
    size_t used = 0;
    memset(m->dw1.data, 0, tensor_bytes(&m->dw1));
    memset(m->dw2.data, 0, tensor_bytes(&m->dw2));
    moe_forward(t, m);
    moe_backward(t, m);
    for (size_t i = 0; i < sizeof out / sizeof *out; i++) {
        CHECK(used + tensor_bytes(out[i]) <= tensor_bytes(all));
        memcpy((char *)all->data + used, out[i]->data, tensor_bytes(out[i]));
        used += tensor_bytes(out[i]);
    }
}

/* Each product is compared with the CPU's, too. */
static void every_tile_shape_of_a_grouped_product_gives_the_same_bits(void **state)
{
    (void)state;
    /* That have several shapes: moe_up_fwd, both weights' without an index, moe_up_bwd_weight with
     * one, moe_down_fwd once for both. */
    enum { PRODUCTS = 5, SHAPES = 3 };
    OpTest t;
    open_on_nvidia(&t);
    mirror_gives();
    Choices *c = exec_choices(&mirror.gpu);
    Tensor kept[2];
    for (int i = 0; i < 2; i++) kept[i] = optest_poisoned(&t, DTYPE_F32, DIMS(1 << 21));
    Moe m[] = { grouped_case(&t, false), grouped_case(&t, true) };
    CHECK_INT(grouped_entries(c, 0), 0);
    CHECK_OK(exec_tune(&mirror.gpu, true));
    mirror.finite_only = true;
    for (int i = 0; i < 2; i++) grouped_run(&t, &m[i], &kept[i]);
    mirror.finite_only = false;
    CHECK_OK(exec_tune(&mirror.gpu, false));
    CHECK_INT(grouped_entries(c, 0), mirror_hopper() ? PRODUCTS : 0);
    for (int i = 0; i < 2; i++) {
        Tensor got = optest_poisoned(&t, DTYPE_F32, DIMS(1 << 21));
        memset(got.data, 0, tensor_bytes(&got));
        memset(kept[i].data, 0, tensor_bytes(&kept[i]));
        for (uint64_t shape = 1; shape <= SHAPES + 1; shape++) {
            (void)grouped_entries(c, shape);
            grouped_run(&t, &m[i], shape == 1 ? &kept[i] : &got);
            if (shape > 1) CHECK_SAME(&got, &kept[i]);
        }
    }
    CHECK_INT(grouped_entries(c, 0), mirror_hopper() ? PRODUCTS : 0);
    optest_close(&t);
}

static void an_exec_on_the_cpu_has_no_choices(void **state)
{
    OpTest *t = *state;
    CHECK(exec_choices(&t->ex) == NULL);
    CHECK_OK(exec_tune(&t->ex, true));
    CHECK_OK(exec_tune(&t->ex, false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(timed_products_match_the_cpu),
        TEST(timed_products_of_8_bit_operands_match_the_cpu),
        TEST(a_text_of_choices_gives_the_same_bits),
        TEST(without_tuning_the_first_proposal_is_taken_every_time),
        TEST(an_algorithm_that_does_not_fit_is_replaced),
        TEST(every_tile_shape_of_a_grouped_product_gives_the_same_bits),
        OP_TEST(an_exec_on_the_cpu_has_no_choices, 1),
    };
    return TEST_RUN(tests);
}
