/* Context parallelism: one attention layer whose sequences are cut over ranks gives what it gives
 * on one rank: outputs, gradients of its input, and gradients of its weights summed over ranks. */
#include "harness/optest.h"
#include "harness/param_view.h"

#include "engine/comm/mesh.h"
#include "engine/model/layer.h"

enum { SEQUENCES = 2, TOKENS = 48, RANKS_MAX = 4, OVERRIDES_MAX = 12 };
static const double DEADLINE_S = 60;
static const size_t ARENA_BYTES = (size_t)64 << 20;

typedef struct Case {
    const char *name;
    const char *set[OVERRIDES_MAX];
    unsigned recompute;
} Case;

static const char *const base[] = {
    "model.hidden=40",      "model.layers=1",       "attention.heads=4",   "attention.kv_rank=12",
    "attention.nope_dim=8", "attention.rope_dim=6", "attention.v_dim=10",  "attention.head_dim=10",
    "attention.kv_heads=2", "data.sequence=48",     "train.micro_batch=2", "train.batch=2",
    "model.dense_layers=1", "attention.q_rank=14",  "run.device=cpu",
};

#define GQA    "attention.kind=gqa"
#define WHOLE  "attention.document_mask=false"
#define SINKS  "attention.sinks=true"
#define BIASES "attention.bias=true", "attention.out_bias=true"
#define YARN                                                                                       \
    "rope.scaling=yarn", "rope.factor=1.5", "rope.original=16", "rope.beta_fast=2",                \
        "rope.beta_slow=0.5"
static const Case cases[] = {
    { "mla", { "attention.document_mask=false" }, 0 },
    { "mla with documents", { NULL }, 0 },
    { "mla without a query rank", { "attention.q_rank=0" }, 0 },
    { "mla turned by halves", { "attention.rope_interleaved=false" }, 0 },
    { "mla, norms again", { NULL }, RECOMPUTE_NORM },
    { "mla, projections again", { NULL }, RECOMPUTE_ATTN_UP },
    { "mla, exchange again", { NULL }, RECOMPUTE_EXCHANGE },
    { "mla, pieces again", { NULL }, RECOMPUTE_NORM | RECOMPUTE_ATTN_UP | RECOMPUTE_EXCHANGE },
    { "mla, all again", { NULL }, RECOMPUTE_LAYER },
    { "mla, stretched, with biases", { YARN, BIASES }, 0 },
    { "mla, stretched, exchange again", { YARN, BIASES }, RECOMPUTE_EXCHANGE },
    { "gqa", { GQA, "attention.document_mask=false" }, 0 },
    { "gqa with documents", { GQA }, 0 },
    { "gqa with one key head", { GQA, "attention.kv_heads=1" }, 0 },
    { "gqa, normalised heads", { GQA, "attention.qk_norm=rms" }, 0 },
    { "gqa, normalised heads again", { GQA, "attention.qk_norm=rms" }, RECOMPUTE_ATTN_UP },
    { "gqa, gated", { GQA, "attention.qk_norm=rms", "attention.gate=true" }, 0 },
    { "gqa, gated, again",
      { GQA, "attention.qk_norm=rms", "attention.gate=true" },
      RECOMPUTE_ATTN_UP },
    { "gqa, heads scaled", { GQA, "attention.qk_norm=l2" }, 0 },
    { "gqa, all heads normalised, some columns turned, biases",
      { GQA, BIASES, "attention.qk_norm=width", "attention.rotary=0.6" },
      RECOMPUTE_ATTN_UP },
    { "gqa without positions", { GQA, "attention.nope_every=1", "attention.temper_floor=7" }, 0 },
    { "gqa, projections again", { GQA }, RECOMPUTE_ATTN_UP },
    { "gqa, pieces again", { GQA }, RECOMPUTE_NORM | RECOMPUTE_ATTN_UP | RECOMPUTE_EXCHANGE },
    { "gqa, all again", { GQA }, RECOMPUTE_LAYER },
    { "mla, a window", { "attention.window=11" }, 0 },
    { "mla, chunks and sinks", { "attention.chunk=10", SINKS }, RECOMPUTE_ATTN_UP },
    { "gqa, a window and sinks", { GQA, "attention.window=7", SINKS }, 0 },
    { "gqa, a window longer than a piece", { GQA, WHOLE, "attention.window=29", SINKS }, 0 },
    { "gqa, chunks", { GQA, WHOLE, "attention.chunk=14" }, 0 },
    { "gqa, all masks again",
      { GQA, "attention.chunk=20", "attention.window=9", SINKS },
      RECOMPUTE_LAYER },
};
enum { CASES = sizeof cases / sizeof *cases };

