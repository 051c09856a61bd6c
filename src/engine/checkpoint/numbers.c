/* numbers: searches for the first value that a buffer may not hold. */
#include "engine/checkpoint/numbers.h"

#include <float.h>
#include <inttypes.h>
#include <stdio.h>

/* NaN fails both comparisons. */
static bool is_good(float x, float least) { return x >= least && x <= FLT_MAX; }

/* n numbers from `first` on as f32: in place, or widened into `room`. */
static const float *as_f32(Numbers x, int64_t first, int64_t n, float *room)
{
    const char *at = (const char *)x.at + (size_t)first * dtype_bytes(x.type);
    if (x.type == DTYPE_F32) return (const float *)(const void *)at;
    dtype_to_f32(room, at, x.type, n);
    return room;
}

/* Checks block by block without a branch inside, so that the compiler vectorizes the loop. */
int64_t numbers_bad(float least, Numbers x)
{
    enum { BLOCK = 4096 };
    float room[BLOCK];
    for (int64_t first = 0; first < x.n; first += BLOCK) {
        int64_t n = x.n - first < BLOCK ? x.n - first : BLOCK;
        const float *v = as_f32(x, first, n, room);
        int bad = 0;
        for (int64_t i = 0; i < n; i++) bad |= !is_good(v[i], least);
        for (int64_t i = 0; bad && i < n; i++) {
            if (!is_good(v[i], least)) return first + i;
        }
    }
    return -1;
}

Status numbers_check(const char *who, const char *param, BufferDesc buffer, const Piece *in,
                     int64_t first, Numbers x)
{
    int64_t i = numbers_bad(buffer.least, x);
    float value = 0;
    if (i < 0) return OK;
    return FAIL(ERR_NUMERIC, "%s %s (%s) with %g at element %" PRId64, who, param, buffer.name,
                (double)*as_f32(x, i, 1, &value), piece_element(in, first + i));
}

const char *numbers_writer(char out[NUMBERS_WHO_BYTES], const OptimizerDesc *rule, ParamBuffer b,
                           int64_t step)
{
    (void)snprintf(out, NUMBERS_WHO_BYTES, "%s, in step %" PRId64 " or before, left",
                   b == BUF_STATE ? "moe_bias_update"
                   : rule == NULL ? "a fault of memory"
                                  : rule->name,
                   step);
    return out;
}
