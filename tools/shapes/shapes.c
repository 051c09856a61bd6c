/*
 * shapes: `bench shapes`: single ops on the shapes of shapes.def, without a model, so that they
 * compare with other libraries' kernels on the same shapes (tools/bench_peers.py).
 *
 * A row is the median of 20 runs after 5 others (runner.h). Inputs are random. Small inputs exist
 * in several copies; runs alternate between them, so that they are not in a cache. The CPU recomputes a
 * sample of each row's outputs (shapes_check.c).
 */
#include "shapes/shapes.h"

#include "bench/runner.h"
#include "engine/base/file.h"
#include "engine/base/rng.h"
#include "engine/base/scan.h"
#include "engine/step/engine_memory.h"
#include "engine/train/peak.h"
#include "engine/train/train.h"
#include "kernels/core/libraries.h"
#include "kernels/moe/moe.h"
#include "shapes/bench.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WARM_UP = 5, RUNS = 20, SETS_MAX = WARM_UP + RUNS, DRAWN = 5 };

static const double COLD_BYTES = 192e6; /* all sets together: several L2 caches */

typedef enum Routing { EVEN, DIRICHLET, ZIPF } Routing;

static const struct {
    const char *name;
    BenchRouting how;
} routings[] = { { "even", BENCH_EVEN }, { "dirichlet", BENCH_DIRICHLET }, { "zipf", BENCH_ZIPF } };

enum {
    ALL,
    PRODUCTS,
    EIGHT,
    LAYERS,
    ROUTING,
    NORM,
    SWIGLU,
    ROPE,
    ATTENTION,
    CONTEXT,
    DELTA,
    HEAD,
    QUANT,
    ADAMW,
    COPIES,
    LINEAR,
    ELEMENTWISE
};

const char bench_groups[] =
    "all|products|products_8bit|layers|routing|norm|swiglu|rope|attention|"
    "context|delta|head|quant|adamw|adamw_8bit|linear|elementwise"; /* in their order */

typedef struct Shape {
    int group;
    const char *name;
    ShapeSizes s;
    int64_t calls;   /* --list: how often a trace has this call */
    double traced_s; /* --list: how long a call took there */
} Shape;

#define SHAPE(group, name, ...) { group, name, { __VA_ARGS__ }, 0, 0 },
static const Shape shapes[] = {
#include "shapes/shapes.def"
};

