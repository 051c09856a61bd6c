/*
 * diff_align: aligns two lists of calls by name.
 *
 * It finds the fewest edits (Wagner & Fischer, "The String-to-String Correction Problem", 1974),
 * where only equal names can be matched. With d[i][j] the least cost of aligning the first i and j
 * entries:
 *
 *     d[i][j] = min(d[i-1][j-1] + cost(i, j), d[i-1][j] + gap, d[i][j-1] + gap)
 *
 * Among calls of the same name, those with the same arguments and children are preferred
 * (DiffRules.unlike). It knows nothing of trees but an entry's children: which lists are aligned is
 * up to diff.c.
 */
#include "diff/diff.h"

#include <stdlib.h>
#include <string.h>

/* What an alignment sees of a call. */
typedef struct Item {
    uint32_t name, like; /* like: hash of its arguments and children */
} Item;

/* ---- the fewest edits ---- */

static int32_t edit_cost(const DiffRules *c, Item a, Item b)
{
    if (a.name != b.name) return c->other_name;
    return a.like == b.like ? 0 : c->unlike;
}

/* Decides where to stop aligning two windows of longer lists: at the end of one window, where
 * the cost per entry is lowest. The rest of the other window costs nothing, because its partners
 * may lie after the window. Otherwise a list that repeats itself would fit as well when it is
 * shifted. */
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

/* A part of both lists: m and n entries from `at` on. open: both lists go on after it. */
typedef struct Part {
    const Item *a, *b;
    int64_t m, n;
    DiffPair at;
    bool open;
} Part;

/* Appends at most m + n pairs in order, with the indices of the whole lists. Fills the table of
 * costs, then walks back from the end. Of equal costs it prefers a match, then an entry of the old
 * list; so the result does not depend on anything else. */
static Status fewest_edits(const DiffRules *c, const Part *part, Arena *scratch, DiffPairs *out)
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
            int32_t best = above[q - 1] + edit_cost(c, a[p - 1], b[q - 1]);
            if (above[q] + c->gap < best) best = above[q] + c->gap;
            if (row[q - 1] + c->gap < best) best = row[q - 1] + c->gap;
            row[q] = best;
        }
    }
    DiffPair end = part->open ? cheapest_end(d, m, n) : (DiffPair){ m, n };
    for (int64_t i = end.i, j = end.j; i > 0 || j > 0;) {
        const int32_t *here = d + i * w + j;
        if (i > 0 && j > 0 && a[i - 1].name == b[j - 1].name &&
            *here == here[-w - 1] + edit_cost(c, a[i - 1], b[j - 1]))
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

/* Returns how much of a window's result is kept. At the end of both lists, all of it. Otherwise the
 * part up to the last match in its first three quarters, so that entries after the window can still
 * change the rest. */
static int64_t kept_pairs(const DiffPairs *p, int64_t first, bool last)
{
    int64_t n = p->n - first, end = last ? n : n * 3 / 4;
    if (last) return p->n;
    while (end > 0 && (p->at[first + end - 1].i < 0 || p->at[first + end - 1].j < 0)) end--;
    return first + (end > 0 ? end : n / 2 > 0 ? n / 2 : n);
}

/* Aligns long lists in windows, because the table of costs grows with the product of the lengths.
 * Equal entries at the front are matched without a window. */
static Status align_in_windows(const DiffRules *c, const Item *a, int64_t m, const Item *b,
                               int64_t n, Arena *scratch, DiffPairs *out)
{
    DiffPair at = { 0, 0 };
    while (at.i < m || at.j < n) {
        if (at.i < m && at.j < n && edit_cost(c, a[at.i], b[at.j]) == 0) {
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
        out->n = kept_pairs(out, first, last);
        for (int64_t k = first; k < out->n; k++) {
            if (out->at[k].i >= 0) at.i = out->at[k].i + 1;
            if (out->at[k].j >= 0) at.j = out->at[k].j + 1;
        }
    }
    return OK;
}

/* ---- both ---- */

/* A hash (FNV-1a) of the arguments' sizes and of the children's names. Calls of one name with
 * different hashes can still match, at the cost `unlike`. */
static uint32_t likeness_hash(const Diff *d, int side, uint32_t event)
{
    const Tree *t = d->tree[side];
    const Events *e = t->events;
    uint32_t h = 2166136261U;
    for (const char *s = diff_sizes(e, event); *s != 0; s++)
        h = (h ^ (unsigned char)*s) * 16777619U;
    for (uint32_t c = t->first[event]; c < t->first[event + 1]; c++) {
        if (diff_has_work(t, t->child[c]))
            h = (h ^ diff_name(d, side, t->child[c], false)) * 16777619U;
    }
    return h;
}

Status diff_align(const Diff *d, const DiffList list[DIFF_SIDES], bool bare, Arena *a,
                  DiffPairs *out)
{
    const DiffRules *costs = d->rules;
    int64_t m = list[DIFF_OLD].n, n = list[DIFF_NEW].n;
    Item *item[DIFF_SIDES] = { NULL };
    /* All pairs of a window are written before some are dropped, hence the extra room. */
    TRY(ARENA_NEW(a, m + n + 2 * (int64_t)DIFF_WINDOW, &out->at));
    ArenaMark mark = arena_mark(a);
    for (int s = 0; s < DIFF_SIDES; s++) {
        TRY(ARENA_NEW(a, list[s].n, &item[s]));
        for (int64_t i = 0; i < list[s].n; i++)
            item[s][i] =
                (Item){ diff_name(d, s, list[s].at[i], bare), likeness_hash(d, s, list[s].at[i]) };
    }
    out->n = 0;
    if (m > 0 && n > 0 && m > DIFF_CELLS / n)
        TRY(align_in_windows(costs, item[DIFF_OLD], m, item[DIFF_NEW], n, a, out));
    else
        TRY(fewest_edits(costs, &(Part){ item[DIFF_OLD], item[DIFF_NEW], m, n, { 0, 0 }, false }, a,
                         out));
    if (costs->align_more != NULL) TRY(costs->align_more(d, list, a, out));
    arena_release(a, mark);
    return OK;
}
