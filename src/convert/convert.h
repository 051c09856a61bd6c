/*
 * convert: converts Hugging Face folders to checkpoints. tools/hf goes the other way. Tokenizers are copied,
 * not converted.
 *
 * Parameters are converted one at a time. So memory holds the largest parameter and one mapped shard
 * (two if the scales are in another shard), whatever the size of the model. The input is checked before
 * anything is written, and the output appears only when it is complete (engine/base/out_folder.h).
 */
#ifndef CONVERT_CONVERT_H
#define CONVERT_CONVERT_H

#include "engine/base/text.h"

/* DIR holds config.json, safetensors and the tokenizer's files. OUT becomes a checkpoint of step 0
 * without moments, which every command takes, with config.yaml and DIR's other files. *said: a line
 * for the user. */
Status convert_from_hf(const char *dir, const char *out, Arena *a, Text *said);

#endif
