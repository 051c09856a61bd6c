/* memory: loads, stores and atomics of global and scratch memory, through flat, global, buffer and
 * scalar instructions. An access takes place when it is issued; that its result is used too early is
 * found by the counters. */
#include "gfxrun/small_float.h"

#include "engine/base/clock.h"

#include <stdio.h>
#include <stdlib.h>

static bool inside(const GfxBuffer *b, uint64_t address, size_t bytes)
{
    uint64_t from = (uint64_t)(uintptr_t)b->data;
    return address >= from && bytes <= b->bytes && address - from <= b->bytes - bytes;
}

static int by_address(const void *a, const void *b)
{
    const GfxBuffer *x = a, *y = b;
    return (x->data > y->data) - (x->data < y->data);
}

static char *end_of(const GfxBuffer *b) { return (char *)b->data + b->bytes; }

/* Sorts the buffers. Those that lie over each other become one. */
Status order_buffers(Launch *l, Arena *scratch)
{
    const GfxLaunch *r = l->request;
    GfxBuffer *to;
    bool sorted = true;
    l->buffers = r->buffers;
    l->n_buffers = r->n_buffers;
    for (int i = 1; i < r->n_buffers && sorted; i++)
        sorted = (char *)r->buffers[i].data >= end_of(&r->buffers[i - 1]);
    if (sorted) return OK;
    TRY(ARENA_NEW(scratch, r->n_buffers, &to));
    memcpy(to, r->buffers, (size_t)r->n_buffers * sizeof *to);
    qsort(to, (size_t)r->n_buffers, sizeof *to, by_address);
    int n = 1;
    for (int i = 1; i < r->n_buffers; i++) {
        GfxBuffer *last = &to[n - 1];
        if ((char *)to[i].data >= end_of(last))
            to[n++] = to[i];
        else if (end_of(&to[i]) > end_of(last))
            last->bytes = (size_t)(end_of(&to[i]) - (char *)last->data);
    }
    l->buffers = to;
    l->n_buffers = n;
    return OK;
}

/* The last buffer that begins at the address or before it. */
static const GfxBuffer *buffer_below(const Launch *l, uint64_t address)
{
    int low = 0, high = l->n_buffers;
    while (low < high) {
        int mid = (low + high) / 2;
        if ((uint64_t)(uintptr_t)l->buffers[mid].data <= address)
            low = mid + 1;
        else
            high = mid;
    }
    return low == 0 ? NULL : &l->buffers[low - 1];
}

static const GfxBuffer *find_buffer(Wave *w, int lane, uint64_t address, size_t bytes, bool write)
{
    const Launch *l = w->group->launch;
    const GfxBuffer *b = buffer_below(l, address);
    if (b != NULL && inside(b, address, bytes)) return b;
    for (int i = 0; i < (write ? 1 : 3); i++)
        if (inside(&l->own[i], address, bytes)) return &l->own[i];
    char before[96] = "";
    if (b != NULL)
        (void)snprintf(before, sizeof before, "; %.32s begins %llu bytes before and has %zu",
                       b->name, (unsigned long long)(address - (uint64_t)(uintptr_t)b->data),
                       b->bytes);
    (void)fault(w, lane, "%zu bytes at 0x%llx are %s, in no buffer%s", bytes,
                (unsigned long long)address, write ? "written" : "read", before);
    return NULL;
}

static bool memory_at(Wave *w, int lane, uint64_t address, size_t bytes, bool write, uint8_t **out)
{
    Launch *l = w->group->launch;
    const GfxBuffer *b = l->last_buffer;
    if (b == NULL || !inside(b, address, bytes) ||
        (write && (b == &l->own[1] || b == &l->own[2]))) {
        b = find_buffer(w, lane, address, bytes, write);
        if (b == NULL) return false;
        l->last_buffer = b;
    }
    if (write)
        l->counts.written_bytes += (int64_t)bytes;
    else
        l->counts.read_bytes += (int64_t)bytes;
    *out = (uint8_t *)b->data + (address - (uint64_t)(uintptr_t)b->data);
    return true;
}

