/*
 * choices: which algorithm each shape of a matrix product takes on a GPU, as a table and as text.
 *
 * Algorithms of one product differ in speed and in the order of their sums, so the choice is part
 * of what a run computed. The text goes into a cache file, from which later runs take it without
 * timing anything, and into a checkpoint's manifest, from which a resumed run takes it to compute
 * the same bits. No choice is ever forgotten or replaced; a full table takes no more.
 *
 *     switchyard products 1
 *     machine NVIDIA H200, driver for CUDA 13.0, cuBLASLt 130100
 *     timed 4096 3072 2048 2048 2048 3072 1010100e 2b 15 0 0 1c 0 0 0
 *     end 1 0123456789abcdef
 *
 * A line is a choice: its kind, the key (m n k lda ldb ldc in decimal, kinds in hexadecimal) and
 * the algorithm, eight words in hexadecimal that mean something to one version of the library only.
 * The last line has the number of choices and the XXH3-64 of all lines before it. The words are
 * handed to the library, hence the sum: a text that is damaged is refused as a whole.
 *
 * A grouped product (grouped_hopper.cuh) has an entry, too. Its words are the number of a tile shape
 * and 0; its key: m rows.bound, n and k the columns of operands B and A, lda the experts, ldb = ldc =
 * 1, in kinds bit 62, the hash of the op's name, and bit 0: an index names rows. No dense product has
 * bit 62. All shapes add terms in one order, so this choice changes no bit, and a shape that this
 * program or this product does not have is passed over for the product's first.
 *
 * This file knows no library; op/nv/blas.cu fills the table. Every function takes NULL for the table
 * of an Exec that has none (the CPU's) and then does nothing.
 */
#ifndef OP_CHOICES_H
#define OP_CHOICES_H

#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>

enum { CHOICES_MAX = 2048, CHOICE_WORDS = 8, CHOICE_MACHINE_MAX = 192 };

/* All that a choice may depend on; 64-bit fields only, so that no padding is compared. */
typedef struct ChoiceKey {
    int64_t m, n, k, lda, ldb, ldc, kinds; /* kinds: types, transpositions, beta, alignment */
} ChoiceKey;

typedef enum ChoiceKind {
    CHOICE_FIRST, /* the library's first proposal */
    CHOICE_TIMED, /* the fastest of its proposals */
    CHOICE_PLAIN, /* it proposes nothing: our own kernel */
    CHOICE_KINDS
} ChoiceKind;

typedef struct Choice {
    ChoiceKey key;
    uint64_t algo[CHOICE_WORDS];
    ChoiceKind kind;
    bool unchecked; /* it came from a text, and was not yet seen to be legal */
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
 * used yet, because it may use them later, as a run resumed from this text would. */
Status choices_text(const Choices *c, Arena *a, const char **out);
/* Takes choices that are not known yet from such a text. *taken: how many; 0, with a warning, if
 * the text is of another machine. ERR_FORMAT: it is damaged; the sentence has `name`. A resumed run
 * that took any choice neither loads the cache nor tunes, because the run before knew no more. */
Status choices_take(Choices *c, const char *name, const char *text, int *taken);

ChoiceKey choices_grouped_key(const char *op, bool indexed, int64_t rows, int64_t experts,
                              int64_t a_cols, int64_t b_cols);
/* The place among a grouped product's n shapes of the one on record; -1: nothing is on record. */
int choices_shape(Choices *c, const ChoiceKey *key, const int *shape, int n);
/* Puts on record the first shape, or the fastest of ms[n] if it is 1.5 % faster; gives its place. */
int choices_shape_timed(Choices *c, const ChoiceKey *key, const int *shape, int n, const float *ms);

/* Forgets all choices. */
void choices_clear(Choices *c);

/* The cache file of this machine, in config's cache.dir (file_cache_folder), holds the timed
 * choices. A file that is missing, damaged or cannot be written costs only time: one warning, no
 * failure. */
Status choices_path(const char *cache_dir, const char *machine, char out[]);
int choices_load(Choices *c, const char *cache_dir, Arena *scratch); /* how many were taken */
/* Writes only if something new was timed. Choices that another process wrote meanwhile stay. */
void choices_save(Choices *c, const char *cache_dir, Arena *scratch);

#ifdef __cplusplus
}
#endif

#endif
