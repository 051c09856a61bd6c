/* Formula sheets: arithmetic by hand, messages, what a value is made of. */
#include "harness/arena.h"

#include "base/rng.h"
#include "plan/formula.h"
#include "plan/presets.h"

static const FormulaInputs inputs = {
    .n = 3,
    .at = { { "hidden", 4096, "model.hidden" }, { "ranks", 8, "mesh" }, { "none", 0, "" } },
};

/* A sheet of one definition, quoted so that YAML takes any of its signs. */
static Status eval_text(const char *text, double *out)
{
    FormulaSheet s;
    Text yaml;
    TRY(text_init(&yaml, &arena));
    TRY(text_printf(&yaml, "define:\n  x: \"%s\"\n", text));
    TRY(formula_parse(&s, &arena, "a.yaml", yaml.data, yaml.used));
    return formula_eval(&s, "x", &inputs, out);
}

static void arithmetic_is_that_of_school(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double want;
    } cases[] = {
        { "1 + 2 * 3", 7 },
        { "(1 + 2) * 3", 9 },
        { "2 - 3 - 4", -5 },
        { "64 / 4 / 2", 8 },
        { "7 // 2", 3 },
        { "-7 // 2", -4 },
        { "7 % 3", 1 },
        { "-7 % 3", 2 },
        { "7.5 // 2 * 2", 6 },
        { "--3", 3 },
        { "2 * -3", -6 },
        { "1.5e3 + .5", 1500.5 },
        { "hidden * hidden", 16777216 },
        { "hidden/ranks", 512 },
        { "1 < 2", 1 },
        { "2 <= 1", 0 },
        { "2 >= 2", 1 },
        { "2 != 2", 0 },
        { "1 + 1 == 2", 1 },
        { "ranks > 1 ? 10 : 20", 10 },
        { "none ? 1 : 0 ? 2 : 3", 3 },
        { "1 ? 0 ? 4 : 5 : 6", 5 },
        { "(ranks == 8) * 3 + 1", 4 },
        { "none ? 1 / none : 2", 2 },
        { "ranks ? 5 : log2(0)", 5 },
        { "min(3, 1, 2)", 1 },
        { "max(3, ranks, -2) + 1", 9 },
        { "min(4)", 4 },
        { "ceil(7 / 2) + floor(-0.5)", 3 },
        { "log2(hidden)", 12 },
        { "9007199254740991 - 1", 9007199254740990 },
        { "  1\t+\t1  ", 2 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double v = NAN;
        CHECK_OK(eval_text(cases[i].text, &v));
        CHECK_NEAR(v, cases[i].want, 0);
    }
}

static void a_wrong_expression_is_told_with_its_place(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        { "", "a.yaml:2:7: x: a number, a name or a ( is wanted here\n  \n  ^" },
        { "1 +", "a.yaml:2:10: x: a number, a name or a ( is wanted here\n  1 +\n     ^" },
        { "1 2", "a.yaml:2:9: x: an operator or the end is wanted here\n  1 2\n    ^" },
        { "(1", "a ) is wanted here\n  (1\n    ^" },
        { "1)", "an operator or the end" },
        { "1 ? 2", "a : is wanted here" },
        { "max(1, 2", "a ) is wanted here" },
        { "ceil(1, 2)", "a ) is wanted here\n  ceil(1, 2)\n        ^" },
        { "max 1", "a ( is wanted here" },
        { "0x10", "a decimal number is wanted here" },
        { "1e999", "the value is not finite" },
        { ".", "a decimal number is wanted here" },
        { "1 & 2", "1 & 2\n    ^" },
        { "a = 3", "an operator or the end" },
        { "hiden * 2", "a.yaml:2:7: x: hiden is neither an input nor a definition, did you mean "
                       "hidden?\n  hiden * 2\n  ^" },
        { "1 ? 2 : whatever", "whatever is neither an input nor a definition\n" },
        { "hidden / none", "a.yaml:2:14: x: division by zero\n  hidden / none\n         ^" },
        { "1 // (1 - 1)", "division by zero" },
        { "1 % 0", "division by zero" },
        { "log2(none)", "log2 of what is not above 0" },
        { "1e300 * 1e300", "the value is not finite" },
        { "x + 1", "this needs itself: x -> x\n  x + 1" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double v = 7;
        CHECK_FAILS(eval_text(cases[i].text, &v), ERR_ARG, cases[i].part);
        CHECK_NEAR(v, 7, 0);
    }
}

static Status parse(FormulaSheet *s, const char *yaml)
{
    return formula_parse(s, &arena, "a.yaml", yaml, strlen(yaml));
}

