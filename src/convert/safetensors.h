/*
 * safetensors: the file format of Hugging Face's weights.
 *
 *     u64 N, little-endian      bytes of the header, at most SAFETENSORS_HEADER_MAX
 *     N bytes of JSON           {"NAME": {"dtype": "BF16", "shape": [...], "data_offsets": [b, e]},
 *                               ..., "__metadata__": {...}}, padded with blanks
 *     elements                  row-major, little-endian; offsets count from here
 *
 * A header is believed in nothing: sizes are multiplied with a look at overflow; each tensor is as
 * long as its shape and type say; tensors lie one behind the other without a gap, so none overlaps
 * another, from the first byte to the last of the file; no name is there twice.
 */
#ifndef CONVERT_SAFETENSORS_H
#define CONVERT_SAFETENSORS_H

#include "base/dtype.h"
#include "base/file.h"

enum { SAFETENSORS_RANK_MAX = 8, SAFETENSORS_HEADER_MAX = 100 << 20, SAFETENSORS_TEXT_BYTES = 192 };

typedef struct SafeTensor {
    const char *name;
    const char *type; /* its word in files: "BF16" */
    int dtype;        /* a floating Dtype; -1: a type that is not converted */
    int rank;
    int64_t dim[SAFETENSORS_RANK_MAX];
    int64_t begin, end; /* bytes of the file */
    int file;           /* which of a folder's files (weights.h) */
} SafeTensor;

/* Reads the header of a file; tensors by rising place. ERR_FORMAT: a sentence with the file, the
 * tensor and what is wrong with it. */
Status safetensors_open(const char *path, Arena *a, SafeTensor **out, int64_t *n);

/* A header in memory, NUL-terminated; elements begin at byte data_first of the file. */
typedef struct SafeHeader {
    char *text;
    size_t bytes;
    int64_t data_first, data_bytes;
} SafeHeader;

/* The same of a header in memory, which is consumed. */
Status safetensors_parse(const char *path, const SafeHeader *h, Arena *a, SafeTensor **out,
                         int64_t *n);

/* The word of a floating type. */
const char *safetensors_type(Dtype t);
int64_t safetensors_elems(const SafeTensor *t);
/* "BF16 (4, 128)", for messages. Returns out. */
const char *safetensors_text(char out[SAFETENSORS_TEXT_BYTES], const SafeTensor *t);

/* Begins a file of these tensors: their name, dtype, rank and dim count; their places are set. What
 * is written next with file_write is their elements, in order. */
Status safetensors_create(File *f, const char *path, SafeTensor *t, int64_t n, Arena *a);

#endif
