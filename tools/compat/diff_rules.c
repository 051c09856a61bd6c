/*
 * compat/diff_rules: how TraceLens matches two traces, as DiffRules.
 *
 * Roots, and lists of equal length, are matched by position. Other lists are aligned by name. Then
 * calls whose name occurs more than once are matched again by the names below them (regroup_calls).
 * Tables are made in compat/diff.c.
 */
#include "compat/compat.h"

#include <stdlib.h>
#include <string.h>

/* LEVELS: how deep regroup_calls looks, as in TraceLens. REGROUP_MAX: with more pairs of one name,
 * the alignment stays. */
enum { LEVELS = 4, REGROUP_MAX = 1000000 };

/* HIP's and CUDA's module launches are one call; other launches keep their vendor's names. */
static const char *launch_verb(EventKind kind, const char *name)
{
    (void)kind;
    bool launch = strcmp(name, "hipModuleLaunchKernel") == 0 || strcmp(name, "cuLaunchKernel") == 0;
    return launch ? "__kernel_launch__" : NULL;
}

/* Pairs the operators that no other operator calls, by position. An operator that only launches a
 * graph stands for the graph. */
static Status roots_by_position(const Diff *d, Arena *scratch, DiffList list[DIFF_SIDES],
                                DiffPairs *p)
{
    for (int s = 0; s < DIFF_SIDES; s++) {
        const Tree *t = d->tree[s];
        list[s].n = 0;
        TRY(ARENA_NEW(scratch, t->roots, &list[s].at));
        for (int64_t i = 0; i < t->roots; i++) {
            uint32_t at = t->root[i];
            if (t->events->kind[at] != EVENT_CPU_OP) continue;
            while (t->first[at + 1] - t->first[at] == 1) {
                uint32_t child = t->child[t->first[at]];
                if (!event_on_gpu(t->events->kind[child]) &&
                    !event_is_graph_launch(t->events, child))
                    break;
                at = child;
            }
            list[s].at[list[s].n++] = at;
        }
    }
    return diff_by_position(list, scratch, p);
}

/* Marks two unmatched calls as wrappers if they have the same children. */
static void open_alike(const Diff *d, const DiffList rest[DIFF_SIDES], DiffList *const below[],
                       bool *const opened[])
{
    if (rest[DIFF_NEW].n > DIFF_PAIRS_MAX / rest[DIFF_OLD].n) return;
    for (int64_t k = 0; k < rest[DIFF_OLD].n * rest[DIFF_NEW].n; k++) {
        int64_t i = k / rest[DIFF_NEW].n, j = k % rest[DIFF_NEW].n;
        if (!diff_can_wrap(d->tree[DIFF_OLD]->events, rest[DIFF_OLD].at[i]) ||
            !diff_can_wrap(d->tree[DIFF_NEW]->events, rest[DIFF_NEW].at[j]) ||
            !diff_same_names(d, &below[DIFF_OLD][i], &below[DIFF_NEW][j]))
            continue;
        opened[DIFF_OLD][i] = opened[DIFF_NEW][j] = true;
    }
}

/* ---- the same name more than once ---- */

/* The names of a node's descendants that lead to device work, by level. Each level is sorted. */
typedef struct Below {
    uint32_t *name[LEVELS];
    int64_t n[LEVELS];
    int levels;
} Below;

/* A possible pair of calls, and how much alike they are (score_pair). */
typedef struct Scored {
    int32_t depth, overlap;
    bool before;  /* the alignment matched them */
    int64_t i, j; /* indices in the lists */
} Scored;

/* An entry of a list, for sorting by name. */
typedef struct Named {
    uint32_t name;
    int64_t at;
} Named;

