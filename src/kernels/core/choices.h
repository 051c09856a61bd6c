/*
 * choices: which algorithm each shape of a matrix product runs on a GPU, as a table and as text.
 *
 * Algorithms for one product differ in speed and in the order of their sums, so the choice is part
 * of what a run computed. The text is written to a cache file, so that later runs need not time
 * again. It is also written into a checkpoint's manifest, so that a resumed run computes the same
 * bits. A choice is never replaced; a full table accepts no more.
 *
 *     switchyard products 1
 *     machine NVIDIA H200, driver for CUDA 13.0, cuBLASLt 130100
 *     timed 4096 3072 2048 2048 2048 3072 1010100e 2b 15 0 0 1c 0 0 0
 *     end 1 0123456789abcdef
 *
 * A line is a choice: its kind, the key (m n k lda ldb ldc in decimal, kinds in hexadecimal) and
 * the algorithm: eight words in hexadecimal that only one version of the library understands. The
 * last line has the number of choices and the XXH3-64 of all lines before it. A damaged text is
 * refused as a whole, because its words would go to the library unchecked.
 *
 * A grouped product (nv/grouped_hopper.cuh) has an entry, too. Its words are the number of a tile
 * shape, and zeros. Its key:
 *
 *     m = rows.bound,  n and k = the columns of operands B and A,  lda = experts,  ldb = 1
 *     ldc: 8 if operands have 8 bits, else 1
 *     kinds: bit 62 (no dense product has it), the hash of the op's name, bit 0: an index names rows
 *
 * All tile shapes add terms in one order, so this choice changes no bits. If this program or
 * product lacks the recorded shape, the product's first one runs.
 *
 * This file knows no library; kernels/core/tuner.c and kernels/dense/product_algo.c fill the table. choices_text,
 * choices_take, choices_load and choices_save accept NULL, the table of an Exec without one (the
 * CPU's), and then do nothing.
 */
#ifndef KERNELS_CORE_CHOICES_H
#define KERNELS_CORE_CHOICES_H

#include "engine/base/arena.h"

#include <stdbool.h>
#include <stdint.h>

enum { CHOICES_MAX = 2048, CHOICE_WORDS = 8, CHOICE_MACHINE_MAX = 192 };

/* Everything that a choice may depend on. All fields have 64 bits: keys are compared as bytes, and
 * padding would have random ones. */
typedef struct ChoiceKey {
    int64_t m, n, k, lda, ldb, ldc, kinds; /* kinds: types, transpositions, beta, alignment */
} ChoiceKey;

typedef enum ChoiceKind {
    CHOICE_FIRST, /* the library's first proposal, not timed */
    CHOICE_TIMED, /* the fastest of the library's proposals */
    CHOICE_PLAIN, /* the library proposes nothing: our own kernel */
    CHOICE_KINDS
} ChoiceKind;

typedef struct Choice {
    ChoiceKey key;
    uint64_t algo[CHOICE_WORDS];
    ChoiceKind kind;
    bool unchecked; /* it came from a text; the library has not yet accepted it */
} Choice;

typedef struct Choices {
    char machine[CHOICE_MACHINE_MAX]; /* GPU, driver and library for which the choices hold */
    int n;
    bool unsaved; /* something was timed since the last save */
    Choice at[CHOICES_MAX];
} Choices;

#ifdef __cplusplus
extern "C" {
#endif

/* Line breaks in `machine` become blanks. */
Status choices_make(Arena *a, const char *machine, Choices **out);

Choice *choices_find(Choices *c, const ChoiceKey *key); /* NULL: not there */
/* A zeroed choice with this key, which is not there yet. NULL: the table is full. */
Choice *choices_add(Choices *c, const ChoiceKey *key);

/* The whole table as text in `a`; "" without a table. It includes choices that this run has not
 * used yet: it may use them later, and a run resumed from the text must use the same ones. */
Status choices_text(const Choices *c, Arena *a, const char **out);
/* Adds the choices of such a text that are new. *taken: how many; 0, with a warning, if the text is from another
 * machine. ERR_FORMAT: it is damaged; the sentence names `name`. A resumed run that took any choice neither loads the
 * cache nor times, because the run before it had only these choices. */
Status choices_take(Choices *c, const char *name, const char *text, int *taken);

ChoiceKey choices_grouped_key(const char *op, bool indexed, int64_t rows, int64_t experts,
                              int64_t a_cols, int64_t b_cols);
/* Index of the recorded shape among a grouped product's n shapes; -1: none is recorded. */
int choices_shape(Choices *c, const ChoiceKey *key, const int *shape, int n);
/* Records the fastest shape by ms[n], or the first one if it is at most 1.5 % slower. Returns the
 * index of the recorded one. */
int choices_shape_timed(Choices *c, const ChoiceKey *key, const int *shape, int n, const float *ms);

/* Forgets all choices. */
void choices_clear(Choices *c);

/* The cache file of this machine, in the folder of setting cache.dir, holds the timed choices. A
 * file that is missing, damaged or cannot be written costs only time: one warning, no failure. */
Status choices_path(const char *cache_dir, const char *machine, char out[]);
int choices_load(Choices *c, const char *cache_dir, Arena *scratch); /* how many were taken */
/* Writes only if something new was timed. Choices that another process wrote meanwhile stay. */
void choices_save(Choices *c, const char *cache_dir, Arena *scratch);

#ifdef __cplusplus
}
#endif

#endif
