/* data ngram: how well byte n-gram models predict the documents that a training holds out. A trained
 * model has to beat them. */
#include "app/options/options.h"
#include "beside/beside.h"
#include "engine/config/config.h"
#include "ngram/yardstick.h"

#include <string.h>

/* Parses NAME=PREFIX, and cuts the word at the sign. The name is required, because the held-out
 * documents are chosen by a hash of source name and document number. */
static Status parse_source(char *word, LoaderSource *out)
{
    char *equals = strchr(word, '=');
    if (equals == NULL || equals == word || equals[1] == '\0')
        return FAIL(ERR_ARG,
                    "source \"%s\" must be NAME=PREFIX: the name that training uses decides which "
                    "documents are held out",
                    word);
    *equals = '\0';
    *out = (LoaderSource){ .name = word, .path = equals + 1 };
    return OK;
}

/* A row for each source and one for all: bytes, and bits per byte of each order of n-grams. */
static Status print_yardstick(const YardstickConfig *c, const YardstickRow *rows, Text *out)
{
    TRY(text_printf(out, "%-16s %14s %12s", "source", "training bytes", "held bytes"));
    for (int k = 0; k < c->n_orders; k++)
        TRY(text_printf(out, "  order %lld", (long long)c->orders[k]));
    TRY(text_printf(out, "   (bits per byte of held-out text)\n"));
    for (int i = 0; i <= c->n_sources; i++) {
        const char *name = i < c->n_sources ? c->sources[i].name : "all";
        TRY(text_printf(out, "%-16s %14lld %12lld", name, (long long)rows[i].bytes[0],
                        (long long)rows[i].bytes[1]));
        for (int k = 0; k < c->n_orders; k++)
            TRY(rows[i].bytes[1] == 0
                    ? text_printf(out, "  %7s", "-")
                    : text_printf(out, "  %7.4f", rows[i].bits[k] / (double)rows[i].bytes[1]));
        TRY(text_append(out, "\n", 1));
    }
    return OK;
}

/* The targets of the options. */
typedef struct NgramCall {
    YardstickConfig config;
    const char *tokenizer;
    OptionInts orders;
} NgramCall;

static Status measure_ngrams(void *state, int n, char **arguments, Arena *a, Text *out)
{
    NgramCall *call = state;
    YardstickConfig *c = &call->config;
    YardstickRow rows[CONFIG_SOURCES_MAX + 1];
    LoaderSource sources[CONFIG_SOURCES_MAX];
    for (int i = 0; i < n; i++) TRY(parse_source(arguments[i], &sources[i]));
    if (call->orders.n == 0) call->orders = (OptionInts){ .n = 2, .at = { 2, 5 } };
    c->sources = sources;
    c->n_sources = n;
    c->orders = call->orders.at;
    c->n_orders = call->orders.n;
    Tokenizer *tokenizer = NULL; /* its memory is in arena a, so it is freed before the arena is */
    TRY(tokenizer_load(call->tokenizer, a, &tokenizer));
    c->tokenizer = tokenizer;
    Status s = yardstick_run(c, rows);
    if (s == OK) s = print_yardstick(c, rows, out);
    tokenizer_free(tokenizer);
    return s;
}

Status beside_run(int argc, char **argv)
{
    NgramCall c = { .config.validation = 0.02 };
    const Option table[] = {
        { "--tokenizer", OPTION_TEXT, &c.tokenizer, "FILE",
          .help = "the tokenizer that the shards were prepared with", .required = true },
        { "--order", OPTION_INTS, &c.orders, "N",
          .help = "length of the n-grams in bytes [2 and 5]", .min = 1, .max = 8 },
        { "--validation", OPTION_REAL, &c.config.validation, "X",
          .help = "share of the text that is held out, as data.validation", .min = 0, .max = 0.9 },
    };
    const Command command = {
        .name = "switchyard data ngram",
        .arguments = "NAME=PREFIX...",
        .what = "Measure byte n-gram models on the documents that training holds out, in bits per "
                "byte. A trained model has to beat them.",
        .example = "switchyard data ngram --tokenizer runs/tokenizer.json --order 2 --order 5 "
                   "web=data/web",
        OPTIONS(table, 1, CONFIG_SOURCES_MAX),
    };
    return options_run(&command, argc, argv, measure_ngrams, &c);
}
