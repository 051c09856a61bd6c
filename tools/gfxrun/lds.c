/*
 * lds: the memory of a workgroup, and the exchanges between lanes that use its wires.
 *
 * Races. Wave A's access is before wave B's only if A waited for it (lgkmcnt) and both then passed a
 * barrier. So at a barrier all waves learn which of each other's accesses had finished. A word
 * of LDS remembers its last writer and its last two readers with the serial number of the access. An
 * access of another wave is a race if that number is later than what the first wave had finished at its
 * last barrier. A missing barrier and a missing wait before a barrier are found by the same test, in
 * whatever order the waves happened to run.
 */
#include "gfxrun/machine.h"

#include <string.h>

static inline bool unordered(const Wave *w, uint8_t other, uint32_t serial)
{
    return serial > w->before[other];
}

/* Most accesses come after all others to the word, of whichever bytes. */
static inline bool surely_right(const Wave *w, const LdsWord *word, uint8_t bytes, LdsAccess access)
{
    if (unordered(w, word->writer, word->write_serial)) return false;
    if (access == LDS_READ) return (bytes & ~word->defined) == 0;
    return access == LDS_WRITE && !unordered(w, word->reader[0], word->read_serial[0]) &&
           !unordered(w, word->reader[1], word->read_serial[1]);
}

static bool check_word(Wave *w, int lane, const LdsWord *word, uint32_t at, uint8_t bytes,
                       LdsAccess access)
{
    if (access != LDS_WRITE && (bytes & ~word->defined) != 0)
        return fault(w, lane, "LDS is read at %u before it was written", at);
    bool both_atomic = access == LDS_ATOMIC && word->atomic;
    if ((word->written & bytes) != 0 && !both_atomic &&
        unordered(w, word->writer, word->write_serial))
        return fault(w, lane,
                     "race: LDS at %u was written by wave %d with no wait and barrier since", at,
                     word->writer);
    for (int i = 0; i < 2 && access != LDS_READ; i++)
        if ((word->read[i] & bytes) != 0 && unordered(w, word->reader[i], word->read_serial[i]))
            return fault(w, lane,
                         "race: LDS at %u was read by wave %d with no wait and barrier since", at,
                         word->reader[i]);
    return true;
}

static inline void note_word(const Wave *w, LdsWord *word, uint8_t bytes, LdsAccess access)
{
    uint8_t me = (uint8_t)w->number;
    uint32_t serial = w->lgkm.issued;
    if (access == LDS_READ) {
        if (word->reader[0] != me) {
            word->reader[1] = word->reader[0];
            word->read_serial[1] = word->read_serial[0];
            word->read[1] = word->read[0];
            word->read[0] = 0;
        }
        word->reader[0] = me;
        word->read_serial[0] = serial;
        word->read[0] |= bytes;
        return;
    }
    if (word->writer != me) word->written = 0;
    word->writer = me;
    word->write_serial = serial;
    word->written |= bytes;
    word->defined |= bytes;
    word->atomic = access == LDS_ATOMIC;
}

static inline bool touch_word(Wave *w, int lane, uint32_t at, uint8_t bytes, LdsAccess access)
{
    LdsWord *word = &w->group->lds_words[at / 4];
    if (!surely_right(w, word, bytes, access) && !check_word(w, lane, word, at, bytes, access))
        return false;
    note_word(w, word, bytes, access);
    return true;
}

/* The access is a constant where this is inlined. */
static inline __attribute__((always_inline)) bool touch(Wave *w, int lane, uint64_t address,
                                                        int bytes, LdsAccess access, uint8_t **out)
{
    Group *g = w->group;
    if (address + (uint64_t)bytes > g->lds_bytes)
        return fault(w, lane, "LDS at %llu of %u bytes", (unsigned long long)address, g->lds_bytes);
    uint32_t at = (uint32_t)address, end = at + (uint32_t)bytes;
    if ((at | end) % 4 == 0)
        for (; at < end; at += 4) {
            if (!touch_word(w, lane, at, 15, access)) return false;
        }
    for (; at < end; at = (at | 3) + 1) {
        uint32_t n = 4 - at % 4 < end - at ? 4 - at % 4 : end - at;
        if (!touch_word(w, lane, at, (uint8_t)(((1u << n) - 1) << at % 4), access)) return false;
    }
    *out = g->lds + address;
    for (int i = 0; g->has_undefined && access == LDS_ATOMIC && i < bytes; i++)
        if (g->lds_undefined[address + (uint64_t)i] != 0)
            return fault(w, lane, "an atomic reads undefined LDS at %llu",
                         (unsigned long long)address);
    return true;
}

bool lds_at(Wave *w, int lane, uint64_t address, int bytes, LdsAccess access, uint8_t **out)
{
    return touch(w, lane, address, bytes, access, out);
}

