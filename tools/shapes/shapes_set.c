/* shapes_set: makes and fills the tensors of a case of shapes.def, and the arguments of its calls.
 * Which tensors a call has is in the table; what is no tensor (scales, dims, rules) is set here by
 * op. */
#include "kernels/attention/attention_kernels.h"
#include "kernels/attention/rope.h"
#include "kernels/core/operand.h"
#include "kernels/delta/delta.h"
#include "kernels/head/head.h"
#include "kernels/moe/moe.h"
#include "kernels/norm/rmsnorm.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/route/route.h"
#include "shapes/shapes.h"

#include "engine/base/rng.h"

#include <math.h>
#include <string.h>

static const struct {
    ShapeAxis axis;
    ShapeFill fill;
    int dtype; /* -1: that of activations */
} tensors[T_COUNT] = {
#define TYPE_ACT                            (-1)
#define TYPE_F32                            DTYPE_F32
#define TYPE_BF16                           DTYPE_BF16
#define TYPE_E4M3                           DTYPE_E4M3
#define TYPE_I32                            DTYPE_I32
#define TENSOR(name, axis, type, fill, ...) [T_##name] = { OVER_##axis, FILL_##fill, TYPE_##type },
#include "shapes/shapes.def"
};

const char shape_letters[] = "ndfekbth";

/* Letters index the sizes in the order of shape_letters. */
int64_t *shape_size(ShapeSizes *s, int letter)
{
    int64_t *const size[SHAPE_LETTERS] = { &s->n, &s->d, &s->f, &s->e, &s->k, &s->b, &s->t, &s->h };
    return size[letter];
}

ShapeAxis shape_axis(int tensor) { return tensors[tensor].axis; }
ShapeFill shape_fill(int tensor) { return tensors[tensor].fill; }

/* Writes a tensor's sizes: those of its axis, then its own. Returns the rank. Sizes of 0 have no
 * dimension. */
static int sizes_of(const ShapeSizes *s, int id, int64_t dim[TENSOR_MAX_RANK])
{
    const int64_t outer[OVER_COUNT][3] = {
        [OVER_TOKENS] = { s->n },      [OVER_SLOTS] = { s->n, s->k },
        [OVER_ROWS] = { s->r },        [OVER_EXPERTS] = { s->e },
        [OVER_HEAD] = { s->b * s->h }, [OVER_HEADS] = { s->b, s->t, s->h },
    };
    const int64_t inner[T_COUNT][2] = {
#define TENSOR(name, axis, type, fill, ...) [T_##name] = { __VA_ARGS__ },
#include "shapes/shapes.def"
    };
    int rank = 0;
    for (int i = 0; i < 5; i++) {
        int64_t size = i < 3 ? outer[tensors[id].axis][i] : inner[id][i - 3];
        if (size > 0) dim[rank++] = size;
    }
    return rank;
}

/* Fills a tensor of whole numbers from the host. */
static Status fill_whole(const ShapeSet *set, int id, const Tensor *t)
{
    int64_t n = tensor_elems(t);
    int32_t *v = NULL;
    uint64_t stream = rng_stream("bench below");
    ArenaMark mark = arena_mark(set->tables);
    TRY(ARENA_NEW(set->tables, n, &v));
    for (int64_t i = 0; i < n; i++) {
        v[i] = (int32_t)(i % 4096);
        if (tensors[id].fill == FILL_DOCUMENTS)
            v[i] = (int32_t)(i % set->s.t / set->s.tokens * set->s.tokens);
        if (tensors[id].fill == FILL_ROUTING) v[i] = set->routing[id][i];
        if (tensors[id].fill == FILL_BELOW)
            v[i] = (int32_t)rng_below(1, stream, (uint64_t)i, (uint64_t)set->s.e);
    }
    TRY(set->ex->backend->copy(set->ex, t->data, v, tensor_bytes(t)));
    TRY(set->ex->backend->sync(set->ex));
    arena_release(set->tables, mark);
    return OK;
}

/* Fills a tensor with the pattern, over and over, from an offset of the tensor's own. The pattern's
 * length is prime, so that rows differ. The host copies it once; the rest is copied on the device,
 * doubling. */
