/* out_folder: an output folder that appears only when it is complete: it is made under another name
 * and renamed at the end, or removed with all that is in it. */
#ifndef BASE_OUT_FOLDER_H
#define BASE_OUT_FOLDER_H

#include "base/file.h"

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

#endif
