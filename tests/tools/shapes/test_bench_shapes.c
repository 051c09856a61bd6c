/* bench shapes on the CPU with small sizes: every row runs and is right, a wrong one is seen, and
 * drawn shapes and routings are what they are called. */
#include "harness/json_lines.h"

#include "engine/base/rng.h"
#include "engine/train/peak.h"
#include "shapes/bench.h"
#include "shapes/shapes.h"

#include <unistd.h>

enum { LINES_MAX = 512, EXPERTS_MAX = 256, SHRINK = 1024 };

/* The linker takes these in place of engine/train/peak.c: measuring takes longer than all rows. */
Status peak_measure(const Config *c, int threads, bool with_copy, MeasuredPeak *out)
{
    (void)c, (void)threads;
    *out = (MeasuredPeak){ 2e9, with_copy ? 1e9 : 0 };
    return OK;
}

Status peak_plan(const Config *c, int threads, size_t *out_bytes)
{
    (void)c, (void)threads;
    *out_bytes = 0;
    return OK;
}

typedef struct Line {
    char *kind, *group, *op, *shape, *routing, *verdict, *rows;
    double error, seconds, flops, bytes, share, n, d, f, e, k;
} Line;

static const ScanField fields[] = {
    FIELD(kind, SCAN_TEXT),    FIELD(group, SCAN_TEXT),   FIELD(op, SCAN_TEXT),
    FIELD(shape, SCAN_TEXT),   FIELD(routing, SCAN_TEXT), FIELD(verdict, SCAN_TEXT),
    FIELD(rows, SCAN_RAW),     FIELD(error, SCAN_NUMBER), FIELD(seconds, SCAN_NUMBER),
    FIELD(flops, SCAN_NUMBER), FIELD(bytes, SCAN_NUMBER), FIELD(share, SCAN_NUMBER),
    FIELD(n, SCAN_NUMBER),     FIELD(d, SCAN_NUMBER),     FIELD(f, SCAN_NUMBER),
    FIELD(e, SCAN_NUMBER),     FIELD(k, SCAN_NUMBER),
};

typedef struct Report {
    Arena arena;
    Config config;
    Text out;
    Line line[LINES_MAX];
    int n;
} Report;

static Report report; /* large */

static void open_report(const char *setting)
{
    report = (Report){ 0 };
    CHECK_OK(arena_init(&report.arena, "test", MEM_HOST, (size_t)1 << 29));
    CHECK_OK(config_default(&report.config, &report.arena));
    CHECK_OK(config_override(&report.config, &report.arena, "run.device=cpu"));
    CHECK_OK(config_override(&report.config, &report.arena, "run.threads=1"));
    if (setting != NULL) CHECK_OK(config_override(&report.config, &report.arena, setting));
    CHECK_OK(text_init(&report.out, &report.arena));
}

static void run(BenchShapes options, const char *setting)
{
    open_report(setting);
    CHECK_OK(bench_shapes(&report.config, &options, &report.out));
    if (!options.json) return;
    report.n = json_lines(report.out.data, fields, sizeof fields / sizeof *fields, report.line,
                          sizeof *report.line, LINES_MAX);
}

static void close_report(void) { arena_free(&report.arena); }

static int count_op(const char *op)
{
    int n = 0;
    for (int i = 1; i < report.n; i++) n += strcmp(report.line[i].op, op) == 0;
    return n;
}

/* How many rows the experts have. */
static int experts_of(const Line *l, double rows[EXPERTS_MAX], double *sum)
{
    int n = 0;
    Scan scan = scan_inside(l->rows);
    *sum = 0;
    while (scan_item(&scan)) {
        rows[n] = scan_number(&scan);
        *sum += rows[n++];
    }
    return n;
}

/* Variance of the experts' rows over their squared mean. */
static double unevenness(const Line *l)
{
    double rows[EXPERTS_MAX], sum, squares = 0;
    int n = experts_of(l, rows, &sum);
    for (int i = 0; i < n; i++) squares += pow(rows[i] * n / sum - 1, 2);
    return squares / n;
}