uint64_t atomic_result(Atomic what, int bytes, uint64_t old, uint64_t data, uint64_t compare)
{
    int64_t so = bytes == 4 ? as_i32(old) : (int64_t)old,
            sd = bytes == 4 ? as_i32(data) : (int64_t)data;
    float f = as_f32(old), g = as_f32(data);
    switch (what) {
    case ATOMIC_ADD: return old + data;
    case ATOMIC_SUB: return old - data;
    case ATOMIC_SWAP: return data;
    case ATOMIC_CMPSWAP: return old == compare ? data : old;
    case ATOMIC_UMIN: return old < data ? old : data;
    case ATOMIC_UMAX: return old > data ? old : data;
    case ATOMIC_SMIN: return so < sd ? old : data;
    case ATOMIC_SMAX: return so > sd ? old : data;
    case ATOMIC_AND: return old & data;
    case ATOMIC_OR: return old | data;
    case ATOMIC_XOR: return old ^ data;
    case ATOMIC_INC: return old >= data ? 0 : old + 1;
    case ATOMIC_DEC: return old == 0 || old > data ? data : old - 1;
    case ATOMIC_ADD_F: return bytes == 8 ? bits_f64(as_f64(old) + as_f64(data)) : bits_f32(f + g);
    case ATOMIC_MIN_F:
        return bytes == 8 ? bits_f64(fmin(as_f64(old), as_f64(data))) : bits_f32(fminf(f, g));
    case ATOMIC_MAX_F:
        return bytes == 8 ? bits_f64(fmax(as_f64(old), as_f64(data))) : bits_f32(fmaxf(f, g));
    case ATOMIC_PK_ADD_F16:
        return bits_f16(as_f16(old & 0xffff) + as_f16(data & 0xffff)) |
               bits_f16(as_f16(old >> 16 & 0xffff) + as_f16(data >> 16 & 0xffff)) << 16;
    case ATOMIC_PK_ADD_BF16:
        return bits_bf16(as_bf16(old & 0xffff) + as_bf16(data & 0xffff)) |
               bits_bf16(as_bf16(old >> 16 & 0xffff) + as_bf16(data >> 16 & 0xffff)) << 16;
    default: return old;
    }
}

bool vector_data(Wave *w, const Operand *o, int words, uint64_t lanes, uint64_t *undefined)
{
    *undefined = 0;
    if (o->kind != OPERAND_VECTOR || o->words < words)
        return fault(w, -1, "an operand of %d vector registers is expected", words);
    for (int i = 0; i < words; i++) {
        if (!vector_unused(w, o->reg + i)) return false;
        *undefined |= lanes & ~w->v_defined[o->reg + i];
    }
    return true;
}

bool vector_words(Wave *w, const Operand *o, int words, uint64_t lanes)
{
    uint64_t undefined;
    if (!vector_data(w, o, words, lanes, &undefined)) return false;
    for (int i = 0; undefined != 0 && i < words; i++)
        if (!vector_ready(w, o->reg + i, lanes)) return false;
    return true;
}

void load_part(Wave *w, int reg, int bytes, int flags, int lane, const uint8_t *from)
{
    uint32_t v = 0;
    memcpy(&v, from, (size_t)bytes);
    if (flags & WIDEN_SIGN) v = sign_extended(v, 8 * bytes);
    if (flags & HALF_LOW) v = (w->v[reg][lane] & 0xffff0000) | (v & 0xffff);
    if (flags & HALF_HIGH) v = (w->v[reg][lane] & 0xffff) | v << 16;
    w->v[reg][lane] = v;
}

void store_lane(const Wave *w, const Op *o, int reg, int lane, uint8_t *to)
{
    int bytes = o->row->a;
    uint32_t part = w->v[reg][lane] >> (o->row->b & HALF_HIGH ? 16 : 0);
    if (bytes < 4) memcpy(to, &part, (size_t)bytes);
    for (int i = 0; i < bytes / 4; i++) memcpy(to + 4 * (size_t)i, &w->v[reg + i][lane], 4);
}

typedef enum Space { GLOBAL, FLAT, SCRATCH, BUFFER } Space;
enum { SPACE_SHIFT = 8 }; /* Row.b: the space above the flags */

