/*
 * notes: the arguments of kernels, from the note in which the compiler describes them.
 *
 * The note is a map in the format MessagePack: amdhsa.kernels holds a map a kernel with .symbol and
 * .args, whose maps have .offset, .size and .value_kind (LLVM's AMDGPU usage guide, "Code Object V3
 * Metadata"). All other keys are skipped.
 */
#include "gfxrun/machine.h"

/* Bytes that are still to be read. After the end all reads give zeros. */
typedef struct Pack {
    const uint8_t *at, *end;
    bool broken;
} Pack;

typedef enum PackKind { PACK_OTHER, PACK_NUMBER, PACK_STRING, PACK_ARRAY, PACK_MAP } PackKind;

/* One value: `n` is the number, or how many bytes or members follow. */
typedef struct Value {
    PackKind kind;
    uint64_t n;
    const char *text;
} Value;

static uint64_t big_endian(Pack *p, unsigned bytes)
{
    uint64_t v = 0;
    if (bytes > (size_t)(p->end - p->at)) {
        p->broken = true;
        return 0;
    }
    for (unsigned i = 0; i < bytes; i++) v = v << 8 | *p->at++;
    return v;
}

static Value with_bytes(Pack *p, PackKind kind, uint64_t n)
{
    Value v = { kind, n, (const char *)p->at };
    if (n > (size_t)(p->end - p->at)) {
        p->broken = true;
        return (Value){ 0 };
    }
    p->at += n;
    return v;
}

/* The values from 0xc4 on. `unit` bytes, doubled for each further code, hold the number or the length;
 * fixed: they are the length. `more` is a byte that says what kind of bytes follow. */
static const struct {
    uint8_t first, last, unit;
    PackKind kind;
    bool fixed, more;
} LONG[] = {
    { 0xc4, 0xc6, 1, PACK_OTHER, false, false },  { 0xc7, 0xc9, 1, PACK_OTHER, false, true },
    { 0xca, 0xcb, 4, PACK_OTHER, true, false },   { 0xcc, 0xcf, 1, PACK_NUMBER, false, false },
    { 0xd0, 0xd3, 1, PACK_NUMBER, false, false }, { 0xd4, 0xd8, 1, PACK_OTHER, true, true },
    { 0xd9, 0xdb, 1, PACK_STRING, false, false }, { 0xdc, 0xdd, 2, PACK_ARRAY, false, false },
    { 0xde, 0xdf, 2, PACK_MAP, false, false },
};

static Value next_long(Pack *p, unsigned code)
{
    for (size_t i = 0; i < sizeof LONG / sizeof *LONG; i++) {
        if (code < LONG[i].first || code > LONG[i].last) continue;
        unsigned bytes = (unsigned)LONG[i].unit << (code - LONG[i].first);
        uint64_t n = LONG[i].fixed ? bytes : big_endian(p, bytes);
        if (LONG[i].kind == PACK_OTHER || LONG[i].kind == PACK_STRING)
            return with_bytes(p, LONG[i].kind, n + LONG[i].more);
        return (Value){ LONG[i].kind, n, NULL };
    }
    return (Value){ 0 }; /* nil, false, true */
}

static Value next_value(Pack *p)
{
    unsigned first = (unsigned)big_endian(p, 1);
    if (first < 0x80) return (Value){ PACK_NUMBER, first, NULL };
    if (first < 0x90) return (Value){ PACK_MAP, first & 15, NULL };
    if (first < 0xa0) return (Value){ PACK_ARRAY, first & 15, NULL };
    if (first < 0xc0) return with_bytes(p, PACK_STRING, first & 31);
    if (first >= 0xe0) return (Value){ 0 }; /* a negative number */
    return next_long(p, first);
}

/* Goes past the members of a value, and theirs. */
static void skip_members(Pack *p, Value v)
{
    uint64_t left = v.kind == PACK_ARRAY ? v.n : v.kind == PACK_MAP ? 2 * v.n : 0;
    for (; left > 0 && !p->broken; left--) {
        v = next_value(p);
        left += v.kind == PACK_ARRAY ? v.n : v.kind == PACK_MAP ? 2 * v.n : 0;
    }
}

static bool is(Value v, const char *text)
{
    return v.kind == PACK_STRING && v.n == strlen(text) && memcmp(v.text, text, v.n) == 0;
}

static Status read_argument(CodeObject *c, Pack *p, Value map)
{
    static const char hidden[] = "hidden_";
    Argument a = { 0 };
    if (map.kind != PACK_MAP) return skip_members(p, map), OK;
    for (uint64_t i = 0; i < map.n && !p->broken; i++) {
        Value key = next_value(p), v = next_value(p);
        if (is(key, ".offset")) a.offset = (unsigned)v.n;
        if (is(key, ".size")) a.bytes = (unsigned)v.n;
        if (is(key, ".value_kind") && v.kind == PACK_STRING && v.n > sizeof hidden - 1 &&
            memcmp(v.text, hidden, sizeof hidden - 1) == 0)
            TRY(arena_text(c->arena, v.text + sizeof hidden - 1, v.n - (sizeof hidden - 1),
                           &a.hidden));
        skip_members(p, v);
    }
    TRY(ARENA_GROW(c->arena, c->n_arguments + 1, &c->argument_room, &c->arguments));
    c->arguments[c->n_arguments++] = a;
    return OK;
}

static Status read_kernel(CodeObject *c, Pack *p, Value map)
{
    Value symbol = { 0 };
    int64_t first = c->n_arguments;
    if (map.kind != PACK_MAP) return skip_members(p, map), OK;
    for (uint64_t i = 0; i < map.n && !p->broken; i++) {
        Value key = next_value(p), v = next_value(p);
        if (is(key, ".symbol")) symbol = v;
        if (!is(key, ".args") || v.kind != PACK_ARRAY)
            skip_members(p, v);
        else
            for (uint64_t k = 0; k < v.n && !p->broken; k++)
                TRY(read_argument(c, p, next_value(p)));
    }
    for (int64_t k = 0; k < c->n_kernels; k++) {
        Kernel *to = &c->kernels[k];
        size_t n = strlen(to->name);
        if (symbol.n != n + 3 || memcmp(symbol.text, to->name, n) != 0) continue; /* and ".kd" */
        to->first_argument = (int)first;
        to->n_arguments = (int)(c->n_arguments - first);
    }
    return OK;
}

Status read_notes(CodeObject *c, const uint8_t *note, size_t bytes)
{
    Pack p = { note, note + bytes, false };
    Value map = next_value(&p);
    for (uint64_t i = 0; map.kind == PACK_MAP && i < map.n && !p.broken; i++) {
        Value key = next_value(&p), v = next_value(&p);
        if (!is(key, "amdhsa.kernels") || v.kind != PACK_ARRAY)
            skip_members(&p, v);
        else
            for (uint64_t k = 0; k < v.n && !p.broken; k++) TRY(read_kernel(c, &p, next_value(&p)));
    }
    if (p.broken) return FAIL(ERR_FORMAT, "the description of the kernels ends early");
    return OK;
}