/* Inputs that a cost of zero, a clock that stands still or a missing output would betray. */
static void check_line(const Line *l)
{
    double rows[EXPERTS_MAX], sum;
    /* A sample of experts does not check layers, nor 8-bit columns of all experts; tokens no recurrence. */
    bool whole = strcmp(l->group, "layers") == 0 || strcmp(l->op, "wgrad1_8bit") == 0 ||
                 strcmp(l->op, "wgrad2_8bit") == 0 || strstr(l->op, "narrow") != NULL ||
                 strstr(l->op, "apart") != NULL || strncmp(l->op, "delta_rule", 10) == 0 ||
                 strncmp(l->op, "delta_conv", 10) == 0 || strcmp(l->op, "delta_norm_bwd") == 0;
    if (strcmp(l->verdict, whole ? "unchecked" : "right") != 0 || !(whole || l->error <= 1e-6))
        fail_msg("%s of %s: %s, error %g", l->op, l->shape, l->verdict, l->error);
    CHECK(l->seconds > 0 && l->bytes > 0 && l->share > 0);
    if (l->k == 0) return;
    CHECK_INT(experts_of(l, rows, &sum), l->e);
    CHECK_NEAR(sum, l->n * l->k, 0);
    for (int e = 0; e < (int)l->e; e++) CHECK(rows[e] <= l->n);
    for (int e = 0; strcmp(l->routing, "even") == 0 && e < (int)l->e; e++)
        CHECK_NEAR(rows[e], l->n * l->k / l->e, 1);
}

/* shape NULL: of all. */
static double flops_on(const char *op, const char *shape)
{
    double sum = 0;
    for (int i = 1; i < report.n; i++) {
        const Line *l = &report.line[i];
        bool counts = shape == NULL || strcmp(l->shape, shape) == 0;
        sum += counts && strcmp(l->op, op) == 0 ? l->flops : 0;
    }
    return sum;
}

static double flops_of(const char *op) { return flops_on(op, NULL); }

/* Rows of each op, over all shapes and routings. */
static const struct {
    const char *op;
    int rows;
} OPS[] = { { "fwd1", 14 },
            { "fwd1_bare", 14 },
            { "fwd2", 14 },
            { "dgrad2", 14 },
            { "dgrad1", 14 },
            { "wgrad2", 14 },
            { "wgrad1", 14 },
            { "fwd1_8bit", 16 },
            { "fwd1_bare_8bit", 16 },
            { "fwd2_8bit", 16 },
            { "dgrad2_8bit", 16 },
            { "dgrad1_8bit", 16 },
            { "wgrad2_8bit", 16 },
            { "wgrad1_8bit", 16 },
            { "fwd1_narrow", 16 },
            { "fwd1_apart", 16 },
            { "dgrad2_narrow", 16 },
            { "dgrad2_apart", 16 },
            { "forward", 19 },
            { "backward", 19 },
            { "router", 2 },
            { "sort", 2 },
            { "combine", 2 },
            { "rmsnorm_fwd", 2 },
            { "rmsnorm_bwd", 2 },
            { "bias_fwd", 2 },
            { "bias_bwd", 2 },
            { "scale_fwd", 2 },
            { "scale_bwd", 2 },
            { "swiglu_fwd", 2 },
            { "swiglu_bwd", 2 },
            { "rope_fwd", 2 },
            { "rope_bwd", 2 },
            { "attention_fwd", 11 },
            { "attention_bwd", 11 },
            { "delta_rule_fwd", 4 },
            { "delta_rule_bwd", 4 },
            { "delta_conv_fwd", 4 },
            { "delta_conv_bwd", 4 },
            { "delta_norm_fwd", 4 },
            { "delta_norm_bwd", 4 },
            { "head_loss", 1 },
            { "quantize", 1 },
            { "dequantize", 1 },
            { "adamw", 1 },
            { "adamw_low", 1 },
            { "adamw_bf16", 1 },
            { "adamw_8bit", 7 },
            { "adamw_quantize", 7 },
            { "bf16_8bit", 7 },
            { "bf16_quantize", 7 },
            { "linear_fwd", 1 },
            { "add", 1 },
            { "cast", 1 } };

