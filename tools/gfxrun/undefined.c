/*
 * undefined: what becomes of bits that were never written.
 *
 * A register has a bit a lane that says whether it is defined. An instruction whose sources are all
 * defined pays for no more than a test of these masks. One that reads an undefined source is not
 * refused: compilers copy, combine and select such bits and never look at the result. It is run again
 * and again with other numbers in the undefined places. A bit of a result that changes is undefined.
 * So every instruction has its own rule without a table of rules: the low half of a product and sum
 * does not depend on the addend's high half, nor v_cndmask on the side that it does not choose.
 * Copies alone have one that is written down, since they are so frequent.
 *
 * A bit that could change may stay the same by chance in all trials. That is rare: one of the trials
 * flips all undefined bits, four have the extremes, and others draw numbers for each lane. Comparisons
 * would often stay the same. In a trial they give a hash of what they compare, so that any undefined
 * bit counts.
 *
 * Undefined bits are an error where they become visible: in an address, a branch, exec, an atomic or
 * memory outside the workgroup. LDS and scratch memory keep which of their bits are undefined.
 */
#include "gfxrun/machine.h"

#include <stdio.h>

enum {
    TRIALS = 16,
    CELLS = 48, /* a matrix instruction has up to 40 registers */
};

/* A register of the instruction. Of a scalar one only the first lane is used. */
typedef struct Cell {
    int reg;
    bool result;
    uint32_t lgkm; /* v_lgkm before */
    uint32_t before[LANES], undefined[LANES], first[LANES], changed[LANES];
} Cell;

typedef struct Trials {
    int n;
    bool scc, scc_undefined, scc_first, scc_changed, exec_changed;
    uint64_t exec, exec_first;
    Counter lgkm;
    GfxCounts counts;
    Cell cells[CELLS];
} Trials;

bool note_undefined(Wave *w, int reg, int lane)
{
    w->undefined_reg = reg;
    w->undefined_lane = lane;
    return false;
}

uint32_t undefined_bits(const Wave *w, int reg, int lane)
{
    if (w->v_defined[reg] >> lane & 1) return 0;
    return w->v_partly[reg] >> lane & 1 ? w->v_undefined[reg][lane] : UINT32_MAX;
}

void set_undefined(Wave *w, int reg, int lane, uint32_t bits)
{
    uint64_t mask = (uint64_t)1 << lane;
    w->v_undefined[reg][lane] = bits;
    w->v_partly[reg] |= mask;
    w->v_defined[reg] = bits == 0 ? w->v_defined[reg] | mask : w->v_defined[reg] & ~mask;
}

static const char *name_of(char *to, size_t bytes, int reg)
{
    if (reg == REG_SCC) return "scc";
    return reg < VECTOR_REGS ? vector_name(to, bytes, reg)
                             : scalar_name(to, bytes, reg - FIRST_SCALAR);
}

bool undefined_fault(Wave *w)
{
    int reg = w->undefined_reg, lane = w->undefined_lane;
    Origin from = w->from[reg];
    char name[16], cause[16];
    const char *what = name_of(name, sizeof name, reg);
    if (from.line == 0) return fault(w, lane, "%s is read before it was written", what);
    if (from.reg == REG_MEMORY)
        return fault(w, lane, "%s is undefined: in line %d it was loaded from undefined bytes",
                     what, from.line);
    return fault(w, lane, "%s is undefined: %s is read before it was written in line %d", what,
                 name_of(cause, sizeof cause, from.reg), from.line);
}

static Cell *cell_of(Trials *t, int reg)
{
    for (int i = 0; i < t->n; i++)
        if (t->cells[i].reg == reg) return &t->cells[i];
    if (t->n == CELLS) return NULL;
    t->cells[t->n] = (Cell){ .reg = reg };
    return &t->cells[t->n++];
}

