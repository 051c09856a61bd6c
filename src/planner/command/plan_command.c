/* plan: `switchyard plan`: predicts memory, time and the best layout of a training run before anybody pays for it. It
 * parses, calls planner/ (answer.h, report.h, import.h) and prints; it prices nothing itself. */
#include "app/options/cli.h"
#include "app/options/options.h"
#include "app/options/words.h"
#include "engine/base/file.h"
#include "engine/host/process.h"
#include "planner/answer.h"
#include "planner/command/plan_verify.h"
#include "planner/command/program_print.h"
#include "planner/page/pipeline_page.h"
#include "planner/page/plan_page.h"
#include "planner/stack/import.h"
#include "planner/stack/stack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCALES_MAX = SCALING_POINTS, TOP_ROWS = 10 };

/* A call: the targets of its options, then what they lead to. */
typedef struct PlanCall {
    const char *cluster, *hardware, *stack, *formula, *tokens, *html, *why, *from, *scale, *write;
    const char *study;      /* for --help: switchyard-plan-study reads it */
    int64_t gpus, top, row; /* 0: not given */
    bool json, csv, program, rows, all;
    PlanVerify verify;
    const char *const *words; /* the configuration and its settings */
    int n_words;
    Arena *arena; /* everything below lives in it */
    Text *out;
    Config config;
    Hardware gpu;
    PlanStack sheet;
    PlanQuestion question;
    PlanAnswer answer;
} PlanCall;

/* ---- the question ---- */

/* Finds the GPU and the number of GPUs: from NAME:GPUS, from a file and --gpus, or (`imported`)
 * from an imported configuration. --cluster wins over the others. */
static Status read_cluster(PlanCall *c, int64_t imported)
{
    const char *source = c->hardware;
    int64_t gpus = c->gpus > 0 ? c->gpus : imported;
    if (c->cluster != NULL) TRY(words_cluster(c->cluster, c->arena, &source, &gpus));
    if (source == NULL)
        return FAIL(ERR_ARG, "plan: no GPUs are given: --cluster mi355x:1024, or --hardware FILE "
                             "--gpus N");
    if (gpus == 0) return FAIL(ERR_ARG, "plan: --hardware %.60s needs --gpus N", source);
    c->question.request.gpus = gpus;
    return hardware_load(&c->gpu, c->arena, source);
}

/* Reads a configuration of another project: its model, mesh and batch become our configuration, its
 * options those of the stack. Where it gives the batch per replica, or the number of replicas, the number of GPUs must be
 * known first, so the cluster is read here. */
static Status import_config(PlanCall *c, const char *path, int64_t *dp)
{
    PlanImport more;
    Text notes;
    TRY(plan_import(c->from, path, c->arena, &c->config, &more));
    TRY(text_init(&notes, c->arena));
    TRY(plan_import_notes(&more, &notes));
    (void)fputs(notes.data, stderr);
    *dp = more.gpus / (c->config.mesh_pp * c->config.mesh_cp * c->config.mesh_tp);
    TRY(plan_import_stack(&more, c->stack == NULL ? more.stack : c->stack, c->arena, &c->stack));
    if (!more.per_replica && more.replicas <= 1) return OK;
    TRY(read_cluster(c, more.gpus));
    return plan_import_cluster(&more, c->question.request.gpus, &c->config);
}

static int rows_asked(const PlanCall *c) { return c->top > 0 ? (int)c->top : TOP_ROWS; }

/* The order matters: settings of the command line override an imported configuration, and the
 * cluster may come from it. */
