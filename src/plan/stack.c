/* stack: the stacks of the program and of files, and their values. */
#include "plan/stack.h"

#include "base/file.h"
#include "config/config_doc.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const stack_names[STACK_COUNT] = {
#define STACK(name, fallback, help) [STACK_##name] = #name,
#include "plan/stack.def"
#undef STACK
};

static const double fallbacks[STACK_COUNT] = {
#define STACK(name, fallback, help) [STACK_##name] = (fallback),
#include "plan/stack.def"
#undef STACK
};

/* ---- stacks of the program ---- */

#define INPUT(name, value, source)   SHEET_INPUT(s, name, source, in->name)
#define DEF(name, unit, source, ...) SHEET_DEFINE(s, name, unit, source, __VA_ARGS__)

static void fill_primus(Sheet *s, const PlanInputs *in)
{
#include "plan/inputs.def"
#include "plan/stack_primus.def"
}

/* Counted by the engine itself; what it loses beside its ops was measured on an H200
 * (docs/performance.md). */
static void fill_switchyard(Sheet *s, const PlanInputs *in)
{
#include "plan/inputs.def"
    DEF(reserve, "bytes",
        "context and loaded kernels of a process; buffers of NCCL's channels: assumed",
        (gpus > 1 ? 1.25 : 0.75) * 1073741824)
    DEF(workspace, "bytes", "cuBLASLt and cuDNN", 0.0625 * 1073741824)
    DEF(share_grouped, "",
        "the six products of a layer of DeepSeek-V2-Lite: 8.45 ms measured, 8.43 by the GPU's "
        "rates",
        1)
    DEF(kernel_s, "s", "between two kernels of a graph", 2.0e-6)
    DEF(wait_step, "s", "one record a step", sync_s)
    DEF(lanes, "", "phases run on their lanes, ordered by events alone (src/train/run_program.c)",
        1)
    DEF(list, "", "the plan simulates what train runs (src/plan/price_program.c)", 1)
}

#undef INPUT
#undef DEF

/* torchtitan (PyTorch with FSDP2, expert parallelism and Primus-Turbo kernels), by its documentation: f32
 * weights that are sharded (FSDP2: they are the main weights, so plan with mesh.zero=3) and gathered in
 * bf16 layer by layer. Layers and constants are primus': nothing was fitted to torchtitan itself. */
static const SheetGiven torchtitan[] = {
    { "sync_free", 0, "", "token counts are read by the host" },
    { "zero_most", 3, "", "FSDP2 shares out weights, too" },
    { "launch_tuned", 0, "", "" },
    { "weight_size", 4, "bytes", "" },
    { "main_size", 0, "bytes", "" },
    { "grad_size", 4, "bytes", "" },
    { "base_gib", 8, "GiB", "context, collectives, allocator; assumed" },
    { "recompute", 32, "", "activation checkpointing of whole layers" },
};

static const struct {
    const char *name;
    void (*fill)(Sheet *s, const PlanInputs *in);
    const SheetGiven *given;
    size_t given_n;
} stacks[] = {
    { "primus", fill_primus, NULL, 0 },
    { "switchyard", fill_switchyard, NULL, 0 },
    { "torchtitan", fill_primus, torchtitan, sizeof torchtitan / sizeof *torchtitan },
};

enum { STACKS = sizeof stacks / sizeof *stacks };

static Status find_stack(const char *name, PlanStack *out)
{
    for (int i = 0; i < STACKS; i++) {
        if (strcmp(stacks[i].name, name) != 0) continue;
        out->fill = stacks[i].fill;
        for (size_t k = 0; k < stacks[i].given_n; k++)
            out->given.at[out->given.n++] = stacks[i].given[k];
        return OK;
    }
    return FAIL(
        ERR_ARG,
        "there is no stack %.60s: primus, switchyard, torchtitan are, and files (with a / or . "
        "in the name)",
        name);
}

/* ---- names ---- */

/* What a stack defines, without numbers for it. */
static void empty_sheet(const PlanStack *s, Sheet *out)
{
    static const PlanInputs none;
    stack_sheet(s, &none, out);
}

/* What may be given: the stack's own definitions, and all that any stack may define. */
static int list_names(const Sheet *sheet, const char *names[SHEET_ROWS_MAX + STACK_COUNT])
{
    int n = 0;
    for (int i = 0; i < sheet->n; i++) {
        if (sheet->row[i].text != NULL) names[n++] = sheet->row[i].name;
    }
    for (int i = 0; i < STACK_COUNT; i++) names[n++] = stack_names[i];
    return n;
}

