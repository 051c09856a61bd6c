/* Single instructions of gfx942 in gfxrun, with values worked out by hand from AMD's CDNA3 ISA
 * document, and what it must refuse. */
#include "text_kernel.h"

static void integers(void **state)
{
    (void)state;
    static const Case cases[] = {
        { "  v_add_u32_e32 v2, 5, v0", 7, 12 },
        { "  v_subrev_u32_e32 v2, 1, v0", 0, 0xffffffff },
        { "  v_mov_b32_e32 v3, 0x80000000\n  v_mul_hi_u32 v2, v3, v1", 6, 12 },
        { "  v_mov_b32_e32 v3, -8\n  v_ashrrev_i32_e32 v2, 1, v3", 0, 0xfffffffc },
        { "  v_mov_b32_e32 v3, -8\n  v_lshrrev_b32_e32 v2, 1, v3", 0, 0x7ffffffc },
        { "  v_mov_b32_e32 v3, 0xf0\n  v_bfe_i32 v2, v3, 4, 4", 0, 0xffffffff },
        { "  v_mov_b32_e32 v3, 0xf0\n  v_bfe_u32 v2, v3, 4, 3", 0, 7 },
        { "  v_mov_b32_e32 v3, 0x44332211\n  v_mov_b32_e32 v4, 0x88776655\n"
          "  v_mov_b32_e32 v5, 0x0c070100\n  v_perm_b32 v2, v4, v3, v5",
          0, 0x00882211 },
        { "  v_mov_b32_e32 v3, 1\n  v_alignbit_b32 v2, v3, v0, 4", 16, 0x10000001 },
        { "  v_mbcnt_lo_u32_b32 v2, -1, 0\n  v_mbcnt_hi_u32_b32 v2, -1, v2", 37, 37 },
        { "  v_mov_b32_e32 v3, -1\n  v_add_co_u32_e32 v4, vcc, v3, v0\n  v_mov_b32_e32 v5, 0\n"
          "  v_addc_co_u32_e32 v2, vcc, v5, v5, vcc",
          1, 1 },
        { "  v_mov_b32_e32 v3, 0x10000\n  v_mov_b32_e32 v4, 7\n  v_mov_b32_e32 v5, 1\n"
          "  v_mad_u64_u32 v[4:5], s[4:5], v3, v3, v[4:5]\n  v_mov_b32_e32 v2, v5",
          0, 2 },
        { "  v_mov_b32_e32 v3, 0x00ff7f00\n  v_add_u32_sdwa v2, v3, v0 dst_sel:DWORD "
          "dst_unused:UNUSED_PAD src0_sel:BYTE_1 src1_sel:DWORD",
          1, 0x80 },
        { "  v_mov_b32_e32 v3, 0xffff0001\n  v_mov_b32_e32 v4, 0x00020003\n"
          "  v_pk_add_u16 v2, v3, v4",
          0, 0x00010004 },
        { "  v_cmp_gt_u32_e32 vcc, 10, v0\n  v_cndmask_b32_e64 v2, 1, 2, vcc", 9, 2 },
        { "  v_cmp_gt_u32_e32 vcc, 10, v0\n  v_cndmask_b32_e64 v2, 1, 2, vcc", 10, 1 },
    };
    CHECK_CASES(cases);
}

