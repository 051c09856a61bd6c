/* to_hf: converts a checkpoint to a Hugging Face folder. Parameters are converted one at a time, so memory
 * holds the largest one, whatever the size of the model. The output appears only when it is complete
 * (engine/base/out_folder.h). */
#ifndef HF_TO_HF_H
#define HF_TO_HF_H

#include "engine/base/dtype.h"
#include "engine/base/text.h"

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
