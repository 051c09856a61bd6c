/* alert: running mean and variance. With d = x - mean and weight w
 *   mean += w d,   variance = (1 - w) (variance + w d^2)
 * and w = 1 / n over the first n steps, so that they count alike. */
#include "engine/train/alert.h"

#include <math.h>

double band_end(const Band *b, double width)
{
    return b->steps < BAND_FIRST ? HUGE_VAL : b->mean + width * sqrt(b->variance);
}

bool band_leaves(Band *b, double value, double end)
{
    bool was = b->out;
    b->out = !isfinite(value) || value > end;
    return b->out && !was;
}

void band_add(Band *b, double value)
{
    if (!isfinite(value)) return;
    double d = value - b->mean, n = fmin((double)++b->steps, BAND_STEPS), w = 1 / n;
    b->mean += d / n;
    b->variance = (1 - w) * (b->variance + w * d * d);
}
