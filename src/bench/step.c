#include "bench/bench.h"

#include "backend/gpu_state.h"
#include "base/clock.h"
#include "base/host_memory.h"
#include "plan/hardware.h"
#include "train/engine_memory.h"
#include "train/recording.h"
#include "train/train.h"

#include <inttypes.h>
#include <stdio.h>

enum { WARM_UP = 3 };

/* Of the timed steps, in seconds: as the host sees them, and on a GPU from the first launch's begin
 * to the last one's end. */
typedef struct StepTimes {
    double *step, *device;
    int64_t n, twice; /* twice: those whose rows had no room, so that they ran again */
} StepTimes;

/* The GPU's clock and power while each timed step ran. */
typedef struct Watch {
    GpuState gpu;
    double *clock; /* MHz */
    int64_t n, room;
    GpuReading last;
    uint64_t throttle; /* all reasons that were seen */
} Watch;

static void look(void *self)
{
    Watch *w = self;
    if (w->n == w->room) return;
    w->last = gpu_state_read(&w->gpu);
    w->throttle |= w->last.throttle;
    w->clock[w->n++] = w->last.value[GPU_CLOCK_MHZ];
}

static double part_of(const double *sorted, int64_t n, double share)
{
    int64_t i = (int64_t)((double)n * share);
    return sorted[i < n ? i : n - 1];
}

static Status report_clock(Watch *w, Text *out)
{
    const char *words[GPU_REASONS_MAX];
    if (w->n == 0 || !gpu_knows(&w->last, GPU_CLOCK_MHZ)) return OK;
    bench_sort(w->clock, w->n);
    TRY(text_printf(out, "  clock        %.0f MHz p50, %.0f to %.0f; %.0f W, %.0f C at the end",
                    part_of(w->clock, w->n, 0.5), w->clock[0], w->clock[w->n - 1],
                    w->last.value[GPU_POWER_W], w->last.value[GPU_TEMPERATURE_C]));
    int n = gpu_throttle_words(w->throttle, words);
    for (int i = 0; i < n; i++) TRY(text_printf(out, "%s %s", i == 0 ? ";" : ",", words[i]));
    return text_printf(out, "\n");
}

static Status report_gpu(const BenchModel *m, const StepTimes *t, size_t used_bytes, Text *out)
{
    char bytes[32], planned[32];
    if (!m->plan.apart) return OK;
    TRY(text_printf(out,
                    "  device       %.1f ms p50, %.1f ms p99; %" PRId64 " launches, %" PRId64
                    " kernels, %" PRId64 " waits a step\n",
                    part_of(t->device, t->n, 0.5) * 1e3, part_of(t->device, t->n, 0.99) * 1e3,
                    m->result.launches, m->result.kernels, m->result.waits));
    return text_printf(out, "  GPU in use   %s, %s planned (%zu bytes)\n",
                       text_bytes(bytes, (double)used_bytes),
                       text_bytes(planned, (double)m->gpu.total_bytes), used_bytes);
}

/* Device memory in use by rank, and what each plans. */
static Status report_ranks(BenchModel *m, size_t used_bytes, Text *out)
{
    float mine[2] = { (float)used_bytes, (float)m->gpu.total_bytes }, *all = NULL;
    if (m->world == NULL) return OK;
    TRY(ARENA_NEW(&m->arena, 2 * m->world->size, &all));
    Tensor in = { mine, DTYPE_F32, 1, { 2 } };
    Tensor gathered = { all, DTYPE_F32, 1, { 2 * (int64_t)m->world->size } };
    TRY(comm_all_gather(m->world, &in, &gathered));
    TRY(mesh_print(&m->mesh.shape, out));
    for (int64_t r = 0; r < m->world->size && m->plan.apart; r++) {
        char bytes[32], planned[32];
        TRY(text_printf(out, "  rank %-8d%s in use, %s planned\n", (int)r,
                        text_bytes(bytes, (double)all[2 * r]),
                        text_bytes(planned, (double)all[2 * r + 1])));
    }
    return OK;
}

/* What the model needs, over the measured roof and, where it is known, over the data sheet. */
static Status report_flops(const BenchModel *m, double step_s, Text *out)
{
    Roof roof;
    double flops = 0, sheet = 0;
    TRY(peak_measure(m->config, train_threads(m->config), false, &roof));
    TRY(train_model_flops(m->config, &m->engine.shape, &m->plan, &flops));
    flops /= step_s;
    TRY(text_printf(out, "  FLOP/s       %.1f GFLOP/s, %.1f %% of the measured roof %.1f",
                    flops / 1e9, 100 * flops / roof.flops, roof.flops / 1e9));
    if (m->plan.apart) TRY(hardware_sheet_flops(m->gpu.gpu.name, m->engine.spec.act, &sheet));
    if (sheet > 0)
        TRY(text_printf(out, ", MFU %.1f %% of the data sheet's %.1f", 100 * flops / sheet,
                        sheet / 1e9));
    return text_printf(out, "\n");
}

