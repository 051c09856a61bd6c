/* checksum: check, cost and CPU version of a checksum of bits and of its comparison. */
#include "kernels/optimizer/checksum.h"

#include "kernels/core/op.h"

#include <string.h>

static bool is_off(const Tensor *on, float least)
{
    return on->data != NULL && *(const float *)on->data < least;
}

/* checksum */

Status checksum_check(const Checksum *a)
{
    size_t bytes = dtype_bytes(a->x.dtype);
    if (bytes != 1 && bytes != 2 && bytes != 4)
        return FAIL(ERR_SHAPE, "checksum: x has elements of %zu bytes, not of 1, 2 or 4", bytes);
    if (a->on.data != NULL) TRY(op_expect("checksum", "on", &a->on, 1, 1, DTYPE_F32));
    return op_expect("checksum", "sum", &a->sum, 1, 1, DTYPE_I32);
}

/* As rare as the steps that are computed twice. */
OpCost checksum_cost(const Checksum *a)
{
    return (OpCost){ .bytes = (double)tensor_bytes(&a->sum) };
}

static uint32_t bits_of(const char *x, size_t bytes, int64_t i)
{
    uint32_t bits = 0;
    memcpy(&bits, x + (size_t)i * bytes, bytes); /* little-endian, as on a GPU */
    return bits;
}

Status checksum_cpu(Exec *ex, const Checksum *a)
{
    const int64_t n = tensor_elems(&a->x);
    const size_t bytes = dtype_bytes(a->x.dtype);
    const char *x = a->x.data;
    uint32_t sum = 0, old = 0;
    if (is_off(&a->on, 1)) return OK;
#pragma omp parallel for num_threads(ex->threads) schedule(static) reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += checksum_mix(bits_of(x, bytes, i), i);
    memcpy(&old, a->sum.data, sizeof old);
    sum += old;
    memcpy(a->sum.data, &sum, sizeof sum);
    return OK;
}

OP_PORTS(checksum, IN(Checksum, x), ADD(Checksum, sum), IN_OPT(Checksum, on));

/* checksum_compare */

Status checksum_compare_check(const ChecksumCompare *a)
{
    int64_t n = tensor_elems(&a->a);
    TRY(op_expect("checksum_compare", "a", &a->a, n, 1, DTYPE_I32));
    TRY(op_expect("checksum_compare", "b", &a->b, n, 1, DTYPE_I32));
    TRY(op_expect("checksum_compare", "on", &a->on, 1, 1, DTYPE_F32));
    return op_expect("checksum_compare", "differs", &a->differs, 1, 1, DTYPE_F32);
}

OpCost checksum_compare_cost(const ChecksumCompare *a)
{
    return (OpCost){ .bytes = 2 * (double)tensor_bytes(&a->a) };
}

Status checksum_compare_cpu(Exec *ex, const ChecksumCompare *a)
{
    (void)ex;
    if (is_off(&a->on, 2)) return OK;
    if (memcmp(a->a.data, a->b.data, tensor_bytes(&a->a)) != 0) *(float *)a->differs.data = 1;
    return OK;
}

OP_PORTS(checksum_compare, IN(ChecksumCompare, a), IN(ChecksumCompare, b), IN(ChecksumCompare, on),
         ADD(ChecksumCompare, differs));
