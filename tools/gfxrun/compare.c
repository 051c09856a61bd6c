/* compare: comparisons of lanes, whose results are masks. Lanes that are off get 0. */
#include "gfxrun/lane_math.h"

#define F(x) as_f32(x)
#define D(x) as_f64(x)
#define H(x) as_f16(x)
#define I(x) as_i32(x)
#define U(x) ((uint32_t)(x))
#define Q(x) ((int64_t)(x))
#define W(x) ((int16_t)(x))
#define X(x) (x)

#define ORDERED(T, G)                                                                              \
    LANE_FN(lt_##T, G(a) < G(b))                                                                   \
    LANE_FN(eq_##T, G(a) == G(b))                                                                  \
    LANE_FN(le_##T, G(a) <= G(b))                                                                  \
    LANE_FN(gt_##T, G(a) > G(b))                                                                   \
    LANE_FN(ne_##T, G(a) != G(b))                                                                  \
    LANE_FN(ge_##T, G(a) >= G(b))

/* Floats also have the opposites, which hold for NaN. lg is less or greater. */
#define FLOATS(T, G)                                                                               \
    ORDERED(T, G)                                                                                  \
    LANE_FN(lg_##T, G(a) < G(b) || G(a) > G(b))                                                    \
    LANE_FN(o_##T, G(a) == G(a) && G(b) == G(b))                                                   \
    LANE_FN(u_##T, G(a) != G(a) || G(b) != G(b))                                                   \
    LANE_FN(nge_##T, !(G(a) >= G(b)))                                                              \
    LANE_FN(nlg_##T, !(G(a) < G(b) || G(a) > G(b)))                                                \
    LANE_FN(ngt_##T, !(G(a) > G(b)))                                                               \
    LANE_FN(nle_##T, !(G(a) <= G(b)))                                                              \
    LANE_FN(nlt_##T, !(G(a) < G(b)))

FLOATS(f32, F)
FLOATS(f64, D)
FLOATS(f16, H)
ORDERED(i32, I)
ORDERED(u32, U)
ORDERED(i64, Q)
ORDERED(u64, X)
ORDERED(i16, W)
ORDERED(u16, X)

/* The ten classes that v_cmp_class asks for, a bit each: signalling and quiet NaN, -inf, -normal,
 * -subnormal, -0, +0, +subnormal, +normal, +inf. */
static int class_of(bool minus, bool quiet, int kind)
{
    switch (kind) {
    case FP_NAN: return quiet ? 1 : 0;
    case FP_INFINITE: return minus ? 2 : 9;
    case FP_NORMAL: return minus ? 3 : 8;
    case FP_SUBNORMAL: return minus ? 4 : 7;
    default: return minus ? 5 : 6;
    }
}
LANE_FN(class_f32, b >> class_of(a >> 31 & 1, a >> 22 & 1, fpclassify(F(a))) & 1)
LANE_FN(class_f64, b >> class_of(a >> 63, a >> 51 & 1, fpclassify(D(a))) & 1)

static bool run_compare_exec(Wave *w, const Op *o)
{
    uint64_t mask;
    if (!run_compare(w, o) || !read_scalar(w, &o->dst[0], &mask)) return false;
    write_scalar_reg(w, EXEC, 2, mask);
    return true;
}

#define ROW(name, types, fn)                                                                       \
    { "v_cmp_" name, types, run_compare, .lane = (fn) },                                           \
    {                                                                                              \
        "v_cmpx_" name, types, run_compare_exec, .lane = (fn)                                      \
    }

#define ORDERED_ROWS(T, types, NE)                                                                 \
    ROW("lt_" #T, types, lt_##T), ROW("eq_" #T, types, eq_##T), ROW("le_" #T, types, le_##T),      \
        ROW("gt_" #T, types, gt_##T), ROW(NE "_" #T, types, ne_##T), ROW("ge_" #T, types, ge_##T)

#define FLOAT_ROWS(T, types)                                                                       \
    ORDERED_ROWS(T, types, "neq"), ROW("lg_" #T, types, lg_##T), ROW("o_" #T, types, o_##T),       \
        ROW("u_" #T, types, u_##T), ROW("nge_" #T, types, nge_##T),                                \
        ROW("nlg_" #T, types, nlg_##T), ROW("ngt_" #T, types, ngt_##T),                            \
        ROW("nle_" #T, types, nle_##T), ROW("nlt_" #T, types, nlt_##T)

const Row compare_rows[] = {
    FLOAT_ROWS(f32, "m=ff"),
    FLOAT_ROWS(f64, "m=dd"),
    FLOAT_ROWS(f16, "m=hh"),
    ORDERED_ROWS(i32, "m=uu", "ne"),
    ORDERED_ROWS(u32, "m=uu", "ne"),
    ORDERED_ROWS(i64, "m=qq", "ne"),
    ORDERED_ROWS(u64, "m=qq", "ne"),
    ORDERED_ROWS(i16, "m=ww", "ne"),
    ORDERED_ROWS(u16, "m=ww", "ne"),
    ROW("class_f32", "m=fu", class_f32),
    ROW("class_f64", "m=du", class_f64),
    { 0 },
};
