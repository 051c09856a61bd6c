/* attention_e4m3: launches the 8-bit forward of attention: three casts, then the kernel. */
#include "op/nv/attention_e4m3.cuh"

/* The parts of the workspace. */
typedef struct Space {
    Tensor q, k, v, q_scale, k_scale, v_scale;
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
    int64_t heads = a->q.dim[0] * a->q.dim[2], groups = a->k.dim[0] * a->k.dim[2];
    int64_t Tq = operand_whole_blocks(a->q.dim[1]), Tk = operand_whole_blocks(a->k.dim[1]);
    char *at = (char *)base;
    Space s = {};
    s.q = space_take(&s, at, DTYPE_E4M3, heads * Tq, a->q.dim[3]);
    s.k = space_take(&s, at, DTYPE_E4M3, groups * Tk, a->k.dim[3]);
    s.v = space_take(&s, at, DTYPE_E4M3, groups * a->v.dim[3], Tk);
    s.q_scale = space_take(&s, at, DTYPE_F32, heads, Tq);
    s.k_scale = space_take(&s, at, DTYPE_F32, groups, Tk / e4m3::TILE);
    s.v_scale = space_take(&s, at, DTYPE_F32, groups, Tk / e4m3::TILE);
    return s;
}

extern "C" size_t attention_e4m3_fwd_workspace(const void *args)
{
    return space_of((const AttentionFwd *)args, NULL).bytes;
}

static e4m3::Cast cast_of(const Tensor *x, const Tensor *data, const Tensor *scale)
{
    return e4m3::Cast{ (const Bf16 *)x->data,
                       (uint8_t *)data->data,
                       (float *)scale->data,
                       x->dim[1],
                       operand_whole_blocks(x->dim[1]),
                       x->dim[2] };
}

template <int DK> static Status forward(struct Exec *ex, const AttentionFwd *f)
{
    using namespace e4m3;
    const char *op = "attention_fwd";
    Space s = space_of(f, exec_workspace(ex));
    Cast q = cast_of(&f->q, &s.q, &s.q_scale), k = cast_of(&f->k, &s.k, &s.k_scale);
    Cast v = cast_of(&f->v, &s.v, &s.v_scale);
    int64_t B = f->q.dim[0], heads = B * q.heads, groups = B * k.heads;
    Args a = {};
    a.q_scale = q.scale, a.k_scale = k.scale, a.v_scale = v.scale;
    a.o = (Bf16 *)f->o.data, a.lse = (float *)f->lse.data;
    a.doc = (const int32_t *)f->doc.data;
    a.Tq = q.tokens, a.Tk = k.tokens, a.q_padded = q.padded, a.k_padded = k.padded;
    a.H = q.heads, a.G = k.heads, a.window = f->window, a.chunk = f->chunk, a.scale = f->scale;
    unsigned q_tiles = (unsigned)(heads * q.padded / TILE);
    unsigned k_tiles = (unsigned)(groups * k.padded / TILE);
    if (q_tiles == 0) return OK;
    a.jobs = q_tiles, a.ticket = exec_ticket(ex);
    cast_rows<DK / 64, true><<<q_tiles, THREADS, 0, exec_stream(ex)>>>(q);
    cast_rows<DK / 64, false><<<k_tiles, THREADS, 0, exec_stream(ex)>>>(k);
    cast_columns<2><<<k_tiles, THREADS, 0, exec_stream(ex)>>>(v);
    TRY(kernel_status(op));
    size_t bytes = Room<DK>::BYTES + 2048;
    TRY(tensor_map(op, { s.q.data, DK, q.padded, heads, DTYPE_E4M3 }, TILE, false, &a.q));
    TRY(tensor_map(op, { s.k.data, DK, k.padded, groups, DTYPE_E4M3 }, TILE, false, &a.k));
    TRY(tensor_map(op, { s.v.data, k.padded, TILE, groups, DTYPE_E4M3 }, TILE, false, &a.v));
    TRY(kernel_shared(op, kernel<DK>, bytes));
    kernel<DK><<<hopper_blocks(ex, q_tiles), BLOCK_THREADS, bytes, exec_stream(ex)>>>(a);
    return kernel_status(op);
}

extern "C" Status attention_e4m3_fwd(struct Exec *ex, const void *args)
{
    const AttentionFwd *f = (const AttentionFwd *)args;
    return f->q.dim[3] == 192 ? forward<192>(ex, f) : forward<128>(ex, f);
}
