/* Files as bytes, decompressed (input.h), and as blocks of whole documents (blocks.h). */
#include "corpus/prepare/blocks.h"
#include "harness/compressed.h"
#include "harness/place.h"
#include "harness/texts.h"

#include <unistd.h>

enum { TEXT = 300000, ROOM = 2 * TEXT };

typedef struct Place {
    char folder[64];
    char path[FILE_PATH_MAX];
    Arena arena, text_arena;
    Text text;
    char text_of[TEXT]; /* lines of many lengths that do not compress away */
    char packed[ROOM];
    size_t used;
} Place;

static int place_open(void **state)
{
    static Place place;
    Place *p = *state = &place;
    uint32_t x = 12345;
    memset(p, 0, sizeof *p);
    place_make(p->folder, &p->arena);
    CHECK_OK(file_join(p->path, p->folder, "a.jsonl"));
    CHECK_OK(arena_init(&p->text_arena, "text", MEM_HOST, (size_t)1 << 30));
    CHECK_OK(text_init(&p->text, &p->text_arena));
    for (int i = 0; i < TEXT; i++) {
        x = x * 1664525 + 1013904223;
        p->text_of[i] = "\n\nabcdefghijklmnopqrstuvwxyz"[(x >> 16) % 28];
    }
    return 0;
}

static int place_close(void **state)
{
    Place *p = *state;
    arena_free(&p->text_arena);
    place_drop(p->folder, &p->arena);
    return 0;
}

/* ---- input ---- */

/* Reads all, in pieces of n bytes, from p->packed; p->text has it. */
static Status read_packed(Place *p, size_t bytes, size_t n)
{
    Input in = { 0 };
    size_t got = 1;
    p->text.used = 0;
    Status s = input_from_memory(&in, "a.gz", p->packed, bytes);
    while (s == OK && got > 0) {
        CHECK_OK(text_room(&p->text, n));
        s = input_read(&in, p->text.data + p->text.used, n, &got);
        if (s == OK) p->text.used += got;
    }
    input_close(&in);
    return s;
}

static void check_text(const Place *p, size_t bytes)
{
    CHECK_INT(p->text.used, bytes);
    CHECK(memcmp(p->text.data, p->text_of, bytes) == 0);
}

static void streams_one_after_the_other_are_one_file(void **state)
{
    Place *p = *state;
    static const size_t PIECES[] = { 1, 997, 65536, TEXT };
    for (int zstd = 0; zstd < 2; zstd++) {
        p->used = 0;
        (zstd ? add_zstd : add_gzip)(p->text_of, 100000, p->packed, ROOM, &p->used);
        (zstd ? add_zstd : add_gzip)("", 0, p->packed, ROOM, &p->used);
        (zstd ? add_zstd : add_gzip)(p->text_of + 100000, TEXT - 100000, p->packed, ROOM, &p->used);
        for (int i = 0; i < 4; i++) {
            CHECK_OK(read_packed(p, p->used, PIECES[i]));
            check_text(p, TEXT);
        }
    }
}

/* A seekable file begins with frames to be skipped; a tape ends with zeros. */
static void frames_to_skip_and_zeros_at_the_end_hold_nothing(void **state)
{
    Place *p = *state;
    memcpy(p->packed, "\x53\x2A\x4D\x18\x03\0\0\0xyz", 11);
    p->used = 11;
    add_zstd(p->text_of, 5000, p->packed, ROOM, &p->used);
    CHECK_OK(read_packed(p, p->used, 4096));
    check_text(p, 5000);
    p->used = 0;
    add_gzip(p->text_of, 5000, p->packed, ROOM, &p->used);
    memset(p->packed + p->used, 0, 1000);
    CHECK_OK(read_packed(p, p->used + 1000, 4096));
    check_text(p, 5000);
}

