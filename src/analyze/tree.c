/*
 * tree: see tree.h. The time is linear in the number of events. Only the events of a thread are
 * sorted, by merging the few sorted runs that a profiler writes.
 *
 * - Nesting: the events of a thread, sorted by start, visit callers before what they call. So a
 *   stack of open calls finds each parent.
 * - Linking: a hash table over the correlations of device events.
 * - Children are then counted and filled in, as compressed rows (CSR).
 */
#include "analyze/tree.h"

#include <string.h>

/* A call may begin up to this much before the previous one ended, because clocks are read twice. It
 * then follows the previous call and is not inside it. TraceLens has the same limit. */
static const double BLEED_US = 1.0;

/* Calls below this depth become siblings, so that a trace made to be deep does not take endless
 * time. */
enum { DEEPEST = 4096 };

/* Bytes of scratch memory: an upper bound of all arrays of Build and Links, for each event. */
enum { SCRATCH_PER_EVENT = 192, SCRATCH_LEAST = 1 << 22 };

/* A call that has begun and not ended yet. */
typedef struct OpenCall {
    uint32_t event;
    double end;
} OpenCall;

/* Maps a number to the list of positions that have it. `slot` finds the first position, `next` the
 * one after a position. EVENT_NONE ends a list. */
typedef struct Links {
    const int64_t *key;           /* by position */
    uint32_t *slot, *next, *last; /* last[first position]: the last one; EVENT_NONE: taken */
    uint32_t mask;
} Links;

/* The tree while it is being built. `work` is freed afterwards. */
typedef struct Build {
    const Events *e;
    const TreeOptions *o;
    Tree *t;
    Arena work;
    uint32_t *order; /* host events by thread; callers come before what they call */
    int64_t hosts;
    uint32_t *gpu; /* device events by time */
    int64_t gpus;
    int64_t *gpu_key;
    OpenCall *open;
    uint32_t *spare; /* for merging */
} Build;

static bool is_host(const Build *b, int64_t i)
{
    uint8_t kind = b->e->kind[i];
    return kind == EVENT_CPU_OP || kind == EVENT_RUNTIME || kind == EVENT_DRIVER ||
           (kind == EVENT_PYTHON && b->o->python);
}

static bool is_call(const Events *e, int64_t i)
{
    return e->kind[i] == EVENT_RUNTIME || e->kind[i] == EVENT_DRIVER;
}

/* ---- order ---- */

/* Does x come after y, which is earlier in the file? Usually by start. Of two with one start the
 * longer one is the caller. Of two with one duration too, Python calls operators, and operators
 * call the runtime. TraceLens compares starts only. */
static bool comes_after(const Build *b, uint32_t x, uint32_t y)
{
    static const uint8_t DEPTH[EVENT_KINDS] = {
        [EVENT_CPU_OP] = 1, [EVENT_RUNTIME] = 2, [EVENT_DRIVER] = 3
    };
    const Events *e = b->e;
    if (e->ts[x] != e->ts[y] || b->o->drop_crossing) return e->ts[x] > e->ts[y];
    if (e->dur[x] != e->dur[y]) return e->dur[x] < e->dur[y];
    return DEPTH[e->kind[x]] > DEPTH[e->kind[y]];
}

/* The end of the sorted run that begins at `from`. */
static int64_t run_end(const Build *b, const uint32_t *at, int64_t from, int64_t n)
{
    int64_t i = from + 1;
    while (i < n && !comes_after(b, at[i - 1], at[i])) i++;
    return i < n ? i : n;
}

/* Merges neighbouring runs until one is left. The sort is stable, and a thread that is sorted
 * already costs one comparison an event. */
static void sort_runs(const Build *b, uint32_t *at, int64_t n)
{
    while (run_end(b, at, 0, n) < n) {
        for (int64_t from = 0; from < n;) {
            int64_t middle = run_end(b, at, from, n), end = middle;
            if (middle < n) end = run_end(b, at, middle, n);
            int64_t i = from, j = middle;
            for (int64_t k = from; k < end; k++) {
                bool right = i == middle || (j < end && comes_after(b, at[i], at[j]));
                b->spare[k - from] = right ? at[j++] : at[i++];
            }
            memcpy(at + from, b->spare, (size_t)(end - from) * sizeof *at);
            from = end;
        }
    }
}

/* Sorts host events by thread, with a counting sort, then those of each thread by time. Sorts
 * device events by time. */
