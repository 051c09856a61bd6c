/* ramp: reads train.batch_ramp, and counts sequences by step. */
#include "engine/config/ramp.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Parses "STEP: SEQUENCES". */
static bool read_part(const char *text, RampPart *out)
{
    char *end = NULL, *rest = NULL;
    out->last = strtoll(text, &end, 10);
    if (end == text || *end != ':') return false;
    out->sequences = strtoll(end + 1, &rest, 10);
    return rest != end + 1 && *rest == '\0' && out->last >= 1 && out->last <= (int64_t)1e15 &&
           out->sequences >= 1;
}

Status ramp_read(const Config *c, BatchRamp *out)
{
    BatchRamp r = { 0 };
    for (int i = 0; i < c->train_batch_ramp.n; i++) {
        RampPart *now = &r.at[r.n++], before = i > 0 ? r.at[i - 1] : (RampPart){ 0 };
        if (!read_part(c->train_batch_ramp.at[i], now))
            return FAIL(ERR_ARG,
                        "train.batch_ramp[%d] is \"%.80s\", must be \"STEP: SEQUENCES\", both at "
                        "least 1",
                        i, c->train_batch_ramp.at[i]);
        if (now->last <= before.last)
            return FAIL(ERR_ARG,
                        "train.batch_ramp[%d] ends at step %" PRId64 ", the one before at %" PRId64
                        ": steps must rise",
                        i, now->last, before.last);
        if (now->sequences <= before.sequences || now->sequences >= c->train_batch)
            return FAIL(ERR_ARG,
                        "train.batch_ramp[%d] has %" PRId64 " sequences, must be above %" PRId64
                        ", which come before, and below train.batch %" PRId64 ", which comes last",
                        i, now->sequences, before.sequences, c->train_batch);
    }
    r.at[r.n++] = (RampPart){ INT64_MAX, c->train_batch };
    *out = r;
    return OK;
}

BatchRamp ramp_of(const Config *c)
{
    BatchRamp r = { .n = 1, .at = { { INT64_MAX, c->train_batch } } };
    if (ramp_read(c, &r) != OK) status_clear();
    return r;
}

int64_t ramp_batch(const BatchRamp *r, int64_t step)
{
    int i = 0;
    while (step > r->at[i].last) i++;
    return r->at[i].sequences;
}

uint64_t ramp_sequences(const BatchRamp *r, int64_t steps)
{
    uint64_t sum = 0;
    for (int64_t i = 0, done = 0; done < steps; done = r->at[i++].last) {
        int64_t end = r->at[i].last < steps ? r->at[i].last : steps;
        sum += (uint64_t)(end - done) * (uint64_t)r->at[i].sequences;
    }
    return sum;
}

int64_t ramp_steps(const BatchRamp *r, uint64_t sequences)
{
    int64_t done = 0;
    for (int i = 0;; done = r->at[i++].last) {
        uint64_t each = (uint64_t)r->at[i].sequences, steps = sequences / each;
        if (steps < (uint64_t)(r->at[i].last - done)) return done + (int64_t)steps;
        sequences -= (uint64_t)(r->at[i].last - done) * each;
    }
}

/* Names the nearest multiple of ranks * micro, or the two nearest. */
static Status refuse(const Config *c, int part, int64_t size, int64_t ranks, int64_t micro)
{
    int64_t unit = ranks * micro, less = size / unit * unit, more = less + unit;
    int64_t below = size - less, above = more - size;
    char would[64], name[48] = "train.batch", over[64] = "into passes of ";
    if (part < c->train_batch_ramp.n)
        (void)snprintf(name, sizeof name, "train.batch_ramp[%d], sequences", part);
    if (ranks > 1)
        (void)snprintf(over, sizeof over, "over %" PRId64 " data-parallel ranks with ", ranks);
    if (less > 0 && below == above)
        (void)snprintf(would, sizeof would, "%" PRId64 " or %" PRId64, less, more);
    else
        (void)snprintf(would, sizeof would, "%" PRId64, less > 0 && below < above ? less : more);
    return FAIL(ERR_ARG, "%s %" PRId64 " does not divide %strain.micro_batch %" PRId64 ": %s would",
                name, size, over, micro, would);
}

Status ramp_divides(const Config *c, int64_t ranks, int64_t micro)
{
    const BatchRamp r = ramp_of(c);
    for (int i = r.n - 1; i >= 0; i--) {
        int64_t size = r.at[i].sequences;
        if (size % (ranks * micro) != 0) return refuse(c, i, size, ranks, micro);
    }
    return OK;
}

/* The greatest common divisor, by Euclid. */
int64_t ramp_unit(const Config *c)
{
    const BatchRamp r = ramp_of(c);
    int64_t unit = c->train_batch;
    for (int i = 0; i < r.n; i++) {
        for (int64_t b = r.at[i].sequences, rest; b != 0; b = rest) rest = unit % b, unit = b;
    }
    return unit;
}
