/* run: a training from its folder to its last checkpoint. It opens everything, starts (fresh, from given
 * weights, or resumed: run_start.c), runs the steps, and closes everything. One step is engine.c's; plans
 * are plan_run.c's.
 *
 * Where a rank may fail alone, all ranks agree on the failure (agree_failure), because the others would
 * wait for it in the next collective. */
#include "base/clock.h"
#include "base/file.h"
#include "base/host_memory.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "data/fingerprint.h"
#include "op/libraries.h"
#include "train/agree.h"
#include "train/fits.h"
#include "train/run_parts.h"
#include "train/update.h"
#include "train/verify.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { DOMAIN_EVERY = 50 };

/* Opening. */

static Status write_config(const RunConfig *c)
{
    char path[FILE_PATH_MAX];
    TRY(file_join(path, c->own.run_dir, "config.yaml"));
    return file_write_whole(path, c->yaml.data, c->yaml.used);
}

static const Mesh *mesh_of(const RunRanks *r) { return r->world == NULL ? NULL : &r->mesh; }
static int own_rank(const RunRanks *r) { return r->world == NULL ? 0 : r->world->rank; }
static int rank_count(const RunRanks *r) { return r->world == NULL ? 1 : r->world->size; }

static Status open_data(Trainer *t)
{
    LoaderConfig loader;
    TRY(train_loader_config(&t->config.own, mesh_of(&t->ranks), t->token_bytes, &t->arena,
                            &loader));
    TRY(loader_open(&loader, &t->arena, &t->loader));
    TRY(eval_make(&t->evaluator, &t->engine, t->token_bytes, &t->arena));
    t->evaluator.beat = &t->beat;
    return OK;
}

/* Checks the settings and plans the run, before anything is made. No collective calls, so ranks may fail
 * separately. */
static Status check_settings(Trainer *t)
{
    const Config *c = &t->config.own;
    int ranks = rank_count(&t->ranks);
    TRY(text_init(&t->config.yaml, &t->arena));
    TRY(config_print(t->config.asked, &t->config.yaml));
    TRY(config_check_ops(c, ranks));
    TRY(train_mesh(c, ranks, &t->ranks.shape));
    t->ranks.mesh = mesh_alone(&t->ranks.shape, own_rank(&t->ranks));
    int here = t->ranks.world == NULL ? 1 : comm_local_ranks(t->ranks.world);
    TRY(train_plan(c, mesh_of(&t->ranks), here, &t->plan));
    TRY(train_token_bytes(c, t->is_rank0, &t->arena, &t->token_bytes));
    return train_check_gpu(c, &t->plan.shape, &t->plan.engine, &t->plan.gpu);
}

Status agree_failure(RunRanks *r, Status s)
{
    s = agree_status(r->world, s);
    r->failure_agreed = s != OK && s != ERR_COMM && r->world != NULL;
    return s;
}

/* How this rank begins, and from which contents of data, as lines. Paths stand in the configuration. */
static Status start_text(Trainer *t, Text *begin, Text *data)
{
    const TrainOptions *o = t->options;
    const ConfigSources *sources = &t->config.own.data_sources;
    TRY(text_printf(begin, "%s%s%s\n", o->resume ? o->or_begin ? "--resume=auto" : "--resume" : "",
                    o->init != NULL ? "--init " : "", o->init != NULL ? o->init : ""));
    for (int i = 0; i < o->n_change; i++) TRY(text_printf(begin, "--change %s\n", o->change[i]));
    TRY(ARENA_NEW(&t->arena, sources->n, &t->config.sums));
    for (int i = 0; i < sources->n; i++) {
        TRY(text_printf(data, "%s\n", sources->at[i].name));
        TRY(fingerprint_shard(sources->at[i].path, data, t->config.sums[i]));
    }
    return OK;
}

/* Held out is a document of one source. The same document of another one would be trained on. */
static void warn_of_doubles(const Trainer *t)
{
    const ConfigSources *sources = &t->config.own.data_sources;
    for (int i = 0; i < sources->n && t->is_rank0; i++)
        for (int k = 0; k < i; k++)
            if (strcmp(t->config.sums[i], t->config.sums[k]) == 0 &&
                t->config.own.data_validation > 0)
                log_warn("data.sources: %s and %s have the same data: what is held out of one is "
                         "trained on as the other; take one of them, with epochs",
                         sources->at[k].name, sources->at[i].name);
}

