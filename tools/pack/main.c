/* data pack: puts the documents of a shard whole into sequences of one length. */
#include "app/options/options.h"
#include "beside/beside.h"
#include "corpus/tokenizer/tokenizer.h"
#include "engine/base/interrupt.h"
#include "pack/pack.h"

#include <string.h>

/* The targets of the options. */
typedef struct Call {
    const char *tokenizer, *out;
    int64_t sequence;
} Call;

/* A shard knows its tokenizer, which says what fills a pack. Shards of other programs know none. */
static Status check_tokenizer(const Call *c, const char *prefix, int vocab, Origin *own)
{
    Origin have;
    TRY(origin_of(c->tokenizer, vocab, own));
    TRY(origin_read(prefix, &have));
    if (have.vocab == 0 || strcmp(have.sum, own->sum) == 0) return OK;
    return FAIL(ERR_ARG, "%s was prepared with the tokenizer %s, which is not %s", prefix,
                have.tokenizer, c->tokenizer);
}

static Status pack(const Call *c, const char *prefix, const Tokenizer *t, Arena *a, PackStats *out)
{
    Shard from = { 0 };
    ShardWriter w = { 0 };
    Origin origin;
    const int vocab = tokenizer_vocab(t);
    if (tokenizer_end_of_text(t) < 0)
        return FAIL(ERR_FORMAT, "%s has no end-of-text token to fill sequences with", c->tokenizer);
    TRY(check_tokenizer(c, prefix, vocab, &origin));
    TRY(shard_open(&from, prefix));
    Status s = from.pack > 0 ? FAIL(ERR_ARG, "%s is packed already, in sequences of %lld", prefix,
                                    (long long)from.pack)
                             : shard_create(&w, c->out, vocab, c->sequence, a);
    w.origin = origin;
    if (s == OK) s = pack_best_fit(&from, &w, tokenizer_end_of_text(t), a, out);
    if (s == OK) s = shard_commit(&w);
    shard_writer_close(&w);
    shard_close(&from);
    return s;
}

static Status run_pack(void *state, int n, char **arguments, Arena *a, Text *out)
{
    const Call *c = state;
    Tokenizer *t = NULL;
    PackStats packed = { 0 };
    char packs[32], cut[32];
    (void)n;
    interrupt_catch();
    TRY(tokenizer_load(c->tokenizer, a, &t));
    Status s = pack(c, arguments[0], t, a, &packed);
    tokenizer_free(t);
    TRY(s);
    return text_printf(out,
                       "%s: %s sequences of %lld, %.2f %% of them padding; %s documents were cut\n",
                       c->out, text_thousands(packs, packed.packs), (long long)c->sequence,
                       100 * (double)packed.padding / ((double)packed.packs * (double)c->sequence),
                       text_thousands(cut, packed.cut));
}

Status beside_run(int argc, char **argv)
{
    Call call = { .sequence = 256 };
    const Option table[] = {
        { "--tokenizer", OPTION_TEXT, &call.tokenizer, "FILE",
          .help = "the tokenizer.json of the shard, whose end-of-text token is the padding",
          .required = true },
        { "--out", OPTION_TEXT, &call.out, "PREFIX",
          .help = "write PREFIX.bin, PREFIX.idx and PREFIX.mask", .required = true },
        { "--sequence", OPTION_INT, &call.sequence, "N", .help = "tokens of a sequence", .min = 2,
          .max = PACK_TOKENS_MAX },
    };
    const Command command = {
        .name = "switchyard data pack",
        .arguments = "SHARD",
        .what = "Put the documents of a shard whole into sequences of N tokens, with padding (best "
                "fit, decreasing). Only documents that are longer are cut.",
        .example = "switchyard data pack --tokenizer runs/tokenizer.json --sequence 4096 "
                   "--out data/packed data/web",
        OPTIONS(table, 1, 1),
    };
    return options_run(&command, argc, argv, run_pack, &call);
}
