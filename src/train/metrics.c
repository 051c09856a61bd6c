/* metrics: writes the lines of metrics.jsonl, and computes the shares and means in them. */
#include "train/metrics.h"

#include "base/log.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BUFFER_BYTES = 64 << 10 };

/* A killed run may have left half a line. Ends it, so that the next line stays readable. */
static Status end_half_line(Metrics *m, const char *path)
{
    FileMap log = { 0 };
    TRY(file_map(path, &log));
    bool half = log.bytes > 0 && log.data[log.bytes - 1] != '\n';
    file_unmap(&log);
    return half ? file_write(&m->file, "\n", 1) : OK;
}

Status metrics_open_log(Metrics *m, const Engine *e, const Loader *l, const char *run_dir)
{
    *m = (Metrics){ .engine = e, .spec = &e->spec, .loader = l };
    char path[FILE_PATH_MAX];
    void *buffer = NULL;
    TRY(file_join(path, run_dir, "metrics.jsonl"));
    TRY(arena_reserve(&m->arena, "metrics", (size_t)1 << 30));
    TRY(arena_alloc(&m->arena, BUFFER_BYTES, &buffer));
    TRY(file_open_append(&m->file, path, buffer, BUFFER_BYTES));
    TRY(end_half_line(m, path));
    return text_init(&m->line, &m->arena);
}

/* Labels of the series: depths from 1, the blocks with experts, the sources. */
static Status make_series(Metrics *m)
{
    const char **label[EACH_COUNT] = { 0 };
    const int n[EACH_COUNT] = { [EACH_DEPTH] = m->spec->depths,
                                [EACH_GROUP] = GRAD_GROUPS,
                                [EACH_LAYER] = m->spec->n_moe,
                                [EACH_SOURCE] = loader_sources(m->loader) };
    SeriesLabels of[EACH_COUNT] = { 0 };
    char number[16];
    for (int each = EACH_DEPTH; each < EACH_COUNT; each++) {
        TRY(ARENA_NEW(&m->watch_arena, n[each], &label[each]));
        of[each] = (SeriesLabels){ label[each], n[each] };
    }
    for (int i = 0; i < n[EACH_SOURCE]; i++)
        label[EACH_SOURCE][i] = loader_source_name(m->loader, i);
    for (int i = 0; i < GRAD_GROUPS; i++) label[EACH_GROUP][i] = grad_group_names[i];
    for (int i = 0; i < n[EACH_DEPTH]; i++)
        TRY(arena_text(&m->watch_arena, number,
                       (size_t)snprintf(number, sizeof number, "%d", i + 1),
                       &label[EACH_DEPTH][i]));
    for (int i = 0, layer = 0; i < m->spec->n_layers; i++) {
        if (m->spec->layers[i].load < 0) continue;
        int bytes = snprintf(number, sizeof number, "%d", m->spec->layers[i].block);
        TRY(arena_text(&m->watch_arena, number, (size_t)bytes, &label[EACH_LAYER][layer++]));
    }
    return series_make(&m->series, of, &m->watch_arena);
}

Status metrics_watch(Metrics *m, const char *run_dir, LivePage *page)
{
    const Config *c = m->engine->config;
    if (!c->run_tensorboard && c->run_http == 0 && c->run_alert_loss == 0 && c->run_alert_load == 0)
        return OK;
    TRY(arena_reserve(&m->watch_arena, "watch", (size_t)1 << 30));
    TRY(make_series(m));
    if (c->run_http > 0)
        TRY(live_open(&m->live, (int)c->run_http, m->spec->name, c->train_steps, &m->series, page,
                      &m->watch_arena));
    if (c->run_http > 0)
        log_info("the run can be watched at http://127.0.0.1:%" PRId64 "/", c->run_http);
    if (!c->run_tensorboard) return OK;
    return event_file_open(&m->events, run_dir, &m->series, &m->watch_arena);
}

void metrics_close(Metrics *m)
{
    live_close(m->live);
    event_file_close(&m->events);
    arena_free(&m->watch_arena);
    file_close(&m->file);
    arena_free(&m->arena);
}