/* clang-format off */
#define CALL(op, ...) { OP_##op, { __VA_ARGS__ } }
#define CASE(group, name, sample, prepare, calls, ...)                                             \
    { group, #name, SAMPLE_##sample, prepare, calls, { __VA_ARGS__ } },
/* clang-format on */
static const ShapeCase cases[] = {
#include "shapes/shapes.def"
};

typedef struct Bench {
    const Config *config;
    const BenchShapes *options;
    BenchRunner r;
    Exec counter, cpu;                /* counts memory and cost; recomputes samples */
    Arena count_scratch, cpu_scratch; /* their scratch */
    Arena sample;                     /* tensors of a sample */
    float *pattern;                   /* (SHAPE_PATTERN) random numbers, which fill tensors */
    MeasuredPeak peak;
    Text *out;
} Bench;

typedef struct Row {
    const Shape *shape;
    const ShapeCase *what;
    Routing routing;
    double seconds, least_s, flops, bytes, error;
    bool checked;
} Row;

/* Three executors: the one that is timed, one that only counts, and the CPU that checks. */
static Status open_shapes(Bench *b)
{
    const Config *c = b->config;
    int threads = train_threads(c);
    CpuIsa isa = (CpuIsa)c->run_cpu_isa;
    TRY(bench_runner_open(&b->r, c));
    Arena *tables = &b->r.tables;
    TRY(arena_reserve(&b->sample, "sample", (size_t)4 << 30));
    /* a head of 65,536 tokens takes 1.3 GB */
    TRY(arena_reserve(&b->cpu_scratch, "scratch", (size_t)4 << 30));
    TRY(exec_init(&b->cpu, tables, &b->cpu_scratch, threads, isa));
    TRY(bench_runner_counter(&b->r, &b->count_scratch, &b->counter));
    TRY(ARENA_NEW(tables, SHAPE_PATTERN, &b->pattern));
    rng_fill_normal(b->pattern, SHAPE_PATTERN, 1, rng_stream("bench shapes"), 0, 1);
    return peak_measure(c, threads, true, &b->peak);
}

static void close_shapes(Bench *b)
{
    exec_free(&b->counter);
    exec_free(&b->cpu);
    arena_free(&b->cpu_scratch);
    arena_free(&b->count_scratch);
    arena_free(&b->sample);
    bench_runner_close(&b->r);
}

/* ---- routing ---- */

/* Makes set->routing on the host: the experts of each token, and the order that moe_sort gives. */
static Status make_routing(Bench *b, const Row *row, ShapeSet *set)
{
    MoeSort sort = { .index = { .dtype = DTYPE_I32, .rank = 2, .dim = { set->s.n, set->s.k } } };
    int32_t *index = NULL;
    TRY(bench_experts(routings[row->routing].how,
                      rng_stream(b->options->seed == NULL ? row->shape->name : b->options->seed),
                      set->s.n, set->s.k, set->s.e, &b->r.tables, &index));
    sort.index.data = index;
    TRY(tensor_new2(&b->r.tables, DTYPE_I32, 1, set->s.e + 1, &sort.offsets));
    TRY(tensor_new1(&b->r.tables, DTYPE_I32, set->s.r, &sort.row_token));
    TRY(tensor_new1(&b->r.tables, DTYPE_I32, set->s.r, &sort.row_slot));
    TRY(tensor_new2(&b->r.tables, DTYPE_I32, set->s.n, set->s.k, &sort.slot_row));
    TRY(moe_sort(&b->cpu, sort));
    set->routing[T_INDEX] = index;
    set->routing[T_OFFSETS] = sort.offsets.data;
    set->routing[T_ROW_TOKEN] = sort.row_token.data;
    set->routing[T_ROW_SLOT] = sort.row_slot.data;
    set->routing[T_SLOT_ROW] = sort.slot_row.data;
    return OK;
}

/* ---- a row ---- */

/* Counts the cost of a case and the bytes of its tensors, without running it. The peak of
 * count_scratch is then the scratch that it needs. */
static Status count_case(Bench *b, ShapeSet set, Row *row, size_t *bytes)
{
    Arena counted = { 0 };
    TRY(arena_init(&counted, "count", MEM_COUNT, (size_t)1 << 50));
    set.ex = &b->counter;
    set.arena = &counted;
    b->count_scratch.peak_bytes = 0;
    TRY(shape_set_make(&set));
    TRY(shape_set_run(&set, 0, set.what->calls));
    for (int i = set.what->prepare; i < set.what->calls; i++) {
        OpCost cost = op_desc(set.what->call[i].op)->cost(set.args[i]);
        row->flops += cost.flops;
        row->bytes += cost.bytes;
        row->least_s += fmax(cost.flops / b->peak.flops, cost.bytes / b->peak.bytes);
    }
    *bytes = counted.peak_bytes;
    return OK;
}

typedef struct Sets {
    ShapeSet *at;
    int n;
} Sets;

/* Run i uses set i mod n. */
static Status run_timed(void *state, int64_t i)
{
    const Sets *sets = state;
    const ShapeCase *what = sets->at->what;
    return shape_set_run(&sets->at[i % sets->n], what->prepare, what->calls);
}

/* Every set runs its preparing calls once, before the loop. Kernels are chosen (tuned) on the
 * first. */
static Status time_runs(Bench *b, Sets *sets, double *out)
{
    Exec *ex = &b->r.ex;
    const BenchLoop loop = { .call = run_timed, .state = sets, .warm_up = WARM_UP, .runs = RUNS };
    TRY(exec_tune(ex, true));
    TRY(shape_set_run(sets->at, 0, sets->at->what->calls));
    TRY(exec_tune(ex, false));
    for (int i = 0; i < sets->n; i++) TRY(shape_set_run(&sets->at[i], 0, sets->at->what->prepare));
    return bench_runner_time(&b->r, &loop, out);
}

/* Every set has tensors of its own; the check looks at the first. */
static Status time_and_check(Bench *b, const ShapeSet *like, int n, Row *row)
{
    Sets sets = { .n = n };
    TRY(ARENA_NEW(&b->r.tables, n, &sets.at));
    for (int i = 0; i < n; i++) {
        sets.at[i] = *like;
        TRY(shape_set_make(&sets.at[i]));
    }
    TRY(time_runs(b, &sets, &row->seconds));
    row->error = (double)NAN;
    row->checked = !b->options->no_check && row->what->sample != SAMPLE_NONE;
    if (!row->checked) return OK;
    return shape_check(sets.at, &b->cpu, &b->sample, &row->error);
}

/* Limits of the relative error; a NaN is wrong. */
static const char *verdict(const Bench *b, const Row *r)
{
    if (!r->checked) return "unchecked";
    const Config *c = b->config;
    /* a code of e4m3 is off by up to 1/16 */
    double limit = c->fp8_attention ? 6.25e-2 : c->run_compute == COMPUTE_F32 ? 1e-4 : 2e-2;
    return r->error <= limit ? "right" : "WRONG";
}

/* rows: the number of rows of each expert, from which a peer library can rebuild the routing. */
static Status print_json(const Bench *b, const Row *r, const ShapeSet *set)
{
    ShapeSizes s = set->s;
    const int32_t *offsets = set->routing[T_OFFSETS];
    int length = 0;
    const char *group = text_word(bench_groups, r->what->group, &length);
    TRY(text_json(b->out, "{\"kind\":\"row\",\"group\":%.*s,\"shape\":%s,\"routing\":%s,\"op\":%s",
                  length, group, r->shape->name, routings[r->routing].name, r->what->name));
    TRY(text_json(b->out, ",\"seconds\":%g,\"flops\":%g,\"bytes\":%g,\"share\":%g", r->seconds,
                  r->flops, r->bytes, r->least_s / r->seconds));
    TRY(text_json(b->out, ",\"error\":%g,\"verdict\":%s", r->error, verdict(b, r)));
    for (int i = 0; i < SHAPE_LETTERS; i++)
        TRY(text_json(b->out, ",\"%c\":%lld", shape_letters[i], (long long)*shape_size(&s, i)));
    TRY(text_json(b->out, ",\"window\":%lld,\"tokens\":%lld,\"shared\":%lld,\"rows\":[",
                  (long long)s.window, (long long)s.tokens, (long long)s.shared));
    for (int64_t e = 0; offsets != NULL && e < s.e; e++)
        TRY(text_json(b->out, e == 0 ? "%d" : ",%d", offsets[e + 1] - offsets[e]));
    if (b->options->list != NULL)
        TRY(text_json(b->out, "],\"count\":%lld,\"traced_s\":%g", (long long)r->shape->calls,
                      r->shape->traced_s));
    return text_json(b->out, b->options->list != NULL ? "}\n" : "]}\n");
}

/* One line: op, shape, routing, us, TFLOP/s, TB/s, share of the peak, error, verdict. */
static Status print_text(const Bench *b, const Row *r)
{
    double s = r->seconds;
    TRY(text_printf(b->out, "%-14s %-24s %-9s %10.1f %8.1f %8.3f %7.1f %8.1e %s", r->what->name,
                    r->shape->name, routings[r->routing].name, s * 1e6, r->flops / s / 1e12,
                    r->bytes / s / 1e12, 100 * r->least_s / s, r->error, verdict(b, r)));
    if (b->options->list != NULL)
        TRY(text_printf(b->out, ", traced %lld x %.1f us", (long long)r->shape->calls,
                        r->shape->traced_s * 1e6));
    return text_printf(b->out, "\n");
}

/* Counts a case, allocates as many sets of its tensors as make caches cold, times and prints it. */
static Status run_row(Bench *b, Row *row)
{
    ArenaMark mark = arena_mark(&b->r.tables);
    ShapeSet set = { .arena = &b->r.block,
                     .ex = &b->r.ex,
                     .tables = &b->r.tables,
                     .config = b->config,
                     .what = row->what,
                     .s = row->shape->s,
                     .pattern = b->pattern };
    size_t bytes = 0;
    if (set.s.k > 0) TRY(make_routing(b, row, &set));
    TRY(count_case(b, set, row, &bytes));
    double fit = ceil(COLD_BYTES / (double)bytes);
    int n = fit < SETS_MAX ? (int)fit : SETS_MAX;
    Status s = bench_runner_alloc(&b->r, (size_t)n * bytes, b->count_scratch.peak_bytes);
    if (s == OK) s = time_and_check(b, &set, n, row);
    bench_runner_release(&b->r);
    if (s == OK) s = b->options->json ? print_json(b, row, &set) : print_text(b, row);
    arena_release(&b->r.tables, mark);
    return s;
}

/* Divides sizes, rounded down to what kernels need, at least one such unit. */
static void shrink_sizes(ShapeSizes *s, int64_t by)
{
    const struct {
        int64_t *size, step;
    } row[] = { { &s->n, 16 },    { &s->d, 48 }, { &s->f, s->k > 0 ? OPERAND_BLOCK : 16 },
                { &s->e, 8 },     { &s->t, 64 }, { &s->h, 2 },
                { &s->tokens, 8 } };
    for (size_t i = 0; i < sizeof row / sizeof *row && by > 1; i++) {
        int64_t n = *row[i].size / by / row[i].step * row[i].step;
        if (*row[i].size > 0) *row[i].size = n > row[i].step ? n : row[i].step;
    }
    if (s->k > s->e / 2) s->k = s->e / 2;
    if (s->shared > 0) s->n = s->b * s->t;
}

/* The weights of eight experts, 25 to 400 M, bring an update to its full rate. The CPU that checks it would take a
 * minute for those of a whole layer. */
enum { COPIES_EXPERTS = 8 };

/* Runs the cases of a shape's group. Most run with even routing, products also with a skewed one,
 * drawn shapes with all three. A products shape serves the groups of 8 bits, of layers and of
 * copies, too. */
static Status run_shape(Bench *b, Shape shape)
{
    const BenchShapes *o = b->options;
    shrink_sizes(&shape.s, o->shrink);
    shape.s.r = shape.s.n * shape.s.k;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int of = cases[i].group, last = of == PRODUCTS || of == EIGHT ? DIRICHLET : EVEN;
        bool serves = shape.group == PRODUCTS && (of == LAYERS || of == EIGHT || of == COPIES);
        if (of != shape.group && !serves) continue;
        if (o->group != ALL && o->group != of) continue;
        /* 8-bit results have whole blocks of columns */
        if (strstr(cases[i].name, "narrow") != NULL && shape.s.f % OPERAND_BLOCK != 0) continue;
        if (o->seed != NULL) last = ZIPF;
        Shape own = shape;
        if (of == COPIES && own.s.e > COPIES_EXPERTS) own.s.e = COPIES_EXPERTS;
        for (int r = EVEN; r <= last; r++)
            TRY(run_row(b, &(Row){ .shape = &own, .what = &cases[i], .routing = (Routing)r }));
    }
    return OK;
}