static int by_name(const void *a, const void *b)
{
    const Named *x = a, *y = b;
    if (x->name != y->name) return x->name < y->name ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

static int by_score(const void *a, const void *b)
{
    const Scored *x = a, *y = b;
    if (x->depth != y->depth) return x->depth > y->depth ? -1 : 1;
    if (x->overlap != y->overlap) return x->overlap > y->overlap ? -1 : 1;
    if (x->before != y->before) return x->before ? -1 : 1;
    if (x->i != y->i) return x->i < y->i ? -1 : 1;
    return (x->j > y->j) - (x->j < y->j);
}

/* Lists the names below an event, LEVELS deep. */
static Status list_names_below(const Diff *d, int side, uint32_t event, Arena *scratch, Below *out)
{
    const Tree *t = d->tree[side];
    uint32_t *from = NULL;
    int64_t n = 1;
    memset(out, 0, sizeof *out);
    TRY(ARENA_NEW(scratch, 1, &from));
    from[0] = event;
    while (out->levels < LEVELS && n > 0) {
        int64_t room = 0, k = 0;
        uint32_t *next = NULL, *name = NULL;
        for (int64_t i = 0; i < n; i++) room += t->first[from[i] + 1] - t->first[from[i]];
        TRY(ARENA_NEW(scratch, room, &next));
        TRY(ARENA_NEW(scratch, room, &name));
        for (int64_t i = 0; i < n; i++) {
            for (uint32_t c = t->first[from[i]]; c < t->first[from[i] + 1]; c++) {
                if (!diff_has_work(t, t->child[c])) continue;
                name[k] = diff_name(d, side, t->child[c], false);
                next[k++] = t->child[c];
            }
        }
        sort_ids(name, k);
        out->name[out->levels] = name;
        out->n[out->levels++] = k;
        from = next;
        n = k;
    }
    return OK;
}

/* depth: how many levels are equal. overlap: how many names the first different level has in
 * common. */
static void score_pair(const Below *a, const Below *b, Scored *out)
{
    int levels = a->levels > b->levels ? a->levels : b->levels;
    out->overlap = 0;
    for (out->depth = 0; out->depth < levels; out->depth++) {
        int l = out->depth;
        int64_t n = a->n[l], m = b->n[l], i = 0, j = 0;
        if (n == m && (n == 0 || memcmp(a->name[l], b->name[l], (size_t)n * 4) == 0)) continue;
        while (i < n && j < m) {
            uint32_t x = a->name[l][i], y = b->name[l][j];
            out->overlap += x == y;
            i += x <= y;
            j += y <= x;
        }
        return;
    }
}

/* What regroup_calls knows of the entries of both lists. */
typedef struct Regroup {
    const Diff *d;
    const DiffList *list;
    int64_t *partner; /* partner[old entry]: the new entry that the alignment matched; -1 */
    bool *handled[DIFF_SIDES]; /* its name was matched again */
    int64_t *matched;          /* matched[old entry]: the new entry that it has now; -1 */
    bool *taken;               /* taken[new entry]: some old entry has it now */
    bool changed;
} Regroup;

/* Matches the entries of one name again. Pairs that are most alike below come first. */
static Status regroup_name(Regroup *r, const Named *x, int64_t m, const Named *y, int64_t n,
                           Arena *scratch)
{
    ArenaMark mark = arena_mark(scratch);
    Below *a = NULL, *b = NULL;
    Scored *pair = NULL;
    TRY(ARENA_NEW(scratch, m, &a));
    TRY(ARENA_NEW(scratch, n, &b));
    TRY(ARENA_NEW(scratch, m * n, &pair));
    for (int64_t i = 0; i < m; i++)
        TRY(list_names_below(r->d, DIFF_OLD, r->list[DIFF_OLD].at[x[i].at], scratch, &a[i]));
    for (int64_t j = 0; j < n; j++)
        TRY(list_names_below(r->d, DIFF_NEW, r->list[DIFF_NEW].at[y[j].at], scratch, &b[j]));
    for (int64_t k = 0; k < m * n; k++) {
        int64_t i = k / n, j = k % n;
        pair[k] = (Scored){ .before = r->partner[x[i].at] == y[j].at, .i = x[i].at, .j = y[j].at };
        score_pair(&a[i], &b[j], &pair[k]);
    }
    qsort(pair, (size_t)(m * n), sizeof *pair, by_score);
    for (int64_t i = 0; i < m; i++) r->handled[DIFF_OLD][x[i].at] = true;
    for (int64_t j = 0; j < n; j++) r->handled[DIFF_NEW][y[j].at] = true;
    for (int64_t k = 0; k < m * n; k++) {
        if (r->matched[pair[k].i] >= 0 || r->taken[pair[k].j]) continue;
        r->matched[pair[k].i] = pair[k].j;
        r->taken[pair[k].j] = true;
        r->changed |= !pair[k].before;
    }
    arena_release(scratch, mark);
    return OK;
}

/* Moves the pairs of handled names after the others: first matches, then entries without a
 * partner. */
static void reorder_pairs(const Regroup *r, DiffPairs *p)
{
    int64_t kept = 0;
    for (int64_t k = 0; k < p->n; k++) {
        DiffPair one = p->at[k];
        if (one.i >= 0 && r->handled[DIFF_OLD][one.i]) continue;
        if (one.j >= 0 && r->handled[DIFF_NEW][one.j]) continue;
        p->at[kept++] = one;
    }
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < r->list[DIFF_OLD].n; i++) {
            if (r->handled[DIFF_OLD][i] && (r->matched[i] < 0) == (pass == 1))
                p->at[kept++] = (DiffPair){ i, r->matched[i] };
        }
    }
    for (int64_t j = 0; j < r->list[DIFF_NEW].n; j++) {
        if (r->handled[DIFF_NEW][j] && !r->taken[j]) p->at[kept++] = (DiffPair){ -1, j };
    }
    p->n = kept;
}

