/* checkpoint_folder: names, lists and removes folders of checkpoints. It opens no file in them. */
#include "engine/checkpoint/checkpoint_folder.h"

#include "engine/base/text.h"
#include "engine/checkpoint/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Ten digits, so that names sort as steps do. */
Status folder_of_step(char out[FILE_PATH_MAX], const char *folder, int64_t step, const char *suffix)
{
    char name[64];
    (void)snprintf(name, sizeof name, "step-%010" PRId64 "%s", step, suffix);
    return file_join(out, folder, name);
}

/* The number behind "step-"; false for step-N.tmp, which was never finished, and names of users. */
static bool step_of_name(const char *name, int64_t *out)
{
    char *end = NULL;
    if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9') return false;
    *out = strtoll(name + 5, &end, 10);
    return end != name + 5 && (*end == '\0' || *end == '/');
}

bool folder_step(const char *path, int64_t *out)
{
    const char *name = path + strlen(path);
    while (name > path && name[-1] == '/') name--;
    while (name > path && name[-1] != '/') name--;
    return step_of_name(name, out);
}

void folder_shard_name(char out[32], int rank) { (void)snprintf(out, 32, "rank-%05d.bin", rank); }

bool folder_rank(const char *name, const char *suffix, int *out)
{
    char *end = NULL;
    if (!text_starts(name, "rank-")) return false;
    const long rank = strtol(name + 5, &end, 10);
    *out = (int)rank;
    return end != name + 5 && rank >= 0 && rank < INT32_MAX && strcmp(end, suffix) == 0;
}

Status folder_remove_unfinished(const char *folder, Arena *a)
{
    const char *const *names = NULL;
    int n = 0;
    TRY(file_list(folder, a, &names, &n));
    for (int i = 0; i < n; i++) {
        char path[FILE_PATH_MAX];
        if (!text_starts(names[i], "step-") || !text_ends(names[i], CHECKPOINT_TEMP)) continue;
        TRY(file_join(path, folder, names[i]));
        TRY(file_remove_tree(path));
    }
    return OK;
}

/* A folder that is not called step-NUMBER is not a checkpoint and is ignored, as users may add
 * their own. */
Status folder_steps(const char *folder, Arena *a, int64_t *steps, int *n)
{
    *n = 0;
    if (!file_exists(folder)) return OK;
    const char *const *names = NULL;
    int n_names = 0;
    TRY(file_list(folder, a, &names, &n_names));
    for (int i = 0; i < n_names; i++) {
        int64_t step = 0;
        if (!step_of_name(names[i], &step)) continue;
        if (*n == CHECKPOINT_STEPS_MAX) {
            return FAIL(ERR_IO, "%s: more than %d checkpoints", folder, CHECKPOINT_STEPS_MAX);
        }
        steps[(*n)++] = step; /* names have a fixed width, so their order is the steps' */
    }
    return OK;
}

/* Removes the manifest first, so that after a crash the rest is no checkpoint. */
Status folder_remove(const char *folder, int ranks)
{
    char path[FILE_PATH_MAX], name[32];
    TRY(file_join(path, folder, MANIFEST_NAME));
    unlink(path);
    for (int rank = 0; rank < ranks; rank++) {
        folder_shard_name(name, rank);
        TRY(file_join(path, folder, name));
        unlink(path);
    }
    return rmdir(folder) == 0 ? OK : file_remove_tree(folder);
}
