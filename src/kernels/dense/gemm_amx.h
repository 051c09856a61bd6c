/*
 * gemm_amx: bf16 products on Intel's matrix unit (AMX-BF16). One TDPBF16PS multiplies 16 rows of A
 * by 16 columns of B over 32 elements along k and adds to 16 x 16 sums in f32. Measured on one
 * thread of a Sapphire Rapids: 1.8 TFLOP/s with operands in L2, 12 times the speed of f32 vectors.
 *
 * A tile is 32 x 32: two squares of A, two of B and four of sums fill all eight tile registers. B's panel has the
 * layout of other bf16 words: 16 steps of it are two squares side by side. A's panel has 16 rows, square by square; a
 * square holds the next 16 words of every row. Both are padded with zeros to whole squares.
 *
 * The unit treats subnormal numbers as zero, in operands and in sums, and rounds to nearest, ties to even. An element's
 * sum runs along k in pairs, whatever its neighbours are, so its bits depend only on its row and its column.
 *
 * The Linux kernel enables tile registers for a process that asks (Documentation/arch/x86/xstate).
 * They add 8 KiB to every switch of threads, so a product releases them at its end.
 */
#ifndef KERNELS_DENSE_GEMM_AMX_H
#define KERNELS_DENSE_GEMM_AMX_H

#include "kernels/dense/gemm_tile.h"

#include <stdbool.h>

/* Asks the kernel for tile registers; false if the CPU, the compiler or the kernel has none. */
bool amx_ask(void);

/* Call amx_begin before and amx_end after tiles, on the thread that runs them. */
void amx_begin(void);
void amx_end(void);

/* Packs all panels of A, in the layout above. */
void amx_rows_pack(float *to, const PackSource *from);

/* tile_run (gemm_tile.h) for tiles of WORD_BF16_AMX. */
void amx_tile_run(const Tile *t);

#endif
