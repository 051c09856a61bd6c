/* run_traces: when a run writes what its recorder keeps, and under which names in the run's folder. Stamps, the
 * ring and the formats are recorder.h's. */
#ifndef TRAIN_RUN_TRACES_H
#define TRAIN_RUN_TRACES_H

#include "train/recorder.h"

/* The recorder of a run, and requests for recordings. */
typedef struct RunTraces {
    Recorder recorder;
    int dumps;       /* requests so far */
    bool trace_next; /* trace the next step op by op, for a request */
} RunTraces;

/* Writes this rank's recording of the last steps up to `step` into RUN/recording, for `switchyard trace report`.
 * Nothing without run.trace_ring. */
Status run_traces_dump(RunTraces *t, const Config *c, const RecorderMeta *meta, int64_t step);

/* Writes the exports of the last step, which run.trace_steps lists: for Perfetto, for the run's report, and the
 * folder of a pipeline. */
Status run_traces_export(RunTraces *t, const Config *c, const RecorderMeta *meta);

/* Is a dump due after this step? One is every run.trace_every steps, and after `requests` grew: then the next
 * step is traced op by op first. All ranks see the same number of requests, so all write the same steps. */
bool run_traces_due(RunTraces *t, const Config *c, int64_t step, int requests);

#endif
