/*
 * collectives_read: reads the trace of one rank and keeps its collectives and the work before each.
 *
 * The rest of the trace is freed, so that many ranks fit into memory. Several threads read one rank
 * each; only keep_calls writes to the shared Collectives, under a lock. Which calls belong together
 * is not decided here: that needs all ranks (collectives_match.c).
 */
#include "traces/compare/collectives.h"
#include "traces/read/events_cut.h"
#include "traces/read/events_read.h"
#include "traces/read/movers.h"
#include "traces/read/tree.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Names of kernels are tried in the order of the rows: "AllReduce" before "Reduce". */
const CollectiveRule collective_rule[COLLECTIVE_KINDS] = {
    [ALL_REDUCE] = { "all_reduce", "allreduce|allreduce_coalesced|allreduce_sparse|all_reduce",
                     "allreduce|all_reduce|cross_device_reduce", 2, true },
    [REDUCE_SCATTER] = { "reduce_scatter",
                         "reducescatter|_reduce_scatter_base|reduce_scatter_tensor_coalesced|"
                         "reduce_scatter",
                         "reducescatter|reduce_scatter", 1, true },
    [ALL_GATHER] = { "all_gather",
                     "allgather|all_gather|_allgather_base|all_gather_into_tensor_coalesced|"
                     "allgather_into_tensor_coalesced|allgather_coalesced",
                     "allgather|all_gather", 1, true },
    [ALL_TO_ALL] = { "all_to_all", "all_to_all|alltoall", "alltoall|all_to_all", 1, true },
    [ALL_TO_ALLV] = { "all_to_allv", "all_to_allv|alltoallv", "alltoallv", 1, true },
    [BROADCAST] = { "broadcast", "broadcast|_broadcast_oop", "broadcast", 0, false },
    [REDUCE] = { "reduce", "reduce|_reduce_oop", "_reduce_", 0, false },
    [GATHER] = { "gather", "gather", "c10d::gather_", 1, false },
    [SCATTER] = { "scatter", "scatter", "c10d::scatter_", 1, false },
    [BARRIER] = { "barrier", "barrier", "barrier", 0, true },
    [SEND_RECV] = { "send_recv", "send|recv", "c10d::send|c10d::recv", 0, false },
    [DISPATCH] = { "dispatch", "dispatch", "dispatch", 0, false },
    [COMBINE] = { "combine", "combine", "combine", 0, false },
    [OTHER_COLLECTIVE] = { "unknown", "", "", 0, true },
};

/* Finds the kind by a recorded name (exact), or by a word in a kernel's or operator's name. */
static CollectiveKind kind_of_name(const char *s, bool exact)
{
    int k = 0;
    while (k < OTHER_COLLECTIVE && !(exact ? text_word_index(collective_rule[k].names, s) >= 0
                                           : strings_has_word(s, collective_rule[k].kernels)))
        k++;
    return (CollectiveKind)k;
}

/* ---- a rank's trace while it is open ---- */

/* A stretch of time of a host thread, and the name of its innermost event then. */
typedef struct Stretch {
    double start, end;
    uint32_t name;
} Stretch;

/* What one thread works on while its rank's trace is open. All arrays lie in `arena`. */
typedef struct Reading {
    Collectives *all;
    Events e;
    Tree tree;
    Arena arena;
    int64_t rank;
    uint32_t *device; /* device work, by start */
    double *until;    /* by entry of `device`: the latest end so far */
    int64_t n_device;
    uint8_t *mover; /* by event: is it the kernel of a collective? */
    CollectiveCall *call;
    CollectiveWork *work;
    int32_t *stream;
    int64_t n, n_works, n_streams, room, room_works, room_streams;
    Stretch **stretch; /* by track; NULL: not made yet */
    int64_t *stretches;
    uint32_t busiest; /* the track with most operators */
    double *us;       /* us[2 * name + host]; all 0 between two calls of work_before */
    uint32_t *used;   /* the indices of us that are not 0 */
    int64_t n_used;
} Reading;

/* An event to sort: by start, and of equal starts the longer one first. */
typedef struct Sorted {
    double ts, dur;
    uint32_t event;
} Sorted;

static int by_start(const void *a, const void *b)
{
    const Sorted *x = a, *y = b;
    if (x->ts != y->ts) return x->ts < y->ts ? -1 : 1;
    if (x->dur != y->dur) return x->dur > y->dur ? -1 : 1;
    return (x->event > y->event) - (x->event < y->event);
}

