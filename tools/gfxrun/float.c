/* float: vector arithmetic on floats. Reciprocals, roots, exponentials and logarithms are rounded
 * correctly or nearly so; the hardware may be off by one unit in the last place. They take subnormal
 * numbers for 0, as clang assumes. */
#include "gfxrun/small_float.h"

#include <float.h>

#define F(x)  as_f32(x)
#define D(x)  as_f64(x)
#define H(x)  as_f16(x)
#define R(x)  bits_f32(x)
#define RD(x) bits_f64(x)
#define RH(x) bits_f16(x)

/* Of two numbers that are equal, -0 is the smaller. A NaN gives way to a number. */
static float min_f32(float a, float b) { return a == b ? (signbit(a) ? a : b) : fminf(a, b); }
static float max_f32(float a, float b) { return a == b ? (signbit(a) ? b : a) : fmaxf(a, b); }

static float med3(float a, float b, float c)
{
    if (isnan(a) || isnan(b) || isnan(c)) return min_f32(min_f32(a, b), c);
    return max_f32(min_f32(a, b), min_f32(max_f32(a, b), c));
}

static float flushed(float f) { return fabsf(f) < FLT_MIN ? copysignf(0, f) : f; }

LANE_FN(add, R(F(a) + F(b)))
LANE_FN(sub, R(F(a) - F(b)))
LANE_FN(subrev, R(F(b) - F(a)))
LANE_FN(mul, R(F(a) * F(b)))
LANE_FN(mul_legacy, F(a) == 0 || F(b) == 0 ? 0 : R(F(a) * F(b)))
LANE_FN(fma_, R(fmaf(F(a), F(b), F(c))))
LANE_FN(min_, R(min_f32(F(a), F(b))))
LANE_FN(max_, R(max_f32(F(a), F(b))))
LANE_FN(min3, R(min_f32(min_f32(F(a), F(b)), F(c))))
LANE_FN(max3, R(max_f32(max_f32(F(a), F(b)), F(c))))
LANE_FN(med3_, R(med3(F(a), F(b), F(c))))
LANE_FN(rcp, R(flushed(1 / flushed(F(a)))))
LANE_FN(rsq, R((float)(1 / sqrt((double)flushed(F(a))))))
LANE_FN(sqrt_, R(sqrtf(flushed(F(a)))))
LANE_FN(exp_, R(flushed(exp2f(flushed(F(a))))))
LANE_FN(log_, R(log2f(flushed(F(a)))))
LANE_FN(sin_, R((float)sin(2 * M_PI * (double)F(a))))
LANE_FN(cos_, R((float)cos(2 * M_PI * (double)F(a))))
LANE_FN(floor_, R(floorf(F(a))))
LANE_FN(ceil_, R(ceilf(F(a))))
LANE_FN(trunc_, R(truncf(F(a))))
LANE_FN(rndne, R(nearbyintf(F(a))))
LANE_FN(fract, R(min_f32(F(a) - floorf(F(a)), 0x1.fffffep-1F)))

/* b is an integer; beyond 300 the result does not change, and int holds it. */
static float scaled(float f, uint64_t by)
{
    int n = as_i32(by);
    return ldexpf(f, n < -300 ? -300 : n > 300 ? 300 : n);
}
LANE_FN(ldexp_, R(scaled(F(a), b)))

static float mantissa(float f)
{
    int e;
    return isfinite(f) ? frexpf(f, &e) : f;
}
static int exponent(float f)
{
    int e = 0;
    if (isfinite(f)) (void)frexpf(f, &e);
    return e;
}
LANE_FN(frexp_mant, R(mantissa(F(a))))
LANE_FN(frexp_exp, (uint64_t)exponent(F(a)))

static int biased(float f) { return (int)(bits_f32(f) >> 23 & 255); }
static bool subnormal(float f) { return f != 0 && fabsf(f) < FLT_MIN; }

/* Division in steps: v_div_scale moves numerator and denominator to where Newton's steps neither
 * overflow nor underflow, v_div_fmas takes the scale back, v_div_fixup does special values. a is the
 * one to scale, b the denominator, c the numerator (CDNA3 ISA, V_DIV_SCALE_F32). */
