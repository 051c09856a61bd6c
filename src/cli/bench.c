/* bench: `switchyard bench`: parses, calls bench/, prints. */
#include "bench/bench.h"

#include "cli/cli.h"
#include "cli/options.h"
#include "train/null.h"

typedef struct Bench Bench;

/* world NULL: on one rank. */
typedef Status BenchFn(const Bench *b, const Config *c, Comm *world, Arena *a, Text *out);

struct Bench {
    const char *name;
    int64_t ranks;
    BenchStep step; /* its steps are all benches' */
    BenchFn *fn;
    BenchShapes shapes;
    BenchComm comm;
    bool model, small, ops; /* the first argument is a model, which shrinks; a table of ops, too */
    const Config *config;
    Text *out;
};

static Status run_ops(const Bench *b, const Config *c, Comm *world, Arena *a, Text *out)
{
    return (void)world, bench_ops(c, b->step.steps, a, out);
}

static Status run_step(const Bench *b, const Config *c, Comm *world, Arena *a, Text *out)
{
    if (b->ops && (world != NULL || b->step.json))
        return FAIL(ERR_ARG, "bench step: --ops is text of one rank: leave out --json and --ranks");
    TRY(bench_step(c, world, &b->step, out));
    if (!b->ops) return OK;
    TRY(text_printf(out, "\n"));
    return bench_ops(c, b->step.steps, a, out);
}

static Status run_ladder(const Bench *b, const Config *c, Comm *world, Arena *a, Text *out)
{
    (void)world;
    if (b->ranks > 1 && comm_launched() > 1)
        return FAIL(ERR_ARG,
                    "bench ladder: --ranks starts ranks of this host: leave mpirun or srun away");
    if (b->ranks > 1) return bench_scale(c, (int)b->ranks, b->step.steps, out);
    return bench_ladder(c, b->step.steps, a, out);
}

static Status run_shapes(const Bench *b, const Config *c, Comm *world, Arena *a, Text *out)
{
    if (b->shapes.list != NULL && b->shapes.seed != NULL)
        return FAIL(ERR_ARG, "bench shapes: --list and --seed both say what runs: leave one out");
    return (void)world, (void)a, bench_shapes(c, &b->shapes, out);
}

static Status run_comm(const Bench *b, const Config *c, Comm *world, Arena *a, Text *out)
{
    return (void)a, bench_comm(c, world, &b->comm, out);
}

static Status run_rank(void *state, Comm *world)
{
    const Bench *b = state;
    Config own = *b->config;
    Arena a = { 0 };
    Text out = { 0 };
    TRY(arena_init(&a, "command", MEM_HOST, (size_t)64 << 30));
    Status s = bench_take_place(&own, world, &a);
    if (s == OK) s = text_init(&out, &a);
    if (s == OK) s = b->fn(b, &own, world, &a, &out);
    if (s == OK && (world == NULL || world->rank == 0)) s = text_append(b->out, out.data, out.used);
    if (s != OK) bench_end_others(world);
    arena_free(&a);
    return s;
}

static Status run(void *state, int n, char **arguments, Arena *a, Text *out)
{
    Bench all = *(const Bench *)state;
    Config c = { 0 };
    bool model = n > 0 && all.model;
    TRY((all.small ? config_load_small : config_load)(&c, a, model ? arguments[0] : "quickstart",
                                                      (const char *const *)(arguments + model),
                                                      n - model));
    if (all.fn != run_step) TRY(null_refuse(&c, all.name));
    all.config = &c;
    all.out = out;
    if (all.fn == run_step || all.fn == run_comm)
        return cli_ranks(all.ranks, c.comm_timeout_s, a, run_rank, &all);
    return all.fn(&all, &c, NULL, a, out);
}

/* In the order of cli_bench's rows. */
static const struct {
    Command command;
    BenchFn *fn;
} benches[] = {
    { { .name = "switchyard bench ops",
        .arguments = "[MODEL [section.key=value ...]]",
        .what = "Each op inside training steps of MODEL (default quickstart), by shape: "
                "time,\nTFLOP/s, "
                "GB/s and its share of the machine's measured peak; then what the peak "
                "leaves\nto gain, op by op.",
        .example = "switchyard bench ops quickstart run.compute=bf16" },
      run_ops },
    { { .name = "switchyard bench step",
        .arguments = "MODEL [section.key=value ...]",
        .what = "Whole training steps, on random tokens or on those of data.sources: tokens/s, "
                "spread of\nstep times, MFU by our count and by TorchTitan's, experts' load, "
                "memory, what communication\ncosts, and of a GPU clock, power and what holds it "
                "back.",
        .example = "switchyard bench step quickstart --steps 50" },
      run_step },
    { { .name = "switchyard bench ladder",
        .arguments = "MODEL [section.key=value ...]",
        .what = "One table: growing batches, then one feature more a row: tokens/s, memory,\n"
                "launches and waits of the host. With --ranks N: MODEL on 1, 2, 4 ... N ranks, "
                "each with as\nmany sequences as of N: tokens/s, tokens/s a rank, efficiency.",
        .example = "switchyard bench ladder deepseek-v2-lite model.layers=6 run.compute=bf16" },
      run_ladder },
    { { .name = "switchyard bench shapes",
        .arguments = "[section.key=value ...]",
        .what = "Single ops on the shapes of well-known models, without a model: time, TFLOP/s, "
                "TB/s,\nshare of the measured peak, and the largest error of a sample beside the "
                "CPU.",
        .example = "switchyard bench shapes run.compute=bf16 --only products" },
      run_shapes },
    { { .name = "switchyard bench comm",
        .arguments = "[section.key=value ...]",
        .what = "Between ranks, of this host or of mpirun: every collective by size, and every "
                "kind of\ntoken exchange, with balanced and skewed routing: time, algorithm and "
                "bus bandwidth, on\na known GPU share of its links.",
        .example = "switchyard bench comm run.compute=bf16 --ranks 4" },
      run_comm },
};

