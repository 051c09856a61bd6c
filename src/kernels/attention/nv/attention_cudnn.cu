/*
 * attention_cudnn: attention through cuDNN's fused kernels, in bf16 on Hopper.
 *
 * attention.def says which calls it supports. cuDNN may still have no kernel for a shape, and then
 * refuses the call. It reads tensors with the strides of (B, T, H, d), so no operand is copied. A
 * call over a block of keys (mesh.cp) is supported if its pieces see one rectangle
 * (attention_pieces.h).
 *
 * Plans are made in the first call of a shape and kept. That call must not be inside a stream
 * capture. All other calls may be, and no call waits.
 *
 * cuDNN gets a graph of operations: the softmax written out. Its engines know the pattern and fuse
 * it into one kernel (forward) or a few (backward). Causality is the selection `row >= column`. The
 * start of a document is one more selection, `column >= doc[row]`; doc is a (B, 1, T, 1) tensor
 * that is broadcast. That is exact for any packing, is known only to the device, and needs no (T,
 * T) mask in memory. cuDNN skips tiles by causality, and by a window, which is the selection
 * `column + window > row`. But tiles that lie wholly before a document are computed and discarded.
 *
 * Chunks are treated as documents that begin again with each chunk. So are windows over pieces, and
 * windows for which cuDNN has no kernel: the first key of each row is computed before the call.
 *
 *   forward   s = scale q k^T, masked; lse = max s + log sum e^(s - max); o = (e^(s - max) / sum) v
 *   backward  delta = sum do * o; p = e^(s - lse), masked; dv = p^T do;
 *             ds = scale p (do v^T - delta); dk = ds^T q; dq = ds k
 *
 * Backward walks keys, so dq is a sum over blocks. By default sums have one order: ds is stored
 * whole, in bf16, and dq is a separate product. Otherwise dq is summed in f32 by atomics. ds of a
 * large call would take gigabytes. So the call is cut along sequences, then along key/value heads,
 * until ds of a part fits SCORES_MOST.
 *
 * Over a block of keys (pieces of a sequence, or sums of other blocks before it) cuDNN runs the
 * rectangle of scores that is seen, causal or without a mask. It writes o and dq, and dk and dv if
 * they are added to something, as parts in bf16 into the workspace; attention_merge.cu adds the
 * parts in f32. Each block's backward pass uses lse and delta over all keys, so its gradients are
 * those of the whole softmax. Starts of documents are first converted to indices among the
 * rectangle's keys.
 */
#include "kernels/attention/attention_merge.cuh"
#include "kernels/attention/nv/cudnn.cuh"
#include "kernels/core/nv/libraries.cuh"

extern "C" {
#include "kernels/core/op.h"
}

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <initializer_list>

/* Most bytes of ds for a part of a call; a single key/value head may need more (attention.def). */
static const size_t SCORES_MOST = (size_t)1 << 30;

/* The shape of a call, or of the part of it that a plan runs. All fields have 64 bits, because keys
 * are compared by memcmp and padding would differ. */
typedef struct Key {
    int64_t backward, doc, one_order, causal, window;
    int64_t B, Tq, Tk, H, G, dk, dv;
    int64_t heads, groups; /* heads of the tensors; a part has H and G of them */
    /* Rows from one sequence to the next in memory: of q and d_o, of k and v, and of the outputs,
     * which may be parts in the workspace. */
    int64_t q_rows, k_rows, o_rows, dq_rows, dk_rows, dv_rows;
} Key;

/* What the nodes of a graph are: before DELTA tensors of the call, from DELTA on memory of the
 * workspace, from SCALE on numbers. */
enum Role {
    Q,
    K,
    V,
    O,
    LSE,
    DOC,
    D_O,
    DQ,
    DK,
    DV,
    DELTA,
    DQ_SUM,
    SCALE,
    ONE,
    HIDDEN,
    WINDOW,
    ROLES
};
enum { PLANS_MAX = 256 };

