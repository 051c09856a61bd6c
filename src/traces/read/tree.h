/* tree: who called what. A host event hangs under the host event of its thread that encloses it. A
 * device event hangs under the runtime call that launched it. Times are not added up here: see
 * report.h. */
#ifndef TRACES_READ_TREE_H
#define TRACES_READ_TREE_H

#include "traces/read/events.h"

/* How device events find their launch. */
typedef enum TreeLink {
    LINK_CORRELATION, /* a device event belongs to the last call of its process before it that has
                         its correlation; 0 is none */
    LINK_AC2G         /* as in TraceLens: only if both ends of an arrow are in the trace */
} TreeLink;

/* How a tree is built. */
typedef struct TreeOptions {
    TreeLink link;
    bool python;        /* Python frames are nodes too */
    bool drop_crossing; /* drop calls that end after their caller, instead of cutting them. Of
                           calls that begin together, the first in the file is the caller */
} TreeOptions;

/* All arrays are in `own`. Numbers are those of events. */
typedef struct Tree {
    const Events *events;
    /* By event; EVENT_NONE: none. */
    uint32_t *parent;
    /* Children of event i, by time: child[first[i]] ... child[first[i + 1] - 1]. */
    uint32_t *first, *child;
    /* Device events in the subtree of event i, by time: gpu[gpu_first[i]] ...
     * gpu[gpu_first[i + 1] - 1]. */
    uint32_t *gpu_first, *gpu;
    uint32_t *root; /* roots of the host's threads, by time */
    int64_t roots;
    bool *recompute; /* inside activation recomputation; NULL without frames of Python */
    /* What was left out. Every command prints what is not 0. */
    int64_t unlinked;  /* device events without a launch in the trace */
    int64_t guessed;   /* device events that launches of several processes fit, and none better */
    int64_t early;     /* device events that start before their launch: the clocks differ */
    double early_us;   /* by how much, at most */
    int64_t processes; /* that make calls */
    int64_t dropped;   /* host events that overlap the end of their caller (drop_crossing), or that
                         were cut to it, or that lie deeper than 4,096 calls */
    Arena *own;
} Tree;

/* Builds the tree of all events. It lies in `a`; events must outlive it. */
Status tree_build(const Events *e, const TreeOptions *o, Arena *a, Tree *out);

/* The operator that launched device event i: the nearest cpu_op above its runtime call, else that
 * call itself. EVENT_NONE: the event is not linked. */
uint32_t tree_launcher(const Tree *t, int64_t i);

#endif
