/* attention by the kernels for Hopper and for all of NVIDIA's GPUs, forced, against the CPU: skipped without one. */
#include "harness/optest.h"
#include "kernels/op/attention_case.h"

#include "engine/backend/backend.h"
#include "kernels/core/kernels.h"

static AttentionKernel kernel;

static bool runs_here(void)
{
    if (kernel == ATTENTION_HOPPER) return mirror_hopper();
    return mirror.device_memory != NULL && op_vendor == VENDOR_NVIDIA;
}

typedef struct Sizes {
    int64_t B, T, H, G, dk, dv;
} Sizes;

/* Documents of 1 to 300 tokens. */
static Tensor documents(OpTest *t, const Sizes *s)
{
    Tensor doc = optest_poisoned(t, DTYPE_I32, DIMS(s->B, s->T));
    for (int64_t b = 0; b < s->B; b++) {
        int64_t start = 0, end = 0;
        for (int64_t i = 0; i < s->T; i++) {
            if (i == end) start = i, end = i + 1 + (int64_t)rng_below(3, 7, (uint64_t)i, 300);
            optest_set(&doc, b * s->T + i, (double)start);
        }
    }
    return doc;
}

static AttentionFwd make_fwd(OpTest *t, const Sizes *s, bool packed)
{
    Dtype act = DTYPE_BF16;
    return (AttentionFwd){ .q = optest_normal(t, act, DIMS(s->B, s->T, s->H, s->dk)),
                           .k = optest_normal(t, act, DIMS(s->B, s->T, s->G, s->dk)),
                           .v = optest_normal(t, act, DIMS(s->B, s->T, s->G, s->dv)),
                           .doc = packed ? documents(t, s) : (Tensor){ 0 },
                           .o = optest_poisoned(t, act, DIMS(s->B, s->T, s->H, s->dv)),
                           .lse = optest_poisoned(t, DTYPE_F32, DIMS(s->B, s->H, s->T)),
                           .scale = 1 / sqrtf((float)s->dk),
                           .kernel = kernel };
}

/* The mirror compares, and fails where the kernel does not do it. */
static void check_both(OpTest *t, const Sizes *s, bool packed, const int64_t window_chunk[2])
{
    AttentionFwd f = make_fwd(t, s, packed);
    f.window = window_chunk[0], f.chunk = window_chunk[1];
    CHECK_OK(attention_fwd(&t->ex, f));
    AttentionBwd a = make_bwd(t, &f);
    CHECK_OK(attention_bwd(&t->ex, a));
}

static void agrees_with_the_cpu(void **state)
{
    OpTest *t = *state;
    static const Sizes sizes[] = { { 2, 256, 4, 4, 192, 128 }, { 1, 331, 4, 2, 128, 128 },
                                   { 3, 100, 2, 2, 64, 64 },   { 1, 1024, 2, 1, 192, 128 },
                                   { 2, 419, 4, 1, 64, 48 },   { 2, 150, 4, 2, 256, 256 },
                                   { 1, 77, 2, 1, 80, 200 } };
    /* none, two keys (of one dq is 0), less than a tile, a tile, more; chunks; both; what hides nothing */
    static const int64_t masks[][2] = { { 0, 0 },   { 2, 0 },  { 37, 0 },  { 128, 0 },
                                        { 200, 0 }, { 0, 90 }, { 50, 90 }, { 1024, 1 << 20 } };
    enum { CASES = 7 * 2, MASKS = sizeof masks / sizeof *masks };
    const int cases = kernel == ATTENTION_HOPPER ? 5 * 2 : CASES; /* it takes no wider heads */
    if (!runs_here()) skip();
    for (int i = 0; i < cases * MASKS; i++) {
        ArenaMark mark = arena_mark(&t->arena);
        check_both(t, &sizes[i / 2 / MASKS], i % 2 == 1, masks[i / 2 % MASKS]);
        arena_release(&t->arena, mark);
    }
}

/* Documents of `length` tokens, as the rank of these pieces has them. */
static Tensor documents_in_pieces(OpTest *t, const Sizes *s, const AttentionPieces *p,
                                  int64_t length)
{
    if (length == 0) return (Tensor){ 0 };
    Tensor doc = optest_poisoned(t, DTYPE_I32, DIMS(s->B, s->T));
    for (int64_t i = 0; i < s->B * s->T; i++) {
        int64_t at = piece_position(p, p->q, i % s->T) + i / s->T; /* other ones in each sequence */
        int64_t start = at - at % length - i / s->T;
        optest_set(&doc, i, (double)(start > 0 ? start : 0));
    }
    return doc;
}

