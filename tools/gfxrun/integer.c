/* integer: vector arithmetic on integers and bits. */
#include "gfxrun/lane_math.h"

#define S(x) as_i32(x)
#define U(x) ((uint32_t)(x))

LANE_FN(mov, a)
LANE_FN(add, a + b)
LANE_FN(sub, a - b)
LANE_FN(subrev, b - a)
LANE_FN2(add_co, a + b, (U(a) + (uint64_t)U(b)) >> 32)
LANE_FN2(addc_co, a + b + c, (U(a) + (uint64_t)U(b) + c) >> 32)
LANE_FN2(sub_co, a - b, U(a) < U(b))
LANE_FN2(subrev_co, b - a, U(b) < U(a))
LANE_FN2(subb_co, a - b - c, U(a) < (uint64_t)U(b) + c)
LANE_FN2(subbrev_co, b - a - c, U(b) < (uint64_t)U(a) + c)
LANE_FN(add3, a + b + c)
LANE_FN(and_, a &b)
LANE_FN(or_, a | b)
LANE_FN(xor_, a ^ b)
LANE_FN(not_, ~a)
LANE_FN(xnor, ~(a ^ b))
LANE_FN(or3, a | b | c)
LANE_FN(and_or, (a & b) | c)
LANE_FN(lshl_or, U(a) << (b & 31) | c)
LANE_FN(lshl_add, (U(a) << (b & 31)) + c)
LANE_FN(add_lshl, U(a + b) << (c & 31))
LANE_FN(xad, (a ^ b) + c)
LANE_FN(lshl_add_u64, (a << (b & 7)) + c)
LANE_FN(lshlrev, U(b) << (a & 31))
LANE_FN(lshrrev, U(b) >> (a & 31))
LANE_FN(ashrrev, U(S(b) >> (a & 31)))
LANE_FN(lshlrev_b64, b << (a & 63))
LANE_FN(lshrrev_b64, b >> (a & 63))
LANE_FN(ashrrev_i64, (uint64_t)((int64_t)b >> (a & 63)))
LANE_FN(mul_lo, U(a) * (uint64_t)U(b))
LANE_FN(mul_hi_u32, U(a) * (uint64_t)U(b) >> 32)
LANE_FN(mul_hi_i32, (uint64_t)((int64_t)S(a) * S(b)) >> 32)
LANE_FN(mul_u24, (a & 0xffffff) * (b & 0xffffff))
LANE_FN(mul_hi_u24, (a & 0xffffff) * (b & 0xffffff) >> 32)
LANE_FN(mul_i24, (uint64_t)((int64_t)(S(a << 8) >> 8) * (S(b << 8) >> 8)))
LANE_FN(mad_u24, (a & 0xffffff) * (b & 0xffffff) + c)
LANE_FN(mad_i24, (uint64_t)((int64_t)(S(a << 8) >> 8) * (S(b << 8) >> 8)) + c)
LANE_FN2(mad_u64_u32, U(a) * (uint64_t)U(b) + c, U(a) * (uint64_t)U(b) + c < c)
LANE_FN2(mad_i64_i32, (uint64_t)((int64_t)S(a) * S(b)) + c, 0)
LANE_FN(min_u32, U(a) < U(b) ? a : b)
LANE_FN(max_u32, U(a) > U(b) ? a : b)
LANE_FN(min_i32, S(a) < S(b) ? a : b)
LANE_FN(max_i32, S(a) > S(b) ? a : b)
LANE_FN(min3_u32, U(a) < U(b) ? (U(a) < U(c) ? a : c) : (U(b) < U(c) ? b : c))
LANE_FN(max3_u32, U(a) > U(b) ? (U(a) > U(c) ? a : c) : (U(b) > U(c) ? b : c))
LANE_FN(min3_i32, S(a) < S(b) ? (S(a) < S(c) ? a : c) : (S(b) < S(c) ? b : c))
LANE_FN(max3_i32, S(a) > S(b) ? (S(a) > S(c) ? a : c) : (S(b) > S(c) ? b : c))
LANE_FN(cndmask, c ? b : a)
LANE_FN(bfi, (a & b) | (~a & c))
LANE_FN(bfm, ((1u << (a & 31)) - 1) << (b & 31))
LANE_FN(bfe_u32, U(a) >> (b & 31) & (((uint64_t)1 << (c & 31)) - 1))
LANE_FN(alignbit, U((U(b) | (uint64_t)U(a) << 32) >> (c & 31)))
LANE_FN(alignbyte, U((U(b) | (uint64_t)U(a) << 32) >> 8 * (c & 3)))
LANE_FN(ffbl, U(a) == 0 ? 0xffffffff : (uint64_t)__builtin_ctz(U(a)))
LANE_FN(ffbh_u32, U(a) == 0 ? 0xffffffff : (uint64_t)__builtin_clz(U(a)))
LANE_FN(bcnt, (uint64_t)__builtin_popcount(U(a)) + b)

