/* scalar: arithmetic of the whole wave, on scalar registers and scc. */
#include "gfxrun/machine.h"

#define U(x) ((uint32_t)(x))
#define S(x) ((int32_t)(uint32_t)(x))

/* An expression of a, b and scc; the second is the new scc. */
#define FN(name, expr, carry)                                                                      \
    static uint64_t name(uint64_t a, uint64_t b, bool *scc)                                        \
    {                                                                                              \
        uint64_t d = (expr);                                                                       \
        (void)a;                                                                                   \
        (void)b;                                                                                   \
        *scc = (carry);                                                                            \
        return d;                                                                                  \
    }

FN(mov, a, *scc)
FN(not32, U(~a), d != 0)
FN(not64, ~a, d != 0)
FN(add_u32, U(a + b), U(a) + (uint64_t)U(b) > UINT32_MAX)
FN(sub_u32, U(a - b), U(a) < U(b))
FN(add_i32, U(a + b), ((a ^ d) & (b ^ d)) >> 31 & 1)
FN(sub_i32, U(a - b), ((a ^ b) & (a ^ d)) >> 31 & 1)
FN(addc, U(a + b + *scc), U(a) + (uint64_t)U(b) + *scc > UINT32_MAX)
FN(subb, U(a - b - *scc), U(a) < (uint64_t)U(b) + *scc)
FN(and_, a &b, d != 0)
FN(or_, a | b, d != 0)
FN(xor_, a ^ b, d != 0)
FN(andn2, a & ~b, d != 0)
FN(orn2_32, U(a | ~b), d != 0)
FN(orn2_64, a | ~b, d != 0)
FN(nand64, ~(a &b), d != 0)
FN(nor64, ~(a | b), d != 0)
FN(xnor32, U(~(a ^ b)), d != 0)
FN(xnor64, ~(a ^ b), d != 0)
FN(lshl32, U(a) << (b & 31), d != 0)
FN(lshl64, a << (b & 63), d != 0)
FN(lshr32, U(a) >> (b & 31), d != 0)
FN(lshr64, a >> (b & 63), d != 0)
FN(ashr32, U(S(a) >> (b & 31)), d != 0)
FN(ashr64, (uint64_t)((int64_t)a >> (b & 63)), d != 0)
FN(lshl1_add, U((a << 1) + b), (U(a) * (uint64_t)2 + U(b)) > UINT32_MAX)
FN(lshl2_add, U((a << 2) + b), (U(a) * (uint64_t)4 + U(b)) > UINT32_MAX)
FN(lshl3_add, U((a << 3) + b), (U(a) * (uint64_t)8 + U(b)) > UINT32_MAX)
FN(lshl4_add, U((a << 4) + b), (U(a) * (uint64_t)16 + U(b)) > UINT32_MAX)
FN(mul, U(a) * (uint64_t)U(b), *scc)
FN(mul_hi_u32, U(a) * (uint64_t)U(b) >> 32, *scc)
FN(mul_hi_i32, (uint64_t)((int64_t)S(a) * S(b)) >> 32, *scc)
FN(min_u32, U(a) < U(b) ? a : b, U(a) < U(b))
FN(max_u32, U(a) > U(b) ? a : b, U(a) > U(b))
FN(min_i32, S(a) < S(b) ? a : b, S(a) < S(b))
FN(max_i32, S(a) > S(b) ? a : b, S(a) > S(b))
FN(cselect, *scc ? a : b, *scc)
FN(abs_i32, S(a) < 0 ? U(-a) : a, d != 0)
FN(bfm32, ((1u << (a & 31)) - 1) << (b & 31), *scc)
FN(bfm64, (((uint64_t)1 << (a & 63)) - 1) << (b & 63), *scc)
FN(pack_ll, (a & 0xffff) | b << 16, *scc)
FN(pack_lh, (a & 0xffff) | (b & 0xffff0000), *scc)
FN(pack_hh, (a >> 16 & 0xffff) | (b & 0xffff0000), *scc)
FN(sext8, U((int8_t)a), *scc)
FN(sext16, U((int16_t)a), *scc)
FN(bcnt1_32, (uint64_t)__builtin_popcount(U(a)), d != 0)
FN(bcnt1_64, (uint64_t)__builtin_popcountll(a), d != 0)
FN(bcnt0_64, (uint64_t)__builtin_popcountll(~a), d != 0)
FN(ff1_32, U(a) == 0 ? UINT32_MAX : (uint64_t)__builtin_ctz(U(a)), *scc)
FN(ff1_64, a == 0 ? UINT32_MAX : (uint64_t)__builtin_ctzll(a), *scc)
FN(flbit_32, U(a) == 0 ? UINT32_MAX : (uint64_t)__builtin_clz(U(a)), *scc)
FN(flbit_64, a == 0 ? UINT32_MAX : (uint64_t)__builtin_clzll(a), *scc)