/* At whatever byte: what is missing or changed is never taken for the end. */
static void a_cut_or_changed_stream_is_an_error(void **state)
{
    Place *p = *state;
    for (int zstd = 0; zstd < 2; zstd++) {
        p->used = 0;
        (zstd ? add_zstd : add_gzip)(p->text_of, 3000, p->packed, ROOM, &p->used);
        for (size_t cut = zstd ? 4 : 2; cut < p->used; cut++) {
            CHECK_FAILS(read_packed(p, cut, 1000), ERR_FORMAT, "it is cut off");
            CHECK(strstr(status_message(), zstd ? "zstd -t" : "gzip -t") != NULL);
        }
        for (size_t at = p->used / 4; at < p->used; at += p->used / 4) {
            p->packed[at] = (char)(p->packed[at] ^ 0x20);
            CHECK_FAILS(read_packed(p, p->used, 1000), ERR_FORMAT, "a.gz is damaged before byte");
            p->packed[at] = (char)(p->packed[at] ^ 0x20);
        }
    }
}

static void other_kinds_of_files_are_named_with_what_to_do(void **state)
{
    static const struct {
        const char *bytes, *sentence;
    } CASES[] = {
        { "PAR1\x15\x04", "a.gz is Parquet, which is not read: its index is at its end" },
        { "BZh91AY",
          "a.gz is bzip2, which is not read: name the command that reads it: \"cmd: bzip2 -dc" },
        { "\xFD\x37zXZ",
          "a.gz is xz, which is not read: name the command that reads it: \"cmd: xz -dc" },
        { "PK\x03\x04..", "a zip archive, which is not read: unpack it" },
        { "\x04\x22\x4D\x18", "lz4" },
    };
    Place *p = *state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        strcpy(p->packed, CASES[i].bytes);
        CHECK_FAILS(read_packed(p, strlen(p->packed), 10), ERR_FORMAT, CASES[i].sentence);
    }
}

static void a_file_goes_on_at_any_byte(void **state)
{
    Place *p = *state;
    for (int kind = INPUT_PLAIN; kind <= INPUT_ZSTD; kind++) {
        p->used = 0;
        if (kind == INPUT_PLAIN) memcpy(p->packed, p->text_of, p->used = TEXT);
        if (kind == INPUT_GZIP) add_gzip(p->text_of, TEXT, p->packed, ROOM, &p->used);
        if (kind == INPUT_ZSTD) add_zstd(p->text_of, TEXT, p->packed, ROOM, &p->used);
        CHECK_OK(file_write_whole(p->path, p->packed, p->used));
        for (int64_t at = 0; at <= TEXT; at += TEXT / 4) {
            Input in = { 0 };
            char got[100];
            size_t n = 0;
            CHECK_OK(input_open(&in, p->path, &(InputHow){ 0 }));
            CHECK_OK(input_seek(&in, at));
            CHECK_OK(input_read(&in, got, sizeof got, &n));
            CHECK(at == TEXT ? n == 0 : n > 0 && memcmp(got, p->text_of + at, n) == 0);
            CHECK_INT(in.given, at + (int64_t)n);
            input_close(&in);
        }
    }
}

/* ---- blocks ---- */

/* All blocks of p->path end to end in p->packed. Each ends as `split` says, but for the last. */
static Status read_blocks(Place *p, const DocumentOptions *o, int *blocks)
{
    Blocks b = { 0 };
    Block block = { 0 };
    bool more = true;
    *blocks = 0;
    p->used = 0;
    Status s = blocks_open(&b, p->path, o);
    for (; s == OK; (*blocks)++) {
        s = blocks_next(&b, &p->text, &block, &more);
        if (s != OK || !more) break;
        CHECK_INT(block.begin.bytes, p->used);
        memcpy(p->packed + p->used, block.text, block.bytes);
        p->used += block.bytes;
        CHECK_INT(block.end.bytes, p->used);
        int64_t lines = 0;
        for (size_t i = 0; i < p->used; i++) lines += p->packed[i] == '\n';
        CHECK_INT(block.end.lines, lines);
        if (p->used < TEXT) CHECK(block.text[block.bytes - 1] == '\n');
        if (p->used < TEXT && o->split == SPLIT_BLANK)
            CHECK(block.bytes == 1 || block.text[block.bytes - 2] == '\n');
    }
    blocks_close(&b);
    return s;
}

