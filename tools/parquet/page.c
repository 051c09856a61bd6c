/* page: a page of a chunk: its header, its bytes decompressed, its levels and its values. */
#include "corpus/prepare/input.h"
#include "parquet/private.h"

#include <string.h>
#include <zlib.h>

enum { PAGE_DATA = 0, PAGE_INDEX = 1, PAGE_DICTIONARY = 2, PAGE_DATA_2 = 3 };
enum {
    PLAIN = 0,
    PLAIN_DICTIONARY = 2,
    RLE = 3,
    DELTA_PACKED = 5,
    DELTA_LENGTH = 6,
    RLE_DICTIONARY = 8
};
static const int64_t PAGE_MAX = (int64_t)1 << 29, NUMBERS_MAX = (int64_t)1 << 26;

/* The fields of a page's header. part: those of the header of its kind. */
typedef struct Header {
    int64_t field[THRIFT_FIELDS], part[THRIFT_FIELDS];
} Header;

/* ---- small numbers ---- */

/* `width` bits from bit `at` on, the lowest first. */
static uint64_t take_bits(const uint8_t *s, int64_t at, int width)
{
    uint64_t x = 0;
    for (int got = 0; got < width;) {
        const int64_t bit = at + got;
        x |= (uint64_t)s[bit >> 3] >> (bit & 7) << got;
        got += 8 - (int)(bit & 7);
    }
    return width >= 64 ? x : x & (((uint64_t)1 << width) - 1);
}

/* A run of eights of packed numbers, or of one number that is repeated. */
static bool next_run(Runs *r)
{
    Thrift t = { .left = r->left };
    const int64_t head = thrift_varint(&t), n = (int64_t)((uint64_t)head >> 1);
    const bool packed = head & 1;
    if (t.bad || n == 0 || n > NUMBERS_MAX) return false;
    const int64_t bytes = packed ? n * r->width : (r->width + 7) / 8;
    if (bytes > t.left.end - t.left.at) return false;
    r->packed = packed ? t.left.at : NULL;
    r->value = packed ? 0 : (uint32_t)take_bits(t.left.at, 0, (int)bytes * 8);
    r->bit = 0;
    r->n = packed ? 8 * n : n;
    r->left.at = t.left.at + bytes;
    return true;
}

bool parquet_run(Runs *r, uint32_t *out)
{
    if (r->n == 0 && !next_run(r)) return false;
    r->n--;
    *out = r->packed != NULL ? (uint32_t)take_bits(r->packed, r->bit, r->width) : r->value;
    r->bit += r->width;
    return true;
}

/* DELTA_BINARY_PACKED: blocks of packed differences to the number before. They go to p->number. */
static Status read_deltas(Parquet *p, int64_t most)
{
    Thrift t = { .left = p->value };
    const int64_t block = thrift_varint(&t), parts = thrift_varint(&t), n = thrift_varint(&t);
    uint64_t last = (uint64_t)thrift_zigzag(&t);
    const bool fits = parts > 0 && block > 0 && block <= 1 << 20 && block % parts == 0 &&
                      block / parts % 8 == 0 && n >= 0 && n <= most;
    if (t.bad || !fits) return parquet_damaged(p, "packed numbers are more or fewer than it says");
    const int64_t each = block / parts;
    arena_release(&p->number_arena, (ArenaMark){ 0 });
    TRY(ARENA_NEW(&p->number_arena, n + 1, &p->number));
    p->number[0] = (int64_t)last;
    for (int64_t i = 1; i < n;) {
        const uint64_t least = (uint64_t)thrift_zigzag(&t);
        const uint8_t *width = t.left.at, *end = t.left.end;
        if (t.bad || parts > end - width) return parquet_damaged(p, "packed numbers end early");
        t.left.at += parts;
        for (int64_t k = 0; k < parts && i < n; k++) {
            const int64_t bytes = each / 8 * width[k];
            if (width[k] > 64 || bytes > end - t.left.at)
                return parquet_damaged(p, "packed numbers end early");
            for (int64_t j = 0; j < each && i < n; j++, i++) {
                last += least + take_bits(t.left.at, j * width[k], width[k]);
                p->number[i] = (int64_t)last;
            }
            t.left.at += bytes;
        }
    }
    p->n_numbers = n;
    p->number_at = 0;
    p->value.at = t.left.at;
    return OK;
}

/* ---- bytes ---- */

/* gzip and zstd are what a file of a corpus may be, too. */
static Status expand_stream(const Parquet *p, Bytes in, size_t bytes, uint8_t *out)
{
    Input stream = { 0 };
    size_t used = 0, got = 1;
    const bool gzip = in.end - in.at > 4 && in.at[0] == 0x1F && in.at[1] == 0x8B;
    const bool zstd = in.end - in.at > 4 && memcmp(in.at, "\x28\xB5\x2F\xFD", 4) == 0;
    if (p->codec == CODEC_GZIP ? !gzip : !zstd)
        return parquet_damaged(p, "a page is not compressed as it says");
    TRY(input_from_memory(&stream, p->path, in.at, (size_t)(in.end - in.at)));
    Status s = OK;
    while (s == OK && got > 0 && used < bytes) {
        s = input_read(&stream, out + used, bytes - used, &got);
        used += s == OK ? got : 0;
    }
    input_close(&stream);
    TRY(s);
    return used == bytes ? OK : parquet_damaged(p, "a page is shorter than it says");
}

