/* shard: reads the files of a shard, and checks the index before it is used. shard.h has the
 * layout. */
#include "corpus/shard/shard_private.h"

#include <stdio.h>
#include <sys/mman.h>

/* SEQUENCE_BYTES: length and start. PASS: entries of an index that are read before pages are released. */
enum { SEQUENCE_BYTES = 4 + 8, PASS = 1 << 20 };

const char *const shard_suffixes[SHARD_FILES] = { ".bin", ".idx", ".mask" };

static int64_t i64_at(const uint8_t *p, int64_t i)
{
    int64_t v;
    memcpy(&v, p + i * (int64_t)sizeof v, sizeof v);
    return v;
}

/* ---- reading ---- */

/* Releases a map's pages, which must be a file's. Only advice: if the system ignores it, memory is in use
 * for longer. */
static void forget(const FileMap *m)
{
    /* NOLINTNEXTLINE(performance-no-int-to-ptr): madvise takes no const, the map is one */
    if (m->data != NULL) madvise((void *)(uintptr_t)m->data, m->bytes, MADV_DONTNEED);
}

/* Checks the two counts against the file's size before multiplying, so that nothing overflows. */
static Status read_counts(Shard *s, uint64_t sequences, uint64_t entries)
{
    uint64_t room = s->idx.bytes - sizeof(ShardHeader);
    uint64_t need = 0;
    bool fits = sequences <= room / SEQUENCE_BYTES && entries <= room / 8;
    if (fits) need = sequences * SEQUENCE_BYTES + entries * 8;
    if (!fits || (need != room && need + sequences != room))
        return FAIL(ERR_FORMAT,
                    "%s.idx has %zu bytes, which do not hold the %llu sequences and %llu document "
                    "entries that it promises: prepare it again",
                    s->prefix, s->idx.bytes, (unsigned long long)sequences,
                    (unsigned long long)entries);
    if (entries == 0)
        return FAIL(ERR_FORMAT, "%s.idx has an empty document index, its last entry must be %llu",
                    s->prefix, (unsigned long long)sequences);
    s->sequences = (int64_t)sequences;
    s->documents = (int64_t)entries - 1;
    return OK;
}

/* Checks what the file is before any of its counts is believed. */
static Status read_header(Shard *s)
{
    ShardHeader h;
    if (s->idx.bytes < sizeof h)
        return FAIL(ERR_FORMAT, "%s.idx has %zu bytes, its header alone has %zu: prepare it again",
                    s->prefix, s->idx.bytes, sizeof h);
    memcpy(&h, s->idx.data, sizeof h);
    if (memcmp(h.magic, SHARD_MAGIC, sizeof SHARD_MAGIC) != 0)
        return FAIL(ERR_FORMAT, "%s.idx does not begin with MMIDIDX: it is no token index",
                    s->prefix);
    if (h.version != SHARD_VERSION)
        return FAIL(ERR_FORMAT, "%s.idx has version %llu, supported is %d", s->prefix,
                    (unsigned long long)h.version, SHARD_VERSION);
    if (h.type != SHARD_U16 && h.type != SHARD_I32)
        return FAIL(ERR_FORMAT,
                    "%s.idx says that ids have type %d, supported are 8 (u16) and 4 (i32)",
                    s->prefix, h.type);
    s->id_bytes = h.type == SHARD_U16 ? 2 : 4;
    return read_counts(s, h.sequences, h.entries);
}

/* Sequences must follow each other without gaps from byte 0. Then documents are ranges of ids, and the
 * sum of all lengths must equal the size of the .bin. */
static Status check_sequences(Shard *s, const uint8_t *lengths)
{
    int64_t tokens = 0, bytes = 0;
    for (int64_t i = 0; i < s->sequences; i++) {
        int64_t length = i32_at(lengths, i), start = i64_at(s->starts, i);
        if (length < 0 || start != bytes)
            return FAIL(ERR_FORMAT,
                        "%s.idx: sequence %lld has %lld tokens from byte %lld on, the one before "
                        "it ends at byte %lld: prepare it again",
                        s->prefix, (long long)i, (long long)length, (long long)start,
                        (long long)bytes);
        tokens += length;
        bytes = tokens * s->id_bytes;
        if (i % PASS == PASS - 1) forget(&s->idx);
    }
    if ((uint64_t)bytes != s->bin.bytes)
        return FAIL(ERR_FORMAT,
                    "%s.idx promises %lld tokens (%lld bytes), %s.bin has %zu bytes: prepare it "
                    "again",
                    s->prefix, (long long)tokens, (long long)bytes, s->prefix, s->bin.bytes);
    s->tokens = tokens;
    return OK;
}

