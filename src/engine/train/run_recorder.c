/* run_recorder: when a run writes what its recorder keeps, and under which names in the run's folder. Stamps, the
 * ring and the formats are recorder.h's. */
#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/host/host_memory.h"
#include "engine/train/run_parts.h"

#include <inttypes.h>
#include <stdio.h>

/* Who this rank is, for its recordings. */
static RecorderMeta recording_meta(const Trainer *t)
{
    return (RecorderMeta){ .rank = run_rank(&t->ranks),
                           .ranks = run_ranks(&t->ranks),
                           .device = t->plan.gpu.gpu.name,
                           .flops = run_step_flops(t),
                           .sheet_flops = t->rates.sheet_flops,
                           .roof_flops = t->rates.peak.flops };
}

static Status write_recording(Trainer *t)
{
    const RecorderMeta meta = recording_meta(t);
    Recorder *r = &t->traces.recorder;
    char folder[FILE_PATH_MAX];
    Text text = { 0 };
    ArenaMark mark = arena_mark(&r->scratch);
    TRY(text_init(&text, &r->scratch));
    TRY(recorder_meta(r, &meta, &text));
    TRY(file_join(folder, t->config.own.run_dir, "recording"));
    TRY(recorder_dump(r, folder, meta.rank, text.data));
    arena_release(&r->scratch, mark);
    return OK;
}

/* This rank's recording of the last steps, in RUN/recording, for `switchyard trace report`. */
static Status dump_recording(Trainer *t)
{
    const Config *c = &t->config.own;
    if (c->run_trace_ring == 0) return OK;
    TRY(write_recording(t));
    if (t->is_rank0)
        log_info("the last steps up to %" PRId64 " are in %s/recording", t->at.step, c->run_dir);
    return OK;
}

/* What the step leaves that run.trace_steps lists: for Perfetto, for the run's report, and a pipeline's folder. That has
 * the host's times, so a device that runs asynchronously has none. */
static Status export_step(Trainer *t)
{
    char path[FILE_PATH_MAX], folder[FILE_PATH_MAX], name[48] = "trace.json";
    Recorder *r = &t->traces.recorder;
    const char *run = t->config.own.run_dir;
    const int rank = run_rank(&t->ranks);
    if (rank > 0) (void)snprintf(name, sizeof name, "trace-rank-%05d.json", rank);
    TRY(file_join(path, run, name));
    TRY(write_recording(t));
    TRY(file_join(folder, run, "recording"));
    TRY(recorder_trace_json(r, folder, rank, path));
    if (r->e->ex.backend->async) return OK;
    (void)snprintf(name, sizeof name, "pipeline-%" PRId64, r->e->step);
    TRY(file_join(path, run, name));
    return recorder_pipeline(r, path);
}

static Status open_recorder(Trainer *t)
{
    const Config *c = &t->config.own;
    int recorded = c->run_trace_ring > 0 ? (int)c->run_trace_ring : c->run_trace_steps.n > 0;
    return recorder_open(&t->traces.recorder, &t->engine, t->ranks.world, recorded);
}

static bool is_listed(const Trainer *t)
{
    return config_has_int(&t->config.own.run_trace_steps, t->now.step);
}

static Status begin_trace(Trainer *t)
{
    if (is_listed(t) || t->traces.trace_next) recorder_trace(&t->traces.recorder, true);
    return OK;
}

static Status take_step(Trainer *t, Status s)
{
    const StepMetrics *m = &t->now;
    if (s == OK)
        recorder_take(&t->traces.recorder, &m->result, clock_s() - t->at.begun_s, (double)m->tokens,
                      process_now_bytes());
    recorder_trace(&t->traces.recorder, false);
    TRY(s);
    return is_listed(t) ? export_step(t) : OK;
}

/* One dump is due every run.trace_every steps, and after the requests by signal grew: then the next step is traced op
 * by op first. All ranks see the same number of requests, so all write the same steps. */
static Status dump_if_due(Trainer *t)
{
    const Config *c = &t->config.own;
    const int requests = (int)t->ranks.steps.spread.most.of[RANK_DUMPS];
    const int64_t every = c->run_trace_every;
    const bool due = t->traces.trace_next || (every > 0 && t->at.step % every == 0);
    t->traces.trace_next = requests > t->traces.dumps && c->run_trace_ring > 0;
    t->traces.dumps = requests;
    return due ? dump_recording(t) : OK;
}

/* A failed run leaves a recording of its last steps. The failure stays in the status record. */
static Status dump_failed(Trainer *t, Status s)
{
    char why[2048];
    if (s == OK) return OK;
    (void)snprintf(why, sizeof why, "%s", status_message());
    if (t->traces.recorder.taken > 0 && dump_recording(t) != OK)
        log_failure(LOG_WARN, "the last steps could not be written: ");
    return status_adopt(s, why);
}

static Status dump_last(Trainer *t)
{
    return t->traces.trace_next || t->config.own.run_trace_every > 0 ? dump_recording(t) : OK;
}

static void close_recorder(Trainer *t) { recorder_close(&t->traces.recorder); }

const RunHook run_hook_recorder = { .open = open_recorder,
                                    .before_step = begin_trace,
                                    .behind_engine = take_step,
                                    .after_step = dump_if_due,
                                    .at_end = dump_last,
                                    .on_end = dump_failed,
                                    .close = close_recorder };
