/* run_traces: see the header. */
#include "train/run_traces.h"

#include "base/file.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>

static Status write_recording(Recorder *r, const char *run_dir, const RecorderMeta *meta)
{
    char folder[FILE_PATH_MAX];
    Text text = { 0 };
    ArenaMark mark = arena_mark(&r->scratch);
    TRY(text_init(&text, &r->scratch));
    TRY(recorder_meta(r, meta, &text));
    TRY(file_join(folder, run_dir, "recording"));
    TRY(recorder_dump(r, folder, meta->rank, text.data));
    arena_release(&r->scratch, mark);
    return OK;
}

Status run_traces_dump(RunTraces *t, const Config *c, const RecorderMeta *meta, int64_t step)
{
    if (c->run_trace_ring == 0) return OK;
    TRY(write_recording(&t->recorder, c->run_dir, meta));
    if (meta->rank == 0)
        log_info("the last steps up to %" PRId64 " are in %s/recording", step, c->run_dir);
    return OK;
}

/* The folder of a pipeline has the host's times, so a device that runs asynchronously has none. */
Status run_traces_export(RunTraces *t, const Config *c, const RecorderMeta *meta)
{
    char path[FILE_PATH_MAX], folder[FILE_PATH_MAX], name[48] = "trace.json";
    Recorder *r = &t->recorder;
    if (meta->rank > 0) (void)snprintf(name, sizeof name, "trace-rank-%05d.json", meta->rank);
    TRY(file_join(path, c->run_dir, name));
    TRY(write_recording(r, c->run_dir, meta));
    TRY(file_join(folder, c->run_dir, "recording"));
    TRY(recorder_trace_json(r, folder, meta->rank, path));
    if (r->e->ex.backend->async) return OK;
    (void)snprintf(name, sizeof name, "pipeline-%" PRId64, r->e->step);
    TRY(file_join(path, c->run_dir, name));
    return recorder_pipeline(r, path);
}

bool run_traces_due(RunTraces *t, const Config *c, int64_t step, int requests)
{
    int64_t every = c->run_trace_every;
    bool due = t->trace_next || (every > 0 && step % every == 0);
    t->trace_next = requests > t->dumps && c->run_trace_ring > 0;
    t->dumps = requests;
    return due;
}
