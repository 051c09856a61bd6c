/* failing_calls: for LD_PRELOAD: counts the program's library calls by kind and fails one of them.
 *
 * FAIL_CALL=KIND:N:ERRNO fails the N-th call of a kind, counted from 1. ERRNO 0 lets a read or a write take half.
 * FAIL_REPORT=FILE gets the counts, who made the call that failed, and what is left where main ends: memory by
 * library, maps, descriptors.
 *
 * Calls count from the begin of main to its end, in the process that was started, but not those of the loader, libgomp
 * and hwloc: these end the process where they get no memory or no thread. Calls that libc makes inside itself are not
 * seen, but for its malloc. A write to stderr does not fail, or there would be no sentence. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define CALLER __builtin_return_address(0)

typedef enum Kind {
    KIND_MALLOC,
    KIND_MMAP,
    KIND_OPEN,
    KIND_READ,
    KIND_WRITE,
    KIND_SYNC,
    KIND_RENAME,
    KIND_START,
    KINDS
} Kind;
static const char *const kind_names[KINDS] = { "malloc", "mmap", "open",   "read",
                                               "write",  "sync", "rename", "start" };

enum { FILES = 64, HELD = 1 << 17, DESCRIPTORS = 1024, NO_FILE = -1 };

/* A loaded file: where its instructions are. */
typedef struct Loaded {
    char name[64];
    uintptr_t first, end;
    bool spared; /* its calls do not count */
} Loaded;

/* What is allocated or mapped and not freed yet; place 0: free, 1: was taken. */
typedef struct Held {
    uintptr_t at;
    int file;
    bool map;
} Held;

static Loaded files[FILES];
static int n_files;
static Held held[HELD];
static atomic_flag held_lock = ATOMIC_FLAG_INIT;
static bool open_before[DESCRIPTORS];
static atomic_long counts[KINDS];
static atomic_bool counting;
static _Thread_local bool in_hwloc; /* it loses a descriptor if libc has no memory for its folder */
static Kind fail_kind = KINDS;
static long fail_at;
static int fail_error;
static char report_path[PATH_MAX], failed_by[PATH_MAX];
static int (*program_main)(int, char **, char **);

// NOLINTBEGIN(bugprone-reserved-identifier): these names are glibc's
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t n, size_t bytes);
extern void *__libc_realloc(void *old, size_t bytes);
extern void *__libc_memalign(size_t align, size_t bytes);
extern void __libc_free(void *at);
// NOLINTEND(bugprone-reserved-identifier)

/* ---- who calls ---- */

static int add_file(struct dl_phdr_info *info, size_t bytes, void *none)
{
    (void)bytes, (void)none;
    Loaded *f = &files[n_files];
    f->first = UINTPTR_MAX;
    f->end = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_LOAD || (p->p_flags & PF_X) == 0) continue;
        uintptr_t at = info->dlpi_addr + p->p_vaddr;
        if (at < f->first) f->first = at;
        if (at + p->p_memsz > f->end) f->end = at + p->p_memsz;
    }
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *name = slash != NULL ? slash + 1 : info->dlpi_name;
    snprintf(f->name, sizeof f->name, "%s", name[0] == '\0' ? "program" : name);
    static const char *const spared[] = { "ld-linux", "libgomp", "libhwloc", "failing_calls" };
    for (size_t i = 0; i < sizeof spared / sizeof *spared; i++)
        if (strncmp(f->name, spared[i], strlen(spared[i])) == 0) f->spared = true;
    if (f->end > 0 && n_files < FILES - 1) n_files++;
    return 0;
}

/* NO_FILE: one that was loaded later. */
static int file_of(const void *caller)
{
    uintptr_t at = (uintptr_t)caller;
    for (int i = 0; i < n_files; i++)
        if (at >= files[i].first && at < files[i].end) return i;
    return NO_FILE;
}