/* A plan of the table. If plan.plan is NULL, cuDNN refused the shape, and `why` has the reason. */
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
};

static CudnnAttention *attention_of(struct Exec *ex)
{
    return (CudnnAttention *)exec_library(ex, LIBRARY_ATTENTION);
}

extern "C" size_t attention_cudnn_version(const void *attention)
{
    const CudnnAttention *c = (const CudnnAttention *)attention;
    return c->cudnn.file == NULL ? 0 : c->cudnn.call.version();
}

extern "C" Status attention_cudnn_open(struct Exec *ex, Arena *a, void **out)
{
    CudnnAttention *c = NULL;
    TRY(ARENA_ZEROED(a, 1, &c));
    cudnn_open(&c->cudnn);
    c->stream = exec_stream(ex);
    *out = c;
    return OK;
}

extern "C" void attention_cudnn_close(void *attention)
{
    CudnnAttention *c = (CudnnAttention *)attention;
    for (int i = 0; i < c->plans; i++) plan_free(&c->cudnn, &c->plan[i].plan);
    cudnn_close(&c->cudnn);
}

extern "C" const char *attention_cudnn_lacks(const void *attention)
{
    const CudnnAttention *c = (const CudnnAttention *)attention;
    return c->cudnn.file == NULL ? c->cudnn.why : NULL;
}

/* Shapes */

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

/* Does a window or a chunk of `tokens` tokens hide any key of a whole sequence? */
template <typename Args> static bool hides(const Args *a, int64_t tokens)
{
    int64_t end = a->pieces.length > 0 ? a->pieces.q[1] + a->pieces.length : a->k.dim[1];
    return tokens > 0 && tokens < end;
}

/* Does cuDNN write this output as a part in the workspace, and not directly? */
static bool is_part(const Tensor *out, const Tensor *before)
{
    return before->data != NULL || out->dtype != DTYPE_BF16;
}

static void set_rows(Key *x, const AttentionFwd *a)
{
    x->o_rows = in_blocks(a) ? x->Tq : x->q_rows;
}

static void set_rows(Key *x, const AttentionBwd *a)
{
    x->backward = 1;
    x->one_order = !a->any_order;
    x->o_rows = x->q_rows;
    x->dq_rows = is_part(&a->dq, &a->dq_before) ? x->Tq : x->q_rows;
    x->dk_rows = is_part(&a->dk, &a->dk_before) ? x->Tk : x->k_rows;
    x->dv_rows = is_part(&a->dv, &a->dv_before) ? x->Tk : x->k_rows;
}

/* Sets the key of a call, and the rectangle that cuDNN runs; attention.def ensures that there is
 * one. */
template <typename Args> static void key_of(const Args *a, Key *x, AttentionRect *rect)
{
    (void)attention_rect(&a->pieces, a->q.dim[1], a->k.dim[1], rect);
    *x = {};
    bool window = hides(a, a->window), band = a->pieces.length == 0;
    x->window = window && band ? a->window : 0;
    x->doc = a->doc.data != NULL || hides(a, a->chunk) || (window && !band);
    x->causal = rect->causal;
    x->B = a->q.dim[0];
    x->Tq = rect->Tq;
    x->Tk = rect->Tk;
    x->q_rows = a->q.dim[1];
    x->k_rows = a->k.dim[1];
    x->H = x->heads = a->q.dim[2];
    x->dk = a->q.dim[3];
    x->G = x->groups = a->k.dim[2];
    x->dv = a->v.dim[3];
    set_rows(x, a);
}

static size_t rounded(int64_t n, int64_t to) { return (size_t)((n + to - 1) / to * to); }

static int64_t longer(const Key *x) { return x->Tq > x->Tk ? x->Tq : x->Tk; }

/* ds in bf16: cuDNN's tiles are 64 queries by 128 keys. */
static size_t score_bytes(const Key *x)
{
    return (size_t)(x->B * x->H) * rounded(x->Tq, x->causal ? 64 : 128) * rounded(x->Tk, 128) * 2;
}

