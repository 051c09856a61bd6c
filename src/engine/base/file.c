/* file: reading, mapping, atomic writing, folders and locks, over POSIX calls. Formats are not known
 * here. */
#include "engine/base/file.h"

#include "engine/base/fd.h"
#include "engine/base/file_changed.h"
#include "engine/base/interrupt.h"
#include "engine/base/log.h"
#include "engine/base/synonym.h"
#include "engine/base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static const size_t BUFFER_BYTES = (size_t)1 << 20;

/* A pipe may have no end, so reading one stops here. */
#ifdef HOSTILE
static const size_t PIPE_MOST_BYTES = 1 << 17;
#else
static const size_t PIPE_MOST_BYTES = (size_t)1 << 30;
#endif

enum {
    REASON_BYTES = 128,
    READ_BYTES = 1 << 16,
    FIRST_READ_BYTES = 1 << 20,
    PRINT_BYTES = 4096,
    REMOVE_FOLDERS_OPEN = 16,
    HINT_LEAST = 3,          /* letters of a name; shorter ones are near any other */
    PIPE_PATIENCE_MS = 2000, /* after this wait a message says which pipe is waited for */
};

static const char TEMP[] = ".tmp";

/* The system's sentence for errno, thread-safe. */
static const char *reason(char out[REASON_BYTES]) { return strerror_r(errno, out, REASON_BYTES); }

/* Of a failure that says nothing of the file: this process has no more descriptors or memory, or may not
 * read it. Then an older checkpoint is no replacement, as it is for a file that is damaged. */
static Status read_code(void)
{
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) return ERR_MEMORY;
    return errno == EACCES || errno == EPERM ? ERR_ARG : ERR_IO;
}

/* The folder that holds path. */
static void folder_of(char out[FILE_PATH_MAX], const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t n = slash == NULL || slash == path ? 1 : (size_t)(slash - path);
    memcpy(out, slash == NULL ? "." : path, n);
    out[n] = '\0';
}

/* Of names that are equally near the first in the alphabet wins, so hints do not depend on the order of a folder. */
const char *file_hint(char out[FILE_HINT_BYTES], const char *path)
{
    const Synonym *store = synonym_of_address(path);
    const char *slash = strrchr(path, '/'), *name = slash == NULL ? path : slash + 1;
    char folder[FILE_PATH_MAX], best[NAME_MAX + 1] = "";
    const struct dirent *e = NULL;
    (void)snprintf(out, FILE_HINT_BYTES, "%s%s", store == NULL ? "" : ": ",
                   store == NULL ? "" : store->note);
    if (store != NULL || strlen(path) >= FILE_PATH_MAX || strlen(name) < HINT_LEAST) return out;
    folder_of(folder, path);
    DIR *d = opendir(folder);
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): the stream is this call's own */
    while (d != NULL && (e = readdir(d)) != NULL) {
        const bool later = strcmp(e->d_name, best) > 0;
        const char *two[] = { later ? best : e->d_name, later ? e->d_name : best };
        const int near = text_nearest(name, two, 2);
        if (near == later && *e->d_name != '.' && strcmp(e->d_name, name) != 0)
            memcpy(best, e->d_name, strlen(e->d_name) + 1);
    }
    if (d != NULL) closedir(d);
    if (*best != '\0')
        (void)snprintf(out, FILE_HINT_BYTES, ", did you mean %.*s%s?", (int)(name - path), path,
                       best);
    return out;
}

static Status cannot_read(const char *path)
{
    char why[REASON_BYTES], hint[FILE_HINT_BYTES] = "";
    const Status code = read_code();
    const bool none = errno == ENOENT;
    const char *because = reason(why);
    return FAIL(code, "%s cannot be read: %s%s", path, because, none ? file_hint(hint, path) : "");
}

static Status cannot_change(const char *path, const char *what)
{
    char why[REASON_BYTES];
    if (errno == ELOOP)
        return FAIL(ERR_DISK,
                    "%s cannot be %s: it is a symbolic link, which is not followed: remove it",
                    path, what);
    return FAIL(ERR_DISK, "%s cannot be %s: %s", path, what, reason(why));
}

