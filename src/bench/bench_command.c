/* bench: `switchyard bench ops` and `step`: parses, calls bench/, prints. It measures nothing
 * itself. One table has the options of all benches, each with the benches that take it. */
#include "bench/bench.h"

#include "app/options/cli.h"
#include "app/options/options.h"
#include "engine/host/process.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum BenchKind { BENCH_OPS, BENCH_STEP } BenchKind;

/* A call of a bench: the targets of its options. */
typedef struct Bench {
    BenchKind kind;
    int64_t ranks;
    BenchStep step;    /* step.steps also serves ops */
    bool small, ops;   /* --shrink of the model; --ops of `bench step` */
    const char *slope; /* --slope of `bench step`: two depths */
    Config deep;       /* with the second one */
    bool why;          /* for --help: switchyard-bench-why reads both */
    const char *device;
} Bench;

/* Runs a bench on this rank. world NULL: one rank. */
typedef Status BenchFn(const Bench *b, const Config *c, Comm *world, Arena *a, Text *out);

static Status run_ops(const Bench *b, const Config *c, Comm *world, Arena *a, Text *out)
{
    (void)world;
    if (b->device != NULL)
        return FAIL(ERR_ARG, "bench ops: --device names a GPU for --why: add it, or leave it out");
    return bench_ops(c, b->step.steps, a, out);
}

static Status run_step(const Bench *b, const Config *c, Comm *world, Arena *a, Text *out)
{
    if (b->ops && (world != NULL || b->step.json))
        return FAIL(ERR_ARG, "bench step: --ops is text of one rank: leave out --json and --ranks");
    if (b->step.data && (b->step.tokens.documents > 0 || b->step.tokens.zipf))
        return FAIL(ERR_ARG, "bench step: --data has tokens and documents of its own: "
                             "leave out --documents and --zipf");
    if (b->slope != NULL) return bench_slope(c, &b->deep, world, &b->step, out);
    TRY(bench_step(c, world, &b->step, out));
    if (!b->ops) return OK;
    TRY(text_printf(out, "\n"));
    return bench_ops(c, b->step.steps, a, out);
}

/* ranks: the bench runs on every rank. */
static const struct {
    Command command;
    BenchFn *fn;
    bool ranks;
} benches[] = {
    [BENCH_OPS] = { { .name = "switchyard bench ops",
                      .arguments = "[MODEL [section.key=value ...]]",
                      .what = "Time each op inside training steps of MODEL (default quickstart), "
                              "by shape: time, "
                              "TFLOP/s, GB/s, share of this machine's measured peak, and what each "
                              "op could "
                              "still gain.",
                      .example = "switchyard bench ops quickstart run.compute=bf16" },
                    run_ops,
                    false },
    [BENCH_STEP] = { { .name = "switchyard bench step",
                       .arguments = "MODEL [section.key=value ...]",
                       .what = "Time whole training steps: tokens/s, spread of step times, MFU by "
                               "our count and "
                               "by TorchTitan's, expert load, memory, and cost of communication. "
                               "On a GPU also "
                               "its clock, its power and what limits them.",
                       .example = "switchyard bench step quickstart --steps 50" },
                     run_step,
                     true },
};

static Status run_kind(const void *state, const Config *c, Comm *world, Arena *a, Text *out)
{
    const Bench *b = state;
    return benches[b->kind].fn(b, c, world, a, out);
}

/* The model of `arguments` with `layers` layers, or with its own if it is 0. */
static Status load_model(const Bench *b, int64_t layers, int n, char **arguments, Arena *a,
                         Config *out)
{
    char depth[48];
    const char **set = NULL;
    const bool model = n > 0;
    TRY(ARENA_NEW(a, n + 1, &set));
    for (int i = model; i < n; i++) set[i - model] = arguments[i];
    (void)snprintf(depth, sizeof depth, "model.layers=%" PRId64, layers);
    set[n - model] = depth;
    return config_load_as(out, a, b->small ? CONFIG_SMALL : 0, model ? arguments[0] : "quickstart",
                          set, n - model + (layers > 0));
}

/* "6,10": two rising numbers of layers. */
static Status read_slope(const char *text, int64_t depth[2])
{
    char *end = NULL;
    depth[0] = strtoll(text, &end, 10);
    depth[1] = *end == ',' ? strtoll(end + 1, &end, 10) : 0;
    if (*end == '\0' && depth[0] > 0 && depth[1] > depth[0]) return OK;
    return FAIL(
        ERR_ARG,
        "bench step: --slope %.40s: give two numbers of layers, the smaller first: --slope 6,10",
        text);
}

/* Loads the configuration, then runs the bench here or on every rank. */
static Status run_bench(void *state, int n, char **arguments, Arena *a, Text *out)
{
    Bench *b = state;
    Config c = { 0 };
    int64_t depth[2] = { 0 };
    if (b->slope != NULL) TRY(read_slope(b->slope, depth));
    if (b->slope != NULL &&
        (b->ops || b->step.exposed || b->step.parts || b->step.timeline != NULL))
        return FAIL(ERR_ARG, "bench step: --slope compares two models: leave out --ops, --parts, "
                             "--exposed and --timeline");
    TRY(load_model(b, depth[0], n, arguments, a, &c));
    if (b->slope != NULL) TRY(load_model(b, depth[1], n, arguments, a, &b->deep));
    BenchOn on = { .config = &c, .run = run_kind, .state = b, .out = out };
    if (benches[b->kind].ranks) return cli_ranks(b->ranks, c.comm_timeout_s, a, bench_on_rank, &on);
    return run_kind(b, &c, NULL, a, out);
}

