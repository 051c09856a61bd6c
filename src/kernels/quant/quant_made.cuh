/*
 * quant_made: a source for blocks of quant_tile.cuh: what another op makes, in bf16. So that op's
 * output is quantised without being written and read again. A maker computes it:
 *
 *     place<WIDE>(col)         what is the same for all rows of a pack (WIDE) or of one column
 *     first(at, row)           where the first pack that it is made of lies
 *     note(at, row)            what else is fetched with it: a number of the row, or 0
 *     Rest<WIDE>               what a pack is made of besides, fetched for EACH rows ahead
 *     fetch(rest, note, at, row)
 *     compute(v, rest, note, at)   v holds the first pack, and then the output
 *
 * It must do the arithmetic of the op's own kernel, so that bits are the same. An output in plain form may be written
 * on the way. It must not be what the maker reads, because several blocks may read the same.
 */
#ifndef KERNELS_QUANT_QUANT_MADE_CUH
#define KERNELS_QUANT_QUANT_MADE_CUH

#include "kernels/norm/rows.cuh"
#include "kernels/quant/quant_run.cuh"

extern "C" {
#include "kernels/quant/quant.h"
}

namespace quant
{

template <typename G> struct Made {
    typedef quant::Patch Patch;
    static constexpr bool PACKED = true, FOLDED = false;
    static constexpr int RESIDENT = WIDE_PATCH;
    G make;
    Bf16 *plain; /* (n, d), or NULL */

    /* The plain output has been written by this block. */
    __device__ __forceinline__ float number(const Job &job, const Strip &s, int r,
                                            int64_t col) const
    {
        int64_t row = s.first + r;
        if (plain != NULL) return to_f32(plain[row * job.d + col]);
        auto here = make.template place<false>(col);
        auto note = make.note(here, row);
        typename G::template Rest<false> rest;
        float v[1] = { to_f32(*make.first(here, row)) };
        make.fetch(rest, note, here, row);
        make.compute(v, rest, note, here);
        return to_f32(from_f32<Bf16>(v[0]));
    }

    /* All first packs are on their way before one is used, and so is the rest of the next rows. */
    template <typename S>
    __device__ __forceinline__ void load(const Job &job, const Strip &s, const Place<S> &at,
                                         int64_t col, Patch &p) const
    {
        constexpr int EACH = G::EACH;
        int first = at.row % S::HIGH;
        int64_t column = col + at.pack * PACK_COLS, row = s.first + first;
        int live = column < job.d ? s.live - first : 0;
        auto here = make.template place<true>(live > 0 ? column : 0);
        decltype(make.note(here, row)) note[ROWS_EACH] = {};
        typename G::template Rest<true> rest[2][EACH];
#pragma unroll
        for (int i = 0; i < ROWS_EACH; i++) {
            p.word[i] = make_uint4(0, 0, 0, 0);
            if (i >= live) continue;
            note[i] = make.note(here, row + i);
            p.word[i] = read_once((const uint4 *)make.first(here, row + i));
        }
#pragma unroll
        for (int i = -EACH; i < ROWS_EACH; i += EACH) {
#pragma unroll
            for (int j = i + EACH; j < ROWS_EACH && j < i + 2 * EACH; j++)
                if (j < live) make.fetch(rest[j / EACH % 2][j % EACH], note[j], here, row + j);
#pragma unroll
            for (int j = i; j >= 0 && j < i + EACH; j++)
                if (j < live) made(p.word[j], rest[j / EACH % 2][j % EACH], note[j], here);
        }
        if (plain == NULL) return;
#pragma unroll
        for (int i = 0; i < ROWS_EACH; i++)
            if (i < live) write_whole((uint4 *)(plain + (row + i) * job.d + column), p.word[i]);
    }

    /* word: the first pack, and then the output. */
    template <typename R, typename N, typename A>
    __device__ __forceinline__ void made(uint4 &word, const R &rest, const N &note,
                                         const A &here) const
    {
        Packed<Bf16, true> own;
        float v[PACK_COLS];
        own.bits = word;
        widen(own, v);
        make.compute(v, rest, note, here);
        word = bf16_word<uint4>(v);
    }
};

/* Can the copies of an output be made without the plain one? Their scales must lie in one block of threads. */
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

template <typename F, typename S, bool ROWS, bool COLUMNS, typename X>
static Status made_launch(struct Exec *ex, const char *op, const Job &call, const QuantOut &q,
                          const X &x)
{
    const Job job = job_for<S>(call, &q.rows, &q.columns, NULL);
    if (blocks_of(job) == 0) return OK;
    quantize_kernel<X, F, S, ROWS, COLUMNS>
        <<<(unsigned)blocks_of(job), S::THREADS, 0, exec_stream(ex)>>>(job, x);
    return kernel_status(op);
}

template <typename F, typename X>
static Status made_sides(struct Exec *ex, const char *op, const Job &call, const QuantOut &q,
                         const X &x)
{
    constexpr bool FOLDED = X::FOLDED;
    typedef typename std::conditional<FOLDED, Folded, Large>::type Both;
    typedef typename std::conditional<FOLDED, Folded, Flat>::type Row;
    typedef typename std::conditional<FOLDED, Folded, Tall>::type Column;
    if (!given(&q.columns)) return made_launch<F, Row, true, false>(ex, op, call, q, x);
    if (!given(&q.rows)) return made_launch<F, Column, false, true>(ex, op, call, q, x);
    return made_launch<F, Both, true, true>(ex, op, call, q, x);
}

/* Makes the copies of an output of plain's shape from a source. */
template <typename X>
static Status source_run(struct Exec *ex, const char *op, const QuantOut &q, const Tensor *plain,
                         const X &x)
{
    const Operand *any = given(&q.rows) ? &q.rows : &q.columns;
    Job call = job_over(plain, q.pow2);
    call.n *= call.matrices;
    call.matrices = 1;
    call.fold = call.d / 2;
    return any->data.dtype == DTYPE_E4M3 ? made_sides<E4M3>(ex, op, call, q, x)
                                         : made_sides<E5M2>(ex, op, call, q, x);
}

/* The same from a maker; and plain itself if it has data. */
template <typename G>
static Status made_run(struct Exec *ex, const char *op, const QuantOut &q, const Tensor *plain,
                       const G &make)
{
    return source_run(ex, op, q, plain, Made<G>{ make, (Bf16 *)plain->data });
}

} // namespace quant

#endif
