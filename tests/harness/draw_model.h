/* draw_model: rows of a configuration set by drawn numbers. */
#ifndef HARNESS_DRAW_MODEL_H
#define HARNESS_DRAW_MODEL_H

#include "harness/test.h"

#include "engine/base/rng.h"
#include "engine/config/config.h"

#include <stdarg.h>
#include <stdio.h>

/* Numbers from a stream of the test's own, one after the other. */
typedef struct Draws {
    uint64_t seed, n;
    const char *stream;
} Draws;

static inline int draw_int(Draws *d, int low, int high)
{
    uint64_t range = (uint64_t)high - (uint64_t)low + 1;
    return low + (int)rng_below(d->seed, rng_stream(d->stream), d->n++, range);
}

/* config_override of "section.key=VALUE", printed; the text lives in `a`. */
__attribute__((format(printf, 3, 4))) static inline void set_row(Config *c, Arena *a,
                                                                 const char *format, ...)
{
    char text[160];
    va_list ap;
    va_start(ap, format);
    (void)vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    const char *kept = NULL;
    CHECK_OK(arena_text(a, text, strlen(text), &kept));
    CHECK_OK(config_override(c, a, kept));
}

#endif
