// Small kernels for the tests of gfxrun, compiled by test_kernels.c for gfx942. OpenCL C, since clang
// compiles it without any header or library.
typedef float f4 __attribute__((ext_vector_type(4)));
typedef float f16v __attribute__((ext_vector_type(16)));
typedef short s4 __attribute__((ext_vector_type(4)));

#define LANE __builtin_amdgcn_workitem_id_x()

static void block_sync(void)
{
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

kernel void saxpy(global float *y, global const float *x, float a, int n)
{
    int i = __builtin_amdgcn_workgroup_id_x() * 256 + LANE;
    if (i < n) y[i] = a * x[i] + y[i];
}

// As saxpy, without the test for the end.
kernel void saxpy_past_end(global float *y, global const float *x, float a, int n)
{
    int i = __builtin_amdgcn_workgroup_id_x() * 256 + LANE;
    y[i] = a * x[i] + y[i];
}

static float add_lanes(float s)
{
    // within a row of 16 by DPP: quad_perm 1032, quad_perm 2301, row_half_mirror, row_mirror
    s += as_float(__builtin_amdgcn_update_dpp(0, as_int(s), 0xb1, 15, 15, true));
    s += as_float(__builtin_amdgcn_update_dpp(0, as_int(s), 0x4e, 15, 15, true));
    s += as_float(__builtin_amdgcn_update_dpp(0, as_int(s), 0x141, 15, 15, true));
    s += as_float(__builtin_amdgcn_update_dpp(0, as_int(s), 0x140, 15, 15, true));
    int lane = LANE & 63;
    s += as_float(__builtin_amdgcn_ds_bpermute((lane ^ 16) * 4, as_int(s)));
    s += as_float(__builtin_amdgcn_ds_bpermute((lane ^ 32) * 4, as_int(s)));
    return s;
}

kernel void block_sum(global float *out, global const float *x, int n)
{
    local float part[4];
    float s = 0;
    for (int i = LANE; i < n; i += 256) s += x[i];
    s = add_lanes(s);
    if (LANE % 64 == 0) part[LANE / 64] = s;
    block_sync();
    if (LANE == 0) out[0] = part[0] + part[1] + part[2] + part[3];
}

// As block_sum, without its barrier: a race.
kernel void block_sum_race(global float *out, global const float *x, int n)
{
    local float part[4];
    float s = 0;
    for (int i = LANE; i < n; i += 256) s += x[i];
    s = add_lanes(s);
    if (LANE % 64 == 0) *(volatile local float *)&part[LANE / 64] = s;
    if (LANE == 0) {
        volatile local float *p = part;
        out[0] = p[0] + p[1] + p[2] + p[3];
    }
}

// c = a b^T for 32 x 32 tiles of bf16, one wave.
kernel void product(global float *c, global const short *a, global const short *b, int k_end)
{
    int l = LANE;
    f16v acc = 0;
    for (int k = 0; k < k_end; k += 8) {
        s4 x = *(global const s4 *)(a + (l & 31) * k_end + k + (l >> 5) * 4);
        s4 y = *(global const s4 *)(b + (l & 31) * k_end + k + (l >> 5) * 4);
        acc = __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(x, y, acc, 0, 0, 0);
    }
    for (int i = 0; i < 16; i++) c[(i / 4 * 8 + (l >> 5) * 4 + i % 4) * 32 + (l & 31)] = acc[i];
}

// All that an optimizer's update has of arithmetic: division, square root, integers of 64 bits.
kernel void update(global float *w, global const float *g, long n, float eps)
{
    for (long i = __builtin_amdgcn_workgroup_id_x() * 64 + LANE; i < n; i += 128)
        w[i] -= g[i] / (__builtin_sqrtf(g[i] * g[i]) + eps);
}

kernel void count_bytes(global int *bins, global const uchar *x, int n)
{
    for (int i = LANE; i < n; i += 64)
        __opencl_atomic_fetch_add((global atomic_int *)&bins[x[i] & 15], 1, __ATOMIC_RELAXED,
                                  __OPENCL_MEMORY_SCOPE_DEVICE);
}

// c = a b^T in f32 for bf16 operands whose sizes are multiples of the tile of 64 x 64. Four waves hold
// 32 x 32 each. Two buffers of LDS: while one is multiplied, the other is filled.
#define DEPTH 32
#define LINE (DEPTH + 8) // elements from row to row
kernel void tiled_product(global float *c, global const short *a, global const short *b, int n, int k_end)
{
    local short tiles[2][2][64 * LINE];
    int t = LANE, l = t & 63, wave = t >> 6, row = t >> 2, part = t & 3;
    int i0 = __builtin_amdgcn_workgroup_id_y() * 64, j0 = __builtin_amdgcn_workgroup_id_x() * 64;
    f16v acc = 0;
    global const uint4 *from_a = (global const uint4 *)(a + (i0 + row) * k_end + part * 8);
    global const uint4 *from_b = (global const uint4 *)(b + (j0 + row) * k_end + part * 8);
    for (int k = 0, turn = 0; k < k_end; k += DEPTH, turn ^= 1) {
        *(local uint4 *)&tiles[turn][0][row * LINE + part * 8] = from_a[k / 8];
        *(local uint4 *)&tiles[turn][1][row * LINE + part * 8] = from_b[k / 8];
        block_sync();
        local short *x = &tiles[turn][0][((wave >> 1) * 32 + (l & 31)) * LINE + (l >> 5) * 4];
        local short *y = &tiles[turn][1][((wave & 1) * 32 + (l & 31)) * LINE + (l >> 5) * 4];
        for (int q = 0; q < DEPTH; q += 8)
            acc = __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(*(local s4 *)(x + q), *(local s4 *)(y + q), acc, 0, 0, 0);
    }
    for (int i = 0; i < 16; i++) {
        int at = i0 + (wave >> 1) * 32 + i / 4 * 8 + (l >> 5) * 4 + i % 4;
        c[at * n + j0 + (wave & 1) * 32 + (l & 31)] = acc[i];
    }
}

// The names of the next two begin alike. 1024 work-items and all of LDS: each turns the order of its words.
kernel __attribute__((reqd_work_group_size(1024, 1, 1))) void reverse(global int *out)
{
    local int words[16384];
    for (int i = LANE; i < 16384; i += 1024) words[i] = i * 3;
    block_sync();
    for (int i = LANE; i < 16384; i += 1024) out[i] = words[16383 - i];
}

// As reverse, in LDS whose size the launch says: n words.
kernel void reverse_dynamic(global int *out, local int *words, int n)
{
    for (int i = LANE; i < n; i += 256) words[i] = i * 3;
    block_sync();
    for (int i = LANE; i < n; i += 256) out[i] = words[n - 1 - i];
}

// An array of each work-item, read where the data says: it is in scratch memory.
kernel void choose(global int *out, global const int *which)
{
    int i = LANE, mine[20];
    for (int k = 0; k < 20; k++) mine[k] = i * 100 + which[k];
    for (int k = 0; k < 8; k++) mine[(which[k] + i) % 20] += 7;
    out[i] = mine[which[i % 20] % 20];
}

// As choose; the array is written only in part.
kernel void choose_unwritten(global int *out, global const int *which)
{
    int i = LANE, mine[20];
    for (int k = 0; k < 8; k++) mine[which[k] % 20] = i;
    out[i] = mine[which[i % 20] % 20];
}

// Addresses of any memory, in flat instructions: an item's own, the group's or the GPU's.
kernel void choose_memory(global int *out, global const int *which)
{
    local int shared[64];
    int i = LANE, mine[400]; // too many for LDS, where the compiler would put them
    for (int k = 0; k < 4; k++) mine[k] = i * 10 + which[k];
    shared[i] = i;
    out[i] = 1000;
    block_sync();
    int *p = i % 3 == 0 ? (int *)&mine[which[i % 4] % 4] : i % 3 == 1 ? (int *)&shared[i] : (int *)&out[i];
    *p += 5;
    block_sync();
    out[64 + i] = *p;
}

#ifdef FUNCTIONS
static __attribute__((noinline)) int seventh(int x) { return x / 7 + 1; }

kernel void calls(global int *out) { out[LANE] = seventh(LANE * 100) + seventh(LANE); }
#endif

kernel void clocks(global ulong *out)
{
    out[0] = __builtin_amdgcn_s_memrealtime();
    __builtin_amdgcn_s_sleep(10);
    __builtin_amdgcn_s_setprio(1);
    __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "");
    out[1] = __builtin_amdgcn_s_memrealtime();
    out[2] = __builtin_amdgcn_s_getreg(20 | 31 << 11); // the number of the chip's part
}

kernel void trap(global int *out)
{
    if (out[0] != 0) __builtin_trap();
}

kernel void sizes(global uint *out)
{
    constant ushort *packet = (constant ushort *)__builtin_amdgcn_dispatch_ptr();
    constant uint *items = (constant uint *)(packet + 6);
    if (LANE > 0) return;
    for (int i = 0; i < 3; i++) {
        out[i] = packet[2 + i];
        out[3 + i] = items[i];
    }
}
