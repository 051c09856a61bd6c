/* bench shapes: single ops on the shapes of shapes.def, without a model, so that they can be timed
 * beside others' kernels on the same shapes (tools/bench_peers.py).
 *
 * A row is the median of 20 runs after 5, each between two marks in the stream, which stands still
 * at first until the host is ahead. Inputs are random. Where they are small there are as many sets as
 * make a cache useless. The CPU runs a sample of each row's outputs again. */
#include "bench/shapes.h"

#include "base/file.h"
#include "base/rng.h"
#include "base/scan.h"
#include "bench/bench.h"
#include "train/engine_memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WARM_UP = 5, RUNS = 20, SETS_MAX = WARM_UP + RUNS, DRAWN = 5 };

static const double COLD_BYTES = 192e6, DELAY_S = 0.02;

typedef enum Routing { EVEN, DIRICHLET, ZIPF } Routing;

static const char *const routing_names[] = { "even", "dirichlet", "zipf" };

enum {
    ALL,
    PRODUCTS,
    LAYERS,
    ROUTING,
    NORM,
    SWIGLU,
    ROPE,
    ATTENTION,
    CONTEXT,
    HEAD,
    QUANT,
    ADAMW,
    LINEAR,
    ELEMENTWISE
};

const char bench_groups[] = "all|products|layers|routing|norm|swiglu|rope|attention|context|head|"
                            "quant|adamw|linear|elementwise"; /* in their order */

typedef struct Shape {
    int group;
    const char *name;
    ShapeSizes s;
    int64_t calls;   /* of a list: how often a trace has it */
    double traced_s; /* and how long a call took there */
} Shape;

#define SHAPE(group, name, ...) { group, name, { __VA_ARGS__ }, 0, 0 },
static const Shape shapes[] = {
#include "bench/shapes.def"
};