/* A text must be the last allocation of its arena, so each has its own. */
static Status check_same_start(Trainer *t)
{
    Arena a[2] = { { 0 } };
    Text begin = { 0 }, data = { 0 };
    RunRanks *r = &t->ranks;
    Status s = arena_reserve(&a[0], "begin", (size_t)1 << 30);
    if (s == OK) s = arena_reserve(&a[1], "fingerprints", (size_t)1 << 30);
    if (s == OK) s = text_init(&begin, &a[0]);
    if (s == OK) s = text_init(&data, &a[1]);
    if (s == OK) s = start_text(t, &begin, &data);
    s = agree_failure(r, s);
    if (s == OK && r->world != NULL)
        s = agree_failure(r, ranks_agree(r->world, "the begin (--resume, --init)", begin.data));
    if (s == OK && r->world != NULL)
        s = agree_failure(r, ranks_agree(r->world, "the data", data.data));
    arena_free(&a[0]);
    arena_free(&a[1]);
    if (s == OK) warn_of_doubles(t);
    return s;
}

/* Checks that all ranks run the same program with the same settings, then makes the mesh. */
static Status check_ranks_agree(Trainer *t)
{
    char build[96];
    RunRanks *r = &t->ranks;
    if (r->world == NULL) return check_same_start(t);
    TRY(agree_failure(r, ranks_build(build, sizeof build)));
    TRY(agree_failure(r, ranks_agree(r->world, "the program", build)));
    TRY(agree_failure(r, ranks_agree(r->world, "the configuration", t->config.yaml.data)));
    TRY(check_same_start(t));
    TRY(agree_failure(r, train_agree_capacity(&t->config.own, r->world, &t->plan)));
    return mesh_make(r->world, &r->shape, false, &t->arena, &r->mesh);
}

/* Checks the memory of all ranks of a host together. Each rank reads what is available before the ranks
 * meet in the collective, so before any of them takes its part. */
static Status check_memory(Trainer *t)
{
    HostMemory there;
    ArenaMark mark = arena_mark(&t->arena);
    host_memory("/proc", "/sys/fs/cgroup", &there);
    if (t->config.own.checkpoint_peer && there.available_bytes != UINT64_MAX)
        there.available_bytes += peer_held_bytes(&t->config.own); /* this run takes them again */
    TRY(train_check_host(&t->config.own, &t->plan, t->ranks.world, &there, &t->arena));
    arena_release(&t->arena, mark);
    return OK;
}

/* Rank 0 writes to stderr, each other rank to a log file of its own. */
static Status open_log(Trainer *t)
{
    char path[FILE_PATH_MAX], name[32];
    if (t->ranks.world == NULL) return OK;
    log_rank(t->ranks.world->rank, -1);
    if (t->is_rank0) return OK;
    (void)snprintf(name, sizeof name, "log/rank-%05d.log", t->ranks.world->rank);
    TRY(file_join(path, t->config.own.run_dir, name));
    TRY(file_make_parent(path));
    TRY(file_open_append(&t->log, path, NULL, 0));
    log_rank(t->ranks.world->rank, t->log.fd);
    return OK;
}

/* moe.aux_scope=global is the one setting with which the loss depends on the mesh, so log how. */
static void log_aux_group(const Config *c, const MeshShape *mesh)
{
    int64_t ranks = mesh_data_ranks(mesh), n = train_aux_sequences(c, ranks);
    if (c->moe_aux_scope != AUX_GLOBAL || c->moe_aux_loss == 0) return;
    log_info("moe.aux_scope=global: the auxiliary loss counts %" PRId64 " sequences (%" PRId64
             " tokens) together, train.micro_batch %" PRId64 " x %" PRId64 " data-parallel ranks",
             n, n * c->data_sequence, c->train_micro_batch, ranks);
}

static void log_frozen(const EnginePlan *p)
{
    char frozen[32], total[32];
    if (p->params_frozen == 0) return;
    log_info("init.frozen: %s of %s parameters are not trained",
             text_thousands(frozen, p->params_frozen), text_thousands(total, p->params_total));
}

/* Settings that have no effect in a run of this length. */
static void warn_of_idle_settings(const Config *c)
{
    for (int i = 0; i < c->run_trace_steps.n; i++) {
        if (c->run_trace_steps.at[i] <= c->train_steps) continue;
        log_warn("run.trace_steps: step %" PRId64 " is not traced, train.steps is %" PRId64,
                 c->run_trace_steps.at[i], c->train_steps);
    }
    if (c->optimizer_schedule != RATE_CONSTANT && c->optimizer_decay_steps > 0 &&
        c->optimizer_warmup_steps > c->optimizer_decay_steps)
        log_warn("optimizer.warmup_steps %" PRId64 " is beyond optimizer.decay_steps %" PRId64
                 ": behind its warm-up the learning rate drops at once to optimizer.min_lr",
                 c->optimizer_warmup_steps, c->optimizer_decay_steps);
}

