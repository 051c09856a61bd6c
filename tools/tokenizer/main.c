/* data tokenizer: learns a tokenizer from text, and writes a .tiktoken file as tokenizer.json. */
#include "app/options/options.h"
#include "beside/beside.h"
#include "corpus/tokenizer/tokenizer.h"
#include "tokenizer/tiktoken.h"
#include "tokenizer/train.h"

/* ---- train ---- */

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

/* ---- convert ---- */

/* The targets of the options. */
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
    TRY(tiktoken_convert(c, a));
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
            "file does not have. Those of a published encoding are known.",
        .example = "switchyard data tokenizer convert my.tiktoken --encoding o200k_base --special "
                   "\"<|call|>=200012\" --out tokenizer.json",
        OPTIONS(table, 1, 1),
    };
    return options_run(&command, argc, argv, convert_tokenizer, &c);
}

Status beside_run(int argc, char **argv)
{
    static const Subcommand ROWS[] = {
        { "train", "learn a byte-level BPE tokenizer from text", run_tokenizer_train },
        { "convert", "write a .tiktoken file as tokenizer.json", run_tokenizer_convert },
    };
    return options_dispatch("switchyard data tokenizer", ROWS, 2, argc, argv);
}