static void floats(void **state)
{
    (void)state;
    static const Case cases[] = {
        { "  v_mov_b32_e32 v3, 1.0\n  v_add_f32_e32 v2, 0.5, v3", 0, 0x3fc00000 },
        { "  v_cvt_f32_u32_e32 v3, v0\n  v_fma_f32 v2, v3, -v3, |v3|", 3, 0xc0c00000 }, /* -9 + 3 */
        { "  v_cvt_f32_u32_e32 v3, v0\n  v_mul_f32_e64 v2, v3, v3 div:2", 4,
          0x41000000 }, /* 16 / 2 */
        { "  v_cvt_f32_u32_e32 v3, v0\n  v_max_f32_e64 v2, v3, v3 clamp", 4, 0x3f800000 },
        { "  v_mov_b32_e32 v3, 0x7fc00000\n  v_max_f32_e32 v2, 1.0, v3", 0, 0x3f800000 },
        { "  v_mov_b32_e32 v3, 0xbfc00000\n  v_cvt_i32_f32_e32 v2, v3", 0, 0xffffffff }, /* -1.5 */
        { "  v_mov_b32_e32 v3, 0x40200000\n  v_rndne_f32_e32 v2, v3", 0, 0x40000000 },   /* 2.5 */
        { "  v_exp_f32_e32 v2, 2.0", 0, 0x40800000 },
        { "  v_mov_b32_e32 v3, 0x477ff000\n  v_cvt_f16_f32_e32 v2, v3", 0, 0x7c00 }, /* 65520 */
        { "  v_mov_b32_e32 v3, 0x33c00000\n  v_cvt_f16_f32_e32 v2, v3", 0, 2 }, /* 1.5 * 2^-24 */
        { "  v_mov_b32_e32 v3, 0x3c00\n  v_cvt_f32_f16_e32 v2, v3", 0, 0x3f800000 },
        { "  v_mov_b32_e32 v3, 0x3c004000\n  v_pack_b32_f16 v2, v3, v3 op_sel:[1,0,0]", 0,
          0x40003c00 },
        { "  v_mov_b32_e32 v3, 0xc0000000\n  v_cmp_class_f32_e64 vcc, v3, 8\n"
          "  v_cndmask_b32_e64 v2, 0, 1, vcc",
          0, 1 },
        { "  v_mov_b32_e32 v4, 1.0\n  v_mov_b32_e32 v5, 2.0\n"
          "  v_pk_fma_f32 v[2:3], v[4:5], v[4:5], v[4:5] op_sel:[0,1,0]",
          0, 0x40400000 }, /* 1 * 2 + 1 */
    };
    CHECK_CASES(cases);
}

/* FNUZ: 1.0 is 0x40 (OCP has 0x38), 240 is the largest, there is no infinity and no -0. */
static void eight_bit_floats_are_fnuz(void **state)
{
    (void)state;
    static const Case cases[] = {
        { "  v_mov_b32_e32 v2, 0\n  v_cvt_pk_fp8_f32 v2, 1.0, -2.0", 0, 0xc840 },
        { "  v_mov_b32_e32 v2, 0x1234\n  v_cvt_pk_fp8_f32 v2, 1.0, 1.0 op_sel:[0,0,1]", 0,
          0x40401234 },
        { "  v_mov_b32_e32 v2, 0\n  v_mov_b32_e32 v3, 0x43700000\n  v_mov_b32_e32 v4, 0x43e00000\n"
          "  v_cvt_pk_fp8_f32 v2, v3, v4",
          0, 0x807f }, /* 240, 448 */
        { "  v_mov_b32_e32 v2, 0\n  v_mov_b32_e32 v3, 0x80000000\n  v_cvt_pk_fp8_f32 v2, v3, v3", 0,
          0 },
        { "  v_mov_b32_e32 v2, 0\n  v_cvt_pk_bf8_f32 v2, 1.0, 4.0", 0, 0x4840 },
        { "  v_mov_b32_e32 v3, 0x40\n  v_cvt_f32_fp8_e32 v2, v3", 0, 0x3f800000 },
        { "  v_mov_b32_e32 v3, 0x01\n  v_cvt_f32_fp8_e32 v2, v3", 0, 0x3a800000 }, /* 2^-10 */
    };
    CHECK_CASES(cases);
}

/* The steps that clang makes of 1 / 3. */
static void division_is_rounded_correctly(void **state)
{
    (void)state;
    static const Case cases[] = {
        { "  v_mov_b32_e32 v3, 0x40400000\n  v_mov_b32_e32 v4, 1.0\n"
          "  v_div_scale_f32 v5, s[4:5], v3, v3, v4\n  v_rcp_f32_e32 v6, v5\n"
          "  v_fma_f32 v7, -v5, v6, 1.0\n  v_fmac_f32_e32 v6, v7, v6\n"
          "  v_div_scale_f32 v7, vcc, v4, v3, v4\n  v_mul_f32_e32 v8, v7, v6\n"
          "  v_fma_f32 v9, -v5, v8, v7\n  v_fmac_f32_e32 v8, v9, v6\n  v_fma_f32 v5, -v5, v8, v7\n"
          "  v_div_fmas_f32 v5, v5, v6, v8\n  v_div_fixup_f32 v2, v5, v3, v4",
          0, 0x3eaaaaab },
    };
    CHECK_CASES(cases);
}

