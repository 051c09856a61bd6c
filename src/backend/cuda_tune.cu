#include "op/blas.cuh"

extern "C" {
#include "backend/cuda.h"

struct Choices *cuda_choices(Exec *ex)
{
    return ex->cuda == NULL ? NULL : blas_choices(exec_blas(ex));
}

Status cuda_tune(Exec *ex, bool on) { return ex->cuda == NULL ? OK : blas_tune(exec_blas(ex), on); }
}
