/* folder: small files of a Hugging Face folder: JSON, and those that are copied. Weights: weights.h. */
#ifndef CONVERT_FOLDER_H
#define CONVERT_FOLDER_H

#include "base/file.h"
#include "base/json.h"

/* Reads the file FOLDER/NAME, which must be a JSON object. */
Status folder_json(const char *folder, const char *name, Arena *a, Json **out);
/* Writes it as FOLDER/NAME. */
Status folder_put_json(const char *folder, const char *name, const Json *json, Arena *a);

/* Names the tensors that have another type than the rest, so that to-hf writes them back in it:
 * {"NAME": "F32", ...}. */
#define FOLDER_TYPES "tensor_types.json"

/* Copies those of the tokenizer's files and generation_config.json that exist; with `model` also
 * config.json. */
Status folder_copy_files(const char *from, const char *to, bool model);

#endif
