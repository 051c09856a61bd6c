/* folder: an output folder that is there whole or not at all, and the files that are copied. */
#ifndef CONVERT_FOLDER_H
#define CONVERT_FOLDER_H

#include "base/file.h"
#include "base/text.h"

#include <cjson/cJSON.h>

typedef struct OutFolder {
    char path[FILE_PATH_MAX]; /* absolute */
    char temp[FILE_PATH_MAX]; /* PATH.tmp, until out_folder_end */
    size_t there;             /* so many bytes of its path are folders that were there before */
} OutFolder;

/* The paths only. ERR_ARG: PATH is there already, and is not an empty folder. */
Status out_folder(OutFolder *f, const char *path);
/* Makes PATH.tmp, empty. */
Status out_folder_begin(OutFolder *f);
/* With s OK renames it to PATH, else removes it and folders made for it. Returns s, or why it failed. */
Status out_folder_end(const OutFolder *f, Status s);

/* The file FOLDER/NAME as JSON (the caller's to delete). ERR_FORMAT: it is none. */
Status folder_json(const char *folder, const char *name, Arena *a, cJSON **out);
/* FOLDER/NAME from JSON, which is deleted. */
Status folder_put_json(const char *folder, const char *name, cJSON *json);

/* Tensors whose type in the source is not that of the rest, for to-hf: {"NAME": "F32", ...}. */
#define FOLDER_TYPES "tensor_types.json"

/* Copies the tokenizer's files and generation_config.json, those that are there; with `model`
 * config.json, too. */
Status folder_copy_files(const char *from, const char *to, bool model);

#endif
