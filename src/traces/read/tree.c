/*
 * tree: see tree.h. The time is linear in the number of events. Only the events of a thread are
 * sorted, by merging the few sorted runs that a profiler writes.
 *
 * - Nesting: the events of a thread, sorted by start, visit callers before what they call. So a
 *   stack of open calls finds each parent.
 * - Linking: a hash table over the correlations of device events. Calls with one correlation are
 *   sorted by process and time.
 * - Children are then counted and filled in, as compressed rows (CSR).
 */
#include "traces/read/tree.h"

#include <math.h>
#include <stdlib.h>
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

/* A process that makes calls, and where its host events stand in the file. */
typedef struct Process {
    uint32_t pid, first, last;
} Process;

/* The process that launches on the device with a pid, by how many events that is voted, and of how many. */
typedef struct Owner {
    uint32_t pid; /* EVENT_NONE: not known */
    int64_t votes, all;
    bool mixed; /* mixed: several processes launch on it */
} Owner;

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
    uint32_t *spare;       /* for merging */
    const int64_t *column; /* numbers that link: correlation or External id, by event */
    Process *process;      /* those that make calls, by their first event in the file */
    int64_t processes;
    bool in_turn; /* the file has one process behind the other */
    Owner *owner; /* by the pid's string */
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

/* 0 is no number. Old ROCm traces have no correlation; there a call and its kernels share the
 * External id. The first launch with a correlation decides for all. */
static const int64_t *linking_column(const Events *e)
{
    bool launches = false;
    for (int64_t i = 0; i < e->n; i++) {
        if (!is_call(e, i) || strcasestr(event_name(e, i), "launch") == NULL) continue;
        if (e->link[i] > 0) return e->link;
        launches = true;
    }
    return launches ? e->external : e->link;
}

static void attach_work(Build *b, uint32_t call, uint32_t gpu)
{
    if (b->t->parent[gpu] == EVENT_NONE) b->t->parent[gpu] = call;
}

/* ---- processes ----
 *
 * Files that were merged of several ranks have equal numbers in several processes. A device event
 * then needs to know its process, which profilers do not write. In this order it is:
 * the process with its pid, if each device has the pid of a process; the only one whose pid has the
 * same label before its number, as in "[TP00] 0"; where the file has one process and its device
 * behind the other, the one whose events stand around it; the one that alone has launches with the
 * numbers of this device, or with its own if several have; at last a guess, which is counted. */

static uint32_t pid_of(const Events *e, uint32_t i) { return e->tracks[e->track[i]].pid; }

/* Lists the processes that make calls. */
static Status find_processes(Build *b)
{
    enum { MOST = 1024 };
    const Events *e = b->e;
    uint32_t *row = NULL; /* of a pid, + 1 */
    TRY(ARENA_ZEROED(&b->work, e->strings.n, &row));
    TRY(ARENA_NEW(&b->work, MOST, &b->process));
    for (uint32_t i = 0; i < e->n; i++) {
        const uint32_t pid = pid_of(e, i);
        if (row[pid] == 0 && is_call(e, i)) {
            if (b->processes == MOST)
                return FAIL(ERR_UNSUPPORTED, "%s: more than %d processes make calls: split it",
                            e->path, MOST);
            b->process[b->processes++] = (Process){ pid, i, i };
            row[pid] = (uint32_t)b->processes;
        }
        if (row[pid] > 0 && is_host(b, i)) b->process[row[pid] - 1].last = i;
    }
    b->in_turn = true;
    for (int64_t k = 1; k < b->processes; k++) {
        uint32_t i = b->process[k - 1].first;
        while (i < b->process[k].first && !event_on_gpu(e->kind[i])) i++;
        b->in_turn &= b->process[k - 1].last < b->process[k].first && i < b->process[k].first;
    }
    return OK;
}

/* Bytes before the number at the end of a pid. */
static size_t label_bytes(const char *pid)
{
    size_t n = strlen(pid);
    while (n > 0 && pid[n - 1] >= '0' && pid[n - 1] <= '9') n--;
    return n;
}