static void blocks_are_whole_documents_and_all_of_the_file(void **state)
{
    static const size_t SIZES[] = { 1, 100, 5000, TEXT + 1 };
    Place *p = *state;
    int before = TEXT, blocks = 0;
    CHECK_OK(file_write_whole(p->path, p->text_of, TEXT));
    for (int i = 0; i < 4; i++) {
        CHECK_OK(read_blocks(p, &(DocumentOptions){ .block_bytes = SIZES[i] }, &blocks));
        CHECK(p->used == TEXT && memcmp(p->packed, p->text_of, TEXT) == 0);
        CHECK(blocks >= 1 && blocks <= before && (i > 0 || blocks > 1000));
        before = blocks;
    }
    CHECK_INT(blocks, 1);
    CHECK_OK(file_join(p->path, p->folder, "a.txt"));
    CHECK_OK(file_write_whole(p->path, p->text_of, TEXT));
    for (DocumentSplit split = SPLIT_FILE; split <= SPLIT_LINE; split++) {
        const DocumentOptions o = { .split = split, .block_bytes = 100 };
        CHECK_OK(read_blocks(p, &o, &blocks));
        CHECK(p->used == TEXT && memcmp(p->packed, p->text_of, TEXT) == 0);
        CHECK(split == SPLIT_FILE ? blocks == 1 : blocks > 50);
    }
}

static void a_seek_gives_the_same_blocks(void **state)
{
    Place *p = *state;
    const DocumentOptions o = { .block_bytes = 20000 };
    Blocks b = { 0 };
    Block first = { 0 }, again = { 0 };
    bool more = false;
    add_zstd(p->text_of, TEXT, p->packed, ROOM, &p->used);
    CHECK_OK(file_write_whole(p->path, p->packed, p->used));
    CHECK_OK(blocks_open(&b, p->path, &o));
    for (int i = 0; i < 5; i++) CHECK_OK(blocks_next(&b, &p->text, &first, &more));
    blocks_close(&b);
    CHECK_OK(blocks_open(&b, p->path, &o));
    CHECK_OK(blocks_seek(&b, first.begin, &p->text));
    CHECK_OK(blocks_next(&b, &p->text, &again, &more));
    CHECK(more && again.bytes == first.bytes && again.end.lines == first.end.lines);
    CHECK(memcmp(again.text, p->text_of + first.begin.bytes, again.bytes) == 0);
    blocks_close(&b);
}

static void a_line_that_is_too_long_is_named(void **state)
{
    Place *p = *state;
    int blocks = 0;
    memset(p->text_of + 5000, 'x', 4000);
    CHECK_OK(file_write_whole(p->path, p->text_of, TEXT));
    DocumentOptions o = { .block_bytes = 100, .most_bytes = 2000 };
    CHECK_FAILS(read_blocks(p, &o, &blocks), ERR_FORMAT, "a document of more than 2000 bytes");
    CHECK(strstr(status_message(), "a.jsonl:") != NULL);
    o.most_bytes = 10000;
    CHECK_OK(read_blocks(p, &o, &blocks));
    CHECK_INT(p->used, TEXT);
}

static void a_tar_archive_is_refused(void **state)
{
    Place *p = *state;
    Blocks b = { 0 };
    Block block;
    bool more = false;
    memset(p->text_of, 0, 512);
    memcpy(p->text_of + 257, "ustar", 5);
    CHECK_OK(file_write_whole(p->path, p->text_of, 5000));
    CHECK_OK(blocks_open(&b, p->path, &(DocumentOptions){ 0 }));
    CHECK_FAILS(blocks_next(&b, &p->text, &block, &more), ERR_FORMAT, "a.jsonl is a tar archive");
    blocks_close(&b);
}

