/* blocks: reads pieces of a file until a document ends in them, and keeps the rest for the next block. */
#include "corpus/prepare/blocks.h"

#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

static const size_t BLOCK_BYTES = (size_t)1 << 20, MOST_BYTES = (size_t)1 << 30;
/* Address space for what two blocks share. Memory that is not touched costs nothing. */
static const size_t CARRY_RESERVE = (size_t)64 << 30;
enum { TAR_AT = 257 }; /* where a tar archive has its magic */

bool blocks_blank(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (s[i] != ' ' && s[i] != '\t' && s[i] != '\r') return false;
    }
    return true;
}

/* Does a name end so, with or without the ending of a compression? Of a command only the first byte tells. */
static bool names_json_lines(const char *path)
{
    static const char *const COMPRESSED[] = { ".gz", ".zst", ".zstd" };
    static const char *const LINES[] = { ".jsonl", ".ndjson", ".json" };
    size_t n = strlen(path);
    if (shell_command(path) != NULL) return false;
    for (int i = 0; i < 3; i++) {
        if (text_ends(path, COMPRESSED[i])) n = strlen(path) - strlen(COMPRESSED[i]);
    }
    for (int i = 0; i < 3; i++) {
        size_t m = strlen(LINES[i]);
        if (n >= m && memcmp(path + n - m, LINES[i], m) == 0) return true;
    }
    return false;
}

/* The first byte of a pipe is known only now. */
static Status read_piece(Blocks *b, Text *room, size_t bytes, bool *ended)
{
    size_t got = 0;
    TRY(text_room(room, bytes));
    TRY(input_read(&b->input, room->data + room->used, bytes, &got));
    room->used += got;
    *ended = got == 0;
    return OK;
}

/* Of a byte order mark at the front of a file, which is no part of its text. */
static size_t mark_bytes(const Text *room)
{
    return room->used >= 3 && memcmp(room->data, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
}

static Status check_first(Blocks *b, const Text *room)
{
    const size_t mark = mark_bytes(room);
    b->checked = true;
    if (room->used > TAR_AT + 5 && memcmp(room->data + TAR_AT, "ustar", 5) == 0)
        return FAIL(ERR_FORMAT, "%s is a tar archive: unpack it, and name the folder",
                    b->input.path);
    TRY(input_check_inside(&b->input, room->data, room->used));
    if (b->input.pipe && room->used > mark) b->jsonl = b->jsonl || room->data[mark] == '{';
    return OK;
}

/* Bytes of the whole documents in `s`: up to the last newline, or with SPLIT_BLANK up to the last blank
 * line. 0: no document ends here. */
static size_t last_end(const Blocks *b, const char *s, size_t n)
{
    bool blank = !b->jsonl && b->options.split == SPLIT_BLANK;
    if (!b->jsonl && b->options.split == SPLIT_FILE) return 0;
    const char *newline = n > 0 ? memrchr(s, '\n', n) : NULL;
    while (newline != NULL && blank) {
        const char *before = newline > s ? memrchr(s, '\n', (size_t)(newline - s)) : NULL;
        const char *line = before == NULL ? s : before + 1;
        if (blocks_blank(line, (size_t)(newline - line))) break;
        newline = before;
    }
    return newline == NULL ? 0 : (size_t)(newline + 1 - s);
}

static int64_t count_lines(const char *s, size_t n)
{
    int64_t lines = 0;
    for (size_t i = 0; i < n; i++) lines += s[i] == '\n';
    return lines;
}

/* A document that does not fit makes the block twice as long, so that the search for its end stays
 * linear. */
static Status fill_room(Blocks *b, Text *room, size_t *whole)
{
    const DocumentOptions *o = &b->options;
    size_t most = o->most_bytes > 0 ? o->most_bytes : MOST_BYTES;
    size_t wanted = o->block_bytes > 0 ? o->block_bytes : BLOCK_BYTES;
    bool ended = false, file = false;
    for (*whole = 0; *whole == 0 && !ended; wanted *= 2) {
        while (room->used < wanted && !ended) TRY(read_piece(b, room, wanted - room->used, &ended));
        if (!b->checked) TRY(check_first(b, room));
        file = !b->jsonl && o->split == SPLIT_FILE;
        *whole = ended ? room->used : last_end(b, room->data, room->used);
        if (*whole == 0 && room->used > most && !file)
            return FAIL(ERR_FORMAT,
                        "%s:%lld: a document of more than %zu bytes: split it, or leave it out",
                        b->input.path, (long long)b->at.lines + 1, most);
    }
    return OK;
}

/* The hash of a block and of the sum before it, with few enough bits for a journal. */
static int64_t next_sum(int64_t sum, const char *s, size_t n)
{
    return (int64_t)(XXH3_64bits_withSeed(s, n, (uint64_t)sum) >> 8);
}

Status blocks_next(Blocks *b, Text *room, Block *out, bool *more)
{
    size_t whole = 0;
    room->used = 0;
    TRY(text_append(room, b->carry.data, b->carry.used));
    b->carry.used = 0;
    TRY(fill_room(b, room, &whole));
    TRY(text_append(&b->carry, room->data + whole, room->used - whole));
    const size_t mark = b->at.bytes == 0 ? mark_bytes(room) : 0;
    *out = (Block){ .text = room->data + mark, .bytes = whole - mark, .begin = b->at };
    b->at.bytes += (int64_t)whole;
    b->at.lines += count_lines(room->data, whole);
    if (b->input.shell != NULL) b->at.sum = next_sum(b->at.sum, room->data, whole);
    out->end = b->at;
    *more = whole > 0;
    return OK;
}

/* Blocks end where they ended before if the bytes are the same. */
static Status pass_over(Blocks *b, BlockPlace place, Text *room)
{
    Block block;
    bool more = true;
    while (more && b->at.bytes < place.bytes) TRY(blocks_next(b, room, &block, &more));
    if (b->at.bytes == place.bytes && b->at.sum == place.sum) return OK;
    return FAIL(
        ERR_CHANGED,
        "%s now prints other data in its first %lld bytes than before the interruption: delete "
        "the .journal to begin from the start",
        b->input.path, (long long)place.bytes);
}

Status blocks_seek(Blocks *b, BlockPlace place, Text *room)
{
    if (b->input.shell != NULL) return pass_over(b, place, room);
    b->at = place;
    b->checked = b->checked || place.bytes > 0;
    return input_seek(&b->input, place.bytes);
}

Status blocks_open(Blocks *b, const char *path, const DocumentOptions *o)
{
    *b = (Blocks){ .options = *o, .jsonl = names_json_lines(path) };
    const InputHow how = { .field = o->field, .wait_s = o->wait_s };
    Status s = input_open(&b->input, path, &how);
    b->jsonl = b->jsonl || b->input.rows;
    if (s == OK) s = arena_reserve(&b->arena, "carry", CARRY_RESERVE);
    if (s == OK) s = text_init(&b->carry, &b->arena);
    if (s != OK) blocks_close(b);
    return s;
}

void blocks_close(Blocks *b)
{
    input_close(&b->input);
    arena_free(&b->arena);
    *b = (Blocks){ 0 };
}