static void issue(Wave *w)
{
    w->lgkm.issued++;
    w->group->launch->counts.lds_instructions++;
}

static bool expect(Wave *w, const Operand *to, int words)
{
    if (to->kind != OPERAND_VECTOR || to->words < words)
        return fault(w, -1, "a result of %d vector registers is expected", words);
    for (int i = 0; i < words; i++)
        if (!vector_unused(w, to->reg + i)) return false;
    return true;
}

static void arrive(Wave *w, int reg, int words, uint64_t lanes)
{
    for (int i = 0; i < words; i++) {
        w->v_defined[reg + i] |= lanes;
        w->v_lgkm[reg + i] = w->lgkm.issued;
    }
}

/* Where the lanes' pieces number i lie. */
static void piece_places(const Wave *w, const Op *o, int i, uint32_t at[LANES])
{
    int64_t step = o->row->c == 0 ? 1 : (int64_t)o->row->a * o->row->c;
    int64_t offset = (i == 0 ? o->with.offset : o->with.offset1) * step;
    for (int l = 0; l < LANES; l++) at[l] = w->v[o->src[0].reg][l] + (uint32_t)offset;
}

static void count_conflicts(const Wave *w, const uint32_t at[LANES], int bytes, LdsAccess access)
{
    Launch *l = w->group->launch;
    l->counts.conflict_cycles +=
        bank_conflicts(&l->patterns[w->at % PATTERNS], at, exec_mask(w), bytes, access == LDS_READ);
}

/* One piece of each lane; `bytes` is a constant where this is inlined. */
static inline __attribute__((always_inline)) bool read_pieces(Wave *w, const Op *o, int reg,
                                                              int bytes, const uint32_t at[LANES])
{
    uint64_t lanes = exec_mask(w), defined = lanes;
    uint8_t *from = NULL;
    bool plain = bytes >= 4 && !w->group->has_undefined;
    for (uint64_t left = lanes; left != 0; left &= left - 1) {
        int l = __builtin_ctzll(left);
        if (!touch(w, l, at[l], bytes, LDS_READ, &from)) return false;
        if (plain)
            for (int i = 0; i < bytes / 4; i++) memcpy(&w->v[reg + i][l], from + 4 * (size_t)i, 4);
        else if (!load_lane(w, o, reg, l, from, lds_undefined_at(w->group, from)))
            defined &= ~((uint64_t)1 << l);
    }
    arrive(w, reg, (bytes + 3) / 4, defined);
    return true;
}

/* Row.a: bytes of a piece; b: flags; c: 0 for one piece at `offset`, else two at offset and offset1
 * times c pieces. */
static bool run_read(Wave *w, const Op *o)
{
    const Operand *to = &o->dst[0];
    int bytes = o->row->a, pieces = o->row->c == 0 ? 1 : 2, words = bytes < 4 ? 1 : bytes / 4;
    uint32_t at[2][LANES]; /* the result may take the address' place */
    if (!vector_words(w, &o->src[0], 1, exec_mask(w)) || !expect(w, to, pieces * words))
        return false;
    for (int i = 0; i < pieces; i++) piece_places(w, o, i, at[i]);
    issue(w);
    for (int i = 0; i < pieces; i++) {
        bool done;
        count_conflicts(w, at[i], bytes, LDS_READ);
        switch (bytes) {
        case 4: done = read_pieces(w, o, to->reg + i, 4, at[i]); break;
        case 8: done = read_pieces(w, o, to->reg + i * 2, 8, at[i]); break;
        case 16: done = read_pieces(w, o, to->reg, 16, at[i]); break;
        default: done = read_pieces(w, o, to->reg, bytes, at[i]); break;
        }
        if (!done) return false;
    }
    return true;
}

static bool run_write(Wave *w, const Op *o)
{
    uint64_t lanes = exec_mask(w);
    int bytes = o->row->a, pieces = o->row->c == 0 ? 1 : 2, words = bytes < 4 ? 1 : bytes / 4;
    uint32_t at[LANES];
    uint64_t undefined;
    uint8_t *to = NULL;
    if (!vector_words(w, &o->src[0], 1, lanes)) return false;
    for (int i = 0; i < pieces; i++) {
        if (!vector_data(w, &o->src[1 + i], words, lanes, &undefined)) return false;
        if (undefined != 0) begin_undefined(w->group);
    }
    issue(w);
    for (int i = 0; i < pieces; i++) {
        piece_places(w, o, i, at);
        count_conflicts(w, at, bytes, LDS_WRITE);
        for (int l = 0; l < LANES; l++) {
            if (!(lanes >> l & 1)) continue;
            if (!touch(w, l, at[l], bytes, LDS_WRITE, &to)) return false;
            store_lane(w, o, o->src[1 + i].reg, l, to);
            if (w->group->has_undefined &&
                !store_undefined(w, o, o->src[1 + i].reg, l, lds_undefined_at(w->group, to)))
                return false;
        }
    }
    return true;
}