static Status load_question(PlanCall *c, char **argv, int n)
{
    int64_t dp = 0;
    if (c->from != NULL) {
        TRY(import_config(c, argv[0], &dp));
        for (int i = 1; i < n; i++) TRY(config_override(&c->config, c->arena, argv[i]));
        TRY(config_check(&c->config));
    } else {
        TRY(config_load(&c->config, c->arena, argv[0], (const char *const *)argv + 1, n - 1));
    }
    const int64_t gpus = dp * c->config.mesh_pp * c->config.mesh_cp * c->config.mesh_tp;
    TRY(read_cluster(c, gpus));
    if (gpus > 0 && gpus != c->question.request.gpus && !c->question.search && c->scale == NULL)
        return FAIL(ERR_ARG,
                    "%s: its degrees are of %lld GPUs, and %lld are given; "
                    "data_parallel_shard_degree = -1 leaves the shards to the GPUs",
                    argv[0], (long long)gpus, (long long)c->question.request.gpus);
    if (c->stack == NULL) c->stack = "switchyard";
    TRY(stack_load(&c->sheet, c->arena, c->stack));
    TRY(stack_check_gpu(&c->sheet, &c->gpu));
    c->question.request.config = &c->config;
    c->question.request.hardware = &c->gpu;
    c->question.request.stack = &c->sheet;
    c->question.top = rows_asked(c);
    c->words = (const char *const *)argv, c->n_words = n;
    TRY(plan_verify_check(&c->verify, &c->question, c->stack));
    if (c->verify.layouts > 0 && c->question.top < PLAN_VERIFY_ROWS)
        c->question.top = PLAN_VERIFY_ROWS;
    return c->tokens != NULL ? words_tokens(c->tokens, &c->question.tokens) : OK;
}

/* ---- the answer ---- */

/* --scale: prices the same training for each number of GPUs. */
static Status print_scaling(PlanCall *c)
{
    PlanScale row[SCALES_MAX];
    int64_t gpus[SCALES_MAX];
    int n = 0, wanted = 0;
    TRY(words_scale(c->scale, SCALES_MAX, gpus, &wanted));
    for (int i = 0; i < wanted; i++) {
        const char *limits = NULL;
        TRY(plan_scale_add(&c->question, gpus[i], c->arena, row, &n, &limits));
        (void)fputs(limits, stderr);
    }
    Text basis;
    TRY(text_init(&basis, c->arena));
    TRY(plan_report_basis(&c->question.request, true, &basis));
    (void)fputs(basis.data, stderr);
    double room = plan_room_bytes(&c->question.request);
    TRY(c->json ? plan_scale_json(row, n, c->out) : plan_scale_text(row, n, room, c->out));
    if (c->html != NULL) TRY(plan_page_scaling(&c->question, row, n, c->html, c->arena, c->out));
    return plan_scale_fits(row, n, c->scale);
}

/* Draws the page. Why a layout does not fit is asked first, so that the page says it, too. */
static Status draw_page(PlanCall *c, const PlanReport *r, Status fits)
{
    char why[1024];
    static const char COMMAND[] = "plan: ";
    status_sentence(why, sizeof why);
    const char *sentence = why + (text_starts(why, COMMAND) ? sizeof COMMAND - 1 : 0);
    const PlanPage page = { &c->answer, r, fits == OK ? NULL : sentence, c->arena };
    return plan_page_write(&page, c->html, c->out);
}

/* --program: prints the actions of all pipeline ranks, with the simulated time of each. */
static Status print_program(PlanCall *c)
{
    const PlanStep *s = &c->answer.step;
    TRY(plan_answer_simulate(&c->answer, true, c->arena));
    for (int r = 0; r < s->pipeline.stages; r++)
        TRY(program_print(&s->pipeline.rank[r], s->sim.rank[r].span, c->out));
    TRY(text_printf(c->out, "the step takes %.3f ms by this list\n", 1e3 * s->sim.step));
    return plan_answer_fits(&c->answer, c->arena);
}

/* --write: the configuration of a row: of --row, else the last of --top, else the best. */
static Status write_row(PlanCall *c, const PlanReport *r)
{
    Arena a = { 0 };
    Text yaml;
    const int64_t row = c->row > 0 ? c->row : c->top > 0 ? c->top : 1;
    TRY(arena_init(&a, "configuration", MEM_HOST, (size_t)1 << 24));
    Status s = text_init(&yaml, &a);
    if (s == OK) s = plan_answer_write(&c->answer, r, row, c->arena, &yaml);
    if (s == OK) s = file_write_whole(c->write, yaml.data, yaml.used);
    arena_free(&a);
    return s;
}

