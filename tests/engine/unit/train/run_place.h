/* run_place: a tiny model, a loader of two sources with their names, and an open metrics.jsonl. */
#ifndef ENGINE_UNIT_TRAIN_RUN_PLACE_H
#define ENGINE_UNIT_TRAIN_RUN_PLACE_H

#include "corpus/shard/shard.h"
#include "engine/train/metrics.h"
#include "harness/place.h"
#include "harness/tiny.h"

#include <stdlib.h>

/* A tiny model, a loader of two sources for their names, and a folder. */
typedef struct RunPlace {
    Tiny t;
    Loader *loader;
    Metrics metrics;
    char folder[64], path[FILE_PATH_MAX];
    char *text; /* the file, since place_read */
} RunPlace;

static inline void write_shard(Arena *a, const char *prefix)
{
    ShardWriter w = { 0 };
    CHECK_OK(shard_create(&w, prefix, 61, 0, a));
    for (int d = 0; d < 20; d++) {
        for (int32_t i = 0; i < 30; i++) {
            int32_t id = (d + i) % 61;
            CHECK_OK(shard_append(&w, &id, 1));
        }
        CHECK_OK(shard_end_document(&w));
    }
    CHECK_OK(shard_commit(&w));
}

static inline int place_open(void **state)
{
    static RunPlace place;
    RunPlace *p = *state = &place;
    *p = (RunPlace){ .folder = "/tmp/switchyard_test_XXXXXX" };
    tiny_open(&p->t, TINY("run.threads=1"));
    CHECK(mkdtemp(p->folder) != NULL);
    CHECK_OK(file_join(p->path, p->folder, "metrics.jsonl"));
    char prefix[2][FILE_PATH_MAX];
    LoaderSource source[2] = { { .name = "we\"b", .path = prefix[0] },
                               { .name = "books", .path = prefix[1] } };
    for (int i = 0; i < 2; i++) {
        CHECK_OK(file_join(prefix[i], p->folder, i == 0 ? "0" : "1"));
        write_shard(&p->t.arena, prefix[i]);
    }
    LoaderConfig c = { .sources = source, .n_sources = 2, .sequence = 24, .batch = 4, .vocab = 61 };
    CHECK_OK(loader_open(&c, &p->t.arena, &p->loader));
    CHECK_OK(metrics_open_log(&p->metrics, &p->t.engine, p->loader, p->folder));
    return 0;
}

static inline int place_close(void **state)
{
    RunPlace *p = *state;
    metrics_close(&p->metrics);
    loader_close(p->loader);
    CHECK_OK(file_remove_tree(p->folder));
    tiny_close(&p->t);
    return 0;
}

#endif