/* Row.b: 1 if the old value is returned. */
static bool run_lds_atomic(Wave *w, const Op *o)
{
    uint64_t lanes = exec_mask(w);
    bool returns = o->row->b != 0, compare = o->row->c == ATOMIC_CMPSWAP;
    int bytes = o->row->a, words = bytes / 4;
    const Operand *address = &o->src[0], *data = &o->src[1];
    uint8_t *to = NULL;
    if (!vector_words(w, address, 1, lanes)) return false;
    for (int i = 0; i < (compare ? 2 : 1); i++)
        if (!vector_words(w, &data[i], words, lanes)) return false;
    if (returns && !expect(w, &o->dst[0], words)) return false;
    issue(w);
    for (int l = 0; l < LANES; l++) {
        uint64_t old = 0, v[2] = { 0, 0 };
        if (!(lanes >> l & 1)) continue;
        if (!lds_at(w, l, w->v[address->reg][l] + (uint64_t)o->with.offset, bytes, LDS_ATOMIC, &to))
            return false;
        memcpy(&old, to, (size_t)bytes);
        for (int i = 0; i < (compare ? 2 : 1); i++)
            for (int k = 0; k < words; k++) v[i] |= (uint64_t)w->v[data[i].reg + k][l] << 32 * k;
        /* ds_cmpst compares with the first and stores the second */
        uint64_t d = compare ? atomic_result(ATOMIC_CMPSWAP, bytes, old, v[1], v[0])
                             : atomic_result((Atomic)o->row->c, bytes, old, v[0], 0);
        memcpy(to, &d, (size_t)bytes);
        for (int k = 0; returns && k < words; k++)
            w->v[o->dst[0].reg + k][l] = (uint32_t)(old >> 32 * k);
    }
    if (returns) arrive(w, o->dst[0].reg, words, lanes);
    return true;
}

/* Lane l gets what data holds in lane from[l], which must be on: else it gets 0. */
static bool pull_lanes(Wave *w, const Op *o, const Operand *data, const int from[LANES])
{
    uint64_t lanes = exec_mask(w), sources = 0, d[LANES];
    for (int l = 0; l < LANES; l++) {
        if (!(lanes >> l & 1)) continue;
        d[l] = lanes >> from[l] & 1 ? w->v[data->reg][from[l]] : 0;
        if (lanes >> from[l] & 1) sources |= (uint64_t)1 << from[l];
    }
    if (!vector_words(w, data, 1, sources) || !expect(w, &o->dst[0], 1)) return false;
    issue(w);
    store_lanes(w, o->dst[0].reg, 1, lanes, d);
    arrive(w, o->dst[0].reg, 1, lanes);
    return true;
}

/* ds_bpermute: lane l reads the lane that its address names. */
static bool run_bpermute(Wave *w, const Op *o)
{
    const Operand *address = &o->src[0];
    int from[LANES];
    if (!vector_words(w, address, 1, exec_mask(w))) return false;
    for (int l = 0; l < LANES; l++)
        from[l] = (int)((w->v[address->reg][l] + (uint64_t)o->with.offset) / 4 % LANES);
    return pull_lanes(w, o, &o->src[1], from);
}

/* ds_permute: lane l sends to the lane that its address names; the highest sender wins. */
static bool run_permute(Wave *w, const Op *o)
{
    uint64_t lanes = exec_mask(w), d[LANES] = { 0 };
    const Operand *address = &o->src[0], *data = &o->src[1];
    if (!vector_words(w, address, 1, lanes) || !vector_words(w, data, 1, lanes)) return false;
    if (!expect(w, &o->dst[0], 1)) return false;
    for (int l = 0; l < LANES; l++)
        if (lanes >> l & 1)
            d[(w->v[address->reg][l] + (uint64_t)o->with.offset) / 4 % LANES] = w->v[data->reg][l];
    issue(w);
    store_lanes(w, o->dst[0].reg, 1, lanes, d);
    arrive(w, o->dst[0].reg, 1, lanes);
    return true;
}

/* ds_swizzle: with bit 15 four lanes by two bits each, else within 32 lanes and, or, xor masks. */
static int swizzled(int pattern, int l)
{
    if (pattern & 0x8000) return (l & ~3) | (pattern >> 2 * (l & 3) & 3);
    int at = l & 31;
    at = ((at & (pattern & 31)) | (pattern >> 5 & 31)) ^ (pattern >> 10 & 31);
    return (l & 32) | at;
}