static void exchanges_between_lanes(void **state)
{
    (void)state;
    static const Case cases[] = {
        { "  v_mov_b32_e32 v2, 99\n  v_mov_b32_dpp v2, v0 row_shr:1 row_mask:0xf bank_mask:0xf", 5,
          4 },
        { "  v_mov_b32_e32 v2, 99\n  v_mov_b32_dpp v2, v0 row_shr:1 row_mask:0xf bank_mask:0xf", 16,
          99 },
        { "  v_mov_b32_dpp v2, v0 row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:0", 16, 0 },
        { "  v_mov_b32_dpp v2, v0 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf", 6, 7 },
        { "  v_mov_b32_dpp v2, v0 row_half_mirror row_mask:0xf bank_mask:0xf", 8, 15 },
        { "  v_mov_b32_dpp v2, v0 row_mirror row_mask:0xf bank_mask:0xf", 17, 30 },
        { "  v_mov_b32_e32 v2, 99\n  v_mov_b32_dpp v2, v0 row_bcast:15 row_mask:0xa bank_mask:0xf",
          20, 15 },
        { "  v_mov_b32_e32 v2, 99\n  v_mov_b32_dpp v2, v0 row_bcast:15 row_mask:0xa bank_mask:0xf",
          40, 99 },
        { "  v_xor_b32_e32 v3, 0x80, v1\n  ds_bpermute_b32 v2, v3, v0\n  s_waitcnt lgkmcnt(0)", 3,
          35 },
        { "  ds_swizzle_b32 v2, v0 offset:32796\n  s_waitcnt lgkmcnt(0)", 4,
          4 }, /* quads: 0 3 1 0 */
        { "  ds_swizzle_b32 v2, v0 offset:32796\n  s_waitcnt lgkmcnt(0)", 5, 7 },
        { "  v_readlane_b32 s4, v0, 33\n  v_mov_b32_e32 v2, s4", 0, 33 },
        { "  s_mov_b64 exec, 0xf0\n  v_readfirstlane_b32 s4, v0\n  s_mov_b64 exec, -1\n"
          "  v_mov_b32_e32 v2, s4",
          0, 4 },
        { "  v_mov_b32_e32 v2, v0\n  s_movk_i32 s4, 0x7\n  v_writelane_b32 v2, s4, 3", 3, 7 },
    };
    CHECK_CASES(cases);
}

static void scalars_and_branches(void **state)
{
    (void)state;
    static const Case cases[] = {
        { "  s_mov_b32 s4, -1\n  s_add_u32 s5, s4, 2\n  s_addc_u32 s6, 0, 0\n  v_mov_b32_e32 v2, "
          "s6",
          0, 1 },
        { "  s_mov_b32 s4, 0xabcd\n  s_bfe_u32 s5, s4, 0x80004\n  v_mov_b32_e32 v2, s5", 0, 0xbc },
        { "  s_mov_b64 s[4:5], 0x100\n  s_ff1_i32_b64 s6, s[4:5]\n  v_mov_b32_e32 v2, s6", 0, 8 },
        { "  s_movk_i32 s4, 0x5\n  s_cmp_lt_i32 s4, 6\n  s_cselect_b32 s5, 1, 2\n  v_mov_b32_e32 "
          "v2, s5",
          0, 1 },
        { "  v_mov_b32_e32 v2, 1\n  s_branch 1\n  v_mov_b32_e32 v2, 2\n  s_nop 0", 0, 1 },
        /* rounding to nearest is 0, the subnormal numbers of f32 and f16 are 3 each */
        { "  s_getreg_b32 s4, hwreg(HW_REG_MODE, 2, 6)\n  v_mov_b32_e32 v2, s4", 0, 0x3c },
        /* five rounds */
        { "  v_mov_b32_e32 v2, 0\n  s_mov_b32 s4, 5\n  v_add_u32_e32 v2, 3, v2\n  s_sub_u32 s4, "
          "s4, 1\n"
          "  s_cmp_lg_u32 s4, 0\n  s_cbranch_scc1 65532",
          9, 15 },
        { "  v_mov_b32_e32 v2, 0\n  v_cmp_gt_u32_e32 vcc, 3, v0\n  s_and_saveexec_b64 s[4:5], vcc\n"
          "  v_mov_b32_e32 v2, 1\n  s_or_b64 exec, exec, s[4:5]",
          2, 1 },
        { "  v_mov_b32_e32 v2, 0\n  v_cmp_gt_u32_e32 vcc, 3, v0\n  s_and_saveexec_b64 s[4:5], vcc\n"
          "  v_mov_b32_e32 v2, 1\n  s_or_b64 exec, exec, s[4:5]",
          3, 0 },
    };
    CHECK_CASES(cases);
}

