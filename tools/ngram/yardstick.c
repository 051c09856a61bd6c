/* yardstick: trains one n-gram model per order on the training documents of all sources, then measures
 * it on the held-out ones. */
#include "ngram/yardstick.h"

#include "corpus/shard/holdout.h"
#include "engine/base/text.h"
#include "engine/host/progress.h"
#include "ngram/ngram.h"

/* Address space of one model, and of one document; what is not touched costs nothing. */
static const size_t RESERVE_BYTES = (size_t)64 << 30;

/* The models are trained together, so each document is decoded once for all orders. */
typedef struct Yardstick {
    const YardstickConfig *config;
    YardstickRow *rows;
    Arena model_arena[YARDSTICK_ORDERS], scratch;
    Ngram *model[YARDSTICK_ORDERS];
} Yardstick;

/* The bytes that n ids of a document stand for, in the scratch arena. */
static Status text_of(Yardstick *y, const Shard *s, int64_t document, int64_t first, int64_t n,
                      Text *text)
{
    const Tokenizer *t = y->config->tokenizer;
    int32_t *ids = NULL;
    TRY(ARENA_NEW(&y->scratch, n, &ids));
    shard_read(s, first, n, ids);
    TRY(text_init(text, &y->scratch));
    for (int64_t i = 0; i < n; i++) {
        const char *bytes = NULL;
        int32_t n_bytes = 0;
        if (ids[i] < 0 || ids[i] >= tokenizer_vocab(t))
            return FAIL(ERR_FORMAT,
                        "%s.bin: token %lld of document %lld is id %d, the tokenizer has %d: was "
                        "it prepared with another one?",
                        s->prefix, (long long)(first + i - shard_start(s, document)),
                        (long long)document, ids[i], tokenizer_vocab(t));
        tokenizer_bytes(t, ids[i], &bytes, &n_bytes);
        TRY(text_append(text, bytes, (size_t)n_bytes));
    }
    return OK;
}

/* Learns from a document, or measures one that is held out. */
static Status use_document(Yardstick *y, YardstickRow *row, bool held, const Text *text)
{
    const uint8_t *bytes = (const uint8_t *)text->data;
    row->documents[held]++;
    row->bytes[held] += (int64_t)text->used;
    for (int i = 0; i < y->config->n_orders; i++) {
        if (held)
            row->bits[i] += ngram_bits(y->model[i], bytes, text->used);
        else
            TRY(ngram_add(y->model[i], bytes, text->used));
    }
    return OK;
}

/* One walk over a source: it learns from its training part, or measures its held-out part. A
 * document can be cut by the tail rule of holdout.h, so its part may begin in the middle. */
static Status each_document(Yardstick *y, int source, const Shard *s, bool held)
{
    const char *name = y->config->sources[source].name;
    const HoldOut out = holdout_of(s, name, y->config->validation);
    Progress bar = { .what = held ? "n-grams: measure" : "n-grams: learn",
                     .name = name,
                     .unit = "documents",
                     .total = s->documents,
                     .left = "there is no result" };
    progress_begin(&bar);
    for (int64_t d = 0; d < s->documents; d++) {
        Text text = { 0 };
        ArenaMark mark = arena_mark(&y->scratch);
        int64_t first = 0, n = holdout_part(&out, s, d, held, &first);
        if (n > 0) {
            TRY(text_of(y, s, d, first, n, &text));
            TRY(use_document(y, &y->rows[source], held, &text));
            arena_release(&y->scratch, mark);
        }
        TRY(progress_add(&bar, 1));
    }
    progress_end(&bar);
    return OK;
}

static Status each_source(Yardstick *y, bool held)
{
    for (int i = 0; i < y->config->n_sources; i++) {
        Shard s = { 0 };
        TRY(shard_open(&s, y->config->sources[i].path));
        Status status =
            s.documents > 0
                ? each_document(y, i, &s, held)
                : FAIL(ERR_ARG, "source %s (%s) holds no document: prepare one that has text",
                       y->config->sources[i].name, y->config->sources[i].path);
        shard_close(&s);
        TRY(status);
    }
    return OK;
}

/* The last row is the sum of all sources. Bits add up too, because they are not yet divided by
 * bytes. */
static void add_up(const YardstickConfig *c, YardstickRow *rows)
{
    YardstickRow *all = &rows[c->n_sources];
    for (int i = 0; i < c->n_sources; i++) {
        for (int held = 0; held < 2; held++) {
            all->documents[held] += rows[i].documents[held];
            all->bytes[held] += rows[i].bytes[held];
        }
        for (int k = 0; k < c->n_orders; k++) all->bits[k] += rows[i].bits[k];
    }
}

static Status run_models(Yardstick *y)
{
    TRY(arena_reserve(&y->scratch, "document", RESERVE_BYTES));
    for (int i = 0; i < y->config->n_orders; i++) {
        TRY(arena_reserve(&y->model_arena[i], "ngram", RESERVE_BYTES));
        TRY(ngram_make(&y->model_arena[i], (int)y->config->orders[i], &y->model[i]));
    }
    /* All sources are learned before any is measured: there is one model for the whole mix. */
    TRY(each_source(y, false));
    TRY(each_source(y, true));
    add_up(y->config, y->rows);
    return OK;
}

Status yardstick_run(const YardstickConfig *c, YardstickRow *rows)
{
    Yardstick y = { .config = c, .rows = rows };
    if (c->n_orders < 1 || c->n_orders > YARDSTICK_ORDERS)
        return FAIL(ERR_ARG, "%d n-gram orders, 1 to %d are possible", c->n_orders,
                    YARDSTICK_ORDERS);
    for (int i = 0; i <= c->n_sources; i++) rows[i] = (YardstickRow){ 0 };
    Status s = run_models(&y);
    for (int i = 0; i < c->n_orders; i++) arena_free(&y.model_arena[i]);
    arena_free(&y.scratch);
    return s;
}