/* What a rank works with. */
typedef struct Side {
    Arena arena, keep, ring, scratch;
    Exec ex;
    ModelSpec spec;
    LayerSpec layer;
    ParamTable table;
    ParamMemory memory;
    MicroBatch batch;
    LayerRun run;
} Side;

static float random_value(const char *what, int64_t i)
{
    float x;
    rng_fill_normal(&x, 1, 5, rng_stream(what), (uint64_t)i, 1);
    return x;
}

/* Where row j of this rank's sequence stands: pieces `rank` and 2 ranks - 1 - rank. */
static int64_t position_of(int ranks, int rank, int64_t j)
{
    int64_t n = TOKENS / (2 * ranks);
    return j < n ? rank * n + j : (2 * ranks - 1 - rank) * n + j - n;
}

/* Documents begin at prime places of sequence 0; the other is one. */
static int64_t document_of(int64_t sequence, int64_t position)
{
    static const int64_t starts[] = { 0, 5, 7, 23, 31, 41 };
    int64_t start = 0;
    for (int i = 0; sequence == 0 && i < 6; i++) {
        if (starts[i] <= position) start = starts[i];
    }
    return start;
}

static Status spec_of(Side *s, const Case *c, int ranks)
{
    Config config;
    char cp[32];
    snprintf(cp, sizeof cp, "mesh.cp=%d", ranks);
    TRY(config_default(&config, &s->arena));
    for (size_t i = 0; i < sizeof base / sizeof *base; i++)
        TRY(config_override(&config, &s->arena, base[i]));
    for (int i = 0; i < OVERRIDES_MAX && c->set[i] != NULL; i++)
        TRY(config_override(&config, &s->arena, c->set[i]));
    TRY(config_override(&config, &s->arena, cp));
    TRY(config_check(&config));
    TRY(spec_build(&config, &s->arena, &s->spec));
    s->layer = s->spec.layers[1];
    s->layer.recompute = c->recompute;
    s->spec.layers = &s->layer, s->spec.n_layers = 1;
    return OK;
}

static Status make_weights(Side *s)
{
    LayerWeights *weights;
    TRY(params_build(&s->spec, 0, NULL, &s->arena, &s->table));
    TRY(params_alloc(&s->spec, &s->table, &s->arena, &s->arena, true, &s->memory));
    TRY(params_bind(&s->spec, &s->table, &s->memory, &s->arena, &weights));
    const Tensor *dw = &s->memory.buffer[BUF_GRAD];
    for (int b = 0; b < 2; b++) { /* norms are in f32, among the main weights */
        const Tensor *w = &s->memory.buffer[b == 0 ? BUF_WEIGHT : BUF_MAIN];
        for (int64_t i = 0; i < tensor_elems(w); i++)
            optest_set(w, i, 0.2 * (double)random_value("weights", i));
    }
    memset(dw->data, 0, tensor_bytes(dw));
    s->run.weights = weights;
    return OK;
}

static Status make_tables(Side *s)
{
    int64_t d = s->spec.rotary.dim;
    TRY(tensor_new2(&s->arena, DTYPE_F32, TOKENS, d / 2, &s->run.rope.cos));
    TRY(tensor_new2(&s->arena, DTYPE_F32, TOKENS, d / 2, &s->run.rope.sin));
    rotary_table(&s->spec.rotary, TOKENS, s->run.rope.cos.data, s->run.rope.sin.data);
    return OK;
}

/* This rank's rows of the sequences. */
static Status make_rows(Side *s, int ranks, int rank)
{
    LayerRun *r = &s->run;
    MicroBatch *m = &s->batch;
    int64_t t = TOKENS / ranks, n = SEQUENCES * t, width = s->spec.hidden;
    *m = (MicroBatch){ .b = SEQUENCES, .t = t };
    r->tokens = r->rows = n;
    TRY(tensor_new1(&s->arena, DTYPE_I32, n, &m->pos));
    TRY(tensor_new2(&s->arena, DTYPE_I32, m->b, t, &m->doc));
    TRY(tensor_new2(&s->arena, s->spec.act, n, width, &r->h));
    Tensor *same[] = { &r->h_out, &r->dh, &r->dh_out };
    for (int i = 0; i < 3; i++) TRY(tensor_new2(&s->arena, s->spec.act, n, width, same[i]));
    for (int64_t i = 0; i < n; i++) {
        int64_t at = position_of(ranks, rank, i % t), whole = i / t * TOKENS + at;
        optest_set(&m->pos, i, (double)at);
        optest_set(&m->doc, i, (double)document_of(i / t, at));
        for (int64_t j = 0; j < width; j++) {
            optest_set(&r->h, i * width + j, (double)random_value("h", whole * width + j));
            optest_set(&r->dh_out, i * width + j, (double)random_value("dh", whole * width + j));
        }
    }
    return OK;
}

