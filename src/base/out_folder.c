/* out_folder: PATH.tmp and its renaming. Paths are made absolute first, so that a later change of the
 * working folder does not matter. */
#include "base/out_folder.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Reads three names at most, since a folder with more than "." and ".." is not empty. */
static bool is_empty_folder(const char *path)
{
    DIR *d = opendir(path);
    int names = 0;
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): the stream is this call's own */
    while (d != NULL && names < 3 && readdir(d) != NULL) names++;
    if (d != NULL) closedir(d);
    return names == 2; /* "." and ".." */
}

Status out_folder(OutFolder *f, const char *path)
{
    char here[FILE_PATH_MAX] = "";
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    if (n == 0) return FAIL(ERR_ARG, "the output folder has an empty name; give it one");
    if (file_exists(path) && !is_empty_folder(path))
        return FAIL(ERR_ARG, "%s exists already and is not an empty folder; choose another", path);
    if (path[0] != '/' && getcwd(here, sizeof here - 1) == NULL)
        return FAIL(ERR_IO, "the path of the working folder cannot be read");
    int length = snprintf(f->path, sizeof f->path, "%s%s%.*s", here, here[0] == '\0' ? "" : "/",
                          (int)n, path);
    int temp = snprintf(f->temp, sizeof f->temp, "%s.tmp", f->path);
    if (length < (int)sizeof f->path && temp < (int)sizeof f->temp) return OK;
    return FAIL(ERR_ARG, "%.60s...: the path is longer than %d bytes", path, FILE_PATH_MAX - 5);
}

/* f->there is the length of the part of the path that exists now. out_folder_end removes only
 * folders below it. */
Status out_folder_begin(OutFolder *f)
{
    char part[FILE_PATH_MAX];
    (void)snprintf(part, sizeof part, "%s", f->temp);
    do *strrchr(part, '/') = '\0';
    while (part[0] != '\0' && !file_exists(part));
    f->there = strlen(part);
    TRY(file_remove_tree(f->temp));
    return file_make_folders(f->temp);
}

/* Removing PATH.tmp may fail and overwrite the status record; the first failure is restored then. */
Status out_folder_end(const OutFolder *f, Status s)
{
    if (s == OK) s = file_rename(f->temp, f->path);
    if (s == OK) {
        char parent[FILE_PATH_MAX];
        (void)snprintf(parent, sizeof parent, "%s", f->path);
        char *last = strrchr(parent, '/');
        last[last == parent] = '\0';
        return file_sync_folder(parent);
    }
    char before[2048];
    (void)snprintf(before, sizeof before, "%s", status_message());
    Status removed = file_remove_tree(f->temp);
    char above[FILE_PATH_MAX];
    (void)snprintf(above, sizeof above, "%s", f->temp);
    do *strrchr(above, '/') = '\0';
    while (strlen(above) > f->there && rmdir(above) == 0);
    return removed == OK ? s : status_adopt(s, before);
}