/* clang-format off */
#define CALL(op, ...) { OP_##op, { __VA_ARGS__ } }
#define CASE(group, name, sample, prepare, calls, ...)                                             \
    { group, #name, SAMPLE_##sample, prepare, calls, { __VA_ARGS__ } },
/* clang-format on */
static const ShapeCase cases[] = {
#include "bench/shapes.def"
};

typedef struct Bench {
    const Config *config;
    const BenchShapes *options;
    Exec ex, counter, cpu;
    Arena tables, sample, scratch, count_scratch, cpu_scratch; /* the last three: of these */
    Event mark[2 * RUNS];
    float *pattern;
    Roof roof;
    Text *out;
} Bench;

typedef struct Row {
    const Shape *shape;
    const ShapeCase *what;
    Routing routing;
    double seconds, least_s, flops, bytes, error;
    bool checked;
} Row;

static Status bench_start(Bench *b)
{
    const Config *c = b->config;
    bool gpu = engine_wants_gpu(c);
    int threads = train_threads(c);
    CpuIsa isa = (CpuIsa)c->run_cpu_isa;
    TRY(arena_init(&b->tables, "tables", MEM_HOST, (size_t)1 << 30));
    TRY(arena_init(&b->sample, "sample", MEM_HOST, (size_t)4 << 30));
    TRY(arena_init(&b->cpu_scratch, "scratch", MEM_HOST, (size_t)1 << 30));
    TRY(arena_init(&b->count_scratch, "count", MEM_COUNT, (size_t)1 << 50));
    TRY(exec_init(&b->cpu, &b->tables, &b->cpu_scratch, threads, isa));
    TRY(gpu ? cuda_exec_init(&b->ex, (int)c->run_gpu, &b->tables, &b->scratch)
            : exec_init(&b->ex, &b->tables, &b->scratch, threads, isa));
    TRY(gpu ? cuda_exec_count(&b->counter, &b->tables, &b->count_scratch)
            : exec_init(&b->counter, &b->tables, &b->count_scratch, threads, isa));
    if (!gpu) b->counter.backend = &backend_count;
    for (int i = 0; i < 2 * RUNS; i++)
        TRY(b->ex.backend->streams->event_new(&b->ex, true, &b->mark[i]));
    TRY(ARENA_NEW(&b->tables, SHAPE_PATTERN, &b->pattern));
    rng_fill_normal(b->pattern, SHAPE_PATTERN, 1, rng_stream("bench shapes"), 0, 1);
    return peak_measure(c, threads, true, &b->roof);
}

static void bench_stop(Bench *b)
{
    exec_free(&b->ex);
    exec_free(&b->counter);
    exec_free(&b->cpu);
    arena_free(&b->cpu_scratch);
    arena_free(&b->count_scratch);
    arena_free(&b->sample);
    arena_free(&b->tables);
}

/* ---- routing ---- */

/* The experts of each token, (n, k). Even: as many tokens for each expert, in no order. */
static Status draw_index(const Shape *shape, Routing routing, const char *seed, Arena *a,
                         int32_t **index)
{
    int64_t n = shape->s.n, k = shape->s.k, e = shape->s.e;
    uint64_t stream = rng_stream(seed == NULL ? shape->name : seed), drawn = 0;
    double *sums = NULL, sum = 0;
    TRY(ARENA_NEW(a, n * k, index));
    TRY(ARENA_NEW(a, e, &sums));
    for (int64_t i = 0; i < e; i++) {
        double one = -log(1 - rng_uniform(2, stream, (uint64_t)i)); /* Dirichlet(1) over its sum */
        sum += routing == ZIPF ? 1 / (double)(i + 1) : one;
        sums[i] = sum;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t first = (int64_t)rng_permute(3, stream, (uint64_t)i, (uint64_t)n) * k;
        if (routing != EVEN) bench_draw(*index + i * k, k, sums, e, stream, &drawn);
        for (int64_t j = 0; j < k && routing == EVEN; j++)
            (*index)[i * k + j] = (int32_t)((first + j) % e);
    }
    return OK;
}

/* set->routing: the index and what a sort makes of it, on the host. */
static Status make_routing(Bench *b, const Row *row, ShapeSet *set)
{
    MoeSort sort = { .index = { .dtype = DTYPE_I32, .rank = 2, .dim = { set->s.n, set->s.k } } };
    int32_t *index = NULL;
    TRY(draw_index(row->shape, row->routing, b->options->seed, &b->tables, &index));
    sort.index.data = index;
    TRY(tensor_new2(&b->tables, DTYPE_I32, 1, set->s.e + 1, &sort.offsets));
    TRY(tensor_new1(&b->tables, DTYPE_I32, set->s.r, &sort.row_token));
    TRY(tensor_new1(&b->tables, DTYPE_I32, set->s.r, &sort.row_slot));
    TRY(tensor_new2(&b->tables, DTYPE_I32, set->s.n, set->s.k, &sort.slot_row));
    TRY(moe_sort(&b->cpu, sort));
    set->routing[T_INDEX] = index;
    set->routing[T_OFFSETS] = sort.offsets.data;
    set->routing[T_ROW_TOKEN] = sort.row_token.data;
    set->routing[T_ROW_SLOT] = sort.row_slot.data;
    set->routing[T_SLOT_ROW] = sort.slot_row.data;
    return OK;
}

/* ---- a row ---- */

/* What a case costs, and the bytes of its tensors; its scratch is count_scratch's peak. */
static Status count(Bench *b, ShapeSet set, Row *row, size_t *bytes)
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
        row->least_s += fmax(cost.flops / b->roof.flops, cost.bytes / b->roof.bytes);
    }
    *bytes = counted.peak_bytes;
    return OK;
}

