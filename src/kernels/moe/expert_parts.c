/* expert_parts: check, cost and CPU version of both directions. */
#include "kernels/moe/expert_parts.h"

#include "kernels/core/op.h"

/* Whole parts for each of a token's K entries? */
static Status check_parts(const char *op, const Tensor *whole, const Tensor *parts)
{
    int64_t k = tensor_cols(whole), n = tensor_cols(parts);
    if (k > 0 && n > 0 && n % k == 0) return OK;
    return FAIL(ERR_SHAPE,
                "%s: %lld parts of the %lld experts of a token are not equally many of each", op,
                (long long)n, (long long)k);
}

Status expert_parts_fwd_check(const ExpertPartsFwd *a)
{
    static const char *const op = "expert_parts_fwd";
    int64_t n = a->index.dim[0], parts = tensor_cols(&a->part_index);
    TRY(op_expect(op, "index", &a->index, n, tensor_cols(&a->index), DTYPE_I32));
    TRY(op_expect(op, "weight", &a->weight, n, tensor_cols(&a->index), DTYPE_F32));
    TRY(op_expect(op, "part_index", &a->part_index, n, parts, DTYPE_I32));
    TRY(op_expect(op, "part_weight", &a->part_weight, n, parts, DTYPE_F32));
    if (a->here < 1)
        return FAIL(ERR_ARG, "%s: parts of %lld experts on a rank, at least 1 is needed", op,
                    (long long)a->here);
    return check_parts(op, &a->index, &a->part_index);
}

/* Numbers of experts are integer work and count as no FLOPs. */
OpCost expert_parts_fwd_cost(const ExpertPartsFwd *a)
{
    return (OpCost){ .bytes = op_port_bytes(OP_EXPERT_PARTS_FWD, a) };
}

Status expert_parts_fwd_cpu(Exec *ex, const ExpertPartsFwd *a)
{
    const int32_t *index = a->index.data;
    const float *weight = a->weight.data;
    int32_t *part_index = a->part_index.data;
    float *part_weight = a->part_weight.data;
    int64_t n = tensor_elems(&a->part_index), parts = n / (tensor_elems(&a->index) + (n == 0));
#pragma omp parallel for num_threads(ex->threads) schedule(static)
    for (int64_t i = 0; i < n; i++) {
        int64_t at = i / parts, e = index[at];
        part_index[i] = (int32_t)((e / a->here * parts + i % parts) * a->here + e % a->here);
        part_weight[i] = weight[at];
    }
    return OK;
}

OP_PORTS(expert_parts_fwd, IN(ExpertPartsFwd, index), IN(ExpertPartsFwd, weight),
         OUT(ExpertPartsFwd, part_index), OUT(ExpertPartsFwd, part_weight));

Status expert_parts_bwd_check(const ExpertPartsBwd *a)
{
    static const char *const op = "expert_parts_bwd";
    int64_t n = a->dweight.dim[0];
    TRY(op_expect(op, "dweight", &a->dweight, n, tensor_cols(&a->dweight), DTYPE_F32));
    TRY(op_expect(op, "part_dweight", &a->part_dweight, n, tensor_cols(&a->part_dweight),
                  DTYPE_F32));
    return check_parts(op, &a->dweight, &a->part_dweight);
}

OpCost expert_parts_bwd_cost(const ExpertPartsBwd *a)
{
    return (OpCost){ .flops = (double)tensor_elems(&a->part_dweight),
                     .bytes = op_port_bytes(OP_EXPERT_PARTS_BWD, a) };
}

Status expert_parts_bwd_cpu(Exec *ex, const ExpertPartsBwd *a)
{
    const float *part = a->part_dweight.data;
    float *dweight = a->dweight.data;
    int64_t n = tensor_elems(&a->dweight), parts = tensor_elems(&a->part_dweight) / (n + (n == 0));
#pragma omp parallel for num_threads(ex->threads) schedule(static)
    for (int64_t i = 0; i < n; i++) {
        float sum = part[i * parts];
        for (int64_t p = 1; p < parts; p++) sum += part[i * parts + p];
        dweight[i] = sum;
    }
    return OK;
}

OP_PORTS(expert_parts_bwd, IN(ExpertPartsBwd, part_dweight), OUT(ExpertPartsBwd, dweight));
