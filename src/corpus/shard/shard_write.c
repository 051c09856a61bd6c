/* shard_write: writes the files of a shard. Lengths and the mask's bits go to files of their own as they
 * come, so memory does not depend on the number of documents, and a killed program can go on from a
 * mark. */
#include "corpus/shard/shard_private.h"

#include <stdio.h>

enum {
    U16_VOCAB = 65500, /* vocabularies below it are stored as u16 */
    PIECE = 4096,      /* ids converted at a time */
};

/* ---- opening ---- */

static Status begin_writer(ShardWriter *w, const char *prefix, int64_t vocab, int64_t pack,
                           Arena *arena)
{
    size_t length = strlen(prefix);
    *w = (ShardWriter){ .id_bytes = vocab < U16_VOCAB ? 2 : 4, .pack = pack, .arena = arena };
    if (length == 0 || prefix[length - 1] == '/' || length + SHARD_SUFFIX_BYTES > FILE_PATH_MAX)
        return FAIL(ERR_ARG,
                    "\"%s\" is no prefix of two files: it must end with a name and have at most "
                    "%d characters",
                    prefix, FILE_PATH_MAX - SHARD_SUFFIX_BYTES);
    memcpy(w->prefix, prefix, length + 1);
    return file_make_parent(prefix);
}

static void file_name(const ShardWriter *w, const char *suffix, char path[SHARD_PATH_BYTES])
{
    (void)snprintf(path, SHARD_PATH_BYTES, "%s%s", w->prefix, suffix);
}

/* A new file, or an old one that is cut after so many bytes. */
static Status open_part(const ShardWriter *w, const char *suffix, const uint64_t *bytes, File *f)
{
    char path[SHARD_PATH_BYTES];
    file_name(w, suffix, path);
    return bytes == NULL ? file_create_temp(f, path, w->arena)
                         : file_resume_temp(f, path, *bytes, w->arena);
}

Status shard_create(ShardWriter *w, const char *prefix, int64_t vocab, int64_t pack, Arena *arena)
{
    static const MaskHeader NOT_YET = { 0 };
    TRY(begin_writer(w, prefix, vocab, pack, arena));
    TRY(open_part(w, ".bin", NULL, &w->bin));
    TRY(open_part(w, ".lengths", NULL, &w->lengths));
    if (pack == 0) return OK;
    TRY(open_part(w, ".mask", NULL, &w->mask));
    return file_write(&w->mask, &NOT_YET, sizeof NOT_YET);
}

Status shard_resume(ShardWriter *w, const char *prefix, int64_t vocab, int64_t pack,
                    const ShardMark *m, Arena *arena)
{
    TRY(begin_writer(w, prefix, vocab, pack, arena));
    uint64_t bin = (uint64_t)(m->tokens * w->id_bytes), lengths = (uint64_t)m->documents * 4;
    uint64_t mask = sizeof(MaskHeader) + (uint64_t)m->tokens / 8;
    TRY(open_part(w, ".bin", &bin, &w->bin));
    TRY(open_part(w, ".lengths", &lengths, &w->lengths));
    if (pack > 0) TRY(open_part(w, ".mask", &mask, &w->mask));
    w->tokens = m->tokens;
    w->documents = m->documents;
    w->bits = (uint8_t)m->bits;
    return OK;
}

Status shard_mark(ShardWriter *w, ShardMark *out)
{
    TRY(file_sync(&w->bin));
    TRY(file_sync(&w->lengths));
    if (w->pack > 0) TRY(file_sync(&w->mask));
    *out = (ShardMark){ w->documents, w->tokens, w->bits };
    return OK;
}

/* ---- ids ---- */

/* Ids are checked as they are written, because a wrapped u16 would read back as another valid
 * token. */
static Status write_ids(ShardWriter *w, const int32_t *ids, int64_t n)
{
    uint16_t narrow[PIECE];
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] < 0 || (w->id_bytes == 2 && ids[i] > UINT16_MAX))
            return FAIL(ERR_ARG, "%s.bin: document %lld has id %d, its type holds 0 to %d",
                        w->prefix, (long long)w->documents, ids[i],
                        w->id_bytes == 4 ? INT32_MAX : UINT16_MAX);
        narrow[i] = (uint16_t)ids[i];
    }
    const void *data = w->id_bytes == 4 ? (const void *)ids : narrow;
    return file_write(&w->bin, data, (size_t)(n * w->id_bytes));
}

