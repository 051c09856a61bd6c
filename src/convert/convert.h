/*
 * convert: models from Hugging Face's folders to checkpoints, and back.
 *
 * Parameters go one at a time, so memory is that of the largest one and of a mapped shard, whatever
 * the model has (two shards where scales lie in another one). What is wrong with the input is found
 * before anything is written; what is written is beside its place until it is whole (folder.h).
 */
#ifndef CONVERT_CONVERT_H
#define CONVERT_CONVERT_H

#include "base/dtype.h"
#include "base/text.h"

/* DIR: config.json, safetensors, tokenizer files. OUT becomes a checkpoint of step 0 without moments,
 * which every command takes, with config.yaml and the files of DIR that are no weights. ERR_ARG,
 * ERR_IO, ERR_FORMAT, ERR_UNSUPPORTED: one sentence each. */
Status convert_from_hf(const char *dir, const char *out, Arena *a, Text *said);

typedef struct ConvertToHf {
    const char *checkpoint, *out; /* a run's folder or a checkpoint's; the folder to be made */
    int dtype;                    /* of the weights: F32, BF16; -1: as run.compute says */
    int64_t shard_bytes;          /* a file has at most so many, but one tensor at least */
} ConvertToHf;

/* OUT becomes a folder that transformers loads: model*.safetensors with an index, config.json,
 * generation_config.json and the tokenizer's files, which are those beside data.tokenizer (from-hf
 * leaves them all there). */
Status convert_to_hf(const ConvertToHf *o, Arena *a, Text *said);

#endif
