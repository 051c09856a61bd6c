/* viz: draws recorded or simulated pipelines and scaling curves on a page, and prints their figures. */
#include "app/options/options.h"
#include "beside/beside.h"
#include "viz/scaling_file.h"
#include "viz/timeline_file.h"

/* The targets of the options. */
typedef struct VizCall {
    const char *out;
    int64_t iteration;
} VizCall;

/* A .json file is a scaling curve, anything else a folder with a recorded pipeline. */
static Status run_viz(void *state, int n, char **path, Arena *a, Text *out)
{
    const VizCall *c = state;
    Timeline timeline[SCALING_CURVES];
    Scaling scaling[SCALING_CURVES];
    PipelineView v = { .timeline = timeline, .scaling = scaling };
    if (c->out != NULL) TRY(pipeline_check_path("viz: --out", c->out));
    for (int i = 0; i < n; i++) {
        if (text_ends(path[i], ".json"))
            TRY(scaling_read(path[i], a, &scaling[v.scalings++]));
        else
            TRY(timeline_read(path[i], c->iteration, a, &timeline[v.timelines++]));
    }
    if (c->out != NULL) TRY(pipeline_write(c->out, &v, out));
    for (int i = 0; i < v.timelines; i++) TRY(timeline_table(out, &timeline[i]));
    return OK;
}

Status beside_run(int argc, char **argv)
{
    VizCall c = { .iteration = TIMELINE_MEDIAN };
    const Option table[] = {
        { "--out", OPTION_TEXT, &c.out, "FILE",
          .help = "write a page (.html) or a picture 1000 pixels wide (.svg)" },
        { "--iteration", OPTION_INT, &c.iteration, "N",
          .help = "draw iteration N; -1 is the last, -2 that of the median step",
          .min = TIMELINE_MEDIAN, .max = 1e15 },
    };
    const Command command = {
        .name = "switchyard viz",
        .arguments = "PATH...",
        .what = "Draw pipelines, one above the other, and print each rank's times, bubble and "
                "memory. PATH is a folder of config.json and pp_rank_N.json, as pp_vis writes it, "
                "or a .json file with a scaling curve (docs/reference/formats.md).",
        .example = "switchyard viz runs/pp8 runs/pp8_vpp2 --iteration 7 --out pipelines.html",
        OPTIONS(table, 1, SCALING_CURVES),
    };
    return options_run(&command, argc, argv, run_viz, &c);
}
