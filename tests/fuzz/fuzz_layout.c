/* Any text as a layout either fails with a message or prints to one that reads back to the same. */
#include "engine/schedule/layout.h"
#include "harness/fuzz.h"

static void same(const Layout *x, const Layout *y)
{
    need(x->stages == y->stages && x->layers == y->layers && x->predictions == y->predictions);
    for (int i = 0; i < x->stages; i++) {
        const LayoutStage *s = &x->stage[i], *t = &y->stage[i];
        need(s->first == t->first && s->layers == t->layers && s->predictions == t->predictions);
        need(s->embedding == t->embedding && s->loss == t->loss);
    }
}

static Status look(Fuzz *f)
{
    const char *printed = NULL;
    Layout first, second;
    TRY(layout_parse(fuzz_text(f), 0, 0, f->a, &first));
    need(layout_text(&first, f->a, &printed) == OK);
    need(layout_parse(printed, first.stages, first.layers, f->a, &second) == OK);
    same(&first, &second);
    return OK;
}

const Fuzzer fuzzer = { .look = look, .most_bytes = 200 };
