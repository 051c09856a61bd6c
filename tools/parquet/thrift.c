/* thrift: Thrift's compact protocol, and snappy: both are chains of small numbers and bytes. */
#include "parquet/private.h"

#include <string.h>

enum {
    DEPTH_MAX = 16,
    BOOL_TRUE = 1,
    BOOL_FALSE = 2,
    BYTE = 3,
    INT64 = 6,
    DOUBLE = 7,
    SET = 10,
    MAP = 11
};

static uint8_t take_byte(Thrift *t)
{
    t->bad = t->bad || t->left.at == t->left.end;
    return t->bad ? 0 : *t->left.at++;
}

int64_t thrift_varint(Thrift *t)
{
    uint64_t x = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        const uint8_t byte = take_byte(t);
        x |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) return (int64_t)x;
    }
    t->bad = true;
    return 0;
}

int64_t thrift_zigzag(Thrift *t)
{
    const uint64_t x = (uint64_t)thrift_varint(t);
    return (int64_t)(x >> 1 ^ -(x & 1));
}

bool thrift_field(Thrift *t, int before)
{
    const uint8_t head = take_byte(t);
    if (head == 0) return false;
    t->type = head & 15;
    t->id = head >> 4 != 0 ? before + (head >> 4) : (int)(int16_t)thrift_zigzag(t);
    return !t->bad;
}

Bytes thrift_bytes(Thrift *t)
{
    const int64_t n = thrift_varint(t);
    t->bad = t->bad || n < 0 || n > t->left.end - t->left.at;
    if (t->bad) return (Bytes){ t->left.at, t->left.at };
    t->left.at += n;
    return (Bytes){ t->left.at - n, t->left.at };
}

/* An element has at least a byte. */
int64_t thrift_list(Thrift *t)
{
    const uint8_t head = take_byte(t);
    const int64_t n = head >> 4 == 15 ? thrift_varint(t) : head >> 4;
    t->type = head & 15;
    t->bad = t->bad || n < 0 || n > t->left.end - t->left.at;
    return t->bad ? 0 : n;
}

static void skip_value(Thrift *t, int type, int depth);

static void skip_struct(Thrift *t, int depth)
{
    for (int before = 0; thrift_field(t, before);) {
        before = t->id;
        if (t->type != BOOL_TRUE && t->type != BOOL_FALSE) skip_value(t, t->type, depth);
    }
}

/* Parquet's structs have no maps. A truth in a list is a byte. */
static void skip_value(Thrift *t, int type, int depth)
{
    t->bad = t->bad || depth == DEPTH_MAX || type == MAP || type > THRIFT_STRUCT || type == 0;
    if (t->bad) return;
    if (type <= BYTE) {
        (void)take_byte(t);
    } else if (type == DOUBLE) {
        for (int i = 0; i < 8; i++) (void)take_byte(t);
    } else if (type == THRIFT_BINARY) {
        (void)thrift_bytes(t);
    } else if (type == THRIFT_LIST || type == SET) {
        const int64_t n = thrift_list(t);
        const int of = t->type;
        for (int64_t i = 0; i < n && !t->bad; i++) skip_value(t, of, depth + 1);
    } else if (type == THRIFT_STRUCT) {
        skip_struct(t, depth + 1);
    } else {
        (void)thrift_varint(t);
    }
}

int64_t thrift_value(Thrift *t)
{
    if (t->type == BOOL_TRUE || t->type == BOOL_FALSE) return t->type == BOOL_TRUE;
    if (t->type > BYTE && t->type <= INT64) return thrift_zigzag(t);
    skip_value(t, t->type, 0);
    return 0;
}

void thrift_struct(Thrift *t, int64_t out[THRIFT_FIELDS])
{
    for (int before = 0; thrift_field(t, before);) {
        const int id = before = t->id;
        const int64_t value = thrift_value(t);
        if (id >= 0 && id < THRIFT_FIELDS) out[id] = value;
    }
}

/* ---- snappy (github.com/google/snappy, format_description.txt) ---- */

/* A little-endian number of n bytes that are there. */
static size_t take_number(Thrift *in, int n)
{
    size_t x = 0;
    for (int i = 0; i < n; i++) x |= (size_t)take_byte(in) << 8 * i;
    return x;
}

/* A copy may overlap itself, and then repeats what it writes. */
static bool copy_back(uint8_t *out, size_t used, size_t distance, size_t n)
{
    if (distance == 0 || distance > used) return false;
    if (distance >= n)
        memcpy(out + used, out + used - distance, n);
    else
        for (size_t i = 0; i < n; i++) out[used + i] = out[used + i - distance];
    return true;
}

/* The two low bits of a tag: bytes that follow, or a copy whose distance has 11, 16 or 32 bits. */
bool snappy_expand(Bytes bytes_in, size_t bytes, uint8_t *out)
{
    Thrift in = { .left = bytes_in };
    size_t used = 0;
    if ((size_t)thrift_varint(&in) != bytes) return false;
    while (!in.bad && in.left.at < in.left.end) {
        const uint8_t tag = take_byte(&in);
        const int kind = tag & 3, high = tag >> 2;
        size_t n = (size_t)high + 1;
        if (kind == 0 && high >= 60) n = take_number(&in, high - 59) + 1;
        if (kind == 1) n = (size_t)(high & 7) + 4;
        const size_t low = kind == 0 ? 0 : take_number(&in, kind == 3 ? 4 : kind);
        const size_t distance = kind == 1 ? (size_t)(tag >> 5) << 8 | low : low;
        if (in.bad || n > bytes - used) return false;
        if (kind == 0 && n > (size_t)(in.left.end - in.left.at)) return false;
        if (kind != 0 && !copy_back(out, used, distance, n)) return false;
        if (kind == 0) memcpy(out + used, in.left.at, n), in.left.at += n;
        used += n;
    }
    return !in.bad && used == bytes;
}