/* Fields: b holds the offset, and from bit 16 the width. */
static uint64_t field(uint64_t a, uint64_t b, unsigned bits, bool is_signed)
{
    unsigned offset = (unsigned)b & (bits - 1), width = (unsigned)(b >> 16) & 127;
    if (width == 0) return 0;
    if (width > bits) width = bits;
    if (offset + width > bits) width = bits - offset;
    uint64_t part = a >> offset << (64 - width);
    return is_signed ? (uint64_t)((int64_t)part >> (64 - width)) : part >> (64 - width);
}
FN(bfe_u32, field(U(a), b, 32, false), d != 0)
FN(bfe_i32, U(field(U(a), b, 32, true)), d != 0)
FN(bfe_u64, field(a, b, 64, false), d != 0)
FN(bfe_i64, field(a, b, 64, true), d != 0)

/* How many bits below the sign are like it, the sign with them. */
static uint64_t sign_bits(uint64_t a)
{
    uint32_t v = U(a) ^ U(S(a) >> 31);
    return v == 0 ? UINT32_MAX : (uint64_t)__builtin_clz(v);
}
FN(flbit_i32, sign_bits(a), *scc)

static uint64_t reversed(uint64_t a)
{
    uint64_t r = 0;
    for (int i = 0; i < 32; i++) r |= (a >> i & 1) << (31 - i);
    return r;
}
FN(brev32, reversed(a), *scc)

FN(eq, 0, a == b)
FN(ne, 0, a != b)
FN(lt_u, 0, U(a) < U(b))
FN(le_u, 0, U(a) <= U(b))
FN(gt_u, 0, U(a) > U(b))
FN(ge_u, 0, U(a) >= U(b))
FN(lt_i, 0, S(a) < S(b))
FN(le_i, 0, S(a) <= S(b))
FN(gt_i, 0, S(a) > S(b))
FN(ge_i, 0, S(a) >= S(b))
FN(bit0, 0, !(a >> (b & 31) & 1))
FN(bit1, 0, a >> (b & 31) & 1)

static uint64_t apply(Wave *w, const Op *o, uint64_t a, uint64_t b)
{
    ScalarFn *fn = o->row->scalar;
    uint64_t d = fn(a, b, &w->scc);
    if (w->turn == TURN_TRIAL && o->n_dst == 0 && fn != bit0 && fn != bit1)
        w->scc = compared_in_trial(a, b);
    return d;
}

static bool run_scalar(Wave *w, const Op *o)
{
    uint64_t a = 0, b = 0;
    if (o->n_src > 0 && !read_scalar(w, &o->src[0], &a)) return false;
    if (o->n_src > 1 && !read_scalar(w, &o->src[1], &b)) return false;
    if (!scc_ready(w)) return false;
    uint64_t d = apply(w, o, a, b);
    return o->n_dst == 0 || write_scalar(w, &o->dst[0], d);
}

/* d = exec; exec = a OP exec; scc = exec != 0 */
static bool run_saveexec(Wave *w, const Op *o)
{
    uint64_t a, exec = exec_mask(w);
    if (!read_scalar(w, &o->src[0], &a) || !scc_ready(w)) return false;
    if (!write_scalar(w, &o->dst[0], exec)) return false;
    write_scalar_reg(w, EXEC, 2, o->row->scalar(a, exec, &w->scc));
    return true;
}
FN(andn1, b & ~a, d != 0)
FN(orn1, b | ~a, d != 0)