static uint64_t bfe_signed(uint64_t a, uint64_t b, uint64_t c)
{
    unsigned offset = b & 31, width = c & 31;
    if (width == 0) return 0;
    uint64_t part = (uint64_t)((int64_t)S(a) >> offset) << (64 - width);
    return (uint64_t)((int64_t)part >> (64 - width));
}
LANE_FN(bfe_i32, bfe_signed(a, b, c))

static uint64_t reversed(uint64_t a)
{
    uint64_t r = 0;
    for (int i = 0; i < 32; i++) r |= (a >> i & 1) << (31 - i);
    return r;
}
LANE_FN(bfrev, reversed(a))

/* v_ffbh_i32: how many bits below the sign are like it. */
static uint64_t sign_bits(uint64_t a)
{
    uint32_t v = U(a) ^ U(S(a) >> 31);
    return v == 0 ? 0xffffffff : (uint64_t)__builtin_clz(v);
}
LANE_FN(ffbh_i32, sign_bits(a))

/* Each byte of c chooses one of eight: those of b are 0 to 3, those of a 4 to 7. Above are the sign of
 * bytes 1, 3, 5, 7, then 0x00 at 12, then 0xff. */
static uint64_t permute(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t all = U(b) | (uint64_t)U(a) << 32, r = 0;
    for (int i = 0; i < 4; i++) {
        unsigned which = c >> 8 * i & 255;
        uint64_t byte = which < 8    ? all >> 8 * which & 255
                        : which < 12 ? (all >> (16 * (which - 8) + 15) & 1) * 255
                        : which > 12 ? 255
                                     : 0;
        r |= byte << 8 * i;
    }
    return r;
}
LANE_FN(perm, permute(a, b, c))

LANE_FN(mul_lo_u16, (a * b) & 0xffff)
LANE_FN(add_u16, (a + b) & 0xffff)
LANE_FN(sub_u16, (a - b) & 0xffff)
LANE_FN(mad_u16, (a * b + c) & 0xffff)
LANE_FN(lshlrev_b16, (b << (a & 15)) & 0xffff)
LANE_FN(lshrrev_b16, b >> (a & 15))
LANE_FN(ashrrev_i16, (uint64_t)(int64_t)((int16_t)b >> (a & 15)) & 0xffff)
LANE_FN(min_u16, a < b ? a : b)
LANE_FN(max_u16, a > b ? a : b)
LANE_FN(min_i16, (int16_t)a < (int16_t)b ? a : b)
LANE_FN(max_i16, (int16_t)a > (int16_t)b ? a : b)
LANE_FN(mad_u32_u16, a *b + c)

/* Pairs of 16 bits, halves apart. */
#define LARGER(x, y)      ((x) > (y) ? (x) : (y))
#define SMALLER(x, y)     ((x) < (y) ? (x) : (y))
#define HALVES(low, high) (((low)&0xffff) | ((high)&0xffff) << 16)
LANE_FN(pk_add_u16, HALVES(a + b, (a >> 16) + (b >> 16)))
LANE_FN(pk_sub_i16, HALVES(a - b, (a >> 16) - (b >> 16)))
LANE_FN(pk_mul_lo_u16, HALVES(a *b, (a >> 16) * (b >> 16)))
LANE_FN(pk_max_u16, HALVES(LARGER(a & 0xffff, b & 0xffff), LARGER(a >> 16, b >> 16)))
LANE_FN(pk_min_u16, HALVES(SMALLER(a & 0xffff, b & 0xffff), SMALLER(a >> 16, b >> 16)))
LANE_FN(pk_max_i16, HALVES((uint64_t)LARGER((int16_t)a, (int16_t)b),
                           (uint64_t)LARGER((int16_t)(a >> 16), (int16_t)(b >> 16))))