/* The flag `pack` is cleared meanwhile, or shard_append would call back into this function. */
Status shard_append_learned(ShardWriter *w, const int32_t *ids, int64_t n, bool learned)
{
    for (int64_t i = w->tokens; i < w->tokens + n; i++) {
        if (learned) w->bits = (uint8_t)(w->bits | 1U << i % 8);
        if (i % 8 < 7) continue;
        TRY(file_write(&w->mask, &w->bits, 1));
        w->bits = 0;
    }
    int64_t pack = w->pack;
    w->pack = 0;
    Status s = shard_append(w, ids, n);
    w->pack = pack;
    return s;
}

Status shard_append(ShardWriter *w, const int32_t *ids, int64_t n)
{
    if (w->pack > 0) return shard_append_learned(w, ids, n, false);
    for (int64_t i = 0; i < n; i += PIECE)
        TRY(write_ids(w, ids + i, n - i < PIECE ? n - i : PIECE));
    w->document_tokens += n;
    w->tokens += n;
    return OK;
}

Status shard_end_document(ShardWriter *w)
{
    if (w->document_tokens > INT32_MAX)
        return FAIL(ERR_ARG, "%s.bin: document %lld has %lld tokens, at most %d are possible",
                    w->prefix, (long long)w->documents, (long long)w->document_tokens, INT32_MAX);
    const int32_t length = (int32_t)w->document_tokens;
    TRY(file_write(&w->lengths, &length, sizeof length));
    w->documents++;
    w->document_tokens = 0;
    return OK;
}

/* ---- the commit ---- */

/* With packs each sequence stays one, and a document begins wherever a pack does. Without packs documents
 * and sequences are the same. */
static Status write_index(const ShardWriter *w, const uint8_t *lengths, File *idx)
{
    int64_t packs = w->pack > 0 ? w->tokens / w->pack : w->documents;
    ShardHeader h = { .magic = SHARD_MAGIC,
                      .version = SHARD_VERSION,
                      .type = w->id_bytes == 2 ? SHARD_U16 : SHARD_I32,
                      .sequences = (uint64_t)w->documents,
                      .entries = (uint64_t)packs + 1 };
    TRY(file_write(idx, &h, sizeof h));
    TRY(file_write(idx, lengths, (size_t)w->documents * 4));
    int64_t start = 0;
    for (int64_t d = 0; d < w->documents; d++) {
        TRY(file_write(idx, &start, sizeof start));
        start += (int64_t)i32_at(lengths, d) * w->id_bytes;
    }
    int64_t token = 0;
    for (int64_t d = 0; d <= w->documents; d++) {
        bool begins = w->pack == 0 || token % w->pack == 0;
        if (begins) TRY(file_write(idx, &d, sizeof d));
        if (d < w->documents) token += i32_at(lengths, d);
    }
    return OK;
}

/* The lengths are a temporary file, which is read through its temporary name and never committed. */
static Status write_index_file(ShardWriter *w, File *idx)
{
    char path[SHARD_PATH_BYTES];
    FileMap lengths = { 0 };
    file_name(w, ".idx", path);
    TRY(file_create_temp(idx, path, w->arena));
    TRY(file_flush(&w->lengths));
    file_name(w, ".lengths.tmp", path);
    TRY(file_map(path, &lengths));
    Status s = write_index(w, lengths.data, idx);
    file_unmap(&lengths);
    if (s == OK) s = file_sync(idx);
    return s;
}

static Status commit_mask(ShardWriter *w)
{
    MaskHeader h = { .magic = SHARD_MASK_MAGIC, .tokens = w->tokens, .pack = w->pack };
    if (w->pack == 0) return OK;
    if (w->tokens % 8 > 0) TRY(file_write(&w->mask, &w->bits, 1));
    TRY(file_write_at(&w->mask, 0, &h, sizeof h));
    return file_commit(&w->mask);
}

/* The order matters after a crash: the .idx goes first and comes last, and without it a shard cannot be
 * opened. */
Status shard_commit(ShardWriter *w)
{
    static const char *const OLD[] = { ".idx", ".mask", ".meta" };
    char path[SHARD_PATH_BYTES];
    File idx = { 0 };
    Status s = write_index_file(w, &idx);
    for (int i = 0; i < 3 && s == OK; i++) {
        file_name(w, OLD[i], path);
        s = file_remove_tree(path);
    }
    if (s == OK) s = file_commit(&w->bin);
    if (s == OK) s = commit_mask(w);
    if (s == OK && w->origin.vocab > 0) s = origin_write(&w->origin, w->prefix);
    if (s == OK) s = file_commit(&idx);
    file_close(&idx);
    shard_writer_close(w);
    return s;
}

void shard_writer_close(ShardWriter *w)
{
    file_close(&w->bin);
    file_close(&w->lengths);
    file_close(&w->mask);
}

void shard_writer_keep(ShardWriter *w)
{
    file_keep_temp(&w->bin);
    file_keep_temp(&w->lengths);
    file_keep_temp(&w->mask);
}
