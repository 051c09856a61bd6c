/* out_folder: PATH.tmp, its lock and its renaming. Paths are made absolute first, so that a later change of the
 * working folder does not matter. */
#include "engine/base/out_folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* In PATH.tmp; holds the number of the process. */
static const char MARK[] = ".switchyard";

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

/* Makes PATH.tmp and locks its mark. Without the mark it may be anybody's, and stays. */
static Status take_temp(OutFolder *f)
{
    char mark[FILE_PATH_MAX];
    struct stat info = { 0 };
    bool held = false;
    long holder = 0;
    int lock = 0;
    TRY(file_join(mark, f->temp, MARK));
    const bool made = mkdir(f->temp, 0755) == 0;
    if (!made && errno != EEXIST) return file_make_folders(f->temp);
    if (!made && (lstat(f->temp, &info) != 0 || !S_ISDIR(info.st_mode) || !file_exists(mark)))
        return FAIL(
            ERR_ARG,
            "%s is in the way, and this program did not make it: remove it, or give another "
            "folder than %s",
            f->temp, f->path);
    Status locked = file_lock(mark, &lock, &held, &holder);
    if (locked != OK && made)
        (void)rmdir(f->temp); /* without a mark it would be in the way for ever */
    TRY(locked);
    if (!held)
        return FAIL(ERR_ARG,
                    "%s is being written by process %ld: wait for it, or give another folder",
                    f->path, holder);
    if (made) return f->lock = lock, OK;
    Status s = file_remove_tree(f->temp); /* of a process that was killed */
    file_unlock(lock);
    return s == OK ? take_temp(f) : s;
}

/* Renames a folder to PATH before anything is written: PATH may be a link, a mount, or in a folder of others. */
static Status try_rename(const OutFolder *f)
{
    char probe[FILE_PATH_MAX], why[128];
    struct stat before = { 0 };
    const bool there = lstat(f->path, &before) == 0;
    TRY(file_join(probe, f->temp, "probe"));
    TRY(file_make_folders(probe));
    if (rename(probe, f->path) != 0)
        return FAIL(errno == ENOSPC || errno == EIO ? ERR_DISK : ERR_ARG,
                    "%s cannot be renamed to %s: %s; give another folder", f->temp, f->path,
                    strerror_r(errno, why, sizeof why));
    if (there ? chmod(f->path, before.st_mode & 07777) == 0 : rmdir(f->path) == 0) return OK;
    return FAIL(ERR_DISK, "%s: the folder cannot be made as it was", f->path);
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
    Status s = file_make_parent(f->temp);
    if (s == OK) s = take_temp(f);
    if (s == OK) s = try_rename(f);
    return s == OK ? OK : out_folder_end(f, s);
}

/* PATH, which its folder must know after a power failure. The mark goes first: PATH has none. */
static Status put_in_place(const OutFolder *f)
{
    char path[FILE_PATH_MAX];
    TRY(file_join(path, f->temp, MARK));
    (void)unlink(path);
    TRY(file_rename(f->temp, f->path));
    (void)snprintf(path, sizeof path, "%s", f->path);
    char *last = strrchr(path, '/');
    last[last == path] = '\0';
    return file_sync_folder(path);
}

/* Removing PATH.tmp may fail and overwrite the status record; the first failure is restored then. */
Status out_folder_end(OutFolder *f, Status s)
{
    char above[FILE_PATH_MAX], before[2048];
    const int lock = f->lock;
    if (lock == 0) return s;
    f->lock = 0;
    if (s == OK) s = put_in_place(f);
    if (s != OK) {
        (void)snprintf(before, sizeof before, "%s", status_message());
        (void)snprintf(above, sizeof above, "%s", f->temp);
        if (file_remove_tree(f->temp) != OK) (void)status_adopt(s, before);
        do *strrchr(above, '/') = '\0';
        while (strlen(above) > f->there && rmdir(above) == 0);
    }
    file_unlock(lock);
    return s;
}