static Space space_of(const Op *o) { return (Space)(o->row->b >> SPACE_SHIFT); }

static bool scalar_pair(Wave *w, const Operand *o, uint64_t *out)
{
    uint32_t low, high;
    if (o->kind != OPERAND_SCALAR || o->words < 2)
        return fault(w, -1, "a pair of scalars is expected");
    if (!scalar_word(w, o->reg, &low) || !scalar_word(w, o->reg + 1, &high)) return false;
    *out = low | (uint64_t)high << 32;
    return true;
}

static bool vector_address(Wave *w, const Operand *o, int words, uint64_t lanes, uint64_t at[LANES])
{
    if (!vector_words(w, o, words, lanes)) return false;
    for (int l = 0; l < LANES; l++)
        at[l] = w->v[o->reg][l] | (words > 1 ? (uint64_t)w->v[o->reg + 1][l] << 32 : 0);
    return true;
}

/* Scalar base and offset of a vector each lane; either may be off. Scratch addresses are 32 bits. */
static bool two_part_address(Wave *w, const Op *o, const Operand *v, const Operand *s,
                             uint64_t lanes, uint64_t at[LANES])
{
    bool scratch = space_of(o) == SCRATCH, with_base = s->kind != OPERAND_OFF;
    uint64_t base = 0;
    for (int l = 0; l < LANES; l++) at[l] = 0;
    if (v->kind != OPERAND_OFF && !vector_address(w, v, scratch || with_base ? 1 : 2, lanes, at))
        return false;
    if (with_base && !(scratch ? read_scalar(w, s, &base) : scalar_pair(w, s, &base))) return false;
    for (int l = 0; l < LANES; l++) at[l] += base + (uint64_t)o->with.offset;
    return true;
}

/* Raw buffers: base of 48 bits, and offsets of the vector, of a scalar and of the instruction. What is
 * at or past num_records reads 0 and is not written; its lanes leave `lanes`. */
static bool buffer_address(Wave *w, const Op *o, const Operand *v, uint64_t *lanes, int bytes,
                           uint64_t at[LANES])
{
    const Operand *resource = v + 1;
    uint32_t word[4];
    uint64_t offset;
    if (o->with.idxen) return fault(w, -1, "buffers with an index are not modelled");
    for (int i = 0; i < 4; i++)
        if (!scalar_word(w, resource->reg + i, &word[i])) return false;
    if (!read_scalar(w, v + 2, &offset)) return false;
    for (int l = 0; l < LANES; l++) at[l] = 0;
    if (o->with.offen && !vector_address(w, v, 1, *lanes, at)) return false;
    for (int l = 0; l < LANES; l++) {
        uint64_t from = at[l] + (uint64_t)o->with.offset;
        if (from + (uint64_t)bytes > word[2]) *lanes &= ~((uint64_t)1 << l);
        at[l] = from + offset + (word[0] | (uint64_t)(word[1] & 0xffff) << 32);
    }
    return true;
}

/* The lanes' addresses; `first` is the operand with which the address begins. */
static bool addresses(Wave *w, const Op *o, const Operand *first, const Operand *base,
                      uint64_t *lanes, uint64_t at[LANES])
{
    switch (space_of(o)) {
    case FLAT:
        if (!vector_address(w, first, 2, *lanes, at)) return false;
        for (int l = 0; l < LANES; l++) at[l] += (uint64_t)o->with.offset;
        return true;
    case BUFFER: return buffer_address(w, o, first, lanes, o->row->a, at);
    default: return two_part_address(w, o, first, base, *lanes, at);
    }
}

static bool place(Wave *w, const Op *o, int lane, uint64_t address, LdsAccess access, uint8_t **out)
{
    size_t bytes = (size_t)o->row->a;
    if (space_of(o) == FLAT && address >> 32 == LDS_APERTURE)
        return lds_at(w, lane, (uint32_t)address, (int)bytes, access, out);
    if (space_of(o) == FLAT && address >> 32 == SCRATCH_APERTURE)
        address = (uint32_t)address;
    else if (space_of(o) != SCRATCH)
        return memory_at(w, lane, address, bytes, access != LDS_READ, out);
    size_t room = w->group->launch->kernel->scratch_bytes;
    if (address > room || bytes > room - address)
        return fault(w, lane, "scratch memory at %llu of %zu bytes", (unsigned long long)address,
                     room);
    *out = w->scratch + (size_t)lane * room + address;
    return true;
}

