/*
 * diff: two traces as one tree: which call of the one is which of the other, what is in one only.
 *
 * Two nodes that are the same call are matched from the roots downward: their children on the way to
 * device work are aligned by name (diff_align.c); what is left over is tried again without wrappers,
 * calls that only one of the traces puts around the same work. DiffRules say what counts as the same.
 */
#ifndef ANALYZE_DIFF_H
#define ANALYZE_DIFF_H

#include "analyze/group.h"
#include "analyze/table.h"
#include "analyze/tree.h"

/* Index of a side: the first trace is the old one. */
enum { DIFF_OLD, DIFF_NEW, DIFF_SIDES };

enum {
    DIFF_PAIRS_MAX = 1000000, /* of left-over calls that are looked at one by one */
    DIFF_CELLS = 4000000,     /* lists whose lengths' product is above are aligned in windows */
    DIFF_WINDOW = 1000 /* entries of each: what one list has more is bridged up to about that */
};

typedef struct DiffNode {
    uint32_t event[DIFF_SIDES]; /* EVENT_NONE: not in that trace */
    uint32_t parent;            /* node; EVENT_NONE: a root */
    uint32_t first, children;   /* child[first], ...: nodes */
} DiffNode;

/* Names of both traces without what differs from run to run: addresses, lines of code. */
typedef struct DiffNames {
    Strings text;
    uint32_t *plain[DIFF_SIDES],
        *bare[DIFF_SIDES]; /* by the trace's string, UINT32_MAX: none. bare:
                                                       a frame of Python without its function */
} DiffNames;

typedef struct Diff {
    const Tree *tree[DIFF_SIDES];
    const struct DiffRules *rules;
    DiffNames names;
    /* A node comes before its children, and children stand in the order of their numbers. */
    DiffNode *node;
    uint32_t *child, *root;
    int64_t nodes, children, roots;
} Diff;

/* Both trees were built with the same options. rules NULL: our own. Nodes lie in `a`; `scratch` is as
 * it was. */
Status diff_trees(const Tree *old, const Tree *new, const struct DiffRules *rules, Arena *a,
                  Arena *scratch, Diff *out);
void diff_free(Diff *d); /* safe on { 0 } */

/* The tree as text: matched children first, then those of the old trace, then the new. */
Status diff_text(const Diff *d, Arena *scratch, File *out);

/* Time gained and lost. Every device event belongs to the deepest matched operator above it, or
 * without one to the matched root, so that rows of DIFF_OPS add up to all that is linked, but for
 * work under roots of one trace, which is in DIFF_WORK alone. */
typedef enum DiffSheet {
    DIFF_TOTALS,
    DIFF_OPS,     /* by operator */
    DIFF_ARGS,    /* by operator and arguments */
    DIFF_KERNELS, /* operators that run other kernels */
    DIFF_WORK,    /* calls that are new or vanished, the topmost */
    DIFF_HOST,    /* the host's time by operator */
    DIFF_SHEETS
} DiffSheet;
Status diff_report(const Diff *d, Arena *a, Arena *scratch, Table out[DIFF_SHEETS]);

/* ---- what the parts of diff share ---- */

/* Indices into both lists, -1: only in the other. */
typedef struct DiffPair {
    int64_t i, j;
} DiffPair;

typedef struct DiffList {
    uint32_t *at; /* events */
    int64_t n;
} DiffList;

typedef struct DiffPairs {
    DiffPair *at;
    int64_t n;
} DiffPairs;

/* How calls are matched. Functions that are NULL do nothing more. */
typedef struct DiffRules {
    /* costs of an alignment: a call in one list only; two of other names, which then do not match; of
     * one name with other arguments or children */
    int32_t gap, other_name, unlike;
    const char *(*verb)(EventKind kind,
                        const char *name); /* what a call is taken for; NULL: its name */
    bool any_function; /* ": function" at the end is left out of any name, not of Python's alone */
    bool by_position;  /* lists of one length without launches are matched by position */
    bool wrappers_go;  /* a wrapper that is opened is in no tree, whether it helps or not */
    bool replaced;     /* what is left over between two matches is paired by kind and sizes */
    /* list and p: all roots; NULL: those of a thread by name */
    Status (*roots)(const Diff *d, Arena *scratch, DiffList list[DIFF_SIDES], DiffPairs *p);
    /* more wrappers among what is left over */
    void (*open_more)(const Diff *d, const DiffList rest[DIFF_SIDES], DiffList *const below[],
                      bool *const opened[]);
    /* changes an alignment */
    Status (*align_more)(const Diff *d, const DiffList list[DIFF_SIDES], Arena *a, DiffPairs *p);
} DiffRules;

int diff_only_in(const DiffNode *n); /* 1 + the only side that has it; 0: both have it */
uint32_t diff_name(const Diff *d, int side, uint32_t event, bool bare);
const char *diff_sizes(const Events *e, uint32_t event); /* of its arguments; "": unknown */
bool diff_on_way(const Tree *t, uint32_t event);         /* device work, or with some below it */
bool diff_is_graph(const Events *e, uint32_t event);     /* launches a graph */
/* A call that launches; one of a graph is like an operator with all its kernels below. */
bool diff_launches(const Events *e, uint32_t event);
bool diff_can_wrap(const Events *e, uint32_t event);
bool diff_same_names(const Diff *d, const DiffList *a, const DiffList *b); /* and not none */
Status diff_by_position(const DiffList list[DIFF_SIDES], Arena *a, DiffPairs *out);
/* Entries of both lists in order, as pairs: what is matched has the same name. In `a`. */
Status diff_align(const Diff *d, const DiffList list[DIFF_SIDES], bool bare, Arena *a,
                  DiffPairs *out);

#endif
