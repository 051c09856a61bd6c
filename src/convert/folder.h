/* folder: the small files of a Hugging Face folder: JSON files, and files that are copied unchanged. The
 * weights are in weights.h. */
#ifndef CONVERT_FOLDER_H
#define CONVERT_FOLDER_H

#include "engine/base/file.h"
#include "engine/base/json.h"

/* Reads the file FOLDER/NAME, which must be a JSON object. */
Status folder_json(const char *folder, const char *name, Arena *a, Json **out);
/* Writes a value as FOLDER/NAME. */
Status folder_put_json(const char *folder, const char *name, const Json *json, Arena *a);

/* A file of the checkpoint that lists tensors whose type differs from the rest, so that to-hf can write
 * them back in that type: {"NAME": "F32", ...}. */
#define FOLDER_TYPES "tensor_types.json"

Status folder_copy_file(const char *from, const char *to);

/* Copies those of the tokenizer's files and generation_config.json that exist; with `model` also
 * config.json and tokenizer.json. */
Status folder_copy_files(const char *from, const char *to, bool model);

#endif
