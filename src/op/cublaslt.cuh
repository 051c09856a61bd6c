/*
 * cublaslt: cuBLASLt's functions, found when the program runs: so it starts where the library is
 * missing, and says which file it wanted and where it looked.
 *
 * Only what blas.cu calls is here. Each rank holds a table of its own, in its struct Blas; the library
 * behind them is loaded once a process.
 */
#ifndef OP_CUBLASLT_CUH
#define OP_CUBLASLT_CUH

#include "op/kernel.cuh"

#include <cublasLt.h>

#define CUBLASLT_CALLS(CALL)                                                                       \
    CALL(Create)                                                                                   \
    CALL(Destroy)                                                                                  \
    CALL(GetStatusString)                                                                          \
    CALL(GetVersion)                                                                               \
    CALL(Matmul)                                                                                   \
    CALL(MatmulDescInit_internal)                                                                  \
    CALL(MatmulDescSetAttribute)                                                                   \
    CALL(MatrixLayoutInit_internal)                                                                \
    CALL(MatmulPreferenceInit_internal)                                                            \
    CALL(MatmulPreferenceSetAttribute)                                                             \
    CALL(MatmulAlgoConfigGetAttribute)                                                             \
    CALL(MatmulAlgoGetHeuristic)                                                                   \
    CALL(MatmulAlgoCheck)

struct CublasLt {
#define CALL(name) decltype(&cublasLt##name) name;
    CUBLASLT_CALLS(CALL)
#undef CALL
};

/* ERR_UNSUPPORTED: which file, and where it was looked for. */
Status cublaslt_open(CublasLt *lt);

#endif