/* The index of documents must rise from 0 to S. Then every document is a range of sequences,
 * possibly empty. */
static Status check_documents(const Shard *s)
{
    int64_t before = 0;
    for (int64_t d = 0; d <= s->documents; d++) {
        int64_t at = i64_at(s->first_seq, d);
        bool right = at >= before && at <= s->sequences && (d > 0 || at == 0) &&
                     (d < s->documents || at == s->sequences);
        if (!right)
            return FAIL(ERR_FORMAT,
                        "%s.idx: document %lld starts at sequence %lld, the one before it at %lld "
                        "of %lld: prepare it again",
                        s->prefix, (long long)d, (long long)at, (long long)before,
                        (long long)s->sequences);
        before = at;
        if (d % PASS == PASS - 1) forget(&s->idx);
    }
    return OK;
}

/* Works on a copy, so *s is unchanged after an error. After an error the maps stay the caller's. */
Status shard_from_maps(Shard *s, const char *prefix, FileMap bin, FileMap idx)
{
    Shard new = { .prefix = prefix, .bin = bin, .idx = idx };
    TRY(read_header(&new));
    const uint8_t *lengths = idx.data + sizeof(ShardHeader);
    new.starts = lengths + new.sequences * 4;
    new.first_seq = new.starts + new.sequences * 8;
    TRY(check_sequences(&new, lengths));
    TRY(check_documents(&new));
    *s = new;
    return OK;
}

/* A mask must fit the .bin exactly, and every document must be a full pack, because the loader
 * relies on cuts at packs. */
Status shard_set_mask(Shard *s, FileMap mask)
{
    MaskHeader h = { 0 };
    size_t bits = ((size_t)s->tokens + 7) / 8;
    if (mask.bytes < sizeof h)
        return FAIL(ERR_FORMAT, "%s.mask has %zu bytes, its header alone has %zu: prepare it again",
                    s->prefix, mask.bytes, sizeof h);
    memcpy(&h, mask.data, sizeof h);
    if (memcmp(h.magic, SHARD_MASK_MAGIC, sizeof SHARD_MASK_MAGIC) != 0)
        return FAIL(ERR_FORMAT, "%s.mask does not begin with SWMASK: it is no mask", s->prefix);
    if (h.tokens != s->tokens || mask.bytes != sizeof h + bits || h.pack < 1 ||
        s->tokens % h.pack != 0)
        return FAIL(ERR_FORMAT,
                    "%s.mask has %zu bytes for %lld tokens in packs of %lld, %s.bin has %lld "
                    "tokens: prepare it again",
                    s->prefix, mask.bytes, (long long)h.tokens, (long long)h.pack, s->prefix,
                    (long long)s->tokens);
    for (int64_t d = 0; d <= s->documents; d++) {
        if (shard_start(s, d) == d * h.pack) continue;
        return FAIL(ERR_FORMAT,
                    "%s.idx: pack %lld starts at token %lld, packs have %lld: prepare it again",
                    s->prefix, (long long)d, (long long)shard_start(s, d), (long long)h.pack);
    }
    s->mask = mask;
    s->learned = mask.data + sizeof h;
    s->pack = h.pack;
    return OK;
}

bool shard_learns(const Shard *s, int64_t token)
{
    return s->learned == NULL || (s->learned[token / 8] >> (token % 8) & 1) != 0;
}

/* Binary search for the last sequence that starts at or before the token. It never returns an empty
 * sequence before another one at the same start, because the later one wins. */
int64_t shard_chat(const Shard *s, int64_t token, int64_t *end)
{
    int64_t low = 0, high = s->sequences;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (i64_at(s->starts, middle) / s->id_bytes <= token)
            low = middle;
        else
            high = middle;
    }
    int64_t start = i64_at(s->starts, low) / s->id_bytes;
    *end = high == s->sequences ? s->tokens : i64_at(s->starts, high) / s->id_bytes;
    if (*end <= token) *end = token + 1; /* the file was overwritten: see shard_check_same */
    return start < 0 || start > token ? token : start;
}

