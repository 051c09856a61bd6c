/* libraries: the table of kernels/core/libraries.h for AMD: hipBLASLt for matrix products. */
#include "kernels-amd/libraries.cuh"

extern "C" {
extern const GpuVendor op_vendor = VENDOR_AMD;
extern const OpLibrary op_library[LIBRARY_COUNT] = {
    {
        .name = "hipBLASLt",
        .open = hipblaslt_open,
        .close = hipblaslt_close,
        .tuner = hipblaslt_tuner,
        .lacks = hipblaslt_lacks,
    },
};
}