/* Hands the series that were set to those who watch. */
static Status watch_put(Metrics *m, int64_t step)
{
    if (m->live != NULL) live_put(m->live, step, &m->series);
    if (m->events.event != NULL) TRY(event_file_put(&m->events, step, &m->series));
    series_taken(&m->series);
    return OK;
}

/* Each line of a run with forced balance says so, since its losses and loads mean nothing. */
static Status begin_line(Metrics *m, const char *kind)
{
    m->line.used = 0;
    return text_json(&m->line,
                     m->engine->config->moe_forced_balance ? "{\"kind\":%s,\"forced_balance\":true"
                                                           : "{\"kind\":%s",
                     kind);
}

/* Flushes each line: a killed run loses only the line that it was writing. */
static Status end_line(Metrics *m)
{
    TRY(text_append(&m->line, "}\n", 2));
    TRY(file_write(&m->file, m->line.data, m->line.used));
    return file_flush(&m->file);
}

/* Separates item i of a list or an object from the one before it. */
static Status put_comma(Text *t, int64_t i) { return text_append(t, ",", i > 0); }

/* {"arena": bytes} as planned; plan NULL: as used at the peak. */
static Status put_arenas(Metrics *m, const char *key, const EnginePlan *plan)
{
    Text *t = &m->line;
    TRY(text_json(t, ",%s:{", key));
    for (int a = 0; a < ENGINE_ARENAS; a++) {
        size_t bytes = plan != NULL ? plan->bytes[a] : engine_peak_bytes(m->engine, (EngineArena)a);
        TRY(put_comma(t, a));
        TRY(text_json(t, "%s:%zu", engine_arena_names[a], bytes));
    }
    return text_append(t, "}", 1);
}

/* The first line has what later lines are read with: names of domains, which blocks have experts,
 * planned bytes. */
Status metrics_start(Metrics *m, const EnginePlan *plan, double roof_flops, double sheet_flops)
{
    Text *t = &m->line;
    int n = 0;
    TRY(begin_line(m, "start"));
    TRY(text_json(t, ",\"model\":%s,\"params_total\":%lld,\"params_active\":%lld,\"domains\":[",
                  m->spec->name, (long long)plan->params_total, (long long)plan->params_active));
    for (int d = 0; d < loader_sources(m->loader); d++) {
        TRY(put_comma(t, d));
        TRY(text_json(t, "%s", loader_source_name(m->loader, d)));
    }
    TRY(text_json(t, "],\"experts\":%lld,\"moe_layers\":[", (long long)m->spec->experts));
    for (int i = 0; i < m->spec->n_layers; i++) {
        const LayerSpec *layer = &m->spec->layers[i];
        if (layer->load < 0) continue;
        TRY(put_comma(t, n++));
        TRY(text_json(t, "%d", layer->block));
    }
    TRY(text_append(t, "]", 1));
    char cpu[OP_SET_TEXT_BYTES];
    op_set_text(&m->engine->ex, m->engine->config->run_compute == COMPUTE_BF16, cpu);
    if (cpu[0] != '\0') TRY(text_json(t, ",\"cpu\":%s", cpu));
    TRY(put_arenas(m, "arenas_planned", plan));
    TRY(text_json(t, ",\"roof_flops\":%g,\"sheet_flops\":%g", roof_flops, sheet_flops));
    return end_line(m);
}

/* A table of expert load, (MoE layers, domains, E): of a step or of an evaluation. */
typedef struct Load {
    const int32_t *step;
    const int64_t *eval;
} Load;

/* A list of E numbers for each MoE layer, of one domain; -1: of all domains together. */
static Status put_load_table(Metrics *m, Load load, int domain)
{
    Text *t = &m->line;
    int64_t domains = m->engine->shape.domains, experts = m->spec->experts;
    TRY(text_append(t, "[", 1));
    for (int layer = 0; layer < m->spec->n_moe; layer++) {
        TRY(put_comma(t, layer));
        for (int64_t x = 0; x < experts; x++) {
            int64_t sum = 0;
            for (int64_t d = 0; d < domains; d++) {
                int64_t i = (layer * domains + d) * experts + x;
                if (domain >= 0 && d != domain) continue;
                sum += load.step != NULL ? load.step[i] : load.eval[i];
            }
            TRY(text_printf(t, "%c%" PRId64, x == 0 ? '[' : ',', sum));
        }
        TRY(text_append(t, "]", 1));
    }
    return text_append(t, "]", 1);
}

