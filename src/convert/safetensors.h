/*
 * safetensors: the file format of Hugging Face's weights.
 *
 *     u64 N, little-endian      bytes of the header, at most SAFETENSORS_HEADER_MAX
 *     N bytes of JSON           {"NAME": {"dtype": "BF16", "shape": [...], "data_offsets": [b, e]},
 *                               ..., "__metadata__": {...}}, padded with blanks
 *     elements                  row-major, little-endian; offsets count from here
 *
 * Nothing in a header is trusted. Products of sizes are checked for overflow. Each tensor must have
 * the bytes of its shape and type. Tensors must follow each other without gaps or overlaps, from the
 * first byte of the elements to the last of the file. No name may appear twice.
 */
#ifndef CONVERT_SAFETENSORS_H
#define CONVERT_SAFETENSORS_H

#include "engine/base/dtype.h"
#include "engine/base/file.h"

enum { SAFETENSORS_RANK_MAX = 8, SAFETENSORS_HEADER_MAX = 100 << 20, SAFETENSORS_TEXT_BYTES = 192 };

/* A tensor of a header. Texts lie in the arena of the call. */
typedef struct SafeTensor {
    const char *name;
    const char *type; /* the name of the type in files: "BF16" */
    int dtype;        /* a floating Dtype; -1: a type that cannot be converted */
    int rank;
    int64_t dim[SAFETENSORS_RANK_MAX];
    int64_t begin, end; /* bytes of the file */
    int file;           /* number of the file in its folder (weights.h) */
} SafeTensor;

/* Reads the header of a file. Tensors come in the order of their bytes. ERR_FORMAT: the sentence names
 * the file, the tensor and what is wrong. */
Status safetensors_open(const char *path, Arena *a, SafeTensor **out, int64_t *n);

/* A header in memory, with a NUL at its end. Elements begin at byte data_first of the file. */
typedef struct SafeHeader {
    char *text;
    size_t bytes;
    int64_t data_first, data_bytes;
} SafeHeader;

/* The same for a header in memory. */
Status safetensors_parse(const char *path, const SafeHeader *h, Arena *a, SafeTensor **out,
                         int64_t *n);

/* The name of a floating type in files. */
const char *safetensors_type(Dtype t);
/* Product of the dimensions; 1 for a scalar. Headers were checked, so it cannot overflow. */
int64_t safetensors_elems(const SafeTensor *t);
/* "BF16 (4, 128)", for messages. Returns out. */
const char *safetensors_text(char out[SAFETENSORS_TEXT_BYTES], const SafeTensor *t);

/* Begins a file of tensors with the given name, dtype, rank and dim, and sets their begin and end. The
 * caller then writes the elements in order with file_write. */
Status safetensors_create(File *f, const char *path, SafeTensor *t, int64_t n, Arena *a);

#endif
