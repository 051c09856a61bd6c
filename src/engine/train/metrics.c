/* metrics: writes the lines of metrics.jsonl, and computes the shares and means in them. */
#include "engine/train/metrics.h"

#include "engine/base/log.h"
#include "engine/step/engine_batch.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

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

/* Writes number i of a list of labels. */
static Status number_label(Metrics *m, const char **label, int i, int number)
{
    char text[16];
    int bytes = snprintf(text, sizeof text, "%d", number);
    return arena_text(&m->arena, text, (size_t)bytes, &label[i]);
}

/* Labels of the series: depths from 1, the blocks with experts, the sources. */
static Status make_series(Metrics *m)
{
    const ModelSpec *s = m->spec;
    const int sources = loader_sources(m->loader);
    const char **depth, **layer, **source;
    TRY(ARENA_NEW(&m->arena, s->depths, &depth));
    TRY(ARENA_NEW(&m->arena, s->n_moe, &layer));
    TRY(ARENA_NEW(&m->arena, sources, &source));
    for (int i = 0; i < s->depths; i++) TRY(number_label(m, depth, i, i + 1));
    for (int i = 0; i < s->n_layers; i++)
        if (s->layers[i].load >= 0)
            TRY(number_label(m, layer, s->layers[i].load, s->layers[i].block));
    for (int i = 0; i < sources; i++) source[i] = loader_source_name(m->loader, i);
    const SeriesLabels of[EACH_LABELLED] = { [EACH_DEPTH] = { depth, s->depths },
                                             [EACH_GROUP] = { grad_group_names, GRAD_GROUPS },
                                             [EACH_LAYER] = { layer, s->n_moe },
                                             [EACH_DROPPED] = { layer, s->n_moe },
                                             [EACH_SOURCE] = { source, sources } };
    return series_make(&m->series, of, &m->arena);
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
    TRY(make_series(m));
    return text_init(&m->line, &m->arena);
}

