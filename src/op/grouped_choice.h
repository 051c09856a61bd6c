/*
 * grouped_choice: which tile shape each of the experts' products takes on a Hopper GPU
 * (grouped_hopper.cuh).
 *
 * The fastest depends on the product, its sizes, and whether an index names its rows. So it is timed
 * in the rehearsal and kept in the table of dense products (choices.h), from which later starts, all
 * ranks and resumed runs take it. All shapes add a sum's terms in one order, so no bit depends on the
 * choice. A product whose shape cannot be timed, or that has a shape on record that this program does
 * not know, takes its first.
 *
 * Such an entry has the kind CHOICE_TIMED and in its key
 *
 *     m rows.bound, n and k the columns of operands B and A, lda the number of experts, ldb = ldc = 1,
 *     kinds = 2^40 + 2 GroupedProduct + indexed
 *
 * which no dense product has (its kinds end at bit 39). algo[0] is the GroupedShape, the others 0.
 */
#ifndef OP_GROUPED_CHOICE_H
#define OP_GROUPED_CHOICE_H

#include "op/choices.h"

/* These numbers stand in files. */
typedef enum GroupedShape {
    GROUPED_COOPERATIVE = 1,
    GROUPED_TALL,
    GROUPED_IN_TURN,
    GROUPED_SHAPES_MAX = GROUPED_IN_TURN
} GroupedShape;

typedef enum GroupedProduct {
    GROUPED_UP_FWD = 1,
    GROUPED_DOWN_FWD,
    GROUPED_DOWN_BWD_INPUT,
    GROUPED_DOWN_BWD_WEIGHT,
    GROUPED_UP_BWD_INPUT,
    GROUPED_UP_BWD_WEIGHT
} GroupedProduct;

/* What the choice depends on; all sizes at least 1. */
typedef struct GroupedSizes {
    GroupedProduct product;
    bool indexed;                          /* an index names an operand's rows */
    int64_t rows, experts, a_cols, b_cols; /* rows: their bound */
} GroupedSizes;

#ifdef __cplusplus
extern "C" {
#endif

/* The shapes that a product may take, and how they are timed: ms[i] of shape[i]. */
typedef struct GroupedCandidates {
    const GroupedShape *shape;
    int n;
    Status (*time)(void *of, float *ms); /* NULL: not now */
    void *of;
} GroupedCandidates;

ChoiceKey grouped_key(const GroupedSizes *s);

/* *out: the place of the product's shape among the candidates, timed and put on record if it was
 * not and may be. Another than the first has to be GROUPED_GAIN times as fast. */
Status grouped_choose(Choices *c, const GroupedSizes *s, const GroupedCandidates *among, int *out);

#ifdef __cplusplus
}
#endif

static const float GROUPED_GAIN = 1.015f;

#endif
