/*
 * diff: walks both call trees from their roots and decides which nodes are the same call.
 *
 * At each pair of nodes, their children are matched in four steps. Each step sees only what the
 * steps before it left over:
 *
 *     match_lists      by name (diff_align.c), or by position where the rules say so
 *     open_wrappers    a call that only one trace has is replaced by its children
 *     match_unwrapped  by what a chain of single calls leads to
 *     match_replaced   by kind and sizes, between two matches
 *
 * No times are compared here: diff_report.c does that. Lists, pairs and marks lie in scratch
 * memory, which is released after each node; nodes lie in the caller's arena.
 */
#include "diff/diff.h"

#include <assert.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ---- */

/* Runtime calls of CUDA and HIP get one name for what they do, so that traces of both vendors
 * match. NULL: the call keeps its name. */
static const char *runtime_verb(EventKind kind, const char *name)
{
    if (kind != EVENT_RUNTIME && kind != EVENT_DRIVER) return NULL;
    if (strncmp(name, "cu", 2) != 0 && strncmp(name, "hip", 3) != 0) return NULL;
    if (strstr(name, "Graph") != NULL)
        return strstr(name, "Launch") != NULL ? "graph launch" : NULL;
    if (strstr(name, "Launch") != NULL) return "launch";
    if (strstr(name, "Memcpy") != NULL) return "copy";
    return strstr(name, "Memset") != NULL ? "fill" : NULL;
}

/* Replaces what differs from run to run: "0x" and its digits become 0xXXXX, and a place in Python
 * "x.py(12):" becomes "x.py:". The result is at most four times as long as `s`. */
static size_t plain_name(const char *s, char *out)
{
    char *o = out;
    while (*s != 0) {
        if (s[0] == '0' && s[1] == 'x' && isxdigit((unsigned char)s[2])) {
            for (s += 2; isxdigit((unsigned char)*s);) s++;
            memcpy(o, "0xXXXX", 6);
            o += 6;
            continue;
        }
        /* Names of Python frames are "FILE.py(LINE): FUNCTION" */
        size_t digits = strncmp(s, ".py(", 4) == 0 ? strspn(s + 4, "0123456789") : 0;
        if (digits > 0 && s[4 + digits] == ')' && s[5 + digits] == ':') {
            memcpy(o, ".py", 3);
            o += 3;
            s += 5 + digits;
            continue;
        }
        *o++ = *s++;
    }
    *o = 0;
    return (size_t)(o - out);
}

/* Cuts ": function" off the end, and the folders off a path that ends in .py. A function that was
 * renamed in the same file then still matches. */
static const char *bare_name(char *s, bool any_function)
{
    char *end = s + strlen(s), *word = end, *gap;
    /* word: the last word, gap: the end of what is before it */
    while (word > s && !isspace((unsigned char)word[-1])) word--;
    for (gap = word; gap > s && isspace((unsigned char)gap[-1]);) gap--;
    if (word < end && gap < word && gap > s && gap[-1] == ':' &&
        (any_function || (gap - s > 4 && strncmp(gap - 4, ".py:", 4) == 0)))
        gap[-1] = 0;
    char *slash = strrchr(s, '/');
    return slash != NULL && text_ends(s, ".py") && slash[1] != '.' ? slash + 1 : s;
}

/* Cleans each name once, since millions of events share few names. 0xFF bytes: not cleaned yet. */
static Status name_strings(Diff *d, int side, Arena *a, Arena *scratch)
{
    const Events *e = d->tree[side]->events;
    DiffNames *names = &d->names;
    TRY(ARENA_NEW(a, e->strings.n, &names->plain[side]));
    TRY(ARENA_NEW(a, e->strings.n, &names->bare[side]));
    memset(names->plain[side], 0xFF, e->strings.n * sizeof(uint32_t));
    for (int64_t i = 0; i < e->n; i++) {
        uint32_t id = e->name[i];
        const char *s = strings_text(&e->strings, id);
        if (names->plain[side][id] != UINT32_MAX) continue;
        ArenaMark mark = arena_mark(scratch);
        char *plain = NULL;
        TRY(ARENA_NEW(scratch, 4 * strlen(s) + 1, &plain));
        size_t n = plain_name(s, plain);
        const char *verb = d->rules->verb((EventKind)e->kind[i], plain);
        if (verb != NULL) {
            n = strlen(verb);
            memcpy(plain, verb, n + 1);
        }
        TRY(strings_id(&names->text, plain, n, &names->plain[side][id]));
        const char *bare = bare_name(plain, d->rules->any_function);
        TRY(strings_id(&names->text, bare, strlen(bare), &names->bare[side][id]));
        arena_release(scratch, mark);
    }
    return OK;
}