static Status report(BenchModel *m, const StepTimes *t, Text *out)
{
    const Config *c = m->config;
    char bytes[32], tokens_text[32], name[CUDA_NAME_MAX];
    size_t peak_bytes = process_peak_bytes(), used_bytes = 0; /* before the roof takes its own */
    TRY(m->engine.ex.backend->device->used_bytes(&m->engine.ex, &used_bytes));
    TRY(bench_machine(c, name));
    double p50 = part_of(t->step, t->n, 0.5), p99 = part_of(t->step, t->n, 0.99);
    double tokens = (double)(c->train_batch * c->data_sequence);
    size_t total = 0;
    for (int i = 0; i < ENGINE_ARENAS; i++) total += m->plan.bytes[i];
    TRY(text_printf(out, "%s, %s, %s, %" PRId64 " steps of %.0f tokens\n", c->model_name,
                    c->run_compute == COMPUTE_BF16 ? "bf16" : "f32", name, t->n, tokens));
    TRY(text_printf(out, "  tokens/s     %s (median)\n",
                    text_thousands(tokens_text, (int64_t)(tokens / p50))));
    TRY(text_printf(out, "  step         %.1f ms p50, %.1f ms p99 (p99/p50 %.3f)\n", p50 * 1e3,
                    p99 * 1e3, p99 / p50));
    if (t->twice > 0)
        TRY(text_printf(out,
                        "  ran twice    %" PRId64 " of %" PRId64
                        " steps: rows had no room, moe.buffer_factor gives more\n",
                        t->twice, t->n));
    TRY(report_flops(m, p50, out));
    TRY(report_gpu(m, t, used_bytes, out));
    TRY(report_ranks(m, used_bytes, out));
    TRY(text_printf(out, "  arenas       %s\n", text_bytes(bytes, (double)total)));
    return text_printf(out, "  process      %s at its peak\n",
                       text_bytes(bytes, (double)peak_bytes));
}

static Status watch_open(Watch *w, BenchModel *m, int64_t steps)
{
    char bus_id[BUS_ID_MAX];
    *w = (Watch){ .room = steps };
    TRY(m->engine.ex.backend->device->bus_id(&m->engine.ex, bus_id));
    if (bus_id[0] == '\0') return OK;
    TRY(ARENA_NEW(&m->arena, steps, &w->clock));
    gpu_state_open(&w->gpu, bus_id);
    m->engine.observer = (EngineObserver){ look, w };
    return OK;
}

static Status run(BenchModel *m, int64_t steps, Text *out)
{
    StepTimes t = { .n = steps };
    double warm = 0;
    Watch watch = { 0 };
    Status s = OK;
    TRY(ARENA_NEW(&m->arena, steps, &t.step));
    TRY(ARENA_NEW(&m->arena, steps, &t.device));
    for (int i = 0; i < WARM_UP; i++) TRY(bench_run_step(m, &warm));
    TRY(watch_open(&watch, m, steps));
    for (int64_t i = 0; i < steps && s == OK; i++) {
        s = bench_run_step(m, &t.step[i]);
        t.device[i] = m->result.device_s;
        t.twice += m->result.again;
    }
    m->engine.observer = (EngineObserver){ 0 };
    gpu_state_close(&watch.gpu);
    TRY(s);
    bench_sort(t.step, steps);
    bench_sort(t.device, steps);
    TRY(report(m, &t, out));
    return report_clock(&watch, out);
}

static Status record_step(BenchModel *m, const char *folder)
{
    double seconds = 0;
    engine_timeline(&m->engine, true);
    TRY(bench_run_step(m, &seconds));
    TRY(transfers_read_marks(&m->engine.way->step.transfers));
    TRY(recording_write(&m->engine, folder, &m->arena));
    engine_timeline(&m->engine, false);
    return OK;
}

/* A timeline is of pipeline stages, or of lanes of GPUs. */
static Status check_timeline(const Config *c, const Comm *world, const char *folder)
{
    MeshShape shape = { .pp = 1 };
    if (folder == NULL) return OK;
    if (world != NULL) TRY(train_mesh(c, world->size, &shape));
    if (world != NULL && (shape.pp > 1 || engine_wants_gpu(c))) return OK;
    return FAIL(ERR_ARG,
                "bench step: --timeline %.60s records pipeline stages, or lanes of GPUs: "
                "give --ranks 2 or more with mesh.pp, or ranks on GPUs",
                folder);
}

Status bench_step(const Config *c, Comm *world, int64_t steps, const char *timeline, Text *out)
{
    BenchModel m;
    TRY(check_timeline(c, world, timeline));
    TRY(bench_open(&m, c, world));
    Status s = run(&m, steps, out);
    if (s == OK && timeline != NULL) s = record_step(&m, timeline);
    bench_close(&m);
    return s;
}
