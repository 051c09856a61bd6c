/* chunks: describes the layers of a chunk to its schedule, as rows of phases with lanes. It is the only
 * place where a schedule's view (engine/schedule/chunk.h) is made from layers (engine/model/layer.h). It runs nothing. */
#ifndef ENGINE_COUNT_CHUNKS_H
#define ENGINE_COUNT_CHUNKS_H

#include "engine/model/layer.h"
#include "engine/schedule/chunk.h"
#include "engine/schedule/layout.h"

/* The layers of a stage. A layer in the notation of layouts is a block here. */
static inline LayerRange chunk_layers(const ModelSpec *s, const LayoutStage *stage)
{
    return (LayerRange){ stage->embedding ? 0 : s->block_first[stage->first],
                         stage->loss ? s->n_layers : s->block_first[stage->first + stage->layers] };
}

/* The rows of a chunk of these layers, in `a`. A chunk without layers has one phase, which passes its input
 * on. Phases get a half of the gather buffer if ranks shard weights or gradients. */
Status chunk_build(const ModelSpec *s, LayerRange range, const ScheduleShards *shards, Arena *a,
                   Chunk *out);

/* How ranks share parameters, for the generator of programs. sums: replicas or a second stage may hold the
 * same layers. */
ScheduleShards chunk_shards(const ParamShards *s, bool sums);

#endif