/* Sorts the events for which `wanted` holds by start; of equal starts the longer one comes first. */
static Status sort_events(Reading *r, bool (*wanted)(const Reading *, int64_t, uint32_t),
                          uint32_t track, Sorted **out, int64_t *n)
{
    *n = 0;
    for (int64_t i = 0; i < r->e.n; i++) *n += wanted(r, i, track);
    TRY(ARENA_NEW(&r->arena, *n, out));
    *n = 0;
    for (int64_t i = 0; i < r->e.n; i++) {
        if (wanted(r, i, track)) (*out)[(*n)++] = (Sorted){ r->e.ts[i], r->e.dur[i], (uint32_t)i };
    }
    if (*n > 0) qsort(*out, (size_t)*n, sizeof **out, by_start);
    return OK;
}

static bool wants_device(const Reading *r, int64_t i, uint32_t track)
{
    return (void)track, event_on_gpu(r->e.kind[i]);
}

/* Does the event say what its thread was doing? Of runtime calls only those that wait do: a launch
 * takes a few microseconds, whatever the device does. */
static bool wants_host(const Reading *r, int64_t i, uint32_t track)
{
    if (r->e.track[i] != track) return false;
    switch (r->e.kind[i]) {
    case EVENT_CPU_OP:
    case EVENT_PYTHON:
    case EVENT_ANNOTATION: return true;
    case EVENT_RUNTIME:
    case EVENT_DRIVER: return strstr(event_name(&r->e, i), "ynchronize") != NULL;
    default: return false;
    }
}

/* ---- what a collective is ---- */

/* Adds up the elements of all tensors of the first argument: "[[[2,3]],[]]" -> 6. -1: unknown. */
static int64_t first_elements(const char *dims)
{
    double sum = 0, product = 0;
    int depth = 0;
    for (const char *s = dims; *s != '\0'; s++) {
        if (isdigit((unsigned char)*s)) {
            char *end = NULL;
            product = (product > 0 ? product : 1) * (double)strtoll(s, &end, 10);
            s = end - 1;
        }
        depth += *s == '[';
        if (*s != ']') continue;
        sum += product;
        product = 0;
        if (--depth <= 1) break;
    }
    return sum > 0 && sum < 1e15 ? (int64_t)sum : -1;
}

/* Asks the operators above a kernel what its collective is. Profilers before PyTorch 2.1 record a
 * collective at its operator only. Without a record, the name and the first argument of
 * record_param_comms tell something. */
static Status ask_operators(Reading *r, uint32_t event, CollectiveCall *c)
{
    Events *e = &r->e;
    bool more = c->kind == OTHER_COLLECTIVE;
    for (uint32_t p = r->tree.parent[event]; p != EVENT_NONE; p = r->tree.parent[p]) {
        if (e->kind[p] != EVENT_CPU_OP) continue;
        const OpDetail *o = e->detail[p] == EVENT_NONE ? NULL : &e->ops[e->detail[p]];
        if (o != NULL && o->collective != EVENT_NONE && e->collectives[o->collective].name != 0) {
            c->what = e->collectives[o->collective];
            return OK;
        }
        CollectiveKind kind = kind_of_name(event_name(e, p), false);
        if (more && kind != OTHER_COLLECTIVE) c->kind = (uint8_t)kind;
        if (o == NULL || o->args == EVENT_NONE || c->what.in_elements >= 0 ||
            strcmp(event_name(e, p), "record_param_comms") != 0)
            continue;
        const char *type = strings_text(&e->strings, e->args[o->args].types);
        int n = type[0] == '[' && type[1] == '"' ? (int)strcspn(type + 2, "\"") : 0;
        int64_t elements = first_elements(strings_text(&e->strings, e->args[o->args].dims));
        if (elements <= 0) continue;
        c->what.in_elements = c->what.out_elements = elements;
        if (n > 0) TRY(strings_id(&e->strings, type + 2, (size_t)n, &c->what.dtype));
    }
    return OK;
}

int64_t collectives_wholes(const char *list, int32_t *out, int64_t room)
{
    int64_t n = 0;
    for (list += strcspn(list, "0123456789"); *list != '\0' && n < room;) {
        char *end = NULL;
        out[n++] = (int32_t)strtoll(list, &end, 10);
        list = end + strcspn(end, "0123456789");
    }
    return n;
}