static Status log_layout(Trainer *t)
{
    Text text = { 0 };
    ArenaMark mark = arena_mark(&t->arena);
    TRY(text_init(&text, &t->arena));
    if (t->ranks.world != NULL && t->is_rank0) TRY(mesh_print(&t->ranks.shape, &text));
    if (text.used > 0) log_info("%s", text.data);
    log_aux_group(&t->config.own, &t->ranks.shape);
    if (t->is_rank0) log_frozen(&t->plan.engine);
    text.used = 0;
    TRY(train_exchange_text(&t->config.own, &text));
    if (text.used > 0) log_info("%s", text.data);
    text.used = 0;
    TRY(train_capacity_text(&t->plan.shape, &t->plan.engine, &text));
    if (text.used > 0) log_info("%s", text.data);
    arena_release(&t->arena, mark);
    return OK;
}

/* Logs which sources hold out their last tokens, because they have too few documents; or that nothing is
 * held out. */
static void report_held_out(Trainer *t)
{
    char tokens[32], why[512];
    for (int i = 0; i < loader_sources(t->loader) && t->is_rank0; i++) {
        int64_t tail = loader_held_tail(t->loader, i);
        if (tail > 0)
            log_info("held out: the last %s tokens of %s, which has too few documents to hold out "
                     "whole ones",
                     text_thousands(tokens, tail), loader_source_name(t->loader, i));
    }
    t->holds_out = eval_check(&t->config.own, t->loader) == OK;
    if (t->holds_out) return;
    status_sentence(why, sizeof why);
    status_clear();
    if (t->is_rank0 && t->config.own.train_eval_every > 0)
        log_warn("%s; no held-out loss is computed", why);
}

static Status find_sheet_flops(Trainer *t)
{
    const Config *c = &t->config.own;
    const char *gpu = t->plan.gpu.gpu.name;
    if (gpu[0] == '\0' || t->options->sheet_flops == NULL) return OK;
    TRY(t->options->sheet_flops(gpu, config_type(c), &t->rates.sheet_flops));
    if (t->rates.sheet_flops == 0)
        log_info("no data sheet of \"%s\" is known: there is no MFU, only the share of the "
                 "measured peak",
                 gpu);
    return OK;
}

/* Measures the peak once more. If that fails, no share of it is reported. */
static void raise_peak(const Config *c, int threads, MeasuredPeak *peak)
{
    if (peak_measure(c, threads, false, peak) != OK) status_clear();
}

static Status open_files(Trainer *t)
{
    TRY(interrupt_check("no step has run"));
    TRY(open_log(t));
    TRY(log_layout(t));
    if (t->is_rank0) warn_of_idle_settings(&t->config.own);
    if (t->ranks.share.where[0] != '\0')
        log_info("rank %d %s", t->ranks.world->rank, t->ranks.share.where);
    if (t->is_rank0) TRY(run_lock_folder(t));
    return OK;
}

/* Parts of it talk to the other ranks. */
static Status open_engine(Trainer *t)
{
    const Config *c = &t->config.own;
    TRY(ranks_open(&t->ranks.steps, t->ranks.world, &t->arena));
    raise_peak(c, t->plan.shape.threads, &t->rates.peak);
    TRY(find_sheet_flops(t));
    TRY(engine_open(&t->engine, c, ENGINE_TRAIN, &t->plan.shape, &t->plan.engine));
    op_set_text(&t->engine.ex, c->run_compute == COMPUTE_BF16, t->cpu);
    if (t->is_rank0 && t->cpu[0] != '\0') log_info("ops run on the CPU, in %s", t->cpu);
    int recorded = c->run_trace_ring > 0 ? (int)c->run_trace_ring : c->run_trace_steps.n > 0;
    return recorder_open(&t->traces.recorder, &t->engine, t->ranks.world, recorded);
}

static Status open_loader(Trainer *t)
{
    const Config *c = &t->config.own;
    if (c->fp8_report_steps.n > 0) TRY(code_report_open(&t->codes));
    TRY(open_data(t));
    report_held_out(t);
    if (t->is_rank0) TRY(metrics_open_log(&t->metrics, &t->engine, t->loader, c->run_dir));
    return OK;
}

