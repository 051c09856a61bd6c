/* mix: chooses the source of the n-th sequence, earliest deadline first; mix.h has the theory. */
#include "corpus/shard/mix.h"

#include <assert.h>

/* Steps of a share. Products k * total are about 2^52 at most, far from the limit of 64 bits. */
static const int64_t RESOLUTION = (int64_t)1 << 26;

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The slots in which a source's k-th sequence may come: release = floor(k / w), before deadline =
 * ceil((k + 1) / w), with w = rate / total. */
static void set_window(const Mix *m, struct MixTask *t)
{
    t->release = t->deadline = INT64_MAX;
    if (t->rate == 0) return;
    t->release = t->k * m->total / t->rate;
    t->deadline = ((t->k + 1) * m->total + t->rate - 1) / t->rate;
}

/* At the end of a period each source has exactly k = rate sequences, so all counts can start again
 * at 0. */
static void restart_period(Mix *m)
{
    m->slot = 0;
    for (int i = 0; i < m->n; i++) {
        m->task[i].k = 0;
        set_window(m, &m->task[i]);
    }
}

/* Rounds shares to multiples of 1 / RESOLUTION; the largest one absorbs the rounding error. */
static Status set_rates(Mix *m, const double *weight, double sum)
{
    int64_t left = RESOLUTION;
    int largest = 0;
    for (int i = 0; i < m->n; i++) {
        double share = weight[i] / sum;
        m->task[i].rate = (int64_t)(share * (double)RESOLUTION + 0.5);
        if (m->task[i].rate == 0 && weight[i] > 0)
            return FAIL(ERR_ARG, "source %d has share %.3g of the mix, the smallest kept is %.3g",
                        i, share, 1 / (double)RESOLUTION);
        left -= m->task[i].rate;
        if (weight[i] > weight[largest]) largest = i;
    }
    m->task[largest].rate += left;
    return OK;
}

Status mix_init(Mix *m, const double *weight, int n)
{
    double sum = 0;
    *m = (Mix){ .n = n, .total = RESOLUTION };
    if (n < 1 || n > MIX_MAX) return FAIL(ERR_ARG, "%d sources, 1 to %d are possible", n, MIX_MAX);
    for (int i = 0; i < n; i++) {
        if (!(weight[i] >= 0 && weight[i] < 1e300))
            return FAIL(ERR_ARG, "source %d has weight %g, must be at least 0", i, weight[i]);
        sum += weight[i];
    }
    if (sum == 0) return FAIL(ERR_ARG, "all %d sources have weight 0: give one a weight", n);
    TRY(set_rates(m, weight, sum));
    /* The smallest total gives the shortest period: 1:1 has two slots, not 2^26. */
    int64_t divisor = m->total;
    for (int i = 0; i < n; i++) divisor = common_divisor(divisor, m->task[i].rate);
    m->total /= divisor;
    for (int i = 0; i < n; i++) m->task[i].rate /= divisor;
    restart_period(m);
    return OK;
}

/* Linear in the number of sources, which is at most 64. Of equal deadlines the first source
 * wins. */
int mix_next(Mix *m)
{
    int chosen = -1;
    for (int i = 0; i < m->n; i++) {
        if (m->task[i].release > m->slot) continue;
        if (chosen < 0 || m->task[i].deadline < m->task[chosen].deadline) chosen = i;
    }
    assert(chosen >= 0); /* k_i > rate_i * slot for all i would sum to more than the slots so far */
    m->task[chosen].k++;
    set_window(m, &m->task[chosen]);
    if (++m->slot == m->total) {
        m->period++;
        restart_period(m);
    }
    return chosen;
}

void mix_seek(Mix *m, uint64_t slots)
{
    m->period = (int64_t)(slots / (uint64_t)m->total);
    restart_period(m);
    for (int64_t rest = (int64_t)(slots % (uint64_t)m->total); rest > 0; rest--) mix_next(m);
}

int64_t mix_taken(const Mix *m, int i) { return m->period * m->task[i].rate + m->task[i].k; }
