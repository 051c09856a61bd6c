/* step: `bench step`: times whole training steps and prints tokens/s, spread, MFU, expert load,
 * memory and the GPU's clock, as text or as JSON (docs/reference/metrics.md). exposed.c adds what
 * communication costs. */
#include "bench/bench.h"

#include "bench/runner.h"
#include "engine/base/order.h"
#include "engine/gpu/gpu_state.h"
#include "engine/host/host_memory.h"
#include "engine/step/engine_memory.h"
#include "engine/train/train.h"
#include "hardware/hardware.h"

#include <inttypes.h>
#include <math.h>

enum { WARM_UP = 3 };

/* The timed steps. */
typedef struct StepTimes {
    double *step;     /* seconds as the host sees them */
    double *device;   /* on a GPU: seconds from the first launch's start to the last one's end */
    int64_t n, twice; /* twice: steps that ran again because rows did not fit */
    /* Sums over steps of largest over mean: rows of a rank, as a mean over MoE layers and in the
     * worst layer; rows of an expert in the worst layer. */
    double rank, worst_rank, worst_expert;
    double loss[WARM_UP]; /* of the steps before: those of a new model, the same on any mesh */
} StepTimes;

/* The GPU's clock and power while each timed step ran. */
typedef struct Watch {
    GpuState gpu;
    double *clock; /* MHz */
    int64_t n, room;
    GpuReading last;
    double watts;      /* sum of the readings of power */
    int64_t powers;    /* how many there were */
    uint64_t throttle; /* all reasons that were seen, as bits */
} Watch;

/* The engine's observer calls this while a step runs, because an idle GPU lowers its clock. */
static void read_clock(void *self)
{
    Watch *w = self;
    if (w->n == w->room) return;
    w->last = gpu_state_read(&w->gpu);
    w->throttle |= w->last.throttle;
    if (gpu_knows(&w->last, GPU_POWER_W)) w->watts += w->last.value[GPU_POWER_W], w->powers++;
    w->clock[w->n++] = w->last.value[GPU_CLOCK_MHZ];
}

/* The element at this share of a sorted array: 0.5 is the median. */
static double percentile(const double *sorted, int64_t n, double share)
{
    int64_t i = (int64_t)((double)n * share);
    return sorted[i < n ? i : n - 1];
}

/* The FLOPs of a step are counted by two formulas, since MFU of other trainers uses the second. */
enum { BY_OURS, BY_TORCHTITAN, FORMULAS };

static const struct {
    const char *key, *says;
} formulas[FORMULAS] = {
    { "causal", "causal: of each op, in attention the pairs that documents and windows leave" },
    { "torchtitan", "TorchTitan's: 6 N + 6 l h (qk + v) t a token, all pairs, frozen or not" },
};

typedef struct Report {
    const BenchModel *m;
    const StepTimes *times;
    const Watch *watch;
    const float *by_rank; /* (ranks, 2): device bytes in use, and planned; NULL: one rank */
    char machine[GPU_NAME_MAX];
    double p50, p99, tokens;
    double flops[FORMULAS]; /* of one step on one rank */
    double peak, sheet;     /* peak FLOP/s: measured, and from the data sheet; sheet 0: unknown */
    double allowed;         /* the data sheet's at the median clock of these steps; 0: unknown */
    double joules;          /* a token, of this rank's GPU and its tokens; 0: unknown */
    size_t used_bytes, arena_bytes, peak_bytes;
} Report;

/* ---- collecting ---- */

/* Collective: every rank's memory in use and planned, for rank 0's report. */
static Status gather_ranks(BenchModel *m, Report *r)
{
    float mine[2] = { (float)r->used_bytes, (float)m->gpu.total_bytes }, *all = NULL;
    if (m->world == NULL) return OK;
    TRY(ARENA_NEW(&m->arena, 2 * m->world->size, &all));
    Tensor in = { mine, DTYPE_F32, 1, { 2 } };
    Tensor gathered = { all, DTYPE_F32, 1, { 2 * (int64_t)m->world->size } };
    r->by_rank = all;
    return comm_all_gather(m->world, &in, &gathered);
}

