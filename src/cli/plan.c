/* plan: memory, time and the best layout of a training, before it is paid for. */
#include "base/file.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "plan/hardware.h"
#include "plan/import.h"
#include "plan/report.h"
#include "plan/stack.h"
#include "schedule/layout.h"
#include "schedule/print.h"
#include "train/null.h"
#include "viz/pipeline_page.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCALES_MAX = SCALING_POINTS };

typedef struct PlanCall {
    const char *cluster, *hardware, *stack, *formula, *tokens, *html, *why, *from, *scale;
    int64_t gpus, top, asked; /* asked: GPUs, where the answer is for fewer; 0: it is not */
    bool search, json, csv, program;
    Arena *arena;
    Text *out;
    Config config;
    Hardware gpu;
    PlanStack sheet;
    PlanRequest request;
    PlanFormula theirs;
    Planner *planner; /* of the question that is answered */
    PlanLayout layout;
    PlanPrice price;
    PlanStep step; /* of the layout; empty if its price needed none */
    SearchResult found;
    SearchBatch batch; /* that the GPUs could use */
} PlanCall;

/* ---- what is asked ---- */

/* 15T, 3e12, 500B: at least 1. */
static Status read_tokens(const char *text, double *out)
{
    static const char units[] = "KMBT";
    char *end = NULL;
    double value = strtod(text, &end);
    const char *unit = *end != '\0' ? strchr(units, *end) : NULL;
    if (unit != NULL) value *= pow(1000, (double)(unit - units + 1)), end++;
    if (end == text || *end != '\0' || !(value >= 1) || !isfinite(value))
        return FAIL(ERR_ARG, "plan: --tokens %.40s is no number of tokens: write 15T, 500B or 3e12",
                    text);
    *out = value;
    return OK;
}

static Status read_count(const char *what, const char *text, const char *end, int64_t *out)
{
    char *stop = NULL;
    long long n = strtoll(text, &stop, 10);
    if (stop == text || stop != end || n < 1 || n > 100000000)
        return FAIL(ERR_ARG, "plan: %s %.60s: the number of GPUs is a whole number from 1 to 1e8",
                    what, text);
    *out = n;
    return OK;
}

/* NAME:GPUS, or a file and --gpus, or what an imported file says. */
static Status read_cluster(PlanCall *c, int64_t imported)
{
    const char *source = c->hardware;
    int64_t gpus = c->gpus > 0 ? c->gpus : imported;
    if (c->cluster != NULL) {
        const char *colon = strrchr(c->cluster, ':');
        if (colon == NULL && gpus == 0)
            return FAIL(ERR_ARG, "plan: --cluster %.60s does not say how many GPUs: write %.60s:8",
                        c->cluster, c->cluster);
        TRY(arena_text(c->arena, c->cluster,
                       colon != NULL ? (size_t)(colon - c->cluster) : strlen(c->cluster), &source));
        if (colon != NULL) TRY(read_count("--cluster", colon + 1, colon + strlen(colon), &gpus));
    }
    if (source == NULL)
        return FAIL(ERR_ARG, "plan: on what? --cluster mi355x:1024, or --hardware FILE --gpus N");
    if (gpus == 0) return FAIL(ERR_ARG, "plan: --hardware %.60s needs --gpus N", source);
    c->request.gpus = gpus;
    return hardware_load(&c->gpu, c->arena, source);
}

/* What the file says of an option of stacks: the largest of several; below 0: nothing. */
static double option_of(const PlanImport *more, const char *name)
{
    double most = -1;
    for (int i = 0; i < more->options.n; i++) {
        char *end = NULL;
        double value = strtod(more->options.at[i].value, &end);
        bool number = end != more->options.at[i].value && *end == '\0';
        if (number && strcmp(more->options.at[i].key, name) == 0) most = fmax(most, value);
    }
    return most;
}

/* Stages of sync-free MoE and DeepEP are Primus-Turbo's; stage 2 and above bring DeepEP along
 * (Primus, rocm_arg_validation). An option that --stack names stays as it is there. */