static int64_t divisor_below(int64_t n)
{
    int64_t d = n - 1;
    while (n % d != 0) d--;
    return d;
}

static void cut_to_fit(Key *x)
{
    while (score_bytes(x) > SCORES_MOST && x->B > 1) x->B = divisor_below(x->B);
    while (score_bytes(x) > SCORES_MOST && x->G > 1) {
        int64_t share = x->H / x->G;
        x->G = divisor_below(x->G);
        x->H = x->G * share;
    }
}

/* The part of a call that one launch runs. If it has one sequence, distances between sequences do
 * not matter and are set to the same values, so that more calls share a plan. */
static Key part_of(const Key *whole)
{
    Key x = *whole;
    if (x.backward && x.one_order) cut_to_fit(&x);
    if (x.B > 1) return x;
    x.q_rows = x.o_rows = x.dq_rows = x.Tq;
    x.k_rows = x.dk_rows = x.dv_rows = x.Tk;
    return x;
}

/* The workspace of cuDNN itself: counters; dk and dv of every head before they are summed, if heads
 * share keys; and ds. Over pieces all ranks must plan the same bytes, so sizes follow the longer
 * side. */
static size_t library_bytes(const Key *x)
{
    size_t rows = (size_t)(x->B * x->H * longer(x)), bytes = 256;
    if (!x->backward) return bytes;
    if (x->H != x->G)
        bytes += rounded((int64_t)rows * x->dk * 2, 256) + rounded((int64_t)rows * x->dv * 2, 256);
    return x->one_order ? bytes + score_bytes(x) : bytes;
}

/* Our part of the workspace follows it: delta, and dq in f32 if atomics sum it. */
static size_t delta_bytes(const Key *x) { return rounded(x->B * x->H * longer(x) * 4, 256); }

static size_t part_bytes(const Key *x)
{
    size_t bytes = rounded((int64_t)library_bytes(x), 256);
    if (x->backward) bytes += delta_bytes(x);
    if (x->backward && !x->one_order) bytes += rounded(x->B * x->H * longer(x) * x->dk * 4, 256);
    return bytes;
}

/* After that come the tensors that cuDNN reads or writes for a call over a block of keys: their
 * offsets in the workspace, in bytes. total: bytes of the whole workspace. */
typedef struct Room {
    size_t doc, lse, o, dq, dk, dv, total;
} Room;

static size_t room_take(Room *room, bool wanted, int64_t elems, int64_t each)
{
    size_t at = room->total;
    if (wanted) room->total += rounded(elems * each, 256);
    return at;
}

static void take_parts(Room *room, const AttentionFwd *a)
{
    room->o = room_take(room, true, tensor_elems(&a->o), 2);
}

static void take_parts(Room *room, const AttentionBwd *a)
{
    room->dq = room_take(room, is_part(&a->dq, &a->dq_before), tensor_elems(&a->dq), 2);
    room->dk = room_take(room, is_part(&a->dk, &a->dk_before), tensor_elems(&a->dk), 2);
    room->dv = room_take(room, is_part(&a->dv, &a->dv_before), tensor_elems(&a->dv), 2);
}

template <typename Args> static Room room_of(const Args *a, const Key *part)
{
    Room room = {};
    bool made = hides(a, a->window) || hides(a, a->chunk);
    room.total = part_bytes(part);
    if (in_blocks(a) && a->doc.data != NULL) made = true;
    room.doc = room_take(&room, made, a->q.dim[0] * a->q.dim[1], 4);
    if (!in_blocks(a)) return room;
    room.lse = room_take(&room, true, tensor_elems(&a->lse), 4);
    take_parts(&room, a);
    return room;
}

template <typename Args> static size_t workspace_of(const Args *a)
{
    Key x;
    AttentionRect rect;
    key_of(a, &x, &rect);
    if (x.B == 0) return 0;
    Key part = part_of(&x);
    return room_of(a, &part).total;
}

extern "C" size_t attention_cudnn_fwd_workspace(const void *args)
{
    return workspace_of((const AttentionFwd *)args);
}

