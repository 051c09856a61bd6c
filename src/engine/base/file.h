/* file: whole-file reads, maps, atomic writes, folders and locks. A failed read is ERR_IO with the path
 * and the system's reason; a failed write is ERR_DISK. Formats are the callers' business.
 *
 * A file under construction is named PATH.tmp until file_commit, which does fsync, rename, and fsync of
 * the folder. So at any moment PATH is absent, the old file, or the whole new one. */
#ifndef ENGINE_BASE_FILE_H
#define ENGINE_BASE_FILE_H

#include "engine/base/arena.h"

#include <stdbool.h>
#include <stdint.h>

enum { FILE_PATH_MAX = 1024, FILE_SUM_BYTES = 33 };

typedef struct File {
    int fd; /* -1 or 0 in a zeroed File: not open (fd 0 is never ours) */
    bool temporary;
    char path[FILE_PATH_MAX];
    char *buffer; /* write buffer: in the caller's arena, or NULL for unbuffered */
    size_t buffer_bytes, buffered;
    uint64_t written_bytes; /* bytes accepted by file_write: the file offset of the next one */
} File;

typedef struct FileMap {
    const uint8_t *data; /* read-only mapping; NULL if the file is empty */
    size_t bytes;
} FileMap;

/* Creates PATH.tmp, which file_commit renames to PATH. A write buffer of 1 MiB is allocated in
 * `arena`. */
Status file_create_temp(File *f, const char *path, Arena *arena);
/* The same with the caller's buffer (so that a checkpoint allocates nothing). */
Status file_create_temp_buffered(File *f, const char *path, void *buffer, size_t buffer_bytes);
/* Opens the PATH.tmp that file_keep_temp left, or a process that was killed, and cuts it after so many
 * bytes, where writing goes on. ERR_FORMAT: it has fewer. */
Status file_resume_temp(File *f, const char *path, uint64_t bytes, Arena *arena);
void file_keep_temp(File *f); /* file_close, but PATH.tmp stays as it was last flushed */
/* Append to PATH, created if absent (metrics.jsonl); every file_flush reaches the file. */
Status file_open_append(File *f, const char *path, void *buffer, size_t buffer_bytes);
Status file_write(File *f, const void *data, size_t bytes);
/* Over bytes that were written before, such as a header that was not known yet. */
Status file_write_at(File *f, uint64_t offset, const void *data, size_t bytes);
Status file_printf(File *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
Status file_flush(File *f);
Status file_sync(File *f);   /* flush + fsync */
Status file_commit(File *f); /* flush, fsync, rename, fsync of the folder, close */
/* Of a file or a folder, over a file or an empty folder. */
Status file_rename(const char *from, const char *to);
void file_close(File *f); /* safe on { 0 } and after commit; drops an uncommitted temp */
/* Creates, writes and commits a file whose bytes are all in memory. */
Status file_write_whole(const char *path, const void *data, size_t bytes);

/* Reads a whole file: as a read-only map, or into an arena with a NUL after it. Folders, devices and
 * pipes are ERR_IO at once, without waiting. */
Status file_map(const char *path, FileMap *out);
void file_unmap(FileMap *m); /* safe on { 0 } */
Status file_read_all(const char *path, Arena *a, char **out, size_t *out_bytes);
Status file_sum(const char *path, char out[FILE_SUM_BYTES]); /* XXH3-128 in hexadecimal */
/* The same for files that people name on a command line: a pipe is read to its end. ERR_IO: the
 * pipe was empty (it may have been read before) or held more than 1 GiB. */
Status file_map_input(const char *path, FileMap *out);
Status file_read_input(const char *path, Arena *a, char **out, size_t *out_bytes);
/* For a pipe opened with O_NONBLOCK: waits until it has bytes or a writer closed it, then makes reads
 * block. A pipe that nobody has opened for writing has neither. After 2 s the log says what it waits
 * for. */
Status file_wait_for_writer(int fd, const char *path);
/* Opens a file and reads ranges of its bytes. ERR_FORMAT: the file ends before a range does. */
Status file_open_read(File *f, const char *path);
Status file_read(const File *f, uint64_t offset, void *out, size_t bytes);

/* For one reader from front to back. A pipe is a file, too, and its bytes are waited for. *got is 0 at the
 * end alone. */
Status file_open_input(File *f, const char *path);
Status file_read_next(const File *f, void *out, size_t bytes, size_t *got);

/* For a path that is not there: ", did you mean mine.yaml?" if its folder has a name like it, what to do if it is the
 * address of an object store, else "". Returns out. */
enum { FILE_HINT_BYTES = 512 };
const char *file_hint(char out[FILE_HINT_BYTES], const char *path);

bool file_exists(const char *path);  /* a link to nowhere does, too: who reads it says so */
bool file_is_file(const char *path); /* exists, and is no folder */
/* Do both paths name one file that exists? */
bool file_same(const char *a, const char *b);
bool file_is_pipe(const char *path);
Status file_size(const char *path, uint64_t *out_bytes); /* a pipe's is 0 */
Status file_make_folders(const char *path);              /* like mkdir -p */
Status file_make_parent(const char *path);               /* the folders that hold path */
Status file_remove_tree(const char *path);               /* a missing path is OK */
Status file_sync_folder(const char *path);

/* Names in a folder, sorted, without "." and "..". */
Status file_list(const char *folder, Arena *a, const char *const **out, int *out_n);

/* path = a/b, ERR_ARG if it does not fit. */
Status file_join(char out[FILE_PATH_MAX], const char *a, const char *b);

/* The last component of a path, without trailing slashes, copied into `a`. */
Status file_last_part(const char *path, Arena *a, const char **out);

/* The folder for files that may be lost and made again: `wanted`; if that is empty
 * $XDG_CACHE_HOME/switchyard, else ~/.cache/switchyard (XDG base directories). Does not create it.
 * ERR_ARG: `wanted` is empty and neither variable holds an absolute path. */
Status file_cache_folder(const char *wanted, char out[FILE_PATH_MAX]);

/* Takes an exclusive lock on PATH, which is created. The lock ends with file_unlock or with the
 * process, even after SIGKILL. *held is false if another process has it; *holder is then its process
 * id, or 0 if unknown. */
Status file_lock(const char *path, int *out_fd, bool *held, long *holder);
void file_unlock(int fd); /* does nothing on 0 */
/* Is the open file still the one of that name? It may have been removed, or replaced. */
bool file_has_name(int fd, const char *path);
/* The same, and the file is removed first, while it is locked. */
void file_unlock_remove(int fd, const char *path);

#endif
