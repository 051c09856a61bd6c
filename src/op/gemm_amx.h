/*
 * gemm_amx: bf16 products on Intel's matrix unit (AMX-BF16). TDPBF16PS adds to 16 x 16 sums in f32
 * what 16 rows of A and 16 columns of B give over 32 elements along k. Measured on one thread of a
 * Sapphire Rapids: 1.8 TFLOP/s with operands in L2, 12 times f32's vectors.
 *
 * A tile is 32 x 32: two squares of A, two of B, four of sums, all eight tile registers. B's panel
 * is that of other bf16 words: 16 steps of it are two squares that lie side by side. A's panel is
 * 16 rows, square by square, in each the next 16 words of every row. Both are filled up with zeros
 * to whole squares.
 *
 * The unit treats subnormal numbers as zero, in operands and in sums, and rounds to nearest, ties
 * to even. An element's sum runs along k by pairs whatever stands beside it, so its bits depend on
 * its row and its column alone.
 *
 * The kernel lends tile registers to a process that asks (Linux: Documentation/arch/x86/xstate).
 * Their state costs 8 KiB at every switch of threads, so a product gives them back at its end.
 */
#ifndef OP_GEMM_AMX_H
#define OP_GEMM_AMX_H

#include "op/gemm_tile.h"

#include <stdbool.h>

/* Asks the kernel for tile registers; false if the CPU, the compiler or the kernel has none. */
bool amx_ask(void);

/* To be called before and after tiles, on the thread that runs them. */
void amx_begin(void);
void amx_end(void);

/* Packs all panels of A. */
void amx_rows_pack(float *to, const PackSource *from);

/* Computes a tile of 32 x 32 sums. t's rows and columns alone count; rows are `ld` floats apart. */
void amx_sums(const Tile *t, float *sums, int64_t ld);

#endif