static double value(const FormulaSheet *s, const char *name, const FormulaInputs *in)
{
    double v = NAN;
    CHECK_OK(formula_eval(s, name, in, &v));
    return v;
}

static void definitions_stand_in_any_order_and_inputs_go_before_them(void **state)
{
    (void)state;
    FormulaSheet s;
    FormulaInputs in = inputs;
    CHECK_OK(parse(&s, "title: T\nsource: S\ndefine: {a: b * c, c: b + 1, b: hidden / 2}\n"));
    CHECK_TEXT(s.title, "T");
    CHECK_TEXT(s.source, "S");
    CHECK_NEAR(value(&s, "a", &in), 2048.0 * 2049, 0);
    CHECK_NEAR(value(&s, "hidden", &in), 4096, 0);
    in.at[in.n++] = (FormulaInput){ "c", 10, "" };
    CHECK_NEAR(value(&s, "a", &in), 20480, 0);
    CHECK_FAILS(formula_eval(&s, "aa", &in, &(double){ 0 }), ERR_ARG,
                "formula a.yaml: aa is neither an input nor a definition, did you mean a?");
}

static void a_circle_is_told_with_its_chain(void **state)
{
    (void)state;
    FormulaSheet s;
    double v = 0;
    CHECK_OK(parse(&s, "define: {a: 1 + b, b: c, c: 2 * b, d: \"hidden ? 1 : d\"}"));
    CHECK_FAILS(formula_eval(&s, "a", &inputs, &v), ERR_ARG,
                "a.yaml:1:33: c: this needs itself: b -> c -> b\n  2 * b\n      ^");
    CHECK_NEAR(value(&s, "d", &inputs), 1, 0);
}

/* Brackets cost stack: 400 are enough for anybody. */
static void deep_brackets_end_in_a_message(void **state)
{
    (void)state;
    char text[2048] = "";
    double v = 0;
    memset(text, '(', 390);
    memset(text + 390, '1', 1);
    memset(text + 391, ')', 390);
    CHECK_OK(eval_text(text, &v));
    memset(text, '(', 1500);
    CHECK_FAILS(eval_text(text, &v), ERR_ARG, "more than 400 brackets");
}

static void a_sheet_takes_over_another_one(void **state)
{
    (void)state;
    FormulaSheet base, s;
    CHECK_OK(formula_load(&base, &arena, "primus-head"));
    CHECK_OK(parse(&s, "extends: primus-head\ndefine: {tp: 3 * hidden, new_one: tp + 1}"));
    CHECK_INT(s.n, base.n + 1);
    CHECK_NEAR(value(&s, "new_one", &inputs), 12289, 0);
    CHECK_TEXT(s.title, "");
    CHECK_FAILS(parse(&s, "extends: primus-hed\ndefine: {a: 1}"), ERR_ARG,
                "there is no formula primus-hed, did you mean primus-head?");
}

static void a_value_is_opened_into_what_it_is_made_of(void **state)
{
    (void)state;
    FormulaSheet s;
    Text t;
    CHECK_OK(parse(&s, "define:\n"
                       "  total: [weights + 2 * acts, bytes]\n"
                       "  weights: [hidden * size, bytes, \"one matrix\"]\n"
                       "  acts: \"none ? 1 / 0 : size * 0.3\"\n"
                       "  size: [2, bytes, bf16]\n"));
    CHECK_OK(text_init(&t, &arena));
    CHECK_OK(formula_explain(&s, "total", &inputs, 9, &t));
    CHECK_TEXT(t.data, "total = weights + 2 * acts = 8193.2 bytes\n"
                       "  weights = hidden * size = 8,192 bytes  [one matrix]\n"
                       "    hidden = 4,096  [model.hidden]\n"
                       "    size = 2 bytes  [bf16]\n"
                       "  acts = none ? 1 / 0 : size * 0.3 = 0.6\n"
                       "    none = 0\n"
                       "    size = 2 bytes  [bf16]\n");
    CHECK_OK(text_init(&t, &arena));
    CHECK_OK(formula_explain(&s, "total", &inputs, 0, &t));
    CHECK_TEXT(t.data, "total = weights + 2 * acts = 8193.2 bytes\n");
}

static void what_was_opened_is_not_opened_again(void **state)
{
    (void)state;
    FormulaSheet s;
    Text t;
    CHECK_OK(parse(&s, "define: {a: b + c, b: ranks + 1, c: b * b}"));
    CHECK_OK(text_init(&t, &arena));
    CHECK_OK(formula_explain(&s, "a", &inputs, 9, &t));
    CHECK_TEXT(t.data, "a = b + c = 90\n"
                       "  b = ranks + 1 = 9\n"
                       "    ranks = 8  [mesh]\n"
                       "  c = b * b = 81\n"
                       "    b = 9  [above]\n");
    CHECK_FAILS(formula_explain(&s, "z1", &inputs, 9, &t), ERR_ARG, "z1 is neither");
}