/* The process that a device's own pid names; EVENT_NONE: none, or several. same: by the whole pid. */
static uint32_t named_process(const Build *b, uint32_t pid, bool same)
{
    const char *name = strings_text(&b->e->strings, pid);
    const size_t n = label_bytes(name);
    uint32_t found = EVENT_NONE;
    for (int64_t k = 0; k < b->processes; k++) {
        const uint32_t at = b->process[k].pid;
        const char *other = strings_text(&b->e->strings, at);
        if (same && at == pid) return at;
        if (same || n == 0 || label_bytes(other) != n || memcmp(name, other, n) != 0) continue;
        if (found != EVENT_NONE) return EVENT_NONE;
        found = at;
    }
    return found;
}

/* Sets the processes of devices that are named, and starts the votes on the others. */
static Status name_owners(Build *b)
{
    TRY(ARENA_ZEROED(&b->work, b->e->strings.n, &b->owner));
    bool same = true; /* does each device have the pid of a process? */
    for (int64_t k = 0; k < b->gpus; k++) {
        Owner *o = &b->owner[pid_of(b->e, b->gpu[k])];
        if (o->votes == 0) same &= named_process(b, pid_of(b->e, b->gpu[k]), true) != EVENT_NONE;
        o->votes = -1;
    }
    for (int64_t k = 0; k < b->gpus; k++) {
        Owner *o = &b->owner[pid_of(b->e, b->gpu[k])];
        if (o->votes != -1) continue;
        o->pid = named_process(b, pid_of(b->e, b->gpu[k]), same);
        o->votes = o->pid == EVENT_NONE ? -2 : INT64_MAX;
    }
    return OK;
}

/* A number that one process alone has votes for it: the majority stays. */
static void vote(Owner *o, uint32_t pid)
{
    if (o->votes == INT64_MAX) return;
    if (o->votes <= 0) *o = (Owner){ .pid = pid, .all = o->all };
    o->all++;
    o->votes += o->pid == pid ? 1 : -1;
}

/* Devices without a majority take the processes one after the other, in the order of the file. */
static void guess_owners(Build *b)
{
    int64_t next = 0;
    for (int64_t k = 0; k < b->e->n_tracks; k++) {
        Owner *o = &b->owner[b->e->tracks[k].pid];
        o->mixed |= o->votes < o->all - o->all / 5; /* a tenth of the votes is for others */
        if (o->votes > 0 || (o->votes == 0 && o->pid == 0)) continue; /* voted, or no device */
        *o = (Owner){ b->process[next].pid, INT64_MAX, o->all, true };
        if (next + 1 < b->processes) next++;
    }
}

/* The process of a device event; `only`: the one that launches with its number, EVENT_NONE: several. */
static uint32_t owner_of(const Build *b, uint32_t gpu, uint32_t only)
{
    const Owner *o = &b->owner[pid_of(b->e, gpu)];
    int64_t k = b->processes - 1;
    if (b->processes == 1) return b->process[0].pid;
    if (o->mixed && only != EVENT_NONE) return only;
    if (!b->in_turn || o->votes == INT64_MAX) return o->pid;
    while (k > 0 && b->process[k].first > gpu) k--;
    return b->process[k].pid;
}

/* ---- links by number ---- */

/* By number, process and time. */
static int by_number(const void *a, const void *b, void *build)
{
    const Build *x = build;
    const Events *e = x->e;
    const uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    if (x->column[i] != x->column[j]) return x->column[i] < x->column[j] ? -1 : 1;
    if (pid_of(e, i) != pid_of(e, j)) return pid_of(e, i) < pid_of(e, j) ? -1 : 1;
    if (e->ts[i] != e->ts[j]) return e->ts[i] < e->ts[j] ? -1 : 1;
    return (i > j) - (i < j);
}

/* Of n calls with its number, the last one of its process before a device event. If all are later,
 * the first one: clocks differ. Calls that share an External id are told apart by nothing: the
 * first one counts. */
static uint32_t launch_of(const Build *b, const uint32_t *call, int64_t n, uint32_t gpu,
                          uint32_t only)
{
    const Events *e = b->e;
    const uint32_t pid = owner_of(b, gpu, only);
    const double ts = b->column == e->external ? -(double)INFINITY : e->ts[gpu];
    int64_t low = 0, high = n;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        const uint32_t c = call[middle], at = pid_of(e, c);
        if (at < pid || (at == pid && e->ts[c] <= ts))
            low = middle + 1;
        else
            high = middle;
    }
    if (low > 0 && pid_of(e, call[low - 1]) == pid) return call[low - 1];
    return low < n && pid_of(e, call[low]) == pid ? call[low] : EVENT_NONE;
}

