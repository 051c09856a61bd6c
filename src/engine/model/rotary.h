/*
 * rotary: the tables of cosines and sines for rope (kernels/attention/rope.h, which rotates), and the factor on
 * attention's scores that stretched frequencies bring.
 *
 * Pair i of d / 2 turns by p f_i at position p, with f_i = theta^(-2i/d). For more positions than a
 * model was trained on, frequencies are divided by `factor`. keep_i, from 0 to 1, says how much of
 * its own frequency a pair keeps:
 *     f_i' = f_i (keep_i + (1 - keep_i) / factor)
 * none    keep_i = 1
 * linear  keep_i = 0 (Chen et al., arXiv:2306.15595)
 * yarn    falls from 1 to 0 over the pairs between the one that turns beta_fast times in `original`
 *         positions and the one that turns beta_slow times (Peng et al., arXiv:2309.00071)
 * llama3  rises from 0 to 1 with the turns in `original` positions, from low_freq to high_freq
 *         (Llama 3.1, arXiv:2407.21783)
 *
 * yarn also sharpens attention, by m(s) = 1 + 0.1 s ln(factor): rotated columns are multiplied by
 * m(mscale) / m(mscale_all_dim), scores by m(mscale_all_dim)^2. DeepSeek's models set both to 1, so
 * that all columns count alike; with (1, 0) rotated ones alone are sharpened (gpt-oss).
 */
#ifndef ENGINE_MODEL_ROTARY_H
#define ENGINE_MODEL_ROTARY_H

#include "engine/config/config.h"

typedef struct RotarySpec {
    int scaling; /* SCALING_NONE ... */
    int64_t dim; /* d: columns of a head that are rotated */
    double theta;
    double factor, original, beta_fast, beta_slow, mscale, mscale_all_dim, low_freq, high_freq;
    bool truncate; /* yarn: whole pairs are the bounds */
} RotarySpec;

RotarySpec rotary_of(const Config *c);

/* (positions, dim / 2) each. */
void rotary_table(const RotarySpec *r, int64_t positions, float *cos_out, float *sin_out);

/* The factor on attention's scores. */
double rotary_score_factor(const RotarySpec *r);

#endif
