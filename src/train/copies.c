/* copies: casts main weights to copies, bucket by bucket. */
#include "train/copies.h"

#include "op/elementwise.h"
#include "train/engine_memory.h"
#include "train/shards.h"

/* Casts this rank's shard if main weights are sharded, else the whole bucket. */
static Status copy_bucket(EngineParams *w, const ParamBucket *k)
{
    const ParamTable *t = &w->table;
    bool part = t->sharded[BUF_MAIN];
    Tensor main =
        part ? bucket_own(t, &w->memory, k, BUF_MAIN) : bucket_whole(t, &w->memory, k, BUF_MAIN);
    Tensor copy = part ? bucket_own(t, &w->memory, k, BUF_WEIGHT)
                       : bucket_whole(t, &w->memory, k, BUF_WEIGHT);
    return tensor_elems(&main) == 0 ? OK : cast(w->ex, (Cast){ main, copy });
}

/* In f32 products read the main weights, so there are no copies. */
Status copies_refresh(EngineParams *w)
{
    for (int i = 0; i < w->table.n_buckets && w->spec->weights.n > 0; i++) {
        TRY(copy_bucket(w, &w->table.bucket[i]));
    }
    TRY(shards_gather_all(w));
    return engine_wait(w->arenas);
}
