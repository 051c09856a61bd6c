/*
 * quant_made: a source for blocks of quant_tile.cuh: what another op makes, in bf16. So that op's
 * output is quantised without being written and read again. A maker computes it:
 *
 *     INPUTS, EACH           packs that a pack of the output needs; rows whose packs are fetched
 *                            before the first is used
 *     fetch(in, row, col)    fetches them
 *     compute(in, row, col, v)
 *
 * It must do the arithmetic of the op's own kernel, so that bits are the same. An output in plain
 * form may be written on the way. It must not be what the maker reads, because several blocks may
 * read the same.
 */
#ifndef OP_QUANT_MADE_CUH
#define OP_QUANT_MADE_CUH

#include "op/quant_run.cuh"
#include "op/rows.cuh"

extern "C" {
#include "op/quant.h"
}

namespace quant
{

template <typename G> struct Made {
    typedef quant::Patch Patch;
    static constexpr bool PACKED = true;
    G make;
    Bf16 *plain; /* (n, d), or NULL */

    /* The plain output has been written by this block. */
    __device__ __forceinline__ float number(const Job &job, const Strip &s, int r,
                                            int64_t col) const
    {
        int64_t row = s.first + r;
        if (plain != NULL) return to_f32(plain[row * job.d + col]);
        Packed<Bf16, false> in[G::INPUTS];
        float v[1];
        make.fetch(in, row, col);
        make.compute(in, row, col, v);
        return to_f32(from_f32<Bf16>(v[0]));
    }

    template <typename S>
    __device__ __forceinline__ void load(const Job &job, const Strip &s, const Place<S> &at,
                                         int64_t col, Patch &p) const
    {
        constexpr int EACH = G::EACH;
        int first = at.row % S::HIGH;
        int64_t column = col + at.pack * PACK_COLS, row = s.first + first;
        int live = column < job.d ? s.live - first : 0;
#pragma unroll
        for (int i = 0; i < ROWS_EACH; i += EACH) {
            Packed<Bf16, true> in[EACH][G::INPUTS];
#pragma unroll
            for (int j = 0; j < EACH; j++)
                if (i + j < live) make.fetch(in[j], row + i + j, column);
#pragma unroll
            for (int j = 0; j < EACH; j++) {
                p.word[i + j] = make_uint4(0, 0, 0, 0);
                if (i + j >= live) continue;
                float v[PACK_COLS];
                make.compute(in[j], row + i + j, column, v);
                p.word[i + j] = pack_of(v);
                if (plain != NULL)
                    write_whole((uint4 *)(plain + (row + i + j) * job.d + column), p.word[i + j]);
            }
        }
    }

    static __device__ __forceinline__ uint4 pack_of(const float (&v)[PACK_COLS])
    {
        Bf16Pair pair[PACK_COLS / 2];
        uint4 word;
#pragma unroll
        for (int k = 0; k < PACK_COLS / 2; k++) pair[k] = pair_from_f32(v[2 * k], v[2 * k + 1]);
        memcpy(&word, pair, sizeof word);
        return word;
    }
};

/* Can the copies of an output be made without the plain one? Their scales must lie in one block of
 * threads. */
static inline bool made_fits(const QuantOut &q_out, const Tensor *plain)
{
    const Operand *rows = &q_out.rows, *columns = &q_out.columns;
    const Operand *both[] = { rows, columns }, *any = given(rows) ? rows : columns;
    bool fit = given(any) && plain->dtype == DTYPE_BF16;
    for (const Operand *q : both) {
        if (!given(q)) continue;
        fit = fit && q->kind == OPERAND_1X128 && q->data.dtype == any->data.dtype;
    }
    const void *to[] = { rows->data.data, columns->data.data };
    return fit && packs_fit<Bf16>({ to[0], to[1], plain->data }, { tensor_cols(plain) }) &&
           (!given(columns) || tensor_cols(&columns->data) % 16 == 0);
}

template <typename F, bool ROWS, bool COLUMNS, typename G>
static Status made_launch(struct Exec *ex, const char *op, const Job &call, const Operand *rows,
                          const Operand *columns, const Made<G> &x)
{
    typedef typename std::conditional<ROWS, Flat, Tall>::type Line;
    typedef typename std::conditional<ROWS && COLUMNS, Large, Line>::type S;
    Job job = job_for<S>(call, rows, columns, NULL);
    if (blocks_of(job) == 0) return OK;
    quantize_kernel<Made<G>, F, S, ROWS, COLUMNS>
        <<<(unsigned)blocks_of(job), S::THREADS, 0, exec_stream(ex)>>>(job, x);
    return kernel_status(op);
}

template <typename F, typename G>
static Status made_sides(struct Exec *ex, const char *op, const Job &call, const Operand *rows,
                         const Operand *columns, const Made<G> &x)
{
    if (given(rows) && given(columns))
        return made_launch<F, true, true>(ex, op, call, rows, columns, x);
    return given(rows) ? made_launch<F, true, false>(ex, op, call, rows, columns, x)
                       : made_launch<F, false, true>(ex, op, call, rows, columns, x);
}

/* Makes the copies of an output of plain's shape, and plain itself if it has data. */
template <typename G>
static Status made_run(struct Exec *ex, const char *op, const QuantOut &q, const Tensor *plain,
                       const G &make)
{
    const Operand *rows = &q.rows, *columns = &q.columns;
    const Made<G> x = { make, (Bf16 *)plain->data };
    const Operand *any = given(rows) ? rows : columns;
    Job call = {};
    call.matrices = 1;
    call.d = tensor_cols(plain);
    call.n = call.d == 0 ? 0 : tensor_elems(plain) / call.d;
    call.pow2 = q.pow2;
    return any->data.dtype == DTYPE_E4M3 ? made_sides<E4M3>(ex, op, call, rows, columns, x)
                                         : made_sides<E5M2>(ex, op, call, rows, columns, x);
}

} // namespace quant

#endif
