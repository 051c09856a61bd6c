/* alert: a figure that leaves its band, said once when it leaves. The band is the mean of the last steps and
 * some standard deviations more; weights of steps fall by 1 % a step, so a lasting shift becomes the mean. The spike
 * guard takes its mean of norms from a band, too (update.h). */
#ifndef ENGINE_TRAIN_ALERT_H
#define ENGINE_TRAIN_ALERT_H

#include <stdbool.h>
#include <stdint.h>

typedef struct Band {
    double mean, variance;
    int64_t steps;
    bool out; /* the last value was outside */
} Band;

enum { BAND_FIRST = 20, BAND_STEPS = 100 }; /* the mean of fewer says little; about so many count */

/* Where the band ends, `width` standard deviations above the mean; infinite in the first BAND_FIRST steps. */
double band_end(const Band *b, double width);
/* Is the value the first above `end`, or not finite? */
bool band_leaves(Band *b, double value, double end);
void band_add(Band *b, double value); /* values that are not finite are left out */

#endif
