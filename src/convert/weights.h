/*
 * weights: the tensors of a folder: model.safetensors, or the shards that model.safetensors.index.json
 * names. weights_open reads and checks all headers. Elements are read through memory maps. At most
 * WEIGHTS_MAPS of them are open. What the tensors mean is in family.h.
 *
 * DeepSeek-V3 has 8-bit matrices NAME with a second tensor NAME_scale_inv. Each block of 128 x 128
 * elements is multiplied by its scale, in f32, when it is read.
 *
 * gpt-oss has NAME_blocks and NAME_scales in MXFP4 (OCP Microscaling Formats 1.0): 16 bytes are 32
 * elements of a row, the lower four bits first. An element is a sign and 0, 0.5, 1, 1.5, 2, 3, 4 or 6,
 * times 2^(scale - 127), with one scale for the 32. All products are exact in bf16.
 */
#ifndef CONVERT_WEIGHTS_H
#define CONVERT_WEIGHTS_H

#include "convert/names.h"
#include "convert/safetensors.h"

#define WEIGHTS_INDEX "model.safetensors.index.json"
#define WEIGHTS_ONE   "model.safetensors"

enum { WEIGHTS_MAPS = 2, WEIGHTS_BLOCK = 128, WEIGHTS_GROUP = 32 };

/* An open folder. Tensors of all files stand in one array, ordered by file. */
typedef struct Weights {
    const char *folder;
    const char **file; /* paths */
    int n_files;
    SafeTensor *at;
    int64_t n;
    Names names;
    bool *taken; /* by tensor: weights_take returned it */
    FileMap map[WEIGHTS_MAPS];
    int mapped[WEIGHTS_MAPS]; /* which file; the last one used stands first */
} Weights;

/* Allocates in `a`. ERR_IO, ERR_FORMAT: the sentence names the file and the tensor. */
Status weights_open(Weights *w, const char *folder, Arena *a);
void weights_close(Weights *w); /* safe on { 0 } */

/* Finds a tensor by its name and marks it as taken. NULL: there is none. */
const SafeTensor *weights_take(Weights *w, const char *name);
/* Takes the scales of a tensor; NULL: it has none. ERR_FORMAT: they have a wrong type or shape. */
Status weights_scale(Weights *w, const SafeTensor *t, const SafeTensor **out);

/* Takes the scales of a NAME_blocks in MXFP4. ERR_FORMAT: there are none, or they do not fit. */
Status weights_mxfp4_scales(Weights *w, const SafeTensor *t, const SafeTensor **out);
/* Turns NAME_blocks into NAME_scales. */
void weights_scales_name(char *out, size_t bytes, const char *blocks);

/* The part of a tensor that is one of our parameters: `rows` x `cols` elements. Element (r, c) is
 * element first + r * row_step + c * col_step of the tensor. */
typedef struct WeightsView {
    const SafeTensor *tensor, *scale; /* scale NULL: none; else col_step is 1 */
    int64_t rows, cols, first, row_step, col_step;
    float added; /* to each element */
} WeightsView;

/* Reads rows [row, row + n) as f32. */
Status weights_read(Weights *w, const WeightsView *v, int64_t row, int64_t n, float *out);

/* Reads an index file: tensors and their files. */
typedef struct WeightsEntry {
    const char *tensor, *file;
} WeightsEntry;
Status weights_parse_index(const char *path, const char *text, size_t bytes, Arena *a,
                           WeightsEntry **out, int64_t *n);

#endif