static Status apply_options(PlanCall *c, const PlanImport *more)
{
    double sync_free = option_of(more, "sync_free"), deepep = option_of(more, "deepep");
    bool turbo = option_of(more, "turbo") != 0;
    if (!turbo) sync_free = deepep = 0;
    if (sync_free >= 2) deepep = 1;
    const struct {
        const char *name;
        double value;
    } option[] = { { "loss_fusion", option_of(more, "loss_fusion") },
                   { "deepep", deepep },
                   { "sync_free", sync_free } };
    TRY(stack_load(&c->sheet, c->arena, c->stack));
    for (size_t i = 0; i < sizeof option / sizeof *option; i++) {
        char text[512];
        if (option[i].value < 0 || !stack_offers(&c->sheet, option[i].name)) continue;
        (void)snprintf(text, sizeof text, "%.400s,%s=%g", c->stack, option[i].name,
                       option[i].value);
        TRY(arena_text(c->arena, text, strlen(text), &c->stack));
    }
    return OK;
}

/* Products in 8 or 4 bits? */
static bool is_narrow(const ImportWord *o)
{
    if (text_word_index("fp8|fp4", o->key) >= 0)
        return text_word_index("0|none|None|null", o->value) < 0;
    return strcmp(o->key, "converters") == 0 &&
           (strstr(o->value, "float8") != NULL || strstr(o->value, "mx") != NULL);
}

/* What a plan does not follow is said. */
static void print_notes(const PlanImport *more)
{
    static const char followed[] = "loss_fusion|deepep|sync_free|turbo|fp8|fp4";
    const char *sep = "note: options that a plan does not follow: ";
    for (int i = 0; i < more->notes_n; i++) (void)fprintf(stderr, "note: %s\n", more->notes[i]);
    for (int i = 0; i < more->options.n; i++) {
        const ImportWord *o = &more->options.at[i];
        if (is_narrow(o))
            (void)fprintf(stderr, "note: %s %s is planned as bf16\n", o->key, o->value);
    }
    for (int i = 0; i < more->options.n; i++) {
        const ImportWord *o = &more->options.at[i];
        if (text_word_index(followed, o->key) >= 0 || strcmp(o->value, "0") == 0) continue;
        (void)fprintf(stderr, "%s%s %s", sep, o->key, o->value);
        sep = ", ";
    }
    if (*sep == ',') (void)fprintf(stderr, "\n");
    for (int i = 0; i < more->unknown.n; i++)
        (void)fprintf(stderr, "not understood: %s (%s)\n", more->unknown.at[i].key,
                      more->unknown.at[i].value);
}

/* The file's model, mesh and batch become the configuration, its options the stack's. */
static Status import(PlanCall *c, const char *path, int64_t *gpus)
{
    PlanImport more;
    TRY(plan_import(c->from, path, c->arena, &c->config, &more));
    print_notes(&more);
    *gpus = more.gpus;
    if (c->stack == NULL) c->stack = c->from;
    TRY(apply_options(c, &more));
    if (!more.per_replica) return OK;
    TRY(read_cluster(c, more.gpus));
    c->config.train_batch *= c->request.gpus / (c->config.mesh_pp * c->config.mesh_cp);
    return OK;
}

static Status load(PlanCall *c, char **argv, int n)
{
    int64_t gpus = 0;
    if (c->from != NULL) {
        TRY(import(c, argv[0], &gpus));
        for (int i = 1; i < n; i++) TRY(config_override(&c->config, c->arena, argv[i]));
        TRY(config_check(&c->config));
    } else {
        TRY(config_load(&c->config, c->arena, argv[0], (const char *const *)argv + 1, n - 1));
    }
    TRY(null_refuse(&c->config, "plan"));
    TRY(read_cluster(c, gpus));
    if (c->stack == NULL) c->stack = "switchyard";
    TRY(stack_load(&c->sheet, c->arena, c->stack));
    c->request.config = &c->config;
    c->request.hardware = &c->gpu;
    c->request.stack = &c->sheet;
    return OK;
}

