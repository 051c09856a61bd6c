/* param_view: a parameter as a tensor of its shape, where its buffer is not sharded. */
#ifndef TESTS_HARNESS_PARAM_VIEW_H
#define TESTS_HARNESS_PARAM_VIEW_H

#include "engine/model/params.h"

/* first[b] is a place in the flat space, so this is right only for buffers that hold all of it. */
static inline Tensor param_view(const Param *p, const ParamMemory *m, ParamBuffer b)
{
    Tensor flat = tensor_rows(&m->buffer[b], p->first[b], param_elems(p));
    Tensor view = { flat.data, flat.dtype, p->rank, { 0 } };
    for (int i = 0; i < p->rank; i++) view.dim[i] = p->dim[i];
    return view;
}

#endif