static Status side_open(Side *s, const Case *c, int ranks, int rank)
{
    *s = (Side){ 0 };
    Arena *arenas[] = { &s->arena, &s->keep, &s->ring, &s->scratch };
    for (int i = 0; i < 4; i++) TRY(arena_init(arenas[i], "rank", MEM_HOST, ARENA_BYTES));
    TRY(exec_init(&s->ex, &s->arena, &s->scratch, 1, CPU_AUTO));
    exec_push(&s->ex, &backend_guard);
    TRY(spec_of(s, c, ranks));
    TRY(arena_array_zero(&s->arena, layer_attention.state_bytes, 1, &s->run.state));
    s->run.ex = &s->ex, s->run.spec = &s->spec, s->run.layer = &s->layer, s->run.batch = &s->batch;
    s->run.keep = &s->keep, s->run.ring = &s->ring, s->run.scratch = &s->scratch;
    s->run.training = true;
    TRY(make_weights(s));
    TRY(make_tables(s));
    return make_rows(s, ranks, rank);
}

static void side_close(Side *s)
{
    exec_free(&s->ex);
    Arena *arenas[] = { &s->scratch, &s->ring, &s->keep, &s->arena };
    for (int i = 0; i < 4; i++) arena_free(arenas[i]);
}

/* Phases of ranks of tp are not there. */
static Status run_phase(Side *s, const Phase *p, PhaseFn *fn)
{
    if (fn == NULL || p->split) return OK;
    TRY(fn(&s->run));
    arena_release(&s->scratch, (ArenaMark){ 0 });
    return OK;
}

/* Gives back what is in an arena, and makes sure that nobody finds it there: it is NaN. */
static Status spoil(Arena *a)
{
    void *all = NULL;
    size_t bytes = a->peak_bytes;
    arena_release(a, (ArenaMark){ 0 });
    TRY(arena_alloc(a, bytes, &all));
    memset(all, 0xFF, bytes);
    arena_release(a, (ArenaMark){ 0 });
    return OK;
}

static Status forward(Side *s)
{
    const LayerDesc *d = &layer_attention;
    for (int i = 0; i < d->n_phases; i++) TRY(run_phase(s, &d->phases[i], d->phases[i].forward));
    return spoil(&s->ring);
}

/* All input gradients first, then all weights', as schedules do that take them apart. */
static Status both_ways(Side *s)
{
    const LayerDesc *d = &layer_attention;
    TRY(forward(s));
    if ((s->layer.recompute & RECOMPUTE_LAYER) != 0) {
        arena_release(&s->keep, (ArenaMark){ 0 });
        s->run.recomputing = true;
        TRY(forward(s));
        s->run.recomputing = false;
    }
    for (int i = d->n_phases - 1; i >= 0; i--)
        TRY(run_phase(s, &d->phases[i], d->phases[i].backward_input));
    for (int i = d->n_phases - 1; i >= 0; i--)
        TRY(run_phase(s, &d->phases[i], d->phases[i].backward_weight));
    return OK;
}

/* What all ranks gave, as if it were one. */
typedef struct Result {
    const Case *c;
    int ranks;
    Tensor h_out, dh;
    Tensor dw[RANKS_MAX];
} Result;

static void copy_rows(const Side *s, int ranks, int rank, const Tensor *from, const Tensor *to)
{
    int64_t width = tensor_cols(from), t = s->batch.t;
    for (int64_t i = 0; i < from->dim[0]; i++) {
        int64_t whole = i / t * TOKENS + position_of(ranks, rank, i % t);
        memcpy(tensor_at(to, whole * width), tensor_at(from, i * width),
               (size_t)width * dtype_bytes(from->dtype));
    }
}

static Status layer_on_rank(Result *x, Side *s, Comm *world)
{
    int rank = world->rank;
    Mesh mesh = { 0 };
    MeshShape shape;
    TRY(side_open(s, x->c, x->ranks, rank));
    TRY(mesh_shape(x->ranks, 1, 1, x->ranks, 1, 0, &shape));
    TRY(mesh_make(world, &shape, false, &s->arena, &mesh));
    s->ex.mesh = &mesh;
    Status status = both_ways(s);
    mesh_free(&mesh);
    if (status != OK) return status;
    copy_rows(s, x->ranks, rank, &s->run.h_out, &x->h_out);
    copy_rows(s, x->ranks, rank, &s->run.dh, &x->dh);
    const Tensor *dw = &s->memory.buffer[BUF_GRAD];
    memcpy(x->dw[rank].data, dw->data, tensor_bytes(dw));
    return OK;
}

static Status body(void *state, Comm *world)
{
    Side s = { 0 };
    Status status = layer_on_rank(state, &s, world);
    side_close(&s);
    return status;
}

