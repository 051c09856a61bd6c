/* shapes: how fast single ops are without a model, on the shapes of well-known models. */
#ifndef SHAPES_BENCH_H
#define SHAPES_BENCH_H

#include "engine/config/config.h"

typedef struct BenchShapes {
    int group;        /* which of bench_groups */
    const char *seed; /* draw shapes from this seed; NULL: take those of the table */
    const char *list; /* a file with a JSON object a line: op, shape (its name), sizes by letter,
                       * how often and how long a trace has it (count, traced_s); NULL: none */
    int64_t shrink;   /* divides sizes */
    bool json, no_check;
} BenchShapes;

extern const char bench_groups[]; /* words separated by | */

/* Times single ops without a model, on the shapes of shapes.def or on drawn ones: one line, or one
 * JSON object, for each row. */
Status bench_shapes(const Config *c, const BenchShapes *options, Text *out);

#endif