/* Opens a file with a descriptor above the three standard ones. A File with fd 0 counts as closed, and
 * a process that was started without stdin would get 0 from open(). */
static int open_above(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC, 0644);
    if (fd < 0 || fd > STDERR_FILENO) return fd;
    int above = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    close(fd);
    return above;
}

/* A pipe would be waited for, and a device gives nothing back. /dev/null is for measurements, /dev/full for tests. */
static Status open_to_change(const char *path, int flags, int *fd)
{
    struct stat info = { 0 };
    *fd = open_above(path, flags | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (*fd < 0 && errno != ENXIO)
        return cannot_change(path, "created"); /* a pipe without a reader */
    if (*fd >= 0 && fstat(*fd, &info) == 0)
        if (S_ISREG(info.st_mode) || strcmp(path, "/dev/null") == 0 ||
            strcmp(path, "/dev/full") == 0)
            return OK;
    if (*fd >= 0) close(*fd);
    return FAIL(ERR_ARG, "%s is a pipe, a device or a socket, not a file: remove it", path);
}

static bool is_open(const File *f) { return f->fd > 0; }

/* ---- writing ---- */

/* Writes PATH.tmp to out. Both names fit, because open_to_write refuses longer paths. */
static void temp_name(char out[FILE_PATH_MAX], const char *path)
{
    (void)snprintf(out, FILE_PATH_MAX, "%.*s%s", FILE_PATH_MAX - (int)sizeof TEMP, path, TEMP);
}

static Status open_to_write(File *f, const char *path, bool temporary, void *buffer,
                            size_t buffer_bytes)
{
    struct stat info;
    size_t length = strlen(path);
    *f = (File){ 0 };
    if (length == 0) return FAIL(ERR_ARG, "the name of a file to write is empty: give a path");
    if (length + sizeof TEMP > sizeof f->path)
        return FAIL(ERR_ARG, "a path of %zu characters, at most %zu are possible: %s", length,
                    sizeof f->path - sizeof TEMP, path);
    if (temporary && stat(path, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode))
        return FAIL(ERR_ARG,
                    "%s is a pipe, a device or a socket, and a file would replace it: name a file",
                    path);
    *f = (File){ .temporary = temporary, .buffer = buffer, .buffer_bytes = buffer_bytes };
    memcpy(f->path, path, length + 1);
    char temp[FILE_PATH_MAX];
    temp_name(temp, path);
    const char *name = temporary ? temp : path;
    /* What a killed process left is removed. A link of that name would lead to another file. */
    if (temporary) (void)unlink(temp);
    Status s = open_to_change(name, O_WRONLY | (temporary ? O_EXCL : O_APPEND), &f->fd);
    if (s != OK) *f = (File){ 0 };
    return s;
}

Status file_create_temp_buffered(File *f, const char *path, void *buffer, size_t buffer_bytes)
{
    return open_to_write(f, path, true, buffer, buffer_bytes);
}

Status file_resume_temp(File *f, const char *path, uint64_t bytes, Arena *arena)
{
    void *buffer = NULL;
    char temp[FILE_PATH_MAX];
    struct stat info = { 0 };
    *f = (File){ 0 };
    TRY(arena_alloc(arena, BUFFER_BYTES, &buffer));
    temp_name(temp, path);
    int fd = open_above(temp, O_WRONLY | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, &info) != 0) {
        Status s = cannot_read(temp);
        if (fd >= 0) close(fd);
        return s;
    }
    *f = (File){ .fd = fd, .buffer = buffer, .buffer_bytes = BUFFER_BYTES, .written_bytes = bytes };
    (void)snprintf(f->path, sizeof f->path, "%s", path);
    if ((uint64_t)info.st_size < bytes || ftruncate(fd, (off_t)bytes) != 0 ||
        lseek(fd, (off_t)bytes, SEEK_SET) < 0) {
        file_close(f);
        return FAIL(ERR_FORMAT, "%s has %lld bytes, %llu were written: it was changed since", temp,
                    (long long)info.st_size, (unsigned long long)bytes);
    }
    f->temporary = true;
    return OK;
}

