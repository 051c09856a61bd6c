/* viz: pipelines that were recorded or simulated, on a page. */
#include "base/file.h"
#include "base/log.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "viz/pipeline_page.h"

#include <stdio.h>
#include <string.h>

enum { PATHS_MOST = 16 };

typedef struct VizCall {
    const char *out;
    int64_t iteration;
    Arena data, text; /* a page grows in an arena of its own */
} VizCall;

static Status draw(VizCall *c, const PipelineView *v)
{
    bool still = text_ends(c->out, ".svg");
    Text page = { 0 };
    TRY(text_init(&page, &c->text));
    TRY(still ? pipeline_still(&page, v) : pipeline_html(&page, v));
    return file_write_whole(c->out, page.data, page.used, &c->data);
}

static Status show(VizCall *c, char **path, int n)
{
    Timeline timeline[PATHS_MOST];
    PipelineView v = { .timeline = timeline, .timelines = n };
    Text table = { 0 };
    for (int i = 0; i < n; i++) {
        TRY(timeline_read(path[i], c->iteration, &c->data, &timeline[i]));
        int shown = timeline_shown(&timeline[i]);
        if (shown == timeline[i].ranks) continue;
        log_warn("%s: %d of %d ranks are shown, evenly chosen", path[i], shown, timeline[i].ranks);
    }
    TRY(text_init(&table, &c->text));
    for (int i = 0; i < n; i++) {
        if (i > 0) TRY(text_printf(&table, "\n"));
        TRY(timeline_table(&table, &timeline[i]));
    }
    if (c->out != NULL) TRY(draw(c, &v));
    printf("%s", table.data);
    return OK;
}

static Status check_name(const char *out)
{
    if (out == NULL || text_ends(out, ".html") || text_ends(out, ".svg")) return OK;
    return FAIL(ERR_ARG, "viz: --out %s ends in neither .html nor .svg", out);
}

static Status run(VizCall *c, int argc, char **argv)
{
    const Option table[] = {
        { "--out", OPTION_TEXT, &c->out, "FILE",
          .help = "a page (.html) or a still of 1000 pixels (.svg)" },
        { "--iteration", OPTION_INT, &c->iteration, "N", .help = "which one, -1: the last",
          .min = -1, .max = 1e15 },
    };
    const Command command = {
        .name = "switchyard viz",
        .arguments = "PATH...",
        .what = "Draw pipelines, one above the other, and print each rank's times, bubble and\n"
                "memory. PATH is a folder of config.json and pp_rank_N.json, as pp_vis and plan\n"
                "write it.",
        .example = "switchyard viz runs/pp8 runs/pp8_vpp2 --iteration 7 --out pipelines.html",
        .options = table,
        .n_options = 2,
        .min_positional = 1,
        .max_positional = PATHS_MOST,
    };
    bool help = false;
    int n = 0;
    TRY(options_parse(&command, argc, argv, &n, &help));
    if (help) return OK;
    TRY(check_name(c->out));
    TRY(arena_init(&c->data, "timelines", MEM_HOST, (size_t)1 << 36));
    TRY(arena_init(&c->text, "page", MEM_HOST, (size_t)1 << 36));
    return show(c, argv + 1, n);
}

Status cli_viz(int argc, char **argv)
{
    VizCall c = { .iteration = -1 };
    Status s = run(&c, argc, argv);
    arena_free(&c.text);
    arena_free(&c.data);
    return s;
}