uint32_t diff_name(const Diff *d, int side, uint32_t event, bool bare)
{
    uint32_t id = d->tree[side]->events->name[event];
    return (bare ? d->names.bare : d->names.plain)[side][id];
}

/* ---- nodes ---- */

/* Lists of device work hold what is below an event, not the event itself. */
bool diff_has_work(const Tree *t, uint32_t event)
{
    return event_on_gpu(t->events->kind[event]) || t->gpu_first[event + 1] > t->gpu_first[event];
}

/* See diff.h. A graph's launch is like an operator: all kernels of the graph are below it. */
bool diff_launches(const Events *e, uint32_t event)
{
    uint8_t kind = e->kind[event];
    return (kind == EVENT_RUNTIME || kind == EVENT_DRIVER) && !event_is_graph_launch(e, event);
}

/* The state of the walk. A stamp instead of cleared arrays: clearing would cost the number of names
 * at each node. */
typedef struct Walk {
    Diff *d;
    Arena *scratch; /* released after each node */
    /* seen[side][name] == stamp: a child of that name leads to device work */
    uint32_t *seen[2], stamp;
    uint32_t *last;        /* last[name]: the last child of that name without device work */
    uint32_t *position[2]; /* position[side][event]: its index in the list that is being built */
    struct Step *stack;    /* nodes to visit; it holds at most all events of both traces */
    int64_t steps;
} Walk;

/* A node that is still to be visited. slot: where its number goes when it has one. */
typedef struct Step {
    uint32_t event[DIFF_SIDES], parent, *slot;
} Step;

static Status new_list(Walk *w, int64_t room, DiffList *out)
{
    out->n = 0;
    return ARENA_NEW(w->scratch, room, &out->at);
}

/* Most lists are in order already, so that is tested first. */
static Status sort_list_by_time(Walk *w, int side, DiffList *l)
{
    const Events *e = w->d->tree[side]->events;
    double *start = NULL;
    uint32_t *order = NULL, *was = NULL;
    bool sorted = true;
    for (int64_t i = 1; i < l->n; i++) sorted &= e->ts[l->at[i - 1]] <= e->ts[l->at[i]];
    if (sorted) return OK;
    ArenaMark mark = arena_mark(w->scratch);
    TRY(ARENA_NEW(w->scratch, l->n, &start));
    TRY(ARENA_NEW(w->scratch, l->n, &was));
    for (int64_t i = 0; i < l->n; i++) start[i] = e->ts[l->at[i]];
    TRY(groups_rising(start, l->n, w->scratch, &order));
    memcpy(was, l->at, (size_t)l->n * sizeof *was);
    for (int64_t i = 0; i < l->n; i++) l->at[i] = was[order[i]];
    arena_release(w->scratch, mark);
    return OK;
}

/* Lists the children of an event that are device work or have some below them. */
static Status children_with_work(Walk *w, int side, uint32_t event, DiffList *out)
{
    const Tree *t = w->d->tree[side];
    TRY(new_list(w, t->first[event + 1] - t->first[event], out));
    for (uint32_t c = t->first[event]; c < t->first[event + 1]; c++) {
        if (diff_has_work(t, t->child[c])) out->at[out->n++] = t->child[c];
    }
    return OK;
}

/* Lists these children for both sides. A call that leads to device work in one trace may lead to
 * none in the other, for example because of a cached result. Such a child is listed too if the
 * other side has a child of its name with device work. Of several children of one name only the
 * last one is listed. */
static Status children_of(Walk *w, const uint32_t event[DIFF_SIDES], DiffList list[DIFF_SIDES])
{
    const Diff *d = w->d;
    w->stamp++;
    for (int s = 0; s < DIFF_SIDES; s++) {
        list[s] = (DiffList){ 0 };
        if (event[s] == EVENT_NONE) continue;
        TRY(children_with_work(w, s, event[s], &list[s]));
        for (int64_t i = 0; i < list[s].n; i++)
            w->seen[s][diff_name(d, s, list[s].at[i], false)] = w->stamp;
    }
    for (int s = 0; s < DIFF_SIDES; s++) {
        const Tree *t = d->tree[s];
        if (event[s] == EVENT_NONE || event[!s] == EVENT_NONE) continue;
        for (int pass = 0; pass < 2; pass++) {
            for (uint32_t c = t->first[event[s]]; c < t->first[event[s] + 1]; c++) {
                uint32_t name = diff_name(d, s, t->child[c], false);
                if (diff_has_work(t, t->child[c]) || w->seen[s][name] == w->stamp ||
                    w->seen[!s][name] != w->stamp)
                    continue;
                if (pass == 0)
                    w->last[name] = t->child[c];
                else if (w->last[name] == t->child[c])
                    list[s].at[list[s].n++] = t->child[c];
            }
        }
        TRY(sort_list_by_time(w, s, &list[s]));
    }
    return OK;
}