void file_keep_temp(File *f)
{
    f->temporary = false;
    f->buffered = 0;
    file_close(f);
}

Status file_create_temp(File *f, const char *path, Arena *arena)
{
    *f = (File){ 0 };
    void *buffer = NULL;
    TRY(arena_alloc(arena, BUFFER_BYTES, &buffer));
    return open_to_write(f, path, true, buffer, BUFFER_BYTES);
}

Status file_open_append(File *f, const char *path, void *buffer, size_t buffer_bytes)
{
    return open_to_write(f, path, false, buffer, buffer_bytes);
}

static Status write_all(const File *f, const char *data, size_t bytes, size_t *done)
{
    *done = fd_write(f->fd, data, bytes);
    if (*done == bytes) return OK;
    char why[REASON_BYTES];
    return FAIL(ERR_DISK, "%s: %zu bytes were to be written after %llu, the system took %zu: %s",
                f->path, bytes, (unsigned long long)(f->written_bytes - f->buffered), *done,
                reason(why));
}

/* Bytes that a full disk refused stay in the buffer, so a later flush continues where this one
 * ended. */
Status file_flush(File *f)
{
    if (f->buffered == 0) return OK;
    size_t done = 0;
    Status s = write_all(f, f->buffer, f->buffered, &done);
    f->buffered -= done;
    memmove(f->buffer, f->buffer + done, f->buffered);
    return s;
}

Status file_write(File *f, const void *data, size_t bytes)
{
    if (bytes == 0) return OK; /* of an empty map, whose address is NULL */
    if (bytes > f->buffer_bytes - f->buffered) TRY(file_flush(f));
    /* Larger than the buffer, or unbuffered: copying would only cost time. */
    if (bytes >= f->buffer_bytes) {
        size_t done = 0;
        Status s = write_all(f, data, bytes, &done);
        f->written_bytes += done;
        return s;
    }
    memcpy(f->buffer + f->buffered, data, bytes);
    f->buffered += bytes;
    f->written_bytes += bytes;
    return OK;
}

Status file_write_at(File *f, uint64_t offset, const void *data, size_t bytes)
{
    TRY(file_flush(f));
    if (fd_write_at(f->fd, data, bytes, offset) == bytes) return OK;
    return cannot_change(f->path, "written");
}

Status file_printf(File *f, const char *fmt, ...)
{
    char line[PRINT_BYTES];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof line)
        return FAIL(ERR_ARG, "%s: a formatted line of %d bytes, at most %zu are possible", f->path,
                    n, sizeof line - 1);
    return file_write(f, line, (size_t)n);
}

Status file_sync(File *f)
{
    TRY(file_flush(f));
    if (fsync(f->fd) != 0) return cannot_change(f->path, "synced to disk");
    return OK;
}

Status file_commit(File *f)
{
    char temp[FILE_PATH_MAX], folder[FILE_PATH_MAX];
    TRY(file_sync(f));
    if (f->temporary) {
        temp_name(temp, f->path);
        if (!file_has_name(f->fd, temp)) {
            return FAIL(ERR_DISK,
                        "%s was removed or replaced while it was written: another program "
                        "writes there",
                        temp);
        }
        if (rename(temp, f->path) != 0) return cannot_change(f->path, "put in place");
        f->temporary = false;
        folder_of(folder, f->path);
        TRY(file_sync_folder(folder));
    }
    file_close(f);
    return OK;
}

Status file_rename(const char *from, const char *to)
{
    char why[REASON_BYTES];
    if (rename(from, to) == 0) return OK;
    return FAIL(ERR_DISK, "%s cannot be renamed to %s: %s", from, to, reason(why));
}

