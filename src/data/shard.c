/* shard: reads and writes the files of a shard, and checks the index before it is used. shard.h has the
 * layout. */
#include "data/shard.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static const char MAGIC[9] = "MMIDIDX\0";

/* How an .idx begins. Packed, because nine bytes of magic leave all numbers after it unaligned. */
typedef struct __attribute__((packed)) Header {
    char magic[sizeof MAGIC];
    uint64_t version;
    uint8_t type;
    uint64_t sequences, entries;
} Header;

/* How a .mask begins. */
typedef struct MaskHeader {
    char magic[8];
    int64_t tokens, pack;
} MaskHeader;

static const char MASK_MAGIC[8] = "SWMASK\0";

enum {
    VERSION = 1,
    TYPE_I32 = 4,
    TYPE_U16 = 8,
    U16_VOCAB = 65500,      /* vocabularies below it are stored as u16 */
    SEQUENCE_BYTES = 4 + 8, /* length and start */
    PIECE = 4096,           /* ids converted at a time */
    SUFFIX_BYTES = 8,
};

/* Address space for the lengths of 2^31 documents; only written pages become memory. */
static const size_t LENGTHS_RESERVE = (size_t)8 << 30;

/* Nothing in an .idx is aligned; every machine that this runs on is little endian. */
static int32_t i32_at(const uint8_t *p, int64_t i)
{
    int32_t v;
    memcpy(&v, p + i * (int64_t)sizeof v, sizeof v);
    return v;
}

static int64_t i64_at(const uint8_t *p, int64_t i)
{
    int64_t v;
    memcpy(&v, p + i * (int64_t)sizeof v, sizeof v);
    return v;
}

/* ---- reading ---- */

/* Checks the two counts against the file's size before multiplying, so that nothing overflows. */
static Status read_counts(Shard *s, uint64_t sequences, uint64_t entries)
{
    uint64_t room = s->idx.bytes - sizeof(Header);
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
    Header h;
    if (s->idx.bytes < sizeof h)
        return FAIL(ERR_FORMAT, "%s.idx has %zu bytes, its header alone has %zu: prepare it again",
                    s->prefix, s->idx.bytes, sizeof h);
    memcpy(&h, s->idx.data, sizeof h);
    if (memcmp(h.magic, MAGIC, sizeof MAGIC) != 0)
        return FAIL(ERR_FORMAT, "%s.idx does not begin with MMIDIDX: it is no token index",
                    s->prefix);
    if (h.version != VERSION)
        return FAIL(ERR_FORMAT, "%s.idx has version %llu, supported is %d", s->prefix,
                    (unsigned long long)h.version, VERSION);
    if (h.type != TYPE_U16 && h.type != TYPE_I32)
        return FAIL(ERR_FORMAT,
                    "%s.idx says that ids have type %d, supported are 8 (u16) and 4 (i32)",
                    s->prefix, h.type);
    s->id_bytes = h.type == TYPE_U16 ? 2 : 4;
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
    }
    return OK;
}

/* Works on a copy, so *s is unchanged after an error. After an error the maps stay the caller's. */
Status shard_from_maps(Shard *s, const char *prefix, FileMap bin, FileMap idx)
{
    Shard new = { .prefix = prefix, .bin = bin, .idx = idx };
    TRY(read_header(&new));
    const uint8_t *lengths = idx.data + sizeof(Header);
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
    if (mask.bytes >= sizeof h) memcpy(&h, mask.data, sizeof h);
    if (memcmp(h.magic, MASK_MAGIC, sizeof MASK_MAGIC) != 0)
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
    *end = high == s->sequences ? s->tokens : i64_at(s->starts, high) / s->id_bytes;
    return i64_at(s->starts, low) / s->id_bytes;
}

static Status part_path(const char *prefix, const char *suffix,
                        char path[FILE_PATH_MAX + SUFFIX_BYTES])
{
    int n = snprintf(path, FILE_PATH_MAX + SUFFIX_BYTES, "%s%s", prefix, suffix);
    if (n >= 0 && n < FILE_PATH_MAX) return OK;
    return FAIL(ERR_ARG, "path %s%s has %d characters, at most %d are possible", prefix, suffix, n,
                FILE_PATH_MAX - 1);
}

