/*
 * numbers: checks that a saved buffer has only finite values, none below BufferDesc.least.
 *
 * Every number of a checkpoint is checked when it is written and when it is read. So a bad number, from an
 * update or a memory fault, never replaces a good one. Checksums of bytes are manifest.h's.
 */
#ifndef ENGINE_CHECKPOINT_NUMBERS_H
#define ENGINE_CHECKPOINT_NUMBERS_H

#include "engine/model/params.h"

/* n elements, f32 or bf16. */
typedef struct Numbers {
    const void *at;
    Dtype type;
    int64_t n;
} Numbers;

/* Index of the first number that is not finite or is below `least`; -1: there is none. */
int64_t numbers_bad(float least, Numbers x);

/* ERR_NUMERIC: "WHO model.norm.weight (moment2) with nan at element 5". Elements are counted in the
 * canonical tensor; the first of x has offset `first` in the piece `in` of it. `who` ends in a verb:
 * "runs/a/checkpoints/step-9 holds". */
Status numbers_check(const char *who, const char *param, BufferDesc buffer, const Piece *in,
                     int64_t first, Numbers x);

/* `who` of a check after a step: "adamw, in step 3 or before, left". It names the op that writes this buffer
 * of parameters under this rule. */
enum { NUMBERS_WHO_BYTES = 96 };
const char *numbers_writer(char out[NUMBERS_WHO_BYTES], const OptimizerDesc *rule, ParamBuffer b,
                           int64_t step);

#endif
