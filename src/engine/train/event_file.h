/*
 * event_file: figures as TensorBoard reads them, RUN/events.out.tfevents.SECONDS.HOST.PID. Each start of a
 * run has a file of its own. Formats: tensorflow/core/lib/io/record_writer.h (a record is its length,
 * the length's checksum, the bytes, and theirs), tensorflow/core/util/event.proto and
 * tensorflow/core/framework/summary.proto, and tensorboard/plugins/hparams/plugin_data.proto; these messages need
 * a few fields of them.
 */
#ifndef ENGINE_TRAIN_EVENT_FILE_H
#define ENGINE_TRAIN_EVENT_FILE_H

#include "engine/base/file.h"
#include "engine/config/config.h"
#include "engine/train/series.h"

typedef struct EventFile {
    File file;
    uint8_t *summary, *event; /* room for one event, in the caller's arena */
    uint8_t *about;           /* what the first event says of the run: YAML and hyperparameters */
    size_t about_bytes;
    bool begun;
} EventFile;

/* Creates the file, for events of the series of `t`. */
Status event_file_open(EventFile *f, const char *run_dir, const Config *c, const SeriesTable *t,
                       Arena *a);
/* Appends an event with all fresh series, and flushes it. The first one tells TensorBoard to forget
 * what earlier files say of this step and later ones, which a resumed run does again. The configuration follows: as a
 * text, and as hyperparameters. */
Status event_file_put(EventFile *f, int64_t step, const SeriesTable *t);
void event_file_close(EventFile *f); /* safe on { 0 } */

#endif
