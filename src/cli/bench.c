/* bench: `switchyard bench`: parses, calls bench/, prints. */
#include "bench/bench.h"

#include "cli/cli.h"
#include "cli/options.h"

#include <stdio.h>

typedef Status BenchFn(const Config *c, int64_t steps, Arena *a, Text *out);

typedef struct Bench {
    int64_t ranks;
    BenchStep step; /* its steps are all benches' */
    BenchFn *fn;    /* NULL: bench shapes; bench step, which may have many ranks */
    BenchShapes shapes;
    bool on_shapes, ops; /* ops: bench step's table of ops is wanted */
    const Config *config;
    Text *out;
} Bench;

static Status run_rank(void *state, Comm *world)
{
    const Bench *b = state;
    Config own = *b->config;
    BindShare share;
    Arena a = { 0 };
    Text out = { 0 };
    train_take_share(&own, world, &share);
    TRY(arena_init(&a, "command", MEM_HOST, (size_t)64 << 30));
    Status s = train_find_hosts(&own, world, &a);
    if (s == OK) s = text_init(&out, &a);
    if (s == OK) s = bench_step(&own, world, &b->step, &out);
    if (s == OK && world->rank == 0) s = text_append(b->out, out.data, out.used);
    arena_free(&a);
    return s;
}

static Status run(void *state, int n, char **arguments, Arena *a, Text *out)
{
    const Bench *b = state;
    Config c;
    bool model = n > 0 && !b->on_shapes;
    TRY(config_load(&c, a, model ? arguments[0] : "quickstart",
                    (const char *const *)(arguments + model), n - model));
    if (b->on_shapes) return bench_shapes(&c, &b->shapes, out);
    if (b->fn != NULL) return b->fn(&c, b->step.steps, a, out);
    if (b->ops && (b->ranks > 1 || b->step.json))
        return FAIL(ERR_ARG, "bench step: --ops is text of one rank: leave out --json and --ranks");
    if (b->ranks < 2) TRY(bench_step(&c, NULL, &b->step, out));
    if (b->ops) TRY(text_printf(out, "\n"));
    if (b->ranks < 2) return b->ops ? bench_ops(&c, b->step.steps, a, out) : OK;
    Bench all = *b;
    int failed = -1;
    all.config = &c;
    all.out = out;
    return comm_threads((int)b->ranks, c.comm_timeout_s, run_rank, &all, &failed);
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
                "GB/s and its share of the machine's own measured roof; then what the roof "
                "leaves\nto gain, op by op.",
        .example = "switchyard bench ops quickstart run.compute=bf16" },
      bench_ops },
    { { .name = "switchyard bench step",
        .arguments = "MODEL [section.key=value ...]",
        .what =
            "Whole training steps on random tokens: tokens/s, spread of step times, MFU by our "
            "count\nand by TorchTitan's, memory, and of a GPU clock, power and what holds it back.",
        .example = "switchyard bench step quickstart --steps 50" },
      NULL },
    { { .name = "switchyard bench ladder",
        .arguments = "MODEL [section.key=value ...]",
        .what = "One table: growing batches, then one feature more a row: tokens/s, memory,\n"
                "launches and waits of the host.",
        .example = "switchyard bench ladder deepseek-v2-lite model.layers=6 run.compute=bf16" },
      bench_ladder },
    { { .name = "switchyard bench shapes",
        .arguments = "[section.key=value ...]",
        .what = "Single ops on the shapes of well-known models, without a model: time, TFLOP/s, "
                "TB/s,\nshare of the measured roof, and the largest error of a sample beside the "
                "CPU.",
        .example = "switchyard bench shapes run.compute=bf16 --only products" },
      NULL },
};

/* argv[0] is the word that chose this bench. */
static Status bench(int argc, char **argv)
{
    int i = 0;
    while (!text_ends(benches[i].command.name, argv[0])) i++;
    Bench b = { .step.steps = 20, .fn = benches[i].fn, .shapes = { .shrink = 1 } };
    BenchShapes *o = &b.shapes;
    const Option of_shapes[] = {
        { "--only", OPTION_CHOICE, &o->group, bench_groups, .help = "a group of ops" },
        { "--seed", OPTION_TEXT, &o->seed, "TEXT",
          .help =
              "instead five MoE shapes drawn from it, a date for example, routed in three ways" },
        { "--shrink", OPTION_INT, &o->shrink, "N", "divide sizes by N", .min = 1, .max = 1e6 },
        { "--json", OPTION_FLAG, &o->json, .help = "a JSON object a line" },
        { "--no-check", OPTION_FLAG, &o->no_check, .help = "nothing runs on the CPU" },
    };
    const Option table[] = {
        { "--steps", OPTION_INT, &b.step.steps, "N", "timed steps", .min = 1, .max = 1e6 },
        { "--ranks", OPTION_INT, &b.ranks, "N", "ranks of this host, one a GPU", .min = 1,
          .max = 1024 },
        { "--timeline", OPTION_TEXT, &b.step.timeline, "FOLDER",
          .help = "record one more step there, for `switchyard viz`: passes over stages or lanes" },
        { "--json", OPTION_FLAG, &b.step.json, .help = "a JSON object" },
        { "--ops", OPTION_FLAG, &b.ops,
          .help =
              "then all that bench ops says of the same model, and what the roof leaves to gain" },
    };
    Command command = benches[i].command;
    command.options = table;
    command.n_options = b.fn == NULL ? sizeof table / sizeof *table : 1;
    b.on_shapes = text_ends(command.name, " shapes");
    if (b.on_shapes) {
        command.options = of_shapes;
        command.n_options = sizeof of_shapes / sizeof *of_shapes;
    }
    command.max_positional = -1;
    return options_run(&command, argc, argv, run, &b);
}

Status cli_bench(int argc, char **argv)
{
    static const Subcommand rows[] = {
        { "ops", "each op of a training step", bench },
        { "step", "whole training steps", bench },
        { "ladder", "what each feature is worth", bench },
        { "shapes", "single ops without a model", bench },
    };
    return options_dispatch("switchyard bench", rows, sizeof rows / sizeof *rows, argc, argv);
}
