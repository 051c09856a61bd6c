/* manifest: the text half of a checkpoint (checkpoint.h has the format). */
#ifndef TRAIN_MANIFEST_H
#define TRAIN_MANIFEST_H

#include "base/file.h"
#include "base/text.h"
#include "train/engine_parts.h"

enum {
    CHECKPOINT_SUM_BYTES = 33, /* XXH3-128 in hexadecimal */
    CHECKPOINT_ALIGN = 64      /* of an entry in its file */
};

/* What a manifest says of its checkpoint. */
typedef struct CheckpointInfo {
    int64_t step;
    uint64_t position;               /* training sequences read */
    int64_t moment_steps[AGE_COUNT]; /* Engine.moment_steps */
    int64_t modules; /* of multi-token prediction there; as many as here, unless a gate sets it */
    const char *config;             /* YAML */
    const char *products;           /* a GPU's algorithms (op/choices.h); "": none */
    char cpu[OP_SET_TEXT_BYTES];    /* op_set_text; "": a GPU, or not on record */
    char sum[CHECKPOINT_SUM_BYTES]; /* of the manifest: tells checkpoints apart */
} CheckpointInfo;

#define MANIFEST_NAME "manifest.jsonl"

enum { MANIFEST_LINE_MAX = 512 }; /* of an entry */

typedef struct Manifest {
    File file;
    void *sum; /* over all lines so far */
    int64_t entries;
} Manifest;

typedef struct ManifestEntry {
    const char *param, *file;
    ParamBuffer buffer;
    const OptimizerDesc
        *rule;   /* whose state buffer it is; NULL: of a frozen parameter, or no rule's */
    Dtype dtype; /* of the elements in the file: f32, of state buffers also bf16 */
    int rank;
    int64_t dim[2];
    Piece piece;                       /* of the canonical tensor */
    uint64_t offset;                   /* in the file, bytes */
    char sum[CHECKPOINT_SUM_BYTES];    /* of the elements' bytes */
    const struct ManifestEntry *other; /* a reader's chain: an entry of the same tensor */
} ManifestEntry;

/* XXH3-128 of a stream of bytes. Taking the sum begins the next one. */
Status manifest_sum_new(Arena *a, void **out);
void manifest_sum_add(void *sum, const void *bytes, size_t n);
void manifest_sum_take(void *sum, char out[CHECKPOINT_SUM_BYTES]);

/* An entry's line, at most MANIFEST_LINE_MAX bytes. */
Status manifest_line(Text *lines, const ManifestEntry *entry);

/* Writing: create with the header, lines of entries, commit; file_close, also after a failure. */
Status manifest_create(Manifest *m, const char *folder, const char *model,
                       const CheckpointInfo *info, Arena *arena);
Status manifest_lines(Manifest *m, const char *lines, size_t bytes);
Status manifest_commit(Manifest *m);

/* Check the whole manifest (end line, sum); then its entries in `a` (NULL: header only). Whether a
 * piece fits its tensor is not checked: piece_fits. */
Status manifest_read(const char *folder, Arena *a, CheckpointInfo *info, ManifestEntry **entries,
                     int64_t *n);

/* The same of a text in memory, NUL-terminated, which is consumed. */
Status manifest_parse(const char *path, char *text, size_t bytes, Arena *a, CheckpointInfo *info,
                      ManifestEntry **entries, int64_t *n);

/* ERR_FORMAT: some elements of a tensor of so many are in no entry of a chain, or in two. */
Status manifest_check_cover(const char *folder, const ManifestEntry *chain, int64_t elems);

/* A shard file while it is written. */
typedef struct ManifestShard {
    File file;
    Engine *engine; /* who has the elements; NULL: they lie in host memory */
    int64_t step;
    void *sum;
    Text *lines;
} ManifestShard;

/* Aligned file offset of an entry that follows `bytes` bytes. */
static inline uint64_t manifest_offset(uint64_t bytes)
{
    return (bytes + CHECKPOINT_ALIGN - 1) / CHECKPOINT_ALIGN * CHECKPOINT_ALIGN;
}

/* Appends the entry's elements (at `at`) to the shard file and its line to the manifest. Sets the
 * entry's offset and sum. ERR_NUMERIC: numbers.h. */
Status manifest_write_entry(ManifestShard *w, ManifestEntry *entry, const void *at);

/* Reads the elements that an entry and a piece have in common to where the piece lies; data NULL: only
 * checks them. Verifies the sum if the piece has the whole entry. State buffers are rounded or widened
 * to the piece's type. e NULL: `to` is in host memory. ERR_NUMERIC: numbers.h. */
Status manifest_read_entry(Engine *e, const char *folder, const ManifestEntry *entry,
                           const ParamPiece *to, Arena *scratch);

#endif