/* Of one rank's run: room for the results of many. */
static Result result_like(OpTest *t, const Case *c, int ranks, const Side *one)
{
    Result x = { .c = c, .ranks = ranks };
    x.h_out = optest_poisoned(t, one->run.h.dtype, one->run.h.dim);
    x.dh = optest_poisoned(t, one->run.h.dtype, one->run.h.dim);
    for (int i = 0; i < ranks; i++)
        x.dw[i] = optest_poisoned(t, DTYPE_F32, one->memory.buffer[BUF_GRAD].dim);
    return x;
}

static void check_weights(OpTest *t, const Side *one, const Result *x)
{
    for (int p = 0; p < one->table.n; p++) {
        const Param *param = &one->table.at[p];
        Tensor sum = param_view(param, &one->memory, BUF_GRAD);
        double *want = optest_read(t, &sum);
        sum = optest_copy(t, &sum);
        int64_t n = tensor_elems(&sum);
        for (int64_t i = 0; i < n; i++) {
            double all = 0;
            for (int r = 0; r < x->ranks; r++)
                all += optest_get(&x->dw[r], param->first[BUF_GRAD] + i);
            optest_set(&sum, i, all);
        }
        OpMatch m = optest_match(&sum, want);
        if (!(m.ratio <= 1e-5))
            fail_msg("%s, %d ranks: the gradient of %s is off by %.3g", x->c->name, x->ranks,
                     param->name, m.ratio);
    }
}

static void check_rows(OpTest *t, const Result *x, const char *what, const Tensor *got,
                       const Tensor *want)
{
    OpMatch m = optest_match(got, optest_read(t, want));
    if (!(m.ratio <= 1e-5))
        fail_msg("%s, %d ranks: %s is off by %.3g from row %lld on", x->c->name, x->ranks, what,
                 m.ratio, (long long)m.part.row);
}

static void run_ranks(Result *x)
{
    int failed = -1;
    CHECK_OK(comm_threads(x->ranks, DEADLINE_S, body, x, &failed));
}

static void a_sequence_over_ranks_is_that_of_one_rank(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < CASES; i += RUNS(1, 3)) {
        Side one;
        ArenaMark mark = arena_mark(&t->arena);
        CHECK_OK(side_open(&one, &cases[i], 1, 0));
        CHECK_OK(both_ways(&one));
        for (int ranks = 2; ranks <= RANKS_MAX; ranks++) {
            Result x = result_like(t, &cases[i], ranks, &one);
            run_ranks(&x);
            check_rows(t, &x, "h_out", &x.h_out, &one.run.h_out);
            check_rows(t, &x, "dh", &x.dh, &one.run.dh);
            check_weights(t, &one, &x);
        }
        side_close(&one);
        arena_release(&t->arena, mark);
    }
}

/* Partial sums are f32 whatever the type: outputs are rounded once, as on one rank. */
static void sums_over_blocks_are_not_rounded_on_the_way(void **state)
{
    OpTest *t = *state;
    static const Case half[] = { { "mla in bf16", { "run.compute=bf16" }, 0 },
                                 { "gqa in bf16", { GQA, "run.compute=bf16" }, 0 } };
    for (int i = 0; i < 2; i++) {
        Side one;
        CHECK_OK(side_open(&one, &half[i], 1, 0));
        CHECK_OK(both_ways(&one));
        Result x = result_like(t, &half[i], RANKS_MAX, &one);
        run_ranks(&x);
        CHECK_TENSOR(&x.h_out, optest_read(t, &one.run.h_out));
        CHECK_TENSOR_WITHIN(&x.dh, optest_read(t, &one.run.dh),
                            optest_limit(LIMIT_ATTENTION, DTYPE_BF16));
        side_close(&one);
    }
}

static void two_runs_are_the_same_to_the_bit(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < CASES; i += 9) {
        Side one;
        CHECK_OK(side_open(&one, &cases[i], 1, 0));
        Result x[2];
        for (int k = 0; k < 2; k++) {
            x[k] = result_like(t, &cases[i], RANKS_MAX, &one);
            run_ranks(&x[k]);
        }
        CHECK_SAME(&x[0].h_out, &x[1].h_out);
        CHECK_SAME(&x[0].dh, &x[1].dh);
        for (int r = 0; r < RANKS_MAX; r++) CHECK_SAME(&x[0].dw[r], &x[1].dw[r]);
        side_close(&one);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(a_sequence_over_ranks_is_that_of_one_rank, 1),
        OP_TEST(sums_over_blocks_are_not_rounded_on_the_way, 1),
        OP_TEST(two_runs_are_the_same_to_the_bit, 1),
    };
    return TEST_RUN(tests);
}
