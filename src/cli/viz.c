/* viz: pipelines that were recorded or simulated, on a page. */
#include "base/file.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "viz/pipeline_page.h"

#include <stdio.h>

typedef struct VizCall {
    const char *out;
    int64_t iteration;
    Arena data, text; /* a page grows in an arena of its own */
} VizCall;

static Status show(VizCall *c, char **path, int n)
{
    Timeline timeline[SCALING_CURVES];
    Scaling scaling[SCALING_CURVES];
    PipelineView v = { .timeline = timeline, .scaling = scaling };
    Text table = { 0 }, page = { 0 };
    for (int i = 0; i < n; i++) {
        if (text_ends(path[i], ".json"))
            TRY(scaling_read(path[i], &c->data, &scaling[v.scalings++]));
        else
            TRY(timeline_read(path[i], c->iteration, &c->data, &timeline[v.timelines++]));
    }
    TRY(text_init(&table, &c->text));
    for (int i = 0; i < v.timelines; i++) TRY(timeline_table(&table, &timeline[i]));
    if (c->out != NULL) {
        TRY(text_init(&page, &c->text));
        TRY(text_ends(c->out, ".svg") ? pipeline_still(&page, &v) : pipeline_html(&page, &v));
        TRY(file_write_whole(c->out, page.data, page.used, &c->data));
    }
    printf("%s", table.data);
    return OK;
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
                "memory. PATH is a folder of config.json and pp_rank_N.json, as pp_vis writes\n"
                "it, or a .json file of a scaling curve (docs/formats.md).",
        .example = "switchyard viz runs/pp8 runs/pp8_vpp2 --iteration 7 --out pipelines.html",
        .options = table,
        .n_options = 2,
        .min_positional = 1,
        .max_positional = SCALING_CURVES,
    };
    bool help = false;
    int n = 0;
    TRY(options_parse(&command, argc, argv, &n, &help));
    if (help) return OK;
    if (c->out != NULL && !text_ends(c->out, ".html") && !text_ends(c->out, ".svg"))
        return FAIL(ERR_ARG, "viz: --out %s ends in neither .html nor .svg", c->out);
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
