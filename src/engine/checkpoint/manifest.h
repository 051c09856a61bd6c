/* manifest: one file of a checkpoint at a time: the manifest as text, and the elements of an entry in a
 * shard file, each with its checksum. checkpoint.h has the format, and decides which rank writes and reads
 * which entry. */
#ifndef ENGINE_CHECKPOINT_MANIFEST_H
#define ENGINE_CHECKPOINT_MANIFEST_H

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/step/engine_parts.h"

enum {
    CHECKPOINT_SUM_BYTES = 33, /* XXH3-128 in hexadecimal */
    CHECKPOINT_ALIGN = 64      /* of an entry in its file */
};

/* Training sequences read of each source, by its name. n 0: it is not on record. */
typedef struct SourcesTaken {
    int n;
    const char *name[CONFIG_SOURCES_MAX];
    int64_t sequences[CONFIG_SOURCES_MAX];
    const char *
        sum[CONFIG_SOURCES_MAX]; /* of its data (corpus/shard/fingerprint.h); NULL: not on record */
} SourcesTaken;

/* The header of a manifest. */
typedef struct CheckpointInfo {
    int64_t step;
    uint64_t position; /* training sequences read */
    SourcesTaken taken;
    int64_t moment_steps[AGE_COUNT]; /* Engine.moment_steps */
    RuleState kept;                  /* loss_scale.now 0: the run had none */
    int64_t modules;    /* of multi-token prediction; this model's number, unless a gate sets it */
    const char *config; /* YAML */
    const char *products;           /* a GPU's algorithms (kernels/core/choices.h); "": none */
    char cpu[OP_SET_TEXT_BYTES];    /* op_set_text; "": a GPU, or not on record */
    char sum[CHECKPOINT_SUM_BYTES]; /* of the manifest; identifies the checkpoint */
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
    const OptimizerDesc *rule; /* whose state it is; NULL: a frozen parameter's, or no rule's */
    Dtype dtype;               /* of the elements in the file: f32, of state buffers also bf16 */
    int rank;
    int64_t dim[2];
    Piece piece;                       /* of the canonical tensor */
    uint64_t offset;                   /* in the file, bytes */
    char sum[CHECKPOINT_SUM_BYTES];    /* of the elements' bytes */
    const struct ManifestEntry *other; /* a reader's chain: an entry of the same tensor */
} ManifestEntry;

/* XXH3-128 of a stream of bytes, in state that lies in `a`. manifest_sum_take ends a sum and begins the
 * next one. */
Status manifest_sum_new(Arena *a, void **out);
void manifest_sum_add(void *sum, const void *bytes, size_t n);
void manifest_sum_take(void *sum, char out[CHECKPOINT_SUM_BYTES]);

/* Appends the line of an entry, at most MANIFEST_LINE_MAX bytes. */
Status manifest_line(Text *lines, const ManifestEntry *entry);

/* To write a manifest: create it with the header, add lines of entries, commit. Always file_close it, also
 * after a failure. */
Status manifest_create(Manifest *m, const char *folder, const char *model,
                       const CheckpointInfo *info, Arena *arena);
Status manifest_lines(Manifest *m, const char *lines, size_t bytes);
/* Writes the end line with the sum, then renames the manifest. A folder without that line is no
 * checkpoint. */
Status manifest_commit(Manifest *m);

/* Verifies the end line and the sum, and reads the header and the entries, in `a` (entries NULL: the header
 * only). Does not check that a piece fits its tensor: piece_fits does. */
Status manifest_read(const char *folder, Arena *a, CheckpointInfo *info, ManifestEntry **entries,
                     int64_t *n);

/* The same for a NUL-terminated text in memory. It is changed, and the results point into it. */
Status manifest_parse(const char *path, char *text, size_t bytes, Arena *a, CheckpointInfo *info,
                      ManifestEntry **entries, int64_t *n);

/* Puts the average of weights (optimizer.ema) into the place of the main weights: entries of BUF_AVERAGE
 * become entries of BUF_MAIN, whose own go. Frozen parameters have no average and keep theirs.
 * ERR_ARG: the checkpoint has no average. */
Status manifest_take_average(const char *folder, ManifestEntry *entries, int64_t *n, Arena *a);

/* ERR_FORMAT: some of the tensor's `elems` elements are in no entry of the chain, or in two. */
Status manifest_check_cover(const char *folder, const ManifestEntry *chain, int64_t elems);

/* A shard file while it is written. */
typedef struct ManifestShard {
    File file;            /* not open: the elements are only checked and summed */
    EngineArenas *arenas; /* of the memory that has the elements; NULL: host memory */
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

/* Reads the elements that an entry and a piece have in common into the piece. With data NULL it only checks
 * them. Verifies the sum if the piece covers the whole entry. State buffers are rounded or widened to the
 * piece's type. m NULL: `to` is in host memory. ERR_NUMERIC: numbers.h. */
Status manifest_read_entry(EngineArenas *m, const char *folder, const ManifestEntry *entry,
                           const ParamPiece *to, Arena *scratch);

#endif