static void a_compressed_file_that_holds_no_text_is_refused(void **state)
{
    static const struct {
        const char *bytes, *sentence;
    } CASES[] = {
        { "PAR1\x15\x04", "a.jsonl holds Parquet, which is not read: its index" },
        { "\x1F\x8B\x08", "a.jsonl holds gzip, which is not read: decompress it once" },
        { "PK\x03\x04", "a.jsonl holds a zip archive" },
    };
    Place *p = *state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        Blocks b = { 0 };
        Block block;
        bool more = false;
        p->used = 0;
        add_zstd(CASES[i].bytes, strlen(CASES[i].bytes), p->packed, ROOM, &p->used);
        CHECK_OK(file_write_whole(p->path, p->packed, p->used));
        CHECK_OK(blocks_open(&b, p->path, &(DocumentOptions){ 0 }));
        CHECK_FAILS(blocks_next(&b, &p->text, &block, &more), ERR_FORMAT, CASES[i].sentence);
        blocks_close(&b);
    }
}

/* Encrypted and empty files have other first bytes. The program that reads Parquet does not lie beside this one. */
static void a_name_in_parquet_is_parquet(void **state)
{
    static const char *const HELD[] = { "", "PARE", "text" };
    Place *p = *state;
    Input in = { 0 };
    CHECK_OK(file_join(p->path, p->folder, "a.parquet"));
    for (int i = 0; i < 3; i++) {
        write_text(p->path, HELD[i]);
        CHECK_FAILS(input_open(&in, p->path, &(InputHow){ .field = "text" }), ERR_ARG,
                    "a.parquet cannot start /");
        CHECK(strstr(status_message(), "/switchyard-data-parquet: No such file") != NULL);
        CHECK_FAILS(input_open(&in, p->path, &(InputHow){ 0 }), ERR_FORMAT,
                    "a.parquet is Parquet, and only columns of it are read");
    }
}

static void names_tell_json_lines(void **state)
{
    static const struct {
        const char *name;
        bool jsonl;
    } CASES[] = {
        { "a.jsonl", true },   { "a.json", true },       { "a.ndjson.zst", true },
        { "a.json.gz", true }, { "a.jsonl.zstd", true }, { "a.txt", false },
        { "jsonl", false },    { "a.gz", false },        { "a.txt.gz", false },
    };
    Place *p = *state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        Blocks b = { 0 };
        CHECK_OK(file_join(p->path, p->folder, CASES[i].name));
        write_text(p->path, "text");
        CHECK_OK(blocks_open(&b, p->path, &(DocumentOptions){ 0 }));
        if (b.jsonl != CASES[i].jsonl) fail_msg("%s", CASES[i].name);
        blocks_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLACE_TEST(streams_one_after_the_other_are_one_file),
        PLACE_TEST(frames_to_skip_and_zeros_at_the_end_hold_nothing),
        PLACE_TEST(a_cut_or_changed_stream_is_an_error),
        PLACE_TEST(other_kinds_of_files_are_named_with_what_to_do),
        PLACE_TEST(a_file_goes_on_at_any_byte),
        PLACE_TEST(blocks_are_whole_documents_and_all_of_the_file),
        PLACE_TEST(a_seek_gives_the_same_blocks),
        PLACE_TEST(a_line_that_is_too_long_is_named),
        PLACE_TEST(a_tar_archive_is_refused),
        PLACE_TEST(a_compressed_file_that_holds_no_text_is_refused),
        PLACE_TEST(a_name_in_parquet_is_parquet),
        PLACE_TEST(names_tell_json_lines),
    };
    return TEST_RUN(tests);
}