/* Matches the calls of a name again if it has several calls in a list and any of them was matched.
 * Both lists are sorted by name and walked together. */
static Status regroup_calls(const Diff *d, const DiffList list[DIFF_SIDES], Arena *scratch,
                            DiffPairs *p)
{
    ArenaMark mark = arena_mark(scratch);
    Regroup r = { .d = d, .list = list };
    Named *named[DIFF_SIDES] = { NULL };
    for (int s = 0; s < DIFF_SIDES; s++) {
        TRY(ARENA_NEW(scratch, list[s].n, &named[s]));
        TRY(ARENA_ZEROED(scratch, list[s].n, &r.handled[s]));
        for (int64_t i = 0; i < list[s].n; i++)
            named[s][i] = (Named){ diff_name(d, s, list[s].at[i], false), i };
        if (list[s].n > 0) qsort(named[s], (size_t)list[s].n, sizeof **named, by_name);
    }
    TRY(ARENA_NEW(scratch, list[DIFF_OLD].n, &r.partner));
    TRY(ARENA_NEW(scratch, list[DIFF_OLD].n, &r.matched));
    TRY(ARENA_ZEROED(scratch, list[DIFF_NEW].n, &r.taken));
    bool *used = NULL; /* used[new entry]: the alignment matched it */
    TRY(ARENA_ZEROED(scratch, list[DIFF_NEW].n, &used));
    for (int64_t i = 0; i < list[DIFF_OLD].n; i++) r.partner[i] = r.matched[i] = -1;
    for (int64_t k = 0; k < p->n; k++) {
        if (p->at[k].i < 0 || p->at[k].j < 0) continue;
        r.partner[p->at[k].i] = p->at[k].j;
        used[p->at[k].j] = true;
    }
    const Named *x = named[DIFF_OLD], *y = named[DIFF_NEW];
    const Named *x_end = x + list[DIFF_OLD].n, *y_end = y + list[DIFF_NEW].n;
    while (x < x_end && y < y_end) {
        int64_t m = 1, n = 1;
        bool any = false;
        if (x->name != y->name) {
            x->name < y->name ? x++ : y++;
            continue;
        }
        while (x + m < x_end && x[m].name == x->name) m++;
        while (y + n < y_end && y[n].name == y->name) n++;
        for (int64_t i = 0; i < m; i++) any |= r.partner[x[i].at] >= 0;
        for (int64_t j = 0; j < n; j++) any |= used[y[j].at];
        if (any && (m > 1 || n > 1) && m * n <= REGROUP_MAX)
            TRY(regroup_name(&r, x, m, y, n, scratch));
        x += m;
        y += n;
    }
    if (r.changed) reorder_pairs(&r, p);
    arena_release(scratch, mark);
    return OK;
}

const DiffRules compat_diff_rules = {
    .gap = 1,
    .other_name = 1, /* TraceLens counts a replaced name as one edit, but cannot match it */
    .verb = launch_verb,
    .any_function = true,
    .by_position = true,
    .wrappers_go = true,
    .roots = roots_by_position,
    .open_more = open_alike,
    .align_more = regroup_calls,
};
