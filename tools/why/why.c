/* why: `bench ops --why`: which kernel takes each call of a model on a GPU, and why the others do
 * not (kernels/core/kernels.h). A step of the model is counted, not run, so the GPU may be one that this
 * machine does not have. The table of docs/explain/kernels.md is made here, too. */
#include "why/why.h"

#include "bench/bench.h"

#include "bench/runner.h"
#include "engine/backend/backend.h"
#include "engine/count/layer_count.h"
#include "hardware/hardware.h"
#include "why/op_kernels.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    CALLS_MAX = 128,
    ROWS_MAX = 6,
    BEFORE_KERNEL = 20 + 1 + 6 + 1 + 5 + 1 + BENCH_SHAPE_MAX - 16 + 1 /* columns */
};

/* Calls of one op for which all candidates give the same answers. */
typedef struct WhyCall {
    OpId op;
    const char *what; /* which of the op's products, if it has several */
    const KernelTable *table;
    const char *said[ROWS_MAX];  /* the answer of each row of the table */
    char shape[BENCH_SHAPE_MAX]; /* of the first call */
    bool others;                 /* some calls have other shapes */
    int64_t calls;
} WhyCall;

typedef struct Why {
    KernelDevice device;
    Arena arena, scratch; /* texts; counted layers */
    Arena device_memory;  /* stays empty: gpu_exec_init wants one */
    Exec ex;              /* opens the libraries of this machine */
    const OpDesc *op;     /* the op that is being counted, */
    const void *args;     /* and its arguments */
    WhyCall call[CALLS_MAX];
    int n;
    bool counted[OP_ID_COUNT], chosen[OP_ID_COUNT]; /* runs in a step; has candidates */
} Why;

/* The answer of row i: "runs", or why it does not run. asked > 0: a setting names row asked - 1. */
static Status row_answer(Why *w, const KernelTable *t, int asked, const void *call, int i,
                         const char **out)
{
    const KernelDesc *first = kernels_first(t, &w->device, asked, call), *k = &t->row[i];
    Text text = { 0 };
    KernelWhy why;
    TRY(text_init(&text, &w->arena));
    if (k == first)
        TRY(text_printf(&text, "runs"));
    else if (asked > 0 && asked != i + 1)
        TRY(text_printf(&text, "%s is %s", t->setting, t->row[asked - 1].name));
    else if (kernel_can(k, &w->device, call, &why))
        TRY(text_printf(&text, "can, but %s comes first", first->name));
    else
        TRY(text_printf(&text, "%s", why.text));
    *out = text.data;
    return OK;
}

static OpId id_of(const OpDesc *op)
{
    int id = 0;
    while (op_desc((OpId)id) != op) id++;
    return (OpId)id;
}

static bool same_answers(const WhyCall *a, const WhyCall *b)
{
    bool equal = a->op == b->op && a->table == b->table && strcmp(a->what, b->what) == 0;
    for (int i = 0; equal && i < a->table->n; i++) equal = strcmp(a->said[i], b->said[i]) == 0;
    return equal;
}

/* Called for each table of candidates that an op's call has: counts it with calls of equal
 * answers. */
static Status add_call(void *self, const char *what, const KernelTable *t, int asked,
                       const void *call)
{
    Why *w = self;
    WhyCall new = { .op = id_of(w->op), .what = what, .table = t, .calls = 1 };
    assert(t->n <= ROWS_MAX);
    for (int i = 0; i < t->n; i++) TRY(row_answer(w, t, asked, call, i, &new.said[i]));
    bench_shape_text(w->op, w->args, new.shape);
    w->chosen[new.op] = true;
    for (int i = 0; i < w->n; i++) {
        WhyCall *old = &w->call[i];
        if (!same_answers(old, &new)) continue;
        old->calls++;
        old->others |= strcmp(old->shape, new.shape) != 0;
        return OK;
    }
    if (w->n < CALLS_MAX) w->call[w->n++] = new;
    return OK;
}

static Status count_op(void *self, LayerPass pass, int phase, const OpDesc *op, const void *args,
                       const OpCost *cost)
{
    Why *w = self;
    (void)pass;
    (void)phase;
    (void)cost;
    w->op = op;
    w->args = args;
    w->counted[id_of(op)] = true;
    return op_kernels_visit(id_of(op), args, add_call, w);
}

/* Counts every layer of the model; the observer sees each op with its arguments. */
static Status count_layers(Why *w, const Config *c)
{
    ModelSpec spec;
    LayerCountObserver observer = { count_op, w, NULL };
    TRY(spec_build(c, &w->arena, &spec));
    for (int i = 0; i < spec.n_layers; i++) {
        LayerCount count;
        TRY(layer_count(&spec, i, c->train_micro_batch, c->data_sequence, &observer, &w->scratch,
                        &count));
    }
    return OK;
}