/* ---- answers ---- */

/* For as many of the GPUs as can share out the batch, if not for all. */
static Status search(PlanCall *c, PlanRequest *q)
{
    SearchAxes axes;
    TRY(search_axes(q->config, &axes));
    int64_t gpus = search_gpus(q, &axes);
    c->asked = gpus > 0 && gpus < q->gpus ? q->gpus : 0;
    if (c->asked > 0) q->gpus = gpus;
    Progress bar = { .what = "search", .unit = "layouts", .left = "the search has no result" };
    SearchOptions o = { .axes = &axes, .pricer = &search_planner, .top = (int)c->top, .bar = &bar };
    progress_begin(&bar);
    TRY(search_run(q, &o, c->arena, &c->found));
    progress_end(&bar);
    return OK;
}

/* The layout that the configuration gives, or the best there is. */
static Status choose(PlanCall *c, PlanRequest *q)
{
    planner_free(c->planner); /* of the row before */
    c->planner = NULL;
    c->step = (PlanStep){ 0 };
    if (!c->search) {
        TRY(plan_layout_of(q->config, q->gpus, c->arena, &c->layout));
        TRY(planner_make(q, &c->planner));
        if (planner_runs_list(c->planner)) TRY(plan_spread_evenly(q->config, c->arena, &c->layout));
        return planner_price_list(c->planner, &c->layout, c->arena, &c->price, &c->step);
    }
    TRY(search(c, q));
    const SearchRow *row = c->found.n_best > 0 ? c->found.best : &c->found.nearest;
    c->layout = row->layout;
    c->price = row->price;
    c->config.run_compute = row->price.compute; /* what follows is said of this row */
    c->config.plan_counted_rows = row->price.buffers == PLAN_COUNTED_ROWS;
    c->config.moe_buffers = c->config.plan_counted_rows ? BUFFERS_WORST : row->price.buffers;
    TRY(search_batch(q, &c->found, &c->batch));
    return planner_make(q, &c->planner);
}

/* What limits all rows comes before them; beside figures for programs it goes to stderr. */
static Status print_limits(const PlanCall *c, const PlanRequest *q)
{
    char gpus[32], asked[32], batch[32];
    Text note;
    TRY(text_init(&note, c->arena));
    (void)text_thousands(gpus, q->gpus);
    (void)text_thousands(batch, c->config.train_batch);
    if (c->asked > 0)
        TRY(text_printf(&note,
                        "gpus        %s cannot share out train.batch %s: this is for %s of them, "
                        "the most that can\n",
                        text_thousands(asked, c->asked), batch, gpus));
    if (c->batch.sequences > 0)
        TRY(text_printf(&note,
                        "batch       %s sequences are too few for %s GPUs and limit all layouts; "
                        "with train.batch=%" PRId64 " layouts like these reach %.0f tokens/s/GPU\n",
                        batch, gpus, c->batch.sequences, c->batch.tokens_per_s_per_gpu));
    if (note.used == 0) return OK;
    if (!c->json && !c->csv && c->scale == NULL) return text_append(c->out, note.data, note.used);
    (void)fputs(note.data, stderr);
    return OK;
}

static Status draw_scale(PlanCall *c, const PlanScale *row, int n)
{
    Scaling s = { .title = c->config.model_name, .points = n };
    char plain[PLAN_LAYOUT_BYTES], layout[SCALES_MAX][PLAN_LAYOUT_BYTES + 32];
    for (int i = 0; i < n; i++) {
        (void)plan_layout_text(plain, &row[i].layout, &row[i].price);
        (void)snprintf(layout[i], sizeof layout[i], "%s%s", plain,
                       row[i].price.fits ? "" : " (does not fit)");
        s.gpus[i] = (double)row[i].gpus;
        s.tokens_per_s_per_gpu[i] = row[i].price.tokens_per_s_per_gpu;
        s.efficiency[i] = plan_scale_efficiency(row, i);
        s.reason[i] = layout[i];
    }
    const PipelineView v = { .scaling = &s, .scalings = 1 };
    return pipeline_write(c->html, &v, c->out);
}

