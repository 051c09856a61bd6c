/* copies: casts main weights to copies, bucket by bucket. */
#include "engine/step/copies.h"

#include "engine/model/recipe.h"
#include "engine/step/engine_memory.h"
#include "engine/step/shards.h"
#include "kernels/norm/elementwise.h"

/* Casts this rank's shard if main weights are sharded, else the whole bucket. Buckets without a place in
 * BUF_WEIGHT are quantised from the main weights, or cast when they are gathered. */
static Status copy_bucket(EngineParams *w, const ParamBucket *k)
{
    const ParamTable *t = &w->table;
    bool part = t->sharded[BUF_MAIN];
    if (k->weight < 0) return OK;
    Tensor main =
        part ? bucket_own(t, &w->memory, k, BUF_MAIN) : bucket_whole(t, &w->memory, k, BUF_MAIN);
    Tensor copy = part ? bucket_own(t, &w->memory, k, BUF_WEIGHT)
                       : bucket_whole(t, &w->memory, k, BUF_WEIGHT);
    return tensor_elems(&main) == 0 ? OK : cast(w->ex, (Cast){ main, copy });
}

/* Weights that are gathered for each use (ZeRO-3) have no lasting 8-bit copies. The head is the last layer: others
 * that read its matrix share its copies. */
Status copies_alloc(EngineParams *w)
{
    const LayerWeights *head = &w->layer[w->spec->n_layers - 1];
    if (w->table.sharded[BUF_WEIGHT]) return OK;
    for (int i = w->spec->n_layers - 1; i >= 0; i--) {
        for (int t = 0; t < 2 && w->layer[i].w[ROLE_HEAD].data.data != NULL; t++)
            w->layer[i].scaled[t][ROLE_HEAD] = head->scaled[t][ROLE_HEAD];
        TRY(recipe_alloc(w->spec, &w->spec->layers[i], &w->arenas->at[ENGINE_RUN], &w->layer[i]));
    }
    return OK;
}

Status copies_quantise(EngineParams *w, bool all)
{
    for (int i = 0; i < w->table.n_buckets; i++) {
        if (!bucket_staged(&w->table.bucket[i])) TRY(shards_quantise(w, i, all));
    }
    w->ex->layer = -1;
    w->copies_old = false;
    return OK;
}

/* In f32 products read the main weights, so there are no copies. */
Status copies_refresh(EngineParams *w)
{
    for (int i = 0; i < w->table.n_buckets && w->spec->weights.n > 0; i++) {
        TRY(copy_bucket(w, &w->table.bucket[i]));
    }
    TRY(shards_gather_all(w));
    TRY(copies_quantise(w, true));
    return engine_wait(w->arenas);
}
