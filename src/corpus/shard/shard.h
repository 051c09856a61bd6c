/* shard: token ids on disk, PREFIX.bin and PREFIX.idx, in the layout that Megatron-LM reads and
 * writes.
 *
 *   .bin   ids one after the other, u16 if the vocabulary is below 65500, else i32; little endian
 *   .idx   9 bytes  "MMIDIDX" and two zeros
 *          u64      version, 1
 *          u8       type of an id: 8 is u16, 4 is i32
 *          u64      S, sequences
 *          u64      D + 1, entries of the document index
 *          i32[S]   ids of each sequence
 *          i64[S]   byte of the .bin at which each sequence starts
 *          i64[D+1] sequence at which each document starts; the last entry is S
 *          i8[S]    modes, in some files; not used
 *
 *   .mask  only for chats: which ids are learned. 8 bytes "SWMASK" and two zeros, i64 tokens, i64 P
 *          tokens of a pack, then one bit per id (the first is the lowest bit of the first byte); 1: the
 *          id counts in the loss
 *
 * In a shard with a mask a sequence is a chat, and a document is a pack of chats: P ids, of which the
 * last ones are padding that is not learned. So cutting the documents, in any order, into P ids never
 * cuts a chat.
 *
 * Otherwise the writer makes one sequence per document. Documents with several sequences are still
 * ranges of ids, because sequences are contiguous. Nothing in an .idx is aligned. Opening checks
 * everything once; afterwards every document's range is inside the .bin. */
#ifndef CORPUS_SHARD_SHARD_H
#define CORPUS_SHARD_SHARD_H

#include "corpus/shard/origin.h"
#include "engine/base/file.h"
#include "engine/base/file_changed.h"

enum { SHARD_FILES = 3 }; /* .bin, .idx, .mask */

typedef struct Shard {
    const char *prefix; /* the caller's; must live as long */
    FileMap bin, idx;
    int id_bytes; /* 2 or 4 */
    int64_t documents, tokens, sequences;
    const uint8_t *starts;    /* i64[S], in idx */
    const uint8_t *first_seq; /* i64[D+1], in idx */
    FileMap mask;
    const uint8_t *learned;       /* the bits, in mask; NULL: all ids count */
    int64_t pack;                 /* tokens of a pack; 0: no mask */
    FileStamp stamp[SHARD_FILES]; /* of the files when they were opened */
} Shard;

/* ERR_IO: a file is missing. ERR_FORMAT: one of the two is wrong; a sentence says which and how. */
Status shard_open(Shard *s, const char *prefix);
void shard_close(Shard *s); /* safe on { 0 } */

/* The checks of shard_open. The maps are files', or of less than a million sequences. */
Status shard_from_maps(Shard *s, const char *prefix, FileMap bin, FileMap idx);

/* Sets the mask; on success the shard owns the map. ERR_FORMAT: it is not a mask, or one for another
 * number of tokens. */
Status shard_set_mask(Shard *s, FileMap mask);

/* For a shard with a mask. Does a token count in the loss? At which token does its chat start; *end: the
 * token after its last. */
bool shard_learns(const Shard *s, int64_t token);
int64_t shard_chat(const Shard *s, int64_t token, int64_t *end);

/* Token at which document d starts; d = documents is the end of the last one. */
int64_t shard_start(const Shard *s, int64_t d);

/* ERR_CHANGED: a file was overwritten or cut since it was opened. What was read until now may be wrong,
 * but no read left the maps. */
Status shard_check_same(const Shard *s);

/* Ids [first, first + n) as i32; zeros where there is no such token. */
void shard_read(const Shard *s, int64_t first, int64_t n, int32_t *out);

/* Releases the resident pages of the files; later reads fetch them again. */
void shard_forget(const Shard *s);

/* ---- writing ---- */

/* Until the commit all files have other names: PREFIX.bin.tmp, .mask.tmp, and PREFIX.lengths.tmp, which
 * becomes part of the .idx. */
typedef struct ShardWriter {
    File bin, lengths, mask; /* lengths: i32 (documents) */
    char prefix[FILE_PATH_MAX];
    int id_bytes;
    int64_t documents, tokens;
    int64_t document_tokens; /* tokens of the current sequence so far */
    int64_t pack;            /* 0: no mask */
    uint8_t bits;            /* of the mask, for the last tokens % 8 ids */
    Origin origin;           /* for PREFIX.meta, to be set before the commit; vocab 0: not known */
    Arena *arena;            /* holds the write buffers */
} ShardWriter;

/* How far a writer is, between two documents. */
typedef struct ShardMark {
    int64_t documents, tokens, bits;
} ShardMark;

/* Makes the prefix's folders, too. vocab chooses the type of an id. With pack > 0 there is a mask, for
 * packs of so many ids: sequences end with shard_end_document, and each pack must be full. shard_append's
 * ids do not count then. */
Status shard_create(ShardWriter *w, const char *prefix, int64_t vocab, int64_t pack, Arena *arena);
Status shard_append_learned(ShardWriter *w, const int32_t *ids, int64_t n, bool learned);
/* Appends ids to the current document; ends it. */
Status shard_append(ShardWriter *w, const int32_t *ids, int64_t n);
Status shard_end_document(ShardWriter *w);

/* Brings all that was appended to the disk. A later writer of the same arguments goes on from there, also
 * after this process was killed: what was written since is dropped. ERR_IO, ERR_FORMAT: the temporary
 * files are gone or shorter. */
Status shard_mark(ShardWriter *w, ShardMark *out);
Status shard_resume(ShardWriter *w, const char *prefix, int64_t vocab, int64_t pack,
                    const ShardMark *m, Arena *arena);

/* Renames the files into place, .idx last. An older shard's .idx, .mask and .meta are removed first, so
 * that a crash never leaves files of two shards that look like one. */
Status shard_commit(ShardWriter *w);
void shard_writer_close(ShardWriter *w); /* safe on { 0 } and after commit; drops the temporaries */
void shard_writer_keep(ShardWriter *w);  /* likewise, but leaves them for shard_resume */

#endif
