/* data: `switchyard data` and its subcommands: parses, calls prepare/ and the shards, prints. */
#include "app/options/cli.h"

#include "app/options/options.h"
#include "corpus/prepare/prepare.h"
#include "engine/base/log.h"

#include <string.h>

/* Warnings go to stderr; the one line of figures to stdout. */
static Status print_prepared(const PrepareConfig *c, const PrepareStats *s, Text *out)
{
    char documents[32], tokens[32], bytes[32], rate[32];
    if (s->skipped > 0) log_warn("%lld bad lines were left out", (long long)s->skipped);
    if (s->empty > 0) log_info("%lld empty documents were left out", (long long)s->empty);
    if (c->dedup)
        log_info("%lld documents whose bytes had come before were left out",
                 (long long)s->duplicates);
    if (c->parts)
        TRY(text_printf(out, "%s: %s of %s tokens are learned, in sequences of %lld\n", c->out,
                        text_thousands(documents, s->learned), text_thousands(tokens, s->tokens),
                        (long long)c->sequence));
    return text_printf(
        out, "%s: %s documents, %s tokens from %s of text (%.2f bytes a token), %.1f s, %s/s\n",
        c->out, text_thousands(documents, s->documents), text_thousands(tokens, s->tokens),
        text_bytes(bytes, (double)s->text_bytes), (double)s->text_bytes / (double)s->tokens,
        s->seconds, text_bytes(rate, (double)(s->text_bytes - s->resumed_bytes) / s->seconds));
}

/* `switchyard data prepare`: the targets of its options. */
typedef struct Prepare {
    PrepareConfig config;
    int on_bad_line, split, dedup;
    int64_t command_timeout; /* seconds */
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
    c->documents.wait_s = (double)p->command_timeout;
    c->dedup = p->dedup == 1;
    TRY(prepare_run(c, &stats));
    return print_prepared(c, &stats, out);
}

/* Options that became commands. */
static Status refuse_gone(int argc, char **argv)
{
    static const char *const GONE[][2] = {
        { "--chat", "`switchyard data chat --model FOLDER --out PARTS.jsonl FILE...` (--template "
                    "FILE: another template), then `switchyard data prepare --parts PARTS.jsonl`" },
        { "--pack", "`switchyard data prepare` without it, then `switchyard data pack --tokenizer "
                    "FILE --sequence N --out PREFIX SHARD`" },
    };
    for (int i = 1; i < argc; i++) {
        for (int k = 0; k < 2; k++) {
            size_t n = strlen(GONE[k][0]);
            if (strncmp(argv[i], GONE[k][0], n) == 0 && (argv[i][n] == '\0' || argv[i][n] == '='))
                return FAIL(ERR_ARG, "%s is a command of its own: %s", GONE[k][0], GONE[k][1]);
        }
    }
    return OK;
}

static Status run_prepare(int argc, char **argv)
{
    Prepare p = { .config.documents.field = "text",
                  .config.sequence = 256,
                  .split = SPLIT_FILE,
                  .command_timeout = SHELL_WAIT_S };
    const Option table[] = {
        { "--tokenizer", OPTION_TEXT, &p.config.tokenizer, "FILE", .help = "a tokenizer.json",
          .required = true },
        { "--out", OPTION_TEXT, &p.config.out, "PREFIX", .help = "write PREFIX.bin and PREFIX.idx",
          .required = true },
        { "--on-bad-line", OPTION_CHOICE, &p.on_bad_line, "fail|skip",
          .help = "what to do with a broken line of a .jsonl file" },
        { "--field", OPTION_TEXT, &p.config.documents.field, "NAME",
          .help = "the field of a JSON line, or the column of Parquet, that holds the text; a.b is "
                  "b of the object a [text]" },
        { "--threads", OPTION_INT, &p.config.threads, "N",
          .help = "threads, which do not change the result [all processors]", .min = 1,
          .max = PREPARE_THREADS_MAX },
        { "--dedup", OPTION_CHOICE, &p.dedup, "none|exact",
          .help = "exact: leave out documents whose bytes have come before" },
        { "--parts", OPTION_FLAG, &p.config.parts,
          .help =
              "lines are texts with whether each is learned, as `switchyard data chat` writes" },
        { "--sequence", OPTION_INT, &p.config.sequence, "N",
          .help = "with --parts: tokens of a sequence", .min = 2, .max = 100000000 },
        { "--split", OPTION_CHOICE, &p.split, "file|blank|line",
          .help = "a text file's document: the file, a block between blank lines, or a line" },
        { "--command-timeout", OPTION_INT, &p.command_timeout, "SECONDS",
          .help = "a command that prints nothing for so long has failed", .min = 1, .max = 86400 },
    };
    const Command command = {
        .name = "switchyard data prepare",
        .arguments = "FILE|FOLDER|PATTERN|'cmd: COMMAND'...",
        .what =
            "Turn .jsonl files (one document per line), columns of .parquet files and text files "
            "into one shard of token ids. They may be gzip or zstd. A folder means all .jsonl, "
            ".ndjson, .json and "
            ".txt files below it, a quoted pattern all that it matches. Every document ends "
            "with the end-of-text id. 'cmd: COMMAND' means what the command prints. That, and "
            "what a pipe holds, is JSON lines if it begins with a brace. After Ctrl-C or a "
            "crash the same command continues. With --parts a line is "
            "{\"parts\": [{\"text\", \"learned\"}, ...]}.",
        .example = "switchyard data prepare --tokenizer runs/tokenizer.json --out data/web "
                   "--on-bad-line skip web/",
        OPTIONS(table, 1, -1),
    };
    TRY(refuse_gone(argc, argv));
    return options_run(&command, argc, argv, prepare_shard, &p);
}

Status cli_data(int argc, char **argv)
{
    static const Subcommand ROWS[] = {
        { "tokenizer", "learn a tokenizer from text", NULL },
        { "chat", "turn chats into texts with what is learned", NULL },
        { "parquet", "print columns of Parquet files as JSON lines", NULL },
        { "prepare", "turn text into a shard of token ids", run_prepare },
        { "pack", "put documents whole into sequences of one length", NULL },
        { "inspect", "show what a shard holds", NULL },
        { "ngram", "measure n-gram models on held-out documents", NULL },
        { "batches", "write a run's batches for another program", NULL },
    };
    return options_dispatch("switchyard data", ROWS, (int)(sizeof ROWS / sizeof *ROWS), argc, argv);
}
