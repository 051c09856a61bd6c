/* png: the pixels of a picture as browsers write it (8 bits, RGB or RGBA, not interlaced). */
#ifndef TESTS_HARNESS_PNG_H
#define TESTS_HARNESS_PNG_H

#include "harness/test.h"

#include <stdlib.h>
#include <zlib.h>

typedef struct Png {
    uint32_t wide, high, bytes; /* of a pixel */
    unsigned char *row;         /* (high, wide, bytes) */
} Png;

static inline uint32_t png_u32(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static inline int png_paeth(int a, int b, int c)
{
    int p = a + b - c, x = abs(p - a), y = abs(p - b), z = abs(p - c);
    return x <= y && x <= z ? a : y <= z ? b : c;
}

/* The bytes of a row before the filter, from those of the row above (PNG, section 9). */
static inline void png_row(int filter, unsigned char *at, const unsigned char *above, size_t n,
                           uint32_t bytes)
{
    for (size_t i = 0; i < n; i++) {
        int a = i >= bytes ? at[i - bytes] : 0, b = above != NULL ? above[i] : 0;
        int c = i >= bytes && above != NULL ? above[i - bytes] : 0;
        int of[] = { 0, a, b, (a + b) / 2, png_paeth(a, b, c) };
        at[i] = (unsigned char)(at[i] + of[filter]);
    }
}

static inline Png png_read(const unsigned char *file, size_t n)
{
    Png p = { png_u32(file + 16), png_u32(file + 20), file[25] == 6 ? 4 : 3, NULL };
    size_t line = (size_t)p.wide * p.bytes, packed = 0;
    unsigned char *idat = malloc(n), *raw = malloc((line + 1) * p.high);
    uLongf size = (line + 1) * p.high;
    CHECK(file[24] == 8 && (file[25] == 2 || file[25] == 6) && file[28] == 0);
    for (size_t at = 8; at + 12 <= n; at += png_u32(file + at) + 12) {
        if (memcmp(file + at + 4, "IDAT", 4) != 0) continue;
        memcpy(idat + packed, file + at + 8, png_u32(file + at));
        packed += png_u32(file + at);
    }
    CHECK_INT(uncompress(raw, &size, idat, packed), Z_OK);
    p.row = malloc(line * p.high);
    for (uint32_t y = 0; y < p.high; y++) {
        memcpy(p.row + y * line, raw + y * (line + 1) + 1, line);
        png_row(raw[y * (line + 1)], p.row + y * line, y > 0 ? p.row + (y - 1) * line : NULL, line,
                p.bytes);
    }
    free(idat);
    free(raw);
    return p;
}

/* Pixels of exactly this colour in `rows` rows from row `from` on. */
static inline int64_t png_count(const Png *p, uint32_t from, uint32_t rows, int red, int green,
                                int blue)
{
    int64_t count = 0;
    for (size_t i = (size_t)p->wide * from; i < (size_t)p->wide * (from + rows); i++) {
        const unsigned char *at = p->row + i * p->bytes;
        count += at[0] == red && at[1] == green && at[2] == blue;
    }
    return count;
}

#endif
