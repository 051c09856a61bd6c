/* data inspect: parses the call, and prints what a shard holds or writes it as a page. */
#include "app/options/options.h"
#include "beside/beside.h"
#include "engine/base/file.h"
#include "inspect/inspect.h"

/* The targets of the options; NULL: not given. */
typedef struct InspectCall {
    const char *tokenizer, *html;
    int64_t sequence;
} InspectCall;

/* With --html the page goes to the file, and stdout stays empty. */
static Status inspect_shard(void *state, int n, char **arguments, Arena *a, Text *out)
{
    InspectCall *c = state;
    Inspect report = { 0 };
    Tokenizer *tokenizer = NULL; /* its memory is in arena a, so it is freed before the arena is */
    (void)n;
    TRY(inspect_scan(arguments[0], c->sequence, a, &report));
    if (c->tokenizer != NULL) TRY(tokenizer_load(c->tokenizer, a, &tokenizer));
    Status s = (c->html != NULL ? inspect_html : inspect_text)(&report, tokenizer, out);
    tokenizer_free(tokenizer);
    if (s != OK || c->html == NULL) return s;
    s = file_write_whole(c->html, out->data, out->used);
    out->used = 0;
    return s;
}

Status beside_run(int argc, char **argv)
{
    InspectCall c = { .sequence = 4096 };
    const Option table[] = {
        { "--tokenizer", OPTION_TEXT, &c.tokenizer, "FILE",
          .help = "show ids as text with this tokenizer" },
        { "--sequence", OPTION_INT, &c.sequence, "N",
          .help = "tokens of a training sequence (data.sequence): how many keys a query sees there",
          .min = 2, .max = 1e8 },
        { "--html", OPTION_TEXT, &c.html, "OUT",
          .help = "write a self-contained HTML page instead of text" },
    };
    const Command command = {
        .name = "switchyard data inspect",
        .arguments = "PREFIX",
        .what = "Show what a shard holds: documents, tokens, lengths, frequent ids, and how some "
                "documents begin.",
        .example = "switchyard data inspect data/web --tokenizer runs/tokenizer.json",
        OPTIONS(table, 1, 1),
    };
    return options_run(&command, argc, argv, inspect_shard, &c);
}
