/* attention_e4m3: launches the 8-bit forward of attention: the cast of k and v, then the kernel. */
#include "kernels/attention/nv/attention_e4m3.cuh"

/* The parts of the workspace. Tiles come last. */
typedef struct Space {
    Tensor k, v, scale;
    AttentionTiles tiles;
    AttentionRect rect;
    size_t bytes;
} Space;

static Tensor space_take(Space *s, char *base, Dtype dtype, int64_t rows, int64_t cols)
{
    Tensor t = {};
    t.data = base + s->bytes, t.dtype = dtype, t.rank = 2, t.dim[0] = rows, t.dim[1] = cols;
    s->bytes += arena_rounded(tensor_bytes(&t));
    return t;
}

static Space space_of(const AttentionFwd *a, void *base)
{
    int64_t heads = a->k.dim[0] * a->k.dim[2], keys = operand_whole_blocks(a->k.dim[1]);
    char *at = (char *)base;
    Space s = {};
    s.k = space_take(&s, at, DTYPE_E4M3, heads * keys, a->k.dim[3]);
    s.v = space_take(&s, at, DTYPE_E4M3, heads * a->v.dim[3], keys);
    s.scale = space_take(&s, at, DTYPE_F32, heads, 2 * keys / e4m3::TILE);
    (void)attention_rect(&a->pieces, a->q.dim[1], a->k.dim[1], &s.rect);
    s.tiles = attention_tiles_of(&s.rect, a->q.dim[1], a->k.dim[1]);
    if (!attention_tiles_listed(a)) return s;
    attention_tiles_place(&s.tiles, a->q.dim[0], at + s.bytes);
    s.bytes += attention_tiles_bytes(&s.tiles, a->q.dim[0]);
    return s;
}

extern "C" size_t attention_e4m3_fwd_workspace(const void *args)
{
    return space_of((const AttentionFwd *)args, NULL).bytes;
}

static e4m3::Cast cast_of(const Tensor *x, const Tensor *data, float *scale)
{
    return e4m3::Cast{ (const Bf16 *)x->data,
                       (uint8_t *)data->data,
                       scale,
                       x->dim[1],
                       operand_whole_blocks(x->dim[1]),
                       x->dim[2] };
}

static e4m3::Args args_of(const AttentionFwd *f, const Space *s)
{
    e4m3::Args a = {};
    a.tiles = s->tiles;
    a.scales = (const float2 *)s->scale.data;
    a.lse = (float *)f->lse.data;
    a.H = (int)f->q.dim[2], a.share = (int)(f->q.dim[2] / f->k.dim[2]);
    a.o = { (Bf16 *)f->o.data, a.tiles.Tq, a.H, e4m3::TILE };
    a.k_tiles = a.tiles.k_tiles;
    a.scale = f->scale;
    a.jobs = (unsigned)(f->q.dim[0] * a.H * a.tiles.q_tiles);
    return a;
}

template <int DK> static Status forward(struct Exec *ex, const AttentionFwd *f)
{
    using namespace e4m3;
    const char *op = "attention_fwd";
    Space s = space_of(f, exec_workspace(ex));
    Args a = args_of(f, &s);
    float *scale = (float *)s.scale.data;
    Cast k = cast_of(&f->k, &s.k, scale), v = cast_of(&f->v, &s.v, scale + 1);
    int64_t B = f->q.dim[0], heads = B * f->k.dim[2], keys = k.padded, Tq = a.tiles.Tq;
    size_t bytes = Room<DK>::BYTES + sizeof(Shared) + 1024;
    if (a.jobs == 0) return OK;
    if (a.tiles.first != NULL) TRY(attention_tiles_make(ex, f, &s.rect, &a.tiles, false));
    a.ticket = exec_ticket(ex);
    TRY(tensor_map(op, { f->q.data, a.H * DK, Tq, B, DTYPE_BF16 }, TILE, false, &a.q));
    TRY(tensor_map(op, { s.k.data, DK, keys, heads, DTYPE_E4M3 }, TILE, false, &a.k));
    TRY(tensor_map(op, { s.v.data, keys, TILE, heads, DTYPE_E4M3 }, TILE, false, &a.v));
    TRY(kernel_shared(op, kernel<DK>, bytes));
    unsigned casts = (unsigned)(2 * heads * a.k_tiles);
    cast_kernel<DK / 64><<<casts, CAST_THREADS, 0, exec_stream(ex)>>>(k, v);
    TRY(kernel_status(op));
    kernel<DK><<<hopper_blocks(ex, a.jobs), flash::BLOCK_THREADS, bytes, exec_stream(ex)>>>(a);
    return kernel_status(op);
}

extern "C" Status attention_e4m3_fwd(struct Exec *ex, const void *args)
{
    const AttentionFwd *f = (const AttentionFwd *)args;
    return f->q.dim[3] == 192 ? forward<192>(ex, f) : forward<128>(ex, f);
}