static void keep_cell(const Wave *w, Cell *c)
{
    if (c->reg >= FIRST_SCALAR) {
        c->undefined[0] = w->s_undefined[c->reg - FIRST_SCALAR];
        c->before[0] = w->s[c->reg - FIRST_SCALAR] & ~c->undefined[0];
        return;
    }
    c->lgkm = w->v_lgkm[c->reg];
    for (int l = 0; l < LANES; l++) {
        c->undefined[l] = undefined_bits(w, c->reg, l);
        c->before[l] = w->v[c->reg][l] & ~c->undefined[l];
    }
}

static bool keep_operands(Wave *w, Trials *t, const Operand *o, int n, bool result)
{
    for (int i = 0; i < n; i++) {
        if (o[i].kind != OPERAND_VECTOR && o[i].kind != OPERAND_SCALAR) continue;
        int first = o[i].reg + (o[i].kind == OPERAND_SCALAR ? FIRST_SCALAR : 0);
        for (int k = 0; k < o[i].words; k++) {
            Cell *c = cell_of(t, first + k);
            if (c == NULL) return fault(w, -1, "too many registers with undefined bits");
            c->result |= result;
            keep_cell(w, c);
        }
    }
    return true;
}

/* What stands in the undefined bits in a trial: zeros, ones, the extremes of floats and of integers,
 * small integers, floats near 1, then any numbers. */
static uint32_t filling(int trial, uint32_t place)
{
    uint32_t r = place * 0x9e3779b1 + (uint32_t)trial * 0x85ebca6b;
    r = (r ^ r >> 15) * 0x2c1b3c6d;
    r = (r ^ r >> 12) * 0x297a2d39;
    r ^= r >> 15;
    switch (trial) {
    case 0: return 0;
    case 1: return UINT32_MAX;
    case 2: return 0x7f7fffff;
    case 3: return 0xff7fffff;
    case 4: return 0x7fffffff;
    case 5: return 0x80000000;
    case 6: return r & 15;
    case 7: return (r & 0x80ffffff) + 0x3f800000;
    default: return r;
    }
}

/* The wave as it was before the instruction, with a trial's numbers. */
static void begin_trial(Wave *w, const Trials *t, int trial)
{
    for (int i = 0; i < t->n; i++) {
        const Cell *c = &t->cells[i];
        uint32_t place = (uint32_t)c->reg * LANES;
        if (c->reg >= FIRST_SCALAR) {
            w->s[c->reg - FIRST_SCALAR] = c->before[0] | (c->undefined[0] & filling(trial, place));
            continue;
        }
        w->v_lgkm[c->reg] = c->lgkm;
        for (uint32_t l = 0; l < LANES; l++)
            w->v[c->reg][l] =
                c->before[l] |
                (c->undefined[l] == 0 ? 0 : c->undefined[l] & filling(trial, place + l));
    }
    w->s[EXEC] = (uint32_t)t->exec;
    w->s[EXEC + 1] = (uint32_t)(t->exec >> 32);
    w->scc = t->scc_undefined ? filling(trial, REG_SCC) & 1 : t->scc;
    w->lgkm = t->lgkm;
    w->group->launch->counts = t->counts;
}

static void end_trial(const Wave *w, Trials *t, int trial)
{
    for (int i = 0; i < t->n; i++) {
        Cell *c = &t->cells[i];
        bool scalar = c->reg >= FIRST_SCALAR;
        const uint32_t *now = scalar ? &w->s[c->reg - FIRST_SCALAR] : w->v[c->reg];
        if (!c->result) continue;
        for (int l = 0; l < (scalar ? 1 : LANES); l++) {
            if (trial == 0) c->first[l] = now[l];
            c->changed[l] |= now[l] ^ c->first[l];
        }
    }
    if (trial == 0) {
        t->exec_first = exec_mask(w);
        t->scc_first = w->scc;
    }
    t->exec_changed |= exec_mask(w) != t->exec_first;
    t->scc_changed |= w->scc != t->scc_first;
}

