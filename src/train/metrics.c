#include "train/metrics.h"

#include <math.h>
#include <string.h>

enum { BUFFER_BYTES = 64 << 10 };

/* A killed run may have left half a line, which must not swallow the next one. */
static Status end_half_line(Metrics *m, const char *path)
{
    uint64_t bytes = 0;
    char last = '\n';
    TRY(file_size(path, &bytes));
    if (bytes > 0) TRY(file_read_at(path, bytes - 1, &last, 1));
    return last == '\n' ? OK : file_write(&m->file, "\n", 1);
}

Status metrics_open_log(Metrics *m, const char *run_dir)
{
    *m = (Metrics){ 0 };
    char path[FILE_PATH_MAX];
    void *buffer = NULL;
    TRY(file_join(path, run_dir, "metrics.jsonl"));
    TRY(arena_init(&m->arena, "metrics", MEM_HOST, (size_t)1 << 30));
    TRY(arena_alloc(&m->arena, BUFFER_BYTES, &buffer));
    TRY(file_open_append(&m->file, path, buffer, BUFFER_BYTES));
    TRY(end_half_line(m, path));
    return text_init(&m->line, &m->arena);
}

void metrics_close(Metrics *m)
{
    file_close(&m->file);
    arena_free(&m->arena);
}

static Status begin(Metrics *m, Json *j, const char *kind)
{
    m->line.used = 0;
    *j = json_begin(&m->line);
    TRY(json_object(j));
    TRY(json_key(j, "kind"));
    return json_string(j, kind);
}

static Status end(Metrics *m, Json *j)
{
    TRY(json_object_end(j));
    TRY(text_append(&m->line, "\n", 1));
    TRY(file_write(&m->file, m->line.data, m->line.used));
    return file_flush(&m->file);
}

static Status field(Json *j, const char *key, double v)
{
    TRY(json_key(j, key));
    return json_double(j, v);
}

static Status count(Json *j, const char *key, int64_t v)
{
    TRY(json_key(j, key));
    return json_int(j, v);
}

Status metrics_start(Metrics *m, const Engine *e, const Loader *l, const EnginePlan *plan,
                     double peak_flops)
{
    Json j;
    TRY(begin(m, &j, "start"));
    TRY(json_key(&j, "model"));
    TRY(json_string(&j, e->spec.name));
    TRY(count(&j, "params_total", e->params.total));
    TRY(count(&j, "params_active", e->params.active));
    TRY(json_key(&j, "domains"));
    TRY(json_array(&j));
    for (int d = 0; d < loader_sources(l); d++) TRY(json_string(&j, loader_source_name(l, d)));
    TRY(json_array_end(&j));
    TRY(count(&j, "experts", e->spec.experts));
    TRY(json_key(&j, "moe_layers"));
    TRY(json_array(&j));
    for (int i = 0; i < e->spec.n_layers; i++) {
        const LayerSpec *layer = &e->spec.layers[i];
        if (layer->kind == LAYER_MOE) TRY(json_int(&j, layer->block));
    }
    TRY(json_array_end(&j));
    TRY(json_key(&j, "arenas_planned"));
    TRY(json_object(&j));
    for (int a = 0; a < ENGINE_ARENAS; a++) {
        TRY(count(&j, engine_arena_names[a], (int64_t)plan->bytes[a]));
    }
    TRY(json_object_end(&j));
    TRY(field(&j, "peak_flops", peak_flops));
    return end(m, &j);
}

/* [[E numbers] a MoE layer], of one domain or (-1) of all together. */
static Status load_i32(Json *j, const Engine *e, const int32_t *load, int domain)
{
    int64_t domains = e->shape.domains, experts = e->spec.experts;
    TRY(json_array(j));
    for (int layer = 0; layer < e->spec.n_moe; layer++) {
        TRY(json_array(j));
        for (int64_t x = 0; x < experts; x++) {
            int64_t sum = 0;
            for (int64_t d = 0; d < domains; d++) {
                if (domain < 0 || d == domain) sum += load[(layer * domains + d) * experts + x];
            }
            TRY(json_int(j, sum));
        }
        TRY(json_array_end(j));
    }
    return json_array_end(j);
}

static Status throttle_reasons(Json *j, uint64_t mask)
{
    const char *word[GPU_REASONS_MAX];
    int n = gpu_throttle_words(mask, word);
    TRY(json_key(j, "throttle"));
    TRY(json_array(j));
    for (int i = 0; i < n; i++) TRY(json_string(j, word[i]));
    return json_array_end(j);
}

