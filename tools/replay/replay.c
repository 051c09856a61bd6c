/*
 * replay: finds the operators of a trace and writes them as TraceLens' JSON, in which arguments
 * have the names that PyTorch gives them. Rows for our own benchmark are written by replay_bench.c.
 *
 * Three parts: which calls count (replay_find), what their arguments are called (find_schema over
 * schemas.def), and the JSON (replay_json). An operator that cannot run again is left out and
 * counted with the reason.
 */
#include "replay/replay.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- operators ---- */

/* A call that launched device work, once for each launch. */
typedef struct Call {
    uint32_t name, args, event;
    double device_us;
} Call;

static int by_args(const void *a, const void *b)
{
    const Call *x = a, *y = b;
    if (x->name != y->name) return x->name < y->name ? -1 : 1;
    if (x->args != y->args) return x->args < y->args ? -1 : 1;
    return (x->event > y->event) - (x->event < y->event);
}

static int by_time(const void *a, const void *b)
{
    const ReplayOp *x = a, *y = b;
    if (x->device_us != y->device_us) return x->device_us > y->device_us ? -1 : 1;
    return (x->event > y->event) - (x->event < y->event);
}

/* Arguments without types cannot run again, so they count as none. */
static uint32_t args_of(const Events *e, uint32_t event)
{
    uint32_t args = event_args(e, event);
    return args == EVENT_NONE || e->args[args].types == 0 ? EVENT_NONE : args;
}

/* Is the operator a leaf: does it call no other operator? */
static bool calls_none(const Tree *t, uint32_t event)
{
    for (uint32_t c = t->first[event]; c < t->first[event + 1]; c++) {
        if (t->events->kind[t->child[c]] == EVENT_CPU_OP) return false;
    }
    return true;
}

/* Lists a call for each launch. In a trace without device work it lists the operators that call no
 * other operator. */
static void find_calls(const Tree *t, const char *filter, Call *call, int64_t *n, Replay *out)
{
    const Events *e = t->events;
    bool device = false;
    for (int64_t i = 0; i < e->n && !device; i++) device = event_on_gpu(e->kind[i]);
    for (uint32_t i = 0; i < e->n; i++) {
        uint32_t op = i;
        if (device && !event_on_gpu(e->kind[i])) continue;
        if (device) op = tree_launcher(t, i);
        if (!device && (e->kind[i] != EVENT_CPU_OP || !calls_none(t, i))) continue;
        if (op == EVENT_NONE) continue;
        if (filter != NULL && strstr(event_name(e, op), filter) == NULL) continue;
        uint32_t args = args_of(e, op);
        if (args == EVENT_NONE)
            out->other++;
        else
            call[(*n)++] = (Call){ e->name[op], args, op, device ? e->dur[i] : 0 };
    }
}

/* Calls are sorted by operator and arguments, so equal ones lie together and become one
 * ReplayOp. */
Status replay_find(const Tree *t, const char *filter, int64_t limit, Arena *a, Arena *scratch,
                   Replay *out)
{
    ArenaMark mark = arena_mark(scratch);
    Call *call = NULL;
    int64_t n = 0;
    *out = (Replay){ .events = t->events };
    TRY(ARENA_NEW(scratch, t->events->n, &call));
    find_calls(t, filter, call, &n, out);
    if (n > 0) qsort(call, (size_t)n, sizeof *call, by_args);
    TRY(ARENA_NEW(a, n, &out->op));
    for (int64_t i = 0; i < n; i++) {
        bool same = i > 0 && call[i].name == call[i - 1].name && call[i].args == call[i - 1].args;
        if (!same) out->op[out->n++] = (ReplayOp){ .event = call[i].event };
        ReplayOp *op = &out->op[out->n - 1];
        if (!same || call[i].event != call[i - 1].event) op->calls++;
        op->device_us += call[i].device_us;
    }
    if (out->n > 0) qsort(out->op, (size_t)out->n, sizeof *out->op, by_time);
    if (limit > 0 && out->n > limit) out->n = limit;
    for (int64_t i = 0; i < out->n; i++) {
        out->calls += out->op[i].calls;
        out->device_us += out->op[i].device_us;
    }
    arena_release(scratch, mark);
    return OK;
}

/* ---- arguments ---- */

Status replay_args(const Replay *r, const ReplayOp *op, Arena *a, OpArg out[OP_ARGS_MOST], int *n)
{
    const Events *e = r->events;
    bool sound = false;
    TRY(op_args_read(&e->strings, &e->args[args_of(e, op->event)], a, out, n, &sound));
    if (!sound) *n = -1;
    return OK;
}