static void close_all(Trainer *t)
{
    code_report_close(&t->codes);
    gpu_state_close(&t->rates.gpu);
    metrics_close(&t->metrics);
    checkpointer_close(&t->saver);
    loader_close(t->loader);
    recorder_close(&t->traces.recorder);
    heartbeat_free(&t->beat);
    engine_close(&t->engine);
    mesh_free(&t->ranks.mesh);
    arena_free(&t->arena);
    if (t->lock_fd > 0) file_unlock(t->lock_fd);
    if (t->ranks.world != NULL) log_rank(t->ranks.world->rank, -1);
    file_close(&t->log);
}

/* Starting. */

/* A resumed run takes the algorithms of products from the checkpoint, because the bits depend on them. */
static Status prepare_engine(Trainer *t)
{
    CheckpointInfo info = { 0 };
    char path[FILE_PATH_MAX];
    ArenaMark mark = arena_mark(&t->saver.arena);
    Exec *ex = &t->engine.ex;
    const bool copy = checkpoint_copy_step(&t->saver) >= 0;
    if (exec_choices(ex) != NULL && t->options->resume && (t->saver.n_steps > 0 || copy)) {
        const char *there = copy ? t->saver.peer.found.folder : t->config.own.run_dir;
        TRY(checkpoint_resolve(there, &t->saver.arena, path));
        TRY(checkpoint_info(path, &t->saver.arena, &info));
    }
    TRY(engine_prepare(&t->engine, info.products));
    arena_release(&t->saver.arena, mark);
    return OK;
}

static void read_gpu(void *trainer)
{
    Trainer *t = trainer;
    t->rates.reading = gpu_state_read(&t->rates.gpu);
}

/* Reads the GPU's clocks while a step runs: an idle GPU has others. */
static Status watch_gpu(Trainer *t)
{
    char bus_id[GPU_BUS_ID_MAX];
    TRY(exec_bus_id(&t->engine.ex, bus_id));
    if (bus_id[0] == '\0') return OK;
    gpu_state_open(&t->rates.gpu, bus_id);
    t->engine.observer = (EngineObserver){ read_gpu, t };
    return OK;
}

/* Steps. */

static Status evaluate(Trainer *t)
{
    EvalMetrics v;
    char figures[EVAL_TEXT_BYTES];
    if (!t->holds_out) return OK;
    heartbeat_phase(&t->beat, HEARTBEAT_EVALUATING);
    Status s =
        eval_run(&t->evaluator, t->loader, t->config.own.train_eval_sequences, t->at.step, &v);
    if (s == ERR_CHANGED) return run_save_before_failing(t, s);
    TRY(s);
    if (!t->is_rank0) return OK;
    TRY(metrics_eval(&t->metrics, &v));
    EvalSum all = eval_total(&v);
    log_info("step %" PRId64 ": held-out %s", t->at.step, eval_text(&all, ", ", figures));
    return OK;
}

static Status next_batch(Trainer *t, const Batch **out)
{
    TRY(loader_next(t->loader, out));
    memcpy(t->at.taken, (*out)->taken, sizeof t->at.taken);
    return OK;
}

static double seconds_waited(const RunRanks *r)
{
    return r->world == NULL ? 0 : comm_waited_s(r->world);
}

static int stop_signal(const TrainOptions *o) { return o->stop == NULL ? 0 : (int)*o->stop; }

/* Rows that this rank's experts took. `load` is summed over all groups that have the same experts, so this
 * is their mean. */
static double own_rows(const ModelSpec *s, const EngineShape *shape, const int32_t *load)
{
    const int64_t here = spec_experts_here(&s->ranks, s->experts);
    const int64_t first = spec_first_expert(&s->ranks, s->experts);
    int64_t sum = 0;
    for (int i = 0; i < s->n_layers; i++) {
        const LayerSpec *l = &s->layers[i];
        if (l->load < 0 || !layer_on(l, shape->pp_rank)) continue;
        for (int64_t d = 0; d < shape->domains; d++) {
            const int32_t *row = load + (l->load * shape->domains + d) * s->experts;
            for (int64_t e = first; e < first + here; e++) sum += row[e];
        }
    }
    return (double)sum * (double)s->ranks.ep / (double)s->ranks.stage;
}