/* Draws a shape from a seed that the user makes up, so that no kernel can have been tuned for
 * it. */
static Shape draw_shape(const char *seed, int nth, char name[32])
{
    uint64_t stream = rng_stream(seed), at = (uint64_t)nth * 8;
    ShapeSizes s = { .n = 256 * (16 + (int64_t)rng_below(4, stream, at, 49)),
                     .d = 128 * (8 + (int64_t)rng_below(4, stream, at + 1, 57)),
                     .f = 64 * (4 + (int64_t)rng_below(4, stream, at + 2, 45)),
                     .e = 8 + (int64_t)rng_below(4, stream, at + 3, 153) };
    while (s.e * s.d * s.f > 1000000000) s.e -= s.e / 4;
    s.k = 1 + (int64_t)rng_below(4, stream, at + 4, s.e < 16 ? (uint64_t)s.e / 2 : 8);
    (void)snprintf(name, 32, "drawn %d", nth + 1);
    return (Shape){ PRODUCTS, name, s, 0, 0 };
}

/* ---- --list ---- */

/* The first case of that name: later ones of the same name need sizes that a list cannot give. */
static const ShapeCase *find_case(const char *op)
{
    for (size_t i = 0; op != NULL && i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(cases[i].name, op) == 0) return &cases[i];
    }
    return NULL;
}