static void every_row_runs_and_is_right(void **state)
{
    (void)state;
    int rows = 0;
    run((BenchShapes){ .shrink = SHRINK, .json = true }, NULL);
    CHECK_TEXT(report.line[0].kind, "machine");
    CHECK(report.line[0].flops > 0 && report.line[0].bytes > 0);
    for (int i = 1; i < report.n; i++) check_line(&report.line[i]);
    for (int i = 1; i < report.n && strcmp(report.line[i].group, "products") == 0; i++) {
        const Line *l = &report.line[i]; /* two FLOPs a multiply-add; what follows is little */
        double of = strstr(l->op, "1") != NULL ? 2 * l->f : l->f;
        CHECK_NEAR(l->flops / (2 * l->n * l->k * l->d * of), 1, 0.2);
    }
    for (size_t i = 0; i < sizeof OPS / sizeof *OPS; i++) {
        CHECK_INT(count_op(OPS[i].op), OPS[i].rows);
        rows += OPS[i].rows;
    }
    CHECK_INT(report.n, 1 + rows);
    /* (3 d + 2 f) / (d + f): the forward pass that comes before is not counted */
    CHECK_NEAR(flops_of("attention_bwd") / flops_of("attention_fwd"), (3 * 48 + 2 * 16) / 64.0,
               1e-9);
    /* 64 queries see 64 * 65 / 2 pairs of their own, and half of the 64 * 64 of other ranks */
    double own = flops_on("attention_fwd", "mla cp2, own keys") / (64 * 65);
    CHECK_NEAR(flops_on("attention_fwd", "mla cp2, later keys") / own, 64 * 64, 1e-6);
    CHECK_NEAR(flops_on("attention_fwd", "mla cp2, earlier keys") / own, 64 * 64, 1e-6);
    close_report();
}

/* Of a text always the same shapes, in three routings. */
static void a_seed_draws_its_own_shapes(void **state)
{
    (void)state;
    double rows[EXPERTS_MAX], sum;
    const struct {
        const char *seed;
        double n, e, k;
    } drawn[] = { { "2026-11-22", 32, 8, 4 }, { "2026-11-23", 96, 8, 1 } };
    for (int i = 0; i < 2; i++) {
        const Line *l = &report.line[1];
        run(
            (BenchShapes){
                .shrink = 128, .json = true, .seed = drawn[i].seed, .group = 1, .no_check = true },
            "run.compute=bf16");
        CHECK_INT(report.n, 1 + 5 * 3 * 7);
        CHECK(l->n == drawn[i].n && l->e == drawn[i].e && l->k == drawn[i].k);
        CHECK_TEXT(l->verdict, "unchecked");
        CHECK_TEXT(l[2].routing, "zipf");
        (void)experts_of(&l[2], rows, &sum);
        CHECK(rows[0] > 1.5 * sum / l->e); /* the first expert is the favourite */
        CHECK(unevenness(&l[0]) < 0.01);
        CHECK(unevenness(&l[1]) > 0.1); /* 1 if tokens could take an expert twice */
        close_report();
    }
}

static void the_table_for_people_has_the_same_rows(void **state)
{
    (void)state;
    int lines = 0;
    run((BenchShapes){ .shrink = SHRINK, .group = 5 }, NULL);
    for (const char *at = report.out.data; *at != '\0'; at++) lines += *at == '\n';
    CHECK_INT(lines, 2 + 8); /* the machine, the names; rmsnorm and bias of two shapes, both ways */
    CHECK(strstr(report.out.data, "rmsnorm_bwd    8192 x 7168") != NULL);
    close_report();
}

/* ---- a list ---- */

/* The file of these lines; the caller unlinks it. */
static void list_file(char path[32], const char *lines)
{
    strcpy(path, "/tmp/switchyard_test_XXXXXX");
    int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, lines, strlen(lines)) == (ssize_t)strlen(lines) && close(fd) == 0);
}