static Status sort_events(Build *b)
{
    const Events *e = b->e;
    uint32_t *at = NULL;
    TRY(ARENA_ZEROED(&b->work, e->n_tracks + 1, &at));
    for (int64_t i = 0; i < e->n; i++) {
        if (is_host(b, i)) at[e->track[i] + 1]++, b->hosts++;
        b->gpus += event_on_gpu(e->kind[i]);
    }
    for (int64_t k = 0; k < e->n_tracks; k++) at[k + 1] += at[k];
    int64_t most = b->hosts > b->gpus ? b->hosts : b->gpus;
    TRY(ARENA_NEW(&b->work, b->hosts + 1, &b->order));
    TRY(ARENA_NEW(&b->work, b->gpus + 1, &b->gpu));
    TRY(ARENA_NEW(&b->work, most + 1, &b->spare));
    TRY(ARENA_NEW(&b->work, DEEPEST + 1, &b->open));
    for (int64_t i = 0, k = 0; i < e->n; i++) {
        if (is_host(b, i)) b->order[at[e->track[i]]++] = (uint32_t)i;
        if (event_on_gpu(e->kind[i])) b->gpu[k++] = (uint32_t)i;
    }
    for (int64_t k = 0, from = 0; k < e->n_tracks; from = at[k++])
        sort_runs(b, b->order + from, at[k] - from);
    sort_runs(b, b->gpu, b->gpus);
    return OK;
}

/* ---- nesting ---- */

/* Does a call overlap the end of an open one by so little that it only follows it? */
static bool bleeds(const OpenCall *top, double ts, double end)
{
    return end > top->end && top->end - ts < BLEED_US;
}

/* Attaches event i to the calls that are open on its thread, outermost first in b->open. A call
 * that outlives its caller is dropped or cut, as the options say. Returns how many calls are open
 * afterwards. */
static int64_t nest_event(Build *b, int64_t open, uint32_t i)
{
    Tree *t = b->t;
    double ts = b->e->ts[i], end = event_end(b->e, i);
    while (open > 0 && ts >= b->open[open - 1].end) open--;
    /* over: the event outlives its caller */
    bool over = open > 0 && end > b->open[open - 1].end;
    if (over && b->o->drop_crossing) {
        if (open < 2 || !bleeds(&b->open[open - 1], ts, end)) {
            t->dropped++;
            return open;
        }
        open--;
    } else if (over) {
        while (open > 0 && bleeds(&b->open[open - 1], ts, end)) open--;
        if (open > 0 && end > b->open[open - 1].end) {
            end = b->open[open - 1].end;
            t->dropped++;
        }
    }
    if (open > 0)
        t->parent[i] = b->open[open - 1].event;
    else
        t->root[t->roots++] = i;
    /* Too deep: the event has a parent, but nothing will hang under it. */
    if (open == DEEPEST) {
        t->dropped++;
        return open;
    }
    b->open[open] = (OpenCall){ i, end };
    return open + 1;
}

/* Roots are found thread by thread and sorted by time at the end. */
static Status nest_events(Build *b)
{
    TRY(ARENA_NEW(b->t->own, b->hosts + 1, &b->t->root));
    int64_t open = 0;
    for (int64_t k = 0; k < b->hosts; k++) {
        bool next = k > 0 && b->e->track[b->order[k]] != b->e->track[b->order[k - 1]];
        open = nest_event(b, next ? 0 : open, b->order[k]);
    }
    sort_runs(b, b->t->root, b->t->roots);
    return OK;
}

/* ---- links ---- */

static uint32_t hash_of(int64_t key, uint32_t mask)
{
    return (uint32_t)(((uint64_t)key * 0x9E3779B97F4A7C15u) >> 32) & mask;
}

/* Positions with one number are chained in order. Negative numbers are no links. */
static Status links_make(Links *l, const int64_t *key, int64_t n, Arena *a)
{
    uint32_t slots = 16;
    while (slots < 2 * n) slots *= 2;
    *l = (Links){ .key = key, .mask = slots - 1 };
    TRY(ARENA_NEW(a, slots, &l->slot));
    TRY(ARENA_NEW(a, n + 1, &l->next));
    TRY(ARENA_NEW(a, n + 1, &l->last));
    memset(l->slot, 0xFF, slots * sizeof *l->slot);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t s = hash_of(key[i], l->mask);
        l->next[i] = EVENT_NONE;
        if (key[i] < 0) continue;
        while (l->slot[s] != EVENT_NONE && key[l->slot[s]] != key[i]) s = (s + 1) & l->mask;
        if (l->slot[s] == EVENT_NONE)
            l->slot[s] = i;
        else
            l->next[l->last[l->slot[s]]] = i;
        l->last[l->slot[s]] = i;
    }
    return OK;
}

static uint32_t links_first(const Links *l, int64_t key)
{
    uint32_t s = hash_of(key, l->mask);
    if (key < 0) return EVENT_NONE;
    while (l->slot[s] != EVENT_NONE && l->key[l->slot[s]] != key) s = (s + 1) & l->mask;
    return l->slot[s];
}

/* Gives the list of a number to its first caller only; later callers get EVENT_NONE. So the first
 * call with a number has all its work, and a number that a million calls share costs no more. */
