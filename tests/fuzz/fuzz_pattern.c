/* The first line as a pattern of either program: refused with a sentence, or one that cuts the rest, as far as that is
 * UTF-8, into pieces in its order, that PCRE2 compiles. */
#include "corpus/tokenizer/charset.h"
#include "corpus/tokenizer/pattern.h"
#include "corpus/tokenizer/split.h"
#include "harness/fuzz.h"

typedef struct Pieces {
    const char *text, *end;
    bool all;
} Pieces;

static Status take(void *context, const char *piece, int32_t n)
{
    Pieces *p = context;
    need(n > 0 && piece >= p->text && piece + n <= p->end);
    need(!p->all || piece == p->text);
    p->text = piece + n;
    return OK;
}

static Status cut(const Splitter *s, const Fuzz *f, bool all)
{
    SplitCut c;
    size_t used = 0;
    const char *text = fuzz_text(f);
    Pieces pieces = { text, text + f->bytes, all };
    TRY(split_begin(&c, s, take, &pieces, f->a));
    TRY(split_text(&c, text, f->bytes, &used));
    need(!all || pieces.text == text + used);
    return OK;
}

static Status look(Fuzz *f)
{
    Status status = OK;
    const char *pattern = NULL;
    if (fuzz_words(f, &pattern, 1) == 0) return OK;
    for (int fancy = 0; fancy < 2; fancy++) {
        Splitter s = { 0 };
        Text text = { 0 };
        TRY(text_init(&text, f->a));
        if (fancy) status = pattern_translate(pattern, PATTERN_FANCY, CHARSET_UNICODE, &text);
        if (fancy && status != OK) return status;
        status = splitter_add_rule(&s, fancy ? text.data : pattern, SPLIT_ONIGURUMA,
                                   fancy ? SPLIT_ONLY_MATCHES : SPLIT_ISOLATED, f->a);
        if (status == OK) status = cut(&s, f, !fancy);
        splitter_free(&s);
    }
    return status;
}

const Fuzzer fuzzer = { .look = look, .most_bytes = 1024 };