/* Of the rank that uses the most: device bytes in use, and planned. */
static void fullest_rank(const Report *r, double *used, double *planned)
{
    *used = (double)r->used_bytes, *planned = (double)r->m->gpu.total_bytes;
    const float *end = r->by_rank == NULL ? NULL : r->by_rank + 2 * (ptrdiff_t)r->m->world->size;
    for (const float *of = r->by_rank; of != end; of += 2) {
        if ((double)of[0] > *used) *used = (double)of[0], *planned = (double)of[1];
    }
}

/* `alone`: the configuration without a mesh. */
static Status torchtitan_flops(const Config *alone, Arena *a, double *out)
{
    ModelSpec spec;
    ParamTable table;
    TRY(spec_build(alone, a, &spec));
    TRY(params_build(&spec, 0, NULL, a, &table));
    const int64_t met = table.active - spec.vocab * spec.hidden;
    *out = 6 * (double)(met + spec_attention_width(&spec) * alone->data_sequence);
    return OK;
}

Status bench_torchtitan_flops(const Config *c, double *out)
{
    Config alone = *c;
    Arena a = { 0 };
    config_alone(&alone);
    TRY(arena_reserve(&a, "parameters", (size_t)4 << 30));
    Status s = torchtitan_flops(&alone, &a, out);
    arena_free(&a);
    return s;
}

/* Both counts are of one rank: TorchTitan's formula is a token's, so it is scaled by this rank's
 * tokens. */
static Status count_flops(const BenchModel *m, Report *r)
{
    const Config *c = m->config;
    double a_token = 0;
    int ranks = m->world == NULL ? 1 : m->world->size;
    TRY(bench_step_flops(m, &r->flops[BY_OURS]));
    TRY(bench_torchtitan_flops(c, &a_token));
    r->flops[BY_TORCHTITAN] = a_token * r->tokens / ranks;
    if (m->plan.apart) TRY(hardware_sheet_flops(m->gpu.gpu.name, m->engine.spec.act, &r->sheet));
    return OK;
}

static bool has_clock(const Watch *w) { return w->n > 0 && gpu_knows(&w->last, GPU_CLOCK_MHZ); }

/* The data sheet's peak is that of one clock, and the power limit of a long run lowers the clock: both shares say more
 * than one. */
static Status collect_power(const BenchModel *m, const Watch *w, Report *r)
{
    Hardware h;
    int ranks = m->world == NULL ? 1 : m->world->size;
    if (w->powers > 0) r->joules = w->watts / (double)w->powers * r->p50 / (r->tokens / ranks);
    if (!has_clock(w)) return OK;
    TRY(hardware_of_driver(m->gpu.gpu.name, &h));
    if (h.peak_clock_mhz > 0)
        r->allowed = r->sheet * percentile(w->clock, w->n, 0.5) / h.peak_clock_mhz;
    return OK;
}

/* Collective where there are ranks. Memory in use is read before the peak is measured, which
 * allocates. */
static Status collect_report(BenchModel *m, const StepTimes *t, Watch *w, Report *r)
{
    const Config *c = m->config;
    MeasuredPeak peak = { 0 };
    *r = (Report){ .m = m, .times = t, .watch = w, .peak_bytes = process_peak_bytes() };
    TRY(exec_used_bytes(&m->engine.ex, &r->used_bytes));
    TRY(bench_machine(c, r->machine));
    TRY(peak_measure(c, train_threads(c), false, &peak)); /* after exec_used_bytes: it allocates */
    r->peak = peak.flops;
    r->p50 = percentile(t->step, t->n, 0.5);
    r->p99 = percentile(t->step, t->n, 0.99);
    r->tokens = (double)(c->train_batch * c->data_sequence);
    for (int i = 0; i < ENGINE_ARENAS; i++) r->arena_bytes += m->plan.bytes[i];
    sort_doubles(w->clock, w->n);
    TRY(count_flops(m, r));
    TRY(collect_power(m, w, r));
    r->peak = fmax(r->peak, r->flops[BY_OURS] / r->p50); /* a step can beat a noisy measurement */
    return gather_ranks(m, r);
}