/* Reads a line of a list: an object with the op, the shape's name and its sizes, as --json
 * prints. */
static Status read_list_line(const char *path, char *line, int64_t nth, Shape *shape,
                             const ShapeCase **what)
{
    struct {
        char *op;
        Shape shape;
    } row = { .shape.calls = 1 };
    /* clang-format off */
#define AT(member)   offsetof(__typeof__(row), member)
#define SIZE(letter) { #letter, SCAN_WHOLE, AT(shape.s.letter) }
    const ScanField fields[] = {
        { "op", SCAN_TEXT, AT(op) }, { "shape", SCAN_TEXT, AT(shape.name) },
        { "count", SCAN_WHOLE, AT(shape.calls) }, { "traced_s", SCAN_NUMBER, AT(shape.traced_s) },
        SIZE(n), SIZE(d), SIZE(f), SIZE(e), SIZE(k), SIZE(b), SIZE(t), SIZE(h),
    };
#undef AT
#undef SIZE
    /* clang-format on */
    Scan scan = scan_begin(line);
    scan_fields(&scan, fields, sizeof fields / sizeof *fields, &row);
    if (!scan_end(&scan))
        return FAIL(ERR_FORMAT, "%s line %lld is not a JSON object", path, (long long)nth);
    *what = find_case(row.op);
    if (*what == NULL)
        return FAIL(ERR_ARG, "%s line %lld: bench shapes has no op %s", path, (long long)nth,
                    row.op == NULL ? "\"\"" : row.op);
    *shape = row.shape;
    shape->group = (*what)->group;
    if (shape->name == NULL) shape->name = row.op;
    for (int i = 0; i < SHAPE_LETTERS; i++) {
        int64_t size = *shape_size(&shape->s, i);
        if (size < 0 || size > INT64_C(1) << 40)
            return FAIL(ERR_ARG, "%s line %lld: a size is %lld, not 0 to 2^40", path,
                        (long long)nth, (long long)size);
    }
    return OK;
}