static void note_caller(const void *caller)
{
    int i = file_of(caller);
    snprintf(failed_by, sizeof failed_by, "%s+0x%lx", i == NO_FILE ? "?" : files[i].name,
             i == NO_FILE ? 0ul : (unsigned long)((uintptr_t)caller - files[i].first));
}

/* Counts a call; true: it is to fail. */
static bool fails(Kind kind, const void *caller)
{
    if (!counting || in_hwloc) return false;
    int file = file_of(caller);
    if (file != NO_FILE && files[file].spared) return false;
    if (atomic_fetch_add(&counts[kind], 1) + 1 != fail_at || kind != fail_kind) return false;
    note_caller(caller);
    errno = fail_error;
    return true;
}

/* ---- what is held ---- */

static Held *find_held(uintptr_t at)
{
    size_t i = (size_t)(at >> 4) * 0x9e3779b97f4a7c15u >> 47;
    while (held[i].at != 0 && held[i].at != at) i = (i + 1) % HELD;
    return &held[i];
}

static void lock_held(void)
{
    while (atomic_flag_test_and_set(&held_lock)) {}
}

static void hold(void *at, const void *caller, bool map)
{
    if (!counting || at == NULL) return;
    int file = file_of(caller);
    if (file != NO_FILE && files[file].spared) return;
    lock_held();
    *find_held((uintptr_t)at) = (Held){ (uintptr_t)at, file, map };
    atomic_flag_clear(&held_lock);
}

/* The place stays taken, so that what lies behind it is found. */
static void release(const void *at)
{
    if (!counting || at == NULL) return;
    lock_held();
    Held *h = find_held((uintptr_t)at);
    if (h->at != 0) h->file = FILES;
    atomic_flag_clear(&held_lock);
}

static int count_held(int file, bool map)
{
    int n = 0;
    for (int i = 0; i < HELD; i++)
        n += held[i].at != 0 && held[i].file == file && held[i].map == map;
    return n;
}

/* ---- begin and end ---- */

static void *next(const char *name) { return dlsym(RTLD_NEXT, name); }
#define NEXT(type, name) ((type)(uintptr_t)next(name))

static void read_order(void)
{
    char kind[16] = "";
    const char *order = getenv("FAIL_CALL"), *path = getenv("FAIL_REPORT");
    if (path != NULL) snprintf(report_path, sizeof report_path, "%s", path);
    if (order == NULL || sscanf(order, "%15[a-z]:%ld:%d", kind, &fail_at, &fail_error) != 3) return;
    for (int i = 0; i < KINDS; i++)
        if (strcmp(kind, kind_names[i]) == 0) fail_kind = (Kind)i;
}

static void report_left(FILE *to)
{
    for (int map = 0; map < 2; map++) {
        for (int i = NO_FILE; i < n_files; i++) {
            int n = count_held(i, map);
            if (n > 0)
                fprintf(to, "left %s %s %d\n", map ? "map" : "memory", i < 0 ? "?" : files[i].name,
                        n);
        }
    }
    int n = 0;
    for (int i = 0; i < DESCRIPTORS; i++) n += fcntl(i, F_GETFD) >= 0 && !open_before[i];
    if (n > 0) fprintf(to, "left descriptor program %d\n", n);
}

static void report(void)
{
    static char buffer[1 << 14];
    FILE *to = fmemopen(buffer, sizeof buffer, "w");
    for (int i = 0; i < KINDS; i++) fprintf(to, "count %s %ld\n", kind_names[i], (long)counts[i]);
    if (failed_by[0] != '\0') fprintf(to, "failed %s\n", failed_by);
    report_left(to);
    fclose(to);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, report_path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    (void)!syscall(SYS_write, fd, buffer, strlen(buffer));
    syscall(SYS_close, fd);
}

static void forget_in_child(void) { counting = false; }

/* ---- programs that a command becomes (process_become): counting goes on there ---- */

static char preload[PATH_MAX];

