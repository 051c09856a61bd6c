/* Any bytes as a tokenizer.json: no crash, no leak, no wait; and what loads must encode a text to
 * ids that decode to no more than the text can grow to. Special tokens decode to nothing. */
#include "corpus/tokenizer/tokenizer_private.h"
#include "harness/fuzz.h"

static const char TEXT[] = "Hello, \u4e16\u754c!  It's 1234 tokens.\r\n\n\xFF don't hellohello";

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
        need(token_bytes >= 1 || is_added(t, ids[i]));
        for (int32_t k = 0; k < token_bytes; k++)
            need(token[k] != '\0'); /* there is none in the text */
        total += token_bytes;
    }
    need(total <= (int64_t)(t->growth * sizeof TEXT));
}

static Status look(Fuzz *f)
{
    Tokenizer *t = NULL;
    TRY(tokenizer_parse("fuzz", (const char *)f->data, f->bytes, f->a, &t));
    check_encoding(t, f->a);
    tokenizer_free(t);
    return OK;
}

const Fuzzer fuzzer = { .look = look, .most_bytes = 1 << 16 };
