/* libraries: NVIDIA's: cuDNN for attention, cuBLASLt for matrix products. */
#include "op/nv/libraries.cuh"

const OpLibrary op_library[LIBRARY_COUNT] = {
    {
        .name = "cuDNN",
        .open = attention_cudnn_open,
        .close = attention_cudnn_close,
        .choices = NULL,
        .tune = NULL,
        .why = attention_cudnn_why,
    },
    {
        .name = "cuBLASLt",
        .open = blas_open,
        .close = blas_close,
        .choices = blas_choices,
        .tune = blas_tune,
        .why = NULL,
    },
};