Status shard_part_path(const char *prefix, const char *suffix, char path[SHARD_PATH_BYTES])
{
    int n = snprintf(path, SHARD_PATH_BYTES, "%s%s", prefix, suffix);
    if (n >= 0 && n < FILE_PATH_MAX) return OK;
    return FAIL(ERR_ARG, "path %s%s has %d characters, at most %d are possible", prefix, suffix, n,
                FILE_PATH_MAX - 1);
}

static Status map_part(const char *prefix, const char *suffix, FileMap *out)
{
    char path[SHARD_PATH_BYTES];
    TRY(shard_part_path(prefix, suffix, path));
    return file_map(path, out);
}

/* A shard without a .mask is the normal case, not an error. */
static Status map_mask(Shard *s)
{
    char path[SHARD_PATH_BYTES];
    FileMap mask = { 0 };
    TRY(shard_part_path(s->prefix, ".mask", path));
    if (!file_exists(path)) return OK;
    TRY(file_map(path, &mask));
    Status status = shard_set_mask(s, mask);
    if (status != OK) file_unmap(&mask);
    return status;
}

/* Stamps come before the maps: a change between the two is then seen. */
static Status stamp_files(const char *prefix, FileStamp stamp[SHARD_FILES])
{
    char path[SHARD_PATH_BYTES];
    for (int i = 0; i < SHARD_FILES; i++) {
        TRY(shard_part_path(prefix, shard_suffixes[i], path));
        file_stamp(path, &stamp[i]);
    }
    return OK;
}

/* The .idx is opened first: without it there is no shard, however large the .bin is. */
Status shard_open(Shard *s, const char *prefix)
{
    FileMap bin = { 0 }, idx = { 0 };
    FileStamp stamp[SHARD_FILES];
    TRY(stamp_files(prefix, stamp));
    Status status = map_part(prefix, ".idx", &idx);
    if (status == OK) status = map_part(prefix, ".bin", &bin);
    Shard new = { 0 };
    if (status == OK) status = shard_from_maps(&new, prefix, bin, idx);
    if (status == OK) status = map_mask(&new);
    if (status == OK) {
        *s = new;
        memcpy(s->stamp, stamp, sizeof stamp);
        return OK;
    }
    file_unmap(&bin);
    file_unmap(&idx);
    return status_frame(__FILE__, __LINE__, status);
}

Status shard_check_same(const Shard *s)
{
    char path[SHARD_PATH_BYTES];
    for (int i = 0; i < SHARD_FILES; i++) {
        TRY(shard_part_path(s->prefix, shard_suffixes[i], path));
        TRY(file_stamp_check(path, &s->stamp[i]));
    }
    return OK;
}

void shard_close(Shard *s)
{
    file_unmap(&s->bin);
    file_unmap(&s->idx);
    file_unmap(&s->mask);
    *s = (Shard){ 0 };
}

/* The end of the last document, and empty documents before it, are at the end of the .bin. No
 * sequence starts there, so there is no entry to read. */
int64_t shard_start(const Shard *s, int64_t d)
{
    int64_t sequence = i64_at(s->first_seq, d);
    if (sequence < 0 || sequence >= s->sequences) return s->tokens;
    return i64_at(s->starts, sequence) / s->id_bytes;
}

void shard_read(const Shard *s, int64_t first, int64_t n, int32_t *out)
{
    const uint8_t *from = s->bin.data + first * s->id_bytes;
    if (n == 0) return;
    if (first < 0 || n < 0 || n > s->tokens - first) { /* the .idx was overwritten */
        memset(out, 0, (size_t)(n < 0 ? 0 : n) * sizeof *out);
        return;
    }
    if (s->id_bytes == 4) {
        memcpy(out, from, (size_t)n * sizeof *out);
        return;
    }
    for (int64_t i = 0; i < n; i++) out[i] = from[2 * i] | from[2 * i + 1] << 8;
}

void shard_forget(const Shard *s)
{
    forget(&s->bin);
    forget(&s->idx);
    forget(&s->mask);
}