extern "C" size_t attention_cudnn_bwd_workspace(const void *args)
{
    return workspace_of((const AttentionBwd *)args);
}

/* Graphs */

/* A graph's tensors of queries (q, o, dq), or of keys and values: H of their heads, and T rows of a
 * sequence, of which memory has `rows`. */
typedef struct Side {
    int64_t H, heads, T, rows;
} Side;

static Side queries(const Key *x, int64_t rows) { return { x->H, x->heads, x->Tq, rows }; }
static Side keys(const Key *x, int64_t rows) { return { x->G, x->groups, x->Tk, rows }; }

/* Heads of a (B, rows, heads, d) tensor as (B, H, T, d). */
static NodeShape head_rows(const Key *x, const Side &s, int64_t d)
{
    return { { x->B, s.H, s.T, d }, { s.rows * s.heads * d, d, s.heads * d, 1 } };
}

static NodeShape packed(int64_t b, int64_t h, int64_t i, int64_t j)
{
    return { { b, h, i, j }, { h * i * j, i * j, j, 1 } };
}

static Node bf16_rows(CudnnGraph *g, const Key *x, const Side &s, int64_t d)
{
    return graph_node(g, head_rows(x, s, d), CUDNN_DATA_BFLOAT16, NODE_MEMORY);
}

/* (B, G, d, Tk): the right side of a product with rows of the other. */
static Node bf16_columns(CudnnGraph *g, const Key *x, int64_t d)
{
    return graph_node(g, node_transposed(head_rows(x, keys(x, x->k_rows), d)), CUDNN_DATA_BFLOAT16,
                      NODE_MEMORY);
}

/* One number for each row, laid out as lse. A part of the heads is contiguous only if B is 1. */
static Node row_numbers(CudnnGraph *g, const Key *x, NodeKind kind)
{
    return graph_node(g, packed(x->B, x->H, x->Tq, 1), CUDNN_DATA_FLOAT, kind);
}

static Node scores(CudnnGraph *g, const Key *x)
{
    return graph_node(g, packed(x->B, x->H, x->Tq, x->Tk), CUDNN_DATA_FLOAT, NODE_VIRTUAL);
}

/* Hidden scores become -infinity. The causal selection comes after that of documents and has index
 * nodes of its own, so that cuDNN still recognises that it may skip tiles. In the other order,
 * backward with heads of 192 / 128 takes 1.6 times as long; with shared index nodes 2.2 times. */
static Node masked(CudnnGraph *g, const Key *x, Node s, Node *node)
{
    if (!x->doc && !x->causal) return s;
    node[HIDDEN] = graph_value(g, CUDNN_DATA_FLOAT);
    if (x->doc) {
        node[DOC] = graph_node(g, packed(x->B, 1, x->Tq, 1), CUDNN_DATA_INT32, NODE_MEMORY);
        Node key = graph_index(g, s, 3);
        s = graph_select(g, graph_at_least(g, key, node[DOC]), s, node[HIDDEN]);
    }
    if (!x->causal) return s;
    Node row = graph_index(g, s, 2), column = graph_index(g, s, 3);
    s = graph_select(g, graph_at_least(g, row, column), s, node[HIDDEN]);
    if (x->window == 0) return s;
    row = graph_index(g, s, 2), column = graph_index(g, s, 3);
    node[WINDOW] = graph_value(g, CUDNN_DATA_INT32);
    return graph_select(g, graph_sum_above(g, column, node[WINDOW], row), s, node[HIDDEN]);
}

static Node scaled_scores(CudnnGraph *g, const Key *x, Node *node)
{
    Node s = scores(g, x);
    node[Q] = bf16_rows(g, x, queries(x, x->q_rows), x->dk);
    node[K] = bf16_columns(g, x, x->dk);
    node[SCALE] = graph_value(g, CUDNN_DATA_FLOAT);
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
    node[V] = bf16_rows(g, x, keys(x, x->k_rows), x->dv);
    node[O] = bf16_rows(g, x, queries(x, x->o_rows), x->dv);
    graph_matmul(g, p, node[V], node[O]);
}