static Status map_part(const char *prefix, const char *suffix, FileMap *out)
{
    char path[FILE_PATH_MAX + SUFFIX_BYTES];
    TRY(part_path(prefix, suffix, path));
    return file_map(path, out);
}

/* A shard without a .mask is the normal case, not an error. */
static Status map_mask(Shard *s)
{
    char path[FILE_PATH_MAX + SUFFIX_BYTES];
    FileMap mask = { 0 };
    TRY(part_path(s->prefix, ".mask", path));
    if (!file_exists(path)) return OK;
    TRY(file_map(path, &mask));
    Status status = shard_set_mask(s, mask);
    if (status != OK) file_unmap(&mask);
    return status;
}

/* The .idx is opened first: without it there is no shard, however large the .bin is. */
Status shard_open(Shard *s, const char *prefix)
{
    FileMap bin = { 0 }, idx = { 0 };
    Status status = map_part(prefix, ".idx", &idx);
    if (status == OK) status = map_part(prefix, ".bin", &bin);
    Shard new = { 0 };
    if (status == OK) status = shard_from_maps(&new, prefix, bin, idx);
    if (status == OK) status = map_mask(&new);
    if (status == OK) *s = new;
    if (status == OK) return OK;
    file_unmap(&bin);
    file_unmap(&idx);
    return status_frame(__FILE__, __LINE__, status);
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
    return sequence == s->sequences ? s->tokens : i64_at(s->starts, sequence) / s->id_bytes;
}

void shard_read(const Shard *s, int64_t first, int64_t n, int32_t *out)
{
    const uint8_t *from = s->bin.data + first * s->id_bytes;
    if (n == 0) return;
    if (s->id_bytes == 4) {
        memcpy(out, from, (size_t)n * sizeof *out);
        return;
    }
    for (int64_t i = 0; i < n; i++) out[i] = from[2 * i] | from[2 * i + 1] << 8;
}

void shard_forget(const Shard *s)
{
    /* Only advice: if the system ignores it, memory is in use for longer. */
    /* NOLINTNEXTLINE(performance-no-int-to-ptr): madvise takes no const, the map is one */
    if (s->bin.data != NULL) madvise((void *)(uintptr_t)s->bin.data, s->bin.bytes, MADV_DONTNEED);
}

/* ---- writing ---- */

Status shard_create(ShardWriter *w, const char *prefix, int64_t vocab, Arena *arena)
{
    char path[FILE_PATH_MAX + SUFFIX_BYTES];
    size_t length = strlen(prefix);
    *w = (ShardWriter){ .id_bytes = vocab < U16_VOCAB ? 2 : 4, .arena = arena };
    if (length == 0 || prefix[length - 1] == '/' || length + SUFFIX_BYTES > FILE_PATH_MAX)
        return FAIL(ERR_ARG,
                    "\"%s\" is no prefix of two files: it must end with a name and have at most "
                    "%d characters",
                    prefix, FILE_PATH_MAX - SUFFIX_BYTES);
    memcpy(w->prefix, prefix, length + 1);
    TRY(file_make_parent(prefix));
    TRY(arena_init(&w->lengths_arena, "document lengths", MEM_HOST, LENGTHS_RESERVE));
    TRY(text_init(&w->lengths, &w->lengths_arena));
    (void)snprintf(path, sizeof path, "%s.bin", prefix);
    return file_create_temp(&w->bin, path, arena);
}

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

Status shard_create_packs(ShardWriter *w, const char *prefix, int64_t vocab, int64_t pack,
                          Arena *arena)
{
    TRY(shard_create(w, prefix, vocab, arena));
    w->pack = pack;
    TRY(arena_init(&w->bits_arena, "mask", MEM_HOST, LENGTHS_RESERVE));
    return text_init(&w->bits, &w->bits_arena);
}

