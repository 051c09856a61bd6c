/*
 * attention_cudnn: cuDNN's graphs for attention. The graphs are the softmax written out; cuDNN's
 * engines know the pattern and fuse it into one kernel (forward) or a few (backward). Causality is
 * `row >= column`. A document's start is one more selection, `column >= doc[row]`, with doc read as
 * a (B, 1, T, 1) tensor that is broadcast: exact for any packing, known to the device only, and
 * without a (T, T) mask in memory. Tiles that lie wholly before a document are computed and thrown
 * away: cuDNN skips by causality alone.
 *
 *   forward   s = scale q k^T, masked; lse = max s + log sum e^(s - max); o = (e^(s - max) / sum) v
 *   backward  delta = sum do * o; p = e^(s - lse), masked; dv = p^T do;
 *             ds = scale p (do v^T - delta); dk = ds^T q; dq = ds k
 *
 * Backward walks keys, so dq is a sum over blocks. With one order of sums (the default) ds is
 * stored whole, in bf16, and dq is a product of its own; else it is added up in f32 by atomics.
 * ds of a large call would be gigabytes: the call is cut along sequences, then key/value heads, so
 * that SCORES_MOST holds a part's.
 */
#include "op/attention_cudnn.cuh"

#include "op/cudnn.cuh"

extern "C" {
#include "op/op.h"
}

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <type_traits>

static const int64_t WIDTH_MOST = 256, WIDTH_STEP = 8, TOKENS_LEAST = 64;
static const size_t SCORES_MOST = (size_t)1
                                  << 30; /* a part of a call aims at so many bytes of ds */
static const size_t SCORES_LIMIT = (size_t)8
                                   << 30; /* the limit: one key/value head may need more */

/* A call, or the part of it that a plan does. 64-bit fields only: plans are found by memcmp. */
typedef struct Key {
    int64_t backward, doc, one_order;
    int64_t B, T, H, G, dk, dv;
    int64_t heads, groups; /* of the tensors, of which H and G are a part */
} Key;

/* What the nodes of a graph stand for. */
typedef enum Role {
    Q,
    K,
    V,
    O,
    LSE,
    DOC,
    D_O,
    DQ,
    DK,
    DV, /* tensors of the call */
    DELTA,
    DQ_SUM, /* in the workspace */
    SCALE,
    ONE,
    HIDDEN, /* numbers */
    ROLES
} Role;

enum { PLANS_MAX = 128 };

/* why: no plan, and the reason. */
typedef struct Plan {
    Key key;
    CudnnPlan plan;
    Node node[ROLES];
    Status status;
    char why[CUDNN_WHY_MAX];
} Plan;

struct CudnnAttention {
    Cudnn cudnn;
    cudaStream_t stream;
    int plans;
    Plan plan[PLANS_MAX];
    const char *why;
    char text[CUDNN_WHY_MAX]; /* of a why that is no plan's */
};

size_t attention_cudnn_version(const struct CudnnAttention *c)
{
    return c->cudnn.file == NULL ? 0 : c->cudnn.call.version();
}

extern "C" Status cuda_attention_make(Arena *a, cudaStream_t stream, struct CudnnAttention **out)
{
    CudnnAttention *c = NULL;
    TRY(ARENA_ZEROED(a, 1, &c));
    cudnn_open(&c->cudnn);
    c->stream = stream;
    c->why = c->cudnn.why;
    *out = c;
    return OK;
}

extern "C" void cuda_attention_free(struct CudnnAttention *c)
{
    if (c == NULL) return;
    for (int i = 0; i < c->plans; i++) plan_free(&c->cudnn, &c->plan[i].plan);
    cudnn_close(&c->cudnn);
    c->plans = 0;
}

const char *attention_cudnn_why(const struct CudnnAttention *c) { return c->why; }

/* Shapes */

template <typename Args> static Key key_of(const Args *a)
{
    constexpr bool backward = std::is_same<Args, AttentionBwd>::value;
    Key x = {};
    x.doc = a->doc.data != NULL;
    x.B = a->q.dim[0];
    x.T = a->q.dim[1];
    x.H = x.heads = a->q.dim[2];
    x.dk = a->q.dim[3];
    x.G = x.groups = a->k.dim[2];
    x.dv = a->v.dim[3];
    if constexpr (backward) {
        x.backward = 1;
        x.one_order = !a->any_order;
    }
    return x;
}

