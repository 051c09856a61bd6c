/*
 * tree: who called what: host calls by nesting, device work by its launch.
 *
 * Every host event of a thread hangs under the one that encloses it; every device event under the
 * runtime call that launched it.
 */
#ifndef ANALYZE_TREE_H
#define ANALYZE_TREE_H

#include "analyze/events.h"

typedef enum TreeLink {
    LINK_CORRELATION, /* a device event belongs to the call with its correlation: never ambiguous */
    LINK_AC2G         /* as TraceLens: only where both ends of an arrow are there */
} TreeLink;

typedef struct TreeOptions {
    TreeLink link;
    bool python;        /* frames of Python are nodes */
    bool drop_crossing; /* drop calls that end after their caller, instead of cutting them; and of
                           calls that begin together the first in the file is the caller */
} TreeOptions;

typedef struct Tree {
    const Events *events;
    /* By event; EVENT_NONE: none. */
    uint32_t *parent;
    /* Children of event i, by time: child[first[i]] ... child[first[i + 1] - 1]. */
    uint32_t *first, *child;
    /* Device events below event i (of whole subtrees), by time: gpu[gpu_first[i]] ...
     * gpu[gpu_first[i + 1] - 1]. */
    uint32_t *gpu_first, *gpu;
    uint32_t *root; /* roots of the host's threads, by time */
    int64_t roots;
    bool *recompute; /* inside activation recomputation; NULL without frames of Python */
    /* Left out, always printed where not 0. */
    int64_t unlinked; /* device events without a launch in the trace */
    int64_t dropped;  /* host events that overlap the end of their caller (drop_crossing), or that
                         were cut to it, or that lie deeper than 4,096 calls */
    Arena *own;
} Tree;

Status tree_build(const Events *e, const TreeOptions *o, Arena *a, Tree *out);

/* The operator that launched device event i: the next cpu_op above its runtime call, or that call
 * itself; EVENT_NONE if it is not linked. */
uint32_t tree_launcher(const Tree *t, int64_t i);

#endif
