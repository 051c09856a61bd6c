/* Undefined bits in gfxrun: which may be copied and combined, and where they are an error. */
#include "text_kernel.h"

/* v7 to v9 and s8 to s11 were never written. */
static void bits_that_no_result_depends_on(void **state)
{
    (void)state;
    static const Case cases[] = {
        /* the high half of the addend reaches only the high half of the sum */
        { "  v_mov_b32_e32 v6, 5\n  v_mad_u64_u32 v[4:5], s[4:5], v0, v0, v[6:7]\n"
          "  v_mov_b32_e32 v2, v4",
          9, 86 },
        { "  v_mov_b32_e32 v6, 5\n  v_lshl_add_u64 v[4:5], v[6:7], 2, v[6:7]\n"
          "  v_mov_b32_e32 v2, v4",
          0, 25 },
        { "  v_mov_b32_e32 v6, 5\n  v_lshlrev_b64 v[4:5], 32, v[6:7]\n  v_mov_b32_e32 v2, v5", 0,
          5 },
        { "  v_mov_b32_e32 v6, 5\n  v_lshrrev_b64 v[4:5], 32, v[7:8]\n  v_mov_b32_e32 v2, v6", 0,
          5 },
        { "  v_mov_b32_e32 v6, 1.0\n  v_pk_add_f32 v[4:5], v[6:7], v[6:7]\n  v_mov_b32_e32 v2, v4",
          0, 0x40000000 },
        { "  v_mov_b32_e32 v6, 1.0\n  v_pk_add_f32 v[4:5], v[6:7], v[6:7] op_sel_hi:[0,0]\n"
          "  v_mov_b32_e32 v2, v5",
          0, 0x40000000 },
        /* copies that nobody uses */
        { "  v_mov_b32_e32 v4, v7\n  v_mov_b64_e32 v[4:5], v[8:9]\n  v_accvgpr_write_b32 a0, v4\n"
          "  s_mov_b64 s[4:5], s[8:9]\n  v_readlane_b32 s6, v7, 3\n  v_readfirstlane_b32 s7, v7\n"
          "  v_add_f32_e32 v5, v7, v8\n  v_mov_b32_e32 v2, 3",
          0, 3 },
        /* what is not selected */
        { "  v_cmp_gt_u32_e32 vcc, 8, v0\n  v_mov_b32_e32 v3, 4\n  s_mov_b64 exec, 0xff\n"
          "  v_mov_b32_e32 v4, 3\n  s_mov_b64 exec, -1\n  v_cndmask_b32_e32 v2, v3, v4, vcc",
          7, 3 },
        { "  s_cmp_eq_u32 0, 0\n  s_cselect_b32 s4, 6, s8\n  v_mov_b32_e32 v2, s4", 0, 6 },
        { "  v_mov_b32_e32 v3, 0xff\n  v_bfi_b32 v4, v3, 7, v8\n  v_and_b32_e32 v2, 0xf, v4", 0,
          7 },
        { "  v_mov_b32_e32 v3, 0x0c0c0004\n  v_perm_b32 v2, v0, v7, v3\n  v_and_b32_e32 v2, 0xff, "
          "v2",
          9, 9 },
        { "  v_and_or_b32 v3, v7, 0, 6\n  v_lshl_or_b32 v3, v8, 16, v3\n"
          "  v_and_b32_e32 v2, 0xffff, v3",
          0, 6 },
        /* halves of registers */
        { "  v_cvt_f16_f32_e32 v3, 1.0\n  v_pk_add_f16 v4, v7, v3 op_sel:[1,0] op_sel_hi:[1,0]\n"
          "  v_pack_b32_f16 v2, v3, v3",
          0, 0x3c003c00 },
        { "  v_mov_b32_e32 v4, 0x1234\n  ds_write_b32 v1, v4\n  ds_read_u16_d16 v7, v1\n"
          "  s_waitcnt lgkmcnt(0)\n  v_mov_b32_e32 v8, v7\n  v_and_b32_e32 v2, 0xffff, v8",
          0, 0x1234 },
        { "  v_mov_b32_e32 v4, 0x12\n  v_mov_b32_sdwa v7, v4 dst_sel:BYTE_1 "
          "dst_unused:UNUSED_PRESERVE src0_sel:DWORD\n  v_bfe_u32 v2, v7, 8, 8",
          0, 0x12 },
        /* lanes that are off */
        { "  s_andn2_b64 s[8:9], s[8:9], exec\n  v_cndmask_b32_e64 v2, 4, 5, s[8:9]", 63, 4 },
        { "  s_mov_b64 exec, 0xff\n  v_cmp_eq_u32_e64 s[8:9], v0, v0\n  v_mov_b32_e32 v7, v1\n"
          "  ds_bpermute_b32 v8, v7, v0\n  s_waitcnt lgkmcnt(0)\n  s_mov_b64 exec, -1\n"
          "  v_cndmask_b32_e64 v2, 3, v8, s[8:9]",
          7, 7 },
        { "  v_xor_b32_e32 v2, v7, v7", 0, 0 },
    };
    CHECK_CASES(cases);
}