/* A block of keys on top of given sums, in place: as the model calls it in the middle. */
static void check_middle(OpTest *t, const Sizes *s, const AttentionFwd *f)
{
    AttentionFwd x = *f;
    x.o = x.o_before = optest_normal(t, DTYPE_F32, DIMS(s->B, s->T, s->H, s->dv));
    x.lse = x.lse_before = optest_normal(t, DTYPE_F32, DIMS(s->B, s->H, s->T));
    CHECK_OK(attention_fwd(&t->ex, x));
    AttentionBwd a = make_bwd(t, f);
    a.pieces = f->pieces;
    a.lse = optest_normal(t, DTYPE_F32, DIMS(s->B, s->H, s->T));
    for (int64_t i = 0; i < tensor_elems(&a.lse); i++)
        optest_set(&a.lse, i, 6 + optest_get(&a.lse, i));
    a.o = optest_normal(t, DTYPE_BF16, DIMS(s->B, s->T, s->H, s->dv));
    a.dq = a.dq_before = optest_normal(t, DTYPE_F32, DIMS(s->B, s->T, s->H, s->dk));
    a.dk_before = optest_normal(t, DTYPE_BF16, DIMS(s->B, s->T, s->G, s->dk));
    a.dv = a.dv_before = optest_normal(t, DTYPE_BF16, DIMS(s->B, s->T, s->G, s->dv));
    CHECK_OK(attention_bwd(&t->ex, a));
}

/* The first block of keys makes the sums, the last one is rounded to bf16. Backward reads the o and
 * lse of the last. */
static void check_ends(OpTest *t, const Sizes *s, const AttentionFwd *f)
{
    AttentionFwd x = *f;
    x.o = optest_poisoned(t, DTYPE_F32, DIMS(s->B, s->T, s->H, s->dv));
    CHECK_OK(attention_fwd(&t->ex, x));
    x.o = f->o;
    x.o_before = optest_normal(t, DTYPE_F32, DIMS(s->B, s->T, s->H, s->dv));
    x.lse_before = optest_normal(t, DTYPE_F32, DIMS(s->B, s->H, s->T));
    CHECK_OK(attention_fwd(&t->ex, x));
    AttentionBwd a = make_bwd(t, f);
    a.pieces = f->pieces;
    CHECK_OK(attention_bwd(&t->ex, a));
    a.dq_before = optest_normal(t, DTYPE_F32, DIMS(s->B, s->T, s->H, s->dk));
    CHECK_OK(attention_bwd(&t->ex, a));
    a.dq_before = (Tensor){ 0 };
    a.dq = optest_poisoned(t, DTYPE_F32, DIMS(s->B, s->T, s->H, s->dk));
}

static void check_ranks(OpTest *t, const Sizes *s, int64_t ranks, int64_t pair, int64_t document)
{
    AttentionFwd f = make_fwd(t, s, false);
    f.pieces = pieces_of(s->T / 2, ranks, pair / ranks, pair % ranks);
    f.doc = documents_in_pieces(t, s, &f.pieces, document > 0 ? document : 0);
    if (document < 0) f.window = s->T / 3, f.chunk = s->T + 5;
    check_ends(t, s, &f);
    check_middle(t, s, &f);
}

/* Every rank's queries against every rank's keys: without documents, with ones that end inside of
 * pieces, with ones that most blocks see nothing of, with a window and chunks. */
static void every_pair_of_ranks_agrees_with_the_cpu(void **state)
{
    OpTest *t = *state;
    static const Sizes sizes[] = { { 2, 256, 2, 2, 192, 128 },
                                   { 1, 330, 4, 2, 128, 128 },
                                   { 3, 130, 2, 1, 64, 64 },
                                   { 1, 512, 1, 1, 192, 128 } };
    if (!runs_here()) skip();
    optest_unguard(t); /* rows without a key have lse -infinity */
    for (int i = 0; i < 4 * 3 * 4; i++) {
        const Sizes *s = &sizes[i / 12];
        int64_t ranks = 2 + i % 3, document[] = { 0, 3 * s->T / 4 + 1, 37, -1 };
        for (int64_t pair = 0; pair < ranks * ranks; pair++) {
            ArenaMark mark = arena_mark(&t->arena);
            check_ranks(t, s, ranks, pair, document[i / 3 % 4]);
            arena_release(&t->arena, mark);
        }
    }
}

