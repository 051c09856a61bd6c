/* Two traces, with a line of %% between: refused with a sentence, or one tree whose nodes are calls of both or of one,
 * and its sheets. */
#include "compat/compat.h"
#include "harness/fuzz.h"
#include "traces/read/events_read.h"

static void check(const Diff *d)
{
    for (int64_t i = 0; i < d->nodes; i++) {
        const DiffNode *n = &d->node[i];
        need(n->event[DIFF_OLD] != EVENT_NONE || n->event[DIFF_NEW] != EVENT_NONE);
        need(n->parent == EVENT_NONE || n->parent < i);
        need(n->first + (int64_t)n->children <= d->children);
        for (int side = 0; side < DIFF_SIDES; side++)
            need(n->event[side] == EVENT_NONE || n->event[side] < d->tree[side]->events->n);
    }
}

static Status compare(const Tree tree[DIFF_SIDES], bool compat, const Fuzz *f)
{
    Diff d = { 0 };
    Table sheet[DIFF_SHEETS];
    CompatDiff theirs;
    Status s =
        diff_trees(&tree[0], &tree[1], compat ? &compat_diff_rules : NULL, f->a, f->page, &d);
    if (s == OK) check(&d);
    if (s == OK)
        s = compat ? compat_diff(&d, f->a, f->page, &theirs)
                   : diff_report(&d, f->a, f->page, sheet);
    diff_free(&d);
    return s;
}

static Status look(Fuzz *f)
{
    static const TreeOptions how = { .link = LINK_CORRELATION };
    Events e[DIFF_SIDES] = { 0 };
    Tree tree[DIFF_SIDES] = { 0 };
    Status s = OK;
    const bool compat = f->bytes % 2 == 1;
    for (int i = 0; i < DIFF_SIDES && s == OK; i++) {
        const FuzzPart part = i == 0 ? fuzz_part(f, "\n%%\n") : (FuzzPart){ f->data, f->bytes };
        const char *path = fuzz_file(i == 0 ? "old.json" : "new.json", part.data, part.bytes);
        s = events_read(path, &(EventsOptions){ .threads = 1 }, &e[i]);
        if (s == OK) s = tree_build(&e[i], &how, f->a, &tree[i]);
    }
    if (s == OK) s = compare(tree, compat, f);
    for (int i = 0; i < DIFF_SIDES; i++) events_free(&e[i]);
    return s;
}

const Fuzzer fuzzer = { .look = look };