/* Rows of A that are undefined only reach their rows of D, columns of B their columns. D(i, j) is in
 * register i % 4 of lane 16 (i / 4) + j. */
static void matrices_with_undefined_rows(void **state)
{
    (void)state;
    uint32_t out[128];
    static const char product[] =
        "  v_mov_b32_e32 v4, 1.0\n  s_mov_b32 s4, 0x000f000f\n  s_mov_b32 s5, s4\n"
        "  s_mov_b64 exec, s[4:5]\n  v_mov_b32_e32 v3, 2.0\n  s_mov_b64 exec, -1\n"
        "  v_mfma_f32_16x16x4_f32 v[8:11], v3, v4, 0\n";
    char text[512];
    (void)snprintf(text, sizeof text, "%s  s_mov_b64 exec, 0xffff\n  v_mov_b32_e32 v2, v9",
                   product);
    CHECK_OK(run_text(text, 64, 0, out)); /* row 1 */
    CHECK_INT(out[15], 0x41000000);
    (void)snprintf(text, sizeof text, "%s  v_mov_b32_e32 v2, v9", product);
    CHECK_FAILS(run_text(text, 64, 0, out), ERR_DEVICE,
                "v3 is read before it was written in line 10");
    CHECK(strstr(status_message(), "lane 16)") != NULL); /* row 5 */
}

static void undefined_bits_in_lds_and_scratch(void **state)
{
    (void)state;
    static const Case cases[] = {
        { "  ds_write_b32 v1, v7\n  ds_read_b32 v3, v1\n  s_waitcnt lgkmcnt(0)\n"
          "  v_mov_b32_e32 v2, 1",
          0, 1 },
        { "  ds_write_b32 v1, v7\n  ds_write_b32 v1, v0\n  ds_read_b32 v2, v1\n"
          "  s_waitcnt lgkmcnt(0)",
          5, 5 },
        { "  ds_write_b32 v1, v7\n  ds_write_b8 v1, v0\n  ds_read_u8 v2, v1\n  s_waitcnt "
          "lgkmcnt(0)",
          5, 5 },
        { "  v_mov_b32_e32 v6, 3\n  scratch_store_dwordx2 off, v[6:7], off\n"
          "  scratch_load_dwordx2 v[4:5], off, off\n  s_waitcnt vmcnt(0)\n  v_mov_b32_e32 v2, v4",
          0, 3 },
    };
    CHECK_CASES(cases);
    uint32_t out[128];
    CHECK_FAILS(
        run_text("  ds_write_b32 v1, v7\n  ds_read_b32 v2, v1\n  s_waitcnt lgkmcnt(0)", 64, 0, out),
        ERR_DEVICE, "v2 is undefined: in line 5 it was loaded from undefined bytes");
    CHECK_FAILS(run_text("  scratch_load_dword v2, off, off\n  s_waitcnt vmcnt(0)", 64, 0, out),
                ERR_DEVICE, "v2 is undefined: in line 4 it was loaded from undefined bytes");
    CHECK_FAILS(
        run_text("  v_mov_b32_e32 v2, 0\n  ds_write_b32 v1, v7\n  ds_add_u32 v1, v2", 64, 0, out),
        ERR_DEVICE, "an atomic reads undefined LDS at 0");
}

static void fails(const char *body, const char *why)
{
    uint32_t out[128];
    CHECK_FAILS(run_text(body, 64, 0, out), ERR_DEVICE, why);
}

