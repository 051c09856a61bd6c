/* text_kernel: runs a few instructions as a kernel of their own. */
#ifndef TOOLS_GFXRUN_TEXT_KERNEL_H
#define TOOLS_GFXRUN_TEXT_KERNEL_H

#include "harness/arena.h"

#include "gfxrun/gfxrun.h"

static GfxCounts counts; /* of the last run */

/* The text of a kernel around a few instructions: v0 is the lane, v1 four times the lane; v2 is the
 * result. The first of them is in line 4. Two waves where `items` is 128. */
static inline Status run_text(const char *body, unsigned items, uint64_t seed, uint32_t *out)
{
    static const char head[] = "  s_load_dwordx2 s[2:3], s[0:1], 0x0\n  s_waitcnt lgkmcnt(0)\n"
                               "  v_lshlrev_b32_e32 v1, 2, v0\n";
    static const char tail[] = "\n  global_store_dword v1, v2, s[2:3]\n  s_endpgm\n";
    char text[4096];
    CodeObject *code;
    ArenaMark mark = arena_mark(&arena);
    memset(out, 0xee, 128 * sizeof *out);
    GfxBuffer buffer = { "out", out, 128 * sizeof *out };
    GfxLaunch l = { .kernel = "text",
                    .args = &out,
                    .args_bytes = sizeof out,
                    .buffers = &buffer,
                    .n_buffers = 1,
                    .grid = { 1, 1, 1 },
                    .block = { items, 1, 1 },
                    .dynamic_lds_bytes = 1024,
                    .n_instructions = 10000,
                    .seed = seed };
    CHECK((size_t)snprintf(text, sizeof text, "%s%s%s", head, body, tail) < sizeof text);
    CHECK_OK(gfx_load_text(&arena, text, &code));
    Status s = gfx_run(code, &l, &arena, &counts);
    arena_release(&arena, mark);
    return s;
}

typedef struct Case {
    const char *body;
    int lane;
    uint32_t want;
} Case;

static inline void check_cases(const Case *c, size_t n)
{
    uint32_t out[128];
    for (size_t i = 0; i < n; i++) {
        CHECK_OK(run_text(c[i].body, 64, 0, out));
        if (out[c[i].lane] != c[i].want)
            fail_msg("%s: lane %d has 0x%x, want 0x%x", c[i].body, c[i].lane, out[c[i].lane],
                     c[i].want);
    }
}
#define CHECK_CASES(cases) check_cases(cases, sizeof(cases) / sizeof *(cases))

#endif