static bool has_launch(const Tree *t, uint32_t event)
{
    for (uint32_t c = t->first[event]; c < t->first[event + 1]; c++) {
        if (diff_launches(t->events, t->child[c])) return true;
    }
    return false;
}

/* Follows a chain of single calls down from *event. It stops at a node that launches by itself. It
 * also stops at a node that does not have exactly one child with device work; its children are then
 * in *below. */
static Status unwrap_call(Walk *w, int side, uint32_t *event, DiffList *below)
{
    const Tree *t = w->d->tree[side];
    for (;;) {
        below->n = 0;
        if (diff_launches(t->events, *event)) return OK;
        if (t->events->kind[*event] == EVENT_CPU_OP && has_launch(t, *event)) return OK;
        TRY(children_with_work(w, side, *event, below));
        if (below->n != 1) return OK;
        *event = below->at[0];
    }
}

/* ---- children against each other ---- */

static bool any_launches(const Diff *d, int side, const DiffList *l)
{
    for (int64_t i = 0; i < l->n; i++) {
        if (diff_launches(d->tree[side]->events, l->at[i])) return true;
    }
    return false;
}

/* Matches by position where the rules say so, else by name. */
static Status match_lists(Walk *w, const DiffList list[DIFF_SIDES], DiffPairs *out)
{
    const Diff *d = w->d;
    if (!d->rules->by_position || list[DIFF_OLD].n != list[DIFF_NEW].n ||
        any_launches(d, DIFF_OLD, &list[DIFF_OLD]) || any_launches(d, DIFF_NEW, &list[DIFF_NEW]))
        return diff_align(d, list, false, w->scratch, out);
    return diff_by_position(list, w->scratch, out);
}

Status diff_by_position(const DiffList list[DIFF_SIDES], Arena *a, DiffPairs *out)
{
    const int64_t m = list[DIFF_OLD].n, n = list[DIFF_NEW].n;
    out->n = m > n ? m : n;
    TRY(ARENA_NEW(a, out->n, &out->at));
    for (int64_t i = 0; i < out->n; i++) out->at[i] = (DiffPair){ i < m ? i : -1, i < n ? i : -1 };
    return OK;
}

/* The index of a pair's entry in the list of one side; -1: that side has none. */
static int64_t index_of(DiffPair p, int side) { return side == DIFF_OLD ? p.i : p.j; }

static bool is_match(DiffPair p) { return p.i >= 0 && p.j >= 0; }

/* Translates a pair of indices into parts of the lists to a pair of indices into the lists.
 * of[side][i]: the index of entry i of the part. */
static DiffPair translate_pair(DiffPair p, int64_t *const of[DIFF_SIDES])
{
    return (DiffPair){ p.i < 0 ? -1 : of[DIFF_OLD][p.i], p.j < 0 ? -1 : of[DIFF_NEW][p.j] };
}

static void append_pairs(DiffPairs *to, const DiffPairs *from, int64_t *const of[DIFF_SIDES])
{
    for (int64_t k = 0; k < from->n; k++) to->at[to->n++] = translate_pair(from->at[k], of);
}

/* Removes the pairs that have only one side. */
static void keep_matches(DiffPairs *p)
{
    int64_t kept = 0;
    for (int64_t k = 0; k < p->n; k++)
        if (is_match(p->at[k])) p->at[kept++] = p->at[k];
    p->n = kept;
}

/* The entries that are not matched yet, and their indices in the lists. */
typedef struct Rest {
    DiffList list[DIFF_SIDES];
    int64_t *of[DIFF_SIDES];
    bool any; /* both lists have such entries */
} Rest;

