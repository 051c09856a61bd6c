/* The first line as a pattern: refused with a sentence, or one that cuts the rest, as far as that is UTF-8, into pieces
 * whose bytes are those of the text in its order. */
#include "data/split.h"
#include "harness/fuzz.h"

typedef struct Pieces {
    const char *text, *end;
} Pieces;

static Status take(void *context, const char *piece, int32_t n)
{
    Pieces *p = context;
    need(n > 0 && piece == p->text && piece + n <= p->end);
    p->text += n;
    return OK;
}

static Status cut(const Splitter *s, const Fuzz *f)
{
    SplitCut c;
    size_t used = 0;
    const char *text = fuzz_text(f);
    Pieces pieces = { text, text + f->bytes };
    TRY(split_begin(&c, s, take, &pieces, f->a));
    TRY(split_text(&c, text, f->bytes, &used));
    need(pieces.text == text + used);
    return OK;
}

static Status look(Fuzz *f)
{
    Splitter s = { 0 };
    const char *pattern = NULL;
    if (fuzz_words(f, &pattern, 1) == 0) return OK;
    Status status = splitter_add_rule(&s, pattern, false, SPLIT_ISOLATED, f->a);
    if (status == OK) status = cut(&s, f);
    splitter_free(&s);
    return status;
}

const Fuzzer fuzzer = { .look = look, .most_bytes = 1024 };
