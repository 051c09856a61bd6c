/* manifest: the text half of a checkpoint (checkpoint.h has the format). */
#ifndef TRAIN_MANIFEST_H
#define TRAIN_MANIFEST_H

#include "base/file.h"
#include "base/text.h"
#include "train/checkpoint.h"

#define MANIFEST_NAME "manifest.jsonl"

enum { MANIFEST_LINE_MAX = 512 }; /* of an entry */

typedef struct Manifest {
    File file;
    Arena *arena;
    void *sum; /* over all lines so far */
    int64_t entries;
} Manifest;

typedef struct ManifestEntry {
    const char *param, *file;
    ParamBuffer buffer;
    int rank;
    int64_t dim[2];
    int64_t first, count;           /* elements of the canonical tensor */
    uint64_t offset;                /* in the file, bytes */
    char sum[CHECKPOINT_SUM_BYTES]; /* of the elements' bytes */
} ManifestEntry;

const char *manifest_buffer_name(ParamBuffer b);

/* XXH3-128 of bytes that pass by piece by piece; taking it begins the next one. */
Status manifest_sum_new(Arena *a, void **out);
void manifest_sum_add(void *sum, const void *bytes, size_t n);
void manifest_sum_take(void *sum, char out[CHECKPOINT_SUM_BYTES]);

/* An entry's line, at most MANIFEST_LINE_MAX bytes. */
Status manifest_line(Text *lines, const ManifestEntry *entry);

/* Writing: create with the header, lines of entries, commit. */
Status manifest_create(Manifest *m, const char *folder, const char *model,
                       const CheckpointInfo *info, Arena *arena);
Status manifest_lines(Manifest *m, const char *lines, size_t bytes);
Status manifest_commit(Manifest *m);
void manifest_close(Manifest *m); /* safe on { 0 } and after commit */

/* Check the whole manifest (end line, sum), then call `each` for every entry (NULL: header only).
 */
Status manifest_read(const char *folder, Arena *a, CheckpointInfo *info,
                     Status (*each)(void *state, const ManifestEntry *entry), void *state);

/* Where elements [first, first + n) of an entry go, and what to do once they are there (NULL:
 * nothing). */
typedef struct ManifestSink {
    void *(*room)(void *state, int64_t first, int64_t n);
    Status (*put)(void *state, int64_t first, int64_t n);
    void *state;
    size_t piece_bytes; /* at most so many at a time */
} ManifestSink;

/* Elements [first, end) of the canonical tensor, which lie in an entry, into a sink, in order; if
 * they are all of the entry their sum is verified. ERR_NUMERIC: numbers.h. */
Status manifest_read_elements(const char *folder, const ManifestEntry *entry, int64_t first,
                              int64_t end, const ManifestSink *sink, Arena *scratch);

#endif
