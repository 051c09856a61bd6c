/*
 * gfxrun: runs kernels compiled for gfx942 without a GPU. For tests only.
 *
 * A code object is read twice: the ELF file gives constants and what a kernel's registers hold at its
 * start, and the text of llvm-objdump gives the instructions. So there is no decoder of machine code
 * here to get wrong. The text is read when a kernel runs for the first time.
 *
 * It does what a GPU does not. These are errors, with kernel, instruction, line and lane:
 *   - an instruction that is not in the tables
 *   - memory outside the buffers, the arguments and the code object
 *   - a byte of LDS that is read before it was written
 *   - a bit of a register that was never written and becomes visible: in an address, a branch, exec,
 *     an atomic, or in what is stored to global memory
 *   - a register that is used before s_waitcnt has covered the load that fills it
 *   - two waves at the same byte of LDS with no barrier between them, or with one that did not wait
 * Lines are those of `llvm-objdump-19 -d --mcpu=gfx942 --disassemble-symbols=KERNEL FILE`.
 *
 * Compilers copy and combine undefined bits whose value does not matter. They are followed through
 * registers, LDS and scratch memory; see undefined.c. The error also names the line that first read
 * the register that was not written.
 *
 * Waves of a workgroup are interleaved at random by a seed; workgroups run one after another.
 *
 * Not modelled: time, caches, the order of stores to global memory, hazards that need s_nop. MFMA adds
 * its products in the order of k with one rounding each. AMD documents no order within one
 * instruction, so results of products are compared within a tolerance.
 */
#ifndef GFXRUN_GFXRUN_H
#define GFXRUN_GFXRUN_H

#include "engine/base/arena.h"

typedef struct CodeObject CodeObject;

/* Memory that a kernel may touch. Addresses are the host's. */
typedef struct GfxBuffer {
    const char *name;
    void *data;
    size_t bytes;
} GfxBuffer;

typedef struct GfxLaunch {
    const char *kernel;
    const void *args; /* the explicit arguments, laid out as the kernel's struct */
    size_t args_bytes;
    const GfxBuffer *buffers; /* in any order; by their addresses costs least when there are many */
    int n_buffers;
    unsigned grid[3], block[3]; /* workgroups; work-items of one */
    unsigned dynamic_lds_bytes;
    uint64_t seed;          /* of the order in which waves run */
    int64_t n_instructions; /* a kernel that runs more of them does not end; 0: 2^31 */
} GfxLaunch;

typedef struct GfxCounts {
    int64_t instructions; /* of waves */
    int64_t matrix_instructions, lds_instructions;
    int64_t conflict_cycles;           /* of loads from LDS and stores to it; see banks.c */
    int64_t read_bytes, written_bytes; /* global memory, by active lanes */
} GfxCounts;

/* Reads the file; later calls use llvm-objdump-19, but not the file again. Everything it makes lives in
 * `a`: up to 50 times the bytes of the file, of which only those of kernels that run are touched. */
Status gfx_load(Arena *a, const char *path, CodeObject **out);

/* Instructions of one kernel from text, as llvm-objdump prints them, for tests of single ones. The
 * text is copied. The kernel is called `text`; s[0:1] hold the address of its arguments. A lane has 16
 * bytes of scratch memory. */
Status gfx_load_text(Arena *a, const char *text, CodeObject **out);

int gfx_kernels(const CodeObject *c);
const char *gfx_kernel_name(const CodeObject *c, int i);

/* ERR_UNSUPPORTED if an instruction of the code object, also one that no run would reach, is not in the
 * tables. The message names the first and counts them. */
Status gfx_check(const CodeObject *c);

/* Lays out a kernel's explicit arguments, given one by one, as GfxLaunch.args. */
Status gfx_pack(const CodeObject *c, const char *kernel, void *const *arguments, Arena *a,
                void **out, size_t *out_bytes);

/* ERR_DEVICE: the kernel did one of the things above. `scratch` holds what the run needs and is
 * released. counts may be NULL. Several threads may run kernels of one code object, each with a
 * scratch of its own. */
Status gfx_run(const CodeObject *c, const GfxLaunch *launch, Arena *scratch, GfxCounts *counts);

#endif