static bool run_swizzle(Wave *w, const Op *o)
{
    int from[LANES];
    for (int l = 0; l < LANES; l++) from[l] = swizzled((int)o->with.offset, l);
    return pull_lanes(w, o, &o->src[0], from);
}

#define READ(name, bytes, flags)                                                                   \
    {                                                                                              \
        "ds_read_" name, "x=x", run_read, .a = (bytes), .b = (flags)                               \
    }
#define WRITE(name, bytes, flags)                                                                  \
    {                                                                                              \
        "ds_write_" name, "=xx", run_write, .a = (bytes), .b = (flags)                             \
    }
#define TWO(name, bytes, step)                                                                     \
    { "ds_read" name, "x=x", run_read, .a = (bytes), .c = (step) },                                \
    {                                                                                              \
        "ds_write" name, "=xxx", run_write, .a = (bytes), .c = (step)                              \
    }
#define ATOMIC_ONE(name, type, bytes, what)                                                        \
    { "ds_" name "_" type, "=xx", run_lds_atomic, .a = (bytes), .c = (what) },                     \
    {                                                                                              \
        "ds_" name "_rtn_" type, "x=xx", run_lds_atomic, .a = (bytes), .b = 1, .c = (what)         \
    }
#define ATOMIC_BITS(name, letter, what)                                                            \
    ATOMIC_ONE(name, letter "32", 4, what), ATOMIC_ONE(name, letter "64", 8, what)

const Row lds_rows[] = {
    READ("b32", 4, 0),
    READ("b64", 8, 0),
    READ("b96", 12, 0),
    READ("b128", 16, 0),
    READ("u8", 1, 0),
    READ("i8", 1, WIDEN_SIGN),
    READ("u16", 2, 0),
    READ("i16", 2, WIDEN_SIGN),
    READ("u8_d16", 1, HALF_LOW),
    READ("u8_d16_hi", 1, HALF_HIGH),
    READ("u16_d16", 2, HALF_LOW),
    READ("u16_d16_hi", 2, HALF_HIGH),
    WRITE("b8", 1, 0),
    WRITE("b16", 2, 0),
    WRITE("b8_d16_hi", 1, HALF_HIGH),
    WRITE("b16_d16_hi", 2, HALF_HIGH),
    WRITE("b32", 4, 0),
    WRITE("b64", 8, 0),
    WRITE("b96", 12, 0),
    WRITE("b128", 16, 0),
    TWO("2_b32", 4, 1),
    TWO("2_b64", 8, 1),
    TWO("2st64_b32", 4, 64),
    TWO("2st64_b64", 8, 64),
    ATOMIC_BITS("add", "u", ATOMIC_ADD),
    ATOMIC_BITS("sub", "u", ATOMIC_SUB),
    ATOMIC_BITS("min", "u", ATOMIC_UMIN),
    ATOMIC_BITS("max", "u", ATOMIC_UMAX),
    ATOMIC_BITS("min", "i", ATOMIC_SMIN),
    ATOMIC_BITS("max", "i", ATOMIC_SMAX),
    ATOMIC_BITS("inc", "u", ATOMIC_INC),
    ATOMIC_BITS("dec", "u", ATOMIC_DEC),
    ATOMIC_BITS("and", "b", ATOMIC_AND),
    ATOMIC_BITS("or", "b", ATOMIC_OR),
    ATOMIC_BITS("xor", "b", ATOMIC_XOR),
    ATOMIC_BITS("add", "f", ATOMIC_ADD_F),
    ATOMIC_BITS("min", "f", ATOMIC_MIN_F),
    ATOMIC_BITS("max", "f", ATOMIC_MAX_F),
    { "ds_wrxchg_rtn_b32", "x=xx", .run = run_lds_atomic, .a = 4, .b = 1, .c = ATOMIC_SWAP },
    { "ds_wrxchg_rtn_b64", "x=xx", .run = run_lds_atomic, .a = 8, .b = 1, .c = ATOMIC_SWAP },
    { "ds_cmpst_b32", "=xxx", .run = run_lds_atomic, .a = 4, .c = ATOMIC_CMPSWAP },
    { "ds_cmpst_rtn_b32", "x=xxx", .run = run_lds_atomic, .a = 4, .b = 1, .c = ATOMIC_CMPSWAP },
    { "ds_cmpst_rtn_b64", "x=xxx", .run = run_lds_atomic, .a = 8, .b = 1, .c = ATOMIC_CMPSWAP },
    { 0 },
};

const Row exchange_rows[] = {
    { "ds_bpermute_b32", "x=xx", .run = run_bpermute },
    { "ds_permute_b32", "x=xx", .run = run_permute },
    { "ds_swizzle_b32", "x=x", .run = run_swizzle },
    { 0 },
};