/* Collects what is not matched yet, with its indices in the lists. */
static Status left_over(Walk *w, const DiffPairs *p, const DiffList from[DIFF_SIDES], Rest *out)
{
    for (int s = 0; s < DIFF_SIDES; s++) {
        DiffList *list = &out->list[s];
        TRY(new_list(w, p->n, list));
        TRY(ARENA_NEW(w->scratch, p->n, &out->of[s]));
        for (int64_t k = 0; k < p->n; k++) {
            int64_t i = index_of(p->at[k], s);
            if (i < 0 || is_match(p->at[k])) continue;
            out->of[s][list->n] = i;
            list->at[list->n++] = from[s].at[i];
        }
    }
    out->any = out->list[DIFF_OLD].n > 0 && out->list[DIFF_NEW].n > 0;
    return OK;
}

bool diff_same_names(const Diff *d, const DiffList *a, const DiffList *b)
{
    if (a->n == 0 || a->n != b->n) return false;
    for (int64_t i = 0; i < a->n; i++) {
        if (diff_name(d, DIFF_OLD, a->at[i], false) != diff_name(d, DIFF_NEW, b->at[i], false))
            return false;
    }
    return true;
}

bool diff_can_wrap(const Events *e, uint32_t event)
{
    return e->kind[event] != EVENT_KERNEL && !diff_launches(e, event);
}

/* Marks wrappers among the unmatched calls. A wrapper is a call with a child whose name an
 * unmatched call of the other trace has. *opened: the marks. */
static bool find_wrappers(Walk *w, const DiffList rest[DIFF_SIDES], DiffList *const below[],
                          bool *const opened[])
{
    const Diff *d = w->d;
    bool any = false;
    if (d->rules->open_more != NULL) d->rules->open_more(d, rest, below, opened);
    for (int s = 0; s < DIFF_SIDES; s++) {
        w->stamp++;
        for (int64_t i = 0; i < rest[!s].n; i++) {
            uint32_t call = rest[!s].at[i];
            if (diff_can_wrap(d->tree[!s]->events, call))
                w->seen[!s][diff_name(d, !s, call, false)] = w->stamp;
        }
        for (int64_t i = 0; i < rest[s].n; i++) {
            bool can = diff_can_wrap(d->tree[s]->events, rest[s].at[i]);
            for (int64_t k = 0; can && k < below[s][i].n; k++)
                opened[s][i] |= w->seen[!s][diff_name(d, s, below[s][i].at[k], false)] == w->stamp;
            any |= opened[s][i];
        }
    }
    return any;
}

/* Copies a list, with the children of opened wrappers in place of the wrappers. Sorts the result by
 * time, because children of two wrappers on two threads can overlap. */
static Status open_in_place(Walk *w, int side, const DiffList *list, const Rest *rest,
                            const DiffList *below, const bool *opened, DiffList *out)
{
    int64_t room = list->n, next = 0; /* next: index into the rest, which has the list's order */
    for (int64_t i = 0; i < rest->list[side].n; i++) room += opened[i] ? below[i].n : 0;
    TRY(new_list(w, room, out));
    for (int64_t i = 0; i < list->n; i++) {
        DiffList one = { &list->at[i], 1 };
        bool left = next < rest->list[side].n && rest->of[side][next] == i;
        if (left && opened[next]) one = below[next];
        next += left;
        for (int64_t k = 0; k < one.n; k++) out->at[out->n++] = one.at[k];
    }
    TRY(sort_list_by_time(w, side, out));
    for (int64_t k = 0; k < out->n; k++) w->position[side][out->at[k]] = (uint32_t)k;
    return OK;
}

/* Replaces wrappers among the unmatched calls by their children. Keeps the matches so far, and
 * aligns again what is not matched. Indices change with the lists, so `position` translates the old
 * pairs. */