static size_t rounded(int64_t n, int64_t to) { return (size_t)((n + to - 1) / to * to); }

/* ds in bf16: cuDNN's tiles are 64 queries by 128 keys. */
static size_t score_bytes(const Key *x)
{
    return (size_t)(x->B * x->H) * rounded(x->T, 64) * rounded(x->T, 128) * 2;
}

static int64_t divisor_below(int64_t n)
{
    int64_t d = n - 1;
    while (n % d != 0) d--;
    return d;
}

/* The part of a call that is done at a time. */
static Key part_of(const Key *whole)
{
    Key x = *whole;
    if (!x.backward || !x.one_order) return x;
    while (score_bytes(&x) > SCORES_MOST && x.B > 1) x.B = divisor_below(x.B);
    while (score_bytes(&x) > SCORES_MOST && x.G > 1) {
        int64_t share = x.H / x.G;
        x.G = divisor_below(x.G);
        x.H = x.G * share;
    }
    return x;
}

/* The workspace of cuDNN itself: a page of counters; if heads share keys, dk and dv of every head
 * before they are added up; and ds. */
static size_t library_bytes(const Key *x)
{
    size_t rows = (size_t)(x->B * x->H * x->T), bytes = 256;
    if (!x->backward) return bytes;
    if (x->H != x->G)
        bytes += rounded((int64_t)rows * x->dk * 2, 256) + rounded((int64_t)rows * x->dv * 2, 256);
    return x->one_order ? bytes + score_bytes(x) : bytes;
}

/* Our part of the workspace lies behind it: delta, and dq in f32 if atomics add it up. */
static size_t delta_bytes(const Key *x) { return rounded(x->B * x->H * x->T * 4, 256); }

static size_t workspace_bytes(const Key *x)
{
    size_t bytes = rounded((int64_t)library_bytes(x), 256);
    if (x->backward) bytes += delta_bytes(x);
    if (x->backward && !x->one_order) bytes += (size_t)(x->B * x->H * x->T * x->dk) * 4;
    return bytes;
}

static bool width_fits(int64_t d) { return d <= WIDTH_MOST && d % WIDTH_STEP == 0; }

/* OK, or the reason why cuDNN cannot take the shape. Reads no data and asks no library. */
static Status check_fits(const Key *x, const Tensor *q, const Tensor *k)
{
    if (q->dtype != DTYPE_BF16)
        return FAIL(ERR_UNSUPPORTED, "tensors are %s, cuDNN's attention takes bf16",
                    dtype_name(q->dtype));
    if (k->dim[1] != x->T)
        return FAIL(ERR_UNSUPPORTED, "%lld queries and %lld keys: cuDNN is used where all are new",
                    (long long)x->T, (long long)k->dim[1]);
    if (x->T < TOKENS_LEAST)
        return FAIL(ERR_UNSUPPORTED, "%lld tokens a sequence: cuDNN is used from %lld on",
                    (long long)x->T, (long long)TOKENS_LEAST);
    if (!width_fits(x->dk) || !width_fits(x->dv))
        return FAIL(ERR_UNSUPPORTED,
                    "heads are %lld and %lld wide, cuDNN takes multiples of %lld up to %lld",
                    (long long)x->dk, (long long)x->dv, (long long)WIDTH_STEP,
                    (long long)WIDTH_MOST);
    Key part = part_of(x), other = *x;
    other.one_order = 0;
    if (part.backward && part.one_order && score_bytes(&part) > SCORES_LIMIT)
        return FAIL(ERR_UNSUPPORTED,
                    "the deterministic backward pass over %lld tokens needs %zu bytes of workspace "
                    "for one key/value head, %zu is the most; attention.deterministic=false needs "
                    "%zu in all",
                    (long long)x->T, workspace_bytes(&part), SCORES_LIMIT, workspace_bytes(&other));
    return OK;
}

