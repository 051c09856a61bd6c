/* eval_data: what `switchyard eval` and `switchyard logits` read: the sources to measure, and token ids. */
#ifndef APP_EVAL_DATA_H
#define APP_EVAL_DATA_H

#include "engine/train/infer.h"

/* Sources whose data is that of a source that the checkpoint was trained on hold out what was held out there,
 * whatever they are called. Of others a warning says that their documents may have been trained on. `trained`: the
 * checkpoint's own sources, for one that has no sums of its data. */
Status eval_sources(const ConfigSources *trained, const CheckpointInfo *info, LoaderConfig *data,
                    Arena *a);

/* Reads raw 32-bit token ids from a file or a pipe. ERR_FORMAT: it is no list of them, or an id is outside of the vocabulary. */
Status eval_read_tokens(const char *path, int64_t vocab, Arena *a, int32_t **ids, int64_t *n);

#endif