/* After the last run, which was with zeros: marks what changed in the trials. */
static void mark_results(Wave *w, const Trials *t, Origin from)
{
    for (int i = 0; i < t->n; i++) {
        const Cell *c = &t->cells[i];
        uint32_t any = 0;
        if (!c->result) continue;
        if (c->reg >= FIRST_SCALAR)
            any = w->s_undefined[c->reg - FIRST_SCALAR] = c->changed[0];
        else
            for (int l = 0; l < LANES; l++) {
                set_undefined(w, c->reg, l, c->changed[l]);
                any |= c->changed[l];
            }
        if (any != 0) w->from[c->reg] = from;
    }
    w->scc_undefined = t->scc_changed;
    if (t->scc_changed) w->from[REG_SCC] = from;
}

bool run_undefined(Wave *w, const Op *o)
{
    Trials t;
    Origin from = w->from[w->undefined_reg];
    if (from.line == 0) from = (Origin){ o->line, (int16_t)w->undefined_reg };
    t.n = 0;
    t.scc_changed = t.exec_changed = false;
    t.scc = w->scc;
    t.scc_undefined = w->scc_undefined;
    t.exec = exec_mask(w);
    t.lgkm = w->lgkm;
    t.counts = w->group->launch->counts;
    if (!keep_operands(w, &t, o->src, o->n_src, false) ||
        !keep_operands(w, &t, o->dst, o->n_dst, true))
        return false;
    w->turn = TURN_TRIAL;
    for (int trial = 0; trial < TRIALS; trial++) {
        begin_trial(w, &t, trial);
        if (!o->row->run(w, o)) return false;
        end_trial(w, &t, trial);
    }
    if (t.exec_changed) return undefined_fault(w);
    begin_trial(w, &t, 0);
    w->turn = TURN_LAST;
    if (!o->row->run(w, o)) return false;
    w->turn = TURN_ONLY;
    mark_results(w, &t, from);
    w->undefined_reg = -1;
    return true;
}

void copy_undefined(Wave *w, const Op *o, int from, int to, uint64_t lanes)
{
    w->from[to] = w->from[from].line == 0 ? (Origin){ o->line, (int16_t)from } : w->from[from];
    for (; lanes != 0; lanes &= lanes - 1) {
        int l = __builtin_ctzll(lanes);
        set_undefined(w, to, l, undefined_bits(w, from, l));
    }
}

void begin_undefined(Group *g)
{
    if (!g->has_undefined) memset(g->lds_undefined, 0, g->lds_bytes);
    g->has_undefined = true;
}

/* The undefined bits of a lane's bytes in registers, as they lie in memory. */
static void bytes_of(const Wave *w, int reg, int bytes, int flags, int lane, uint8_t to[16])
{
    for (int i = 0; i < (bytes + 3) / 4; i++) {
        uint32_t bits = undefined_bits(w, reg + i, lane) >> (flags & HALF_HIGH ? 16 : 0);
        memcpy(to + 4 * (size_t)i, &bits, 4);
    }
}

bool store_undefined(Wave *w, const Op *o, int reg, int lane, uint8_t *to)
{
    int bytes = o->row->a;
    uint8_t bits[16] = { 0 };
    bytes_of(w, reg, bytes, o->row->b, lane, bits);
    if (to != NULL) return memcpy(to, bits, (size_t)bytes), true;
    for (int i = 0; i < bytes; i++)
        if (bits[i] != 0) return note_undefined(w, reg + i / 4, lane);
    return true;
}

void load_undefined(Wave *w, const Op *o, int reg, int lane, const uint8_t *from)
{
    static const uint8_t zeros[16];
    int bytes = o->row->a, flags = o->row->b;
    if (from == NULL) from = zeros;
    for (int i = 0; i < (bytes + 3) / 4; i++) {
        uint32_t bits = 0, old = undefined_bits(w, reg + i, lane);
        memcpy(&bits, from + 4 * (size_t)i, bytes < 4 ? (size_t)bytes : 4);
        if (bits != 0) w->from[reg + i] = (Origin){ o->line, REG_MEMORY };
        if (flags & WIDEN_SIGN) bits = sign_extended(bits, 8 * bytes);
        if (flags & HALF_LOW) bits = (old & 0xffff0000) | (bits & 0xffff);
        if (flags & HALF_HIGH) bits = (old & 0xffff) | bits << 16;
        set_undefined(w, reg + i, lane, bits);
    }
}