/* Same training, more GPUs. */
static Status scale(PlanCall *c)
{
    PlanScale row[SCALES_MAX];
    int n = 0;
    bool fits = false;
    const Config asked = c->config; /* whose type and buffers each row chooses among */
    for (const char *at = c->scale, *end; at != NULL; at = *end == ',' ? end + 1 : NULL) {
        end = at + strcspn(at, ",");
        if (n == SCALES_MAX) return FAIL(ERR_ARG, "plan: --scale has more than %d numbers", n);
        PlanRequest q = c->request;
        c->config = asked;
        TRY(read_count("--scale", at, end, &q.gpus));
        TRY(choose(c, &q));
        TRY(print_limits(c, &q));
        fits |= c->price.fits;
        row[n++] = (PlanScale){ q.gpus, c->layout, c->price };
    }
    double room = plan_room_bytes(&c->request);
    TRY(c->json ? plan_scale_json(row, n, c->out) : plan_scale_text(row, n, room, c->out));
    if (c->html != NULL) TRY(draw_scale(c, row, n));
    if (fits) return OK;
    return FAIL(ERR_FIT,
                "plan: nothing fits: of --scale %s no row does; try --search, or more "
                "mesh.pp or mesh.ep",
                c->scale);
}

static Status draw(PlanCall *c)
{
    Timeline t;
    char title[PLAN_LAYOUT_BYTES + PLAN_ALSO_BYTES], layout[PLAN_LAYOUT_BYTES];
    char also[PLAN_ALSO_BYTES];
    const unsigned others = c->found.n_best > 0 && c->search ? c->found.best->also : 0;
    double resident[PLAN_KINDS][SCHEDULE_STAGES_MAX];
    TimelineResident kept[PLAN_KINDS];
    int n = 0;
    for (int k = 0; k < PLAN_KINDS; k++) {
        if (k == PLAN_ACTIVATIONS) continue;
        for (int i = 0; i < c->layout.pp; i++) resident[n][i] = c->price.memory[k];
        kept[n] = (TimelineResident){ plan_kind_names[k], resident[n] };
        n++;
    }
    if (c->step.pipeline.stages == 0)
        TRY(planner_simulate(c->planner, &c->layout, planner_runs_list(c->planner), c->arena,
                             &c->step));
    (void)snprintf(title, sizeof title, "%s%s", plan_layout_text(layout, &c->layout, &c->price),
                   plan_also_text(also, others, "; the same under ", ", "));
    TRY(timeline_simulated(&c->step.pipeline, &c->step.sim, kept, n, title, c->arena, &t));
    const PipelineView v = { .timeline = &t, .timelines = 1 };
    return pipeline_write(c->html, &v, c->out);
}

/* The lists of all pipeline ranks, with the simulated time of each action. */
static Status print_program(PlanCall *c)
{
    PlanStep *s = &c->step;
    if (s->pipeline.stages == 0) {
        TRY(plan_spread_evenly(&c->config, c->arena, &c->layout));
        TRY(planner_simulate(c->planner, &c->layout, true, c->arena, s));
    }
    for (int r = 0; r < s->pipeline.stages; r++)
        TRY(program_print(&s->pipeline.rank[r], s->sim.rank[r].span, c->out));
    return text_printf(c->out, "the step takes %.3f ms by this list\n", 1e3 * s->sim.step);
}

