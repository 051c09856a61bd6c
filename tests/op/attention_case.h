/* attention_case: the pieces of a sequence that context ranks have. */
#ifndef TESTS_OP_ATTENTION_CASE_H
#define TESTS_OP_ATTENTION_CASE_H

#include "op/attention.h"

/* Two pieces each of a sequence that `ranks` share, as the ranks of q and k have them. */
static inline AttentionPieces pieces_of(int64_t length, int64_t ranks, int64_t q, int64_t k)
{
    int64_t last = 2 * ranks - 1;
    return (AttentionPieces){ length,
                              { q * length, (last - q) * length },
                              { k * length, (last - k) * length } };
}

/* Where row i of two pieces that begin at `first` stands in the sequence. */
static inline int64_t piece_position(const AttentionPieces *p, const int64_t first[2], int64_t i)
{
    return first[i / p->length] + i % p->length;
}

#endif
