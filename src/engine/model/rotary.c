/* rotary: frequencies by scaling rule, and the tables made from them, in double (formulas in
 * rotary.h). The config says which rule; nothing here reads weights. */
#include "engine/model/rotary.h"

#include <math.h>

RotarySpec rotary_of(const Config *c)
{
    return (RotarySpec){
        .scaling = c->rope_scaling,
        .dim = config_rotated(c),
        .theta = c->attention_rope_theta,
        .factor = c->rope_factor,
        .original = (double)c->rope_original,
        .beta_fast = c->rope_beta_fast,
        .beta_slow = c->rope_beta_slow,
        .mscale = c->rope_mscale,
        .mscale_all_dim = c->rope_mscale_all_dim,
        .low_freq = c->rope_low_freq,
        .high_freq = c->rope_high_freq,
        .truncate = c->rope_truncate,
    };
}

static double clamp(double x, double least, double most) { return fmin(fmax(x, least), most); }

/* How often a pair of this frequency turns in `original` positions. */
static double turns_of(const RotarySpec *r, double frequency)
{
    return r->original * frequency / (2 * acos(-1));
}

/* The pair, as a real number, that turns `times` times in `original` positions. */
static double pair_of(const RotarySpec *r, double times)
{
    return (double)r->dim / 2 * log(turns_of(r, 1) / times) / log(r->theta);
}

/* The upper bound may lie past the last pair: the published code limits it to d - 1, not d / 2 - 1. */
static double yarn_keep(const RotarySpec *r, int64_t pair)
{
    double low = pair_of(r, r->beta_fast), high = pair_of(r, r->beta_slow);
    low = fmax(r->truncate ? floor(low) : low, 0);
    high = fmin(r->truncate ? ceil(high) : high, (double)r->dim - 1);
    /* As in the published code, where it avoids a division by 0. */
    if (low == high) high += 0.001;
    return 1 - clamp(((double)pair - low) / (high - low), 0, 1);
}

/* keep_i of rotary.h, from 0 to 1: the share of its own frequency that a pair keeps. */
static double keep_of(const RotarySpec *r, int64_t pair, double frequency)
{
    switch (r->scaling) {
    case SCALING_LINEAR: return 0;
    case SCALING_YARN: return yarn_keep(r, pair);
    case SCALING_LLAMA3:
        return clamp((turns_of(r, frequency) - r->low_freq) / (r->high_freq - r->low_freq), 0, 1);
    default: return 1;
    }
}

static double frequency_of(const RotarySpec *r, int64_t pair)
{
    double f = pow(r->theta, -2.0 * (double)pair / (double)r->dim), keep = keep_of(r, pair, f);
    return keep == 1 ? f : f * (keep + (1 - keep) / r->factor);
}

/* m(s) of rotary.h, which grows with the logarithm of the stretch. */
static double sharpening(const RotarySpec *r, double s)
{
    return r->scaling == SCALING_YARN ? 1 + 0.1 * s * log(r->factor) : 1;
}

double rotary_score_factor(const RotarySpec *r)
{
    double m = sharpening(r, r->mscale_all_dim);
    return m * m;
}

/* The quotient is yarn's factor on rotated columns; scores get rotary_score_factor. All of it is in
 * double, because positions times frequencies lose digits in f32. */
void rotary_table(const RotarySpec *r, int64_t positions, float *cos_out, float *sin_out)
{
    int64_t half = r->dim / 2;
    double m = sharpening(r, r->mscale) / sharpening(r, r->mscale_all_dim);
    for (int64_t i = 0; i < half; i++) {
        double frequency = frequency_of(r, i);
        for (int64_t p = 0; p < positions; p++) {
            cos_out[p * half + i] = (float)(m * cos((double)p * frequency));
            sin_out[p * half + i] = (float)(m * sin((double)p * frequency));
        }
    }
}
