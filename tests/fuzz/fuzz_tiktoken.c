/* Any bytes as a .tiktoken file: no crash, no leak, no wait; and what loads must encode a text to ids that
 * decode to the text. Most files have no known number of tokens, so the pattern is given. */
#include "data/tokenizer_private.h"

#include <string.h>

enum { ARENA_BYTES = 256 << 20 };

static const char TEXT[] =
    "Hello, \u4e16\u754c!  It's 1234 tokens.\r\n\n don't hellohello \n\xFF rest";
static const char *const SPECIAL[] = { "<end>=300" };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check_encoding(const Tokenizer *t, Arena *a)
{
    int32_t *ids = NULL;
    int64_t n = 0;
    Text back;
    if (tokenizer_encode(t, TEXT, sizeof TEXT - 1, a, &ids, &n) != OK) return;
    if (text_init(&back, a) != OK || tokenizer_decode(t, ids, n, &back) != OK) return;
    if (back.used != sizeof TEXT - 1 || memcmp(back.data, TEXT, back.used) != 0) __builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    Arena arena = { 0 };
    Tokenizer *t = NULL;
    TokenizerConversion c = { .pattern = " ?\\p{L}+|\\s+", .special = SPECIAL, .n_special = 1 };
    const char *text = (const char *)data;
    if (arena_init(&arena, "fuzz", MEM_HOST, ARENA_BYTES) != OK) return 0;
    (void)tokenizer_is_tiktoken(text, bytes);
    if (tokenizer_parse_tiktoken("fuzz", text, bytes, &c, &arena, &t, NULL) == OK) {
        check_encoding(t, &arena);
        tokenizer_free(t);
    }
    arena_free(&arena);
    return 0;
}