/* Appends the page's bytes to `to`. */
static Status expand(const Parquet *p, Bytes in, int64_t bytes, Text *to)
{
    static const char *const NAMES[] = { "none",   "snappy", "gzip", "LZO",
                                         "brotli", "LZ4",    "zstd", "LZ4_RAW" };
    if (bytes < 0 || bytes > PAGE_MAX) return parquet_damaged(p, "a page is larger than 512 MiB");
    TRY(text_room(to, (size_t)bytes + 1));
    uint8_t *out = (uint8_t *)to->data + to->used;
    if (p->codec == CODEC_NONE) {
        if (in.end - in.at != bytes) return parquet_damaged(p, "a page is shorter than it says");
        if (bytes > 0) memcpy(out, in.at, (size_t)bytes);
    } else if (p->codec == CODEC_SNAPPY) {
        if (!snappy_expand(in, (size_t)bytes, out))
            return parquet_damaged(p, "snappy refuses a page");
    } else if (p->codec == CODEC_GZIP || p->codec == CODEC_ZSTD) {
        TRY(expand_stream(p, in, (size_t)bytes, out));
    } else {
        const bool known = p->codec >= 0 && p->codec <= 7;
        return FAIL(
            ERR_UNSUPPORTED,
            "%s is compressed with %s, which is not read: write it with snappy, gzip, zstd or "
            "none (compression=\"zstd\")",
            p->path, known ? NAMES[p->codec] : "an unknown method");
    }
    to->used += (size_t)bytes;
    return OK;
}

/* ---- pages ---- */

/* The next page of the chunk; the header's own bytes are passed. crc: of the bytes as they lie in the file. */
static Status take_page(Parquet *p, Header *h, Bytes *out)
{
    Thrift t = { .left = p->pages };
    bool summed = false;
    *h = (Header){ .field[1] = -1, .part[7] = 1 };
    for (int before = 0; thrift_field(&t, before);) {
        before = t.id;
        summed = summed || t.id == 4;
        if (t.type == THRIFT_STRUCT && (t.id == 5 || t.id == 7 || t.id == 8))
            thrift_struct(&t, h->part);
        else if (t.id > 0 && t.id < THRIFT_FIELDS)
            h->field[before] = thrift_value(&t);
        else
            (void)thrift_value(&t);
    }
    const int64_t bytes = h->field[3];
    if (t.bad || bytes < 0 || bytes > t.left.end - t.left.at)
        return parquet_damaged(p, "a page does not fit into its chunk");
    *out = (Bytes){ t.left.at, t.left.at + bytes };
    if (summed && (uint32_t)h->field[4] != crc32(0, out->at, (uInt)bytes))
        return parquet_damaged(p, "the checksum of a page differs");
    p->pages.at = out->end;
    return OK;
}

/* A value as it lies in a PLAIN page: a text after its length, or a number. */
static bool take_plain(const Parquet *p, Bytes *from, Bytes *out)
{
    const bool text = p->type == PARQUET_TEXT;
    uint32_t n = p->type == PARQUET_INT32 ? 4 : 8;
    if (text && from->end - from->at < 4) return false;
    if (text) memcpy(&n, from->at, 4), from->at += 4;
    if (n > from->end - from->at) return false;
    *out = (Bytes){ from->at, from->at + n };
    from->at += n;
    return true;
}

static Status read_dictionary(Parquet *p, const Header *h, Bytes in)
{
    const int64_t n = h->part[1];
    arena_release(&p->word_arena, (ArenaMark){ 0 });
    if (n < 0 || n > h->field[2] / 4)
        return parquet_damaged(p, "a dictionary has more words than bytes");
    if (h->part[2] != PLAIN && h->part[2] != PLAIN_DICTIONARY)
        return parquet_damaged(p, "a dictionary is not plain");
    TRY(ARENA_NEW(&p->word_arena, n + 1, &p->word));
    TRY(text_init(&p->words, &p->word_arena));
    TRY(expand(p, in, h->field[2], &p->words));
    Bytes left = { (uint8_t *)p->words.data, (uint8_t *)p->words.data + p->words.used };
    for (int64_t i = 0; i < n; i++)
        if (!take_plain(p, &left, &p->word[i]))
            return parquet_damaged(p, "a dictionary ends early");
    p->n_words = n;
    return OK;
}

static int bits_of(int most)
{
    int bits = 0;
    while (most >> bits != 0) bits++;
    return bits;
}

/* Takes the levels' runs from the front of a page. bytes: how many they are; -1: a number before them says it. */
static Status take_level(const Parquet *p, Bytes *page, int64_t bytes, int most, Runs *out)
{
    uint32_t n = (uint32_t)bytes;
    *out = (Runs){ .width = bits_of(most) };
    if (most == 0 && bytes < 0) return OK;
    if (bytes < 0) {
        if (page->end - page->at < 4) return parquet_damaged(p, "a page lacks levels");
        memcpy(&n, page->at, 4);
        page->at += 4;
    }
    if (n > page->end - page->at) return parquet_damaged(p, "a page lacks levels");
    out->left = (Bytes){ page->at, page->at + n };
    page->at += n;
    return OK;
}

