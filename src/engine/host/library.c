/* library: finds a shared library in its folders, opens it and looks up its functions. */
#include "engine/host/library.h"

#include "engine/base/log.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Patterns of glob(). The first match that is good is taken, so CUDA's own folder goes before the
 * distribution's and Python's. */
static const char *const FOLDERS[] = {
    "/usr/local/cuda/lib64",
    "/usr/local/cuda/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/local/lib/python3*/*-packages/nvidia/*/lib",
    "/usr/lib/python3*/*-packages/nvidia/*/lib",
    "/opt/*/lib/python3*/*-packages/nvidia/*/lib",
    "/opt/*/.venv/lib/python3*/*-packages/nvidia/*/lib",
    "/opt/rocm*/lib",
};

enum { N_FOLDERS = sizeof FOLDERS / sizeof *FOLDERS, WHY_BYTES = 800 };

typedef struct Search {
    const Library *library;
    char *table;
    void *file;          /* the library that is taken */
    bool asked;          /* a library was asked for its version, so no other may be tried */
    char why[WHY_BYTES]; /* what is wrong with the library that was found last */
} Search;

/* Fills the table. Returns the first required function that the file lacks; NULL: it has all. */
static const char *resolve_calls(const Search *s, void *file)
{
    for (int i = 0; i < s->library->calls; i++) {
        const LibraryCall *c = &s->library->call[i];
        void *at = dlsym(file, c->name);
        if (at == NULL && c->older != NULL) at = dlsym(file, c->older);
        if (at == NULL && !c->optional) return c->name;
        if (at == NULL) log_warn("%s has no function %s", s->library->file, c->name);
        /* ISO C cannot convert void * to a function pointer; POSIX says that the bits are the same */
        memcpy(s->table + c->offset, &at, sizeof at);
    }
    return NULL;
}

/* The version in a file's name: 21805 for libnccl.so.2.18.5; 0 if the name has none. */
static int version_in_name(void *file)
{
    char path[PATH_MAX];
    struct link_map *map = NULL;
    if (dlinfo(file, RTLD_DI_LINKMAP, &map) != 0 || realpath(map->l_name, path) == NULL) return 0;
    const char *numbers = strstr(strrchr(path, '/'), ".so.");
    long part[3] = { 0 };
    char *at = NULL;
    if (numbers == NULL) return 0;
    for (int i = 0; i < 3; i++) {
        const char *from = i == 0 ? numbers + 4 : at + 1;
        part[i] = strtol(from, &at, 10);
        if (at == from || (i < 2 && *at != '.')) return 0;
    }
    return (int)(part[0] * 10000 + part[1] * 100 + part[2]);
}

/* Opens one candidate. On success s->file is set, otherwise s->why says what is wrong with it. If
 * dlopen refuses the file, s->why stays as it was. */
static void try_file(Search *s, const char *path)
{
    const Library *l = s->library;
    void *file = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (file == NULL) return;
    int version = version_in_name(file);
    bool old = version > 0 && version < l->least;
    const char *missing = resolve_calls(s, file);
    s->asked = missing == NULL && !old && l->version != NULL;
    if (s->asked) version = l->version(s->table);
    if (missing == NULL && version >= l->least) {
        s->file = file;
        return;
    }
    if (missing != NULL)
        (void)snprintf(s->why, WHY_BYTES, "%s has no function %s", path, missing);
    else
        (void)snprintf(s->why, WHY_BYTES, "%s is version %d, %d is needed", path, version,
                       l->least);
    (void)dlclose(file);
}

static bool is_over(const Search *s) { return s->file != NULL || s->asked; }

static void try_folder(Search *s, const char *folder)
{
    char pattern[PATH_MAX];
    glob_t found = { 0 };
    (void)snprintf(pattern, sizeof pattern, "%s/%s", folder, s->library->file);
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): only for ~, which no pattern has */
    if (glob(pattern, 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc && !is_over(s); i++) try_file(s, found.gl_pathv[i]);
    }
    globfree(&found);
}

/* The reason of the last candidate that was found, or else the list of places that were
 * searched. */
static Status not_found(const Search *s)
{
    const Library *l = s->library;
    char places[WHY_BYTES] = "";
    size_t used = 0;
    if (s->asked) return FAIL(ERR_UNSUPPORTED, "%s: %s", s->why, l->advice);
    for (int i = 0; i < N_FOLDERS; i++)
        used += (size_t)snprintf(places + used, sizeof places - used, ", %s", FOLDERS[i]);
    if (s->why[0] != '\0')
        return FAIL(ERR_UNSUPPORTED, "%s, and there is no other in the loader's path%s: %s", s->why,
                    places, l->advice);
    return FAIL(ERR_UNSUPPORTED, "%s (%s) was not found in the loader's path%s: %s", l->file,
                l->what, places, l->advice);
}

/* The bare name comes first, so LD_LIBRARY_PATH and the loader's cache win over the list of
 * folders. */
Status library_open(const Library *l, void *table, void **out_file)
{
    Search s = { .library = l, .table = table };
    try_file(&s, l->file);
    for (int i = 0; i < N_FOLDERS && !is_over(&s); i++) try_folder(&s, FOLDERS[i]);
    if (s.file == NULL) return not_found(&s);
    *out_file = s.file;
    return OK;
}
