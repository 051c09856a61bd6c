/* diff_text: the merged tree of two traces as text, drawn like the output of tree(1). Calls that
 * only one trace has are marked with that trace's name. The format is that of TraceLens'
 * merged_tree_output.txt. */
#include "diff/diff.h"

#include <string.h>

int diff_only_in(const DiffNode *n)
{
    if (n->event[DIFF_OLD] == EVENT_NONE) return 2;
    return n->event[DIFF_NEW] == EVENT_NONE ? 1 : 0;
}

/* Names of kernels may be longer than a formatted line (file_printf). */
static Status write_names(File *out, const char *before, const char *name, const char *between,
                          const char *other)
{
    const char *part[] = { before, name, between, other, "\n" };
    for (int i = 0; i < 5; i++) TRY(file_write(out, part[i], strlen(part[i])));
    return OK;
}

/* Writes a node's line. path: room for the node's ancestors; an ancestor that is the last child has
 * no bar. */
static Status write_line(const Diff *d, uint32_t id, const bool *last, uint32_t *path, File *out)
{
    const DiffNode *n = &d->node[id];
    const char *name[DIFF_SIDES] = { "", "" };
    int64_t depth = 0;
    for (uint32_t up = n->parent; up != EVENT_NONE; up = d->node[up].parent) path[depth++] = up;
    while (depth-- > 0) TRY(file_printf(out, last[path[depth]] ? "    " : "│   "));
    for (int s = 0; s < DIFF_SIDES; s++) {
        if (n->event[s] != EVENT_NONE) name[s] = event_name(d->tree[s]->events, n->event[s]);
    }
    TRY(file_printf(out, last[id] ? "└── " : "├── "));
    switch (diff_only_in(n)) {
    case 1: return write_names(out, ">> trace1: ", name[DIFF_OLD], "", "");
    case 2: return write_names(out, "<< trace2: ", name[DIFF_NEW], "", "");
    default: break;
    }
    if (strcmp(name[DIFF_OLD], name[DIFF_NEW]) == 0) return write_names(out, *name, "", "", "");
    return write_names(out, "combined: ", name[DIFF_OLD], " | ", name[DIFF_NEW]);
}

/* The stack takes children in reverse, so the first one is written next. The first one pushed is
 * the last child. */
Status diff_text(const Diff *d, Arena *scratch, File *out)
{
    ArenaMark mark = arena_mark(scratch);
    bool *last = NULL;
    uint32_t *path = NULL, *stack = NULL;
    int64_t n = 0;
    TRY(ARENA_ZEROED(scratch, d->nodes, &last));
    TRY(ARENA_NEW(scratch, d->nodes, &path));
    TRY(ARENA_NEW(scratch, d->nodes + 1, &stack));
    for (int64_t i = d->roots - 1; i >= 0; i--) stack[n++] = d->root[i];
    if (n > 0) last[stack[0]] = true;
    while (n > 0) {
        uint32_t id = stack[--n];
        const DiffNode *node = &d->node[id];
        int64_t below = n;
        TRY(write_line(d, id, last, path, out));
        for (int kind = 2; kind >= 0; kind--) {
            for (int64_t c = (int64_t)node->children - 1; c >= 0; c--) {
                uint32_t child = d->child[node->first + c];
                if (diff_only_in(&d->node[child]) == kind) stack[n++] = child;
            }
        }
        if (n > below) last[stack[below]] = true;
    }
    arena_release(scratch, mark);
    return OK;
}
