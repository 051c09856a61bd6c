/*
 * item: what torch.save wrote: a zip archive whose entries are stored without compression.
 *
 *     NAME/data.pkl     a pickle: a tensor, or a plain value
 *     NAME/data/KEY     the elements of a storage that the pickle names by its key
 *     NAME/byteorder    "little"; absent in files of older versions
 *
 * A tensor must lie in its storage row by row, without gaps; PyTorch copies what does not before it
 * writes a distributed checkpoint.
 */
#ifndef DCP_ITEM_H
#define DCP_ITEM_H

#include "dcp/pickle.h"
#include "engine/base/dtype.h"

enum { ITEM_RANK_MAX = 8 };

/* A type of elements. Names are those of PyTorch: "torch.float32" and "torch.FloatStorage". */
typedef struct ItemType {
    const char *name, *storage;
    int dtype; /* a floating Dtype; -1: it can only be a number, such as a count of steps */
    int bytes;
} ItemType;

/* The type with this name; NULL: it is not known. */
const ItemType *item_type(const char *name);

typedef struct ItemTensor {
    const ItemType *type;
    int rank;
    int64_t dim[ITEM_RANK_MAX];
    size_t at, bytes; /* of the elements, in the archive */
} ItemTensor;

/* An archive in memory. */
typedef struct Item {
    const char *path, *name; /* the file, and the key in the checkpoint; for messages */
    const uint8_t *data;
    size_t bytes;
    const char *const *globals; /* what its pickle may name; NULL: what a tensor needs */
} Item;

/* Reads the pickle of an archive; values lie in `a`. ERR_FORMAT: it is damaged; the sentence has the file and
 * the key. */
Status item_value(const Item *item, Arena *a, const Pickle **out);
/* Finds the tensor of an archive. `a` is only used inside. */
Status item_tensor(const Item *item, Arena *a, ItemTensor *out);
/* A number in an archive's pickle: a plain one, or a tensor of one element. False: it is something else. */
bool item_number(const Item *item, const Pickle *p, double *out);
/* The number in the bytes of one element; false: its type has none. */
bool item_element(const ItemType *type, const uint8_t *at, double *out);

#endif