/* The median of the runs, on the sets in turn. */
static Status time_runs(Bench *b, const ShapeSet *sets, int n, double *out)
{
    const Streams *streams = b->ex.backend->streams;
    const ShapeCase *what = sets->what;
    double seconds[RUNS];
    TRY(b->ex.backend->device->tune(&b->ex, true));
    TRY(shape_set_run(sets, 0, what->calls));
    TRY(b->ex.backend->device->tune(&b->ex, false));
    for (int i = 0; i < n; i++) TRY(shape_set_run(&sets[i], 0, what->prepare));
    for (int i = 0; i < WARM_UP; i++) TRY(shape_set_run(&sets[i % n], what->prepare, what->calls));
    TRY(b->ex.backend->sync(&b->ex));
    TRY(streams->delay(&b->ex, DELAY_S));
    for (int64_t i = 0; i < RUNS; i++) {
        TRY(streams->record(&b->ex, &b->mark[2 * i], NULL));
        TRY(shape_set_run(&sets[(WARM_UP + i) % n], what->prepare, what->calls));
        TRY(streams->record(&b->ex, &b->mark[2 * i + 1], NULL));
    }
    TRY(b->ex.backend->sync(&b->ex));
    for (int64_t i = 0; i < RUNS; i++)
        TRY(streams->elapsed_s(&b->ex, &b->mark[2 * i], &b->mark[2 * i + 1], &seconds[i]));
    bench_sort(seconds, RUNS);
    *out = (seconds[RUNS / 2 - 1] + seconds[RUNS / 2]) / 2;
    return OK;
}

static Status measure(Bench *b, const ShapeSet *like, int n, Row *row)
{
    ShapeSet *sets = NULL;
    TRY(ARENA_NEW(&b->tables, n, &sets));
    for (int i = 0; i < n; i++) {
        sets[i] = *like;
        TRY(shape_set_make(&sets[i]));
    }
    TRY(time_runs(b, sets, n, &row->seconds));
    row->error = (double)NAN;
    row->checked = !b->options->no_check && row->what->sample != SAMPLE_NONE;
    if (!row->checked) return OK;
    return shape_check(sets, &b->cpu, &b->sample, &row->error);
}

static const char *verdict(const Bench *b, const Row *r)
{
    if (!r->checked) return "unchecked";
    return r->error <= (b->config->run_compute == COMPUTE_BF16 ? 2e-2 : 1e-4) ? "right" : "WRONG";
}

static Status print_json(const Bench *b, const Row *r, const ShapeSet *set)
{
    const ShapeSizes *s = &set->s;
    const long long size[] = { s->n, s->d, s->f, s->e, s->k, s->b, s->t, s->h };
    const int32_t *offsets = set->routing[T_OFFSETS];
    int length = 0;
    const char *group = text_word(bench_groups, r->what->group, &length);
    TRY(text_json(b->out, "{\"kind\":\"row\",\"group\":%.*s,\"shape\":%s,\"routing\":%s,\"op\":%s",
                  length, group, r->shape->name, routing_names[r->routing], r->what->name));
    TRY(text_json(b->out, ",\"seconds\":%g,\"flops\":%g,\"bytes\":%g,\"share\":%g", r->seconds,
                  r->flops, r->bytes, r->least_s / r->seconds));
    TRY(text_json(b->out, ",\"error\":%g,\"verdict\":%s", r->error, verdict(b, r)));
    for (size_t i = 0; i < sizeof size / sizeof *size; i++)
        TRY(text_json(b->out, ",\"%c\":%lld", "ndfekbth"[i], size[i]));
    TRY(text_json(b->out, ",\"rows\":["));
    for (int64_t e = 0; offsets != NULL && e < s->e; e++)
        TRY(text_json(b->out, e == 0 ? "%d" : ",%d", offsets[e + 1] - offsets[e]));
    if (b->options->list != NULL)
        TRY(text_json(b->out, "],\"count\":%lld,\"traced_s\":%g", (long long)r->shape->calls,
                      r->shape->traced_s));
    return text_json(b->out, b->options->list != NULL ? "}\n" : "]}\n");
}