/* Exchanges the figures of a step between ranks. */
static Status exchange_steps(Trainer *t, const StepMetrics *m, double waited)
{
    const float dumps = t->options->dumps == NULL ? 0 : (float)*t->options->dumps;
    const float ends = run_goes_on(t, m->step) ? 0 : 1;
    const RankStep lone = {
        { [RANK_STOP] = (float)stop_signal(t->options), [RANK_ENDS] = ends, [RANK_DUMPS] = dumps }
    };
    if (t->ranks.world == NULL)
        return ranks_step(&t->ranks.steps, &lone); /* its other figures are not read */
    double gib = 1 << 30;
    size_t used = 0;
    TRY(exec_used_bytes(&t->engine.ex, &used));
    if (used == 0) used = process_now_bytes();
    const RankStep mine = {
        { [RANK_STOP] = (float)stop_signal(t->options),
          [RANK_ENDS] = ends,
          [RANK_DUMPS] = dumps,
          [RANK_STEP_S] = (float)m->step_s,
          [RANK_OWN_S] = (float)(m->step_s - (seconds_waited(&t->ranks) - waited)),
          [RANK_TOKENS_PER_S] = (float)m->tokens_per_s,
          [RANK_MEMORY_GIB] = (float)((double)used / gib),
          [RANK_EXPERT_ROWS] = (float)own_rows(&t->engine.spec, &t->plan.shape, m->result.load),
          [RANK_CLOCK_MHZ] =
              gpu_knows(&m->gpu, GPU_CLOCK_MHZ) ? (float)m->gpu.value[GPU_CLOCK_MHZ] : 0,
          [RANK_THROTTLE] =
              gpu_knows(&m->gpu, GPU_THROTTLE) ? (float)(m->gpu.throttle & 0xFFFFFF) : 0 }
    };
    return ranks_step(&t->ranks.steps, &mine);
}

/* Of the model, in the step of all ranks that ran last. */
static double step_flops(const Trainer *t)
{
    const EngineMode *m = t->engine.mode;
    const double share = (double)m->step[t->engine.size].batch / (double)m->step->batch;
    return t->plan.model_flops * share;
}

/* Who this rank is, for its recordings. */
static RecorderMeta recording_meta(const Trainer *t)
{
    return (RecorderMeta){ .rank = own_rank(&t->ranks),
                           .ranks = rank_count(&t->ranks),
                           .device = t->plan.gpu.gpu.name,
                           .flops = step_flops(t),
                           .sheet_flops = t->rates.sheet_flops,
                           .roof_flops = t->rates.peak.flops };
}

static Status dump_recording(Trainer *t)
{
    const RecorderMeta meta = recording_meta(t);
    return run_traces_dump(&t->traces, &t->config.own, &meta, t->at.step);
}

/* Writes what run.trace_every or a signal asked for. */
static Status dump_if_asked(Trainer *t)
{
    int requests = (int)t->ranks.steps.spread.most.of[RANK_DUMPS];
    return run_traces_due(&t->traces, &t->config.own, t->at.step, requests) ? dump_recording(t)
                                                                            : OK;
}

/* A failed run leaves a recording of its last steps. The failure stays in the status record. */
static Status dump_failed(Trainer *t, Status s)
{
    char why[2048];
    (void)snprintf(why, sizeof why, "%s", status_message());
    if (t->traces.recorder.taken > 0 && dump_recording(t) != OK)
        log_failure(LOG_WARN, "the last steps could not be written: ");
    return status_adopt(s, why);
}

static Status train_step(Trainer *t, StepMetrics *m)
{
    const Config *c = &t->config.own;
    const Batch *batch = NULL;
    double start = clock_s(), waited = seconds_waited(&t->ranks);
    TRY(next_batch(t, &batch));
    const bool listed = config_has_int(&c->run_trace_steps, m->step);
    const bool traced = listed || t->traces.trace_next;
    const bool looks = config_has_int(&c->fp8_report_steps, m->step);
    if (traced) recorder_trace(&t->traces.recorder, true);
    if (looks) code_report_begin(&t->codes, &t->engine.ex);
    Status s = engine_step(&t->engine, batch, m->lr, m->step, &m->result);
    if (looks) code_report_end(&t->engine.ex);
    if (looks && t->is_rank0) code_report_print(&t->codes, m->step);
    if (s == OK)
        recorder_take(&t->traces.recorder, &m->result, clock_s() - start, (double)m->tokens,
                      process_now_bytes());
    recorder_trace(&t->traces.recorder, false);
    TRY(s);
    const RecorderMeta meta = recording_meta(t);
    if (listed) TRY(run_traces_export(&t->traces, c, &meta));
    if (m->result.skipped && m->result.finite && t->is_rank0)
        log_warn("step %" PRId64 " is a spike and skipped: gradient norm %.4g is above %.4g",
                 m->step, m->result.grad_norm, m->result.norm_limit);
    if (m->result.differs) {
        TRY(checkpoint_finish(&t->saver));
        TRY(agree_failure(&t->ranks, verify_explain(&t->engine, m->step)));
    }
    if (!m->result.finite && !m->result.skipped) {
        TRY(checkpoint_finish(&t->saver)); /* while all ranks still run the same calls */
        TRY(engine_explain_nan(&t->engine, batch, m->step));
    }
    m->gpu = t->rates.reading;
    m->step_s = clock_s() - start;
    m->tokens_per_s = (double)m->tokens / m->step_s;
    metrics_shares(m, step_flops(t), &t->rates.peak.flops, t->rates.sheet_flops);
    TRY(exchange_steps(t, m, waited));
    m->ranks = t->ranks.world == NULL ? NULL : &t->ranks.steps.spread;
    return OK;
}

