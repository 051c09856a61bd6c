/* operand: reads and writes of registers, with the checks of gfxrun.h: a value must have been written,
 * and its load must have been waited for. */
#include "gfxrun/machine.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* In brackets, so that it is not the macro of the analyzer. */
bool(fault)(Wave *w, int lane, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(w->fault, sizeof w->fault, fmt, args);
    va_end(args);
    w->fault_lane = lane;
    return false;
}

const char *vector_name(char *to, size_t bytes, int reg)
{
    (void)snprintf(to, bytes, "%c%d", reg >= AGPR ? 'a' : 'v', reg % AGPR);
    return to;
}

/* A load that no wait has covered yet would still change the register. */
bool vector_unused(Wave *w, int reg)
{
    char name[16];
    if (w->v_vm[reg] <= w->vm.done && w->v_lgkm[reg] <= w->lgkm.done) return true;
    return fault(w, -1, "%s is used before s_waitcnt has covered the load that fills it (%s)",
                 vector_name(name, sizeof name, reg),
                 w->v_vm[reg] > w->vm.done ? "vmcnt" : "lgkmcnt");
}

bool vector_ready(Wave *w, int reg, uint64_t lanes)
{
    uint64_t missing = lanes & ~w->v_defined[reg];
    if (!vector_unused(w, reg)) return false;
    if (missing == 0 || w->turn != TURN_ONLY) return true;
    return note_undefined(w, reg, __builtin_ctzll(missing));
}

const char *scalar_name(char *to, size_t bytes, int reg)
{
    const char *name = reg == VCC        ? "vcc_lo"
                       : reg == VCC + 1  ? "vcc_hi"
                       : reg == M0       ? "m0"
                       : reg == EXEC     ? "exec_lo"
                       : reg == EXEC + 1 ? "exec_hi"
                                         : NULL;
    if (name != NULL) return name;
    (void)snprintf(to, bytes, "s%d", reg);
    return to;
}

static bool scalar_arrived(Wave *w, int reg)
{
    char name[16];
    if (w->s_lgkm[reg] <= w->lgkm.done) return true;
    return fault(w, -1, "%s is used before s_waitcnt has covered the load that fills it (lgkmcnt)",
                 scalar_name(name, sizeof name, reg));
}

bool scalar_word(Wave *w, int reg, uint32_t *out)
{
    if (!scalar_arrived(w, reg)) return false;
    if (w->s_undefined[reg] != 0 && w->turn == TURN_ONLY)
        return note_undefined(w, FIRST_SCALAR + reg, -1);
    *out = w->s[reg];
    return true;
}

/* Of a mask only the bits of these lanes must be defined. */
static bool read_mask(Wave *w, const Operand *o, uint64_t lanes, uint64_t *out)
{
    if (o->kind != OPERAND_SCALAR || o->words < 2) return read_scalar(w, o, out);
    const uint32_t *undefined = &w->s_undefined[o->reg];
    uint64_t missing = lanes & (undefined[0] | (uint64_t)undefined[1] << 32);
    if (!scalar_arrived(w, o->reg) || !scalar_arrived(w, o->reg + 1)) return false;
    if (missing != 0 && w->turn == TURN_ONLY) {
        int lane = __builtin_ctzll(missing);
        return note_undefined(w, FIRST_SCALAR + o->reg + lane / 32, lane);
    }
    *out = w->s[o->reg] | (uint64_t)w->s[o->reg + 1] << 32;
    return true;
}

static bool read_scc(Wave *w, uint64_t *out)
{
    *out = w->scc;
    return scc_ready(w);
}

bool read_scalar(Wave *w, const Operand *o, uint64_t *out)
{
    uint32_t low = 0, high = 0;
    switch (o->kind) {
    case OPERAND_CONST: *out = o->value; return true;
    case OPERAND_SCC: return read_scc(w, out);
    case OPERAND_SCALAR:
        if (o->read_words & 1 && !scalar_word(w, o->reg, &low)) return false;
        if (o->read_words & 2 && o->words > 1 && !scalar_word(w, o->reg + 1, &high)) return false;
        *out = low | (uint64_t)high << 32;
        return true;
    default: return fault(w, -1, "a scalar operand is missing");
    }
}