/* By how much, and what would fit. */
static Status too_large(PlanCall *c, const PlanReport *r)
{
    char layout[PLAN_LAYOUT_BYTES];
    const SearchRow *row = NULL;
    double room = plan_room_bytes(&c->request) / PLAN_GIB;
    double needs = r->price->peak_bytes / PLAN_GIB;
    if (!c->search) {
        TRY(search(c, &c->request));
        row = search_nearest(&c->found, r->layout);
    }
    if (row != NULL)
        return FAIL(ERR_FIT,
                    "plan: this layout takes %.2f GiB, %.2f of %.1f may be used (plan.margin %g), "
                    "it lacks %.2f; the nearest that fits takes %.2f: %s",
                    needs, room, c->gpu.memory_gib, c->config.plan_margin, needs - room,
                    row->price.peak_bytes / PLAN_GIB,
                    plan_layout_text(layout, &row->layout, &row->price));
    const PlanLayout *nearest = c->search ? r->layout : &c->found.nearest.layout;
    const PlanPrice *price = c->search ? r->price : &c->found.nearest.price;
    needs = price->peak_bytes / PLAN_GIB;
    return FAIL(ERR_FIT,
                "plan: nothing fits: the nearest, %s, takes %.2f GiB, %.2f of %.1f may be used "
                "(plan.margin %g), it lacks %.2f",
                plan_layout_text(layout, nearest, price), needs, room, c->gpu.memory_gib,
                c->config.plan_margin, needs - room);
}

/* Where the layers of all rows lie. */
static Status partitions(PlanCall *c, SearchRow *row, int n)
{
    for (int i = 0; i < n; i++)
        TRY(planner_partition(c->planner, &row[i].layout, c->arena, &row[i].partition));
    return OK;
}

static Status report(PlanCall *c)
{
    SearchResult *found = &c->found;
    PlanReport r = { .request = &c->request,
                     .stack = c->stack,
                     .layout = &c->layout,
                     .price = &c->price,
                     .search = c->search ? found : NULL,
                     .asked = c->asked,
                     .batch = c->batch };
    TRY(print_limits(c, &c->request));
    TRY(partitions(c, found->best, found->n_best));
    TRY(partitions(c, found->front, found->n_front));
    if (c->search && found->n_best == 0) TRY(partitions(c, &found->nearest, 1));
    if (c->tokens != NULL) TRY(read_tokens(c->tokens, &r.tokens));
    if (c->formula != NULL) {
        TRY(plan_formula(&c->config, c->request.gpus, c->formula, c->arena, &c->theirs));
        r.formula = &c->theirs;
        r.formula_name = c->formula;
    }
    TRY(planner_partition(c->planner, &c->layout, c->arena, &r.partition));
    TRY((c->json ? plan_report_json : c->csv ? plan_report_csv : plan_report_text)(&r, c->out));
    if (c->why != NULL) TRY(plan_explain(c->planner, &r, c->why, c->out));
    if (c->html != NULL) TRY(draw(c));
    if (c->price.fits) return OK;
    return too_large(c, &r);
}

static Status answer(PlanCall *c)
{
    if (c->scale != NULL) return scale(c);
    TRY(choose(c, &c->request));
    return c->program ? print_program(c) : report(c);
}

static Status run(void *state, int n, char **arguments, Arena *a, Text *out)
{
    PlanCall *c = state;
    c->arena = a, c->out = out;
    if ((c->json || c->csv) && (c->why != NULL || c->json == c->csv))
        return FAIL(ERR_ARG, "plan: --json and --csv go with neither each other nor --why");
    if (c->program && (c->json || c->csv || c->why != NULL || c->html != NULL || c->scale != NULL))
        return FAIL(ERR_ARG, "plan: --program prints the step alone, without --json, --csv, --why, "
                             "--html or --scale");
    TRY(load(c, arguments, n));
    Status s = answer(c);
    planner_free(c->planner);
    return s;
}

/* ---- plan calibrate ---- */

static Status calibrate_run(void *state, int n, char **arguments, Arena *a, Text *out)
{
    const char *const *base = state;
    char *bench = NULL;
    size_t bytes = 0;
    Hardware h;
    (void)n;
    TRY(file_read_input(arguments[0], a, &bench, &bytes));
    TRY(hardware_load(&h, a, *base));
    TRY(calibrate(arguments[0], bench, a, &h));
    TRY(hardware_print(&h, out));
    TRY(file_write_whole(arguments[1], out->data, out->used));
    out->used = 0;
    return OK;
}

