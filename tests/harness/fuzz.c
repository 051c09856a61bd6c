/* fuzz: hands inputs to the fuzzer, and keeps arenas and files between them. */
#include "harness/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FILES_MAX = 8, NAME_BYTES = 64 };

static const size_t ARENA_BYTES = (size_t)1 << 30;
static const size_t KEPT_BYTES = (size_t)32 << 20; /* more than that is given back to the system */
static const size_t USUAL_BYTES = 1 << 14;

typedef struct FuzzFile {
    int fd;
    char path[FILE_PATH_MAX];
} FuzzFile;

static FuzzFile files[FILES_MAX];
static int n_files;
static char folder[NAME_BYTES];

void fuzz_found(const char *file, int line, const char *condition)
{
    (void)fprintf(stderr, "%s:%d: not so: %s\n%s\n", file, line, condition, status_message());
    abort();
}

/* ---- files ---- */

static void remove_folder(void)
{
    if (folder[0] != '\0') (void)file_remove_tree(folder);
}

const char *fuzz_folder(void)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): nothing here changes the environment */
    const char *where = getenv("TMPDIR");
    if (folder[0] != '\0') return folder;
    (void)snprintf(folder, sizeof folder, "%.40s/fuzz_XXXXXX", where == NULL ? "/tmp" : where);
    need(mkdtemp(folder) != NULL);
    need(atexit(remove_folder) == 0);
    return folder;
}

static FuzzFile *make_file(const char *path)
{
    char memory[NAME_BYTES];
    FuzzFile *f = &files[n_files];
    need(n_files < FILES_MAX);
    f->fd = memfd_create("fuzz", MFD_CLOEXEC);
    (void)snprintf(memory, sizeof memory, "/proc/self/fd/%d", f->fd);
    (void)snprintf(f->path, sizeof f->path, "%s", path);
    need(f->fd >= 0 && file_make_parent(path) == OK && symlink(memory, path) == 0);
    n_files++;
    return f;
}

const char *fuzz_file(const char *name, const void *data, size_t bytes)
{
    char path[FILE_PATH_MAX];
    FuzzFile *f = NULL;
    need(file_join(path, fuzz_folder(), name) == OK);
    for (int i = 0; i < n_files; i++)
        if (strcmp(files[i].path, path) == 0) f = &files[i];
    if (f == NULL) f = make_file(path);
    need(ftruncate(f->fd, 0) == 0);
    if (bytes > 0) need(pwrite(f->fd, data, bytes, 0) == (ssize_t)bytes);
    return f->path;
}

/* ---- parts of an input ---- */

const char *fuzz_text(const Fuzz *f)
{
    const char *text = NULL;
    need(arena_text(f->a, (const char *)f->data, f->bytes, &text) == OK);
    return text;
}

FuzzPart fuzz_part(Fuzz *f, const char *end)
{
    const size_t n = strlen(end);
    const uint8_t *at = f->bytes == 0 ? NULL : memmem(f->data, f->bytes, end, n);
    const FuzzPart part = { f->data, at == NULL ? f->bytes : (size_t)(at - f->data) };
    const size_t taken = at == NULL ? f->bytes : part.bytes + n;
    f->data += taken;
    f->bytes -= taken;
    return part;
}

int fuzz_words(Fuzz *f, const char **word, int most)
{
    int n = 0;
    for (; n < most && f->bytes > 0; n++) {
        const FuzzPart line = fuzz_part(f, "\n");
        need(arena_text(f->a, (const char *)line.data, line.bytes, &word[n]) == OK);
    }
    return n;
}

Status fuzz_row(Fuzz *f, FuzzRow *const *row, size_t n)
{
    const char *number = NULL;
    if (fuzz_words(f, &number, 1) == 0) return OK;
    return row[strtoul(number, NULL, 10) % n](fuzz_text(f), f);
}

/* ---- inputs ---- */

/* NOLINTNEXTLINE(bugprone-reserved-identifier): the sanitizer's name */
const char *__asan_default_options(void);

/* Nearly all memory is arenas'. That of libraries needs neither long stacks nor a pattern, which made most of the time
 * of YAML. */
const char *__asan_default_options(void)
{
    return "malloc_context_size=6:max_malloc_fill_size=0:quarantine_size_mb=16";
}

const void *fuzz_once(FuzzMake *make)
{
    static Arena kept;
    static void *made;
    if (made != NULL) return made;
    need(arena_init(&kept, "kept", MEM_HOST, KEPT_BYTES) == OK && make(&kept, &made) == OK);
    return made;
}

static void arena_empty(Arena *a, const char *name)
{
    if (a->peak_bytes > KEPT_BYTES) arena_free(a);
    if (a->base == NULL) need(arena_init(a, name, MEM_HOST, ARENA_BYTES) == OK);
    arena_release(a, (ArenaMark){ 0 });
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const uint8_t nothing[1];
    static Arena a, page;
    Fuzz f = { bytes > 0 ? data : nothing, bytes, &a, &page };
    if (bytes > (fuzzer.most_bytes > 0 ? fuzzer.most_bytes : USUAL_BYTES)) return 0;
    arena_empty(&a, "fuzz");
    arena_empty(&page, "page");
    status_clear();
    need(fuzzer.look(&f) == OK || *status_message() != '\0');
    return 0;
}