static void a_list_runs_its_rows_on_its_sizes(void **state)
{
    (void)state;
    char path[32];
    list_file(path, "{\"op\":\"linear_fwd\",\"shape\":\"mm\",\"n\":40,\"d\":24,\"e\":16,"
                    "\"count\":3,\"traced_s\":5e-06}\n\n"
                    "{\"op\":\"fwd2\",\"n\":48,\"d\":8,\"f\":16,\"e\":4,\"k\":1}\n"
                    "{\"op\":\"attention_fwd\",\"b\":2,\"t\":64,\"h\":2,\"d\":32,\"f\":16}\n"
                    "{\"op\":\"add\",\"n\":5,\"d\":7}\n{\"op\":\"cast\",\"n\":5,\"d\":7}");
    run((BenchShapes){ .shrink = 1, .json = true, .list = path }, NULL);
    CHECK_INT(report.n, 1 + 5);
    for (int i = 1; i < report.n; i++) CHECK_TEXT(report.line[i].verdict, "right");
    const Line *l = &report.line[1];
    CHECK_TEXT(l[0].shape, "mm");
    CHECK_TEXT(l[0].group, "linear");
    CHECK_NEAR(l[0].flops, 2 * 40 * 24 * 16, 0);
    CHECK(strstr(l[0].rows, "[]") == l[0].rows);
    CHECK_TEXT(l[1].shape, "fwd2");
    CHECK_NEAR(l[1].flops, 2 * 48 * 8 * 16, 0);
    CHECK_TEXT(l[2].group, "attention");
    CHECK_NEAR(l[3].bytes, 3 * 4 * 35, 0);
    close_report();
    run((BenchShapes){ .shrink = 1, .list = path }, NULL);
    CHECK(strstr(report.out.data, "right, traced 3 x 5.0 us\n") != NULL);
    close_report();
    unlink(path);
}

static void a_bad_line_of_a_list_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *lines, *says;
    } bad[] = {
        { "{\"op\":\"add\",\"n\":5,\"d\":7}\nadd 5 7\n", "line 2 is not a JSON object" },
        { "{\"op\":\"frobnicate\",\"n\":5}\n", "line 1: bench shapes has no op frobnicate" },
        { "{\"n\":5}\n", "line 1: bench shapes has no op \"\"" },
        { "{\"op\":\"add\",\"n\":-5,\"d\":7}\n", "line 1: a size is -5, not 0 to 2^40" },
        { "{\"op\":\"linear_fwd\",\"n\":5,\"d\":7}\n",
          "line 1: linear_fwd cannot run: a size that it needs is 0" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char path[32];
        list_file(path, bad[i].lines);
        open_report(NULL);
        Status s =
            bench_shapes(&report.config, &(BenchShapes){ .shrink = 1, .list = path }, &report.out);
        CHECK(s != OK);
        if (strstr(status_message(), bad[i].says) == NULL)
            fail_msg("\"%s\" is not in %s", bad[i].says, status_message());
        close_report();
        unlink(path);
    }
}

/* ---- what is wrong is seen ---- */

typedef struct Spoil {
    int port;     /* of the op's tensors */
    int64_t at;   /* element */
    double value; /* added */
} Spoil;

static Status spoil(Exec *ex, int level, const OpDesc *op, const void *args)
{
    const Spoil *s = ex->front[level]->self;
    TRY(op_next(ex, level, op, args));
    const Tensor *t = op_port_tensor(&op->ports[s->port], args);
    int64_t at = s->at < 0 ? tensor_elems(t) + s->at : s->at;
    ((float *)t->data)[at] += (float)s->value;
    return OK;
}

