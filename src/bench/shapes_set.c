/* shapes_set: tensors of a case of shapes.def, filled, and the arguments of its calls. */
#include "bench/shapes.h"

#include "base/rng.h"

#include <math.h>
#include <string.h>

static const struct {
    ShapeAxis axis;
    ShapeFill fill;
    int dtype; /* -1: that of activations */
} tensors[T_COUNT] = {
#define TYPE_ACT                            -1
#define TYPE_F32                            DTYPE_F32
#define TYPE_BF16                           DTYPE_BF16
#define TYPE_I32                            DTYPE_I32
#define TENSOR(name, axis, type, fill, ...) [T_##name] = { OVER_##axis, FILL_##fill, TYPE_##type },
#include "bench/shapes.def"
};

ShapeAxis shape_axis(int tensor) { return tensors[tensor].axis; }
ShapeFill shape_fill(int tensor) { return tensors[tensor].fill; }

/* The sizes behind those of the axis. */
static void inner_sizes(const ShapeSizes *s, int id, int64_t out[2])
{
    switch (id) {
#define TENSOR(name, axis, type, fill, ...)                                                        \
    case T_##name:                                                                                 \
        memcpy(out, (int64_t[2]){ __VA_ARGS__ }, 2 * sizeof *out);                                 \
        break;
#include "bench/shapes.def"
    default: break;
    }
}

static void all_sizes(const ShapeSizes *s, int id, int *rank, int64_t dim[TENSOR_MAX_RANK])
{
    const int64_t outer[OVER_COUNT][3] = {
        [OVER_TOKENS] = { s->n },      [OVER_SLOTS] = { s->n, s->k },
        [OVER_ROWS] = { s->r },        [OVER_EXPERTS] = { s->e },
        [OVER_HEAD] = { s->b * s->h }, [OVER_HEADS] = { s->b, s->t, s->h },
    };
    int64_t inner[2] = { 0 };
    *rank = 0;
    inner_sizes(s, id, inner);
    for (int i = 0; i < 3; i++) {
        if (outer[tensors[id].axis][i] > 0) dim[(*rank)++] = outer[tensors[id].axis][i];
    }
    for (int i = 0; i < 2; i++) {
        if (inner[i] > 0) dim[(*rank)++] = inner[i];
    }
}

/* Whole numbers, all of them made on the host. */
static Status fill_whole(const ShapeSet *set, int id, const Tensor *t)
{
    int64_t n = tensor_elems(t);
    int32_t *v = NULL;
    ArenaMark mark = arena_mark(set->tables);
    TRY(ARENA_NEW(set->tables, n, &v));
    for (int64_t i = 0; i < n; i++) {
        v[i] = (int32_t)(i % 4096);
        if (tensors[id].fill == FILL_ROUTING) v[i] = set->routing[id][i];
        if (tensors[id].fill == FILL_BELOW)
            v[i] =
                (int32_t)rng_below(1, rng_stream("bench below"), (uint64_t)i, (uint64_t)set->s.e);
    }
    TRY(set->ex->backend->copy(set->ex, t->data, v, tensor_bytes(t)));
    TRY(set->ex->backend->sync(set->ex));
    arena_release(set->tables, mark);
    return OK;
}

