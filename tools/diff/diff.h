/*
 * diff: two traces as one tree: which call of the old trace is which call of the new one, and what
 * only one of them has.
 *
 * Nodes are matched from the roots downward. Their children that lead to device work are aligned by
 * name (diff_align.c). What is left over is tried again without wrappers, which are calls that only
 * one trace puts around the same work. DiffRules say what counts as the same call.
 *
 *     diff         the matching            diff_align   two lists against each other
 *     diff_report  times, as sheets        diff_text    the merged tree as text
 *
 * Both trees must outlive the Diff: nodes hold event numbers, not copies.
 */
#ifndef DIFF_DIFF_H
#define DIFF_DIFF_H

#include "traces/read/tree.h"
#include "traces/table/group.h"
#include "traces/table/table.h"

/* Index of a side: the first trace is the old one. */
enum { DIFF_OLD, DIFF_NEW, DIFF_SIDES };

enum {
    DIFF_PAIRS_MAX =
        1000000,          /* above this many pairs of unmatched calls, pairs are not tried singly */
    DIFF_CELLS = 4000000, /* lists with a larger product of lengths are aligned in windows */
    DIFF_WINDOW = 1000    /* entries of a window: a longer gap in one list is not bridged */
};

/* A call or device event that is in both traces, or in one of them. */
typedef struct DiffNode {
    uint32_t event[DIFF_SIDES]; /* EVENT_NONE: not in that trace */
    uint32_t parent;            /* node; EVENT_NONE: a root */
    uint32_t first, children;   /* its children are nodes child[first] ... */
} DiffNode;

/* Names without what differs from run to run: addresses, line numbers. plain[side][string of the
 * trace] is a number of `text`, or UINT32_MAX for a string that is not a name. bare is the same,
 * without the function of a Python frame. */
typedef struct DiffNames {
    Strings text;
    uint32_t *plain[DIFF_SIDES], *bare[DIFF_SIDES];
} DiffNames;

/* The merged tree. */
typedef struct Diff {
    const Tree *tree[DIFF_SIDES];
    const struct DiffRules *rules;
    DiffNames names;
    /* A node comes before its children; children are in the order of their numbers. */
    DiffNode *node;
    uint32_t *child, *root;
    int64_t nodes, children, roots;
} Diff;

/* Matches two trees that were built with the same options. rules NULL: our own. Nodes lie in `a`;
 * what is taken from `scratch` is given back. */
Status diff_trees(const Tree *old, const Tree *new, const struct DiffRules *rules, Arena *a,
                  Arena *scratch, Diff *out);
void diff_free(Diff *d); /* safe on { 0 } */

/* Writes the tree as text: matched children first, then those of the old trace, then those of the
 * new one. */
Status diff_text(const Diff *d, Arena *scratch, File *out);

/* Time gained and lost. A device event belongs to the deepest matched operator above it, else to
 * the matched root. So the rows of DIFF_OPS add up to all work that is linked. Work under roots
 * that only one trace has is not among them; it is in DIFF_WORK alone. */
typedef enum DiffSheet {
    DIFF_TOTALS,
    DIFF_OPS,     /* by operator */
    DIFF_ARGS,    /* by operator and arguments */
    DIFF_KERNELS, /* operators that run other kernels */
    DIFF_WORK,    /* calls in one trace only, the topmost of each tree */
    DIFF_HOST,    /* the host's time by operator */
    DIFF_SHEETS
} DiffSheet;
Status diff_report(const Diff *d, Arena *a, Arena *scratch, Table out[DIFF_SHEETS]);

/* ---- what the parts of diff share ---- */

/* Indices into both lists; -1: the entry is in the other list only. */
typedef struct DiffPair {
    int64_t i, j;
} DiffPair;

/* Calls of one side, in the order in which they are matched. */
typedef struct DiffList {
    uint32_t *at; /* events */
    int64_t n;
} DiffList;

/* An alignment of two lists: each entry of both is in one pair. */
typedef struct DiffPairs {
    DiffPair *at;
    int64_t n;
} DiffPairs;

/* How calls are matched. A function that is NULL changes nothing. */
typedef struct DiffRules {
    /* Costs of an alignment: a call in one list only; two calls of different names, which then
     * do not match; two of one name with different arguments or children. */
    int32_t gap, other_name, unlike;
    /* The name that a call is matched by; it returns NULL to keep the call's own name. */
    const char *(*verb)(EventKind kind, const char *name);
    bool any_function; /* cut ": function" off any name, not only off frames of Python */
    bool by_position;  /* match lists of one length by position, unless they have launches */
    bool wrappers_go;  /* an opened wrapper is not in the merged tree, even if nothing matched */
    bool replaced;     /* pair unmatched calls between two matches by kind and sizes */
    /* Lists and pairs all roots. NULL: threads are paired, and their roots aligned by name. */
    Status (*roots)(const Diff *d, Arena *scratch, DiffList list[DIFF_SIDES], DiffPairs *p);
    /* Marks more wrappers among the unmatched calls; below[side][i]: children of call i. */
    void (*open_more)(const Diff *d, const DiffList rest[DIFF_SIDES], DiffList *const below[],
                      bool *const opened[]);
    /* Changes an alignment after it is made. */
    Status (*align_more)(const Diff *d, const DiffList list[DIFF_SIDES], Arena *a, DiffPairs *p);
} DiffRules;

/* 1: only the old trace has the node; 2: only the new one; 0: both. */
int diff_only_in(const DiffNode *n);
/* The number of an event's name in DiffNames.text. */
uint32_t diff_name(const Diff *d, int side, uint32_t event, bool bare);
const char *diff_sizes(const Events *e, uint32_t event); /* of its arguments; "": unknown */
bool diff_has_work(const Tree *t, uint32_t event);       /* device work, or with some below it */
/* A call that launches. The launch of a graph is none: it is like an operator, with all its kernels
 * below. */
bool diff_launches(const Events *e, uint32_t event);
/* Can the call stand around others? Kernels and launches cannot. */
bool diff_can_wrap(const Events *e, uint32_t event);
/* Have both lists the same names in the same order? False for empty lists. */
bool diff_same_names(const Diff *d, const DiffList *a, const DiffList *b);
/* Pairs entry i with entry i. */
Status diff_by_position(const DiffList list[DIFF_SIDES], Arena *a, DiffPairs *out);
/* Aligns two lists by name, or by bare name. The pairs have the order of both lists, and lie in
 * `a`. */
Status diff_align(const Diff *d, const DiffList list[DIFF_SIDES], bool bare, Arena *a,
                  DiffPairs *out);

#endif