static const char *scale_text(const Trainer *t, const StepMetrics *m, char out[96])
{
    const int64_t skipped = t->engine.params.kept.loss_scale.skipped;
    size_t n = 0;
    if (m->result.loss_scale != 1) n = text_add(out, 96, n, "  scale %g", m->result.loss_scale);
    if (skipped > 0) n = text_add(out, 96, n, "  %" PRId64 " skipped", skipped);
    if (m->result.clipped > 0)
        (void)text_add(out, 96, n, "  largest logit %.4g, clipped heads %" PRId64, m->result.logit,
                       m->result.clipped);
    return out;
}

static void log_step(const Trainer *t, const StepMetrics *m)
{
    const Config *c = &t->config.own;
    bool last = m->step == c->train_steps;
    if (m->step % c->train_log_every != 0 && !last) return;
    double done = (double)(t->at.position - t->at.first_position);
    double left =
        (double)(ramp_sequences(&t->ramp, c->train_steps) - ramp_sequences(&t->ramp, m->step));
    char speed[32], share[40] = "", twice[48] = "", drops[48] = "", scale[96] = "", slow[64] = "",
                    next[METRICS_DEPTHS_BYTES];
    if (m->mfu > 0)
        (void)snprintf(share, sizeof share, "MFU %.0f %%  ", 100 * m->mfu);
    else if (m->roof_share > 0)
        (void)snprintf(share, sizeof share, "%.0f %% of measured peak  ", 100 * m->roof_share);
    int64_t dropped = metrics_dropped(&t->engine.spec, &m->result);
    if (dropped > 0) (void)snprintf(drops, sizeof drops, "  %" PRId64 " dropped", dropped);
    if (t->at.retried > 0)
        (void)snprintf(twice, sizeof twice, "  %" PRId64 " ran twice", t->at.retried);
    const int straggler = m->ranks != NULL ? m->ranks->slow : -1;
    if (straggler >= 0) (void)snprintf(slow, sizeof slow, "  rank %d slow", straggler);
    log_progress(last,
                 "step %" PRId64 "/%" PRId64 "  loss %.4f%s  lr %.2e  norm %.2f  %s tokens/s  "
                 "%s%.0f s left%s%s%s%s%s",
                 m->step, c->train_steps, m->result.loss,
                 metrics_depths_text(&m->result, t->engine.spec.depths, next), m->lr,
                 m->result.grad_norm, text_thousands(speed, (int64_t)m->tokens_per_s), share,
                 (clock_s() - t->at.started_s) / done * left, twice, drops, slow,
                 scale_text(t, m, scale), c->moe_forced_balance ? "  forced balance" : "");
}

/* Says what a step that was computed twice cost. */
static void log_verified(const Trainer *t, const StepMetrics *m)
{
    const double more = m->result.verify_s;
    if (more <= 0 || !t->is_rank0) return;
    log_info("step %" PRId64 " was computed twice with the same bits: %.3g s more, %.2g %% of the "
             "time of %" PRId64 " steps",
             m->step, more,
             100 * more / ((m->step_s - more) * (double)t->config.own.run_verify_every),
             t->config.own.run_verify_every);
}

/* After two steps in a row that ran again, takes a larger capacity for rows if there is memory. One such step
 * may be chance; larger arenas and a new graph cost more than it. */
