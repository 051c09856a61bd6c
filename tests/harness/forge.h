/* forge: a checkpoint in which one number is another, with right sums: what a fault of memory or an
 * older program leaves; and a bit of a file flipped. */
#ifndef TESTS_HARNESS_FORGE_H
#define TESTS_HARNESS_FORGE_H

#include "engine/checkpoint/manifest.h"
#include "harness/read_at.h"
#include "harness/test.h"

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

static inline Status forge_entry(Forge *f, ManifestEntry *e)
{
    char path[FILE_PATH_MAX];
    const size_t bytes = (size_t)piece_elems(&e->piece) * sizeof(float);
    const Piece one = piece_range(f->index, 1);
    PieceSpan at = { 0 };
    float *x = malloc(bytes + 1);
    void *sum = NULL;
    TRY(file_join(path, f->folder, e->file));
    TRY(read_at(path, e->offset, x, bytes));
    bool here = piece_meet(&e->piece, &one, &at);
    if (here && e->buffer == f->buffer && strcmp(e->param, f->param) == 0) {
        x[at.a] = f->value;
        int fd = open(path, O_WRONLY);
        CHECK(pwrite(fd, x, bytes, (off_t)e->offset) == (ssize_t)bytes && close(fd) == 0);
        f->changed++;
    }
    TRY(manifest_sum_new(f->arena, &sum));
    manifest_sum_add(sum, x, bytes);
    manifest_sum_take(sum, e->sum);
    free(x);
    return manifest_line(&f->lines, e);
}

/* A manifest of these lines, in place of the one that is there. */
static inline void forge_manifest(const char *folder, CheckpointInfo *info, const Text *lines,
                                  Arena *a)
{
    Manifest m = { 0 };
    CHECK_OK(manifest_create(&m, folder, "forged", info, a));
    CHECK_OK(manifest_lines(&m, lines->data, lines->used));
    CHECK_OK(manifest_commit(&m));
    file_close(&m.file);
}

static inline void forge_number(const char *folder, const char *param, ParamBuffer buffer,
                                int64_t index, float value)
{
    Arena a = { 0 }, lines = { 0 };
    CheckpointInfo info;
    ManifestEntry *entry = NULL;
    int64_t n = 0;
    CHECK_OK(arena_init(&a, "forge", MEM_HOST, (size_t)1 << 30));
    CHECK_OK(arena_init(&lines, "lines", MEM_HOST, (size_t)1 << 30));
    Forge f = { folder, param, buffer, index, value, &a, { 0 }, 0 };
    CHECK_OK(text_init(&f.lines, &lines));
    CHECK_OK(manifest_read(folder, &a, &info, &entry, &n));
    for (int64_t i = 0; i < n; i++) CHECK_OK(forge_entry(&f, &entry[i]));
    CHECK_INT(f.changed, 1);
    forge_manifest(folder, &info, &f.lines, &a);
    arena_free(&lines);
    arena_free(&a);
}

/* Replaces the first `from` in a manifest by `to`, and makes its end line right again. */
static inline void forge_text(const char *folder, const char *from, const char *to)
{
    Arena a = { 0 };
    char path[FILE_PATH_MAX], *text = NULL, sum[CHECKPOINT_SUM_BYTES];
    size_t bytes = 0;
    void *state = NULL;
    Text out = { 0 };
    CHECK_OK(arena_init(&a, "forge", MEM_HOST, (size_t)1 << 30));
    CHECK_OK(file_join(path, folder, MANIFEST_NAME));
    CHECK_OK(file_read_all(path, &a, &text, &bytes));
    char *at = strstr(text, from), *end = strstr(text, "{\"entries\":");
    CHECK(at != NULL && end != NULL && at < end);
    CHECK_OK(manifest_sum_new(&a, &state));
    CHECK_OK(text_init(&out, &a));
    CHECK_OK(text_append(&out, text, (size_t)(at - text)));
    CHECK_OK(text_append(&out, to, strlen(to)));
    CHECK_OK(text_append(&out, at + strlen(from), (size_t)(end - at) - strlen(from)));
    manifest_sum_add(state, out.data, out.used);
    manifest_sum_take(state, sum);
    CHECK_OK(text_printf(&out, "%.*s\"xxh3\":\"%s\"}\n", (int)strcspn(end, "x") - 1, end, sum));
    CHECK_OK(file_write_whole(path, out.data, out.used));
    arena_free(&a);
}

static inline void flip(const char *path, long at)
{
    FILE *f = fopen(path, "r+b");
    CHECK(f != NULL && fseek(f, at, SEEK_SET) == 0);
    int c = fgetc(f);
    CHECK(c != EOF && fseek(f, at, SEEK_SET) == 0);
    CHECK(fputc(c ^ 1, f) != EOF && fclose(f) == 0);
}

#endif
