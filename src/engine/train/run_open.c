/* run_open: opens a run and closes it: settings, ranks, memory, engine, data, folder. Where it begins (fresh, from given
 * weights, or resumed) is run_start.c's; plans are plan_run.c's.
 *
 * Where a rank may fail alone, all ranks agree on the failure (agree_failure), because the others would
 * wait for it in the next collective. */
#include "corpus/shard/fingerprint.h"
#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/interrupt.h"
#include "engine/base/log.h"
#include "engine/host/host_memory.h"
#include "engine/step/agree.h"
#include "engine/train/eval_choices.h"
#include "engine/train/fits.h"
#include "engine/train/run_parts.h"
#include "kernels/core/libraries.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static Status write_config(const RunConfig *c)
{
    char path[FILE_PATH_MAX];
    TRY(file_join(path, c->own.run_dir, "config.yaml"));
    return file_write_whole(path, c->yaml.data, c->yaml.used);
}

static Status open_data(Trainer *t)
{
    LoaderConfig loader;
    TRY(train_loader_config(&t->config.own, run_mesh(&t->ranks), t->token_bytes, &t->arena,
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
    int ranks = run_ranks(&t->ranks);
    TRY(text_init(&t->config.yaml, &t->arena));
    TRY(config_print(t->config.asked, &t->config.yaml));
    TRY(config_check_ops(c, ranks));
    TRY(train_mesh(c, ranks, &t->ranks.shape));
    t->ranks.mesh = mesh_alone(&t->ranks.shape, run_rank(&t->ranks));
    int here = t->ranks.world == NULL ? 1 : comm_local_ranks(t->ranks.world);
    TRY(train_plan(c, run_mesh(&t->ranks), here, &t->plan));
    TRY(train_token_bytes(c, t->is_rank0, &t->arena, &t->token_bytes));
    TRY(questions_load(c, &t->arena, &t->evaluator.questions));
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
    if (t->evaluator.questions == NULL) return OK;
    return text_printf(data, "%s: %s\n", t->evaluator.questions->file, t->evaluator.questions->sum);
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
                 ": after its warm-up the learning rate drops at once to optimizer.min_lr",
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
    return OK;
}

static Status open_loader(Trainer *t)
{
    const Config *c = &t->config.own;
    TRY(run_hooks_open(t));
    TRY(open_data(t));
    report_held_out(t);
    if (t->is_rank0) TRY(metrics_open_log(&t->metrics, &t->engine, t->loader, c->run_dir));
    return OK;
}

static void close_all(Trainer *t)
{
    metrics_close(&t->metrics);
    checkpointer_close(&t->saver);
    loader_close(t->loader);
    run_hooks_close(t);
    engine_close(&t->engine);
    mesh_free(&t->ranks.mesh);
    arena_free(&t->arena);
    if (t->lock_fd > 0) file_unlock(t->lock_fd);
    if (t->ranks.world != NULL) log_rank(t->ranks.world->rank, -1);
    file_close(&t->log);
}

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
Status run_open(Trainer *t)
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
    if (c->run_guard) engine_guard(&t->engine);
    if (c->train_eval_every > 0 && t->at.step == 0) TRY(run_evaluate(t));
    t->at.started_s = clock_s();
    return OK;
}

Status train_run(const Config *c, const TrainOptions *options)
{
    Trainer t = { .config = { .asked = c, .own = *c },
                  .options = options,
                  .ranks = { .world = options->world },
                  .at = { .saved_step = -1 } };
    t.is_rank0 = t.ranks.world == NULL || t.ranks.world->rank == 0;
    if (t.ranks.world != NULL) train_take_share(&t.config.own, t.ranks.world, &t.ranks.share);
    Status s = run_whole(&t);
    if (options->last_step != NULL) *options->last_step = t.at.step;
    if (options->failure_agreed != NULL) *options->failure_agreed = t.ranks.failure_agreed;
    close_all(&t);
    return s;
}