static Status grow_capacity(Trainer *t, const StepMetrics *m)
{
    char more[32], fetching[64] = "";
    size_t before = t->plan.engine.pool_bytes;
    const RowCapacity was = t->plan.shape.capacity, *room = &t->plan.shape.capacity;
    bool grown = false;
    t->growth.in_a_row = m->result.retried ? t->growth.in_a_row + 1 : 0;
    if (t->growth.in_a_row < 2 || t->growth.at_limit || m->step == t->config.own.train_steps)
        return OK;
    double start = clock_s();
    TRY(train_grow_capacity(&t->config.own, t->ranks.world, m->result.short_of, &t->plan, &grown));
    if (grown) TRY(engine_resize(&t->engine, &t->plan.shape, &t->plan.engine));
    t->growth.grow_s = clock_s() - start;
    t->growth.in_a_row = 0;
    t->growth.at_limit = !grown;
    if (!grown && t->is_rank0)
        log_warn("step %" PRId64 ": rows had no room in two steps running, and there is no memory "
                 "for more: such steps go on running twice (recompute.layers or a smaller "
                 "train.micro_batch makes room)",
                 m->step);
    if (!grown || !t->is_rank0) return OK;
    if (room->fetching > was.fetching)
        (void)snprintf(fetching, sizeof fetching, "; %d layers fetch received rows again",
                       room->fetching);
    log_warn("step %" PRId64 ": rows had no room in two steps running: from here on pools hold %g "
             "times the balanced rows (%g before), %s more%s",
             m->step, room->pool, was.pool,
             text_bytes(more, (double)t->plan.engine.pool_bytes - (double)before), fetching);
    return OK;
}

/* Runs what is due after a step: evaluation, then checkpoint. */
static Status after_step(Trainer *t)
{
    const Config *c = &t->config.own;
    bool last = t->at.step == c->train_steps;
    int64_t every = c->train_eval_every;
    if (every > 0 && (t->at.step % every == 0 || last)) TRY(evaluate(t));
    if (c->checkpoint_every > 0 && t->at.step % c->checkpoint_every == 0) return run_save(t);
    every = c->checkpoint_peer_every;
    return every > 0 && t->at.step % every == 0 ? run_save_copy(t) : OK;
}

/* Before the last save, which nothing overlaps. */
static void log_saves(const Trainer *t)
{
    const SaveTimes *s = &t->saver.times;
    if (s->saves == 0 || !t->is_rank0) return;
    log_info("checkpoints: training waited %.3g s for %" PRId64
             ", at most %.2g %% of the time from "
             "one to the next",
             s->all_s, s->saves, 100 * s->worst_share);
}

static Status run_steps(Trainer *t)
{
    const Config *c = &t->config.own;
    int stop = 0;
    while (t->at.step < c->train_steps && stop == 0) {
        StepMetrics m = { .step = t->at.step + 1,
                          .tokens = ramp_batch(&t->ramp, t->at.step + 1) * c->data_sequence,
                          .lr = learning_rate(c, t->at.step + 1),
                          .save_stall_s = t->saver.times.stall_s,
                          .save_share = t->saver.times.share,
                          .grow_s = t->growth.grow_s };
        t->saver.times.stall_s = t->saver.times.share = t->growth.grow_s = 0;
        m.by_domain = m.step % DOMAIN_EVERY == 0 || m.step == c->train_steps;
        m.taken = t->at.taken;
        TRY(train_step(t, &m));
        t->at.step = m.step;
        heartbeat_step(&t->beat, m.step, m.step_s);
        t->at.retried += m.result.retried;
        t->at.position += (uint64_t)ramp_batch(&t->ramp, m.step);
        if (t->is_rank0) TRY(metrics_step(&t->metrics, &m));
        if (t->is_rank0) log_step(t, &m);
        log_verified(t, &m);
        if (t->ranks.steps.spread.most.of[RANK_ENDS] > 0) TRY(run_end_early(t));
        TRY(grow_capacity(t, &m));
        TRY(after_step(t));
        TRY(dump_if_asked(t));
        TRY(checkpoint_poll(&t->saver));
        stop = (int)t->ranks.steps.spread.most.of[RANK_STOP];
    }
    log_saves(t);
    TRY(run_save_last(t));
    checkpoint_give_back(&t->saver);
    if (stop > 0) {
        log_info("stopped by signal %d after step %" PRId64 "; go on with --resume", stop,
                 t->at.step);
    }
    return OK;
}

/* Before the first files are written, only a supervised run beats: a refused start must not change the folder. */
static void beat_start(Trainer *t, HeartbeatPhase phase)
{
    if (t->options->supervised != NULL) heartbeat_phase(&t->beat, phase);
}

static Status open_heartbeat(Trainer *t)
{
    const char *run_dir = t->config.own.run_dir, *token = t->options->supervised;
    TRY(heartbeat_init(&t->beat, run_dir, t->ranks.world));
    if (comm_launched() > 1) heartbeat_hear(&t->beat);
    return token == NULL ? OK : heartbeat_check_token(&t->beat, run_dir, token);
}

