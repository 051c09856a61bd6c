/* numbers: looks for the first number that may not stand where it does. */
#include "train/numbers.h"

#include "train/manifest.h"

#include <float.h>
#include <inttypes.h>
#include <stdio.h>

/* NaN fails both comparisons. */
static bool good(float x, float least) { return x >= least && x <= FLT_MAX; }

/* Block by block, without a branch inside, so that the compiler can look at many at once. */
int64_t numbers_bad(ParamBuffer b, const float *x, int64_t n)
{
    enum { BLOCK = 4096 };
    const float least = b == BUF_MOMENT2 ? 0 : -FLT_MAX;
    for (int64_t first = 0; first < n; first += BLOCK) {
        int64_t end = n - first < BLOCK ? n : first + BLOCK;
        int bad = 0;
        for (int64_t i = first; i < end; i++) bad |= !good(x[i], least);
        for (int64_t i = first; bad && i < end; i++) {
            if (!good(x[i], least)) return i;
        }
    }
    return -1;
}

Status numbers_check(const char *who, const char *param, ParamBuffer b, const Piece *in,
                     int64_t first, const float *x, int64_t n)
{
    int64_t i = numbers_bad(b, x, n);
    if (i < 0) return OK;
    return FAIL(ERR_NUMERIC, "%s %s (%s) with %g at element %" PRId64, who, param,
                manifest_buffer_name(b), (double)x[i], piece_element(in, first + i));
}

const char *numbers_writer(char out[NUMBERS_WHO_BYTES], ParamBuffer b, int64_t step)
{
    (void)snprintf(out, NUMBERS_WHO_BYTES, "%s, in step %" PRId64 " or before, left",
                   b == BUF_STATE ? "moe_bias_update" : "adamw", step);
    return out;
}