static Status fill_real(const ShapeSet *set, int id, const Tensor *t)
{
    Exec *ex = set->ex;
    int64_t n = tensor_elems(t), done = n < SHAPE_PATTERN ? n : SHAPE_PATTERN;
    float *v = NULL;
    void *packed = NULL;
    ArenaMark mark = arena_mark(set->tables);
    TRY(ARENA_NEW(set->tables, done, &v));
    TRY(arena_alloc(set->tables, (size_t)done * sizeof *v, &packed));
    for (int64_t i = 0; i < done; i++) {
        v[i] = set->pattern[(id * INT64_C(7919) + i) % SHAPE_PATTERN];
        if (tensors[id].fill == FILL_SMALL) v[i] *= 0.02F;
        if (tensors[id].fill == FILL_POSITIVE) v[i] = 0.1F + v[i] * v[i];
    }
    dtype_from_f32(packed, t->dtype, v, done);
    TRY(ex->backend->copy(ex, t->data, packed, (size_t)done * dtype_bytes(t->dtype)));
    TRY(ex->backend->sync(ex));
    arena_release(set->tables, mark);
    for (int64_t m; done < n; done += m) {
        m = done < n - done ? done : n - done;
        TRY(ex->backend->copy(ex, tensor_at(t, done), t->data, (size_t)m * dtype_bytes(t->dtype)));
    }
    return OK;
}

/* Sets *out to a tensor of the case, made and filled at its first use. Outputs are filled with
 * 0xFF, a NaN, so that an element that a kernel does not write is seen. */
static Status make_tensor(ShapeSet *set, int id, PortDir dir, Tensor *out)
{
    Tensor *t = &set->tensor[id];
    const Backend *b = set->ex->backend;
    Dtype act = config_type(set->config);
    bool input = dir == PORT_IN || dir == PORT_IN_OPT || dir == PORT_IN_SCALE;
    bool full = input || dir == PORT_ADD || dir == PORT_ADD_OPT, made = t->data != NULL;
    set->written[id] |= !input;
    if (!made) {
        int64_t dim[TENSOR_MAX_RANK];
        /* With every size given the tensor has its full rank: fewer means that a size is
         * missing. */
        const ShapeSizes all = { 999, 999, 999, 999, 999, 999, 999, 999, 0, 0, 0, 0, 999, 999, 1 };
        int want = sizes_of(&all, id, dim), rank = sizes_of(&set->s, id, dim);
        int type = tensors[id].dtype;
        if (rank == 0 && dir == PORT_IN_OPT) return OK;
        if (rank != want) return FAIL(ERR_SHAPE, "a size that it needs is 0 or not given");
        TRY(tensor_new(set->arena, type < 0 ? act : (Dtype)type, rank, dim, t));
    }
    *out = *t;
    if (made || set->arena->kind == MEM_COUNT) return OK;
    if (!full) return b->fill(set->ex, t->data, 0xFF, tensor_bytes(t));
    return t->dtype == DTYPE_I32 ? fill_whole(set, id, t) : fill_real(set, id, t);
}

/* The two pieces of the queries' rank and of the keys' rank, as engine/model/attention.c places them. */
static AttentionPieces sequence_pieces(const ShapeSizes *s)
{
    int64_t n = s->t / 2, last = 2 * s->cp - 1;
    if (s->cp == 0) return (AttentionPieces){ 0 };
    return (AttentionPieces){ n,
                              { n * s->rank, n * (last - s->rank) },
                              { n * s->keys, n * (last - s->keys) } };
}

/* Shapes that the 8-bit kernel does not take are timed without, on a CPU, too, which checks. */
static bool takes_e4m3(const AttentionFwd *a)
{
    return kernels_first(&attention_e4m3_kernels, &kernel_device_full, 0, a) != NULL;
}