/* Reasons are few and are compared by text. The last entry collects what does not fit. */
void replay_count(const Replay *r, const ReplayOp *op, const char *why, ReplayCount *count)
{
    const char *name = event_name(r->events, op->event);
    if (why == NULL) {
        count->ops++;
        count->calls += op->calls;
        count->device_us += op->device_us;
        return;
    }
    int i = 0;
    while (i < count->lefts && i + 1 < REPLAY_LEFT_MAX &&
           (strcmp(count->left[i].name, name) != 0 || strcmp(count->left[i].why, why) != 0))
        i++;
    if (i == count->lefts) count->left[count->lefts++] = (ReplayLeft){ name, why, 0, 0 };
    if (i + 1 == REPLAY_LEFT_MAX) count->left[i].name = "others", count->left[i].why = "as above";
    count->left[i].calls += op->calls;
    count->left[i].device_us += op->device_us;
}

/* Types of tensors are names of elements; everything else is a scalar or a list. */
static bool is_tensor(const char *type)
{
    return type[0] != 0 && strstr(type, "Scalar") == NULL && strstr(type, "List") == NULL;
}

/* The name that TraceLens' replayer has for a type; NULL: it does not know the type. */
static const char *type_of(const char *type)
{
    static const char KNOWN[] =
        "double|float|c10::Half|c10::BFloat16|long|int|bool|unsigned char|char|short|"
        "c10::Float8_e4m3fn|c10::Float8_e5m2|c10::Float8_e4m3fnuz|c10::Float8_e5m2fnuz";
    if (strcmp(type, "long int") == 0) return "long";
    if (strcmp(type, "signed char") == 0) return "char";
    if (strcmp(type, "short int") == 0) return "short";
    return text_word_index(KNOWN, type) >= 0 ? type : NULL;
}

/* ---- values ---- */

static bool is_whole(const char *s)
{
    s += *s == '-';
    return *s != 0 && s[strspn(s, "0123456789")] == 0;
}

static bool is_truth(const char *s)
{
    return strcasecmp(s, "true") == 0 || strcasecmp(s, "false") == 0;
}

static bool is_number(const char *s)
{
    char *end = NULL;
    (void)strtod(s, &end);
    return *s != 0 && *end == 0;
}

/* Writes a value as JSON that Python reads: "1." becomes 1.0, "True" true, "inf" Infinity. */
static Status put_value(Text *out, const char *s)
{
    if (*s == 0 || strcmp(s, "None") == 0) return text_printf(out, "null");
    if (is_truth(s)) return text_printf(out, strcasecmp(s, "true") == 0 ? "true" : "false");
    if (is_whole(s)) return text_printf(out, "%s", s);
    if (!is_number(s)) return text_json(out, "%s", s);
    double x = strtod(s, NULL);
    if (isnan(x)) return text_printf(out, "NaN");
    if (isinf(x)) return text_printf(out, x < 0 ? "-Infinity" : "Infinity");
    return text_json(out, floor(x) == x && fabs(x) < 1e15 ? "%.1f" : "%g", x);
}

/* Reads the next item of "[1, 2]". False: there is no more, or it is too long. */
static bool next_item(const char **s, char item[64])
{
    *s += strspn(*s, "[, ");
    size_t n = strcspn(*s, "], ");
    if (n == 0 || n >= 64) return false;
    memcpy(item, *s, n);
    item[n] = 0;
    *s += n;
    return true;
}

static Status put_list(Text *out, const char *s)
{
    char item[64];
    TRY(text_printf(out, "["));
    for (int i = 0; next_item(&s, item); i++) {
        if (i > 0) TRY(text_printf(out, ","));
        TRY(put_value(out, item));
    }
    return text_printf(out, "]");
}

static bool list_of(const char *s, bool (*is)(const char *))
{
    char item[64];
    if (*s != '[') return false;
    while (next_item(&s, item))
        if (!is(item)) return false;
    return strcmp(s, "]") == 0;
}

/* Writes the strides of a contiguous tensor, for traces that have no strides. */
static Status put_contiguous(Text *out, const char *dims)
{
    int64_t dim[REPLAY_DIMS_MAX];
    int rank = op_sizes(dims, dim, REPLAY_DIMS_MAX);
    TRY(text_printf(out, "["));
    for (int i = 0; i < rank; i++) {
        int64_t stride = 1;
        for (int k = i + 1; k < rank; k++) stride *= dim[k];
        TRY(text_printf(out, i > 0 ? ",%lld" : "%lld", (long long)stride));
    }
    return text_printf(out, "]");
}

/* Writes a tensor. "init" says what to fill it with: a normal distribution. It is null if the
 * operator writes the tensor before it reads it. It is also null for whole numbers, which a normal
 * distribution does not give. */
