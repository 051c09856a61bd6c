/* rows: a rank that holds a part of the residual stream's rows has norms of that part, and products
 * and keys of all tokens. What would gather rows and scatter sums between them is not there yet. */
#include "harness/arena.h"

#include "engine/backend/backend.h"
#include "engine/model/attention.h"
#include "engine/model/mlp.h"

#include <math.h>

enum { TOKENS = 6, HELD = 3, WIDTH = 4, FFN = 5, HEADS = 2, SCRATCH = 1 << 20 };

typedef struct Held {
    Exec ex;
    Arena keep, ring, scratch;
    ModelSpec spec;
    LayerSpec layer;
    LayerWeights weights;
    LayerRun run;
} Held;

static Tensor ones(Held *h, int64_t rows, int64_t cols)
{
    Tensor t;
    CHECK_OK(tensor_new2(&h->keep, DTYPE_F32, rows, cols, &t));
    for (int64_t i = 0; i < tensor_elems(&t); i++) ((float *)t.data)[i] = 1;
    return t;
}

static void held_open(Held *h, Arena *tables)
{
    *h = (Held){ .spec = { .act = DTYPE_F32, .hidden = WIDTH, .eps = 1e-6F, .ranks.cp = 1 } };
    CHECK_OK(arena_init(&h->keep, "keep", MEM_HOST, SCRATCH));
    CHECK_OK(arena_init(&h->ring, "ring", MEM_HOST, SCRATCH));
    CHECK_OK(arena_init(&h->scratch, "scratch", MEM_HOST, SCRATCH));
    CHECK_OK(exec_init(&h->ex, tables, &h->scratch, 1, CPU_AUTO));
    h->layer.as.attention =
        (AttentionSpec){ .kind = ATTENTION_GQA, .heads = HEADS, .kv_heads = HEADS, .head = 2 };
    h->spec.layers = &h->layer, h->spec.n_layers = 1;
    Tensor norm = ones(h, WIDTH, 1);
    h->weights.w[ROLE_NORM] = operand_plain((Tensor){ norm.data, DTYPE_F32, 1, { WIDTH } });
    h->weights.w[ROLE_GATE_UP] = operand_plain(ones(h, 2 * FFN, WIDTH));
    h->weights.w[ROLE_DOWN] = operand_plain(ones(h, WIDTH, FFN));
    h->run = (LayerRun){ .ex = &h->ex,
                         .spec = &h->spec,
                         .layer = &h->layer,
                         .weights = &h->weights,
                         .tokens = TOKENS,
                         .rows = HELD,
                         .keep = &h->keep,
                         .ring = &h->ring,
                         .scratch = &h->scratch,
                         .training = true };
    h->run.h = ones(h, HELD, WIDTH);
}

static void held_close(Held *h)
{
    exec_free(&h->ex);
    arena_free(&h->keep);
    arena_free(&h->ring);
    arena_free(&h->scratch);
}

static void a_norm_is_of_the_rows_that_are_held(void **state)
{
    (void)state;
    Held h;
    NormState n = { 0 };
    held_open(&h, &arena);
    CHECK_OK(layer_norm_forward(&h.run, &n, (NormUse){ .role = ROLE_NORM, .plain = true }));
    CHECK_INT(n.y.x.dim[0], HELD);
    CHECK_INT(n.rstd.dim[0], HELD);
    for (int64_t i = 0; i < HELD * WIDTH; i++) CHECK_NEAR(((float *)n.y.x.data)[i], 1, 1e-5);
    held_close(&h);
}

/* A row of ones has pre-activations of WIDTH, so out is FFN times their SwiGLU: x^2 sigmoid(x). */
static void a_product_is_of_all_tokens(void **state)
{
    (void)state;
    Held h;
    MlpState m = { 0 };
    held_open(&h, &arena);
    Tensor y = ones(&h, TOKENS, WIDTH), out = ones(&h, TOKENS, WIDTH);
    CHECK_OK(mlp_forward(&h.run, &m, operand_plain(y), (Tensor){ 0 }, out, 0));
    CHECK_INT(m.gu.dim[0], TOKENS);
    double want = FFN * WIDTH * WIDTH / (1 + exp(-WIDTH));
    for (int64_t i = 0; i < TOKENS * WIDTH; i++)
        CHECK_NEAR(((float *)out.data)[i], want, 1e-5 * want);
    held_close(&h);
}

static void keys_are_of_all_tokens(void **state)
{
    (void)state;
    Held h;
    Tensor k, v;
    held_open(&h, &arena);
    CHECK_OK(attention_new_kv(&h.run, &h.keep, &k, &v));
    CHECK_INT(k.dim[0], TOKENS);
    CHECK_INT(v.dim[0], TOKENS);
    held_close(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_norm_is_of_the_rows_that_are_held),
        TEST(a_product_is_of_all_tokens),
        TEST(keys_are_of_all_tokens),
    };
    return ARENA_RUN(tests);
}