static void a_wrong_sheet_is_told_with_its_place(void **state)
{
    (void)state;
    static const struct {
        const char *yaml, *part;
    } cases[] = {
        { "", "a.yaml: define is missing" },
        { "title: T", "a.yaml: define is missing" },
        { "[1]", "a.yaml:1:1: a formula sheet must be a mapping" },
        { "define: 3", "a.yaml:1:9: define must be a mapping" },
        { "defin: {a: 1}", "a.yaml:1:1: defin is no part of a formula sheet: title, source" },
        { "title: [T]\ndefine: {a: 1}", "a.yaml:1:8: title is a list, must be a text" },
        { "define: {a: [1, 2, 3, 4]}", "a.yaml:1:13: a is a list, must be an expression or [" },
        { "define: {a: []}", "a is a list, must be an expression" },
        { "define: {a: {b: 1}}", "a.yaml:1:13: a is a mapping, must be a text" },
        { "define: {a: [1, {b: 1}]}", "a is a mapping, must be a text" },
        { "define: {a: 1, a: 2}", "a stands here a second time" },
        { "define: {2a: 1}", "a.yaml:1:10: the name of a definition is the text \"2a\", must be" },
        { "define: {a-b: 1}", "the name of a definition is the text \"a-b\"" },
        { "define: {max: 1}", "the name of a definition is the text \"max\"" },
        { "define:\n  b: 1\n  a: [\"1 +* 2\", bytes]", "a.yaml:3:11: a: a number, a name" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        FormulaSheet s = { .n = 7 };
        CHECK_FAILS(parse(&s, cases[i].yaml), ERR_ARG, cases[i].part);
        CHECK_INT(s.n, 7);
    }
}

static void every_sheet_of_the_program_loads_and_says_what_it_is(void **state)
{
    (void)state;
    FormulaSheet s;
    CHECK(formula_presets_n >= 3);
    for (int i = 0; i < formula_presets_n; i++) {
        CHECK_OK(formula_load(&s, &arena, formula_presets[i].name));
        CHECK_TEXT(s.name, formula_presets[i].name);
        CHECK(strlen(s.title) > 10 && strlen(s.source) > 10);
    }
}

/* Texts of pieces that expressions are made of: a number comes out, or one sentence. */
static void any_text_gives_a_finite_number_or_a_message(void **state)
{
    (void)state;
    static const char *const pieces[] = { "1", "2.5", "hidden", "none", "x",    "(",    ")",
                                          "+", "-",   "*",      "/",    "//",   "%",    "?",
                                          ":", "<",   "==",     ",",    "min(", "log2", "1e9",
                                          "$", " ",   "max",    "=",    "0",    "!",    "ranks" };
    enum { PIECES = sizeof pieces / sizeof *pieces, TEXTS = 20000 };
    int good = 0;
    for (uint64_t i = 0; i < TEXTS; i++) {
        ArenaMark mark = arena_mark(&arena);
        char text[128] = "";
        size_t used = 0, n = 1 + rng_below(7, i, 0, 12);
        for (size_t k = 1; k <= n; k++) {
            const char *piece = pieces[rng_below(7, i, k, PIECES)];
            used += (size_t)snprintf(text + used, sizeof text - used, "%s", piece);
        }
        double v = NAN;
        status_clear();
        if (eval_text(text, &v) == OK) {
            CHECK(isfinite(v));
            good++;
        } else {
            CHECK(strlen(status_message()) > 20);
        }
        arena_release(&arena, mark);
    }
    CHECK(good > TEXTS / 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(arithmetic_is_that_of_school),
        TEST(a_wrong_expression_is_told_with_its_place),
        TEST(definitions_stand_in_any_order_and_inputs_go_before_them),
        TEST(a_circle_is_told_with_its_chain),
        TEST(deep_brackets_end_in_a_message),
        TEST(a_sheet_takes_over_another_one),
        TEST(a_value_is_opened_into_what_it_is_made_of),
        TEST(what_was_opened_is_not_opened_again),
        TEST(a_wrong_sheet_is_told_with_its_place),
        TEST(every_sheet_of_the_program_loads_and_says_what_it_is),
        TEST(any_text_gives_a_finite_number_or_a_message),
    };
    return ARENA_RUN(tests);
}
