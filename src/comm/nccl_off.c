/* nccl: a build without CUDA. Groups are the host's: what only NCCL's need is done. */
#include "comm/comm.h"

#pragma GCC diagnostic ignored "-Wunused-parameter" /* which is what a stub is */
/* NOLINTBEGIN(misc-unused-parameters) */

Status comm_nccl(Comm *host, void *stream, Arena *a, Comm **out)
{
    return FAIL(ERR_UNSUPPORTED, "this build has no GPU ranks: build with CUDA=1");
}

Status comm_watch(Comm *c, double waited_s) { return OK; }
void comm_set_stream(Comm *c, void *stream) {}
Status comm_connect(Comm *c) { return OK; }
Status comm_batch_begin(Comm *c) { return OK; }
Status comm_batch_end(Comm *c) { return OK; }

/* NOLINTEND(misc-unused-parameters) */
