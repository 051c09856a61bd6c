/* price_tensor: counts a layer of another stack that tp ranks share (tensor with sequence parallelism, Korthikanti et
 * al., arXiv:2205.05198), by our engine's code for one rank. Layers over ranks of tp of our own engine gather and
 * split other tensors (engine/model/stream.h), and are counted as they are.
 *
 * Each rank has 1/tp of the heads, of the widths of dense and shared MLPs, and of the vocabulary, for all tokens.
 * Norms, the residual stream, latents, routing and routed experts take 1/tp of the tokens on each rank. Experts are
 * spread over ranks as wholes: MoE parallel folding (arXiv:2504.14960).
 *
 * So three counts are joined:
 *   whole    all tokens, the model as it is: only to see which ops the next count changes
 *   narrow   all tokens, widths over tp: its parameters, and the ops whose cost differs from `whole`
 *   own      tokens over tp, the model as it is: bytes, and all other ops
 * Bytes are right in `own`: a tensor of (tokens, width / tp) has as many as one of (tokens / tp, width). What a
 * product reads is kept as 1/tp of its rows and gathered again in backward, beside a product (section 4.2.2 there).
 *
 * Not here: the time of gathers and scatters (price_layers.c, by columns in stack.def). */
#include "planner/price/price_private.h"

enum { TENSOR_OPS_MAX = 1 << 13 }; /* each of cp ranks adds a few */

typedef enum TensorView { VIEW_WHOLE, VIEW_NARROW, VIEW_OWN } TensorView;

/* An op in view `whole`, and whether narrowing changes it. */
typedef struct TensorOp {
    const OpDesc *op;
    double flops, bytes;
    bool split;
} TensorOp;

typedef struct TensorCount {
    const LayerCountObserver *observer;
    TensorView view;
    TensorOp *list; /* in the order in which they run */
    int n, at;
} TensorCount;

/* Called for each op of each view. It passes on those that the view stands for. */
static Status tensor_op(void *self, LayerPass pass, int phase, const OpDesc *op, const void *args,
                        const OpCost *cost)
{
    TensorCount *t = self;
    int i = t->at++;
    TensorOp *o = &t->list[i];
    if (i == TENSOR_OPS_MAX || (t->view != VIEW_WHOLE && (i >= t->n || o->op != op)))
        return FAIL(ERR_UNSUPPORTED,
                    "plan: mesh.tp: op %d of a layer, %s, is another one on a narrow layer; set "
                    "mesh.tp=1",
                    i, op->name);
    if (t->view == VIEW_WHOLE) {
        *o = (TensorOp){ op, cost->flops, cost->bytes, false };
        t->n = t->at;
        return OK;
    }
    if (t->view == VIEW_NARROW) o->split = o->flops != cost->flops || o->bytes != cost->bytes;
    if (o->split != (t->view == VIEW_NARROW)) return OK;
    return t->observer->op(t->observer->self, pass, phase, op, args, cost);
}

/* The model with one layer, of which a rank has 1/tp. A vocabulary is padded to a multiple of tp. */
static Status narrow_model(const ModelSpec *s, int layer, int tp, Arena *a, ModelSpec *out)
{
    *out = *s;
    TRY(ARENA_NEW(a, s->n_layers, &out->layers));
    for (int i = 0; i < s->n_layers; i++) out->layers[i] = s->layers[i];
    LayerSpec *l = &out->layers[layer];
    out->vocab = (s->vocab + tp - 1) / tp;
    if (l->kind == LAYER_ATTENTION) l->as.attention.heads /= tp, l->as.attention.kv_heads /= tp;
    if (l->kind == LAYER_DELTA) l->as.delta.dims.key_heads /= tp, l->as.delta.dims.heads /= tp;
    if (l->kind == LAYER_MLP) l->as.ffn /= tp;
    if (l->kind == LAYER_MOE) l->as.moe.shared_ffn /= tp;
    return OK;
}

/* Of a full layer with P parameters, R of them on every rank, a narrow one has N = R + (P - R) / tp. */
static double copies_of(const ParamSpaces *whole, const ParamSpaces *narrow, int tp)
{
    const ParamSizes *p = &whole->of[BUF_GRAD], *n = &narrow->of[BUF_GRAD];
    double split = (double)((p->flat - p->expert) - (n->flat - n->expert)) / (tp - 1);
    return (double)(n->flat - n->expert) - split;
}

Status price_tensor_count(const ModelSpec *s, int layer, const PriceKey *key, int64_t sequence,
                          const LayerCountObserver *observer, Arena *scratch, LayerPrice *out)
{
    TensorCount t = { .observer = observer };
    const LayerCountObserver each = { tensor_op, &t, observer->exec };
    ModelSpec narrow;
    LayerCount whole, split;
    TRY(ARENA_NEW(scratch, TENSOR_OPS_MAX, &t.list));
    TRY(narrow_model(s, layer, key->tp, scratch, &narrow));
    TRY(layer_count(s, layer, key->micro_batch, sequence, &each, scratch, &whole));
    t.view = VIEW_NARROW, t.at = 0;
    TRY(layer_count(&narrow, layer, key->micro_batch, sequence, &each, scratch, &split));
    t.view = VIEW_OWN, t.at = 0;
    TRY(layer_count(s, layer, key->micro_batch, sequence / key->tp, &each, scratch, &out->count));
    out->count.params = split.params;
    out->count.state_elems = split.state_elems;
    out->copies = copies_of(&whole.params, &split.params, key->tp);
    return OK;
}