/* Sets the call's key by a format. Keys longer than the buffer are cut; ranks of a group then still
 * have the same key. */
static Status key_text(Reading *r, CollectiveCall *c, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static Status key_text(Reading *r, CollectiveCall *c, const char *fmt, ...)
{
    char key[2048];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(key, sizeof key, fmt, args);
    va_end(args);
    if (n >= (int)sizeof key) n = (int)sizeof key - 1;
    return strings_id(&r->e.strings, key, (size_t)n, &c->key);
}

/* Sets the sequence that a call belongs to. Sends from one rank to another are a sequence of their
 * own, and the receives at the other end belong to it. Without a group, the calls of one stream are
 * a sequence; streams are counted, because their numbers differ between ranks. */
static Status set_key(Reading *r, CollectiveCall *c)
{
    const Strings *s = &r->e.strings;
    const char *group = strings_text(s, c->what.group), *ranks = strings_text(s, c->what.ranks);
    int64_t me = r->rank, peer = c->what.peer;
    if (r->all->options.rules->by_group)
        return key_text(r, c, "%s", c->what.group == 0 ? "Unknown_Group" : group);
    if (c->kind == SEND_RECV && c->what.name != 0) {
        bool sends = strcmp(strings_text(s, c->what.name), "send") == 0;
        int32_t both[2];
        if (peer < 0 && c->what.group_size == 2 && collectives_wholes(ranks, both, 2) == 2)
            peer = both[0] == me ? both[1] : both[0];
        if (peer < 0) return key_text(r, c, "%s of rank %lld, peer unknown", group, (long long)me);
        return key_text(r, c, "%s %lld>%lld", group, (long long)(sends ? me : peer),
                        (long long)(sends ? peer : me));
    }
    if (c->what.group != 0 || c->what.ranks != 0) return key_text(r, c, "%s %s", group, ranks);
    int64_t nth = 0;
    for (int64_t i = 0; i < r->n_streams; i++) nth += r->stream[i] < c->stream;
    return key_text(r, c, "stream %lld", (long long)nth);
}

/* Notes the streams of collectives that name no group: each such stream is a sequence. */
static Status note_stream(Reading *r, const CollectiveCall *c)
{
    if (c->what.group != 0 || c->what.ranks != 0) return OK;
    for (int64_t i = 0; i < r->n_streams; i++) {
        if (r->stream[i] == c->stream) return OK;
    }
    TRY(ARENA_GROW(&r->arena, r->n_streams + 1, &r->room_streams, &r->stream));
    r->stream[r->n_streams++] = c->stream;
    return OK;
}

/* Adds the collective of a device event, by its own record, else by the operators above it. */
static Status add_call(Reading *r, uint32_t event)
{
    Events *e = &r->e;
    const bool alone = r->all->options.rules->kernel_alone;
    const GpuDetail *g = e->detail[event] == EVENT_NONE ? NULL : &e->gpu[e->detail[event]];
    CollectiveCall c = { .ts = e->ts[event],
                         .dur = e->dur[event],
                         .what = { .peer = -1, -1, -1, -1 },
                         .slot = -1,
                         .kernel = e->name[event],
                         .index = e->index[event],
                         .stream = g == NULL ? -1 : g->stream,
                         .kind = (uint8_t)kind_of_name(event_name(e, event), false) };
    if (g != NULL && g->collective != EVENT_NONE) c.what = e->collectives[g->collective];
    /* A record in the kernel is best; TraceLens uses nothing else. */
    if (c.what.name == 0 && !alone) TRY(ask_operators(r, event, &c));
    if (alone && c.what.name == 0 && strcasestr(event_name(e, event), "cross_device_reduce"))
        TRY(strings_id(&e->strings, "allreduce", 9, &c.what.name));
    if (c.what.name != 0)
        c.kind = (uint8_t)kind_of_name(strings_text(&e->strings, c.what.name), true);
    else if (alone)
        c.kind = OTHER_COLLECTIVE;
    if (!alone && strstr(strings_text(&e->strings, c.what.ranks), "...") != NULL) { /* was cut */
        for (int64_t k = 0; k < e->n_groups; k++)
            if (e->groups[k].name == c.what.group) c.what.ranks = e->groups[k].ranks;
    }
    TRY(ARENA_GROW(&r->arena, r->n + 1, &r->room, &r->call));
    r->call[r->n++] = c;
    return note_stream(r, &c);
}

/* Finds kernels that move data between ranks, by their names. DeepEP's layout kernels only compute.
 * Names are asked once: a trace has many kernels and few names. */
static Status find_movers(Reading *r)
{
    Events *e = &r->e;
    uint8_t *seen = NULL; /* by name: 0 not asked yet, 1 no, 2 yes */
    const CollectiveRules *rules = r->all->options.rules;
    TRY(ARENA_ZEROED(&r->arena, e->n, &r->mover));
    TRY(ARENA_ZEROED(&r->arena, e->strings.n, &seen));
    for (int64_t i = 0; i < e->n; i++) {
        uint8_t *s = &seen[e->name[i]];
        if (e->kind[i] != EVENT_KERNEL) continue;
        const char *name = event_name(e, i);
        if (*s == 0 && strstr(name, "_layout") != NULL) *s = 1;
        if (*s == 0 && rules->movers == NULL) *s = 1 + (mover_library(name) != NULL);
        if (*s == 0) *s = 1 + strings_has_word(name, rules->movers);
        r->mover[i] = *s == 2 && !(rules->kernel_alone && e->link[i] < 0 && e->external[i] < 0);
    }
    return OK;
}

/* ---- the work before a collective ---- */

/* An event that has begun and not ended yet. */
typedef struct Open {
    double end;
    uint32_t name;
} Open;

static void add_stretch(Stretch *at, int64_t *n, double start, double end, uint32_t name)
{
    if (end > start) at[(*n)++] = (Stretch){ start, end, name };
}

/* Cuts the time of a thread at the start and end of each of its events. Each of n events begins and
 * ends a stretch, so there are at most 2 n + 1. */
static Status cut_stretches(Reading *r, uint32_t track)
{
    Sorted *event = NULL;
    Open *stack = NULL;
    Stretch *at = NULL;
    int64_t n = 0, depth = 0, cut = 0;
    double now = 0;
    TRY(sort_events(r, wants_host, track, &event, &n));
    TRY(ARENA_NEW(&r->arena, n, &stack));
    TRY(ARENA_NEW(&r->arena, 2 * n + 1, &at));
    for (int64_t i = 0; i <= n; i++) {
        double start = i < n ? event[i].ts : (double)INFINITY;
        while (depth > 0 && stack[depth - 1].end <= start) {
            const Open *top = &stack[--depth];
            add_stretch(at, &cut, now, top->end, top->name);
            if (top->end > now) now = top->end;
        }
        if (i == n) break;
        if (depth > 0) add_stretch(at, &cut, now, start, stack[depth - 1].name);
        now = start;
        stack[depth++] = (Open){ start + event[i].dur, r->e.name[event[i].event] };
    }
    r->stretch[track] = at;
    r->stretches[track] = cut;
    return OK;
}

static void add_work(Reading *r, uint32_t name, bool host, double us)
{
    uint32_t at = 2 * name + host;
    if (us <= 0) return;
    if (r->us[at] <= 0) r->used[r->n_used++] = at;
    r->us[at] += us;
}

/* Binary search: the first stretch that ends after t. */
static int64_t first_ending_after(const Stretch *s, int64_t n, double t)
{
    int64_t low = 0;
    while (low < n) {
        int64_t middle = (low + n) / 2;
        if (s[middle].end <= t)
            low = middle + 1;
        else
            n = middle;
    }
    return low;
}

/* The device was idle from a to b. Counts what the launching thread did then. Where that thread has
 * no events, counts what the busiest thread did, since the backward thread waits for the forward
 * thread. */
static void add_idle(Reading *r, uint32_t track, double a, double b)
{
    const Stretch *s = r->stretch[track];
    int64_t n = r->stretches[track], i = first_ending_after(s, n, a);
    while (a < b) {
        double start = i < n ? fmin(fmax(a, s[i].start), b) : b;
        if (start > a && track != r->busiest)
            add_idle(r, r->busiest, a, start);
        else
            add_work(r, 0, true, start - a);
        if (i == n || start >= b) break;
        a = fmin(b, s[i].end);
        add_work(r, s[i++].name, true, a - start);
    }
}

/* Binary search: the first device event that starts at ts or later. */
static int64_t first_starting_at(const Reading *r, double ts)
{
    int64_t low = 0, high = r->n_device;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (r->e.ts[r->device[middle]] < ts)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Lists the work between `from`, the end of the sequence's previous collective, and the call.
 * Device work counts by its launcher, collectives by their own name. Gaps count as the host's
 * work. */
static Status work_before(Reading *r, CollectiveCall *c, uint32_t event, double from)
{
    const Events *e = &r->e;
    uint32_t call = r->tree.parent[event], track = call == EVENT_NONE ? EVENT_NONE : e->track[call];
    if (track != EVENT_NONE && r->stretch[track] == NULL) TRY(cut_stretches(r, track));
    int64_t i = first_starting_at(r, from);
    double busy = i > 0 ? fmax(from, r->until[i - 1]) : from;
    for (; i < r->n_device && e->ts[r->device[i]] <= c->ts; i++) {
        uint32_t d = r->device[i], launcher = r->mover[d] ? EVENT_NONE : tree_launcher(&r->tree, d);
        if (e->ts[d] > busy && track != EVENT_NONE) add_idle(r, track, busy, e->ts[d]);
        busy = fmax(busy, event_end(e, d));
        if (d == event) break;
        add_work(r, e->name[launcher == EVENT_NONE ? d : launcher], false,
                 fmin(event_end(e, d), c->ts) - e->ts[d]);
    }
    c->work = r->n_works;
    c->works = r->n_used;
    TRY(ARENA_GROW(&r->arena, r->n_works + r->n_used, &r->room_works, &r->work));
    for (int64_t k = 0; k < r->n_used; k++) {
        uint32_t at = r->used[k];
        r->work[r->n_works++] = (CollectiveWork){ r->us[at], at / 2, at % 2 };
        r->us[at] = 0;
    }
    r->n_used = 0;
    return OK;
}

/* Lists the work before each call. `last` is per sequence, so a call sees all work since its own
 * group communicated last. */
static Status all_work(Reading *r, const uint32_t *event)
{
    int64_t names = r->e.strings.n;
    double *last = NULL; /* by key: the latest end in its sequence */
    TRY(ARENA_NEW(&r->arena, names, &last));
    TRY(ARENA_ZEROED(&r->arena, 2 * names, &r->us));
    TRY(ARENA_NEW(&r->arena, 2 * names, &r->used));
    TRY(ARENA_ZEROED(&r->arena, r->e.n_tracks, &r->stretch));
    TRY(ARENA_ZEROED(&r->arena, r->e.n_tracks, &r->stretches));
    for (int64_t i = 0; i < r->e.n; i++)
        r->stretches[r->e.track[i]] += r->e.kind[i] == EVENT_CPU_OP;
    for (uint32_t t = 1; t < r->e.n_tracks; t++)
        if (r->stretches[t] > r->stretches[r->busiest]) r->busiest = t;
    TRY(cut_stretches(r, r->busiest));
    for (int64_t k = 0; k < names; k++) last[k] = r->e.ts[r->device[0]];
    for (int64_t k = 0; k < r->n; k++) {
        CollectiveCall *c = &r->call[k];
        if (last[c->key] < c->ts) TRY(work_before(r, c, event[k], last[c->key]));
        last[c->key] = fmax(last[c->key], c->ts + c->dur);
    }
    return OK;
}

/* ---- all of a trace ---- */

/* Calls are added in the order of their starts, which all later steps rely on. */
static Status find_collectives(Reading *r)
{
    Sorted *sorted = NULL;
    uint32_t *event = NULL;
    const TreeOptions how = { .link = LINK_CORRELATION };
    TRY(tree_build(&r->e, &how, &r->arena, &r->tree));
    if (r->tree.processes > 1 && !r->all->options.rules->kernel_alone)
        return FAIL(
            ERR_ARG,
            "%s has the calls of %lld processes, and a file is one rank: name the ranks' own "
            "traces",
            r->e.path, (long long)r->tree.processes);
    TRY(r->all->options.rules->kernel_alone ? OK : events_cut(&r->e, &r->tree, &r->arena));
    TRY(find_movers(r));
    TRY(sort_events(r, wants_device, 0, &sorted, &r->n_device));
    TRY(ARENA_NEW(&r->arena, r->n_device, &r->device));
    TRY(ARENA_NEW(&r->arena, r->n_device, &r->until));
    TRY(ARENA_NEW(&r->arena, r->n_device, &event));
    for (int64_t i = 0; i < r->n_device; i++) {
        uint32_t d = r->device[i] = sorted[i].event;
        r->until[i] = fmax(i > 0 ? r->until[i - 1] : event_end(&r->e, d), event_end(&r->e, d));
        if (!r->mover[d]) continue;
        event[r->n] = d;
        TRY(add_call(r, d));
    }
    for (int64_t i = 0; i < r->n; i++) TRY(set_key(r, &r->call[i]));
    return r->n == 0 || !r->all->options.rules->causes ? OK : all_work(r, event);
}

/* Finds the rank in a file's name: rank3, rank-3, rank_3, rank[3, worker3. -1: there is none. */
static int64_t rank_of_name(const char *path)
{
    static const char *const words[] = { "rank", "worker" };
    const char *name = strrchr(path, '/');
    name = name == NULL ? path : name + 1;
    for (int w = 0; w < 2; w++) {
        for (const char *s = name; (s = strstr(s, words[w])) != NULL;) {
            s += strlen(words[w]);
            if (strchr("[-_", *s) != NULL && *s != '\0') s++;
            if (isdigit((unsigned char)*s)) return strtoll(s, NULL, 10);
        }
    }
    return -1;
}

/* Gives a text of this trace its number among the shared strings. */
static Status share_text(Collectives *c, const Strings *from, uint32_t *text)
{
    const char *s = strings_text(from, *text);
    return strings_id(&c->strings, s, strlen(s), text);
}

/* Moves what stays into the shared Collectives. The caller holds the lock. */
static Status keep_calls(Reading *r, CollectiveRank *out, int row)
{
    Collectives *c = r->all;
    const Strings *s = &r->e.strings;
    TRY(ARENA_GROW(c->arena, c->n_calls + r->n, &c->room_calls, &c->calls));
    TRY(ARENA_GROW(c->arena, c->n_works + r->n_works, &c->room_works, &c->works));
    for (int64_t i = 0; i < r->n; i++) {
        CollectiveCall *x = &c->calls[c->n_calls++];
        *x = r->call[i];
        Collective *w = &x->what;
        /* All texts of a call are numbers of this trace's strings until here. */
        uint32_t *texts[] = { &w->name,  &w->dtype,  &w->in_split,
                              &w->group, &w->ranks,  &w->out_split,
                              &x->key,   &x->kernel, &w->group_description };
        for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) TRY(share_text(c, s, texts[k]));
        x->rank = row;
        x->work += c->n_works;
    }
    for (int64_t i = 0; i < r->n_works; i++) {
        c->works[c->n_works + i] = r->work[i];
        TRY(share_text(c, s, &c->works[c->n_works + i].name));
    }
    c->n_works += r->n_works;
    out->calls = r->n;
    return OK;
}

/* A rank's number comes from the trace, else from the file's name, else from the position in the
 * list. */
static Status read_trace(Reading *r, const char *path, CollectiveRank *out, int row)
{
    const CollectiveRules *rules = r->all->options.rules;
    const EventsOptions how = { .python = rules->causes, .threads = 1, .bar = r->all->options.bar };
    TRY(events_read(path, &how, &r->e));
    *out = (CollectiveRank){ .path = path,
                             .rank = rules->files_are_ranks ? -1 : r->e.rank,
                             .rank_from = "distributedInfo",
                             .world = r->e.world,
                             .base_ns = r->e.base_ns,
                             .run = r->e.run,
                             .devices = r->e.n_devices,
                             .counts = r->e.counts };
    if (out->rank < 0 && !rules->files_are_ranks) {
        out->rank = rank_of_name(path);
        out->rank_from = "the file's name";
    }
    if (out->rank < 0) {
        out->rank = row;
        out->rank_from = "the place in the list";
    }
    r->rank = out->rank;
    return find_collectives(r);
}

Status collectives_read(Collectives *c, const char *path, CollectiveRank *out, int row)
{
    Reading r = { .all = c };
    Status s = arena_reserve(&r.arena, "rank", (size_t)64 << 30);
    if (s == OK) s = read_trace(&r, path, out, row);
    if (s == OK) {
#pragma omp critical(collectives_keep)
        s = keep_calls(&r, out, row);
    }
    events_free(&r.e);
    arena_free(&r.arena);
    return s;
}
