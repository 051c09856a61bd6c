/*
 * dcp: a folder of torch.distributed.checkpoint.
 *
 *     .metadata        a pickle: for each key a tensor (type, shape, chunks) or a plain value, and for
 *                      each chunk the file, the offset and the length
 *     __R_N.distcp     what rank R wrote: archives of torch.save one behind the other (item.h)
 *
 * dcp_open reads .metadata and checks all of it: chunks lie inside their tensor, do not overlap and
 * leave nothing out, and each place lies inside its file. The archives are checked when they are read.
 */
#ifndef DCP_DCP_H
#define DCP_DCP_H

#include "convert/names.h"
#include "dcp/item.h"
#include "engine/base/file.h"

enum { DCP_MAPS = 16 };

/* A box of a tensor, and where its archive is. */
typedef struct DcpChunk {
    int64_t first[ITEM_RANK_MAX], dim[ITEM_RANK_MAX];
    int file;
    uint64_t at, bytes; /* of the archive in its file */
    uint64_t elements;  /* byte of the file where the elements begin; 0: not known yet */
} DcpChunk;

/* A key of the checkpoint. A plain value has type NULL, and one chunk that is its archive. */
typedef struct DcpTensor {
    const char *name;
    const ItemType *type;
    int rank;
    int64_t dim[ITEM_RANK_MAX];
    DcpChunk *chunk;
    int64_t chunks, near; /* near: the chunk that was read last */
    bool taken;           /* dcp_take returned it */
} DcpTensor;

/* An open folder. */
typedef struct Dcp {
    const char *folder;
    const char **file; /* paths */
    int files;
    uint64_t *file_bytes;
    DcpTensor *at;
    int64_t n;
    Names names;
    FileMap map[DCP_MAPS];
    int mapped[DCP_MAPS], next_map; /* which file; -1: none */
    Arena *arena;
} Dcp;

/* Allocates in `a`. ERR_IO, ERR_FORMAT: the sentence names the file and the key. */
Status dcp_open(Dcp *d, const char *folder, Arena *a);
void dcp_close(Dcp *d); /* safe on { 0 } */

/* Finds a key and marks it as taken; NULL: there is none. */
DcpTensor *dcp_take(Dcp *d, const char *name);
/* Product of the dimensions. dcp_open checked that it does not overflow. */
int64_t dcp_elems(const DcpTensor *t);
enum { DCP_TEXT_BYTES = 192 };
/* "torch.float32 (4, 128)", for messages. Returns out. */
const char *dcp_text(char out[DCP_TEXT_BYTES], const DcpTensor *t);

/* Reads elements [first, first + n), counted row by row in the whole tensor, as f32. Its type must have a
 * Dtype. */
Status dcp_read(Dcp *d, DcpTensor *t, int64_t first, int64_t n, float *out);
/* Reads a number: a plain value, or a tensor of one element of any type. *found false: no such key. */
Status dcp_number(Dcp *d, const char *name, bool *found, double *out);

#endif
