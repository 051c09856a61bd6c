/* folder: an output folder that appears only when it is complete, and the files that are copied. */
#ifndef CONVERT_FOLDER_H
#define CONVERT_FOLDER_H

#include "base/file.h"
#include "base/json.h"

typedef struct OutFolder {
    char path[FILE_PATH_MAX]; /* absolute */
    char temp[FILE_PATH_MAX]; /* PATH.tmp, until out_folder_end */
    size_t there;             /* length of the part of `temp` that existed before */
} OutFolder;

/* Sets the paths and makes nothing. ERR_ARG: PATH exists already and is not an empty folder. */
Status out_folder(OutFolder *f, const char *path);
/* Makes PATH.tmp, empty. */
Status out_folder_begin(OutFolder *f);
/* With s OK renames PATH.tmp to PATH; else removes it and the folders made for it. Returns s, or the
 * error of the renaming. */
Status out_folder_end(const OutFolder *f, Status s);

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