void write_scalar_reg(Wave *w, int reg, int words, uint64_t v)
{
    w->s[reg] = (uint32_t)v;
    w->s_undefined[reg] = 0;
    if (words == 1) return;
    w->s[reg + 1] = (uint32_t)(v >> 32);
    w->s_undefined[reg + 1] = 0;
}

bool write_scalar(Wave *w, const Operand *o, uint64_t v)
{
    char name[16];
    int words = o->type_words;
    if (o->kind != OPERAND_SCALAR) return fault(w, -1, "the result is no scalar register");
    for (int i = 0; i < words; i++)
        if (w->s_lgkm[o->reg + i] > w->lgkm.done)
            return fault(w, -1, "%s is overwritten before s_waitcnt has covered its load (lgkmcnt)",
                         scalar_name(name, sizeof name, o->reg + i));
    write_scalar_reg(w, o->reg, words, v);
    return true;
}

static void load_lanes(const Wave *w, int reg, int words, uint64_t out[LANES])
{
    const uint32_t *low = w->v[reg], *high = w->v[reg + words - 1];
    if (words == 1)
        for (int l = 0; l < LANES; l++) out[l] = low[l];
    else
        for (int l = 0; l < LANES; l++) out[l] = low[l] | (uint64_t)high[l] << 32;
}

void store_lanes(Wave *w, int reg, int words, uint64_t lanes, const uint64_t v[LANES])
{
    for (int i = 0; i < words; i++) {
        uint32_t *to = w->v[reg + i];
        if (lanes == ~(uint64_t)0)
            for (int l = 0; l < LANES; l++) to[l] = (uint32_t)(v[l] >> 32 * i);
        else
            for (int l = 0; l < LANES; l++)
                to[l] = lanes >> l & 1 ? (uint32_t)(v[l] >> 32 * i) : to[l];
        w->v_defined[reg + i] |= lanes;
    }
}

static int sign_bit(char type) { return type == 'd' ? 63 : type == 'h' ? 15 : 31; }

/* The parts that SDWA selects. */
static void select_part(const Operand *s, uint64_t v[LANES])
{
    int bits = s->part == PART_BYTE ? 8 : 16, shift = bits * s->part_index;
    for (int l = 0; l < LANES; l++) {
        uint64_t part = v[l] >> shift & ((1u << bits) - 1);
        if (s->sign_extend)
            part = (uint32_t)((int32_t)((uint32_t)part << (32 - bits)) >> (32 - bits));
        v[l] = part;
    }
}

/* Pairs: op_sel says which half the low result reads, op_sel_hi which one the high result does. */
static void select_halves(const Modifiers *m, int i, int bits, uint64_t v[LANES])
{
    uint64_t mask = ((uint64_t)1 << bits) - 1, sign = (uint64_t)1 << (bits - 1);
    int low = m->op_sel >> i & 1, high = m->op_sel_hi >> i & 1;
    bool negate_low = m->neg_lo >> i & 1, negate_high = m->neg_hi >> i & 1;
    for (int l = 0; l < LANES; l++) {
        uint64_t a = v[l] >> bits * low & mask, b = v[l] >> bits * high & mask;
        if (negate_low) a ^= sign;
        if (negate_high) b ^= sign;
        v[l] = a | b << bits;
    }
}

static void modify(const Op *o, int i, uint64_t v[LANES])
{
    const Operand *s = &o->src[i];
    if (s->part != PART_ALL) select_part(s, v);
    if (s->type == 'p') select_halves(&o->with, i, 16, v);
    if (s->type == 'P') select_halves(&o->with, i, 32, v);
    if (s->type == 'h' || s->type == 'w') {
        int shift = o->with.op_sel >> i & 1 ? 16 : 0;
        for (int l = 0; l < LANES; l++) v[l] = v[l] >> shift & 0xffff;
    }
    uint64_t sign = (uint64_t)1 << sign_bit(s->type);
    if (s->absolute)
        for (int l = 0; l < LANES; l++) v[l] &= ~sign;
    if (s->negate)
        for (int l = 0; l < LANES; l++) v[l] ^= sign;
}