static void memory_of_the_workgroup(void **state)
{
    (void)state;
    static const Case cases[] = {
        { "  ds_write_b32 v1, v0 offset:256\n  v_xor_b32_e32 v3, 4, v1\n  ds_read_b32 v2, v3 "
          "offset:256\n"
          "  s_waitcnt lgkmcnt(0)",
          6, 7 },
        { "  v_lshlrev_b32_e32 v3, 3, v0\n  v_add_u32_e32 v5, 9, v0\n  ds_write2_b32 v3, v0, v5 "
          "offset1:1\n"
          "  ds_read_b64 v[6:7], v3\n  s_waitcnt lgkmcnt(0)\n  v_mov_b32_e32 v2, v7",
          5, 14 },
        { "  v_mov_b32_e32 v3, 0\n  v_mov_b32_e32 v4, 1\n  ds_write_b32 v3, v3\n  ds_add_rtn_u32 "
          "v2, v3, v4\n"
          "  s_waitcnt lgkmcnt(0)",
          63, 63 },
        { "  v_mov_b32_e32 v3, 0xff85\n  ds_write_b16 v1, v3\n  ds_read_i8 v2, v1\n  s_waitcnt "
          "lgkmcnt(0)",
          0, 0xffffff85 },
    };
    CHECK_CASES(cases);
}

/* A and B hold 16 k + i: D(1, 2) = 1*2 + 17*18 + 33*34 + 49*50 = 3880, in register 1 of lane 2. */
static void matrix_product_of_16(void **state)
{
    (void)state;
    static const Case cases[] = {
        { "  v_cvt_f32_u32_e32 v3, v0\n  v_mfma_f32_16x16x4_f32 a[0:3], v3, v3, 0\n"
          "  v_accvgpr_read_b32 v2, a1",
          2, 0x45728000 },
        /* D(13, 15) = 13*15 + 29*31 + 45*47 + 61*63 = 7052, in register 1 of lane 48 + 15; C adds 1 */
        { "  v_cvt_f32_u32_e32 v3, v0\n  v_mfma_f32_16x16x4_f32 v[4:7], v3, v3, 1.0\n"
          "  v_mov_b32_e32 v2, v5",
          63, 0x45dc6800 },
    };
    CHECK_CASES(cases);
}

/* A and B hold ones of 8 bits, A's row 5 has twos in columns 8 to 15: 8 + 16, in register 1 of the upper
 * lanes. Row 1 is in the lower ones. */
static void matrix_product_of_8_bits(void **state)
{
    (void)state;
#define PRODUCT                                                                                    \
    "  v_mov_b32_e32 v4, 0x40404040\n  v_mov_b32_e32 v5, v4\n  v_mov_b32_e32 v6, v4\n"             \
    "  v_mov_b32_e32 v7, v4\n  v_mov_b32_e32 v3, 0x48484848\n  v_cmp_eq_u32_e32 vcc, 37, v0\n"     \
    "  v_cndmask_b32_e32 v4, v4, v3, vcc\n  v_cndmask_b32_e32 v5, v5, v3, vcc\n"                   \
    "  v_mfma_f32_32x32x16_fp8_fp8 a[0:15], v[4:5], v[6:7], 0\n  v_accvgpr_read_b32 v2, a1"
    static const Case cases[] = { { PRODUCT, 40, 0x41c00000 }, { PRODUCT, 8, 0x41800000 } };
    CHECK_CASES(cases);
}