/* Callers use this while they return an error, so it must not change the status record. */
void file_close(File *f)
{
    if (is_open(f)) {
        char temp[FILE_PATH_MAX];
        if (!f->temporary) fd_write(f->fd, f->buffer, f->buffered);
        temp_name(temp, f->path);
        if (f->temporary && file_has_name(f->fd, temp)) unlink(temp);
        close(f->fd);
    }
    *f = (File){ 0 };
}

Status file_write_whole(const char *path, const void *data, size_t bytes)
{
    File f = { 0 };
    TRY(file_create_temp_buffered(&f, path, NULL, 0));
    Status s = file_write(&f, data, bytes);
    if (s == OK) s = file_commit(&f);
    file_close(&f);
    return s;
}

/* ---- reading ---- */

static Status check_kind(const char *path, mode_t mode, bool pipes)
{
    if (S_ISREG(mode) || (pipes && S_ISFIFO(mode))) return OK;
    if (S_ISDIR(mode)) return FAIL(ERR_IO, "%s is a folder, not a file", path);
    if (S_ISFIFO(mode))
        return FAIL(ERR_IO, "%s is a pipe, which can be read only once: give a file", path);
    return FAIL(ERR_IO, "%s is a device or a socket: give a file%s", path,
                pipes ? " or a pipe" : "");
}

/* `first`: no byte has come yet, so after a while the log says what is waited for. poll() with a limit and
 * not read(), because Ctrl-C must end the wait, and another thread may get the signal. */
static Status wait_for_bytes(int fd, const char *path, bool first)
{
    struct pollfd pipe = { .fd = fd, .events = POLLIN };
    int ready = 0;
    while (ready == 0 || (ready < 0 && errno == EINTR)) {
        TRY(interrupt_check("the pipe was not read"));
        ready = poll(&pipe, 1, PIPE_PATIENCE_MS);
        if (ready == 0 && first)
            log_info("waiting for another program to write to %s, which is a pipe", path);
        first = first && ready != 0;
    }
    return ready < 0 ? cannot_read(path) : OK;
}

Status file_wait_for_writer(int fd, const char *path)
{
    TRY(wait_for_bytes(fd, path, true));
    return fcntl(fd, F_SETFL, 0) == 0 ? OK : cannot_read(path);
}

/* O_NONBLOCK: otherwise open() of a pipe waits for a writer, before fstat can say that it is a pipe. */
static Status open_to_read(const char *path, bool pipes, int *out_fd, struct stat *out_info)
{
    int fd = open_above(path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return cannot_read(path);
    Status s = OK;
    if (fstat(fd, out_info) != 0) s = cannot_read(path);
    if (s == OK) s = check_kind(path, out_info->st_mode, pipes);
    if (s == OK && S_ISFIFO(out_info->st_mode)) s = file_wait_for_writer(fd, path);
    if (s != OK) close(fd);
    if (s == OK) *out_fd = fd;
    return s;
}

/* read() that continues after a signal. *got is 0 at the end of the file. */
static Status read_some(int fd, const char *path, char *out, size_t bytes, size_t *got)
{
    ssize_t n = -1;
    do n = read(fd, out, bytes);
    while (n < 0 && errno == EINTR);
    *got = n > 0 ? (size_t)n : 0;
    return n < 0 ? cannot_read(path) : OK;
}

static Status check_piped(const char *path, size_t bytes)
{
    if (bytes == 0)
        return FAIL(ERR_IO,
                    "%s is a pipe and holds nothing (a pipe is read only once): give a file", path);
    if (bytes > PIPE_MOST_BYTES)
        return FAIL(ERR_IO, "%s is a pipe of more than %zu bytes: write them to a file, give that",
                    path, PIPE_MOST_BYTES);
    return OK;
}

static Status double_map(const char *path, char **at, size_t *room)
{
    void *moved = mremap(*at, *room, 2 * *room, MREMAP_MAYMOVE);
    if (moved == MAP_FAILED) return cannot_read(path);
    *at = moved;
    *room *= 2;
    return OK;
}

/* Reads a file whose size is not known beforehand (a pipe, a file of /proc) into an anonymous map, which
 * doubles as it fills. The pages after the data are unmapped at the end. */
static Status read_to_map(int fd, const char *path, bool piped, FileMap *out)
{
    size_t room = FIRST_READ_BYTES, used = 0, got = 1;
    char *at = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                    -1, 0);
    if (at == MAP_FAILED) return cannot_read(path);
    Status s = OK;
    for (; s == OK && got > 0 && used <= PIPE_MOST_BYTES; used += got) {
        if (room - used < READ_BYTES) s = double_map(path, &at, &room);
        if (s == OK && piped) s = wait_for_bytes(fd, path, false);
        if (s == OK) s = read_some(fd, path, at + used, READ_BYTES, &got);
    }
    if (s == OK && (piped || used > PIPE_MOST_BYTES)) s = check_piped(path, used);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t kept = s == OK ? (used + page - 1) / page * page : 0;
    munmap(at + kept, room - kept);
    if (s == OK && used > 0) *out = (FileMap){ (uint8_t *)at, used };
    return s;
}