/* A list comes from a trace, so a call that cannot run names its line. */
static Status run_list_line(Bench *b, char *line, int64_t nth)
{
    const char *path = b->options->list;
    const ShapeCase *what = NULL;
    Shape shape;
    char why[512];
    TRY(read_list_line(path, line, nth, &shape, &what));
    if (b->options->group != ALL && b->options->group != what->group) return OK;
    shrink_sizes(&shape.s, b->options->shrink);
    shape.s.r = shape.s.n * shape.s.k;
    Status s = run_row(b, &(Row){ .shape = &shape, .what = what, .routing = EVEN });
    if (s != ERR_SHAPE && s != ERR_ARG) return s;
    status_sentence(why, sizeof why);
    return FAIL(s, "%s line %lld: %s cannot run: %s", path, (long long)nth, what->name, why);
}

/* Empty lines are skipped. Lines are cut in place. */
static Status run_list(Bench *b)
{
    char *text = NULL;
    size_t bytes = 0;
    int64_t nth = 1;
    ArenaMark mark = arena_mark(&b->r.tables);
    TRY(file_read_input(b->options->list, &b->r.tables, &text, &bytes));
    for (char *line = text, *end; line < text + bytes; line = end + 1, nth++) {
        end = line + strcspn(line, "\n");
        *end = 0;
        if (*line != 0) TRY(run_list_line(b, line, nth));
    }
    arena_release(&b->r.tables, mark);
    return OK;
}

/* The peak is printed first, because every share below is relative to it. */
static Status run_all(Bench *b)
{
    char machine[GPU_NAME_MAX], name[32];
    const char *type = dtype_name(config_type(b->config));
    TRY(bench_machine(b->config, machine));
    if (b->options->json)
        TRY(text_json(
            b->out, "{\"kind\":\"machine\",\"name\":%s,\"compute\":%s,\"flops\":%g,\"bytes\":%g}\n",
            machine, type, b->peak.flops, b->peak.bytes));
    else
        TRY(text_printf(b->out,
                        "%s, %s; measured peak: %.3f TFLOP/s (large product), %.3f TB/s (copy)\n"
                        "%-14s %-24s %-9s %10s %8s %8s %7s %8s\n",
                        machine, type, b->peak.flops / 1e12, b->peak.bytes / 1e12, "op", "shape",
                        "routing", "us", "TFLOP/s", "TB/s", "peak %", "error"));
    if (b->options->list != NULL) return run_list(b);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes && b->options->seed == NULL; i++)
        TRY(run_shape(b, shapes[i]));
    for (int i = 0; i < DRAWN && b->options->seed != NULL; i++)
        TRY(run_shape(b, draw_shape(b->options->seed, i, name)));
    return OK;
}

Status bench_shapes(const Config *c, const BenchShapes *options, Text *out)
{
    Bench b = { .config = c, .options = options, .out = out };
    int only = options->group;
    if (options->seed != NULL && only != ALL && only != PRODUCTS && only != LAYERS)
        return FAIL(ERR_ARG,
                    "bench shapes: --seed draws shapes of products and layers alone: leave "
                    "out --seed, or take another --only");
    Status s = open_shapes(&b);
    if (s == OK) s = run_all(&b);
    close_shapes(&b);
    return s;
}