/* Sets those of an op's arguments that are no tensors. */
static void set_options(const ShapeSet *set, OpId op, void *args)
{
    const Config *c = set->config;
    const ShapeSizes *s = &set->s;
    AttentionKernel kernel = (AttentionKernel)c->attention_kernel;
    float scale = 1 / sqrtf((float)s->d);
    RopeMlaDims turn = { s->h, s->d - s->d / 3, s->d / 3, s->f, 0, 0, true };
    RouteRule rule = { ROUTE_SOFTMAX, s->k, 1, 1, 1, true, 1, 0.001F, false, 0 };
    AttentionFwd *forward = args;
    AttentionBwd *backward = args;
    Adamw *adamw = args;
    Quantize *quantize = args;
    HeadLoss *head = args;
    DeltaRuleFwd *recurrence = args;
    DeltaConvFwd *conv = args;
    DeltaNormFwd *norm = args;
    const DeltaDims delta = { shape_key_heads(s), s->h, s->d, s->f };
    switch (op) {
    case OP_ATTENTION_FWD:
        forward->scale = scale;
        forward->kernel = kernel;
        forward->pieces = sequence_pieces(s);
        forward->window = s->window;
        forward->e4m3 = c->fp8_attention && takes_e4m3(forward);
        break;
    case OP_ATTENTION_BWD:
        backward->scale = scale;
        backward->kernel = kernel;
        backward->pieces = sequence_pieces(s);
        backward->window = s->window;
        break;
    case OP_DELTA_RULE_FWD: /* those of backward begin with forward's */
    case OP_DELTA_RULE_BWD: recurrence->dims = delta, recurrence->sequence = s->t; break;
    case OP_DELTA_CONV_FWD:
    case OP_DELTA_CONV_BWD: conv->dims = delta, conv->sequence = s->t; break;
    case OP_DELTA_NORM_FWD:
    case OP_DELTA_NORM_BWD: norm->dims = delta, norm->eps = 1e-6F; break;
    case OP_RMSNORM_FWD: ((RmsnormFwd *)args)->eps = 1e-6F; break;
    case OP_ROPE_MLA_FWD: ((RopeMlaFwd *)args)->dims = turn; break;
    case OP_ROPE_MLA_BWD: ((RopeMlaBwd *)args)->dims = turn; break;
    case OP_ROUTE_FWD: ((RouteFwd *)args)->rule = rule; break;
    case OP_ROUTE_BWD: ((RouteBwd *)args)->rule = rule; break;
    case OP_MOE_UP_FWD: ((MoeUpFwd *)args)->pow2 = true; break;
    case OP_MOE_DOWN_BWD_INPUT: ((MoeDownBwdInput *)args)->pow2 = true; break;
    case OP_HEAD_LOSS:
        head->chunk = head_chunk(c->model_loss_chunk, set->ex->gpu != NULL, head->w.data.dim[0],
                                 head->x.dtype);
        break;
    case OP_ADAMW:
        adamw->beta1 = 0.9F, adamw->beta2 = 0.95F, adamw->eps = 1e-8F;
        adamw->copies.round = DTYPE_BF16;
        adamw->copies.pow2 = true;
        break;
    case OP_QUANTIZE:
        if (quantize->x.data.rank < 3) break;
        quantize->rows = (Rows){ 0 }; /* weights, of which all are in use */
        quantize->round = DTYPE_BF16;
        quantize->pow2 = true;
        break;
    default: break;
    }
}

static bool is_scale(const OpPort *p) { return strstr(p->name, ".scale") != NULL; }

/* Does the table name scales for the operand of the port before? It does for 8-bit ones. */
static bool names_scale(const OpPort *p, const void *args)
{
    Dtype type = op_port_tensor(p - 1, args)->dtype;
    return op_port_tensor(p - 1, args)->data != NULL && dtype_bytes(type) == 1;
}

/* How a call's operand with scales lies: weights, which have three dimensions, by blocks, and
 * transposed for the gradient of rows. Columns, of groups or of weights, are transposed, too. */
static void set_scales(OpId op, const OpPort *p, ShapeAxis axis, Operand *q)
{
    bool input = op == OP_MOE_UP_BWD_INPUT || op == OP_MOE_DOWN_BWD_INPUT,
         weight = q->data.rank == 3;
    q->kind = weight ? OPERAND_128X128 : OPERAND_1X128;
    bool columns = strstr(p->name, "columns") != NULL || strstr(p->name, "transposed") != NULL;
    q->transposed = axis == OVER_WHOLE || columns || (input && weight);
}

/* Fills the argument struct of a call: the table's tensors go to the op's ports in order. */
static Status set_call(ShapeSet *set, int nth)
{
    const OpDesc *op = op_desc(set->what->call[nth].op);
    const int *id = set->what->call[nth].tensor;
    TRY(arena_array_zero(set->tables, 1, op->args_bytes, &set->args[nth]));
    for (const OpPort *p = op->ports; p->dir != PORT_END; p++) {
        char *at = (char *)set->args[nth] + p->offset;
        if (p->dir == PORT_ROWS)
            *(Rows *)(void *)at = (Rows){ .bound = set->s.r, .expected = (double)set->s.r };
        else if ((!is_scale(p) || names_scale(p, set->args[nth])) && *id++ != T_NONE)
            TRY(make_tensor(set, id[-1], p->dir, (Tensor *)(void *)at));
        if (is_scale(p) && names_scale(p, set->args[nth]))
            set_scales(set->what->call[nth].op, p, shape_axis(id[-1]),
                       (Operand *)(void *)(at - offsetof(Operand, scale)));
    }
    set_options(set, set->what->call[nth].op, set->args[nth]);
    return OK;
}

Status shape_set_make(ShapeSet *set)
{
    for (int i = 0; i < set->what->calls; i++) TRY(set_call(set, i));
    return OK;
}

/* Calls [first, end): those before `prepare` make inputs of the timed ones. */
Status shape_set_run(const ShapeSet *set, int first, int end)
{
    for (int i = first; i < end; i++) TRY(op_run(set->ex, set->what->call[i].op, set->args[i]));
    return OK;
}