/* Writes the first files. It comes last in a start: a refused start must not change the folder. */
static Status begin_files(Trainer *t)
{
    TRY(metrics_watch(&t->metrics, t->config.own.run_dir, t->options->live_page));
    TRY(write_config(&t->config));
    return metrics_start(&t->metrics, &t->plan.engine, t->rates.peak.flops, t->rates.sheet_flops);
}

/* Everything up to the first step. The order is that of cost: settings, ranks, memory, then allocation. */
static Status start_run(Trainer *t)
{
    Config *c = &t->config.own;
    RunRanks *r = &t->ranks;
    TRY(arena_reserve(&t->arena, "trainer", (size_t)64 << 30));
    t->ramp = ramp_of(c);
    TRY(agree_failure(r, open_heartbeat(t)));
    beat_start(t, HEARTBEAT_STARTING);
    if (r->world != NULL) TRY(agree_failure(r, train_find_hosts(c, r->world, &t->arena)));
    TRY(agree_failure(r, check_settings(t)));
    TRY(check_ranks_agree(t));
    TRY(agree_failure(r, check_memory(t)));
    TRY(agree_failure(r, open_files(t)));
    Status s = open_engine(t);
    /* One rank alone may lack memory, while the others wait for it inside: it ends their waits with its reason. All else
     * fails on all ranks. */
    TRY(s == ERR_MEMORY || s == ERR_DEVICE ? s : agree_failure(r, s));
    TRY(agree_failure(r, open_loader(t)));
    /* ranks that round differently would update replicated weights to different bits */
    if (r->world != NULL)
        TRY(agree_failure(r, ranks_agree(r->world, "this processor's run.cpu_isa", t->cpu)));
    TRY(agree_failure(r,
                      checkpointer_open(&t->saver, t->config.asked, &t->engine.params, &t->arena)));
    t->saver.taken = t->at.taken;
    t->saver.sums = (const char(*)[FILE_SUM_BYTES])t->config.sums;
    TRY(agree_failure(r, checkpoint_find_copy(&t->saver, t->options->resume, NULL)));
    TRY(prepare_engine(t));
    if (!t->engine.ex.backend->apart) /* while the weights take no memory yet */
        raise_peak(c, t->plan.shape.threads, &t->rates.peak);
    TRY(watch_gpu(t));
    beat_start(t, HEARTBEAT_LOADING);
    TRY(agree_failure(r, run_weights_and_position(t)));
    TRY(agree_failure(r, checkpoint_open_copies(&t->saver, t->at.step)));
    TRY(agree_failure(r, t->is_rank0 ? begin_files(t) : OK));
    heartbeat_first(&t->beat, t->at.step);
    return OK;
}

static Status run_to_end(Trainer *t)
{
    TRY(start_run(t));
    if (t->config.own.run_guard) engine_guard(&t->engine);
    if (t->config.own.train_eval_every > 0 && t->at.step == 0) TRY(evaluate(t));
    t->at.started_s = clock_s();
    TRY(run_steps(t));
    return t->traces.trace_next || t->config.own.run_trace_every > 0 ? dump_recording(t) : OK;
}

/* Tells the other ranks to end, before this one frees memory that they may write to. Under a launcher it logs
 * at once, because the launcher soon kills all ranks. */
static void end_others(Comm *world)
{
    char why[2048];
    status_sentence(why, sizeof why);
    if (comm_launched() > 1) {
        log_failure(LOG_ERROR, "%s", "");
        log_rank(world->rank, -1);
        log_quiet();
    }
    comm_abort(world, why);
}

Status train_run(const Config *c, const TrainOptions *options)
{
    Trainer t = { .config = { .asked = c, .own = *c },
                  .options = options,
                  .ranks = { .world = options->world },
                  .at = { .saved_step = -1 } };
    t.is_rank0 = t.ranks.world == NULL || t.ranks.world->rank == 0;
    if (t.ranks.world != NULL) train_take_share(&t.config.own, t.ranks.world, &t.ranks.share);
    Status s = run_to_end(&t);
    s = heartbeat_last(&t.beat, s);
    if (s != OK) s = dump_failed(&t, s);
    if (s != OK && t.ranks.world != NULL && !t.ranks.failure_agreed) end_others(t.ranks.world);
    if (options->last_step != NULL) *options->last_step = t.at.step;
    if (options->failure_agreed != NULL) *options->failure_agreed = t.ranks.failure_agreed;
    close_all(&t);
    return s;
}