void stack_sheet(const PlanStack *s, const PlanInputs *in, Sheet *out)
{
    *out = (Sheet){ .name = s->name, .given = &s->given };
    if (s->fill != NULL) s->fill(out, in);
    sheet_end(out);
}

/* ---- a file ---- */

/* NUMBER or [NUMBER, UNIT, SOURCE], of which the last ones may be missing. */
static Status read_value(ConfigDoc *doc, const yaml_node_t *n, SheetGiven *out)
{
    static const char wanted[] =
        "a number or [number, unit, source]; expressions were removed, a stack "
        "of the program has options instead (--stack primus,NAME=NUMBER)";
    const char **const part[] = { NULL, &out->unit, &out->source };
    const yaml_node_t *value = n;
    if (n->type == YAML_SEQUENCE_NODE) {
        const yaml_node_item_t *item = n->data.sequence.items.start;
        int parts = (int)(n->data.sequence.items.top - item);
        if (parts < 1 || parts > 3) return config_wrong(doc, n, out->name, wanted);
        for (int i = 1; i < parts; i++) {
            const char *text = config_scalar_text(config_node(doc, item[i]));
            if (text == NULL) return config_wrong(doc, n, out->name, wanted);
            TRY(arena_text(doc->arena, text, strlen(text), part[i]));
        }
        value = config_node(doc, item[0]);
    }
    if (!config_scalar_number(value, &out->value) || !isfinite(out->value))
        return config_wrong(doc, value, out->name, wanted);
    return OK;
}

static Status read_values(ConfigDoc *doc, const yaml_node_t *map, PlanStack *s)
{
    Sheet sheet;
    const char *names[SHEET_ROWS_MAX + STACK_COUNT];
    TRY(config_need_mapping(doc, map, "define"));
    empty_sheet(s, &sheet);
    int n = list_names(&sheet, names);
    const yaml_node_pair_t *p = map->data.mapping.pairs.start;
    for (; p < map->data.mapping.pairs.top; p++) {
        SheetGiven value = { .unit = "", .source = "" };
        const char *name = NULL;
        TRY(config_key_text(doc, map, p, &name));
        TRY(arena_text(doc->arena, name, strlen(name), &value.name));
        TRY(read_value(doc, config_node(doc, p->value), &value));
        TRY(sheet_give(&s->given, doc->name, names, n, &value));
    }
    return OK;
}

/* `title` and `source` are for readers of the file. */
static Status read_file(ConfigDoc *doc, PlanStack *s)
{
    static const char *const keys[] = { "define", "extends", "title", "source" };
    const yaml_node_t *root = yaml_document_get_root_node(&doc->yaml), *value[4] = { NULL };
    if (config_is_nothing(root)) return FAIL(ERR_ARG, "%.120s: define is missing", doc->name);
    TRY(config_need_mapping(doc, root, "a stack"));
    const yaml_node_pair_t *p = root->data.mapping.pairs.start;
    for (; p < root->data.mapping.pairs.top; p++) {
        char place[CONFIG_PLACE_BYTES];
        const char *key = NULL;
        int k = 0;
        TRY(config_key_text(doc, root, p, &key));
        while (k < 4 && strcmp(key, keys[k]) != 0) k++;
        if (k == 4)
            return FAIL(ERR_ARG,
                        "%s: %.60s is no part of a stack: title, source, extends and define are",
                        config_place(place, doc, config_node(doc, p->key)->start_mark), key);
        value[k] = config_node(doc, p->value);
    }
    if (value[0] == NULL) return FAIL(ERR_ARG, "%.120s: define is missing", doc->name);
    if (value[1] != NULL) {
        const char *base = config_scalar_text(value[1]);
        if (base == NULL) return config_wrong(doc, value[1], "extends", "the name of a stack");
        TRY(find_stack(text_starts(base, "stack-") ? base + strlen("stack-") : base, s));
    }
    return read_values(doc, value[0], s);
}

static void note_defined(PlanStack *s)
{
    Sheet sheet;
    empty_sheet(s, &sheet);
    for (int i = 0; i < STACK_COUNT; i++) s->has[i] = sheet_find(&sheet, stack_names[i]) >= 0;
}