static Status open_wrappers(Walk *w, DiffList list[DIFF_SIDES], DiffPairs *p)
{
    Rest rest;
    DiffList *below[DIFF_SIDES] = { NULL }, wider[DIFF_SIDES];
    bool *opened[DIFF_SIDES] = { NULL }, *taken[DIFF_SIDES] = { NULL };
    DiffPairs out = { 0 }, found = { 0 };
    TRY(left_over(w, p, list, &rest));
    if (!rest.any) return OK;
    assert(list[DIFF_OLD].at != NULL && list[DIFF_NEW].at != NULL); /* they hold the rest */
    for (int s = 0; s < DIFF_SIDES; s++) {
        const DiffList *left = &rest.list[s];
        TRY(ARENA_NEW(w->scratch, left->n, &below[s]));
        TRY(ARENA_ZEROED(w->scratch, left->n, &opened[s]));
        for (int64_t i = 0; i < left->n; i++)
            TRY(children_with_work(w, s, left->at[i], &below[s][i]));
    }
    if (!find_wrappers(w, rest.list, below, opened)) return OK;
    for (int s = 0; s < DIFF_SIDES; s++) {
        TRY(open_in_place(w, s, &list[s], &rest, below[s], opened[s], &wider[s]));
        TRY(ARENA_ZEROED(w->scratch, wider[s].n, &taken[s]));
    }
    TRY(ARENA_NEW(w->scratch, wider[DIFF_OLD].n + wider[DIFF_NEW].n, &out.at));
    for (int64_t k = 0; k < p->n; k++) {
        if (!is_match(p->at[k])) continue;
        int64_t i = w->position[DIFF_OLD][list[DIFF_OLD].at[p->at[k].i]];
        int64_t j = w->position[DIFF_NEW][list[DIFF_NEW].at[p->at[k].j]];
        taken[DIFF_OLD][i] = taken[DIFF_NEW][j] = true;
        out.at[out.n++] = (DiffPair){ i, j };
    }
    for (int s = 0; s < DIFF_SIDES; s++) {
        for (int64_t i = 0; i < wider[s].n; i++)
            if (!taken[s][i])
                out.at[out.n++] = s == DIFF_OLD ? (DiffPair){ i, -1 } : (DiffPair){ -1, i };
    }
    TRY(left_over(w, &out, wider, &rest));
    TRY(match_lists(w, rest.list, &found));
    keep_matches(&out);
    append_pairs(&out, &found, rest.of);
    memcpy(list, wider, sizeof wider);
    *p = out;
    return OK;
}

/* Matches unmatched calls by what their chains of single calls lead to. Then matches frames of
 * Python by the file alone. Matched entries of the lists become the ends of their chains. */
static Status match_unwrapped(Walk *w, DiffList list[DIFF_SIDES], DiffPairs *p)
{
    Rest rest, again;
    DiffList unused;
    DiffPairs found = { 0 }, bare = { 0 };
    TRY(left_over(w, p, list, &rest));
    if (!rest.any) return OK;
    assert(list[DIFF_OLD].at != NULL && list[DIFF_NEW].at != NULL); /* they hold the rest */
    for (int s = 0; s < DIFF_SIDES; s++) {
        for (int64_t i = 0; i < rest.list[s].n; i++) {
            TRY(unwrap_call(w, s, &rest.list[s].at[i], &unused));
            if (w->d->rules->wrappers_go) list[s].at[rest.of[s][i]] = rest.list[s].at[i];
        }
    }
    TRY(diff_align(w->d, rest.list, false, w->scratch, &found));
    TRY(left_over(w, &found, rest.list, &again));
    if (again.any) {
        TRY(diff_align(w->d, again.list, true, w->scratch, &bare));
        keep_matches(&found);
        append_pairs(&found, &bare, again.of);
    }
    for (int64_t k = 0; k < found.n; k++) {
        for (int s = 0; s < DIFF_SIDES && is_match(found.at[k]); s++) {
            int64_t i = index_of(found.at[k], s);
            list[s].at[rest.of[s][i]] = rest.list[s].at[i];
        }
    }
    keep_matches(p);
    append_pairs(p, &found, rest.of);
    return OK;
}

const char *diff_sizes(const Events *e, uint32_t event)
{
    uint32_t args = event_args(e, event);
    return args == EVENT_NONE ? "" : strings_text(&e->strings, e->args[args].dims);
}

/* Does one call do the work of the other? Yes for device work of one kind, and for calls with the
 * same children. Yes also for operators on the same sizes, like a convolution by MIOpen and one by
 * cuDNN. */
static Status replaces_call(Walk *w, uint32_t x, uint32_t y, bool *out)
{
    const Events *a = w->d->tree[DIFF_OLD]->events, *b = w->d->tree[DIFF_NEW]->events;
    DiffList below[DIFF_SIDES];
    const char *sizes = diff_sizes(a, x);
    *out = a->kind[x] == b->kind[y];
    if (event_on_gpu(a->kind[x]) || event_on_gpu(b->kind[y])) return OK;
    *out = strpbrk(sizes, "0123456789") != NULL && strcmp(sizes, diff_sizes(b, y)) == 0;
    if (*out || diff_launches(a, x) || diff_launches(b, y)) return OK;
    TRY(children_with_work(w, DIFF_OLD, x, &below[DIFF_OLD]));
    TRY(children_with_work(w, DIFF_NEW, y, &below[DIFF_NEW]));
    *out = diff_same_names(w->d, &below[DIFF_OLD], &below[DIFF_NEW]) &&
           !any_launches(w->d, DIFF_OLD, &below[DIFF_OLD]);
    return OK;
}