static Status map_opened(int fd, const char *path, const struct stat *info, FileMap *out)
{
    size_t bytes = (size_t)info->st_size;
    if (bytes == 0) return read_to_map(fd, path, S_ISFIFO(info->st_mode), out);
    void *at = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (at == MAP_FAILED) return cannot_read(path);
    file_changed_guard(at, bytes, path);
    *out = (FileMap){ at, bytes };
    return OK;
}

static Status map_file(const char *path, bool pipes, FileMap *out)
{
    int fd = -1;
    struct stat info = { 0 };
    FileMap m = { 0 };
    TRY(open_to_read(path, pipes, &fd, &info));
    Status s = map_opened(fd, path, &info, &m);
    close(fd);
    if (s == OK) *out = m;
    return s;
}

Status file_map(const char *path, FileMap *out) { return map_file(path, false, out); }
Status file_map_input(const char *path, FileMap *out) { return map_file(path, true, out); }

void file_unmap(FileMap *m)
{
    if (m->data != NULL) file_changed_unguard(m->data);
    /* NOLINTNEXTLINE(performance-no-int-to-ptr): munmap takes no const, the map is one */
    if (m->data != NULL) munmap((void *)(uintptr_t)m->data, m->bytes);
    *m = (FileMap){ 0 };
}

static Status read_file(const char *path, bool pipes, Arena *a, char **out, size_t *out_bytes)
{
    FileMap m = { 0 };
    char *text = NULL;
    TRY(map_file(path, pipes, &m));
    Status s = ARENA_NEW(a, m.bytes + 1, &text);
    if (s == OK) {
        if (m.bytes > 0) memcpy(text, m.data, m.bytes);
        text[m.bytes] = '\0';
        *out = text;
        *out_bytes = m.bytes;
    }
    file_unmap(&m);
    return s;
}

Status file_read_all(const char *path, Arena *a, char **out, size_t *out_bytes)
{
    return read_file(path, false, a, out, out_bytes);
}

Status file_read_input(const char *path, Arena *a, char **out, size_t *out_bytes)
{
    return read_file(path, true, a, out, out_bytes);
}

Status file_sum(const char *path, char out[FILE_SUM_BYTES])
{
    FileMap map = { 0 };
    TRY(file_map(path, &map));
    XXH128_hash_t h = XXH3_128bits(map.data, map.bytes);
    file_unmap(&map);
    (void)snprintf(out, FILE_SUM_BYTES, "%016llx%016llx", (unsigned long long)h.high64,
                   (unsigned long long)h.low64);
    return OK;
}

static Status open_reader(File *f, const char *path, bool pipes)
{
    struct stat info = { 0 };
    *f = (File){ 0 };
    (void)snprintf(f->path, sizeof f->path, "%s", path);
    return open_to_read(path, pipes, &f->fd, &info);
}

