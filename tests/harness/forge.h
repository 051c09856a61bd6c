/* forge: a checkpoint in which one number is another, with right sums: what a fault of memory or an
 * older program leaves. */
#ifndef TESTS_HARNESS_FORGE_H
#define TESTS_HARNESS_FORGE_H

#include "harness/test.h"
#include "train/manifest.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct Forge {
    const char *folder, *param;
    ParamBuffer buffer;
    int64_t index; /* of the canonical tensor */
    float value;
    Arena *arena;
    Text lines;
    int changed;
} Forge;

static inline Status forge_entry(void *state, const ManifestEntry *entry)
{
    Forge *f = state;
    ManifestEntry e = *entry;
    char path[FILE_PATH_MAX];
    size_t bytes = (size_t)e.count * sizeof(float);
    float *x = malloc(bytes + 1);
    void *sum = NULL;
    TRY(file_join(path, f->folder, e.file));
    TRY(file_read_at(path, e.offset, x, bytes));
    bool here = f->index >= e.first && f->index < e.first + e.count;
    if (here && e.buffer == f->buffer && strcmp(e.param, f->param) == 0) {
        x[f->index - e.first] = f->value;
        int fd = open(path, O_WRONLY);
        CHECK(pwrite(fd, x, bytes, (off_t)e.offset) == (ssize_t)bytes && close(fd) == 0);
        f->changed++;
    }
    TRY(manifest_sum_new(f->arena, &sum));
    manifest_sum_add(sum, x, bytes);
    manifest_sum_take(sum, e.sum);
    free(x);
    return manifest_line(&f->lines, &e);
}

static inline void forge_number(const char *folder, const char *param, ParamBuffer buffer,
                                int64_t index, float value)
{
    Arena a = { 0 }, lines = { 0 };
    CheckpointInfo info;
    Manifest m = { 0 };
    CHECK_OK(arena_init(&a, "forge", MEM_HOST, (size_t)1 << 30));
    CHECK_OK(arena_init(&lines, "lines", MEM_HOST, (size_t)1 << 30));
    Forge f = { folder, param, buffer, index, value, &a, { 0 }, 0 };
    CHECK_OK(text_init(&f.lines, &lines));
    CHECK_OK(manifest_read(folder, &a, &info, forge_entry, &f));
    CHECK_INT(f.changed, 1);
    CHECK_OK(manifest_create(&m, folder, "forged", &info, &a));
    CHECK_OK(manifest_lines(&m, f.lines.data, f.lines.used));
    CHECK_OK(manifest_commit(&m));
    manifest_close(&m);
    arena_free(&lines);
    arena_free(&a);
}

#endif
