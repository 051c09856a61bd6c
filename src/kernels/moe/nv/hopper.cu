/* hopper: the host's side of kernels for sm_90a (hopper.cuh): grids and tensor maps. */
#include "kernels/moe/nv/hopper.cuh"

/* Persistent blocks: one for each multiprocessor, which takes tile after tile, or fewer if there are fewer tiles. */
extern "C" unsigned hopper_blocks(const struct Exec *, int64_t tiles)
{
    int64_t most = gpu_limit(GPU_PROCESSORS);
    return (unsigned)(tiles < most ? tiles : most);
}

/* Finds the driver's function that makes tensor maps; the program is not linked with the driver. */
static Status encoder_find(const char *op, decltype(&cuTensorMapEncodeTiled) *out)
{
    cudaDriverEntryPointQueryResult found;
    void *entry = NULL;
    TRY(gpu_status(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000,
                                                    cudaEnableDefault, &found),
                   op));
    if (found != cudaDriverEntryPointSuccess || entry == NULL)
        return FAIL(ERR_DEVICE, "%s: the driver has no cuTensorMapEncodeTiled: update it", op);
    *out = (decltype(&cuTensorMapEncodeTiled))entry;
    return OK;
}

/* A map tells the TMA unit the shape of a matrix, so that one thread copies a whole box. Boxes are
 * 128 bytes wide, the width of the swizzle. */
Status tensor_map(const char *op, const grouped::TensorShape &t, int box_rows, bool pairs,
                  CUtensorMap *out)
{
    enum { PAIR = 8, RANK = 5 };
    decltype(&cuTensorMapEncodeTiled) encode = NULL;
    TRY(encoder_find(op, &encode));
    CUtensorMapDataType type = t.dtype == DTYPE_F32    ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
                               : t.dtype == DTYPE_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                       : CU_TENSOR_MAP_DATA_TYPE_UINT8;
    cuuint64_t each = dtype_bytes(t.dtype);
    cuuint64_t row = (cuuint64_t)t.cols * each, matrix = row * (cuuint64_t)t.rows;
    cuuint64_t cols = (cuuint64_t)t.cols, rows = (cuuint64_t)t.rows, deep = (cuuint64_t)t.deep;
    cuuint64_t flat[RANK] = { cols, rows, deep };
    /* `pairs`: gate rows and up rows of a weight lie rows / 2 apart. Eight rows of each alternate
     * in shared memory, so that one thread gets both. */
    cuuint64_t paired[RANK] = { cols, PAIR, 2, rows / 2 / PAIR, deep };
    cuuint64_t flat_bytes[RANK - 1] = { row, matrix };
    cuuint64_t paired_bytes[RANK - 1] = { row, matrix / 2, row * PAIR, matrix };
    cuuint32_t across = hopper::ROW_BYTES / (cuuint32_t)each;
    cuuint32_t flat_box[RANK] = { across, (cuuint32_t)box_rows, 1 };
    cuuint32_t paired_box[RANK] = { across, PAIR, 2, (cuuint32_t)box_rows / 2 / PAIR, 1 };
    cuuint32_t every[RANK] = { 1, 1, 1, 1, 1 };
    CUresult r = encode(out, type, pairs ? 5 : 3, (void *)(uintptr_t)t.data, pairs ? paired : flat,
                        pairs ? paired_bytes : flat_bytes, pairs ? paired_box : flat_box, every,
                        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (r == CUDA_SUCCESS) return OK;
    return FAIL(ERR_DEVICE,
                "%s: the driver refuses a map of %lld x %lld x %lld elements (error %d)", op,
                (long long)t.deep, (long long)t.rows, (long long)t.cols, (int)r);
}

Status head_map(const char *op, const Tensor *t, int box_rows, CUtensorMap *out)
{
    enum { RANK = 4 };
    decltype(&cuTensorMapEncodeTiled) encode = NULL;
    TRY(encoder_find(op, &encode));
    cuuint64_t d = (cuuint64_t)t->dim[3], heads = (cuuint64_t)t->dim[2],
               rows = (cuuint64_t)t->dim[1];
    cuuint64_t dim[RANK] = { d, heads, rows, (cuuint64_t)t->dim[0] };
    cuuint64_t bytes[RANK - 1] = { 2 * d, 2 * d * heads, 2 * d * heads * rows };
    cuuint32_t box[RANK] = { hopper::BLOCK, 1, (cuuint32_t)box_rows, 1 },
               every[RANK] = { 1, 1, 1, 1 };
    CUresult r = encode(out, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, RANK, t->data, dim, bytes, box,
                        every, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (r == CUDA_SUCCESS) return OK;
    return FAIL(ERR_DEVICE,
                "%s: the driver refuses a map of %lld x %lld x %lld x %lld elements (error %d)", op,
                (long long)t->dim[0], (long long)t->dim[1], (long long)t->dim[2],
                (long long)t->dim[3], (int)r);
}
