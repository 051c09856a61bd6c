/* Any bytes as a tokenizer.json: no crash, no leak, no wait; and what loads must encode a text to
 * ids that decode to no more than the text can grow to. Special tokens decode to nothing. */
#include "data/tokenizer_private.h"

enum { ARENA_BYTES = 256 << 20 };

static const char TEXT[] = "Hello, \u4e16\u754c!  It's 1234 tokens.\r\n\n\xFF don't hellohello";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static bool is_added(const Tokenizer *t, int32_t id)
{
    for (int i = 0; i < ADDED_SETS; i++) {
        for (int32_t k = 0; k < t->added[i].n; k++) {
            if (t->added[i].at[k].id == id) return true;
        }
    }
    return false;
}

static void check_encoding(const Tokenizer *t, Arena *a)
{
    int32_t *ids = NULL;
    int64_t n = 0, total = 0;
    if (tokenizer_encode(t, TEXT, sizeof TEXT - 1, a, &ids, &n) != OK) return;
    for (int64_t i = 0; i < n; i++) {
        const char *token = NULL;
        int32_t token_bytes = 0;
        tokenizer_bytes(t, ids[i], &token, &token_bytes);
        if (token_bytes < 1 && !is_added(t, ids[i])) __builtin_trap();
        for (int32_t k = 0; k < token_bytes; k++) {
            if (token[k] == '\0') __builtin_trap(); /* there is none in the text */
        }
        total += token_bytes;
    }
    if (total > (int64_t)(t->growth * sizeof TEXT)) __builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    Arena arena = { 0 };
    Tokenizer *t = NULL;
    if (arena_init(&arena, "fuzz", MEM_HOST, ARENA_BYTES) != OK) return 0;
    if (tokenizer_parse("fuzz", (const char *)data, bytes, &arena, &t) == OK) {
        check_encoding(t, &arena);
        tokenizer_free(t);
    }
    arena_free(&arena);
    return 0;
}