static Status cli_calibrate(int argc, char **argv)
{
    const char *base = NULL;
    const Option table[] = {
        { "--base", OPTION_TEXT, &base, "GPU",
          .help = "the GPU (a preset or a file) that gives all other values", .required = true },
    };
    const Command command = {
        .name = "switchyard plan calibrate",
        .arguments = "BENCH OUT",
        .what = "Write a file for --hardware from the output of `switchyard bench ops` on a GPU. "
                "It holds the measured rates of matrix products, attention and memory.",
        .example = "switchyard bench ops deepseek-v2-lite run.compute=bf16 >bench.txt\n"
                   "  switchyard plan calibrate bench.txt my-h200.yaml --base h200",
        OPTIONS(table, 2, 2),
    };
    return options_run(&command, argc, argv, calibrate_run, &base);
}

static const Subcommand CALIBRATE = { "calibrate", "make a GPU's file from its measured rates",
                                      cli_calibrate };

Status cli_plan(int argc, char **argv)
{
    PlanCall c = { .top = 10 };
    const Option table[] = {
        { "--cluster", OPTION_TEXT, &c.cluster, "NAME:GPUS",
          .help = "which GPU and how many, as in mi355x:1024" },
        { "--hardware", OPTION_TEXT, &c.hardware, "FILE",
          .help = "describe the GPU by a file instead; needs --gpus" },
        { "--gpus", OPTION_INT, &c.gpus, "N", .help = "number of GPUs", .min = 1, .max = 1e8 },
        { "--stack", OPTION_TEXT, &c.stack, "NAME",
          .help = "switchyard, primus, torchtitan or a file; primus,deepep=0 sets an option" },
        { "--formula", OPTION_TEXT, &c.formula, "NAME",
          .help = "add Primus' own formula: primus-head, primus-docs or primus-chart" },
        { "--search", OPTION_FLAG, &c.search, NULL, .help = "search for the best layout" },
        { "--top", OPTION_INT, &c.top, "N", .help = "list the N best layouts", .min = 1,
          .max = SEARCH_TOP_MAX },
        { "--scale", OPTION_TEXT, &c.scale, "N,N...",
          .help = "compare these numbers of GPUs at the same batch" },
        { "--tokens", OPTION_TEXT, &c.tokens, "N",
          .help = "tokens of the whole training, as in 15T, to print its time" },
        { "--why", OPTION_TEXT, &c.why, "WHAT",
          .help = "explain one number: peak, step, comm or bubble" },
        { "--from", OPTION_TEXT, &c.from, "PROJECT",
          .help = "read CONFIG as a file of primus or torchtitan" },
        { "--json", OPTION_FLAG, &c.json, NULL, .help = "print one JSON object" },
        { "--csv", OPTION_FLAG, &c.csv, NULL, .help = "print one CSV line per layout" },
        { "--program", OPTION_FLAG, &c.program, NULL,
          .help = "print the actions of the step, as train runs them, instead" },
        { "--html", OPTION_TEXT, &c.html, "FILE",
          .help = "draw the pipeline, or the curve of --scale, as .html or as .svg" },
    };
    const Command command = {
        .name = "switchyard plan",
        .arguments = "CONFIG [section.key=value ...]",
        .what = "Estimate the memory and the time of a training run on a cluster. CONFIG is a YAML "
                "file or a preset; the settings mesh.* choose the layout. The exit code is 3 if it "
                "does not fit. `switchyard plan calibrate` measures a GPU's rates for --hardware.",
        .example = "switchyard plan deepseek-v3 run.compute=bf16 mesh.pp=8 mesh.ep=8 \\\n"
                   "    --cluster mi325x:512 --tokens 15T\n"
                   "switchyard plan moe-2t run.compute=bf16 --cluster mi300x:768 --search",
        OPTIONS(table, 1, -1),
        .below = &CALIBRATE,
    };
    return options_run(&command, argc, argv, run, &c);
}
