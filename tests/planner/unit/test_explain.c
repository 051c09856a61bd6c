/* plan --why: the factors that it prints are read back, multiplied and added, and must give the figures of the
 * plan. Parts of a step add up for every schedule and stack. */
#include "harness/question.h"

#include "planner/report.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct Told {
    Question of;
    Arena text;
    PlanPrice price;
    PlanStep step;
    PlanReport report;
    Text out;
} Told;

/* A layout, the stack that runs it, and whether all lines of the topic are checked. */
typedef struct Case {
    const char *stack, *set[8];
} Case;

static const Case cases[] = {
    { "switchyard", { "mesh.pp=4", "mesh.ep=8", "mesh.vpp=2", "mesh.schedule=dualpipe" } },
    { "switchyard,list=0", { "mesh.pp=4", "mesh.ep=8", "mesh.zero=0", "mesh.vpp=1" } },
    { "switchyard", { "mesh.pp=2", "mesh.ep=8", "mesh.zero=1", "recompute.layers=[2,3,20]" } },
    { "switchyard", { "mesh.pp=1", "mesh.ep=4", "mesh.zero=2", "mesh.shard=8" } },
    { "switchyard", { "mesh.pp=2", "mesh.ep=8", "mesh.zero=3", "mesh.cp=2" } },
    { "switchyard,list=0,share_grouped=0.4",
      { "mesh.pp=4", "mesh.ep=8", "mesh.zero=3", "mesh.layout=Et*3|t*12|t*6|t*6L" } },
    { "primus", { "mesh.pp=2", "mesh.ep=8", "mesh.zero=1", "mesh.vpp=2", "mesh.schedule=zbv" } },
    { "primus,deepep=0,sync_free=0,loss_fusion=0",
      { "mesh.pp=4", "mesh.ep=8", "mesh.zero=1", "moe.buffers=worst", "plan.counted_rows=true",
        "recompute.layers=[0,1]" } },
    { "torchtitan", { "mesh.pp=1", "mesh.ep=8", "mesh.zero=3", "mesh.vpp=1" } },
    { "switchyard", { "mesh.pp=2", "mesh.ep=8", "mesh.tp=2", "mesh.zero=1" } },
    { "switchyard", { "mesh.pp=1", "mesh.ep=8", "mesh.tp=4", "mesh.zero=3", "mesh.cp=2" } },
    { "switchyard",
      { "mesh.pp=2", "mesh.ep=4", "mesh.tp=2", "mesh.zero=2", "recompute.layers=[2,3,20]" } },
    { "switchyard", { "mesh.pp=2", "mesh.ep=4", "mesh.etp=2", "mesh.tp=2", "mesh.zero=1" } },
    { "megatron", { "mesh.pp=2", "mesh.ep=4", "mesh.tp=2", "mesh.zero=1" } },
    { "primus,tp_overlap=1",
      { "mesh.pp=2", "mesh.ep=8", "mesh.tp=4", "mesh.zero=1", "recompute.layers=[0,1]" } },
};

enum { CASES = sizeof cases / sizeof *cases, GPUS = 64 };

/* False, with may_refuse: the stack has no such layout. */
static bool open_case(Told *q, const Case *c, bool may_refuse)
{
    const char *set[12] = { "train.batch=256", "train.micro_batch=1", "data.sequence=4096" };
    int n = 3;
    for (int i = 0; i < 8 && c->set[i] != NULL; i++) set[n++] = c->set[i];
    *q = (Told){ 0 };
    question_load(&q->of, "deepseek-v2-lite", "mi355x", GPUS, c->stack, set, n);
    q->of.hardware.contention_gemm = 1.25;
    question_open(&q->of);
    CHECK_OK(arena_init(&q->text, "text", MEM_HOST, (size_t)1 << 30));
    CHECK_OK(text_init(&q->out, &q->text));
    if (may_refuse && planner_legal(q->of.planner, &q->of.layout) != OK) return false;
    CHECK_OK(planner_price_list(q->of.planner, &q->of.layout, &q->of.arena, &q->price, &q->step));
    q->report = (PlanReport){
        .request = &q->of.request, .layout = &q->of.layout, .price = &q->price, .partition = ""
    };
    return true;
}

static void close_case(Told *q)
{
    question_close(&q->of);
    arena_free(&q->text);
}

static void explain(Told *q, const char *what)
{
    q->out.used = 0;
    CHECK_OK(plan_explain(q->of.planner, &q->report, what, &q->out));
}

/* ---- sums in a text ---- */

/* A number and its unit at *at, which moves behind both; units are bytes and seconds. */
static double quantity(const char **at)
{
    static const struct {
        const char *name;
        double factor;
    } units[] = {
        { " GiB", 1073741824.0 }, { " MiB", 1048576.0 }, { " ms", 1e-3 }, { " us", 1e-6 }
    };
    char *end = NULL;
    double value = strtod(*at, &end);
    *at = end;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strncmp(end, units[i].name, strlen(units[i].name)) != 0) continue;
        *at = end + strlen(units[i].name);
        return value * units[i].factor;
    }
    return value;
}