static void unknown_instruction_is_named(void **state)
{
    (void)state;
    uint32_t out[128];
    CodeObject *code;
    CHECK_OK(gfx_load_text(&arena, "  s_nop 0\n  v_frobnicate_b32 v2, v0\n  s_endpgm\n", &code));
    CHECK_FAILS(gfx_check(code), ERR_UNSUPPORTED,
                "`v_frobnicate_b32 v2, v0` in line 2 is not known, nor are 0 more");
    CHECK_FAILS(run_text("  v_frobnicate_b32 v2, v0", 64, 0, out), ERR_DEVICE,
                "is not known (`v_frobnicate_b32 v2, v0`, line 4,");
}

static void use_of_what_was_not_written_is_an_error(void **state)
{
    (void)state;
    uint32_t out[128];
    CHECK_FAILS(run_text("  v_add_u32_e32 v2, v7, v0", 64, 0, out), ERR_DEVICE,
                "v7 is read before it was written");
    CHECK_FAILS(run_text("  v_mov_b32_e32 v2, s9", 64, 0, out), ERR_DEVICE,
                "s9 is read before it was written");
    CHECK_FAILS(run_text("  s_mov_b64 exec, 0xff\n  v_mov_b32_e32 v3, 0\n  s_mov_b64 exec, -1\n"
                         "  v_add_u32_e32 v2, v3, v0",
                         64, 0, out),
                ERR_DEVICE, "lane 8");
    CHECK_FAILS(run_text("  ds_read_b32 v2, v1\n  s_waitcnt lgkmcnt(0)", 64, 0, out), ERR_DEVICE,
                "LDS is read at 0 before it was written");
    CHECK_FAILS(
        run_text("  ds_write_b16 v1, v0\n  ds_read_b32 v2, v1\n  s_waitcnt lgkmcnt(0)", 64, 0, out),
        ERR_DEVICE, "LDS is read at 0 before it was written");
    CHECK_FAILS(run_text("  v_mov_b32_e32 v2, v7", 64, 0, out), ERR_DEVICE,
                "v7 is read before it was written in line 4 (`global_store_dword v1, v2");
}

static void use_before_its_wait_is_an_error(void **state)
{
    (void)state;
    uint32_t out[128];
    static const char load[] =
        "  v_mov_b32_e32 v2, 7\n  global_store_dword v1, v2, s[2:3]\n"
        "  global_load_dword v3, v1, s[2:3]\n  global_load_dword v4, v1, s[2:3]\n";
    char text[512];
    (void)snprintf(text, sizeof text, "%s  s_waitcnt vmcnt(1)\n  v_mov_b32_e32 v2, v3", load);
    CHECK_OK(run_text(text, 64, 0, out)); /* the first of two is there */
    (void)snprintf(text, sizeof text, "%s  s_waitcnt vmcnt(1)\n  v_mov_b32_e32 v2, v4", load);
    CHECK_FAILS(run_text(text, 64, 0, out), ERR_DEVICE, "v4 is used before s_waitcnt");
    (void)snprintf(text, sizeof text, "%s  s_waitcnt lgkmcnt(0)\n  v_mov_b32_e32 v2, v3", load);
    CHECK_FAILS(run_text(text, 64, 0, out), ERR_DEVICE, "(vmcnt)");
    (void)snprintf(text, sizeof text, "%s  v_mov_b32_e32 v4, 0\n  s_waitcnt vmcnt(0)", load);
    CHECK_FAILS(run_text(text, 64, 0, out), ERR_DEVICE,
                "v4 is used before s_waitcnt"); /* overwritten */
    (void)snprintf(text, sizeof text, "%s  global_load_dword v4, v1, s[2:3]\n  s_waitcnt vmcnt(0)",
                   load);
    CHECK_OK(run_text(text, 64, 0, out)); /* by a load, which comes later */
    (void)snprintf(text, sizeof text, "%s  ds_read_b32 v4, v1\n  s_waitcnt vmcnt(0)", load);
    CHECK_FAILS(run_text(text, 64, 0, out), ERR_DEVICE, "v4 is used before s_waitcnt");
    CHECK_FAILS(run_text("  s_load_dword s4, s[0:1], 0x0\n  v_mov_b32_e32 v2, s4", 64, 0, out),
                ERR_DEVICE, "s4 is used before s_waitcnt");
    /* scalar loads may overtake each other: a wait for all but one says nothing */
    CHECK_FAILS(run_text("  s_load_dword s4, s[0:1], 0x0\n  s_load_dword s5, s[0:1], 0x4\n"
                         "  s_waitcnt lgkmcnt(1)\n  v_mov_b32_e32 v2, s4",
                         64, 0, out),
                ERR_DEVICE, "s4 is used before s_waitcnt");
}

