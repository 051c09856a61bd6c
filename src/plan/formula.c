/* formula: the arithmetic. An expression is read from its text each time it is evaluated: without a
 * tree there is one walk, which checks (nothing is live), evaluates, and collects what was used. */
#include "plan/formula.h"

#include "plan/presets.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES_MAX = FORMULA_INPUTS_MAX + FORMULA_DEFS_MAX, NAME_BYTES = 64, DEPTH_MAX = 400 };
enum { SAYS_BYTES = 512 };

static const char name_chars[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";

typedef enum Stage { NEW, BUSY, DONE } Stage;

/* One evaluation: the definitions known so far, and the chain of those that wait for another. */
typedef struct Run {
    const FormulaSheet *sheet; /* NULL: a text is checked, names mean nothing */
    const FormulaInputs *in;
    double value[FORMULA_DEFS_MAX];
    Stage stage[FORMULA_DEFS_MAX];
    int chain[FORMULA_DEFS_MAX], n_chain;
    int depth; /* of expressions, over the whole chain */
} Run;

/* A place in one expression. */
typedef struct Reader {
    Run *run;
    const FormulaDef *def;
    const char *at;
    bool live;
    int used[NAMES_MAX], n_used;
} Reader;

static Status bad(const Reader *r, const char *at, const char *says)
{
    char caret[TEXT_CARET_BYTES];
    int offset = (int)(at - r->def->text);
    return FAIL(ERR_ARG, "%.120s:%d:%d: %s: %s%s", r->def->file, r->def->line,
                r->def->column + (r->def->one_line ? offset : 0), r->def->name, says,
                text_caret(caret, r->def->text, offset));
}

static void skip(Reader *r) { r->at += strspn(r->at, " \t\n"); }

static bool take(Reader *r, char c)
{
    skip(r);
    if (*r->at != c) return false;
    r->at++;
    return true;
}

static Status want(Reader *r, char c)
{
    char says[32];
    if (take(r, c)) return OK;
    (void)snprintf(says, sizeof says, "a %c is wanted here", c);
    return bad(r, r->at, says);
}

/* ---- operators and functions ---- */

typedef enum Op { LE, GE, EQ, NE, LT, GT, ADD, SUB, QUOTIENT, DIV, MOD, MUL } Op;

enum { OP_LEVELS = 3 };

static const struct {
    char text[4];
    int level;
} ops[] = {
    [LE] = { "<=", 0 },       [GE] = { ">=", 0 }, [EQ] = { "==", 0 }, [NE] = { "!=", 0 },
    [LT] = { "<", 0 },        [GT] = { ">", 0 },  [ADD] = { "+", 1 }, [SUB] = { "-", 1 },
    [QUOTIENT] = { "//", 2 }, [DIV] = { "/", 2 }, [MOD] = { "%", 2 }, [MUL] = { "*", 2 },
};

static double calculate(Op op, double x, double y)
{
    switch (op) {
    case LE: return x <= y;
    case GE: return x >= y;
    case EQ: return x == y;
    case NE: return x != y;
    case LT: return x < y;
    case GT: return x > y;
    case ADD: return x + y;
    case SUB: return x - y;
    case QUOTIENT: return floor(x / y);
    case DIV: return x / y;
    case MOD: return x - y * floor(x / y);
    default: return x * y;
    }
}

/* `fold` takes as many values as there are, `of` one. */
static const struct {
    const char *name;
    double (*fold)(double, double);
    double (*of)(double);
} functions[] = {
    { "min", fmin, NULL },    { "max", fmax, NULL },  { "ceil", NULL, ceil },
    { "floor", NULL, floor }, { "log2", NULL, log2 },
};

enum { FUNCTIONS = sizeof functions / sizeof *functions };

static int function_of(const char *name)
{
    int f = FUNCTIONS - 1;
    while (f >= 0 && strcmp(functions[f].name, name) != 0) f--;
    return f;
}

static bool is_name(const char *name)
{
    size_t n = strspn(name, name_chars);
    return name[n] == '\0' && n > 0 && n < NAME_BYTES && (*name < '0' || *name > '9') &&
           function_of(name) < 0;
}

static Status expression(Reader *r, double *out);

static Status call(Reader *r, int f, const char *at, double *out)
{
    TRY(expression(r, out));
    while (functions[f].fold != NULL && take(r, ',')) {
        double next = 0;
        TRY(expression(r, &next));
        *out = functions[f].fold(*out, next);
    }
    TRY(want(r, ')'));
    if (functions[f].of == NULL || !r->live) return OK;
    if (functions[f].of == log2 && *out <= 0) return bad(r, at, "log2 of what is not above 0");
    *out = functions[f].of(*out);
    return OK;
}

/* ---- names ---- */

static const char *name_at(const FormulaSheet *s, const FormulaInputs *in, int i)
{
    return i < in->n ? in->at[i].name : s->def[i - in->n].name;
}

static int find(const FormulaSheet *s, const FormulaInputs *in, const char *name)
{
    for (int i = 0; i < in->n + s->n; i++) {
        if (strcmp(name_at(s, in, i), name) == 0) return i;
    }
    return -1;
}

static const char *unknown(const FormulaSheet *s, const FormulaInputs *in, const char *name,
                           char says[SAYS_BYTES])
{
    const char *names[NAMES_MAX];
    char hint[TEXT_HINT_BYTES];
    for (int i = 0; i < in->n + s->n; i++) names[i] = name_at(s, in, i);
    (void)snprintf(says, SAYS_BYTES, "%.64s is neither an input nor a definition%s", name,
                   text_hint(hint, name, names, in->n + s->n, ""));
    return says;
}

Status formula_find(const FormulaSheet *s, const FormulaInputs *in, const char *name, int *out)
{
    char says[SAYS_BYTES];
    int i = find(s, in, name);
    if (i < 0) return FAIL(ERR_ARG, "formula %.64s: %s", s->name, unknown(s, in, name, says));
    *out = i;
    return OK;
}

/* The definitions that wait for each other, from `def` on. */
static Status circle(const Reader *r, const char *at, int def)
{
    const Run *run = r->run;
    char says[SAYS_BYTES] = "this needs itself: ";
    int i = 0, used = (int)strlen(says);
    while (run->chain[i] != def) i++;
    for (; i < run->n_chain && used + 2 * NAME_BYTES < SAYS_BYTES; i++)
        used += snprintf(says + used, SAYS_BYTES - (size_t)used, "%.60s -> ",
                         run->sheet->def[run->chain[i]].name);
    (void)snprintf(says + used, SAYS_BYTES - (size_t)used, "%.60s", run->sheet->def[def].name);
    return bad(r, at, says);
}

/* The whole text of the reader's definition. */
static Status whole(Reader *r, double *out)
{
    TRY(expression(r, out));
    skip(r);
    if (*r->at != '\0') return bad(r, r->at, "an operator or the end is wanted here");
    return r->live && !isfinite(*out) ? bad(r, r->def->text, "the value is not finite") : OK;
}

/* The value of name number i: of an input, or of a definition. */
static Status evaluate(Run *run, int i, double *out)
{
    int def = i - run->in->n;
    if (def >= 0 && run->stage[def] != DONE) {
        const FormulaDef *d = &run->sheet->def[def];
        Reader r = { .run = run, .def = d, .at = d->text, .live = true };
        run->stage[def] = BUSY;
        run->chain[run->n_chain++] = def;
        TRY(whole(&r, &run->value[def]));
        run->n_chain--;
        run->stage[def] = DONE;
    }
    *out = def < 0 ? run->in->at[i].value : run->value[def];
    return OK;
}

static Status use(Reader *r, const char *name, const char *at, double *out)
{
    Run *run = r->run;
    if (run->sheet == NULL) return OK;
    int i = find(run->sheet, run->in, name), def = i - run->in->n, k = 0;
    if (i < 0) {
        char says[SAYS_BYTES];
        return bad(r, at, unknown(run->sheet, run->in, name, says));
    }
    if (!r->live) return OK;
    if (def >= 0 && run->stage[def] == BUSY) return circle(r, at, def);
    while (k < r->n_used && r->used[k] != i) k++;
    if (k == r->n_used) r->used[r->n_used++] = i;
    return evaluate(run, i, out);
}

/* ---- the grammar ---- */

static Status number(Reader *r, double *out)
{
    char *end = NULL;
    double v = strtod(r->at, &end);
    /* strtod alone takes hexadecimal, too */
    if (strspn(r->at, "0123456789.eE+-") < (size_t)(end - r->at) || end == r->at)
        return bad(r, r->at, "a decimal number is wanted here");
    r->at = end;
    *out = v;
    return OK;
}

static Status primary(Reader *r, double *out)
{
    skip(r);
    const char *at = r->at;
    size_t n = strspn(at, name_chars);
    if (take(r, '(')) {
        TRY(expression(r, out));
        return want(r, ')');
    }
    if (*at == '.' || (*at >= '0' && *at <= '9')) return number(r, out);
    if (n == 0) return bad(r, at, "a number, a name or a ( is wanted here");
    if (n >= NAME_BYTES) return bad(r, at, "a name of more than 63 letters");
    char name[NAME_BYTES] = "";
    memcpy(name, at, n);
    r->at += n;
    int f = function_of(name);
    if (f < 0) return use(r, name, at, out);
    TRY(want(r, '('));
    return call(r, f, at, out);
}

static Status unary(Reader *r, double *out)
{
    bool minus = false;
    while (take(r, '-')) minus = !minus;
    TRY(primary(r, out));
    if (minus) *out = -*out;
    return OK;
}

static int take_op(Reader *r, int level)
{
    skip(r);
    for (int i = 0; i < (int)(sizeof ops / sizeof *ops); i++) {
        if (!text_starts(r->at, ops[i].text)) continue;
        if (ops[i].level != level) return -1;
        r->at += strlen(ops[i].text);
        return i;
    }
    return -1;
}

static Status binary(Reader *r, int level, double *out)
{
    if (level == OP_LEVELS) return unary(r, out);
    TRY(binary(r, level + 1, out));
    for (int op = take_op(r, level); op >= 0; op = take_op(r, level)) {
        const char *at = r->at - strlen(ops[op].text);
        double right = 0;
        TRY(binary(r, level + 1, &right));
        if (!r->live) continue;
        bool divides = op == DIV || op == MOD || op == QUOTIENT;
        if (divides && right == 0) return bad(r, at, "division by zero");
        *out = calculate((Op)op, *out, right);
    }
    return OK;
}

/* What follows c ? */
static Status choose(Reader *r, double *out)
{
    double side[2] = { 0 };
    bool live = r->live;
    int taken = *out != 0 ? 0 : 1;
    for (int i = 0; i < 2; i++) {
        r->live = live && i == taken;
        if (i == 1) TRY(want(r, ':'));
        TRY(expression(r, &side[i]));
    }
    r->live = live;
    *out = side[taken];
    return OK;
}

static Status expression(Reader *r, double *out)
{
    *out = 0;
    if (++r->run->depth > DEPTH_MAX)
        return bad(r, r->at, "more than 400 brackets and definitions within each other");
    TRY(binary(r, 0, out));
    if (take(r, '?')) TRY(choose(r, out));
    r->run->depth--;
    return OK;
}

static Status check(const FormulaDef *def)
{
    Run run = { 0 };
    Reader r = { .run = &run, .def = def, .at = def->text };
    double none = 0;
    return whole(&r, &none);
}

/* ---- sheets: a YAML text, and those that the program carries ---- */

typedef enum Key { TITLE, SOURCE, EXTENDS, DEFINE, KEYS } Key;

static const char *const keys[KEYS] = { "title", "source", "extends", "define" };

static Status read_text(const ConfigDoc *doc, const yaml_node_t *n, const char *what,
                        const char **out)
{
    const char *text = config_scalar_text(n);
    if (text == NULL) return config_wrong(doc, n, what, "a text");
    return arena_text(doc->arena, text, strlen(text), out);
}

/* EXPRESSION or [EXPRESSION, UNIT, SOURCE], of which the last ones may be missing. */
static Status read_def(ConfigDoc *doc, const yaml_node_t *n, FormulaDef *d)
{
    const char **const part[] = { &d->text, &d->unit, &d->source };
    if (n->type == YAML_SEQUENCE_NODE) {
        const yaml_node_item_t *item = n->data.sequence.items.start;
        int parts = (int)(n->data.sequence.items.top - item);
        if (parts < 1 || parts > 3)
            return config_wrong(doc, n, d->name, "an expression or [expression, unit, source]");
        for (int i = 1; i < parts; i++)
            TRY(read_text(doc, config_node(doc, item[i]), d->name, part[i]));
        n = config_node(doc, item[0]);
    }
    TRY(read_text(doc, n, d->name, &d->text));
    d->line = (int)n->start_mark.line + 1;
    d->column = (int)n->start_mark.column + 1;
    d->one_line = n->start_mark.line == n->end_mark.line;
    if (n->type == YAML_SCALAR_NODE && n->data.scalar.style != YAML_PLAIN_SCALAR_STYLE) d->column++;
    return check(d);
}

static Status read_defs(ConfigDoc *doc, const yaml_node_t *map, FormulaSheet *s)
{
    TRY(config_need_mapping(doc, map, keys[DEFINE]));
    const yaml_node_pair_t *p = map->data.mapping.pairs.start;
    for (; p < map->data.mapping.pairs.top; p++) {
        const char *name = NULL;
        int i = 0;
        FormulaDef next = { .unit = "", .source = "", .file = s->name };
        TRY(config_key_text(doc, map, p, &name));
        if (!is_name(name))
            return config_wrong(
                doc, config_node(doc, p->key), "the name of a definition",
                "at most 63 of a-z, A-Z, 0-9 and _, no digit first, no function's name");
        TRY(arena_text(doc->arena, name, strlen(name), &next.name));
        TRY(read_def(doc, config_node(doc, p->value), &next));
        while (i < s->n && strcmp(s->def[i].name, name) != 0) i++;
        if (i == FORMULA_DEFS_MAX)
            return FAIL(ERR_ARG, "formula %.64s: more than %d definitions", s->name, i);
        if (i == s->n) s->n++;
        s->def[i] = next;
    }
    return OK;
}

/* Where each key's value stands; NULL if it is not there. */
static Status read_keys(ConfigDoc *doc, const yaml_node_t *root, const yaml_node_t *value[KEYS])
{
    TRY(config_need_mapping(doc, root, "a formula sheet"));
    const yaml_node_pair_t *p = root->data.mapping.pairs.start;
    for (; p < root->data.mapping.pairs.top; p++) {
        char place[CONFIG_PLACE_BYTES];
        const char *key = NULL;
        int k = 0;
        TRY(config_key_text(doc, root, p, &key));
        while (k < KEYS && strcmp(key, keys[k]) != 0) k++;
        if (k == KEYS)
            return FAIL(ERR_ARG,
                        "%s: %.60s is no part of a formula sheet: title, source, "
                        "extends and define are",
                        config_place(place, doc, config_node(doc, p->key)->start_mark), key);
        value[k] = config_node(doc, p->value);
    }
    return OK;
}

static Status read_sheet(ConfigDoc *doc, FormulaSheet *s)
{
    const yaml_node_t *root = yaml_document_get_root_node(&doc->yaml), *value[KEYS] = { NULL };
    const char *base = NULL;
    if (!config_is_nothing(root)) TRY(read_keys(doc, root, value));
    if (value[DEFINE] == NULL) return FAIL(ERR_ARG, "%.120s: define is missing", doc->name);
    if (value[EXTENDS] != NULL) {
        TRY(read_text(doc, value[EXTENDS], keys[EXTENDS], &base));
        TRY(formula_load(s, doc->arena, base));
    } else {
        *s = (FormulaSheet){ 0 };
        TRY(ARENA_NEW(doc->arena, FORMULA_DEFS_MAX, &s->def));
    }
    s->title = s->source = "";
    TRY(arena_text(doc->arena, doc->name, strlen(doc->name), &s->name));
    if (value[TITLE] != NULL) TRY(read_text(doc, value[TITLE], keys[TITLE], &s->title));
    if (value[SOURCE] != NULL) TRY(read_text(doc, value[SOURCE], keys[SOURCE], &s->source));
    return read_defs(doc, value[DEFINE], s);
}

Status formula_parse(FormulaSheet *s, Arena *a, const char *name, const char *yaml,
                     size_t yaml_bytes)
{
    FormulaSheet next = { 0 };
    ConfigDoc doc = { .name = name, .arena = a };
    Status status = config_doc_open(&doc, yaml, yaml_bytes);
    if (status == OK) status = read_sheet(&doc, &next);
    config_doc_close(&doc);
    if (status == OK) *s = next;
    return status;
}

Status formula_load(FormulaSheet *s, Arena *a, const char *name)
{
    const ConfigPreset *p = NULL;
    TRY(config_preset_find(formula_presets, formula_presets_n, name, "there is no formula", "",
                           &p));
    return formula_parse(s, a, p->name, p->yaml, strlen(p->yaml));
}

/* ---- values ---- */

Status formula_eval(const FormulaSheet *s, const char *name, const FormulaInputs *in, double *out)
{
    Run run = { .sheet = s, .in = in };
    double value = 0;
    int i = 0;
    TRY(formula_find(s, in, name, &i));
    TRY(evaluate(&run, i, &value));
    *out = value;
    return OK;
}

/* " = VALUE UNIT  [SOURCE]" */
static Status put_value(Text *out, double v, const char *unit, const char *source)
{
    char digits[32];
    bool whole_number = fabs(v) < 9e15 && v == nearbyint(v), quoted = *source != '\0';
    (void)snprintf(digits, sizeof digits, "%.10g", v);
    if (whole_number) text_thousands(digits, (int64_t)v);
    return text_printf(out, " = %s%s%s%s%s%s\n", digits, *unit == '\0' ? "" : " ", unit,
                       quoted ? "  [" : "", source, quoted ? "]" : "");
}

/* One name and, `depth` levels down, what it is made of. `opened` has a flag a name. */
static Status explain(Run *run, int i, int depth, int indent, bool *opened, Text *out)
{
    double value = 0;
    TRY(evaluate(run, i, &value));
    TRY(text_printf(out, "%*s%s", indent, "", name_at(run->sheet, run->in, i)));
    if (i < run->in->n) return put_value(out, value, "", run->in->at[i].source);
    const FormulaDef *d = &run->sheet->def[i - run->in->n];
    bool plain = d->text[strspn(d->text, "0123456789.")] == '\0', again = opened[i];
    if (!plain && !again) TRY(text_printf(out, " = %s", d->text));
    TRY(put_value(out, value, d->unit, again && !plain ? "above" : d->source));
    if (again || depth == 0) return OK;
    opened[i] = true;
    Reader r = { .run = run, .def = d, .at = d->text, .live = true };
    TRY(whole(&r, &value));
    for (int k = 0; k < r.n_used; k++)
        TRY(explain(run, r.used[k], depth - 1, indent + 2, opened, out));
    return OK;
}

Status formula_explain(const FormulaSheet *s, const char *name, const FormulaInputs *in, int depth,
                       Text *out)
{
    Run run = { .sheet = s, .in = in };
    bool opened[NAMES_MAX] = { false };
    int i = 0;
    TRY(formula_find(s, in, name, &i));
    return explain(&run, i, depth, 0, opened, out);
}
