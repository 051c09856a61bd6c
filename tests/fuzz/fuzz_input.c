/* Any bytes as a file of a corpus: decompressed if they are gzip or zstd, and cut into blocks. What is
 * given out does not depend on the size of the pieces, and a plain file is given out as it is. */
#include "corpus/prepare/input.h"
#include "harness/fuzz.h"

enum { MOST = 1 << 20 }; /* of what is given out: a few bytes can stand for gigabytes */

static Status read_all(const uint8_t *data, size_t bytes, size_t piece, char *out, size_t *used)
{
    Input in = { 0 };
    size_t got = 1;
    *used = 0;
    Status s = input_from_memory(&in, "fuzz", data, bytes);
    bool plain = s == OK && in.kind == INPUT_PLAIN;
    while (s == OK && got > 0 && *used + piece <= MOST) {
        s = input_read(&in, out + *used, piece, &got);
        need(s != OK || got <= piece);
        if (s == OK) *used += got;
    }
    if (plain) need(s == OK && memcmp(out, data, *used) == 0);
    if (plain && bytes < MOST / 2) need(*used == bytes);
    input_close(&in);
    return s;
}

static Status look(Fuzz *f)
{
    static char one[MOST], other[MOST];
    const uint8_t *data = f->data;
    const size_t bytes = f->bytes;
    size_t n = 0, m = 0;
    if (bytes < 1) return OK;
    Status s = read_all(data + 1, bytes - 1, 1 << 16, one, &n);
    Status t = read_all(data + 1, bytes - 1, (size_t)data[0] + 1, other, &m);
    size_t least = n < m ? n : m;
    need(least == 0 || memcmp(one, other, least) == 0);
    /* libzstd compares a frame of no blocks with the size in its header only in one piece. */
    bool gzip = bytes > 1 && data[1] == 0x1F;
    need(!gzip || n >= MOST / 2 || s == t);
    return OK;
}

const Fuzzer fuzzer = { .look = look };
