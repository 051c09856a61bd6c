/* manifest: the text half of a checkpoint (checkpoint.h has the format). */
#ifndef TRAIN_MANIFEST_H
#define TRAIN_MANIFEST_H

#include "base/file.h"
#include "train/checkpoint.h"

#define MANIFEST_NAME "manifest.jsonl"

typedef struct Manifest {
    File file;
    Arena *arena;
    Text line;      /* the line being made, last in the arena */
    void *sum;      /* XXH3 state over all lines so far */
    void *elements; /* and over the elements of an entry so far */
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
/* An entry's elements pass by piece by piece, in order; then the entry, a whole parameter. */
void manifest_elements(Manifest *m, const void *bytes, size_t n);
Status manifest_entry(Manifest *m, const Param *p, ParamBuffer b, uint64_t offset);
Status manifest_commit(Manifest *m);
void manifest_close(Manifest *m); /* safe on { 0 } and after commit */

/* Check the whole manifest (end line, sum), then call `each` for every entry (NULL: header only).
 */
Status manifest_read(const char *folder, Arena *a, CheckpointInfo *info,
                     Status (*each)(void *state, const ManifestEntry *entry), void *state);

/* Where elements [first, first + n) of an entry go, and what to do once they are there. */
typedef struct ManifestSink {
    void *(*room)(void *state, int64_t first, int64_t n);
    Status (*put)(void *state, int64_t first, int64_t n);
    void *state;
    size_t piece_bytes; /* at most so many at a time */
} ManifestSink;

/* The elements of an entry into a sink, in order; their sum is verified at the end. */
Status manifest_read_elements(const char *folder, const ManifestEntry *entry, ManifestSink *sink,
                              Arena *scratch);

#endif
