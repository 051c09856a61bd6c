/* replay: a main for a fuzzer without libFuzzer: every file of the folders named runs once. */
#include "base/file.h"

#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static Status replay_folder(const char *folder, Arena *a, int *n_files)
{
    const char *const *names = NULL;
    int n = 0;
    TRY(file_list(folder, a, &names, &n));
    for (int i = 0; i < n; i++) {
        char path[FILE_PATH_MAX];
        FileMap map = { 0 };
        TRY(file_join(path, folder, names[i]));
        TRY(file_map(path, &map));
        static const uint8_t nothing[1] = { 0 };
        (void)LLVMFuzzerTestOneInput(map.bytes == 0 ? nothing : map.data, map.bytes);
        file_unmap(&map);
    }
    *n_files += n;
    return OK;
}

int main(int argc, char **argv)
{
    Arena a = { 0 };
    int n_files = 0;
    Status s = arena_init(&a, "names", MEM_HOST, (size_t)64 << 20);
    for (int i = 1; i < argc && s == OK; i++) {
        if (argv[i][0] != '-') s = replay_folder(argv[i], &a, &n_files);
    }
    arena_free(&a);
    if (s != OK) fputs(status_message(), stderr);
    if (s == OK) printf("%d inputs\n", n_files);
    return s == OK && n_files > 0 ? 0 : 1;
}