static float div_scaled(float a, float b, float c, bool *flag)
{
    bool tiny_inverse = subnormal(1 / b), tiny = subnormal(c / b);
    *flag = false;
    if (b == 0 || c == 0) return NAN;
    if (biased(c) - biased(b) >= 96) return *flag = true, a == b ? ldexpf(a, 64) : a;
    if (subnormal(b)) return ldexpf(a, 64);
    if (tiny_inverse && tiny) return *flag = true, a == b ? ldexpf(a, 64) : a;
    if (tiny_inverse) return ldexpf(a, -64);
    if (tiny) return *flag = true, a == c ? ldexpf(a, 64) : a;
    return biased(c) <= 23 ? ldexpf(a, 64) : a;
}

static void div_scale(Results *restrict r, const uint64_t *restrict a, const uint64_t *restrict b,
                      const uint64_t *restrict c)
{
    for (int l = 0; l < LANES; l++) {
        bool flag;
        r->d[l] = R(div_scaled(F(a[l]), F(b[l]), F(c[l]), &flag));
        r->d2[l] = flag;
    }
}

static float div_fixed(float q, float b, float c)
{
    bool minus = signbit(b) != signbit(c);
    float inf = minus ? -INFINITY : INFINITY;
    if (isnan(b) || isnan(c)) return NAN;
    if ((b == 0 && c == 0) || (isinf(b) && isinf(c))) return NAN;
    if (b == 0 || isinf(c)) return inf;
    if (isinf(b) || c == 0) return minus ? -0.0F : 0.0F;
    if (biased(c) - biased(b) < -150) return minus ? -0.0F : 0.0F;
    return minus ? -fabsf(q) : fabsf(q);
}
LANE_FN(div_fixup, R(div_fixed(F(a), F(b), F(c))))

/* The fourth operand is vcc. */
static bool run_div_fmas(Wave *w, const Op *o)
{
    uint64_t in[4][LANES], d[LANES], lanes = exec_mask(w);
    for (int i = 0; i < 4; i++)
        if (!fetch(w, o, i, lanes, in[i])) return false;
    for (int l = 0; l < LANES; l++) {
        float f = fmaf(F(in[0][l]), F(in[1][l]), F(in[2][l]));
        int back = biased(F(in[2][l])) > 127 ? 64 : -64;
        d[l] = R(in[3][l] ? ldexpf(f, back) : f);
    }
    if (!vector_unused(w, o->dst[0].reg)) return false;
    store_lanes(w, o->dst[0].reg, 1, lanes, d);
    return true;
}

LANE_FN(add_f64, RD(D(a) + D(b)))
LANE_FN(mul_f64, RD(D(a) * D(b)))
LANE_FN(fma_f64, RD(fma(D(a), D(b), D(c))))
LANE_FN(min_f64, RD(fmin(D(a), D(b))))
LANE_FN(max_f64, RD(fmax(D(a), D(b))))
LANE_FN(rcp_f64, RD(1 / D(a)))
LANE_FN(rsq_f64, RD(1 / sqrt(D(a))))
LANE_FN(sqrt_f64, RD(sqrt(D(a))))
LANE_FN(rndne_f64, RD(nearbyint(D(a))))
LANE_FN(floor_f64, RD(floor(D(a))))
LANE_FN(ceil_f64, RD(ceil(D(a))))
LANE_FN(trunc_f64, RD(trunc(D(a))))
LANE_FN(ldexp_f64, RD(ldexp(D(a), as_i32(b))))

LANE_FN(add_f16, RH(H(a) + H(b)))
LANE_FN(sub_f16, RH(H(a) - H(b)))
LANE_FN(mul_f16, RH(H(a) * H(b)))
LANE_FN(fma_f16, RH(fmaf(H(a), H(b), H(c))))
LANE_FN(max_f16, RH(max_f32(H(a), H(b))))
LANE_FN(min_f16, RH(min_f32(H(a), H(b))))

#define HALVES(low, high) ((low) | (high) << 16)
LANE_FN(pk_add_f16, HALVES(RH(H(a) + H(b)), RH(H(a >> 16) + H(b >> 16))))
LANE_FN(pk_mul_f16, HALVES(RH(H(a) * H(b)), RH(H(a >> 16) * H(b >> 16))))
LANE_FN(pk_fma_f16,
        HALVES(RH(fmaf(H(a), H(b), H(c))), RH(fmaf(H(a >> 16), H(b >> 16), H(c >> 16)))))
LANE_FN(pack_f16, HALVES(a, b))

#define PAIR(low, high) ((low) | (high) << 32)
LANE_FN(pk_add_f32, PAIR(R(F(a) + F(b)), R(F(a >> 32) + F(b >> 32))))
LANE_FN(pk_mul_f32, PAIR(R(F(a) * F(b)), R(F(a >> 32) * F(b >> 32))))
LANE_FN(pk_fma_f32, PAIR(R(fmaf(F(a), F(b), F(c))), R(fmaf(F(a >> 32), F(b >> 32), F(c >> 32)))))