static Status put_tensor(Text *out, const char *op, int nth, const OpArg *a)
{
    bool written = strcmp(op, "aten::fill_") == 0 || strcmp(op, "aten::zero_") == 0 ||
                   (strcmp(op, "aten::copy_") == 0 && nth == 0);
    bool real = strstr(a->type, "loat") != NULL || strcmp(a->type, "double") == 0 ||
                strcmp(a->type, "c10::Half") == 0;
    TRY(text_printf(out, "{\"shape\":%s,", a->dims));
    TRY(text_json(out, "\"dtype\":%s,\"strides\":", type_of(a->type)));
    if (a->strides[0] == '[')
        TRY(text_printf(out, "%s", a->strides));
    else
        TRY(put_contiguous(out, a->dims));
    return text_printf(out, ",\"init\":%s}", real && !written ? "\"normal\"" : "null");
}

/* ---- names ---- */

/* A parameter of a row of schemas.def. keyword: it and those after it go by name. */
typedef struct Param {
    char type[32], name[32], preset[16]; /* preset: the default value; "": none */
    bool optional, keyword;
} Param;

static const struct {
    const char *args, *names;
} schemas[] = {
#define SCHEMA(args, names) { args, names },
#include "replay/schemas.def"
};

/* Reads a parameter like "Tensor? bias=None, " from *s. False: there is no more. */
static bool next_param(const char **s, Param *p)
{
    int used = 0;
    if (strncmp(*s, "*, ", 3) == 0) p->keyword = true, *s += 3;
    p->preset[0] = 0;
    if (sscanf(*s, "%31[^ ] %31[^=,]%n", p->type, p->name, &used) != 2) return false;
    *s += used;
    if (**s == '=' && sscanf(*s, "=%15[^,]%n", p->preset, &used) == 1) *s += used;
    *s += strspn(*s, ", ");
    size_t n = strlen(p->type);
    p->optional = n > 0 && p->type[n - 1] == '?';
    if (p->optional) p->type[n - 1] = 0;
    return true;
}

static bool is_missing(const OpArg *a)
{
    return a->type[0] == 0 && (a->value == NULL || a->value[0] == 0);
}

/* Can this argument be that parameter? Without recorded values the kind of type has to do. */
static bool fits_param(const Param *p, const OpArg *a)
{
    bool scalar = strcmp(a->type, "Scalar") == 0, list = strcmp(a->type, "ScalarList") == 0;
    const char *t = p->type, *v = a->value;
    if (is_missing(a)) return p->optional || p->preset[0] != 0;
    if (strcmp(t, "Tensor") == 0) return is_tensor(a->type);
    if (text_ends(t, "[]")) {
        if (!list) return false;
        return v == NULL || list_of(v, text_starts(t, "bool") ? is_truth : is_whole);
    }
    if (!scalar) return false;
    if (v == NULL) return true;
    if (strcmp(t, "bool") == 0) return is_truth(v);
    if (strcmp(t, "float") == 0) return is_number(v);
    if (strcmp(t, "Scalar") == 0) return is_number(v) || is_truth(v);
    return is_whole(
        v); /* int, SymInt, and types, layouts and formats, which are recorded as numbers */
}

/* Is NAME of aten::NAME among the words of `names`? */
static bool is_named(const char *names, const char *op)
{
    size_t n = strlen(op);
    for (const char *at = names; (at = strstr(at, op)) != NULL; at += n) {
        if ((at == names || at[-1] == ' ') && (at[n] == 0 || at[n] == ' ')) return true;
    }
    return false;
}

/* Finds the row that the arguments fit; NULL: none. Every operator also has a form with one more
 * argument, a tensor of the caller to write into. *out: it is that form. */
static const char *find_schema(const char *op, const OpArg *arg, int n, bool *out)
{
    if (!text_starts(op, "aten::")) return NULL;
    /* A row fits if all its parameters are used up, or all but the tensor to write into. */
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
        const char *s = schemas[i].args;
        Param p = { .keyword = false };
        int at = 0;
        if (!is_named(schemas[i].names, op + 6)) continue;
        while (at < n && *s != 0 && next_param(&s, &p) && fits_param(&p, &arg[at])) at++;
        *out = at + 1 == n && is_tensor(arg[at].type);
        if (*s == 0 && (at == n || *out)) return schemas[i].args;
    }
    return NULL;
}

/* Guesses the type of an argument from how its value is written. */
static const char *guess_type(const OpArg *a)
{
    const char *v = a->value == NULL ? "" : a->value;
    if (is_tensor(a->type)) return "Tensor";
    if (is_missing(a)) return "None";
    if (v[0] == '[') {
        if (list_of(v, is_truth) && v[1] != ']') return "bool[]";
        return list_of(v, is_whole) ? "int[]" : "list";
    }
    return is_truth(v) ? "bool" : is_whole(v) ? "int" : is_number(v) ? "float" : "str";
}