/* The buffer in which the bytes of all lanes lie, so that they need not be looked for one by one; NULL:
 * there is none, or it is not that simple. */
static const GfxBuffer *buffer_of_all(Launch *l, const Op *o, const uint64_t at[LANES],
                                      uint64_t lanes, bool write)
{
    uint64_t low = UINT64_MAX, high = 0, bytes = (uint64_t)o->row->a;
    if ((space_of(o) != GLOBAL && space_of(o) != BUFFER) || lanes == 0) return NULL;
    for (int i = 0; i < LANES; i++) {
        uint64_t off = (lanes >> i & 1) - 1; /* all ones in a lane that is off */
        low = (at[i] | off) < low ? at[i] | off : low;
        high = (at[i] & ~off) > high ? at[i] & ~off : high;
    }
    const GfxBuffer *b = l->last_buffer;
    if (b == NULL || !inside(b, low, high - low + bytes)) b = buffer_below(l, low);
    if (b == NULL || !inside(b, low, high - low + bytes) ||
        (write && (b == &l->own[1] || b == &l->own[2])))
        return NULL;
    l->last_buffer = b;
    *(write ? &l->counts.written_bytes : &l->counts.read_bytes) +=
        (int64_t)bytes * __builtin_popcountll(lanes);
    return b;
}

static inline bool place_in(Wave *w, const Op *o, const GfxBuffer *b, int lane, uint64_t address,
                            LdsAccess access, uint8_t **out)
{
    if (b == NULL) return place(w, o, lane, address, access, out);
    *out = (uint8_t *)b->data + (address - (uint64_t)(uintptr_t)b->data);
    return true;
}

/* The counters of one access. Flat ones may be of LDS or of memory, so they count in both and may end
 * in any order. */
static void issue(Wave *w, const Op *o)
{
    w->vm.issued++;
    if (space_of(o) != FLAT) return;
    w->lgkm.issued++;
    w->vm.unordered = w->vm.issued;
    w->lgkm.unordered = w->lgkm.issued;
}

static void await(Wave *w, const Op *o, int reg)
{
    w->v_vm[reg] = w->vm.issued;
    if (space_of(o) == FLAT) w->v_lgkm[reg] = w->lgkm.issued;
}

/* The undefined bits of what `place` gave; NULL: such memory has none. */
static uint8_t *undefined_at(const Wave *w, const Op *o, const uint8_t *at)
{
    const Group *g = w->group;
    size_t room = g->launch->kernel->scratch_bytes * (size_t)LANES;
    if (space_of(o) != SCRATCH && space_of(o) != FLAT) return NULL;
    if (at >= w->scratch && at < w->scratch + room) return w->scratch_undefined + (at - w->scratch);
    return at >= g->lds && at < g->lds + g->lds_bytes ? lds_undefined_at(g, at) : NULL;
}

/* Whether a load may write this register. Loads from memory return in order unless a flat one is among
 * them, so the later of two to one register wins. */
static bool load_target(Wave *w, const Op *o, int reg)
{
    bool ordered = space_of(o) != FLAT && w->vm.unordered <= w->vm.done;
    return (ordered && w->v_lgkm[reg] <= w->lgkm.done) || vector_unused(w, reg);
}

static int words_of_bytes(int bytes) { return bytes < 4 ? 1 : bytes / 4; }