/* Is this call one of several, each over a block of keys? */
static bool in_blocks(const AttentionFwd *a)
{
    return a->pieces.length > 0 || a->o_before.data != NULL || a->o.dtype != a->q.dtype;
}

static bool in_blocks(const AttentionBwd *a)
{
    return a->pieces.length > 0 || a->dq_before.data != NULL || a->dk_before.data != NULL ||
           a->dv_before.data != NULL || a->dq.dtype != a->q.dtype;
}

template <typename Args> static size_t workspace(const Args *a)
{
    Key x = key_of(a);
    if (in_blocks(a) || a->kernel == ATTENTION_PLAIN) return 0;
    if (x.B == 0 || check_fits(&x, &a->q, &a->k) != OK) {
        status_clear();
        return 0;
    }
    Key part = part_of(&x);
    return workspace_bytes(&part);
}

size_t attention_cudnn_fwd_workspace(const AttentionFwd *a) { return workspace(a); }

size_t attention_cudnn_bwd_workspace(const AttentionBwd *a) { return workspace(a); }

/* Graphs */

/* H heads of a (B, T, heads, d) tensor as (B, H, T, d). */
static NodeShape head_rows(const Key *x, int64_t H, int64_t heads, int64_t d)
{
    return { { x->B, H, x->T, d }, { x->T * heads * d, d, heads * d, 1 } };
}

static NodeShape packed(int64_t b, int64_t h, int64_t i, int64_t j)
{
    return { { b, h, i, j }, { h * i * j, i * j, j, 1 } };
}

static Node bf16_rows(CudnnGraph *g, const Key *x, int64_t H, int64_t heads, int64_t d)
{
    return graph_node(g, head_rows(x, H, heads, d), CUDNN_DATA_BFLOAT16, NODE_MEMORY);
}

/* (B, G, d, T): the right side of a product with rows of the other. */
static Node bf16_columns(CudnnGraph *g, const Key *x, int64_t d)
{
    return graph_node(g, node_transposed(head_rows(x, x->G, x->groups, d)), CUDNN_DATA_BFLOAT16,
                      NODE_MEMORY);
}

/* One number for each row, laid out as lse. A part of the heads is contiguous only if B is 1. */
static Node row_numbers(CudnnGraph *g, const Key *x, NodeKind kind)
{
    return graph_node(g, packed(x->B, x->H, x->T, 1), CUDNN_DATA_FLOAT, kind);
}

static Node scores(CudnnGraph *g, const Key *x)
{
    return graph_node(g, packed(x->B, x->H, x->T, x->T), CUDNN_DATA_FLOAT, NODE_VIRTUAL);
}

/* Hidden scores become -infinity. The causal mask comes last and has indexes of its own, so that
 * cuDNN still sees that it may skip tiles. With the document's selection behind it, backward of 192
 * / 128 takes 1.6 times as long, with an index shared by both 2.2 times. */
static Node masked(CudnnGraph *g, const Key *x, Node s, Node *node)
{
    node[HIDDEN] = graph_value(g);
    if (x->doc) {
        node[DOC] = graph_node(g, packed(x->B, 1, x->T, 1), CUDNN_DATA_INT32, NODE_MEMORY);
        Node key = graph_index(g, s, 3);
        s = graph_select(g, graph_at_least(g, key, node[DOC]), s, node[HIDDEN]);
    }
    Node row = graph_index(g, s, 2), column = graph_index(g, s, 3);
    return graph_select(g, graph_at_least(g, row, column), s, node[HIDDEN]);
}

static Node scaled_scores(CudnnGraph *g, const Key *x, Node *node)
{
    Node s = scores(g, x);
    node[Q] = bf16_rows(g, x, x->H, x->heads, x->dk);
    node[K] = bf16_columns(g, x, x->dk);
    node[SCALE] = graph_value(g);
    graph_matmul(g, node[Q], node[K], s);
    return graph_map(g, CUDNN_POINTWISE_MUL, s, node[SCALE]);
}

