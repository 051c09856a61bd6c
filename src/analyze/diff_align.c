/*
 * diff_align: two lists of calls against each other, by name.
 *
 * The fewest edits (Wagner & Fischer, "The String-to-String Correction Problem", 1974), where only
 * equal names can be matched. The default prefers, among calls of the same name, those with the same
 * arguments and children. TraceLens counts a replaced name as one edit, which it then cannot use, and
 * matches calls that occur more than once anew by what is below them (`regroup`).
 */
#include "analyze/diff.h"

#include <stdlib.h>
#include <string.h>

enum { LEVELS = 4, REGROUP_MAX = 1000000 };

typedef struct Item {
    uint32_t name, like; /* like: of its arguments and children */
} Item;

typedef struct Costs {
    int32_t gap, replaced, unlike;
} Costs;

/* ---- the fewest edits ---- */

static int32_t cost(const Costs *c, Item a, Item b)
{
    if (a.name != b.name) return c->replaced;
    return a.like == b.like ? 0 : c->unlike;
}

/* Where the alignment of two lists that go on behind their ends stops: at the end of one of them,
 * with the fewest edits an entry. (Lists that repeat themselves fit as well when shifted; to count
 * what is left of the other list as edits would hide that.) */
static DiffPair cheapest_end(const int32_t *d, int64_t m, int64_t n)
{
    DiffPair best = { m, n };
    double least = (double)d[m * (n + 1) + n] / (double)(m + n);
    for (int64_t k = 1; k < m + n; k++) {
        DiffPair at = k < n ? (DiffPair){ m, n - k } : (DiffPair){ m + n - k, n };
        double each = (double)d[at.i * (n + 1) + at.j] / (double)(at.i + at.j);
        if (each < least) best = at, least = each;
    }
    return best;
}

/* A part of both lists: from `at`, m and n entries. open: both go on behind it. */
typedef struct Part {
    const Item *a, *b;
    int64_t m, n;
    DiffPair at;
    bool open;
} Part;

/* Appends m + n entries at most, in order, with at's indices added. */
static Status fewest_edits(const Costs *c, const Part *part, Arena *scratch, DiffPairs *out)
{
    const Item *a = part->a, *b = part->b;
    int64_t m = part->m, n = part->n;
    DiffPair at = part->at;
    ArenaMark mark = arena_mark(scratch);
    int32_t *d = NULL;
    int64_t w = n + 1, first = out->n;
    TRY(ARENA_NEW(scratch, (m + 1) * w, &d));
    for (int64_t k = 0; k <= n; k++) d[k] = (int32_t)k * c->gap;
    for (int64_t p = 1; p <= m; p++) {
        int32_t *row = d + p * w, *above = row - w;
        row[0] = (int32_t)p * c->gap;
        for (int64_t q = 1; q <= n; q++) {
            int32_t best = above[q - 1] + cost(c, a[p - 1], b[q - 1]);
            if (above[q] + c->gap < best) best = above[q] + c->gap;
            if (row[q - 1] + c->gap < best) best = row[q - 1] + c->gap;
            row[q] = best;
        }
    }
    DiffPair end = part->open ? cheapest_end(d, m, n) : (DiffPair){ m, n };
    for (int64_t i = end.i, j = end.j; i > 0 || j > 0;) {
        const int32_t *here = d + i * w + j;
        if (i > 0 && j > 0 && a[i - 1].name == b[j - 1].name &&
            *here == here[-w - 1] + cost(c, a[i - 1], b[j - 1]))
            i--, j--, out->at[out->n++] = (DiffPair){ at.i + i, at.j + j };
        else if (i > 0 && (j == 0 || *here == here[-w] + c->gap))
            i--, out->at[out->n++] = (DiffPair){ at.i + i, -1 };
        else
            j--, out->at[out->n++] = (DiffPair){ -1, at.j + j };
    }
    for (int64_t lo = first, hi = out->n - 1; lo < hi; lo++, hi--) {
        DiffPair swap = out->at[lo];
        out->at[lo] = out->at[hi];
        out->at[hi] = swap;
    }
    arena_release(scratch, mark);
    return OK;
}

/* How much of a window's result stands: all at the end of both lists, else up to the last match of
 * its first three quarters, so that what comes behind the window can still change the rest. */
static int64_t settled(const DiffPairs *p, int64_t first, bool last)
{
    int64_t n = p->n - first, end = last ? n : n * 3 / 4;
    if (last) return p->n;
    while (end > 0 && (p->at[first + end - 1].i < 0 || p->at[first + end - 1].j < 0)) end--;
    return first + (end > 0 ? end : n / 2 > 0 ? n / 2 : n);
}

