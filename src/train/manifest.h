/* manifest: the text half of a checkpoint (checkpoint.h has the format). */
#ifndef TRAIN_MANIFEST_H
#define TRAIN_MANIFEST_H

#include "base/file.h"
#include "train/checkpoint.h"

#define MANIFEST_NAME "manifest.jsonl"

typedef struct Manifest {
    File file;
    Arena *arena;
    Text line; /* the line being made, last in the arena */
    void *sum; /* XXH3 state over all lines so far */
    int64_t entries;
} Manifest;

typedef struct ManifestEntry {
    const char *param, *file;
    ParamBuffer buffer;
    int rank;
    int64_t dim[2];
    int64_t first, count; /* elements of the canonical tensor */
    uint64_t offset;      /* in the file, bytes */
    char sum[33];         /* XXH3-128 of the elements' bytes, hexadecimal */
} ManifestEntry;

const char *manifest_buffer_name(ParamBuffer b);

/* Writing: create, header, entries, commit. */
Status manifest_create(Manifest *m, const char *folder, Arena *arena);
Status manifest_header(Manifest *m, const char *model, const CheckpointInfo *info);
Status manifest_entry(Manifest *m, const Param *p, ParamBuffer b, uint64_t offset, const Tensor *t);
Status manifest_commit(Manifest *m);
void manifest_close(Manifest *m); /* safe on { 0 } and after commit */

/* Check the whole manifest (end line, sum), then call `each` for every entry (NULL: header only).
 */
Status manifest_read(const char *folder, Arena *a, CheckpointInfo *info,
                     Status (*each)(void *state, const ManifestEntry *entry), void *state);

/* The bytes of an entry into `out`; its sum is verified. */
Status manifest_read_elements(const char *folder, const ManifestEntry *entry, void *out);

#endif
