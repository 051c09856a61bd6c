/*
 * weights: the tensors of a folder of safetensors files: model.safetensors, or the shards that
 * model.safetensors.index.json names. All headers are read and checked when it is opened; elements
 * are read through maps, of which at most WEIGHTS_MAPS are open.
 *
 * An 8-bit matrix NAME with a second tensor NAME_scale_inv is DeepSeek-V3's: each block of 128 x 128
 * elements is multiplied with its scale, in f32, as its elements are read.
 *
 * NAME_blocks and NAME_scales are gpt-oss's, in MXFP4 (OCP Microscaling Formats 1.0): 16 bytes are 32
 * elements of a row, the lower four bits first: a sign and 0, 0.5, 1, 1.5, 2, 3, 4 or 6, times 2 to the
 * power of the block's scale - 127. All products are exact in bf16.
 */
#ifndef CONVERT_WEIGHTS_H
#define CONVERT_WEIGHTS_H

#include "convert/names.h"
#include "convert/safetensors.h"

#define WEIGHTS_INDEX "model.safetensors.index.json"
#define WEIGHTS_ONE   "model.safetensors"

enum { WEIGHTS_MAPS = 2, WEIGHTS_BLOCK = 128, WEIGHTS_GROUP = 32 };

typedef struct Weights {
    const char *folder;
    const char **file; /* paths */
    int n_files;
    SafeTensor *at;
    int64_t n;
    Names names;
    bool *taken; /* by tensor: weights_take gave it */
    FileMap map[WEIGHTS_MAPS];
    int mapped[WEIGHTS_MAPS]; /* which file; the one that was asked for last stands first */
} Weights;

/* All in `a`. ERR_IO, ERR_FORMAT: the sentence names the file and the tensor. */
Status weights_open(Weights *w, const char *folder, Arena *a);
void weights_close(Weights *w); /* safe on { 0 } */

/* A tensor by its name, which then counts as taken; NULL: there is none. */
const SafeTensor *weights_take(Weights *w, const char *name);
/* The scales of a tensor, taken; NULL: it has none. ERR_FORMAT: of another type or shape. */
Status weights_scale(Weights *w, const SafeTensor *t, const SafeTensor **out);

/* The scales of a NAME_blocks in MXFP4, taken. ERR_FORMAT: there are none, or they do not fit. */
Status weights_mxfp4_scales(Weights *w, const SafeTensor *t, const SafeTensor **out);
/* NAME_scales of NAME_blocks. */
void weights_scales_name(char *out, size_t bytes, const char *blocks);

/* The part of a tensor that one of our parameters is: `rows` x `cols` elements, of which (r, c) is
 * element first + r * row_step + c * col_step of the tensor. */
typedef struct WeightsView {
    const SafeTensor *tensor, *scale; /* scale NULL: none; with one, cols lie side by side */
    int64_t rows, cols, first, row_step, col_step;
} WeightsView;

/* Rows [row, row + n) as f32. */
Status weights_read(Weights *w, const WeightsView *v, int64_t row, int64_t n, float *out);

/* An index file as text, NUL-terminated, which is consumed: the tensors' names and their files. */
typedef struct WeightsEntry {
    const char *tensor, *file;
} WeightsEntry;
Status weights_parse_index(const char *path, char *text, size_t bytes, Arena *a, WeightsEntry **out,
                           int64_t *n);

#endif