static void write_counts(void)
{
    char text[32 * KINDS] = "";
    int n = 0;
    for (int i = 0; i < KINDS; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%ld ", (long)counts[i]);
    setenv("FAIL_COUNTED", text, 1);
    setenv("LD_PRELOAD", preload, 1);
}

static void read_counts(void)
{
    const char *text = getenv("FAIL_COUNTED"), *own = getenv("LD_PRELOAD");
    char *at = (char *)(uintptr_t)text;
    for (int i = 0; i < KINDS && text != NULL; i++) counts[i] = strtol(at, &at, 10);
    if (own != NULL) snprintf(preload, sizeof preload, "%s", own);
    unsetenv("LD_PRELOAD"); /* other programs that it starts are not looked at */
}

EXPORT int execv(const char *path, char *const words[])
{
    const bool was = counting;
    counting = false;
    if (was) write_counts();
    int rc = NEXT(int (*)(const char *, char *const *), "execv")(path, words);
    if (was) unsetenv("LD_PRELOAD");
    counting = was;
    return rc;
}

static int counted_main(int argc, char **argv, char **env)
{
    read_order();
    read_counts();
    dl_iterate_phdr(add_file, NULL);
    pthread_atfork(NULL, NULL, forget_in_child);
    for (int i = 0; i < DESCRIPTORS; i++) open_before[i] = fcntl(i, F_GETFD) >= 0;
    counting = true;
    int rc = program_main(argc, argv, env);
    counting = false;
    report();
    return rc;
}

// NOLINTBEGIN(bugprone-reserved-identifier): the name is glibc's
int __libc_start_main(int (*start)(int, char **, char **), int argc, char **argv,
                      void (*init)(void), void (*fini)(void), void (*end)(void), void *stack);
EXPORT int __libc_start_main(int (*start)(int, char **, char **), int argc, char **argv,
                             void (*init)(void), void (*fini)(void), void (*end)(void), void *stack)
{
    typedef int StartMain(int (*)(int, char **, char **), int, char **, void (*)(void),
                          void (*)(void), void (*)(void), void *);
    program_main = start;
    return NEXT(StartMain *, "__libc_start_main")(counted_main, argc, argv, init, fini, end, stack);
}
// NOLINTEND(bugprone-reserved-identifier)

/* ---- memory ---- */

/* KEEP_MALLOC: a sanitizer brings its own, and finds leaks itself. */
#ifndef KEEP_MALLOC

static void *given(void *at, const void *caller)
{
    hold(at, caller, false);
    return at;
}

#define MEMORY(call) (fails(KIND_MALLOC, CALLER) ? NULL : given((call), CALLER))

EXPORT void *malloc(size_t bytes) { return MEMORY(__libc_malloc(bytes)); }
EXPORT void *calloc(size_t n, size_t bytes) { return MEMORY(__libc_calloc(n, bytes)); }
EXPORT void *memalign(size_t align, size_t bytes) { return MEMORY(__libc_memalign(align, bytes)); }
EXPORT void *aligned_alloc(size_t align, size_t n) { return MEMORY(__libc_memalign(align, n)); }

EXPORT int posix_memalign(void **out, size_t align, size_t bytes)
{
    void *at = MEMORY(__libc_memalign(align, bytes));
    if (at != NULL) *out = at;
    return at == NULL ? ENOMEM : 0;
}

EXPORT void *realloc(void *old, size_t bytes)
{
    if (fails(KIND_MALLOC, CALLER)) return NULL;
    void *at = __libc_realloc(old, bytes);
    if (at == NULL && bytes > 0) return NULL;
    release(old);
    return given(at, CALLER);
}

EXPORT void free(void *at)
{
    release(at);
    __libc_free(at);
}

#endif

EXPORT void *mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset)
{
    if (fails(KIND_MMAP, CALLER)) return MAP_FAILED;
    void *got = (void *)(uintptr_t)syscall(SYS_mmap, at, bytes, prot, flags, fd, offset);
    if (got != MAP_FAILED && (flags & MAP_FIXED) == 0) hold(got, CALLER, true);
    return got;
}