/* Moves to the next operand: a number or a bracket. Words in front of it say what it is. */
static bool find_operand(const char **at)
{
    while (**at != '\n' && **at != '\0' && !isdigit((unsigned char)**at) && **at != '(') ++*at;
    return **at != '\n' && **at != '\0';
}

/* Moves to the next operator, which stands between blanks, and returns it; 0: the sum ends here. Words and numbers
 * behind an operand say what it is. */
static char find_operator(const char **at)
{
    for (; **at != '\n' && **at != '\0' && **at != ';'; ++*at) {
        if (**at == ')') return ')';
        if (**at == '(') *at += strcspn(*at, ")");
        if ((*at)[0] == ' ' && (*at)[2] == ' ' && strchr("+-x/=", (*at)[1]) != NULL) {
            *at += 3;
            return (*at)[-2];
        }
    }
    return 0;
}

/* The value of the sum at *at, up to the end of the line, a bracket, a semicolon or " = ". */
static double sum_at(const char **at)
{
    double sum = 0, product = 0, sign = 1;
    for (char op = '+'; op != 0 && op != ')' && op != '='; op = find_operator(at)) {
        if (!find_operand(at)) break;
        double value = 0;
        if (**at == '(') {
            ++*at;
            value = sum_at(at);
            *at += **at == ')';
        } else {
            value = quantity(at);
        }
        if (op == 'x') product *= value;
        if (op == '/') product /= value;
        if (op != '+' && op != '-') continue;
        sum += sign * product;
        product = value;
        sign = op == '-' ? -1 : 1;
    }
    return sum + sign * product;
}

/* The line that begins with `name`, behind the name. */
static const char *line_of(const Told *q, const char *name)
{
    char begins[64];
    (void)snprintf(begins, sizeof begins, "\n  %s ", name);
    const char *at = strstr(q->out.data, begins);
    if (at == NULL) fail_msg("no line %s in: %.3000s", name, q->out.data);
    return at + strlen(begins);
}

/* A line "NAME NUMBER UNIT = SUM": the number is `want`, and the sum gives it. */
static void check_line(const Told *q, const char *name, double want, double unit)
{
    const char *at = line_of(q, name);
    double says = quantity(&at);
    CHECK_NEAR(says, want, 0.0006 * unit);
    at = strstr(at, " = ");
    CHECK(at != NULL);
    at += 3;
    double sum = sum_at(&at);
    if (!(fabs(sum - want) <= 0.0015 * unit + 1e-4 * fabs(want)))
        fail_msg("%s: the sum is %g, the plan has %g: %.300s", name, sum, want, line_of(q, name));
}

/* ---- memory ---- */

static void the_peak_multiplies_out(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        Told q;
        CHECK(open_case(&q, &cases[i], false));
        explain(&q, "peak");
        for (int k = PLAN_WEIGHTS; k < PLAN_RESERVE; k++) {
            if (q.price.memory[k] > 0)
                check_line(&q, plan_kind_names[k], q.price.memory[k], PLAN_GIB);
        }
        check_line(&q, "peak", q.price.peak_bytes, PLAN_GIB);
        char rank[64];
        (void)snprintf(rank, sizeof rank, "peak of pipeline rank %d", q.price.worst_rank);
        CHECK(strstr(q.out.data, rank) != NULL);
        close_case(&q);
    }
}

/* ---- time ---- */

enum { LANES = 5 };

/* The times of a line "one LAYER layer: compute A ms, exchange B ms, ...; N of them". */
static double read_layer(const char *line, double s[LANES])
{
    const char *at = strchr(line, ':');
    for (int k = 0; k < LANES; k++) {
        CHECK(find_operand(&at));
        s[k] = quantity(&at);
    }
    CHECK(find_operand(&at));
    return strtod(at, NULL);
}

/* Ops add up to their layer, layers times their number to "all layers". */
static void check_layers(const Told *q)
{
    double all[LANES] = { 0 }, layer[LANES] = { 0 }, ops = 0;
    for (const char *line = q->out.data; line != NULL; line = strchr(line + 1, '\n')) {
        const char *at = strrchr(line, 0);
        if (strncmp(line, "\n  one ", 7) == 0) {
            CHECK_NEAR(ops, layer[0] + layer[1] + layer[2] + layer[3], 2e-5);
            double n = read_layer(line, layer);
            for (int k = 0; k < LANES; k++) all[k] += n * layer[k];
            ops = 0;
        }
        if (strncmp(line, "\n    ", 5) != 0) continue;
        at = strstr(line + 1, " = ");
        const char *end = strchr(line + 1, '\n');
        for (const char *next = at; next != NULL && next < end; next = strstr(next + 1, " = "))
            at = next;
        CHECK(at != NULL && at < end);
        at += 3;
        ops += quantity(&at);
    }
    static const char *const parts[LANES] = { "compute", "exchange", "context", "tensor", "host" };
    for (int k = 0; k < LANES; k++) {
        const char *at = strstr(line_of(q, parts[k]), "all layers ") + strlen("all layers ");
        CHECK_NEAR(quantity(&at), all[k], 2e-5);
    }
}