/* ---- as text ---- */

/* FLOP/s by each formula, as a share of the measured peak and, where it is known, of the data
 * sheet. */
static Status print_flops(const Report *r, Text *out)
{
    for (int i = 0; i < FORMULAS; i++) {
        double rate = r->flops[i] / r->p50;
        TRY(text_printf(out, "  %-13s%.1f GFLOP/s, %.1f %% of the measured peak %.1f",
                        i == 0 ? "FLOP/s" : "", rate / 1e9, 100 * rate / r->peak, r->peak / 1e9));
        if (r->sheet > 0)
            TRY(text_printf(out, ", MFU %.1f %% of the data sheet's %.1f", 100 * rate / r->sheet,
                            r->sheet / 1e9));
        if (r->allowed > 0)
            TRY(text_printf(out, ", %.1f %% of %.1f at the clock below", 100 * rate / r->allowed,
                            r->allowed / 1e9));
        TRY(text_printf(out, " (%s)\n", formulas[i].says));
    }
    return OK;
}

/* The device's time has no host in it; if it is far below the step's, the host is the limit. */
static Status print_gpu(const Report *r, Text *out)
{
    const BenchModel *m = r->m;
    const StepTimes *t = r->times;
    char bytes[32], planned[32];
    if (!m->plan.apart) return OK;
    TRY(text_printf(out,
                    "  device       %.2f ms p50, %.2f ms p99; %" PRId64 " launches, %" PRId64
                    " kernels, %" PRId64 " waits a step\n",
                    percentile(t->device, t->n, 0.5) * 1e3, percentile(t->device, t->n, 0.99) * 1e3,
                    m->result.launches, m->result.kernels, m->result.waits));
    return text_printf(out, "  GPU in use   %s, %s planned (%zu bytes)\n",
                       text_bytes(bytes, (double)r->used_bytes),
                       text_bytes(planned, (double)m->gpu.total_bytes), r->used_bytes);
}

/* One line for each rank with its memory, in the order of ranks. */
static Status print_ranks(const Report *r, Text *out)
{
    const BenchModel *m = r->m;
    if (r->by_rank == NULL) return OK;
    TRY(mesh_print(&m->mesh.shape, out));
    for (int64_t i = 0; i < m->world->size && m->plan.apart; i++) {
        char bytes[32], planned[32];
        TRY(text_printf(out, "  rank %-8d%s in use, %s planned\n", (int)i,
                        text_bytes(bytes, (double)r->by_rank[2 * i]),
                        text_bytes(planned, (double)r->by_rank[2 * i + 1])));
    }
    return OK;
}

/* Means over the timed steps of largest over mean, so 1.000 is perfect balance. */
static Status print_experts(const Report *r, Text *out)
{
    const StepTimes *t = r->times;
    double n = (double)t->n;
    if (r->m->engine.spec.n_moe == 0) return OK;
    return text_printf(
        out,
        "  experts      the busiest rank has %.3f x the mean rows (%.3f in the worst "
        "layer), the busiest expert %.3f x\n",
        t->rank / n, t->worst_rank / n, t->worst_expert / n);
}

static Status print_documents(const BenchModel *m, Text *out)
{
    double keys = m->context / (double)m->step;
    double causal = (double)(m->config->data_sequence + 1) / 2;
    if (keys > causal - 0.05) return OK;
    return text_printf(out,
                       "  documents    a query sees %.1f keys on average, %.1f without documents\n",
                       keys, causal);
}