/* Where lane l of a row of 16 reads; -1: from nowhere. */
static int dpp_lane(int kind, int by, int l)
{
    int row = l & ~15, at = l & 15;
    switch (kind) {
    case DPP_QUAD_PERM: return (l & ~3) | (by >> 2 * (l & 3) & 3);
    case DPP_ROW_SHL: return at + by < 16 ? l + by : -1;
    case DPP_ROW_SHR: return at >= by ? l - by : -1;
    case DPP_ROW_ROR: return row | ((at - by) & 15);
    case DPP_WAVE_SHL: return l + 1 < LANES ? l + 1 : -1;
    case DPP_WAVE_SHR: return l - 1;
    case DPP_WAVE_ROL: return (l + 1) & 63;
    case DPP_WAVE_ROR: return (l - 1) & 63;
    case DPP_ROW_MIRROR: return row | (15 - at);
    case DPP_ROW_HALF_MIRROR: return (l & ~7) | (7 - (l & 7));
    case DPP_ROW_BCAST:
        if (by == 15) return row - 1;
        return l >= 32 ? 31 : -1;
    default: return row | by;
    }
}

/* Which lane each lane reads, which lanes get a result and which of them read 0 (CDNA3 ISA, "Data
 * Parallel Processing"): a lane without a source keeps its register, or with bound_ctrl reads 0. */
static void dpp_lanes(const Wave *w, const Op *o, int from[LANES], uint64_t *write, uint64_t *zero)
{
    const Modifiers *m = &o->with;
    uint64_t exec = exec_mask(w);
    *write = *zero = 0;
    for (int l = 0; l < LANES; l++) {
        from[l] = dpp_lane(m->dpp, m->dpp_by, l);
        bool valid = from[l] >= 0 && exec >> from[l] & 1;
        bool wanted = (m->row_mask >> l / 16 & 1) && (m->bank_mask >> l % 16 / 4 & 1);
        if (!(exec >> l & 1) || !wanted || (!valid && !m->bound_ctrl)) continue;
        *write |= (uint64_t)1 << l;
        if (!valid) *zero |= (uint64_t)1 << l;
    }
}

static bool fetch_dpp(Wave *w, const Op *o, uint64_t out[LANES])
{
    const Operand *s = &o->src[0];
    int from[LANES], words = s->type_words;
    uint64_t write, zero, sources = 0, v[LANES];
    dpp_lanes(w, o, from, &write, &zero);
    for (int l = 0; l < LANES; l++)
        if ((write & ~zero) >> l & 1) sources |= (uint64_t)1 << from[l];
    for (int i = 0; i < words; i++)
        if (!vector_ready(w, s->reg + i, sources)) return false;
    load_lanes(w, s->reg, words, v);
    for (int l = 0; l < LANES; l++) out[l] = (write & ~zero) >> l & 1 ? v[from[l]] : 0;
    modify(o, 0, out);
    return true;
}

bool fetch(Wave *w, const Op *o, int i, uint64_t lanes, uint64_t out[LANES])
{
    const Operand *s = &o->src[i];
    uint64_t v = 0;
    if (i == 0 && o->with.dpp != DPP_NONE) return fetch_dpp(w, o, out);
    if (s->kind == OPERAND_VECTOR) {
        int words = s->type_words;
        for (int k = 0; k < words; k++)
            if (s->read_words >> k & 1 && !vector_ready(w, s->reg + k, lanes)) return false;
        load_lanes(w, s->reg, words, out);
    } else {
        bool mask = s->type == 'm';
        if (!(mask ? read_mask(w, s, lanes, &v) : read_scalar(w, s, &v))) return false;
        for (int l = 0; l < LANES; l++) out[l] = mask ? v >> l & 1 : v;
    }
    if (s->modified) modify(o, i, out);
    return true;
}

/* omod, then clamp. */
static bool modify_result(Wave *w, const Op *o, uint64_t d[LANES])
{
    const Modifiers *m = &o->with;
    if (o->dst[0].type != 'f') return fault(w, -1, "this modifier of the result is not known");
    float by = m->omod == -2 ? 0.5F : m->omod == 0 ? 1.0F : (float)m->omod;
    for (int l = 0; l < LANES; l++) {
        uint32_t bits = (uint32_t)d[l];
        float f;
        memcpy(&f, &bits, sizeof f);
        f *= by;
        if (m->clamp) f = f > 0 ? (f < 1 ? f : 1) : 0;
        memcpy(&bits, &f, sizeof f);
        d[l] = bits;
    }
    return true;
}