static uint32_t links_take(Links *l, int64_t key)
{
    uint32_t first = links_first(l, key);
    if (first == EVENT_NONE || l->last[first] == EVENT_NONE) return EVENT_NONE;
    l->last[first] = EVENT_NONE;
    return first;
}

/* Old ROCm traces have no correlation; there a call and its kernels share the External id. The
 * first launch decides which of the two all launches use. */
static const int64_t *linking_column(const Events *e)
{
    for (int64_t i = 0; i < e->n; i++) {
        if (is_call(e, i) && strcasestr(event_name(e, i), "launch") != NULL)
            return e->link[i] >= 0 ? e->link : e->external;
    }
    return e->link;
}

/* The first link counts. */
static void attach_work(Build *b, uint32_t call, uint32_t gpu)
{
    if (b->t->parent[gpu] == EVENT_NONE) b->t->parent[gpu] = call;
}

/* A call gets all device work with its number. graphs_only: only launches of graphs do. */
static Status link_by_number(Build *b, const int64_t *column, bool graphs_only)
{
    Links l;
    TRY(links_make(&l, b->gpu_key, b->gpus, &b->work));
    for (uint32_t i = 0; i < b->e->n; i++) {
        if (!is_call(b->e, i) || (graphs_only && !event_is_graph_launch(b->e, i))) continue;
        for (uint32_t k = links_take(&l, column[i]); k != EVENT_NONE; k = l.next[k])
            attach_work(b, i, b->gpu[k]);
    }
    return OK;
}

/* Links by arrows, as TraceLens does. It needs an arrow from the call to the track of the device
 * event, and the number of that event. If several events have one number, the last one counts. */
static Status link_by_arrow(Build *b, const int64_t *column)
{
    const Events *e = b->e;
    int64_t *id = NULL, *key = NULL;
    uint32_t *event = NULL;
    Links flows, gpus;
    TRY(ARENA_NEW(&b->work, e->n_flows + 1, &id));
    TRY(ARENA_NEW(&b->work, b->gpus + 1, &key));
    TRY(ARENA_NEW(&b->work, b->gpus + 1, &event));
    for (int64_t i = 0; i < e->n_flows; i++) id[i] = e->flows[i].id;
    for (int64_t i = 0, k = 0; i < e->n; i++) {
        if (event_on_gpu(e->kind[i])) event[k] = (uint32_t)i, key[k++] = column[i];
    }
    TRY(links_make(&flows, id, e->n_flows, &b->work));
    TRY(links_make(&gpus, key, b->gpus, &b->work));
    for (uint32_t i = 0; i < e->n; i++) {
        if (!is_call(e, i) || event_is_graph_launch(e, i)) continue;
        bool from = false;
        uint32_t to = EVENT_NONE, found = EVENT_NONE;
        for (uint32_t k = links_take(&flows, e->link[i]); k != EVENT_NONE; k = flows.next[k]) {
            from |= e->flows[k].from;
            if (!e->flows[k].from) to = e->flows[k].track;
        }
        if (!from || to == EVENT_NONE) continue;
        for (uint32_t k = links_first(&gpus, e->link[i]); k != EVENT_NONE; k = gpus.next[k])
            if (e->track[event[k]] == to) found = event[k];
        if (found != EVENT_NONE) attach_work(b, i, found);
    }
    return OK;
}

static Status link_all(Build *b)
{
    const int64_t *column = linking_column(b->e);
    TRY(ARENA_NEW(&b->work, b->gpus + 1, &b->gpu_key));
    for (int64_t k = 0; k < b->gpus; k++) b->gpu_key[k] = column[b->gpu[k]];
    TRY(link_by_number(b, column, b->o->link == LINK_AC2G));
    if (b->o->link == LINK_AC2G) TRY(link_by_arrow(b, column));
    for (int64_t k = 0; k < b->gpus; k++) b->t->unlinked += b->t->parent[b->gpu[k]] == EVENT_NONE;
    return OK;
}

/* ---- rows ---- */

/* At first, first[i + 1] is the number of children of i. rows_begin turns counts into starts;
 * filling the rows then turns first[i + 1] into the end of row i. */
static void rows_begin(uint32_t *first, int64_t n)
{
    for (int64_t i = 0; i < n; i++) first[i + 1] += first[i];
    memmove(first + 1, first, (size_t)n * sizeof *first);
}

static void count_child(Tree *t, uint32_t i)
{
    if (t->parent[i] != EVENT_NONE) t->first[t->parent[i] + 1]++;
}

static void put_child(Tree *t, uint32_t i)
{
    if (t->parent[i] != EVENT_NONE) t->child[t->first[t->parent[i] + 1]++] = i;
}