/* Calls with one number: n of them from `call` on. Votes on the process of their device events, or
 * attaches these. */
static void link_number(Build *b, const Links *l, const uint32_t *call, int64_t n, bool voting)
{
    const uint32_t pid = pid_of(b->e, call[0]);
    const uint32_t only = pid == pid_of(b->e, call[n - 1]) ? pid : EVENT_NONE;
    for (uint32_t k = links_first(l, b->column[call[0]]); k != EVENT_NONE; k = l->next[k]) {
        const uint32_t gpu = b->gpu[k];
        Owner *o = b->processes > 1 ? &b->owner[pid_of(b->e, gpu)] : NULL;
        if (voting && only != EVENT_NONE) vote(o, only);
        if (voting) continue;
        const uint32_t launch = launch_of(b, call, n, gpu, only);
        if (launch != EVENT_NONE) attach_work(b, launch, gpu);
        b->t->guessed += o != NULL && o->mixed && only == EVENT_NONE;
    }
}

/* Device work goes to a call with its number. graphs_only: only launches of graphs count. Calls are
 * sorted if several have one number, or belong to several processes. */
static Status link_by_number(Build *b, bool graphs_only)
{
    Links l;
    uint32_t *call = NULL;
    int64_t n = 0;
    bool several = b->processes > 1;
    TRY(links_make(&l, b->gpu_key, b->gpus, &b->work));
    TRY(ARENA_NEW(&b->work, b->hosts + 1, &call));
    for (uint32_t i = 0; i < b->e->n; i++) {
        if (!is_call(b->e, i) || (graphs_only && !event_is_graph_launch(b->e, i))) continue;
        const uint32_t first = links_first(&l, b->column[i]);
        if (first == EVENT_NONE) continue;
        several |= l.last[first] == EVENT_NONE;
        l.last[first] = EVENT_NONE;
        call[n++] = i;
    }
    if (several && n > 0) qsort_r(call, (size_t)n, sizeof *call, by_number, b);
    const bool votes = b->processes > 1 && !b->in_turn;
    for (int pass = votes ? 0 : 1; pass < 2; pass++) {
        for (int64_t from = 0, to = 0; from < n; from = to) {
            for (to = from + 1; to < n && b->column[call[to]] == b->column[call[from]];) to++;
            link_number(b, &l, call + from, to - from, pass == 0);
        }
        if (pass == 0) guess_owners(b);
    }
    return OK;
}

/* Links by arrows, as TraceLens does. It needs an arrow from the call to the track of the device
 * event, and the number of that event. If several events have one number, the last one counts. */
static Status link_by_arrow(Build *b)
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
        if (event_on_gpu(e->kind[i])) event[k] = (uint32_t)i, key[k++] = b->column[i];
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
    const Events *e = b->e;
    Tree *t = b->t;
    b->column = linking_column(e);
    TRY(ARENA_NEW(&b->work, b->gpus + 1, &b->gpu_key));
    for (int64_t k = 0; k < b->gpus; k++) {
        const int64_t number = b->column[b->gpu[k]];
        b->gpu_key[k] = number == 0 && b->o->link == LINK_CORRELATION ? -1 : number;
    }
    TRY(find_processes(b));
    TRY(b->processes > 1 ? name_owners(b) : OK);
    TRY(link_by_number(b, b->o->link == LINK_AC2G));
    if (b->o->link == LINK_AC2G) TRY(link_by_arrow(b));
    for (int64_t k = 0; k < b->gpus; k++) {
        const uint32_t gpu = b->gpu[k], call = t->parent[gpu];
        t->unlinked += call == EVENT_NONE;
        if (call == EVENT_NONE || e->ts[gpu] >= e->ts[call]) continue;
        t->early++;
        t->early_us = fmax(t->early_us, e->ts[call] - e->ts[gpu]);
    }
    t->processes = b->processes;
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
    size_t bytes = SCRATCH_LEAST + (size_t)(e->n + e->n_flows + e->n_tracks) * SCRATCH_PER_EVENT +
                   (size_t)e->strings.n * (sizeof(Owner) + sizeof(uint32_t));
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