/* 2.7 GB of ds: the sequences one by one, their key/value heads in two halves. */
static void a_large_call_is_done_in_parts(void **state)
{
    OpTest *t = *state;
    if (!runs_here()) skip();
    const Sizes s = { 2, 4096, 40, 8, 16, 8 };
    check_both(t, &s, true, (const int64_t[2]){ 0, 0 });
    check_both(t, &s, true, (const int64_t[2]){ 100, 0 }); /* a block of threads has many jobs */
    optest_unguard(t);                                     /* as above */
    check_ranks(t, &s, 2, 1, 0);
}

static void run_on_gpu(const AttentionBwd *a, const AttentionBwd *results)
{
    Exec *gpu = &mirror.gpu;
    const Tensor *from[] = { &a->dq, &a->dk, &a->dv };
    const Tensor *to[] = { &results->dq, &results->dk, &results->dv };
    CHECK_OK(attention_bwd(gpu, *a));
    for (int i = 0; i < 3; i++) {
        CHECK_OK(gpu->backend->copy(gpu, to[i]->data, from[i]->data, tensor_bytes(to[i])));
    }
    CHECK_OK(gpu->backend->sync(gpu));
}

static void check_repeats(OpTest *t, const AttentionFwd *f)
{
    AttentionBwd first = make_bwd(t, f), again = make_bwd(t, f), device;
    first.pieces = f->pieces;
    CHECK_OK(mirror_args(op_desc(OP_ATTENTION_BWD), &first, (char *)&device));
    run_on_gpu(&device, &first);
    for (int i = 0; i < 20; i++) {
        run_on_gpu(&device, &again);
        CHECK_SAME(&again.dq, &first.dq);
        CHECK_SAME(&again.dk, &first.dk);
        CHECK_SAME(&again.dv, &first.dv);
    }
}

static void backward_gives_the_same_bits_every_time(void **state)
{
    OpTest *t = *state;
    if (!runs_here()) skip();
    const Sizes s = { 2, 1024, 8, 4, 128, 128 };
    for (int64_t k = 0; k < 4;
         k++) { /* the whole sequence; the own, a later and an earlier block */
        AttentionFwd f = make_fwd(t, &s, k == 0);
        if (k > 0) f.pieces = pieces_of(s.T / 2, 3, 1, k % 3);
        if (k > 0) f.doc = documents_in_pieces(t, &s, &f.pieces, 700);
        f.o_before = optest_normal(t, DTYPE_F32, DIMS(s.B, s.T, s.H, s.dv));
        f.lse_before = optest_normal(t, DTYPE_F32, DIMS(s.B, s.H, s.T));
        CHECK_OK(attention_fwd(&t->ex, f));
        check_repeats(t, &f);
    }
}

enum { MARGIN = 1 << 16, MARK = 0xA5 };

/* Run an op on the device and look at what lies behind its workspace. */
static void check_margin(const OpDesc *op, const void *args)
{
    static unsigned char behind[MARGIN];
    _Alignas(16) char device[MIRROR_ARGS_MAX];
    ArenaMark mark = arena_mark(&mirror.scratch);
    Exec *gpu = &mirror.gpu;
    size_t bytes = op->gpu_workspace(gpu, args);
    void *workspace = NULL;
    CHECK_OK(mirror_args(op, args, device));
    CHECK_OK(arena_alloc(&mirror.scratch, bytes + MARGIN, &workspace));
    CHECK_OK(gpu->backend->fill(gpu, workspace, MARK, bytes + MARGIN));
    gpu->workspace = workspace;
    CHECK_OK(op->gpu(gpu, device));
    CHECK_OK(gpu->backend->copy(gpu, behind, (char *)workspace + bytes, MARGIN));
    CHECK_OK(gpu->backend->sync(gpu));
    for (int i = 0; i < MARGIN; i++) CHECK(behind[i] == MARK);
    arena_release(&mirror.scratch, mark);
}

static void nothing_behind_the_workspace_is_touched(void **state)
{
    OpTest *t = *state;
    static const Sizes sizes[] = { { 1, 601, 4, 2, 192, 128 },
                                   { 3, 65, 2, 2, 64, 64 },
                                   { 2, 200, 6, 2, 80, 40 },
                                   { 1, 1000, 4, 4, 128, 128 } };
    if (!runs_here()) skip();
    optest_unguard(t);
    for (int i = 0; i < 4 * 5; i++) {
        const Sizes *s = &sizes[i / 5];
        AttentionFwd f = make_fwd(t, s, i % 5 == 0);
        AttentionPieces p = pieces_of(s->T / 2, 2, i % 5 / 2 % 2, i % 2);
        if (i % 5 > 0 && (s->T % 2 != 0 || s->T < 128)) continue;
        if (i % 5 > 0) f.pieces = p, f.doc = documents_in_pieces(t, s, &p, s->T / 3);
        if (i % 2 > 0) f.window = 50, f.chunk = 120, f.doc = (Tensor){ 0 };
        check_margin(op_desc(OP_ATTENTION_FWD), &f);
        CHECK_OK(attention_fwd(&t->ex, f));
        AttentionBwd a = make_bwd(t, &f);
        a.pieces = f.pieces;
        if (i % 5 > 0) a.dk_before = a.dk, a.dv_before = a.dv;
        if (i % 5 > 0) a.dq_before = optest_normal(t, DTYPE_F32, DIMS(s->B, s->T, s->H, s->dk));
        check_margin(op_desc(OP_ATTENTION_BWD), &a);
    }
}

