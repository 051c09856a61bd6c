/* Any bytes as a .tiktoken file: no crash, no leak, no wait; and what is written must load, and encode a text to
 * ids that decode to the text. Most files have no known number of tokens, so the pattern is given. */
#include "corpus/tokenizer/tokenizer.h"
#include "harness/fuzz.h"
#include "tokenizer/tiktoken.h"

static const char TEXT[] =
    "Hello, \u4e16\u754c!  It's 1234 tokens.\r\n\n don't hellohello \n\xFF rest";
static const char *const SPECIAL[] = { "<end>=300" };

static Status check_encoding(const Tokenizer *t, Arena *a)
{
    int32_t *ids = NULL;
    int64_t n = 0;
    Text back;
    TRY(tokenizer_encode(t, TEXT, sizeof TEXT - 1, a, &ids, &n));
    TRY(text_init(&back, a));
    TRY(tokenizer_decode(t, ids, n, &back));
    need(back.used == sizeof TEXT - 1 && memcmp(back.data, TEXT, back.used) == 0);
    return OK;
}

static Status look(Fuzz *f)
{
    Tokenizer *t = NULL;
    TokenizerFile file = { 0 };
    char path[FILE_PATH_MAX];
    const TokenizerConversion c = { .pattern = " ?\\p{L}+|\\s+|[^\\p{L}\\s]",
                                    .special = SPECIAL,
                                    .n_special = 1 };
    TRY(file_join(path, fuzz_folder(), "tokenizer.json"));
    TRY(tiktoken_read("fuzz", (const char *)f->data, f->bytes, &c, f->a, &file));
    TRY(tokenizer_write(path, &file, f->a));
    need(tokenizer_load(path, f->a, &t) == OK);
    Status s = check_encoding(t, f->a);
    tokenizer_free(t);
    return s;
}

const Fuzzer fuzzer = { .look = look, .most_bytes = 1 << 16 };