static void fwd_graph(CudnnGraph *g, const Key *x, Node *node)
{
    Node s = masked(g, x, scaled_scores(g, x, node), node);
    Node most = row_numbers(g, x, NODE_VIRTUAL), sum = graph_like(g, most);
    graph_reduce(g, CUDNN_REDUCE_TENSOR_MAX, s, most);
    Node e = graph_map(g, CUDNN_POINTWISE_SUB, s, most);
    e = graph_map(g, CUDNN_POINTWISE_EXP, e, NO_NODE);
    graph_reduce(g, CUDNN_REDUCE_TENSOR_ADD, e, sum);
    node[LSE] = row_numbers(g, x, NODE_MEMORY);
    graph_pointwise(g, CUDNN_POINTWISE_ADD, most, graph_map(g, CUDNN_POINTWISE_LOG, sum, NO_NODE),
                    node[LSE]);
    Node p = graph_typed_like(g, s, CUDNN_DATA_BFLOAT16);
    graph_pointwise(g, CUDNN_POINTWISE_DIV, e, sum, p);
    node[V] = bf16_rows(g, x, x->G, x->groups, x->dv);
    node[O] = bf16_rows(g, x, x->H, x->heads, x->dv);
    graph_matmul(g, p, node[V], node[O]);
}

/* to (B, G, T, d) = p^T rows; where heads share keys, per head first and then the sum. */
static void transposed_product(CudnnGraph *g, const Key *x, Node p, Node rows, int64_t d, Node to)
{
    Node pt = graph_node(g, node_transposed(packed(x->B, x->H, x->T, x->T)), CUDNN_DATA_BFLOAT16,
                         NODE_VIRTUAL);
    graph_reshape(g, p, pt);
    if (x->H == x->G) {
        graph_matmul(g, pt, rows, to);
        return;
    }
    Node each = graph_node(g, packed(x->B, x->H, x->T, d), CUDNN_DATA_BFLOAT16, NODE_VIRTUAL);
    graph_matmul(g, pt, rows, each);
    graph_reduce(g, CUDNN_REDUCE_TENSOR_ADD, each, to);
}

/* delta = sum over d of do * o. cuDNN's pattern has a factor behind it: 1. */
static void delta_graph(CudnnGraph *g, const Key *x, Node *node)
{
    node[O] = bf16_rows(g, x, x->H, x->heads, x->dv);
    node[D_O] = bf16_rows(g, x, x->H, x->heads, x->dv);
    node[DELTA] = row_numbers(g, x, NODE_MEMORY);
    node[ONE] = graph_value(g);
    Node product = graph_node(g, packed(x->B, x->H, x->T, x->dv), CUDNN_DATA_FLOAT, NODE_VIRTUAL);
    graph_pointwise(g, CUDNN_POINTWISE_MUL, node[D_O], node[O], product);
    Node sum = graph_like(g, node[DELTA]);
    graph_reduce(g, CUDNN_REDUCE_TENSOR_ADD, product, sum);
    graph_pointwise(g, CUDNN_POINTWISE_MUL, sum, node[ONE], node[DELTA]);
}

static void dq_graph(CudnnGraph *g, const Key *x, Node ds, Node *node)
{
    Node k = graph_node(g, node_transposed(g->shape[node[K]]), CUDNN_DATA_BFLOAT16, NODE_VIRTUAL);
    graph_reshape(g, node[K], k);
    node[DQ] = bf16_rows(g, x, x->H, x->heads, x->dk);
    if (x->one_order) {
        graph_matmul(g, ds, k, node[DQ]);
        return;
    }
    node[DQ_SUM] = graph_node(g, packed(x->B, x->H, x->T, x->dk), CUDNN_DATA_FLOAT, NODE_MEMORY);
    graph_matmul(g, ds, k, node[DQ_SUM]);
    graph_pointwise(g, CUDNN_POINTWISE_IDENTITY, node[DQ_SUM], NO_NODE, node[DQ]);
}