/* Power and temperature are the last reading; the clock has a median and its range. */
static Status print_clock(const Report *r, Text *out)
{
    const char *words[GPU_REASONS_MAX];
    const Watch *w = r->watch;
    if (r->joules > 0)
        TRY(text_printf(out,
                        "  energy       %.3g mJ a token, %.0f W: this GPU's, while steps ran\n",
                        1e3 * r->joules, w->watts / (double)w->powers));
    if (!has_clock(w)) return OK;
    TRY(text_printf(out, "  clock        %.0f MHz p50, %.0f to %.0f; %.0f W, %.0f C at the end",
                    percentile(w->clock, w->n, 0.5), w->clock[0], w->clock[w->n - 1],
                    w->last.value[GPU_POWER_W], w->last.value[GPU_TEMPERATURE_C]));
    int n = gpu_throttle_words(w->throttle, words);
    for (int i = 0; i < n; i++) TRY(text_printf(out, "%s %s", i == 0 ? ";" : ",", words[i]));
    return text_printf(out, "\n");
}

static Status print_text(const Report *r, Text *out)
{
    const StepTimes *t = r->times;
    char bytes[32], tokens[32];
    TRY(text_printf(out, "%s, %s, %s, %" PRId64 " steps of %.0f tokens\n", r->m->config->model_name,
                    dtype_name(r->m->engine.spec.act), r->machine, t->n, r->tokens));
    TRY(text_printf(out, "  tokens/s     %s (median)\n",
                    text_thousands(tokens, (int64_t)(r->tokens / r->p50))));
    TRY(text_printf(out, "  step         %.2f ms p50, %.2f ms p99 (p99/p50 %.3f)\n", r->p50 * 1e3,
                    r->p99 * 1e3, r->p99 / r->p50));
    if (r->m->config->moe_forced_balance)
        TRY(text_printf(out, "  experts      moe.forced_balance: positions choose them\n"));
    if (t->twice > 0)
        TRY(text_printf(
            out,
            "  ran twice    %" PRId64 " of %" PRId64
            " steps: rows had no room, moe.pool_factor or moe.buffer_factor gives more\n",
            t->twice, t->n));
    TRY(print_experts(r, out));
    TRY(print_documents(r->m, out));
    TRY(print_flops(r, out));
    TRY(print_gpu(r, out));
    TRY(print_ranks(r, out));
    if (r->m->engine.shape.retry != NULL) {
        TRY(text_printf(out, "  rows         "));
        TRY(train_capacity_text(&r->m->engine.shape, &r->m->plan, out));
        TRY(text_printf(out, "\n"));
    }
    TRY(text_printf(out, "  arenas       %s\n", text_bytes(bytes, (double)r->arena_bytes)));
    TRY(text_printf(out, "  process      %s at its peak\n",
                    text_bytes(bytes, (double)r->peak_bytes)));
    return print_clock(r, out);
}

/* ---- as JSON: docs/reference/metrics.md ---- */

static Status json_gpu(const Report *r, Text *out)
{
    const BenchModel *m = r->m;
    const StepTimes *t = r->times;
    const Watch *w = r->watch;
    const char *words[GPU_REASONS_MAX];
    if (!m->plan.apart) return OK;
    TRY(text_json(out, ",\"device_p50_s\":%g,\"device_p99_s\":%g,\"launches\":%lld",
                  percentile(t->device, t->n, 0.5), percentile(t->device, t->n, 0.99),
                  (long long)m->result.launches));
    double used, planned;
    fullest_rank(r, &used, &planned);
    TRY(text_json(out, ",\"kernels\":%lld,\"waits\":%lld,\"gpu_bytes\":%.0f,\"gpu_planned\":%.0f",
                  (long long)m->result.kernels, (long long)m->result.waits, used, planned));
    if (r->joules > 0) TRY(text_json(out, ",\"joules_a_token\":%g", r->joules));
    if (!has_clock(w)) return OK;
    TRY(text_json(out, ",\"clock_mhz\":{\"p50\":%g,\"least\":%g,\"most\":%g}",
                  percentile(w->clock, w->n, 0.5), w->clock[0], w->clock[w->n - 1]));
    TRY(text_json(out, ",\"power_w\":%g,\"temperature_c\":%g,\"throttle\":[",
                  w->last.value[GPU_POWER_W], w->last.value[GPU_TEMPERATURE_C]));
    int n = gpu_throttle_words(w->throttle, words);
    for (int i = 0; i < n; i++) TRY(text_json(out, i == 0 ? "%s" : ",%s", words[i]));
    return text_json(out, "]");
}

