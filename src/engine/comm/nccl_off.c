/* nccl_off: a build without CUDA. Linked instead of nccl.c; making a GPU group fails and says how to
 * build. */
#include "engine/comm/comm.h"

Status comm_nccl(Comm *host, void *stream, int blocks, Arena *a, Comm **out)
{
    (void)host;
    (void)stream;
    (void)blocks;
    (void)a;
    (void)out;
    return FAIL(ERR_UNSUPPORTED, "this build has no GPU ranks: build with CUDA=1 or HIP=1");
}