Status file_open_read(File *f, const char *path) { return open_reader(f, path, false); }
Status file_open_input(File *f, const char *path) { return open_reader(f, path, true); }

Status file_read_next(const File *f, void *out, size_t bytes, size_t *got)
{
    TRY(wait_for_bytes(f->fd, f->path, false));
    return read_some(f->fd, f->path, out, bytes, got);
}

Status file_read(const File *f, uint64_t offset, void *out, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(f->fd, (char *)out + done, bytes - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return cannot_read(f->path);
        if (n == 0)
            return FAIL(ERR_FORMAT, "%s ends at byte %llu, %zu bytes from byte %llu were wanted",
                        f->path, (unsigned long long)(offset + done), bytes,
                        (unsigned long long)offset);
        done += (size_t)n;
    }
    return OK;
}

/* ---- folders ---- */

bool file_exists(const char *path)
{
    struct stat info = { 0 };
    return lstat(path, &info) == 0;
}

bool file_is_file(const char *path)
{
    struct stat info = { 0 };
    return file_exists(path) && (stat(path, &info) != 0 || !S_ISDIR(info.st_mode));
}

bool file_same(const char *a, const char *b)
{
    struct stat x = { 0 }, y = { 0 };
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

bool file_is_pipe(const char *path)
{
    struct stat info = { 0 };
    return stat(path, &info) == 0 && S_ISFIFO(info.st_mode);
}

Status file_size(const char *path, uint64_t *out_bytes)
{
    struct stat info = { 0 };
    if (stat(path, &info) != 0) return cannot_read(path);
    TRY(check_kind(path, info.st_mode, true));
    *out_bytes = (uint64_t)info.st_size;
    return OK;
}

/* Another rank may make the same folder at the same time, so one that exists is no error. */
static Status make_folder(const char *path)
{
    if (mkdir(path, 0755) == 0) return OK;
    int cause = errno;
    struct stat info = { 0 };
    if (stat(path, &info) == 0) {
        if (S_ISDIR(info.st_mode)) return OK;
        return FAIL(ERR_DISK, "folder %s cannot be made: a file of that name is in the way", path);
    }
    errno = cause;
    return cannot_change(path, "made");
}

Status file_make_folders(const char *path)
{
    char part[FILE_PATH_MAX];
    TRY(file_join(part, path[0] == '\0' ? "." : path, ""));
    for (char *slash = strchr(part + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        TRY(make_folder(part));
        *slash = '/';
    }
    return OK;
}

Status file_make_parent(const char *path)
{
    char folder[FILE_PATH_MAX];
    folder_of(folder, path);
    return file_make_folders(folder);
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    (void)info;
    (void)kind;
    (void)place;
    return remove(path) == 0 ? 0 : errno;
}

Status file_remove_tree(const char *path)
{
    struct stat info = { 0 };
    if (lstat(path, &info) != 0 && (errno == ENOENT || errno == ENOTDIR)) return OK;
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): without FTW_CHDIR it changes nothing shared */
    int rc = nftw(path, remove_one, REMOVE_FOLDERS_OPEN, FTW_DEPTH | FTW_PHYS);
    if (rc == 0) return OK;
    if (rc > 0) errno = rc;
    return cannot_change(path, "removed");
}

Status file_sync_folder(const char *path)
{
    int fd = open_above(path, O_RDONLY | O_DIRECTORY);
    if (fd < 0) return cannot_change(path, "opened");
    /* EINVAL: the file system cannot sync folders */
    bool synced = fsync(fd) == 0 || errno == EINVAL;
    Status s = synced ? OK : cannot_change(path, "synced to disk");
    close(fd);
    return s;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static Status collect_names(DIR *d, const char *folder, Arena *a, const char ***out, int *n)
{
    int64_t room = 0;
    for (;;) {
        errno = 0;
        /* NOLINTNEXTLINE(concurrency-mt-unsafe): the stream is this call's own */
        const struct dirent *e = readdir(d);
        if (e == NULL) return errno == 0 ? OK : cannot_read(folder);
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        TRY(ARENA_GROW(a, *n + 1, &room, out));
        TRY(arena_text(a, e->d_name, strlen(e->d_name), &(*out)[(*n)++]));
    }
}

Status file_list(const char *folder, Arena *a, const char *const **out, int *out_n)
{
    const char **name = NULL;
    int n = 0;
    DIR *d = opendir(folder);
    if (d == NULL) return cannot_read(folder);
    Status s = collect_names(d, folder, a, &name, &n);
    closedir(d);
    if (s != OK) return s;
    if (n > 0) qsort(name, (size_t)n, sizeof *name, compare_names);
    *out = name;
    *out_n = n;
    return OK;
}

Status file_join(char out[FILE_PATH_MAX], const char *a, const char *b)
{
    size_t n = strlen(a);
    const char *slash = n > 0 && a[n - 1] != '/' ? "/" : "";
    int wanted = snprintf(out, FILE_PATH_MAX, "%s%s%s", a, slash, b);
    if (wanted < 0 || wanted >= FILE_PATH_MAX)
        return FAIL(ERR_ARG, "a path of %d characters, at most %d are possible: %s%s%s", wanted,
                    FILE_PATH_MAX - 1, a, slash, b);
    return OK;
}

Status file_last_part(const char *path, Arena *a, const char **out)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/') begin--;
    return arena_text(a, path + begin, end - begin, out);
}

Status file_cache_folder(const char *wanted, char out[FILE_PATH_MAX])
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): only engine/comm/nccl.c changes the environment, once */
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (*wanted != '\0') return file_join(out, wanted, "");
    if (cache != NULL && *cache == '/') return file_join(out, cache, "switchyard");
    if (home != NULL && *home == '/') return file_join(out, home, ".cache/switchyard");
    return FAIL(ERR_ARG, "there is no folder for a cache: neither XDG_CACHE_HOME nor HOME is an "
                         "absolute path; set cache.dir");
}