/* One table of load for each domain of the data, by its name. */
static Status put_load_by_domain(Metrics *m, Load load)
{
    Text *t = &m->line;
    if (m->spec->n_moe == 0) return OK;
    TRY(text_json(t, ",\"expert_load_by_domain\":{"));
    for (int d = 0; d < loader_sources(m->loader); d++) {
        TRY(put_comma(t, d));
        TRY(text_json(t, "%s:", loader_source_name(m->loader, d)));
        TRY(put_load_table(m, load, d));
    }
    return text_append(t, "}", 1);
}

/* Tokens so far of each domain, and how often its training text was read. */
static Status put_taken(Metrics *m, const int64_t *taken)
{
    Text *t = &m->line;
    TRY(text_json(t, ",\"domain_tokens\":{"));
    for (int d = 0; d < loader_sources(m->loader); d++) {
        TRY(put_comma(t, d));
        TRY(text_json(t, "%s:%lld", loader_source_name(m->loader, d),
                      (long long)(taken[d] * m->engine->config->data_sequence)));
    }
    TRY(text_json(t, "},\"domain_epochs\":{"));
    for (int d = 0; d < loader_sources(m->loader); d++) {
        TRY(put_comma(t, d));
        TRY(text_json(t, "%s:%g", loader_source_name(m->loader, d),
                      (double)taken[d] / (double)loader_epoch_sequences(m->loader, d)));
    }
    return text_append(t, "}", 1);
}

/* Fields of a step on a GPU. Fields that the driver does not report are left out. */
static Status put_gpu_fields(Text *t, const StepMetrics *s)
{
    static const char *const key[] = { [GPU_CLOCK_MHZ] = "clock_mhz",
                                       [GPU_MEMORY_CLOCK_MHZ] = "memory_clock_mhz",
                                       [GPU_POWER_W] = "power_w",
                                       [GPU_TEMPERATURE_C] = "temperature_c" };
    const StepResult *r = &s->result;
    const char *word[GPU_REASONS_MAX];
    if (r->launches == 0) return OK;
    TRY(text_json(
        t, ",\"device_s\":%g,\"launches\":%" PRId64 ",\"kernels\":%" PRId64 ",\"waits\":%" PRId64,
        r->device_s, r->launches, r->kernels, r->waits));
    for (int f = 0; f < GPU_THROTTLE; f++) {
        if (gpu_knows(&s->gpu, (GpuFigure)f)) {
            TRY(text_json(t, ",%s:%g", key[f], s->gpu.value[f]));
        }
    }
    if (!gpu_knows(&s->gpu, GPU_THROTTLE)) return OK;
    int n = gpu_throttle_words(s->gpu.throttle, word);
    TRY(text_json(t, ",\"throttle\":["));
    for (int i = 0; i < n; i++) {
        TRY(put_comma(t, i));
        TRY(text_json(t, "%s", word[i]));
    }
    return text_append(t, "]", 1);
}

/* The least, median and most of each figure over the ranks. */
static Status put_rank_fields(Text *t, const RankSpread *r)
{
    static const char *const key[RANK_FIELDS] = { [RANK_STEP_S] = "step_s",
                                                  [RANK_OWN_S] = "own_s",
                                                  [RANK_TOKENS_PER_S] = "tokens_per_s",
                                                  [RANK_MEMORY_GIB] = "memory_gib",
                                                  [RANK_EXPERT_ROWS] = "expert_rows",
                                                  [RANK_CLOCK_MHZ] = "clock_mhz" };
    TRY(text_json(t, ",\"ranks\":{\"slowest\":%d", r->slowest));
    if (r->slow >= 0) TRY(text_json(t, ",\"slow\":%d", r->slow));
    for (int f = RANK_STEP_S; f < RANK_THROTTLE; f++) {
        if (f == RANK_CLOCK_MHZ && r->most.of[f] <= 0) continue;
        TRY(text_json(t, ",%s:[%g,%g,%g]", key[f], (double)r->least.of[f], (double)r->median.of[f],
                      (double)r->most.of[f]));
    }
    return text_append(t, "}", 1);
}