/* before[side][i]: the index in the new list of the last match before entry i; -1: there is none.
 * Two entries with equal values stand between the same two matches. */
static Status last_matches(Walk *w, const DiffList list[DIFF_SIDES], const DiffPairs *p,
                           int64_t *before[DIFF_SIDES])
{
    for (int s = 0; s < DIFF_SIDES; s++) {
        int64_t last = -1;
        TRY(ARENA_NEW(w->scratch, list[s].n, &before[s]));
        for (int64_t i = 0; i < list[s].n; i++) before[s][i] = -1;
        for (int64_t k = 0; k < p->n; k++) {
            if (is_match(p->at[k])) before[s][index_of(p->at[k], s)] = p->at[k].j;
        }
        for (int64_t i = 0; i < list[s].n; i++) {
            if (before[s][i] >= 0) last = before[s][i];
            before[s][i] = last;
        }
    }
    return OK;
}

/* Pairs unmatched calls that stand between the same two matches and do the same work. Tries all
 * pairs, so it gives up above DIFF_PAIRS_MAX of them. */
static Status match_replaced(Walk *w, const DiffList list[DIFF_SIDES], DiffPairs *p)
{
    Rest rest;
    int64_t *before[DIFF_SIDES] = { NULL }, kept = 0;
    bool *taken = NULL;
    TRY(left_over(w, p, list, &rest));
    const DiffList *left = &rest.list[DIFF_NEW];
    if (!rest.any || left->n > DIFF_PAIRS_MAX / rest.list[DIFF_OLD].n) return OK;
    TRY(last_matches(w, list, p, before));
    TRY(ARENA_ZEROED(w->scratch, list[DIFF_NEW].n, &taken));
    for (int64_t k = 0; k < p->n; k++) {
        DiffPair *one = &p->at[k];
        for (int64_t j = 0; one->i >= 0 && one->j < 0 && j < left->n; j++) {
            bool same = false;
            ArenaMark mark = arena_mark(w->scratch);
            int64_t to = rest.of[DIFF_NEW][j];
            if (taken[to] || before[DIFF_OLD][one->i] != before[DIFF_NEW][to]) continue;
            TRY(replaces_call(w, list[DIFF_OLD].at[one->i], left->at[j], &same));
            arena_release(w->scratch, mark);
            if (same) one->j = to;
            taken[to] = same;
        }
    }
    for (int64_t k = 0; k < p->n; k++) {
        if (p->at[k].i >= 0 || !taken[p->at[k].j]) p->at[kept++] = p->at[k];
    }
    p->n = kept;
    return OK;
}

/* Matches two lists of calls. The order of the steps is from sure to unsure. The lists change where
 * wrappers are opened. */
static Status pair_lists(Walk *w, DiffList list[DIFF_SIDES], DiffPairs *p)
{
    TRY(match_lists(w, list, p));
    TRY(open_wrappers(w, list, p));
    TRY(match_unwrapped(w, list, p));
    return w->d->rules->replaced ? match_replaced(w, list, p) : OK;
}

/* ---- the walk ---- */

static uint32_t event_at(const DiffList *l, int64_t i) { return i < 0 ? EVENT_NONE : l->at[i]; }

static void push_step(Walk *w, Step at) { w->stack[w->steps++] = at; }

/* Makes a node and pushes its children. If one side wraps all its work in one more call, that call
 * is opened here. Children are pushed from last to first, so they are visited in order. */
static Status visit_node(Walk *w, Step at)
{
    Diff *d = w->d;
    DiffNode *node = &d->node[d->nodes];
    uint32_t id = (uint32_t)d->nodes++;
    DiffList list[DIFF_SIDES], below;
    DiffPairs pairs = { 0 };
    *at.slot = id;
    TRY(children_of(w, at.event, list));
    for (int s = 0; s < DIFF_SIDES && list[DIFF_OLD].n != list[DIFF_NEW].n; s++) {
        /* a list of one call against a list of several: the one call is a wrapper */
        if (list[s].n != 1) continue;
        uint32_t end = list[s].at[0];
        if (!d->rules->wrappers_go && list[!s].n == 0) break;
        TRY(unwrap_call(w, s, &end, &below));
        if (below.n > 0) list[s] = below;
        if (below.n > 0 && d->rules->wrappers_go) at.event[s] = end;
        break;
    }
    *node = (DiffNode){ { at.event[0], at.event[1] }, at.parent, (uint32_t)d->children, 0 };
    TRY(pair_lists(w, list, &pairs));
    node->children = (uint32_t)pairs.n;
    d->children += pairs.n;
    for (int64_t k = pairs.n - 1; k >= 0; k--)
        push_step(w, (Step){ { event_at(&list[DIFF_OLD], pairs.at[k].i),
                               event_at(&list[DIFF_NEW], pairs.at[k].j) },
                             id,
                             &d->child[node->first + k] });
    return OK;
}

