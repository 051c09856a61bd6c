/* out_folder: an output folder that appears only when it is complete. It is built as PATH.tmp. At the
 * end it is renamed to PATH, or after a failure removed with its contents. For single files see
 * file_create_temp. */
#ifndef ENGINE_BASE_OUT_FOLDER_H
#define ENGINE_BASE_OUT_FOLDER_H

#include "engine/base/file.h"

typedef struct OutFolder {
    char path[FILE_PATH_MAX]; /* absolute */
    char temp[FILE_PATH_MAX]; /* PATH.tmp, until out_folder_end */
    size_t there;             /* length of the prefix of `temp` that already existed */
    int lock; /* of a file in PATH.tmp, which says that this program made it; 0: none */
} OutFolder;

/* Sets the paths and makes nothing. ERR_ARG: PATH exists already and is not an empty folder. */
Status out_folder(OutFolder *f, const char *path);
/* Makes PATH.tmp, empty, and tries the renaming. ERR_ARG: another process writes there, PATH.tmp is not this
 * program's, or it cannot be renamed to PATH. What a killed process left there is removed. */
Status out_folder_begin(OutFolder *f);
/* If s is OK, renames PATH.tmp to PATH. Otherwise removes it and the parent folders made for it.
 * Returns s, or the error of the rename. Does nothing behind a begin that failed. */
Status out_folder_end(OutFolder *f, Status s);

#endif