static bool run_cmov(Wave *w, const Op *o)
{
    uint64_t a;
    if (!scc_ready(w)) return false;
    if (!w->scc) return true;
    return read_scalar(w, &o->src[0], &a) && write_scalar(w, &o->dst[0], a);
}

/* s_movk, s_addk, s_mulk and comparisons with 16 bits that are part of the instruction. */
static bool run_short(Wave *w, const Op *o)
{
    Operand self = o->n_dst > 0 ? o->dst[0] : o->src[0];
    uint64_t a = 0, k = o->src[o->n_src - 1].value & 0xffff;
    bool reads = o->row->a != 0;
    if (reads && (!read_scalar(w, &self, &a) || !scc_ready(w))) return false;
    if (o->row->b == 0) k = U((int16_t)k);
    uint64_t d = reads ? apply(w, o, a, k) : k;
    return o->n_dst == 0 || write_scalar(w, &self, d);
}

#define ROW(name, types, fn)                                                                       \
    {                                                                                              \
        name, types, run_scalar, .scalar = (fn)                                                    \
    }
#define COMPARE(name, fn) ROW("s_cmp_" name, "=uu", fn)
#define SAVE(name, fn)                                                                             \
    {                                                                                              \
        "s_" name "_saveexec_b64", "q=q", run_saveexec, .scalar = (fn)                             \
    }
#define SHORT(name, types, fn)                                                                     \
    {                                                                                              \
        name, types, run_short, .scalar = (fn), .a = 1                                             \
    }
#define SHORT_UNSIGNED(name, fn)                                                                   \
    {                                                                                              \
        name, "=uu", run_short, .scalar = (fn), .a = 1, .b = 1                                     \
    }