/* The measured peak is only a lower bound of what the machine can do, so a faster step corrects
 * it. */
void metrics_shares(StepMetrics *s, double flops, double *roof_flops, double sheet_flops)
{
    const double rate = flops / s->step_s;
    if (*roof_flops > 0) *roof_flops = fmax(*roof_flops, rate);
    s->roof_flops = *roof_flops;
    s->roof_share = *roof_flops > 0 ? rate / *roof_flops : 0;
    s->mfu = sheet_flops > 0 ? rate / sheet_flops : 0;
}

int64_t metrics_dropped(const ModelSpec *s, const StepResult *r)
{
    int64_t all = 0;
    for (int i = 0; r->dropped != NULL && i < s->n_moe; i++) all += r->dropped[i];
    return all;
}

/* "dropped": a number for each MoE layer, if any is above 0. */
static Status put_dropped(Metrics *m, const StepResult *r)
{
    Text *t = &m->line;
    if (metrics_dropped(m->spec, r) == 0) return OK;
    TRY(text_json(t, ",\"dropped\":["));
    for (int i = 0; i < m->spec->n_moe; i++) {
        TRY(put_comma(t, i));
        TRY(text_json(t, "%d", r->dropped[i]));
    }
    return text_append(t, "]", 1);
}

/* The mean over the tokens of the batch. */
static double router_z(const StepMetrics *s, int layer)
{
    return (double)s->result.router_z[layer] / (double)s->tokens;
}

/* Norms of the groups that this model trains, and "router_z": a number for each MoE layer. */
static Status put_groups(Metrics *m, const StepMetrics *s)
{
    Text *t = &m->line;
    char key[32];
    for (int g = 0; g < GRAD_GROUPS; g++) {
        if (s->result.group_norm[g] == 0) continue;
        (void)snprintf(key, sizeof key, "grad_norm_%s", grad_group_names[g]);
        TRY(text_json(t, ",%s:%g", key, s->result.group_norm[g]));
    }
    if (m->spec->n_moe == 0) return OK;
    for (int i = 0; i < m->spec->n_moe; i++)
        TRY(text_json(t, i == 0 ? ",\"router_z\":[%g" : ",%g", router_z(s, i)));
    return text_append(t, "]", 1);
}

/* Warns of a loss or a load that has just left its band. The load's band is a number of the configuration. */
static void watch_alerts(Metrics *m, int64_t step, double loss)
{
    const Config *c = m->engine->config;
    const Series *most = &m->series.all[m->series.first[SERIES_LOAD_MAX]], *worst = most;
    double end = band_end(&m->loss, c->run_alert_loss);
    for (int i = 1; i < m->spec->n_moe; i++)
        if (most[i].now > worst->now) worst = &most[i];
    if (c->run_alert_loss > 0 && band_leaves(&m->loss, loss, end)) {
        log_warn("step %" PRId64 ": loss %.4f has left its band, which ends at %.4f: mean %.4f and "
                 "run.alert_loss=%g deviations of the steps before",
                 step, loss, end, m->loss.mean, c->run_alert_loss);
        m->alerts++;
    }
    band_add(&m->loss, loss);
    if (c->run_alert_load > 0 && m->spec->n_moe > 0 &&
        band_leaves(&m->load, worst->now, c->run_alert_load)) {
        log_warn("step %" PRId64
                 ": the busiest expert of layer %s takes %.2f times the mean, above "
                 "run.alert_load=%g",
                 step, worst->label, worst->now, c->run_alert_load);
        m->alerts++;
    }
    series_set(&m->series, SERIES_ALERTS, 0, (double)m->alerts);
}