EXPORT int munmap(void *at, size_t bytes)
{
    release(at);
    return (int)syscall(SYS_munmap, at, bytes);
}

EXPORT void *mremap(void *old, size_t old_bytes, size_t bytes, int flags, ...)
{
    if (fails(KIND_MMAP, CALLER)) return MAP_FAILED;
    void *got = (void *)(uintptr_t)syscall(SYS_mremap, old, old_bytes, bytes, flags, NULL);
    if (got == MAP_FAILED) return got;
    release(old);
    hold(got, CALLER, true);
    return got;
}

/* ---- files ---- */

EXPORT int open(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    mode_t mode = (flags & O_CREAT) != 0 ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    if (fails(KIND_OPEN, CALLER)) return -1;
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

EXPORT FILE *fopen(const char *path, const char *mode)
{
    typedef FILE *Fopen(const char *, const char *);
    return fails(KIND_OPEN, CALLER) ? NULL : NEXT(Fopen *, "fopen")(path, mode);
}

EXPORT DIR *opendir(const char *path)
{
    typedef DIR *Opendir(const char *);
    return fails(KIND_OPEN, CALLER) ? NULL : NEXT(Opendir *, "opendir")(path);
}

EXPORT int pipe2(int ends[2], int flags)
{
    return fails(KIND_OPEN, CALLER) ? -1 : (int)syscall(SYS_pipe2, ends, flags);
}

EXPORT int socket(int domain, int type, int protocol)
{
    return fails(KIND_OPEN, CALLER) ? -1 : (int)syscall(SYS_socket, domain, type, protocol);
}

/* As the first half of the bytes, or as a failure of the whole call: false. */
static bool halves(size_t *bytes)
{
    if (fail_error == 0) *bytes = (*bytes + 1) / 2;
    return fail_error == 0;
}

EXPORT ssize_t read(int fd, void *out, size_t bytes)
{
    if (fails(KIND_READ, CALLER) && !halves(&bytes)) return -1;
    return syscall(SYS_read, fd, out, bytes);
}

EXPORT ssize_t pread(int fd, void *out, size_t bytes, off_t offset)
{
    if (fails(KIND_READ, CALLER) && !halves(&bytes)) return -1;
    return syscall(SYS_pread64, fd, out, bytes, offset);
}

EXPORT ssize_t write(int fd, const void *data, size_t bytes)
{
    if (fd != STDERR_FILENO && fails(KIND_WRITE, CALLER) && !halves(&bytes)) return -1;
    return syscall(SYS_write, fd, data, bytes);
}

EXPORT ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    if (fails(KIND_WRITE, CALLER) && !halves(&bytes)) return -1;
    return syscall(SYS_pwrite64, fd, data, bytes, offset);
}

EXPORT int fsync(int fd) { return fails(KIND_SYNC, CALLER) ? -1 : (int)syscall(SYS_fsync, fd); }

EXPORT int rename(const char *from, const char *to)
{
    return fails(KIND_RENAME, CALLER) ? -1 : (int)syscall(SYS_rename, from, to);
}

EXPORT int hwloc_topology_load(void *topology);
EXPORT int hwloc_topology_load(void *topology)
{
    typedef int Load(void *);
    in_hwloc = true;
    int rc = NEXT(Load *, "hwloc_topology_load")(topology);
    in_hwloc = false;
    return rc;
}

/* ---- threads and processes ---- */

EXPORT int pthread_create(pthread_t *out, const pthread_attr_t *attr, void *(*run)(void *),
                          void *arg)
{
    typedef int Create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (fails(KIND_START, CALLER)) return fail_error;
    return NEXT(Create *, "pthread_create")(out, attr, run, arg);
}

EXPORT pid_t fork(void)
{
    typedef pid_t Fork(void);
    return fails(KIND_START, CALLER) ? -1 : NEXT(Fork *, "fork")();
}