/* Bits are appended a byte at a time as tokens reach it. The flag `pack` is cleared meanwhile, or
 * shard_append would call back into this function. */
Status shard_append_learned(ShardWriter *w, const int32_t *ids, int64_t n, bool learned)
{
    for (int64_t i = w->tokens; i < w->tokens + n; i++) {
        if (i % 8 == 0) TRY(text_append(&w->bits, "", 1));
        if (learned) w->bits.data[i / 8] = (char)(w->bits.data[i / 8] | 1 << i % 8);
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
    TRY(text_append(&w->lengths, (const char *)&length, sizeof length));
    w->documents++;
    w->document_tokens = 0;
    return OK;
}

/* With packs each chat stays a sequence, and a document begins wherever a pack does. Without packs
 * documents and sequences are the same. */
static Status write_index(const ShardWriter *w, File *idx)
{
    int64_t packs = w->pack > 0 ? w->tokens / w->pack : w->documents;
    Header h = { .version = VERSION,
                 .type = w->id_bytes == 2 ? TYPE_U16 : TYPE_I32,
                 .sequences = (uint64_t)w->documents,
                 .entries = (uint64_t)packs + 1 };
    memcpy(h.magic, MAGIC, sizeof MAGIC);
    TRY(file_write(idx, &h, sizeof h));
    TRY(file_write(idx, w->lengths.data, w->lengths.used));
    int64_t start = 0;
    for (int64_t d = 0; d < w->documents; d++) {
        TRY(file_write(idx, &start, sizeof start));
        start += (int64_t)i32_at((const uint8_t *)w->lengths.data, d) * w->id_bytes;
    }
    int64_t token = 0;
    for (int64_t d = 0; d <= w->documents; d++) {
        bool begins = w->pack == 0 || token % w->pack == 0;
        if (begins) TRY(file_write(idx, &d, sizeof d));
        if (d < w->documents) token += i32_at((const uint8_t *)w->lengths.data, d);
    }
    return OK;
}

/* Also through a temporary file, so a crash leaves either no mask or a whole one. */
static Status write_mask(const ShardWriter *w, const char *path)
{
    MaskHeader h = { .tokens = w->tokens, .pack = w->pack };
    File f = { 0 };
    memcpy(h.magic, MASK_MAGIC, sizeof h.magic);
    Status s = file_create_temp(&f, path, w->arena);
    if (s == OK) s = file_write(&f, &h, sizeof h);
    if (s == OK) s = file_write(&f, w->bits.data, w->bits.used);
    if (s == OK) s = file_commit(&f);
    file_close(&f);
    return s;
}

/* The order matters after a crash: the .idx goes first and comes last, and without it a shard cannot be
 * opened. */
Status shard_commit(ShardWriter *w)
{
    enum { BYTES = FILE_PATH_MAX + SUFFIX_BYTES };
    char path[BYTES], mask[BYTES], meta[BYTES];
    File idx = { 0 };
    (void)snprintf(path, sizeof path, "%s.idx", w->prefix);
    (void)snprintf(mask, sizeof mask, "%s.mask", w->prefix);
    (void)snprintf(meta, sizeof meta, "%s.meta", w->prefix);
    Status s = file_create_temp(&idx, path, w->arena);
    if (s == OK) s = write_index(w, &idx);
    if (s == OK) s = file_sync(&idx);
    if (s == OK) s = file_remove_tree(path);
    if (s == OK) s = file_remove_tree(mask);
    if (s == OK) s = file_remove_tree(meta);
    if (s == OK) s = file_commit(&w->bin);
    if (s == OK && w->pack > 0) s = write_mask(w, mask);
    if (s == OK && w->origin.vocab > 0) s = origin_write(&w->origin, w->prefix);
    if (s == OK) s = file_commit(&idx);
    file_close(&idx);
    shard_writer_close(w);
    return s;
}

void shard_writer_close(ShardWriter *w)
{
    file_close(&w->bin);
    arena_free(&w->lengths_arena);
    arena_free(&w->bits_arena);
}