/* ---- roots ---- */

/* How many roots two threads have in common by name. i, j: the threads of the old and the new
 * trace. */
typedef struct Likeness {
    int64_t common, i, j; /* how many roots have the same names; the two threads */
} Likeness;

static int by_common(const void *a, const void *b)
{
    const Likeness *x = a, *y = b;
    if (x->common != y->common) return x->common > y->common ? -1 : 1;
    if (x->i != y->i) return x->i < y->i ? -1 : 1;
    return (x->j > y->j) - (x->j < y->j);
}

/* Lists the roots of each thread. Threads are in the order of their first roots. */
static Status threads_of(Walk *w, int side, DiffList **out, int64_t *n)
{
    const Tree *t = w->d->tree[side];
    uint32_t *thread = NULL; /* thread[track]: its number + 1; 0: not seen yet */
    TRY(ARENA_ZEROED(w->scratch, t->events->n_tracks, &thread));
    TRY(ARENA_ZEROED(w->scratch, t->events->n_tracks, out));
    *n = 0;
    for (int64_t i = 0; i < t->roots; i++) {
        uint32_t *at = &thread[t->events->track[t->root[i]]];
        if (*at == 0) *at = (uint32_t)++ * n;
        (*out)[*at - 1].n++;
    }
    for (int64_t k = 0; k < *n; k++) TRY(new_list(w, (*out)[k].n, &(*out)[k]));
    for (int64_t i = 0; i < t->roots; i++) {
        DiffList *l = &(*out)[thread[t->events->track[t->root[i]]] - 1];
        l->at[l->n++] = t->root[i];
    }
    return OK;
}

/* Returns how many roots two threads have in common by name. count[name] is 0 before and after. */
static int64_t in_common(const Diff *d, const DiffList *a, const DiffList *b, int32_t *count)
{
    int64_t n = 0;
    for (int64_t i = 0; i < a->n; i++) count[diff_name(d, DIFF_OLD, a->at[i], false)]++;
    for (int64_t j = 0; j < b->n; j++) n += count[diff_name(d, DIFF_NEW, b->at[j], false)]-- > 0;
    for (int64_t i = 0; i < a->n; i++) count[diff_name(d, DIFF_OLD, a->at[i], false)] = 0;
    for (int64_t j = 0; j < b->n; j++) count[diff_name(d, DIFF_NEW, b->at[j], false)] = 0;
    return n;
}

/* Pairs threads by the names of their roots, the most alike first, and aligns the roots of each
 * pair. Thread ids differ from run to run, so they are not compared. list and p: the results of all
 * threads, one after the other. */