/* to (B, G, Tk, d) = p^T rows. If heads share keys, it is computed for each head first and then
 * summed. */
static void transposed_product(CudnnGraph *g, const Key *x, Node p, Node rows, int64_t d, Node to)
{
    Node pt = graph_node(g, node_transposed(packed(x->B, x->H, x->Tq, x->Tk)), CUDNN_DATA_BFLOAT16,
                         NODE_VIRTUAL);
    graph_reshape(g, p, pt);
    if (x->H == x->G) {
        graph_matmul(g, pt, rows, to);
        return;
    }
    Node each = graph_node(g, packed(x->B, x->H, x->Tk, d), CUDNN_DATA_BFLOAT16, NODE_VIRTUAL);
    graph_matmul(g, pt, rows, each);
    graph_reduce(g, CUDNN_REDUCE_TENSOR_ADD, each, to);
}

/* delta = sum over d of do * o. cuDNN's pattern needs a factor after the sum: 1. */
static void delta_graph(CudnnGraph *g, const Key *x, Node *node)
{
    node[O] = bf16_rows(g, x, queries(x, x->o_rows), x->dv);
    node[D_O] = bf16_rows(g, x, queries(x, x->q_rows), x->dv);
    node[DELTA] = row_numbers(g, x, NODE_MEMORY);
    node[ONE] = graph_value(g, CUDNN_DATA_FLOAT);
    Node product = graph_node(g, packed(x->B, x->H, x->Tq, x->dv), CUDNN_DATA_FLOAT, NODE_VIRTUAL);
    graph_pointwise(g, CUDNN_POINTWISE_MUL, node[D_O], node[O], product);
    Node sum = graph_like(g, node[DELTA]);
    graph_reduce(g, CUDNN_REDUCE_TENSOR_ADD, product, sum);
    graph_pointwise(g, CUDNN_POINTWISE_MUL, sum, node[ONE], node[DELTA]);
}

static void dq_graph(CudnnGraph *g, const Key *x, Node ds, Node *node)
{
    Node k = graph_node(g, node_transposed(g->shape[node[K]]), CUDNN_DATA_BFLOAT16, NODE_VIRTUAL);
    graph_reshape(g, node[K], k);
    node[DQ] = bf16_rows(g, x, queries(x, x->dq_rows), x->dk);
    if (x->one_order) {
        graph_matmul(g, ds, k, node[DQ]);
        return;
    }
    node[DQ_SUM] = graph_node(g, packed(x->B, x->H, x->Tq, x->dk), CUDNN_DATA_FLOAT, NODE_MEMORY);
    graph_matmul(g, ds, k, node[DQ_SUM]);
    graph_pointwise(g, CUDNN_POINTWISE_IDENTITY, node[DQ_SUM], NO_NODE, node[DQ]);
}