static Status print_text(const Bench *b, const Row *r)
{
    double s = r->seconds;
    TRY(text_printf(b->out, "%-14s %-24s %-9s %10.1f %8.1f %8.3f %7.1f %8.1e %s", r->what->name,
                    r->shape->name, routing_names[r->routing], s * 1e6, r->flops / s / 1e12,
                    r->bytes / s / 1e12, 100 * r->least_s / s, r->error, verdict(b, r)));
    if (b->options->list != NULL)
        TRY(text_printf(b->out, ", traced %lld x %.1f us", (long long)r->shape->calls,
                        r->shape->traced_s * 1e6));
    return text_printf(b->out, "\n");
}

static Status run_row(Bench *b, Row *row)
{
    ArenaMark mark = arena_mark(&b->tables);
    Arena block = { 0 };
    ShapeSet set = { .arena = &block,
                     .ex = &b->ex,
                     .tables = &b->tables,
                     .config = b->config,
                     .what = row->what,
                     .s = row->shape->s,
                     .pattern = b->pattern };
    size_t bytes = 0;
    if (set.s.k > 0) TRY(make_routing(b, row, &set));
    TRY(count(b, set, row, &bytes));
    double fit = ceil(COLD_BYTES / (double)bytes);
    int n = fit < SETS_MAX ? (int)fit : SETS_MAX;
    Status s = bench_take(&b->ex, &block, "tensors", (size_t)n * bytes);
    if (s == OK) s = bench_take(&b->ex, &b->scratch, "scratch", b->count_scratch.peak_bytes);
    if (s == OK) s = measure(b, &set, n, row);
    bench_give(&b->ex, &block);
    bench_give(&b->ex, &b->scratch);
    if (s == OK) s = b->options->json ? print_json(b, row, &set) : print_text(b, row);
    arena_release(&b->tables, mark);
    return s;
}

static void shrink(ShapeSizes *s, int64_t by)
{
    const struct {
        int64_t *size, step;
    } row[] = { { &s->n, 16 }, { &s->d, 48 }, { &s->f, 16 },
                { &s->e, 8 },  { &s->t, 64 }, { &s->h, 2 } };
    for (size_t i = 0; i < sizeof row / sizeof *row && by > 1; i++) {
        int64_t n = *row[i].size / by / row[i].step * row[i].step;
        if (*row[i].size > 0) *row[i].size = n > row[i].step ? n : row[i].step;
    }
    if (s->k > s->e / 2) s->k = s->e / 2;
}

/* Tables are run with even routing, products with a skewed one, too; drawn shapes with all. */
static Status run_shape(Bench *b, Shape shape)
{
    const BenchShapes *o = b->options;
    shrink(&shape.s, o->shrink);
    shape.s.r = shape.s.n * shape.s.k;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int of = cases[i].group, last = of == PRODUCTS ? DIRICHLET : EVEN;
        if (of != shape.group && !(of == LAYERS && shape.group == PRODUCTS)) continue;
        if (o->group != ALL && o->group != of) continue;
        if (o->seed != NULL) last = ZIPF;
        for (int r = EVEN; r <= last; r++)
            TRY(run_row(b, &(Row){ .shape = &shape, .what = &cases[i], .routing = (Routing)r }));
    }
    return OK;
}

/* A shape of one's own date, so that nobody can have tuned for it. */
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

/* ---- a list ---- */

typedef struct ListRow {
    char *op, *name;
    ShapeSizes s;
    int64_t calls;
    double traced_s;
} ListRow;

/* The first case of that name: later ones of the same name need more sizes than a list has. */
static const ShapeCase *find_case(const char *op)
{
    for (size_t i = 0; op != NULL && i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(cases[i].name, op) == 0) return &cases[i];
    }
    return NULL;
}

