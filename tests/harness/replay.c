/* replay: a main for a fuzzer without libFuzzer: every file of the folders named runs once; without arguments those of
 * the corpus that its own name, fuzz_NAME, says. */
#include "harness/fuzz.h"

#include <stdio.h>

/* The input is copied, because a map has more bytes than its file, which a parser could read unseen. */
static Status replay_file(const char *path, Arena *a)
{
    FileMap map = { 0 };
    void *copy = NULL;
    ArenaMark mark = arena_mark(a);
    TRY(file_map(path, &map));
    TRY(arena_alloc(a, map.bytes, &copy));
    if (map.bytes > 0) memcpy(copy, map.data, map.bytes);
    (void)LLVMFuzzerTestOneInput(copy, map.bytes);
    file_unmap(&map);
    arena_release(a, mark);
    return OK;
}

static Status replay_folder(const char *folder, Arena *a, int *n_files)
{
    const char *const *names = NULL;
    int n = 0;
    TRY(file_list(folder, a, &names, &n));
    for (int i = 0; i < n; i++) {
        char path[FILE_PATH_MAX];
        TRY(file_join(path, folder, names[i]));
        TRY(replay_file(path, a));
    }
    *n_files += n;
    return OK;
}

static Status replay(int argc, char **argv, Arena *a, int *n_files)
{
    char own[FILE_PATH_MAX];
    const char *name = strstr(argv[0], "fuzz_");
    int folders = 0;
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-') continue;
        TRY(replay_folder(argv[i], a, n_files));
        folders++;
    }
    if (folders > 0) return OK;
    if (name == NULL) return FAIL(ERR_ARG, "name the folders of inputs");
    (void)snprintf(own, sizeof own, "tests/fuzz/corpus/%s", name + strlen("fuzz_"));
    return replay_folder(own, a, n_files);
}

int main(int argc, char **argv)
{
    Arena a = { 0 };
    int n_files = 0;
    Status s = arena_init(&a, "names", MEM_HOST, (size_t)64 << 20);
    if (s == OK) s = replay(argc, argv, &a, &n_files);
    arena_free(&a);
    if (s != OK) fputs(status_message(), stderr);
    if (s == OK)
        printf("[  PASSED  ] %d inputs\n", n_files); /* tools/mutants looks for this word */
    return s == OK && n_files > 0 ? 0 : 1;
}