/* Sets the series of a step, and warns. */
static void watch_step(Metrics *m, const StepMetrics *s)
{
    SeriesTable *t = &m->series;
    if (t->n == 0) return;
    m->again += s->result.retried;
    series_set(t, SERIES_LOSS, 0, s->result.loss);
    series_set(t, SERIES_AUX_LOSS, 0, s->result.aux_loss);
    for (int i = 0; i < m->spec->depths; i++)
        series_set(t, SERIES_MTP_LOSS, i, s->result.next_loss[i]);
    series_set(t, SERIES_LR, 0, s->lr);
    series_set(t, SERIES_GRAD_NORM, 0, s->result.grad_norm);
    for (int i = 0; i < GRAD_GROUPS; i++)
        if (s->result.group_norm[i] != 0)
            series_set(t, SERIES_GROUP_NORM, i, s->result.group_norm[i]);
    series_set(t, SERIES_TOKENS_PER_S, 0, s->tokens_per_s);
    series_set(t, SERIES_STEP_S, 0, s->step_s);
    series_set(t, SERIES_AGAIN, 0, (double)m->again);
    if (s->roof_share > 0) series_set(t, SERIES_ROOF_SHARE, 0, s->roof_share);
    if (s->mfu > 0) series_set(t, SERIES_MFU, 0, s->mfu);
    for (int d = 0; d < loader_sources(m->loader) && s->taken != NULL; d++) {
        double taken = (double)s->taken[d];
        series_set(t, SERIES_SOURCE_TOKENS, d, taken * (double)m->engine->config->data_sequence);
        series_set(t, SERIES_SOURCE_EPOCHS, d,
                   taken / (double)loader_epoch_sequences(m->loader, d));
    }
    int64_t domains = m->engine->shape.domains, experts = m->spec->experts;
    for (int i = 0; i < m->spec->n_moe; i++) series_set(t, SERIES_ROUTER_Z, i, router_z(s, i));
    for (int i = 0; i < m->spec->n_moe; i++)
        series_set_load(t, i, s->result.load + i * domains * experts, domains, experts);
    watch_alerts(m, s->step, s->result.loss);
}

/* "alert": what is outside of its band in this step. */
static Status put_alerts(Metrics *m)
{
    const bool out[] = { m->loss.out, m->load.out };
    static const char *const name[] = { "loss", "load" };
    int n = 0;
    for (int i = 0; i < 2; i++)
        if (out[i]) TRY(text_json(&m->line, n++ == 0 ? ",\"alert\":[%s" : ",%s", name[i]));
    return text_append(&m->line, "]", n > 0);
}

/* Fields that are mostly empty (dropped, skipped, again, capture, stall) appear only in steps that have
 * them. Readers must take a missing field for 0. */
Status metrics_step(Metrics *m, const StepMetrics *s)
{
    Text *t = &m->line;
    Load load = { .step = s->result.load };
    watch_step(m, s);
    TRY(begin_line(m, "step"));
    TRY(text_json(t,
                  ",\"step\":%" PRId64
                  ",\"loss\":%g,\"aux_loss\":%g,\"lr\":%g,\"grad_norm\":%g,\"tokens\":%" PRId64
                  ",\"step_s\":%g,\"tokens_per_s\":%g,\"roof_share\":%g,\"roof_flops\":%g",
                  s->step, s->result.loss, s->result.aux_loss, s->lr, s->result.grad_norm,
                  s->tokens, s->step_s, s->tokens_per_s, s->roof_share, s->roof_flops));
    for (int i = 0; i < m->spec->depths; i++)
        TRY(text_json(t, ",\"mtp_%d\":%g", i + 1, s->result.next_loss[i]));
    if (m->spec->act == DTYPE_F16) TRY(text_json(t, ",\"loss_scale\":%g", s->result.loss_scale));
    if (s->result.skipped) TRY(text_json(t, ",\"skipped\":true"));
    if (s->result.skipped && s->result.finite)
        TRY(text_json(t, ",\"norm_limit\":%g", s->result.norm_limit));
    if (s->result.clipped > 0)
        TRY(text_json(t, ",\"qk_logit\":%g,\"qk_clipped\":%" PRId64, s->result.logit,
                      s->result.clipped));
    if (s->mfu > 0) TRY(text_json(t, ",\"mfu\":%g", s->mfu));
    if (s->by_domain && s->taken != NULL) TRY(put_taken(m, s->taken));
    TRY(put_groups(m, s));
    TRY(put_dropped(m, &s->result));
    TRY(put_gpu_fields(t, s));
    double capture_s = s->result.capture_s + s->grow_s;
    if (s->result.retried) TRY(text_json(t, ",\"again\":true,\"again_s\":%g", s->result.retry_s));
    if (s->result.verify_s > 0) TRY(text_json(t, ",\"verify_s\":%g", s->result.verify_s));
    if (capture_s > 0) TRY(text_json(t, ",\"capture_s\":%g", capture_s));
    if (s->save_stall_s > 0) TRY(text_json(t, ",\"save_stall_s\":%g", s->save_stall_s));
    if (s->save_share > 0) TRY(text_json(t, ",\"save_share\":%g", s->save_share));
    TRY(put_alerts(m));
    if (s->ranks != NULL) TRY(put_rank_fields(t, s->ranks));
    TRY(put_arenas(m, "memory_bytes", NULL));
    TRY(text_json(t, ",\"expert_load\":"));
    TRY(put_load_table(m, load, -1));
    if (s->by_domain) TRY(put_load_by_domain(m, load));
    TRY(end_line(m));
    return m->series.n == 0 ? OK : watch_put(m, s->step);
}

