/*
 * stream: the residual stream over ranks of tp (tensor with sequence parallelism, Korthikanti et al.,
 * arXiv:2205.05198).
 *
 * Each rank holds an equal run of every sequence's rows. Norms, routing and the residual work on these.
 * Products need all tokens: rows are gathered before them. A product whose input columns are split gives
 * each rank a part of a sum over all tokens. A reduce-scatter adds the parts, and each rank keeps its rows:
 *
 *   norm   gather   ... products ...   scatter     h_out = h + sum of parts
 *
 * Backward runs the reverse: scatter gathers the gradient of h_out, gather adds up that of y. The comm lane
 * runs all three. So in backward gather, norm and the next layer's scatter run in parallel with the weight
 * gradients of the products before them (Action.early). These phases are there only with mesh.tp above 1.
 * Their layers' state begins with a StreamState.
 */
#ifndef ENGINE_MODEL_STREAM_H
#define ENGINE_MODEL_STREAM_H

#include "engine/model/norm.h"

typedef struct StreamState {
    NormState norm; /* of a layer without a norm: unused */
    Tensor part;    /* over ranks of tp, forward: this rank's part of h_out, (tokens, D), in ring */
    Tensor dout;    /* backward: gradient of h_out for all tokens, in ring */
} StreamState;

/* Forward and backward of the three phases. */
PhaseFn stream_norm, stream_norm_backward;
PhaseFn stream_gather, stream_gather_backward;
PhaseFn stream_scatter, stream_scatter_backward;

/* With SpecRanks.own_first the first products after a gather begin with this rank's rows, in a phase that runs in
 * parallel with the gather (Phase.overlap_ok). The phase behind it computes the others' rows. stream_begins: does the
 * product with the matrix of `role` begin so? Not one that reads 8-bit rows, which are made of the gathered tensor. */
bool stream_begins(const LayerRun *r, ParamRole role);
/* The next run of this rank's rows, or of the others': x in y = norm(h), and out in `outs` (tokens, ...). False: there
 * are no more. *i begins with 0. */
bool stream_next_run(const LayerRun *r, bool own, int64_t *i, Tensor outs, Operand *x, Tensor *out);

/* The product with the matrix of `role` for these runs. */
Status stream_product(LayerRun *r, ParamRole role, bool own, Tensor outs);

/* Entries of a layer's table of phases. `of`: the BlockPart that the phase belongs to. */
#define STREAM_NORM(of)                                                                            \
    {                                                                                              \
        .name = "norm", .lane = LANE_COMM, .forward = stream_norm,                                 \
        .backward_input = stream_norm_backward, .part = (of), .split = true, .local = true         \
    }
#define STREAM_GATHER(of)                                                                          \
    {                                                                                              \
        .name = "gather", .lane = LANE_COMM, .forward = stream_gather,                             \
        .backward_input = stream_gather_backward, .part = (of), .split = true                      \
    }
#define STREAM_SCATTER(of)                                                                         \
    {                                                                                              \
        .name = "scatter", .lane = LANE_COMM, .forward = stream_scatter,                           \
        .backward_input = stream_scatter_backward, .part = (of), .split = true                     \
    }

#define STREAM_OWN(fn, of)                                                                         \
    {                                                                                              \
        .name = "own", .lane = LANE_COMPUTE, .forward = (fn), .overlap_ok = true, .part = (of),    \
        .own_first = true                                                                          \
    }

/* Sets where a layer's last product writes and which residual it adds: h_out and h, or over ranks of tp this
 * rank's part of the sum, which it allocates, and none. */
Status stream_out(LayerRun *r, Tensor *residual, Tensor *out);
/* The gradient of h_out for all tokens. */
Tensor stream_gradient(const LayerRun *r);

#endif