static void bwd_graph(CudnnGraph *g, const Key *x, Node *node)
{
    delta_graph(g, x, node);
    node[LSE] = row_numbers(g, x, NODE_MEMORY);
    Node s = graph_map(g, CUDNN_POINTWISE_SUB, scaled_scores(g, x, node), node[LSE]);
    Node p = graph_map(g, CUDNN_POINTWISE_EXP, masked(g, x, s, node), NO_NODE);
    node[DV] = bf16_rows(g, x, x->G, x->groups, x->dv);
    transposed_product(g, x, p, node[D_O], x->dv, node[DV]);
    node[V] = bf16_columns(g, x, x->dv);
    Node dp = scores(g, x);
    graph_matmul(g, node[D_O], node[V], dp);
    dp = graph_map(g, CUDNN_POINTWISE_SUB, dp, node[DELTA]);
    dp = graph_map(g, CUDNN_POINTWISE_MUL, dp, p);
    Node ds = graph_map(g, CUDNN_POINTWISE_MUL, dp, node[SCALE]);
    node[DK] = bf16_rows(g, x, x->G, x->groups, x->dk);
    transposed_product(g, x, ds, node[Q], x->dk, node[DK]);
    dq_graph(g, x, ds, node);
}

/* Plans */

static Status plan_build(CudnnAttention *c, const Key *x, Plan *p)
{
    CudnnGraph g = {};
    TRY(cudnn_start(&c->cudnn, c->stream));
    g.cudnn = &c->cudnn;
    for (Node &node : p->node) node = NO_NODE;
    if (x->backward)
        bwd_graph(&g, x, p->node);
    else
        fwd_graph(&g, x, p->node);
    return graph_plan(&g, x->one_order, library_bytes(x), &p->plan);
}

/* The plan for a shape, built at the first call. *out NULL: cuDNN refused the shape, and c->why
 * says why. A refusal is kept, too, so cuDNN is asked once a shape. */
static Status plan_find(CudnnAttention *c, const Key *x, const Plan **out)
{
    Plan *p = NULL;
    *out = NULL;
    for (int i = 0; i < c->plans && p == NULL; i++)
        if (memcmp(&c->plan[i].key, x, sizeof *x) == 0) p = &c->plan[i];
    if (p == NULL && c->plans == PLANS_MAX) {
        c->why = "the table of cuDNN plans is full: this process has met too many shapes";
        return OK;
    }
    if (p == NULL) {
        p = &c->plan[c->plans];
        Status s = plan_build(c, x, p);
        if (s != OK && s != ERR_UNSUPPORTED) return s;
        if (s != OK) status_sentence(p->why, sizeof p->why);
        if (s != OK) status_clear();
        p->key = *x;
        c->plans++;
    }
    c->why = p->why;
    if (p->plan.plan != NULL) *out = p;
    return OK;
}

/* Calls */

/* Tensors of a call by role, lse and doc included; missing ones NULL. */
typedef struct Call {
    Key whole, part;
    AttentionKernel kernel;
    const Tensor *tensor[ROLES];
    float scale;
    bool in_blocks;
} Call;

/* Where a part's piece of a tensor begins: sequence b, key/value head `group`. */
static void *piece(const Call *c, Role role, int64_t b, int64_t group)
{
    const Tensor *t = c->tensor[role];
    int64_t head = group * (c->whole.H / c->whole.G), at = 0;
    bool shared = role == K || role == V || role == DK || role == DV;
    if (role == DOC)
        at = b * c->whole.T;
    else if (role == LSE)
        at = (b * c->whole.H + head) * c->whole.T;
    else
        at = b * t->dim[1] * t->dim[2] * t->dim[3] + (shared ? group : head) * t->dim[3];
    return tensor_at(t, at);
}

static Status run_part(struct Exec *ex, const Call *c, const Plan *p, int64_t b, int64_t group)
{
    CudnnAttention *attention = exec_attention(ex);
    char *workspace = (char *)exec_workspace(ex);
    char *delta = workspace + rounded((int64_t)library_bytes(&c->part), 256);
    float scale = c->scale, one = 1, hidden = -INFINITY;
    CudnnBound bound = {};
    for (int role = 0; role < ROLES; role++) {
        void *at = NULL;
        if (p->node[role] == NO_NODE) continue;
        if (c->tensor[role] != NULL) at = piece(c, (Role)role, b, group);
        if (role == DELTA) at = delta;
        if (role == DQ_SUM) at = delta + delta_bytes(&c->part);
        if (role == SCALE) at = &scale;
        if (role == ONE) at = &one;
        if (role == HIDDEN) at = &hidden;
        cudnn_bind(&bound, p->node[role], at);
    }
    return plan_run(&attention->cudnn, &p->plan, &bound, workspace);
}

