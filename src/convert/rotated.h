/* rotated: the order of rotated columns. One layout stores a pair of them as neighbours (2i, 2i + 1), the
 * other in halves (i, i + rope / 2). So the rows of matrices that make them differ in their order. */
#ifndef CONVERT_ROTATED_H
#define CONVERT_ROTATED_H

#include "engine/config/config.h"

/* In each group of `group` rows, `rope` rows from `first` on are rotated. */
typedef struct Rotated {
    int64_t group, first, rope;
} Rotated;

/* The rows of the parameter of this name that must change places, where another format has neighbours
 * (`their_pairs`) or halves. rope 0: none. */
Rotated rotated_rows(const Config *c, const char *name, bool their_pairs);

/* The row in the other format for our row r. our_pairs: attention.rope_interleaved. */
int64_t rotated_row(Rotated k, bool our_pairs, int64_t r);

#endif