/* What only a step on a GPU has, and of it what the driver tells. */
static Status gpu_fields(Json *j, const StepMetrics *s)
{
    static const char *const key[] = { [GPU_CLOCK_MHZ] = "clock_mhz",
                                       [GPU_MEMORY_CLOCK_MHZ] = "memory_clock_mhz",
                                       [GPU_POWER_W] = "power_w",
                                       [GPU_TEMPERATURE_C] = "temperature_c" };
    const StepResult *r = &s->result;
    if (r->launches == 0) return OK;
    TRY(field(j, "device_s", r->device_s));
    TRY(count(j, "launches", r->launches));
    TRY(count(j, "kernels", r->kernels));
    TRY(count(j, "waits", r->waits));
    for (int f = 0; f < GPU_THROTTLE; f++) {
        if (gpu_knows(&s->gpu, (GpuFigure)f)) TRY(field(j, key[f], s->gpu.value[f]));
    }
    return gpu_knows(&s->gpu, GPU_THROTTLE) ? throttle_reasons(j, s->gpu.throttle) : OK;
}

Status metrics_step(Metrics *m, const Engine *e, const Loader *l, const StepMetrics *s)
{
    Json j;
    TRY(begin(m, &j, "step"));
    TRY(count(&j, "step", s->step));
    TRY(field(&j, "loss", s->result.loss));
    TRY(field(&j, "aux_loss", s->result.aux_loss));
    TRY(field(&j, "lr", s->lr));
    TRY(field(&j, "grad_norm", s->result.grad_norm));
    TRY(count(&j, "tokens", s->tokens));
    TRY(field(&j, "step_s", s->step_s));
    TRY(field(&j, "tokens_per_s", s->tokens_per_s));
    TRY(field(&j, "mfu", s->mfu));
    TRY(gpu_fields(&j, s));
    TRY(json_key(&j, "memory_bytes"));
    TRY(json_object(&j));
    for (int a = 0; a < ENGINE_ARENAS; a++) {
        TRY(count(&j, engine_arena_names[a], (int64_t)engine_peak_bytes(e, (EngineArena)a)));
    }
    TRY(json_object_end(&j));
    TRY(json_key(&j, "expert_load"));
    TRY(load_i32(&j, e, s->result.load, -1));
    if (s->by_domain && e->spec.n_moe > 0) {
        TRY(json_key(&j, "expert_load_by_domain"));
        TRY(json_object(&j));
        for (int d = 0; d < loader_sources(l); d++) {
            TRY(json_key(&j, loader_source_name(l, d)));
            TRY(load_i32(&j, e, s->result.load, d));
        }
        TRY(json_object_end(&j));
    }
    return end(m, &j);
}

static double bits_per_byte(double nats, int64_t bytes)
{
    return bytes > 0 ? nats / log(2) / (double)bytes : 0;
}

double eval_loss(const EvalMetrics *v)
{
    double nats = 0;
    int64_t targets = 0;
    for (int d = 0; d < v->n_domains; d++) nats += v->nats[d], targets += v->targets[d];
    return targets > 0 ? nats / (double)targets : 0;
}

double eval_bits_per_byte(const EvalMetrics *v)
{
    double nats = 0;
    int64_t bytes = 0;
    for (int d = 0; d < v->n_domains; d++) nats += v->nats[d], bytes += v->bytes[d];
    return bits_per_byte(nats, bytes);
}

static Status eval_domain(Json *j, const EvalMetrics *v, int d)
{
    TRY(json_object(j));
    TRY(field(j, "loss", v->targets[d] > 0 ? v->nats[d] / (double)v->targets[d] : 0));
    TRY(field(j, "bits_per_byte", bits_per_byte(v->nats[d], v->bytes[d])));
    TRY(count(j, "targets", v->targets[d]));
    TRY(count(j, "bytes", v->bytes[d]));
    return json_object_end(j);
}

static Status eval_load(Json *j, const Engine *e, const EvalMetrics *v, int d)
{
    int64_t experts = e->spec.experts;
    TRY(json_array(j));
    for (int layer = 0; layer < e->spec.n_moe; layer++) {
        TRY(json_array(j));
        const int64_t *row = v->load + (layer * e->shape.domains + d) * experts;
        for (int64_t x = 0; x < experts; x++) TRY(json_int(j, row[x]));
        TRY(json_array_end(j));
    }
    return json_array_end(j);
}

Status metrics_eval(Metrics *m, const Engine *e, const Loader *l, const EvalMetrics *v)
{
    Json j;
    TRY(begin(m, &j, "eval"));
    TRY(count(&j, "step", v->step));
    TRY(field(&j, "loss", eval_loss(v)));
    TRY(field(&j, "bits_per_byte", eval_bits_per_byte(v)));
    TRY(json_key(&j, "domains"));
    TRY(json_object(&j));
    for (int d = 0; d < v->n_domains; d++) {
        TRY(json_key(&j, loader_source_name(l, d)));
        TRY(eval_domain(&j, v, d));
    }
    TRY(json_object_end(&j));
    if (e->spec.n_moe > 0) {
        TRY(json_key(&j, "expert_load_by_domain"));
        TRY(json_object(&j));
        for (int d = 0; d < v->n_domains; d++) {
            TRY(json_key(&j, loader_source_name(l, d)));
            TRY(eval_load(&j, e, v, d));
        }
        TRY(json_object_end(&j));
    }
    return end(m, &j);
}