static Status check_aligned(const Call *c)
{
    for (int role = 0; role < ROLES; role++) {
        const Tensor *t = c->tensor[role];
        if (t == NULL || t->dtype != DTYPE_BF16 || (uintptr_t)t->data % 16 == 0) continue;
        return FAIL(ERR_UNSUPPORTED, "a tensor begins at %p, cuDNN wants multiples of 16 bytes",
                    t->data);
    }
    return OK;
}

static Status check_whole(const Call *c)
{
    if (!c->in_blocks) return OK;
    return FAIL(ERR_UNSUPPORTED,
                "keys come in blocks (mesh.cp): cuDNN is used where all are there");
}

/* A plan for the call, or none and attention->why. */
static Status plan_for(CudnnAttention *attention, const Call *c, const Plan **out)
{
    *out = NULL;
    if (c->kernel == ATTENTION_PLAIN) {
        attention->why = "attention.kernel is plain";
        return OK;
    }
    if (attention->cudnn.file == NULL) {
        attention->why = attention->cudnn.why;
        return OK;
    }
    Status s = check_fits(&c->whole, c->tensor[Q], c->tensor[K]);
    if (s == OK) s = check_whole(c);
    if (s == OK) s = check_aligned(c);
    if (s == OK) return plan_find(attention, &c->part, out);
    status_sentence(attention->text, sizeof attention->text);
    status_clear();
    attention->why = attention->text;
    return OK;
}

/* Says that our own kernels run where cuDNN's would: in bf16, but not behind a cache of keys. */
static void note_plain(struct Exec *ex, const char *op, const Call *c)
{
    char said[160];
    const Tensor *q = c->tensor[Q];
    if (c->kernel != ATTENTION_AUTO || q->dtype != DTYPE_BF16) return;
    if (c->tensor[K]->dim[1] != q->dim[1]) return;
    (void)snprintf(said, sizeof said, "the program's own kernel runs: %s", exec_attention(ex)->why);
    exec_note_once(ex, op, said);
}

static Status call_run(struct Exec *ex, const char *op, const Call *c, bool *done)
{
    CudnnAttention *attention = exec_attention(ex);
    const Plan *p = NULL;
    *done = c->whole.B == 0;
    if (*done) return OK;
    assert(exec_stream(ex) == attention->stream); /* the handle's: the compute lane's */
    TRY(plan_for(attention, c, &p));
    if (p == NULL && c->kernel == ATTENTION_CUDNN) {
        return FAIL(ERR_UNSUPPORTED, "attention.kernel is cudnn, which cannot run here: %s",
                    attention->why);
    }
    if (p == NULL) {
        note_plain(ex, op, c);
        return OK;
    }
    for (int64_t b = 0; b < c->whole.B; b += c->part.B) {
        for (int64_t group = 0; group < c->whole.G; group += c->part.G)
            TRY(run_part(ex, c, p, b, group));
    }
    *done = true;
    return OK;
}

template <typename Args> static Call call_of(const Args *a)
{
    Call c = {};
    c.whole = key_of(a);
    c.part = part_of(&c.whole);
    c.kernel = a->kernel;
    c.scale = a->scale;
    c.tensor[Q] = &a->q;
    c.tensor[K] = &a->k;
    c.tensor[V] = &a->v;
    c.tensor[O] = &a->o;
    c.tensor[LSE] = &a->lse;
    c.tensor[DOC] = a->doc.data == NULL ? NULL : &a->doc;
    c.in_blocks = in_blocks(a);
    return c;
}

Status attention_cudnn_fwd(struct Exec *ex, const AttentionFwd *a, bool *done)
{
    Call c = call_of(a);
    return call_run(ex, "attention_fwd", &c, done);
}

Status attention_cudnn_bwd(struct Exec *ex, const AttentionBwd *a, bool *done)
{
    Call c = call_of(a);
    c.tensor[D_O] = &a->d_o;
    c.tensor[DQ] = &a->dq;
    c.tensor[DK] = &a->dk;
    c.tensor[DV] = &a->dv;
    return call_run(ex, "attention_bwd", &c, done);
}