static Status print_json(const Report *r, Text *out)
{
    const BenchModel *m = r->m;
    TRY(text_json(out, "{\"kind\":\"step\",\"model\":%s,\"compute\":%s,\"machine\":%s",
                  m->config->model_name, dtype_name(r->m->engine.spec.act), r->machine));
    TRY(text_json(out, ",\"ranks\":%d,\"steps\":%lld,\"tokens\":%g,\"tokens_per_s\":%g",
                  m->world == NULL ? 1 : m->world->size, (long long)r->times->n, r->tokens,
                  r->tokens / r->p50));
    TRY(text_json(out, ",\"step_p50_s\":%g,\"step_p99_s\":%g,\"again\":%lld", r->p50, r->p99,
                  (long long)r->times->twice));
    for (int i = 0; i < WARM_UP; i++)
        TRY(text_json(out, i == 0 ? ",\"losses\":[%.9g" : ",%.9g", r->times->loss[i]));
    TRY(text_json(out, "],\"roof_flops\":%g,\"sheet_flops\":%g", r->peak, r->sheet));
    for (int i = 0; i < FORMULAS; i++) {
        const char *key = formulas[i].key;
        double flops = r->flops[i], rate = flops / r->p50;
        TRY(text_printf(out, ",\"%s\":", key));
        TRY(text_json(out, "{\"formula\":%s,\"flops\":%g,\"roof_share\":%g", formulas[i].says,
                      flops, rate / r->peak));
        if (r->sheet > 0) TRY(text_json(out, ",\"mfu\":%g", rate / r->sheet));
        if (r->allowed > 0) TRY(text_json(out, ",\"clock_share\":%g", rate / r->allowed));
        TRY(text_json(out, "}"));
    }
    if (r->m->engine.spec.n_moe > 0)
        TRY(text_json(
            out, ",\"busiest\":{\"rank\":%g,\"rank_worst_layer\":%g,\"expert_worst_layer\":%g}",
            r->times->rank / (double)r->times->n, r->times->worst_rank / (double)r->times->n,
            r->times->worst_expert / (double)r->times->n));
    TRY(text_json(out, ",\"mean_context\":%g", m->context / (double)m->step));
    if (r->m->config->moe_forced_balance) TRY(text_json(out, ",\"forced_balance\":true"));
    TRY(json_gpu(r, out));
    const RowCapacity *room = &r->m->engine.shape.capacity;
    if (r->m->engine.shape.retry != NULL)
        TRY(text_json(out, ",\"pool_factor\":%g,\"pool_bytes\":%zu,\"rows_room\":%g", room->pool,
                      r->m->plan.pool_bytes, room->rows));
    return text_json(out, ",\"arena_bytes\":%zu,\"process_bytes\":%zu", r->arena_bytes,
                     r->peak_bytes);
}

/* Reads the GPU's state during each step. Without a GPU, or without its library, there are no
 * readings. */
static Status watch_open(Watch *w, BenchModel *m, int64_t steps)
{
    char bus_id[GPU_BUS_ID_MAX];
    *w = (Watch){ .room = steps };
    TRY(exec_bus_id(&m->engine.ex, bus_id));
    if (bus_id[0] == '\0') return OK;
    TRY(ARENA_NEW(&m->arena, steps, &w->clock));
    gpu_state_open(&w->gpu, bus_id);
    m->engine.observer = (EngineObserver){ read_clock, w };
    return OK;
}

/* Adds the loads of a step's MoE layers. m->result.load has all experts, those of other EP ranks
 * too; a rank's rows are the sum over its `here` consecutive experts. */