/* The pattern from a place of the tensor's own, over and over. Its length is prime: rows differ. */
static Status fill_real(const ShapeSet *set, int id, const Tensor *t)
{
    Exec *ex = set->ex;
    int64_t n = tensor_elems(t), done = n < SHAPE_PATTERN ? n : SHAPE_PATTERN;
    const float *from = set->pattern + (int64_t)id * 7919 % SHAPE_PATTERN;
    float *v = NULL;
    void *packed = NULL;
    ArenaMark mark = arena_mark(set->tables);
    TRY(ARENA_NEW(set->tables, done, &v));
    TRY(arena_alloc(set->tables, (size_t)done * sizeof *v, &packed));
    for (int64_t i = 0; i < done; i++) {
        v[i] = from[i];
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

/* *out: the tensor, which is made if it is not there yet. */
static Status tensor_of(ShapeSet *set, int id, PortDir dir, Tensor *out)
{
    Tensor *t = &set->tensor[id];
    Dtype act = set->config->run_compute == COMPUTE_BF16 ? DTYPE_BF16 : DTYPE_F32;
    int64_t dim[TENSOR_MAX_RANK];
    bool written =
        dir == PORT_OUT || dir == PORT_OUT_OPT || dir == PORT_OUT_PART_OPT || dir == PORT_OUT_PART;
    int rank;
    if (t->data == NULL) {
        all_sizes(&set->s, id, &rank, dim);
        TRY(tensor_new(set->arena, tensors[id].dtype < 0 ? act : (Dtype)tensors[id].dtype, rank,
                       dim, t));
        if (set->arena->kind == MEM_COUNT)
            ;
        else if (written)
            TRY(set->ex->backend->fill(set->ex, t->data, 0xFF, tensor_bytes(t)));
        else
            TRY(t->dtype == DTYPE_I32 ? fill_whole(set, id, t) : fill_real(set, id, t));
    }
    *out = *t;
    return OK;
}

static void set_options(const ShapeSet *set, OpId op, void *args)
{
    const Config *c = set->config;
    const ShapeSizes *s = &set->s;
    RopeMlaDims turn = { .heads = s->h, .nope = s->d - s->d / 3, .rope = s->d / 3, .v = s->f };
    RouteRule rule = { .top_k = s->k,
                       .groups = 1,
                       .top_groups = 1,
                       .group_score_top = 1,
                       .normalise = true,
                       .scaling = 1,
                       .aux_scale = 0.001F };
    AttentionFwd *forward = args;
    AttentionBwd *backward = args;
    Adamw *adamw = args;
    turn.interleaved = true;
    switch (op) {
    case OP_ATTENTION_FWD:
        forward->scale = 1 / sqrtf((float)s->d);
        forward->kernel = (AttentionKernel)c->attention_kernel;
        break;
    case OP_ATTENTION_BWD:
        backward->scale = 1 / sqrtf((float)s->d);
        backward->kernel = (AttentionKernel)c->attention_kernel;
        backward->any_order = !c->attention_deterministic;
        break;
    case OP_RMSNORM_FWD: ((RmsnormFwd *)args)->eps = 1e-6F; break;
    case OP_ROPE_MLA_FWD: ((RopeMlaFwd *)args)->dims = turn; break;
    case OP_ROPE_MLA_BWD: ((RopeMlaBwd *)args)->dims = turn; break;
    case OP_ROUTE_FWD: ((RouteFwd *)args)->rule = rule; break;
    case OP_ROUTE_BWD: ((RouteBwd *)args)->rule = rule; break;
    case OP_HEAD_LOSS: ((HeadLoss *)args)->chunk = c->model_loss_chunk; break;
    case OP_ADAMW: adamw->beta1 = 0.9F, adamw->beta2 = 0.95F, adamw->eps = 1e-8F; break;
    default: break;
    }
}

Status shape_set_make(ShapeSet *set)
{
    for (int i = 0; i < set->what->calls; i++) {
        const ShapeCall *call = &set->what->call[i];
        const int *id = call->tensor;
        TRY(ARENA_ZEROED(set->tables, SHAPE_ARGS_MAX, &set->args[i]));
        for (const OpPort *p = op_desc(call->op)->ports; p->dir != PORT_END; p++) {
            char *at = set->args[i] + p->offset;
            Rows rows = { .bound = set->s.r, .expected = (double)set->s.r };
            if (p->dir == PORT_IN_SCALE) continue;
            if (p->dir == PORT_ROWS)
                memcpy(at, &rows, sizeof rows);
            else if (*id++ != T_NONE)
                TRY(tensor_of(set, id[-1], p->dir, (Tensor *)(void *)at));
        }
        set_options(set, call->op, set->args[i]);
    }
    return OK;
}

Status shape_set_run(const ShapeSet *set, int first, int end)
{
    for (int i = first; i < end; i++) TRY(op_run(set->ex, set->what->call[i].op, set->args[i]));
    return OK;
}