static void bwd_graph(CudnnGraph *g, const Key *x, Node *node)
{
    delta_graph(g, x, node);
    node[LSE] = row_numbers(g, x, NODE_MEMORY);
    Node s = graph_map(g, CUDNN_POINTWISE_SUB, scaled_scores(g, x, node), node[LSE]);
    Node p = graph_map(g, CUDNN_POINTWISE_EXP, masked(g, x, s, node), NO_NODE);
    node[DV] = bf16_rows(g, x, keys(x, x->dv_rows), x->dv);
    transposed_product(g, x, p, node[D_O], x->dv, node[DV]);
    node[V] = bf16_columns(g, x, x->dv);
    Node dp = scores(g, x);
    graph_matmul(g, node[D_O], node[V], dp);
    dp = graph_map(g, CUDNN_POINTWISE_SUB, dp, node[DELTA]);
    dp = graph_map(g, CUDNN_POINTWISE_MUL, dp, p);
    Node ds = graph_map(g, CUDNN_POINTWISE_MUL, dp, node[SCALE]);
    node[DK] = bf16_rows(g, x, keys(x, x->dk_rows), x->dk);
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

/* The plan for a shape, built at the first call. ERR_UNSUPPORTED: cuDNN refuses the shape. A
 * refusal is kept, too, so cuDNN is asked once a shape. */
static Status plan_find(CudnnAttention *c, const Key *x, const Plan **out)
{
    Plan *p = NULL;
    for (int i = 0; i < c->plans && p == NULL; i++)
        if (memcmp(&c->plan[i].key, x, sizeof *x) == 0) p = &c->plan[i];
    if (p == NULL && c->plans == PLANS_MAX)
        return FAIL(ERR_UNSUPPORTED,
                    "the table of cuDNN plans is full: this process has met too many shapes");
    if (p == NULL) {
        p = &c->plan[c->plans];
        Status s = plan_build(c, x, p);
        if (s != OK && s != ERR_UNSUPPORTED) return s;
        if (s != OK) status_sentence(p->why, sizeof p->why);
        if (s != OK) status_clear();
        p->key = *x;
        c->plans++;
    }
    if (p->plan.plan == NULL) return FAIL(ERR_UNSUPPORTED, "%s", p->why);
    *out = p;
    return OK;
}

/* Calls */

/* The address of the rectangle's first row in the first sequence of a tensor, and the rows that
 * memory has for a sequence. */
typedef struct Place {
    char *at;
    int64_t rows;
} Place;

typedef struct Call {
    Key whole, part;
    AttentionRect rect;
    Room room;
    Place place[ROLES]; /* of the tensors of a call */
    float scale;
    bool in_blocks;
    bool first_made,
        lse_made; /* rows' first keys (DOC), and in backward lse, are in the workspace */
} Call;

static Place rows_from(const Tensor *t, int64_t first)
{
    return { (char *)tensor_at(t, first * t->dim[2] * t->dim[3]), t->dim[1] };
}

/* A part in the workspace, or the rectangle's rows of the tensor itself. */
static Place part_or(bool part, char *room, const Tensor *t, int64_t first, int64_t rows)
{
    return part ? Place{ room, rows } : rows_from(t, first);
}

static void set_outputs(Call *c, const AttentionFwd *a, char *workspace)
{
    const AttentionRect *r = &c->rect;
    c->place[O] = part_or(c->in_blocks, workspace + c->room.o, &a->o, r->q, r->Tq);
    if (c->in_blocks) c->place[LSE].at = workspace + c->room.lse;
}

static void set_outputs(Call *c, const AttentionBwd *a, char *workspace)
{
    const AttentionRect *r = &c->rect;
    const Room *room = &c->room;
    bool dq = is_part(&a->dq, &a->dq_before), dk = is_part(&a->dk, &a->dk_before);
    bool dv = is_part(&a->dv, &a->dv_before);
    c->place[O] = rows_from(&a->o, r->q);
    c->place[D_O] = rows_from(&a->d_o, r->q);
    c->place[DQ] = part_or(dq, workspace + room->dq, &a->dq, r->q, r->Tq);
    c->place[DK] = part_or(dk, workspace + room->dk, &a->dk, r->k, r->Tk);
    c->place[DV] = part_or(dv, workspace + room->dv, &a->dv, r->k, r->Tk);
    if (c->lse_made) c->place[LSE].at = workspace + room->lse;
}

template <typename Args> static void set_places(Call *c, const Args *a, char *workspace)
{
    const AttentionRect *r = &c->rect;
    c->place[Q] = rows_from(&a->q, r->q);
    c->place[K] = rows_from(&a->k, r->k);
    c->place[V] = rows_from(&a->v, r->k);
    c->place[LSE] = { (char *)a->lse.data, r->Tq };
    c->place[DOC] = { (char *)a->doc.data, r->Tq };
    if (c->first_made) c->place[DOC].at = workspace + c->room.doc;
    set_outputs(c, a, workspace);
}

template <typename Args> static Call call_of(const Args *a)
{
    Call c = {};
    key_of(a, &c.whole, &c.rect);
    c.part = part_of(&c.whole);
    c.scale = a->scale;
    c.in_blocks = in_blocks(a);
    c.room = room_of(a, &c.part);
    bool some_rows = c.whole.backward && c.rect.Tq < c.whole.q_rows;
    bool pieces = a->pieces.length > 0;
    c.first_made = c.whole.doc && (pieces || hides(a, a->chunk));
    c.lse_made = c.whole.backward && pieces && (c.whole.doc || some_rows);
    return c;
}

/* The address in a tensor where a part of the call begins: sequence b, key/value head `group`. */
static void *piece(const Call *c, int role, int64_t b, int64_t group)
{
    const Key *x = &c->whole;
    const Place *p = &c->place[role];
    bool shared = role == K || role == V || role == DK || role == DV;
    int64_t d = role == V || role == O || role == D_O || role == DV ? x->dv : x->dk;
    int64_t head = shared ? group : group * (x->H / x->G), heads = shared ? x->groups : x->heads;
    if (role == DOC) return p->at + b * p->rows * 4;
    if (role == LSE) return p->at + (b * heads + head) * p->rows * 4;
    return p->at + (b * p->rows * heads + head) * d * 2;
}

static Status run_part(struct Exec *ex, const Call *c, const Plan *p, int64_t b, int64_t group)
{
    CudnnAttention *attention = attention_of(ex);
    char *workspace = (char *)exec_workspace(ex);
    char *delta = workspace + rounded((int64_t)library_bytes(&c->part), 256);
    float scale = c->scale, one = 1, hidden = -INFINITY;
    int32_t window = (int32_t)c->part.window;
    CudnnBound bound = {};
    for (int role = 0; role < ROLES; role++) {
        void *at = NULL;
        if (p->node[role] == NO_NODE) continue;
        if (role < DELTA) at = piece(c, role, b, group);
        if (role == DELTA) at = delta;
        if (role == DQ_SUM) at = delta + delta_bytes(&c->part);
        if (role == SCALE) at = &scale;
        if (role == ONE) at = &one;
        if (role == HIDDEN) at = &hidden;
        if (role == WINDOW) at = &window;
        cudnn_bind(&bound, p->node[role], at);
    }
    return plan_run(&attention->cudnn, &p->plan, &bound, workspace);
}

template <typename Args> static Status rows_make(struct Exec *ex, const Args *a, const Call *c)
{
    char *workspace = (char *)exec_workspace(ex);
    const Key *x = &c->whole;
    if (!c->first_made && !c->lse_made) return OK;
    AttentionRows rows = {};
    rows.pieces = a->pieces;
    rows.rect = c->rect;
    rows.B = x->B;
    rows.H = x->H;
    rows.Tq = x->q_rows;
    rows.window = x->window > 0 ? 0 : a->window; /* 0: cuDNN hides keys before the window itself */
    rows.chunk = a->chunk;
    rows.doc = (const int32_t *)a->doc.data;
    rows.lse = c->lse_made ? (const float *)a->lse.data : NULL;
    rows.rect_doc = c->first_made ? (int32_t *)(workspace + c->room.doc) : NULL;
    rows.rect_lse = (float *)(workspace + c->room.lse);
    return attention_rows(ex, &rows);
}

static Status join_parts(struct Exec *ex, const AttentionFwd *a, const Call *c)
{
    if (!c->in_blocks) return OK;
    AttentionJoin x = {};
    x.rect = c->rect;
    x.part = (const Bf16 *)c->place[O].at;
    x.part_lse = (const float *)c->place[LSE].at;
    x.part_doc = c->first_made ? (const int32_t *)c->place[DOC].at : NULL;
    x.o_before = &a->o_before;
    x.lse_before = &a->lse_before;
    x.o = &a->o;
    x.lse = &a->lse;
    return attention_join(ex, &x);
}

static AttentionSum sum_of(const Place *p, const Tensor *out, const Tensor *before, int64_t first,
                           int64_t rows)
{
    const Bf16 *part = is_part(out, before) ? (const Bf16 *)p->at : NULL;
    return { part, first, rows, before, out };
}

static Status join_parts(struct Exec *ex, const AttentionBwd *a, const Call *c)
{
    const AttentionRect *r = &c->rect;
    const AttentionSum sums[ATTENTION_SUMS] = {
        sum_of(&c->place[DQ], &a->dq, &a->dq_before, r->q, r->Tq),
        sum_of(&c->place[DK], &a->dk, &a->dk_before, r->k, r->Tk),
        sum_of(&c->place[DV], &a->dv, &a->dv_before, r->k, r->Tk),
    };
    return attention_sums(ex, sums);
}

/* cuDNN and the kernels before and after it move 16 bytes at a time. */
static Status check_aligned(std::initializer_list<const Tensor *> tensors)
{
    for (const Tensor *t : tensors) {
        if ((uintptr_t)t->data % 16 == 0) continue;
        return FAIL(ERR_UNSUPPORTED, "a tensor begins at %p, cuDNN wants multiples of 16 bytes",
                    t->data);
    }
    return OK;
}

static Status check_aligned(const AttentionFwd *a)
{
    return check_aligned({ &a->q, &a->k, &a->v, &a->o, &a->o_before });
}

static Status check_aligned(const AttentionBwd *a)
{
    return check_aligned({ &a->d_o, &a->q, &a->k, &a->v, &a->o, &a->dq, &a->dk, &a->dv,
                           &a->dq_before, &a->dk_before, &a->dv_before });
}

/* Finds a plan for the call. If cuDNN has no kernel for a window, a first key for each row hides
 * the same keys instead. */
static Status plan_for(struct Exec *ex, const char *op, Call *c, const Plan **out)
{
    CudnnAttention *attention = attention_of(ex);
    Status s = plan_find(attention, &c->part, out);
    if (s != ERR_UNSUPPORTED || c->part.window == 0) return s;
    status_clear();
    c->whole.window = c->part.window = 0;
    c->whole.doc = c->part.doc = c->first_made = true;
    TRY(plan_find(attention, &c->part, out));
    exec_note_once(ex, op, "cuDNN has no kernel for a window: it saves no time");
    return OK;
}

template <typename Args>
static Status parts_run(struct Exec *ex, const Args *a, const Call *c, const Plan *p)
{
    TRY(rows_make(ex, a, c));
    for (int64_t b = 0; b < c->whole.B; b += c->part.B) {
        for (int64_t group = 0; group < c->whole.G; group += c->part.G)
            TRY(run_part(ex, c, p, b, group));
    }
    return join_parts(ex, a, c);
}

/* ERR_UNSUPPORTED means that cuDNN refuses the call and nothing was launched; then the next
 * candidate runs. So a failure after the first launch must have another code. */
template <typename Args> static Status call_run(struct Exec *ex, const char *op, const Args *a)
{
    const Plan *p = NULL;
    Call c = call_of(a);
    if (c.whole.B == 0) return OK;
    assert(exec_stream(ex) == attention_of(ex)->stream); /* the handle's: the compute lane's */
    TRY(check_aligned(a));
    TRY(plan_for(ex, op, &c, &p));
    set_places(&c, a, (char *)exec_workspace(ex));
    Status s = parts_run(ex, a, &c, p);
    if (s != ERR_UNSUPPORTED) return s;
    char why[CUDNN_WHY_MAX];
    status_sentence(why, sizeof why);
    status_clear();
    return FAIL(ERR_DEVICE, "%s", why);
}

extern "C" Status attention_cudnn_fwd(struct Exec *ex, const void *args)
{
    return call_run(ex, "attention_fwd", (const AttentionFwd *)args);
}

extern "C" Status attention_cudnn_bwd(struct Exec *ex, const void *args)
{
    return call_run(ex, "attention_bwd", (const AttentionBwd *)args);
}