static void add_loads(const BenchModel *m, StepTimes *t)
{
    const ModelSpec *s = &m->engine.spec;
    int64_t domains = m->engine.shape.domains, here = spec_experts_here(&s->ranks, s->experts);
    const int64_t sets = s->ranks.ep / s->ranks.etp;
    double sum_rank = 0, worst_rank = 0, worst_expert = 0;
    for (int64_t l = 0; l < s->n_moe; l++) {
        double all = 0, rank = 0, most_rank = 0, most_expert = 0;
        for (int64_t e = 0; e < s->experts; e++) {
            double rows = 0;
            for (int64_t d = 0; d < domains; d++)
                rows += m->result.load[(l * domains + d) * s->experts + e];
            rank = rows + (e % here == 0 ? 0 : rank);
            most_rank = fmax(most_rank, rank), most_expert = fmax(most_expert, rows), all += rows;
        }
        sum_rank += most_rank / all * (double)sets / (double)s->n_moe;
        worst_rank = fmax(worst_rank, most_rank / all * (double)sets);
        worst_expert = fmax(worst_expert, most_expert / all * (double)s->experts);
    }
    t->rank += sum_rank, t->worst_rank += worst_rank, t->worst_expert += worst_expert;
}

/* The observer is removed before memory that it writes to goes away, also after a failure. */
static Status time_steps(BenchModel *m, const BenchStep *options, BenchMedian *median, Text *out)
{
    int64_t steps = options->steps;
    StepTimes t = { .n = steps };
    Report r;
    double warm = 0;
    Watch watch = { 0 };
    BenchParts parts = { 0 };
    Status s = OK;
    TRY(ARENA_NEW(&m->arena, steps, &t.step));
    TRY(ARENA_NEW(&m->arena, steps, &t.device));
    for (int i = 0; i < WARM_UP; i++) {
        TRY(bench_run_step(m, &warm));
        t.loss[i] = m->result.loss;
    }
    TRY(watch_open(&watch, m, steps));
    for (int64_t i = 0; i < steps && s == OK; i++) {
        s = bench_run_step(m, &t.step[i]);
        t.device[i] = m->result.device_s;
        t.twice += m->result.retried;
        if (s == OK) add_loads(m, &t);
        if (s == OK && options->parts) s = bench_parts_add(m, &parts, t.step[i]);
    }
    m->engine.observer = (EngineObserver){ 0 };
    gpu_state_close(&watch.gpu);
    TRY(s);
    sort_doubles(t.step, steps);
    sort_doubles(t.device, steps);
    TRY(collect_report(m, &t, &watch, &r));
    *median = (BenchMedian){ .seconds = r.p50, .twice = t.twice };
    TRY(options->json ? print_json(&r, out) : print_text(&r, out));
    return options->parts ? bench_parts_print(m, &parts, options->json, out) : OK;
}

/* A timeline shows pipeline stages, or lanes of GPUs: one rank on a CPU has neither. */
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

/* --exposed opens models of its own, so the first one is closed before it. JSON is one object,
 * which is closed last. */
Status bench_step(const Config *c, Comm *world, const BenchStep *options, Text *out)
{
    BenchModel m;
    BenchMedian median;
    const bool recorded = options->timeline != NULL || options->exposed || options->parts;
    TRY(check_timeline(c, world, options->timeline));
    if (options->exposed) TRY(bench_exposed_check(world));
    TRY(bench_open(&m, c, world, (BenchOpen){ .recorded = recorded, .tokens = options->tokens }));
    Status s = options->data ? bench_read_data(&m) : OK;
    if (s == OK) s = time_steps(&m, options, &median, out);
    if (s == OK && options->timeline != NULL) {
        recorder_take(&m.recorder, &m.result, median.seconds, 0, 0);
        s = recorder_pipeline(&m.recorder, options->timeline);
    }
    if (s != OK) bench_abort_ranks(world);
    bench_close(&m);
    if (s == OK && options->exposed) s = bench_exposed(c, world, options, &median, out);
    return s == OK && options->json ? text_printf(out, "}\n") : s;
}