/* The low result is the half of a that op_sel chose, the high one the half of b that op_sel_hi chose;
 * select_halves has put them there. */
LANE_FN(pk_mov_b32, (a & 0xffffffff) | (b >> 32 << 32))

/* Towards zero; what does not fit becomes the nearest that does, NaN 0. */
static uint64_t to_i32(double f)
{
    if (isnan(f)) return 0;
    return (uint64_t)(f <= -0x1p31 ? INT32_MIN : f >= 0x1p31 ? INT32_MAX : (int32_t)f);
}
static uint64_t to_u32(double f)
{
    return isnan(f) || f <= 0 ? 0 : f >= 0x1p32 ? UINT32_MAX : (uint32_t)f;
}
LANE_FN(f32_i32, R((float)as_i32(a)))
LANE_FN(f32_u32, R((float)(uint32_t)a))
LANE_FN(i32_f32, to_i32((double)F(a)))
LANE_FN(u32_f32, to_u32((double)F(a)))
LANE_FN(i32_f64, to_i32(D(a)))
LANE_FN(u32_f64, to_u32(D(a)))
LANE_FN(f64_i32, RD((double)as_i32(a)))
LANE_FN(f64_u32, RD((double)(uint32_t)a))
LANE_FN(f64_f32, RD((double)F(a)))
LANE_FN(f32_f64, R((float)D(a)))
LANE_FN(f16_f32, RH(F(a)))
LANE_FN(f32_f16, R(H(a)))
LANE_FN(ubyte0, R((float)(a & 255)))
LANE_FN(ubyte1, R((float)(a >> 8 & 255)))
LANE_FN(ubyte2, R((float)(a >> 16 & 255)))
LANE_FN(ubyte3, R((float)(a >> 24 & 255)))
LANE_FN(pk_u16_u32, (a < 65535 ? a : 65535) | (b < 65535 ? b : 65535) << 16)
LANE_FN(f32_fp8, R(as_fp8(a & 255)))
LANE_FN(f32_bf8, R(as_bf8(a & 255)))
LANE_FN(pk_f32_fp8, PAIR(R(as_fp8(a & 255)), R(as_fp8(a >> 8 & 255))))
LANE_FN(pk_f32_bf8, PAIR(R(as_bf8(a & 255)), R(as_bf8(a >> 8 & 255))))
LANE_FN(pk_fp8_f32, bits_fp8(F(a)) | bits_fp8(F(b)) << 8)
LANE_FN(pk_bf8_f32, bits_bf8(F(a)) | bits_bf8(F(b)) << 8)

#define ROW(name, types, fn)                                                                       \
    {                                                                                              \
        name, types, run_lanes, .lane = (fn)                                                       \
    }

