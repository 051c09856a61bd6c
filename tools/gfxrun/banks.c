/*
 * banks: bank conflicts of LDS, in cycles beyond those of an access without any.
 *
 * LDS has 32 banks of 4 bytes. An access is cut into phases of as many lanes as fill the banks, and a
 * phase takes a cycle for each different word of its busiest bank. Phases are lanes in their order, but
 * not those of 16-byte reads: there lanes 0 to 3 go with 20 to 23, 4 to 7 with 16 to 19, 8 to 11 with 28
 * to 31, 12 to 15 with 24 to 27 (AMD's blog "Avoiding LDS Bank Conflicts on AMD GPUs Using CK-Tile").
 */
#include "gfxrun/machine.h"

enum { BANKS = 32 };

/* Which lane is the i-th in the order of phases. */
static int lane_of(int i, int bytes, bool read)
{
    static const uint8_t quads[8] = { 0, 5, 1, 4, 2, 7, 3, 6 };
    if (bytes < 16 || !read) return i;
    return (i & 32) | quads[i / 4 % 8] * 4 | (i & 3);
}

/* The lanes of a phase that are on, as first words; n of them. */
typedef struct Phase {
    int n, words;
    uint32_t first[BANKS];
} Phase;

/* Whether every bank is asked for one word at most: what the inner loop of a good kernel has. */
static bool without_conflict(const Phase *p)
{
    uint32_t seen = 0, held[BANKS];
    for (int i = 0; i < p->n; i++)
        for (int k = 0; k < p->words; k++) {
            uint32_t word = p->first[i] + (uint32_t)k, bank = word % BANKS;
            if (seen >> bank & 1 && held[bank] != word) return false;
            seen |= 1u << bank;
            held[bank] = word;
        }
    return true;
}

static int cycles_of(const Phase *p)
{
    uint32_t held[BANKS][BANKS];
    int n[BANKS] = { 0 }, most = 1;
    if (without_conflict(p)) return 1;
    for (int i = 0; i < p->n; i++)
        for (int k = 0; k < p->words; k++) {
            uint32_t word = p->first[i] + (uint32_t)k, bank = word % BANKS;
            int at = 0;
            while (at < n[bank] && held[bank][at] != word) at++;
            if (at < n[bank]) continue;
            held[bank][n[bank]++] = word;
            if (n[bank] > most) most = n[bank];
        }
    return most;
}

static int count(const uint32_t at[LANES], uint64_t lanes, int bytes, bool read)
{
    int words = bytes <= 4 ? 1 : bytes / 4, cycles = 0;
    int phase = words == 1 ? 32 : words == 2 ? 16 : 8;
    for (int first = 0; first < LANES; first += phase) {
        Phase p = { .words = words };
        for (int i = first; i < first + phase; i++) {
            int l = lane_of(i, bytes, read);
            if (lanes >> l & 1) p.first[p.n++] = at[l] / 4;
        }
        cycles += cycles_of(&p) - 1;
    }
    return cycles;
}

/* Whether all lanes that are on have moved by the same number of words: then the banks only change
 * names. */
static bool moved(const Pattern *p, const uint32_t at[LANES], uint64_t lanes)
{
    uint32_t by = lanes == 0 ? 0 : at[__builtin_ctzll(lanes)] - p->at[__builtin_ctzll(lanes)];
    uint32_t differs = by % 4;
    for (int l = 0; l < LANES; l++) differs |= lanes >> l & 1 ? at[l] - p->at[l] - by : 0;
    return differs == 0;
}

int bank_conflicts(Pattern *last, const uint32_t at[LANES], uint64_t lanes, int bytes, bool read)
{
    bool known = last->bytes == bytes && last->read == read && last->lanes == lanes;
    if (!known || !moved(last, at, lanes)) {
        memcpy(last->at, at, sizeof last->at);
        last->lanes = lanes;
        last->bytes = bytes;
        last->read = read;
        last->cycles = count(at, lanes, bytes, read);
    }
    return last->cycles;
}