Status metrics_watch(Metrics *m, const char *run_dir, LivePage *page)
{
    const Config *c = m->engine->config;
    if (!c->run_tensorboard && c->run_http == 0 && c->run_alert_loss == 0 && c->run_alert_load == 0)
        return OK;
    m->watched = true;
    TRY(arena_reserve(&m->watch_arena, "watch", (size_t)1 << 30));
    if (c->run_http > 0)
        TRY(live_open(&m->live, c, m->spec->name, &m->series, page, &m->watch_arena));
    if (c->run_http > 0)
        log_info("the run can be watched at http://127.0.0.1:%" PRId64 "/", c->run_http);
    if (!c->run_tensorboard) return OK;
    return event_file_open(&m->events, run_dir, c, &m->series, &m->watch_arena);
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
static void take_sources(Metrics *m, const int64_t *taken)
{
    for (int d = 0; taken != NULL && d < loader_sources(m->loader); d++) {
        const int64_t tokens = taken[d] * m->engine->config->data_sequence;
        series_set(&m->series, FIGURE_SOURCE_TOKENS, d, (double)tokens);
        series_set(&m->series, FIGURE_SOURCE_EPOCHS, d,
                   (double)taken[d] / (double)loader_epoch_sequences(m->loader, d));
    }
}

/* Figures of a step on a GPU. What the driver does not report is left out; those
 * that it does stand in the order of GpuFigure. */
static void take_gpu(SeriesTable *t, const StepMetrics *s)
{
    const StepResult *r = &s->result;
    if (r->launches == 0) return;
    series_set(t, FIGURE_DEVICE_S, 0, r->device_s);
    series_set(t, FIGURE_LAUNCHES, 0, (double)r->launches);
    series_set(t, FIGURE_KERNELS, 0, (double)r->kernels);
    series_set(t, FIGURE_WAITS, 0, (double)r->waits);
    for (int f = 0; f < GPU_THROTTLE; f++)
        if (gpu_knows(&s->gpu, (GpuFigure)f))
            series_set(t, (Figure)(FIGURE_CLOCK_MHZ + f), 0, s->gpu.value[f]);
}

static Status put_throttle(Metrics *m, const StepMetrics *s)
{
    Text *t = &m->line;
    const char *word[GPU_REASONS_MAX];
    if (s->result.launches == 0 || !gpu_knows(&s->gpu, GPU_THROTTLE)) return OK;
    int n = gpu_throttle_words(s->gpu.throttle, word);
    TRY(text_json(t, ",\"throttle\":["));
    for (int i = 0; i < n; i++) {
        TRY(put_comma(t, i));
        TRY(text_json(t, "%s", word[i]));
    }
    return text_append(t, "]", 1);
}

/* The least, median and most of each figure over the ranks. */
static Status put_ranks(Text *t, const RankSpread *r)
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

/* Warns of a loss or a load that has just left its band. The load's band is a number of the configuration. */
static void watch_alerts(Metrics *m, int64_t step, double loss)
{
    const Config *c = m->engine->config;
    const Series *most = &m->series.all[m->series.first[FIGURE_LOAD_MAX]], *worst = most;
    double end = band_end(&m->loss, c->run_alert_loss);
    for (int i = 1; i < m->spec->n_moe; i++)
        if (most[i].now > worst->now) worst = &most[i];
    if (c->run_alert_loss > 0 && band_leaves(&m->loss, loss, end)) {
        log_warn("step %" PRId64 ": loss %.4f is out of range, above %.4f: the mean %.4f and "
                 "run.alert_loss=%g standard deviations of the steps before",
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
    series_set(&m->series, FIGURE_ALERTS, 0, (double)m->alerts);
}

/* Sets the figures that the step's record has. */
static void take_record(Metrics *m, const StepMetrics *s)
{
    for (int f = 0; f < FIGURES; f++) {
        const FigureRead read = figure_rows[f].read;
        for (int i = 0; read != READ_UNREAD && i < m->series.count[f]; i++) {
            const double v = step_figure(&s->result, (Figure)f, i);
            if (read == READ_ROOT && v == 0) continue;
            series_set(&m->series, (Figure)f, i,
                       read == READ_PER_TOKEN ? v / (double)s->tokens : v);
        }
    }
}

/* Figures that only some steps have. */
static void take_rare(Metrics *m, const StepMetrics *s)
{
    SeriesTable *t = &m->series;
    const StepResult *r = &s->result;
    const double capture_s = r->capture_s + s->grow_s;
    if (m->spec->act == DTYPE_F16) series_set(t, FIGURE_LOSS_SCALE, 0, r->loss_scale);
    if (r->skipped) series_set(t, FIGURE_SKIPPED, 0, 1);
    if (r->skipped && r->finite) series_set(t, FIGURE_NORM_LIMIT, 0, r->norm_limit);
    if (r->clipped > 0) series_set(t, FIGURE_QK_LOGIT, 0, r->logit);
    if (r->clipped > 0) series_set(t, FIGURE_QK_CLIPPED, 0, (double)r->clipped);
    if (s->mfu > 0) series_set(t, FIGURE_MFU, 0, s->mfu);
    if (r->retried) series_set(t, FIGURE_AGAIN, 0, 1);
    if (r->retried) series_set(t, FIGURE_AGAIN_S, 0, r->retry_s);
    if (r->verify_s > 0) series_set(t, FIGURE_VERIFY_S, 0, r->verify_s);
    if (capture_s > 0) series_set(t, FIGURE_CAPTURE_S, 0, capture_s);
    if (s->save_stall_s > 0) series_set(t, FIGURE_SAVE_STALL_S, 0, s->save_stall_s);
    if (s->save_share > 0) series_set(t, FIGURE_SAVE_SHARE, 0, s->save_share);
    take_gpu(t, s);
}

/* Sets the figures of a step, and warns. */
static void take_step(Metrics *m, const StepMetrics *s)
{
    SeriesTable *t = &m->series;
    int64_t domains = m->engine->shape.domains, experts = m->spec->experts;
    m->again += s->result.retried;
    take_record(m, s);
    take_rare(m, s);
    take_sources(m, s->taken);
    series_set(t, FIGURE_STEP, 0, (double)s->step);
    series_set(t, FIGURE_LR, 0, s->lr);
    series_set(t, FIGURE_TOKENS, 0, (double)s->tokens);
    series_set(t, FIGURE_TOKENS_SEEN, 0, s->seen);
    series_set(t, FIGURE_RUN_S, 0, s->run_s);
    series_set(t, FIGURE_LEFT_S, 0, s->left_s);
    series_set(t, FIGURE_STEP_S, 0, s->step_s);
    series_set(t, FIGURE_TOKENS_PER_S, 0, s->tokens_per_s);
    series_set(t, FIGURE_ROOF_SHARE, 0, s->roof_share);
    series_set(t, FIGURE_ROOF_FLOPS, 0, s->roof_flops);
    series_set(t, FIGURE_STEPS_AGAIN, 0, (double)m->again);
    for (int i = 0; m->watched && i < m->spec->n_moe; i++)
        series_set_load(t, i, s->result.load + i * domains * experts, domains, experts);
    if (m->watched) watch_alerts(m, s->step, s->result.loss);
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

static Status put_by_hand(Metrics *m, const StepMetrics *s, Figure f)
{
    const Load load = { .step = s->result.load };
    if (f == FIGURE_THROTTLE) return put_throttle(m, s);
    if (f == FIGURE_ALERT) return put_alerts(m);
    if (f == FIGURE_RANKS) return s->ranks == NULL ? OK : put_ranks(&m->line, s->ranks);
    if (f == FIGURE_MEMORY) return put_arenas(m, "memory_bytes", NULL);
    TRY(text_json(&m->line, ",\"expert_load\":"));
    TRY(put_load_table(m, load, -1));
    return s->by_domain ? put_load_by_domain(m, load) : OK;
}

static Status put_number(Text *t, bool count, double v)
{
    return count ? text_printf(t, "%" PRId64, (int64_t)v) : text_json(t, "%g", v);
}

/* "key":0.5, for each label that was set. */
static Status put_members(Text *t, const FigureRow *row, const Series *at, const Series *end)
{
    char key[64];
    for (; at < end; at++) {
        (void)snprintf(key, sizeof key, "%s%s", row->key, at->label);
        if (!at->set) continue;
        TRY(text_json(t, ",%s:", key));
        TRY(row->member == MEMBER_TRUE ? text_append(t, "true", 4)
                                       : put_number(t, row->member == MEMBER_COUNT, at->now));
    }
    return OK;
}

/* "key":[0.5,0.25], or "key":{"label":0.5,"other":0.25}. */
static Status put_list(Text *t, const FigureRow *row, const Series *at, int n)
{
    const bool named = row->member >= MEMBER_BY_NAME;
    const bool count = row->member == MEMBER_COUNTS_IF_ANY || row->member == MEMBER_COUNTS_BY_NAME;
    TRY(text_json(t, named ? ",%s:{" : ",%s:[", row->key));
    for (int i = 0; i < n; i++) {
        TRY(put_comma(t, i));
        if (named) TRY(text_json(t, "%s:", at[i].label));
        TRY(put_number(t, count, at[i].now));
    }
    return text_append(t, named ? "}" : "]", 1);
}

/* Figures that were not set in this step are left out. Readers must take a missing field for 0. */
static Status put_figure(Metrics *m, const StepMetrics *s, Figure f)
{
    const FigureRow *row = &figure_rows[f];
    const Series *at = &m->series.all[m->series.first[f]];
    const int n = m->series.count[f];
    bool any = row->member == MEMBER_LIST || (row->member >= MEMBER_BY_NAME && s->by_domain);
    if (row->member == MEMBER_BY_HAND) return put_by_hand(m, s, f);
    if (row->key == NULL) return OK;
    if (row->member < MEMBER_LIST) return put_members(&m->line, row, at, at + n);
    for (int i = 0; i < n; i++) any |= row->member == MEMBER_COUNTS_IF_ANY && at[i].now > 0;
    return any && n > 0 && at->set ? put_list(&m->line, row, at, n) : OK;
}

Status metrics_step(Metrics *m, const StepMetrics *s)
{
    take_step(m, s);
    TRY(begin_line(m, "step"));
    for (int f = 0; f < FIGURES; f++) TRY(put_figure(m, s, (Figure)f));
    TRY(end_line(m));
    return watch_put(m, s->step);
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
    if (all->targets > 0) series_set(t, FIGURE_EVAL_LOSS, 0, eval_loss(all));
    if (all->bytes > 0) series_set(t, FIGURE_EVAL_BITS, 0, eval_bits_per_byte(all));
    for (int d = 0; d < v->n_domains; d++) {
        if (v->domain[d].targets > 0)
            series_set(t, FIGURE_SOURCE_EVAL_LOSS, d, eval_loss(&v->domain[d]));
    }
    for (Measure by = BY_SUM; by < MEASURES && v->answers.questions > 0; by++)
        series_set(t, (Figure)(FIGURE_CHOICES_ACC + by), 0, answers_share(&v->answers, by));
    return watch_put(m, v->step);
}

static Status put_answers(Text *t, const Answers *a)
{
    if (a->questions == 0) return OK;
    TRY(text_printf(t, ",\"choices\":%" PRId64, a->questions));
    for (Measure by = BY_SUM; by < MEASURES; by++)
        TRY(text_json(t, ",%s:%g", figure_rows[FIGURE_CHOICES_ACC + by].key, answers_share(a, by)));
    return OK;
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
    if (v->load != NULL) TRY(put_load_by_domain(m, (Load){ .eval = v->load }));
    TRY(put_answers(t, &v->answers));
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
