/*
 * common: Megatron-Core's common.pt, an archive of torch.save: what all ranks of a training share.
 *
 *     iteration                                    the step
 *     optimizer.[N.][optimizer.]param_groups[].step    the updates of a group of parameters
 *     optimizer.[N.][optimizer.]state.common_step      the same, without the distributed optimizer
 *
 * It also has the arguments of the training, whose classes may be any of a list of packages. They are names here: as
 * pickle.h says, nothing is called.
 */
#ifndef DCP_COMMON_H
#define DCP_COMMON_H

#include "engine/base/arena.h"

#define DCP_COMMON "common.pt"

typedef struct DcpCommon {
    bool has_step;
    double step;
    double updates; /* -1: none is there, -2: groups have several */
} DcpCommon;

/* A file that is missing has neither. ERR_FORMAT: it is damaged, or names what no such file needs. `a` is only used
 * inside. */
Status dcp_common_read(const char *folder, Arena *a, DcpCommon *out);

#endif