/* Without a GPU the CPU's implementation runs, and the candidates say why they do not. */
static Status print_call(const Why *w, const WhyCall *c, Text *out)
{
    bool cpu = w->device.vendor == VENDOR_ANY;
    TRY(text_printf(out, "%-20s %-6s %5" PRId64 " %-*s ", op_desc(c->op)->name, c->what, c->calls,
                    BENCH_SHAPE_MAX - 16, c->shape));
    const char *others = c->others ? ", in other shapes, too" : "";
    if (cpu) TRY(text_printf(out, "%-10s runs%s\n", "cpu", others));
    for (int i = 0; i < c->table->n; i++) {
        bool runs = strcmp(c->said[i], "runs") == 0;
        if (i > 0 || cpu) TRY(text_printf(out, "%*s", BEFORE_KERNEL, ""));
        TRY(text_printf(out, "%-10s %s%s\n", c->table->row[i].name, c->said[i],
                        runs ? others : ""));
    }
    return OK;
}

/* Calls in the order of the table of ops; at last the ops that have no alternatives. */
static Status print_calls(const Why *w, Text *out)
{
    int alone = 0;
    TRY(text_printf(out, "%-20s %-6s %5s %-*s %-10s %s\n", "op", "", "calls", BENCH_SHAPE_MAX - 16,
                    "shape", "kernel", "runs, or why not"));
    for (int id = 0; id < OP_ID_COUNT; id++) {
        for (int i = 0; i < w->n; i++)
            if ((int)w->call[i].op == id) TRY(print_call(w, &w->call[i], out));
    }
    TRY(text_printf(out, "one kernel each:"));
    for (int id = 0; id < OP_ID_COUNT; id++) {
        if (!w->counted[id] || w->chosen[id]) continue;
        TRY(text_printf(out, "%s %s", alone++ > 0 ? "," : "", op_desc((OpId)id)->name));
    }
    return text_printf(out, "\n");
}

/* This machine's GPU, or none. */
static Status device_here(const Config *c, Why *w, char name[GPU_NAME_MAX])
{
    TRY(bench_machine(c, name));
    if (!engine_wants_gpu(c)) return OK;
    TRY(gpu_exec_init(&w->ex, (int)c->run_gpu, &w->arena, &w->device_memory));
    w->device = *w->ex.device;
    return OK;
}

/* A GPU of a hardware file: vendor and compute capability are all that candidates ask. */
static Status device_of_sheet(const char *sheet, Why *w, char name[GPU_NAME_MAX])
{
    Hardware h;
    TRY(hardware_load(&h, &w->arena, sheet));
    (void)snprintf(name, GPU_NAME_MAX, "%s", h.gpu_title);
    w->device.vendor = h.gpu_capability > 0 ? VENDOR_NVIDIA : VENDOR_AMD;
    w->device.capability = (int)h.gpu_capability;
    return OK;
}

static Status list_calls(const Config *c, const char *sheet, Why *w, Text *out)
{
    char name[GPU_NAME_MAX] = "";
    TRY(arena_reserve(&w->arena, "why", (size_t)1 << 30));
    TRY(arena_reserve(&w->scratch, "count", (size_t)1 << 30));
    TRY(sheet != NULL ? device_of_sheet(sheet, w, name) : device_here(c, w, name));
    TRY(count_layers(w, c));
    TRY(text_printf(out, "%s, %s, %" PRId64 " tokens: which kernel takes each call of a step\n",
                    name, dtype_name(config_type(c)), c->train_micro_batch * c->data_sequence));
    return print_calls(w, out);
}

Status bench_why(const Config *c, const char *sheet, Text *out)
{
    Why w = { 0 };
    Status s = list_calls(c, sheet, &w, out);
    exec_free(&w.ex);
    arena_free(&w.scratch);
    arena_free(&w.arena);
    return s;
}

/* The GPUs that a kernel is for. */
static void row_gpus(const KernelDesc *k, char out[64])
{
    int least = k->capability_least, most = k->capability_most;
    if (k->vendor == VENDOR_ANY)
        (void)snprintf(out, 64, "all");
    else if (least == 0)
        (void)snprintf(out, 64, k->vendor == VENDOR_AMD ? "AMD" : "NVIDIA");
    else
        (void)snprintf(out, 64, least == most ? "NVIDIA, sm_%d alone" : "NVIDIA, from sm_%d on",
                       least);
}

Status bench_kernels_table(Text *out)
{
    TRY(text_printf(out, "| op | kernel | GPUs | takes |\n|---|---|---|---|\n"));
    for (int i = 0; i < OP_KERNELS; i++) {
        const KernelTable *t = op_kernels[i].table;
        for (int j = 0; j < t->n; j++) {
            char needs[KERNEL_NEEDS_MAX] = "every call", gpus[64];
            if (t->row[j].needs != NULL) t->row[j].needs(needs);
            row_gpus(&t->row[j], gpus);
            TRY(text_printf(out, "| %s | `%s` | %s | %s |\n", j == 0 ? op_kernels[i].title : "",
                            t->row[j].name, gpus, needs));
        }
    }
    return OK;
}