const Row scalar_rows[] = {
    ROW("s_mov_b32", "u=u", mov),
    ROW("s_mov_b64", "q=q", mov),
    ROW("s_not_b32", "u=u", not32),
    ROW("s_not_b64", "q=q", not64),
    ROW("s_add_u32", "u=uu", add_u32),
    ROW("s_sub_u32", "u=uu", sub_u32),
    ROW("s_add_i32", "u=uu", add_i32),
    ROW("s_sub_i32", "u=uu", sub_i32),
    ROW("s_addc_u32", "u=uu", addc),
    ROW("s_subb_u32", "u=uu", subb),
    ROW("s_and_b32", "u=uu", and_),
    ROW("s_and_b64", "q=qq", and_),
    ROW("s_or_b32", "u=uu", or_),
    ROW("s_or_b64", "q=qq", or_),
    ROW("s_xor_b32", "u=uu", xor_),
    ROW("s_xor_b64", "q=qq", xor_),
    ROW("s_andn2_b32", "u=uu", andn2),
    ROW("s_andn2_b64", "q=qq", andn2),
    ROW("s_orn2_b32", "u=uu", orn2_32),
    ROW("s_orn2_b64", "q=qq", orn2_64),
    ROW("s_nand_b64", "q=qq", nand64),
    ROW("s_nor_b64", "q=qq", nor64),
    ROW("s_xnor_b32", "u=uu", xnor32),
    ROW("s_xnor_b64", "q=qq", xnor64),
    ROW("s_lshl_b32", "u=uu", lshl32),
    ROW("s_lshl_b64", "q=qu", lshl64),
    ROW("s_lshr_b32", "u=uu", lshr32),
    ROW("s_lshr_b64", "q=qu", lshr64),
    ROW("s_ashr_i32", "u=uu", ashr32),
    ROW("s_ashr_i64", "q=qu", ashr64),
    ROW("s_lshl1_add_u32", "u=uu", lshl1_add),
    ROW("s_lshl2_add_u32", "u=uu", lshl2_add),
    ROW("s_lshl3_add_u32", "u=uu", lshl3_add),
    ROW("s_lshl4_add_u32", "u=uu", lshl4_add),
    ROW("s_mul_i32", "u=uu", mul),
    ROW("s_mul_hi_u32", "u=uu", mul_hi_u32),
    ROW("s_mul_hi_i32", "u=uu", mul_hi_i32),
    ROW("s_min_u32", "u=uu", min_u32),
    ROW("s_max_u32", "u=uu", max_u32),
    ROW("s_min_i32", "u=uu", min_i32),
    ROW("s_max_i32", "u=uu", max_i32),
    ROW("s_cselect_b32", "u=uu", cselect),
    ROW("s_cselect_b64", "q=qq", cselect),
    ROW("s_abs_i32", "u=u", abs_i32),
    ROW("s_bfm_b32", "u=uu", bfm32),
    ROW("s_bfm_b64", "q=uu", bfm64),
    ROW("s_bfe_u32", "u=uu", bfe_u32),
    ROW("s_bfe_i32", "u=uu", bfe_i32),
    ROW("s_bfe_u64", "q=qu", bfe_u64),
    ROW("s_bfe_i64", "q=qu", bfe_i64),
    ROW("s_pack_ll_b32_b16", "u=uu", pack_ll),
    ROW("s_pack_lh_b32_b16", "u=uu", pack_lh),
    ROW("s_pack_hh_b32_b16", "u=uu", pack_hh),
    ROW("s_sext_i32_i8", "u=u", sext8),
    ROW("s_sext_i32_i16", "u=u", sext16),
    ROW("s_bcnt1_i32_b32", "u=u", bcnt1_32),
    ROW("s_bcnt1_i32_b64", "u=q", bcnt1_64),
    ROW("s_bcnt0_i32_b64", "u=q", bcnt0_64),
    ROW("s_ff1_i32_b32", "u=u", ff1_32),
    ROW("s_ff1_i32_b64", "u=q", ff1_64),
    ROW("s_flbit_i32_b32", "u=u", flbit_32),
    ROW("s_flbit_i32_b64", "u=q", flbit_64),
    ROW("s_flbit_i32", "u=u", flbit_i32),
    ROW("s_brev_b32", "u=u", brev32),
    COMPARE("eq_u32", eq),
    COMPARE("eq_i32", eq),
    COMPARE("lg_u32", ne),
    COMPARE("lg_i32", ne),
    COMPARE("lt_u32", lt_u),
    COMPARE("le_u32", le_u),
    COMPARE("gt_u32", gt_u),
    COMPARE("ge_u32", ge_u),
    COMPARE("lt_i32", lt_i),
    COMPARE("le_i32", le_i),
    COMPARE("gt_i32", gt_i),
    COMPARE("ge_i32", ge_i),
    ROW("s_cmp_eq_u64", "=qq", eq),
    ROW("s_cmp_lg_u64", "=qq", ne),
    ROW("s_bitcmp0_b32", "=uu", bit0),
    ROW("s_bitcmp1_b32", "=uu", bit1),
    SAVE("and", and_),
    SAVE("or", or_),
    SAVE("xor", xor_),
    SAVE("andn2", andn2),
    SAVE("andn1", andn1),
    SAVE("orn1", orn1),
    SAVE("orn2", orn2_64),
    { "s_cmov_b32", "u=u", .run = run_cmov },
    { "s_cmov_b64", "q=q", .run = run_cmov },
    { "s_movk_i32", "u=u", .run = run_short },
    SHORT("s_addk_i32", "u=u", add_i32),
    SHORT("s_mulk_i32", "u=u", mul),
    SHORT("s_cmpk_eq_i32", "=uu", eq),
    SHORT("s_cmpk_lg_i32", "=uu", ne),
    SHORT("s_cmpk_gt_i32", "=uu", gt_i),
    SHORT("s_cmpk_ge_i32", "=uu", ge_i),
    SHORT("s_cmpk_lt_i32", "=uu", lt_i),
    SHORT("s_cmpk_le_i32", "=uu", le_i),
    SHORT_UNSIGNED("s_cmpk_eq_u32", eq),
    SHORT_UNSIGNED("s_cmpk_lg_u32", ne),
    SHORT_UNSIGNED("s_cmpk_gt_u32", gt_u),
    SHORT_UNSIGNED("s_cmpk_ge_u32", ge_u),
    SHORT_UNSIGNED("s_cmpk_lt_u32", lt_u),
    SHORT_UNSIGNED("s_cmpk_le_u32", le_u),
    { 0 },
};
