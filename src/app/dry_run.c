/* dry_run: plans a run as training does, and prints the plan as tables for people. */
#include "app/dry_run.h"

#include "engine/host/host_memory.h"
#include "engine/model/recipe_text.h"
#include "engine/train/eval_choices.h"
#include "engine/train/fits.h"
#include "engine/train/train.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* The settings that differ from their defaults, as YAML that reads back to the same run. */
static Status print_changed(const Config *c, Arena *a, Text *out)
{
    Config plain;
    const ConfigChange *changed = NULL;
    int n = 0, section = 0;
    TRY(config_default(&plain, a));
    TRY(config_changes(&plain, c, a, &changed, &n));
    for (int i = 0; i < n; i++) {
        const char *name = changed[i].row->name;
        section = (int)strcspn(name, ".");
        if (config_opens_section(changed[i].row, i == 0 ? NULL : changed[i - 1].row))
            TRY(text_printf(out, "%.*s:\n", section, name));
        TRY(text_printf(out, "  %s: %s\n", name + section + 1, changed[i].now));
    }
    return text_printf(out, "# all other settings have their defaults, which --all prints\n");
}

/* A row of a table for people. what NULL: the row is left out. */
typedef struct NeedRow {
    const char *name;
    size_t bytes;
    const char *what;
} NeedRow;

static Status print_rows(Text *out, const NeedRow *row, size_t n)
{
    char text[32];
    for (size_t i = 0; i < n; i++) {
        if (row[i].what == NULL) continue;
        TRY(text_printf(out, "  %-10s %12s  %s\n", row[i].name,
                        text_bytes(text, (double)row[i].bytes), row[i].what));
    }
    return OK;
}

static Status print_gpu(const GpuPlan *p, Text *out)
{
    char text[32], peak[64];
    (void)snprintf(peak, sizeof peak, "in use at the peak (%zu bytes)", p->total_bytes);
    TRY(text_printf(out, "GPU         %s, %s\n", p->gpu.name,
                    text_bytes(text, (double)p->gpu.total_bytes)));
    const NeedRow rows[] = {
        { "arenas", p->arenas_bytes, "run, slot, ring, step and scratch, in the driver's pieces" },
        { "context", p->context_bytes, "the driver's, and other programs'" },
        { "kernels", p->kernel_bytes, "loaded when they first run; the step's graph" },
        { "ranks", p->comm_bytes, p->comm_bytes > 0 ? "NCCL's buffers" : NULL },
        { "total", p->total_bytes, peak }
    };
    return print_rows(out, rows, sizeof rows / sizeof *rows);
}

/* Whether a run on this machine would be refused for lack of memory, and then its sentence. A plan for
 * another machine is none the worse for that, so this is no error. */
static Status print_verdict(const Config *c, const TrainPlan *p, int ranks, Text *out)
{
    char need[32], have[32], what[64] = "the plan takes", why[1024];
    const size_t host = (size_t)ranks * (p->total_bytes - p->need[NEED_DATA]);
    HostMemory there;
    host_memory("/proc", "/sys/fs/cgroup", &there);
    if (ranks > 1) (void)snprintf(what, sizeof what, "%d ranks like rank 0 take", ranks);
    Status s = train_check_gpu(c, &p->shape, &p->engine, &p->gpu);
    if (s == OK && ranks == 1) s = train_check_host(c, p, NULL, &there, NULL);
    if (s == OK && ranks > 1)
        s = train_check_bytes(what, host, &there, "take fewer ranks on a host, or more memory");
    if (s != OK) {
        status_sentence(why, sizeof why);
        status_clear();
        return text_printf(out, "fits        no, on this machine: %s\n", why);
    }
    if (p->engine.apart)
        TRY(text_printf(out, "fits        on GPU %d: %s of %s\n", (int)c->run_gpu,
                        text_bytes(need, (double)p->gpu.total_bytes),
                        text_bytes(have, (double)p->gpu.gpu.total_bytes)));
    if (there.available_bytes == UINT64_MAX) return OK;
    return text_printf(
        out, "fits        on this host: %s %s without pages of data files, %s are available\n",
        what, text_bytes(need, (double)host), text_bytes(have, (double)there.available_bytes));
}

/* The table of a plan's memory. */
static Status print_memory(const TrainPlan *p, int ranks, Text *out)
{
    const size_t *arena = p->engine.bytes, *need = p->need;
    const NeedRow rows[] = {
        { "run", arena[ENGINE_RUN], "weights, gradients, optimizer state" },
        { "slot", arena[ENGINE_SLOT], "what backward needs of one micro-batch" },
        { "ring", arena[ENGINE_RING], "between the phases of a layer, gradient stream" },
        { "step", arena[ENGINE_STEP], "batch and record" },
        { "scratch", arena[ENGINE_SCRATCH], "temporaries and workspaces" },
        { "pinned", arena[ENGINE_PINNED],
          "the host's view of a GPU's batch and record, staging, offloaded states" },
        { "tables", p->engine.tables_bytes, "bookkeeping" },
        { "loader", need[NEED_LOADER], "batches, document order" },
        { "data", need[NEED_DATA], "mapped pages of the data files" },
        { "save", need[NEED_SAVE], "checkpoint and metrics buffers" },
        { "peer", need[NEED_PEER],
          need[NEED_PEER] > 0 ? "parts and copies of checkpoints in checkpoint.peer_dir" : NULL },
        { "libraries", need[NEED_LIBRARIES], "code, heap, stacks of threads" },
        { "probe", need[NEED_PROBE], "measuring peak FLOP/s, before all of the above" },
    };
    TRY(text_printf(out, ranks > 1 ? "memory of rank 0 of %d\n" : "memory\n", ranks));
    TRY(print_rows(out, rows, sizeof rows / sizeof *rows));
    if (p->engine.apart) return print_gpu(&p->gpu, out);
    HostMemory there;
    host_memory("/proc", "/sys/fs/cgroup", &there);
    bool known = there.available_bytes != UINT64_MAX;
    const NeedRow host[] = { { "total", p->total_bytes, "without the program itself" },
                             { "available", there.available_bytes, known ? there.limit : NULL } };
    return print_rows(out, host, 2);
}

