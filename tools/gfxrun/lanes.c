/* lanes: instructions between the lanes of a wave and its scalars. */
#include "gfxrun/lane_math.h"

static bool lane_number(Wave *w, const Operand *o, int *out)
{
    uint64_t v;
    if (!read_scalar(w, o, &v)) return false;
    *out = (int)(v % LANES);
    return true;
}

static bool read_lane(Wave *w, const Op *o, int lane)
{
    const Operand *from = &o->src[0];
    if (from->kind != OPERAND_VECTOR) return fault(w, -1, "the source is no vector register");
    return vector_ready(w, from->reg, (uint64_t)1 << lane) &&
           write_scalar(w, &o->dst[0], w->v[from->reg][lane]);
}

/* Lanes that are off can be read, too. */
static bool run_readlane(Wave *w, const Op *o)
{
    int lane;
    return lane_number(w, &o->src[1], &lane) && read_lane(w, o, lane);
}

/* The lowest lane that is on; lane 0 if none is. */
static bool run_readfirstlane(Wave *w, const Op *o)
{
    uint64_t exec = exec_mask(w);
    return read_lane(w, o, exec == 0 ? 0 : __builtin_ctzll(exec));
}

static bool run_writelane(Wave *w, const Op *o)
{
    int lane, reg = o->dst[0].reg;
    uint64_t v;
    if (!read_scalar(w, &o->src[0], &v) || !lane_number(w, &o->src[1], &lane)) return false;
    if (!vector_unused(w, reg)) return false;
    w->v[reg][lane] = (uint32_t)v;
    w->v_defined[reg] |= (uint64_t)1 << lane;
    return true;
}

/* v_mbcnt: b + how many bits of a stand below the lane; the low 32 lanes, then the high ones. */
static void mbcnt_lo(Results *restrict r, const uint64_t *restrict a, const uint64_t *restrict b,
                     const uint64_t *restrict c)
{
    (void)c;
    for (int l = 0; l < LANES; l++) {
        uint64_t below = l >= 32 ? 0xffffffff : ((uint64_t)1 << l) - 1;
        r->d[l] = (uint64_t)__builtin_popcountll(a[l] & 0xffffffff & below) + b[l];
    }
}

static void mbcnt_hi(Results *restrict r, const uint64_t *restrict a, const uint64_t *restrict b,
                     const uint64_t *restrict c)
{
    (void)c;
    for (int l = 0; l < LANES; l++) {
        uint64_t below = l <= 32 ? 0 : ((uint64_t)1 << (l - 32)) - 1;
        r->d[l] = (uint64_t)__builtin_popcountll(a[l] & 0xffffffff & below) + b[l];
    }
}

const Row lane_rows[] = {
    { "v_readlane_b32", "u=uu", .run = run_readlane },
    { "v_readfirstlane_b32", "u=u", .run = run_readfirstlane },
    { "v_writelane_b32", "u=uu", .run = run_writelane },
    { "v_mbcnt_lo_u32_b32", "u=uu", .run = run_lanes, .lane = mbcnt_lo },
    { "v_mbcnt_hi_u32_b32", "u=uu", .run = run_lanes, .lane = mbcnt_hi },
    { 0 },
};
