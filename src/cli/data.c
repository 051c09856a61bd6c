/* data: `switchyard data` and its subcommands: parses, calls data/, prints. */
#include "cli/cli.h"

#include "base/file.h"
#include "base/log.h"
#include "cli/options.h"
#include "data/prepare.h"
#include "data/tokenizer.h"
#include "viz/page.h"

#include <string.h>

/* ---- data tokenizer train ---- */

static Status train_tokenizer(void *state, int n, char **arguments, Arena *a, Text *out)
{
    TokenizerTraining *t = state;
    t->files = (const char *const *)arguments;
    t->n_files = n;
    TRY(tokenizer_train(t, a));
    return text_printf(out, "%s: %d tokens from %d files\n", t->out_path, (int)t->vocab,
                       t->n_files);
}

static Status run_tokenizer_train(int argc, char **argv)
{
    TokenizerTraining t = { 0 };
    const Option table[] = {
        { "--vocab", OPTION_INT, &t.vocab, "N",
          .help = "size of the vocabulary: 256 bytes, the merges, and the end-of-text token",
          .required = true, .min = 257, .max = 1 << 24 },
        { "--out", OPTION_TEXT, &t.out_path, "FILE", .help = "the tokenizer.json to write",
          .required = true },
    };
    const Command command = {
        .name = "switchyard data tokenizer train",
        .arguments = "FILE...",
        .what = "Learn a byte-level BPE tokenizer from text files and .jsonl files (field "
                "\"text\"). A pipe holds JSON lines if its first byte is a brace.",
        .example = "switchyard data tokenizer train --vocab 8192 --out runs/tokenizer.json a.txt "
                   "b.jsonl",
        OPTIONS(table, 1, -1),
    };
    return options_run(&command, argc, argv, train_tokenizer, &t);
}

/* ---- data tokenizer convert ---- */

/* `switchyard data tokenizer convert`: the targets of its options. */
typedef struct Convert {
    TokenizerConversion conversion;
    OptionTexts special;
} Convert;

static Status convert_tokenizer(void *state, int n, char **arguments, Arena *a, Text *out)
{
    Convert *call = state;
    TokenizerConversion *c = &call->conversion;
    (void)n;
    c->path = arguments[0];
    c->special = call->special.at;
    c->n_special = call->special.n;
    Tokenizer *t = NULL; /* what was written is read: its memory is in arena a */
    TRY(tokenizer_convert(c, a));
    TRY(tokenizer_load(c->out_path, a, &t));
    Status s =
        text_printf(out, "%s: %d ids from %s\n", c->out_path, (int)tokenizer_vocab(t), c->path);
    tokenizer_free(t);
    return s;
}

static Status run_tokenizer_convert(int argc, char **argv)
{
    Convert c = { 0 };
    const Option table[] = {
        { "--encoding", OPTION_TEXT, &c.conversion.encoding, "NAME",
          .help =
              "pattern and special tokens of gpt2, p50k_base, cl100k_base, o200k_base, llama3 or "
              "qwen [by the number of tokens]" },
        { "--pattern", OPTION_TEXT, &c.conversion.pattern, "REGEX",
          .help = "cut texts by this pattern" },
        { "--special", OPTION_TEXTS, &c.special, "TEXT=ID", .help = "one more special token" },
        { "--out", OPTION_TEXT, &c.conversion.out_path, "FILE",
          .help = "the tokenizer.json to write", .required = true },
    };
    const Command command = {
        .name = "switchyard data tokenizer convert",
        .arguments = "FILE",
        .what =
            "Write a .tiktoken file as tokenizer.json, with a pattern and special tokens that the "
            "file does not have. Files of a known encoding need no conversion.",
        .example = "switchyard data tokenizer convert my.tiktoken --encoding o200k_base --special "
                   "\"<|call|>=200012\" --out tokenizer.json",
        OPTIONS(table, 1, 1),
    };
    return options_run(&command, argc, argv, convert_tokenizer, &c);
}

static Status run_tokenizer(int argc, char **argv)
{
    static const Subcommand ROWS[] = {
        { "train", "learn a byte-level BPE tokenizer from text", run_tokenizer_train },
        { "convert", "write a .tiktoken file as tokenizer.json", run_tokenizer_convert },
    };
    return options_dispatch("switchyard data tokenizer", ROWS, 2, argc, argv);
}

/* ---- data prepare ---- */