LANE_FN(pk_min_i16, HALVES((uint64_t)SMALLER((int16_t)a, (int16_t)b),
                           (uint64_t)SMALLER((int16_t)(a >> 16), (int16_t)(b >> 16))))
LANE_FN(pk_lshlrev_b16, HALVES(b << (a & 15), (b >> 16) << (a >> 16 & 15)))
LANE_FN(pk_lshrrev_b16, HALVES((b & 0xffff) >> (a & 15), (b >> 16) >> (a >> 16 & 15)))

/* The most frequent instruction, without the way through 64 bits. */
static bool run_copy(Wave *w, const Op *o)
{
    const Operand *from = &o->src[0], *to = &o->dst[0];
    uint64_t lanes = exec_mask(w);
    if (from->kind != OPERAND_VECTOR || o->with.dpp != DPP_NONE || from->part != PART_ALL ||
        o->with.dst_part != PART_ALL || to->kind != OPERAND_VECTOR)
        return run_lanes(w, o);
    for (int i = 0; i < o->row->a; i++) {
        int source = from->reg + i, target = to->reg + i;
        uint64_t undefined = lanes & ~w->v_defined[source];
        if (!vector_unused(w, source) || !vector_unused(w, target)) return false;
        for (int l = 0; l < LANES; l++)
            w->v[target][l] = lanes >> l & 1 ? w->v[source][l] : w->v[target][l];
        w->v_defined[target] |= lanes & ~undefined;
        if (undefined != 0) copy_undefined(w, o, source, target, undefined);
    }
    return true;
}

#define ROW(name, types, fn)                                                                       \
    {                                                                                              \
        name, types, run_lanes, .lane = (fn)                                                       \
    }

