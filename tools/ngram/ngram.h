/* ngram: byte n-gram models with Witten-Bell smoothing (Witten & Bell 1991):
 * P(c | h) = (n(hc) + t(h) * P(c | h')) / (n(h) + t(h)), h' = h without its first byte, t(h) = how
 * many different bytes followed h; the shortest context backs off to 1/256. */
#ifndef NGRAM_NGRAM_H
#define NGRAM_NGRAM_H

#include "engine/base/arena.h"

#include <stdint.h>

typedef struct Ngram Ngram;

Status ngram_make(Arena *a, int order, Ngram **out);           /* order 1..8 */
Status ngram_add(Ngram *g, const uint8_t *text, size_t bytes); /* one document */
/* Sum of -log2 P over a document's bytes. */
double ngram_bits(const Ngram *g, const uint8_t *text, size_t bytes);

#endif