static Status list_children(Build *b)
{
    Tree *t = b->t;
    int64_t n = b->e->n;
    for (int64_t k = 0; k < b->hosts; k++) count_child(t, b->order[k]);
    for (int64_t k = 0; k < b->gpus; k++) count_child(t, b->gpu[k]);
    rows_begin(t->first, n);
    TRY(ARENA_NEW(t->own, b->hosts + b->gpus + 1, &t->child));
    for (int64_t k = 0; k < b->hosts; k++) put_child(t, b->order[k]);
    for (int64_t k = 0; k < b->gpus; k++) put_child(t, b->gpu[k]);
    return OK;
}

/* Device work is listed under each of its callers, so lists grow with the depth of calls. The limit
 * keeps a trace that was made to be deep from filling the memory. */
static Status list_gpu(Build *b)
{
    static const int64_t MOST = (int64_t)1 << 28;
    Tree *t = b->t;
    int64_t total = 0;
    for (int64_t k = 0; k < b->gpus && total <= MOST; k++)
        for (uint32_t i = t->parent[b->gpu[k]]; i != EVENT_NONE; i = t->parent[i])
            t->gpu_first[i + 1]++, total++;
    if (total > MOST)
        return FAIL(ERR_UNSUPPORTED,
                    "%s: more than %lld pairs of a call and device work below it: its calls are "
                    "nested too deep",
                    b->e->path, (long long)MOST);
    rows_begin(t->gpu_first, b->e->n);
    TRY(ARENA_NEW(t->own, total + 1, &t->gpu));
    for (int64_t k = 0; k < b->gpus; k++)
        for (uint32_t i = t->parent[b->gpu[k]]; i != EVENT_NONE; i = t->parent[i])
            t->gpu[t->gpu_first[i + 1]++] = b->gpu[k];
    return OK;
}

/* ---- recomputation ---- */

/* torch.utils.checkpoint runs the forward pass a second time, inside a function of its own. Work
 * below that function is recomputation. */
static bool is_recompute_frame(const Events *e, uint32_t i)
{
    const char *name = event_name(e, i);
    return e->kind[i] == EVENT_PYTHON && strstr(name, "recompute_fn") != NULL &&
           strstr(name, "torch/utils/checkpoint.py") != NULL;
}

/* Callers come before what they call, so one pass passes the mark down. */
static Status mark_recompute(Build *b)
{
    Tree *t = b->t;
    TRY(ARENA_ZEROED(t->own, b->e->n + 1, &t->recompute));
    for (int64_t k = 0; k < b->hosts; k++) {
        uint32_t i = b->order[k], parent = t->parent[i];
        t->recompute[i] =
            (parent != EVENT_NONE && t->recompute[parent]) || is_recompute_frame(b->e, i);
    }
    for (int64_t k = 0; k < b->gpus; k++) {
        uint32_t parent = t->parent[b->gpu[k]];
        t->recompute[b->gpu[k]] = parent != EVENT_NONE && t->recompute[parent];
    }
    return OK;
}

/* The order matters: nesting needs sorted events, links need the host's tree, lists need all
 * parents. */
static Status build_parts(Build *b)
{
    Tree *t = b->t;
    int64_t n = b->e->n;
    TRY(ARENA_NEW(t->own, n + 1, &t->parent));
    TRY(ARENA_ZEROED(t->own, n + 2, &t->first));
    TRY(ARENA_ZEROED(t->own, n + 2, &t->gpu_first));
    memset(t->parent, 0xFF, (size_t)n * sizeof *t->parent);
    TRY(sort_events(b));
    TRY(nest_events(b));
    TRY(link_all(b));
    TRY(list_children(b));
    TRY(list_gpu(b));
    return b->o->python ? mark_recompute(b) : OK;
}

Status tree_build(const Events *e, const TreeOptions *o, Arena *a, Tree *out)
{
    Tree t = { .events = e, .own = a };
    Build b = { .e = e, .o = o, .t = &t };
    size_t bytes = SCRATCH_LEAST + (size_t)(e->n + e->n_flows + e->n_tracks) * SCRATCH_PER_EVENT;
    TRY(arena_init(&b.work, "tree", MEM_HOST, bytes));
    Status s = build_parts(&b);
    arena_free(&b.work);
    if (s == OK) *out = t;
    return s;
}

uint32_t tree_launcher(const Tree *t, int64_t i)
{
    const Events *e = t->events;
    uint32_t call = t->parent[i], at = call;
    if (call == EVENT_NONE) return EVENT_NONE;
    do {
        at = t->parent[at];
        if (at == EVENT_NONE) return call;
        if (e->kind[at] == EVENT_CPU_OP && strcmp(event_name(e, at), "execute") != 0) return at;
    } while (e->kind[at] == EVENT_PYTHON || e->kind[at] == EVENT_CPU_OP);
    return call;
}