const Row integer_rows[] = {
    { "v_mov_b32", "u=u", .run = run_copy, .lane = mov, .a = 1 },
    { "v_mov_b64", "q=q", .run = run_copy, .lane = mov, .a = 2 },
    { "v_accvgpr_read_b32", "u=u", .run = run_copy, .lane = mov, .a = 1 },
    { "v_accvgpr_write_b32", "u=u", .run = run_copy, .lane = mov, .a = 1 },
    { "v_accvgpr_mov_b32", "u=u", .run = run_copy, .lane = mov, .a = 1 },
    ROW("v_add_u32", "u=uu", add),
    ROW("v_sub_u32", "u=uu", sub),
    ROW("v_subrev_u32", "u=uu", subrev),
    ROW("v_add_co_u32", "um=uu", add_co),
    ROW("v_addc_co_u32", "um=uum", addc_co),
    ROW("v_sub_co_u32", "um=uu", sub_co),
    ROW("v_subrev_co_u32", "um=uu", subrev_co),
    ROW("v_subb_co_u32", "um=uum", subb_co),
    ROW("v_subbrev_co_u32", "um=uum", subbrev_co),
    ROW("v_add3_u32", "u=uuu", add3),
    ROW("v_and_b32", "u=uu", and_),
    ROW("v_or_b32", "u=uu", or_),
    ROW("v_xor_b32", "u=uu", xor_),
    ROW("v_xnor_b32", "u=uu", xnor),
    ROW("v_not_b32", "u=u", not_),
    ROW("v_or3_b32", "u=uuu", or3),
    ROW("v_and_or_b32", "u=uuu", and_or),
    ROW("v_lshl_or_b32", "u=uuu", lshl_or),
    ROW("v_lshl_add_u32", "u=uuu", lshl_add),
    ROW("v_add_lshl_u32", "u=uuu", add_lshl),
    ROW("v_xad_u32", "u=uuu", xad),
    ROW("v_lshl_add_u64", "q=quq", lshl_add_u64),
    ROW("v_lshlrev_b32", "u=uu", lshlrev),
    ROW("v_lshrrev_b32", "u=uu", lshrrev),
    ROW("v_ashrrev_i32", "u=uu", ashrrev),
    ROW("v_lshlrev_b64", "q=uq", lshlrev_b64),
    ROW("v_lshrrev_b64", "q=uq", lshrrev_b64),
    ROW("v_ashrrev_i64", "q=uq", ashrrev_i64),
    ROW("v_mul_lo_u32", "u=uu", mul_lo),
    ROW("v_mul_hi_u32", "u=uu", mul_hi_u32),
    ROW("v_mul_hi_i32", "u=uu", mul_hi_i32),
    ROW("v_mul_u32_u24", "u=uu", mul_u24),
    ROW("v_mul_hi_u32_u24", "u=uu", mul_hi_u24),
    ROW("v_mul_i32_i24", "u=uu", mul_i24),
    ROW("v_mad_u32_u24", "u=uuu", mad_u24),
    ROW("v_mad_i32_i24", "u=uuu", mad_i24),
    ROW("v_mad_u64_u32", "qm=uuq", mad_u64_u32),
    ROW("v_mad_i64_i32", "qm=uuq", mad_i64_i32),
    ROW("v_min_u32", "u=uu", min_u32),
    ROW("v_max_u32", "u=uu", max_u32),
    ROW("v_min_i32", "u=uu", min_i32),
    ROW("v_max_i32", "u=uu", max_i32),
    ROW("v_min3_u32", "u=uuu", min3_u32),
    ROW("v_max3_u32", "u=uuu", max3_u32),
    ROW("v_min3_i32", "u=uuu", min3_i32),
    ROW("v_max3_i32", "u=uuu", max3_i32),
    ROW("v_cndmask_b32", "f=ffm", cndmask),
    ROW("v_bfi_b32", "u=uuu", bfi),
    ROW("v_bfm_b32", "u=uu", bfm),
    ROW("v_bfe_u32", "u=uuu", bfe_u32),
    ROW("v_bfe_i32", "u=uuu", bfe_i32),
    ROW("v_bfrev_b32", "u=u", bfrev),
    ROW("v_alignbit_b32", "u=uuu", alignbit),
    ROW("v_alignbyte_b32", "u=uuu", alignbyte),
    ROW("v_ffbl_b32", "u=u", ffbl),
    ROW("v_ffbh_u32", "u=u", ffbh_u32),
    ROW("v_ffbh_i32", "u=u", ffbh_i32),
    ROW("v_bcnt_u32_b32", "u=uu", bcnt),
    ROW("v_perm_b32", "u=uuu", perm),
    ROW("v_mul_lo_u16", "w=ww", mul_lo_u16),
    ROW("v_add_u16", "w=ww", add_u16),
    ROW("v_sub_u16", "w=ww", sub_u16),
    ROW("v_mad_u16", "w=www", mad_u16),
    ROW("v_mad_legacy_u16", "w=www", mad_u16),
    ROW("v_lshlrev_b16", "w=ww", lshlrev_b16),
    ROW("v_lshrrev_b16", "w=ww", lshrrev_b16),
    ROW("v_ashrrev_i16", "w=ww", ashrrev_i16),
    ROW("v_min_u16", "w=ww", min_u16),
    ROW("v_max_u16", "w=ww", max_u16),
    ROW("v_min_i16", "w=ww", min_i16),
    ROW("v_max_i16", "w=ww", max_i16),
    ROW("v_mad_u32_u16", "u=wwu", mad_u32_u16),
    ROW("v_pk_add_u16", "p=pp", pk_add_u16),
    ROW("v_pk_sub_i16", "p=pp", pk_sub_i16),
    ROW("v_pk_mul_lo_u16", "p=pp", pk_mul_lo_u16),
    ROW("v_pk_max_u16", "p=pp", pk_max_u16),
    ROW("v_pk_min_u16", "p=pp", pk_min_u16),
    ROW("v_pk_max_i16", "p=pp", pk_max_i16),
    ROW("v_pk_min_i16", "p=pp", pk_min_i16),
    ROW("v_pk_lshlrev_b16", "p=pp", pk_lshlrev_b16),
    ROW("v_pk_lshrrev_b16", "p=pp", pk_lshrrev_b16),
    { 0 },
};