/* A result of 8 or 16 bits: the rest of the register becomes zero, its sign, or stays. */
static void place_part(const Wave *w, const Op *o, uint64_t d[LANES])
{
    const Modifiers *m = &o->with;
    int bits = m->dst_part == PART_BYTE ? 8 : 16, shift = bits * m->dst_index;
    uint32_t mask = ((1u << bits) - 1) << shift;
    for (int l = 0; l < LANES; l++) {
        uint32_t old = w->v[o->dst[0].reg][l], v = (uint32_t)d[l] << shift & mask;
        if (m->dst_preserve)
            v |= old & ~mask;
        else if (m->dst_sign_extend)
            v = (uint32_t)((int32_t)(v << (32 - bits - shift)) >> (32 - bits - shift));
        d[l] = v;
    }
}

/* The high half of the register, where op_sel says so; the low one stays. */
static void place_high(const Wave *w, const Op *o, uint64_t d[LANES])
{
    for (int l = 0; l < LANES; l++)
        d[l] = (w->v[o->dst[0].reg][l] & 0xffff) | (d[l] & 0xffff) << 16;
}

static void place_low(const Wave *w, const Op *o, uint64_t d[LANES])
{
    for (int l = 0; l < LANES; l++) d[l] = (w->v[o->dst[0].reg][l] & 0xffff0000) | (d[l] & 0xffff);
}

static bool store_result(Wave *w, const Op *o, uint64_t lanes, uint64_t d[LANES])
{
    const Operand *to = &o->dst[0];
    int words = to->type_words;
    if (to->kind != OPERAND_VECTOR) return fault(w, -1, "the result is no vector register");
    if ((o->with.omod != 0 || o->with.clamp) && !modify_result(w, o, d)) return false;
    bool half = to->type == 'h' || to->type == 'w';
    bool high = half && o->with.op_sel >> o->n_src & 1, low = half && o->row->c == KEEPS_REST;
    for (int i = 0; i < words; i++)
        if (!vector_unused(w, to->reg + i)) return false;
    if ((high || low || o->with.dst_preserve) && !vector_ready(w, to->reg, lanes)) return false;
    if (o->with.dst_part != PART_ALL) place_part(w, o, d);
    if (high)
        place_high(w, o, d);
    else if (low)
        place_low(w, o, d);
    store_lanes(w, to->reg, words, lanes, d);
    return true;
}

static uint64_t mask_of(const uint64_t v[LANES], uint64_t lanes)
{
    uint64_t mask = 0;
    for (int l = 0; l < LANES; l++) mask |= (v[l] & 1) << l;
    return mask & lanes;
}

bool run_lanes(Wave *w, const Op *o)
{
    uint64_t in[3][LANES], lanes = exec_mask(w), zero;
    Results r;
    int from[LANES];
    for (int i = 0; i < o->n_src; i++)
        if (!fetch(w, o, i, lanes, in[i])) return false;
    o->row->lane(&r, in[0], in[o->n_src > 1 ? 1 : 0], in[o->n_src > 2 ? 2 : 0]);
    if (o->n_dst > 1 && !write_scalar(w, &o->dst[1], mask_of(r.d2, lanes))) return false;
    if (o->with.dpp != DPP_NONE) dpp_lanes(w, o, from, &lanes, &zero);
    return store_result(w, o, lanes, r.d);
}

bool run_compare(Wave *w, const Op *o)
{
    uint64_t in[2][LANES], lanes = exec_mask(w);
    Results r;
    for (int i = 0; i < 2; i++)
        if (!fetch(w, o, i, lanes, in[i])) return false;
    if (w->turn == TURN_TRIAL)
        for (int l = 0; l < LANES; l++) r.d[l] = compared_in_trial(in[0][l], in[1][l]);
    else
        o->row->lane(&r, in[0], in[1], in[1]);
    return write_scalar(w, &o->dst[0], mask_of(r.d, lanes));
}