/* The message names the first instruction that read the register. */
static void undefined_bits_are_an_error_where_they_are_seen(void **state)
{
    (void)state;
    /* memory */
    fails("  v_add_f32_e32 v3, v7, v0\n  v_exp_f32_e32 v3, v3\n  v_min_f32_e32 v2, 1.0, v3",
          "v2 is undefined: v7 is read before it was written in line 4 (`global_store_dword");
    fails("  v_max_f32_e32 v2, 0x7e000000, v7", "v7 is read before it was written in line 4");
    fails("  v_min_i32_e32 v2, 0x81000000, v7", "v7 is read before it was written in line 4");
    fails("  v_cvt_u32_f32_e32 v2, v7", "v7 is read before it was written in line 4");
    fails("  v_mov_b32_e32 v2, s9", "s9 is read before it was written in line 4");
    fails("  v_mov_b32_e32 v2, 0\n  s_mov_b32 s4, s9\n  v_readfirstlane_b32 s5, v7\n"
          "  s_add_u32 s4, s4, s5\n  v_mov_b32_e32 v2, s4",
          "s9 is read before it was written in line 5");
    fails("  v_mov_b32_e32 v2, 0\n  v_and_b32_e32 v3, 4, v7\n  global_store_dword v3, v2, s[2:3]",
          "v3 is undefined: v7 is read before it was written in line 5 (`global_store_dword v3");
    fails("  v_mov_b32_e32 v2, 0\n  v_and_b32_e32 v3, 4, v7\n  ds_write_b32 v3, v2",
          "v7 is read before it was written in line 5 (`ds_write_b32");
    fails("  v_mov_b32_e32 v2, 0\n  global_atomic_add v1, v7, s[2:3]",
          "v7 is read before it was written (`global_atomic_add");
    fails("  v_mov_b32_e32 v2, 0\n  ds_add_u32 v1, v7",
          "v7 is read before it was written (`ds_add_u32");
    fails("  v_mov_b32_e32 v2, 0\n  s_load_dword s4, s[8:9], 0x0",
          "s8 is read before it was written");
    /* branches and exec */
    fails("  v_mov_b32_e32 v2, 0\n  s_cmp_eq_u32 s9, 77\n  s_cbranch_scc1 0",
          "scc is undefined: s9 is read before it was written in line 5");
    fails("  v_mov_b32_e32 v2, 0\n  v_cmp_eq_u32_e32 vcc, 77, v7\n  s_cbranch_vccnz 0",
          "vcc_lo is undefined: v7 is read before it was written in line 5");
    fails("  v_mov_b32_e32 v2, 0\n  v_cmp_eq_u32_e32 vcc, 77, v7\n"
          "  s_and_saveexec_b64 s[4:5], vcc",
          "vcc_lo is undefined: v7 is read before it was written in line 5 (`s_and_saveexec");
    fails("  v_mov_b32_e32 v2, 0\n  v_cmp_u_f32_e32 vcc, v7, v7\n  v_cndmask_b32_e64 v2, 0, 1, vcc",
          "v2 is undefined: v7 is read before it was written in line 5");
    fails("  v_mov_b32_e32 v2, 0\n  s_mov_b64 exec, s[8:9]", "s8 is read before it was written");
    /* the half that a load kept, and the lanes that were off */
    fails("  v_mov_b32_e32 v4, 0x1234\n  ds_write_b32 v1, v4\n  ds_read_u16_d16 v7, v1\n"
          "  s_waitcnt lgkmcnt(0)\n  v_lshrrev_b32_e32 v2, 16, v7",
          "v7 is read before it was written in line 8");
    fails("  s_mov_b64 exec, 0xff\n  v_mov_b32_e32 v7, v1\n  s_mov_b64 exec, -1\n"
          "  v_xor_b32_e32 v3, 32, v1\n  ds_bpermute_b32 v2, v3, v7\n  s_waitcnt lgkmcnt(0)",
          "v7 is read before it was written in line 8");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(bits_that_no_result_depends_on),
        TEST(matrices_with_undefined_rows),
        TEST(undefined_bits_in_lds_and_scratch),
        TEST(undefined_bits_are_an_error_where_they_are_seen),
    };
    return ARENA_RUN(tests);
}