/* Bits of the benches that take an option. */
enum { OPS = 1 << BENCH_OPS, STEP = 1 << BENCH_STEP };

/* An option, the benches that take it, and the member of Bench that it sets: option.target of the
 * row is NULL, because each call has a Bench of its own. */
typedef struct BenchOption {
    unsigned of;
    size_t at;
    Option option;
} BenchOption;

#define OF_CALL(member) offsetof(Bench, member)
static const BenchOption bench_options[] = {
    { OPS | STEP,
      OF_CALL(step.steps),
      { "--steps", OPTION_INT, NULL, "N", "number of timed steps", .min = 1, .max = 1e6 } },
    { OPS | STEP,
      OF_CALL(small),
      { "--shrink", OPTION_FLAG, NULL,
        .help = "shrink the model but keep its structure; settings are applied after that" } },
    { STEP,
      OF_CALL(ranks),
      { "--ranks", OPTION_INT, NULL, "N", "run N ranks on this host, each on its own GPU", .min = 1,
        .max = 1024 } },
    { STEP,
      OF_CALL(step.timeline),
      { "--timeline", OPTION_TEXT, NULL, "FOLDER",
        .help = "write the last step for `switchyard viz`: passes by stage, or by lane" } },
    { STEP, OF_CALL(step.json), { "--json", OPTION_FLAG, NULL, .help = "print one JSON object" } },
    { OPS,
      OF_CALL(why),
      { "--why", OPTION_FLAG, NULL,
        .help = "list which kernel runs each call on a GPU, and why others do not" } },
    { OPS,
      OF_CALL(device),
      { "--device", OPTION_TEXT, NULL, "GPU",
        .help = "for --why: a GPU of the hardware files, or a file of one" } },
    { STEP,
      OF_CALL(ops),
      { "--ops", OPTION_FLAG, NULL, .help = "add the table of bench ops for the same model" } },
    { STEP,
      OF_CALL(slope),
      { "--slope", OPTION_TEXT, NULL, "L1,L2",
        .help = "time the model with L1 and with L2 layers: their difference is what layers cost, "
                "without head, "
                "embedding and host" } },
    { STEP,
      OF_CALL(step.data),
      { "--data", OPTION_FLAG, NULL,
        .help = "read tokens from data.sources as train does, so that routing is realistic" } },
    { STEP,
      OF_CALL(step.tokens.documents),
      { "--documents", OPTION_INT, NULL, "N",
        "put random tokens into documents of N tokens on average, lognormal as web text's are "
        "(C4's have about 480)",
        .min = 1, .max = 1e9 } },
    { STEP,
      OF_CALL(step.tokens.zipf),
      { "--zipf", OPTION_FLAG, NULL,
        .help = "draw random tokens by Zipf's law, as words are: a few are frequent, and experts "
                "have uneven loads" } },
    { STEP,
      OF_CALL(step.parts),
      { "--parts", OPTION_FLAG, NULL,
        .help = "print ms by part of the step: attention, experts, head, update and others" } },
    { STEP,
      OF_CALL(step.exposed),
      { "--exposed", OPTION_FLAG, NULL,
        .help = "repeat steps without each kind of traffic to measure what it adds" } },
};

/* Parses the options of the bench that argv[0] names, and runs it. */
static Status parse_bench(int argc, char **argv)
{
    enum { N = sizeof bench_options / sizeof *bench_options };
    int kind = BENCH_OPS;
    while (strcmp(benches[kind].command.name + sizeof "switchyard bench", argv[0]) != 0) kind++;
    for (int i = 1; kind == BENCH_OPS && i < argc; i++)
        if (strcmp(argv[i], "--why") == 0) return process_become("bench-why", argv);
    Bench b = { .kind = (BenchKind)kind, .step.steps = 20 };
    Option own[N];
    Command command = benches[kind].command;
    command.options = own;
    command.max_positional = -1;
    for (int i = 0; i < N; i++) {
        if ((bench_options[i].of >> kind & 1) == 0) continue;
        Option *o = &own[command.n_options++];
        *o = bench_options[i].option;
        o->target = (char *)&b + bench_options[i].at;
    }
    return options_run(&command, argc, argv, run_bench, &b);
}

Status cli_bench(int argc, char **argv)
{
    static const Subcommand rows[] = {
        { "ops", "time each op of a training step", parse_bench },
        { "step", "time whole training steps", parse_bench },
        { "ladder", "measure what each feature or each further rank brings", NULL },
        { "shapes", "time single ops without a model", NULL },
        { "comm", "time collectives and token exchange between ranks", NULL },
        { "contention", "time ops during communication", NULL },
        { "trace", "time the reader and the report of traces", NULL },
    };
    return options_dispatch("switchyard bench", rows, sizeof rows / sizeof *rows, argc, argv);
}