static Status roots_by_name(Walk *w, DiffList list[DIFF_SIDES], DiffPairs *p)
{
    const Diff *d = w->d;
    DiffList *thread[DIFF_SIDES] = { NULL };
    int64_t n[DIFF_SIDES], *partner = NULL, room = 0, pairs = 0;
    bool *taken = NULL;
    int32_t *count = NULL;
    Likeness *like = NULL;
    for (int s = 0; s < DIFF_SIDES; s++) TRY(threads_of(w, s, &thread[s], &n[s]));
    TRY(ARENA_ZEROED(w->scratch, d->names.text.n, &count));
    TRY(ARENA_NEW(w->scratch, n[0] * n[1], &like));
    TRY(ARENA_NEW(w->scratch, n[0], &partner));
    TRY(ARENA_ZEROED(w->scratch, n[1], &taken));
    for (int64_t k = 0; k < n[0] * n[1]; k++, pairs++) {
        int64_t i = k / n[1], j = k % n[1];
        like[k] = (Likeness){ in_common(d, &thread[0][i], &thread[1][j], count), i, j };
    }
    if (pairs > 0) qsort(like, (size_t)pairs, sizeof *like, by_common);
    for (int64_t i = 0; i < n[0]; i++) partner[i] = -1;
    for (int64_t k = 0; k < pairs; k++) {
        if (partner[like[k].i] >= 0 || taken[like[k].j]) continue;
        partner[like[k].i] = like[k].j;
        taken[like[k].j] = true;
    }
    /* Opened wrappers put their children into the lists. Each event is in a list once at most. */
    for (int s = 0; s < DIFF_SIDES; s++) {
        TRY(new_list(w, d->tree[s]->events->n, &list[s]));
        room += d->tree[s]->events->n;
    }
    TRY(ARENA_NEW(w->scratch, room, &p->at));
    for (int64_t k = 0; k < n[0] + n[1]; k++) {
        DiffList both[DIFF_SIDES] = { { 0 } };
        DiffPairs found = { 0 };
        if (k >= n[0] && taken[k - n[0]]) continue;
        if (k < n[0]) both[DIFF_OLD] = thread[0][k];
        if (k < n[0] && partner[k] >= 0) both[DIFF_NEW] = thread[1][partner[k]];
        if (k >= n[0]) both[DIFF_NEW] = thread[1][k - n[0]];
        TRY(pair_lists(w, both, &found));
        for (int64_t m = 0; m < found.n; m++) {
            DiffPair one = found.at[m];
            p->at[p->n++] = (DiffPair){ one.i < 0 ? -1 : list[DIFF_OLD].n + one.i,
                                        one.j < 0 ? -1 : list[DIFF_NEW].n + one.j };
        }
        for (int s = 0; s < DIFF_SIDES; s++) {
            for (int64_t i = 0; i < both[s].n; i++) list[s].at[list[s].n++] = both[s].at[i];
        }
    }
    return OK;
}

/* ---- both traces ---- */

/* Walks both trees with a stack of its own instead of recursion, because traces with frames of
 * Python are thousands of calls deep. */
static Status walk_all(Walk *w, Arena *a)
{
    Diff *d = w->d;
    DiffList list[DIFF_SIDES];
    DiffPairs p = { 0 };
    if (d->rules->roots != NULL)
        TRY(d->rules->roots(d, w->scratch, list, &p));
    else
        TRY(roots_by_name(w, list, &p));
    d->roots = p.n;
    TRY(ARENA_NEW(a, p.n, &d->root));
    for (int64_t k = p.n - 1; k >= 0; k--)
        push_step(w, (Step){ { event_at(&list[DIFF_OLD], p.at[k].i),
                               event_at(&list[DIFF_NEW], p.at[k].j) },
                             EVENT_NONE,
                             &d->root[k] });
    while (w->steps > 0) {
        ArenaMark mark = arena_mark(w->scratch);
        TRY(visit_node(w, w->stack[--w->steps]));
        arena_release(w->scratch, mark);
    }
    return OK;
}

Status diff_trees(const Tree *old, const Tree *new, const DiffRules *rules, Arena *a,
                  Arena *scratch, Diff *out)
{
    /* Matching a different name is never cheaper than one entry missing on each side (2 gaps). */
    static const DiffRules ours = {
        .gap = 2, .other_name = 5, .unlike = 1, .verb = runtime_verb, .replaced = true
    };
    ArenaMark mark = arena_mark(scratch);
    int64_t n[DIFF_SIDES] = { old->events->n, new->events->n }, names;
    *out = (Diff){ .tree = { old, new }, .rules = rules == NULL ? &ours : rules };
    Walk w = { .d = out, .scratch = scratch };
    TRY(strings_init(&out->names.text));
    for (int s = 0; s < DIFF_SIDES; s++) TRY(name_strings(out, s, a, scratch));
    names = out->names.text.n;
    for (int s = 0; s < DIFF_SIDES; s++) {
        TRY(ARENA_ZEROED(scratch, names, &w.seen[s]));
        TRY(ARENA_NEW(scratch, n[s], &w.position[s]));
    }
    TRY(ARENA_NEW(scratch, names, &w.last));
    TRY(ARENA_NEW(scratch, n[0] + n[1], &w.stack));
    /* Each node has an event of one trace at least, and each event is in one node at most. */
    TRY(ARENA_NEW(a, n[0] + n[1], &out->node));
    TRY(ARENA_NEW(a, n[0] + n[1], &out->child));
    TRY(walk_all(&w, a));
    arena_release(scratch, mark);
    return OK;
}

void diff_free(Diff *d) { strings_free(&d->names.text); }
