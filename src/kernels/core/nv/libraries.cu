/* libraries: the table of kernels/core/libraries.h for NVIDIA: cuBLASLt for matrix products. */
#include "kernels/core/nv/libraries.cuh"

const GpuVendor op_vendor = VENDOR_NVIDIA;
const OpLibrary op_library[LIBRARY_COUNT] = {
    {
        .name = "cuBLASLt",
        .open = blas_open,
        .close = blas_close,
        .tuner = blas_tuner,
        .lacks = NULL,
    },
};