Status stack_parse(PlanStack *s, Arena *a, const char *name, const char *yaml, size_t yaml_bytes)
{
    PlanStack next = { .name = name };
    ConfigDoc doc = { .name = name, .arena = a };
    Status status = config_doc_open(&doc, yaml, yaml_bytes);
    if (status == OK) status = read_file(&doc, &next);
    config_doc_close(&doc);
    if (status != OK) return status;
    next.given_in_file = next.given.n;
    note_defined(&next);
    *s = next;
    return OK;
}

/* ---- what --stack says ---- */

static Status load_named(PlanStack *s, Arena *a, const char *name)
{
    char *text = NULL;
    size_t bytes = 0;
    if (strchr(name, '/') == NULL && strchr(name, '.') == NULL) {
        TRY(find_stack(name, s));
        s->given_in_file = s->given.n;
        return OK;
    }
    TRY(file_read_input(name, a, &text, &bytes));
    return stack_parse(s, a, name, text, bytes);
}

Status stack_load(PlanStack *s, Arena *a, const char *source)
{
    const char *names[SHEET_ROWS_MAX + STACK_COUNT], *name = NULL;
    PlanStack next = { .given = { .n = 0 } };
    Sheet sheet;
    Text title;
    TRY(arena_text(a, source, strcspn(source, ","), &name));
    TRY(load_named(&next, a, name));
    TRY(text_init(&title, a));
    TRY(text_printf(&title, "stack %s", name));
    next.name = title.data;
    empty_sheet(&next, &sheet);
    TRY(sheet_give_text(&next.given, next.name, names, list_names(&sheet, names), source, a));
    note_defined(&next);
    *s = next;
    return OK;
}

bool stack_offers(const PlanStack *s, const char *name)
{
    Sheet sheet;
    empty_sheet(s, &sheet);
    for (int i = s->given_in_file; i < s->given.n; i++) {
        if (strcmp(s->given.at[i].name, name) == 0) return false;
    }
    return sheet_find(&sheet, name) >= 0;
}

/* ---- values ---- */

static Status check_values(const PlanStack *s, const StackValues *v)
{
    enum { ABOVE_0 = 4 }; /* the first four must be above 0, the others are shares */
    static const StackName names[] = { STACK_share_compute, STACK_share_memory,
                                       STACK_share_links,   STACK_checkpoint_gb_s,
                                       STACK_hide_exchange, STACK_hide_gradients };
    for (int i = 0; i < STACK_COUNT; i++) {
        if (!isfinite(v->at[i]))
            return FAIL(ERR_ARG, "%s: %s is %g, it must be finite", s->name, stack_names[i],
                        v->at[i]);
    }
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++) {
        double value = v->at[names[i]];
        if (i < ABOVE_0 ? value > 0 : value >= 0 && value <= 1) continue;
        return FAIL(ERR_ARG, "%s: %s is %g, it must be %s", s->name, stack_names[names[i]], value,
                    i < ABOVE_0 ? "above 0" : "from 0 to 1");
    }
    double kind = v->at[STACK_dispatch], again = v->at[STACK_recompute];
    if (!(again >= 0 && again < 64))
        return FAIL(ERR_ARG, "%s: recompute is %g, a sum of pieces is from 0 to 63", s->name,
                    again);
    if (kind < 0 || kind == 0 || kind == 1 || kind == 2) return OK;
    return FAIL(ERR_ARG, "%s: dispatch is %g, it must be 0 (expert), 1 (rank), 2 (host) or below 0",
                s->name, kind);
}

Status stack_values(const PlanStack *s, const PlanInputs *in, StackValues *out)
{
    Sheet sheet;
    stack_sheet(s, in, &sheet);
    for (int i = 0; i < STACK_COUNT; i++) {
        int row = s->has[i] ? sheet_find(&sheet, stack_names[i]) : -1;
        out->at[i] = row < 0 ? fallbacks[i] : sheet.row[row].value;
    }
    return check_values(s, out);
}

double stack_of_layer(const StackValues *v, const char *what, const char *layer, double otherwise)
{
    size_t n = strlen(what);
    for (int i = 0; i < STACK_COUNT; i++) {
        const char *at = stack_names[i];
        if (strncmp(at, what, n) == 0 && at[n] == '_' && strcmp(at + n + 1, layer) == 0)
            return v->at[i];
    }
    return otherwise;
}