static Status in_windows(const Costs *c, const Item *a, int64_t m, const Item *b, int64_t n,
                         Arena *scratch, DiffPairs *out)
{
    DiffPair at = { 0, 0 };
    while (at.i < m || at.j < n) {
        if (at.i < m && at.j < n && cost(c, a[at.i], b[at.j]) == 0) {
            out->at[out->n++] = at;
            at.i++, at.j++;
            continue;
        }
        int64_t p = m - at.i, q = n - at.j, first = out->n;
        bool last = p == 0 || q == 0 || (p <= DIFF_WINDOW && q <= DIFF_WINDOW);
        if (p > 0 && q > 0) {
            p = p < DIFF_WINDOW ? p : DIFF_WINDOW;
            q = q < DIFF_WINDOW ? q : DIFF_WINDOW;
        }
        TRY(fewest_edits(c, &(Part){ a + at.i, b + at.j, p, q, at, !last }, scratch, out));
        out->n = settled(out, first, last);
        for (int64_t k = first; k < out->n; k++) {
            if (out->at[k].i >= 0) at.i = out->at[k].i + 1;
            if (out->at[k].j >= 0) at.j = out->at[k].j + 1;
        }
    }
    return OK;
}

/* ---- the same name more than once ---- */

/* Sorted names of a node's descendants on the way to device work, level by level. */
typedef struct Below {
    uint32_t *name[LEVELS];
    int64_t n[LEVELS];
    int levels;
} Below;

typedef struct Scored {
    int32_t depth, overlap;
    bool before; /* they were matched by order */
    int64_t i, j;
} Scored;

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

static Status look_below(const Diff *d, int side, uint32_t event, Arena *scratch, Below *out)
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
                if (!diff_on_way(t, t->child[c])) continue;
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

/* Levels that are alike before the first that is not, and what that one has in common. */
static void score(const Below *a, const Below *b, Scored *out)
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

/* Where the result of `regroup` grows. */
typedef struct Regroup {
    const Diff *d;
    const DiffList *list;
    int64_t *partner;          /* by entry of the first list: as matched by order, or -1 */
    bool *handled[DIFF_SIDES]; /* by entry */
    int64_t *matched;          /* by entry of the first list: anew */
    bool *taken;               /* by entry of the second */
    bool changed;
} Regroup;

/* Entries of one name: pairs that are most alike below are matched first. */
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
        TRY(look_below(r->d, DIFF_OLD, r->list[DIFF_OLD].at[x[i].at], scratch, &a[i]));
    for (int64_t j = 0; j < n; j++)
        TRY(look_below(r->d, DIFF_NEW, r->list[DIFF_NEW].at[y[j].at], scratch, &b[j]));
    for (int64_t k = 0; k < m * n; k++) {
        int64_t i = k / n, j = k % n;
        pair[k] = (Scored){ .before = r->partner[x[i].at] == y[j].at, .i = x[i].at, .j = y[j].at };
        score(&a[i], &b[j], &pair[k]);
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

/* Pairs of names that were handled go, and come back behind the others: matches, then the rest. */
static void regrouped(const Regroup *r, DiffPairs *p)
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

/* TraceLens: calls of one name, several in at least one list, of which any was matched. */
static Status regroup(const Diff *d, const DiffList list[DIFF_SIDES], Arena *scratch, DiffPairs *p)
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
    bool *used = NULL; /* entries of the second list that are matched */
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
    if (r.changed) regrouped(&r, p);
    arena_release(scratch, mark);
    return OK;
}

/* ---- both ---- */

/* A number of the arguments' sizes and the names of what is below; 0 in TraceLens' rules. */
static uint32_t likeness(const Diff *d, int side, uint32_t event)
{
    const Tree *t = d->tree[side];
    const Events *e = t->events;
    uint32_t h = 2166136261U;
    if (d->compat) return 0;
    for (const char *s = diff_sizes(e, event); *s != 0; s++)
        h = (h ^ (unsigned char)*s) * 16777619U;
    for (uint32_t c = t->first[event]; c < t->first[event + 1]; c++) {
        if (diff_on_way(t, t->child[c]))
            h = (h ^ diff_name(d, side, t->child[c], false)) * 16777619U;
    }
    return h;
}

Status diff_align(const Diff *d, const DiffList list[DIFF_SIDES], bool bare, Arena *a,
                  DiffPairs *out)
{
    const Costs costs = d->compat ? (Costs){ 1, 1, 0 } : (Costs){ 2, 5, 1 };
    int64_t m = list[DIFF_OLD].n, n = list[DIFF_NEW].n;
    Item *item[DIFF_SIDES] = { NULL };
    TRY(ARENA_NEW(a, m + n + 2 * (int64_t)DIFF_WINDOW,
                  &out->at)); /* a window writes before it is cut */
    ArenaMark mark = arena_mark(a);
    for (int s = 0; s < DIFF_SIDES; s++) {
        TRY(ARENA_NEW(a, list[s].n, &item[s]));
        for (int64_t i = 0; i < list[s].n; i++)
            item[s][i] =
                (Item){ diff_name(d, s, list[s].at[i], bare), likeness(d, s, list[s].at[i]) };
    }
    out->n = 0;
    if (m > 0 && n > 0 && m > DIFF_CELLS / n)
        TRY(in_windows(&costs, item[DIFF_OLD], m, item[DIFF_NEW], n, a, out));
    else
        TRY(fewest_edits(&costs, &(Part){ item[DIFF_OLD], item[DIFF_NEW], m, n, { 0, 0 }, false },
                         a, out));
    if (d->compat) TRY(regroup(d, list, a, out));
    arena_release(a, mark);
    return OK;
}