/* Each wave writes its words and reads those of the other. */
static void exchange_of_two_waves(const char *between, char body[512])
{
    (void)snprintf(body, 512,
                   "  ds_write_b32 v1, v0\n%s  v_xor_b32_e32 v3, 0x100, v1\n  ds_read_b32 v2, v3\n"
                   "  s_waitcnt lgkmcnt(0)",
                   between);
}

static void races_are_found_in_any_order_of_waves(void **state)
{
    (void)state;
    uint32_t out[128];
    char body[512];
    for (uint64_t seed = 0; seed < 16; seed++) {
        exchange_of_two_waves("  s_waitcnt lgkmcnt(0)\n  s_barrier\n", body);
        CHECK_OK(run_text(body, 128, seed, out));
        CHECK_INT(out[5], 69);
        CHECK_INT(out[69], 5);
        exchange_of_two_waves("  s_barrier\n", body); /* a write may still be on its way */
        CHECK_FAILS(run_text(body, 128, seed, out), ERR_DEVICE, "race: LDS");
        exchange_of_two_waves("  s_waitcnt lgkmcnt(0)\n", body);
        CHECK_FAILS(run_text(body, 128, seed, out), ERR_DEVICE, "LDS");
    }
}

/* The first wave writes again what the second one reads, before or after. */
static void write_after_read_without_a_barrier_is_a_race(void **state)
{
    (void)state;
    static const char write[] = "  v_cmp_gt_u32_e32 vcc, 64, v0\n  s_and_saveexec_b64 s[4:5], vcc\n"
                                "  ds_write_b32 v1, v2\n  s_mov_b64 exec, s[4:5]";
    uint32_t out[128];
    char body[512], again[800];
    exchange_of_two_waves("  s_waitcnt lgkmcnt(0)\n  s_barrier\n", body);
    for (uint64_t seed = 0; seed < 16; seed++) {
        (void)snprintf(again, sizeof again, "%s\n%s", body, write);
        CHECK_FAILS(run_text(again, 128, seed, out), ERR_DEVICE, "race: LDS");
        (void)snprintf(again, sizeof again, "%s\n  s_barrier\n%s", body, write);
        CHECK_OK(run_text(again, 128, seed, out));
    }
}

static int64_t conflicts(const char *body)
{
    uint32_t out[128];
    CHECK_OK(run_text(body, 64, 0, out));
    return counts.conflict_cycles;
}

