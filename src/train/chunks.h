/* chunks: describes the layers of a chunk to its schedule, as rows of phases with lanes. */
#ifndef TRAIN_CHUNKS_H
#define TRAIN_CHUNKS_H

#include "model/layer.h"
#include "schedule/chunk.h"
#include "schedule/layout.h"

/* The layers of a stage; a layer of the layout is a block. */
static inline LayerRange chunk_layers(const ModelSpec *s, const LayoutStage *stage)
{
    return (LayerRange){ stage->embedding ? 0 : s->block_first[stage->first],
                         stage->loss ? s->n_layers : s->block_first[stage->first + stage->layers] };
}

/* The rows of a chunk of these layers, in `a`. A chunk without layers has one phase, which hands its input
 * on. Phases have a half of the gather buffer if `shards` says that ranks share weights or gradients. */
Status chunk_build(const ModelSpec *s, LayerRange range, const ScheduleShards *shards, Arena *a,
                   Chunk *out);

#endif