void eval_add(EvalSum *to, const EvalSum *more)
{
    to->nats += more->nats;
    to->targets += more->targets;
    to->bytes += more->bytes;
}

EvalSum eval_total(const EvalMetrics *v)
{
    EvalSum all = { 0 };
    for (int d = 0; d < v->n_domains; d++) eval_add(&all, &v->domain[d]);
    return all;
}

double eval_loss(const EvalSum *s)
{
    return s->targets > 0 ? s->nats / (double)s->targets : (double)NAN;
}

double eval_bits_per_byte(const EvalSum *s)
{
    return s->bytes > 0 ? s->nats / log(2) / (double)s->bytes : (double)NAN;
}

const char *eval_text(const EvalSum *s, const char *between, char out[EVAL_TEXT_BYTES])
{
    int n = snprintf(out, EVAL_TEXT_BYTES, "loss %.4f", eval_loss(s));
    if (s->bytes > 0)
        (void)snprintf(out + n, (size_t)(EVAL_TEXT_BYTES - n), "%s%.4f bits a byte", between,
                       eval_bits_per_byte(s));
    return out;
}

static Status watch_eval(Metrics *m, const EvalMetrics *v, const EvalSum *all)
{
    SeriesTable *t = &m->series;
    if (t->n == 0) return OK;
    series_set(t, SERIES_EVAL_LOSS, 0, eval_loss(all));
    if (all->bytes > 0) series_set(t, SERIES_EVAL_BITS, 0, eval_bits_per_byte(all));
    for (int d = 0; d < v->n_domains; d++) {
        if (v->domain[d].targets > 0)
            series_set(t, SERIES_SOURCE_EVAL_LOSS, d, eval_loss(&v->domain[d]));
    }
    return watch_put(m, v->step);
}

/* Domains without targets have losses of NaN, which JSON writes as null (text_json). */
Status metrics_eval(Metrics *m, const EvalMetrics *v)
{
    Text *t = &m->line;
    const EvalSum all = eval_total(v);
    TRY(begin_line(m, "eval"));
    TRY(text_json(t, ",\"step\":%" PRId64 ",\"loss\":%g,\"bits_per_byte\":%g,\"domains\":{",
                  v->step, eval_loss(&all), eval_bits_per_byte(&all)));
    for (int d = 0; d < v->n_domains; d++) {
        const EvalSum *s = &v->domain[d];
        TRY(put_comma(t, d));
        TRY(text_json(t,
                      "%s:{\"loss\":%g,\"bits_per_byte\":%g,\"targets\":%" PRId64
                      ",\"bytes\":%" PRId64 "}",
                      loader_source_name(m->loader, d), eval_loss(s), eval_bits_per_byte(s),
                      s->targets, s->bytes));
    }
    TRY(text_append(t, "}", 1));
    TRY(put_load_by_domain(m, (Load){ .eval = v->load }));
    TRY(end_line(m));
    return watch_eval(m, v, &all);
}

const char *metrics_depths_text(const StepResult *r, int depths, char out[METRICS_DEPTHS_BYTES])
{
    size_t n = 0;
    out[0] = '\0';
    for (int i = 0; i < depths; i++)
        n = text_add(out, METRICS_DEPTHS_BYTES, n,
                     fabs(r->next_loss[i]) < 1e6 ? "  mtp_%d %.4f" : "  mtp_%d %.4g", i + 1,
                     r->next_loss[i]);
    return out;
}
