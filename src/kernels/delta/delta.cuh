/* delta.cuh: what kernels of delta/ share: where rows lie, and the gates of a token. */
#ifndef KERNELS_DELTA_DELTA_CUH
#define KERNELS_DELTA_DELTA_CUH

#include "kernels/core/pack.cuh"

/* Sizes of a call, as delta.h names them. */
typedef struct DeltaShape {
    int64_t rows, sequence, x_cols, qkv_cols;
    int64_t head_cols; /* of x: q, k, v and z of a key head */
    int key_heads, heads, shared, key, value;
    const int32_t *doc; /* or NULL */
    int64_t first[2];   /* positions of the first tokens of even and odd runs */
    bool given;         /* there is a state before each run */
} DeltaShape;

static __device__ __forceinline__ int64_t delta_b_of(const DeltaShape &s, int head)
{
    return s.key_heads * s.head_cols + head / s.shared * 2 * s.shared + head % s.shared;
}

static __device__ __forceinline__ int64_t delta_position_of(const DeltaShape &s, int64_t row)
{
    return s.first[row / s.sequence % 2] + row % s.sequence;
}

/* The position of the first token that the token of a row sees; -1: of what a state has seen. */
static __device__ __forceinline__ int64_t delta_first_of(const DeltaShape &s, int64_t row)
{
    return s.doc != NULL ? s.doc[row] : s.given ? -1 : 0;
}

typedef struct DeltaGates {
    float beta, log_alpha, gate; /* gate: the slope of softplus */
} DeltaGates;

/* decay: A of each head, then dt. */
static __device__ __forceinline__ DeltaGates delta_gates(const DeltaShape &s, const float *decay,
                                                         int head, float b, float a)
{
    DeltaGates g;
    a += decay[s.heads + head];
    g.beta = 1 / (1 + expf(-b));
    g.gate = 1 / (1 + expf(-a));
    g.log_alpha = -expf(decay[head]) * (a > 20 ? a : log1pf(expf(a)));
    return g;
}

static constexpr float DELTA_LENGTH_EPS = 1e-6f; /* of q and k, as delta_rule.c has it */

#endif