/* Prints the types of the arithmetic, the exchange, the capacity, and the groups of the auxiliary loss. */
static Status print_arithmetic(const Config *c, const TrainPlan *p, Text *out)
{
    char tokens[32];
    const Mesh *m = p->shape.mesh;
    int64_t n = train_aux_sequences(c, m == NULL ? 1 : mesh_data_ranks(&m->shape));
    bool low = c->run_compute != COMPUTE_F32, low_moments = c->optimizer_moments == MOMENTS_BF16;
    const char *moments = low_moments ? "; bf16 moments" : low ? ", moments" : "";
    TRY(text_printf(out, "precision   %s%s%s\n", dtype_name(config_type(c)),
                    low ? " products and activations; f32 main weights, gradients" : "", moments));
    if (c->moe_exchange == EXCHANGE_AUTO && config_expert_ranks(c) > 1) {
        TRY(text_printf(out, "exchange    "));
        TRY(train_exchange_text(c, out));
        TRY(text_printf(out, "\n"));
    }
    if (p->shape.retry != NULL) {
        TRY(text_printf(out, "rows        "));
        TRY(train_capacity_text(&p->shape, &p->engine, out));
        TRY(text_printf(out, "\n"));
    }
    if (c->moe_forced_balance)
        TRY(text_printf(out, "benchmark   moe.forced_balance: positions choose experts, the model "
                             "does not learn to route\n"));
    if (c->moe_aux_loss == 0 || config_moe_layers(c) == 0) return OK;
    return text_printf(out, "balance     groups of %" PRId64 " sequence%s, %s tokens each\n", n,
                       n == 1 ? "" : "s", text_thousands(tokens, n * c->data_sequence));
}

static Status print_ramp(const Config *c, Text *out)
{
    char tokens[32];
    const BatchRamp r = ramp_of(c);
    TRY(text_printf(out, "ramp        sequences a step:"));
    for (int i = 0; i + 1 < r.n; i++)
        TRY(text_printf(out, " %" PRId64 " up to step %" PRId64 ",", r.at[i].sequences,
                        r.at[i].last));
    double all = (double)ramp_sequences(&r, c->train_steps) * (double)c->data_sequence;
    return text_printf(out, " then %" PRId64 "; %s tokens in %" PRId64 " steps\n", c->train_batch,
                       text_si(tokens, all), c->train_steps);
}

/* What a user sees before the run starts: parameters, work, arithmetic, memory. */
static Status print_plan(const Config *c, const TrainPlan *p, int ranks, Text *out)
{
    char total[32], active[32], flops[32], frozen[32];
    TRY(text_printf(out, "parameters  %s total, %s active a token",
                    text_thousands(total, p->engine.params_total),
                    text_thousands(active, p->engine.params_active)));
    if (p->engine.params_frozen > 0)
        TRY(text_printf(out, ", %s not trained (init.frozen)",
                        text_thousands(frozen, p->engine.params_frozen)));
    TRY(text_append(out, "\n", 1));
    TRY(text_printf(out, "step        %" PRId64 " tokens, %sFLOP\n",
                    c->train_batch * c->data_sequence, text_si(flops, p->model_flops)));
    if (c->train_batch_ramp.n > 0) TRY(print_ramp(c, out));
    TRY(print_arithmetic(c, p, out));
    TRY(print_memory(p, ranks, out));
    return print_verdict(c, p, ranks, out);
}

Status dry_run(const Config *c, int ranks, bool all, Arena *a, Text *out)
{
    TrainPlan plan;
    MeshShape shape;
    const int32_t *token_bytes = NULL;
    Questions *questions = NULL;
    /* Refuses what only a plan has. The mesh may be larger than this machine. */
    TRY(config_check_ops(c, INT_MAX));
    TRY(train_mesh(c, ranks > 0 ? ranks : 1, &shape));
    Mesh mesh = mesh_alone(&shape, 0);
    TRY(train_plan(c, ranks > 1 ? &mesh : NULL, ranks > 0 ? ranks : 1, &plan));
    if (c->data_sources.n > 0) TRY(train_token_bytes(c, true, a, &token_bytes));
    TRY(questions_load(c, a, &questions));
    TRY(all ? config_print(c, out) : print_changed(c, a, out));
    TRY(text_append(out, "\n", 1));
    if (ranks > 1) TRY(mesh_print(&shape, out));
    TRY(print_plan(c, &plan, ranks > 1 ? ranks : 1, out));
    return recipe_print(c, a, out);
}