static void run_on_device(const OpDesc *op, const void *device)
{
    ArenaMark mark = arena_mark(&mirror.scratch);
    Exec *gpu = &mirror.gpu;
    CHECK_OK(arena_alloc(&mirror.scratch, op->gpu_workspace(gpu, device), &gpu->workspace));
    CHECK_OK(op->gpu(gpu, device));
    CHECK_OK(gpu->backend->sync(gpu));
    arena_release(&mirror.scratch, mark);
}

static void fetch(const Tensor *to, const Tensor *device)
{
    Exec *gpu = &mirror.gpu;
    CHECK_OK(gpu->backend->copy(gpu, to->data, device->data, tensor_bytes(to)));
    CHECK_OK(gpu->backend->sync(gpu));
}

/* Sequence b of a tensor (B, ...). */
static Tensor sequence_of(const Tensor *x, int64_t b)
{
    Tensor one = *x;
    if (x->data == NULL) return one;
    one.dim[0] = 1;
    one.data = (char *)x->data + (size_t)b * tensor_bytes(&one);
    return one;
}

/* Makes each tensor its sequence b, and poisons results. */
static void keep_sequence(Tensor *const inputs[], Tensor *const results[3], int64_t b)
{
    Exec *gpu = &mirror.gpu;
    for (int i = 0; inputs[i] != NULL; i++) *inputs[i] = sequence_of(inputs[i], b);
    for (int i = 0; i < 3 && results[i] != NULL; i++) {
        *results[i] = sequence_of(results[i], b);
        CHECK_OK(gpu->backend->fill(gpu, results[i]->data, MARK, tensor_bytes(results[i])));
    }
}

static void check_sequence(OpTest *t, const Tensor *all, const Tensor *device, int64_t b)
{
    Tensor want = sequence_of(all, b), got = poisoned_like(t, &want);
    fetch(&got, device);
    CHECK_SAME(&got, &want);
}

/* Sequence b alone has the bits that it has among all, in both passes. */
static void check_alone(OpTest *t, const Sizes *s, int64_t window, int64_t b)
{
    AttentionFwd f = make_fwd(t, s, window == 0), df;
    f.window = window;
    CHECK_OK(mirror_args(op_desc(OP_ATTENTION_FWD), &f, (char *)&df));
    run_on_device(op_desc(OP_ATTENTION_FWD), &df);
    fetch(&f.o, &df.o);
    fetch(&f.lse, &df.lse);
    AttentionBwd a = make_bwd(t, &f), da;
    CHECK_OK(mirror_args(op_desc(OP_ATTENTION_BWD), &a, (char *)&da));
    run_on_device(op_desc(OP_ATTENTION_BWD), &da);
    fetch(&a.dq, &da.dq);
    fetch(&a.dk, &da.dk);
    fetch(&a.dv, &da.dv);

    keep_sequence((Tensor *[]){ &df.q, &df.k, &df.v, &df.doc, NULL },
                  (Tensor *[]){ &df.o, &df.lse, NULL }, b);
    run_on_device(op_desc(OP_ATTENTION_FWD), &df);
    check_sequence(t, &f.o, &df.o, b);
    check_sequence(t, &f.lse, &df.lse, b);
    keep_sequence((Tensor *[]){ &da.d_o, &da.q, &da.k, &da.v, &da.doc, &da.o, &da.lse, NULL },
                  (Tensor *[]){ &da.dq, &da.dk, &da.dv }, b);
    run_on_device(op_desc(OP_ATTENTION_BWD), &da);
    check_sequence(t, &a.dq, &da.dq, b);
    check_sequence(t, &a.dk, &da.dk, b);
    check_sequence(t, &a.dv, &da.dv, b);
}