/* ---- locks ---- */

/* The process id that the holder wrote into the lock file; 0 if it is not there. */
static long read_holder(int fd)
{
    char text[32] = { 0 };
    return pread(fd, text, sizeof text - 1, 0) > 0 ? strtol(text, NULL, 10) : 0;
}

bool file_has_name(int fd, const char *path)
{
    struct stat open_one = { 0 }, named = { 0 };
    return fstat(fd, &open_one) == 0 && stat(path, &named) == 0 &&
           open_one.st_dev == named.st_dev && open_one.st_ino == named.st_ino;
}

/* flock, not fcntl: a flock belongs to the open file description. Closing another descriptor of the
 * same file does not drop it, and two opens in one process exclude each other, which ranks on threads
 * need. The kernel drops it with the last descriptor, however the process ends. */
Status file_lock(const char *path, int *out_fd, bool *held, long *holder)
{
    int fd = -1;
    TRY(open_to_change(path, O_RDWR, &fd));
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        Status s = errno == EWOULDBLOCK ? OK : cannot_change(path, "locked");
        if (s == OK) *holder = read_holder(fd);
        if (s == OK) *held = false;
        close(fd);
        return s;
    }
    if (!file_has_name(fd, path)) { /* removed by another process since it was opened */
        close(fd);
        return file_lock(path, out_fd, held, holder);
    }
    /* The process id is only for messages. The lock holds without it, so a full disk is no error
     * here. */
    char text[32];
    int n = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (ftruncate(fd, 0) == 0) fd_write(fd, text, (size_t)n);
    *out_fd = fd;
    *held = true;
    *holder = (long)getpid();
    return OK;
}

void file_unlock_remove(int fd, const char *path)
{
    if (fd > 0) (void)unlink(path);
    file_unlock(fd);
}

void file_unlock(int fd)
{
    if (fd <= 0) return;
    if (ftruncate(fd, 0) == 0) flock(fd, LOCK_UN);
    close(fd);
}