static void the_step_multiplies_out(void **state)
{
    (void)state;
    static const PlanPart parts[] = { PLAN_COMPUTE, PLAN_EXCHANGE, PLAN_CONTEXT, PLAN_TENSOR,
                                      PLAN_HOST };
    for (int i = 0; i < CASES; i++) {
        Told q;
        CHECK(open_case(&q, &cases[i], false));
        explain(&q, "step");
        for (int k = 0; k < LANES; k++)
            check_line(&q, plan_part_words[parts[k]], q.price.part_s[parts[k]], 1);
        if (q.price.part_s[PLAN_SLOWEST] > 0)
            check_line(&q, "slowest", q.price.part_s[PLAN_SLOWEST], 1);
        check_line(&q, "step", q.price.step_s, 1);
        check_layers(&q);
        close_case(&q);
    }
}

/* "  NAME a ms - b ms ..., at least 0 = c ms x n": c is what remains; returns c x n. */
static double shown_of(const Told *q, const char *name)
{
    const char *at = line_of(q, name);
    double left = sum_at(&at), says = quantity(&at);
    CHECK_NEAR(says, fmax(0, left), 1e-6);
    CHECK(find_operator(&at) == 'x');
    return says * strtod(at, NULL);
}

/* Adds up the calls of the collectives whose names begin with `what`. */
static double calls_of(const Told *q, const char *what)
{
    double sum = 0;
    char begins[64];
    (void)snprintf(begins, sizeof begins, "\n    %s", what);
    for (const char *at = q->out.data; (at = strstr(at, begins)) != NULL;) {
        at = strstr(at, "of a GPU = ") + strlen("of a GPU = ");
        sum += quantity(&at);
    }
    return sum;
}

static void communication_multiplies_out(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        Told q;
        CHECK(open_case(&q, &cases[i], false));
        explain(&q, "comm");
        double shown =
            shown_of(&q, "reduced") + shown_of(&q, "added up") + shown_of(&q, "gathered");
        const char *at = line_of(&q, "passes at the same time take");
        const double slowed = quantity(&at);
        at = line_of(&q, "gradients");
        at = strstr(at, " = ") + 3;
        CHECK_NEAR(quantity(&at), shown + slowed, 2e-3 + 1e-3 * shown);
        check_line(&q, "gradients", q.price.part_s[PLAN_GRADIENTS], 1);
        check_line(&q, "exchange", q.price.part_s[PLAN_EXCHANGE], 1);
        at = line_of(&q, "reduced");
        const char *sums = strstr(q.out.data, "added to sums ");
        if (sums != NULL) sums += strlen("added to sums ");
        CHECK(sums == NULL || q.of.layout.zero >= 2);
        CHECK_NEAR(quantity(&at),
                   calls_of(&q, "gradients reduced") + (sums != NULL ? quantity(&sums) : 0), 5e-6);
        at = line_of(&q, "gathered");
        CHECK_NEAR(quantity(&at), calls_of(&q, "weights gathered"), 5e-6);
        at = line_of(&q, "added up");
        CHECK_NEAR(quantity(&at),
                   calls_of(&q, "replicas added up") + calls_of(&q, "replicas of both added up") +
                       calls_of(&q, "copies of tp added up"),
                   5e-6);
        close_case(&q);
    }
}

/* ---- every schedule and stack ---- */

static void parts_add_up_for_every_schedule_and_stack(void **state)
{
    (void)state;
    static const char *const stacks[] = { "switchyard", "switchyard,list=0,lanes=0",
                                          "primus",     "primus,overlap=1,deepep=0,sync_free=0",
                                          "torchtitan", "megatron" };
    int priced = 0;
    for (int i = 0; i < schedule_table_n; i++) {
        const ScheduleDesc *d = &schedule_table[i];
        char schedule[64], vpp[32];
        (void)snprintf(schedule, sizeof schedule, "mesh.schedule=%s", d->name);
        (void)snprintf(vpp, sizeof vpp, "mesh.vpp=%d", d->chunks_least);
        for (int k = 0; k < 6; k++) {
            const Case c = { stacks[k],
                             { "mesh.pp=4", "mesh.ep=8", "mesh.zero=1", schedule, vpp } };
            Told q;
            double seconds = 0, bytes = 0;
            if (!open_case(&q, &c, true)) {
                status_clear();
                close_case(&q);
                continue;
            }
            for (int part = 0; part < PLAN_PARTS; part++) {
                CHECK(q.price.part_s[part] >= 0);
                seconds += q.price.part_s[part];
            }
            for (int kind = 0; kind < PLAN_KINDS; kind++) bytes += q.price.memory[kind];
            CHECK_NEAR(seconds / q.price.step_s, 1, 1e-9);
            CHECK_NEAR(bytes / q.price.peak_bytes, 1, 1e-12);
            priced++;
            close_case(&q);
        }
    }
    CHECK(priced >= 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_peak_multiplies_out),
        TEST(the_step_multiplies_out),
        TEST(communication_multiplies_out),
        TEST(parts_add_up_for_every_schedule_and_stack),
    };
    return TEST_RUN(tests);
}
