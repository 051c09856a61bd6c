/* fuzz_timeline: a line as config.json and the rest as pp_rank_0.json either fail with a message or
 * give a timeline of finite sums that can be drawn. */
#include "base/file.h"
#include "viz/pipeline_page.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { INPUT_MAX = 1 << 14, ARENA_BYTES = 256 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void need(bool condition)
{
    if (!condition) abort();
}

static void put(const char *folder, const char *name, const uint8_t *data, size_t bytes, Arena *a)
{
    char path[FILE_PATH_MAX];
    ArenaMark mark = arena_mark(a);
    need(file_join(path, folder, name) == OK);
    need(file_write_whole(path, data, bytes) == OK);
    arena_release(a, mark);
}

static void use(const Timeline *t, Arena *text)
{
    Text page = { 0 };
    const PipelineView v = { .timeline = t, .timelines = 1 };
    need(t->step_s > 0 && isfinite(t->rank[0].bubble) && t->rank[0].bubble <= 1);
    need(text_init(&page, text) == OK && pipeline_html(&page, &v) == OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char folder[] = "/tmp/switchyard_fuzz_XXXXXX";
    Arena a = { 0 }, text = { 0 };
    Timeline t;
    const uint8_t *line = bytes > 0 ? memchr(data, '\n', bytes) : NULL;
    if (bytes > INPUT_MAX || line == NULL) return 0;
    size_t head = (size_t)(line - data);
    need(mkdtemp(folder) != NULL);
    need(arena_init(&a, "fuzz", MEM_HOST, ARENA_BYTES) == OK);
    need(arena_init(&text, "text", MEM_HOST, ARENA_BYTES) == OK);
    put(folder, "config.json", data, head, &a);
    put(folder, "pp_rank_0.json", line + 1, bytes - head - 1, &a);
    if (timeline_read(folder, -1, &a, &t) == OK)
        use(&t, &text);
    else
        need(*status_message() != '\0');
    need(file_remove_tree(folder) == OK);
    arena_free(&text);
    arena_free(&a);
    return 0;
}