/* Gives the parameters of an operator as a row of schemas.def. *known: there is such a row.
 * Otherwise types are guessed, and names are positions: arg0, arg1, ... */
static Status schema_of(const char *op, const OpArg *arg, int n, Arena *a, const char **out,
                        bool *known)
{
    Text text = { 0 };
    bool more = false;
    const char *row = find_schema(op, arg, n, &more);
    *known = row != NULL;
    TRY(text_init(&text, a));
    TRY(text_printf(&text, "%s%s", row == NULL ? "" : row, more ? ", *, Tensor out" : ""));
    for (int i = 0; i < n && row == NULL; i++)
        TRY(text_printf(&text, "%s arg%d, ", guess_type(&arg[i]), i));
    *out = text.data;
    return OK;
}

/* ---- JSON ---- */

/* Returns why an operator with these arguments cannot run again; NULL: it can. */
static const char *why_not(const OpArg *arg, int n, const char *schema)
{
    Param p = { .keyword = false };
    if (n < 0) return "its arguments are not what a profiler writes";
    for (const OpArg *a = arg; a < arg + n; a++) {
        const bool tensor = is_tensor(a->type);
        (void)next_param(&schema, &p);
        if (strcmp(a->type, "TensorList") == 0)
            return "a list of tensors whose sizes or types are not in the trace";
        if (tensor && type_of(a->type) == NULL)
            return "a tensor of a type that the replayer does not know";
        if (tensor && a->dims[0] != '[') return "a tensor without sizes";
        if (!tensor && a->type[0] != 0 && a->value == NULL && p.preset[0] == 0 && !p.optional)
            return "the trace has no values of numbers (Concrete Inputs)";
    }
    return NULL;
}

static Status put_arg(Text *out, const char *op, int nth, const Param *p, const OpArg *a)
{
    bool missing = a->value == NULL || is_missing(a);
    const char *value = missing ? p->preset : a->value;
    TRY(text_json(out, "{\"arg_name\":%s,\"arg_type\":%s,\"value\":", p->name, p->type));
    if (is_tensor(a->type))
        TRY(put_tensor(out, op, nth, a));
    else if (value[0] == '[')
        TRY(put_list(out, value));
    else
        TRY(put_value(out, value));
    return text_printf(out, "}");
}

/* Keywords without a value are left out, so that the operator takes its defaults. */
static Status put_args(Text *out, const char *op, const OpArg *arg, int n, const char *schema)
{
    Param p = { .keyword = false };
    bool keyword = false, first = true;
    TRY(text_printf(out, "\"list_pos_args\":["));
    for (int i = 0; i < n; i++) {
        (void)next_param(&schema, &p);
        if (p.keyword && !keyword) {
            TRY(text_printf(out, "],\"list_kwargs\":["));
            keyword = first = true;
        }
        /* a keyword without a value: the operator has a default */
        if (keyword && (is_missing(&arg[i]) || (!is_tensor(arg[i].type) && arg[i].value == NULL)))
            continue;
        if (!first) TRY(text_printf(out, ","));
        TRY(put_arg(out, op, i, &p, &arg[i]));
        first = false;
    }
    return text_printf(out, keyword ? "]" : "],\"list_kwargs\":[]");
}

/* Each operator's texts are scratch memory, given back before the next one. */
Status replay_json(const Replay *r, Arena *scratch, Text *out, ReplayCount *count)
{
    TRY(text_printf(out, "["));
    for (int64_t i = 0; i < r->n; i++) {
        ArenaMark mark = arena_mark(scratch);
        const char *op = event_name(r->events, r->op[i].event);
        OpArg arg[OP_ARGS_MOST];
        int n = 0;
        bool known = false;
        const char *schema = NULL;
        TRY(replay_args(r, &r->op[i], scratch, arg, &n));
        TRY(schema_of(op, arg, n, scratch, &schema, &known));
        const char *why = why_not(arg, n, schema);
        if (why == NULL) {
            TRY(text_json(out, count->ops > 0 ? ",\n{\"op_name\":%s" : "\n{\"op_name\":%s", op));
            TRY(text_json(out, ",\"count\":%lld,\"kernel_time_us\":%g,\"names\":%s,\"replay_ir\":{",
                          (long long)r->op[i].calls, r->op[i].device_us,
                          known ? "known" : "unknown"));
            TRY(put_args(out, op, arg, n, schema));
            TRY(text_printf(out, "}}"));
        }
        replay_count(r, &r->op[i], why, count);
        arena_release(scratch, mark);
    }
    return text_printf(out, "\n]\n");
}