static bool run_load(Wave *w, const Op *o)
{
    uint64_t at[LANES], exec = exec_mask(w), lanes = exec, defined = exec;
    const Operand *to = &o->dst[0];
    int bytes = o->row->a;
    const uint8_t *from;
    uint8_t *out = NULL;
    if (o->with.lds) return fault(w, -1, "loads from memory to LDS are not modelled");
    if (to->kind != OPERAND_VECTOR) return fault(w, -1, "the result is no vector register");
    if (!addresses(w, o, &o->src[0], &o->src[1], &lanes, at)) return false;
    for (int i = 0; i < words_of_bytes(bytes); i++)
        if (!load_target(w, o, to->reg + i)) return false;
    issue(w, o);
    static const uint8_t zeros[16];
    const GfxBuffer *b = buffer_of_all(w->group->launch, o, at, lanes, false);
    for (int l = 0; l < LANES; l++) {
        if (!(exec >> l & 1)) continue;
        const uint8_t *undefined = NULL;
        if (!(lanes >> l & 1))
            from = zeros;
        else if (!place_in(w, o, b, l, at[l], LDS_READ, &out))
            return false;
        else {
            from = out;
            undefined = undefined_at(w, o, out);
        }
        if (!load_lane(w, o, to->reg, l, from, undefined)) defined &= ~((uint64_t)1 << l);
    }
    for (int i = 0; i < words_of_bytes(bytes); i++) {
        w->v_defined[to->reg + i] |= defined;
        await(w, o, to->reg + i);
    }
    return true;
}

static bool run_store(Wave *w, const Op *o)
{
    uint64_t at[LANES], lanes = exec_mask(w), undefined;
    bool buffer = space_of(o) == BUFFER;
    const Operand *data = &o->src[buffer ? 0 : 1];
    int bytes = o->row->a;
    uint8_t *to = NULL;
    if (!vector_data(w, data, words_of_bytes(bytes), lanes, &undefined)) return false;
    if (!addresses(w, o, &o->src[buffer ? 1 : 0], &o->src[2], &lanes, at)) return false;
    issue(w, o);
    if (undefined != 0) begin_undefined(w->group);
    const GfxBuffer *b = buffer_of_all(w->group->launch, o, at, lanes, true);
    for (int l = 0; l < LANES; l++) {
        if (!(lanes >> l & 1)) continue;
        if (!place_in(w, o, b, l, at[l], LDS_WRITE, &to)) return false;
        uint8_t *bits = undefined_at(w, o, to);
        if ((undefined >> l & 1 || bits != NULL) && !store_undefined(w, o, data->reg, l, bits))
            return false;
        store_lane(w, o, data->reg, l, to);
    }
    return true;
}

static bool run_atomic(Wave *w, const Op *o)
{
    uint64_t at[LANES], lanes = exec_mask(w);
    bool returns = o->with.sc0;
    const Operand *address = &o->src[returns ? 1 : 0], *data = address + 1;
    int bytes = o->row->a, words = bytes / 4;
    bool compare = o->row->c == ATOMIC_CMPSWAP;
    uint8_t *to = NULL;
    if (!vector_words(w, data, compare ? 2 * words : words, lanes)) return false;
    if (!addresses(w, o, address, data + 1, &lanes, at)) return false;
    for (int i = 0; returns && i < words; i++)
        if (!vector_unused(w, o->src[0].reg + i)) return false;
    issue(w, o);
    for (int l = 0; l < LANES; l++) {
        uint64_t old = 0, v[2] = { 0, 0 }, d;
        if (!(lanes >> l & 1)) continue;
        if (!place(w, o, l, at[l], LDS_ATOMIC, &to)) return false;
        memcpy(&old, to, (size_t)bytes);
        for (int i = 0; i < (compare ? 2 * words : words); i++)
            v[i / words] |= (uint64_t)w->v[data->reg + i][l] << 32 * (i % words);
        d = atomic_result((Atomic)o->row->c, bytes, old, v[0], v[1]);
        memcpy(to, &d, (size_t)bytes);
        for (int i = 0; returns && i < words; i++)
            w->v[o->src[0].reg + i][l] = (uint32_t)(old >> 32 * i);
    }
    for (int i = 0; returns && i < words; i++) {
        w->v_defined[o->src[0].reg + i] |= lanes;
        await(w, o, o->src[0].reg + i);
    }
    return true;
}

static bool store_scalars(Wave *w, const Operand *to, int words, const uint8_t *from)
{
    w->lgkm.issued++;
    w->lgkm.unordered = w->lgkm.issued;
    for (int i = 0; i < words; i++) {
        if (w->s_lgkm[to->reg + i] > w->lgkm.done)
            return fault(w, -1,
                         "a scalar is loaded again before s_waitcnt has covered the first load");
        memcpy(&w->s[to->reg + i], from + 4 * (size_t)i, 4);
        w->s_undefined[to->reg + i] = 0;
        w->s_lgkm[to->reg + i] = w->lgkm.issued;
    }
    return true;
}

