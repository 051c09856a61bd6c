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

/* The words of one bank that a phase asks for. */
typedef struct Bank {
    int n;
    uint32_t words[BANKS];
} Bank;

static void ask(Bank *b, uint32_t word)
{
    for (int i = 0; i < b->n; i++)
        if (b->words[i] == word) return;
    b->words[b->n++] = word;
}

int bank_conflicts(const uint32_t at[LANES], uint64_t lanes, int bytes, bool read)
{
    int words = bytes <= 4 ? 1 : bytes / 4,
        phase = words == 1   ? 32
                : words == 2 ? 16
                             : 8,
        cycles = 0;
    Bank banks[BANKS];
    for (int first = 0; first < LANES; first += phase) {
        int most = 1;
        for (int b = 0; b < BANKS; b++) banks[b].n = 0;
        for (int i = first; i < first + phase; i++) {
            int l = lane_of(i, bytes, read);
            if (!(lanes >> l & 1)) continue;
            for (int k = 0; k < words; k++) {
                uint32_t word = at[l] / 4 + (uint32_t)k;
                ask(&banks[word % BANKS], word);
                if (banks[word % BANKS].n > most) most = banks[word % BANKS].n;
            }
        }
        cycles += most - 1;
    }
    return cycles;
}