/* Limits of the prediction come first: in the text above the figures, for JSON and CSV on stderr. */
static Status print_report(PlanCall *c)
{
    PlanAnswer *a = &c->answer;
    PlanFormula theirs;
    PlanReport r;
    Text limits;
    TRY(text_init(&limits, c->arena));
    TRY(plan_answer_limits(a, &limits));
    if (c->json || c->csv)
        (void)fputs(limits.data, stderr); /* stdout is for the programs that read it */
    else
        TRY(text_append(c->out, limits.data, limits.used));
    TRY(plan_answer_report(a, c->arena, &r));
    const int all = a->found.n_best; /* a new ranking needs more rows than are printed */
    if (a->searched && all > rows_asked(c)) a->found.n_best = a->top = rows_asked(c);
    r.whole = !a->searched || c->all;
    r.stack = c->stack;
    r.tokens = c->question.tokens;
    if (c->formula != NULL) {
        TRY(plan_formula(&a->config, a->request.gpus, c->formula, c->arena, &theirs));
        r.formula = &theirs;
        r.formula_name = c->formula;
    }
    TRY((c->json ? plan_report_json : c->csv ? plan_report_csv : plan_report_text)(&r, c->out));
    if (c->why != NULL) TRY(plan_explain(a->planner, &r, c->why, c->out));
    if (c->write != NULL && (r.search == NULL || r.search->n_best > 0)) TRY(write_row(c, &r));
    Status fits = plan_answer_fits(a, c->arena);
    if (c->html != NULL && (fits == OK || fits == ERR_FIT)) TRY(draw_page(c, &r, fits));
    TRY(fits);
    a->found.n_best = all;
    if (c->verify.layouts > 0) {
        if (c->json) c->out->used -= strlen("}\n"); /* the object goes on */
        TRY(text_printf(c->out, "%s", c->json ? "," : ""));
        TRY(plan_verify(&c->verify, a, c->words, c->n_words, c->json, c->arena, c->out));
        if (c->json) TRY(text_printf(c->out, "}\n"));
    }
    if (r.tokens == 0) return OK;
    Goodput g;
    plan_goodput(&a->request, &a->price, r.tokens, &g);
    return plan_goodput_ends(&a->request, &g);
}

/* --scale asks several questions, everything else one. */
static Status print_answer(PlanCall *c)
{
    if (c->scale != NULL) return print_scaling(c);
    TRY(plan_answer(&c->question, c->arena, &c->answer));
    return c->program ? print_program(c) : print_report(c);
}

static Status run_plan(void *state, int n, char **arguments, Arena *a, Text *out)
{
    PlanCall *c = state;
    c->arena = a, c->out = out;
    if (c->rows) return config_help(true, out);
    if (n < 1)
        return FAIL(ERR_ARG, "switchyard plan: CONFIG is missing; see switchyard plan --help");
    if (c->html != NULL) TRY(pipeline_check_path("plan: --html", c->html));
    TRY(load_question(c, arguments, n));
    Status s = print_answer(c);
    plan_answer_free(&c->answer);
    return s;
}

/* A row of its own, because `plan` takes a configuration where other groups take a subcommand. */
static const Subcommand CALIBRATE = { "calibrate", "make a GPU's file from its measured rates",
                                      NULL };

static const char plan_what[] =
    "Estimate the memory and the time of a training run on a cluster. CONFIG is a YAML file or a "
    "preset; the settings mesh.* choose the layout. The exit code is 3 if it does not fit. "
    "`switchyard plan calibrate` measures a GPU's rates for --hardware.";
static const char plan_example[] =
    "switchyard plan deepseek-v3 run.compute=bf16 mesh.pp=8 mesh.ep=8 \\\n"
    "    --cluster mi325x:512 --tokens 15T\n"
    "switchyard plan moe-2t run.compute=bf16 --cluster mi300x:768 --search";

/* What would mix two formats on stdout, or what one of the two would ignore. */
static const OptionPair pairs[] = { { "--cluster", OPTION_APART, "--hardware" },
                                    { "--json", OPTION_APART, "--csv|--why|--all" },
                                    { "--csv", OPTION_APART, "--why|--all" },
                                    { "--program", OPTION_APART,
                                      "--json|--csv|--why|--html|--scale|--write|--formula" },
                                    { "--scale", OPTION_APART, "--csv|--why|--write|--formula" },
                                    { "--verify", OPTION_APART, "--csv|--scale|--from|--program" },
                                    { "--top", OPTION_NEEDS, "--search" },
                                    { "--all", OPTION_NEEDS, "--search" },
                                    { "--row", OPTION_NEEDS, "--search|--write" },
                                    { NULL, OPTION_APART, NULL } };