static bool run_scalar_load(Wave *w, const Op *o)
{
    uint64_t base = 0, offset = 0;
    uint8_t *from = NULL;
    size_t bytes = (size_t)o->row->a;
    if (!scalar_pair(w, &o->src[0], &base) || !read_scalar(w, &o->src[1], &offset)) return false;
    if (o->row->b != 0) base &= 0xffffffffffff; /* of a buffer's descriptor */
    uint64_t at =
        (base + (o->src[1].kind == OPERAND_CONST ? (uint64_t)(int64_t)(int32_t)offset : offset) +
         (uint64_t)o->with.offset) &
        ~(uint64_t)3;
    return memory_at(w, -1, at, bytes, false, &from) &&
           store_scalars(w, &o->dst[0], (int)bytes / 4, from);
}

/* Row.a: what one second has of the clock; 0: it counts the launch's instructions. */
static bool run_time(Wave *w, const Op *o)
{
    uint64_t now = (uint64_t)w->group->launch->counts.instructions;
    if (o->row->a != 0) now = (uint64_t)(clock_s() * o->row->a);
    return store_scalars(w, &o->dst[0], 2, (const uint8_t *)&now);
}

#define LOADS(prefix, types, space)                                                                \
    { prefix "_load_dword", types, run_load, .a = 4, .b = (space) << SPACE_SHIFT },                \
        { prefix "_load_dwordx2", types, run_load, .a = 8, .b = (space) << SPACE_SHIFT },          \
        { prefix "_load_dwordx3", types, run_load, .a = 12, .b = (space) << SPACE_SHIFT },         \
        { prefix "_load_dwordx4", types, run_load, .a = 16, .b = (space) << SPACE_SHIFT },         \
        { prefix "_load_ubyte", types, run_load, .a = 1, .b = (space) << SPACE_SHIFT },            \
        { prefix "_load_ushort", types, run_load, .a = 2, .b = (space) << SPACE_SHIFT },           \
        { prefix "_load_sbyte", types, run_load, .a = 1,                                           \
          .b = (space) << SPACE_SHIFT | WIDEN_SIGN },                                              \
        { prefix "_load_sshort", types, run_load, .a = 2,                                          \
          .b = (space) << SPACE_SHIFT | WIDEN_SIGN },                                              \
        { prefix "_load_ubyte_d16", types, run_load, .a = 1,                                       \
          .b = (space) << SPACE_SHIFT | HALF_LOW },                                                \
        { prefix "_load_ubyte_d16_hi", types, run_load, .a = 1,                                    \
          .b = (space) << SPACE_SHIFT | HALF_HIGH },                                               \
        { prefix "_load_short_d16", types, run_load, .a = 2,                                       \
          .b = (space) << SPACE_SHIFT | HALF_LOW },                                                \
    {                                                                                              \
        prefix "_load_short_d16_hi", types, run_load, .a = 2,                                      \
                                                      .b = (space) << SPACE_SHIFT | HALF_HIGH      \
    }

#define STORES(prefix, types, space)                                                               \
    { prefix "_store_dword", types, run_store, .a = 4, .b = (space) << SPACE_SHIFT },              \
        { prefix "_store_dwordx2", types, run_store, .a = 8, .b = (space) << SPACE_SHIFT },        \
        { prefix "_store_dwordx3", types, run_store, .a = 12, .b = (space) << SPACE_SHIFT },       \
        { prefix "_store_dwordx4", types, run_store, .a = 16, .b = (space) << SPACE_SHIFT },       \
        { prefix "_store_byte", types, run_store, .a = 1, .b = (space) << SPACE_SHIFT },           \
        { prefix "_store_short", types, run_store, .a = 2, .b = (space) << SPACE_SHIFT },          \
        { prefix "_store_byte_d16_hi", types, run_store, .a = 1,                                   \
          .b = (space) << SPACE_SHIFT | HALF_HIGH },                                               \
    {                                                                                              \
        prefix "_store_short_d16_hi", types, run_store, .a = 2,                                    \
                                                        .b = (space) << SPACE_SHIFT | HALF_HIGH    \
    }