/* argv[0] is the word that chose this bench. */
static Status bench(int argc, char **argv)
{
    int i = 0;
    while (!text_ends(benches[i].command.name, argv[0])) i++;
    Command command = benches[i].command;
    Bench b = { .name = command.name + sizeof "switchyard",
                .step.steps = 20,
                .fn = benches[i].fn,
                .shapes = { .shrink = 1 },
                .comm = { .shrink = 1 } };
    BenchShapes *o = &b.shapes;
    const Option of_shapes[] = {
        { "--only", OPTION_CHOICE, &o->group, bench_groups, .help = "a group of ops" },
        { "--seed", OPTION_TEXT, &o->seed, "TEXT",
          .help =
              "instead five MoE shapes drawn from it, a date for example, routed in three ways" },
        { "--list", OPTION_TEXT, &o->list, "FILE",
          .help = "instead the rows of FILE, from trace replay --bench" },
        { "--shrink", OPTION_INT, &o->shrink, "N", "divide sizes by N", .min = 1, .max = 1e6 },
        { "--json", OPTION_FLAG, &o->json, .help = "a JSON object a line" },
        { "--no-check", OPTION_FLAG, &o->no_check, .help = "nothing runs on the CPU" },
    };
    const Option ranks = { "--ranks", OPTION_INT, &b.ranks, "N", "ranks of this host, one a GPU",
                           .min = 1,  .max = 1024 };
    const Option of_comm[] = {
        ranks,
        { "--only", OPTION_CHOICE, &b.comm.only, "all|collectives|exchange", .help = "a part" },
        { "--shrink", OPTION_INT, &b.comm.shrink, "N", "divide bytes and tokens by N", .min = 1,
          .max = 1e6 },
        { "--json", OPTION_FLAG, &b.comm.json, .help = "a JSON object a line" },
    };
    const Option of_models[] = {
        { "--steps", OPTION_INT, &b.step.steps, "N", "timed steps", .min = 1, .max = 1e6 },
        { "--shrink", OPTION_FLAG, &b.small,
          .help = "a small model of the same structure; settings come after that" },
        ranks,
        { "--timeline", OPTION_TEXT, &b.step.timeline, "FOLDER",
          .help = "the last step, for `switchyard viz`: passes over stages or lanes" },
        { "--json", OPTION_FLAG, &b.step.json, .help = "a JSON object" },
        { "--ops", OPTION_FLAG, &b.ops,
          .help = "then all that bench ops says of the same model, and what the measured peak "
                  "leaves to gain" },
        { "--data", OPTION_FLAG, &b.step.data,
          .help = "tokens of data.sources, as train reads them, so routing is as it is there" },
        { "--exposed", OPTION_FLAG, &b.step.exposed,
          .help = "then steps without each kind of traffic: what it adds, waiting and slowing" },
    };
    const int of_ops = 2, of_ladder = 3, of_step = sizeof of_models / sizeof *of_models;
    command.options = of_models;
    command.n_options = b.fn == run_step ? of_step : b.fn == run_ladder ? of_ladder : of_ops;
    b.model = b.fn != run_shapes && b.fn != run_comm;
    if (b.fn == run_shapes) {
        command.options = of_shapes;
        command.n_options = sizeof of_shapes / sizeof *of_shapes;
    }
    if (b.fn == run_comm) {
        command.options = of_comm;
        command.n_options = sizeof of_comm / sizeof *of_comm;
    }
    command.max_positional = -1;
    return options_run(&command, argc, argv, run, &b);
}

Status cli_bench(int argc, char **argv)
{
    static const Subcommand rows[] = {
        { "ops", "each op of a training step", bench },
        { "step", "whole training steps", bench },
        { "ladder", "what each feature, or each rank more, is worth", bench },
        { "shapes", "single ops without a model", bench },
        { "comm", "collectives and token exchange between ranks", bench },
        { "trace", "the reader and the report of profilers' traces", cli_bench_trace },
    };
    return options_dispatch("switchyard bench", rows, sizeof rows / sizeof *rows, argc, argv);
}