/* 400 jobs on all multiprocessors, and 10 of them on as many. */
static void bits_do_not_hang_on_the_number_of_blocks(void **state)
{
    OpTest *t = *state;
    static const Sizes sizes[] = { { 40, 640, 2, 1, 64, 64 }, { 40, 601, 2, 2, 192, 128 } };
    if (!runs_here()) skip();
    optest_unguard(t);
    for (int i = 0; i < 2 * 3; i++) {
        ArenaMark mark = arena_mark(&t->arena), device = arena_mark(&mirror.device);
        check_alone(t, &sizes[i / 3], (const int64_t[]){ 0, 100, 1000 }[i % 3], 39 - i);
        arena_release(&mirror.device, device);
        arena_release(&t->arena, mark);
    }
}

static void check_note(const char *op, const char *begins)
{
    const ExecNotes *notes = &mirror.gpu.notes;
    int i = 0;
    while (i < notes->n && strcmp(notes->op[i], op) != 0) i++;
    CHECK(i < notes->n);
    CHECK(strncmp(notes->what[i], begins, strlen(begins)) == 0);
}

static void what_hopper_cannot_do_is_an_error_with_the_reason(void **state)
{
    OpTest *t = *state;
    kernel = ATTENTION_HOPPER;
    if (!mirror_hopper()) skip();
    AttentionFwd f = make_fwd(t, &(Sizes){ 1, 64, 1, 1, 12, 16 }, false);
    CHECK_FAILS(attention_fwd(&t->ex, f), ERR_UNSUPPORTED,
                "attention.kernel is hopper, which cannot run here: heads are 12 and 16 wide");
    f = make_fwd(t, &(Sizes){ 1, 33, 1, 1, 16, 16 }, false);
    CHECK_FAILS(attention_fwd(&t->ex, f), ERR_UNSUPPORTED, "33 tokens a sequence");
    f.kernel = ATTENTION_AUTO;
    CHECK_OK(attention_fwd(&t->ex, f));
    check_note("attention_fwd",
               "a slower kernel runs, mma instead of hopper: 33 tokens a sequence");
    AttentionFwd cut = make_fwd(t, &(Sizes){ 1, 126, 1, 1, 16, 16 }, false);
    cut.pieces = pieces_of(63, 2, 1, 0);
    CHECK_FAILS(attention_fwd(&t->ex, cut), ERR_UNSUPPORTED, "63 tokens a sequence's piece");
    cut.pieces.q[0]--;
    CHECK_FAILS(attention_fwd(&t->ex, cut), ERR_UNSUPPORTED,
                "as no two ranks of mesh.cp have them");
    f.kernel = ATTENTION_PLAIN;
    CHECK_OK(attention_fwd(&t->ex, f));
}

#define WITH_EACH(test)                                                                            \
    static void hopper_##test(void **state)                                                        \
    {                                                                                              \
        kernel = ATTENTION_HOPPER;                                                                 \
        test(state);                                                                               \
    }                                                                                              \
    static void mma_##test(void **state)                                                           \
    {                                                                                              \
        kernel = ATTENTION_MMA;                                                                    \
        test(state);                                                                               \
    }

WITH_EACH(agrees_with_the_cpu)
WITH_EACH(a_large_call_is_done_in_parts)
WITH_EACH(every_pair_of_ranks_agrees_with_the_cpu)
WITH_EACH(backward_gives_the_same_bits_every_time)
WITH_EACH(nothing_behind_the_workspace_is_touched)
WITH_EACH(bits_do_not_hang_on_the_number_of_blocks)

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(hopper_agrees_with_the_cpu, 8),
        OP_TEST(hopper_a_large_call_is_done_in_parts, 8),
        OP_TEST(hopper_every_pair_of_ranks_agrees_with_the_cpu, 8),
        OP_TEST(hopper_backward_gives_the_same_bits_every_time, 8),
        OP_TEST(hopper_nothing_behind_the_workspace_is_touched, 8),
        OP_TEST(hopper_bits_do_not_hang_on_the_number_of_blocks, 1),
        OP_TEST(what_hopper_cannot_do_is_an_error_with_the_reason, 1),
        OP_TEST(mma_agrees_with_the_cpu, 8),
        OP_TEST(mma_a_large_call_is_done_in_parts, 8),
        OP_TEST(mma_every_pair_of_ranks_agrees_with_the_cpu, 8),
        OP_TEST(mma_backward_gives_the_same_bits_every_time, 8),
        OP_TEST(mma_nothing_behind_the_workspace_is_touched, 8),
        OP_TEST(mma_bits_do_not_hang_on_the_number_of_blocks, 1),
    };
    return TEST_RUN(tests);
}