/* Warnings go to stderr; the one line of figures to stdout. */
static Status print_prepared(const PrepareConfig *c, const PrepareStats *s, Text *out)
{
    char documents[32], tokens[32], bytes[32], rate[32];
    if (s->skipped > 0) log_warn("%lld bad lines were left out", (long long)s->skipped);
    if (s->empty > 0) log_info("%lld empty documents were left out", (long long)s->empty);
    if (c->dedup)
        log_info("%lld documents whose bytes had come before were left out",
                 (long long)s->duplicates);
    if (c->chat != NULL)
        TRY(text_printf(out, "%s: %s of %s tokens are answers, in sequences of %lld\n", c->out,
                        text_thousands(documents, s->learned), text_thousands(tokens, s->tokens),
                        (long long)c->sequence));
    if (c->best_fit) {
        double all = (double)s->packs * (double)c->sequence;
        TRY(text_printf(
            out, "%s: %s sequences of %lld, %.2f %% of them padding; %s documents were cut\n",
            c->out, text_thousands(documents, s->packs), (long long)c->sequence,
            100 * (double)s->padding / all, text_thousands(tokens, s->cut)));
    }
    return text_printf(
        out, "%s: %s documents, %s tokens from %s of text (%.2f bytes a token), %.1f s, %s/s\n",
        c->out, text_thousands(documents, s->documents), text_thousands(tokens, s->tokens),
        text_bytes(bytes, (double)s->text_bytes), (double)s->text_bytes / (double)s->tokens,
        s->seconds, text_bytes(rate, (double)(s->text_bytes - s->resumed_bytes) / s->seconds));
}

/* `switchyard data prepare`: the targets of its options. */
typedef struct Prepare {
    PrepareConfig config;
    int on_bad_line, split, dedup, pack;
} Prepare;

/* They are indices of the options' words, in the order of the enums. */
static Status prepare_shard(void *state, int n, char **arguments, Arena *a, Text *out)
{
    Prepare *p = state;
    PrepareConfig *c = &p->config;
    PrepareStats stats = { 0 };
    (void)a;
    c->files = (const char *const *)arguments;
    c->n_files = n;
    c->documents.skip_bad = p->on_bad_line == 1;
    c->documents.split = (DocumentSplit)p->split;
    c->dedup = p->dedup == 1;
    c->best_fit = p->pack == 1;
    TRY(prepare_run(c, &stats));
    return print_prepared(c, &stats, out);
}

static Status run_prepare(int argc, char **argv)
{
    Prepare p = { .config.documents.field = "text", .config.sequence = 256, .split = SPLIT_FILE };
    const Option table[] = {
        { "--tokenizer", OPTION_TEXT, &p.config.tokenizer, "FILE",
          .help = "a tokenizer.json or .tiktoken file", .required = true },
        { "--out", OPTION_TEXT, &p.config.out, "PREFIX", .help = "write PREFIX.bin and PREFIX.idx",
          .required = true },
        { "--on-bad-line", OPTION_CHOICE, &p.on_bad_line, "fail|skip",
          .help = "what to do with a broken line of a .jsonl file" },
        { "--field", OPTION_TEXT, &p.config.documents.field, "NAME",
          .help = "the field of a JSON line that holds the text; a.b is b of the object a [text]" },
        { "--threads", OPTION_INT, &p.config.threads, "N",
          .help = "threads, which do not change the result [all processors]", .min = 1,
          .max = PREPARE_THREADS_MAX },
        { "--dedup", OPTION_CHOICE, &p.dedup, "none|exact",
          .help = "exact: leave out documents whose bytes have come before" },
        { "--pack", OPTION_CHOICE, &p.pack, "none|best-fit",
          .help = "best-fit: put whole documents into sequences of N tokens, with padding" },
        { "--chat", OPTION_TEXT, &p.config.chat, "TEMPLATE",
          .help = "learn the answers of chats; a Jinja template, or `tokenizer` for its own" },
        { "--sequence", OPTION_INT, &p.config.sequence, "N",
          .help = "with --chat or --pack: tokens of a sequence", .min = 2, .max = 100000000 },
        { "--split", OPTION_CHOICE, &p.split, "file|blank|line",
          .help = "a text file's document: the file, a block between blank lines, or a line" },
    };
    const Command command = {
        .name = "switchyard data prepare",
        .arguments = "FILE|FOLDER|PATTERN...",
        .what = "Turn .jsonl files (one document per line) and text files into one shard of token "
                "ids. They may be gzip or zstd. A folder stands for all .jsonl, .ndjson, .json and "
                ".txt files below it, a quoted pattern for what it matches. Every document ends "
                "with the end-of-text id. A pipe holds JSON lines if it begins with a brace. After "
                "Ctrl-C or a crash the same command continues. With --chat a line is "
                "{\"messages\": [{\"role\", \"content\"}, ...]} or {\"prompt\", \"answer\"}.",
        .example = "switchyard data prepare --tokenizer runs/tokenizer.json --out data/web "
                   "--on-bad-line skip web/",
        OPTIONS(table, 1, -1),
    };
    return options_run(&command, argc, argv, prepare_shard, &p);
}

Status cli_data(int argc, char **argv)
{
    static const Subcommand ROWS[] = {
        { "tokenizer", "learn a tokenizer from text", run_tokenizer },
        { "prepare", "turn text into a shard of token ids", run_prepare },
        { "inspect", "show what a shard holds", NULL },
        { "ngram", "measure n-gram models on held-out documents", NULL },
        { "batches", "write a run's batches for another program", NULL },
    };
    return options_dispatch("switchyard data", ROWS, (int)(sizeof ROWS / sizeof *ROWS), argc, argv);
}
