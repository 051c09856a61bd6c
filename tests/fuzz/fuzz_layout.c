/* Any text as a layout either fails with a message or prints to one that reads back to the same. */
#include "schedule/layout.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { INPUT_MAX = 200, ARENA_BYTES = 16 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void need(bool condition)
{
    if (!condition) abort();
}

static void same(const Layout *x, const Layout *y)
{
    need(x->stages == y->stages && x->layers == y->layers && x->predictions == y->predictions);
    for (int i = 0; i < x->stages; i++) {
        const LayoutStage *s = &x->stage[i], *t = &y->stage[i];
        need(s->first == t->first && s->layers == t->layers && s->predictions == t->predictions);
        need(s->embedding == t->embedding && s->loss == t->loss);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    Arena a = { 0 };
    const char *text = NULL, *printed = NULL;
    Layout first, second;
    if (bytes > INPUT_MAX) return 0;
    need(arena_init(&a, "fuzz", MEM_HOST, ARENA_BYTES) == OK);
    need(arena_text(&a, (const char *)data, bytes, &text) == OK);
    if (layout_parse(text, 0, 0, &a, &first) == OK) {
        need(layout_text(&first, &a, &printed) == OK);
        need(layout_parse(printed, first.stages, first.layers, &a, &second) == OK);
        same(&first, &second);
    } else {
        need(*status_message() != '\0');
    }
    arena_free(&a);
    return 0;
}