static void bank_conflicts_are_counted(void **state)
{
    (void)state;
    CHECK_INT(conflicts("  v_mov_b32_e32 v2, 0\n  ds_write_b32 v1, v2"), 0);
    /* every other bank: each half of the wave has two words a bank */
    CHECK_INT(
        conflicts("  v_mov_b32_e32 v2, 0\n  v_lshlrev_b32_e32 v3, 3, v0\n  ds_write_b32 v3, v2"),
        2);
    /* the same instruction three times: each lane's, every other and every fourth word */
    CHECK_INT(conflicts("  v_mov_b32_e32 v2, 0\n  v_mov_b32_e32 v3, v1\n  s_mov_b32 s4, 3\n"
                        "  ds_write_b32 v3, v2\n  v_lshlrev_b32_e32 v3, 1, v3\n"
                        "  s_sub_u32 s4, s4, 1\n  s_cmp_lg_u32 s4, 0\n  s_cbranch_scc1 65531"),
              0 + 2 + 6);
    /* one word for all lanes */
    CHECK_INT(conflicts("  v_mov_b32_e32 v2, 0\n  v_mov_b32_e32 v3, 0\n  ds_write_b32 v3, v2\n"
                        "  ds_read_b32 v4, v3"),
              0);
    /* 16 bytes a lane, one behind the other */
    CHECK_INT(
        conflicts(
            "  v_mov_b32_e32 v2, 0\n  v_mov_b32_e32 v4, 0\n  v_mov_b32_e32 v5, 0\n"
            "  v_mov_b32_e32 v3, 0\n  v_lshlrev_b32_e32 v6, 4, v0\n  ds_write_b128 v6, v[2:5]\n"
            "  ds_read_b128 v[8:11], v6"),
        0);
    /* 8 rows of 128 bytes: 8 lanes of a phase write to the same four banks, 7 * 8 cycles. Reads take 4
     * lanes from one column and 4 from another, 3 * 8 cycles. */
    CHECK_INT(
        conflicts(
            "  v_mov_b32_e32 v2, 0\n  v_mov_b32_e32 v4, 0\n  v_mov_b32_e32 v5, 0\n"
            "  v_mov_b32_e32 v3, 0\n  v_and_b32_e32 v6, 7, v0\n  v_lshlrev_b32_e32 v6, 7, v6\n"
            "  v_lshrrev_b32_e32 v7, 3, v0\n  v_lshl_add_u32 v6, v7, 4, v6\n"
            "  ds_write_b128 v6, v[2:5]\n  ds_read_b128 v[8:11], v6"),
        56 + 24);
}

static void a_loop_without_an_end_is_an_error(void **state)
{
    (void)state;
    uint32_t out[128];
    CHECK_FAILS(run_text("  s_branch 65535", 128, 0, out), ERR_DEVICE, "no end after");
    CHECK(strstr(status_message(), "`s_branch 65535`") != NULL);
}

static void memory_outside_is_an_error(void **state)
{
    (void)state;
    uint32_t out[128];
    CHECK_FAILS(run_text("  v_mov_b32_e32 v2, 0\n  global_store_dword v1, v2, s[2:3] offset:512",
                         64, 0, out),
                ERR_DEVICE, "in no buffer");
    CHECK_FAILS(
        run_text(
            "  v_mov_b32_e32 v2, 0\n  v_mov_b32_e32 v3, 0\n  global_store_dword v3, v2, s[0:1]", 64,
            0, out),
        ERR_DEVICE, "in no buffer"); /* the arguments */
    /* these may be read up to a multiple of 64 bytes */
    CHECK_OK(run_text("  s_load_dwordx16 s[4:19], s[0:1], 0x0\n  s_waitcnt lgkmcnt(0)\n"
                      "  v_mov_b32_e32 v2, s19",
                      64, 0, out));
    CHECK_FAILS(run_text("  v_mov_b32_e32 v2, 0\n  s_load_dword s4, s[0:1], 0x40", 64, 0, out),
                ERR_DEVICE, "in no buffer");
    CHECK_FAILS(run_text("  v_mov_b32_e32 v2, 0\n  ds_write_b32 v1, v2 offset:1020", 64, 0, out),
                ERR_DEVICE, "LDS at 1024 of 1024 bytes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(integers),
        TEST(floats),
        TEST(eight_bit_floats_are_fnuz),
        TEST(division_is_rounded_correctly),
        TEST(exchanges_between_lanes),
        TEST(scalars_and_branches),
        TEST(memory_of_the_workgroup),
        TEST(matrix_product_of_16),
        TEST(matrix_product_of_8_bits),
        TEST(unknown_instruction_is_named),
        TEST(use_of_what_was_not_written_is_an_error),
        TEST(use_before_its_wait_is_an_error),
        TEST(races_are_found_in_any_order_of_waves),
        TEST(write_after_read_without_a_barrier_is_a_race),
        TEST(bank_conflicts_are_counted),
        TEST(a_loop_without_an_end_is_an_error),
        TEST(memory_outside_is_an_error),
    };
    return ARENA_RUN(tests);
}
