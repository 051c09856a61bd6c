/* pack: puts the documents of a shard into packs of P tokens with little padding and few cuts: best fit,
 * decreasing (Ding et al., "Fewer truncations improve language modeling", arXiv:2404.10830).
 *
 * A document longer than P gives as many full packs as it can. What is left of it, and every shorter
 * document, is a piece. From the longest piece to the shortest, each goes to the pack where it leaves the
 * least room. A pack is written where its first document stood. The first token of a piece is not learned,
 * since nothing of its document comes before it, and neither is the padding.
 *
 * Memory: about 40 bytes a document. */
#ifndef PACK_PACK_H
#define PACK_PACK_H

#include "corpus/shard/shard.h"

enum { PACK_TOKENS_MAX = 1 << 20 };

typedef struct PackStats {
    int64_t packs, padding, cut; /* packs; tokens that fill them; documents that are in several */
} PackStats;

/* Writes the documents of `from` to w, which shard_create has opened. P is the writer's pack, at most
 * PACK_TOKENS_MAX. `fill`: the id of padding. Everything in `a` is released. */
Status pack_best_fit(const Shard *from, ShardWriter *w, int32_t fill, Arena *a, PackStats *out);

#endif
