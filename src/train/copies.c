/* copies: bucket by bucket, from the part of the main weights that this rank has. */
#include "train/copies.h"

#include "op/elementwise.h"
#include "train/engine_memory.h"
#include "train/shards.h"

static Status make(Engine *e, const ParamBucket *k)
{
    const ParamTable *t = &e->params;
    bool part = t->sharded[BUF_MAIN];
    Tensor main =
        part ? bucket_own(t, &e->memory, k, BUF_MAIN) : bucket_whole(t, &e->memory, k, BUF_MAIN);
    Tensor copy = part ? bucket_own(t, &e->memory, k, BUF_WEIGHT)
                       : bucket_whole(t, &e->memory, k, BUF_WEIGHT);
    return tensor_elems(&main) == 0 ? OK : cast(&e->ex, (Cast){ main, copy });
}

Status copies_refresh(Engine *e)
{
    for (int i = 0; i < e->params.n_buckets && e->spec.weights.n > 0; i++) {
        TRY(make(e, &e->params.bucket[i]));
    }
    TRY(shards_gather_all(e));
    return engine_wait(&e->arenas);
}