#define ATOMIC_ROW(name, space, bytes, what)                                                       \
    {                                                                                              \
        name, "=xxxx", run_atomic, .a = (bytes), .b = (space) << SPACE_SHIFT, .c = (what)          \
    }
#define ATOMIC_BOTH(name, space, what)                                                             \
    ATOMIC_ROW(name, space, 4, what), ATOMIC_ROW(name "_x2", space, 8, what)
#define ATOMICS(prefix, space)                                                                     \
    ATOMIC_BOTH(prefix "_atomic_add", space, ATOMIC_ADD),                                          \
        ATOMIC_BOTH(prefix "_atomic_sub", space, ATOMIC_SUB),                                      \
        ATOMIC_BOTH(prefix "_atomic_swap", space, ATOMIC_SWAP),                                    \
        ATOMIC_BOTH(prefix "_atomic_cmpswap", space, ATOMIC_CMPSWAP),                              \
        ATOMIC_BOTH(prefix "_atomic_umin", space, ATOMIC_UMIN),                                    \
        ATOMIC_BOTH(prefix "_atomic_umax", space, ATOMIC_UMAX),                                    \
        ATOMIC_BOTH(prefix "_atomic_smin", space, ATOMIC_SMIN),                                    \
        ATOMIC_BOTH(prefix "_atomic_smax", space, ATOMIC_SMAX),                                    \
        ATOMIC_BOTH(prefix "_atomic_and", space, ATOMIC_AND),                                      \
        ATOMIC_BOTH(prefix "_atomic_or", space, ATOMIC_OR),                                        \
        ATOMIC_BOTH(prefix "_atomic_xor", space, ATOMIC_XOR),                                      \
        ATOMIC_BOTH(prefix "_atomic_inc", space, ATOMIC_INC),                                      \
        ATOMIC_BOTH(prefix "_atomic_dec", space, ATOMIC_DEC),                                      \
        ATOMIC_ROW(prefix "_atomic_add_f32", space, 4, ATOMIC_ADD_F),                              \
        ATOMIC_ROW(prefix "_atomic_add_f64", space, 8, ATOMIC_ADD_F),                              \
        ATOMIC_ROW(prefix "_atomic_min_f64", space, 8, ATOMIC_MIN_F),                              \
        ATOMIC_ROW(prefix "_atomic_max_f64", space, 8, ATOMIC_MAX_F),                              \
        ATOMIC_ROW(prefix "_atomic_pk_add_f16", space, 4, ATOMIC_PK_ADD_F16),                      \
        ATOMIC_ROW(prefix "_atomic_pk_add_bf16", space, 4, ATOMIC_PK_ADD_BF16)

#define SCALAR_LOAD(name, bytes)                                                                   \
    { "s_load_" name, "x=xx", run_scalar_load, .a = (bytes) },                                     \
    {                                                                                              \
        "s_buffer_load_" name, "x=xx", run_scalar_load, .a = (bytes), .b = 1                       \
    }

const Row memory_rows[] = {
    LOADS("global", "x=xx", GLOBAL),
    LOADS("flat", "x=x", FLAT),
    LOADS("scratch", "x=xx", SCRATCH),
    LOADS("buffer", "x=xxx", BUFFER),
    STORES("global", "=xxx", GLOBAL),
    STORES("flat", "=xx", FLAT),
    STORES("scratch", "=xxx", SCRATCH),
    STORES("buffer", "=xxxx", BUFFER),
    ATOMICS("global", GLOBAL),
    ATOMICS("flat", FLAT),
    SCALAR_LOAD("dword", 4),
    SCALAR_LOAD("dwordx2", 8),
    SCALAR_LOAD("dwordx4", 16),
    SCALAR_LOAD("dwordx8", 32),
    SCALAR_LOAD("dwordx16", 64),
    { "s_memtime", "q=", .run = run_time },
    { "s_memrealtime", "q=", .run = run_time, .a = 100000000 },
    { 0 },
};
