/* The first line is a number that chooses a row of `texts`, the rest is a text of a trace that this row reads. */
#include "harness/fuzz.h"
#include "traces/compare/collectives.h"
#include "traces/read/op_args.h"
#include "traces/table/python_text.h"

enum { NUMBERS_MAX = 16 };

static Status sizes(const char *word, const Fuzz *f)
{
    int64_t size[NUMBERS_MAX];
    (void)f;
    need(op_sizes(word, size, NUMBERS_MAX) <= NUMBERS_MAX);
    return OK;
}

static Status ranks(const char *word, const Fuzz *f)
{
    int32_t rank[NUMBERS_MAX];
    (void)f;
    need(collectives_wholes(word, rank, NUMBERS_MAX) <= NUMBERS_MAX);
    return OK;
}

static Status python(const char *word, const Fuzz *f)
{
    Text text;
    TRY(text_init(&text, f->page));
    TRY(python_value(&text, word, f->bytes % 2 == 0));
    return python_string(&text, word, strlen(word));
}

static FuzzRow *const texts[] = { sizes, ranks, python };

static Status look(Fuzz *f) { return fuzz_row(f, texts, sizeof texts / sizeof *texts); }

const Fuzzer fuzzer = { .look = look, .most_bytes = 2048 };
