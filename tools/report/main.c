/* report: compares runs. Reading and drawing are compare.h's. */
#include "app/options/options.h"
#include "beside/beside.h"
#include "engine/base/file.h"
#include "report/compare.h"

enum { BY_STEP, BY_TOKENS };

/* The targets of the options. */
typedef struct ReportCall {
    const char *page;
    int by;
    bool json;
} ReportCall;

/* `out` is only borrowed for the page: the result follows it from the beginning. */
static Status run_compare(void *state, int n, char **path, Arena *a, Text *out)
{
    const ReportCall *c = state;
    Compare runs;
    if (c->page != NULL && !text_ends(c->page, ".html"))
        return FAIL(ERR_ARG, "report: --out %.200s: the name must end in .html", c->page);
    TRY(compare_load(path, n, c->by == BY_TOKENS, a, &runs));
    if (c->page != NULL) {
        TRY(compare_page(out, &runs));
        TRY(file_write_whole(c->page, out->data, out->used));
        out->used = 0;
    }
    return (c->json ? compare_json : compare_text)(out, &runs);
}

Status beside_run(int argc, char **argv)
{
    ReportCall c = { .by = BY_STEP };
    const Option table[] = {
        { "--out", OPTION_TEXT, &c.page, "FILE.html", .help = "write a page with curves, too" },
        { "--by", OPTION_CHOICE, &c.by, "step|tokens", .help = "what curves are drawn over" },
        { "--json", OPTION_FLAG, &c.json, NULL, .help = "print the tables as JSON" },
    };
    const Command command = {
        .name = "switchyard report",
        .arguments = "RUN...",
        .what = "Compare up to 8 runs: a table of their losses and speeds, the settings in which "
                "they differ, and with --out their curves over each other. RUN is a run's folder "
                "(run.dir); it may still train.",
        .example = "switchyard report runs/adamw runs/muon --by tokens --out runs.html",
        OPTIONS(table, 1, RUNS_MOST),
    };
    return options_run(&command, argc, argv, run_compare, &c);
}