const Row float_rows[] = {
    ROW("v_add_f32", "f=ff", add),
    ROW("v_sub_f32", "f=ff", sub),
    ROW("v_subrev_f32", "f=ff", subrev),
    ROW("v_mul_f32", "f=ff", mul),
    ROW("v_mul_legacy_f32", "f=ff", mul_legacy),
    ROW("v_fma_f32", "f=fff", fma_),
    ROW("v_fmac_f32", "f=ffD", fma_),
    ROW("v_fmaak_f32", "f=fff", fma_),
    ROW("v_fmamk_f32", "f=fff", fma_),
    ROW("v_min_f32", "f=ff", min_),
    ROW("v_max_f32", "f=ff", max_),
    ROW("v_min3_f32", "f=fff", min3),
    ROW("v_max3_f32", "f=fff", max3),
    ROW("v_med3_f32", "f=fff", med3_),
    ROW("v_rcp_f32", "f=f", rcp),
    ROW("v_rcp_iflag_f32", "f=f", rcp),
    ROW("v_rsq_f32", "f=f", rsq),
    ROW("v_sqrt_f32", "f=f", sqrt_),
    ROW("v_exp_f32", "f=f", exp_),
    ROW("v_log_f32", "f=f", log_),
    ROW("v_sin_f32", "f=f", sin_),
    ROW("v_cos_f32", "f=f", cos_),
    ROW("v_floor_f32", "f=f", floor_),
    ROW("v_ceil_f32", "f=f", ceil_),
    ROW("v_trunc_f32", "f=f", trunc_),
    ROW("v_rndne_f32", "f=f", rndne),
    ROW("v_fract_f32", "f=f", fract),
    ROW("v_ldexp_f32", "f=fu", ldexp_),
    ROW("v_frexp_mant_f32", "f=f", frexp_mant),
    ROW("v_frexp_exp_i32_f32", "u=f", frexp_exp),
    ROW("v_div_scale_f32", "fm=fff", div_scale),
    ROW("v_div_fixup_f32", "f=fff", div_fixup),
    { "v_div_fmas_f32", "f=fffV", .run = run_div_fmas },
    ROW("v_add_f64", "d=dd", add_f64),
    ROW("v_mul_f64", "d=dd", mul_f64),
    ROW("v_fma_f64", "d=ddd", fma_f64),
    ROW("v_fmac_f64", "d=ddD", fma_f64),
    ROW("v_min_f64", "d=dd", min_f64),
    ROW("v_max_f64", "d=dd", max_f64),
    ROW("v_rcp_f64", "d=d", rcp_f64),
    ROW("v_rsq_f64", "d=d", rsq_f64),
    ROW("v_sqrt_f64", "d=d", sqrt_f64),
    ROW("v_rndne_f64", "d=d", rndne_f64),
    ROW("v_floor_f64", "d=d", floor_f64),
    ROW("v_ceil_f64", "d=d", ceil_f64),
    ROW("v_trunc_f64", "d=d", trunc_f64),
    ROW("v_ldexp_f64", "d=du", ldexp_f64),
    ROW("v_add_f16", "h=hh", add_f16),
    ROW("v_sub_f16", "h=hh", sub_f16),
    ROW("v_mul_f16", "h=hh", mul_f16),
    ROW("v_fma_f16", "h=hhh", fma_f16),
    ROW("v_max_f16", "h=hh", max_f16),
    ROW("v_min_f16", "h=hh", min_f16),
    ROW("v_pk_add_f16", "p=pp", pk_add_f16),
    ROW("v_pk_mul_f16", "p=pp", pk_mul_f16),
    ROW("v_pk_fma_f16", "p=ppp", pk_fma_f16),
    ROW("v_pack_b32_f16", "u=hh", pack_f16),
    ROW("v_pk_add_f32", "P=PP", pk_add_f32),
    ROW("v_pk_mul_f32", "P=PP", pk_mul_f32),
    ROW("v_pk_fma_f32", "P=PPP", pk_fma_f32),
    ROW("v_pk_mov_b32", "P=PP", pk_mov_b32),
    ROW("v_cvt_f32_i32", "f=u", f32_i32),
    ROW("v_cvt_f32_u32", "f=u", f32_u32),
    ROW("v_cvt_i32_f32", "u=f", i32_f32),
    ROW("v_cvt_u32_f32", "u=f", u32_f32),
    ROW("v_cvt_i32_f64", "u=d", i32_f64),
    ROW("v_cvt_u32_f64", "u=d", u32_f64),
    ROW("v_cvt_f64_i32", "d=u", f64_i32),
    ROW("v_cvt_f64_u32", "d=u", f64_u32),
    ROW("v_cvt_f64_f32", "d=f", f64_f32),
    ROW("v_cvt_f32_f64", "f=d", f32_f64),
    ROW("v_cvt_f16_f32", "h=f", f16_f32),
    ROW("v_cvt_f32_f16", "f=h", f32_f16),
    ROW("v_cvt_f32_ubyte0", "f=u", ubyte0),
    ROW("v_cvt_f32_ubyte1", "f=u", ubyte1),
    ROW("v_cvt_f32_ubyte2", "f=u", ubyte2),
    ROW("v_cvt_f32_ubyte3", "f=u", ubyte3),
    ROW("v_cvt_pk_u16_u32", "u=uu", pk_u16_u32),
    ROW("v_cvt_f32_fp8", "f=u", f32_fp8),
    ROW("v_cvt_f32_bf8", "f=u", f32_bf8),
    ROW("v_cvt_pk_f32_fp8", "P=u", pk_f32_fp8),
    ROW("v_cvt_pk_f32_bf8", "P=u", pk_f32_bf8),
    { "v_cvt_pk_fp8_f32", "w=ff", .run = run_lanes, .lane = pk_fp8_f32, .c = KEEPS_REST },
    { "v_cvt_pk_bf8_f32", "w=ff", .run = run_lanes, .lane = pk_bf8_f32, .c = KEEPS_REST },
    { 0 },
};
