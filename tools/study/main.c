/* plan-study: what `switchyard plan ... --study NAME` becomes: reads the same words, makes the study, prints it. */
#include "app/options/options.h"
#include "app/options/words.h"
#include "beside/beside.h"
#include "study/study.h"

/* The targets of the options, then what they lead to. */
typedef struct StudyCall {
    const char *name, *cluster, *hardware, *stack, *scale, *tokens, *html;
    int64_t gpus; /* 0: not given */
    bool strong, search, json, csv;
    Config config;
    Hardware gpu;
    PlanStack sheet;
    Study study;
} StudyCall;

/* Options that the study would ignore are refused. */
static Status check_options(const StudyCall *c)
{
    const bool scales = strcmp(c->name, "scale") == 0;
    const struct {
        const char *name;
        bool given;
    } only[] = { { "--scale", c->scale != NULL },
                 { "--strong", c->strong },
                 { "--search", c->search },
                 { "--tokens", c->tokens != NULL } };
    for (size_t i = 0; !scales && i < sizeof only / sizeof *only; i++) {
        if (only[i].given)
            return FAIL(ERR_ARG, "plan: --study %s has no %s: that is an option of --study scale",
                        c->name, only[i].name);
    }
    if (c->html == NULL || text_ends(c->html, ".html")) return OK;
    return FAIL(ERR_ARG, "plan: --html %.200s: a study is a page: its name ends in .html", c->html);
}

static Status read_cluster(StudyCall *c, Arena *a)
{
    const char *source = c->hardware;
    int64_t gpus = c->gpus;
    if (c->cluster != NULL) TRY(words_cluster(c->cluster, a, &source, &gpus));
    if (source == NULL || gpus == 0)
        return FAIL(ERR_ARG,
                    "plan: --study %s needs GPUs: --cluster mi355x:1024, or --hardware "
                    "FILE --gpus N",
                    c->name);
    TRY(hardware_load(&c->gpu, a, source));
    if (c->stack == NULL) c->stack = "switchyard";
    TRY(stack_load(&c->sheet, a, c->stack));
    TRY(stack_check_gpu(&c->sheet, &c->gpu));
    c->study.base = (PlanRequest){ &c->config, &c->gpu, &c->sheet, gpus };
    return OK;
}

/* --study scale: the numbers of GPUs; without --scale once, twice, four and eight times those of the cluster. */
static Status read_scale(StudyCall *c)
{
    Study *s = &c->study;
    if (strcmp(c->name, "scale") != 0) return OK;
    if (c->tokens != NULL) TRY(words_tokens(c->tokens, &s->tokens));
    if (c->scale != NULL) return words_scale(c->scale, SCALING_POINTS, s->gpus, &s->n_gpus);
    for (; s->n_gpus < 4; s->n_gpus++) s->gpus[s->n_gpus] = s->base.gpus << s->n_gpus;
    return OK;
}

static Status run_study(void *state, int n, char **arguments, Arena *a, Text *out)
{
    StudyCall *c = state;
    Study *s = &c->study;
    if (n < 1)
        return FAIL(ERR_ARG, "switchyard plan: CONFIG is missing; see switchyard plan --help");
    TRY(study_find(c->name, &s->kind));
    TRY(check_options(c));
    TRY(config_load(&c->config, a, arguments[0], (const char *const *)arguments + 1, n - 1));
    TRY(read_cluster(c, a));
    TRY(read_scale(c));
    s->a = a;
    s->stack = c->stack;
    s->strong = c->strong;
    s->search = c->search;
    TRY(study_run(s));
    TRY((c->json ? study_print_json : c->csv ? study_print_csv : study_print_text)(s, out));
    if (c->html != NULL) TRY(study_page_write(s, c->html, out));
    return study_fits(s);
}

Status beside_run(int argc, char **argv)
{
    static StudyCall c; /* its rows are many */
    const Option table[] = {
        { "--study", OPTION_TEXT, &c.name, "NAME",
          .help = "micro-batch, ep, scale, recompute, precision or memory", .required = true },
        { "--cluster", OPTION_TEXT, &c.cluster, "NAME:GPUS",
          .help = "which GPU and how many, as in mi355x:1024" },
        { "--hardware", OPTION_TEXT, &c.hardware, "FILE",
          .help = "describe the GPU by a file instead; needs --gpus" },
        { "--gpus", OPTION_INT, &c.gpus, "N", .help = "number of GPUs", .min = 1, .max = 1e8 },
        { "--stack", OPTION_TEXT, &c.stack, "NAME",
          .help = "switchyard, primus, megatron or torchtitan; primus,deepep=0 sets an option" },
        { "--scale", OPTION_TEXT, &c.scale, "N,N...",
          .help = "of --study scale: the numbers of GPUs; without it 1, 2, 4 and 8 times those of "
                  "the cluster" },
        { "--strong", OPTION_FLAG, &c.strong,
          .help = "of --study scale: keep the batch; without it the batch grows with the GPUs" },
        { "--search", OPTION_FLAG, &c.search,
          .help = "of --study scale: search for the best layout on each number of GPUs" },
        { "--tokens", OPTION_TEXT, &c.tokens, "N",
          .help = "of --study scale: tokens of the whole training, as in 15T, to print its days" },
        { "--json", OPTION_FLAG, &c.json, .help = "print one JSON object" },
        { "--csv", OPTION_FLAG, &c.csv, .help = "print one CSV line per row" },
        { "--html", OPTION_TEXT, &c.html, "FILE", .help = "draw the study as a page (.html)" },
    };
    static const OptionPair pairs[] = { { "--json", OPTION_APART, "--csv" },
                                        { "--cluster", OPTION_APART, "--hardware" },
                                        { NULL, OPTION_APART, NULL } };
    const Command command = {
        .name = "switchyard plan",
        .pairs = pairs,
        .arguments = "CONFIG --study NAME [section.key=value ...]",
        .what = "Compare layouts that differ in one thing, a row each: micro-batches, ranks of "
                "experts (ep), numbers of GPUs (scale), recomputed modules, precision of products, "
                "or kinds of memory. Each row has the figures that plan prints for it alone. "
                "search.micro_batch and search.ep choose the values of their studies. The exit "
                "code is 3 if no row fits.",
        .example = "switchyard plan deepseek-v2-lite --study micro-batch mesh.ep=8 \\\n"
                   "    --cluster mi355x:8 --stack primus",
        OPTIONS(table, 0, -1),
    };
    return options_run(&command, argc, argv, run_study, &c);
}
