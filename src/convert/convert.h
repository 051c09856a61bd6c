/*
 * convert: converts Hugging Face folders to checkpoints, and checkpoints to folders. Tokenizers are
 * copied, not converted.
 *
 * Parameters are converted one at a time. So memory holds the largest parameter and one mapped shard
 * (two if the scales are in another shard), whatever the size of the model. The input is checked before
 * anything is written, and the output appears only when it is complete (engine/base/out_folder.h).
 */
#ifndef CONVERT_CONVERT_H
#define CONVERT_CONVERT_H

#include "engine/base/dtype.h"
#include "engine/base/text.h"

/* DIR holds config.json, safetensors and the tokenizer's files. OUT becomes a checkpoint of step 0
 * without moments, which every command takes, with config.yaml and DIR's other files. *said: a line
 * for the user. */
Status convert_from_hf(const char *dir, const char *out, Arena *a, Text *said);

typedef struct ConvertToHf {
    const char *checkpoint, *out; /* a run or a checkpoint; the folder to make */
    int dtype;                    /* of the weights: F32 or BF16; -1: that of run.compute */
    bool average;                 /* the average of weights in place of the weights */
    int64_t shard_bytes; /* the most bytes of a file; a larger tensor gets a file of its own */
} ConvertToHf;

/* OUT becomes a folder that transformers loads: model*.safetensors with an index, config.json,
 * generation_config.json, data.tokenizer as tokenizer.json, and other files of a tokenizer from its
 * folder. *said: a line for the user, and one about settings that the format cannot carry. */
Status convert_to_hf(const ConvertToHf *o, Arena *a, Text *said);

#endif