static Status run_words(int argc, char **argv)
{
    PlanCall c = { .verify = { .steps = 10, .limit_s = 600 } };
    const Option table[] = {
        { "--cluster", OPTION_TEXT, &c.cluster, "NAME:GPUS",
          .help = "which GPU and how many, as in mi355x:1024" },
        { "--hardware", OPTION_TEXT, &c.hardware, "FILE",
          .help = "describe the GPU by a file instead; needs --gpus" },
        { "--gpus", OPTION_INT, &c.gpus, "N", .help = "number of GPUs", .min = 1, .max = 1e8 },
        { "--stack", OPTION_TEXT, &c.stack, "NAME",
          .help = "switchyard, primus, megatron or torchtitan; primus,deepep=0 sets an option" },
        { "--formula", OPTION_TEXT, &c.formula, "NAME",
          .help = "add Primus' own formula: primus-head, primus-docs or primus-chart" },
        { "--search", OPTION_FLAG, &c.question.search, NULL, .help = "search for the best layout" },
        { "--top", OPTION_INT, &c.top, "N", .help = "list the N best layouts; 10 without it",
          .min = 1, .max = SEARCH_TOP_MAX },
        { "--all", OPTION_FLAG, &c.all,
          .help = "with --search: also print the front, and memory and time of row 1" },
        { "--write", OPTION_TEXT, &c.write, "FILE",
          .help = "write the layout, or row N of --top N, as YAML for plan and train" },
        { "--row", OPTION_INT, &c.row, "N",
          .help = "write this row instead; the front's numbers follow those of the best", .min = 1,
          .max = SEARCH_TOP_MAX + SEARCH_FRONT_MAX },
        { "--scale", OPTION_TEXT, &c.scale, "N,N...",
          .help = "compare these numbers of GPUs at the same batch" },
        { "--study", OPTION_TEXT, &c.study, "NAME",
          .help = "micro-batch, ep, scale, recompute, precision or memory; --study NAME --help" },
        { "--verify", OPTION_INT, &c.verify.layouts, "N",
          .help = "run the best N layouts of --search here, and rank again by what they took",
          .min = 1, .max = VERIFY_MAX },
        { "--ranks", OPTION_INT, &c.verify.ranks, "N",
          .help = "ranks of --verify: the number of GPUs that is planned, which is the default",
          .min = 1, .max = 1024 },
        { "--launcher", OPTION_TEXT, &c.verify.launcher, "COMMAND",
          .help = "start the ranks of --verify by this, as in 'mpirun -n 16'" },
        { "--steps", OPTION_INT, &c.verify.steps, "N",
          .help = "timed steps of each layout of --verify", .min = 1, .max = 1e6 },
        { "--limit", OPTION_REAL, &c.verify.limit_s, "SECONDS",
          .help = "end a layout of --verify that takes longer", .min = 1, .max = 1e6 },
        { "--tokens", OPTION_TEXT, &c.tokens, "N",
          .help = "tokens of the whole training, as in 15T, to print its time" },
        { "--why", OPTION_TEXT, &c.why, "WHAT",
          .help = "explain one number: peak, step, comm or bubble" },
        { "--from", OPTION_TEXT, &c.from, "PROJECT",
          .help = "read CONFIG as a file of megatron, primus or torchtitan" },
        { "--json", OPTION_FLAG, &c.json, NULL, .help = "print one JSON object" },
        { "--csv", OPTION_FLAG, &c.csv, NULL, .help = "print one CSV line per layout" },
        { "--program", OPTION_FLAG, &c.program, .help = "print the actions of the step instead" },
        { "--html", OPTION_TEXT, &c.html, "FILE",
          .help = "draw the plan, or the curve of --scale, as a page (.html) or a picture (.svg)" },
        { "--settings", OPTION_FLAG, &c.rows, .help = "list all plan.key and search.key" },
    };
    const Command command = { .name = "switchyard plan",
                              .arguments = "CONFIG [section.key=value ...]",
                              .what = plan_what,
                              .example = plan_example,
                              .pairs = pairs,
                              .below = &CALIBRATE,
                              OPTIONS(table, 0, -1) };
    return options_run(&command, argc, argv, run_plan, &c);
}

/* With --study the command becomes switchyard-plan-study, which reads the same words. */
Status cli_plan(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (text_starts(argv[i], "--study")) return process_become("plan-study", argv);
    }
    return run_words(argc, argv);
}