/* The error that shape_check finds where an element of an output is off. */
static double error_of(const ShapeCase *what, ShapeSizes sizes,
                       const int32_t *const routing[T_COUNT], Spoil wrong)
{
    Arena scratch = { 0 };
    Exec ex, cpu;
    static float pattern[2 * SHAPE_PATTERN];
    double error = -1;
    const Decorator decorator = { spoil, &wrong };
    open_report(NULL);
    CHECK_OK(arena_init(&scratch, "scratch", MEM_HOST, (size_t)1 << 27));
    CHECK_OK(exec_init(&ex, &report.arena, &scratch, 1, CPU_AUTO));
    CHECK_OK(exec_init(&cpu, &report.arena, &scratch, 1, CPU_AUTO));
    if (pattern[0] == 0) rng_fill_normal(pattern, 2 * SHAPE_PATTERN, 1, 1, 0, 1);
    ShapeSet set = { .ex = &ex,
                     .arena = &report.arena,
                     .tables = &report.arena,
                     .config = &report.config,
                     .what = what,
                     .s = sizes,
                     .pattern = pattern };
    if (routing != NULL) memcpy(set.routing, routing, sizeof set.routing);
    CHECK_OK(shape_set_make(&set));
    CHECK_OK(shape_set_run(&set, 0, what->prepare));
    exec_push(&ex, &decorator);
    CHECK_OK(shape_check(&set, &cpu, &report.arena, &error));
    exec_free(&ex);
    exec_free(&cpu);
    arena_free(&scratch);
    close_report();
    return error;
}

static void a_wrong_element_is_seen(void **state)
{
    (void)state;
    const ShapeCase norm = { .sample = SAMPLE_TOKENS,
                             .calls = 1,
                             .call = { { OP_RMSNORM_FWD, { T_X, T_NORM, T_Y, T_RSTD } } } };
    const ShapeSizes s = { .n = 61, .d = 33 };
    CHECK_NEAR(error_of(&norm, s, NULL, (Spoil){ 2, 0, 0 }), 0, 0);
    CHECK(error_of(&norm, s, NULL, (Spoil){ 2, 0, 0.1 }) > 0.01);
    CHECK(error_of(&norm, s, NULL, (Spoil){ 2, -1, 0.3 }) > 0.01);
    CHECK(isnan(error_of(&norm, s, NULL, (Spoil){ 2, 500, (double)NAN })));
}

/* Experts of 5, 0, 7 and 40 rows, of which the last 32 are looked at. */
static void a_wrong_row_of_an_expert_is_seen(void **state)
{
    (void)state;
    static const int32_t offsets[] = { 0, 5, 5, 12, 52 };
    int32_t rows[52];
    const int32_t *routing[T_COUNT] = {
        [T_OFFSETS] = offsets, [T_ROW_TOKEN] = rows, [T_ROW_SLOT] = rows
    };
    const ShapeCase fwd = { .sample = SAMPLE_EXPERTS,
                            .calls = 1,
                            .call = {
                                { OP_MOE_DOWN_FWD, { T_INNER, T_W2, T_OFFSETS, T_OUTER } } } };
    const ShapeCase weight = { .sample = SAMPLE_EXPERT,
                               .calls = 1,
                               .call = { { OP_MOE_UP_BWD_WEIGHT,
                                           { T_DPRE, T_X, T_OFFSETS, T_ROW_TOKEN, T_DW1 } } } };
    const ShapeSizes s = { .n = 52, .d = 8, .f = 16, .e = 4, .k = 1, .r = 52 };
    for (int i = 0; i < 52; i++) rows[i] = (7 * i + 3) % 52;
    CHECK_NEAR(error_of(&fwd, s, routing, (Spoil){ 5, 0, 0 }), 0, 1e-6);
    CHECK(error_of(&fwd, s, routing, (Spoil){ 5, -1, 1 }) > 0.01);     /* the last row */
    CHECK(error_of(&fwd, s, routing, (Spoil){ 5, 20 * 8, 1 }) > 0.01); /* the 32nd from the end */
    CHECK_NEAR(error_of(&fwd, s, routing, (Spoil){ 5, 19 * 8, 1 }), 0, 1e-6);
    CHECK_NEAR(error_of(&weight, s, routing, (Spoil){ 6, 0, 0 }), 0, 1e-6);
    CHECK(error_of(&weight, s, routing, (Spoil){ 6, -1, 10 }) > 0.01);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_row_runs_and_is_right),
        TEST(a_seed_draws_its_own_shapes),
        TEST(the_table_for_people_has_the_same_rows),
        TEST(a_list_runs_its_rows_on_its_sizes),
        TEST(a_bad_line_of_a_list_is_named),
        TEST(a_wrong_element_is_seen),
        TEST(a_wrong_row_of_an_expert_is_seen),
    };
    return TEST_RUN(tests);
}