static Status begin_values(Parquet *p, Bytes page, int64_t encoding)
{
    static const char *const NAMES[] = {
        "PLAIN",          "encoding 1",          "PLAIN_DICTIONARY",        "RLE",
        "BIT_PACKED",     "DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY",
        "RLE_DICTIONARY", "BYTE_STREAM_SPLIT"
    };
    const bool text = p->type == PARQUET_TEXT;
    p->value = page;
    p->encoding = (int)encoding;
    p->n_numbers = p->number_at = 0;
    if (encoding == PLAIN || page.at == page.end) return OK; /* all are null */
    if (encoding == (text ? DELTA_LENGTH : DELTA_PACKED)) return read_deltas(p, p->in_page);
    if (encoding == PLAIN_DICTIONARY || encoding == RLE_DICTIONARY) {
        p->encoding = RLE_DICTIONARY;
        p->index = (Runs){ .left = page };
        p->index.width = *p->index.left.at++;
        return p->index.width <= 32 ? OK : parquet_damaged(p, "a dictionary has too many words");
    }
    return FAIL(
        ERR_UNSUPPORTED,
        "%s: column \"%s\" is encoded as %s, which is not read: write it with plain or dictionary "
        "encoding (pyarrow's default)",
        p->path, p->field, encoding >= 0 && encoding < 10 ? NAMES[encoding] : "unknown");
}

/* The levels of version 2 are never compressed, and their sizes stand in the header. */
static Status read_data(Parquet *p, const Header *h, Bytes in)
{
    const bool second = h->field[1] == PAGE_DATA_2;
    const int64_t rep = second ? h->part[6] : -1, def = second ? h->part[5] : -1;
    Bytes page = in;
    int64_t bytes = h->field[2];
    if (h->part[1] < 0 || h->part[1] > p->values || h->part[1] > NUMBERS_MAX)
        return parquet_damaged(p, "a page has more values than its chunk, or than 67,108,864");
    if (second) {
        if (rep < 0 || def < 0) return parquet_damaged(p, "a page lacks levels");
        TRY(take_level(p, &page, rep, p->max_rep, &p->rep));
        TRY(take_level(p, &page, def, p->max_def, &p->def));
        bytes -= rep + def;
    }
    p->in_page = h->part[1];
    if (!second || h->part[7] != 0) {
        p->page.used = 0;
        if (bytes > 0 || !second) TRY(expand(p, page, bytes, &p->page));
        page = (Bytes){ (uint8_t *)p->page.data, (uint8_t *)p->page.data + p->page.used };
    }
    if (second) return begin_values(p, page, h->part[4]);
    if ((p->max_rep > 0 && h->part[4] != RLE) || (p->max_def > 0 && h->part[3] != RLE))
        return FAIL(ERR_UNSUPPORTED,
                    "%s has levels that are BIT_PACKED, which is not read: write it "
                    "again with a newer program",
                    p->path);
    TRY(take_level(p, &page, rep, p->max_rep, &p->rep));
    TRY(take_level(p, &page, def, p->max_def, &p->def));
    return begin_values(p, page, h->part[2]);
}

Status parquet_page(Parquet *p)
{
    for (;;) {
        Header h = { 0 };
        Bytes in = { 0 };
        if (p->pages.at >= p->pages.end)
            return parquet_damaged(p, "a chunk has fewer values than it says");
        TRY(take_page(p, &h, &in));
        if (h.field[1] == PAGE_DATA || h.field[1] == PAGE_DATA_2) return read_data(p, &h, in);
        if (h.field[1] == PAGE_DICTIONARY)
            TRY(read_dictionary(p, &h, in));
        else if (h.field[1] != PAGE_INDEX)
            return parquet_damaged(p, "a page is of no known kind");
    }
}

static bool take_number(Parquet *p, Bytes *out)
{
    if (p->number_at == p->n_numbers) return false;
    const int64_t *number = &p->number[p->number_at++], n = *number;
    *out = (Bytes){ (const uint8_t *)number, (const uint8_t *)(number + 1) };
    if (p->encoding == DELTA_PACKED) return true;
    if (n < 0 || n > p->value.end - p->value.at) return false;
    *out = (Bytes){ p->value.at, p->value.at + n };
    p->value.at += n;
    return true;
}

static bool take_word(Parquet *p, Bytes *out)
{
    uint32_t index = 0;
    if (!parquet_run(&p->index, &index) || index >= p->n_words) return false;
    *out = p->word[index];
    return true;
}

Status parquet_value(Parquet *p, Bytes *out)
{
    const bool there = p->encoding == PLAIN            ? take_plain(p, &p->value, out)
                       : p->encoding == RLE_DICTIONARY ? take_word(p, out)
                                                       : take_number(p, out);
    return there ? OK : parquet_damaged(p, "a page lacks values");
}