/* A line of a list: an object with the op, the shape's name and sizes, as --json prints them. */
static Status run_line(Bench *b, char *line, int64_t nth)
{
#define SIZE(x)                                                                                    \
    {                                                                                              \
#x, SCAN_WHOLE, offsetof(ListRow, s.x)                                                     \
    }
    static const ScanField fields[] = {
        { "op", SCAN_TEXT, offsetof(ListRow, op) },
        { "shape", SCAN_TEXT, offsetof(ListRow, name) },
        { "count", SCAN_WHOLE, offsetof(ListRow, calls) },
        { "traced_s", SCAN_NUMBER, offsetof(ListRow, traced_s) },
        SIZE(n),
        SIZE(d),
        SIZE(f),
        SIZE(e),
        SIZE(k),
        SIZE(b),
        SIZE(t),
        SIZE(h),
    };
#undef SIZE
    const char *path = b->options->list;
    char why[512];
    ListRow row = { .calls = 1 };
    Scan scan = scan_begin(line);
    scan_fields(&scan, fields, sizeof fields / sizeof *fields, &row);
    if (!scan_end(&scan))
        return FAIL(ERR_FORMAT, "%s line %lld is no JSON object", path, (long long)nth);
    const ShapeCase *what = find_case(row.op);
    if (what == NULL)
        return FAIL(ERR_ARG, "%s line %lld: bench shapes has no op %s", path, (long long)nth,
                    row.op == NULL ? "\"\"" : row.op);
    Shape shape = { what->group, row.name == NULL ? row.op : row.name, row.s, row.calls,
                    row.traced_s };
    int64_t size[] = { row.s.n, row.s.d, row.s.f, row.s.e, row.s.k, row.s.b, row.s.t, row.s.h };
    for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
        if (size[i] < 0 || size[i] > INT64_C(1) << 40)
            return FAIL(ERR_ARG, "%s line %lld: a size is %lld, not 0 to 2^40", path,
                        (long long)nth, (long long)size[i]);
    }
    if (b->options->group != ALL && b->options->group != what->group) return OK;
    shrink(&shape.s, b->options->shrink);
    shape.s.r = shape.s.n * shape.s.k;
    Status s = run_row(b, &(Row){ .shape = &shape, .what = what, .routing = EVEN });
    if (s != ERR_SHAPE && s != ERR_ARG) return s;
    status_sentence(why, sizeof why);
    return FAIL(s, "%s line %lld: %s cannot run: %s", path, (long long)nth, what->name, why);
}

static Status run_list(Bench *b)
{
    char *text = NULL;
    size_t bytes = 0;
    int64_t nth = 1;
    ArenaMark mark = arena_mark(&b->tables);
    TRY(file_read_input(b->options->list, &b->tables, &text, &bytes));
    for (char *line = text, *end; line < text + bytes; line = end + 1, nth++) {
        end = line + strcspn(line, "\n");
        *end = 0;
        if (*line != 0) TRY(run_line(b, line, nth));
    }
    arena_release(&b->tables, mark);
    return OK;
}

static Status run_all(Bench *b)
{
    char machine[CUDA_NAME_MAX], name[32];
    const char *type = b->config->run_compute == COMPUTE_BF16 ? "bf16" : "f32";
    TRY(bench_machine(b->config, machine));
    if (b->options->json)
        TRY(text_json(
            b->out, "{\"kind\":\"machine\",\"name\":%s,\"compute\":%s,\"flops\":%g,\"bytes\":%g}\n",
            machine, type, b->roof.flops, b->roof.bytes));
    else
        TRY(text_printf(b->out,
                        "%s, %s; measured peak: %.3f TFLOP/s (large product), %.3f TB/s (copy)\n"
                        "%-14s %-24s %-9s %10s %8s %8s %7s %8s\n",
                        machine, type, b->roof.flops / 1e12, b->roof.bytes / 1e12, "op", "shape",
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
    Status s = bench_start(&b);
    if (s == OK) s = run_all(&b);
    bench_stop(&b);
    return s;
}
